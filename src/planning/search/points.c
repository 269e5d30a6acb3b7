/* Points: of one way to cut a layer on so many stages and replicas all that is left to choose
 * (stages of zero, chunks, schedules, cuts, layers that run again), and the best plans so far. */
#include <math.h>

#include "search/search_priv.h"

/* What a plan has to be below. */
static double beat(const weft_search__work *z)
{
    return z->p->exhaustive || z->n_best < z->max_best ? INFINITY : z->limit_s;
}

bool weft_search__hopeless(const weft_search__work *z, double bound_s)
{
    return bound_s >= beat(z);
}

/* Layers that chunks divide: those of a stage, where all are equal or the ends hold one less
 * beside the input side and the head; 0: stages are not interleaved. */
static int chunked(const weft_search__work *z, int pp)
{
    int L = z->s.n_layer, most = (L + pp - 1) / pp, less = most * pp - L;
    if (!z->p->model.limits.chunks || pp < 2) return 0;
    if (z->p->model.limits.layout) return most;
    return less == 0 || (less <= 2 && z->p->model.limits.cuts != WEFT_CUT_EQUAL) ? most
                                                                                 : 0;
}

/* By how much interleaving or splitting the backward pass can shorten idle time. */
double weft_search__finest(const weft_search__work *z, int pp)
{
    const weft_search_limits *l    = &z->p->model.limits;
    double                    most = l->schedules >> WEFT_COST_ZERO_BUBBLE & 1 ? 3 : 1;
    return fmax(most, fmin(chunked(z, pp), z->s.t.engine.max_chunks));
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

static void keep(weft_search__work *z, weft_search__best *b, const weft_cost_point *p,
                 const weft_cost_score *s)
{
    int n         = z->s.n_layer;
    b->x          = (weft_search_choice){.point = *p, .score = *s, .why = ""};
    b->x.variant  = z->s.variant[p->variant];
    b->x.strategy = weft_search__strategy_of(&b->x.variant, p,
                                             &z->p->model.whole[b->x.variant.whole]);
    for (int i = 0; i < p->pp; i++) {
        b->cut[i]   = p->cut ? p->cut[i] : (uint16_t)weft_cost_even_cut(n, p->pp, i);
        b->kinds[i] = 0;
        for (int d = 0; d < z->s.t.n_device; d++)
            if (p->kinds ? p->kinds[i] >> d & 1 : d == 0)
                b->kinds[i] = (uint8_t)(b->kinds[i] | 1 << z->map[d]);
    }
    for (int k = 0; k < p->deal.n; k++) b->x.point.deal.kind[k] = z->map[p->deal.kind[k]];
    b->x.point.cut   = b->cut;
    b->x.point.kinds = b->kinds;
}

static void insert(weft_search__work *z, const weft_cost_point *p,
                   const weft_cost_score *s)
{
    weft_search_choice x  = {.variant = z->s.variant[p->variant], .point = *p};
    int                at = z->n_best;
    weft_search__best *b;
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

void weft_search__consider(weft_search__work *z, const weft_cost_point *p,
                           const weft_cost_score *s)
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

/* What the point would take if its slowest stage were no slower than need be. */
static double relax(const weft_cost_engine *e, const weft_cost_point *p,
                    const weft_cost_score *s, double least_s)
{
    double slow = (s->compute_s + s->comm_s + s->host_s + s->again_s) / p->n_micro;
    double idle = e->bubble / p->chunks / (p->schedule == WEFT_COST_ZERO_BUBBLE ? 3 : 1);
    double won  = (p->n_micro - idle) * (slow - least_s);
    return p->pp > 1 && won > 0 ? s->step_s - won : s->step_s;
}

bool weft_search__even_allowed(const weft_search__work *z, int pp)
{
    return z->p->model.limits.cuts == WEFT_CUT_ANY || z->s.n_layer % pp == 0;
}

/* Chunks and equal stages are cut one way only; layers that run again do so under any cut. */
static void relaxed(weft_search__work *z, const weft_cost_point *p,
                    const weft_cost_score *s, double least_s)
{
    bool one_way = p->chunks > 1 || z->p->model.limits.cuts == WEFT_CUT_EQUAL;
    if (p->n_again > 0) least_s += s->again_s / p->n_micro;
    double x     = one_way ? s->step_s : relax(&z->s.t.engine, p, s, least_s);
    z->relaxed_s = fmin(z->relaxed_s, x);
}

static bool ask(weft_search__work *z, weft_cost_point *p, const uint16_t *cut,
                double least_s, weft_cost_score *s)
{
    p->cut = cut;
    weft_cost_score_point(&z->s.t, p, s);
    z->n_scored++;
    weft_search__consider(z, p, s);
    z->least_full = fmin(z->least_full, s->mem_bytes / s->mem_limit);
    z->fullest    = fmin(z->fullest, s->mem_bytes / s->mem_limit);
    if (s->mem_bytes > s->mem_limit) return false;
    relaxed(z, p, s, least_s);
    return true;
}

static int longest(const weft_search__work *z, const weft_cost_point *p)
{
    int most = (z->s.n_layer + p->pp - 1) / p->pp;
    for (int i = 0; p->cut && i < p->pp; i++)
        if (p->cut[i] > most) most = p->cut[i];
    return most;
}

/* Of each stage so many layers run again. */
static bool ask_again(weft_search__work *z, const weft_cost_point *p, int n_again,
                      double least_s, weft_cost_score *s)
{
    const weft_cost_variant *v = &z->s.variant[p->variant];
    weft_cost_point          q = *p;
    for (int i = 0; i < z->s.tp.n; i++)
        for (int k = 0; k < z->s.cp.n; k++)
            if (z->s.tp.x[i] == v->tp && z->s.cp.x[k] == v->cp)
                q.variant = weft_search__variant(&z->s, i, k, z->ep, z->way, z->micro,
                                                 WEFT_RECOMPUTE_FULL);
    weft_search__ready(&z->s, q.variant);
    q.rest    = p->variant;
    q.n_again = n_again;
    return ask(z, &q, p->cut, least_s, s);
}

/* The point does not fit: as few layers as it takes run again, not all. */
static void some_again(weft_search__work *z, const weft_cost_point *p,
                       const weft_cost_score *s, double least_s)
{
    weft_cost_score x;
    int             low = 0, high = longest(z, p) / p->chunks;
    if (!z->p->model.limits.partial ||
        weft_search_given(&z->p->constraints, WEFT_KEY_recompute) >= 0 ||
        z->s.variant[p->variant].recompute != WEFT_RECOMPUTE_NONE ||
        s->mem_bytes > 8 * s->mem_limit ||
        weft_search__hopeless(z, relax(&z->s.t.engine, p, s, least_s)))
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
static double uneven(const weft_search__work *z, const weft_cost_point *p)
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

/* The number is constrained: evenly cut, or as bounds say. */
static void ask_pinned_again(weft_search__work *z, weft_cost_point *p, double least_s)
{
    weft_cost_score s;
    int             n = z->p->constraints.recompute_layers;
    if (z->s.variant[p->variant].recompute != WEFT_RECOMPUTE_NONE || n % p->chunks)
        return;
    p->cut = z->p->constraints.cut          ? z->p->constraints.cut
             : z->by_time && p->chunks == 1 ? z->cut
                                            : NULL;
    if (n < longest(z, p)) ask_again(z, p, n, least_s, &s);
}

/* Layers are constrained to stages or nodes. */
static void ask_bent(weft_search__work *z, weft_cost_point *p, double least_s)
{
    const weft_cost_variant *v = &z->s.variant[p->variant];
    weft_cost_score          s;
    if (p->chunks > 1) return; /* their layers lie apart */
    for (int i = 0; i < p->pp; i++)
        z->spare[i] = z->p->constraints.cut ? z->p->constraints.cut[i]
                      : z->by_time          ? z->cut[i]
                                   : (uint16_t)weft_cost_even_cut(z->s.n_layer, p->pp, i);
    if (weft_search__bend(z->p, p, v->tp * v->cp * p->dp, z->s.n_layer, z->spare))
        ask(z, p, z->spare, least_s, &s);
}

static void score_point(weft_search__work *z, weft_cost_point *p, double least_s)
{
    const weft_cost_engine *e   = &z->s.t.engine;
    const uint16_t         *pin = z->p->constraints.cut;
    weft_cost_score         s;
    if (e->max_micro > 0 && p->zero == 0 && p->pp > 1 && p->dp > 1 &&
        p->n_micro > e->max_micro)
        return; /* the engine does not get through */
    if (z->p->constraints.recompute_layers > 0) {
        ask_pinned_again(z, p, least_s);
        return;
    }
    if (z->p->constraints.n_on) {
        ask_bent(z, p, least_s);
        return;
    }
    if (pin || p->pp < 2 || p->chunks > 1) {
        if (!ask(z, p, pin, least_s, &s)) some_again(z, p, &s, least_s);
        return;
    }
    bool even = weft_search__even_allowed(z, p->pp), fit = false;
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
    /* Too full, or layers of several kinds: cut as the score says.  Of few stages also where
     * another cut may win more with gradients and the update than it loses with the slowest
     * stage; of our programs, whose schedules are played, also where micro-batches are too few to
     * keep all stages busy: then idle time goes by the cut too. */
    double hope = relax(e, p, &s, least_s);
    if (z->s.t.programs && p->n_micro < 2 * p->pp)
        hope = fmin(hope, weft_cost_floor(&z->s.t, p, least_s, z->sum_s));
    if (p->pp <= WEFT_SEARCH__FEW) hope -= (s.dp_s + s.optimizer_s) * uneven(z, p);
    if (fit && z->s.t.n_segment == 1 && p->pp > WEFT_SEARCH__FEW) return;
    if (weft_search__hopeless(z, hope)) return;
    if (!weft_search__cut(&z->s.t, p, z->s.n_layer, z->sum_s, beat(z) - z->param_s,
                          z->spare, &s, &z->n_scored))
        return;
    p->cut = z->spare;
    weft_search__consider(z, p, &s);
    if (s.mem_bytes <= s.mem_limit) relaxed(z, p, &s, least_s);
}

static void schedules(weft_search__work *z, weft_cost_point *p, double least_s)
{
    unsigned can = z->p->model.limits.schedules;
    int      pin = weft_search_given(&z->p->constraints, WEFT_KEY_schedule);
    for (int k = 0; k < 3; k++) {
        if (!(can >> k & 1) || (pin >= 0 && k != pin % WEFT_STRATEGY_INTERLEAVED))
            continue;
        /* GPipe is 1F1B with more memory; of a single stage all are the same */
        if (pin < 0 && (k == WEFT_COST_GPIPE || (p->pp == 1 && k))) continue;
        if (k && p->chunks > 1) continue;
        p->schedule    = (weft_cost_schedule)k;
        double floor_s = weft_cost_floor(&z->s.t, p, least_s, z->sum_s);
        if (weft_search__hopeless(z, floor_s)) continue;
        if (z->param_s < 0) z->param_s = weft_cost_floor_param(&z->s.t, p);
        if (!weft_search__hopeless(z, floor_s + z->param_s)) score_point(z, p, least_s);
    }
}

/* Layers of stages that a user wrote down are cut into chunks where all stages are equal. */
static bool pinned_even(const weft_search__work *z, int pp)
{
    const uint16_t *cut = z->p->constraints.cut;
    for (int i = 1; cut && i < pp; i++)
        if (cut[i] != cut[0]) return false;
    return true;
}

static void chunks(weft_search__work *z, weft_cost_point *p, double least_s)
{
    int pin  = weft_search_given(&z->p->constraints, WEFT_KEY_chunks),
        most = (int)z->s.t.engine.max_chunks;
    int mine = chunked(z, p->pp);
    if (pin <= 1 && weft_search_given(&z->p->constraints, WEFT_KEY_schedule) !=
                        WEFT_STRATEGY_INTERLEAVED) {
        p->chunks = 1;
        schedules(z, p, least_s);
    }
    bool plain = weft_search_given(&z->p->constraints, WEFT_KEY_schedule) >= 0 &&
                 weft_search_given(&z->p->constraints, WEFT_KEY_schedule) !=
                     WEFT_STRATEGY_INTERLEAVED; /* one chunk a stage */
    if (plain || p->n_micro % p->pp || !pinned_even(z, p->pp)) return;
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

void weft_search__points(weft_search__work *z, weft_cost_point *p, double least_s)
{
    const weft_cost_variant *v = &z->s.variant[p->variant];
    unsigned can = p->pp > 1 ? z->p->model.limits.zero_pp : z->p->model.limits.zero;
    int      pin = weft_search_given(&z->p->constraints, WEFT_KEY_zero);
    if (z->seeding && p->dp * v->cp < 2) pin = -1; /* nothing to shard over */
    for (int zero = 3; zero >= 0; zero--) {
        if (!(can >> zero & 1) || (pin >= 0 && zero != pin)) continue;
        if (pin < 0 && zero && p->dp * v->cp < 2) continue;
        if (!zero && v->cp > 1 && z->p->model.limits.cp_shards) continue;
        if (!weft_search__holds_copies(&z->p->constraints, v, p, zero,
                                       v->cp > 1 ? 1 : v->tp * v->ep * p->pp))
            continue;
        p->zero       = zero;
        z->param_s    = -1;
        z->least_full = INFINITY;
        chunks(z, p, least_s);
        /* Less sharding takes more memory, but for zero 3, which holds a layer's weights twice. */
        if (isfinite(z->least_full) && z->least_full > 2) return;
    }
}
