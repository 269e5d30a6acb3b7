/* Forward programs beside a training program: the same parameters, sharded alike. */
#include <string.h>

#include "compile/compile_priv.h"

/* The value of the forward graph that a mark is for: the one of its name, or where that is a copy
 * in the training graph, the parameter's; NULL: none. */
static const char *find_marked(const weft_compile__request *q, const char *name)
{
    const weft_graph *g = q->beside ? q->beside->graph : NULL;
    if (weft_graph_find(q->graph, name) >= 0) return name;
    weft_vid v = g ? weft_graph_find(g, name) : -1;
    if (v < 0 || g->value[v].copy_of < 0) return NULL;
    name = g->value[g->value[v].copy_of].name;
    return weft_graph_find(q->graph, name) >= 0 ? name : NULL;
}

static bool says(const weft_plan *p, const char *name, int axis)
{
    for (int i = 0; i < p->n_mark; i++)
        for (int k = 0; k < p->mark[i].layout.n; k++)
            if (!strcmp(p->mark[i].name, name) && p->mark[i].layout.split[k].axis == axis)
                return true;
    return false;
}

weft_status weft_compile__forward_marks(const weft_compile__request *q, weft_arena *a,
                                        weft_plan *out)
{
    const weft_plan     *p   = q->plan;
    const weft_graph    *g   = q->graph;
    const weft_compiled *b   = q->beside;
    int                  cap = p->n_mark + g->n_value * WEFT_MAX_AXIS + 1;
    out->mark                = WEFT_ARENA_ARRAY(a, weft_mark, cap);
    out->n_mark              = 0;
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < p->n_mark; i++) {
        const char *name = find_marked(q, p->mark[i].name);
        if (!name) continue;
        out->mark[out->n_mark]        = p->mark[i];
        out->mark[out->n_mark++].name = name;
    }
    for (weft_vid v = 0; v < g->n_value && b && b->sharding; v++) {
        weft_vid t = weft_graph_find(b->graph, g->value[v].name);
        if (g->value[v].kind != WEFT_VALUE_PARAM || t < 0) continue;
        const weft_layout *l = &b->sharding->value[t];
        for (int k = 0; k < l->n; k++) {
            weft_split x = l->split[k];
            if (weft_plan_copies(p) > 1)
                x.axis = (int8_t)weft_shard_axis_before(p->lane_axis, x.axis);
            if (says(out, g->value[v].name, x.axis)) continue;
            bool       lane    = x.axis == p->lane_axis;
            weft_mark *m       = &out->mark[out->n_mark++];
            *m                 = (weft_mark){.name     = g->value[v].name,
                                             .value    = -1,
                                             .layout   = weft_layout_replicated(0, l->n_dim),
                                             .open     = (1u << l->n_dim) - 1,
                                             .rest     = lane,
                                             .priority = lane};
            m->layout.split[0] = x;
            m->layout.n        = 1;
        }
    }
    return weft_arena_status(a);
}

weft_status weft_compile__same_parts(const weft_compiled *beside, const weft_graph *g,
                                     const weft_sharding *sharding)
{
    for (weft_vid v = 0; v < g->n_value; v++) {
        const char *name = g->value[v].name;
        weft_vid    t    = weft_graph_find(beside->graph, name);
        if (g->value[v].kind != WEFT_VALUE_PARAM || t < 0) continue;
        if (!weft_layout_equal(&sharding->value[v], &beside->sharding->value[t]))
            return WEFT_FAIL(WEFT_ERR_INTERNAL,
                             "evaluation: %s is sharded otherwise than in training",
                             name);
    }
    return WEFT_OK;
}
