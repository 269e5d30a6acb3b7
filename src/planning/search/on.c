/* Layers that are constrained to a stage or to a node: cuts are bent until they keep the
 * constraints.
 *
 * Stages of one kind of devices are dealt node by node; nodes of a kind are alike, so that layers
 * which share a node lie on the one asked for once its place and another's are exchanged
 * (planner/view.c). */
#include <stdio.h>
#include <string.h>

#include "search/search_priv.h"

weft_status weft_search__read_on(weft_search_constraints *p, const char *word)
{
    weft_search_on x = {.stage = -1, .node = -1, .host = -1};
    char           where[8];
    int            n = 0, at;
    if (sscanf(word, "layers %d..%d on %7s %d%n", &x.first, &x.last, where, &at, &n) <
            4 &&
        sscanf(word, "layer %d..%d on %7s %d%n", &x.first, &x.last, where, &at, &n) < 4) {
        if (sscanf(word, "layer %d on %7s %d%n", &x.first, where, &at, &n) < 3) n = 0;
        x.last = x.first;
    }
    bool node = n && !strcmp(where, "node"), stage = n && !strcmp(where, "stage");
    if (!n || word[n] || (!node && !stage) || x.first < 0 || x.last < x.first || at < 0)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%.60s: expected 'layers 0..3 on node 2' or 'layers 0..3 on "
                         "stage 1', counted from 0",
                         word);
    if (p->n_on == WEFT_SEARCH_MAX_ON)
        return WEFT_FAIL(WEFT_ERR_ARG, "%.60s: at most %d such constraints", word,
                         WEFT_SEARCH_MAX_ON);
    *(node ? &x.node : &x.stage) = at;
    p->on[p->n_on++]             = x;
    return WEFT_OK;
}

weft_status weft_search__check_on(const weft_search_constraints *p, int n_layer)
{
    int pp = weft_search_given(p, WEFT_KEY_pp);
    for (int i = 0; i < p->n_on; i++) {
        const weft_search_on *x = &p->on[i];
        if (x->last >= n_layer)
            return WEFT_FAIL(WEFT_ERR_ARG, "layers %d..%d: the model has layers 0 to %d",
                             x->first, x->last, n_layer - 1);
        if (pp > 0 && x->stage >= pp)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "layers %d..%d on stage %d: pp=%d has stages 0 to %d",
                             x->first, x->last, x->stage, pp, pp - 1);
    }
    return WEFT_OK;
}

/* Devices that the stages before s take of the kinds of s; -1: it lies on several kinds, or
 * shares one that does. */
static int devices_before(const weft_cost_point *p, int s, int S)
{
    unsigned own = p->kinds ? p->kinds[s] : 1;
    int      n   = 0;
    if (own & (own - 1)) return -1;
    for (int k = 0; k < s; k++) {
        unsigned x = p->kinds ? p->kinds[k] : 1;
        if (x & own && x != own) return -1;
        if (x == own) n += S;
    }
    return n;
}

/* Stages [*lo, *hi] that lie with stage s on a node of its own kind; false: it lies on no single
 * one. */
static bool node_stages(const weft_search_machines *m, const weft_cost_point *p, int s,
                        int S, const weft_search_on *x, int *lo, int *hi)
{
    int kind = 0, before = devices_before(p, s, S);
    while (p->kinds && kind < m->n && !(p->kinds[s] >> kind & 1)) kind++;
    int per = m->kind[kind].per_node;
    if (before < 0 || per % S || (x->host >= 0 && m->kind[kind].node != x->host))
        return false;
    int at = before / S % (per / S);
    *lo    = s - at;
    *hi    = s - at + per / S - 1;
    if (*hi > p->pp - 1) *hi = p->pp - 1;
    for (int k = *lo; p->kinds && k <= *hi; k++)
        if (k < 0 || p->kinds[k] != p->kinds[s]) {
            if (k < s) return false;
            *hi = k - 1;
        }
    return *lo >= 0;
}

/* Stages lo..hi hold layers first..last; false: there are too few layers for the others. */
static bool widen(uint16_t *cut, int pp, int n_layer, int lo, int hi, int first, int last)
{
    int start[MAX_STAGE + 1];
    start[0] = 0;
    for (int s = 0; s < pp; s++) start[s + 1] = start[s] + cut[s];
    if (start[lo] > first) start[lo] = first;
    if (start[hi + 1] < last + 1) start[hi + 1] = last + 1;
    for (int s = lo - 1; s >= 0; s--)
        if (start[s] > start[s + 1] - 1) start[s] = start[s + 1] - 1;
    for (int s = hi + 2; s <= pp; s++)
        if (start[s] < start[s - 1] + 1) start[s] = start[s - 1] + 1;
    if (start[0] != 0 || start[pp] != n_layer) return false;
    for (int s = 0; s < pp; s++) {
        if (start[s + 1] <= start[s]) return false;
        cut[s] = (uint16_t)(start[s + 1] - start[s]);
    }
    return true;
}

static bool holds(const uint16_t *cut, int lo, int hi, int first, int last)
{
    int at = 0;
    for (int s = 0; s < lo; s++) at += cut[s];
    if (first < at) return false;
    for (int s = lo; s <= hi; s++) at += cut[s];
    return last < at;
}

/* The stages that constraint x asks for under this cut. */
static bool wanted(const weft_search_machines *m, const weft_cost_point *p, int S,
                   const uint16_t *cut, const weft_search_on *x, int *lo, int *hi)
{
    int s = 0, end = cut[0];
    if (x->stage >= 0) {
        *lo = *hi = x->stage;
        return x->stage < p->pp;
    }
    while (s + 1 < p->pp && end <= (x->first + x->last) / 2) end += cut[++s];
    return node_stages(m, p, s, S, x, lo, hi);
}

bool weft_search__bend(const weft_search_problem *q, const weft_cost_point *p, int S,
                       int n_layer, uint16_t *cut)
{
    const weft_search_constraints *pins = &q->constraints;
    int                            lo, hi;
    for (int i = 0; i < pins->n_on; i++)
        if (!wanted(q->machines, p, S, cut, &pins->on[i], &lo, &hi) ||
            !widen(cut, p->pp, n_layer, lo, hi, pins->on[i].first, pins->on[i].last))
            return false;
    for (int i = 0; i < pins->n_on; i++) /* a later one may have moved an earlier one's */
        if (!wanted(q->machines, p, S, cut, &pins->on[i], &lo, &hi) ||
            !holds(cut, lo, hi, pins->on[i].first, pins->on[i].last))
            return false;
    return true;
}

weft_status weft_search__refuse_on(const weft_search_constraints *p)
{
    const weft_search_on *x    = &p->on[0];
    bool                  node = x->node >= 0;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "layers %d..%d on %s %d: no cut of stages keeps it; %s", x->first,
                     x->last, node ? "node" : "stage", node ? x->node : x->stage,
                     node ? "the tp x cp x dp devices of a stage are to lie within it"
                          : "stages before and behind it need a layer each");
}
