/* A choice as a value: its strategy, whether two are the same, as a plan for another engine. */
#include <string.h>

#include "search/search_priv.h"

int64_t weft_search_ranks(const weft_search_choice *c)
{
    return (int64_t)c->variant.tp * c->variant.cp * c->point.dp * c->point.pp;
}

bool weft_search__is_even(const weft_search_choice *c)
{
    int n = 0;
    for (int s = 0; s < c->point.pp; s++) n += c->point.cut[s];
    for (int s = 0; s < c->point.pp; s++)
        if (c->point.cut[s] != weft_cost_even_cut(n, c->point.pp, s)) return false;
    return true;
}

int weft_search_chunk_layers(const weft_search_choice *c, int i)
{
    const weft_cost_point *p    = &c->point;
    int                    most = 0, n = p->cut[i % p->pp];
    if (p->chunks < 2) return n;
    for (int s = 0; s < p->pp; s++) most = p->cut[s] > most ? p->cut[s] : most;
    bool end = i == 0 || i == p->pp * p->chunks - 1;
    return most / p->chunks - (end ? most - n : 0);
}

/* ---- as a strategy ---- */

weft_strategy weft_search_sizes(int dp, const weft_cost_variant *v)
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

weft_strategy_recompute weft_search_recompute(weft_cost_recompute r)
{
    switch (r) {
    case WEFT_RECOMPUTE_FULL: return WEFT_STRATEGY_FULL;
    case WEFT_RECOMPUTE_SELECTIVE:
    case WEFT_RECOMPUTE_LIGHT: return WEFT_STRATEGY_SELECTIVE;
    default: return WEFT_STRATEGY_KEEP;
    }
}

/* Replicas of a kind have equal numbers of lanes, or the first of them one more: never more runs
 * than a strategy has. */
static void set_split(const weft_cost_deal *d, weft_strategy *y)
{
    for (int k = 0; k < d->n; k++) {
        int each = d->lanes[k] / d->replicas[k], more = d->lanes[k] % d->replicas[k];
        if (more) weft_strategy_add_split(y, more, each + 1);
        weft_strategy_add_split(y, d->replicas[k] - more, each);
    }
}

weft_strategy weft_search__strategy_of(const weft_cost_variant *v,
                                       const weft_cost_point   *p,
                                       const weft_search_whole *whole)
{
    weft_strategy y = weft_search_sizes(p->dp % v->ep ? p->dp : p->dp / v->ep, v);
    y.pp            = p->pp;
    y.chunks        = p->chunks;
    y.schedule      = p->chunks > 1 ? WEFT_STRATEGY_INTERLEAVED : (int)p->schedule;
    y.zero          = p->zero;
    y.sp            = v->sp;
    y.recompute     = (int)weft_search_recompute(v->recompute);
    set_split(&p->deal, &y);
    if (!v->whole) return y;
    y.n_tp_exclude = whole->n_span;
    memcpy(y.tp_exclude, whole->span, sizeof whole->span);
    return y;
}

/* ---- the same? ---- */

/* Replicas of each kind; their lanes are in the strategy. */
static bool same_replicas(const weft_cost_deal *a, const weft_cost_deal *b)
{
    for (int k = 0; k < a->n && a->n == b->n; k++)
        if (a->replicas[k] != b->replicas[k]) return false;
    return a->n == b->n;
}

/* What a strategy does not say of it. */
static bool same_point(const weft_cost_point *a, const weft_cost_point *b)
{
    size_t n = (size_t)a->pp;
    if (a->dp != b->dp || a->pp != b->pp) return false;
    if ((a->n_again > 0 || b->n_again > 0) && a->n_again != b->n_again) return false;
    return !memcmp(a->cut, b->cut, n * sizeof *a->cut) &&
           !memcmp(a->kinds, b->kinds, n * sizeof *a->kinds) &&
           same_replicas(&a->deal, &b->deal);
}

bool weft_search_same_choice(const weft_search_choice *a, const weft_search_choice *b)
{
    return weft_strategy_equal(&a->strategy, &b->strategy) &&
           a->variant.micro_batch == b->variant.micro_batch &&
           a->variant.recompute == b->variant.recompute &&
           same_point(&a->point, &b->point);
}

/* ---- for another engine ---- */

weft_engine_plan weft_search_engine_plan(const weft_search_choice *x)
{
    const weft_cost_point *p   = &x->point;
    weft_engine_plan       out = {.strategy          = x->strategy,
                                  .dp                = p->dp,
                                  .micro_batch       = x->variant.micro_batch,
                                  .global_batch      = x->variant.micro_batch,
                                  .recompute         = x->variant.recompute,
                                  .recompute_layers  = p->n_again,
                                  .recompute_modules = -1};
    out.global_batch *= p->deal.n ? p->deal.per_lane * weft_strategy_lanes(&x->strategy)
                                  : p->n_micro * p->dp;
    if (p->pp > 1 && !weft_search__is_even(x)) out.cut = p->cut;
    return out;
}
