/* Heads, ports, pieces: what goes over the wire and where it goes to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/net_priv.h"
#include "comm/vec.h"

#define PARTING_S 2.0

/* ---- ports ---- */

static net_port **bucket(net_end *e, net_side side, int32_t peer, uint64_t id)
{
    uint64_t h = (id ^ (uint64_t)(uint32_t)peer << 40 ^ (uint64_t)side << 20) *
                 UINT64_C(0x9e3779b97f4a7c15);
    return &e->port[h >> 54 & (NET_BUCKET - 1)];
}

/* maker: as in net_port. */
static net_port *find_port(net_end *e, net_side side, int32_t peer, uint64_t id,
                           int32_t maker)
{
    net_port **b = bucket(e, side, peer, id);
    for (net_port *p = *b; p; p = p->next)
        if (p->side == side && p->peer == peer && p->id == id) return p;
    if (maker >= 0 && e->peer[maker].n_port >= NET_MOST_PORTS) {
        weft_comm__net_refuse(e, maker, "messages for too many channels");
        return NULL;
    }
    net_port *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    *p          = (net_port){.next = *b, .side = side, .peer = peer, .id = id};
    p->kept_end = &p->kept;
    p->maker    = maker;
    if (maker >= 0) e->peer[maker].n_port++;
    *b = p;
    return p;
}

net_port *weft_comm__net_port(net_end *e, net_side side, int32_t peer, uint64_t id)
{
    net_port *p = find_port(e, side, peer, id, -1);
    if (p && p->maker >= 0) e->peer[p->maker].n_port--;
    if (p) p->maker = -1;
    return p;
}

/* ---- notes ---- */

static int64_t class_bytes(const net_end *e, int size_class)
{
    static const int64_t bytes[NET_N_CLASS] = {256, 4096, NET_SHORT};
    return size_class < NET_N_CLASS - 1 ? bytes[size_class] : e->link->piece;
}

net_note *weft_comm__net_new_note(net_end *e, int64_t bytes)
{
    int k = 0;
    while (k < NET_N_CLASS - 1 && bytes > class_bytes(e, k)) k++;
    net_note *n = e->free_note[k];
    if (n)
        e->free_note[k] = n->next;
    else
        n = malloc(sizeof *n + (size_t)class_bytes(e, k));
    if (n) n->size_class = k;
    return n;
}

void weft_comm__net_free_note(net_end *e, net_note *n)
{
    n->next                     = e->free_note[n->size_class];
    e->free_note[n->size_class] = n;
}

/* Takes n, which comes from a peer; false: that peer has too much here already. */
static bool keep_note(net_end *e, net_port *port, net_note *n)
{
    net_peer *peer  = &e->peer[n->parcel.head.source];
    bool      ready = n->parcel.head.kind == NET_READY;
    int64_t   bytes = (int64_t)sizeof *n + class_bytes(e, n->size_class);
    if (peer->held + bytes > e->most_held || peer->n_ready + ready > NET_MOST_READY) {
        weft_comm__net_refuse(e, n->parcel.head.source,
                              "more than this rank keeps for one");
        weft_comm__net_free_note(e, n);
        return false;
    }
    peer->held += bytes;
    peer->n_ready += ready;
    n->next         = NULL;
    *port->kept_end = n;
    port->kept_end  = &n->next;
    return true;
}

/* The note that *at points to is kept no longer. */
static net_note *drop_note(net_end *e, net_port *port, net_note **at)
{
    net_note *n    = *at;
    net_peer *peer = &e->peer[n->parcel.head.source];
    *at            = n->next;
    if (!n->next) port->kept_end = at;
    peer->held -= (int64_t)sizeof *n + class_bytes(e, n->size_class);
    peer->n_ready -= n->parcel.head.kind == NET_READY;
    return n;
}

void weft_comm__net_renew(net_end *e, net_port *port, uint32_t epoch)
{
    for (net_note **n = &port->kept; *n;) {
        if ((*n)->parcel.head.epoch >= epoch)
            n = &(*n)->next;
        else
            weft_comm__net_free_note(e, drop_note(e, port, n));
    }
    port->epoch = epoch;
    port->seq = port->acked = 0;
    if (port->newest < epoch) port->newest = epoch;
}

void weft_comm__net_free_ports(net_end *e)
{
    for (int b = 0; b < NET_BUCKET; b++)
        for (net_port *p = e->port[b], *next; p; p = next) {
            next = p->next;
            while (p->kept) weft_comm__net_free_note(e, drop_note(e, p, &p->kept));
            free(p);
        }
    for (net_note *n = e->outbox, *next; n; n = next) next = n->next, free(n);
    for (int k = 0; k < NET_N_CLASS; k++)
        for (net_note *n = e->free_note[k], *next; n; n = next) next = n->next, free(n);
}

/* Takes what was kept for (epoch, source, seq, step). */
static net_note *take(net_end *e, net_port *port, net_kind kind, int32_t source,
                      uint32_t epoch, uint32_t seq, uint32_t step)
{
    for (net_note **n = &port->kept; *n; n = &(*n)->next) {
        const net_head *h = &(*n)->parcel.head;
        if (h->kind != kind || h->source != source || h->epoch != epoch ||
            h->seq != seq || h->step != step)
            continue;
        return drop_note(e, port, n);
    }
    return NULL;
}

static void keep(net_end *e, net_port *port, const net_head *h, const void *data)
{
    net_note *n = weft_comm__net_new_note(e, h->bytes); /* at most a piece */
    if (!n) return;                                     /* the deadline will tell */
    n->parcel.head = *h;
    if (h->bytes) memcpy(n->data, data, h->bytes);
    keep_note(e, port, n);
}

/* ---- receiving ---- */

/* Out = mine + data.  A link puts data where it likes; only the vectors' loops do not mind. */
static void add(net_end *e, const net_post *p, int64_t at, const char *data,
                int64_t bytes)
{
    int64_t size = weft_dtype_bytes(p->dtype), whole = bytes / 64 * 64;
    for (bool again = true; bytes && again;) {
        bool        odd  = (uintptr_t)data % 8;
        const void *in[] = {p->mine_first ? p->mine + at : data,
                            p->mine_first ? data : p->mine + at};
        void *out = p->out + at;
        again     = odd && whole &&
                weft_comm__vec_sum(p->dtype, 2, in, NULL, 1, &out, whole / size, false);
        if (again) {
            at += whole, data += whole, bytes -= whole, whole = 0;
            continue;
        }
        if (odd) in[p->mine_first] = memcpy(e->bounce, data, (size_t)bytes);
        (void)weft_comm_sum(p->dtype, 2, in, out, bytes / size);
    }
}

void weft_comm__net_take(net_end *e, net_post *p, int64_t at, const char *data,
                         int64_t bytes)
{
    if (p->mine)
        add(e, p, at, data, bytes);
    else if (data && bytes)
        memcpy(p->out + at, data, (size_t)bytes);
    weft_comm__net_mark(e, p, at, bytes);
}

/* The same call and length, and a piece that is missing; of other calls the caller is told, other
 * pieces are refused. */
static bool is_expected(net_end *e, net_post *p, const net_head *h)
{
    if (h->what != p->what || h->length != p->length) {
        p->bad  = true;
        p->came = *h;
        return false;
    }
    const char *wrong = weft_comm__net_check_piece(e, p, h);
    if (wrong) weft_comm__net_refuse(e, h->source, wrong);
    return !wrong;
}

void weft_comm__net_expect(net_end *e, net_port *port, net_post *post, bool ask)
{
    net_note *n;
    post->next = port->post;
    port->post = post;
    while (
        (n = take(e, port, NET_DATA, post->source, post->epoch, post->seq, post->step))) {
        const net_head *h = &n->parcel.head;
        if (is_expected(e, post, h))
            weft_comm__net_take(e, post, h->at, n->data, h->bytes);
        weft_comm__net_free_note(e, n);
    }
    if (ask && !post->done && !post->bad)
        weft_comm__net_tell(e, post->source, NET_READY,
                            (net_head){.epoch = post->epoch,
                                       .port  = port->id,
                                       .seq   = post->seq,
                                       .step  = post->step},
                            NULL);
}

void weft_comm__net_forget(net_end *e, net_port *port, net_post *post)
{
    if (post->feeder) e->link->forget(e, post);
    for (net_post **p = &port->post; *p; p = &(*p)->next)
        if (*p == post) {
            *p = post->next;
            return;
        }
}

static net_post *find_post(const net_port *port, const net_head *h)
{
    for (net_post *p = port->post; p; p = p->next)
        if (p->source == h->source && p->epoch == h->epoch && p->seq == h->seq &&
            p->step == h->step)
            return p;
    return NULL;
}

/* For a call of a group that is over, or given up: nobody will ask for it. */
static bool is_past(const net_port *port, const net_head *h)
{
    return port->side == NET_GROUP && h->epoch == port->epoch && h->seq < port->seq;
}

static void on_data(net_end *e, net_port *port, const net_head *h, const char *data)
{
    net_post *p = find_post(port, h);
    if (!p && !is_past(port, h))
        keep(e, port, h, data);
    else if (p && is_expected(e, p, h))
        weft_comm__net_take(e, p, h->at, data, h->bytes);
}

static void on_ready(net_end *e, net_port *port, const net_head *h)
{
    for (net_flow *f = e->flow; f; f = f->next)
        if (f->to == h->source && f->port == h->port && f->epoch == h->epoch &&
            f->seq == h->seq && f->step == h->step) {
            f->granted = f->asked = true;
            return;
        }
    /* a channel's messages that are sent were short */
    if (port->side == NET_OUT && h->epoch == port->epoch && h->seq < port->seq) return;
    if (!is_past(port, h)) keep(e, port, h, NULL);
}

static void on_ack(net_end *e, net_port *port, const net_head *h)
{
    if (h->epoch != port->epoch) return;
    if (h->seq > port->seq)
        weft_comm__net_refuse(e, h->source, "an acknowledgement of what was not sent");
    else if (h->seq > port->acked)
        port->acked = h->seq;
}

static void on_open(net_end *e, const net_head *h)
{
    net_port *p = find_port(e, h->what == WEFT_COMM_SEND ? NET_IN : NET_OUT, h->source,
                            h->port, h->source);
    if (!p) return;
    if (!p->numbered) {
        p->numbered = true;
        p->bytes    = h->length;
        p->credits  = (int)h->seq;
    }
    weft_comm__net_tell(e, h->source, NET_OPENED,
                        (net_head){.port   = h->port,
                                   .what   = h->what,
                                   .length = p->bytes,
                                   .seq    = (uint32_t)p->credits},
                        NULL);
}

static void on_opened(net_end *e, const net_head *h)
{
    net_port *p = find_port(e, h->what == WEFT_COMM_SEND ? NET_OUT : NET_IN, h->source,
                            h->port, h->source);
    if (!p) return;
    p->bytes   = h->length;
    p->credits = (int)h->seq;
    p->answer  = 1;
}

/* The rank that keeps a group's call: one whose message has not come, or who takes none; -1:
 * nobody is waited for. */
static int waits_on(const net_end *e, const net_port *port)
{
    for (const net_post *p = port->post; p; p = p->next)
        if (!p->done) return p->source;
    for (const net_flow *f = e->flow; f; f = f->next)
        if (f->port == port->id) return f->to;
    return -1;
}

/* Who asks may be a call ahead: it is still this port that keeps us. */
static void on_ask(net_end *e, const net_head *h)
{
    net_port *p    = find_port(e, NET_GROUP, -1, h->port, h->source);
    bool      here = p && p->epoch == h->epoch;
    int       who  = p && p->elsewhere ? p->elsewhere(p->arg) : -1;
    if (who < 0 && p && p->rail && p->rail->epoch == h->epoch) who = waits_on(e, p->rail);
    if (who < 0 && here) who = waits_on(e, p);
    if (who < 0 && e->joined) who = waits_on(e, e->joined);
    if (who < 0) who = e->keeper;
    weft_comm__net_tell(e, h->source, NET_ANSWER, (net_head){.port = h->port, .at = who},
                        NULL);
}

/* Where a message belongs; NULL: it is of an older epoch, and dropped, or it must not come. */
static net_port *port_of(net_end *e, const net_head *h)
{
    net_side  side = h->port & NET_IS_GROUP ? NET_GROUP
                     : h->kind == NET_DATA  ? NET_IN
                                            : NET_OUT;
    net_port *p =
        find_port(e, side, side == NET_GROUP ? -1 : h->source, h->port, h->source);
    if (!p || h->epoch < p->epoch) return NULL;
    if (h->epoch > p->newest) p->newest = h->epoch;
    const char *wrong = h->kind == NET_DATA ? weft_comm__net_check_turn(p, h) : NULL;
    if (wrong) weft_comm__net_refuse(e, h->source, wrong);
    return wrong ? NULL : p;
}

static void on_port(net_end *e, const net_head *h, const char *data)
{
    net_port *p = port_of(e, h);
    if (!p) return;
    if (h->kind == NET_DATA)
        on_data(e, p, h, data);
    else if (h->kind == NET_READY)
        on_ready(e, p, h);
    else
        on_ack(e, p, h);
}

net_post *weft_comm__net_awaited(net_end *e, const net_head *h)
{
    net_port *port = port_of(e, h);
    net_post *p    = port ? find_post(port, h) : NULL;
    return p && is_expected(e, p, h) ? p : NULL;
}

void weft_comm__net_arrive_note(net_end *e, net_note *n)
{
    const net_head *h    = &n->parcel.head;
    net_port       *port = port_of(e, h);
    if (port && !find_post(port, h) && !is_past(port, h)) {
        keep_note(e, port, n);
        return;
    }
    if (port) on_data(e, port, h, n->data);
    weft_comm__net_free_note(e, n);
}

static void on_abort(net_end *e, const net_head *h, const char *data)
{
    char   why[sizeof e->why];
    size_t bytes = h->bytes;
    if (bytes >= sizeof why) bytes = sizeof why - 1;
    if (bytes) memcpy(why, data, bytes);
    why[bytes] = 0;
    weft_comm__net_condemn(e, h->epoch, why);
}

/* ---- good-byes ---- */

static void part(net_end *e, net_peer *p)
{
    e->n_parting -= p->parting;
    p->parting = false;
    p->gone    = true;
}

/* It is gone once all has come that it sent before: h->seq messages, where they may overtake each
 * other. */
static void on_bye(net_end *e, const net_head *h)
{
    net_peer *p = &e->peer[h->source];
    if (p->n_got < h->seq && !p->parting && !p->gone) {
        p->n_owed     = h->seq;
        p->patience_s = weft_clock_s() + PARTING_S;
        p->parting    = true;
        e->n_parting++;
    } else {
        part(e, p);
    }
    if (!e->leaving) weft_comm__net_tell(e, h->source, NET_BYE_ACK, (net_head){0}, NULL);
}

/* What does not come was withdrawn. */
static void lose_patience(net_end *e)
{
    double now = weft_clock_s();
    for (int r = 0; r < e->c.world; r++)
        if (e->peer[r].parting && now > e->peer[r].patience_s) part(e, &e->peer[r]);
}

void weft_comm__net_arrive(net_end *e, const net_head *h, const char *data)
{
    net_peer *peer = &e->peer[h->source];
    switch ((net_kind)h->kind) {
    case NET_HELLO: break;
    case NET_DATA:
    case NET_READY:
    case NET_ACK: on_port(e, h, data); break;
    case NET_OPEN: on_open(e, h); break;
    case NET_OPENED: on_opened(e, h); break;
    case NET_ABORT: on_abort(e, h, data); break;
    case NET_BYE: on_bye(e, h); break;
    case NET_BYE_ACK: peer->bye_acked = true; break;
    case NET_ASK: on_ask(e, h); break;
    case NET_ANSWER: peer->answer = (int)h->at; break;
    case NET_NOTE: weft_comm_notes_put(&peer->notes, (uint32_t)h->port, h->seq); break;
    }
    peer->n_got += h->kind != NET_BYE;
    if (peer->parting && peer->n_got >= peer->n_owed) part(e, peer);
}

/* ---- sending ---- */

void weft_comm__net_broke(net_end *e, int peer, const char *how)
{
    if (e->peer[peer].broken) return; /* the first cause stands */
    e->peer[peer].broken = e->broken = true;
    e->peer[peer].how                = how;
    e->peer[peer].wrong              = false;
}

void weft_comm__net_refuse(net_end *e, int peer, const char *what)
{
    if (e->peer[peer].broken) return;
    weft_comm__net_broke(e, peer, what);
    e->peer[peer].wrong = true;
}

/* Can something be sent to r? */
static bool reach(net_end *e, int r)
{
    net_peer *p = &e->peer[r];
    if (p->line) return true;
    if (p->dead && e->c.epoch > p->died_in) p->dead = false; /* another try */
    if (p->dead || p->gone || p->broken || !p->address) return false;
    e->link->connect(e, r);
    return p->line != NULL;
}

static void note_sent(net_parcel *p)
{
    net_note *n = (net_note *)p;
    p->e->peer[n->peer].n_queued--;
    weft_comm__net_free_note(p->e, n);
}

void weft_comm__net_tell(net_end *e, int to, net_kind kind, net_head head,
                         const char *text)
{
    size_t bytes = text ? strlen(text) : 0;
    if (bytes > NET_SHORT) bytes = NET_SHORT;
    if (e->peer[to].n_queued >= NET_MOST_QUEUED) {
        weft_comm__net_refuse(e, to, "questions, and reads no answer");
        return;
    }
    net_note *n = weft_comm__net_new_note(e, (int64_t)bytes);
    if (!n) return; /* the deadline will tell */
    e->peer[to].n_queued++;
    n->peer   = to;
    n->next   = NULL;
    n->parcel = (net_parcel){.e = e, .head = head, .data = n->data, .sent = note_sent};
    if (bytes) memcpy(n->data, text, bytes);
    n->parcel.head.bytes = (uint32_t)bytes;
    weft_comm__net_finish_head(e, to, &n->parcel.head, kind);
    *e->outbox_end = n;
    e->outbox_end  = &n->next;
}

/* A good-bye says how many went before it. */
static void count_note(net_end *e, net_note *n)
{
    net_head *h    = &n->parcel.head;
    net_peer *peer = &e->peer[n->peer];
    if (h->kind != NET_BYE) {
        peer->n_sent++;
    } else if (e->link->overtakes) {
        h->seq = peer->n_sent;
        weft_comm__net_finish_head(e, n->peer, h, NET_BYE);
    }
}

static unsigned send_notes(net_end *e)
{
    unsigned  n   = 0;
    net_note *all = e->outbox;
    e->outbox     = NULL;
    e->outbox_end = &e->outbox;
    for (net_note *next; all; all = next, n++) {
        next = all->next;
        if (reach(e, all->peer)) {
            count_note(e, all);
            e->link->send(e, all->peer, &all->parcel);
        } else
            note_sent(&all->parcel);
    }
    return n;
}

static void piece_sent(net_parcel *parcel)
{
    struct net_piece *p = (struct net_piece *)parcel;
    p->busy             = false;
    p->flow->n_under_way--;
}

/* Bytes that may still go unasked over a channel. */
static int64_t left_unasked(const net_window *w)
{
    int64_t left = NET_UNASKED;
    for (int k = 0; k < w->n; k++) {
        const net_flow *f = &w->flow[k];
        if (f->epoch != w->port->epoch || f->asked || f->seq < w->port->acked) continue;
        if (f->sent > f->unasked) left -= f->sent - f->unasked;
    }
    return left;
}

/* Where the next piece ends at most.  What is unasked may have to be kept over there: in short
 * pieces. */
static int64_t find_end(const net_end *e, const net_flow *f)
{
    int64_t end = f->upto ? *f->upto : f->length, most = f->sent + e->link->piece;
    if (!f->granted && end > f->unasked) {
        bool more = f->window && left_unasked(f->window) >= NET_SHORT;
        if (f->sent < f->unasked)
            most = f->unasked;
        else
            most = f->sent + (more ? NET_SHORT : 0);
    }
    return end < most ? end : most;
}

/* The next piece, or false: none can go now. */
static bool send_piece(net_end *e, net_flow *f)
{
    int     k     = 0;
    int64_t bytes = find_end(e, f) - f->sent, upto = f->sent + bytes;
    /* what is still being summed goes in pieces that are worth one */
    if (f->upto && bytes < NET_SHORT && upto < f->length) return false;
    if (!bytes && f->length) return false;
    while (k < NET_WINDOW && f->piece[k].busy) k++;
    if (k == NET_WINDOW || !reach(e, f->to) || e->peer[f->to].broken) return false;
    struct net_piece *p = &f->piece[k];
    *p                  = (struct net_piece){.flow   = f,
                                             .busy   = true,
                                             .parcel = {.e    = e,
                                                        .data = f->p + f->sent,
                                                        .sent = piece_sent,
                                                        .head = {.epoch  = f->epoch,
                                                                 .port   = f->port,
                                                                 .seq    = f->seq,
                                                                 .step   = f->step,
                                                                 .at     = f->sent,
                                                                 .length = f->length,
                                                                 .bytes  = (uint32_t)bytes,
                                                                 .what   = f->what}}};
    weft_comm__net_finish_head(e, f->to, &p->parcel.head, NET_DATA);
    f->begun = true;
    f->sent += bytes;
    f->n_under_way++;
    e->peer[f->to].n_sent++;
    e->link->send(e, f->to, &p->parcel);
    return true;
}

/* A few pieces of each message, in turn. */
static unsigned send_flows(net_end *e)
{
    unsigned n = 0;
    for (net_flow **at = &e->flow; *at;) {
        net_flow *f = *at;
        for (int k = 0; k < NET_WINDOW; k++) {
            if (weft_comm__net_handed_over(f)) break;
            if (!send_piece(e, f)) break;
            n++;
        }
        f->done = weft_comm__net_handed_over(f) && !f->n_under_way;
        if (!f->done) {
            at = &f->next;
            continue;
        }
        n++;
        *at = f->next;
    }
    return n;
}

void weft_comm__net_start(net_end *e, net_port *port, net_flow *f)
{
    net_note *ready = take(e, port, NET_READY, f->to, f->epoch, f->seq, f->step);
    f->e            = e;
    f->sent         = 0;
    f->n_under_way  = 0;
    f->done = f->begun = false;
    f->asked           = ready != NULL;
    f->granted         = ready || f->length <= f->unasked;
    if (ready) weft_comm__net_free_note(e, ready);
    for (int k = 0; k < NET_WINDOW; k++) f->piece[k].busy = false;
    net_flow **end = &e->flow; /* the first is due first */
    while (*end) end = &(*end)->next;
    f->next = NULL;
    *end    = f;
}

void weft_comm__net_stop(net_end *e, net_flow *f)
{
    for (net_flow **at = &e->flow; *at; at = &(*at)->next)
        if (*at == f) {
            *at = f->next;
            break;
        }
    for (int k = 0; k < NET_WINDOW; k++)
        if (f->piece[k].busy) e->link->withdraw(e, f->to, &f->piece[k].parcel);
}

/* Lines that their link gave up. */
static unsigned bury(net_end *e)
{
    unsigned n = 0;
    e->broken  = false;
    for (int r = 0; r < e->c.world; r++) {
        net_peer *p = &e->peer[r];
        if (!p->broken) continue;
        char why[sizeof e->why];
        bool known = p->gone || p->dead || e->leaving;
        snprintf(why, sizeof why,
                 p->wrong ? "rank %d failed: it sent rank %d %s"
                          : "rank %d died: its connection to rank %d broke (%s)",
                 r, e->c.rank, p->how);
        p->dead    = true;
        p->died_in = e->c.epoch;
        p->broken  = false;
        e->link->cut(e, r);
        if (!known) weft_comm__net_condemn(e, e->c.epoch, why);
        n++;
    }
    return n;
}

unsigned weft_comm__net_pump(net_end *e)
{
    unsigned n = e->outbox ? send_notes(e) : 0; /* first what others wait for */
    if (e->flow) n += send_flows(e);
    n += e->link->progress(e);
    if (e->n_parting) lose_patience(e);
    return e->broken ? n + bury(e) : n;
}
