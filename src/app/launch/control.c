#include "launch/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "launch/launch_priv.h"

enum {
    MAGIC = 0x314c4357 /* "WCL1" */
};

typedef struct control_request {
    uint32_t magic;
    int32_t  n_rank;
    char     host[64]; /* that is to leave; "": the number of ranks is to change */
} control_request;

typedef struct control_reply {
    uint32_t magic;
    int32_t  done; /* else it was refused */
    char     text[240];
} control_reply;

static socklen_t name_socket(int64_t agent, struct sockaddr_un *out)
{
    *out  = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "weft-agent-%lld",
                     (long long)agent);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* ---- the agent's end ---- */

void weft_launch__control_open(weft_launch__run *l)
{
    struct sockaddr_un name;
    socklen_t          n = name_socket(getpid(), &name);
    l->control = l->client = -1;
    if (!l->agent) return;
    l->control = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->control >= 0 && !bind(l->control, (struct sockaddr *)&name, n) &&
        !listen(l->control, 16))
        return;
    weft_launch__say(l, -1, "warn", "weft scale cannot reach this job: %s",
                     strerror(errno));
    if (l->control >= 0) close(l->control);
    l->control = -1;
}

void weft_launch__control_close(weft_launch__run *l)
{
    weft_launch__control_answer(l, false, "the job has ended");
    if (l->control >= 0) close(l->control);
    l->control = -1;
}

void weft_launch__control_answer(weft_launch__run *l, bool done, const char *text)
{
    control_reply r = {.magic = MAGIC, .done = done};
    if (l->plane) {
        weft_launch__remote_answer(l->plane, l->plane_peer, done, text);
        l->plane = NULL;
    }
    if (l->client < 0) return;
    snprintf(r.text, sizeof r.text, "%s", text);
    (void)send(l->client, &r, sizeof r, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(l->client);
    l->client = -1;
}

bool weft_launch__control_begin(weft_launch__run *l, weft_control *c, int64_t peer)
{
    if (l->client >= 0 || l->plane) return false;
    l->plane      = c;
    l->plane_peer = peer;
    return true;
}

void weft_launch__control_forget(weft_launch__run *l, const weft_control *c, int64_t peer)
{
    if (l->plane == c && l->plane_peer == peer) l->plane = NULL;
}

static bool is_own_user(int fd)
{
    struct ucred peer;
    socklen_t    n = sizeof peer;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) && peer.uid == geteuid();
}

static void accept_client(weft_launch__run *l)
{
    int fd = accept4(l->control, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    if (!is_own_user(fd)) {
        close(fd);
        return;
    }
    l->client = fd;
}

static void read_request(weft_launch__run *l)
{
    control_request q;
    char            why[240];
    ssize_t         n = recv(l->client, &q, sizeof q, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n != (ssize_t)sizeof q || q.magic != MAGIC) { /* gone, or nothing of ours */
        close(l->client);
        l->client = -1;
        return;
    }
    q.host[sizeof q.host - 1] = 0;
    bool taken = *q.host ? weft_launch__hosts_drain(l, q.host, why, sizeof why)
                         : weft_launch__agent_scale(l, q.n_rank, why, sizeof why);
    if (!taken) weft_launch__control_answer(l, false, why);
}

/* One request at a time: others wait to be accepted. */
void weft_launch__control_poll(weft_launch__run *l, struct pollfd p[2])
{
    bool free = l->client < 0 && !l->plane;
    p[0]      = (struct pollfd){.fd = free ? l->control : -1, .events = POLLIN};
    p[1]      = (struct pollfd){.fd = l->client, .events = POLLIN};
}

void weft_launch__control_hear(weft_launch__run *l, const struct pollfd p[2])
{
    if (p[1].revents && l->client >= 0) read_request(l);
    if (p[0].revents && l->client < 0) accept_client(l);
}

/* ---- clients ---- */

static weft_status await_reply(int fd, double timeout_s, control_reply *r)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int           n = poll(&p, 1, (int)(1e3 * timeout_s));
    if (n == 0)
        return WEFT_FAIL(WEFT_ERR_IO, "the job has not answered within %g s", timeout_s);
    if (n < 0 || recv(fd, r, sizeof *r, 0) != (ssize_t)sizeof *r || r->magic != MAGIC)
        return WEFT_FAIL(WEFT_ERR_IO, "the job has ended");
    r->text[sizeof r->text - 1] = 0;
    return r->done ? WEFT_OK : WEFT_FAIL(WEFT_ERR_ARG, "%s", r->text);
}

static weft_status ask_agent(int64_t agent, const control_request *q, double timeout_s,
                             char *text, size_t size)
{
    struct sockaddr_un name;
    socklen_t          length = name_socket(agent, &name);
    control_reply      r      = {0};
    weft_status        st     = WEFT_OK;
    int                fd     = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&name, length) ||
        send(fd, q, sizeof *q, MSG_NOSIGNAL) != (ssize_t)sizeof *q)
        st = WEFT_FAIL(WEFT_ERR_IO, "process %lld does not answer: %s", (long long)agent,
                       strerror(errno));
    if (st == WEFT_OK) st = await_reply(fd, timeout_s, &r);
    if (fd >= 0) close(fd);
    if (st == WEFT_OK) snprintf(text, size, "%s", r.text);
    return st;
}

weft_status weft_launch_scale(int64_t agent, int n, double timeout_s, char *text,
                              size_t size)
{
    control_request q = {.magic = MAGIC, .n_rank = n};
    return ask_agent(agent, &q, timeout_s, text, size);
}

weft_status weft_launch_drain(int64_t agent, const char *host, double timeout_s,
                              char *text, size_t size)
{
    control_request q = {.magic = MAGIC};
    snprintf(q.host, sizeof q.host, "%s", host);
    return ask_agent(agent, &q, timeout_s, text, size);
}
