/* Gradients: experts. */
#include "graph/grad_priv.h"

/* dx = dy w, the product the other way round; dw from each expert's rows */
WEFT_GRAD(grouped_matmul)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_vid  offsets = n->in[2];
    if (weft_graph__wants(d, n, 0)) {
        weft_graph__copy_attr(WEFT_OP_GROUPED_MATMUL, attr, n);
        weft_attr *trans = weft_graph__attr(WEFT_OP_GROUPED_MATMUL, attr, "trans");
        trans->i         = !trans->i;
        weft_graph__give(d, n, 0,
                         weft_graph__emit(d, n, 0, WEFT_OP_GROUPED_MATMUL, attr, 3,
                                          (weft_vid[]){dy[0], n->in[1], offsets}));
    }
    if (weft_graph__wants(d, n, 1)) {
        weft_graph__copy_attr(WEFT_OP_GROUPED_MATMUL_WGRAD, attr, n);
        weft_graph__give(d, n, 1,
                         weft_graph__emit(d, n, 1, WEFT_OP_GROUPED_MATMUL_WGRAD, attr, 3,
                                          (weft_vid[]){n->in[0], dy[0], offsets}));
    }
}

/* in: logits w idx dw */
WEFT_GRAD(route)
{
    weft_attr attr[WEFT_MAX_ATTR];
    if (dy[0] < 0) return;
    weft_graph__copy_attr(WEFT_OP_ROUTE_GRAD, attr, n);
    weft_graph__give(
        d, n, 0,
        weft_graph__emit(d, n, 0, WEFT_OP_ROUTE_GRAD, attr, 4,
                         (weft_vid[]){n->in[0], n->out[0], n->out[1], dy[0]}));
}

WEFT_GRAD(dispatch)
{
    weft_attr attr[WEFT_MAX_ATTR];
    if (dy[0] < 0 || !weft_graph__wants(d, n, 0)) return;
    weft_op_attr_defaults(WEFT_OP_DISPATCH_GRAD, attr);
    weft_graph__attr(WEFT_OP_DISPATCH_GRAD, attr, "k")->i =
        WEFT_TYPE(d, n->in[1]).shape.d[1];
    weft_graph__give(d, n, 0,
                     weft_graph__emit(d, n, 0, WEFT_OP_DISPATCH_GRAD, attr, 2,
                                      (weft_vid[]){dy[0], n->out[2]}));
}

/* in: dy rows w src */
WEFT_GRAD(combine)
{
    weft_vid g[2];
    weft_graph__emit_many(d, n, 0, WEFT_OP_COMBINE_GRAD, NULL, 4,
                          (weft_vid[]){dy[0], n->in[0], n->in[1], n->in[2]}, 2, g);
    for (int k = 0; k < 2; k++)
        if (weft_graph__wants(d, n, k)) weft_graph__give(d, n, k, g[k]);
}
