#include "planner/replan.h"

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/lanes.h"
#include "planner/replan_priv.h"

enum {
    MANY_REPLICAS = 8, /* beyond, of equal shares only the fewest replicas are priced */
};

/* Of a step: for less, no rank is given up that the running plan has. */
static const double KEEP_RANKS = 0.05;

/* ---- a replanner ---- */

static void weigh_state(weft_replanner *r)
{
    const weft_graph *g = r->job.training->graph;
    for (int v = 0; v < g->n_value; v++) {
        const weft_graph_value *x     = &g->value[v];
        double                  bytes = (double)weft_shape_count(&x->type.shape) *
                       (double)weft_dtype_bytes(x->type.dtype);
        if (x->kind == WEFT_VALUE_PARAM) r->param_bytes += bytes;
        if (x->kind == WEFT_VALUE_STATE && x->node < 0) r->optimizer_bytes += bytes;
    }
}

static weft_status open_prices(const weft_replanner *r, int64_t micro_batch,
                               weft_planner_workspace **out)
{
    weft_planner_request q = {.spec      = r->job.training->spec,
                              .cluster   = r->job.cluster,
                              .on_cpus   = r->job.on_cpus,
                              .keep_bits = true,
                              .fast      = true};
    q.spec.micro_batch     = micro_batch;
    weft_search_open(&q.constraints);
    weft_search_fix(&q.constraints, WEFT_KEY_recompute,
                    (int)r->job.training->spec.recompute);
    return weft_planner_workspace_create(&q, out);
}

weft_status weft_replanner_create(const weft_replan_job *job, weft_replanner **out)
{
    weft_replanner *r = calloc(1, sizeof *r);
    if (!r) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a planner");
    r->job         = *job;
    r->micro_batch = job->training->spec.micro_batch;
    weigh_state(r);
    weft_status st = job->cluster
                         ? open_prices(r, job->training->spec.micro_batch, &r->workspace)
                         : WEFT_OK;
    if (st == WEFT_OK)
        *out = r;
    else
        weft_replanner_destroy(r);
    return st;
}

void weft_replan_answer_fini(weft_replan_answer *a)
{
    weft_plan_destroy(a->plan);
    *a = (weft_replan_answer){0};
}

void weft_replanner_destroy(weft_replanner *r)
{
    if (!r) return;
    for (int k = 0; k < WEFT_REPLAN__MAX_KEPT; k++)
        weft_replan_answer_fini(&r->kept[k].answer);
    weft_planner_workspace_destroy(r->workspace);
    weft_planner_workspace_destroy(r->other);
    free(r);
}

/* ---- what was answered before ---- */

static weft_status copy_answer(const weft_replan_answer *a, weft_replan_answer *out)
{
    *out      = *a;
    out->plan = NULL;
    return weft_plan_copy(a->plan, &out->plan);
}

static uint64_t hash_request(const weft_replan_request *q)
{
    weft_hash_state h;
    weft_text       t = {0};
    weft_hash_init(&h, 1);
    if (q->was && weft_plan_print(q->was, &t) == WEFT_OK) weft_hash_add(&h, t.s, t.n);
    weft_text_fini(&t);
    weft_hash_add(&h, &q->n_rank, sizeof q->n_rank);
    weft_hash_add(&h, &q->n_least, sizeof q->n_least);
    weft_hash_add(&h, &q->horizon_s, sizeof q->horizon_s);
    for (int k = 0; k < q->n_host; k++)
        weft_hash_add(&h, &q->host_ranks[k], sizeof *q->host_ranks);
    uint64_t key = weft_hash_value(&h);
    return key ? key : 1;
}

static void keep_answer(weft_replanner *r, uint64_t key, const weft_replan_answer *a)
{
    weft_replan__kept *oldest = &r->kept[0];
    for (int k = 1; k < WEFT_REPLAN__MAX_KEPT; k++)
        if (r->kept[k].used < oldest->used) oldest = &r->kept[k];
    weft_replan_answer_fini(&oldest->answer);
    oldest->key = 0;
    if (copy_answer(a, &oldest->answer) != WEFT_OK) return; /* it is decided anew */
    oldest->key  = key;
    oldest->used = r->n_asked;
}

/* ---- candidates ---- */

/* One that is looked at. */
typedef struct candidate {
    weft_strategy strategy;
    int           lanes, most_lanes; /* of all replicas, of the one that has most */
    int64_t       micro_batch;
    double        step_s, move_s;
    int64_t       move_bytes;
    bool          spreads; /* as many hosts as copies hold each part of the state */
    uint16_t     *cut;     /* layers of its stages */
} candidate;

typedef struct replan_search {
    weft_replanner            *r;
    const weft_replan_request *q;
    weft_strategy              was;
    weft_strategy              base; /* what other sizes are given to */
    int                        n_lane;
    bool                       is_fixed; /* sums, and so lanes, may follow the plan */
    int                        width;    /* ranks of a stage of one replica: tp, cp, ep */
    int                        n_unit;   /* so many of these there are ranks for */
    bool                       is_late;  /* nothing is priced any more */
    int                        n_priced, cap_priced;
    candidate                 *priced;
    weft_arena                *arena;
    candidate                  best;
} replan_search;

static int size_of(int axis)
{
    return axis > 1 ? axis : 1;
}

static int width_of(const weft_strategy *y)
{
    return size_of(y->tp) * size_of(y->cp) * size_of(y->ep);
}

/* Groups of tp and cp stay inside a host; where no host has ranks for one, the running plan has
 * them across hosts. */
static int count_units(const weft_replan_request *q, int width)
{
    int n = 0;
    for (int k = 0; k < q->n_host; k++) n += q->host_ranks[k] / width;
    return n ? n : q->n_rank / width;
}

/* tp, cp and ep decide bits, so they stay; where sums may follow the plan, those that the job names
 * are taken wherever there are ranks for them, and given up where there are too few. */
static void fit_width(replan_search *s)
{
    weft_strategy *y = &s->base;
    if (!s->is_fixed) {
        y->tp = s->was.tp;
        y->cp = s->was.cp;
        y->ep = s->was.ep;
    } else if (count_units(s->q, width_of(y)) < 1) {
        y->tp = y->cp = y->ep = 0;
        y->n_mesh_order = y->n_tp_exclude = 0;
        y->sp                             = false;
    }
    s->width  = width_of(y);
    s->n_unit = count_units(s->q, s->width);
}

/* The training's; where sums may follow the plan and these are too few, the smallest power of two
 * that is at least dp. */
static int find_lanes(const replan_search *s, int dp)
{
    if (dp <= s->n_lane) return s->n_lane;
    return (int)weft_lanes_default(dp, s->r->job.training->spec.batch);
}

static int most_lanes(const replan_search *s, int dp)
{
    return (find_lanes(s, dp) + dp - 1) / dp;
}

/* As many as lanes: those of the training, or where sums may follow the plan of the batch. */
static int most_replicas(const replan_search *s)
{
    if (!s->is_fixed) return s->n_lane;
    int most = (int)weft_lanes_default(INT32_MAX, s->r->job.training->spec.batch);
    return most > s->n_lane ? most : s->n_lane;
}

static candidate make_candidate(const replan_search *s, weft_strategy y)
{
    const weft_compile_spec *spec = &s->r->job.training->spec;
    int                      dp = size_of(y.dp), lanes = find_lanes(s, dp);
    int64_t micro = weft_lanes_fit_micro(spec->batch, spec->micro_batch, lanes);
    weft_strategy_spread(&y, s->q->n_host, s->q->host_ranks);
    return (candidate){.strategy    = y,
                       .lanes       = lanes,
                       .most_lanes  = most_lanes(s, dp),
                       .micro_batch = lanes == s->n_lane ? spec->micro_batch : micro};
}

/* As many copies of shards as before, or the next number that divides dp: dp at most, where nothing
 * is left to shard. */
static int fit_copies(const weft_strategy *was, int dp)
{
    int n = was->copies > 1 ? was->copies : 1;
    if (!was->zero || dp < 2) return n;
    if (dp < n) return dp;
    while (dp % n) n++;
    return n;
}

/* An order of axes names all that there are: replicas where there were none come first, as they do
 * in the default one. */
static void add_replicas_to_order(weft_strategy *y)
{
    if (!y->dp || !y->n_mesh_order || weft_strategy_axis_at(y, WEFT_AXIS_DP) >= 0) return;
    for (int i = y->n_mesh_order++; i > 0; i--) y->mesh_order[i] = y->mesh_order[i - 1];
    y->mesh_order[0] = WEFT_AXIS_DP;
}

/* The running strategy with other sizes. */
static weft_strategy resize_strategy(const replan_search *s, int dp, int pp, int zero)
{
    weft_strategy y = s->base;
    /* lanes need one */
    bool axis = dp > 1 || y.dp > 0 || (y.tp < 2 && y.cp < 2 && y.ep < 2);
    y.dp      = axis ? dp : 0;
    add_replicas_to_order(&y);
    y.pp            = pp;
    y.n_batch_split = 0; /* of another number of replicas */
    y.zero          = dp > 1 ? zero : 0;
    if (!y.zero || y.zero > 2) y.overlap_param_gather = 0;
    y.copies  = fit_copies(&s->base, dp);
    y.standby = -1;
    if (pp == 1) y.chunks = 1, y.schedule = WEFT_STRATEGY_1F1B;
    if (y.chunks > 1 && pp != s->base.pp) y.chunks = 1, y.schedule = WEFT_STRATEGY_1F1B;
    return y;
}

/* ---- the cost of moving ---- */

static double bytes_of_rank(const weft_replanner *r, const weft_strategy *y)
{
    double dp    = size_of(y->dp) / (double)weft_strategy_shard_copies(y);
    double bytes = r->param_bytes / (y->zero == 3 ? dp : 1);
    bytes += r->optimizer_bytes / (y->zero ? dp : 1);
    return bytes / y->pp / size_of(y->tp) / size_of(y->ep);
}

void weft_replan__weigh_move(const weft_replanner *r, const weft_replan_request *q,
                             const weft_strategy *a, const weft_strategy *b,
                             weft_replan__move *out)
{
    int  old = width_of(a) * size_of(a->dp), new = width_of(b) * size_of(b->dp);
    int  shards[2] = {a->dp / weft_strategy_shard_copies(a),
                      b->dp / weft_strategy_shard_copies(b)};
    bool alike     = a->pp == b->pp && a->zero == b->zero && width_of(a) == width_of(b) &&
                 (!a->zero || shards[0] == shards[1]);
    int lacks = 0;
    for (int k = 0; k < new * b->pp; k++)
        lacks += !alike || k >= old * a->pp || k / old != k / new;
    double each = bytes_of_rank(r, b);
    *out        = (weft_replan__move){.bytes = (int64_t)(lacks * each)};
    if (!lacks || !r->workspace) return;
    const weft_cost_fabric *f   = &r->workspace->machines.kind[0].fabric;
    double                  Bps = q->n_host > 1 ? f->out.Bps : f->in.Bps;
    if (Bps > 0) out->seconds = each / Bps;
}

static void weigh_candidate(const replan_search *s, candidate *c)
{
    weft_replan__move m;
    weft_replan__weigh_move(s->r, s->q, &s->was, &c->strategy, &m);
    c->move_s     = m.seconds;
    c->move_bytes = m.bytes;
}

/* ---- prices ---- */

/* Micro-batches of each replica with which the search counts `most` for the one that has most: it
 * shares lanes of its own out where dp is no power of two. */
static int find_micro(const weft_planner_workspace *w, int dp, int most)
{
    int m = most;
    if (!weft_planner_is_rows(w) || !(dp & (dp - 1))) return most;
    while (m > 1 && weft_cost_most_micro(dp, weft_cost_lanes(dp, dp * (m - 1), 0, 1),
                                         dp * (m - 1)) >= most)
        m--;
    return m;
}

/* Layer costs are those of one micro-batch.  More lanes may need a smaller one: those of the last
 * such are kept. */
static weft_status find_prices(weft_replanner *r, int64_t micro_batch,
                               const weft_planner_workspace **out)
{
    *out = r->workspace;
    if (micro_batch == r->micro_batch) return WEFT_OK;
    if (!r->other || r->other_micro != micro_batch) {
        weft_planner_workspace_destroy(r->other);
        r->other = NULL;
        WEFT_TRY(open_prices(r, micro_batch, &r->other));
        r->other_micro = micro_batch;
    }
    *out = r->other;
    return WEFT_OK;
}

/* The step of a plan whose replicas all have as much to do as the one that has most. */
static weft_status price_candidate(replan_search *s, candidate *c, bool open_zero)
{
    const weft_planner_workspace *w;
    const weft_strategy          *y = &c->strategy;
    /* micro-batches of the lane that has most */
    int64_t             n_micro = s->r->job.training->spec.batch / c->micro_batch;
    int64_t             each    = (n_micro + c->lanes - 1) / c->lanes;
    int                 dp      = size_of(y->dp);
    weft_search_result *result  = NULL;
    WEFT_TRY(find_prices(s->r, c->micro_batch, &w));
    weft_search_problem p = *weft_planner_problem(w);
    p.batch = (int)(dp * find_micro(w, dp, (int)(c->most_lanes * each)) * c->micro_batch);
    p.n_best                  = 1;
    p.constraints.world       = -1;
    p.constraints.micro_batch = (int)c->micro_batch;
    weft_search_fix(&p.constraints, WEFT_KEY_dp, dp);
    weft_search_fix(&p.constraints, WEFT_KEY_pp, y->pp);
    weft_search_fix(&p.constraints, WEFT_KEY_tp, size_of(y->tp));
    weft_search_fix(&p.constraints, WEFT_KEY_cp, size_of(y->cp));
    weft_search_fix(&p.constraints, WEFT_KEY_ep, 1);
    if (!open_zero) weft_search_fix(&p.constraints, WEFT_KEY_zero, y->zero);
    bool has = dp > 1 ? y->copies <= dp : weft_strategy_n_standby(y) == y->copies - 1;
    weft_search_fix(&p.constraints, WEFT_KEY_copies, has ? y->copies : -1);
    weft_search_fix(&p.constraints, WEFT_KEY_standby, y->standby > 0 ? y->standby : -1);
    WEFT_TRY(weft_search_run(&p, &result));
    const weft_search_choice *x = &result->choice[0];
    c->step_s                   = x->score.step_s;
    c->strategy.zero            = x->strategy.zero;
    c->cut                      = WEFT_ARENA_ARRAY(s->arena, uint16_t, y->pp);
    for (int k = 0; c->cut && k < y->pp; k++) c->cut[k] = x->point.cut[k];
    weft_search_destroy(result);
    return weft_arena_status(s->arena);
}

static bool is_no_way(weft_status st)
{
    return st == WEFT_ERR_NOFIT || st == WEFT_ERR_ARG;
}

/* Errors that mean: not this one. */
static weft_status try_candidate(replan_search *s, int dp, int pp, bool open_zero)
{
    candidate   c  = make_candidate(s, resize_strategy(s, dp, pp, s->was.zero));
    weft_status st = price_candidate(s, &c, open_zero);
    if (is_no_way(st) && c.strategy.copies > 1) { /* a shard in one rank's memory each */
        c.strategy.copies = 1;
        st                = price_candidate(s, &c, open_zero);
    }
    if (is_no_way(st)) return WEFT_OK;
    WEFT_TRY(st);
    weigh_candidate(s, &c);
    c.spreads = weft_replan__spreads(s->q, &c.strategy, size_of(s->base.copies));
    WEFT_TRY(weft_arena_grow(s->arena, (void **)&s->priced, &s->cap_priced,
                             s->n_priced + 1, sizeof *s->priced));
    s->priced[s->n_priced++] = c;
    return WEFT_OK;
}

/* Fewer stages, then more replicas. */
static bool is_simpler(const weft_strategy *a, const weft_strategy *b)
{
    return a->pp != b->pp ? a->pp < b->pp : size_of(a->dp) > size_of(b->dp);
}

bool weft_replan__spreads(const weft_replan_request *q, const weft_strategy *y,
                          int copies)
{
    if (copies > q->n_host) copies = q->n_host;
    return copies < 2 || weft_strategy_state_hosts(y, q->n_host, q->host_ranks) >= copies;
}

static int count_ranks(const weft_strategy *y)
{
    return size_of(y->dp) * width_of(y) * y->pp;
}

/* Without replicas a host that leaves takes along what no other rank holds. */
int weft_replan__find_least(const weft_replan_request *q)
{
    const weft_strategy *y   = q->was ? &q->was->strategy : NULL;
    bool                 all = q->n_host > 1 && y && count_ranks(y) > 1;
    if (!all || (y->dp > 1 && (!y->zero || y->copies > 1))) return q->n_least;
    int n = count_ranks(y) < q->n_rank ? count_ranks(y) : q->n_rank;
    return n > q->n_least ? n : q->n_least;
}

bool weft_replan__is_enough(const weft_replan_request *q, const weft_strategy *y)
{
    return count_ranks(y) >= weft_replan__find_least(q);
}

/* Where one has the copies on as many hosts, those that have not are left out; so are those of too
 * few ranks, where one has as many. */
static void leave_out(replan_search *s)
{
    int n_spread = 0, n = 0;
    for (int k = 0; k < s->n_priced; k++)
        if (s->priced[k].spreads) s->priced[n_spread++] = s->priced[k];
    if (n_spread) s->n_priced = n_spread;
    for (int k = 0; k < s->n_priced; k++)
        if (weft_replan__is_enough(s->q, &s->priced[k].strategy))
            s->priced[n++] = s->priced[k];
    if (n) s->n_priced = n;
}

/* What the fastest does in the horizon takes how long, with the move?  Of equal ones the simplest,
 * in whatever order they were priced. */
static double choose_cheapest(replan_search *s, int n_rank, double fastest_s)
{
    double horizon_s = s->q->horizon_s > 0 ? s->q->horizon_s : WEFT_REPLAN__HORIZON_S;
    double least_s   = INFINITY;
    for (int k = 0; k < s->n_priced; k++) {
        const candidate *c = &s->priced[k];
        double           x = c->move_s + horizon_s * c->step_s / fastest_s;
        if (x > least_s || count_ranks(&c->strategy) < n_rank) continue;
        if (x == least_s && !is_simpler(&c->strategy, &s->best.strategy)) continue;
        least_s = x;
        s->best = *c;
    }
    return least_s;
}

/* Ranks of the running plan are kept where that is about as good: one that leaves takes the state
 * that it holds along.  Those that are new are to help. */
static void choose_best(replan_search *s)
{
    double fastest_s = INFINITY;
    int    n_rank    = 0;
    leave_out(s);
    for (int k = 0; k < s->n_priced; k++)
        fastest_s = fmin(fastest_s, s->priced[k].step_s);
    double least_s = choose_cheapest(s, 0, fastest_s);
    if (s->q->n_rank > count_ranks(&s->was)) return;
    for (int k = 0; k < s->n_priced; k++) {
        int n = count_ranks(&s->priced[k].strategy);
        if (n > n_rank && s->priced[k].step_s <= (1 + KEEP_RANKS) * s->best.step_s)
            n_rank = n;
    }
    candidate best = s->best;
    if (choose_cheapest(s, n_rank, fastest_s) > (1 + KEEP_RANKS) * least_s)
        s->best = best;
}

static bool check_late(replan_search *s)
{
    const weft_replan_request *q = s->q;
    if (!s->is_late && q->is_late) s->is_late = q->is_late(q->late_arg);
    return s->is_late;
}

/* Of the batch, what the replica has that has most. */
static double find_most(const replan_search *s, int dp)
{
    return (double)most_lanes(s, dp) / find_lanes(s, dp);
}

/* Of replicas those numbers that make a difference. */
static weft_status price_depth(replan_search *s, int pp, bool open_zero)
{
    int most = most_replicas(s), dp = s->n_unit / pp < most ? s->n_unit / pp : most;
    for (int all = dp; dp >= 1; dp--) {
        bool fewest = dp == 1 || find_most(s, dp - 1) > find_most(s, dp);
        if (dp > MANY_REPLICAS && !fewest && dp < all) continue;
        if (check_late(s)) return WEFT_OK;
        WEFT_TRY(try_candidate(s, dp, pp, open_zero));
    }
    return WEFT_OK;
}

/* All numbers of stages, the running one first: its plans are those with the least to move. */
static weft_status price_all(replan_search *s, bool open_zero)
{
    if (s->base.pp <= s->n_unit) WEFT_TRY(price_depth(s, s->base.pp, open_zero));
    for (int pp = 1; pp <= s->n_unit && !s->is_late; pp++)
        if (pp != s->base.pp) WEFT_TRY(price_depth(s, pp, open_zero));
    return WEFT_OK;
}

/* ---- the answer ---- */

/* The running plan with as many replicas as there are ranks for; fewer stages where there are not
 * even as many ranks. */
static void take_replicas(replan_search *s)
{
    int pp = s->base.pp, dp = s->n_unit / pp;
    if (!dp) dp = 1, pp = s->n_unit;
    if (dp > most_replicas(s)) dp = most_replicas(s);
    s->best = make_candidate(s, resize_strategy(s, dp, pp, s->base.zero));
    weigh_candidate(s, &s->best);
}

weft_replan_kind weft_replan__find_kind(const weft_strategy *a, const weft_strategy *b)
{
    if (a->pp != b->pp || size_of(a->tp) != size_of(b->tp) ||
        size_of(a->cp) != size_of(b->cp) || size_of(a->ep) != size_of(b->ep) ||
        (a->zero != b->zero && size_of(a->dp) > 1 && size_of(b->dp) > 1))
        return WEFT_REPLAN_SHAPE;
    return size_of(a->dp) == size_of(b->dp) ? WEFT_REPLAN_SAME : WEFT_REPLAN_REPLICAS;
}

/* With the candidate's lanes, and buckets as before: they are no part of the search. */
static weft_status compile_plan(const replan_search *s, const int *layers,
                                weft_plan **out)
{
    const weft_training *t   = s->r->job.training;
    const candidate     *c   = &s->best;
    weft_training        own = {0};
    weft_plan_of         of  = {.micro_batch = c->micro_batch, .lanes = c->lanes};
    WEFT_TRY(weft_compile_training_of(t, &of, &own, &t));
    weft_status st = weft_compile_plan_layers(t, &c->strategy, layers, 0, out);
    if (st == WEFT_OK && s->q->was)
        (*out)->strategy.bucket_bytes = s->q->was->strategy.bucket_bytes;
    weft_training_fini(&own);
    return st;
}

static weft_status make_plan(replan_search *s, weft_replan_answer *out)
{
    const candidate *c   = &s->best;
    weft_plan       *p   = NULL;
    bool             cut = c->cut && c->strategy.pp > 1 && c->strategy.chunks == 1;
    int *layers          = cut ? WEFT_ARENA_ARRAY(s->arena, int, c->strategy.pp) : NULL;
    if (cut) WEFT_TRY(weft_arena_status(s->arena));
    for (int k = 0; layers && k < c->strategy.pp; k++) layers[k] = c->cut[k];
    weft_replan_kind kind = weft_replan__find_kind(&s->was, &c->strategy);
    weft_status st = s->q->was && kind == WEFT_REPLAN_SAME ? weft_plan_copy(s->q->was, &p)
                                                           : compile_plan(s, layers, &p);
    WEFT_TRY(st);
    p->strategy.standby = c->strategy.standby; /* of these hosts */

    *out        = (weft_replan_answer){.plan       = p,
                                       .kind       = kind,
                                       .n_rank     = weft_plan_world(p),
                                       .most_lanes = c->most_lanes,
                                       .step_s     = c->step_s,
                                       .move_s     = c->move_s,
                                       .move_bytes = c->move_bytes,
                                       .cut_short  = s->is_late};
    out->n_idle = s->q->n_rank - out->n_rank;
    return WEFT_OK;
}

static weft_status check_request(const replan_search *s)
{
    const weft_replan_request *q   = s->q;
    int                        sum = 0;
    for (int k = 0; k < q->n_host; k++) sum += q->host_ranks[k];
    if (q->n_rank < 1 || (q->n_host > 0 && sum != q->n_rank))
        return WEFT_FAIL(WEFT_ERR_ARG, "a plan for %d ranks, of which hosts have %d",
                         q->n_rank, sum);
    if (s->n_unit < 1)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%d ranks are too few: tp, cp and ep of the running plan take %d "
            "on one host",
            q->n_rank, s->width);
    return WEFT_OK;
}

static weft_status find_plan(replan_search *s)
{
    bool priced = s->r->workspace && !s->r->job.shape && size_of(s->was.ep) == 1 &&
                  !s->was.n_tp_exclude;
    if (priced) WEFT_TRY(price_all(s, false));
    if (priced && !s->n_priced) WEFT_TRY(price_all(s, true));
    if (s->n_priced)
        choose_best(s);
    else
        take_replicas(s);
    return WEFT_OK;
}

static replan_search open_search(weft_replanner *r, const weft_replan_request *q)
{
    const weft_compile_spec *spec = &r->job.training->spec;
    replan_search            s    = {.r = r,
                                     .q = q,
                                     .was = q->was ? q->was->strategy : weft_strategy_default(),
                                     .n_lane = (int)spec->lanes};
    s.base                        = r->job.shape ? *r->job.shape : s.was;
    s.is_fixed                    = weft_compile_reduction(spec) == WEFT_REDUCTION_FIXED;
    fit_width(&s);
    return s;
}

weft_status weft_replanner_decide(weft_replanner *r, const weft_replan_request *q,
                                  weft_replan_answer *out)
{
    replan_search s   = open_search(r, q);
    uint64_t      key = hash_request(q);
    r->n_asked++;
    for (int k = 0; k < WEFT_REPLAN__MAX_KEPT; k++) {
        weft_replan__kept *x = &r->kept[k];
        if (x->key != key) continue;
        x->used = r->n_asked;
        WEFT_TRY(copy_answer(&x->answer, out));
        out->from_cache = true;
        return WEFT_OK;
    }
    WEFT_TRY(check_request(&s));
    WEFT_TRY(weft_arena_create(&s.arena));
    weft_status st = find_plan(&s);
    if (st == WEFT_OK) st = make_plan(&s, out);
    weft_arena_destroy(s.arena);
    if (st == WEFT_OK && !s.is_late) keep_answer(r, key, out);
    return st;
}

weft_status weft_replan__predict(weft_replanner *r, const weft_replan_request *q,
                                 int64_t micro_batch, int64_t lanes, double *step_s)
{
    weft_replan_job job = r->job;
    weft_training open = *job.training; /* prices are by its spec and the model's graph */
    open.spec.micro_batch = micro_batch;
    open.spec.lanes       = lanes;
    r->job.training       = &open;
    replan_search s       = open_search(r, q);
    weft_status   st      = check_request(&s);
    if (st == WEFT_OK) st = weft_arena_create(&s.arena);
    if (st == WEFT_OK) st = find_plan(&s);
    *step_s = st == WEFT_OK && s.n_priced ? s.best.step_s : INFINITY;
    weft_arena_destroy(s.arena);
    r->job = job;
    return st == WEFT_ERR_ARG ? WEFT_OK : st;
}
