/* The search itself.  Groups (tp, cp, pp, dp and the order of device kinds) are looked at in the
 * order of promise; a group, and in it each variant, is left out when its lower bound is not
 * below the last of the best so far. */
#include "search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search/search_priv.h"

enum {
    SEEDS  = 512, /* groups that are looked at in part first */
    UNLIKE = 96   /* variants that leave layers whole, of the most promising groups */
};

#define PARTS                                                                            \
    0.98 /* of rows of layers cut alike: what a neighbour of another cut may save */
#define FULL 1.05 /* memory over its limit that no other way to cut stages makes good */

/* ---- groups ---- */

/* Units a second that S devices of these kinds do at best. */
static double speed_of(const weft_search__work *z, int S, unsigned kinds)
{
    double worst = 0;
    for (int d = 0; d < z->s.t.n_device; d++)
        if (kinds >> d & 1) worst = fmax(worst, z->s.ideal_s[d]);
    return S / worst;
}

static double fixed(const weft_cost_engine *e, double n_micro)
{
    return e->step_s + n_micro * e->micro_s;
}

/* Of our programs, whose lanes are a power of two: micro-batches of the replica that has most of
 * them. */
static int fullest(const weft_search__work *z, int dp, int ep, int m)
{
    const weft_cost_table *t = &z->s.t;
    int                    n = dp / z->s.ep.x[ep];
    if (!t->programs || t->rounds || n < 1 || !(n & (n - 1))) return m;
    return weft_cost_most_micro(n, weft_cost_lanes(n, n * m, 0, 1), n * m);
}

/* speed: of all its stages together. */
static weft_status add_group(weft_search__work *z, int tp, int cp, int pp, int dp,
                             int order, double speed)
{
    const weft_cost_engine *e     = &z->s.t.engine;
    double                  share = (double)z->p->batch / dp;
    if (z->n_group == z->cap_group) {
        int                 cap = z->cap_group ? 2 * z->cap_group : 4096;
        weft_search__group *g   = realloc(z->group, sizeof *g * (size_t)cap);
        if (!g) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %d groups of plans", cap);
        z->group     = g;
        z->cap_group = cap;
    }
    double bound = z->p->batch / speed;
    double last  = z->s.micro.x[z->s.micro.n - 1];
    /* filling and draining, of the smallest micro-batch, in the finest chunks */
    double all = z->s.ideal_s[0];
    for (int d = 1; d < z->s.t.n_device; d++) all = fmin(all, z->s.ideal_s[d]);
    all /= z->s.tp.x[tp] * z->s.cp.x[cp];
    double idle = e->bubble * fmax(0, all - dp / speed) / weft_search__finest(z, pp);
    weft_search__group g = {
        tp, cp, pp, dp, order, bound + idle + fixed(e, ceil(share / last)), 0};
    g.promise_s = g.bound_s * (1 +
                               0.04 * log2(z->s.tp.x[tp]) *
                                   (1 + (z->s.tp.x[tp] > z->s.fabric[0].domain)) +
                               0.05 * log2(z->s.cp.x[cp])) +
                  bound * (pp - 1) / share;
    /* with the smallest micro-batches, which even out best */
    int m = (int)share / z->s.micro.x[0];
    if (z->s.ep.n == 1 && m > 0) g.promise_s *= (double)fullest(z, dp, 0, m) / m;
    z->any_group = true;
    if (!weft_search__hopeless(z, g.bound_s)) z->group[z->n_group++] = g;
    return WEFT_OK;
}

/* All pipelines of stages of S devices with their kinds in one order. */
static weft_status list_depths(weft_search__work *z, int tp, int cp, int dp, int order)
{
    const weft_search__space *s = &z->s;
    int                       S = s->tp.x[tp] * s->cp.x[cp] * dp,
        pin                     = weft_search_given(&z->p->constraints, WEFT_KEY_pp);
    int    most                 = s->n_layer < MAX_STAGE ? s->n_layer : MAX_STAGE;
    double speed                = 0;
    if (!z->p->model.limits.pp) most = 1;
    int have = weft_search__stages(s, &s->order[order], s->tp.x[tp], S, most, z->kinds);
    if (have < most) most = have;
    for (int pp = 1; pp <= most; pp++) {
        speed += speed_of(z, S, z->kinds[pp - 1]);
        if (z->p->constraints.world > 0 && z->p->constraints.world != S * pp) continue;
        if (pin >= 0 && pin != pp) continue;
        if (z->p->model.limits.cuts == WEFT_CUT_EQUAL && s->n_layer % pp) continue;
        WEFT_TRY(add_group(z, tp, cp, pp, dp, order, speed));
    }
    return WEFT_OK;
}

static weft_status list_groups(weft_search__work *z)
{
    const weft_search__space *s = &z->s;
    for (int tp = 0; tp < s->tp.n; tp++)
        for (int cp = 0; cp < s->cp.n; cp++)
            for (int i = 0; i < s->n_dp; i++)
                for (int o = 0; o < s->n_order; o++)
                    WEFT_TRY(list_depths(z, tp, cp, s->dp[i], o));
    return WEFT_OK;
}

static int by_promise(const void *a, const void *b)
{
    const weft_search__group *x = a, *y = b;
    if (x->promise_s != y->promise_s) return x->promise_s < y->promise_s ? -1 : 1;
    if (x->tp != y->tp) return x->tp - y->tp;
    if (x->cp != y->cp) return x->cp - y->cp;
    if (x->pp != y->pp) return x->pp - y->pp;
    if (x->dp != y->dp) return x->dp - y->dp;
    return x->order - y->order;
}

/* ---- one group ---- */

/* The slowest stage when layers could be cut at any point. */
static double least_stage(const weft_search__work *z, const weft_search__group *g, int v)
{
    const weft_search__space *s   = &z->s;
    double                    sum = 0;
    if (s->t.n_device == 1) return weft_search__whole(s, 0, v, g->pp) / g->pp;
    for (int i = 0; i < z->n_type; i++) {
        double worst = 0;
        for (int d = 0; d < s->t.n_device; d++)
            if (z->type[i].kinds >> d & 1)
                worst = fmax(worst, weft_search__whole(s, d, v, g->pp));
        sum += z->type[i].count / worst;
    }
    return 1 / sum;
}

/* A lower bound for m micro-batches whose slowest stage takes T and all stages together sum_s. */
static double bound(const weft_search__work *z, const weft_search__group *g, double m,
                    double T, double sum_s)
{
    const weft_cost_engine *e = &z->s.t.engine;
    return m * T + e->bubble * fmax(0, sum_s - T) / weft_search__finest(z, g->pp) +
           fixed(e, m);
}

/* The slowest stage at best; leaves in z->cut how. */
static double cut_by_time(weft_search__work *z, const weft_search__group *g,
                          const weft_cost_point *p)
{
    const weft_search__space *s = &z->s;
    double                    even_s, least = least_stage(z, g, p->variant);
    z->by_time = false;
    if (g->pp < 2 || z->p->constraints.cut || z->p->model.limits.cuts == WEFT_CUT_EQUAL)
        return least;
    double T = weft_search__fast_cut(&s->t, p, s->n_layer, z->p->model.limits.cuts,
                                     &even_s, NULL);
    if (!(T > 0) || !isfinite(T)) return least;
    bool tight = true; /* no seam saves anything */
    for (int d = 0; d < s->t.n_device; d++)
        tight = tight && !(s->seam_s[d * s->t.n_variant + p->variant] < 0);
    if (tight &&
        weft_search__hopeless(z, p->n_micro * T + fixed(&s->t.engine, p->n_micro)))
        return T;
    z->by_time = T < even_s * (1 - 1e-9) || !weft_search__even_allowed(z, g->pp);
    if (z->by_time)
        weft_search__fast_cut(&s->t, p, s->n_layer, z->p->model.limits.cuts, &even_s,
                              z->cut);
    return tight ? T : least;
}

static int place_of(const weft_search__list *l, int x)
{
    for (int i = 0; i < l->n; i++)
        if (l->x[i] == x) return i;
    return -1;
}

/* Before rows of layers of two cuts are filled: those of layers cut alike, of layers left whole
 * one device's with its part of the samples, and nothing at the borders.  Gives a variant that is
 * as it were; -1: not known. */
static int put_together(weft_search__work *z, const weft_search__group *g, int ep,
                        int way, int micro, int again)
{
    weft_search__space      *s = &z->s;
    const weft_search_whole *w = &z->p->model.whole[way - 1];
    int mb = s->micro.x[micro], alone = place_of(&s->tp, 1), v = s->t.n_variant - 1;
    int part                    = place_of(&s->micro, mb / s->tp.x[g->tp]);
    const weft_cost_row *row[3] = {0};
    if (alone < 0 || part < 0) return -1;
    for (int k = 0; k < 3; k++) {
        if (k < 2 && !weft_search__may_split(z, g, ep, k)) continue;
        int i  = k < 2 ? weft_search__variant(s, g->tp, g->cp, ep, k, micro, again)
                       : weft_search__variant(s, alone, g->cp, ep, 0, part, again);
        row[k] = s->row + (int64_t)i * s->t.n_class;
        if (!k) s->variant[v] = s->variant[i];
    }
    if (!row[0]) return -1;
    for (int c = 0; c < s->t.n_class; c++) {
        const weft_cost_row *x = row[w->classes >> c & 1 ? 2 : 0], *y = row[1];
        if (x == row[2] || !y || x->fwd_s + x->bwd_s < y->fwd_s + y->bwd_s) y = x;
        s->row[(int64_t)v * s->t.n_class + c] = *y;
    }
    weft_search__sum_up(s, v);
    if (!row[1]) s->whole_s[v] *= PARTS;
    return v;
}

/* Does that say already that it is too slow, or far too full? */
static bool are_hopeless_together(weft_search__work *z, const weft_search__group *g,
                                  int ep, int way, int micro, int again)
{
    if (z->s.n_unlike >= UNLIKE &&
        !(z->p->constraints.given >> WEFT_KEY_tp_exclude & 1) &&
        !weft_search__filled(&z->s, g->tp, g->cp, ep, way, micro, again))
        return true;
    const weft_search__space *s = &z->s;
    int                       m = z->p->batch / g->dp / s->micro.x[micro];
    int                       v = put_together(z, g, ep, way, micro, again);
    weft_cost_point           p = {
                  .variant = v, .dp = g->dp, .pp = g->pp, .chunks = 1, .n_micro = m};
    weft_cost_score score;
    if (v < 0) return false;
    double sum = weft_search__whole(s, 0, v, g->pp);
    if (weft_search__hopeless(z, bound(z, g, fullest(z, g->dp, ep, m), sum / g->pp, sum)))
        return true;
    unsigned can = p.pp > 1 ? z->p->model.limits.zero_pp : z->p->model.limits.zero;
    for (int zero = 0; zero < 4; zero++)
        if (can >> zero & 1) p.zero = zero;
    weft_cost_score_point(&s->t, &p, &score);
    double full = score.mem_bytes / score.mem_limit;
    if (full > FULL) z->fullest = fmin(z->fullest, full);
    return full > FULL;
}

static void variant(weft_search__work *z, const weft_search__group *g, int ep, int way,
                    int micro)
{
    weft_search__space *s     = &z->s;
    int                 share = z->p->batch / g->dp, mb = s->micro.x[micro];
    int  m = share / mb, pin = weft_search_given(&z->p->constraints, WEFT_KEY_recompute);
    int  most = fullest(z, g->dp, ep, m);
    bool one  = s->t.n_device == 1;
    z->ep     = ep;
    z->way    = way;
    z->micro  = micro;
    /* before rows are filled: the work alone, with this micro-batch's idle time */
    double all = s->ideal_s[0] * mb / (s->tp.x[g->tp] * s->cp.x[g->cp]);
    if (one && weft_search__hopeless(z, bound(z, g, most, all / g->pp, all))) return;
    for (int again = 0; again < WEFT_RECOMPUTE_N; again++) {
        if (!(z->p->model.limits.recompute >> again & 1)) continue;
        if (pin >= 0 && again != pin && z->p->constraints.recompute_layers < 1) continue;
        if (one && !z->p->model.measured) {
            double x =
                weft_search__floor(s, micro, again) / (s->tp.x[g->tp] * s->cp.x[g->cp]);
            if (weft_search__hopeless(z, bound(z, g, most, x / g->pp, x))) continue;
        }
        if (one && way > 1 && !z->p->exhaustive &&
            are_hopeless_together(z, g, ep, way, micro, again))
            continue;
        int             v = weft_search__variant(s, g->tp, g->cp, ep, way, micro, again);
        weft_cost_point p = {.variant = v,
                             .dp      = g->dp,
                             .pp      = g->pp,
                             .chunks  = 1,
                             .n_micro = m,
                             .kinds   = one ? NULL : z->kinds};
        double          least = least_stage(z, g, v);
        z->sum_s              = weft_search__whole(s, 0, v, g->pp);
        for (int d = 1; d < s->t.n_device; d++)
            z->sum_s = fmin(z->sum_s, weft_search__whole(s, d, v, g->pp));
        if (weft_search__hopeless(z, bound(z, g, most, least, z->sum_s))) {
            if (again == WEFT_RECOMPUTE_NONE && !z->p->model.measured)
                break; /* what runs again takes more */
            continue;
        }
        least = cut_by_time(z, g, &p);
        if (weft_search__hopeless(z, bound(z, g, most, least, z->sum_s))) continue;
        weft_search__ready(s, v);
        weft_search__points(z, &p, least);
    }
}

/* Some layers stay whole: is it asked for, or not ruled out? */
static bool may_stay_whole(const weft_search_problem *p, const weft_cost_variant *v)
{
    const weft_strategy *pin = &p->constraints.strategy;
    bool                 any = !(p->constraints.given >> WEFT_KEY_tp_exclude & 1);
    if (!v->whole) return any || !pin->n_tp_exclude;
    if (v->tp < 2 || v->ep > 1 || weft_search_given(&p->constraints, WEFT_KEY_sp) == 1)
        return false;
    return any || weft_search__is_whole(&p->model, v->whole, pin);
}

bool weft_search__may_split(const weft_search__work *z, const weft_search__group *g,
                            int ep, int way)
{
    const weft_search__space *s   = &z->s;
    int                       pin = weft_search_given(&z->p->constraints, WEFT_KEY_sp);
    weft_cost_variant         v   = {
                  .tp = s->tp.x[g->tp], .cp = s->cp.x[g->cp], .ep = s->ep.x[ep], .micro_batch = 1};
    weft_search__set_way(&v, way);
    if (pin >= 0 && v.sp != pin && !(pin == 1 && v.tp == 1)) return false;
    if (v.sp && (v.tp < 2 || !z->p->model.limits.sp)) return false;
    if (!may_stay_whole(z->p, &v)) return false;
    if (((int64_t)g->dp * v.cp * v.tp) % v.ep) return false;
    if (z->p->model.limits.ep_of_dp && g->dp % v.ep) return false;
    return z->p->model.allows(z->p->model.arg, &v, NULL, 0);
}

static void count_types(weft_search__work *z, int pp)
{
    z->n_type = 0;
    for (int i = 0; i < pp; i++) {
        int k = 0;
        while (k < z->n_type && z->type[k].kinds != z->kinds[i]) k++;
        if (k == z->n_type) {
            z->type[k].kinds = z->kinds[i];
            z->type[k].count = 0;
            z->n_type++;
        }
        z->type[k].count++;
    }
}

static void look_at(weft_search__work *z, const weft_search__group *g)
{
    weft_search__space *s     = &z->s;
    int                 S     = s->tp.x[g->tp] * s->cp.x[g->cp] * g->dp;
    int                 share = z->p->batch / g->dp, pin = z->p->constraints.micro_batch;
    if (s->t.n_device > 1) {
        weft_search__stages(s, &s->order[g->order], s->tp.x[g->tp], S, g->pp, z->kinds);
        count_types(z, g->pp);
    }
    for (int ep = 0; ep < s->ep.n; ep++)
        for (int way = z->unlike ? 2 : 0; way < (z->unlike ? weft_search__ways(s) : 2);
             way++) {
            bool full = false;
            if (!weft_search__may_split(z, g, ep, way)) continue;
            for (int i = 0; i < s->micro.n; i++) {
                if (full && !(s->t.programs && s->micro.x[i] == share)) continue;
                if (share % s->micro.x[i] || (pin >= 0 && s->micro.x[i] != pin)) continue;
                if (way > 1 && s->micro.x[i] % s->tp.x[g->tp]) continue;
                z->fullest = INFINITY;
                variant(z, g, ep, way, i);
                /* larger ones keep more, but one that is the whole share has nothing to sum */
                full = isfinite(z->fullest) && z->fullest > 2 && !z->p->exhaustive;
            }
        }
}

/* ---- the answer ---- */

static weft_status conclude(weft_search__work *z, weft_search_result **out)
{
    weft_arena *a = NULL;
    WEFT_TRY(weft_arena_create(&a));
    weft_search_result *r = WEFT_ARENA_NEW(a, weft_search_result);
    if (!r) goto failed;
    *r        = (weft_search_result){.arena = a, .n = z->n_best, .n_scored = z->n_scored};
    r->choice = WEFT_ARENA_ARRAY(a, weft_search_choice, z->n_best);
    if (!r->choice) goto failed;
    for (int i = 0; i < z->n_best; i++) {
        weft_search_choice *x = &r->choice[i];
        weft_text           t = {0};
        size_t              n = (size_t)z->best[i]->x.point.pp;
        *x                    = z->best[i]->x;
        x->point.cut          = weft_arena_memdup(a, x->point.cut, n * sizeof(uint16_t));
        x->point.kinds        = weft_arena_memdup(a, x->point.kinds, n);
        weft_estimate_interval(&z->p->model.shape.engine, x->score.step_s, z->all->known,
                               0, &x->lo, &x->hi);
        if (i) weft_search__why(&r->choice[0], x, z->all, &t);
        x->why = weft_arena_strdup(a, t.s ? t.s : "");
        weft_text_fini(&t);
    }
    r->bound_s = fmin(z->relaxed_s, r->choice[0].score.step_s);
    r->gap     = r->choice[0].score.step_s / r->bound_s - 1;
    for (int i = 0; i < z->all->n; i++)
        r->n_device += weft_search_usable(&z->all->kind[i], 1);
    if (weft_arena_status(a) != WEFT_OK) goto failed;
    *out = r;
    return WEFT_OK;
failed:
    weft_arena_destroy(a);
    return WEFT_FAIL(WEFT_ERR_MEM, "no memory for the answer");
}

/* What is likely good of the likely groups comes first: the sooner good plans are known, the more
 * is left out. */
static void sow(weft_search__work *z, const weft_search_problem *q)
{
    const weft_search_limits *l = &q->model.limits;
    weft_search_problem       x = *q;
    if (x.constraints.micro_batch < 0) x.constraints.micro_batch = z->s.micro.x[0];
    if (weft_search_given(&x.constraints, WEFT_KEY_sp) < 0 && l->sp)
        weft_search_fix(&x.constraints, WEFT_KEY_sp, 1);
    for (int zero = 0; zero < 3 && weft_search_given(&q->constraints, WEFT_KEY_zero) < 0;
         zero++)
        if (l->zero & l->zero_pp & 1u << zero)
            weft_search_fix(&x.constraints, WEFT_KEY_zero, zero);
    z->p       = &x;
    z->seeding = weft_search_given(&q->constraints, WEFT_KEY_zero) < 0;
    for (int i = 0; i < z->n_group && i < SEEDS; i++)
        if (!weft_search__hopeless(z, z->group[i].bound_s)) look_at(z, &z->group[i]);
    z->p       = q;
    z->seeding = false;
}

/* Searches on some of the kinds, as bits; the others stay idle. */
static weft_status search_on(weft_search__work *z, const weft_search_problem *p,
                             unsigned kinds)
{
    weft_search_machines m  = {.known = z->all->known};
    weft_search_problem  q  = *p;
    weft_arena          *a  = NULL;
    weft_status          st = WEFT_OK;
    for (int i = 0; i < z->all->n; i++)
        if (kinds >> i & 1) {
            z->map[m.n]   = i;
            m.kind[m.n++] = z->all->kind[i];
        }
    q.machines = &m;
    z->p       = &q;
    z->n_group = 0;
    WEFT_GO(weft_arena_create(&a));
    WEFT_GO(weft_search__space_init(&q, a, &z->s));
    if (!weft_search__has_split(&q.constraints)) WEFT_GO(list_groups(z));
    if (z->n_group) qsort(z->group, (size_t)z->n_group, sizeof *z->group, by_promise);
    if (!q.exhaustive && !z->probing) sow(z, &q);
    for (int pass = 0; pass < (weft_search__ways(&z->s) > 2 ? 2 : 1); pass++) {
        z->unlike = pass; /* layers of two cuts last, when good plans are known */
        for (int i = 0; i < z->n_group && !(z->probing && z->n_best); i++)
            if (!weft_search__hopeless(z, z->group[i].bound_s)) look_at(z, &z->group[i]);
    }
    z->unlike = false;
    if (!(z->probing && z->n_best)) weft_search__deals(z);
out:
    z->p = p;
    weft_arena_destroy(a);
    return st;
}

/* Single kinds first, which is quick and gives bounds; then two together, ...; of many kinds only
 * one or all. */
static weft_status search_all(weft_search__work *z)
{
    const weft_search_problem *p  = z->p;
    int                        n  = z->all->n;
    weft_status                st = WEFT_OK;
    for (int size = 1; size <= n; size++)
        for (unsigned k = 1; k < 1u << n; k++) {
            int bits = 0;
            for (int i = 0; i < n; i++) bits += (k >> i & 1) != 0;
            if (bits != size || (n > 4 && size > 1 && size < n)) continue;
            st = search_on(z, p, k);
            /* a constraint that fewer devices cannot keep is no mistake */
            if (st != WEFT_OK && (st != WEFT_ERR_ARG || size == n)) return st;
        }
    return st;
}

static weft_status run(weft_search__work *z, weft_arena *a, weft_search_result **out)
{
    z->best  = WEFT_ARENA_ARRAY(a, weft_search__best *, z->max_best + 1);
    z->close = WEFT_ARENA_NEW(a, weft_search__best);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < z->max_best; i++)
        z->best[i] = WEFT_ARENA_NEW(a, weft_search__best);
    WEFT_TRY(weft_arena_status(a));
    WEFT_TRY(search_all(z));
    if (z->probing)
        return z->n_best ? WEFT_OK : WEFT_FAIL(WEFT_ERR_NOFIT, "nothing fits");
    if (!z->n_best && weft_search__has_split(&z->p->constraints) && !z->have_close)
        return weft_search__refuse_shares(z->p);
    if (!z->any_group && !weft_search__has_split(&z->p->constraints))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "no way to lay tp x cp x dp x pp out over the devices: the constraints "
            "ask for more than there are");
    if (!z->n_best && z->have_close) return weft_search__nofit(z->p, &z->close->x);
    if (!z->n_best && z->p->constraints.n_on)
        return weft_search__refuse_on(&z->p->constraints);
    if (!z->n_best)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "no plan: no micro-batch, chunks and stages go with these constraints "
            "and a batch of %d",
            z->p->batch);
    return conclude(z, out);
}

static weft_status start(const weft_search_problem *p, bool probing,
                         weft_search_result **out)
{
    weft_arena        *a  = NULL;
    weft_search__work *z  = calloc(1, sizeof *z);
    weft_status        st = WEFT_OK;
    if (!z) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to search in");
    z->p         = p;
    z->all       = p->machines;
    z->max_best  = p->n_best > 0 ? p->n_best : 5;
    z->limit_s   = INFINITY;
    z->relaxed_s = INFINITY;
    z->probing   = probing;
    WEFT_GO(weft_arena_create(&a));
    WEFT_GO(run(z, a, out));
out:
    free(z->group);
    free(z);
    weft_arena_destroy(a);
    return st;
}

weft_status weft_search_run(const weft_search_problem *p, weft_search_result **out)
{
    return start(p, false, out);
}

bool weft_search__any(const weft_search_problem *p)
{
    return start(p, true, NULL) == WEFT_OK;
}

void weft_search_destroy(weft_search_result *r)
{
    if (r) weft_arena_destroy(r->arena);
}
