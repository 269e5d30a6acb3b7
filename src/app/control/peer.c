/* One connection: what it waits for, and what it does when its socket is ready. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "control/control_priv.h"

enum {
    RECORD       = 16384, /* bytes: a whole one fits, so none is left inside TLS */
    RECORDS      = 64,    /* in one go: the others have their turn */
    REPORT_FIRST = 5,     /* strangers that are named one by one */
    REPORT_S     = 10,    /* then once in so long */
};

bool weft_control__is_unproven(const weft_control__peer *p)
{
    return !p->outgoing && p->stage < WEFT_CONTROL__OPEN;
}

bool weft_control__watch_peer(weft_control *c, weft_control__peer *p, bool add)
{
    bool out = p->stage == WEFT_CONTROL__CONNECTING || p->channel.wants_out ||
               (p->out.n && p->stage >= WEFT_CONTROL__GREETING);
    struct epoll_event e = {.data.ptr = p};
    if (p->stage != WEFT_CONTROL__FLUSHING) e.events |= EPOLLIN;
    if (out) e.events |= EPOLLOUT;
    if (!add && e.events == p->watched) return true;
    p->watched = e.events;
    return !epoll_ctl(c->epoll, add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, p->fd, &e);
}

void weft_control__free_peer(weft_control__peer *p)
{
    weft_comm_tls_end_fini(&p->channel);
    if (p->fd >= 0) close(p->fd);
    weft_control__buffer_fini(&p->in);
    weft_control__buffer_fini(&p->out);
    free(p);
}

/* ---- the end of one ---- */

/* Strangers do not fill the log: the first few, then their number.  Those that have the token, and
 * are refused for what their hello says, are named always. */
static void report_refusal(weft_control *c, const weft_control__peer *p)
{
    bool named = p->has_hello;
    c->n_refused++;
    if (!named && c->n_refused > REPORT_FIRST && c->now_s - c->reported_s < REPORT_S)
        return;
    if (c->n_refusal == WEFT_CONTROL__REFUSALS) return;
    weft_control__refusal *r     = &c->refusal[c->n_refusal++];
    int64_t                since = c->n_refused - c->n_reported - 1;
    r->hello                     = p->hello;
    r->has_hello                 = p->has_hello;
    r->reads_only                = p->channel.psk == WEFT_CONTROL__READER;
    snprintf(r->address, sizeof r->address, "%s", p->address);
    if (since > 0)
        snprintf(r->text, sizeof r->text,
                 "%.500s (and %lld others since the last report)", p->text,
                 (long long)since);
    else
        snprintf(r->text, sizeof r->text, "%s", p->text);
    c->n_reported = c->n_refused;
    c->reported_s = c->now_s;
}

/* Bytes that are left unread would turn the end into a reset, which takes the reason that was sent
 * with it. */
static void drain_socket(int fd)
{
    char sink[4096];
    for (int k = 0; k < 8; k++)
        if (recv(fd, sink, sizeof sink, MSG_DONTWAIT) <= 0) return;
}

/* A process that was forked and has not called exec yet holds the socket, too: closing it would
 * leave it in the list of epoll, with this peer. */
static void close_socket(weft_control *c, weft_control__peer *p)
{
    weft_comm_tls_end_fini(&p->channel);
    if (p->fd >= 0) drain_socket(p->fd);
    if (p->fd >= 0) (void)epoll_ctl(c->epoll, EPOLL_CTL_DEL, p->fd, NULL);
    if (p->fd >= 0) close(p->fd);
    p->fd    = -1;
    p->stage = WEFT_CONTROL__OVER;
    weft_control__buffer_fini(&p->out);
}

void weft_control__fail_peer(weft_control *c, weft_control__peer *p, const char *why)
{
    if (p->stage == WEFT_CONTROL__OVER) return;
    bool unproven = weft_control__is_unproven(p);
    if (!p->silent) snprintf(p->text, sizeof p->text, "%s", why);
    if (unproven && !p->silent) report_refusal(c, p);
    if (unproven) p->silent = true;
    close_socket(c, p);
}

static void fail_channel(weft_control *c, weft_control__peer *p)
{
    char why[sizeof p->channel.why];
    memcpy(why, p->channel.why, sizeof why);
    weft_control__fail_peer(c, p, why);
}

/* A refusal is told to the other side, then the connection ends. */
static void refuse_peer(weft_control *c, weft_control__peer *p, const char *why)
{
    snprintf(p->text, sizeof p->text, "%s", why);
    report_refusal(c, p);
    p->silent     = true;
    p->deadline_s = c->now_s + WEFT_CONTROL__LIMIT_S;
    if (weft_control__frame_put(&p->out, WEFT_CONTROL__REFUSAL, why, strlen(why)) !=
        WEFT_OK) {
        close_socket(c, p);
        return;
    }
    p->stage = WEFT_CONTROL__FLUSHING;
    weft_control__write_peer(c, p);
}

/* ---- out ---- */

void weft_control__write_peer(weft_control *c, weft_control__peer *p)
{
    while (p->out.n) {
        size_t           sent = 0;
        weft_comm_tls_io io =
            weft_comm_tls_write(&p->channel, p->out.byte + p->out.first, p->out.n, &sent);
        if (io == WEFT_COMM_TLS_GONE) {
            fail_channel(c, p);
            return;
        }
        if (io == WEFT_COMM_TLS_AGAIN) break;
        weft_control__buffer_drop(&p->out, sent);
    }
    if (p->stage == WEFT_CONTROL__FLUSHING && !p->out.n)
        close_socket(c, p);
    else if (!weft_control__watch_peer(c, p, false))
        weft_control__fail_peer(c, p, strerror(errno));
}

static bool put_hello(weft_control *c, weft_control__peer *p)
{
    weft_text text = {0};
    weft_control_hello_print(&c->self, &text);
    bool fine =
        weft_text_status(&text) == WEFT_OK &&
        weft_control__frame_put(&p->out, WEFT_CONTROL__HELLO, text.s, text.n) == WEFT_OK;
    weft_text_fini(&text);
    if (!fine) weft_control__fail_peer(c, p, "no memory for a hello on this host");
    return fine;
}

/* ---- hellos ---- */

static void open_peer(weft_control *c, weft_control__peer *p)
{
    int n_open = 0;
    for (int i = 0; i < c->n_peer; i++) n_open += c->peer[i]->stage == WEFT_CONTROL__OPEN;
    if (!p->outgoing && n_open >= WEFT_CONTROL_PEERS) {
        refuse_peer(c, p, "too many connections are open");
        return;
    }
    if (!p->outgoing && !put_hello(c, p)) return;
    p->stage      = WEFT_CONTROL__OPEN;
    p->unopened   = true;
    p->deadline_s = INFINITY;
    weft_control__write_peer(c, p);
}

/* A refusal's text goes to a log: printing characters alone. */
static void take_refusal(weft_control *c, weft_control__peer *p,
                         const weft_control__frame *frame)
{
    char   why[WEFT_CONTROL__TEXT] = "it refused: ";
    size_t n                       = strlen(why);
    for (size_t i = 0; i < frame->bytes && n + 1 < sizeof why; i++)
        why[n++] =
            (char)(frame->data[i] < ' ' || frame->data[i] > '~' ? '?' : frame->data[i]);
    why[n] = 0;
    weft_control__fail_peer(c, p, why);
}

static void take_hello(weft_control *c, weft_control__peer *p)
{
    weft_control__frame frame;
    char                text[WEFT_CONTROL__TEXT];
    weft_control__found found =
        weft_control__frame_take(&p->in, WEFT_CONTROL_HELLO_MOST, &frame);
    if (found == WEFT_CONTROL__PART) return;
    bool refused = found == WEFT_CONTROL__WHOLE && frame.kind == WEFT_CONTROL__REFUSAL;
    if (refused && p->outgoing) {
        take_refusal(c, p, &frame);
        return;
    }
    if (found != WEFT_CONTROL__WHOLE || frame.kind != WEFT_CONTROL__HELLO) {
        weft_control__fail_peer(c, p, "its first message is no hello");
        return;
    }
    if (weft_control_hello_parse(frame.data, frame.bytes, &p->hello) != WEFT_OK) {
        weft_control__fail_peer(c, p, weft_error_text());
        return;
    }
    p->has_hello = true;
    weft_control__buffer_drop(&p->in, frame.all);
    if (weft_control_hello_admits(&c->self, &p->hello, text, sizeof text)) {
        snprintf(p->text, sizeof p->text, "%s", text);
        open_peer(c, p);
    } else if (p->outgoing) {
        weft_control__fail_peer(c, p, text);
    } else {
        refuse_peer(c, p, text);
    }
}

/* ---- in ---- */

/* Is there something for the caller, who then makes place? */
static bool has_frame(const weft_control__peer *p)
{
    weft_control__frame frame;
    return weft_control__frame_take(&p->in, WEFT_CONTROL_FRAME_MOST, &frame) !=
           WEFT_CONTROL__PART;
}

static void read_peer(weft_control *c, weft_control__peer *p)
{
    for (int k = 0; k < RECORDS && !has_frame(p); k++) {
        size_t           got   = 0;
        uint8_t         *space = weft_control__buffer_space(&p->in, RECORD);
        weft_comm_tls_io io    = WEFT_COMM_TLS_DONE;
        if (!space) {
            weft_control__fail_peer(c, p, "no memory for its frames on this host");
            return;
        }
        io = weft_comm_tls_read(&p->channel, space, RECORD, &got);
        if (io == WEFT_COMM_TLS_AGAIN) return;
        if (io == WEFT_COMM_TLS_GONE) {
            fail_channel(c, p);
            return;
        }
        p->in.n += got;
        if (p->stage == WEFT_CONTROL__GREETING) take_hello(c, p);
        if (p->stage != WEFT_CONTROL__OPEN && p->stage != WEFT_CONTROL__GREETING) return;
    }
}

static void finish_connect(weft_control *c, weft_control__peer *p)
{
    int       error = 0;
    socklen_t n     = sizeof error;
    if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &error, &n)) error = errno;
    if (error)
        weft_control__fail_peer(c, p, strerror(error));
    else
        p->stage = WEFT_CONTROL__PROVING;
}

/* TLS state is made for those who have sent a byte. */
static bool has_spoken(weft_control *c, weft_control__peer *p)
{
    char byte;
    if (p->outgoing || p->spoke) return true;
    ssize_t n = recv(p->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    p->spoke  = n == 1;
    if (n == 0) weft_control__fail_peer(c, p, "it closed the connection without a byte");
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        weft_control__fail_peer(c, p, strerror(errno));
    return p->spoke;
}

static void prove_peer(weft_control *c, weft_control__peer *p)
{
    if (!has_spoken(c, p)) return;
    switch (weft_comm_tls_handshake(&p->channel)) {
    case WEFT_COMM_TLS_GONE: fail_channel(c, p); return;
    case WEFT_COMM_TLS_DONE:
        p->stage = WEFT_CONTROL__GREETING;
        if (p->outgoing && !put_hello(c, p)) return;
        weft_control__write_peer(c, p);
        return;
    case WEFT_COMM_TLS_AGAIN: break;
    }
    if (!weft_control__watch_peer(c, p, false))
        weft_control__fail_peer(c, p, strerror(errno));
}

void weft_control__serve_peer(weft_control *c, weft_control__peer *p)
{
    if (p->stage == WEFT_CONTROL__CONNECTING) finish_connect(c, p);
    if (p->stage == WEFT_CONTROL__PROVING) prove_peer(c, p);
    if (p->stage == WEFT_CONTROL__FLUSHING ||
        (p->out.n && p->stage >= WEFT_CONTROL__GREETING && p->stage < WEFT_CONTROL__OVER))
        weft_control__write_peer(c, p);
    if (p->stage == WEFT_CONTROL__GREETING || p->stage == WEFT_CONTROL__OPEN)
        read_peer(c, p);
}
