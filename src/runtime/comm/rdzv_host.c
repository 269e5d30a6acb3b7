/* Rank 0's side of the rendezvous: one poll loop over sockets that do not block.
 *
 * (1) Every turn looks at the deadline first and does a bounded amount of work, whatever is
 *     connected.
 * (2) A connection that has not proven that it has the token holds a fixed struct, for
 *     RDZV_HELLO_S at most; above a limit the oldest of them is closed, and a guest that this
 *     hits connects again.
 * (3) Out of descriptors: the oldest unproven connection is closed, else the one that waits is
 *     accepted on a descriptor kept in reserve and closed.  Where even that fails, listening
 *     pauses.
 * (4) Nothing a stranger sends is printed but the number of its address. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/rdzv_priv.h"

enum {
    MAX_UNPROVEN = 64, /* and one for each rank */
    ACCEPT_MOST  = 64, /* in one turn */
    LOG_FIRST    = 5,  /* connections turned away that are logged at once */
    LOG_EVERY_S  = 10, /* then the number of them */
    ANSWER_S     = 5,  /* in which all guests must take the table */
    PAUSE_MS     = 50,
};

typedef struct rdzv_conn {
    struct rdzv_conn *next;     /* the newest first */
    int               fd, slot; /* slot: in the array of poll(), -1: not yet */
    double            until;
    bool       loopback, member, leaving; /* leaving: gets its refusal, then is closed */
    char       from[64];
    rdzv_guest guest;
    /* the answer: head and text of a refusal, its MAC; or of the table, the body being the host's
     */
    rdzv_answer   head;
    weft_comm_mac mac;
    char          text[512];
    const char   *body;
    int64_t       sent;
} rdzv_conn;

typedef struct rdzv_host {
    const weft_comm_rdzv_options *o;
    double                        deadline, soon, log_after, paused_until;
    bool                          waits_logged;
    rdzv_listeners                listeners;
    int                           reserve; /* a descriptor for nothing but its number */
    rdzv_conn                    *conn;
    int                           n_conn, n_unproven, n_member;
    rdzv_conn                   **member; /* by rank; NULL: not here */
    struct pollfd                *poll;
    int                           n_poll;
    bool                          out_of_descriptors; /* at least once */
    int64_t                       n_turned_away, n_logged;
    char                          last_away[256], last_refusal[512];
} rdzv_host;

static weft_status no_memory(void)
{
    return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}

static bool is_proven(const rdzv_conn *c)
{
    return c->guest.auth.state == WEFT_COMM_AUTH_DONE;
}

/* ---- reporting ---- */

static void log_text(const rdzv_host *h, bool warning, const char *text)
{
    if (h->o->log) h->o->log(warning, text);
}

/* It has another token, mode or version, and not only another epoch. */
static bool is_stranger(const rdzv_conn *c)
{
    weft_comm_auth_reason why = c->guest.auth.reason;
    return why == WEFT_COMM_AUTH_PROOF || why == WEFT_COMM_AUTH_MODE ||
           why == WEFT_COMM_AUTH_VERSION;
}

/* The first few by themselves, then how many there were, every so often. */
static void note_turned_away(rdzv_host *h, const rdzv_conn *c, const char *why)
{
    char   text[400];
    double now = weft_clock_s();
    h->n_turned_away++;
    snprintf(h->last_away, sizeof h->last_away, "%s: %s", c->from, why);
    if (h->n_turned_away > LOG_FIRST && now < h->log_after) return;
    if (h->o->epoch && !is_stranger(c)) return; /* a rank of another membership */
    if (h->n_turned_away <= LOG_FIRST)
        snprintf(text, sizeof text, "rendezvous: turned away a connection from %s",
                 h->last_away);
    else
        snprintf(text, sizeof text,
                 "rendezvous: turned away %lld more connections, the last from %s",
                 (long long)(h->n_turned_away - h->n_logged), h->last_away);
    h->n_logged  = h->n_turned_away;
    h->log_after = now + LOG_EVERY_S;
    log_text(h, true, text);
}

static int find_missing(const rdzv_host *h)
{
    int r = 1;
    while (r < h->o->world && h->member[r]) r++;
    return r;
}

/* The deadline, with what is known about the reason. */
static weft_status fail_late(const rdzv_host *h)
{
    const weft_comm_rdzv_options *o         = h->o;
    char                          more[700] = "";
    if (*h->last_refusal)
        snprintf(more, sizeof more, " (refused: %s)", h->last_refusal);
    else if (h->out_of_descriptors)
        snprintf(more, sizeof more,
                 " (rank 0 ran out of file descriptors: raise ulimit -n)");
    else if (h->n_turned_away)
        snprintf(more, sizeof more, " (turned away: %lld, the last from %s)",
                 (long long)h->n_turned_away, h->last_away);
    return WEFT_FAIL(WEFT_ERR_PEER,
                     "rank %d timed out: it did not come to %s within %g s%s",
                     find_missing(h), o->at, o->timeout_s, more);
}

/* ---- connections ---- */

static void close_conn(rdzv_host *h, rdzv_conn *c)
{
    rdzv_conn **at = &h->conn;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    h->n_conn--;
    h->n_unproven -= !is_proven(c);
    if (c->member) {
        h->member[c->guest.hello.rank] = NULL;
        h->n_member--;
    }
    weft_comm__rdzv_guest_fini(&c->guest);
    close(c->fd);
    free(c);
}

static void turn_away(rdzv_host *h, rdzv_conn *c, const char *why)
{
    note_turned_away(h, c, why);
    close_conn(h, c);
}

static void close_oldest_unproven(rdzv_host *h)
{
    rdzv_conn *oldest = NULL;
    for (rdzv_conn *c = h->conn; c; c = c->next)
        if (!is_proven(c)) oldest = c;
    if (oldest) turn_away(h, oldest, "there are too many connections like it");
}

static void open_conn(rdzv_host *h, int fd, const struct sockaddr *from, socklen_t len)
{
    rdzv_conn *c = calloc(1, sizeof *c);
    if (!c ||
        weft_comm__rdzv_guest_init(&c->guest, h->o->token, h->o->epoch) != WEFT_OK) {
        free(c);
        close(fd);
        return;
    }
    c->fd       = fd;
    c->slot     = -1;
    c->until    = weft_clock_s() + RDZV_HELLO_S;
    c->loopback = weft_comm__rdzv_is_loopback(from);
    weft_comm__rdzv_print(from, len, c->from, sizeof c->from);
    c->next = h->conn;
    h->conn = c;
    h->n_conn++;
    h->n_unproven++;
    if (h->n_unproven > MAX_UNPROVEN + h->o->world) close_oldest_unproven(h);
}

/* accept() found no descriptor.  What waits is taken off the queue, or listening pauses: poll()
 * would report it at once. */
static void make_room(rdzv_host *h, int listener)
{
    h->out_of_descriptors = true;
    if (h->n_unproven) {
        close_oldest_unproven(h);
        return;
    }
    if (h->reserve >= 0) close(h->reserve);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) close(fd);
    h->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || h->reserve < 0) h->paused_until = weft_clock_s() + PAUSE_MS * 1e-3;
}

static void accept_some(rdzv_host *h, int listener)
{
    for (int i = 0; i < ACCEPT_MOST; i++) {
        struct sockaddr_storage from = {0};
        socklen_t               len  = sizeof from;
        int                     fd   = accept4(listener, (struct sockaddr *)&from, &len,
                                               SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            weft_comm__rdzv_set_nodelay(fd);
            open_conn(h, fd, (struct sockaddr *)&from, len);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            make_room(h, listener);
        return;
    }
}

/* ---- answers ---- */

/* As much of the answer as the kernel takes.  1: all is sent, 0: more is left, -1: the guest is
 * gone. */
static int send_answer(rdzv_conn *c)
{
    const struct {
        const void *p;
        int64_t     bytes;
    } piece[] = {
        {&c->head, sizeof c->head}, {c->body, c->head.bytes}, {&c->mac, sizeof c->mac}};
    for (;;) {
        int64_t at = c->sent;
        size_t  i  = 0;
        while (i < WEFT_COUNT(piece) && at >= piece[i].bytes) at -= piece[i++].bytes;
        if (i == WEFT_COUNT(piece)) return 1;
        ssize_t n =
            send(c->fd, (const char *)piece[i].p + at, (size_t)(piece[i].bytes - at),
                 MSG_NOSIGNAL | MSG_DONTWAIT | (i < 2 ? MSG_MORE : 0));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN ? 0 : -1;
        c->sent += n;
    }
}

/* body stays valid until it is sent. */
static bool prepare_answer(rdzv_conn *c, weft_status failed, const char *body,
                           int64_t bytes)
{
    c->head = (rdzv_answer){.failed = (int32_t)failed, .bytes = bytes};
    c->body = body;
    c->sent = 0;
    return weft_comm_auth_seal(&c->guest.auth, &c->head, sizeof c->head, body,
                               (size_t)bytes, &c->mac) == WEFT_OK;
}

/* A guest that has the token and cannot be let in gets a line that says why; rank 0 goes on
 * waiting for the right one. */
static void refuse_guest(rdzv_host *h, rdzv_conn *c, const char *why)
{
    char text[700];
    snprintf(h->last_refusal, sizeof h->last_refusal, "%s", why);
    snprintf(text, sizeof text, "rendezvous: refused a guest from %s: %s", c->from, why);
    log_text(h, true, text);
    snprintf(c->text, sizeof c->text, "%s", why);
    c->leaving = true;
    if (!prepare_answer(c, WEFT_ERR_ARG, c->text, (int64_t)strlen(c->text)) ||
        send_answer(c))
        close_conn(h, c);
}

/* All that this guest sent is its own: now it is looked at. */
static void admit_guest(rdzv_host *h, rdzv_conn *c)
{
    const rdzv_hello *g = &c->guest.hello;
    char              why[400];
    if (g->world != h->o->world) {
        snprintf(why, sizeof why,
                 "rank %d was started for %d ranks, rank 0 for %d; "
                 "give all "
                 "the same numbers of hosts and of ranks",
                 g->rank, g->world, h->o->world);
        refuse_guest(h, c, why);
        return;
    }
    if (g->rank < 1 || g->rank >= h->o->world || h->member[g->rank]) {
        snprintf(why, sizeof why,
                 "there are two processes that say they are rank %d; each host has a "
                 "--node-rank of its own",
                 g->rank);
        refuse_guest(h, c, why);
        return;
    }
    if (h->o->check && h->o->check(c->guest.body, g->bytes, c->loopback) != WEFT_OK) {
        snprintf(why, sizeof why, "rank %d: %s", g->rank, weft_error_text());
        refuse_guest(h, c, why);
        return;
    }
    c->member          = true;
    h->member[g->rank] = c;
    h->n_member++;
}

/* ---- one connection ---- */

static bool flush_proof(rdzv_conn *c)
{
    size_t      n;
    const void *p = weft_comm_auth_output(&c->guest.auth, &n);
    ssize_t     k = n ? send(c->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    if (k < 0) return errno == EAGAIN || errno == EINTR;
    weft_comm_auth_sent(&c->guest.auth, (size_t)k);
    return true;
}

/* Reads what there is, no further than the guest's record.  The loop ends: each turn reads some
 * of a bounded record. */
static void serve_guest(rdzv_host *h, rdzv_conn *c)
{
    for (;;) {
        size_t  most;
        bool    unproven = !is_proven(c);
        char   *to       = weft_comm__rdzv_guest_room(&c->guest, &most);
        ssize_t n        = most ? recv(c->fd, to, most, MSG_DONTWAIT) : -1;
        if (!most) errno = EAGAIN;
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (n <= 0) {
            turn_away(h, c, weft_comm__rdzv_guest_why(&c->guest));
            return;
        }
        weft_comm__rdzv_guest_took(&c->guest, (size_t)n);
        h->n_unproven -= unproven && is_proven(c);
        bool sent = flush_proof(c); /* also the last word to one that failed */
        if (!sent || c->guest.stage == RDZV_WRONG) {
            turn_away(h, c, weft_comm__rdzv_guest_why(&c->guest));
            return;
        }
        if (c->guest.stage == RDZV_CAME) {
            admit_guest(h, c);
            return;
        }
    }
    if (!flush_proof(c)) turn_away(h, c, weft_comm__rdzv_guest_why(&c->guest));
}

static void serve_conn(rdzv_host *h, rdzv_conn *c)
{
    if (c->leaving) {
        if (send_answer(c)) close_conn(h, c);
    } else if (c->member) { /* it has nothing more to say: it is gone */
        char text[160];
        snprintf(text, sizeof text, "rendezvous: rank %d left again",
                 c->guest.hello.rank);
        log_text(h, true, text);
        close_conn(h, c);
    } else {
        serve_guest(h, c);
    }
}

/* ---- the loop ---- */

static void close_expired(rdzv_host *h, double now)
{
    for (rdzv_conn *c = h->conn, *next; c; c = next) {
        next = c->next;
        if (c->member || now < c->until) continue;
        if (c->leaving)
            close_conn(h, c);
        else
            turn_away(h, c, weft_comm__rdzv_guest_why(&c->guest));
    }
}

static short events_of(const rdzv_conn *c)
{
    size_t n = 0;
    if (c->member) return POLLRDHUP;
    if (c->leaving) return POLLOUT;
    weft_comm_auth_output(&c->guest.auth, &n);
    return n ? POLLIN | POLLOUT : POLLIN;
}

static weft_status fill_poll(rdzv_host *h, double now)
{
    int need = h->listeners.n + h->n_conn, n = 0;
    if (need > h->n_poll) {
        struct pollfd *more = realloc(h->poll, sizeof *more * 2 * (size_t)need);
        if (!more) return no_memory();
        h->poll   = more;
        h->n_poll = 2 * need;
    }
    for (int i = 0; i < h->listeners.n; i++)
        h->poll[n++] = (struct pollfd){
            .fd = now < h->paused_until ? -1 : h->listeners.fd[i], .events = POLLIN};
    for (rdzv_conn *c = h->conn; c; c = c->next) {
        c->slot      = n;
        h->poll[n++] = (struct pollfd){.fd = c->fd, .events = events_of(c)};
    }
    return WEFT_OK;
}

static double next_time(const rdzv_host *h, double now)
{
    double t = h->deadline, look = now + RDZV_LOOK_MS * 1e-3;
    if (h->o->is_over && look < t) t = look;
    if (!h->waits_logged && h->soon < t) t = h->soon;
    if (now < h->paused_until && h->paused_until < t) t = h->paused_until;
    for (const rdzv_conn *c = h->conn; c; c = c->next)
        if (!c->member && c->until < t) t = c->until;
    return t;
}

static weft_status wait_once(rdzv_host *h, double now)
{
    WEFT_TRY(fill_poll(h, now));
    int n = poll(h->poll, (nfds_t)(h->listeners.n + h->n_conn),
                 weft_comm__rdzv_ms_left(next_time(h, now)));
    if (n < 0 && errno != EINTR)
        return WEFT_FAIL(WEFT_ERR_IO, "rendezvous: poll: %s", strerror(errno));
    if (n <= 0) return WEFT_OK;
    for (rdzv_conn *c = h->conn, *next; c; c = next) {
        next = c->next;
        if (c->slot >= 0 && h->poll[c->slot].revents) serve_conn(h, c);
    }
    for (int i = 0; i < h->listeners.n; i++)
        if (h->poll[i].revents) accept_some(h, h->listeners.fd[i]);
    return WEFT_OK;
}

static weft_status gather_members(rdzv_host *h)
{
    while (h->n_member < h->o->world - 1) {
        double now = weft_clock_s();
        if (now >= h->deadline) return fail_late(h);
        if (weft_comm__rdzv_is_over(h->o)) return weft_comm__rdzv_fail_over(h->o);
        if (!h->waits_logged && now >= h->soon) {
            weft_comm__rdzv_log_wait(h->o, find_missing(h),
                                     h->o->world - 2 - h->n_member);
            h->waits_logged = true;
        }
        close_expired(h, now);
        WEFT_TRY(wait_once(h, now));
    }
    return WEFT_OK;
}

/* ---- the end ---- */

/* To all that came, at once; a rank that does not take it, or -1. */
static int answer_members(rdzv_host *h, weft_status failed, const char *body,
                          int64_t bytes, double within_s)
{
    double until = weft_clock_s() + within_s;
    int    lost = -1, left = 0;
    for (int r = 1; r < h->o->world; r++) {
        rdzv_conn *c = h->member[r];
        if (c && !prepare_answer(c, failed, body, bytes)) lost = r;
        left += c != NULL;
    }
    for (bool more = lost < 0; more && left;) {
        int n = 0;
        for (int r = 1; r < h->o->world; r++) {
            rdzv_conn *c  = h->member[r];
            int        rc = c ? send_answer(c) : 1;
            if (rc < 0) lost = r;
            if (!c || rc) {
                if (c) close_conn(h, c); /* sent, or gone */
                continue;
            }
            h->poll[n++] = (struct pollfd){.fd = c->fd, .events = POLLOUT};
        }
        left = n;
        more = weft_clock_s() < until;
        if (n && more) poll(h->poll, (nfds_t)n, weft_comm__rdzv_ms_left(until));
    }
    for (int r = 1; left && lost < 0 && r < h->o->world; r++)
        if (h->member[r]) lost = r;
    return lost;
}

static weft_status give_table(rdzv_host *h, const void *mine, int64_t bytes,
                              weft_comm_rdzv_table *out)
{
    uint8_t     nonce[WEFT_COMM_NONCE_BYTES];
    char       *text = NULL;
    int64_t     n    = 0;
    rdzv_part  *part = calloc((size_t)h->o->world, sizeof *part);
    weft_status st   = WEFT_OK;
    if (!part) return no_memory();
    part[0] = (rdzv_part){mine, bytes};
    for (int r = 1; r < h->o->world; r++)
        part[r] = (rdzv_part){h->member[r]->guest.body, h->member[r]->guest.hello.bytes};
    WEFT_GO(weft_comm_random(nonce, sizeof nonce));
    WEFT_GO(weft_comm__rdzv_table_print(nonce, h->o->world, part, &text, &n));
    int lost = answer_members(h, WEFT_OK, text, n, ANSWER_S);
    if (lost >= 0) {
        free(text);
        WEFT_GO(WEFT_FAIL(WEFT_ERR_PEER, "rank %d died: it left the rendezvous at %s",
                          lost, h->o->at));
    }
    st = weft_comm__rdzv_table_parse(text, n, h->o->world, h->o->token, out);
out:
    free(part);
    return st;
}

static weft_status open_listeners(rdzv_host *h)
{
    const weft_comm_rdzv_options *o = h->o;
    if (o->listen_fd > 0) {
        fcntl(o->listen_fd, F_SETFL, fcntl(o->listen_fd, F_GETFL) | O_NONBLOCK);
        h->listeners = (rdzv_listeners){.fd = {o->listen_fd}, .n = 1};
        return WEFT_OK;
    }
    WEFT_TRY(weft_comm__rdzv_listen(o->at, &h->listeners));
    if (h->listeners.loopback && weft_comm__rdzv_is_name(o->at)) {
        char text[400];
        snprintf(text, sizeof text,
                 "rendezvous: %s is a loopback address on this host (/etc/hosts?), which "
                 "other "
                 "hosts cannot reach: give the address of its network instead",
                 o->at);
        log_text(h, true, text);
    }
    return WEFT_OK;
}

weft_status weft_comm__rdzv_host(const weft_comm_rdzv_options *o, const void *mine,
                                 int64_t bytes, weft_comm_rdzv_table *out)
{
    double    now = weft_clock_s();
    rdzv_host h   = {
          .o = o, .deadline = now + o->timeout_s, .soon = now + RDZV_SOON_S, .reserve = -1};
    weft_status st = WEFT_OK;
    h.member       = calloc((size_t)o->world, sizeof(rdzv_conn *));
    if (!h.member) WEFT_GO(no_memory());
    WEFT_GO(open_listeners(&h));
    h.reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    WEFT_GO(fill_poll(&h, now));
    WEFT_GO(gather_members(&h));
    st = give_table(&h, mine, bytes, out);
out:
    if (st != WEFT_OK && h.n_member) {
        char why[1024];
        snprintf(why, sizeof why, "%s", weft_error_text());
        answer_members(&h, st, why, (int64_t)strlen(why), 0.5);
        WEFT_FAIL(st, "%s", why);
    }
    while (h.conn) close_conn(&h, h.conn);
    if (o->listen_fd <= 0) weft_comm__rdzv_close(&h.listeners);
    if (h.reserve >= 0) close(h.reserve);
    free(h.poll);
    free(h.member);
    return st;
}
