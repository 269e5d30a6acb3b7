/* Gradients: convolution, pooling, batch norm. */
#include "graph/grad_priv.h"

/* size = the two spatial sizes of v */
static void set_size(weft_graph__diff *d, weft_op op, weft_attr *attr, weft_vid v)
{
    weft_shape s    = WEFT_TYPE(d, v).shape;
    weft_attr *size = weft_graph__attr(op, attr, "size");
    size->n         = 2;
    size->l[0]      = s.d[2];
    size->l[1]      = s.d[3];
}

static void give_sized(weft_graph__diff *d, const weft_graph_node *n, int k, weft_op op,
                       int n_in, const weft_vid *in)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_graph__copy_attr(op, attr, n);
    set_size(d, op, attr, n->in[k]);
    weft_graph__give(d, n, k, weft_graph__emit(d, n, k, op, attr, n_in, in));
}

WEFT_GRAD(conv2d)
{
    if (weft_graph__wants(d, n, 0))
        give_sized(d, n, 0, WEFT_OP_CONV2D_GRAD_X, 2, (weft_vid[]){dy[0], n->in[1]});
    if (weft_graph__wants(d, n, 1))
        give_sized(d, n, 1, WEFT_OP_CONV2D_GRAD_W, 2, (weft_vid[]){dy[0], n->in[0]});
}
WEFT_GRAD(max_pool)
{
    if (dy[0] >= 0)
        give_sized(d, n, 0, WEFT_OP_MAX_POOL_GRAD, 2, (weft_vid[]){dy[0], n->out[1]});
}
WEFT_GRAD(avg_pool)
{
    give_sized(d, n, 0, WEFT_OP_AVG_POOL_GRAD, 1, dy);
}

/* in: dy x w mean var; the running statistics take mean and var, no gradient flows through them */
WEFT_GRAD(batch_norm)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_vid  g[3];
    if (dy[1] >= 0 || dy[2] >= 0) {
        weft_graph__fail(d, n, "no gradient flows through its statistics");
        return;
    }
    weft_graph__copy_attr(WEFT_OP_BATCH_NORM_GRAD, attr, n);
    weft_graph__emit_many(d, n, 0, WEFT_OP_BATCH_NORM_GRAD, attr, 5,
                          (weft_vid[]){dy[0], n->in[0], n->in[1], n->out[1], n->out[2]},
                          3, g);
    for (int k = 0; k < 3; k++)
        if (weft_graph__wants(d, n, k)) weft_graph__give(d, n, k, g[k]);
}
