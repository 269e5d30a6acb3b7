#include "comm/throttle.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/lanes.h"

typedef struct link {
    weft_comm       c;
    weft_comm      *inner;
    double          bytes_per_s, latency_s;
    pthread_mutex_t lock;
    double          free_s; /* when the link has sent what it has taken on */
    /* what was opened, for the end */
    weft_comm_group   *group;
    weft_comm_channel *channel;
} link;

struct weft_comm_group {
    weft_comm_group_head head; /* first */
    weft_comm_group     *inner, *next;
    int                  n, me;
};

struct weft_comm_channel {
    weft_comm_channel *inner, *next;
};

/* The inner end takes what was set from outside. */
static weft_comm *current(const weft_comm *c)
{
    weft_comm *inner = ((link *)c->impl)->inner;
    if (inner->epoch != c->epoch) weft_comm_set_epoch(inner, c->epoch);
    if (inner->timeout_s != c->timeout_s) inner->timeout_s = c->timeout_s;
    return inner;
}

int64_t weft_comm_wire_bytes(weft_collective kind, weft_dtype t, int n, int64_t count)
{
    int64_t bytes = count * weft_dtype_bytes(t), share = bytes - bytes / n;
    switch (kind) {
    case WEFT_ALL_REDUCE: return 2 * share;
    case WEFT_REDUCE_SCATTER:
    case WEFT_ALL_TO_ALL: return share;
    case WEFT_ALL_GATHER: return (n - 1) * bytes;
    case WEFT_SHIFT:
    case WEFT_BROADCAST: return n > 1 ? bytes : 0;
    default: break;
    }
    return 0;
}

/* When bytes that start now have left. */
static double reserve(link *l, int64_t bytes)
{
    double now = weft_clock_s();
    pthread_mutex_lock(&l->lock);
    if (l->free_s < now) l->free_s = now;
    l->free_s += l->latency_s + (double)bytes / l->bytes_per_s;
    double end = l->free_s;
    pthread_mutex_unlock(&l->lock);
    return end;
}

static void sleep_until(double end)
{
    double left = end - weft_clock_s();
    if (left <= 0) return;
    struct timespec t = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
    nanosleep(&t, NULL);
}

/* The inner end counts instances itself. */
static weft_status open_channel(weft_comm *c, int peer, weft_comm_side side, int tag,
                                uint32_t instance, int64_t bytes, int credits,
                                weft_comm_channel **out)
{
    link              *l = c->impl;
    weft_comm_channel *h = calloc(1, sizeof *h);
    (void)instance;
    if (!h) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a channel");
    weft_status st =
        weft_comm_open_channel(current(c), peer, side, tag, bytes, credits, &h->inner);
    if (st != WEFT_OK) {
        free(h);
        return st;
    }
    h->next    = l->channel;
    l->channel = h;
    c->bytes   = l->inner->bytes;
    *out       = h;
    return WEFT_OK;
}

static weft_status open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                              uint32_t instance, weft_comm_group **out)
{
    link            *l = c->impl;
    weft_comm_group *g = calloc(1, sizeof *g);
    (void)instance;
    if (!g) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a group");
    weft_status st = weft_comm_open_group(current(c), n, rank, tag, &g->inner);
    if (st != WEFT_OK) {
        free(g);
        return st;
    }
    g->n = n;
    while (rank[g->me] != c->rank) g->me++;
    g->next  = l->group;
    l->group = g;
    *out     = g;
    return WEFT_OK;
}

static weft_status close_channel(weft_comm *c, weft_comm_channel *ch)
{
    link               *l  = c->impl;
    weft_comm_channel **at = &l->channel;
    weft_status         st = weft_comm_close_channel(l->inner, ch->inner);
    while (*at != ch) at = &(*at)->next;
    *at = ch->next;
    free(ch);
    c->bytes = l->inner->bytes;
    return st;
}

static weft_status close_group(weft_comm *c, weft_comm_group *g)
{
    link             *l  = c->impl;
    weft_comm_group **at = &l->group;
    weft_status       st = weft_comm_close_group(l->inner, g->inner);
    while (*at != g) at = &(*at)->next;
    *at = g->next;
    free(g);
    return st;
}

static weft_status send_message(weft_comm *c, weft_comm_channel *ch, const void *p,
                                int64_t bytes)
{
    link  *l   = c->impl;
    double end = reserve(l, bytes);
    sleep_until(end);
    return weft_comm_send(current(c), ch->inner, p, bytes);
}

static weft_status recv_message(weft_comm *c, weft_comm_channel *ch, void *p,
                                int64_t bytes)
{
    return weft_comm_recv(current(c), ch->inner, p, bytes);
}

static bool can_send(weft_comm *c, weft_comm_channel *ch)
{
    return weft_comm_can_send(current(c), ch->inner);
}

/* Bytes of a collective on the way: with lanes each term goes to its owner, the sum back; of
 * shares the first is the largest. */
static int64_t on_the_way(const weft_comm_group *g, weft_collective kind, weft_dtype t,
                          int64_t count, int64_t unit, const weft_lanes *lanes)
{
    if (lanes) {
        int     most = weft_lanes_right(lanes) ? weft_lanes_most_terms(lanes) : 1;
        int64_t term = weft_comm_wire_bytes(WEFT_REDUCE_SCATTER, t, g->n, count);
        return most * term + weft_comm_wire_bytes(kind, t, g->n, count) - term;
    }
    if (unit) {
        int64_t most = weft_comm_share_at(count, unit, g->n, 1);
        count        = kind == WEFT_ALL_GATHER ? most : most * g->n;
    }
    return weft_comm_wire_bytes(kind, t, g->n, count);
}

/* What goes to others leaves, row by row. */
static int64_t rows_on_the_way(const weft_comm_group *g, const weft_comm_call *call)
{
    int64_t           bytes = 0;
    weft_comm_row_run x     = {.home = -1};
    while (weft_comm_next_run(&call->rows, g->n, &x)) {
        weft_comm_way w = weft_comm_way_of(&call->rows, call->kind, call->dtype, &x);
        if (w.from == g->me && w.to != g->me) bytes += w.bytes;
    }
    return bytes;
}

static weft_status run(weft_comm *c, const weft_comm_call *call)
{
    link                 *l     = c->impl;
    weft_comm_group      *g     = call->group;
    const weft_comm_part *part  = call->n_part ? call->part : &call->tensor;
    weft_lanes            d     = {call->n_lane, g->n, call->lane_share};
    int64_t               bytes = 0;
    weft_comm_call        inner = *call;
    inner.group                 = g->inner;
    if (call->rows.n_bin) {
        WEFT_TRY(weft_comm_check_rows(&call->rows, g->n, call->kind, g->me));
        bytes = rows_on_the_way(g, call);
    } else {
        for (int i = 0; i < (call->n_part ? call->n_part : 1); i++)
            bytes += on_the_way(g, call->kind, call->dtype, part[i].count, part[i].unit,
                                call->n_lane ? &d : NULL);
    }
    double end = reserve(l, bytes);
    WEFT_TRY(current(c)->op->run(l->inner, &inner));
    sleep_until(end);
    return WEFT_OK;
}

static void give_up(weft_comm *c, const char *why)
{
    weft_comm_abort(current(c), why);
}

static weft_status check(weft_comm *c)
{
    return weft_comm_check(current(c));
}

static void note(weft_comm *c, int rank, uint32_t key, bool waits)
{
    weft_comm_note(current(c), 1, &(int32_t){rank}, key, waits);
}

static bool noted(weft_comm *c, int rank, uint32_t key)
{
    return weft_comm_is_noted(current(c), rank, key);
}

static void stop(weft_comm *c)
{
    link *l = c->impl;
    l->inner->op->stop(l->inner);
}

static void destroy(weft_comm *c)
{
    link *l = c->impl;
    for (weft_comm_group *g = l->group, *next; g; g = next) {
        next = g->next;
        free(g);
    }
    for (weft_comm_channel *h = l->channel, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    pthread_mutex_destroy(&l->lock);
    free(l);
}

weft_status weft_comm_throttle(weft_comm *inner, double bytes_per_s, double latency_s,
                               weft_comm **out)
{
    static const weft_comm_ops ops = {.open_channel  = open_channel,
                                      .open_group    = open_group,
                                      .send          = send_message,
                                      .recv          = recv_message,
                                      .can_send      = can_send,
                                      .run           = run,
                                      .close_channel = close_channel,
                                      .close_group   = close_group,
                                      .stop          = stop,
                                      .abort         = give_up,
                                      .check         = check,
                                      .note          = note,
                                      .noted         = noted,
                                      .destroy       = destroy};
    link                      *l   = calloc(1, sizeof *l);
    if (bytes_per_s <= 0 || latency_s < 0) {
        free(l);
        return WEFT_FAIL(WEFT_ERR_ARG, "a link of %g bytes/s and %g s", bytes_per_s,
                         latency_s);
    }
    if (!l) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a link");
    l->c           = *inner;
    l->c.transport = "throttle";
    l->c.op        = &ops;
    l->c.opened    = NULL;
    l->c.impl      = l;
    l->inner       = inner;
    l->bytes_per_s = bytes_per_s;
    l->latency_s   = latency_s;
    pthread_mutex_init(&l->lock, NULL);
    *out = &l->c;
    return WEFT_OK;
}
