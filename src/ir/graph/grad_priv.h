/* The gradient table: one function for each operator, grouped in grad_*.c. */
#ifndef WEFT_GRAPH_GRAD_PRIV_H
#define WEFT_GRAPH_GRAD_PRIV_H

#include "base/status.h"
#include "graph/build.h"
#include "graph/grad.h"

typedef struct weft_graph__part weft_graph__part; /* one use's gradient */

typedef struct weft_graph__diff {
    weft_builder       b;
    weft_arena        *tmp;
    int                n_value; /* values there were before */
    bool              *depends; /* value: depends on some wrt */
    weft_graph__part **part;    /* value: gradients so far, in graph order of uses */
    int                node;    /* the node whose gradient is being made */
} weft_graph__diff;

/* dy[j]: the gradient of result j, -1 where there is none (dy[0] may be that too). */
typedef void (*weft_graph__grad_fn)(weft_graph__diff *d, const weft_graph_node *n,
                                    const weft_vid *dy);

#define WEFT_GRAD(name)                                                                  \
    void weft_graph__grad_##name(weft_graph__diff *d, const weft_graph_node *n,          \
                                 const weft_vid *dy)

/* Does operand k need a gradient? */
bool weft_graph__wants(const weft_graph__diff *d, const weft_graph_node *n, int k);
/* The dtype its gradient has. */
weft_dtype weft_graph__grad_dtype(const weft_graph__diff *d, const weft_graph_node *n,
                                  int k);
/* Hands in the gradient of operand k (cast where its dtype differs). */
void weft_graph__give(weft_graph__diff *d, const weft_graph_node *n, int k,
                      weft_vid grad);

/* Nodes named after operand k; attr NULL: defaults. */
weft_vid weft_graph__emit(weft_graph__diff *d, const weft_graph_node *n, int k,
                          weft_op op, const weft_attr *attr, int n_in,
                          const weft_vid *in);
void     weft_graph__emit_many(weft_graph__diff *d, const weft_graph_node *n, int k,
                               weft_op op, const weft_attr *attr, int n_in,
                               const weft_vid *in, int n_out, weft_vid *out);
/* Sums x down to the shape that was spread to x's (NumPy's rule), in the given dtype. */
weft_vid weft_graph__unbroadcast(weft_graph__diff *d, const weft_graph_node *n, int k,
                                 weft_vid x, const weft_shape *to, weft_dtype t);
weft_vid weft_graph__cast(weft_graph__diff *d, weft_vid x, weft_dtype t);

/* Operators of one name share attributes of one name: dst's defaults, then what src has too. */
void       weft_graph__copy_attr(weft_op dst, weft_attr *to, const weft_graph_node *src);
weft_attr *weft_graph__attr(weft_op op, weft_attr *attr, const char *name);
void weft_graph__fail(weft_graph__diff *d, const weft_graph_node *n, const char *why);

#define WEFT_TYPE(d, v) weft_build_type(&(d)->b, (v))

WEFT_GRAD(matmul);
WEFT_GRAD(add);
WEFT_GRAD(mul);
WEFT_GRAD(scale);
WEFT_GRAD(pass);
WEFT_GRAD(from_x);
WEFT_GRAD(from_y);
WEFT_GRAD(gate);
WEFT_GRAD(dropout);
WEFT_GRAD(reduce);
WEFT_GRAD(broadcast);
WEFT_GRAD(reshape);
WEFT_GRAD(transpose);
WEFT_GRAD(concat);
WEFT_GRAD(split);
WEFT_GRAD(slice);
WEFT_GRAD(slice_grad);
WEFT_GRAD(layer_norm);
WEFT_GRAD(rms_norm);
WEFT_GRAD(rotary);
WEFT_GRAD(attention);
WEFT_GRAD(embedding);
WEFT_GRAD(cross_entropy);
WEFT_GRAD(gather);
WEFT_GRAD(scatter_add);
WEFT_GRAD(grouped_matmul);
WEFT_GRAD(route);
WEFT_GRAD(dispatch);
WEFT_GRAD(combine);
WEFT_GRAD(conv2d);
WEFT_GRAD(max_pool);
WEFT_GRAD(avg_pool);
WEFT_GRAD(batch_norm);

#endif
