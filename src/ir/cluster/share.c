/* Ranks that share a device: "share node 0 ranks 4".
 *
 * The device's time is shared out: while k of them work each takes k times as long
 * (oversubscription), and the turns that contexts of a GPU take cost some of it.  Each gets its
 * part of the memory.  They reach each other's memory, so that what crosses their link is read and
 * written there: an all-reduce of S bytes over n ranks reads n S and writes n S, in one kernel a
 * rank between two meetings. */
#include <stdio.h>
#include <string.h>

#include "cluster/cluster_priv.h"

enum {
    MOST_RANKS = 16
};

/* Measured on an H200, two ranks (test_cuda_comm peer speed): an all_reduce of 1 MB 43 us, most of
 * it two meetings of two processes; of 256 MB 0.35 ms, 72 % of what copies reach. */
static const double meeting_s = 20e-6, sum_share = 0.72;
/* A turn lasts 2 ms, and the next context's begins 0.14 ms later: two processes that wait for each
 * other's kernels take 0.28 ms a round, and 2.3 ms where one keeps its turn. */
static const double turn_s = 2e-3, switch_s = 0.14e-3;

static weft_status check_device(const weft_cluster *c, const weft_host_kind *k, int node,
                                int ranks)
{
    if (ranks < 2 || ranks > MOST_RANKS)
        return WEFT_FAIL(WEFT_ERR_ARG, "2 to %d ranks can share a device, not %d",
                         MOST_RANKS, ranks);
    if (k->count != 1 || k->n_device != 1)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "cluster %s, node %d: ranks share the one device of a kind of "
                         "node that is there once; this one is %d nodes of %d",
                         c->name, node, k->count, k->n_device);
    for (int i = 0; i < c->n_node; i++)
        if (&c->node[i] != k && c->node[i].device == k->device)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "cluster %s, node %d: node %s has the same device kind and is not "
                "shared: give its device another name",
                c->name, node, c->node[i].name);
    return WEFT_OK;
}

/* The memory as a link. */
static weft_status add_memory_link(weft_cluster *c, const weft_device_kind *d, int ranks,
                                   int *out)
{
    weft_link_measured of[MOST_RANKS];
    char               name[128];
    double             sums = d->mem_Bps * (d->stream > 0 ? d->stream : 1) * sum_share;
    snprintf(name, sizeof name, "%.100s-memory", d->name);
    for (int n = 2; n <= ranks; n++)
        of[n - 2] = (weft_link_measured){n, 2 * meeting_s, sums * (n - 1) / n / n};
    weft_link_kind l = {.name       = name,
                        .scope      = WEFT_LINK_NODE,
                        .alpha_s    = meeting_s,
                        .Bps        = sums / 2,
                        .share      = 1,
                        .n_measured = ranks - 1,
                        .measured   = of,
                        .source     = "the device's memory, read and written by kernels"};
    return weft_cluster__add_link(c, &l, out);
}

weft_status weft_cluster__share_device(weft_cluster *c, int node, int ranks)
{
    weft_host_kind *k = NULL;
    for (int i = 0, first = 0; i < c->n_node; first += c->node[i++].count)
        if (node >= first && node < first + c->node[i].count) k = &c->node[i];
    if (!k) return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s has no node %d", c->name, node);
    WEFT_TRY(check_device(c, k, node, ranks));
    weft_device_kind *d = &c->device[k->device];
    WEFT_TRY(add_memory_link(c, d, ranks, &k->link));
    d->mem_bytes /= ranks;
    k->n_device           = ranks;
    k->n_oversubscription = ranks;
    k->oversubscription   = WEFT_ARENA_ARRAY(c->arena, double, ranks);
    WEFT_TRY(weft_arena_status(c->arena));
    for (int i = 0; i < ranks; i++)
        k->oversubscription[i] = (i + 1) * (i ? 1 + switch_s / turn_s : 1);
    for (int i = 0; i < c->n_health; i++)
        if (c->health[i].node == node) c->health[i].device = -1; /* it is one device */
    return WEFT_OK;
}
