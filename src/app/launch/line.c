#include "launch/line.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/launch_priv.h"

enum {
    MAGIC = 0x314e4c57, /* "WLN1" */
    LOOKS = 8           /* at the agent, in the time that it may be stopped */
};

struct weft_line {
    int              fd;
    int              quit[2]; /* a pipe: its end wakes the thread */
    pthread_t        thread;
    bool             reading;
    double           stopped_s; /* that the agent may be stopped; 0: for ever */
    _Atomic uint32_t over;      /* the newest epoch that lost a rank */
    uint32_t         leave;     /* under lock: the newest epoch that is to be left */
    uint32_t         drains;    /* the same, as a host goes */
    pthread_mutex_t  lock;
    pthread_cond_t   moved;
    /* under lock */
    weft_line_view view;  /* the newest; epoch 0: none yet */
    bool           ended; /* by the agent */
    char           why[1024];
    weft_line_next next;    /* to prepare for; world 0: none */
    bool           asked;   /* in a view, for that, and not taken yet */
    int            used_fd; /* what await gave last; -1: nothing */
};

/* ---- messages ---- */

weft_status weft_line_put(int line, const weft_line_message *m, int fd)
{
    weft_line_message out = *m;
    out.magic             = MAGIC;
    union {
        struct cmsghdr head;
        char           room[CMSG_SPACE(sizeof(int))];
    } control       = {0};
    struct iovec  v = {&out, sizeof out};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
    if (fd >= 0) {
        h.msg_control     = &control;
        h.msg_controllen  = sizeof control.room;
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level     = SOL_SOCKET;
        c->cmsg_type      = SCM_RIGHTS;
        c->cmsg_len       = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    ssize_t n;
    do n = sendmsg(line, &h, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof out)
        return WEFT_FAIL(WEFT_ERR_IO, "control connection: %s",
                         n < 0 ? strerror(errno) : "a message was cut off");
    return WEFT_OK;
}

static int take_descriptor(struct msghdr *h)
{
    int fd = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
            c->cmsg_len == CMSG_LEN(sizeof fd))
            memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

bool weft_line_take(int line, weft_line_message *out, int *fd, weft_line_end *end)
{
    union {
        struct cmsghdr head;
        char           room[CMSG_SPACE(sizeof(int))];
    } control       = {0};
    struct iovec  v = {out, sizeof *out};
    struct msghdr h = {.msg_iov        = &v,
                       .msg_iovlen     = 1,
                       .msg_control    = &control,
                       .msg_controllen = sizeof control.room};
    ssize_t       n;
    *fd  = -1;
    *end = WEFT_LINE_OPEN;
    do n = recvmsg(line, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) return false;
    if (n > 0) *fd = take_descriptor(&h);
    if (n == (ssize_t)sizeof *out && out->magic == MAGIC && out->kind >= 0 &&
        out->kind < WEFT_N_LINE_KIND) {
        out->text[sizeof out->text - 1]       = 0;
        out->cause[sizeof out->cause - 1]     = 0;
        out->decided[sizeof out->decided - 1] = 0;
        return true;
    }
    if (*fd >= 0) close(*fd);
    *fd  = -1;
    *end = n > 0 ? WEFT_LINE_GARBAGE : WEFT_LINE_GONE;
    return false;
}

/* ---- a rank's end ---- */

static void keep_view(weft_line *l, const weft_line_message *m, int fd)
{
    bool possible = m->world > 0 && m->local > 0 && m->first >= 0 && m->mine >= 0 &&
                    m->first <= m->world - m->local && m->most >= m->world &&
                    m->most_local >= m->local && m->most_local <= m->most &&
                    (m->local == m->world) == !*m->text &&
                    strnlen(m->text, sizeof m->text) < sizeof l->view.rdzv;
    if (fd < 0 || m->epoch <= l->view.epoch || !possible) {
        if (fd >= 0) close(fd);
        return;
    }
    if (l->view.shm_fd >= 0 && l->view.shm_fd != l->used_fd) close(l->view.shm_fd);
    l->asked = false; /* to prepare for it */
    l->view  = (weft_line_view){.epoch      = m->epoch,
                                .world      = m->world,
                                .first      = m->first,
                                .local      = m->local,
                                .mine       = m->mine,
                                .most       = m->most,
                                .most_local = m->most_local,
                                .saves      = m->saves,
                                .restarts   = m->restarts,
                                .shm_fd     = fd};
    memcpy(l->view.key, m->key, sizeof l->view.key);
    memcpy(l->view.rdzv, m->text, strnlen(m->text, sizeof l->view.rdzv - 1));
}

static void note_over(weft_line *l, uint32_t epoch)
{
    if (epoch > atomic_load(&l->over)) atomic_store(&l->over, epoch);
}

static void end_line(weft_line *l, const char *why)
{
    if (!l->ended) memcpy(l->why, why, strnlen(why, sizeof l->why - 1));
    l->ended = true;
}

static void forget_next(weft_line *l)
{
    if (l->next.brief_fd >= 0) close(l->next.brief_fd);
    l->next = (weft_line_next){.brief_fd = -1};
}

static void keep_next(weft_line *l, const weft_line_message *m, int fd)
{
    bool possible = m->world > 0 && m->local > 0 && m->first >= 0 &&
                    m->first <= m->world - m->local && m->mine >= 0 && m->mine < m->local;
    bool once = !l->view.epoch; /* what a new process prepares for stays */
    if ((l->next.world && once) || !possible) {
        if (fd >= 0) close(fd);
        return;
    }
    forget_next(l);
    l->next                                         = (weft_line_next){.world    = m->world,
                                                                       .first    = m->first,
                                                                       .local    = m->local,
                                                                       .mine     = m->mine,
                                                                       .lesson   = m->lesson,
                                                                       .brief_fd = fd};
    l->next.lesson.at[sizeof l->next.lesson.at - 1] = 0;
    if (m->lesson.first < 0 || m->lesson.first >= m->world) l->next.lesson.first = 0;
    memcpy(l->next.hosts, m->text, sizeof l->next.hosts);
    l->asked = !once;
}

/* false: there will be no further message. */
static bool read_messages(weft_line *l)
{
    weft_line_message m;
    int               fd;
    weft_line_end     end;
    pthread_mutex_lock(&l->lock);
    while (weft_line_take(l->fd, &m, &fd, &end)) {
        if (m.kind == WEFT_LINE_VIEW)
            keep_view(l, &m, fd);
        else if (m.kind == WEFT_LINE_PREPARE)
            keep_next(l, &m, fd);
        else if (fd >= 0)
            close(fd);
        if (m.kind == WEFT_LINE_VIEW || m.kind == WEFT_LINE_OVER) note_over(l, m.over);
        if (m.kind == WEFT_LINE_LEAVE && m.epoch > l->leave) l->leave = m.epoch;
        if (m.kind == WEFT_LINE_LEAVE && m.local) l->drains = m.epoch;
        if (m.kind == WEFT_LINE_END) end_line(l, m.text);
    }
    if (end == WEFT_LINE_GONE) end_line(l, "weft run is gone");
    if (end == WEFT_LINE_GARBAGE) end_line(l, "weft run sent what is no message");
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
    return end == WEFT_LINE_OPEN;
}

/* Seconds of this process in which the agent is stopped: where both were, none pass. */
typedef struct agent_watch {
    double look_s, last_s, stopped_s;
} agent_watch;

static bool is_agent_gone(const weft_line *l, agent_watch *w)
{
    double now_s = weft_clock_s(), past_s = now_s - w->last_s, cpu_s;
    char   state = 0;
    if (l->stopped_s <= 0 || past_s < w->look_s) return false;
    weft_launch__read_stat(getppid(), &cpu_s, &state);
    w->last_s    = now_s;
    w->stopped_s = state == 'T' ? w->stopped_s + fmin(past_s, 2 * w->look_s) : 0;
    return w->stopped_s >= l->stopped_s;
}

/* Ranks leave after the step under way, and find that no view follows. */
static void leave_stopped(weft_line *l)
{
    pthread_mutex_lock(&l->lock);
    end_line(l, "weft run is stopped, and others may go on without it");
    l->leave = UINT32_MAX;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
}

static void *read_line(void *arg)
{
    weft_line    *l    = arg;
    struct pollfd p[2] = {{.fd = l->fd, .events = POLLIN},
                          {.fd = l->quit[0], .events = POLLIN}};
    agent_watch   w    = {.look_s = l->stopped_s / LOOKS, .last_s = weft_clock_s()};
    int           ms   = l->stopped_s > 0 ? (int)(1e3 * w.look_s) + 1 : -1;
    bool          open = true;
    while (open && !p[1].revents) {
        if (poll(p, 2, ms) < 0 && errno != EINTR) break;
        if (p[0].revents) open = read_messages(l);
        if (!is_agent_gone(l, &w)) continue;
        leave_stopped(l);
        break;
    }
    return NULL;
}

weft_status weft_line_open(int fd, double stopped_s, weft_line **out)
{
    weft_line *l = calloc(1, sizeof *l);
    if (!l) {
        close(fd);
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    l->fd          = fd;
    l->stopped_s   = stopped_s;
    l->view.shm_fd = l->used_fd = l->quit[0] = l->quit[1] = l->next.brief_fd = -1;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->moved, NULL);
    weft_status st = WEFT_OK;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (pipe2(l->quit, O_CLOEXEC))
        st = WEFT_FAIL(WEFT_ERR_IO, "pipe: %s", strerror(errno));
    else if (pthread_create(&l->thread, NULL, read_line, l))
        st = WEFT_FAIL(WEFT_ERR_MEM, "no thread to hear weft run with");
    else
        l->reading = true;
    if (st != WEFT_OK)
        weft_line_close(l);
    else
        *out = l;
    return st;
}

void weft_line_close(weft_line *l)
{
    if (!l) return;
    if (l->quit[1] >= 0) close(l->quit[1]);
    if (l->reading) pthread_join(l->thread, NULL);
    if (l->quit[0] >= 0) close(l->quit[0]);
    if (l->view.shm_fd >= 0 && l->view.shm_fd != l->used_fd) close(l->view.shm_fd);
    if (l->used_fd >= 0) close(l->used_fd);
    forget_next(l);
    close(l->fd);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->moved);
    free(l);
}

weft_status weft_line_await(weft_line *l, uint32_t after, weft_line_view *out)
{
    pthread_mutex_lock(&l->lock);
    while (!l->ended && l->view.epoch <= after) pthread_cond_wait(&l->moved, &l->lock);
    bool ended = l->ended;
    if (!ended) {
        *out = l->view;
        if (l->used_fd >= 0 && l->used_fd != l->view.shm_fd) close(l->used_fd);
        l->used_fd = l->view.shm_fd;
    }
    pthread_mutex_unlock(&l->lock);
    if (ended) return WEFT_FAIL(WEFT_ERR_PEER, "the job ends: %s", l->why);
    return WEFT_OK;
}

bool weft_line_is_to_prepare(weft_line *l, weft_line_next *out)
{
    pthread_mutex_lock(&l->lock);
    while (!l->ended && !l->view.epoch && !l->next.world)
        pthread_cond_wait(&l->moved, &l->lock);
    bool prepares = !l->ended && !l->view.epoch;
    if (prepares) *out = l->next;
    pthread_mutex_unlock(&l->lock);
    return prepares;
}

bool weft_line_take_next(weft_line *l, weft_line_next *out)
{
    pthread_mutex_lock(&l->lock);
    bool asked = !l->ended && l->asked;
    if (asked) {
        *out             = l->next;
        l->asked         = false;
        l->next.brief_fd = -1;
    }
    pthread_mutex_unlock(&l->lock);
    return asked;
}

int weft_line_has_view(weft_line *l, uint32_t after)
{
    pthread_mutex_lock(&l->lock);
    int has = l->ended ? -1 : l->view.epoch > after;
    pthread_mutex_unlock(&l->lock);
    return has;
}

bool weft_line_has_newer(weft_line *l, uint32_t epoch)
{
    pthread_mutex_lock(&l->lock);
    bool newer =
        l->view.epoch > epoch || l->leave >= epoch || atomic_load(&l->over) >= epoch;
    pthread_mutex_unlock(&l->lock);
    return newer;
}

bool weft_line_drains(weft_line *l, uint32_t epoch)
{
    pthread_mutex_lock(&l->lock);
    bool drains = l->drains >= epoch;
    pthread_mutex_unlock(&l->lock);
    return drains;
}

bool weft_line_shrinks(weft_line *l, uint32_t epoch, int n)
{
    pthread_mutex_lock(&l->lock);
    bool fewer = l->view.epoch > epoch && l->view.local < n;
    pthread_mutex_unlock(&l->lock);
    return fewer;
}

const _Atomic uint32_t *weft_line_over(const weft_line *l)
{
    return &l->over;
}

void weft_line_send(weft_line *l, const weft_line_message *m)
{
    weft_line_send_fd(l, m, -1);
}

void weft_line_send_fd(weft_line *l, const weft_line_message *m, int fd)
{
    (void)weft_line_put(l->fd, m, fd); /* an agent that is gone the thread notices */
}
