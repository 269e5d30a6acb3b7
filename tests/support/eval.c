#include "support/eval.h"

#include <string.h>

#include "base/status.h"

weft_status weft_test_eval_make(const weft_graph *g, weft_arena *a, weft_test_eval *out)
{
    out->g    = g;
    out->data = WEFT_ARENA_ARRAY(a, double *, g->n_value + 1);
    for (int v = 0; v < g->n_value && out->data; v++) {
        int64_t n    = weft_shape_count(&g->value[v].type.shape);
        out->data[v] = WEFT_ARENA_ARRAY(a, double, n ? n : 1);
    }
    return weft_arena_status(a);
}

static weft_status run_node(weft_test_eval *e, const weft_graph_node *n, bool add,
                            const weft_ref_ctx *ctx)
{
    static weft_type     in_type[WEFT_MAX_IN], out_type[WEFT_MAX_OUT];
    static const double *in[WEFT_MAX_IN];
    double              *out[WEFT_MAX_OUT];
    weft_op_use          u = weft_graph_use(e->g, n, in_type, out_type);
    for (int i = 0; i < n->n_in; i++) in[i] = e->data[n->in[i]];
    for (int j = 0; j < n->n_out; j++) out[j] = e->data[n->out[j]];
    if (n->op == WEFT_OP_ACCUMULATE && add) {
        for (int64_t i = 0, k = weft_shape_count(&u.in[0].shape); i < k; i++)
            out[0][i] += in[0][i];
        return WEFT_OK;
    }
    return weft_kernel_ref_run(&u, in, out, ctx);
}

weft_status weft_test_eval_run(weft_test_eval *e, weft_phase from, weft_phase to,
                               bool add, const weft_ref_ctx *ctx)
{
    for (int i = 0; i < e->g->n_node; i++) {
        const weft_graph_node *n = &e->g->node[i];
        /* an accumulate node belongs to the update but takes its part with each micro-batch */
        weft_phase p = n->op == WEFT_OP_ACCUMULATE ? WEFT_PHASE_BACKWARD : n->phase;
        if (p >= from && p <= to) WEFT_TRY(run_node(e, n, add, ctx));
    }
    return WEFT_OK;
}

void weft_test_eval_next(weft_test_eval *e)
{
    for (int v = 0; v < e->g->n_value; v++)
        if (e->g->value[v].next >= 0)
            memcpy(e->data[v], e->data[e->g->value[v].next],
                   sizeof(double) * (size_t)weft_shape_count(&e->g->value[v].type.shape));
}
