/* A graph: what to compute, on no machine in particular.
 *
 *     weft_graph *g;
 *     weft_vid x, w, y, loss;
 *     weft_graph_create("demo", &g);
 *     weft_graph_add_input(g, "x", WEFT_DTYPE_F32, 2, (int64_t[]){8, 16}, &x);
 *     weft_graph_add_param(g, "w", WEFT_DTYPE_F32, 2, (int64_t[]){16, 4}, &w);
 *     weft_graph_add_op(g, "matmul", "spec=bd,dn->bn", 2, (weft_vid[]){x, w}, "y", 1, &y);
 *     weft_graph_add_op(g, "reduce", "axes=[0,1]", 1, &y, "loss", 1, &loss);
 *     weft_graph_set_output(g, loss);
 *
 * Values are numbered from 0 in the order they are made; a node's operands come before it, so
 * the order of nodes is an order to run them in.  Everything lives and dies with the graph. */
#ifndef WEFT_GRAPH_H
#define WEFT_GRAPH_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_graph weft_graph;
typedef int32_t           weft_vid; /* a value's number; -1 is none */

typedef enum weft_value_kind {
    WEFT_VALUE_INPUT, /* given anew for each micro-batch (or each step) */
    WEFT_VALUE_PARAM, /* trained */
    WEFT_VALUE_STATE, /* kept from step to step: optimizer state, running statistics, copies */
    WEFT_VALUE_NODE, /* a node's result */
} weft_value_kind;

weft_status weft_graph_create(const char *name, weft_graph **out);
void        weft_graph_destroy(weft_graph *g);

/* Names are unique; a taken one gets a number behind it. */
weft_status weft_graph_add_input(weft_graph *g, const char *name, weft_dtype t, int n_dim,
                                 const int64_t *dim, weft_vid *out);
weft_status weft_graph_add_param(weft_graph *g, const char *name, weft_dtype t, int n_dim,
                                 const int64_t *dim, weft_vid *out);
weft_status weft_graph_add_state(weft_graph *g, const char *name, weft_dtype t, int n_dim,
                                 const int64_t *dim, weft_vid *out);

/* A node: operator by name, attributes as "key=value key=[1,2]".  Result types follow from the
 * operator's shape rule; WEFT_ERR_ARG says in words what does not fit. */
weft_status weft_graph_add_op(weft_graph *g, const char *op, const char *attr, int n_in,
                              const weft_vid *in, const char *name, int n_out,
                              weft_vid *out);

/* What the graph is computed for. */
weft_status weft_graph_set_output(weft_graph *g, weft_vid v);
/* After the step, state (or parameter) takes the value next. */
weft_status weft_graph_set_next(weft_graph *g, weft_vid state, weft_vid next);

/* Adds the gradient of the sum of y, weighted by seed (-1: ones), for each of wrt: ordinary nodes
 * of the same graph.  grad[i] is -1 where y does not depend on wrt[i]. */
weft_status weft_graph_differentiate(weft_graph *g, weft_vid y, weft_vid seed, int n_wrt,
                                     const weft_vid *wrt, weft_vid *grad);

int         weft_graph_n_value(const weft_graph *g);
const char *weft_graph_value_name(const weft_graph *g, weft_vid v);
weft_status weft_graph_value_type(const weft_graph *g, weft_vid v, weft_dtype *t,
                                  weft_shape *s);
weft_vid weft_graph_find(const weft_graph *g, const char *name); /* -1: no such value */

/* Checks everything a graph promises. */
weft_status weft_graph_verify(const weft_graph *g);

/* Text and back: parse(print(g)) == g.  *text is malloc'ed, the caller frees it. */
weft_status weft_graph_to_text(const weft_graph *g, char **text);
weft_status weft_graph_from_text(const char *file, const char *text, size_t n,
                                 weft_graph **out);

/* A hash of structure, shapes and attributes, not of names. */
uint64_t weft_graph_hash(const weft_graph *g);

#ifdef __cplusplus
}
#endif
#endif
