/* A builder: makes nodes without a status check on every line.
 *
 *     weft_builder b = weft_build_start(g);
 *     weft_vid h = weft_build(&b, WEFT_OP_MATMUL, "h", "spec=bsd,dn->bsn", 2, x, w);
 *     h = weft_build(&b, WEFT_OP_GELU, NULL, "approx=tanh", 1, h);
 *     return b.st;
 *
 * After the first failure every call does nothing and gives -1; b.st and the error text hold the
 * reason. */
#ifndef WEFT_GRAPH_BUILD_H
#define WEFT_GRAPH_BUILD_H

#include "graph/graph.h"

typedef struct weft_builder {
    weft_graph *g;
    weft_status st;
    const char *prefix; /* put before names with a '.', may be NULL */
} weft_builder;

weft_builder weft_build_start(weft_graph *g);

/* One result; operands follow as n_in values.  name NULL: the operator's.  attr NULL: defaults. */
weft_vid weft_build(weft_builder *b, weft_op op, const char *name, const char *attr,
                    int n_in, ...);
/* Attributes by printf: weft_buildf(&b, op, name, n_in, in, "alpha=%.17g", a). */
weft_vid weft_buildf(weft_builder *b, weft_op op, const char *name, int n_in,
                     const weft_vid *in, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
/* Several results into out[n_out]. */
void weft_build_many(weft_builder *b, weft_op op, const char *name, const char *attr,
                     int n_in, const weft_vid *in, int n_out, weft_vid *out);

weft_vid weft_build_input(weft_builder *b, const char *name, weft_dtype t, int n,
                          const int64_t *d);
weft_vid weft_build_param(weft_builder *b, const char *name, weft_dtype t, int n,
                          const int64_t *d);
weft_vid weft_build_state(weft_builder *b, const char *name, weft_dtype t, int n,
                          const int64_t *d);

/* reshape and broadcast take a shape instead of text; they give x itself when nothing changes. */
weft_vid weft_build_reshape(weft_builder *b, weft_vid x, const weft_shape *s);
weft_vid weft_build_broadcast(weft_builder *b, weft_vid x, const weft_shape *s);

/* The type of a value (a scalar f32 after a failure). */
weft_type weft_build_type(const weft_builder *b, weft_vid v);

#endif
