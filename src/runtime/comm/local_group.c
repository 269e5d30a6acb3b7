/* Groups of threads as ranks: collectives read and write each other's memory directly.
 *
 * A collective is: come (leave pointers, wait for all), do one's share, leave (wait for all).
 * Sums: position k owns the k-th slice, adds it out of all inputs and stores it into all outputs;
 * no other rank touches that slice, so in == out is safe. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/local_priv.h"

void weft_comm__local_free_group(local_group *g)
{
    if (!g) return;
    weft_comm__local_gate_fini(&g->g);
    free(g->rank);
    free(g->member);
    free(g->in);
    free(g);
}

static weft_status group_create(int n, const int32_t *rank, int tag, local_group **out)
{
    local_group *g = calloc(1, sizeof *g);
    if (!g || weft_comm__local_gate_init(&g->g)) {
        free(g);
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    g->n      = n;
    g->tag    = tag;
    g->rank   = malloc(sizeof *rank * (size_t)n);
    g->member = calloc((size_t)n, sizeof *g->member);
    g->in     = calloc((size_t)n * (size_t)n, sizeof *g->in);
    if (!g->rank || !g->member || !g->in) {
        weft_comm__local_free_group(g);
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    memcpy(g->rank, rank, sizeof *rank * (size_t)n);
    *out = g;
    return WEFT_OK;
}

static weft_status find_group(weft_comm *c, int n, const int32_t *rank, int tag,
                              uint32_t instance, local_group **out)
{
    weft_comm_local *w  = c->impl;
    weft_status      st = WEFT_OK;
    pthread_mutex_lock(&w->lock);
    for (local_group *g = w->group; g; g = g->next)
        if (g->n == n && g->tag == tag && g->instance == instance &&
            !memcmp(g->rank, rank, sizeof *rank * (size_t)n)) {
            *out = g;
            goto out;
        }
    WEFT_GO(group_create(n, rank, tag, out));
    (*out)->instance = instance;
    (*out)->next     = w->group;
    w->group         = *out;
out:
    pthread_mutex_unlock(&w->lock);
    return st;
}

weft_status weft_comm__local_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                        uint32_t instance, weft_comm_group **out)
{
    weft_comm_local *w = c->impl;
    weft_comm_group *g = calloc(1, sizeof *g);
    if (!g) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    weft_status st = find_group(c, n, rank, tag, instance, &g->at);
    if (st != WEFT_OK) {
        free(g);
        return st;
    }
    pthread_mutex_lock(&w->lock);
    g->next   = w->handle;
    w->handle = g;
    pthread_mutex_unlock(&w->lock);
    *out = g;
    return WEFT_OK;
}

/* The last member to close frees it. */
weft_status weft_comm__local_close_group(weft_comm *c, weft_comm_group *g)
{
    weft_comm_local  *w  = c->impl;
    local_group      *at = g->at;
    weft_comm_group **h  = &w->handle;
    pthread_mutex_lock(&w->lock);
    while (*h != g) h = &(*h)->next;
    *h = g->next;
    free(g);
    if (++at->n_closed == at->n) {
        local_group **x = &w->group;
        while (*x != at) x = &(*x)->next;
        *x = at->next;
        weft_comm__local_free_group(at);
    }
    pthread_mutex_unlock(&w->lock);
    return WEFT_OK;
}

static weft_status late_member(const weft_comm *c, const local_group *g, const char *what)
{
    int late = 0;
    while (late < g->n - 1 && g->member[late].here) late++;
    return WEFT_FAIL(WEFT_ERR_PEER,
                     "rank %d is silent: rank %d waited %g s in %s (tag %d)",
                     weft_comm_name(c, g->rank[late]), weft_comm_name(c, c->rank),
                     c->timeout_s, what, g->tag);
}

static weft_status wait_turn(weft_comm *c, local_group *g, const char *what,
                             double deadline)
{
    int64_t turn = g->turn;
    while (g->turn == turn) {
        WEFT_TRY(weft_comm__local_check(c));
        if (g->epoch > c->epoch)
            return WEFT_FAIL(WEFT_ERR_PEER,
                             "rank %d is of epoch %u, the group is of epoch %u", c->rank,
                             c->epoch, g->epoch);
        if (!weft_comm__local_gate_wait(&g->g, deadline) && g->turn == turn)
            return late_member(c, g, what);
    }
    return WEFT_OK;
}

/* All come together; the last one opens the door.  No rank passes it with one that has given up
 * waiting.  Called with the lock held. */
static weft_status meet(weft_comm *c, local_group *g, int me, const char *what,
                        double deadline)
{
    local_member *m = &g->member[me];
    m->here         = true;
    m->left         = false;
    if (++g->n_here < g->n) {
        weft_status st = wait_turn(c, g, what, deadline);
        if (st != WEFT_OK && m->here) { /* no newer epoch has sent it away */
            m->left = true;
            g->n_here--;
        }
        return st;
    }
    g->n_here = 0;
    for (int i = 0; i < g->n; i++) g->member[i].here = false;
    g->turn++;
    pthread_cond_broadcast(&g->g.moved);
    return WEFT_OK;
}

/* All have come, and each does its share now. */
static weft_status meet_to_work(weft_comm *c, local_group *g, int me, const char *what,
                                double deadline)
{
    bool last = g->n_here == g->n - 1;
    WEFT_TRY(meet(c, g, me, what, deadline));
    if (last) g->n_busy = g->n;
    return WEFT_OK;
}

/* After its share.  Also where the call fails a member goes only when all have done theirs, which
 * takes no peer's help: from then on no rank touches its memory. */
static weft_status leave(weft_comm *c, local_group *g, int me, const char *what,
                         double deadline)
{
    if (!--g->n_busy) pthread_cond_broadcast(&g->g.moved);
    weft_status st = meet(c, g, me, what, deadline);
    while (g->n_busy) pthread_cond_wait(&g->g.moved, &g->g.lock);
    return st;
}

/* The same with shares of different sizes: count is that of the whole. */
static weft_status do_unequal(local_group *g, int me, weft_collective kind, weft_dtype t,
                              int64_t total, int64_t unit)
{
    size_t       size = (size_t)weft_dtype_bytes(t);
    const void **in   = g->in + (size_t)me * (size_t)g->n;
    char        *out  = g->member[me].out;
    for (int k = 0; k < g->n; k++) {
        bool    sum = kind == WEFT_REDUCE_SCATTER;
        int64_t lo  = weft_comm_share_at(total, unit, g->n, sum ? me : k);
        int64_t n   = weft_comm_share_at(total, unit, g->n, k + 1) - lo;
        in[k]       = (const char *)g->member[k].in + (size_t)lo * size;
        if (!sum && n && out + (size_t)lo * size != g->member[k].in)
            memcpy(out + (size_t)lo * size, g->member[k].in, (size_t)n * size);
    }
    if (kind == WEFT_ALL_GATHER) return WEFT_OK;
    return weft_comm_sum(t, g->n, in, out,
                         weft_comm_share_at(total, unit, g->n, me + 1) -
                             weft_comm_share_at(total, unit, g->n, me));
}

/* Sums of several terms a member. */
static weft_status do_lanes(local_group *g, int me, weft_collective kind, weft_dtype t,
                            int64_t count, int64_t unit, const weft_comm_lanes *l)
{
    size_t          size = (size_t)weft_dtype_bytes(t);
    char           *out  = g->member[me].out;
    int64_t         lo = me * count / g->n, hi = (me + 1) * count / g->n;
    bool            all = kind == WEFT_ALL_REDUCE;
    weft_comm_terms x;
    WEFT_TRY(weft_comm_terms_of(l, g->n, &x));
    if (!all) {
        lo = unit ? weft_comm_share_at(count, unit, g->n, me) : count / g->n * me;
        hi = unit ? weft_comm_share_at(count, unit, g->n, me + 1) : lo + count / g->n;
    }
    if (lo >= hi) return WEFT_OK;
    for (int i = 0; i < x.n; i++)
        x.in[i] = (const char *)g->member[x.who[i]].in +
                  (size_t)(lo + x.which[i] * l->stride) * size;
    if (all) out += (size_t)lo * size;
    WEFT_TRY(weft_comm_sum_levels(t, x.n, x.in, x.level, out, hi - lo));
    for (int k = 0; k < g->n && all; k++)
        if (k != me)
            memcpy((char *)g->member[k].out + (size_t)lo * size, out,
                   (size_t)(hi - lo) * size);
    return WEFT_OK;
}

/* What each position does between coming and leaving. */
static weft_status do_share(local_group *g, int me, weft_collective kind, weft_dtype t,
                            int64_t count)
{
    size_t       size = (size_t)weft_dtype_bytes(t);
    const void **in   = g->in + (size_t)me * (size_t)g->n;
    char        *out  = g->member[me].out;
    int64_t share = count / g->n, lo = me * count / g->n, hi = (me + 1) * count / g->n;
    switch (kind) {
    case WEFT_ALL_REDUCE:
        if (lo == hi) return WEFT_OK;
        for (int k = 0; k < g->n; k++)
            in[k] = (const char *)g->member[k].in + (size_t)lo * size;
        WEFT_TRY(weft_comm_sum(t, g->n, in, out + (size_t)lo * size, hi - lo));
        for (int k = 0; k < g->n; k++)
            if (k != me)
                memcpy((char *)g->member[k].out + (size_t)lo * size,
                       out + (size_t)lo * size, (size_t)(hi - lo) * size);
        return WEFT_OK;
    case WEFT_REDUCE_SCATTER:
        for (int k = 0; k < g->n; k++)
            in[k] = (const char *)g->member[k].in + (size_t)(me * share) * size;
        return weft_comm_sum(t, g->n, in, out, share);
    case WEFT_ALL_GATHER:
        for (int k = 0; k < g->n; k++)
            memcpy(out + (size_t)(k * count) * size, g->member[k].in,
                   (size_t)count * size);
        return WEFT_OK;
    case WEFT_ALL_TO_ALL:
        for (int k = 0; k < g->n; k++)
            memcpy(out + (size_t)(k * share) * size,
                   (const char *)g->member[k].in + (size_t)(me * share) * size,
                   (size_t)share * size);
        return WEFT_OK;
    case WEFT_BROADCAST:
        if (out != g->member[0].in) memcpy(out, g->member[0].in, (size_t)count * size);
        return WEFT_OK;
    case WEFT_SHIFT:
        memcpy(out, g->member[(me + g->n - 1) % g->n].in, (size_t)count * size);
        return WEFT_OK;
    default: break;
    }
    return WEFT_OK;
}

static weft_status come(weft_comm *c, local_group *g, int me, weft_collective kind,
                        weft_dtype t, int64_t count, const weft_comm_lanes *l)
{
    weft_comm_lanes one = {0};
    if (!l) l = &one;
    WEFT_TRY(weft_comm__local_check(c));
    if (c->epoch < g->epoch)
        return WEFT_FAIL(WEFT_ERR_PEER,
                         "rank %d is of epoch %u, the group is of epoch %u", c->rank,
                         c->epoch, g->epoch);
    if (c->epoch > g->epoch) { /* who came in an older epoch no longer counts */
        g->epoch  = c->epoch;
        g->n_here = 0;
        for (int i = 0; i < g->n; i++) g->member[i].here = false;
        pthread_cond_broadcast(&g->g.moved);
    }
    if (!g->n_here) {
        for (int i = 0; i < g->n; i++) g->member[i].here = false; /* who left */
        g->kind  = kind;
        g->dtype = t;
        g->count = count;
        g->lanes = *l;
        g->dealt = weft_comm_dealt(l, g->n);
    }
    if (g->kind != kind || g->dtype != t || g->count != count)
        return WEFT_FAIL(
            WEFT_ERR_ARG, "rank %d calls %s of %lld %s where another calls %s of %lld %s",
            weft_comm_name(c, g->rank[me]), weft_collective_name(kind), (long long)count,
            weft_dtype_name(t), weft_collective_name(g->kind), (long long)g->count,
            weft_dtype_name(g->dtype));
    if (g->lanes.n_lane != l->n_lane || g->lanes.stride != l->stride ||
        g->dealt != weft_comm_dealt(l, g->n))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "rank %d calls %s over %d lanes where another has %d, or has "
                         "other memory or shares for them",
                         weft_comm_name(c, g->rank[me]), weft_collective_name(kind),
                         l->n_lane, g->lanes.n_lane);
    return WEFT_OK;
}

/* unit 0: equal shares; l NULL: one term of each. */
static weft_status local_sum(weft_comm *c, local_group *g, weft_collective kind,
                             weft_dtype t, const void *in, void *out, int64_t count,
                             int64_t unit, const weft_comm_lanes *l)
{
    double      deadline = weft_clock_s() + c->timeout_s;
    weft_status st       = WEFT_OK;
    int         me       = 0;
    while (g->rank[me] != c->rank) me++;
    pthread_mutex_lock(&g->g.lock);
    WEFT_GO(come(c, g, me, kind, t, count, l));
    g->member[me].in  = in;
    g->member[me].out = out;
    if (kind == WEFT_BARRIER)
        st = meet(c, g, me, weft_collective_name(kind), deadline);
    else {
        WEFT_GO(meet_to_work(c, g, me, weft_collective_name(kind), deadline));
        pthread_mutex_unlock(&g->g.lock);
        st = l      ? do_lanes(g, me, kind, t, count, unit, l)
             : unit ? do_unequal(g, me, kind, t, count, unit)
                    : do_share(g, me, kind, t, count);
        pthread_mutex_lock(&g->g.lock);
        weft_status left = leave(c, g, me, weft_collective_name(kind), deadline);
        if (st == WEFT_OK) st = left;
    }
out:
    pthread_mutex_unlock(&g->g.lock);
    return st;
}

/* Every position fetches what is its own. */
static void fetch_rows(local_group *g, int me, weft_collective kind, weft_dtype t,
                       const weft_comm_rows *r)
{
    weft_comm_row_run x = {.home = -1};
    while (weft_comm_next_run(r, g->n, &x)) {
        weft_comm_way w = weft_comm_way_of(r, kind, t, &x);
        if (w.to != me || !w.bytes) continue;
        memcpy((char *)g->member[me].out + w.out,
               (const char *)g->member[w.from].in + w.in, (size_t)w.bytes);
    }
}

static weft_status local_rows(weft_comm *c, local_group *g, weft_collective kind,
                              weft_dtype t, const void *in, void *out,
                              const weft_comm_rows *r)
{
    double      deadline = weft_clock_s() + c->timeout_s;
    weft_status st       = WEFT_OK;
    int         me       = 0;
    while (g->rank[me] != c->rank) me++;
    WEFT_TRY(weft_comm_check_rows(r, g->n, kind, me));
    pthread_mutex_lock(&g->g.lock);
    WEFT_GO(come(c, g, me, kind, t, r->width * r->n_bin, NULL));
    g->member[me].in  = in;
    g->member[me].out = out;
    WEFT_GO(meet_to_work(c, g, me, weft_collective_name(kind), deadline));
    pthread_mutex_unlock(&g->g.lock);
    fetch_rows(g, me, kind, t, r);
    pthread_mutex_lock(&g->g.lock);
    st = leave(c, g, me, weft_collective_name(kind), deadline);
out:
    pthread_mutex_unlock(&g->g.lock);
    return st;
}

weft_status weft_comm__local_run(weft_comm *c, const weft_comm_call *call)
{
    const weft_comm_part *x = &call->tensor;
    weft_comm_lanes       l = weft_comm_lanes_of(call);
    if (call->n_part) return weft_comm_run_packed(c, call);
    if (call->rows.n_bin)
        return local_rows(c, call->group->at, call->kind, call->dtype, x->in, x->out,
                          &call->rows);
    return local_sum(c, call->group->at, call->kind, call->dtype, x->in, x->out, x->count,
                     x->unit, call->n_lane ? &l : NULL);
}
