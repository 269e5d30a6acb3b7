/* Ranks that somebody else started: the first makes the memory and hands it to the others over a
 * socket in the abstract name space, which leaves no file behind. */
#include "comm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

typedef struct hello {
    char    magic[8];
    int32_t me, n;
} hello;

static const char magic[8] = "weftmeet";

static socklen_t name_of(const char *key, struct sockaddr_un *a)
{
    *a    = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "weft-%ld-%s",
                     (long)getuid(), key);
    if (n > (int)sizeof a->sun_path - 2) n = (int)sizeof a->sun_path - 2;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static weft_status fail_errno(const char *what)
{
    return WEFT_FAIL(WEFT_ERR_IO, "meeting the ranks of this host: %s: %s", what,
                     strerror(errno));
}

static bool find_user(int s, struct ucred *u)
{
    socklen_t n = sizeof *u;
    return !getsockopt(s, SOL_SOCKET, SO_PEERCRED, u, &n);
}

static bool same_user(int s)
{
    struct ucred u;
    return find_user(s, &u) && u.uid == getuid();
}

/* Every process of this host may take the name: nobody gets in by that, but this run does not
 * start. */
static weft_status fail_other_user(const char *key, const struct ucred *u)
{
    return WEFT_FAIL(
        WEFT_ERR_IO,
        "the ranks of this host cannot meet: process %ld of user %ld holds the name "
        "'%s'; start "
        "them by weft run, which needs no name, or under another port or job id",
        (long)u->pid, (long)u->uid, key);
}

/* Local rank 0 cannot have the name: who holds it? */
static weft_status fail_taken(const char *key, const struct sockaddr_un *a, socklen_t len)
{
    struct ucred u = {0};
    int          s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool got = s >= 0 && !connect(s, (const struct sockaddr *)a, len) && find_user(s, &u);
    if (s >= 0) close(s);
    if (got && u.uid != getuid()) return fail_other_user(key, &u);
    return WEFT_FAIL(
        WEFT_ERR_IO,
        "the ranks of this host cannot meet: another run holds the name '%s'; "
        "give one of them another port or job id",
        key);
}

static int ms_left(double deadline)
{
    double s = deadline - weft_clock_s();
    return s <= 0 ? 0 : (int)(s * 1e3) + 1;
}

static bool readable(int s, double deadline)
{
    struct pollfd p = {.fd = s, .events = POLLIN};
    int           rc;
    do rc = poll(&p, 1, ms_left(deadline));
    while (rc < 0 && errno == EINTR && ms_left(deadline));
    return rc > 0;
}

/* One byte that carries a file descriptor. */
static bool send_fd(int s, int fd)
{
    char         byte = 1;
    struct iovec v    = {.iov_base = &byte, .iov_len = 1};
    union {
        struct cmsghdr h;
        char           space[CMSG_SPACE(sizeof(int))];
    } control            = {0};
    struct msghdr m      = {.msg_iov        = &v,
                            .msg_iovlen     = 1,
                            .msg_control    = &control,
                            .msg_controllen = sizeof control};
    control.h.cmsg_level = SOL_SOCKET;
    control.h.cmsg_type  = SCM_RIGHTS;
    control.h.cmsg_len   = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(&control.h), &fd, sizeof fd);
    return sendmsg(s, &m, MSG_NOSIGNAL) == 1;
}

static int receive_fd(int s)
{
    char         byte;
    struct iovec v = {.iov_base = &byte, .iov_len = 1};
    union {
        struct cmsghdr h;
        char           space[CMSG_SPACE(sizeof(int))];
    } control       = {0};
    struct msghdr m = {.msg_iov        = &v,
                       .msg_iovlen     = 1,
                       .msg_control    = &control,
                       .msg_controllen = sizeof control};
    int           fd;
    if (recvmsg(s, &m, MSG_CMSG_CLOEXEC) != 1) return -1;
    if (m.msg_controllen < CMSG_LEN(sizeof fd) || control.h.cmsg_type != SCM_RIGHTS)
        return -1;
    memcpy(&fd, CMSG_DATA(&control.h), sizeof fd);
    return fd;
}

/* Gives fd to each of the others once; who says something else is sent away. */
static weft_status hand_out(int door, int n, int fd, double deadline)
{
    bool had[1024] = {true};
    for (int left = n - 1; left > 0;) {
        if (!readable(door, deadline)) {
            int late = 1;
            while (had[late]) late++;
            return WEFT_FAIL(WEFT_ERR_PEER,
                             "local rank %d is silent: it has not come to this host's "
                             "meeting in time",
                             late);
        }
        hello h;
        int   s = accept4(door, NULL, NULL, SOCK_CLOEXEC);
        if (s < 0) continue;
        if (same_user(s) && readable(s, weft_clock_s() + 1) &&
            recv(s, &h, sizeof h, MSG_DONTWAIT) == (ssize_t)sizeof h &&
            !memcmp(h.magic, magic, sizeof magic) && h.n == n && h.me > 0 && h.me < n &&
            !had[h.me] && send_fd(s, fd)) {
            had[h.me] = true;
            left--;
        }
        close(s);
    }
    return WEFT_OK;
}

static weft_status host(const char *key, int n, double deadline, int *out)
{
    struct sockaddr_un a;
    socklen_t          len = name_of(key, &a);
    weft_comm_shm     *w   = NULL;
    weft_status        st  = WEFT_OK;
    int                s   = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0) return fail_errno("socket");
    WEFT_GO(weft_comm_shm_create(n, &w));
    if (bind(s, (struct sockaddr *)&a, len))
        WEFT_GO(errno == EADDRINUSE ? fail_taken(key, &a, len) : fail_errno("bind"));
    if (listen(s, n)) WEFT_GO(fail_errno("listen"));
    WEFT_GO(hand_out(s, n, weft_comm_shm_fd(w), deadline));
    *out = fcntl(weft_comm_shm_fd(w), F_DUPFD_CLOEXEC, 3);
    if (*out < 0) st = fail_errno("dup");
out:
    weft_comm_shm_destroy(w);
    close(s);
    return st;
}

static weft_status visit(const char *key, int me, int n, double deadline, int *out)
{
    struct sockaddr_un a;
    socklen_t          len = name_of(key, &a);
    hello              h   = {.me = me, .n = n};
    struct ucred       u   = {0};
    memcpy(h.magic, magic, sizeof magic);
    do {
        /* who holds the name and accepts nobody must not make connect wait */
        int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s < 0) return fail_errno("socket");
        int  fd        = -1;
        bool connected = !connect(s, (struct sockaddr *)&a, len) && find_user(s, &u);
        if (connected && u.uid != getuid()) {
            close(s);
            return fail_other_user(key, &u);
        }
        if (connected && send(s, &h, sizeof h, MSG_NOSIGNAL) == (ssize_t)sizeof h &&
            readable(s, deadline))
            fd = receive_fd(s);
        close(s);
        if (fd >= 0) {
            *out = fd;
            return WEFT_OK;
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    } while (ms_left(deadline));
    return WEFT_FAIL(WEFT_ERR_PEER,
                     "local rank 0 is silent: local rank %d of %d found no meeting '%s'",
                     me, n, key);
}

weft_status weft_comm_shm_meet(const char *key, int me, int n, double timeout_s, int *fd)
{
    double deadline = weft_clock_s() + timeout_s;
    if (n < 1 || n > 1024 || me < 0 || me >= n)
        return WEFT_FAIL(WEFT_ERR_ARG, "local rank %d of %d", me, n);
    return me ? visit(key, me, n, deadline, fd) : host(key, n, deadline, fd);
}
