/* A whole graph in double precision by the reference kernels: slow, plain, right. */
#ifndef WEFT_TESTS_EVAL_H
#define WEFT_TESTS_EVAL_H

#include "graph/graph.h"
#include "kernel/ref.h"

/* data[v]: the numbers of value v; the caller fills those of inputs, params and states. */
typedef struct weft_test_eval {
    const weft_graph *g;
    double          **data;
} weft_test_eval;

/* Storage for every value, zeroed; lives in a. */
weft_status weft_test_eval_make(const weft_graph *g, weft_arena *a, weft_test_eval *out);
/* Runs the nodes of phases [from, to] in order.  Accumulate nodes add to what is there when
 * `add`. */
weft_status weft_test_eval_run(weft_test_eval *e, weft_phase from, weft_phase to,
                               bool add, const weft_ref_ctx *ctx);
/* States and parameters take their next values. */
void weft_test_eval_next(weft_test_eval *e);

#endif
