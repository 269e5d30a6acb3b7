/* A choice of the search as a plan that our engine runs. */
#include <string.h>

#include "planner/planner_priv.h"

/* Ranks along ep are next to those along dp, so that a choice's dp counts both. */
weft_strategy weft_planner__sizes(int dp, const weft_cost_variant *v)
{
    static const weft_strategy_axis order[] = {WEFT_AXIS_DP, WEFT_AXIS_EP, WEFT_AXIS_CP,
                                               WEFT_AXIS_TP};
    weft_strategy                   y       = weft_strategy_default();
    y.dp                                    = dp;
    y.ep                                    = v->ep > 1 ? v->ep : 0;
    y.cp                                    = v->cp > 1 ? v->cp : 0;
    y.tp                                    = v->tp > 1 ? v->tp : 0;
    for (size_t i = 0; i < WEFT_COUNT(order) && y.ep && y.cp; i++)
        y.mesh_order[y.n_mesh_order++] = (uint8_t)order[i];
    return y;
}

weft_strategy_recompute weft_planner__recompute(weft_cost_recompute r)
{
    switch (r) {
    case WEFT_RECOMPUTE_FULL: return WEFT_STRATEGY_FULL;
    case WEFT_RECOMPUTE_SELECTIVE:
    case WEFT_RECOMPUTE_LIGHT: return WEFT_STRATEGY_SELECTIVE;
    default: return WEFT_STRATEGY_KEEP;
    }
}

static weft_status strategy_of(const weft_search_choice *x, weft_strategy *y)
{
    const weft_cost_variant *v  = &x->variant;
    const weft_cost_point   *p  = &x->point;
    int                      dp = p->dp;
    if (v->ep > 1 && dp % v->ep)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "experts are placed next to replicas: ep=%d does not divide "
                         "dp=%d",
                         v->ep, dp);
    *y          = weft_planner__sizes(dp / v->ep, v);
    y->pp       = p->pp;
    y->chunks   = p->chunks;
    y->schedule = p->chunks > 1 ? WEFT_STRATEGY_INTERLEAVED : (int)p->schedule;
    y->zero     = p->zero;
    y->sp       = v->sp;
    y->overlap_param_gather = x->overlap_param_gather;
    y->recompute            = (int)weft_planner__recompute(v->recompute);
    if (v->whole)
        WEFT_TRY(weft_layer_spans_parse(x->whole, y->tp_exclude, &y->n_tp_exclude));
    return weft_strategy_check(y);
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
    if (!weft_training_is_for(&a->training, s)) return weft_compile_training(s, out);
    *out        = a->training;
    a->training = (weft_training){0};
    return WEFT_OK;
}

void weft_planner__keep_training(weft_planner_answer *a, weft_training *t)
{
    if (!t->graph) return;
    weft_training_fini(&a->training);
    a->training = *t;
    *t          = (weft_training){0};
}

weft_status weft_planner__make(const weft_planner_ask *q, weft_planner_answer *a,
                               const weft_search_choice *x, weft_training *t,
                               weft_plan **out)
{
    const weft_cost_point *p = &x->point;
    weft_strategy          y;
    weft_compile_spec      s       = q->spec;
    int                    n_stage = p->pp * p->chunks;
    int                   *layers  = WEFT_ARENA_ARRAY(a->arena, int, n_stage);
    WEFT_TRY(weft_arena_status(a->arena));
    for (int i = 0; i < n_stage; i++) layers[i] = weft_search_chunk_layers(x, i);
    WEFT_TRY(strategy_of(x, &y));
    s.seq = a->config.seq;
    if (q->spec.micro_batch < 1) /* ranks along ep share the sequences of one */
        s.micro_batch = (int64_t)x->variant.micro_batch * x->variant.ep;
    s.recompute = weft_planner__recompute(x->variant.recompute);
    s.dtype     = strcmp(a->config.precision, "fp32") ? "bf16" : "fp32";
    if (p->deal.n) s.lanes = weft_cost_deal_lanes(&p->deal);
    if (!s.lanes) s.lanes = lanes_of(x);
    WEFT_TRY(take_training(a, &s, t));
    WEFT_TRY(weft_compile_plan_layers(t, &y, p->pp > 1 ? layers : NULL, 0, out));
    return deal(x, *out);
}
