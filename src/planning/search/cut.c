/* Stages cut by time.  Where all layers are alike, weft_search__fast_cut finds the least T from a
 * few stage types; else, and where memory is short, weft_search__cut does.  Every stage takes
 * layers up to a time T and up to a number that memory sets; the least T that holds all layers is
 * found by halving, then neighbours are evened out.  Memory is asked of the score: a stage that
 * is too full gets one layer less at most, and so do those of its kinds before it, which hold
 * more micro-batches. */
#include <math.h>
#include <string.h>

#include "search/search_priv.h"

enum {
    MAX_ROUND = 12
};

typedef struct cutter {
    const weft_cost_table *t;
    weft_cost_point        p; /* its cut is ours */
    int                    n_layer;
    uint16_t               cut[MAX_STAGE], most[MAX_STAGE];
    weft_cost_score        score;
    int64_t               *n_scored;
    bool                   alike; /* all layers; then, by stage: */
    double                 end_s[MAX_STAGE], one_s[MAX_STAGE];
} cutter;

/* The seconds of a row of class c on the slowest kind of stage s. */
static double row_seconds(const cutter *x, int s, int c)
{
    const weft_cost_table *t     = x->t;
    double                 worst = 0;
    for (int d = 0; d < t->n_device; d++) {
        if (x->p.kinds ? !(x->p.kinds[s] >> d & 1) : d > 0) continue;
        const weft_cost_row *r =
            t->row + ((int64_t)d * t->n_variant + x->p.variant) * t->n_class + c;
        worst = fmax(worst, r->fwd_s + r->bwd_s);
    }
    return worst;
}

static double end_seconds(const cutter *x, int s)
{
    double out = 0;
    if (s == 0 && x->t->first >= 0) out += row_seconds(x, s, x->t->first);
    if (s == x->p.pp - 1 && x->t->last >= 0) out += row_seconds(x, s, x->t->last);
    return out;
}

/* What stages take, once and for all. */
static void look_up(cutter *x)
{
    int pp   = x->p.pp;
    x->alike = x->t->n_segment == 1;
    for (int s = 0; s < pp && x->alike; s++) {
        bool as_before =
            s > 1 && s < pp - 1 && (!x->p.kinds || x->p.kinds[s] == x->p.kinds[s - 1]);
        x->end_s[s] = as_before ? x->end_s[s - 1] : end_seconds(x, s);
        x->one_s[s] =
            as_before ? x->one_s[s - 1] : row_seconds(x, s, x->t->segment[0].layer_class);
        if (!(x->one_s[s] > 0)) x->alike = false;
    }
}

/* Stage s from layer `at` on: as many layers as T allows, `most` at the most; *used: what they
 * take. */
static int take(const cutter *x, int s, int at, int most, double T, double *used)
{
    const weft_cost_table *t = x->t;
    int                    n = 0, end = 0;
    if (x->alike) {
        double fit = floor((T - x->end_s[s]) / x->one_s[s] + 1e-9);
        n          = fit < 0 ? 0 : fit < most ? (int)fit : most;
        if (n > x->n_layer - at) n = x->n_layer - at;
        *used = x->end_s[s] + n * x->one_s[s];
        return n;
    }
    *used = end_seconds(x, s);
    for (int i = 0; i < t->n_segment && n < most; i++) {
        end += t->segment[i].count;
        int here = end - (at + n);
        if (here <= 0) continue;
        double one = row_seconds(x, s, t->segment[i].layer_class);
        double fit = one > 0 ? floor((T - *used) / one + 1e-9) : here;
        int    k   = fit < 0 ? 0 : fit < here ? (int)fit : here;
        if (k > most - n) k = most - n;
        n += k;
        *used += k * one;
        if (k < here) break;
    }
    return n;
}

/* Left to right within T; false where layers are left over or a stage cannot take one. */
static bool pack(cutter *x, double T)
{
    int    at = 0, pp = x->p.pp;
    double used;
    for (int s = 0; s < pp; s++) {
        int keep = x->n_layer - at - (pp - 1 - s); /* one for each stage to come */
        int n    = take(x, s, at, x->most[s] < keep ? x->most[s] : keep, T, &used);
        if (n < 1) return false;
        x->cut[s] = (uint16_t)n;
        at += n;
    }
    return at == x->n_layer;
}

static double stage_seconds(const cutter *x, int s, int at)
{
    double used;
    take(x, s, at, x->cut[s], INFINITY, &used);
    return used;
}

/* Layers go to the next stage while that makes the two more alike. */
static void even_out(cutter *x)
{
    for (int pass = 0, moved = 1; moved && pass < 16; pass++) {
        int at = 0;
        moved  = 0;
        for (int s = 0; s + 1 < x->p.pp; at += x->cut[s++]) {
            double a = stage_seconds(x, s, at),
                   b = stage_seconds(x, s + 1, at + x->cut[s]);
            while (x->cut[s] > 1 && x->cut[s + 1] < x->most[s + 1] && a > b) {
                x->cut[s]--, x->cut[s + 1]++;
                double c = stage_seconds(x, s, at);
                double d = stage_seconds(x, s + 1, at + x->cut[s]);
                if (fmax(c, d) >= a * (1 - 1e-9)) {
                    x->cut[s]++, x->cut[s + 1]--;
                    break;
                }
                a = c, b = d;
                moved = 1;
            }
        }
    }
}

static void ask(cutter *x)
{
    x->p.cut = x->cut;
    weft_cost_score_point(x->t, &x->p, &x->score);
    ++*x->n_scored;
}

static bool fits(const weft_cost_score *s)
{
    return s->mem_bytes <= s->mem_limit;
}

static double least_time(const cutter *x)
{
    double sum = 0;
    for (int s = 0; s < x->p.pp; s++) { /* stage speeds, ends left out */
        double all = 0;
        for (int i = 0; i < x->t->n_segment; i++)
            all +=
                x->t->segment[i].count * row_seconds(x, s, x->t->segment[i].layer_class);
        if (all > 0) sum += 1 / all;
    }
    return sum > 0 ? 1 / sum : 0;
}

/* The least T from *lo on that packs; no T below what is left there does.  False: none below a
 * thousand times as much. */
static bool halve(cutter *x, double *lo)
{
    double hi = *lo * 1.25;
    while (!pack(x, hi)) {
        *lo = hi;
        hi *= 1.5;
        if (!(hi < 1e30)) return false;
        if (*lo > 1e3 * least_time(x) + 1e6) return false;
    }
    while (hi - *lo > 1e-4 * hi) {
        double T = (*lo + hi) / 2;
        if (pack(x, T))
            hi = T;
        else
            *lo = T;
    }
    return pack(x, hi);
}

static bool tighten(cutter *x)
{
    int k = x->score.tightest, n = x->cut[k] - 1;
    if (n < 1) return false;
    for (int s = 0; s <= k; s++)
        if ((!x->p.kinds || x->p.kinds[s] == x->p.kinds[k]) && x->most[s] > n)
            x->most[s] = (uint16_t)n;
    int sum = 0;
    for (int s = 0; s < x->p.pp; s++) sum += x->most[s];
    return sum >= x->n_layer;
}

static bool better(const weft_cost_score *a, const weft_cost_score *b)
{
    if (fits(a) != fits(b)) return fits(a);
    return fits(a) ? a->step_s < b->step_s
                   : a->mem_bytes - a->mem_limit < b->mem_bytes - b->mem_limit;
}

/* Of few stages: one layer moved from any to any, while that helps. */
static void polish(cutter *x)
{
    int pp = x->p.pp;
    for (bool again = true; again;) {
        again = false;
        for (int a = 0; a < pp; a++)
            for (int b = 0; b < pp; b++) {
                weft_cost_score was = x->score;
                if (a == b || x->cut[a] < 2) continue;
                x->cut[a]--, x->cut[b]++;
                ask(x);
                if (better(&x->score, &was)) {
                    again = true;
                    continue;
                }
                x->cut[a]++, x->cut[b]--;
                x->score = was;
            }
    }
}

/* What each stage has memory for: where layers are alike, a line through one layer and two.
 * False: not for all. */
static bool find_most(cutter *x)
{
    int64_t sum = 0;
    for (int s = 0; s < x->p.pp; s++) {
        x->most[s] = (uint16_t)x->n_layer;
        if (!x->alike || x->n_layer < 2) continue;
        double one  = weft_cost_stage_over(x->t, &x->p, s, 0, 1);
        double more = weft_cost_stage_over(x->t, &x->p, s, 0, 2) - one;
        if (one > 0) return false;
        if (more > 0 && 1 - one / more < x->n_layer)
            x->most[s] = (uint16_t)(1 - one / more * (1 + 1e-12));
        sum += x->most[s];
    }
    return !x->alike || sum >= x->n_layer;
}

/* Gives up where no cut that memory allows can take less than limit_s. */
static bool cut_any(cutter *x, double sum_s, double limit_s)
{
    double least = least_time(x);
    if (!find_most(x)) return false;
    for (int round = 0; round < MAX_ROUND; round++) {
        double lo = least;
        if (!halve(x, &lo)) return false;
        if (weft_cost_floor(x->t, &x->p, lo, sum_s) >= limit_s) return false;
        even_out(x);
        ask(x);
        if (fits(&x->score) || !tighten(x)) break;
    }
    if (x->p.pp <= WEFT_SEARCH__FEW) polish(x);
    return true;
}

bool weft_search__cut(const weft_cost_table *t, const weft_cost_point *p, int n_layer,
                      double sum_s, double limit_s, uint16_t *cut, weft_cost_score *score,
                      int64_t *n_scored)
{
    cutter x;
    if (p->pp < 2 || p->pp > MAX_STAGE) return false;
    x.t        = t;
    x.p        = *p;
    x.n_layer  = n_layer;
    x.n_scored = n_scored;
    look_up(&x);
    if (!cut_any(&x, sum_s, limit_s)) return false;
    memcpy(cut, x.cut, sizeof(*cut) * (size_t)p->pp);
    *score = x.score;
    return true;
}

/* ---- layers all alike ---- */

typedef struct type { /* stages that are alike: base_s + n * one_s for n layers */
    double base_s, one_s;
    int    count, kinds;
} type;

typedef struct types {
    int  n;
    type of[2 + 256];
} types;

static type type_at(const cutter *x, int s)
{
    return (type){end_seconds(x, s), row_seconds(x, s, x->t->segment[0].layer_class), 1,
                  x->p.kinds ? x->p.kinds[s] : 1};
}

static void find_types(const cutter *x, types *out)
{
    int pp     = x->p.pp;
    out->of[0] = type_at(x, 0);
    out->of[1] = type_at(x, pp - 1);
    out->n     = 2;
    for (int s = 1; s < pp - 1; s++) {
        int kinds = x->p.kinds ? x->p.kinds[s] : 1, i = 2;
        while (i < out->n && out->of[i].kinds != kinds) i++;
        if (i == out->n) {
            out->of[out->n]         = type_at(x, s);
            out->of[out->n++].count = 0;
        }
        if (!x->p.kinds) {
            out->of[i].count = pp - 2;
            break;
        }
        out->of[i].count++;
    }
}

static int room(const type *k, double T)
{
    double n = floor((T - k->base_s) / k->one_s * (1 + 1e-12) + 1e-9);
    return n < 1 ? 1 : n < 10000 ? (int)n : 10000;
}

/* From what fractions of layers would take, up one layer of some stage after the other until all
 * have room. */
static double least_T(const types *k, int n_layer)
{
    double up = n_layer, down = 0, T = 0;
    for (int i = 0; i < k->n; i++) {
        up += k->of[i].count * k->of[i].base_s / k->of[i].one_s;
        down += k->of[i].count / k->of[i].one_s;
        T = fmax(T, k->of[i].base_s + k->of[i].one_s);
    }
    T = fmax(T, up / down);
    for (;;) {
        int    have = 0;
        double next = INFINITY;
        for (int i = 0; i < k->n; i++) {
            int n = room(&k->of[i], T);
            have += k->of[i].count * n;
            next = fmin(next, k->of[i].base_s + (n + 1) * k->of[i].one_s);
        }
        if (have >= n_layer) return T;
        T = next;
    }
}

/* Each stage what it has room for; what is too much comes off the slowest, the first of those. */
static void deal(const cutter *x, double T, uint16_t *cut)
{
    int    left = -x->n_layer, pp = x->p.pp;
    type   k[MAX_STAGE];
    double y[MAX_STAGE]; /* seconds; -1: a single layer stays */
    for (int s = 0; s < pp; s++) {
        bool as_before =
            s > 1 && s < pp - 1 && (!x->p.kinds || x->p.kinds[s] == x->p.kinds[s - 1]);
        k[s]   = as_before ? k[s - 1] : type_at(x, s);
        cut[s] = (uint16_t)room(&k[s], T);
        y[s]   = cut[s] > 1 ? k[s].base_s + cut[s] * k[s].one_s : -1;
        left += cut[s];
    }
    for (; left > 0; left--) {
        int    at   = -1;
        double most = -1;
        for (int s = 0; s < pp; s++)
            if (y[s] > most) {
                most = y[s] * (1 + 1e-9); /* what is but rounding slower is not */
                at   = s;
            }
        if (at < 0) return;
        cut[at]--;
        y[at] = cut[at] > 1 ? k[at].base_s + cut[at] * k[at].one_s : -1;
    }
}

/* first, m, m, ..., last */
static double least_ends(const types *k, int n_layer, int pp, int *first, int *mid)
{
    double best = INFINITY, c = k->of[0].one_s, d = k->of[1].one_s;
    int    even = (n_layer + pp - 1) / pp;
    for (int m = even > 3 ? even - 2 : 1; m <= even + 2; m++) {
        int rest = n_layer - (pp - 2) * m;
        if (rest < 2) break;
        double ideal = (rest * d + k->of[1].base_s - k->of[0].base_s) / (c + d);
        int    near  = ideal < 1 ? 1 : ideal > rest - 1 ? rest - 1 : (int)floor(ideal);
        for (int f = near; f <= near + 1 && f < rest; f++) {
            double T = fmax(k->of[0].base_s + f * c, k->of[1].base_s + (rest - f) * d);
            if (k->n > 2) T = fmax(T, m * k->of[2].one_s);
            if (T >= best * (1 - 1e-12)) continue;
            best   = T;
            *first = f;
            *mid   = m;
        }
    }
    return best;
}

/* ---- layers of several kinds, equal stages but for the ends ---- */

static double slowest(cutter *x)
{
    double worst = 0;
    for (int s = 0, at = 0; s < x->p.pp; at += x->cut[s++])
        worst = fmax(worst, stage_seconds(x, s, at));
    return worst;
}

static void put_ends(cutter *x, int first, int mid)
{
    for (int s = 0; s < x->p.pp; s++) x->cut[s] = (uint16_t)mid;
    x->cut[0]           = (uint16_t)first;
    x->cut[x->p.pp - 1] = (uint16_t)(x->n_layer - first - (x->p.pp - 2) * mid);
}

/* Tries them; layers of one kind are worked out above. */
static double try_ends(cutter *x, int *first, int *mid)
{
    double best = INFINITY;
    int    pp = x->p.pp, even = (x->n_layer + pp - 1) / pp;
    for (int m = even > 3 ? even - 2 : 1; m <= even + 2; m++) {
        int rest = x->n_layer - (pp - 2) * m;
        for (int f = 1; f < rest; f++) {
            put_ends(x, f, m);
            double T = slowest(x);
            if (T >= best * (1 - 1e-12)) continue;
            best   = T;
            *first = f;
            *mid   = m;
        }
    }
    return best;
}

static double even_seconds(cutter *x)
{
    for (int s = 0; s < x->p.pp; s++)
        x->cut[s] = (uint16_t)weft_cost_even_cut(x->n_layer, x->p.pp, s);
    return slowest(x);
}

static double unlike(cutter *x, weft_search_cuts rule, double *even_s, uint16_t *cut)
{
    int    first = 1, mid = 1;
    double T = least_time(x);
    *even_s  = x->p.kinds ? INFINITY : even_seconds(x);
    if (rule == WEFT_CUT_ENDS) {
        T = try_ends(x, &first, &mid);
        if (isfinite(T)) put_ends(x, first, mid);
    } else {
        for (int s = 0; s < x->p.pp; s++) x->most[s] = (uint16_t)x->n_layer;
        if (!halve(x, &T)) return 0;
        even_out(x);
    }
    if (cut && isfinite(T)) memcpy(cut, x->cut, sizeof(*cut) * (size_t)x->p.pp);
    return T;
}

double weft_search__fast_cut(const weft_cost_table *t, const weft_cost_point *p,
                             int n_layer, weft_search_cuts rule, double *even_s,
                             uint16_t *cut)
{
    cutter x;
    types  k;
    int    first = 0, mid = 0;
    double T;
    x.t       = t;
    x.p       = *p;
    x.n_layer = n_layer;
    x.alike   = false;
    if (p->pp < 2 || p->pp > MAX_STAGE) return 0;
    if (t->n_segment != 1) return unlike(&x, rule, even_s, cut);
    find_types(&x, &k);
    if (rule == WEFT_CUT_ANY)
        T = least_T(&k, n_layer);
    else
        T = least_ends(&k, n_layer, p->pp, &first, &mid);
    *even_s = 0;
    if (!p->kinds) {
        int ends = weft_cost_even_cut(n_layer, p->pp, 0), more = n_layer % p->pp;
        int last = weft_cost_even_cut(n_layer, p->pp, p->pp - 1);
        *even_s  = fmax(k.of[0].base_s + ends * k.of[0].one_s,
                        k.of[1].base_s + last * k.of[1].one_s);
        if (k.n > 2)
            *even_s = fmax(*even_s, (n_layer / p->pp + (more > 0)) * k.of[2].one_s);
    } else
        *even_s = INFINITY;
    if (!cut || !isfinite(T)) return T;
    if (rule == WEFT_CUT_ANY) {
        deal(&x, T, cut);
        return T;
    }
    for (int s = 0; s < p->pp; s++) cut[s] = (uint16_t)mid;
    cut[0]         = (uint16_t)first;
    cut[p->pp - 1] = (uint16_t)(n_layer - first - (p->pp - 2) * mid);
    return T;
}
