/* Questions about devices. */
#include "cluster/cluster.h"

#include <math.h>
#include <string.h>

#include "cluster/cluster_priv.h"

int weft_cluster_count(const weft_cluster *c)
{
    int n = 0;
    for (int i = 0; i < c->n_node; i++) n += c->node[i].count * c->node[i].n_device;
    return n;
}

int weft_cluster_n_node(const weft_cluster *c)
{
    int n = 0;
    for (int i = 0; i < c->n_node; i++) n += c->node[i].count;
    return n;
}

const weft_host_kind *weft_cluster__kind_of_node(const weft_cluster *c, int node)
{
    for (int i = c->n_node - 1; i >= 0; i--)
        if (node >= c->node[i].first_node)
            return node < c->node[i].first_node + c->node[i].count ? &c->node[i] : NULL;
    return NULL;
}

/* The node kind of a rank; NULL when there is none. */
static const weft_host_kind *kind_of_rank(const weft_cluster *c, int rank)
{
    for (int i = 0; rank >= 0 && i < c->n_node; i++) {
        const weft_host_kind *k = &c->node[i];
        if (rank < k->first_rank + k->count * k->n_device) return k;
    }
    return NULL;
}

const weft_device_kind *weft_cluster_device(const weft_cluster *c, int rank)
{
    const weft_host_kind *k = kind_of_rank(c, rank);
    return k ? &c->device[k->device] : NULL;
}

int weft_cluster_node(const weft_cluster *c, int rank, int *place)
{
    const weft_host_kind *k = kind_of_rank(c, rank);
    if (!k) return -1;
    int at = rank - k->first_rank;
    if (place) *place = at % k->n_device;
    return k->first_node + at / k->n_device;
}

static bool begins_with(const weft_device_kind *d, const char *const *begins, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strncmp(d->name, begins[i], strlen(begins[i]))) return true;
    return false;
}

bool weft_cluster_is_cpu(const weft_device_kind *d)
{
    static const char *const begins[] = {"cpu", "epyc-", "xeon-"};
    return begins_with(d, begins, WEFT_COUNT(begins));
}

bool weft_cluster_is_hopper(const weft_device_kind *d)
{
    static const char *const begins[] = {"h100", "h200", "h800", "h20-", "gh200"};
    return begins_with(d, begins, WEFT_COUNT(begins));
}

bool weft_cluster_is_cuda(const weft_cluster *c)
{
    for (int i = 0; i < c->n_node; i++)
        if (strcmp(c->device[c->node[i].device].vendor, "nvidia")) return false;
    return c->n_node > 0;
}

int64_t weft_cluster_usable_bytes(const weft_device_kind *d)
{
    if (weft_cluster_is_cpu(d)) return d->mem_bytes;
    return (int64_t)((1 - WEFT_CLUSTER_MEM_RESERVE) * (double)d->mem_bytes);
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

/* ---- runs ---- */

const weft_health *weft_cluster__health_of(const weft_cluster *c, int rank)
{
    int lo = 0, hi = c->n_health; /* the first entry that ends behind rank */
    while (lo < hi) {
        int                mid = lo + (hi - lo) / 2;
        const weft_health *h   = &c->health[mid];
        if (h->first_rank + h->n_rank <= rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < c->n_health && c->health[lo].first_rank <= rank ? &c->health[lo] : NULL;
}

/* The first rank behind which health changes, at most end. */
static int health_ends(const weft_cluster *c, int rank, int end)
{
    const weft_health *h = weft_cluster__health_of(c, rank);
    if (h) return h->first_rank + h->n_rank < end ? h->first_rank + h->n_rank : end;
    int lo = 0, hi = c->n_health;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (c->health[mid].first_rank <= rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < c->n_health && c->health[lo].first_rank < end ? c->health[lo].first_rank
                                                              : end;
}

bool weft_cluster_next_run(const weft_cluster *c, int *at, weft_device_run *out)
{
    const weft_host_kind *k = kind_of_rank(c, *at);
    if (!k) return false;
    const weft_health *h = weft_cluster__health_of(c, *at);
    *out = (weft_device_run){.first = *at, .device = &c->device[k->device], .node = k};
    out->speed    = h ? h->speed : 1;
    out->link     = h ? h->link : 1;
    out->cordoned = h && h->cordoned;
    *at           = health_ends(c, *at, k->first_rank + k->count * k->n_device);
    out->n        = *at - out->first;
    return true;
}

int weft_cluster_usable(const weft_cluster *c)
{
    int n = weft_cluster_count(c);
    for (int i = 0; i < c->n_health; i++)
        if (c->health[i].cordoned) n -= c->health[i].n_rank;
    return n;
}
