/* The network between hosts: a message's latency and the speed of long ones, between neighbours,
 * there and back. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "probe/probe.h"

enum {
    TAG     = 920,
    SMALL   = 64,
    TRIAL   = 256 << 10,
    LARGE   = 8 << 20,
    LEAST   = 512 << 10,
    N_SMALL = 300,
    N_LARGE = 6,
};

static const double LONG_S = 0.25; /* that one long message may take */

typedef struct pair {
    weft_comm         *c;
    weft_comm_channel *to, *from;
    char              *p;
} pair;

/* Half of the least time there and back. */
static weft_status ping(const pair *x, int64_t bytes, int n, double *out)
{
    *out = INFINITY;
    for (int i = 0; i < n; i++) {
        double t0   = weft_clock_s();
        bool   even = x->c->rank % 2 == 0;
        if (even) WEFT_TRY(weft_comm_send(x->c, x->to, x->p, bytes));
        WEFT_TRY(weft_comm_recv(x->c, x->from, x->p, bytes));
        if (!even) WEFT_TRY(weft_comm_send(x->c, x->to, x->p, bytes));
        *out = fmin(*out, (weft_clock_s() - t0) / 2);
    }
    return WEFT_OK;
}

/* Both sides have to agree on how long a long message is. */
static weft_status agree(const pair *x, int64_t *bytes)
{
    bool even = x->c->rank % 2 == 0;
    if (even) return weft_comm_send(x->c, x->to, bytes, sizeof *bytes);
    return weft_comm_recv(x->c, x->from, bytes, sizeof *bytes);
}

static weft_status measure(const pair *x, weft_probe_wire *out)
{
    double  small, trial, large;
    int64_t bytes = LARGE;
    WEFT_TRY(ping(x, SMALL, N_SMALL, &small));
    WEFT_TRY(ping(x, TRIAL, 4, &trial));
    double Bps = TRIAL / fmax(trial - small, 1e-6);
    if (Bps * LONG_S < LARGE)
        bytes = Bps * LONG_S < LEAST ? LEAST : (int64_t)(Bps * LONG_S);
    WEFT_TRY(agree(x, &bytes));
    if (bytes < LEAST || bytes > LARGE)
        return WEFT_FAIL(WEFT_ERR_PEER, "a message of %lld bytes to measure with",
                         (long long)bytes);
    WEFT_TRY(ping(x, bytes, N_LARGE, &large));
    out->alpha_s = small;
    out->Bps     = (double)bytes / fmax(large - small, 1e-9);
    return WEFT_OK;
}

static weft_status measure_pair(weft_comm *c, weft_probe_wire *out)
{
    pair        x    = {.c = c, .p = calloc(1, LARGE)};
    int         peer = c->rank ^ 1;
    weft_status st;
    if (!x.p) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    WEFT_GO(weft_comm_open_channel(c, peer, WEFT_COMM_SEND, TAG + c->rank % 2, LARGE, 1,
                                   &x.to));
    WEFT_GO(weft_comm_open_channel(c, peer, WEFT_COMM_RECV, TAG + peer % 2, LARGE, 1,
                                   &x.from));
    WEFT_GO(measure(&x, out));
out:
    free(x.p);
    return st;
}

static int by_speed(const void *a, const void *b)
{
    double x = ((const weft_probe_wire *)a)->Bps, y = ((const weft_probe_wire *)b)->Bps;
    return (x > y) - (x < y);
}

weft_status weft_probe_between(weft_comm *c, weft_probe_wire *out)
{
    weft_comm_group *g;
    weft_probe_wire  mine = {0};
    weft_status      st   = WEFT_OK;
    int              n    = c->world;
    int32_t         *rank = calloc((size_t)n, sizeof *rank);
    weft_probe_wire *all  = calloc((size_t)n, sizeof *all);
    if (!rank || !all) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    for (int i = 0; i < n; i++) rank[i] = i;
    WEFT_GO(weft_comm_open_group(c, n, rank, TAG, &g));
    if ((c->rank | 1) < n) WEFT_GO(measure_pair(c, &mine));
    WEFT_GO(weft_comm_collective(c, g, WEFT_ALL_GATHER, WEFT_DTYPE_F64, &mine, all,
                                 sizeof mine / sizeof(double)));
    n -= n % 2; /* the last of an odd number has nobody */
    for (int i = 0; i < n; i += 2) all[i / 2] = all[i]; /* as the even one saw it */
    qsort(all, (size_t)n / 2, sizeof *all, by_speed);
    *out = all[n / 4];
out:
    free(rank);
    free(all);
    return st;
}

weft_status weft_probe_hosts(const weft_cluster *host, int n_host,
                             const weft_probe_wire *w, weft_cluster **out)
{
    weft_cluster    all  = *host;
    weft_link_kind *link = calloc((size_t)host->n_link + 1, sizeof *link);
    weft_host_kind  node = {0};
    weft_status     st   = WEFT_OK;
    if (!link) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    if (host->n_node != 1 || host->node[0].count != 1 || host->node[0].net >= 0)
        WEFT_GO(
            WEFT_FAIL(WEFT_ERR_ARG, "this is not one host by itself: %s", host->name));
    if (host->n_link) memcpy(link, host->link, sizeof *link * (size_t)host->n_link);
    link[host->n_link] = (weft_link_kind){.name    = "net",
                                          .scope   = WEFT_LINK_NET,
                                          .alpha_s = w->alpha_s,
                                          .Bps     = w->Bps,
                                          .share   = 1,
                                          .source = "measured by weft cluster calibrate"};
    node               = host->node[0];
    node.count         = n_host;
    node.net           = host->n_link;
    node.n_port        = 1;
    all.link           = link;
    all.n_link++;
    all.node = &node;
    st       = weft_cluster_copy(&all, out);
out:
    free(link);
    return st;
}
