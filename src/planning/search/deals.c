/* Replicas of unlike speed.  Each kind of devices has as many whole replicas as it has devices
 * for, all cut alike; the lanes of the batch go to them so that the last one is done as early as
 * can be.
 *
 * (1) Every replica has at least a lane, and those of a kind as equally many as can be.
 * (2) Of all ways to deal the lanes out so the least step is found: replicas are first filled by
 *     straight lines through the scores of two numbers of micro-batches, then lanes move between
 *     kinds as long as the score says that it helps.
 * (3) Zero 3 is left out: all replicas gather in each micro-batch of any of them, and so wait for
 *     the slowest. */
#include <math.h>

#include "search/search_priv.h"

enum {
    MOST_LANES = 64, /* of a replica, on average */
    NEAR       = 4   /* lanes that move at once: fewer terms may be that far away */
};

/* Which replicas there are, and how long they take: fixed_s + lanes * lane_s. */
typedef struct deal {
    weft_search__work *z;
    weft_cost_point    p;
    int                n; /* kinds, the fastest first */
    int                kind[WEFT_COST_MAX_DEVICE];
    int                replicas[WEFT_COST_MAX_DEVICE];
    int                n_lane;
    double             fixed_s[WEFT_COST_MAX_DEVICE], lane_s[WEFT_COST_MAX_DEVICE];
    double             rest_s; /* sums and the optimizer */
} deal;

/* ---- lanes to replicas ---- */

static double ends_at(const deal *d, int k, int lanes)
{
    return d->fixed_s[k] + lanes * d->lane_s[k];
}

static int held(const deal *d, const int *most)
{
    int n = 0;
    for (int k = 0; k < d->n; k++) n += d->replicas[k] * most[k];
    return n;
}

/* most[k]: lanes that a replica of kind k has at most.  One more to whoever is done first with
 * it, until all are dealt: no other way ends earlier. */
static void fill(const deal *d, int *most)
{
    for (int k = 0; k < d->n; k++) most[k] = 1;
    for (int have = held(d, most); have < d->n_lane;) {
        int best = 0;
        for (int k = 1; k < d->n; k++)
            if (ends_at(d, k, most[k] + 1) < ends_at(d, best, most[best] + 1)) best = k;
        most[best]++;
        have += d->replicas[best];
    }
}

/* Lanes of each kind under these; what is too much is taken from whoever ends last.  False: too
 * few, or none left for somebody. */
static bool put(const deal *d, const int *most, weft_cost_deal *out)
{
    int  over                       = held(d, most) - d->n_lane;
    bool done[WEFT_COST_MAX_DEVICE] = {false};
    if (over < 0) return false;
    for (int k = 0; k < d->n; k++) {
        if (most[k] < 1) return false;
        out->lanes[k] = d->replicas[k] * most[k];
    }
    for (int i = 0; i < d->n && over > 0; i++) {
        int last = -1;
        for (int k = 0; k < d->n; k++)
            if (!done[k] &&
                (last < 0 || ends_at(d, k, most[k]) > ends_at(d, last, most[last])))
                last = k;
        int room = d->replicas[last] * (most[last] - 1);
        int take = over < room ? over : room;
        out->lanes[last] -= take;
        over -= take;
        done[last] = true;
    }
    return over == 0;
}

/* ---- the best of one way to cut ---- */

static void rate(deal *d, weft_cost_score *s)
{
    weft_cost_deal *x = &d->p.deal;
    int             n = 1;
    weft_cost_deal_count(x);
    for (int k = 0; k < d->n; k++) {
        int m = (x->lanes[k] + x->replicas[k] - 1) / x->replicas[k];
        if (m > n) n = m;
    }
    d->p.n_micro = n * x->per_lane;
    weft_cost_score_point(&d->z->s.t, &d->p, s);
    d->z->n_scored++;
}

static bool score(deal *d, const int *most, weft_cost_score *s)
{
    if (!put(d, most, &d->p.deal)) return false;
    rate(d, s);
    return true;
}

static bool better(const weft_cost_score *a, const weft_cost_score *b)
{
    bool fits = a->mem_bytes <= a->mem_limit, other = b->mem_bytes <= b->mem_limit;
    if (fits != other) return fits;
    return fits ? a->step_s < b->step_s
                : a->mem_bytes / a->mem_limit < b->mem_bytes / b->mem_limit;
}

/* Some lanes less for replicas of kind i, as many more as it takes for those of kind j. */
static bool move(const deal *d, int i, int j, int by, const int *most, int *out)
{
    for (int k = 0; k < d->n; k++) out[k] = most[k];
    if ((out[i] -= by) < 1) return false;
    while (i != j && held(d, out) < d->n_lane) out[j]++;
    return held(d, out) >= d->n_lane;
}

/* Shares that are constrained: lanes of each kind, all replicas in their order.  False: other
 * replicas, or those of a kind differ by more than one, or the smaller first. */
static bool count_given(const deal *d, const weft_strategy *y, int *lanes)
{
    int run = 0, left = y->batch_split[0].ranks;
    if (weft_strategy_lanes(y) != d->n_lane || weft_strategy_split_ranks(y) != d->p.dp)
        return false;
    for (int k = 0; k < d->n; k++) {
        int first = 0, last = 0;
        lanes[k] = 0;
        for (int want = d->replicas[k], n; want > 0; want -= n, left -= n) {
            if (!left) left = y->batch_split[++run].ranks;
            int each = y->batch_split[run].lanes;
            n        = left < want ? left : want;
            if (!first) first = last = each;
            if (each > last || first - each > 1) return false;
            last = each;
            lanes[k] += n * each;
        }
    }
    return true;
}

static void settle(deal *d, const weft_cost_score *s)
{
    weft_search__consider(d->z, &d->p, s);
    if (s->mem_bytes <= s->mem_limit) d->z->relaxed_s = fmin(d->z->relaxed_s, s->step_s);
}

static void deal_out(deal *d)
{
    weft_search__work *z = d->z;
    weft_cost_score    best, s;
    int                most[WEFT_COST_MAX_DEVICE], next[WEFT_COST_MAX_DEVICE];
    bool               moved = true;
    double             last  = 0;
    if (weft_search__has_split(&z->p->constraints)) {
        if (!count_given(d, &z->p->constraints.strategy, d->p.deal.lanes)) return;
        rate(d, &best);
        settle(d, &best);
        return;
    }
    fill(d, most);
    for (int k = 0; k < d->n; k++) last = fmax(last, ends_at(d, k, most[k]));
    if (weft_search__hopeless(z, 0.95 * (last + d->rest_s)) || !score(d, most, &best))
        return;
    while (moved) {
        moved = false;
        for (int i = 0; i < d->n; i++)
            for (int j = 0; j < d->n; j++)
                for (int by = 1; by <= NEAR; by++) {
                    if (!move(d, i, j, by, most, next) || !score(d, next, &s) ||
                        !better(&s, &best))
                        continue;
                    best  = s;
                    moved = true;
                    for (int k = 0; k < d->n; k++) most[k] = next[k];
                }
    }
    score(d, most, &best);
    settle(d, &best);
}

/* Lines through two numbers of micro-batches of each kind alone. */
static void measure(deal *d)
{
    int kinds = 0;
    d->rest_s = 0;
    for (int k = 0; k < d->n; k++) kinds |= 1 << d->kind[k];
    for (int k = 0; k < d->n; k++) {
        weft_cost_point q = d->p;
        weft_cost_score a, b;
        int             m = q.pp > 1 ? 2 * q.pp : 1;
        q.deal.n          = 0;
        q.only            = d->kind[k] + 1;
        q.only_dp         = d->replicas[k];
        q.reach           = kinds;
        q.kinds           = NULL;
        q.n_micro         = m;
        weft_cost_score_point(&d->z->s.t, &q, &a);
        q.n_micro = 2 * m;
        weft_cost_score_point(&d->z->s.t, &q, &b);
        double more   = (b.step_s - a.step_s) / m;
        d->lane_s[k]  = fmax(more, 1e-12);
        d->rest_s     = fmax(d->rest_s, a.dp_s + a.optimizer_s);
        d->fixed_s[k] = fmax(0, a.step_s - a.dp_s - a.optimizer_s - m * more);
        d->z->n_scored += 2;
    }
}

/* All numbers of lanes that divide the micro-batches evenly. */
static void lanes(deal *d, int n_micro)
{
    double lane_s[WEFT_COST_MAX_DEVICE];
    int    pin = d->z->p->lanes;
    measure(d);
    for (int k = 0; k < d->n; k++) lane_s[k] = d->lane_s[k];
    for (int n = 1; n <= n_micro && n <= MOST_LANES * d->p.dp; n *= 2) {
        if (n < d->p.dp || n_micro % n || (pin > 0 && n != pin)) continue;
        d->n_lane          = n;
        d->p.deal.per_lane = n_micro / n;
        for (int k = 0; k < d->n; k++) d->lane_s[k] = lane_s[k] * d->p.deal.per_lane;
        deal_out(d);
    }
}

/* ---- ways to cut ---- */

static void schedules(deal *d, int n_micro)
{
    const weft_search_problem *q = d->z->p;
    for (int k = 0; k < 3; k++) {
        if (!(q->model.limits.schedules >> k & 1)) continue;
        if (weft_search_given(&q->constraints, WEFT_KEY_schedule) >= 0
                ? k != weft_search_given(&q->constraints, WEFT_KEY_schedule)
                : k == WEFT_COST_GPIPE || (d->p.pp == 1 && k))
            continue;
        d->p.schedule = (weft_cost_schedule)k;
        lanes(d, n_micro);
    }
}

static void variant(deal *d, const weft_search__group *g, int v, int n_micro)
{
    weft_search__work         *z     = d->z;
    const weft_search_problem *q     = z->p;
    double                     speed = 0, even_s;
    unsigned        can = g->pp > 1 ? q->model.limits.zero_pp : q->model.limits.zero;
    weft_cost_point p   = {.variant = v,
                           .dp      = g->dp,
                           .pp      = g->pp,
                           .chunks  = 1,
                           .n_micro = 1,
                           .kinds   = z->kinds};
    for (int k = 0; k < d->n; k++)
        speed += d->replicas[k] * g->pp / z->s.whole_s[d->kind[k] * z->s.t.n_variant + v];
    if (weft_search__hopeless(z, n_micro / speed)) return;
    p.deal.n = d->n;
    for (int k = 0; k < d->n; k++) {
        p.deal.kind[k]     = d->kind[k];
        p.deal.replicas[k] = d->replicas[k];
    }
    p.cut = q->constraints.cut;
    if (g->pp > 1 && !p.cut && q->model.limits.cuts == WEFT_CUT_ANY &&
        weft_search__fast_cut(&z->s.t, &p, z->s.n_layer, WEFT_CUT_ANY, &even_s, z->cut) >
            0)
        p.cut = z->cut;
    if (!p.cut && !weft_search__even_allowed(z, g->pp)) return;
    d->p = p;
    for (int zero = 2; zero >= 0; zero--) {
        if (!(can >> zero & 1) ||
            (weft_search_given(&q->constraints, WEFT_KEY_zero) >= 0 &&
             zero != weft_search_given(&q->constraints, WEFT_KEY_zero)) ||
            !weft_search__holds_copies(&q->constraints, &d->z->s.variant[v], &p, zero, 1))
            continue;
        d->p.zero = zero;
        schedules(d, n_micro);
    }
}

/* Before rows are filled: all work by all devices at once, pipelines that fill and drain in
 * thirds, and on the slowest kind one micro-batch from end to end. */
static double floor_of(const deal *d, const weft_search__group *g, int micro_batch)
{
    const weft_search__space *s     = &d->z->s;
    int                       S     = s->tp.x[g->tp] * s->cp.x[g->cp];
    double                    speed = 0, fast = INFINITY, slow = 0;
    for (int k = 0; k < d->n; k++) {
        double unit_s = s->ideal_s[d->kind[k]] / S;
        speed += d->replicas[k] * g->pp / unit_s;
        fast = fmin(fast, unit_s);
        slow = fmax(slow, unit_s);
    }
    double idle = s->t.engine.bubble * micro_batch * fast * (g->pp - 1) / g->pp / 3;
    return fmax(d->z->p->batch / speed + idle, micro_batch * slow);
}

static void look_at(deal *d, const weft_search__group *g)
{
    weft_search__work         *z = d->z;
    const weft_search_problem *q = z->p;
    for (int way = 0; way < 2; way++) { /* layers of one cut */
        if (!weft_search__may_split(z, g, 0, way)) continue;
        for (int i = 0; i < z->s.micro.n; i++) {
            int n_micro = q->batch / z->s.micro.x[i];
            if (n_micro < g->dp) break;
            if (weft_search__hopeless(z, floor_of(d, g, z->s.micro.x[i]))) break;
            for (int again = 0; again < 3; again++) {
                if (!(q->model.limits.recompute >> again & 1) ||
                    (weft_search_given(&q->constraints, WEFT_KEY_recompute) >= 0 &&
                     again != weft_search_given(&q->constraints, WEFT_KEY_recompute)))
                    continue;
                int v = weft_search__variant(&z->s, g->tp, g->cp, 0, way, i, again);
                variant(d, g, v, n_micro);
            }
        }
    }
}

/* Whole replicas of each kind; false: a kind has none, or constraints ask for others. */
static bool count(deal *d, int tp, int cp, int pp, int *dp)
{
    const weft_search_problem *q = d->z->p;
    *dp                          = 0;
    for (int k = 0; k < d->n; k++) {
        d->replicas[k] =
            weft_search_usable(&q->machines->kind[d->kind[k]], tp) / (tp * cp * pp);
        if (d->replicas[k] < 1) return false;
        *dp += d->replicas[k];
    }
    if (weft_search_given(&q->constraints, WEFT_KEY_dp) > 0 &&
        weft_search_given(&q->constraints, WEFT_KEY_dp) != *dp)
        return false;
    if (q->constraints.world > 0 && q->constraints.world != *dp * tp * cp * pp)
        return false;
    return *dp <= q->batch;
}

/* The fastest first: its runs of lanes are the longest, and begin where subtrees do. */
static void sort_kinds(deal *d)
{
    for (int k = 0; k < d->n; k++) {
        int at = k;
        for (; at > 0 && d->z->s.ideal_s[d->kind[at - 1]] > d->z->s.ideal_s[k]; at--)
            d->kind[at] = d->kind[at - 1];
        d->kind[at] = k;
    }
}

weft_status weft_search__refuse_shares(const weft_search_problem *p)
{
    if (p->machines->n < 2)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "batch_split: devices are all alike, and replicas get "
                         "equal shares of the batch on them");
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "batch_split: no plan gives %d replicas so and goes with the other constraints; "
        "every kind "
        "of devices has as many whole replicas as it has room for, the fastest kind "
        "first, those of a kind as equal as can be",
        weft_search_given(&p->constraints, WEFT_KEY_dp));
}

void weft_search__deals(weft_search__work *z)
{
    const weft_search_problem *q    = z->p;
    deal                       d    = {.z = z, .n = z->s.t.n_device};
    int                        most = q->model.limits.pp ? z->s.n_layer : 1, dp;
    if (!q->model.limits.shares || d.n < 2 || q->constraints.n_on ||
        weft_search_given(&q->constraints, WEFT_KEY_chunks) > 1 ||
        weft_search_given(&q->constraints, WEFT_KEY_schedule) ==
            WEFT_STRATEGY_INTERLEAVED ||
        q->constraints.recompute_layers > 0 || z->s.ep.x[0] != 1)
        return;
    if (most > MAX_STAGE) most = MAX_STAGE;
    sort_kinds(&d);
    for (int i = 0; i < most; i++) z->kinds[i] = (uint8_t)((1 << d.n) - 1);
    for (int tp = 0; tp < z->s.tp.n; tp++)
        for (int cp = 0; cp < z->s.cp.n; cp++)
            for (int pp = 1; pp <= most; pp++) {
                if (weft_search_given(&q->constraints, WEFT_KEY_pp) >= 0 &&
                    pp != weft_search_given(&q->constraints, WEFT_KEY_pp))
                    continue;
                if (q->model.limits.cuts == WEFT_CUT_EQUAL && z->s.n_layer % pp) continue;
                if (!count(&d, z->s.tp.x[tp], z->s.cp.x[cp], pp, &dp)) continue;
                look_at(&d,
                        &(weft_search__group){.tp = tp, .cp = cp, .pp = pp, .dp = dp});
            }
}
