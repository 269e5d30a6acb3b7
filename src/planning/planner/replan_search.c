/* The best plan that can be found for a running job when there is time: the planner's own search
 * under the job's constraints, the quick answer and the running plan, all simulated in the same
 * way. */
#include <math.h>

#include "planner/replan_priv.h"

/* One of the plans that are compared. */
typedef struct searched_plan {
    weft_plan        *plan; /* NULL: there is none */
    weft_replan_kind  kind;
    double            step_s; /* simulated */
    weft_replan__move move;
    bool              spreads; /* as many hosts as copies hold each part of the state */
    bool              enough;  /* as many ranks as the job needs */
} searched_plan;

static int size_of(int axis)
{
    return axis > 1 ? axis : 1;
}

/* What decides bits stays, lanes are those of the quick answer; devices may stay idle. */
static weft_status search_anew(const weft_replanner *r, const weft_replan_request *asked,
                               const weft_strategy *was, const weft_plan_of *cut,
                               weft_plan **out)
{
    int                      n_rank  = asked->n_rank;
    int                      n_least = weft_replan__find_least(asked);
    const weft_compile_spec *spec    = &r->job.training->spec;
    weft_planner_request     q       = {.spec      = *spec,
                                        .cluster   = r->job.cluster,
                                        .on_cpus   = r->job.on_cpus,
                                        .keep_bits = true,
                                        .n_best    = 3};
    weft_planner_answer     *a       = NULL;
    q.spec.micro_batch               = cut->micro_batch;
    q.spec.lanes                     = cut->lanes;
    if (weft_planner__n_device(r->workspace) > n_rank || n_least >= n_rank)
        q.world = n_rank;
    weft_search_open(&q.constraints);
    weft_search_fix(&q.constraints, WEFT_KEY_recompute, (int)spec->recompute);
    weft_search_fix(&q.constraints, WEFT_KEY_offload, (int)spec->offload);
    weft_search_fix(&q.constraints, WEFT_KEY_tp, size_of(was->tp));
    weft_search_fix(&q.constraints, WEFT_KEY_cp, size_of(was->cp));
    weft_search_fix(&q.constraints, WEFT_KEY_ep, size_of(was->ep));
    if (was->copies > 1) weft_search_fix(&q.constraints, WEFT_KEY_copies, was->copies);
    q.constraints.n_host     = asked->n_host;
    q.constraints.host_ranks = asked->host_ranks;
    WEFT_TRY(weft_planner_plan(&q, &a));
    *out    = a->plan;
    a->plan = NULL;
    if (asked->was) (*out)->strategy.bucket_bytes = asked->was->strategy.bucket_bytes;
    weft_planner_destroy(a);
    return WEFT_OK;
}

/* Ranks on devices in their order.  INFINITY: it cannot be. */
static double simulate_plan(const weft_replanner *r, const weft_plan *p)
{
    const weft_cluster  *c = r->workspace->priced ? r->workspace->priced : r->job.cluster;
    weft_compiled_world *w = NULL;
    weft_sim_folded     *f = NULL;
    weft_training        own = {0};
    const weft_training *t;
    double               step_s = INFINITY;
    if (weft_compile_training_of(r->job.training, &p->of, &own, &t) == WEFT_OK &&
        weft_compile_world(t, p, WEFT_RANKS_FOLDED, &w) == WEFT_OK &&
        weft_sim_fold(&w->world, c, NULL, &f) == WEFT_OK)
        step_s = f->timeline->step_s;
    weft_sim_folded_destroy(f);
    weft_compiled_world_destroy(w);
    weft_training_fini(&own);
    return step_s;
}

/* Takes p; NULL: nothing happens. */
static void add_plan(const weft_replanner *r, const weft_replan_request *q, weft_plan *p,
                     searched_plan *out)
{
    weft_strategy none = weft_strategy_default();
    if (!p) return;
    weft_strategy_spread(&p->strategy, q->n_host, q->host_ranks);
    *out                      = (searched_plan){.plan = p, .step_s = simulate_plan(r, p)};
    bool                 same = q->was && weft_plan_equal(q->was, p);
    const weft_strategy *was  = q->was ? &q->was->strategy : &none;
    out->kind                 = weft_replan__find_kind(was, &p->strategy);
    if (out->kind == WEFT_REPLAN_SAME && q->was && !same) out->kind = WEFT_REPLAN_SHAPE;
    weft_replan__weigh_move(r, q, was, &p->strategy, &out->move);
    out->spreads = weft_replan__spreads(q, &p->strategy, was->copies);
    out->enough  = weft_replan__is_enough(q, &p->strategy);
}

/* The running one where it is all the same. */
static int choose_plan(const weft_replan_request *q, const searched_plan *x, int n)
{
    double horizon_s = q->horizon_s > 0 ? q->horizon_s : WEFT_REPLAN__HORIZON_S;
    double fastest_s = INFINITY, least_s = INFINITY;
    int    best    = -1;
    bool   spreads = false, enough = false; /* one of them */
    for (int k = 0; k < n; k++) fastest_s = fmin(fastest_s, x[k].step_s);
    for (int k = 0; k < n; k++) spreads |= x[k].spreads && !isinf(x[k].step_s);
    for (int k = 0; k < n; k++) enough |= x[k].enough && !isinf(x[k].step_s);
    for (int k = 0; k < n; k++) {
        if (!x[k].plan || isinf(x[k].step_s)) continue;
        if ((spreads && !x[k].spreads) || (enough && !x[k].enough)) continue;
        double cost = horizon_s * x[k].step_s / fastest_s;
        if (x[k].kind != WEFT_REPLAN_SAME) cost += x[k].move.seconds + q->pause_s;
        if (cost >= least_s) continue;
        least_s = cost;
        best    = k;
    }
    return best;
}

weft_status weft_replanner_search(weft_replanner *r, const weft_replan_request *q,
                                  weft_replan_answer *out)
{
    enum {
        RUNNING,
        QUICK,
        ANEW,
        N_PLAN
    };
    searched_plan x[N_PLAN] = {
        {.step_s = INFINITY}, {.step_s = INFINITY}, {.step_s = INFINITY}};
    weft_replan_answer quick = {0};
    weft_plan         *p     = NULL;
    weft_strategy      was   = q->was ? q->was->strategy : weft_strategy_default();
    WEFT_TRY(weft_replanner_decide(r, q, &quick));
    if (!r->workspace || r->job.shape) {
        *out = quick; /* there is nothing to choose */
        return WEFT_OK;
    }
    if (q->was && weft_plan_world(q->was) <= q->n_rank &&
        weft_plan_copy(q->was, &p) == WEFT_OK)
        add_plan(r, q, p, &x[RUNNING]);
    p = NULL;
    if (search_anew(r, q, &was, &quick.plan->of, &p) == WEFT_OK &&
        weft_plan_world(p) <= q->n_rank)
        add_plan(r, q, p, &x[ANEW]);
    else
        weft_plan_destroy(p);
    if (weft_plan_copy(quick.plan, &p) == WEFT_OK) add_plan(r, q, p, &x[QUICK]);
    int best = choose_plan(q, x, N_PLAN);
    if (best < 0) {
        *out = quick;
    } else {
        *out         = (weft_replan_answer){.plan       = x[best].plan,
                                            .kind       = x[best].kind,
                                            .n_rank     = weft_plan_world(x[best].plan),
                                            .most_lanes = quick.most_lanes,
                                            .step_s     = x[best].step_s,
                                            .move_s     = x[best].move.seconds,
                                            .move_bytes = x[best].move.bytes};
        out->n_idle  = q->n_rank - out->n_rank;
        x[best].plan = NULL;
        weft_replan_answer_fini(&quick);
    }
    if (!isinf(x[RUNNING].step_s)) out->was_step_s = x[RUNNING].step_s;
    for (int k = 0; k < N_PLAN; k++) weft_plan_destroy(x[k].plan);
    return WEFT_OK;
}
