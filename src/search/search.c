/* The search itself.  Groups (tp, cp, pp, dp and the order of device kinds) are looked at in the order of promise; a
 * group, and in it each variant, is left out when its lower bound is not below the last of the best so far. */
#include "search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search/search_priv.h"

enum {
    MAX_TYPE = 256,
    SEEDS    = 512 /* groups that are looked at in part first */
};

typedef struct group {
    int32_t tp, cp, pp, dp, order; /* tp, cp: places in their lists */
    double  bound_s;               /* no plan of it is faster */
    double  promise_s;
} group;

typedef struct best {
    weft_search_choice x;
    uint16_t           cut[MAX_STAGE];
    uint8_t            kinds[MAX_STAGE];
} best;

typedef struct search {
    const weft_search_problem  *p;   /* on the kinds of devices at hand */
    const weft_search_machines *all; /* kinds there are */
    int                         map[WEFT_COST_MAX_DEVICE]; /* ours among them */
    weft_search__space          s;
    int                         n_group, cap_group;
    group                      *group;
    int                         n_best, max_best;
    best                      **best;  /* fastest first */
    best                       *close; /* of those that do not fit, the closest */
    bool                        have_close, any_group;
    double                      limit_s; /* what a newcomer has to be below */
    double                      relaxed_s;
    bool                        probing; /* only whether anything fits is asked */
    int64_t                     n_scored;
    /* of the group at hand */
    uint8_t  kinds[MAX_STAGE];
    uint16_t cut[MAX_STAGE], spare[MAX_STAGE];
    int      n_type; /* kinds of stages, and how many of each there are */
    struct {
        uint8_t kinds;
        int     count;
    } type[MAX_TYPE];
    int    ep, sp, micro; /* of the variant at hand */
    double sum_s;         /* of it: all layers of a micro-batch, at least */
    double param_s;       /* of it with zero at hand: all about parameters, at least */
    double least_full; /* memory over its limit, the least of the points asked for last */
    bool   by_time;    /* cut[] is of the variant at hand, and better than an even one */
} search;

/* ---- groups ---- */

/* Units a second that S devices of these kinds do at best. */
static double speed_of(const search *z, int S, unsigned kinds)
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

/* Layers that chunks divide: those of a stage, where all are equal or the ends hold one less beside the input side and
 * the head; 0: stages are not interleaved. */
static int chunked(const search *z, int pp)
{
    int L = z->s.n_layer, most = (L + pp - 1) / pp, less = most * pp - L;
    if (!z->p->model.limits.chunks || pp < 2) return 0;
    if (z->p->model.limits.layout) return most;
    return less == 0 || (less <= 2 && z->p->model.limits.cuts != WEFT_CUT_EQUAL) ? most
                                                                                 : 0;
}

/* By how much interleaving or splitting the backward pass can shorten idle time. */
static double finest(const search *z, int pp)
{
    const weft_search_limits *l    = &z->p->model.limits;
    double                    most = l->schedules >> WEFT_COST_ZERO_BUBBLE & 1 ? 3 : 1;
    return fmax(most, fmin(chunked(z, pp), z->s.t.engine.max_chunks));
}

/* What a plan has to be below. */
static double beat(const search *z)
{
    return z->p->exhaustive || z->n_best < z->max_best ? INFINITY : z->limit_s;
}

static bool hopeless(const search *z, double bound_s)
{
    return bound_s >= beat(z);
}

/* speed: of all its stages together. */
static weft_status add_group(search *z, int tp, int cp, int pp, int dp, int order,
                             double speed)
{
    const weft_cost_engine *e     = &z->s.t.engine;
    double                  share = (double)z->p->batch / dp;
    if (z->n_group == z->cap_group) {
        int    cap = z->cap_group ? 2 * z->cap_group : 4096;
        group *g   = realloc(z->group, sizeof *g * (size_t)cap);
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
    double idle = e->bubble * fmax(0, all - dp / speed) / finest(z, pp);
    group  g    = {tp, cp, pp, dp, order, bound + idle + fixed(e, ceil(share / last)), 0};
    g.promise_s = g.bound_s * (1 +
                               0.04 * log2(z->s.tp.x[tp]) *
                                   (1 + (z->s.tp.x[tp] > z->s.fabric[0].domain)) +
                               0.05 * log2(z->s.cp.x[cp])) +
                  bound * (pp - 1) / share;
    z->any_group = true;
    if (!hopeless(z, g.bound_s)) z->group[z->n_group++] = g;
    return WEFT_OK;
}

/* All pipelines of stages of S devices with their kinds in one order. */
static weft_status list_depths(search *z, int tp, int cp, int dp, int order)
{
    const weft_search__space *s = &z->s;
    int                       S = s->tp.x[tp] * s->cp.x[cp] * dp, pin = z->p->pins.pp;
    int                       most  = s->n_layer < MAX_STAGE ? s->n_layer : MAX_STAGE;
    double                    speed = 0;
    if (!z->p->model.limits.pp) most = 1;
    int have = weft_search__stages(s, &s->order[order], s->tp.x[tp], S, most, z->kinds);
    if (have < most) most = have;
    for (int pp = 1; pp <= most; pp++) {
        speed += speed_of(z, S, z->kinds[pp - 1]);
        if (z->p->pins.world > 0 && z->p->pins.world != S * pp) continue;
        if (pin >= 0 && pin != pp) continue;
        if (z->p->model.limits.cuts == WEFT_CUT_EQUAL && s->n_layer % pp) continue;
        WEFT_TRY(add_group(z, tp, cp, pp, dp, order, speed));
    }
    return WEFT_OK;
}

static weft_status list_groups(search *z)
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
    const group *x = a, *y = b;
    if (x->promise_s != y->promise_s) return x->promise_s < y->promise_s ? -1 : 1;
    if (x->tp != y->tp) return x->tp - y->tp;
    if (x->cp != y->cp) return x->cp - y->cp;
    if (x->pp != y->pp) return x->pp - y->pp;
    if (x->dp != y->dp) return x->dp - y->dp;
    return x->order - y->order;
}

/* ---- the best so far ---- */

static bool same_key(const weft_search_choice *a, const weft_search_choice *b)
{
    return a->variant.tp == b->variant.tp && a->variant.cp == b->variant.cp &&
           a->variant.ep == b->variant.ep && a->point.pp == b->point.pp;
}

static bool before(const weft_cost_score *a, const weft_cost_score *b)
{
    if (a->step_s != b->step_s) return a->step_s < b->step_s;
    return a->mem_bytes < b->mem_bytes;
}

static void keep(search *z, best *b, const weft_cost_point *p, const weft_cost_score *s)
{
    int n        = z->s.n_layer;
    b->x         = (weft_search_choice){.point = *p, .score = *s, .why = ""};
    b->x.variant = z->s.variant[p->variant];
    for (int i = 0; i < p->pp; i++) {
        b->cut[i]   = p->cut ? p->cut[i] : (uint16_t)weft_cost_even_cut(n, p->pp, i);
        b->kinds[i] = 0;
        for (int d = 0; d < z->s.t.n_device; d++)
            if (p->kinds ? p->kinds[i] >> d & 1 : d == 0)
                b->kinds[i] = (uint8_t)(b->kinds[i] | 1 << z->map[d]);
    }
    b->x.point.cut   = b->cut;
    b->x.point.kinds = b->kinds;
}

static void insert(search *z, const weft_cost_point *p, const weft_cost_score *s)
{
    weft_search_choice x  = {.variant = z->s.variant[p->variant], .point = *p};
    int                at = z->n_best;
    best              *b;
    for (int i = 0; i < z->n_best; i++)
        if (same_key(&z->best[i]->x, &x)) at = i;
    if (at < z->n_best && !before(s, &z->best[at]->x.score)) return;
    if (at == z->n_best && z->n_best < z->max_best) z->n_best++;
    if (at >= z->max_best) at = z->max_best - 1;
    b = z->best[at];
    keep(z, b, p, s);
    for (; at > 0 && before(s, &z->best[at - 1]->x.score); at--)
        z->best[at] = z->best[at - 1];
    z->best[at] = b;
    if (z->n_best == z->max_best) z->limit_s = z->best[z->n_best - 1]->x.score.step_s;
}

static void consider(search *z, const weft_cost_point *p, const weft_cost_score *s)
{
    if (s->mem_bytes <= s->mem_limit) {
        if (s->step_s < z->limit_s || z->n_best < z->max_best) insert(z, p, s);
        return;
    }
    if (z->n_best ||
        (z->have_close && s->mem_bytes / s->mem_limit >=
                              z->close->x.score.mem_bytes / z->close->x.score.mem_limit))
        return;
    z->have_close = true;
    keep(z, z->close, p, s);
}

/* ---- one variant of a group ---- */

/* The slowest stage when layers could be cut at any point. */
static double least_stage(const search *z, const group *g, int v)
{
    const weft_search__space *s   = &z->s;
    double                    sum = 0;
    if (s->t.n_device == 1) return s->whole_s[v] / g->pp;
    for (int i = 0; i < z->n_type; i++) {
        double worst = 0;
        for (int d = 0; d < s->t.n_device; d++)
            if (z->type[i].kinds >> d & 1)
                worst = fmax(worst, s->whole_s[d * s->t.n_variant + v]);
        sum += z->type[i].count / worst;
    }
    return 1 / sum;
}

/* What the point would take if its slowest stage were no slower than need be. */
static double relax(const weft_cost_engine *e, const weft_cost_point *p,
                    const weft_cost_score *s, double least_s)
{
    double slow = (s->compute_s + s->comm_s + s->host_s + s->again_s) / p->n_micro;
    double idle = e->bubble / p->chunks / (p->schedule == WEFT_COST_ZERO_BUBBLE ? 3 : 1);
    double won  = (p->n_micro - idle) * (slow - least_s);
    return p->pp > 1 && won > 0 ? s->step_s - won : s->step_s;
}

static bool even_allowed(const search *z, int pp)
{
    return z->p->model.limits.cuts == WEFT_CUT_ANY || z->s.n_layer % pp == 0;
}

/* Chunks and equal stages are cut one way only; layers that run again do so under any cut. */
static void relaxed(search *z, const weft_cost_point *p, const weft_cost_score *s,
                    double least_s)
{
    bool one_way = p->chunks > 1 || z->p->model.limits.cuts == WEFT_CUT_EQUAL;
    if (p->n_again > 0) least_s += s->again_s / p->n_micro;
    double x     = one_way ? s->step_s : relax(&z->s.t.engine, p, s, least_s);
    z->relaxed_s = fmin(z->relaxed_s, x);
}

static bool ask(search *z, weft_cost_point *p, const uint16_t *cut, double least_s,
                weft_cost_score *s)
{
    p->cut = cut;
    weft_cost_score_point(&z->s.t, p, s);
    z->n_scored++;
    consider(z, p, s);
    z->least_full = fmin(z->least_full, s->mem_bytes / s->mem_limit);
    if (s->mem_bytes > s->mem_limit) return false;
    relaxed(z, p, s, least_s);
    return true;
}

static int longest(const search *z, const weft_cost_point *p)
{
    int most = (z->s.n_layer + p->pp - 1) / p->pp;
    for (int i = 0; p->cut && i < p->pp; i++)
        if (p->cut[i] > most) most = p->cut[i];
    return most;
}

/* Of each stage so many layers run again. */
static bool ask_again(search *z, const weft_cost_point *p, int n_again, double least_s,
                      weft_cost_score *s)
{
    const weft_cost_variant *v = &z->s.variant[p->variant];
    weft_cost_point          q = *p;
    for (int i = 0; i < z->s.tp.n; i++)
        for (int k = 0; k < z->s.cp.n; k++)
            if (z->s.tp.x[i] == v->tp && z->s.cp.x[k] == v->cp)
                q.variant = weft_search__variant(&z->s, i, k, z->ep, z->sp, z->micro,
                                                 WEFT_RECOMPUTE_FULL);
    q.rest    = p->variant;
    q.n_again = n_again;
    return ask(z, &q, p->cut, least_s, s);
}

/* The point does not fit: as few layers as it takes run again, not all. */
static void some_again(search *z, const weft_cost_point *p, const weft_cost_score *s,
                       double least_s)
{
    weft_cost_score x;
    int             low = 0, high = longest(z, p) / p->chunks;
    if (!z->p->model.limits.partial || z->p->pins.recompute >= 0 ||
        z->s.variant[p->variant].recompute != WEFT_RECOMPUTE_NONE ||
        s->mem_bytes > 8 * s->mem_limit ||
        hopeless(z, relax(&z->s.t.engine, p, s, least_s)))
        return;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        if (ask_again(z, p, mid * p->chunks, least_s, &x))
            high = mid;
        else
            low = mid;
    }
}

/* What share of the fullest stage's parameters, cut evenly, another cut could take off it. */
static double uneven(const search *z, const weft_cost_point *p)
{
    const weft_cost_table *t   = &z->s.t;
    const weft_cost_row   *r   = t->row + (int64_t)p->variant * t->n_class;
    double                 sum = 0, ends = 0, most = 0;
    for (int i = 0; i < t->n_segment; i++) {
        const weft_cost_row *x = &r[t->segment[i].layer_class];
        sum += t->segment[i].count * (x->n_param + x->n_expert_param);
    }
    if (t->first >= 0) ends += r[t->first].n_param, most = r[t->first].n_param;
    if (t->last >= 0) ends += r[t->last].n_param, most = fmax(most, r[t->last].n_param);
    most += sum / p->pp * (1 + (double)p->pp / z->s.n_layer);
    return 1 - (sum + ends) / p->pp / most;
}

/* The number is pinned: evenly cut, or as bounds say. */
static void ask_pinned_again(search *z, weft_cost_point *p, double least_s)
{
    weft_cost_score s;
    int             n = z->p->pins.recompute_layers;
    if (z->s.variant[p->variant].recompute != WEFT_RECOMPUTE_NONE || n % p->chunks)
        return;
    p->cut = z->p->pins.cut                 ? z->p->pins.cut
             : z->by_time && p->chunks == 1 ? z->cut
                                            : NULL;
    if (n < longest(z, p)) ask_again(z, p, n, least_s, &s);
}

static void score_point(search *z, weft_cost_point *p, double least_s)
{
    const weft_cost_engine *e   = &z->s.t.engine;
    const uint16_t         *pin = z->p->pins.cut;
    weft_cost_score         s;
    if (e->max_micro > 0 && p->zero == 0 && p->pp > 1 && p->dp > 1 &&
        p->n_micro > e->max_micro)
        return; /* the engine does not get through */
    if (z->p->pins.recompute_layers > 0) {
        ask_pinned_again(z, p, least_s);
        return;
    }
    if (pin || p->pp < 2 || p->chunks > 1) {
        if (!ask(z, p, pin, least_s, &s)) some_again(z, p, &s, least_s);
        return;
    }
    bool even = even_allowed(z, p->pp), fit = false;
    if (z->by_time) fit = ask(z, p, z->cut, least_s, &s);
    if (z->by_time && !fit) some_again(z, p, &s, least_s);
    if (!fit && even && (!z->by_time || z->s.t.n_device == 1)) {
        fit = ask(z, p, NULL, least_s, &s);
        if (!fit) some_again(z, p, &s, least_s);
    }
    if (z->p->model.limits.cuts != WEFT_CUT_ANY) return;
    if (z->s.t.n_segment > 1 &&
        s.mem_bytes > (p->pp <= WEFT_SEARCH__FEW ? 2 : 1.3) * s.mem_limit)
        return;
    /* Too full, or layers of several kinds: cut as the score says.  Of few stages also where another cut may win more
     * with gradients and the update than it loses with the slowest stage. */
    double hope = relax(e, p, &s, least_s);
    if (p->pp <= WEFT_SEARCH__FEW) hope -= (s.dp_s + s.optimizer_s) * uneven(z, p);
    if (fit && z->s.t.n_segment == 1 && p->pp > WEFT_SEARCH__FEW) return;
    if (hopeless(z, hope)) return;
    if (!weft_search__cut(&z->s.t, p, z->s.n_layer, z->sum_s, beat(z) - z->param_s,
                          z->spare, &s, &z->n_scored))
        return;
    p->cut = z->spare;
    consider(z, p, &s);
    if (s.mem_bytes <= s.mem_limit) relaxed(z, p, &s, least_s);
}

static void schedules(search *z, weft_cost_point *p, double least_s)
{
    unsigned can = z->p->model.limits.schedules;
    int      pin = z->p->pins.schedule;
    for (int k = 0; k < 3; k++) {
        if (!(can >> k & 1) || (pin >= 0 && k != pin)) continue;
        /* GPipe is 1F1B with more memory; of a single stage all are the same */
        if (pin < 0 && (k == WEFT_COST_GPIPE || (p->pp == 1 && k))) continue;
        if (k && p->chunks > 1) continue;
        p->schedule    = (weft_cost_schedule)k;
        double floor_s = weft_cost_floor(&z->s.t, p, least_s, z->sum_s);
        if (hopeless(z, floor_s)) continue;
        if (z->param_s < 0) z->param_s = weft_cost_floor_param(&z->s.t, p);
        if (!hopeless(z, floor_s + z->param_s)) score_point(z, p, least_s);
    }
}

static void chunks(search *z, weft_cost_point *p, double least_s)
{
    int pin = z->p->pins.chunks, most = (int)z->s.t.engine.max_chunks;
    int mine = chunked(z, p->pp);
    if (pin <= 1) {
        p->chunks = 1;
        schedules(z, p, least_s);
    }
    if (p->n_micro % p->pp) return;
    for (int c = 2; c <= mine && c <= most; c++) {
        if (mine % c && !z->p->model.limits.layout) continue;
        if (c == mine && z->s.n_layer % p->pp && z->p->model.limits.cuts == WEFT_CUT_ANY)
            continue; /* a chunk would hold no layer */
        if (pin > 0 && c != pin) continue;
        p->chunks = c;
        schedules(z, p, least_s);
    }
    p->chunks = 1;
}

static void zeros(search *z, weft_cost_point *p, double least_s)
{
    const weft_cost_variant *v = &z->s.variant[p->variant];
    unsigned can = p->pp > 1 ? z->p->model.limits.zero_pp : z->p->model.limits.zero;
    int      pin = z->p->pins.zero;
    for (int zero = 3; zero >= 0; zero--) {
        if (!(can >> zero & 1) || (pin >= 0 && zero != pin)) continue;
        if (pin < 0 && zero && p->dp * v->cp < 2) continue;
        p->zero       = zero;
        z->param_s    = -1;
        z->least_full = INFINITY;
        chunks(z, p, least_s);
        /* Less sharding takes more memory, but for zero 3, which holds a layer's weights twice. */
        if (isfinite(z->least_full) && z->least_full > 2) return;
    }
}

/* ---- one group ---- */

/* A lower bound for m micro-batches whose slowest stage takes T and all stages together sum_s. */
static double bound(const search *z, const group *g, double m, double T, double sum_s)
{
    const weft_cost_engine *e = &z->s.t.engine;
    return m * T + e->bubble * fmax(0, sum_s - T) / finest(z, g->pp) + fixed(e, m);
}

/* The slowest stage at best; leaves in z->cut how. */
static double cut_by_time(search *z, const group *g, const weft_cost_point *p)
{
    const weft_search__space *s = &z->s;
    double                    even_s, least = least_stage(z, g, p->variant);
    z->by_time = false;
    if (g->pp < 2 || z->p->pins.cut || z->p->model.limits.cuts == WEFT_CUT_EQUAL)
        return least;
    double T = weft_search__fast_cut(&s->t, p, s->n_layer, z->p->model.limits.cuts,
                                     &even_s, NULL);
    if (!(T > 0) || !isfinite(T)) return least;
    if (hopeless(z, p->n_micro * T + fixed(&s->t.engine, p->n_micro))) return T;
    z->by_time = T < even_s * (1 - 1e-9) || !even_allowed(z, g->pp);
    if (z->by_time)
        weft_search__fast_cut(&s->t, p, s->n_layer, z->p->model.limits.cuts, &even_s,
                              z->cut);
    return T;
}

static void variant(search *z, const group *g, int ep, int sp, int micro)
{
    weft_search__space *s     = &z->s;
    int                 share = z->p->batch / g->dp, mb = s->micro.x[micro];
    int                 m = share / mb, pin = z->p->pins.recompute;
    bool                one = s->t.n_device == 1;
    z->ep                   = ep;
    z->sp                   = sp;
    z->micro                = micro;
    /* before rows are filled: the work alone, with this micro-batch's idle time */
    double all = s->ideal_s[0] * mb / (s->tp.x[g->tp] * s->cp.x[g->cp]);
    if (one && hopeless(z, bound(z, g, m, all / g->pp, all))) return;
    for (int again = 0; again < 3; again++) {
        if (!(z->p->model.limits.recompute >> again & 1)) continue;
        if (pin >= 0 && again != pin && z->p->pins.recompute_layers < 1) continue;
        int             v = weft_search__variant(s, g->tp, g->cp, ep, sp, micro, again);
        weft_cost_point p = {.variant = v,
                             .dp      = g->dp,
                             .pp      = g->pp,
                             .chunks  = 1,
                             .n_micro = m,
                             .kinds   = one ? NULL : z->kinds};
        double          least = least_stage(z, g, v);
        z->sum_s              = s->whole_s[v];
        for (int d = 1; d < s->t.n_device; d++)
            z->sum_s = fmin(z->sum_s, s->whole_s[d * s->t.n_variant + v]);
        if (hopeless(z, bound(z, g, m, least, z->sum_s))) continue;
        least = cut_by_time(z, g, &p);
        if (hopeless(z, bound(z, g, m, least, z->sum_s))) continue;
        zeros(z, &p, least);
    }
}

static bool may_split(const search *z, const group *g, int ep, int sp)
{
    const weft_search__space *s   = &z->s;
    int                       pin = z->p->pins.sp;
    weft_cost_variant         v   = {.tp          = s->tp.x[g->tp],
                                     .cp          = s->cp.x[g->cp],
                                     .ep          = s->ep.x[ep],
                                     .sp          = sp != 0,
                                     .micro_batch = 1};
    if (pin >= 0 && sp != pin && !(pin == 1 && v.tp == 1)) return false;
    if (sp && (v.tp < 2 || !z->p->model.limits.sp)) return false;
    if (((int64_t)g->dp * v.cp * v.tp) % v.ep) return false;
    return z->p->model.allows(z->p->model.arg, &v, NULL, 0);
}

static void count_types(search *z, int pp)
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

static void look_at(search *z, const group *g)
{
    weft_search__space *s     = &z->s;
    int                 S     = s->tp.x[g->tp] * s->cp.x[g->cp] * g->dp;
    int                 share = z->p->batch / g->dp, pin = z->p->pins.micro_batch;
    if (s->t.n_device > 1) {
        weft_search__stages(s, &s->order[g->order], s->tp.x[g->tp], S, g->pp, z->kinds);
        count_types(z, g->pp);
    }
    for (int ep = 0; ep < s->ep.n; ep++)
        for (int sp = 0; sp < 2; sp++) {
            if (!may_split(z, g, ep, sp)) continue;
            for (int i = 0; i < s->micro.n; i++)
                if (share % s->micro.x[i] == 0 && (pin < 0 || s->micro.x[i] == pin))
                    variant(z, g, ep, sp, i);
        }
}

/* ---- the answer ---- */

static weft_status conclude(search *z, weft_search_result **out)
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

/* What is likely good of the likely groups comes first: the sooner good plans are known, the more is left out. */
static void sow(search *z, const weft_search_problem *q)
{
    const weft_search_limits *l = &q->model.limits;
    weft_search_problem       x = *q;
    if (x.pins.micro_batch < 0) x.pins.micro_batch = z->s.micro.x[0];
    if (x.pins.sp < 0 && l->sp) x.pins.sp = 1;
    for (int zero = 0; zero < 3 && q->pins.zero < 0; zero++)
        if (l->zero & l->zero_pp & 1u << zero) x.pins.zero = zero;
    z->p = &x;
    for (int i = 0; i < z->n_group && i < SEEDS; i++)
        if (!hopeless(z, z->group[i].bound_s)) look_at(z, &z->group[i]);
    z->p = q;
}

/* Searches on some of the kinds, as bits; the others stay idle. */
static weft_status search_on(search *z, const weft_search_problem *p, unsigned kinds)
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
    WEFT_GO(list_groups(z));
    if (z->n_group) qsort(z->group, (size_t)z->n_group, sizeof *z->group, by_promise);
    if (!q.exhaustive && !z->probing) sow(z, &q);
    for (int i = 0; i < z->n_group && !(z->probing && z->n_best); i++)
        if (!hopeless(z, z->group[i].bound_s)) look_at(z, &z->group[i]);
out:
    z->p = p;
    weft_arena_destroy(a);
    return st;
}

/* Single kinds first, which is quick and gives bounds; then two together, ...; of many kinds only one or all. */
static weft_status search_all(search *z)
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
            /* a pin that fewer devices cannot keep is no mistake */
            if (st != WEFT_OK && (st != WEFT_ERR_ARG || size == n)) return st;
        }
    return st;
}

static weft_status run(search *z, weft_arena *a, weft_search_result **out)
{
    z->best  = WEFT_ARENA_ARRAY(a, best *, z->max_best + 1);
    z->close = WEFT_ARENA_NEW(a, best);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < z->max_best; i++) z->best[i] = WEFT_ARENA_NEW(a, best);
    WEFT_TRY(weft_arena_status(a));
    WEFT_TRY(search_all(z));
    if (z->probing)
        return z->n_best ? WEFT_OK : WEFT_FAIL(WEFT_ERR_NOFIT, "nothing fits");
    if (!z->any_group)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "no way to lay tp x cp x dp x pp out over the devices: the pins "
                         "ask for more than there are");
    if (!z->n_best && z->have_close) return weft_search__nofit(z->p, &z->close->x);
    if (!z->n_best)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "no plan: no micro-batch, chunks and stages go with these pins "
                         "and a batch of %d",
                         z->p->batch);
    return conclude(z, out);
}

static weft_status start(const weft_search_problem *p, bool probing,
                         weft_search_result **out)
{
    weft_arena *a  = NULL;
    search     *z  = calloc(1, sizeof *z);
    weft_status st = WEFT_OK;
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
