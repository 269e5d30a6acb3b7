/* Threads of one process as ranks: messages are copied through rings, collectives read and write
 * each other's memory directly (local_group.c). */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "comm/local_priv.h"

int weft_comm__local_gate_init(local_gate *g)
{
    pthread_condattr_t a;
    if (pthread_condattr_init(&a)) return -1;
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    int bad = pthread_cond_init(&g->moved, &a);
    pthread_condattr_destroy(&a);
    return bad ? bad : pthread_mutex_init(&g->lock, NULL);
}

void weft_comm__local_gate_fini(local_gate *g)
{
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->moved);
}

bool weft_comm__local_gate_wait(local_gate *g, double deadline)
{
    struct timespec ts = {.tv_sec = (time_t)deadline};
    ts.tv_nsec         = (long)((deadline - (double)ts.tv_sec) * 1e9);
    return pthread_cond_timedwait(&g->moved, &g->lock, &ts) != ETIMEDOUT;
}

weft_status weft_comm__local_check(const weft_comm *c)
{
    const weft_comm_local *w = c->impl;
    if (!w->aborted || c->epoch > w->abort_epoch) return WEFT_OK;
    if (w->abort_rank < 0) return WEFT_FAIL(WEFT_ERR_PEER, "%s", w->why);
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
    weft_comm__local_gate_fini(&ch->g);
    free(ch->ring);
    free(ch->msg);
    free(ch);
}

static weft_status channel_create(int from, int to, int tag, int64_t bytes, int credits,
                                  weft_comm_channel **out)
{
    weft_comm_channel *ch = calloc(1, sizeof *ch);
    if (!ch || weft_comm__local_gate_init(&ch->g)) {
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
        WEFT_TRY(weft_comm__local_check(c));
        if (ch->sent - ch->received <= most) return WEFT_OK;
        if (!weft_comm__local_gate_wait(&ch->g, deadline) &&
            ch->sent - ch->received > most)
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
        int64_t       slot = ch->credits ? ch->sent % ch->credits : 0;
        local_message m    = {.epoch = c->epoch, .bytes = bytes, .p = p};
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
               weft_comm__local_check(c) != WEFT_OK;
    pthread_mutex_unlock(&ch->g.lock);
    return can;
}

static weft_status local_recv(weft_comm *c, weft_comm_channel *ch, void *p, int64_t bytes)
{
    double      deadline = weft_clock_s() + c->timeout_s;
    weft_status st;
    pthread_mutex_lock(&ch->g.lock);
    for (;;) {
        WEFT_GO(weft_comm__local_check(c));
        if (ch->received < ch->sent) {
            local_message *m = &ch->msg[ch->credits ? ch->received % ch->credits : 0];
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
        if (!weft_comm__local_gate_wait(&ch->g, deadline) && ch->received == ch->sent)
            WEFT_GO(silent(c, ch->from, ch->tag, "receive"));
    }
    ch->received++;
    pthread_cond_broadcast(&ch->g.moved);
out:
    pthread_mutex_unlock(&ch->g.lock);
    return st;
}

/* ---- giving up, joining, leaving ---- */

static void leave_verdict(weft_comm *c, int rank, const char *why)
{
    weft_comm_local *w = c->impl;
    pthread_mutex_lock(&w->lock);
    for (weft_comm_channel *ch = w->channel; ch; ch = ch->next)
        pthread_mutex_lock(&ch->g.lock);
    for (local_group *g = w->group; g; g = g->next) pthread_mutex_lock(&g->g.lock);
    if (!w->aborted || c->epoch > w->abort_epoch) {
        w->aborted     = true;
        w->abort_epoch = c->epoch;
        w->abort_rank  = rank;
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
        if (w->end[r] && w->end[r] != c && weft_comm__local_check(w->end[r]) != WEFT_OK)
            weft_comm_report_lost(w->end[r], weft_error_text());
    pthread_mutex_unlock(&w->lock);
}

static void local_abort(weft_comm *c, const char *why)
{
    leave_verdict(c, c->rank, why);
}

static void local_pass_on(weft_comm *c, const char *verdict)
{
    leave_verdict(c, -1, verdict);
}

static weft_status local_check(weft_comm *c)
{
    weft_comm_local *w = c->impl;
    pthread_mutex_lock(&w->lock);
    weft_status st = weft_comm__local_check(c);
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
        weft_comm__local_free_group(g);
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
        .open_group    = weft_comm__local_open_group,
        .send          = local_send,
        .recv          = local_recv,
        .can_send      = local_can_send,
        .run           = weft_comm__local_run,
        .close_channel = local_close_channel,
        .close_group   = weft_comm__local_close_group,
        .stop          = local_stop,
        .abort         = local_abort,
        .check         = local_check,
        .pass_on       = local_pass_on,
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
