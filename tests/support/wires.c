#include "support/wires.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/lanes.h"
#include "exchange/exchange.h"

enum {
    MAX_PORT = 16,
    BACK     = 1 << 25, /* tags of credits that return */
    MEET     = 1 << 26  /* tags of collectives */
};

struct test_wires {
    const weft_cluster *c;
    pthread_mutex_t     lock;
    int                 n, n_node;
    double             *own;  /* [rank]: its link is free from */
    double (*port)[MAX_PORT]; /* [node] */
};

typedef struct end {
    weft_comm          c;
    weft_comm         *inner;
    test_wires        *w;
    weft_comm_group   *group;
    weft_comm_channel *channel;
} end;

struct weft_comm_channel {
    weft_comm_channel *data, *back, *next;
    int                peer, credits;
    int64_t            count;
};

/* Ways to and from each position, opened when they are first needed. */
struct weft_comm_group {
    weft_comm_group_head head; /* first */
    weft_comm_group     *next;
    int                  n, me, tag;
    int32_t             *rank;
    weft_comm_channel  **to, **from;
};

static _Thread_local double moment; /* where this thread stands in emulated time */

void test_wires_set_moment(double s)
{
    moment = s;
}

double test_wires_moment(void)
{
    return moment;
}

/* ---- links ---- */

static double later(double a, double b)
{
    return a > b ? a : b;
}

static void sleep_until(double t)
{
    struct timespec ts = {.tv_sec = (time_t)t};
    ts.tv_nsec         = (long)((t - (double)ts.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR) {
    }
}

/* Ports of the node that a rank is in. */
static int n_port(const weft_cluster *c, int node)
{
    int k = 0;
    while (k + 1 < c->n_node && node >= c->node[k + 1].first_node) k++;
    return c->node[k].n_port < MAX_PORT ? c->node[k].n_port : MAX_PORT;
}

static double *bucket(test_wires *w, int rank, const weft_path *p)
{
    int place, node = weft_cluster_node(w->c, rank, &place), best = 0;
    if (p->level < 2) return &w->own[rank];
    for (int i = 1; i < n_port(w->c, node); i++)
        if (w->port[node][i] < w->port[node][best]) best = i;
    return &w->port[node][best];
}

/* When bytes that may leave at `ready` have arrived. */
static weft_status carry(test_wires *w, int rank, int peer, double ready, double bytes,
                         double *there)
{
    weft_path p;
    WEFT_TRY(weft_cluster_path(w->c, rank, peer, &p));
    pthread_mutex_lock(&w->lock);
    double *free_s = bucket(w, rank, &p);
    double  start  = later(ready, *free_s);
    *free_s        = start + bytes / p.Bps;
    *there         = *free_s + p.alpha_s;
    pthread_mutex_unlock(&w->lock);
    return WEFT_OK;
}

/* ---- messages ---- */

static weft_status open_channel(weft_comm *c, int peer, weft_comm_side side, int tag,
                                uint32_t instance, int64_t bytes, int credits,
                                weft_comm_channel **out)
{
    end               *e     = c->impl;
    weft_comm_channel *h     = calloc(1, sizeof *h);
    weft_comm_side     other = side == WEFT_COMM_SEND ? WEFT_COMM_RECV : WEFT_COMM_SEND;
    (void)bytes, (void)instance;
    if (!h) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a channel");
    h->next    = e->channel;
    e->channel = h;
    h->peer    = peer;
    h->credits = credits;
    if (!credits) credits = 1; /* who sends then waits for who receives, below */
    WEFT_TRY(weft_comm_open_channel(e->inner, peer, side, tag, sizeof(double), credits,
                                    &h->data));
    WEFT_TRY(weft_comm_open_channel(e->inner, peer, other, tag + BACK, sizeof(double),
                                    credits, &h->back));
    *out = h;
    return WEFT_OK;
}

static weft_status send_message(weft_comm *c, weft_comm_channel *h, const void *p,
                                int64_t bytes)
{
    end   *e = c->impl;
    double m = moment, credit = 0, there;
    (void)p;
    if (h->count++ >= h->credits) /* without credits: the receiver is there */
        WEFT_TRY(weft_comm_recv(e->inner, h->back, &credit, sizeof credit));
    WEFT_TRY(carry(e->w, c->rank, h->peer, later(m, credit), (double)bytes, &there));
    WEFT_TRY(weft_comm_send(e->inner, h->data, &there, sizeof there));
    sleep_until(there);
    moment = there;
    return WEFT_OK;
}

static weft_status recv_message(weft_comm *c, weft_comm_channel *h, void *p,
                                int64_t bytes)
{
    end   *e = c->impl;
    double m = moment, there;
    (void)p, (void)bytes;
    if (!h->credits) WEFT_TRY(weft_comm_send(e->inner, h->back, &m, sizeof m));
    WEFT_TRY(weft_comm_recv(e->inner, h->data, &there, sizeof there));
    there = later(there, m);
    sleep_until(there);
    moment = there;
    if (!h->credits) return WEFT_OK;
    return weft_comm_send(e->inner, h->back, &there, sizeof there);
}

/* ---- collectives ---- */

static weft_status way(end *e, weft_comm_group *g, int k, weft_comm_side side,
                       weft_comm_channel **out)
{
    weft_comm_channel **at = side == WEFT_COMM_SEND ? &g->to[k] : &g->from[k];
    if (!*at)
        WEFT_TRY(weft_comm_open_channel(e->inner, g->rank[k], side, g->tag,
                                        sizeof(double), 64, at));
    *out = *at;
    return WEFT_OK;
}

static weft_status open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                              uint32_t instance, weft_comm_group **out)
{
    end             *e = c->impl;
    weft_comm_group *g = calloc(1, sizeof *g);
    uint32_t         h = 2166136261u;
    (void)instance;
    if (!g) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a group");
    g->next  = e->group;
    e->group = g;
    g->rank  = calloc((size_t)n, sizeof *g->rank);
    g->to    = calloc((size_t)n, sizeof *g->to);
    g->from  = calloc((size_t)n, sizeof *g->from);
    if (!g->rank || !g->to || !g->from)
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a group");
    g->n = n;
    for (int i = 0; i < n; i++) {
        g->rank[i] = rank[i];
        h          = (h ^ (uint32_t)rank[i]) * 16777619u;
        if (rank[i] == c->rank) g->me = i;
    }
    h      = (h ^ (uint32_t)tag) * 16777619u; /* a pair may meet in several groups */
    g->tag = MEET + (int)(h & (MEET - 1));
    *out   = g;
    for (int d = 1; d < n; d *= 2) { /* those of halving; others when they are needed */
        weft_comm_channel *ch;
        if ((g->me ^ d) >= n) continue;
        WEFT_TRY(way(e, g, g->me ^ d, WEFT_COMM_SEND, &ch));
        WEFT_TRY(way(e, g, g->me ^ d, WEFT_COMM_RECV, &ch));
    }
    return WEFT_OK;
}

static bool shares_port(const weft_cluster *c, int a, int b)
{
    int place;
    return weft_cluster_node(c, a, &place) != weft_cluster_node(c, b, &place);
}

/* One step: a message to `to`, one from `from`; the next begins when both are there. */
static weft_status trade(end *e, weft_comm_group *g, int to, int from, double bytes)
{
    weft_comm_channel *ch;
    double             m = moment, there = m, come = m;
    if (to >= 0) {
        WEFT_TRY(carry(e->w, e->c.rank, g->rank[to], m, bytes, &there));
        WEFT_TRY(way(e, g, to, WEFT_COMM_SEND, &ch));
        WEFT_TRY(weft_comm_send(e->inner, ch, &there, sizeof there));
    }
    if (from >= 0) {
        WEFT_TRY(way(e, g, from, WEFT_COMM_RECV, &ch));
        WEFT_TRY(weft_comm_recv(e->inner, ch, &come, sizeof come));
    }
    /* ports are shared: who takes one must not come before its time */
    if (to >= 0 && shares_port(e->w->c, e->c.rank, g->rank[to]))
        sleep_until(later(there, come));
    moment = later(there, come);
    return WEFT_OK;
}

static weft_status exchange(end *e, weft_comm_group *g, weft_collective k,
                            weft_exchange_algorithm a, double bytes)
{
    weft_exchange x = {.kind = k, .algorithm = a, .n = g->n};
    for (int i = 0; i < weft_exchange_count(&x, g->me); i++) {
        weft_exchange_step s = weft_exchange_at(&x, g->me, i);
        WEFT_TRY(trade(e, g, s.to, s.from, weft_exchange_sent(&s) * bytes / g->n));
    }
    return WEFT_OK;
}

/* bytes: of what a member gives; terms: how many of them to a sum. */
static weft_status perform(end *e, weft_comm_group *g, weft_collective k, double bytes,
                           int terms)
{
    switch (k) {
    case WEFT_BROADCAST:
    case WEFT_ALL_REDUCE:
        WEFT_TRY(
            exchange(e, g, WEFT_REDUCE_SCATTER, WEFT_EXCHANGE_HALVING, bytes * terms));
        return exchange(e, g, WEFT_ALL_GATHER, WEFT_EXCHANGE_HALVING, bytes);
    case WEFT_REDUCE_SCATTER:
        return exchange(e, g, WEFT_REDUCE_SCATTER, WEFT_EXCHANGE_HALVING, bytes * terms);
    case WEFT_ALL_GATHER:
        return exchange(e, g, WEFT_ALL_GATHER, WEFT_EXCHANGE_HALVING, bytes * g->n);
    case WEFT_SEND_ROWS:
    case WEFT_RETURN_ROWS:
    case WEFT_ALL_TO_ALL:
        return exchange(e, g, WEFT_ALL_TO_ALL, WEFT_EXCHANGE_DIRECT, bytes);
    case WEFT_SHIFT:
        return trade(e, g, (g->me + 1) % g->n, (g->me + g->n - 1) % g->n, bytes);
    case WEFT_BARRIER:
        return exchange(e, g, WEFT_REDUCE_SCATTER, WEFT_EXCHANGE_HALVING, 0);
    }
    return WEFT_OK;
}

/* The messages' moments are known as soon as they are sent; the rank sleeps until the last of
 * them. */
static weft_status last(weft_comm *c, weft_comm_group *g, weft_collective k, double bytes,
                        int terms)
{
    WEFT_TRY(perform(c->impl, g, k, bytes, terms));
    sleep_until(moment);
    return WEFT_OK;
}

/* Rows: as many to each.  Several tensors: as long as one of all bytes. */
static weft_status run(weft_comm *c, const weft_comm_call *call)
{
    weft_comm_group      *g     = call->group;
    const weft_comm_part *part  = call->n_part ? call->part : &call->tensor;
    weft_lanes            lanes = {call->n_lane, g->n, call->lane_share};
    int64_t               size  = weft_dtype_bytes(call->dtype);
    double                bytes = 0;
    if (call->rows.n_bin)
        bytes = (double)((call->kind == WEFT_SEND_ROWS ? call->rows.in_rows
                                                       : call->rows.out_rows) *
                         call->rows.width * size);
    for (int i = 0; !call->rows.n_bin && i < (call->n_part ? call->n_part : 1); i++)
        bytes += (double)(part[i].count * size) /
                 (call->kind == WEFT_ALL_GATHER && part[i].unit ? g->n : 1);
    return last(c, g, call->kind, bytes,
                call->n_lane && weft_lanes_right(&lanes) ? weft_lanes_most_terms(&lanes)
                                                         : 1);
}

/* ---- ends ---- */

/* Handles are freed with their end. */
static weft_status close_channel(weft_comm *c, weft_comm_channel *h)
{
    end *e = c->impl;
    WEFT_TRY(weft_comm_close_channel(e->inner, h->data));
    return weft_comm_close_channel(e->inner, h->back);
}

static weft_status close_group(weft_comm *c, weft_comm_group *g)
{
    end *e = c->impl;
    for (int i = 0; i < g->n; i++) {
        WEFT_TRY(weft_comm_close_channel(e->inner, g->to[i]));
        WEFT_TRY(weft_comm_close_channel(e->inner, g->from[i]));
    }
    return WEFT_OK;
}

static void stop(weft_comm *c)
{
    weft_comm *inner = ((end *)c->impl)->inner;
    inner->op->stop(inner);
}

static void give_up(weft_comm *c, const char *why)
{
    weft_comm_abort(((end *)c->impl)->inner, why);
}

static void destroy(weft_comm *c)
{
    end *e = c->impl;
    for (weft_comm_group *g = e->group, *next; g; g = next) {
        next = g->next;
        free(g->rank);
        free(g->to);
        free(g->from);
        free(g);
    }
    for (weft_comm_channel *h = e->channel, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    free(e);
}

weft_status test_wires_join(test_wires *w, weft_comm *inner, weft_comm **out)
{
    static const weft_comm_ops ops = {.open_channel  = open_channel,
                                      .open_group    = open_group,
                                      .send          = send_message,
                                      .recv          = recv_message,
                                      .run           = run,
                                      .close_channel = close_channel,
                                      .close_group   = close_group,
                                      .stop          = stop,
                                      .abort         = give_up,
                                      .destroy       = destroy};
    end                       *e   = calloc(1, sizeof *e);
    if (!e) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for an end");
    e->c           = *inner;
    e->c.transport = "wires";
    e->c.op        = &ops;
    e->c.opened    = NULL;
    e->c.packs     = false;
    e->c.impl      = e;
    e->inner       = inner;
    e->w           = w;
    *out           = &e->c;
    return WEFT_OK;
}

weft_status test_wires_create(const weft_cluster *c, int n, test_wires **out)
{
    test_wires *w = calloc(1, sizeof *w);
    if (!w) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for wires");
    w->c      = c;
    w->n      = n;
    w->n_node = weft_cluster_n_node(c);
    w->own    = calloc((size_t)n, sizeof *w->own);
    w->port   = calloc((size_t)w->n_node, sizeof *w->port);
    pthread_mutex_init(&w->lock, NULL);
    *out = w;
    return w->own && w->port ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "no memory for wires");
}

void test_wires_destroy(test_wires *w)
{
    if (!w) return;
    pthread_mutex_destroy(&w->lock);
    free(w->own);
    free(w->port);
    free(w);
}
