/* A choice of the search as a plan that our engine runs. */
#include <stdlib.h>
#include <string.h>

#include "planner/planner_priv.h"

static weft_status check_strategy(const weft_search_choice *x)
{
    if (x->point.dp % x->variant.ep)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "experts are placed next to replicas: ep=%d does not divide "
                         "dp=%d",
                         x->variant.ep, x->point.dp);
    return weft_strategy_check(&x->strategy);
}

static int64_t lanes_of(const weft_search_choice *x)
{
    int dp = x->point.dp / x->variant.ep;
    return weft_cost_lanes(dp, dp * x->point.n_micro, x->score.weight_bytes / 2,
                           x->score.mem_limit / 30);
}

void weft_planner__spec_of(const weft_planner_workspace *w, const weft_search_choice *x,
                           weft_compile_spec *out)
{
    weft_compile_spec s = w->request.spec;
    s.seq               = w->config.seq;
    if (w->request.spec.micro_batch < 1) /* ranks along ep share the sequences of one */
        s.micro_batch = (int64_t)x->variant.micro_batch * x->variant.ep;
    s.recompute = (weft_strategy_recompute)x->strategy.recompute;
    s.reduction = weft_compile_reduction(&s);
    s.dtype     = weft_compile_dtype_of(w->config.precision);
    if (x->strategy.n_batch_split) s.lanes = weft_strategy_lanes(&x->strategy);
    if (!s.lanes) s.lanes = lanes_of(x);
    *out = s;
}

weft_status weft_planner__make(const weft_training *t, const weft_search_choice *x,
                               weft_plan **out)
{
    int  n_stage = x->point.pp * x->point.chunks;
    int *layers  = calloc((size_t)n_stage, sizeof *layers);
    if (!layers) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a plan");
    for (int i = 0; i < n_stage; i++) layers[i] = weft_search_chunk_layers(x, i);
    weft_status st = check_strategy(x);
    if (st == WEFT_OK)
        st = weft_compile_plan_layers(t, &x->strategy, x->point.pp > 1 ? layers : NULL, 0,
                                      out);
    free(layers);
    return st;
}

/* ---- training graphs ---- */

weft_status weft_planner__find_training(weft_planner_workspace  *w,
                                        const weft_compile_spec *s,
                                        weft_planner__training **out)
{
    weft_planner__training **at = &w->trainings, *t;
    while ((t = *at) && !weft_compile_spec_equal(&t->t.spec, s)) at = &t->next;
    if (t)
        *at = t->next; /* it comes first again */
    else
        t = calloc(1, sizeof *t);
    if (!t) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a training graph");
    t->t.spec    = *s;
    t->next      = w->trainings;
    w->trainings = t;
    *out         = t;
    return WEFT_OK;
}

void weft_planner__build_training(weft_planner__training *t)
{
    weft_compile_spec s = t->t.spec;
    if (t->is_built) return;
    t->is_built = true;
    t->status   = weft_compile_training(&s, &t->t);
    if (t->status == WEFT_OK) return;
    t->t.spec = s;
    t->error  = strdup(weft_error_text());
}

void weft_planner__training_destroy(weft_planner__training *t)
{
    if (!t) return;
    weft_training_fini(&t->t);
    free(t->error);
    free(t);
}

void weft_planner__take_training(weft_planner_workspace *w, weft_planner__training *t)
{
    weft_planner__training **at = &w->trainings;
    while (*at && *at != t) at = &(*at)->next;
    if (*at) *at = t->next;
    t->next = NULL;
}

void weft_planner__free_trainings(weft_planner_workspace *w, int keep)
{
    weft_planner__training **at = &w->trainings, *t;
    for (int i = 0; (t = *at); i++) {
        if (t->n_user || i < keep) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        weft_planner__training_destroy(t);
    }
}
