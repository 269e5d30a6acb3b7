/* Threads of one process as ranks: messages are copied through rings, collectives read and write
 * each other's memory directly.
 *
 * Channels and groups belong to the world and are found by key when a rank opens them; each has
 * its own
 * lock.  A collective is: come (leave pointers, wait for all), do one's share, leave (wait for
 * all).
 * Sums: position k owns the k-th slice, adds it out of all inputs and stores it into all outputs;
 * nobody else touches that slice, so in == out is safe. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "comm/comm.h"

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t  moved;
} gate;

typedef struct message {
    uint32_t epoch;
    int64_t  bytes;
    /* into the ring, or the sender's own memory when there are no credits */
    const void *p;
} message;

struct weft_comm_channel {
    gate               g;
    weft_comm_channel *next;
    int                from, to, tag, credits;
    uint32_t           instance;
    int                n_closed; /* sides that have closed it */
    int64_t            bytes;
    char              *ring;
    message           *msg; /* credits of them, at least 1 */
    int64_t            sent, received;
};

typedef struct member {
    const void *in;
    void       *out;
    bool        here;
} member;

typedef struct local_group {
    gate                g;
    struct local_group *next;
    int                 n, tag;
    uint32_t            instance;
    int                 n_closed; /* members that have closed it */
    int32_t            *rank;
    member             *member;
    const void        **in; /* for the sums of each position: n pointers each */
    uint32_t            epoch;
    int                 n_here;
    int64_t             turn; /* how often all have met */
    weft_collective     kind; /* of the first to come: the others must agree */
    weft_dtype          dtype;
    int64_t             count;
    weft_comm_lanes     lanes;
    uint32_t            dealt; /* of them: weft_comm_dealt */
} local_group;

/* A group at one end. */
struct weft_comm_group {
    weft_comm_group_head head; /* first */
    weft_comm_group     *next;
    local_group         *at;
};

struct weft_comm_local {
    pthread_mutex_t    lock;
    int                n;
    weft_comm_channel *channel;
    local_group       *group;
    weft_comm_group   *handle; /* of all ends */
    /* the last abort; read under a channel's or group's lock, written under all of them */
    bool     aborted;
    uint32_t abort_epoch;
    int      abort_rank;
    char     why[200];

    weft_comm_notes *notes; /* of each rank */
    weft_comm      **end;   /* of each; NULL: it has none */
};

static int gate_init(gate *g)
{
    pthread_condattr_t a;
    if (pthread_condattr_init(&a)) return -1;
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    int bad = pthread_cond_init(&g->moved, &a);
    pthread_condattr_destroy(&a);
    return bad ? bad : pthread_mutex_init(&g->lock, NULL);
}

static void gate_fini(gate *g)
{
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->moved);
}

/* Waits once; false: the deadline has passed. */
static bool gate_wait(gate *g, double deadline)
{
    struct timespec ts = {.tv_sec = (time_t)deadline};
    ts.tv_nsec         = (long)((deadline - (double)ts.tv_sec) * 1e9);
    return pthread_cond_timedwait(&g->moved, &g->lock, &ts) != ETIMEDOUT;
}

static weft_status check_abort(const weft_comm *c)
{
    const weft_comm_local *w = c->impl;
    if (!w->aborted || c->epoch > w->abort_epoch) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_PEER, "rank %d gave up: %s",
                     weft_comm_name(c, w->abort_rank), w->why);
}

static weft_status no_memory(void)
{
    return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}

/* ---- channels ---- */

static void channel_destroy(weft_comm_channel *ch)
{
    if (!ch) return;
    gate_fini(&ch->g);
    free(ch->ring);
    free(ch->msg);
    free(ch);
}

static weft_status channel_create(int from, int to, int tag, int64_t bytes, int credits,
                                  weft_comm_channel **out)
{
    weft_comm_channel *ch = calloc(1, sizeof *ch);
    if (!ch || gate_init(&ch->g)) {
        free(ch);
        return no_memory();
    }
    ch->from    = from;
    ch->to      = to;
    ch->tag     = tag;
    ch->bytes   = bytes;
    ch->credits = credits;
    ch->msg     = calloc((size_t)(credits ? credits : 1), sizeof *ch->msg);
    if (credits && bytes) ch->ring = calloc((size_t)credits, (size_t)bytes);
    if (!ch->msg || (credits && bytes && !ch->ring)) {
        channel_destroy(ch);
        return no_memory();
    }
    *out = ch;
    return WEFT_OK;
}

static weft_status find_channel(weft_comm_local *w, int from, int to, int tag,
                                uint32_t instance, int64_t bytes, int credits,
                                weft_comm_channel **out)
{
    for (weft_comm_channel *ch = w->channel; ch; ch = ch->next)
        if (ch->from == from && ch->to == to && ch->tag == tag &&
            ch->instance == instance) {
            if (ch->bytes != bytes || ch->credits != credits)
                return WEFT_FAIL(
                    WEFT_ERR_ARG,
                    "tag %d from rank %d to rank %d: one side has %lld bytes and %d "
                    "credits, the other %lld and %d",
                    tag, from, to, (long long)ch->bytes, ch->credits, (long long)bytes,
                    credits);
            *out = ch;
            return WEFT_OK;
        }
    WEFT_TRY(channel_create(from, to, tag, bytes, credits, out));
    (*out)->instance = instance;
    (*out)->next     = w->channel;
    w->channel       = *out;
    return WEFT_OK;
}

static weft_status local_open_channel(weft_comm *c, int peer, weft_comm_side side,
                                      int tag, uint32_t instance, int64_t bytes,
                                      int credits, weft_comm_channel **out)
{
    weft_comm_local *w    = c->impl;
    bool             send = side == WEFT_COMM_SEND;
    pthread_mutex_lock(&w->lock);
    weft_status st = find_channel(w, send ? c->rank : peer, send ? peer : c->rank, tag,
                                  instance, bytes, credits, out);
    pthread_mutex_unlock(&w->lock);
    if (st == WEFT_OK && !send) c->bytes += bytes * credits;
    return st;
}

static weft_status local_close_channel(weft_comm *c, weft_comm_channel *ch)
{
    weft_comm_local    *w = c->impl;
    weft_comm_channel **x = &w->channel;
    if (ch->to == c->rank) c->bytes -= ch->bytes * ch->credits;
    pthread_mutex_lock(&w->lock);
    if (++ch->n_closed == 2) {
        while (*x != ch) x = &(*x)->next;
        *x = ch->next;
        channel_destroy(ch);
    }
    pthread_mutex_unlock(&w->lock);
    return WEFT_OK;
}

static weft_status silent(const weft_comm *c, int peer, int tag, const char *what)
{
    return WEFT_FAIL(
        WEFT_ERR_PEER, "rank %d is silent: rank %d waited %g s to %s (tag %d)",
        weft_comm_name(c, peer), weft_comm_name(c, c->rank), c->timeout_s, what, tag);
}

/* Waits until at most `most` messages are unreceived. */
static weft_status wait_received(weft_comm *c, weft_comm_channel *ch, int64_t most,
                                 double deadline)
{
    for (;;) {
        WEFT_TRY(check_abort(c));
        if (ch->sent - ch->received <= most) return WEFT_OK;
        if (!gate_wait(&ch->g, deadline) && ch->sent - ch->received > most)
            return silent(c, ch->to, ch->tag, "send");
    }
}

static weft_status local_send(weft_comm *c, weft_comm_channel *ch, const void *p,
                              int64_t bytes)
{
    double deadline = weft_clock_s() + c->timeout_s;
    if (bytes > ch->bytes)
        return WEFT_FAIL(WEFT_ERR_ARG, "a message of %lld bytes over a channel of %lld",
                         (long long)bytes, (long long)ch->bytes);
    pthread_mutex_lock(&ch->g.lock);
    weft_status st = wait_received(c, ch, ch->credits ? ch->credits - 1 : 0, deadline);
    if (st == WEFT_OK) {
        int64_t slot = ch->credits ? ch->sent % ch->credits : 0;
        message m    = {.epoch = c->epoch, .bytes = bytes, .p = p};
        if (ch->credits && bytes) {
            m.p = memcpy(ch->ring + slot * ch->bytes, p, (size_t)bytes);
        }
        ch->msg[slot] = m;
        ch->sent++;
        pthread_cond_broadcast(&ch->g.moved);
        if (!ch->credits) st = wait_received(c, ch, 0, deadline);
        if (st != WEFT_OK && ch->sent > ch->received)
            ch->sent--; /* p is the caller's again */
    }
    pthread_mutex_unlock(&ch->g.lock);
    return st;
}

static bool local_can_send(weft_comm *c, weft_comm_channel *ch)
{
    pthread_mutex_lock(&ch->g.lock);
    bool can = ch->sent - ch->received <= (ch->credits ? ch->credits - 1 : 0) ||
               check_abort(c) != WEFT_OK;
    pthread_mutex_unlock(&ch->g.lock);
    return can;
}

static weft_status local_recv(weft_comm *c, weft_comm_channel *ch, void *p, int64_t bytes)
{
    double      deadline = weft_clock_s() + c->timeout_s;
    weft_status st;
    pthread_mutex_lock(&ch->g.lock);
    for (;;) {
        WEFT_GO(check_abort(c));
        if (ch->received < ch->sent) {
            message *m = &ch->msg[ch->credits ? ch->received % ch->credits : 0];
            if (m->epoch >= c->epoch) {
                if (m->bytes != bytes)
                    WEFT_GO(WEFT_FAIL(
                        WEFT_ERR_ARG,
                        "rank %d sent %lld bytes with tag %d, rank %d expected %lld",
                        weft_comm_name(c, ch->from), (long long)m->bytes, ch->tag,
                        weft_comm_name(c, ch->to), (long long)bytes));
                if (bytes) memcpy(p, m->p, (size_t)bytes);
                break;
            }
            ch->received++; /* of an older epoch: dropped */
            pthread_cond_broadcast(&ch->g.moved);
            continue;
        }
        if (!gate_wait(&ch->g, deadline) && ch->received == ch->sent)
            WEFT_GO(silent(c, ch->from, ch->tag, "receive"));
    }
    ch->received++;
    pthread_cond_broadcast(&ch->g.moved);
out:
    pthread_mutex_unlock(&ch->g.lock);
    return st;
}

/* ---- groups ---- */

static void group_destroy(local_group *g)
{
    if (!g) return;
    gate_fini(&g->g);
    free(g->rank);
    free(g->member);
    free(g->in);
    free(g);
}

static weft_status group_create(int n, const int32_t *rank, int tag, local_group **out)
{
    local_group *g = calloc(1, sizeof *g);
    if (!g || gate_init(&g->g)) {
        free(g);
        return no_memory();
    }
    g->n      = n;
    g->tag    = tag;
    g->rank   = malloc(sizeof *rank * (size_t)n);
    g->member = calloc((size_t)n, sizeof *g->member);
    g->in     = calloc((size_t)n * (size_t)n, sizeof *g->in);
    if (!g->rank || !g->member || !g->in) {
        group_destroy(g);
        return no_memory();
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

static weft_status local_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                    uint32_t instance, weft_comm_group **out)
{
    weft_comm_local *w = c->impl;
    weft_comm_group *g = calloc(1, sizeof *g);
    if (!g) return no_memory();
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
static weft_status local_close_group(weft_comm *c, weft_comm_group *g)
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
        group_destroy(at);
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

/* All come together; the last one opens the door.  Called with the lock held. */
static weft_status meet(weft_comm *c, local_group *g, int me, const char *what,
                        double deadline)
{
    int64_t turn       = g->turn;
    g->member[me].here = true;
    if (++g->n_here == g->n) {
        g->n_here = 0;
        for (int i = 0; i < g->n; i++) g->member[i].here = false;
        g->turn++;
        pthread_cond_broadcast(&g->g.moved);
        return WEFT_OK;
    }
    while (g->turn == turn) {
        WEFT_TRY(check_abort(c));
        if (g->epoch > c->epoch)
            return WEFT_FAIL(WEFT_ERR_PEER,
                             "rank %d is of epoch %u, the group is of epoch %u", c->rank,
                             c->epoch, g->epoch);
        if (!gate_wait(&g->g, deadline) && g->turn == turn)
            return late_member(c, g, what);
    }
    return WEFT_OK;
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
    WEFT_TRY(check_abort(c));
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
    WEFT_GO(meet(c, g, me, weft_collective_name(kind), deadline));
    if (kind != WEFT_BARRIER) {
        pthread_mutex_unlock(&g->g.lock);
        st = l      ? do_lanes(g, me, kind, t, count, unit, l)
             : unit ? do_unequal(g, me, kind, t, count, unit)
                    : do_share(g, me, kind, t, count);
        pthread_mutex_lock(&g->g.lock);
        weft_status left = meet(c, g, me, weft_collective_name(kind), deadline);
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
    WEFT_GO(meet(c, g, me, weft_collective_name(kind), deadline));
    pthread_mutex_unlock(&g->g.lock);
    fetch_rows(g, me, kind, t, r);
    pthread_mutex_lock(&g->g.lock);
    WEFT_GO(meet(c, g, me, weft_collective_name(kind), deadline));
out:
    pthread_mutex_unlock(&g->g.lock);
    return st;
}

static weft_status local_run(weft_comm *c, const weft_comm_call *call)
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

/* ---- giving up, joining, leaving ---- */

static void local_abort(weft_comm *c, const char *why)
{
    weft_comm_local *w = c->impl;
    pthread_mutex_lock(&w->lock);
    for (weft_comm_channel *ch = w->channel; ch; ch = ch->next)
        pthread_mutex_lock(&ch->g.lock);
    for (local_group *g = w->group; g; g = g->next) pthread_mutex_lock(&g->g.lock);
    if (!w->aborted || c->epoch > w->abort_epoch) {
        w->aborted     = true;
        w->abort_epoch = c->epoch;
        w->abort_rank  = c->rank;
        snprintf(w->why, sizeof w->why, "%s", why);
    }
    for (local_group *g = w->group; g; g = g->next) {
        pthread_cond_broadcast(&g->g.moved);
        pthread_mutex_unlock(&g->g.lock);
    }
    for (weft_comm_channel *ch = w->channel; ch; ch = ch->next) {
        pthread_cond_broadcast(&ch->g.moved);
        pthread_mutex_unlock(&ch->g.lock);
    }
    for (int r = 0; r < w->n; r++)
        if (w->end[r] && w->end[r] != c && check_abort(w->end[r]) != WEFT_OK)
            weft_comm_report_lost(w->end[r], weft_error_text());
    pthread_mutex_unlock(&w->lock);
}

static weft_status local_check(weft_comm *c)
{
    weft_comm_local *w = c->impl;
    pthread_mutex_lock(&w->lock);
    weft_status st = check_abort(c);
    pthread_mutex_unlock(&w->lock);
    return st;
}

/* Threads of one process share their memory, so the others are told. */
static void local_stop(weft_comm *c)
{
    local_abort(c, "it dropped its end");
}

static void local_leave(weft_comm *c)
{
    weft_comm_local *w = c->impl;
    pthread_mutex_lock(&w->lock);
    if (w->end[c->rank] == c) w->end[c->rank] = NULL;
    pthread_mutex_unlock(&w->lock);
    free(c);
}

static void local_note(weft_comm *c, int rank, uint32_t key, bool waits)
{
    const weft_comm_local *w = c->impl;
    (void)rank;
    weft_comm_notes_put(&w->notes[c->rank], key, waits);
}

static bool local_noted(weft_comm *c, int rank, uint32_t key)
{
    const weft_comm_local *w = c->impl;
    return weft_comm_notes_has(&w->notes[rank], key);
}

weft_status weft_comm_local_create(int world, weft_comm_local **out)
{
    weft_comm_local *w = calloc(1, sizeof *w);
    if (w) w->notes = calloc((size_t)world, sizeof *w->notes);
    if (w) w->end = calloc((size_t)world, sizeof *w->end);
    if (!w || !w->notes || !w->end || pthread_mutex_init(&w->lock, NULL)) {
        if (w) free(w->notes);
        if (w) free(w->end);
        free(w);
        return no_memory();
    }
    w->n = world;
    *out = w;
    return WEFT_OK;
}

void weft_comm_local_destroy(weft_comm_local *w)
{
    if (!w) return;
    for (weft_comm_channel *ch = w->channel, *next; ch; ch = next) {
        next = ch->next;
        channel_destroy(ch);
    }
    for (local_group *g = w->group, *next; g; g = next) {
        next = g->next;
        group_destroy(g);
    }
    for (weft_comm_group *h = w->handle, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    free(w->notes);
    free(w->end);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

weft_status weft_comm_local_join(weft_comm_local *w, int rank, double timeout_s,
                                 weft_comm **out)
{
    static const weft_comm_ops ops = {
        .open_channel  = local_open_channel,
        .open_group    = local_open_group,
        .send          = local_send,
        .recv          = local_recv,
        .can_send      = local_can_send,
        .run           = local_run,
        .close_channel = local_close_channel,
        .close_group   = local_close_group,
        .stop          = local_stop,
        .abort         = local_abort,
        .check         = local_check,
        .note          = local_note,
        .noted         = local_noted,
        .destroy       = local_leave,
    };
    weft_comm *c = calloc(1, sizeof *c);
    if (!c) return no_memory();
    *c = (weft_comm){.transport = "local",
                     .op        = &ops,
                     .rank      = rank,
                     .world     = w->n,
                     .timeout_s = timeout_s,
                     .packs     = true,
                     .impl      = w};
    pthread_mutex_lock(&w->lock);
    w->end[rank] = c;
    pthread_mutex_unlock(&w->lock);
    *out = c;
    return WEFT_OK;
}
