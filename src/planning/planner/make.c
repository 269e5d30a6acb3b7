/* A choice of the search as a plan that our engine runs. */
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

static weft_status deal(const weft_search_choice *x, weft_plan *p)
{
    if (!x->point.deal.n) return WEFT_OK;
    p->share = WEFT_ARENA_ARRAY(p->arena, int32_t, x->point.dp);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < x->point.dp; i++)
        p->share[i] = weft_cost_deal_share(&x->point.deal, i, NULL);
    return weft_plan_verify(p);
}

static weft_status take_training(weft_planner_answer *a, const weft_compile_spec *s,
                                 weft_training *out)
{
    for (int i = 0; i < 2; i++) {
        if (!weft_training_is_for(&a->training[i], s)) continue;
        a->last_slot   = i;
        *out           = a->training[i];
        a->training[i] = (weft_training){0};
        return WEFT_OK;
    }
    a->last_slot = 1 - a->best_slot;
    return weft_compile_training(s, out);
}

void weft_planner__keep_training(weft_planner_answer *a, weft_training *t)
{
    if (!t->graph) return;
    weft_training_fini(&a->training[a->last_slot]);
    a->training[a->last_slot] = *t;
    *t                        = (weft_training){0};
}

void weft_planner_take_training(weft_planner_answer *a, weft_training *out)
{
    *out                      = a->training[a->best_slot];
    a->training[a->best_slot] = (weft_training){0};
}

weft_status weft_planner__make(const weft_planner_ask *q, weft_planner_answer *a,
                               const weft_search_choice *x, weft_training *t,
                               weft_plan **out)
{
    const weft_cost_point *p       = &x->point;
    weft_compile_spec      s       = q->spec;
    int                    n_stage = p->pp * p->chunks;
    int                   *layers  = WEFT_ARENA_ARRAY(a->arena, int, n_stage);
    WEFT_TRY(weft_arena_status(a->arena));
    for (int i = 0; i < n_stage; i++) layers[i] = weft_search_chunk_layers(x, i);
    WEFT_TRY(check_strategy(x));
    s.seq = a->config.seq;
    if (q->spec.micro_batch < 1) /* ranks along ep share the sequences of one */
        s.micro_batch = (int64_t)x->variant.micro_batch * x->variant.ep;
    s.recompute = (weft_strategy_recompute)x->strategy.recompute;
    s.reduction = a->reduction;
    s.dtype     = strcmp(a->config.precision, "fp32") ? "bf16" : "fp32";
    if (p->deal.n) s.lanes = weft_cost_deal_lanes(&p->deal);
    if (!s.lanes) s.lanes = lanes_of(x);
    WEFT_TRY(take_training(a, &s, t));
    WEFT_TRY(
        weft_compile_plan_layers(t, &x->strategy, p->pp > 1 ? layers : NULL, 0, out));
    return deal(x, *out);
}
