/* The meeting.  A guest sends a hello and its bytes; the host answers, when all are there, with everybody's, or with
 * one line that says what went wrong. */
#include "comm/rdzv.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"

#define MAGIC UINT64_C(0x317a647274666577) /* "weftrdz1" */

enum {
    MAX_BYTES = 1 << 20, /* that a rank may bring */
    HELLO_S   = 2,       /* in which a guest must have said all */
    SOON_S    = 3,       /* after which those who wait say so */
};

typedef struct hello {
    uint64_t magic;
    int32_t  rank, world;
    int64_t  bytes;
    uint32_t sum; /* of the bytes */
    uint32_t crc; /* of all before it */
} hello;

/* The host's answer, and what follows it: a line of text, or sizes and bytes of all. */
typedef struct answer {
    uint64_t magic, job;
    int64_t  bytes;
    int32_t  failed; /* the weft_status, or 0 */
    uint32_t crc;
} answer;

/* ---- sockets with a deadline ---- */

static int ms_left(double deadline)
{
    double s = deadline - weft_clock_s();
    return s <= 0 ? 0 : s > 1e6 ? 1000000000 : (int)(s * 1e3) + 1;
}

static bool ready(int s, short events, double deadline)
{
    struct pollfd p = {.fd = s, .events = events};
    int           rc;
    do rc = poll(&p, 1, ms_left(deadline));
    while (rc < 0 && errno == EINTR && ms_left(deadline));
    return rc > 0;
}

static bool read_all(int s, void *to, int64_t n, double deadline)
{
    for (char *p = to; n > 0;) {
        ssize_t k = recv(s, p, (size_t)n, MSG_DONTWAIT);
        if (k == 0) return false;
        if (k < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (k > 0)
            p += k, n -= k;
        else if (!ready(s, POLLIN, deadline))
            return false;
    }
    return true;
}

static bool write_all(int s, const void *from, int64_t n, double deadline)
{
    for (const char *p = from; n > 0;) {
        ssize_t k = send(s, p, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno != EAGAIN && errno != EINTR) return false;
        if (k > 0)
            p += k, n -= k;
        else if (!ready(s, POLLOUT, deadline))
            return false;
    }
    return true;
}

/* ---- names ---- */

static weft_status split(const char *at, char *host, size_t n, char *port, size_t n_port)
{
    const char *colon = strrchr(at, ':');
    char       *end;
    long        number = colon ? strtol(colon + 1, &end, 10) : 0;
    if (!colon || colon == at || end == colon + 1 || *end || number < 1 ||
        number > 65535 || (size_t)(colon - at) >= n)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "'%s' is no host:port to meet at; write one such as node0:29400",
                         at);
    bool brackets = *at == '[' && colon[-1] == ']';
    snprintf(host, n, "%.*s", (int)(colon - at) - (brackets ? 2 : 0),
             at + (brackets ? 1 : 0));
    snprintf(port, n_port, "%ld", number);
    return WEFT_OK;
}

weft_status weft_comm_rdzv_check(const char *at)
{
    char host[256], port[8];
    return split(at, host, sizeof host, port, sizeof port);
}

static weft_status resolve(const char *at, struct addrinfo **out)
{
    char host[256], port[8];
    WEFT_TRY(split(at, host, sizeof host, port, sizeof port));
    struct addrinfo hint = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    int             rc   = getaddrinfo(host, port, &hint, out);
    if (rc)
        return WEFT_FAIL(WEFT_ERR_ARG, "cannot find the host of '%s': %s", at,
                         gai_strerror(rc));
    return WEFT_OK;
}

static bool same_address(const struct sockaddr *a, const struct sockaddr *b)
{
    if (!a || a->sa_family != b->sa_family) return false;
    if (a->sa_family == AF_INET)
        return !memcmp(&((const struct sockaddr_in *)(const void *)a)->sin_addr,
                       &((const struct sockaddr_in *)(const void *)b)->sin_addr, 4);
    return a->sa_family == AF_INET6 &&
           !memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                   &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr, 16);
}

void weft_comm_rdzv_device(const char *at, char *name, size_t n)
{
    struct addrinfo        *to;
    struct ifaddrs         *all;
    struct sockaddr_storage own;
    socklen_t               len = sizeof own;
    *name                       = 0;
    if (resolve(at, &to) != WEFT_OK) return;
    /* a datagram socket that is connected knows its way without sending anything */
    int  s  = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = s >= 0 && !connect(s, to->ai_addr, to->ai_addrlen) &&
              !getsockname(s, (struct sockaddr *)&own, &len);
    if (s >= 0) close(s);
    freeaddrinfo(to);
    if (!ok || getifaddrs(&all)) return;
    for (struct ifaddrs *i = all; i; i = i->ifa_next)
        if (same_address(i->ifa_addr, (struct sockaddr *)&own)) {
            snprintf(name, n, "%s", i->ifa_name);
            break;
        }
    freeifaddrs(all);
}

/* ---- the table ---- */

static weft_status no_memory(void)
{
    return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}

/* text: world sizes, then the bytes. */
static weft_status read_table(char *text, int64_t n, int world, weft_comm_meeting *out)
{
    int64_t at = (int64_t)sizeof(int64_t) * world;
    out->world = world;
    out->part  = calloc((size_t)world, sizeof *out->part);
    out->bytes = calloc((size_t)world, sizeof *out->bytes);
    if (!out->part || !out->bytes) return no_memory();
    for (int r = 0; r < world; r++) {
        if (at > n) return WEFT_FAIL(WEFT_ERR_PEER, "what rank 0 sent is damaged");
        memcpy(&out->bytes[r], text + sizeof(int64_t) * (size_t)r, sizeof(int64_t));
        out->part[r] = text + at;
        if (out->bytes[r] < 0 || out->bytes[r] > n - at)
            return WEFT_FAIL(WEFT_ERR_PEER, "what rank 0 sent is damaged");
        at += out->bytes[r];
    }
    return WEFT_OK;
}

void weft_comm_meeting_fini(weft_comm_meeting *m)
{
    free(m->part);
    free(m->bytes);
    free(m->memory);
    *m = (weft_comm_meeting){0};
}

/* ---- rank 0 ---- */

typedef struct guest {
    int     s; /* -1: not here */
    char   *p;
    int64_t bytes;
} guest;

static weft_status listen_at(const weft_comm_rdzv_options *o, int *out)
{
    char host[256], port[8];
    WEFT_TRY(split(o->at, host, sizeof host, port, sizeof port));
    int s = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, zero = 0;
    struct sockaddr_in6 six  = {.sin6_family = AF_INET6,
                                .sin6_port   = htons((uint16_t)atoi(port))};
    struct sockaddr_in  four = {.sin_family = AF_INET,
                                .sin_port   = htons((uint16_t)atoi(port))};
    struct sockaddr    *a    = (struct sockaddr *)&six;
    socklen_t           n    = sizeof six;
    if (s < 0) { /* a machine without IPv6 */
        s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        a = (struct sockaddr *)&four;
        n = sizeof four;
    } else {
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    }
    if (s >= 0) setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (s < 0 || bind(s, a, n) || listen(s, 1024)) {
        weft_status st = WEFT_FAIL(WEFT_ERR_ARG,
                                   "cannot listen on port %s for the other ranks: %s; "
                                   "choose another with --rdzv host:port or WEFT_RDZV",
                                   port, strerror(errno));
        if (s >= 0) close(s);
        return st;
    }
    *out = s;
    return WEFT_OK;
}

static bool tell(int s, uint64_t job, weft_status failed, const void *p, int64_t bytes,
                 double deadline)
{
    answer a = {.magic = MAGIC, .job = job, .bytes = bytes, .failed = (int32_t)failed};
    a.crc    = weft_hash_crc32c(0, &a, offsetof(answer, crc));
    return write_all(s, &a, sizeof a, deadline) && write_all(s, p, bytes, deadline);
}

/* One who knocks: a guest of ours, or nobody. */
static weft_status let_in(const weft_comm_rdzv_options *o, int s, guest *g)
{
    double limit = weft_clock_s() + HELLO_S;
    hello  h;
    char  *p = NULL;
    if (!read_all(s, &h, sizeof h, limit) || h.magic != MAGIC ||
        h.crc != weft_hash_crc32c(0, &h, offsetof(hello, crc)) || h.bytes < 0 ||
        h.bytes > MAX_BYTES)
        goto away;
    if (h.world != o->world) {
        weft_status st =
            WEFT_FAIL(WEFT_ERR_ARG,
                      "rank %d was told that there are %d ranks, rank 0 that "
                      "there are %d; give all the same numbers of hosts and of ranks",
                      h.rank, h.world, o->world);
        tell(s, 0, st, weft_error_text(), (int64_t)strlen(weft_error_text()), limit);
        close(s);
        return st;
    }
    if (h.rank < 1 || h.rank >= o->world || g[h.rank].s >= 0) {
        char why[160];
        snprintf(why, sizeof why,
                 "there are two processes that say they are rank %d; each host has a "
                 "--node-rank of its own",
                 h.rank);
        tell(s, 0, WEFT_ERR_ARG, why, (int64_t)strlen(why), limit);
        goto away;
    }
    p = malloc((size_t)h.bytes + 1);
    if (!p || !read_all(s, p, h.bytes, limit) ||
        weft_hash_crc32c(0, p, (size_t)h.bytes) != h.sum)
        goto away;
    g[h.rank] = (guest){.s = s, .p = p, .bytes = h.bytes};
    return WEFT_OK;
away:
    free(p);
    close(s);
    return WEFT_OK;
}

static void say_waits(const weft_comm_rdzv_options *o, int rank, int others)
{
    char text[384], more[32] = "";
    if (!o->waits) return;
    if (others) snprintf(more, sizeof more, " and %d more", others);
    snprintf(text, sizeof text, "waiting for rank %d%s at %s, %g s at most", rank, more,
             o->at, o->timeout_s);
    o->waits(text);
}

static weft_status gather(const weft_comm_rdzv_options *o, int door, guest *g)
{
    double deadline = weft_clock_s() + o->timeout_s, soon = weft_clock_s() + SOON_S;
    bool   said = soon > deadline;
    for (int left = o->world - 1; left > 0;) {
        if (!ready(door, POLLIN, said ? deadline : soon)) {
            int late = 1;
            while (g[late].s >= 0) late++;
            if (!said) {
                say_waits(o, late, left - 1);
                said = true;
                continue;
            }
            return WEFT_FAIL(WEFT_ERR_PEER,
                             "rank %d is silent: it has not come to %s within %g s", late,
                             o->at, o->timeout_s);
        }
        int s = accept4(door, NULL, NULL, SOCK_CLOEXEC);
        if (s < 0) continue;
        WEFT_TRY(let_in(o, s, g));
        left = 0;
        for (int r = 1; r < o->world; r++) left += g[r].s < 0;
    }
    return WEFT_OK;
}

static weft_status make_table(const weft_comm_rdzv_options *o, const guest *g, char **out,
                              int64_t *n)
{
    int64_t bytes = (int64_t)sizeof(int64_t) * o->world, at = bytes;
    for (int r = 0; r < o->world; r++) bytes += g[r].bytes;
    char *p = malloc((size_t)bytes);
    if (!p) return no_memory();
    for (int r = 0; r < o->world; r++) {
        memcpy(p + sizeof(int64_t) * (size_t)r, &g[r].bytes, sizeof(int64_t));
        if (g[r].bytes) memcpy(p + at, g[r].p, (size_t)g[r].bytes);
        at += g[r].bytes;
    }
    *out = p;
    *n   = bytes;
    return WEFT_OK;
}

static weft_status host(const weft_comm_rdzv_options *o, const void *mine, int64_t bytes,
                        weft_comm_meeting *out)
{
    weft_status st   = WEFT_OK;
    int         door = -1;
    char       *text = NULL;
    int64_t     n    = 0;
    guest      *g    = calloc((size_t)o->world, sizeof *g);
    if (!g) return no_memory();
    for (int r = 0; r < o->world; r++) g[r].s = -1;
    g[0].p     = malloc((size_t)bytes + 1);
    g[0].bytes = bytes;
    if (!g[0].p) WEFT_GO(no_memory());
    memcpy(g[0].p, mine, (size_t)bytes);
    if (o->listen_fd > 0)
        door = o->listen_fd;
    else
        WEFT_GO(listen_at(o, &door));
    if (getrandom(&out->job, sizeof out->job, 0) != (ssize_t)sizeof out->job)
        out->job = (uint64_t)(weft_clock_wall_s() * 1e9);
    WEFT_GO(gather(o, door, g));
    WEFT_GO(make_table(o, g, &text, &n));
    for (int r = 1; r < o->world; r++)
        if (!tell(g[r].s, out->job, WEFT_OK, text, n, weft_clock_s() + HELLO_S))
            WEFT_GO(WEFT_FAIL(WEFT_ERR_PEER, "rank %d died: it left the meeting at %s", r,
                              o->at));
    out->memory = text;
    text        = NULL;
    st          = read_table(out->memory, n, o->world, out);
out:
    for (int r = 0; r < o->world; r++) {
        if (g[r].s >= 0 && st != WEFT_OK)
            tell(g[r].s, 0, st, weft_error_text(), (int64_t)strlen(weft_error_text()),
                 weft_clock_s() + 0.2);
        if (g[r].s >= 0) close(g[r].s);
        free(g[r].p);
    }
    free(g);
    free(text);
    if (door >= 0 && door != o->listen_fd) close(door);
    return st;
}

/* ---- the others ---- */

/* Connected, or -1. */
static int try_connect(const struct addrinfo *to, double deadline)
{
    int s = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) return -1;
    int       bad = 0;
    socklen_t n   = sizeof bad;
    if (connect(s, to->ai_addr, to->ai_addrlen) &&
        (errno != EINPROGRESS || !ready(s, POLLOUT, deadline) ||
         getsockopt(s, SOL_SOCKET, SO_ERROR, &bad, &n) || bad)) {
        close(s);
        return -1;
    }
    return s;
}

static weft_status knock(const weft_comm_rdzv_options *o, const struct addrinfo *to,
                         double deadline, int *out)
{
    double soon = weft_clock_s() + SOON_S;
    bool   said = false;
    do {
        for (const struct addrinfo *a = to; a; a = a->ai_next) {
            double one = weft_clock_s() + SOON_S;
            *out       = try_connect(a, one < deadline ? one : deadline);
            if (*out >= 0) return WEFT_OK;
        }
        if (!said && weft_clock_s() >= soon) {
            say_waits(o, 0, 0);
            said = true;
        }
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    } while (ms_left(deadline));
    return WEFT_FAIL(WEFT_ERR_PEER,
                     "rank 0 is silent: rank %d could not reach it at %s within %g s",
                     o->rank, o->at, o->timeout_s);
}

static weft_status listen_to(const weft_comm_rdzv_options *o, int s, double deadline,
                             weft_comm_meeting *out)
{
    answer a;
    if (!read_all(s, &a, sizeof a, deadline))
        return WEFT_FAIL(
            WEFT_ERR_PEER,
            "rank 0 is silent: it let rank %d in at %s and then said nothing", o->rank,
            o->at);
    if (a.magic != MAGIC || a.crc != weft_hash_crc32c(0, &a, offsetof(answer, crc)) ||
        a.bytes < 0 || a.bytes > (int64_t)MAX_BYTES * o->world)
        return WEFT_FAIL(WEFT_ERR_PEER, "who listens at %s is not rank 0 of this job",
                         o->at);
    out->memory = calloc(1, (size_t)a.bytes + 1);
    if (!out->memory) return no_memory();
    if (!read_all(s, out->memory, a.bytes, deadline))
        return WEFT_FAIL(WEFT_ERR_PEER, "rank 0 died: it left the meeting at %s", o->at);
    if (a.failed)
        return WEFT_FAIL(a.failed == (int32_t)WEFT_ERR_ARG ? WEFT_ERR_ARG : WEFT_ERR_PEER,
                         "%s", (const char *)out->memory);
    out->job = a.job;
    return read_table(out->memory, a.bytes, o->world, out);
}

static weft_status visit(const weft_comm_rdzv_options *o, const void *mine, int64_t bytes,
                         weft_comm_meeting *out)
{
    double           deadline = weft_clock_s() + o->timeout_s;
    hello            h        = {.magic = MAGIC,
                                 .rank  = o->rank,
                                 .world = o->world,
                                 .bytes = bytes,
                                 .sum   = weft_hash_crc32c(0, mine, (size_t)bytes)};
    struct addrinfo *to;
    weft_status      st = WEFT_OK;
    int              s  = -1;
    h.crc               = weft_hash_crc32c(0, &h, offsetof(hello, crc));
    WEFT_TRY(resolve(o->at, &to));
    WEFT_GO(knock(o, to, deadline, &s));
    if (!write_all(s, &h, sizeof h, deadline) || !write_all(s, mine, bytes, deadline))
        WEFT_GO(
            WEFT_FAIL(WEFT_ERR_PEER, "rank 0 died: it left the meeting at %s", o->at));
    /* rank 0 waits for the others as long as we do, and says so a little later */
    st = listen_to(o, s, deadline + 5, out);
out:
    freeaddrinfo(to);
    if (s >= 0) close(s);
    return st;
}

weft_status weft_comm_rdzv_meet(const weft_comm_rdzv_options *o, const void *mine,
                                int64_t bytes, weft_comm_meeting *out)
{
    *out           = (weft_comm_meeting){0};
    weft_status st = o->rank ? visit(o, mine, bytes, out) : host(o, mine, bytes, out);
    if (st != WEFT_OK) weft_comm_meeting_fini(out);
    return st;
}
