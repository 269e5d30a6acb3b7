/* A plan from a strategy: marks by shard/expand.c, named by the graph. */
#include <string.h>

#include "plan/plan.h"

static weft_status copy_marks(weft_plan *p, const weft_graph *g,
                              const weft_shard_options *o)
{
    p->mark = WEFT_ARENA_ARRAY(p->arena, weft_mark, o->n_mark + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < o->n_mark; i++) {
        weft_mark *k = &p->mark[p->n_mark++];
        *k           = o->mark[i];
        k->name      = weft_arena_strdup(p->arena, g->value[k->value].name);
        k->value     = -1;
        k->open &=
            (1u << k->layout.n_dim) - 1; /* of the dimensions there are, as text has it */
    }
    return weft_arena_status(p->arena);
}

static weft_status copy_stages(weft_plan *p, const weft_graph *g, const int *cut)
{
    int n    = p->strategy.pp * p->strategy.chunks;
    p->first = WEFT_ARENA_ARRAY(p->arena, const char *, n);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int k = 1; k < n; k++)
        p->first[k] =
            weft_arena_strdup(p->arena, g->value[g->node[cut[k - 1]].out[0]].name);
    return weft_arena_status(p->arena);
}

static const char *copy_text(weft_plan *p, const char *s)
{
    return s ? weft_arena_strdup(p->arena, s) : NULL;
}

static weft_status copy_mesh(weft_plan *p)
{
    const weft_strategy *y = &p->strategy;
    p->n_axis              = weft_shard_axes(y, p->axis);
    for (int i = 0; i < p->n_axis; i++) p->axis[i].name = copy_text(p, p->axis[i].name);
    p->lane_axis = weft_strategy_axis_at(y, WEFT_AXIS_DP);
    if (!y->n_batch_split) return weft_arena_status(p->arena);
    p->share = WEFT_ARENA_ARRAY(p->arena, int32_t, weft_strategy_split_ranks(y));
    WEFT_TRY(weft_arena_status(p->arena));
    weft_strategy_expand_split(y, p->share);
    p->strategy.n_batch_split = 0; /* share is what counts, as in a plan that was read */
    return WEFT_OK;
}

weft_status weft_plan_make(const weft_plan_input *w, const weft_graph *g, int world,
                           weft_plan **out)
{
    weft_arena        *a = NULL, *tmp = NULL;
    weft_shard_options o;
    weft_status        st = WEFT_OK;
    WEFT_GO(weft_arena_create(&tmp));
    WEFT_GO(weft_shard_expand(&w->strategy, g, w->layers, world, tmp, &o));
    WEFT_GO(weft_arena_create(&a));
    weft_plan *p = WEFT_ARENA_NEW(a, weft_plan);
    if (!p) WEFT_GO(weft_arena_status(a));
    p->arena                 = a;
    p->strategy              = w->strategy;
    p->strategy.bucket_bytes = 0;
    p->of                    = w->of;
    p->of.model              = copy_text(p, w->of.model ? w->of.model : "");
    p->of.kernels            = copy_text(p, w->of.kernels);
    p->of.dtype              = copy_text(p, w->of.dtype);
    WEFT_GO(copy_mesh(p));
    WEFT_GO(copy_stages(p, g, w->cut));
    WEFT_GO(copy_marks(p, g, &o));
    WEFT_GO(weft_plan_verify(p));
    *out = p;
    a    = NULL;
out:
    weft_arena_destroy(a);
    weft_arena_destroy(tmp);
    return st;
}
