/* A guest's side of the rendezvous: connects until rank 0 is there, proves that it has the token,
 * checks that rank 0 has it, and only then says who it is.
 *
 * A connection that ends before the answer is tried again: rank 0 closes unproven ones when there
 * are too many. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/rdzv_priv.h"

enum {
    RETRY_MS = 50,
    GONE_S   = 3, /* after which rank 0, once proven, is not tried again */
    /* rank 0 waits for the others as long as this rank does, and answers later */
    LATER_S = 10,
};

int weft_comm__rdzv_ms_left(double deadline)
{
    double s = deadline - weft_clock_s();
    return s <= 0 ? 0 : s > 1e6 ? 1000000000 : (int)(s * 1e3) + 1;
}

void weft_comm__rdzv_set_nodelay(int s)
{
    int one = 1;
    (void)setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

void weft_comm__rdzv_log_wait(const weft_comm_rdzv_options *o, int rank, int others)
{
    char text[384], more[32] = "";
    if (!o->log) return;
    if (others) snprintf(more, sizeof more, " and %d more", others);
    snprintf(text, sizeof text, "waiting for rank %d%s at %s, %g s at most", rank, more,
             o->at, o->timeout_s);
    o->log(false, text);
}

bool weft_comm__rdzv_is_over(const weft_comm_rdzv_options *o)
{
    return o->is_over && o->is_over(o->arg);
}

weft_status weft_comm__rdzv_fail_over(const weft_comm_rdzv_options *o)
{
    return WEFT_FAIL(WEFT_ERR_PEER, "there is a newer membership than that of epoch %u",
                     o->epoch);
}

/* ---- sockets with a deadline ---- */

typedef struct rdzv_limit {
    double                        until;
    const weft_comm_rdzv_options *o; /* says whether the membership is over */
} rdzv_limit;

static bool wait_for(int s, short events, const rdzv_limit *l)
{
    struct pollfd p  = {.fd = s, .events = events};
    int           rc = 0, ms = 1;
    while (rc <= 0 && ms && !weft_comm__rdzv_is_over(l->o)) {
        ms = weft_comm__rdzv_ms_left(l->until);
        rc = poll(&p, 1, l->o->is_over && ms > RDZV_LOOK_MS ? RDZV_LOOK_MS : ms);
        if (rc < 0 && errno != EINTR) return false;
    }
    return rc > 0;
}

/* Some bytes, at most n; 0: closed, broken or too late. */
static size_t read_some(int s, void *to, size_t n, const rdzv_limit *limit)
{
    for (;;) {
        ssize_t k = recv(s, to, n, MSG_DONTWAIT);
        if (k >= 0) return (size_t)k;
        if (errno != EAGAIN && errno != EINTR) return 0;
        if (!wait_for(s, POLLIN, limit)) return 0;
    }
}

static bool read_all(int s, void *to, int64_t n, const rdzv_limit *limit)
{
    for (char *p = to; n > 0;) {
        size_t k = read_some(s, p, (size_t)n, limit);
        if (!k) return false;
        p += k, n -= (int64_t)k;
    }
    return true;
}

static bool write_all(int s, const void *from, int64_t n, const rdzv_limit *limit)
{
    for (const char *p = from; n > 0;) {
        ssize_t k = send(s, p, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (k > 0)
            p += k, n -= k;
        else if (!wait_for(s, POLLOUT, limit))
            return false;
    }
    return true;
}

/* Connected, or -1. */
static int try_connect(const struct addrinfo *to, const rdzv_limit *limit)
{
    int s = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) return -1;
    int       bad = 0;
    socklen_t n   = sizeof bad;
    if (connect(s, to->ai_addr, to->ai_addrlen) &&
        (errno != EINPROGRESS || !wait_for(s, POLLOUT, limit) ||
         getsockopt(s, SOL_SOCKET, SO_ERROR, &bad, &n) || bad)) {
        close(s);
        return -1;
    }
    weft_comm__rdzv_set_nodelay(s);
    return s;
}

/* ---- one visit ---- */

typedef struct rdzv_visit {
    const weft_comm_rdzv_options *o;
    const void                   *mine;
    int64_t                       bytes;
    struct addrinfo              *to;
    double         deadline, soon, gone_at; /* gone_at: 0 until rank 0 was proven */
    bool           waits_logged, connected; /* connected: at least once */
    weft_comm_key  key;
    int            s;
    weft_comm_auth auth;
} rdzv_visit;

/* Within so many seconds, and the deadline. */
static rdzv_limit limit_of(const rdzv_visit *v, double within_s)
{
    double at = weft_clock_s() + within_s;
    return (rdzv_limit){at < v->deadline ? at : v->deadline, v->o};
}

/* WEFT_AGAIN: not now. */
static weft_status connect_once(rdzv_visit *v)
{
    for (const struct addrinfo *a = v->to; a; a = a->ai_next) {
        rdzv_limit limit = limit_of(v, RDZV_SOON_S);
        v->s             = try_connect(a, &limit);
        if (v->s >= 0) return WEFT_OK;
    }
    return WEFT_AGAIN;
}

static weft_status fail_proof(const rdzv_visit *v)
{
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "rank %d refuses to join what listens at %s: %s; rank 0 and all others "
        "need the same token file, or a stranger listens there",
        v->o->rank, v->o->at, weft_comm_auth_why(&v->auth));
}

/* Both prove that they have the token.  WEFT_AGAIN: the connection ended. */
static weft_status prove(rdzv_visit *v)
{
    weft_comm_claim claim = weft_comm__rdzv_claim(v->o->epoch);
    rdzv_limit      until = limit_of(v, RDZV_HELLO_S);
    WEFT_TRY(weft_comm_auth_start(&v->auth, WEFT_COMM_INITIATOR, &v->key,
                                  v->o->token->insecure, &claim));
    for (;;) {
        char        in[WEFT_COMM__AUTH_SECOND];
        size_t      n;
        const void *p = weft_comm_auth_output(&v->auth, &n);
        if (!write_all(v->s, p, (int64_t)n, &until)) return WEFT_AGAIN;
        weft_comm_auth_sent(&v->auth, n);
        if (v->auth.state == WEFT_COMM_AUTH_DONE) return WEFT_OK;
        if (v->auth.state == WEFT_COMM_AUTH_FAILED) return fail_proof(v);
        n = read_some(v->s, in, weft_comm_auth_wants(&v->auth), &until);
        if (!n) return WEFT_AGAIN;
        weft_comm_auth_feed(&v->auth, in, n);
    }
}

static weft_status send_hello(rdzv_visit *v)
{
    rdzv_hello    h = {.rank = v->o->rank, .world = v->o->world, .bytes = v->bytes};
    weft_comm_mac mac;
    rdzv_limit    until = limit_of(v, RDZV_HELLO_S);
    WEFT_TRY(
        weft_comm_auth_seal(&v->auth, &h, sizeof h, v->mine, (size_t)v->bytes, &mac));
    bool sent = write_all(v->s, &h, sizeof h, &until) &&
                write_all(v->s, v->mine, v->bytes, &until) &&
                write_all(v->s, &mac, sizeof mac, &until);
    return sent ? WEFT_OK : WEFT_AGAIN;
}

/* Nothing of the answer is used before its MAC is checked, but its length, within bounds. */
static weft_status read_answer(rdzv_visit *v, weft_comm_rdzv_table *out)
{
    const weft_comm_rdzv_options *o = v->o;
    rdzv_answer                   a;
    weft_comm_mac                 mac;
    rdzv_limit                    until = {v->deadline + LATER_S, o};
    int64_t                       most  = WEFT_COMM_NONCE_BYTES +
                   o->world * (WEFT_COMM_RDZV_MAX_BYTES + (int64_t)sizeof(int64_t));
    if (!read_all(v->s, &a, sizeof a, &until)) return WEFT_AGAIN;
    if (a.bytes < 0 || a.bytes > most)
        return WEFT_FAIL(WEFT_ERR_PEER, "the answer of rank 0 at %s is damaged", o->at);
    char *text = malloc((size_t)a.bytes + 1);
    if (!text) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    text[a.bytes]  = 0;
    weft_status st = WEFT_OK;
    if (!read_all(v->s, text, a.bytes, &until) ||
        !read_all(v->s, &mac, sizeof mac, &until))
        st = WEFT_AGAIN;
    else if (!weft_comm_auth_verify(&v->auth, &a, sizeof a, text, (size_t)a.bytes, &mac))
        st = WEFT_FAIL(WEFT_ERR_PEER, "the answer of rank 0 at %s is damaged", o->at);
    else if (a.failed)
        st = WEFT_FAIL(a.failed == (int32_t)WEFT_ERR_ARG ? WEFT_ERR_ARG : WEFT_ERR_PEER,
                       "%s", text);
    if (st == WEFT_OK)
        return weft_comm__rdzv_table_parse(text, a.bytes, o->world, o->token, out);
    free(text);
    return st;
}

/* WEFT_AGAIN: rank 0 is not there, or the connection ended. */
static weft_status visit_once(rdzv_visit *v, weft_comm_rdzv_table *out)
{
    WEFT_TRY(connect_once(v));
    v->connected   = true;
    weft_status st = prove(v);
    if (st == WEFT_OK) v->gone_at = weft_clock_s() + GONE_S;
    if (st == WEFT_OK) st = send_hello(v);
    if (st == WEFT_OK) st = read_answer(v, out);
    /* it was there until now */
    if (v->gone_at > 0) v->gone_at = weft_clock_s() + GONE_S;
    weft_comm_auth_fini(&v->auth);
    close(v->s);
    return st;
}

static weft_status fail_visit(const rdzv_visit *v)
{
    const weft_comm_rdzv_options *o = v->o;
    if (v->gone_at > 0 && weft_clock_s() >= v->deadline)
        return WEFT_FAIL(WEFT_ERR_PEER,
                         "rank 0 timed out: it let rank %d in at %s and did not answer",
                         o->rank, o->at);
    if (v->gone_at > 0)
        return WEFT_FAIL(WEFT_ERR_PEER, "rank 0 died: it left the rendezvous at %s",
                         o->at);
    return WEFT_FAIL(
        WEFT_ERR_PEER, "rank 0 timed out: rank %d could not reach it at %s within %g s%s",
        o->rank, o->at, o->timeout_s,
        v->connected ? " (something there accepts connections and closes them)" : "");
}

static weft_status visit_until(rdzv_visit *v, weft_comm_rdzv_table *out)
{
    for (;;) {
        weft_status st = visit_once(v, out);
        if (st != WEFT_AGAIN) return st;
        if (weft_comm__rdzv_is_over(v->o)) return weft_comm__rdzv_fail_over(v->o);
        double now = weft_clock_s();
        if (now >= v->deadline || (v->gone_at > 0 && now >= v->gone_at))
            return fail_visit(v);
        if (!v->waits_logged && now >= v->soon) {
            weft_comm__rdzv_log_wait(v->o, 0, 0);
            v->waits_logged = true;
        }
        nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000}, NULL);
    }
}

static weft_status visit_host(const weft_comm_rdzv_options *o, const void *mine,
                              int64_t bytes, weft_comm_rdzv_table *out)
{
    double     now = weft_clock_s();
    rdzv_visit v   = {.o        = o,
                      .mine     = mine,
                      .bytes    = bytes,
                      .deadline = now + o->timeout_s,
                      .soon     = now + RDZV_SOON_S};
    WEFT_TRY(weft_comm__rdzv_resolve(o->at, &v.to));
    weft_status st = weft_comm__rdzv_key(o->token, &v.key);
    if (st == WEFT_OK) st = visit_until(&v, out);
    freeaddrinfo(v.to);
    weft_comm_key_wipe(&v.key);
    return st;
}

weft_status weft_comm_rdzv_run(const weft_comm_rdzv_options *o, const void *mine,
                               int64_t bytes, weft_comm_rdzv_table *out)
{
    *out = (weft_comm_rdzv_table){0};
    if (!o->token || bytes < 0 || bytes > WEFT_COMM_RDZV_MAX_BYTES)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "a rendezvous of %lld bytes%s",
                         (long long)bytes, o->token ? "" : " without a token");
    return o->rank ? visit_host(o, mine, bytes, out)
                   : weft_comm__rdzv_host(o, mine, bytes, out);
}
