/* Updates of replicas: the step of a short model as one of 2, of 4, .. runs it.  What a replica
 * does by itself is once + part / replicas, by two numbers of them; what replicas say to each
 * other is counted. */
#include <math.h>
#include <string.h>

#include "planner/rows_priv.h"

typedef weft_planner__facts facts;

static bool same_cut(const weft_cost_variant *a, const weft_cost_variant *b)
{
    return a->tp == b->tp && a->cp == b->cp && a->ep == b->ep && a->sp == b->sp &&
           a->recompute == b->recompute && a->whole == b->whole;
}

static weft_status look(weft_planner__rows *x, const weft_cost_variant *v, int kind,
                        int dp, int zero, facts *of)
{
    weft_planner__pricer z  = {.x = x, .v = v, .kind = kind, .dp = dp, .zero = zero};
    weft_status          st = weft_planner__pricer_open(&z);
    if (st == WEFT_OK) st = weft_planner__find_facts(&z, of);
    weft_planner__pricer_close(&z);
    return st;
}

/* Through what n replicas have, and twice as many. */
static weft_cost_share line(int n, double x, double twice)
{
    double part = 2 * n * (x - twice);
    return (weft_cost_share){x - part / n, part};
}

static void draw(int n, const facts *x, const facts *twice, const facts *whole,
                 const facts *is, weft_cost_sharing *out)
{
    *out           = is->calls;
    out->more_s[0] = is->fwd_s - whole->fwd_s;
    out->more_s[1] = is->bwd_s - whole->bwd_s;
    out->before_s  = line(n, x->before_s, twice->before_s);
    out->after_s   = line(n, x->after_s, twice->after_s);
    out->state     = line(n, x->state, twice->state);
    out->tied      = line(n, x->tied, twice->tied);
    out->update    = line(n, x->update, twice->update);
}

/* Replicas that there may be. */
static int most(const weft_planner__rows *x, const weft_cost_variant *v)
{
    return weft_cluster_usable(x->c) / (v->tp * v->cp * v->ep);
}

/* 2, 4, 8, .. replicas, as many as there may be (4 at least, to draw a line).  What they say to
 * each other is counted of as many as there are. */
static weft_status compare(weft_planner__rows *x, const weft_cost_variant *v, int kind,
                           int zero, const facts *whole, facts *tmp,
                           weft_cost_program_row *of)
{
    int rows = x->n_short + 2, n = 2;
    while (n < WEFT_COST_N_REPLICAS && 2 << n <= most(x, v)) n++;
    memset(tmp, 0, sizeof *tmp * (size_t)(n * rows));
    for (int k = 0; k < n; k++) WEFT_TRY(look(x, v, kind, 2 << k, zero, &tmp[k * rows]));
    for (int i = 0; i < WEFT_COST_N_REPLICAS * rows; i++) {
        int k = i / rows < n ? i / rows : n - 1, row = i % rows, low = k ? k - 1 : 0;
        const facts *is = &tmp[k * rows + row];
        int          c  = (zero < 3 ? WEFT_COST_STATES : WEFT_COST_PARAMS) + i / rows;
        draw(2 << low, &tmp[low * rows + row], &tmp[(low + 1) * rows + row], &whole[row],
             is, &of[row].share[c]);
        if (zero == 3)
            of[row].fetched_bytes =
                fmax(of[row].fetched_bytes, is->peak - whole[row].peak);
    }
    return WEFT_OK;
}

/* What passes take longer is partly the same for every micro-batch: two sizes of it tell. */
static weft_status find_slopes(weft_planner__rows *x, const weft_cost_variant *v,
                               int kind, const facts *whole, facts *tmp, double (*out)[2])
{
    weft_cost_variant w = *v;
    int               n = x->n_short + 2;
    if (x->s.micro_batch > 0) return WEFT_OK; /* there is no other */
    w.micro_batch *= 2;
    memset(tmp, 0, sizeof *tmp * (size_t)(3 * n));
    WEFT_TRY(look(x, v, kind, 2, 3, tmp));
    WEFT_TRY(look(x, &w, kind, 2, 0, tmp + n));
    WEFT_TRY(look(x, &w, kind, 2, 3, tmp + 2 * n));
    for (int i = 0; i < n; i++) {
        double fwd = tmp[2 * n + i].fwd_s - tmp[n + i].fwd_s;
        double bwd = tmp[2 * n + i].bwd_s - tmp[n + i].bwd_s;
        out[i][0]  = (fwd - (tmp[i].fwd_s - whole[i].fwd_s)) / v->micro_batch;
        out[i][1]  = (bwd - (tmp[i].bwd_s - whole[i].bwd_s)) / v->micro_batch;
    }
    return WEFT_OK;
}

weft_status weft_planner__share(weft_planner__rows *x, const weft_cost_variant *v,
                                int kind, const weft_planner__shared **out)
{
    weft_planner__shared *k = x->shared;
    weft_arena           *tmp;
    weft_status           st = WEFT_OK;
    int                   n  = x->n_short + 2;
    for (; k && (k->kind != kind || !same_cut(&k->v, v)); k = k->next) {
    }
    *out = k;
    if (k) return WEFT_OK;
    k = WEFT_ARENA_NEW(x->a, weft_planner__shared);
    if (!k) return weft_arena_status(x->a);
    k->v      = *v;
    k->kind   = kind;
    k->of     = WEFT_ARENA_ARRAY(x->a, weft_cost_program_row, n);
    k->more_s = weft_arena_alloc(x->a, sizeof *k->more_s * (size_t)n);
    WEFT_TRY(weft_arena_status(x->a));
    WEFT_TRY(weft_arena_create(&tmp));
    facts *whole = WEFT_ARENA_ARRAY(tmp, facts, n);
    facts *each  = WEFT_ARENA_ARRAY(tmp, facts, WEFT_COST_N_REPLICAS * n);
    WEFT_GO(weft_arena_status(tmp));
    WEFT_GO(look(x, v, kind, 2, 0, whole));
    for (int i = 0; i < n; i++)
        draw(1, &whole[i], &whole[i], &whole[i], &whole[i],
             &k->of[i].share[WEFT_COST_WHOLE]);
    WEFT_GO(compare(x, v, kind, 1, whole, each, k->of));
    WEFT_GO(compare(x, v, kind, 3, whole, each, k->of));
    WEFT_GO(find_slopes(x, v, kind, whole, each, k->more_s));
    k->next   = x->shared;
    x->shared = k;
    *out      = k;
out:
    weft_arena_destroy(tmp);
    return st;
}
