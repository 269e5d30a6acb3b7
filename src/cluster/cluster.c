/* Questions about a cluster: which device, which link. */
#include "cluster/cluster.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

void weft_cluster_destroy(weft_cluster *c)
{
    if (c) weft_arena_destroy(c->arena);
}

int weft_cluster_count(const weft_cluster *c)
{
    int n = 0;
    for (int i = 0; i < c->n_node; i++) n += c->node[i].count * c->node[i].n_device;
    return n;
}

/* The node kind of a rank, and which node (counted over all kinds) it is in. */
static const weft_host_kind *find_node(const weft_cluster *c, int rank, int *which)
{
    *which = 0;
    if (rank < 0) return NULL;
    for (int i = 0; i < c->n_node; i++) {
        const weft_host_kind *k = &c->node[i];
        int                   n = k->count * k->n_device;
        if (rank < n) {
            *which += rank / k->n_device;
            return k;
        }
        rank -= n;
        *which += k->count;
    }
    return NULL;
}

const weft_device_kind *weft_cluster_device(const weft_cluster *c, int rank)
{
    int                   which;
    const weft_host_kind *k = find_node(c, rank, &which);
    return k ? &c->device[k->device] : NULL;
}

const weft_link_kind *weft_cluster_link(const weft_cluster *c, int a, int b)
{
    int                   node_a, node_b;
    const weft_host_kind *ka = find_node(c, a, &node_a), *kb = find_node(c, b, &node_b);
    if (!ka || !kb) return NULL;
    int link = node_a == node_b ? ka->link : c->net;
    return link < 0 ? NULL : &c->link[link];
}

double weft_cluster_flops(const weft_device_kind *d, const char *dtype)
{
    double f32 = 0;
    for (int i = 0; i < d->n_rate; i++) {
        if (!strcmp(d->rate[i].dtype, dtype)) return d->rate[i].flops;
        if (!strcmp(d->rate[i].dtype, "f32")) f32 = d->rate[i].flops;
    }
    return f32;
}

/* ---- verify ---- */

static bool positive(double x)
{
    return isfinite(x) && x > 0;
}

/* 0: not known. */
static bool share(double x)
{
    return x >= 0 && x <= 1;
}

static weft_status check_device(const weft_cluster *c, const weft_device_kind *d)
{
    bool good = d->n_rate > 0 && d->efficiency > 0 && d->efficiency <= 1 &&
                positive(d->mem_Bps) && d->mem_bytes > 0 && isfinite(d->launch_s) &&
                d->launch_s >= 0;
    for (int i = 0; i < d->n_rate; i++)
        good = good && positive(d->rate[i].flops) && share(d->rate[i].efficiency);
    good = good && share(d->attention) && share(d->stream) && isfinite(d->half_size) &&
           d->half_size >= 0;
    if (good) return WEFT_OK;
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "cluster %s, device %s: flops, mem_Bps and mem_bytes are to be above 0, "
        "efficiency in (0,1], launch_s at least 0, the curve's shares in [0,1]",
        c->name, d->name);
}

static weft_status check_node(const weft_cluster *c, const weft_host_kind *k)
{
    if (k->count < 1 || k->n_device < 1 || (int64_t)k->count * k->n_device > 1 << 24)
        return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s: %d nodes %s of %d devices", c->name,
                         k->count, k->name, k->n_device);
    if (k->device < 0 || k->device >= c->n_device || k->link >= c->n_link)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "cluster %s: node %s names no known device or link", c->name,
                         k->name);
    if (k->link < 0 && k->n_device > 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s: node %s has %d devices and no link",
                         c->name, k->name, k->n_device);
    return WEFT_OK;
}

weft_status weft_cluster_verify(const weft_cluster *c)
{
    int n = 0;
    for (int i = 0; i < c->n_device; i++) WEFT_TRY(check_device(c, &c->device[i]));
    for (int i = 0; i < c->n_link; i++)
        if (!positive(c->link[i].Bps) || !isfinite(c->link[i].alpha_s) ||
            c->link[i].alpha_s < 0)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "cluster %s, link %s: Bps is to be above 0, alpha_s at least 0", c->name,
                c->link[i].name);
    for (int i = 0; i < c->n_node; i++) {
        WEFT_TRY(check_node(c, &c->node[i]));
        n += c->node[i].count;
        if (n > 1 << 24)
            return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s has more than 2^24 nodes",
                             c->name);
    }
    if (!n) return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s has no nodes", c->name);
    if (n > 1 && (c->net < 0 || c->net >= c->n_link))
        return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s has %d nodes and no net between them",
                         c->name, n);
    return WEFT_OK;
}
