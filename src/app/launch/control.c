#include "launch/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "launch/launch_priv.h"

enum {
    MAGIC      = 0x324c4357, /* "WCL2" */
    N_LISTENER = 2,          /* by process, by address */
    MAX_CLIENT = 8,          /* others wait to be accepted */
    MAX_TEXT   = 4000,
};

typedef enum request_kind {
    ASK_STATE,
    ASK_SCALE,
    ASK_DRAIN,
} request_kind;

typedef struct control_request {
    uint32_t magic;
    int32_t  kind;
    int32_t  n_rank;
    char     host[64]; /* ASK_DRAIN: that is to leave */
    /* ASK_STATE: of the output folder that is asked about; 0: any */
    uint64_t device, inode;
} control_request;

typedef struct control_reply {
    uint32_t magic;
    int32_t  answer; /* weft_launch__answer */
    char     text[MAX_TEXT];
} control_reply;

typedef struct client {
    int             fd;    /* -1: none */
    bool            waits; /* its request is read, and not begun */
    control_request request;
} client;

struct weft_launch__control {
    int           epoll;
    int           listener[N_LISTENER];
    client        client[MAX_CLIENT];
    int           served; /* whose request changes the job; -1: none's */
    weft_control *plane;  /* or a tool of another host's; NULL: none's */
    int64_t       plane_peer;
    const char   *plane_command; /* which it runs */
};

static socklen_t name_socket(const weft_launch_agent *agent, struct sockaddr_un *out)
{
    *out  = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "%s", agent->name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

void weft_launch_agent_by_pid(int64_t pid, weft_launch_agent *out)
{
    snprintf(out->name, sizeof out->name, "weft-agent-%lld", (long long)pid);
}

void weft_launch_agent_by_address(const char *address, weft_launch_agent *out)
{
    snprintf(out->name, sizeof out->name, "weft-agent-at-%s", address);
}

/* ---- the agent's end: sockets ---- */

static bool watch_socket(weft_launch__control *c, int fd)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
    return !epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &e);
}

static bool listen_as(weft_launch__control *c, int k, const weft_launch_agent *agent)
{
    struct sockaddr_un name;
    socklen_t          n = name_socket(agent, &name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && !bind(fd, (struct sockaddr *)&name, n) && !listen(fd, 16) &&
        watch_socket(c, fd)) {
        c->listener[k] = fd;
        return true;
    }
    int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
    return false;
}

void weft_launch__control_open(weft_launch__run *l)
{
    weft_launch_agent     agent;
    weft_launch__control *c = l->agent ? calloc(1, sizeof *c) : NULL;
    if (!c) return;
    l->control = c;
    c->served  = -1;
    for (int k = 0; k < N_LISTENER; k++) c->listener[k] = -1;
    for (int k = 0; k < MAX_CLIENT; k++) c->client[k].fd = -1;
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    weft_launch_agent_by_pid(getpid(), &agent);
    bool fine = c->epoll >= 0 && listen_as(c, 0, &agent);
    if (fine && l->hosts) {
        weft_launch_agent_by_address(weft_launch__hosts_address(l), &agent);
        fine = listen_as(c, 1, &agent);
    }
    if (!fine)
        weft_launch__say(l, -1, "warn",
                         "weft status and weft scale cannot reach this job: %s",
                         strerror(errno));
}

void weft_launch__control_close(weft_launch__run *l)
{
    weft_launch__control *c = l->control;
    if (!c) return;
    weft_launch__control_answer(l, WEFT_LAUNCH__REFUSED, "the job has ended");
    for (int k = 0; k < N_LISTENER; k++)
        if (c->listener[k] >= 0) close(c->listener[k]);
    for (int k = 0; k < MAX_CLIENT; k++)
        if (c->client[k].fd >= 0) close(c->client[k].fd);
    if (c->epoll >= 0) close(c->epoll);
    free(c);
    l->control = NULL;
}

static void drop_client(weft_launch__control *c, int k)
{
    close(c->client[k].fd);
    c->client[k] = (client){.fd = -1};
    if (c->served == k) c->served = -1;
}

static void answer_client(weft_launch__control *c, int k, weft_launch__answer answer,
                          const char *text)
{
    control_reply r = {.magic = MAGIC, .answer = (int32_t)answer};
    snprintf(r.text, sizeof r.text, "%s", text);
    (void)send(c->client[k].fd, &r, sizeof r, MSG_NOSIGNAL | MSG_DONTWAIT);
    drop_client(c, k);
}

/* ---- the agent's end: requests that change the job, one at a time ---- */

void weft_launch__control_answer(weft_launch__run *l, weft_launch__answer answer,
                                 const char *text)
{
    weft_launch__control *c = l->control;
    if (!c) return;
    if (c->plane) {
        weft_launch__remote_answer(c->plane, c->plane_peer, c->plane_command, answer,
                                   text);
        c->plane = NULL;
    }
    if (c->served >= 0) answer_client(c, c->served, answer, text);
}

static bool is_busy(const weft_launch__control *c)
{
    return c->served >= 0 || c->plane;
}

bool weft_launch__control_begin(weft_launch__run *l, weft_control *c, int64_t peer,
                                const char *command)
{
    if (!l->control || is_busy(l->control)) return false;
    l->control->plane         = c;
    l->control->plane_peer    = peer;
    l->control->plane_command = command;
    return true;
}

void weft_launch__control_forget(weft_launch__run *l, const weft_control *c, int64_t peer)
{
    weft_launch__control *own = l->control;
    if (own && own->plane == c && own->plane_peer == peer) own->plane = NULL;
}

static void begin_change(weft_launch__run *l, int k)
{
    client *x = &l->control->client[k];
    char    why[240];
    x->waits           = false;
    l->control->served = k;
    bool taken         = x->request.kind == ASK_DRAIN
                             ? weft_launch__hosts_drain(l, x->request.host, why, sizeof why)
                             : weft_launch__agent_scale(l, x->request.n_rank, why, sizeof why);
    if (!taken) weft_launch__control_answer(l, WEFT_LAUNCH__REFUSED, why);
}

/* ---- the agent's end: clients ---- */

static bool is_own_user(int fd)
{
    struct ucred peer;
    socklen_t    n = sizeof peer;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) && peer.uid == geteuid();
}

/* Is it about the output folder of this job? */
static bool is_own_folder(const weft_launch__run *l, const control_request *q)
{
    struct stat s;
    if (!q->device && !q->inode) return true;
    return l->o->output && !stat(l->o->output, &s) && q->device == (uint64_t)s.st_dev &&
           q->inode == (uint64_t)s.st_ino;
}

static void answer_state(weft_launch__run *l, int k)
{
    weft_text t = {0};
    if (!is_own_folder(l, &l->control->client[k].request)) {
        answer_client(l->control, k, WEFT_LAUNCH__REFUSED,
                      "the job has another output folder");
        return;
    }
    weft_launch__print_state(l, &t);
    if (weft_text_status(&t) == WEFT_OK && t.n < MAX_TEXT)
        answer_client(l->control, k, WEFT_LAUNCH__DONE, t.s);
    else
        answer_client(l->control, k, WEFT_LAUNCH__REFUSED, "too much to say");
    weft_text_fini(&t);
}

static void read_request(weft_launch__run *l, int k)
{
    client         *x = &l->control->client[k];
    control_request q;
    ssize_t         n = recv(x->fd, &q, sizeof q, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n != (ssize_t)sizeof q || q.magic != MAGIC || x->waits ||
        l->control->served == k) { /* gone, or nothing of ours */
        drop_client(l->control, k);
        return;
    }
    q.host[sizeof q.host - 1] = 0;
    x->request                = q;
    x->waits                  = q.kind != ASK_STATE;
    if (!x->waits) answer_state(l, k);
}

/* As many as there is room for. */
static void accept_clients(weft_launch__control *c)
{
    for (int k = 0; k < MAX_CLIENT; k++) {
        if (c->client[k].fd >= 0) continue;
        int fd = -1;
        for (int i = 0; i < N_LISTENER && fd < 0; i++)
            if (c->listener[i] >= 0)
                fd = accept4(c->listener[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return;
        if (is_own_user(fd) && watch_socket(c, fd))
            c->client[k].fd = fd;
        else
            close(fd);
    }
}

int weft_launch__control_fd(const weft_launch__run *l)
{
    return l->control ? l->control->epoll : -1;
}

void weft_launch__control_hear(weft_launch__run *l, bool ready)
{
    weft_launch__control *c = l->control;
    struct epoll_event    e[N_LISTENER + MAX_CLIENT];
    if (!c) return;
    if (ready && epoll_wait(c->epoll, e, N_LISTENER + MAX_CLIENT, 0) > 0) {
        accept_clients(c);
        for (int k = 0; k < MAX_CLIENT; k++)
            if (c->client[k].fd >= 0) read_request(l, k);
        accept_clients(c); /* those that have waited for room */
    }
    for (int k = 0; k < MAX_CLIENT && !is_busy(c); k++)
        if (c->client[k].waits) begin_change(l, k);
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
    if (r->answer == WEFT_LAUNCH__DONE) return WEFT_OK;
    return WEFT_FAIL(r->answer == WEFT_LAUNCH__MISSED ? WEFT_ERR_PEER : WEFT_ERR_ARG,
                     "%s", r->text);
}

static weft_status ask_agent(const weft_launch_agent *agent, const control_request *q,
                             double timeout_s, control_reply *r)
{
    struct sockaddr_un name;
    socklen_t          length = name_socket(agent, &name);
    weft_status        st     = WEFT_OK;
    int                fd     = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&name, length) ||
        send(fd, q, sizeof *q, MSG_NOSIGNAL) != (ssize_t)sizeof *q)
        st = WEFT_FAIL(WEFT_ERR_IO, "%s does not answer: %s", agent->name,
                       strerror(errno));
    if (st == WEFT_OK) st = await_reply(fd, timeout_s, r);
    if (fd >= 0) close(fd);
    return st;
}

weft_status weft_launch_ask_state(const weft_launch_agent *agent, const char *dir,
                                  double timeout_s, weft_text *out)
{
    struct stat   s = {0};
    control_reply r = {0};
    if (dir && stat(dir, &s))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s", dir, strerror(errno));
    control_request q = {.magic  = MAGIC,
                         .kind   = ASK_STATE,
                         .device = (uint64_t)s.st_dev,
                         .inode  = (uint64_t)s.st_ino};
    WEFT_TRY(ask_agent(agent, &q, timeout_s, &r));
    weft_text_add(out, "%s", r.text);
    return weft_text_status(out);
}

weft_status weft_launch_scale(const weft_launch_agent *agent, int n, double timeout_s,
                              char *text, size_t size)
{
    control_request q = {.magic = MAGIC, .kind = ASK_SCALE, .n_rank = n};
    control_reply   r = {0};
    WEFT_TRY(ask_agent(agent, &q, timeout_s, &r));
    snprintf(text, size, "%s", r.text);
    return WEFT_OK;
}

weft_status weft_launch_drain(const weft_launch_agent *agent, const char *host,
                              double timeout_s, char *text, size_t size)
{
    control_request q = {.magic = MAGIC, .kind = ASK_DRAIN};
    control_reply   r = {0};
    snprintf(q.host, sizeof q.host, "%s", host);
    WEFT_TRY(ask_agent(agent, &q, timeout_s, &r));
    snprintf(text, size, "%s", r.text);
    return WEFT_OK;
}
