/* Some devices of a cluster, in an order of the caller's, as a cluster of their own. */
#include "cluster/cluster_priv.h"

/* Devices first .. first + n of the list lie in one node. */
typedef struct run {
    int first, n, node, kind;
} run;

static int kind_of(const weft_cluster *c, int node)
{
    int k = 0;
    while (k + 1 < c->n_node && node >= c->node[k + 1].first_node) k++;
    return k;
}

static run run_from(const weft_cluster *c, const int *device, int n, int first)
{
    int place;
    run r  = {.first = first, .node = weft_cluster_node(c, device[first], &place)};
    r.kind = kind_of(c, r.node);
    while (first + r.n < n &&
           weft_cluster_node(c, device[first + r.n], &place) == r.node &&
           r.n < c->node[r.kind].n_device)
        r.n++;
    return r;
}

static weft_status add_health(const weft_cluster *c, const int *device, const run *r,
                              int node, weft_cluster *out)
{
    for (int i = 0; i < r->n; i++) {
        const weft_health *h = weft_cluster__health_of(c, device[r->first + i]);
        if (!h) continue;
        weft_health x = *h;
        x.node        = node;
        x.n_node      = 1;
        x.device      = i;
        WEFT_TRY(weft_cluster__add_health(out, &x));
    }
    return WEFT_OK;
}

static weft_status add_nodes(const weft_cluster *c, const int *device, int n,
                             weft_cluster *out)
{
    int node = 0, last = -1;
    for (int at = 0; at < n; node++) {
        run r = run_from(c, device, n, at);
        if (last == r.kind && out->node[out->n_node - 1].n_device == r.n) {
            out->node[out->n_node - 1].count++;
        } else {
            weft_host_kind k = c->node[r.kind];
            k.count          = 1;
            k.n_device       = r.n;
            if (r.n == 1) k.link = -1;
            k.name = weft_arena_printf(out->arena, "%s.%d", k.name, out->n_node);
            WEFT_TRY(weft_arena_status(out->arena));
            WEFT_TRY(weft_cluster__add_node(out, &k));
        }
        last = r.kind;
        WEFT_TRY(add_health(c, device, &r, node, out));
        at += r.n;
    }
    return WEFT_OK;
}

weft_status weft_cluster_pick(const weft_cluster *c, const int *device, int n,
                              weft_cluster **out)
{
    weft_cluster *p  = NULL;
    weft_status   st = WEFT_OK;
    for (int i = 0; i < n; i++)
        if (device[i] < 0 || device[i] >= weft_cluster_count(c))
            return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s has no device %d", c->name,
                             device[i]);
    WEFT_TRY(weft_cluster__copy(c, &p));
    p->n_node = p->n_health = 0;
    p->node                 = NULL;
    p->health               = NULL;
    WEFT_GO(add_nodes(c, device, n, p));
    WEFT_GO(weft_cluster__freeze(p));
    *out = p;
    p    = NULL;
out:
    weft_cluster_destroy(p);
    return st;
}
