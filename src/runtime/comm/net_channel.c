/* Channels between hosts.  With credits a message is copied into a ring at the sender, from where
 * it goes when its receiver is ready; without, it goes from the caller's memory and send ends
 * with the receiver's word. The lower of the two ranks keeps what the first who opened said. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/net_priv.h"

struct weft_comm_channel {
    net_opened opened;
    net_end   *e;
    net_port  *port;
    int        peer, tag, credits, n_slot;
    int64_t    bytes;
    char      *ring; /* credits * bytes */
    net_flow  *flow; /* n_slot of them */
    net_window window;
};

static void free_channel(void *channel)
{
    weft_comm_channel *ch = channel;
    free(ch->ring);
    free(ch->flow);
    free(ch);
}

static weft_status create(net_end *e, int peer, bool send, int tag, int64_t bytes,
                          int credits, weft_comm_channel **out)
{
    weft_comm_channel *ch = calloc(1, sizeof *ch);
    if (!ch) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *ch = (weft_comm_channel){.opened  = {.free = free_channel},
                              .e       = e,
                              .peer    = peer,
                              .tag     = tag,
                              .credits = credits,
                              .n_slot  = credits ? credits : 1,
                              .bytes   = bytes};
    if (send) {
        ch->flow = calloc((size_t)ch->n_slot, sizeof *ch->flow);
        for (int k = 0; ch->flow && k < ch->n_slot; k++) ch->flow[k].done = true;
        if (credits && bytes) ch->ring = malloc((size_t)credits * (size_t)bytes);
        if (!ch->flow || (credits && bytes && !ch->ring)) {
            free_channel(ch);
            return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
        }
    }
    *out = ch;
    return WEFT_OK;
}

typedef struct goal {
    const net_port *port;
    const net_peer *peer;
    const net_flow *flow; /* must be done, unless NULL */
    uint32_t        acked;
    const net_post *post;
} goal;

static bool answered(const void *arg)
{
    const goal *g = arg;
    return g->port->answer || g->peer->gone;
}

static bool received(const void *arg)
{
    const goal *g = arg;
    if (g->port->acked < g->acked) return g->peer->gone;
    return !g->flow || g->flow->done ||
           (g->peer->gone && !weft_comm__net_handed_over(g->flow));
}

static bool came(const void *arg)
{
    const goal *g = arg;
    return g->post->done || g->post->bad || g->peer->gone;
}

static weft_status wait_goal(weft_comm_channel *ch, net_test *test, const goal *g,
                             const char *what, double deadline)
{
    net_end    *e      = ch->e;
    int         before = e->keeper;
    weft_status st     = WEFT_OK;
    e->keeper          = ch->peer; /* also while it is found out who is late */
    net_outcome o      = weft_comm__net_wait(e, test, g, deadline);
    if (o == NET_LATE) st = weft_comm__net_late(e, ch->port, ch->peer, what);
    if (o == NET_OVER) st = weft_comm__net_check(e);
    e->keeper = before;
    return st;
}

static weft_status it_is_gone(const weft_comm_channel *ch, const char *what)
{
    WEFT_TRY(weft_comm__net_check(ch->e));
    return WEFT_FAIL(WEFT_ERR_PEER,
                     "rank %d is silent: it is gone while rank %d waits %s (tag %d)",
                     ch->peer, ch->e->c.rank, what, ch->tag);
}

/* What the first who opened it said, against ours. */
static weft_status compare(weft_comm_channel *ch, bool send)
{
    net_end  *e    = ch->e;
    net_port *port = ch->port;
    goal      g    = {.port = port, .peer = &e->peer[ch->peer]};
    net_head  h    = {.port   = port->id,
                      .what   = (uint32_t)(send ? WEFT_COMM_SEND : WEFT_COMM_RECV),
                      .length = ch->bytes,
                      .seq    = (uint32_t)ch->credits};
    if (e->c.rank < ch->peer) {
        if (!port->numbered) { /* first: the other need not ask */
            port->numbered = true;
            port->bytes    = ch->bytes;
            port->credits  = ch->credits;
            h.what         = (uint32_t)(send ? WEFT_COMM_RECV : WEFT_COMM_SEND);
            weft_comm__net_tell(e, ch->peer, NET_OPENED, h, NULL);
        }
    } else if (!port->answer) {
        weft_comm__net_tell(e, ch->peer, NET_OPEN, h, NULL);
        WEFT_TRY(wait_goal(ch, answered, &g, "to open a channel",
                           weft_clock_s() + e->c.timeout_s));
        if (!port->answer) return it_is_gone(ch, "to open a channel");
    }
    if (port->bytes == ch->bytes && port->credits == ch->credits) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "tag %d from rank %d to rank %d: one side has %lld bytes and %d "
                     "credits, the other %lld and %d",
                     ch->tag, send ? e->c.rank : ch->peer, send ? ch->peer : e->c.rank,
                     (long long)port->bytes, port->credits, (long long)ch->bytes,
                     ch->credits);
}

weft_status weft_comm__net_open_channel(weft_comm *c, int peer, weft_comm_side side,
                                        int tag, uint32_t instance, int64_t bytes,
                                        int credits, weft_comm_channel **out)
{
    net_end           *e    = net_of(c);
    bool               send = side == WEFT_COMM_SEND;
    weft_comm_channel *ch   = NULL;
    WEFT_TRY(create(e, peer, send, tag, bytes, credits, &ch));
    weft_comm__net_lock(e);
    e->n_call++;
    ch->port =
        weft_comm__net_port(e, send ? NET_OUT : NET_IN, peer,
                            ((uint64_t)instance << 32 & ~NET_IS_GROUP) | (uint32_t)tag);
    weft_status st =
        ch->port ? weft_comm__net_check(e) : WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    ch->window = (net_window){.port = ch->port, .flow = ch->flow, .n = ch->n_slot};
    if (st == WEFT_OK) st = compare(ch, send);
    if (st == WEFT_OK) {
        if (send) c->bytes += bytes * credits;
        if (!send) {
            ch->port->most_bytes = bytes;
            ch->port->most_ahead = (uint32_t)ch->n_slot;
        }
        ch->opened.next = e->opened;
        e->opened       = ch;
        *out            = ch;
    } else {
        free_channel(ch);
    }
    weft_comm__net_leave(e);
    return st;
}

static bool all_left(const void *arg)
{
    const weft_comm_channel *ch = arg;
    for (int k = 0; k < ch->n_slot; k++)
        if (!ch->flow[k].done) return ch->e->peer[ch->peer].gone;
    return true;
}

/* A sender waits until its messages have left its ring; the port stays, for acknowledgements. */
weft_status weft_comm__net_close_channel(weft_comm *c, weft_comm_channel *ch)
{
    net_end *e = net_of(c);
    weft_comm__net_lock(e);
    if (ch->flow) weft_comm__net_wait(e, all_left, ch, weft_clock_s() + c->timeout_s);
    for (int k = 0; ch->flow && k < ch->n_slot; k++)
        if (!ch->flow[k].done) weft_comm__net_stop(e, &ch->flow[k]);
    if (ch->flow) c->bytes -= ch->bytes * ch->credits;
    weft_comm__net_unlist(e, &ch->opened);
    weft_comm__net_leave(e);
    free_channel(ch);
    return WEFT_OK;
}

static weft_status send_locked(weft_comm_channel *ch, const void *p, int64_t bytes,
                               double deadline)
{
    net_end   *e      = ch->e;
    net_port  *port   = ch->port;
    uint32_t   slot   = port->seq % (uint32_t)ch->n_slot;
    net_flow  *f      = &ch->flow[slot];
    goal       g      = {.port = port, .peer = &e->peer[ch->peer], .flow = f};
    const char what[] = "to send";
    if (!f->done && f->epoch < e->c.epoch) { /* of an epoch that is over */
        weft_comm__net_stop(e, f);
        f->done = true;
    }
    g.acked = port->seq < (uint32_t)ch->n_slot ? 0 : port->seq + 1 - (uint32_t)ch->n_slot;
    WEFT_TRY(wait_goal(ch, received, &g, what, deadline));
    if (!f->done || port->acked < g.acked || g.peer->gone) return it_is_gone(ch, what);
    *f = (net_flow){.to      = ch->peer,
                    .port    = port->id,
                    .epoch   = e->c.epoch,
                    .seq     = port->seq,
                    .p       = p,
                    .unasked = NET_SHORT,
                    .window  = ch->credits ? &ch->window : NULL,
                    .length  = bytes};
    if (ch->credits && bytes) {
        f->p = ch->ring + (int64_t)slot * ch->bytes;
        memcpy(ch->ring + (int64_t)slot * ch->bytes, p, (size_t)bytes);
    }
    weft_comm__net_start(e, port, f);
    port->seq++;
    weft_comm__net_pump(e);
    if (ch->credits) return WEFT_OK;
    g.acked        = port->seq;
    weft_status st = wait_goal(ch, received, &g, what, deadline);
    if (st == WEFT_OK && port->acked < g.acked) st = it_is_gone(ch, what);
    if (st != WEFT_OK) weft_comm__net_stop(e, f);
    f->done = true;
    return st;
}

weft_status weft_comm__net_send(weft_comm *c, weft_comm_channel *ch, const void *p,
                                int64_t bytes)
{
    double deadline = weft_clock_s() + c->timeout_s;
    if (bytes > ch->bytes)
        return WEFT_FAIL(WEFT_ERR_ARG, "a message of %lld bytes over a channel of %lld",
                         (long long)bytes, (long long)ch->bytes);
    WEFT_TRY(weft_comm__net_enter(ch->e, ch->port));
    weft_status st = send_locked(ch, p, bytes, deadline);
    weft_comm__net_leave(ch->e);
    return st;
}

bool weft_comm__net_can_send(weft_comm *c, weft_comm_channel *ch)
{
    net_end *e = ch->e;
    (void)c;
    weft_comm__net_lock(e);
    const net_port *port = ch->port;
    const net_flow *f    = &ch->flow[port->seq % (uint32_t)ch->n_slot];
    uint32_t        need =
        port->seq < (uint32_t)ch->n_slot ? 0 : port->seq + 1 - (uint32_t)ch->n_slot;
    bool can = (port->acked >= need && (f->done || f->epoch < e->c.epoch)) ||
               e->peer[ch->peer].gone || weft_comm__net_check(e) != WEFT_OK;
    pthread_mutex_unlock(&e->lock);
    return can;
}

weft_status weft_comm__net_recv(weft_comm *c, weft_comm_channel *ch, void *p,
                                int64_t bytes)
{
    double    deadline = weft_clock_s() + c->timeout_s;
    net_end  *e        = ch->e;
    net_port *port     = ch->port;
    WEFT_TRY(weft_comm__net_enter(e, port));
    net_post post = {.source = ch->peer,
                     .epoch  = c->epoch,
                     .seq    = port->seq,
                     .length = bytes,
                     .out    = p};
    goal     g    = {.port = port, .peer = &e->peer[ch->peer], .post = &post};
    weft_comm__net_expect(e, port, &post, ch->bytes > NET_SHORT);
    weft_status st = wait_goal(ch, came, &g, "to receive", deadline);
    weft_comm__net_forget(e, port, &post);
    if (st == WEFT_OK && post.bad)
        st = WEFT_FAIL(
            WEFT_ERR_ARG, "rank %d sent %lld bytes with tag %d, rank %d expected %lld",
            ch->peer, (long long)post.came.length, ch->tag, c->rank, (long long)bytes);
    if (st == WEFT_OK && !post.done) st = it_is_gone(ch, "to receive");
    if (st == WEFT_OK)
        weft_comm__net_tell(
            e, ch->peer, NET_ACK,
            (net_head){.epoch = c->epoch, .port = port->id, .seq = ++port->seq}, NULL);
    weft_comm__net_leave(e);
    return st;
}
