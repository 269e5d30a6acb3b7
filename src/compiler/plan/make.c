/* A plan from short words: marks by the shorthand's rules, named by the graph. */
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
    int n    = p->pp * p->chunks;
    p->first = WEFT_ARENA_ARRAY(p->arena, const char *, n);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int k = 1; k < n; k++)
        p->first[k] =
            weft_arena_strdup(p->arena, g->value[g->node[cut[k - 1]].out[0]].name);
    return weft_arena_status(p->arena);
}

static const char *copy(weft_plan *p, const char *s, const char *otherwise)
{
    return s || otherwise ? weft_arena_strdup(p->arena, s ? s : otherwise) : NULL;
}

static weft_status copy_whole(weft_plan *p, const weft_shorthand *h)
{
    weft_text t = {0};
    if (!h->n_whole) return WEFT_OK;
    weft_layer_spans_print(h->whole, h->n_whole, &t);
    weft_status st = weft_text_status(&t);
    if (st == WEFT_OK) p->whole = weft_arena_strdup(p->arena, t.s);
    weft_text_fini(&t);
    return st;
}

weft_status weft_plan_make(const weft_plan_words *w, const weft_graph *g, int world,
                           weft_plan **out)
{
    weft_arena        *a = NULL, *tmp = NULL;
    weft_shard_options o;
    weft_status        st = WEFT_OK;
    WEFT_GO(weft_arena_create(&tmp));
    WEFT_GO(weft_shorthand_expand(&w->h, g, world, tmp, &o));
    WEFT_GO(weft_arena_create(&a));
    weft_plan *p = WEFT_ARENA_NEW(a, weft_plan);
    if (!p) WEFT_GO(weft_arena_status(a));
    p->arena      = a;
    p->of         = w->of;
    p->of.model   = copy(p, w->of.model, "");
    p->of.kernels = copy(p, w->of.kernels, NULL);
    p->of.dtype   = copy(p, w->of.dtype, NULL);
    p->n_axis     = w->h.n_axis;
    for (int i = 0; i < p->n_axis; i++) {
        p->axis[i]      = w->h.axis[i];
        p->axis[i].name = copy(p, w->h.axis[i].name, NULL);
    }
    p->lane_axis = weft_shorthand_lane_axis(&w->h);
    if (w->h.n_share)
        p->share =
            weft_arena_memdup(a, w->h.share, sizeof *p->share * (size_t)w->h.n_share);
    WEFT_GO(weft_arena_status(a));
    p->pp        = w->h.pp;
    p->chunks    = w->chunks > 1 ? w->chunks : 1;
    p->schedule  = copy(p, w->schedule, "1f1b");
    p->recompute = copy(p, w->recompute, "none");
    p->zero      = w->h.zero;
    p->later     = w->h.later;
    p->sp        = w->h.sp;
    p->ring      = w->h.ring;
    WEFT_GO(copy_whole(p, &w->h));
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
