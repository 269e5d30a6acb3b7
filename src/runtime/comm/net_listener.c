/* The socket at which a rank listens, and who came and has not proven yet that it is a rank of
 * this run.
 *
 * A stranger has a fixed struct and a deadline; of too many, and where no descriptor is left, the
 * oldest is closed, first of those that have not begun a hello.  Nothing it sends but the hello is
 * read, and nothing of the job knows of it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/net_priv.h"
#include "comm/net_tcp.h"

enum {
    MAX_ACCEPT = 64, /* connections in one turn */
};

static const double HELLO_S = 5;   /* in which a stranger must have proven itself */
static const double REST_S  = 0.1; /* while no descriptor is left */

struct tcp_stranger {
    tcp_stranger *next;
    int           fd;
    double        until;
    tcp_hello     hello;
};

void weft_comm__tcp_watch(const net_end *e, int how, int fd, uint32_t events, void *what)
{
    struct epoll_event ev = {.events = events, .data.ptr = what};
    epoll_ctl(e->efd, how, fd, &ev);
}

/* ---- strangers ---- */

static bool is_stranger(const tcp_listener *d, const void *p)
{
    for (tcp_stranger *x = d->stranger; x; x = x->next)
        if (x == p) return true;
    return false;
}

static void close_stranger(tcp_listener *d, tcp_stranger *x)
{
    tcp_stranger **at = &d->stranger;
    while (*at != x) at = &(*at)->next;
    *at = x->next;
    d->n_stranger--;
    if (x->fd >= 0) close(x->fd);
    x->fd    = -1;
    x->next  = d->spent;
    d->spent = x;
}

static void refuse_stranger(net_end *e, tcp_listener *d, tcp_stranger *x)
{
    e->n_refused++;
    close_stranger(d, x);
}

static void free_spent(tcp_listener *d)
{
    for (tcp_stranger *x; (x = d->spent) != NULL;) {
        d->spent = x->next;
        weft_comm__tcp_hello_fini(&x->hello, -1);
        free(x);
    }
}

/* Takes fd. */
static bool open_stranger(net_end *e, tcp_listener *d, int fd)
{
    tcp_stranger *x = calloc(1, sizeof *x);
    if (!x || weft_comm__tcp_hello_await(e, &x->hello) != WEFT_OK) {
        free(x);
        close(fd);
        return false;
    }
    x->fd       = fd;
    x->until    = weft_clock_s() + HELLO_S;
    x->next     = d->stranger;
    d->stranger = x;
    d->n_stranger++;
    weft_comm__tcp_watch(e, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP, x);
    return true;
}

static void serve_stranger(net_end *e, tcp_listener *d, tcp_stranger *x)
{
    int rc   = weft_comm__tcp_hello_drive(x->fd, &x->hello);
    int from = x->hello.auth.claim.from;
    if (!rc) return;
    if (rc < 0 || from < 0 || from >= e->c.world || from == e->c.rank) {
        refuse_stranger(e, d, x);
        return;
    }
    int fd = x->fd;
    weft_comm__tcp_watch(e, EPOLL_CTL_DEL, fd, 0, NULL);
    x->fd = -1;
    close_stranger(d, x);
    d->admit(e, from, fd, weft_comm__tcp_hello_take(&x->hello));
}

/* The oldest of those that have sent no first message of a hello yet; without any, the oldest. */
static tcp_stranger *oldest_stranger(const tcp_listener *d)
{
    tcp_stranger *oldest = NULL, *mute = NULL;
    for (tcp_stranger *x = d->stranger; x; x = x->next) {
        oldest = x;
        if (!weft_comm_auth_begun(&x->hello.auth)) mute = x;
    }
    return mute ? mute : oldest;
}

/* The oldest has its last chance.  False: there is none. */
static bool drop_oldest(net_end *e, tcp_listener *d)
{
    tcp_stranger *oldest = oldest_stranger(d);
    if (oldest) serve_stranger(e, d, oldest);
    if (oldest && is_stranger(d, oldest)) refuse_stranger(e, d, oldest);
    return oldest != NULL;
}

static void drop_late(net_end *e, tcp_listener *d)
{
    double now = weft_clock_s();
    for (tcp_stranger *x = d->stranger, *next; x; x = next) {
        next = x->next;
        if (now >= x->until) refuse_stranger(e, d, x);
    }
}

/* ---- descriptors ---- */

/* Called while a message is read: nothing is read here. */
bool weft_comm__tcp_listener_free(net_end *e, tcp_listener *d)
{
    tcp_stranger *oldest = oldest_stranger(d);
    if (oldest) refuse_stranger(e, d, oldest);
    if (oldest) return true;
    if (d->reserve_fd < 0) return false;
    close(d->reserve_fd);
    d->reserve_fd = -1;
    return true;
}

static void take_reserve(tcp_listener *d)
{
    if (d->reserve_fd < 0) d->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* A quarter of the descriptors is for who has not said who it is; at the start that may be all
 * peers at once. */
static int most_strangers(int world)
{
    struct rlimit limit;
    int           most = 64 + world;
    if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur / 4 < (rlim_t)most)
        most = (int)(limit.rlim_cur / 4);
    return most > world ? most : world;
}

/* ---- listening ---- */

/* Connections stay in the kernel's queue until there is a descriptor again; meanwhile they do not
 * wake this end. */
static void rest_listener(net_end *e, tcp_listener *d)
{
    d->rests_until = weft_clock_s() + REST_S;
    weft_comm__tcp_watch(e, EPOLL_CTL_MOD, d->fd, 0, d);
}

static void watch_listener_again(net_end *e, tcp_listener *d)
{
    d->rests_until = 0;
    weft_comm__tcp_watch(e, EPOLL_CTL_MOD, d->fd, EPOLLIN, d);
}

/* The number of those who came. */
static unsigned accept_strangers(net_end *e, tcp_listener *d)
{
    unsigned n = 0;
    for (int turn = 0; turn < MAX_ACCEPT; turn++) {
        int fd = weft_comm__tcp_accept(d->fd);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
            if (drop_oldest(e, d) || weft_comm__tcp_listener_free(e, d)) continue;
            rest_listener(e, d);
            return n;
        }
        if (fd < 0 && (errno == ENOMEM || errno == ENOBUFS)) rest_listener(e, d);
        if (fd < 0) break;
        n++;
        if (d->n_stranger >= d->most_stranger) drop_oldest(e, d);
        if (!open_stranger(e, d, fd)) break;
    }
    take_reserve(d);
    return n;
}

void weft_comm__tcp_listener_turn(net_end *e, tcp_listener *d)
{
    free_spent(d);
    if (d->n_stranger) drop_late(e, d);
    if (d->rests_until > 0 && weft_clock_s() >= d->rests_until)
        watch_listener_again(e, d);
}

unsigned weft_comm__tcp_listener_event(net_end *e, tcp_listener *d, const void *p)
{
    if (p == d) return accept_strangers(e, d);
    if (!is_stranger(d, p)) return 0;
    serve_stranger(e, d, (tcp_stranger *)(uintptr_t)p);
    return 1;
}

weft_status weft_comm__tcp_listener_open(net_end *e, tcp_listener *d, const char *device,
                                         void (*admit)(net_end *e, int from, int fd,
                                                       tcp_secure *secure))
{
    d->admit         = admit;
    d->most_stranger = most_strangers(e->c.world);
    WEFT_TRY(weft_comm__tcp_listen(device, &d->fd, &e->address, &e->address_bytes));
    weft_comm__tcp_watch(e, EPOLL_CTL_ADD, d->fd, EPOLLIN, d);
    take_reserve(d);
    return WEFT_OK;
}

void weft_comm__tcp_listener_close(tcp_listener *d)
{
    while (d->stranger) close_stranger(d, d->stranger);
    free_spent(d);
    if (d->fd >= 0) close(d->fd);
    if (d->reserve_fd >= 0) close(d->reserve_fd);
}
