/* Groups over several hosts with several ranks on each: inside the hosts first, through shared
 * memory, then between equals of each host, every one with its part.
 *
 *     host 0    0  1  2  3      home: a row, near
 *     host 1    4  5  6  7      rail: a column, far
 *
 *     all_reduce       home reduce_scatter, rail all_reduce of the share, home all_gather
 *     reduce_scatter   home reduce_scatter of each host's run of shares, rail reduce_scatter
 *     all_gather       rail all_gather, home all_gather of each host's run
 *     broadcast        rail of position 0, then home;   barrier: home, then rail
 *
 * (1) A byte crosses between two hosts once.
 * (2) Runs are subtrees of the sum's tree (weft_exchange_levels), so the bits are those of the
 *     flat form.
 * (3) Whoever fails tells both ends: nobody waits inside a host for one who has given up outside.
 * (4) A rank that others wait for says whom it waits for itself, near or far
 *     (weft_comm_net_family). */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "comm/hosts_priv.h"
#include "comm/net.h"
#include "comm/shm.h"
#include "exchange/exchange.h"

/* ---- opening ---- */

static int missing(const weft_comm_group *g)
{
    weft_comm *near = g->p->near;
    int        i    = near->op->missing ? near->op->missing(near, g->home) : -1;
    return i < 0 ? -1 : g->p->name[i];
}

/* Whom this rank waits for inside the host; asked by the far end, from any thread. */
static int waits_on(void *group)
{
    weft_comm_group *g = group;
    return atomic_load(&g->phase) == HOSTS_NEAR ? missing(g) : -1;
}

/* Under a tag of its own: a group of the same ranks may be open by itself. */
static int own_tag(const weft_comm_group *g, int tag)
{
    uint32_t h = weft_hash_crc32c((uint32_t)tag, g->rank, sizeof *g->rank * (size_t)g->n);
    return (int)(h & 0x3fffffff) | 1 << 30;
}

weft_status weft_comm__levels_open(hosts_pair *p, weft_comm_group *g, int tag)
{
    int         n_host = g->n / g->m, own = own_tag(g, tag), first = g->me / g->m * g->m;
    int         most = g->m > n_host ? g->m : n_host;
    int32_t    *r    = calloc((size_t)most, sizeof *r);
    weft_status st   = WEFT_OK;
    if (!r) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a group");
    for (int i = 0; i < g->m; i++) r[i] = p->near_rank[g->rank[first + i]];
    WEFT_GO(weft_comm_open_group(weft_comm__hosts_current(&p->c, p->near), g->m, r, own,
                                 &g->home));
    for (int h = 0; h < n_host; h++) r[h] = g->rank[h * g->m + g->me % g->m];
    WEFT_GO(weft_comm_open_group(weft_comm__hosts_current(&p->c, p->far), n_host, r, own,
                                 &g->rail));
    weft_comm_net_family(p->far, g->inner, g->rail, waits_on, g);
out:
    free(r);
    return st;
}

/* Where slabs outlive epochs, what an earlier one has left there may not be adopted yet: nothing is
 * allocated by the way. */
static weft_comm *find_shared(const weft_comm_group *g)
{
    weft_comm *shared = weft_comm_shared_end(g->p->near);
    return shared && !weft_comm_shm_kept_slot(shared) ? shared : NULL;
}

void weft_comm__levels_close(weft_comm_group *g)
{
    weft_comm *shared = find_shared(g);
    if (shared)
        weft_comm_shm_free(shared, g->scratch);
    else
        free(g->scratch);
}

static weft_status scratch(weft_comm_group *g, int64_t bytes)
{
    weft_comm *shared = find_shared(g);
    if (g->scratch_bytes >= bytes) return WEFT_OK;
    weft_comm__levels_close(g);
    g->scratch       = NULL;
    g->scratch_bytes = 0;
    if (shared)
        WEFT_TRY(weft_comm_shm_alloc(shared, bytes, (void **)&g->scratch));
    else if (!(g->scratch = malloc((size_t)bytes)))
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    g->scratch_bytes = bytes;
    return WEFT_OK;
}

/* ---- one level ---- */

static weft_comm *go(weft_comm_group *g, hosts_phase where)
{
    g->since_s = weft_clock_s();
    atomic_store(&g->phase, where);
    return weft_comm__hosts_current(&g->p->c,
                                    where == HOSTS_NEAR ? g->p->near : g->p->far);
}

static weft_status run_shares(weft_comm *by, weft_comm_group *inner, weft_collective kind,
                              weft_dtype t, const void *in, void *out, int64_t total,
                              int64_t unit)
{
    return weft_comm_run(
        by, &(weft_comm_call){
                .group  = inner,
                .kind   = kind,
                .dtype  = t,
                .tensor = {.in = in, .out = out, .count = total, .unit = unit}});
}

static weft_status near_shares(weft_comm_group *g, weft_collective kind, weft_dtype t,
                               const void *in, void *out, int64_t total, int64_t unit)
{
    if (!total) return WEFT_OK;
    return run_shares(go(g, HOSTS_NEAR), g->home, kind, t, in, out, total, unit);
}

static weft_status far_shares(weft_comm_group *g, weft_collective kind, weft_dtype t,
                              const void *in, void *out, int64_t total, int64_t unit)
{
    if (!total) return WEFT_OK;
    return run_shares(go(g, HOSTS_FAR), g->rail, kind, t, in, out, total, unit);
}

/* ---- the kinds ---- */

static weft_status all_reduce(weft_comm_group *g, weft_dtype t, const char *in, char *out,
                              int64_t count)
{
    int64_t size = weft_dtype_bytes(t), unit = 64 / size;
    int     i    = g->me % g->m;
    int64_t at   = weft_comm_share_at(count, unit, g->m, i);
    int64_t own  = weft_comm_share_at(count, unit, g->m, i + 1) - at;
    char   *mine = out + at * size;
    WEFT_TRY(near_shares(g, WEFT_REDUCE_SCATTER, t, in, mine, count, unit));
    if (own)
        WEFT_TRY(weft_comm_collective(go(g, HOSTS_FAR), g->rail, WEFT_ALL_REDUCE, t, mine,
                                      mine, own));
    return near_shares(g, WEFT_ALL_GATHER, t, mine, out, count, unit);
}

/* Shares of one host's run, and of this rail, are cut by the same rule: larger ones come first in
 * either. */
typedef struct cut {
    int64_t total, unit;
    int     n;
} cut;

static int64_t at(const cut *x, int k)
{
    return weft_comm_share_at(x->total, x->unit, x->n, k);
}

static int64_t share(const cut *x, int k)
{
    return at(x, k + 1) - at(x, k);
}

static int64_t rail_total(const weft_comm_group *g, const cut *x)
{
    int64_t sum = 0;
    for (int k = g->me % g->m; k < g->n; k += g->m) sum += share(x, k);
    return sum;
}

static weft_status reduce_scatter(weft_comm_group *g, weft_dtype t, const char *in,
                                  char *out, cut x)
{
    int64_t size = weft_dtype_bytes(t), total = rail_total(g, &x);
    WEFT_TRY(scratch(g, total * size + 1));
    char *to = g->scratch;
    for (int k = 0; k < g->n; k += g->m) {
        WEFT_TRY(near_shares(g, WEFT_REDUCE_SCATTER, t, in + at(&x, k) * size, to,
                             at(&x, k + g->m) - at(&x, k), x.unit));
        to += share(&x, k + g->me % g->m) * size;
    }
    return far_shares(g, WEFT_REDUCE_SCATTER, t, g->scratch, out, total, x.unit);
}

static weft_status all_gather(weft_comm_group *g, weft_dtype t, const char *in, char *out,
                              cut x)
{
    int64_t size = weft_dtype_bytes(t), total = rail_total(g, &x);
    WEFT_TRY(scratch(g, total * size + 1));
    WEFT_TRY(far_shares(g, WEFT_ALL_GATHER, t, in, g->scratch, total, x.unit));
    const char *from = g->scratch;
    for (int k = 0; k < g->n; k += g->m) {
        WEFT_TRY(near_shares(g, WEFT_ALL_GATHER, t, from, out + at(&x, k) * size,
                             at(&x, k + g->m) - at(&x, k), x.unit));
        from += share(&x, k + g->me % g->m) * size;
    }
    return WEFT_OK;
}

static weft_status broadcast(weft_comm_group *g, weft_dtype t, const void *in, void *out,
                             int64_t count)
{
    if (g->me % g->m == 0) {
        WEFT_TRY(weft_comm_collective(go(g, HOSTS_FAR), g->rail, WEFT_BROADCAST, t, in,
                                      out, count));
        in = out;
    }
    return weft_comm_collective(go(g, HOSTS_NEAR), g->home, WEFT_BROADCAST, t, in, out,
                                count);
}

static weft_status barrier(weft_comm_group *g)
{
    WEFT_TRY(weft_comm_collective(go(g, HOSTS_NEAR), g->home, WEFT_BARRIER, WEFT_DTYPE_U8,
                                  NULL, NULL, 0));
    return weft_comm_collective(go(g, HOSTS_FAR), g->rail, WEFT_BARRIER, WEFT_DTYPE_U8,
                                NULL, NULL, 0);
}

/* ---- the door ---- */

bool weft_comm__levels_can(const weft_comm_group *g, weft_collective kind, weft_dtype t,
                           int64_t count)
{
    bool pays = weft_exchange_levels_pay(g->m, count * weft_dtype_bytes(t));
    if (!g->m) return false;
    switch (kind) {
    case WEFT_ALL_REDUCE:
    case WEFT_REDUCE_SCATTER:
        return pays && weft_exchange_levels_add(g->m, t == WEFT_DTYPE_BF16);
    case WEFT_ALL_GATHER: return pays;
    case WEFT_BROADCAST:
    case WEFT_BARRIER: return true;
    default: return false;
    }
}

/* One who did not come inside the host may wait itself, for somebody outside: that is asked. */
static weft_status end(weft_comm_group *g, weft_collective kind, weft_status st)
{
    weft_comm *c    = &g->p->c;
    bool       near = atomic_load(&g->phase) == HOSTS_NEAR;
    bool       late = weft_clock_s() - g->since_s >= c->timeout_s;
    int        whom = st == WEFT_ERR_PEER && near && late ? missing(g) : -1;
    char       what[32];
    if (whom >= 0) {
        snprintf(what, sizeof what, "in %s", weft_collective_name(kind));
        (void)weft_comm_net_blame(g->p->far, g->inner, whom, what); /* says it better */
    }
    st = weft_comm__hosts_told(c, st);
    atomic_store(&g->phase, HOSTS_OUT); /* till then others may ask */
    return st;
}

weft_status weft_comm__levels_shares(weft_comm_group *g, weft_collective kind,
                                     weft_dtype t, const void *in, void *out,
                                     int64_t total, int64_t unit)
{
    cut x = {total, unit, g->n};
    return end(g, kind,
               kind == WEFT_ALL_GATHER ? all_gather(g, t, in, out, x)
                                       : reduce_scatter(g, t, in, out, x));
}

weft_status weft_comm__levels_collective(weft_comm_group *g, weft_collective kind,
                                         weft_dtype t, const void *in, void *out,
                                         int64_t count)
{
    if (kind == WEFT_ALL_REDUCE || kind == WEFT_REDUCE_SCATTER)
        WEFT_TRY(weft_comm_sum(t, 1, &(const void *){g}, g, 0)); /* can it be summed? */
    switch (kind) {
    case WEFT_ALL_REDUCE: return end(g, kind, all_reduce(g, t, in, out, count));
    case WEFT_BROADCAST: return end(g, kind, broadcast(g, t, in, out, count));
    case WEFT_BARRIER: return end(g, kind, barrier(g));
    default: break;
    }
    int64_t each = kind == WEFT_ALL_GATHER ? count : count / g->n;
    if (!each) return WEFT_OK;
    return weft_comm__levels_shares(g, kind, t, in, out, each * g->n, each);
}
