/* Which device each rank has where layers are pinned to nodes.
 *
 * A search says of each stage which kinds of devices it lies on; kinds are used up in the order in which they come along
 * the pipeline, whole nodes first.  Of a stage on two kinds the first has the rest of one and the beginning of the
 * next.  Then nodes of a kind change places until layers lie where they are pinned. */
#include <string.h>

#include "planner/planner_priv.h"

typedef struct pool {
    int n, next, *device; /* of one kind, in the order they are dealt */
} pool;

/* Devices of kind k that groups of tp can use (weft_search_usable). */
static weft_status fill_pool(const weft_cluster *c, const weft_search_machine *k, int tp,
                             weft_arena *arena, pool *out)
{
    weft_device_run r;
    int             at = 0, most = weft_search_usable(k, tp);
    bool            wide = tp > k->per_node || k->per_node % tp; /* over nodes */
    out->device          = WEFT_ARENA_ARRAY(arena, int, most + 1);
    WEFT_TRY(weft_arena_status(arena));
    for (int part = 0; part < (wide ? 1 : 2); part++)
        for (at = 0; weft_cluster_next_run(c, &at, &r);) {
            if (r.cordoned || r.node - c->node != k->node || r.speed != k->speed ||
                r.link != k->link)
                continue;
            for (int d = r.first, each; d < r.first + r.n; d += each) {
                int in = (d - r.node->first_rank) % r.node->n_device;
                each   = r.node->n_device - in;
                if (each > r.first + r.n - d) each = r.first + r.n - d;
                bool whole = each == r.node->n_device;
                int  take  = whole == !part ? (whole ? each : each / tp * tp) : 0;
                for (int i = 0; i < take && out->n < most; i++)
                    out->device[out->n++] = d + i;
            }
        }
    return WEFT_OK;
}

static int take(pool *p, int want, int *device)
{
    int n = p->n - p->next < want ? p->n - p->next : want;
    memcpy(device, p->device + p->next, sizeof *device * (size_t)n);
    p->next += n;
    return n;
}

/* The kinds of a stage in the order they are dealt: the one that the next stage goes on with comes last. */
static int order_of(const weft_search_choice *x, int stage, int n_kind, int *order)
{
    unsigned now  = x->point.kinds[stage];
    unsigned next = stage + 1 < x->point.pp ? x->point.kinds[stage + 1] : 0;
    int      n    = 0;
    for (int late = 0; late < 2; late++)
        for (int k = 0; k < n_kind; k++)
            if (now >> k & 1 && (int)(next >> k & 1) == late) order[n++] = k;
    return n;
}

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

/* Layers that are pinned to a node come to lie there; the search has cut them so that they share one. */
static weft_status move_nodes(const weft_planner_ask *q, const weft_search_pins *p,
                              const weft_search_choice *x, int S, int *device, int n)
{
    int place;
    for (int i = 0; i < p->n_on; i++) {
        const weft_search_on *on = &p->on[i];
        if (on->node < 0) continue;
        int at =
            weft_cluster_node(q->cluster, device[stage_of(x, on->first) * S], &place);
        if (at != on->node) exchange(q->cluster, at, on->node, device, n);
    }
    for (int i = 0; i < p->n_on; i++)
        for (int s = stage_of(x, p->on[i].first); s <= stage_of(x, p->on[i].last); s++)
            for (int r = s * S; r < (s + 1) * S; r++)
                if (p->on[i].node >= 0 &&
                    weft_cluster_node(q->cluster, device[r], &place) != p->on[i].node)
                    return WEFT_FAIL(WEFT_ERR_ARG,
                                     "layers %d..%d on node %d: another pin has it",
                                     p->on[i].first, p->on[i].last, p->on[i].node);
    return WEFT_OK;
}

weft_status weft_planner__pinned_devices(const weft_planner_ask    *q,
                                         const weft_planner_answer *a,
                                         const weft_search_choice *x, weft_arena *arena,
                                         int **device, int *n)
{
    pool p[WEFT_COST_MAX_DEVICE] = {0};
    int  S  = x->variant.tp * x->variant.cp * x->point.dp, order[WEFT_COST_MAX_DEVICE];
    *n      = S * x->point.pp;
    *device = WEFT_ARENA_ARRAY(arena, int, *n);
    WEFT_TRY(weft_arena_status(arena));
    for (int k = 0; k < a->machines.n; k++)
        WEFT_TRY(
            fill_pool(q->cluster, &a->machines.kind[k], x->variant.tp, arena, &p[k]));
    for (int s = 0; s < x->point.pp; s++) {
        int have = 0, n_kind = order_of(x, s, a->machines.n, order);
        for (int i = 0; i < n_kind; i++)
            have += take(&p[order[i]], S - have, *device + s * S + have);
        if (have < S)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "stage %d has %d of %d devices", s, have,
                             S);
    }
    return move_nodes(q, &a->problem.pins, x, S, *device, *n);
}
