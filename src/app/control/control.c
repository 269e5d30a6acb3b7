/* The set of connections: accepted, made, served in turn, and what the caller hears of them. */
#include "control/control.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "control/control_priv.h"

enum {
    EVENTS      = 256,
    HANDSHAKES  = 8,  /* steps of unproven connections in one call: some ms */
    ACCEPTS     = 64, /* in one call */
    BACKLOG_MAX = 4 << 20,
};
static const double PAUSE_S = 0.1; /* of the listener when there is no descriptor */

/* ---- open and close ---- */

/* What is sent must be what the other side reads. */
static weft_status check_self(const weft_control_hello *self)
{
    weft_text          text = {0};
    weft_control_hello back;
    weft_status        st = WEFT_OK;
    weft_control_hello_print(self, &text);
    WEFT_GO(weft_text_status(&text));
    st = weft_control_hello_parse(text.s, text.n, &back);
    if (st != WEFT_OK)
        st = WEFT_FAIL(WEFT_ERR_ARG,
                       "names of job, host and build are printing characters, fewer than "
                       "%d: '%.128s', '%.128s'",
                       WEFT_CONTROL_NAME, self->job, self->host);
out:
    weft_text_fini(&text);
    return st;
}

weft_status weft_control_open(const weft_control_options *o, weft_control **out)
{
    weft_status   st = WEFT_OK;
    weft_control *c  = NULL;
    WEFT_TRY(check_self(&o->self));
    c = calloc(1, sizeof *c);
    if (!c) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for the control plane");
    c->self     = o->self;
    c->listener = -1;
    c->paused_s = INFINITY;
    c->epoll    = epoll_create1(EPOLL_CLOEXEC);
    if (c->epoll < 0) WEFT_GO(WEFT_FAIL(WEFT_ERR_IO, "epoll: %s", strerror(errno)));
    WEFT_GO(weft_control__tls_open(o, &c->tls));
    if (o->listen) {
        struct epoll_event e = {.events = EPOLLIN};
        WEFT_GO(weft_control__listen(o->listen, &c->listener, &c->port));
        if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->listener, &e))
            WEFT_GO(WEFT_FAIL(WEFT_ERR_IO, "epoll: %s", strerror(errno)));
    }
    *out = c;
out:
    if (st != WEFT_OK) weft_control_close(c);
    return st;
}

void weft_control_close(weft_control *c)
{
    if (!c) return;
    for (int i = 0; i < c->n_peer; i++) weft_control__free_peer(c->peer[i]);
    free(c->peer);
    weft_comm_tls_close(c->tls);
    if (c->listener >= 0) close(c->listener);
    if (c->epoll >= 0) close(c->epoll);
    free(c);
}

int weft_control_fd(const weft_control *c)
{
    return c->epoll;
}

int weft_control_port(const weft_control *c)
{
    return c->port;
}

int64_t weft_control_n_refused(const weft_control *c)
{
    return c->n_refused;
}

double weft_control_wake_s(const weft_control *c)
{
    double first = c->paused_s;
    for (int i = 0; i < c->n_peer; i++)
        if (c->peer[i]->deadline_s < first) first = c->peer[i]->deadline_s;
    return first;
}

/* ---- peers ---- */

static weft_control__peer *find_peer(const weft_control *c, int64_t id)
{
    for (int i = 0; i < c->n_peer; i++)
        if (c->peer[i]->id == id) return c->peer[i];
    return NULL;
}

/* Takes fd, also on failure. */
static weft_control__peer *add_peer(weft_control *c, int fd, bool outgoing)
{
    int                 on = 1;
    weft_control__peer *p  = calloc(1, sizeof *p);
    if (c->n_peer == c->cap_peer) {
        int    cap  = c->cap_peer ? 2 * c->cap_peer : 16;
        void **more = realloc(c->peer, (size_t)cap * sizeof *c->peer);
        if (more) c->peer = (weft_control__peer **)more, c->cap_peer = cap;
    }
    if (!p || c->n_peer == c->cap_peer) {
        free(p);
        close(fd);
        return NULL;
    }
    *p = (weft_control__peer){
        .id         = ++c->last_id,
        .fd         = fd,
        .outgoing   = outgoing,
        .stage      = outgoing ? WEFT_CONTROL__CONNECTING : WEFT_CONTROL__PROVING,
        .begun_s    = c->now_s,
        .deadline_s = c->now_s + WEFT_CONTROL__LIMIT_S,
        .channel    = {.tls = c->tls, .fd = fd, .server = !outgoing},
    };
    c->peer[c->n_peer++] = p;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!weft_control__watch_peer(c, p, true))
        weft_control__fail_peer(c, p, strerror(errno));
    return p;
}

/* Those of which the caller has heard, or need not hear, the last. */
static void sweep_peers(weft_control *c)
{
    int n = 0;
    for (int i = 0; i < c->n_peer; i++) {
        weft_control__peer *p = c->peer[i];
        if (p->stage == WEFT_CONTROL__OVER && p->silent && p != c->taken)
            weft_control__free_peer(p);
        else
            c->peer[n++] = p;
    }
    c->n_peer = n;
}

weft_status weft_control_connect(weft_control *c, const char *at, double now_s,
                                 int64_t *peer)
{
    struct sockaddr_storage a;
    socklen_t               n;
    WEFT_TRY(weft_control__resolve(at, &a, &n));
    c->now_s = now_s;
    int fd   = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || (connect(fd, (struct sockaddr *)&a, n) && errno != EINPROGRESS)) {
        weft_status st = WEFT_FAIL(WEFT_ERR_IO, "%s: %s", at, strerror(errno));
        if (fd >= 0) close(fd);
        return st;
    }
    weft_control__peer *p = add_peer(c, fd, true);
    if (!p) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a connection to %s", at);
    weft_control__print_address(&a, n, p->address);
    *peer = p->id;
    return WEFT_OK;
}

weft_status weft_control_send(weft_control *c, int64_t peer, uint32_t frame,
                              const void *data, size_t bytes)
{
    weft_control__peer *p = find_peer(c, peer);
    if (bytes > WEFT_CONTROL_FRAME_MOST || frame > UINT32_MAX - WEFT_CONTROL__CALLERS)
        return WEFT_FAIL(WEFT_ERR_ARG, "a frame of %zu bytes: the most are %d", bytes,
                         WEFT_CONTROL_FRAME_MOST);
    if (!p || p->silent || p->stage != WEFT_CONTROL__OPEN)
        return WEFT_FAIL(WEFT_ERR_PEER, "the control connection is not open");
    if (p->out.n + bytes > BACKLOG_MAX) {
        weft_control__fail_peer(c, p, "it does not read: 4 MiB wait to be sent to it");
        return WEFT_FAIL(WEFT_ERR_PEER, "%s: %s", p->address, p->text);
    }
    weft_status st =
        weft_control__frame_put(&p->out, frame + WEFT_CONTROL__CALLERS, data, bytes);
    if (st != WEFT_OK) {
        weft_control__fail_peer(c, p, "no memory for its frames on this host");
        return st;
    }
    weft_control__write_peer(c, p);
    return p->stage == WEFT_CONTROL__OPEN
               ? WEFT_OK
               : WEFT_FAIL(WEFT_ERR_PEER, "%s: %s", p->address, p->text);
}

void weft_control_end(weft_control *c, int64_t peer)
{
    weft_control__peer *p = find_peer(c, peer);
    if (!p || p->silent) return;
    p->silent = true;
    if (p->stage == WEFT_CONTROL__OPEN) {
        p->stage      = WEFT_CONTROL__FLUSHING;
        p->deadline_s = c->now_s + WEFT_CONTROL__LIMIT_S;
        weft_control__write_peer(c, p);
    } else {
        weft_control__fail_peer(c, p, "");
    }
}

/* ---- serve ---- */

static int count_unproven(const weft_control *c)
{
    int n = 0;
    for (int i = 0; i < c->n_peer; i++) n += weft_control__is_unproven(c->peer[i]);
    return n;
}

/* The oldest of those that have sent nothing, else the oldest. */
static weft_control__peer *find_victim(const weft_control *c)
{
    weft_control__peer *victim = NULL;
    for (int i = 0; i < c->n_peer; i++) {
        weft_control__peer *p = c->peer[i];
        if (!weft_control__is_unproven(p)) continue;
        if (!victim || (victim->spoke && !p->spoke)) victim = p;
    }
    return victim;
}

static void pause_listener(weft_control *c, bool pause)
{
    struct epoll_event e = {.events = pause ? 0 : EPOLLIN};
    (void)epoll_ctl(c->epoll, EPOLL_CTL_MOD, c->listener, &e);
    c->paused_s = pause ? c->now_s + PAUSE_S : INFINITY;
}

static void accept_peers(weft_control *c)
{
    for (int k = 0; k < ACCEPTS; k++) {
        struct sockaddr_storage a;
        socklen_t               n = sizeof a;
        int                     fd =
            accept4(c->listener, (struct sockaddr *)&a, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (fd < 0) { /* no descriptor, no memory */
            weft_control__peer *victim = find_victim(c);
            if (victim)
                weft_control__fail_peer(c, victim, "this host has no descriptors left");
            pause_listener(c, true);
            return;
        }
        if (count_unproven(c) >= WEFT_CONTROL_UNPROVEN)
            weft_control__fail_peer(c, find_victim(c),
                                    "it was closed for a newer connection before it had "
                                    "proven itself");
        weft_control__peer *p = add_peer(c, fd, false);
        if (p) weft_control__print_address(&a, n, p->address);
    }
}

static void expire_peers(weft_control *c)
{
    for (int i = 0; i < c->n_peer; i++) {
        weft_control__peer *p = c->peer[i];
        if (p->stage == WEFT_CONTROL__OVER || p->deadline_s > c->now_s) continue;
        weft_control__fail_peer(c, p,
                                p->stage == WEFT_CONTROL__CONNECTING
                                    ? "it did not answer within 2 s"
                                : p->outgoing ? "it did not prove itself within 2 s"
                                              : "it had not proven itself after 2 s");
    }
}

void weft_control_serve(weft_control *c, double now_s)
{
    struct epoll_event e[EVENTS];
    int                n = epoll_wait(c->epoll, e, EVENTS, 0), n_handshake = 0;
    bool               came = false;
    c->now_s                = now_s;
    for (int k = 0; k < n; k++) {
        weft_control__peer *p = e[k].data.ptr;
        if (!p)
            came = true;
        else if (!weft_control__is_unproven(p))
            weft_control__serve_peer(c, p);
    }
    for (int k = 0; k < n && n_handshake < HANDSHAKES; k++) {
        weft_control__peer *p = e[k].data.ptr;
        if (!p || !weft_control__is_unproven(p)) continue;
        weft_control__serve_peer(c, p);
        n_handshake++;
    }
    expire_peers(c);
    if (c->paused_s <= now_s) pause_listener(c, false);
    if (came) accept_peers(c);
    sweep_peers(c);
}

/* ---- events ---- */

static void describe_peer(const weft_control__peer *p, weft_control_event_kind kind,
                          weft_control_event *out)
{
    *out = (weft_control_event){
        .kind       = kind,
        .peer       = p->id,
        .reads_only = p->channel.psk == WEFT_CONTROL__READER,
        .outgoing   = p->outgoing,
        .address    = p->address,
        .hello      = p->has_hello ? &p->hello : NULL,
        .text       = kind == WEFT_CONTROL_FRAME ? "" : p->text,
    };
}

static bool take_event(weft_control *c, weft_control__peer *p, weft_control_event *out)
{
    weft_control__frame frame;
    if (p->silent) return false;
    if (p->unopened) {
        p->unopened = false;
        describe_peer(p, WEFT_CONTROL_OPENED, out);
        return true;
    }
    if (p->has_hello && p->stage >= WEFT_CONTROL__OPEN) {
        weft_control__found found =
            weft_control__frame_take(&p->in, WEFT_CONTROL_FRAME_MOST, &frame);
        if (found == WEFT_CONTROL__WHOLE && frame.kind >= WEFT_CONTROL__CALLERS) {
            describe_peer(p, WEFT_CONTROL_FRAME, out);
            out->frame     = frame.kind - WEFT_CONTROL__CALLERS;
            out->data      = frame.data;
            out->bytes     = frame.bytes;
            c->taken_bytes = frame.all;
            return true;
        }
        if (found != WEFT_CONTROL__PART) {
            weft_control__fail_peer(c, p, "what it sent is no frame");
            weft_control__buffer_fini(&p->in);
        }
    }
    if (p->stage != WEFT_CONTROL__OVER) return false;
    p->silent = true;
    describe_peer(p, WEFT_CONTROL_CLOSED, out);
    return true;
}

static bool take_refusal(weft_control *c, weft_control_event *out)
{
    if (!c->n_refusal) return false;
    c->given = c->refusal[0];
    memmove(c->refusal, c->refusal + 1, (size_t)--c->n_refusal * sizeof *c->refusal);
    *out = (weft_control_event){.kind       = WEFT_CONTROL_REFUSED,
                                .reads_only = c->given.reads_only,
                                .address    = c->given.address,
                                .hello      = c->given.has_hello ? &c->given.hello : NULL,
                                .text       = c->given.text};
    return true;
}

bool weft_control_next(weft_control *c, weft_control_event *out)
{
    if (c->taken) weft_control__buffer_drop(&c->taken->in, c->taken_bytes);
    c->taken       = NULL;
    c->taken_bytes = 0;
    if (take_refusal(c, out)) return true;
    for (int k = 0; k < c->n_peer; k++) {
        int i = (c->next + k) % c->n_peer;
        if (!take_event(c, c->peer[i], out)) continue;
        c->next  = i + 1;
        c->taken = c->peer[i];
        return true;
    }
    return false;
}
