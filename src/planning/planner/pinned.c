/* Which device each rank has where layers are constrained to nodes: devices are dealt as for any
 * choice, then nodes of a kind change places until layers lie where they are constrained. */
#include "planner/placement.h"
#include "planner/planner_priv.h"

/* The stage that holds a layer. */
static int stage_of(const weft_search_choice *x, int layer)
{
    int s = 0, end = x->point.cut[0];
    while (s + 1 < x->point.pp && layer >= end) end += x->point.cut[++s];
    return s;
}

/* Nodes a and b, which are of one kind, change places. */
static void exchange(const weft_cluster *c, int a, int b, int *device, int n)
{
    for (int i = 0; i < n; i++) {
        int place, node = weft_cluster_node(c, device[i], &place);
        int to = node == a ? b : node == b ? a : node, host = 0;
        while (host + 1 < c->n_node && to >= c->node[host + 1].first_node) host++;
        const weft_host_kind *k = &c->node[host];
        device[i] = k->first_rank + (to - k->first_node) * k->n_device + place;
    }
}

/* Layers that are constrained to a node are placed there; the search has cut them so that they
 * share one. */
static weft_status move_nodes(const weft_planner_workspace  *w,
                              const weft_search_constraints *p,
                              const weft_search_choice *x, int S, int *device, int n)
{
    int place;
    for (int i = 0; i < p->n_on; i++) {
        const weft_search_on *on = &p->on[i];
        if (on->node < 0) continue;
        int at = weft_cluster_node(w->request.cluster, device[stage_of(x, on->first) * S],
                                   &place);
        if (at != on->node) exchange(w->request.cluster, at, on->node, device, n);
    }
    for (int i = 0; i < p->n_on; i++)
        for (int s = stage_of(x, p->on[i].first); s <= stage_of(x, p->on[i].last); s++)
            for (int r = s * S; r < (s + 1) * S; r++)
                if (p->on[i].node >= 0 && weft_cluster_node(w->request.cluster, device[r],
                                                            &place) != p->on[i].node)
                    return WEFT_FAIL(
                        WEFT_ERR_ARG,
                        "layers %d..%d on node %d: another constraint has it",
                        p->on[i].first, p->on[i].last, p->on[i].node);
    return WEFT_OK;
}

weft_status weft_planner__pinned_devices(const weft_planner_workspace *w,
                                         const weft_search_choice *x, weft_arena *arena,
                                         int **device, int *n)
{
    int S   = x->variant.tp * x->variant.cp * x->point.dp;
    *n      = S * x->point.pp;
    *device = WEFT_ARENA_ARRAY(arena, int, *n);
    WEFT_TRY(weft_arena_status(arena));
    WEFT_TRY(weft_planner_deal(&w->problem, x, w->request.cluster, arena, *device));
    return move_nodes(w, &w->problem.constraints, x, S, *device, *n);
}
