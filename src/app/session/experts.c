/* How evenly a step's tokens went to experts: of each layer the largest load by the mean.  Counts
 * are outputs of the step: on a device that replays it they are in pinned memory when it ends. */
#include <stdio.h>

#include "session/session_priv.h"

enum {
    MAX_EXPERT = 4096 /* of a layer, as models have it */
};

static weft_status read_load(const weft_exec *e, const weft_program *p, int layer,
                             float *out)
{
    float count[MAX_EXPERT], sum = 0, most = 0;
    char  name[32];
    snprintf(name, sizeof name, "step.load.%d", layer);
    const weft_binding *b = weft_program_find(p, name);
    int64_t             n = b ? weft_shape_count(&b->at.type.shape) : 0;
    *out                  = 0;
    if (n < 1 || n > MAX_EXPERT || b->at.type.dtype != WEFT_DTYPE_F32)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: %lld counts", name, (long long)n);
    WEFT_TRY(weft_exec_read(e, name, 0, NULL, count));
    for (int64_t i = 0; i < n; i++) {
        sum += count[i];
        if (count[i] > most) most = count[i];
    }
    if (sum > 0) *out = most * (float)n / sum;
    return WEFT_OK;
}

weft_status weft_session__read_loads_of(weft_session *s, const weft_exec *e,
                                        const weft_compiled *made, weft_metrics_row *row)
{
    int n = made->model->n_load;
    if (!n || row->skipped) return WEFT_OK;
    if (!s->load) s->load = WEFT_ARENA_ARRAY(s->arena, float, n);
    WEFT_TRY(weft_arena_status(s->arena));
    for (int i = 0; i < n; i++) WEFT_TRY(read_load(e, made->program, i, &s->load[i]));
    row->n_load = n;
    row->load   = s->load;
    return WEFT_OK;
}

weft_status weft_session__read_loads(weft_session *s, weft_metrics_row *row)
{
    weft_generation *g = s->now;
    return weft_session__read_loads_of(s, weft_runner_exec(g->runner), &g->made, row);
}
