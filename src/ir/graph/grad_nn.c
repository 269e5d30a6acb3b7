/* Gradients: norms, attention, tables, losses. */
#include "graph/grad_priv.h"

/* Results behind the first are for the gradient's own use: nothing flows through them. */
static bool only_first(weft_graph__diff *d, const weft_graph_node *n, const weft_vid *dy)
{
    for (int j = 1; j < n->n_out; j++)
        if (dy[j] >= 0)
            weft_graph__fail(d, n, "no gradient flows through its side results");
    return d->b.st == WEFT_OK && dy[0] >= 0;
}

static void give_wanted(weft_graph__diff *d, const weft_graph_node *n, int n_grad,
                        const weft_vid *grad)
{
    for (int k = 0; k < n_grad; k++)
        if (weft_graph__wants(d, n, k)) weft_graph__give(d, n, k, grad[k]);
}

/* in: dy x w mean rstd */
WEFT_GRAD(layer_norm)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_vid  g[3];
    if (!only_first(d, n, dy)) return;
    weft_graph__copy_attr(WEFT_OP_LAYER_NORM_GRAD, attr, n);
    weft_graph__emit_many(d, n, 0, WEFT_OP_LAYER_NORM_GRAD, attr, 5,
                          (weft_vid[]){dy[0], n->in[0], n->in[1], n->out[1], n->out[2]},
                          3, g);
    give_wanted(d, n, 3, g);
}
WEFT_GRAD(rms_norm)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_vid  g[2];
    if (!only_first(d, n, dy)) return;
    weft_graph__copy_attr(WEFT_OP_RMS_NORM_GRAD, attr, n);
    weft_graph__emit_many(d, n, 0, WEFT_OP_RMS_NORM_GRAD, attr, 4,
                          (weft_vid[]){dy[0], n->in[0], n->in[1], n->out[1]}, 2, g);
    give_wanted(d, n, 2, g);
}

/* A rotation: its gradient is the rotation back. */
WEFT_GRAD(rotary)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_graph__copy_attr(WEFT_OP_ROTARY, attr, n);
    weft_attr *inverse = weft_graph__attr(WEFT_OP_ROTARY, attr, "inverse");
    inverse->i         = !inverse->i;
    weft_graph__give(d, n, 0, weft_graph__emit(d, n, 0, WEFT_OP_ROTARY, attr, 1, dy));
}

/* in: do q k v o lse bias? */
WEFT_GRAD(attention)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_vid  g[4];
    bool      bias = n->n_in > 3;
    if (!only_first(d, n, dy)) return;
    weft_graph__copy_attr(WEFT_OP_ATTENTION_GRAD, attr, n);
    weft_graph__emit_many(d, n, 0, WEFT_OP_ATTENTION_GRAD, attr, bias ? 7 : 6,
                          (weft_vid[]){dy[0], n->in[0], n->in[1], n->in[2], n->out[0],
                                       n->out[1], bias ? n->in[3] : -1},
                          bias ? 4 : 3, g);
    give_wanted(d, n, bias ? 4 : 3, g);
}

WEFT_GRAD(embedding)
{
    weft_attr attr[WEFT_MAX_ATTR];
    if (!weft_graph__wants(d, n, 0)) return;
    weft_op_attr_defaults(WEFT_OP_EMBEDDING_GRAD, attr);
    weft_graph__attr(WEFT_OP_EMBEDDING_GRAD, attr, "rows")->i =
        WEFT_TYPE(d, n->in[0]).shape.d[0];
    weft_graph__attr(WEFT_OP_EMBEDDING_GRAD, attr, "pad")->i =
        n->attr[weft_op_attr_index(WEFT_OP_EMBEDDING, "pad")].i;
    weft_graph__attr(WEFT_OP_EMBEDDING_GRAD, attr, "first")->i =
        n->attr[weft_op_attr_index(WEFT_OP_EMBEDDING, "first")].i;
    weft_graph__give(d, n, 0,
                     weft_graph__emit(d, n, 0, WEFT_OP_EMBEDDING_GRAD, attr, 2,
                                      (weft_vid[]){dy[0], n->in[1]}));
}

/* in: logits labels lse dloss */
WEFT_GRAD(cross_entropy)
{
    weft_attr attr[WEFT_MAX_ATTR];
    if (!only_first(d, n, dy) || !weft_graph__wants(d, n, 0)) return;
    if (n->attr[weft_op_attr_index(WEFT_OP_CROSS_ENTROPY, "first")].i >= 0)
        weft_graph__fail(d, n, "a part of the vocabulary has no gradient by itself");
    weft_graph__copy_attr(WEFT_OP_CROSS_ENTROPY_GRAD, attr, n);
    weft_graph__give(
        d, n, 0,
        weft_graph__emit(d, n, 0, WEFT_OP_CROSS_ENTROPY_GRAD, attr, 4,
                         (weft_vid[]){n->in[0], n->in[1], n->out[1], dy[0]}));
}

WEFT_GRAD(gather)
{
    weft_attr attr[WEFT_MAX_ATTR];
    if (!weft_graph__wants(d, n, 0)) return;
    weft_graph__copy_attr(WEFT_OP_SCATTER_ADD, attr, n);
    int64_t axis = weft_graph__attr(WEFT_OP_SCATTER_ADD, attr, "axis")->i;
    weft_graph__attr(WEFT_OP_SCATTER_ADD, attr, "size")->i =
        WEFT_TYPE(d, n->in[0]).shape.d[axis];
    weft_graph__give(d, n, 0,
                     weft_graph__emit(d, n, 0, WEFT_OP_SCATTER_ADD, attr, 2,
                                      (weft_vid[]){dy[0], n->in[1]}));
}
WEFT_GRAD(scatter_add)
{
    weft_attr attr[WEFT_MAX_ATTR];
    if (!weft_graph__wants(d, n, 0)) return;
    weft_graph__copy_attr(WEFT_OP_GATHER, attr, n);
    weft_graph__give(d, n, 0,
                     weft_graph__emit(d, n, 0, WEFT_OP_GATHER, attr, 2,
                                      (weft_vid[]){dy[0], n->in[1]}));
}
