/* Heads, ports, pieces: what goes over the wire and where it goes to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "comm/ucx_priv.h"
#include "comm/vec.h"

#define MAGIC 0x54464557u /* "WEFT" */

enum {
    VERSION = 1,
    AM_ID   = 7,
};

/* ---- ports ---- */

static ucx_port **bucket(ucx_end *e, ucx_side side, int32_t peer, uint64_t id)
{
    uint64_t h = (id ^ (uint64_t)(uint32_t)peer << 40 ^ (uint64_t)side << 20) *
                 UINT64_C(0x9e3779b97f4a7c15);
    return &e->port[h >> 54 & (UCX_BUCKET - 1)];
}

ucx_port *weft_comm__ucx_port(ucx_end *e, ucx_side side, int32_t peer, uint64_t id)
{
    ucx_port **b = bucket(e, side, peer, id);
    for (ucx_port *p = *b; p; p = p->next)
        if (p->side == side && p->peer == peer && p->id == id) return p;
    ucx_port *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    *p = (ucx_port){.next = *b, .side = side, .peer = peer, .id = id, .waits_on = -1};
    *b = p;
    return p;
}

static ucx_note *new_note(ucx_end *e)
{
    ucx_note *n = e->free_note;
    if (n)
        e->free_note = n->next;
    else
        n = malloc(sizeof *n);
    return n;
}

static void free_note(ucx_end *e, ucx_note *n)
{
    n->next      = e->free_note;
    e->free_note = n;
}

void weft_comm__ucx_renew(ucx_end *e, ucx_port *port, uint32_t epoch)
{
    for (ucx_note **n = &port->kept; *n;) {
        ucx_note *old = *n;
        if (old->head.epoch >= epoch) {
            n = &old->next;
            continue;
        }
        *n = old->next;
        free_note(e, old);
    }
    port->epoch = epoch;
    port->seq = port->acked = 0;
    if (port->newest < epoch) port->newest = epoch;
}

void weft_comm__ucx_free_ports(ucx_end *e)
{
    for (int b = 0; b < UCX_BUCKET; b++)
        for (ucx_port *p = e->port[b], *next; p; p = next) {
            next = p->next;
            weft_comm__ucx_renew(e, p, UINT32_MAX);
            free(p);
        }
    for (ucx_note *n = e->outbox, *next; n; n = next) next = n->next, free(n);
    for (ucx_note *n = e->free_note, *next; n; n = next) next = n->next, free(n);
}

/* Takes what was kept for (epoch, source, seq, step). */
static ucx_note *take(ucx_port *port, ucx_kind kind, int32_t source, uint32_t epoch,
                      uint32_t seq, uint32_t step)
{
    for (ucx_note **n = &port->kept; *n; n = &(*n)->next) {
        const ucx_head *h = &(*n)->head;
        if (h->kind != kind || h->source != source || h->epoch != epoch ||
            h->seq != seq || h->step != step)
            continue;
        ucx_note *found = *n;
        *n              = found->next;
        return found;
    }
    return NULL;
}

static void keep(ucx_end *e, ucx_port *port, const ucx_head *h, const void *data,
                 size_t bytes)
{
    ucx_note *n = bytes <= UCX_SHORT ? new_note(e) : NULL;
    if (!n) return; /* the deadline will tell */
    n->head  = *h;
    n->bytes = (int32_t)bytes;
    n->next  = port->kept;
    if (bytes) memcpy(n->data, data, bytes);
    port->kept = n;
}

/* ---- receiving ---- */

/* Out = mine + data.  UCX puts data where it likes; only the vectors' loops do not mind. */
static void add(ucx_end *e, const ucx_post *p, int64_t at, const char *data,
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

static void deliver(ucx_end *e, ucx_post *p, const ucx_head *h, const char *data,
                    int64_t bytes)
{
    if (h->what != p->what || h->length != p->length) {
        p->bad  = true;
        p->came = *h;
        return;
    }
    char *out = p->out + h->at;
    if (p->mine) {
        add(e, p, h->at, data, bytes);
    } else if (bytes) {
        memcpy(out, data, (size_t)bytes);
    }
    p->got += bytes;
    p->done = p->got == p->length;
}

void weft_comm__ucx_expect(ucx_end *e, ucx_port *port, ucx_post *post, bool ask)
{
    ucx_note *n = take(port, UCX_DATA, post->source, post->epoch, post->seq, post->step);
    post->next  = port->post;
    port->post  = post;
    if (n) {
        deliver(e, post, &n->head, n->data, n->bytes);
        free_note(e, n);
    } else if (ask) {
        weft_comm__ucx_tell(e, post->source, UCX_READY,
                            (ucx_head){.epoch = post->epoch,
                                       .port  = port->id,
                                       .seq   = post->seq,
                                       .step  = post->step},
                            NULL);
    }
}

void weft_comm__ucx_forget(ucx_port *port, ucx_post *post)
{
    for (ucx_post **p = &port->post; *p; p = &(*p)->next)
        if (*p == post) {
            *p = post->next;
            return;
        }
}

static void on_data(ucx_end *e, ucx_port *port, const ucx_head *h, const char *data,
                    int64_t bytes)
{
    for (ucx_post *p = port->post; p; p = p->next)
        if (p->source == h->source && p->epoch == h->epoch && p->seq == h->seq &&
            p->step == h->step) {
            deliver(e, p, h, data, bytes);
            return;
        }
    if (h->length == bytes) keep(e, port, h, data, (size_t)bytes);
}

static void on_ready(ucx_end *e, ucx_port *port, const ucx_head *h)
{
    for (ucx_flow *f = e->flow; f; f = f->next)
        if (f->to == h->source && f->port == h->port && f->epoch == h->epoch &&
            f->seq == h->seq && f->step == h->step) {
            f->granted = true;
            return;
        }
    /* a channel's messages that are sent were short */
    if (port->side == UCX_OUT && h->epoch == port->epoch && h->seq < port->seq) return;
    keep(e, port, h, NULL, 0);
}

static void on_open(ucx_end *e, const ucx_head *h)
{
    ucx_port *p = weft_comm__ucx_port(e, h->what == WEFT_COMM_SEND ? UCX_IN : UCX_OUT,
                                      h->source, h->port);
    if (!p) return;
    if (!p->numbered) {
        p->numbered = true;
        p->bytes    = h->length;
        p->credits  = (int)h->seq;
    }
    weft_comm__ucx_tell(e, h->source, UCX_OPENED,
                        (ucx_head){.port   = h->port,
                                   .what   = h->what,
                                   .length = p->bytes,
                                   .seq    = (uint32_t)p->credits},
                        NULL);
}

static void on_opened(ucx_end *e, const ucx_head *h)
{
    ucx_port *p = weft_comm__ucx_port(e, h->what == WEFT_COMM_SEND ? UCX_OUT : UCX_IN,
                                      h->source, h->port);
    if (!p) return;
    p->bytes   = h->length;
    p->credits = (int)h->seq;
    p->answer  = 1;
}

/* Who asks may be a call ahead: it is still this port that keeps us. */
static void on_ask(ucx_end *e, const ucx_head *h)
{
    ucx_port *p    = weft_comm__ucx_port(e, UCX_GROUP, -1, h->port);
    bool      here = p && p->epoch == h->epoch;
    weft_comm__ucx_tell(e, h->source, UCX_ANSWER,
                        (ucx_head){.port = h->port, .at = here ? p->waits_on : -1}, NULL);
}

static void on_port(ucx_end *e, const ucx_head *h, const void *data, int64_t bytes)
{
    ucx_side  side = h->port >> 32 ? UCX_GROUP : h->kind == UCX_DATA ? UCX_IN : UCX_OUT;
    ucx_port *p =
        weft_comm__ucx_port(e, side, side == UCX_GROUP ? -1 : h->source, h->port);
    if (!p || h->epoch < p->epoch) return; /* of an older epoch: dropped at the door */
    if (h->epoch > p->newest) p->newest = h->epoch;
    if (h->kind == UCX_DATA)
        on_data(e, p, h, data, bytes);
    else if (h->kind == UCX_READY)
        on_ready(e, p, h);
    else if (h->epoch == p->epoch && h->seq > p->acked)
        p->acked = h->seq;
}

static void on_abort(ucx_end *e, const ucx_head *h, const char *data, size_t bytes)
{
    char why[sizeof e->why];
    if (bytes >= sizeof why) bytes = sizeof why - 1;
    if (bytes) memcpy(why, data, bytes);
    why[bytes] = 0;
    weft_comm__ucx_condemn(e, h->epoch, why);
}

static bool is_ours(const ucx_end *e, const ucx_head *h, size_t bytes)
{
    return h->magic == MAGIC && h->version == VERSION &&
           h->crc == weft_hash_crc32c(0, h, offsetof(ucx_head, crc)) &&
           h->job == e->job && h->source >= 0 && h->source < e->c.world &&
           h->source != e->c.rank && h->at >= -1 && h->length >= 0 &&
           (h->kind != UCX_DATA ||
            (h->at >= 0 && h->at <= h->length && (int64_t)bytes <= h->length - h->at &&
             bytes <= UCX_PIECE));
}

ucs_status_t weft_comm__ucx_arrive(void *arg, const void *header, size_t header_bytes,
                                   void *data, size_t bytes,
                                   const ucp_am_recv_param_t *param)
{
    ucx_end *e = arg;
    ucx_head h;
    if (header_bytes != sizeof h || param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        e->n_refused++;
        return UCS_OK;
    }
    memcpy(&h, header, sizeof h);
    if (!is_ours(e, &h, bytes)) {
        e->n_refused++;
        return UCS_OK;
    }
    ucx_peer *peer = &e->peer[h.source];
    switch ((ucx_kind)h.kind) {
    case UCX_HELLO: break;
    case UCX_DATA:
    case UCX_READY:
    case UCX_ACK: on_port(e, &h, data, (int64_t)bytes); break;
    case UCX_OPEN: on_open(e, &h); break;
    case UCX_OPENED: on_opened(e, &h); break;
    case UCX_ABORT: on_abort(e, &h, data, bytes); break;
    case UCX_BYE:
        peer->gone = true;
        if (!e->leaving)
            weft_comm__ucx_tell(e, h.source, UCX_BYE_ACK, (ucx_head){0}, NULL);
        break;
    case UCX_BYE_ACK: peer->bye_acked = true; break;
    case UCX_ASK: on_ask(e, &h); break;
    case UCX_ANSWER: peer->answer = (int)h.at; break;
    }
    return UCS_OK;
}

/* ---- sending ---- */

static void on_broken(void *arg, ucp_ep_h ep, ucs_status_t how)
{
    ucx_end *e = arg;
    for (int r = 0; r < e->c.world; r++)
        if (e->peer[r].ep == ep) {
            e->peer[r].broken = e->broken = true;
            e->peer[r].how                = how;
        }
}

static ucp_ep_h ep_of(ucx_end *e, int r)
{
    ucx_peer *p = &e->peer[r];
    if (p->ep) return p->ep;
    if (p->dead && e->c.epoch > p->died_in) p->dead = false; /* another try */
    if (p->dead || p->gone || !p->address) return NULL;
    ucp_ep_params_t ep = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address     = p->address,
        .err_mode    = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_broken, .arg = e},
    };
    ucs_status_t st = weft_comm__ucx->ep_create(e->worker, &ep, &p->ep);
    if (st != UCS_OK) {
        p->ep     = NULL;
        p->broken = e->broken = true;
        p->how                = st;
    }
    return p->ep;
}

static void finish_head(const ucx_end *e, ucx_head *h, ucx_kind kind)
{
    h->magic   = MAGIC;
    h->version = VERSION;
    h->kind    = (uint16_t)kind;
    h->job     = e->job;
    h->source  = e->c.rank;
    h->crc     = weft_hash_crc32c(0, h, offsetof(ucx_head, crc));
}

void weft_comm__ucx_tell(ucx_end *e, int to, ucx_kind kind, ucx_head head,
                         const char *text)
{
    ucx_note *n = new_note(e);
    if (!n) return; /* the deadline will tell */
    n->e     = e;
    n->head  = head;
    n->peer  = to;
    n->next  = NULL;
    n->bytes = 0;
    if (text) {
        size_t bytes = strlen(text);
        if (bytes > UCX_SHORT) bytes = UCX_SHORT;
        memcpy(n->data, text, bytes);
        n->bytes = (int32_t)bytes;
    }
    finish_head(e, &n->head, kind);
    *e->outbox_end = n;
    e->outbox_end  = &n->next;
}

static void note_sent(void *request, ucs_status_t st, void *arg)
{
    (void)st; /* a broken connection says so itself */
    ucx_note *n = arg;
    free_note(n->e, n);
    weft_comm__ucx->request_free(request);
}

static unsigned send_notes(ucx_end *e)
{
    unsigned  n   = 0;
    ucx_note *all = e->outbox;
    e->outbox     = NULL;
    e->outbox_end = &e->outbox;
    for (ucx_note *next; all; all = next, n++) {
        next                   = all->next;
        ucp_ep_h            ep = ep_of(e, all->peer);
        ucp_request_param_t p  = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                  UCP_OP_ATTR_FIELD_USER_DATA |
                                                  UCP_OP_ATTR_FIELD_FLAGS,
                                  .flags     = UCP_AM_SEND_FLAG_EAGER,
                                  .cb.send   = note_sent,
                                  .user_data = all};
        ucs_status_ptr_t    r  = NULL;
        if (ep)
            r = weft_comm__ucx->am_send(ep, AM_ID, &all->head, sizeof all->head,
                                        all->data, (size_t)all->bytes, &p);
        if (!UCS_PTR_IS_PTR(r)) free_note(e, all);
    }
    return n;
}

static void piece_sent(void *request, ucs_status_t st, void *arg)
{
    (void)st;
    struct ucx_piece *p = arg;
    p->busy             = false;
    p->flow->n_under_way--;
    weft_comm__ucx->request_free(request);
}

/* The next piece, or false: none can go now. */
static bool send_piece(ucx_end *e, ucx_flow *f)
{
    int                 k     = 0;
    int64_t             bytes = f->length - f->sent;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                 UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags   = UCP_AM_SEND_FLAG_EAGER,
                                 .cb.send = piece_sent};
    while (k < UCX_WINDOW && f->piece[k].busy) k++;
    ucp_ep_h ep = ep_of(e, f->to);
    if (k == UCX_WINDOW || !ep || e->peer[f->to].broken) return false;
    struct ucx_piece *p = &f->piece[k];
    if (bytes > UCX_PIECE) bytes = UCX_PIECE;
    *p = (struct ucx_piece){.flow = f,
                            .busy = true,
                            .head = {.epoch  = f->epoch,
                                     .port   = f->port,
                                     .seq    = f->seq,
                                     .step   = f->step,
                                     .at     = f->sent,
                                     .length = f->length,
                                     .what   = f->what}};
    finish_head(e, &p->head, UCX_DATA);
    param.user_data = p;
    f->n_under_way++;
    ucs_status_ptr_t r = weft_comm__ucx->am_send(ep, AM_ID, &p->head, sizeof p->head,
                                                 f->p + f->sent, (size_t)bytes, &param);
    f->begun           = true;
    f->sent += bytes;
    if (!UCS_PTR_IS_PTR(r)) {
        p->busy = false;
        f->n_under_way--;
    }
    return true;
}

/* A few pieces of each message, in turn. */
static unsigned send_flows(ucx_end *e)
{
    unsigned n = 0;
    for (ucx_flow **at = &e->flow; *at;) {
        ucx_flow *f = *at;
        for (int k = 0; k < UCX_WINDOW && f->granted; k++) {
            if (f->begun && f->sent == f->length) break;
            if (!send_piece(e, f)) break;
            n++;
        }
        f->done = f->begun && f->sent == f->length && !f->n_under_way;
        if (!f->done) {
            at = &f->next;
            continue;
        }
        n++;
        *at = f->next;
    }
    return n;
}

void weft_comm__ucx_start(ucx_end *e, ucx_port *port, ucx_flow *f)
{
    ucx_note *ready = take(port, UCX_READY, f->to, f->epoch, f->seq, f->step);
    f->e            = e;
    f->sent         = 0;
    f->n_under_way  = 0;
    f->done = f->begun = false;
    f->granted         = ready || f->length <= UCX_SHORT;
    if (ready) free_note(e, ready);
    for (int k = 0; k < UCX_WINDOW; k++) f->piece[k].busy = false;
    f->next = e->flow;
    e->flow = f;
}

static void close_ep(ucx_end *e, int r)
{
    ucp_request_param_t p  = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                              .flags        = UCP_EP_CLOSE_FLAG_FORCE};
    ucp_ep_h            ep = e->peer[r].ep;
    e->peer[r].ep          = NULL;
    e->peer[r].broken      = false;
    if (!ep) return;
    ucs_status_ptr_t q = weft_comm__ucx->ep_close(ep, &p);
    if (UCS_PTR_IS_PTR(q)) weft_comm__ucx->request_free(q);
}

void weft_comm__ucx_stop(ucx_end *e, ucx_flow *f)
{
    for (ucx_flow **at = &e->flow; *at; at = &(*at)->next)
        if (*at == f) {
            *at = f->next;
            break;
        }
    if (!f->n_under_way) return;
    /* pieces that lie in the connection's queue still point into the caller's memory */
    e->peer[f->to].dead    = true;
    e->peer[f->to].died_in = e->c.epoch;
    close_ep(e, f->to);
    double limit = weft_clock_s() + 2;
    while (f->n_under_way && weft_clock_s() < limit)
        weft_comm__ucx->worker_progress(e->worker);
}

/* Connections that UCX gave up. */
static unsigned bury(ucx_end *e)
{
    unsigned n = 0;
    e->broken  = false;
    for (int r = 0; r < e->c.world; r++) {
        ucx_peer *p = &e->peer[r];
        if (!p->broken) continue;
        char why[sizeof e->why];
        bool known = p->gone || p->dead || e->leaving;
        snprintf(why, sizeof why, "rank %d died: its connection to rank %d broke (%s)", r,
                 e->c.rank, weft_comm__ucx->status_string(p->how));
        p->dead    = true;
        p->died_in = e->c.epoch;
        close_ep(e, r);
        if (!known) weft_comm__ucx_condemn(e, e->c.epoch, why);
        n++;
    }
    return n;
}

unsigned weft_comm__ucx_pump(ucx_end *e)
{
    unsigned n = 0;
    for (int k = 0; k < 32 && weft_comm__ucx->worker_progress(e->worker); k++) n++;
    if (e->outbox) n += send_notes(e);
    if (e->flow) n += send_flows(e);
    return e->broken ? n + bury(e) : n;
}
