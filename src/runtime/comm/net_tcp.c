/* A link by sockets of our own.
 *
 * To each peer a connection in each direction, made by who sends over it.  Ranks that share
 * processors have one for both,
 * made by the lower rank: what is sent then confirms what was received, which saves half of the
 * packets; with a processor each, two are quicker, since one can be written while the kernel
 * fills the other.  Either side of either
 * kind may meet the other: who connected listens too until another connection comes.
 * A connection begins with a mutual challenge (net_hello.c); until that is done it is a
 * stranger's, and holds nothing of ours. Data goes from the caller's memory into the kernel and
 * from there to where it belongs: a message that is awaited is received in place, one that is
 * added goes through a buffer that stays in the cache. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "comm/net_priv.h"
#include "comm/net_tcp.h"

enum {
    PIECE     = 512 << 10,
    READ_MOST = 1024 << 10, /* of one connection before others have their turn */
    AHEAD     = 8 << 10,    /* read with a head */
    ADD_BYTES = 256 << 10,
    MAX_EVENT = 32,
    MAX_IOV   = 8,
    DRAIN_MS  = 500,
    FEW = 2, /* connections that are simply tried; of more, those that are waited for */
    LOOK_UP = 16, /* then others, strangers and closings are looked for every so often */
    LAST_READS = 64, /* of READ_MOST each, of a peer whose own line broke */
    /* connections that end during the hello: a peer closes the oldest of too many */
    MAX_TRY = 200,
};

typedef enum tcp_what {
    LINE,
    INLET,
} tcp_what;

/* To a peer. */
typedef struct tcp_line {
    tcp_what         what; /* first */
    int              fd, to;
    bool             connecting, asks; /* asks: to be told when there is room */
    tcp_hello       *hello;            /* while connecting */
    tcp_secure      *secure;           /* NULL: as it is */
    int              n_try;
    int              failed; /* errno */
    struct tcp_line *next;   /* of all */
    net_parcel      *queue, **end;
    int64_t          done; /* bytes of the first parcel that are sent, with its head */
} tcp_line;

/* Where the payload of the message that is being read goes. */
typedef enum tcp_target {
    HEAD, /* between messages */
    IN_PLACE,
    ADDED,
    NOTED,
    DROPPED,
} tcp_target;

/* From a peer. */
typedef struct tcp_inlet {
    tcp_what          what; /* first */
    int               fd, from;
    tcp_secure       *secure; /* NULL: as it is */
    struct tcp_inlet *next;
    net_head          head;
    tcp_target        target;
    net_post         *post;
    net_note         *note;
    int64_t left, at; /* payload that is to come; where in the message it belongs */
    bool    stream;   /* the last message was long: read no further than a head */
    char   *part;     /* ADD_BYTES, for sums */
    int64_t n_part;
    int64_t have, begin; /* in ahead */
    char    ahead[AHEAD];
} tcp_inlet;

typedef struct tcp_state {
    tcp_listener listener;
    tcp_line    *line;
    tcp_inlet   *inlet;
    int          n_inlet;
    unsigned     turn;
} tcp_state;

static tcp_state *state_of(const net_end *e)
{
    return e->link_state;
}

static void watch(const net_end *e, int how, int fd, uint32_t events, void *what)
{
    weft_comm__tcp_watch(e, how, fd, events, what);
}

/* ---- out ---- */

static void end_hello(tcp_line *l)
{
    if (l->hello) weft_comm__tcp_hello_fini(l->hello, l->fd);
    free(l->hello);
    l->hello = NULL;
}

static void close_line(net_end *e, tcp_line *l)
{
    tcp_line **at = &state_of(e)->line;
    while (*at != l) at = &(*at)->next;
    *at                 = l->next;
    e->peer[l->to].line = NULL;
    end_hello(l);
    weft_comm__tcp_secure_close(l->secure, l->fd);
    close(l->fd);
    for (net_parcel *p = l->queue, *next; p; p = next) {
        next = p->next;
        p->sent(p);
    }
    free(l);
}

static void shift(tcp_line *l, int64_t bytes)
{
    l->done += bytes;
    while (l->queue) {
        net_parcel *p    = l->queue;
        int64_t     size = (int64_t)sizeof p->head + p->head.bytes;
        if (l->done < size) return;
        l->done -= size;
        l->queue = p->next;
        if (!l->queue) l->end = &l->queue;
        p->sent(p);
    }
}

static int gather(const tcp_line *l, struct iovec *v)
{
    int     n    = 0;
    int64_t skip = l->done;
    for (net_parcel *p = l->queue; p && n + 2 <= MAX_IOV; p = p->next, skip = 0) {
        int64_t head = (int64_t)sizeof p->head, cut = skip > head ? skip - head : 0;
        if (skip < head)
            v[n++] = (struct iovec){(char *)&p->head + skip, (size_t)(head - skip)};
        if (p->head.bytes)
            v[n++] = (struct iovec){(char *)(uintptr_t)p->data + cut,
                                    (size_t)(p->head.bytes - cut)};
    }
    return n;
}

static bool has_output(const tcp_line *l)
{
    return l->queue || (l->secure && weft_comm__tcp_secure_has_output(l->secure));
}

static ssize_t send_some(tcp_line *l)
{
    struct iovec  v[MAX_IOV];
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)gather(l, v)};
    if (l->secure)
        return weft_comm__tcp_secure_send(l->secure, l->fd, v, (int)m.msg_iovlen);
    return sendmsg(l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* As much as the kernel takes; the number of calls that did something. */
static unsigned flush(tcp_line *l)
{
    unsigned n = 0;
    while (has_output(l) && !l->connecting && !l->failed) {
        ssize_t k = send_some(l);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && errno != EAGAIN) l->failed = errno;
        if (k < 0) return n;
        shift(l, k);
        n++;
    }
    return n;
}

/* What lets a peer send on, and means the same whatever comes before it. */
static bool is_urgent(const net_parcel *p)
{
    return p->head.kind == NET_READY || p->head.kind == NET_ACK;
}

/* Behind what has begun and what is as urgent; the socket takes little ahead (net_socket.c). */
static net_parcel **find_place(tcp_line *l, const net_parcel *p)
{
    if (!is_urgent(p) || !l->queue) return l->end;
    net_parcel **at = l->done ? &l->queue->next : &l->queue;
    while (*at && is_urgent(*at)) at = &(*at)->next;
    return at;
}

static void send_parcel(net_end *e, int to, net_parcel *p)
{
    tcp_line    *l     = e->peer[to].line;
    net_parcel **at    = find_place(l, p);
    bool         empty = !l->queue;
    p->next            = *at;
    *at                = p;
    if (!p->next) l->end = &p->next;
    if (empty) flush(l);
}

/* Takes fd and secure.  Connecting: a hello comes first, else the connection has had it. */
static bool open_line(net_end *e, int to, int fd, tcp_secure *secure, bool connecting)
{
    tcp_line  *l     = fd < 0 ? NULL : calloc(1, sizeof *l);
    tcp_hello *hello = connecting && l ? calloc(1, sizeof *hello) : NULL;
    if (!l ||
        (connecting && (!hello || weft_comm__tcp_hello_start(e, to, hello) != WEFT_OK))) {
        weft_comm__tcp_secure_close(secure, fd);
        if (fd >= 0) close(fd);
        free(hello);
        free(l);
        return false;
    }
    *l               = (tcp_line){.what       = LINE,
                                  .fd         = fd,
                                  .to         = to,
                                  .connecting = connecting,
                                  .asks       = connecting,
                                  .next       = state_of(e)->line,
                                  .end        = &l->queue,
                                  .hello      = hello,
                                  .secure     = secure};
    e->peer[to].line = state_of(e)->line = l;
    watch(e, EPOLL_CTL_ADD, fd, EPOLLRDHUP | (connecting ? EPOLLOUT : 0), l);
    return true;
}

static tcp_inlet *inlet_of(const net_end *e, int from)
{
    for (tcp_inlet *in = state_of(e)->inlet; in; in = in->next)
        if (in->from == from) return in;
    return NULL;
}

static bool open_inlet(net_end *e, int from, int fd, tcp_secure *secure);

static bool free_descriptor(net_end *e)
{
    return weft_comm__tcp_listener_free(e, &state_of(e)->listener);
}

/* The other direction of a connection. */
static int twin(net_end *e, int fd)
{
    int other;
    do other = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    while (other < 0 && errno == EMFILE && free_descriptor(e));
    return other;
}

static int connect_socket(net_end *e, int to, int *why)
{
    const net_peer *p = &e->peer[to];
    int             fd;
    do fd = weft_comm__tcp_connect(p->address, p->address_bytes, p->here, why);
    while (fd < 0 && (*why == EMFILE || *why == ENFILE) && free_descriptor(e));
    return fd;
}

static void connect_to(net_end *e, int to)
{
    int why = ENOMEM, fd = connect_socket(e, to, &why);
    if (!open_line(e, to, fd, NULL, true)) weft_comm__net_broke(e, to, strerror(why));
}

/* The connection ended during the hello. */
static bool connect_again(net_end *e, tcp_line *l)
{
    int why, fd = l->n_try++ < MAX_TRY ? connect_socket(e, l->to, &why) : -1;
    if (fd < 0) return false;
    weft_comm__tcp_hello_fini(l->hello, l->fd);
    close(l->fd);
    l->fd     = fd;
    l->failed = 0;
    if (weft_comm__tcp_hello_start(e, l->to, l->hello) != WEFT_OK) return false;
    watch(e, EPOLL_CTL_ADD, fd, EPOLLRDHUP | EPOLLOUT, l);
    return true;
}

/* Both ends are ranks of this run: what was queued goes. */
static void begin_line(net_end *e, tcp_line *l)
{
    l->secure = weft_comm__tcp_hello_take(l->hello);
    end_hello(l);
    l->connecting = false;
    if (!inlet_of(e, l->to)) /* until another comes */
        open_inlet(e, l->to, twin(e, l->fd), weft_comm__tcp_secure_share(l->secure));
    flush(l);
    l->asks = has_output(l);
    watch(e, EPOLL_CTL_MOD, l->fd, EPOLLRDHUP | (l->asks ? EPOLLOUT : 0), l);
}

static void free_copy(net_parcel *p)
{
    free(p);
}

/* What was begun is ended from a copy, so that the line stays good for words. */
static void withdraw(net_end *e, int to, net_parcel *p)
{
    tcp_line    *l  = e->peer[to].line;
    net_parcel **at = l ? &l->queue : NULL;
    while (at && *at && *at != p) at = &(*at)->next;
    if (!at || !*at) return;
    net_parcel *copy = NULL, *next = p->next;
    if (p == l->queue && l->done) {
        copy = malloc(sizeof *copy + p->head.bytes);
        if (!copy) {
            l->queue = next;
            close_line(e, l);
            return;
        }
        *copy      = *p;
        copy->data = memcpy(copy + 1, p->data, p->head.bytes);
        copy->sent = free_copy;
    }
    *at = copy ? copy : next;
    if (!next) l->end = copy ? &copy->next : at;
}

/* ---- in ---- */

/* Nothing more is written into the message that is being read. */
static void detach(tcp_inlet *in, tcp_target target)
{
    if (in->post) in->post->feeder = NULL;
    in->post   = NULL;
    in->target = target;
}

static void close_inlet(net_end *e, tcp_inlet *in)
{
    tcp_state  *s  = state_of(e);
    tcp_inlet **at = &s->inlet;
    while (*at != in) at = &(*at)->next;
    *at = in->next;
    s->n_inlet--;
    detach(in, HEAD);
    weft_comm__tcp_secure_close(in->secure, in->fd);
    close(in->fd);
    if (in->note) weft_comm__net_free_note(e, in->note);
    free(in->part);
    free(in);
}

/* Where what follows the head goes. */
static bool aim(net_end *e, tcp_inlet *in)
{
    in->left   = in->head.bytes;
    in->at     = in->head.at;
    in->n_part = 0;
    in->stream = in->left > AHEAD;
    if (!in->left) {
        weft_comm__net_arrive(e, &in->head, NULL);
        return true;
    }
    net_post *post =
        in->head.kind == NET_DATA ? weft_comm__net_awaited(e, &in->head) : NULL;
    if (post && post->mine && !in->part && !(in->part = malloc(ADD_BYTES))) return false;
    if (post) {
        in->post     = post;
        post->feeder = in;
        in->target   = post->mine ? ADDED : IN_PLACE;
        return true;
    }
    /* what was asked for, and is awaited no longer, is dropped */
    int64_t unasked = in->head.port & NET_IS_GROUP ? PIECE : NET_UNASKED + NET_SHORT;
    in->target      = DROPPED;
    if (in->head.kind == NET_DATA && in->at > unasked - in->left) return true;
    in->target = NOTED;
    in->note   = weft_comm__net_new_note(e, in->left);
    return in->note != NULL;
}

/* Bytes of the payload lie where `room` said. */
static void took(net_end *e, tcp_inlet *in, int64_t bytes)
{
    in->left -= bytes;
    if (in->target == IN_PLACE) {
        weft_comm__net_take(e, in->post, in->at, NULL, bytes);
        in->at += bytes;
    } else if (in->target == ADDED) {
        in->n_part += bytes;
        int64_t whole = in->left ? in->n_part / 64 * 64 : in->n_part;
        weft_comm__net_take(e, in->post, in->at, in->part, whole);
        in->at += whole;
        in->n_part -= whole;
        if (in->n_part) memmove(in->part, in->part + whole, (size_t)in->n_part);
    }
    if (in->left) return;
    if (in->target == NOTED) {
        net_note *n    = in->note;
        in->note       = NULL;
        n->parcel.head = in->head;
        if (in->head.kind == NET_DATA) {
            weft_comm__net_arrive_note(e, n);
        } else {
            weft_comm__net_arrive(e, &in->head, n->data);
            weft_comm__net_free_note(e, n);
        }
    }
    detach(in, HEAD);
}

/* Where the next bytes of the payload go, and how many at most. */
static char *room(net_end *e, tcp_inlet *in, int64_t *most)
{
    *most = in->left;
    switch (in->target) {
    case IN_PLACE: return in->post->out + in->at;
    case NOTED: return in->note->data + (in->head.bytes - in->left);
    case ADDED:
        if (*most > ADD_BYTES - in->n_part) *most = ADD_BYTES - in->n_part;
        return in->part + in->n_part;
    default: return e->bounce; /* PIECE bytes */
    }
}

static bool is_refused(const net_end *e, int from)
{
    return e->peer[from].broken && e->peer[from].wrong;
}

/* The head that was read.  False: nothing more is read from here. */
static bool use_head(net_end *e, tcp_inlet *in)
{
    const net_head *h     = &in->head;
    const char     *wrong = weft_comm__net_check_head(e, h);
    if (wrong) e->n_refused++;
    if (!wrong && h->source != in->from) wrong = "a message in the name of another rank";
    if (wrong && weft_comm__net_is_ours(e, h)) weft_comm__net_refuse(e, in->from, wrong);
    return !wrong && !is_refused(e, in->from) && aim(e, in) && !is_refused(e, in->from);
}

/* What was read ahead.  False: these are not our heads. */
static bool use_ahead(net_end *e, tcp_inlet *in)
{
    while (in->have) {
        if (in->target != HEAD) {
            int64_t most;
            char   *to = room(e, in, &most);
            if (most > in->have) most = in->have;
            memcpy(to, in->ahead + in->begin, (size_t)most);
            in->begin += most;
            in->have -= most;
            took(e, in, most);
            continue;
        }
        if (in->have < (int64_t)sizeof in->head) break;
        memcpy(&in->head, in->ahead + in->begin, sizeof in->head);
        in->begin += (int64_t)sizeof in->head;
        in->have -= (int64_t)sizeof in->head;
        if (!use_head(e, in)) return false;
    }
    if (in->have) memmove(in->ahead, in->ahead + in->begin, (size_t)in->have);
    in->begin = 0;
    return true;
}

static void hang_up(net_end *e, tcp_inlet *in, const char *how)
{
    int from = in->from;
    close_inlet(e, in);
    if (!e->peer[from].gone) weft_comm__net_broke(e, from, how);
}

static ssize_t receive_some(const tcp_inlet *in, struct msghdr *m)
{
    if (in->secure)
        return weft_comm__tcp_secure_recv(in->secure, in->fd, m->msg_iov,
                                          (int)m->msg_iovlen);
    return recvmsg(in->fd, m, MSG_DONTWAIT);
}

/* What is inside TLS has been read from the socket, so that will not say that it is there. */
static bool has_input(const tcp_inlet *in)
{
    return in->secure && weft_comm__tcp_secure_has_input(in->secure);
}

/* Reads what there is, up to READ_MOST; in may be gone afterwards. */
static unsigned read_inlet(net_end *e, tcp_inlet *in)
{
    unsigned n = 0;
    for (int64_t sum = 0; sum < READ_MOST || has_input(in); n++) {
        struct iovec  v[2];
        struct msghdr m    = {.msg_iov = v};
        int64_t       most = 0, ahead = AHEAD - in->have;
        bool          small = in->target == HEAD ? in->stream : in->left > AHEAD;
        if (small) ahead = (int64_t)sizeof in->head - in->have;
        if (in->target != HEAD) {
            char *to          = room(e, in, &most);
            v[m.msg_iovlen++] = (struct iovec){to, (size_t)most};
            if (most < in->left) ahead = 0;
        }
        if (ahead)
            v[m.msg_iovlen++] = (struct iovec){in->ahead + in->have, (size_t)ahead};
        ssize_t k = receive_some(in, &m);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && errno == EAGAIN) return n;
        if (k <= 0) {
            hang_up(e, in, k ? strerror(errno) : "closed");
            return n + 1;
        }
        sum += k;
        int64_t body = k < most ? k : most;
        in->have += k - body;
        if (body) took(e, in, body);
        if (!use_ahead(e, in)) {
            hang_up(e, in, "not our words");
            return n + 1;
        }
        if (k < most + ahead) return n + 1; /* all there was */
    }
    return n;
}

static void forget(net_end *e, net_post *post)
{
    (void)e;
    detach(post->feeder, DROPPED);
}

static bool is_inlet(const net_end *e, const void *p)
{
    for (tcp_inlet *in = state_of(e)->inlet; in; in = in->next)
        if (in == p) return true;
    return false;
}

/* Takes fd and secure. */
static bool open_inlet(net_end *e, int from, int fd, tcp_secure *secure)
{
    tcp_state *s  = state_of(e);
    tcp_inlet *in = fd < 0 ? NULL : calloc(1, sizeof *in);
    if (!in) {
        weft_comm__tcp_secure_close(secure, fd);
        if (fd >= 0) close(fd);
        return false;
    }
    in->what   = INLET;
    in->fd     = fd;
    in->from   = from;
    in->secure = secure;
    in->next   = s->inlet;
    s->inlet   = in;
    s->n_inlet++;
    watch(e, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP, in);
    return true;
}

/* A rank of this run has connected.  Takes fd and secure. */
static void introduce(net_end *e, int from, int fd, tcp_secure *secure)
{
    tcp_inlet *old  = inlet_of(e, from);
    net_peer  *peer = &e->peer[from];
    if (old) close_inlet(e, old);
    if (!peer->here) weft_comm__tcp_far(fd);
    if (!open_inlet(e, from, fd, secure)) return;
    /* a way back, if only for the good-bye */
    if (peer->line || peer->dead || peer->gone || peer->broken) return;
    bool back = e->crowded && open_line(e, from, twin(e, fd),
                                        weft_comm__tcp_secure_share(secure), false);
    if (!back) connect_to(e, from);
}

/* ---- both ---- */

/* What the peer said before comes first: perhaps it took its leave, or knows who is to blame. */
static void give_up_line(net_end *e, tcp_line *l)
{
    int        to = l->to;
    tcp_inlet *in;
    for (int i = 0; i < LAST_READS && (in = inlet_of(e, to)) != NULL; i++)
        if (!read_inlet(e, in)) break;
    if (e->peer[to].line != l) return;
    if (e->peer[to].gone)
        close_line(e, l);
    else
        weft_comm__net_broke(e, to, l->failed ? strerror(l->failed) : "closed");
}

/* Did a connection that failed so exist before?  One that was refused or not answered did not. */
static bool was_connected(int failed)
{
    return !failed || failed == ECONNRESET || failed == EPIPE || failed == ECONNABORTED;
}

/* While the hello is under way.  Who was connected and is not any more tries again. */
static void hello_event(net_end *e, tcp_line *l, uint32_t events)
{
    socklen_t size = sizeof l->failed;
    int       rc   = -1;
    if (events & EPOLLERR) getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &l->failed, &size);
    if (!l->failed) rc = weft_comm__tcp_hello_drive(l->fd, l->hello);
    if (rc > 0) {
        begin_line(e, l);
    } else if (!rc) {
        bool out = weft_comm__tcp_hello_wants_out(l->hello);
        watch(e, EPOLL_CTL_MOD, l->fd, EPOLLIN | EPOLLRDHUP | (out ? EPOLLOUT : 0), l);
    } else if (l->hello->auth.state == WEFT_COMM_AUTH_FAILED) {
        weft_comm__net_broke(e, l->to, weft_comm_auth_why(&l->hello->auth));
    } else if (!was_connected(l->failed) || !connect_again(e, l)) {
        give_up_line(e, l);
    }
}

static void line_event(net_end *e, tcp_line *l, uint32_t events)
{
    socklen_t size = sizeof l->failed;
    if (l->hello) {
        hello_event(e, l, events);
        return;
    }
    if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) {
        getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &l->failed, &size);
        give_up_line(e, l);
        return;
    }
    if (!(events & EPOLLOUT)) return;
    flush(l);
    if (has_output(l)) return;
    l->asks = false;
    watch(e, EPOLL_CTL_MOD, l->fd, EPOLLRDHUP, l);
}

static bool is_line(const net_end *e, const void *p)
{
    for (tcp_line *l = state_of(e)->line; l; l = l->next)
        if (l == p) return true;
    return false;
}

/* An event of this turn may have closed what a later one is about. */
static unsigned look_up(net_end *e)
{
    struct epoll_event ev[MAX_EVENT];
    unsigned           done = 0;
    weft_comm__tcp_listener_turn(e, &state_of(e)->listener);
    int n = epoll_wait(e->efd, ev, MAX_EVENT, 0);
    for (int i = 0; i < n; i++) {
        void *p = ev[i].data.ptr;
        if (is_inlet(e, p)) {
            done += read_inlet(e, p);
        } else if (is_line(e, p)) {
            line_event(e, p, ev[i].events);
            done++;
        } else {
            done += weft_comm__tcp_listener_event(e, &state_of(e)->listener, p);
        }
    }
    return done;
}

static unsigned read_from(net_end *e, int from)
{
    tcp_inlet *in = inlet_of(e, from);
    return in ? read_inlet(e, in) : 0;
}

/* What the caller waits for, and words that let it send on.  What others send ahead stays with
 * the kernel meanwhile, to be received in place. */
static unsigned read_due(net_end *e)
{
    unsigned n = 0;
    for (const net_post *p = e->joined->post; p; p = p->next)
        if (!p->done) n += read_from(e, p->source);
    for (const net_flow *f = n ? NULL : e->flow; f; f = f->next)
        if (!f->granted) n += read_from(e, f->to);
    return n;
}

static unsigned progress(net_end *e)
{
    tcp_state *s   = state_of(e);
    unsigned   n   = 0;
    bool       due = e->joined && e->n_wait == 1;
    if (s->listener.n_stranger || (s->n_inlet > FEW && !due))
        n = look_up(e);
    else if (s->n_inlet > FEW)
        n = read_due(e);
    for (tcp_inlet *in = s->inlet, *next; in && s->n_inlet <= FEW; in = next) {
        next =
            in->next; /* strangers are looked up: one that says who it is may end another */
        if (in->from >= 0) n += read_inlet(e, in);
    }
    for (tcp_line *l = s->line, *next; l; l = next) {
        next = l->next;
        if (has_output(l)) n += flush(l);
        if (l->failed && !e->peer[l->to].broken) give_up_line(e, l);
    }
    if (s->turn++ % LOOK_UP == 0) n += look_up(e);
    return n;
}

/* The kernel tells; who has something to send wants to know when there is room. */
static bool arm(net_end *e)
{
    for (tcp_line *l = state_of(e)->line; l; l = l->next)
        if (has_output(l) && !l->asks) {
            l->asks = true;
            watch(e, EPOLL_CTL_MOD, l->fd, EPOLLRDHUP | EPOLLOUT, l);
        }
    state_of(e)->turn = 0; /* then look who woke us */
    return true;
}

static void cut(net_end *e, int to)
{
    tcp_inlet *in = inlet_of(e, to);
    if (e->peer[to].line) close_line(e, e->peer[to].line);
    if (in) close_inlet(e, in);
}

static weft_status open_link(net_end *e, const char *device)
{
    tcp_state *s = e->link_state = calloc(1, sizeof *s);
    if (!s) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    s->listener.fd = s->listener.reserve_fd = -1;
    e->efd                                  = epoll_create1(EPOLL_CLOEXEC);
    if (e->efd < 0) return WEFT_FAIL(WEFT_ERR_IO, "epoll: %s", strerror(errno));
    return weft_comm__tcp_listener_open(e, &s->listener, device, introduce);
}

/* A connection closed with something unread in it takes what is still to be sent along: so that
 * waits, for a while, until the other side's kernel has it. */
static void drain(net_end *e)
{
    const struct timespec ms = {.tv_nsec = 1000000};
    for (int left = DRAIN_MS; left; left--) {
        int unsent = 0;
        for (tcp_line *l = state_of(e)->line; l && !unsent; l = l->next) {
            if (!l->queue && has_output(l)) flush(l);
            if (l->failed || ioctl(l->fd, SIOCOUTQ, &unsent)) unsent = 0;
            if (!l->failed && !l->queue && has_output(l)) unsent = 1;
        }
        if (!unsent) return;
        for (tcp_inlet *in = state_of(e)->inlet; in; in = in->next)
            while (recv(in->fd, e->bounce, PIECE, MSG_DONTWAIT) > 0) {
            }
        nanosleep(&ms, NULL);
    }
}

static int list_lines(net_end *e, weft_comm_link *out, int n)
{
    int k = 0;
    for (tcp_line *l = state_of(e)->line; l && k < n; l = l->next) {
        out[k].rank = l->to;
        if (!l->connecting && !l->failed && weft_comm__tcp_account(l->fd, &out[k])) k++;
    }
    return k;
}

static void close_link(net_end *e)
{
    tcp_state *s = state_of(e);
    if (e->bounce) drain(e);
    while (s->line) close_line(e, s->line);
    while (s->inlet) close_inlet(e, s->inlet);
    weft_comm__tcp_listener_close(&s->listener);
    if (e->efd >= 0) close(e->efd);
    free(e->address);
    free(s);
}

const net_link weft_comm__net_tcp = {
    .name     = "tcp",
    .piece    = PIECE,
    .open     = open_link,
    .arm      = arm,
    .list     = list_lines,
    .progress = progress,
    .connect  = connect_to,
    .send     = send_parcel,
    .withdraw = withdraw,
    .cut      = cut,
    .forget   = forget,
    .close    = close_link,
};
