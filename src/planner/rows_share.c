/* Updates of replicas: the step of a short model as one of two, and as one of four, runs it.  What a replica does by itself is
 * once + part / replicas in all of them, so two numbers of them tell both; what replicas say to each other is counted. */
#include <math.h>
#include <string.h>

#include "planner/rows_priv.h"

typedef weft_planner__facts facts;

static bool same_cut(const weft_cost_variant *a, const weft_cost_variant *b)
{
    return a->tp == b->tp && a->cp == b->cp && a->ep == b->ep && a->sp == b->sp &&
           a->recompute == b->recompute;
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

/* Through what two and four replicas have. */
static weft_cost_share line(double two, double four)
{
    double part = 4 * (two - four);
    return (weft_cost_share){four - part / 4, part};
}

static void draw(const facts *two, const facts *four, const facts *whole,
                 weft_cost_sharing *out)
{
    *out           = four->calls;
    out->more_s[0] = four->fwd_s - whole->fwd_s;
    out->more_s[1] = four->bwd_s - whole->bwd_s;
    out->before_s  = line(two->before_s, four->before_s);
    out->after_s   = line(two->after_s, four->after_s);
    out->state     = line(two->state, four->state);
    out->tied      = line(two->tied, four->tied);
    out->update    = line(two->update, four->update);
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
    k->v    = *v;
    k->kind = kind;
    k->of   = WEFT_ARENA_ARRAY(x->a, weft_cost_program_row, n);
    WEFT_TRY(weft_arena_status(x->a));
    WEFT_TRY(weft_arena_create(&tmp));
    facts *whole = WEFT_ARENA_ARRAY(tmp, facts, n),
          *two = WEFT_ARENA_ARRAY(tmp, facts, n), *four = WEFT_ARENA_ARRAY(tmp, facts, n);
    WEFT_GO(weft_arena_status(tmp));
    WEFT_GO(look(x, v, kind, 2, 0, whole));
    for (int i = 0; i < n; i++)
        draw(&whole[i], &whole[i], &whole[i], &k->of[i].share[WEFT_COST_WHOLE]);
    for (int zero = 1; zero <= 3; zero += 2) {
        memset(two, 0, sizeof *two * (size_t)n);
        memset(four, 0, sizeof *four * (size_t)n);
        WEFT_GO(look(x, v, kind, 2, zero, two));
        WEFT_GO(look(x, v, kind, 4, zero, four));
        for (int i = 0; i < n; i++) {
            int c = zero < 3 ? WEFT_COST_STATES : WEFT_COST_PARAMS;
            draw(&two[i], &four[i], &whole[i], &k->of[i].share[c]);
            if (zero == 3) k->of[i].fetched_bytes = fmax(0, four[i].peak - whole[i].peak);
        }
    }
    k->next   = x->shared;
    x->shared = k;
    *out      = k;
out:
    weft_arena_destroy(tmp);
    return st;
}
