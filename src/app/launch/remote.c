/* Requests of tools over the control plane (weft status, events, scale, drain --at HOST:PORT).
 *
 * What only reads is this program again, `weft status FOLDER` as a child whose output goes to the
 * tool as it comes: the same command, on the host where the job is.  What changes the job is handed
 * to the agent, as requests over the unix socket are. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/client.h"
#include "launch/launch_priv.h"

enum {
    MAX_TASK = 16, /* requests that are under way */
    CHUNK    = 65536,
};
static const double FINISH_S = 1; /* for answers that are under way when the job ends */

/* A child that answers a request. */
typedef struct remote_task {
    weft_control *control; /* NULL: free */
    int64_t       peer;
    pid_t         pid;     /* 0: it has ended, with code: */
    int           pipe[2]; /* its standard output and standard error; -1: at its end */
    int           code;
} remote_task;

struct weft_launch__remote {
    weft_control *control; /* the listener of --control, or NULL */
    int           epoll;   /* it, and pipes of tasks */
    remote_task   task[MAX_TASK];
};

/* ---- answers ---- */

static void end_answer(weft_control *c, int64_t peer, int code)
{
    uint8_t byte = (uint8_t)code;
    if (weft_control_send(c, peer, WEFT_CONTROL_END, &byte, 1) == WEFT_OK)
        weft_control_end(c, peer);
}

/* As the command itself would say it. */
static void send_error(weft_control *c, int64_t peer, const char *command,
                       const char *why, int code)
{
    char text[512];
    int  n = snprintf(text, sizeof text, "weft %s: error: %s\n", command, why);
    if (weft_control_send(c, peer, WEFT_CONTROL_ERR, text, (size_t)n) == WEFT_OK)
        end_answer(c, peer, code);
}

static void refuse_request(weft_control *c, int64_t peer, const char *command,
                           const char *why)
{
    send_error(c, peer, command, why, 2);
}

static void send_line(weft_control *c, int64_t peer, const char *text)
{
    weft_text line = {0};
    weft_text_add(&line, "%s\n", text);
    if (weft_text_status(&line) == WEFT_OK &&
        weft_control_send(c, peer, WEFT_CONTROL_OUT, line.s, line.n) == WEFT_OK)
        end_answer(c, peer, 0);
    weft_text_fini(&line);
}

void weft_launch__remote_answer(weft_control *c, int64_t peer, const char *command,
                                weft_launch__answer answer, const char *text)
{
    if (answer == WEFT_LAUNCH__DONE)
        send_line(c, peer, text);
    else
        send_error(c, peer, command, text, answer == WEFT_LAUNCH__MISSED ? 1 : 2);
}

static void answer_state(const weft_launch__run *l, weft_control *c, int64_t peer)
{
    weft_text t = {0};
    weft_launch__print_state(l, &t);
    if (weft_text_status(&t) == WEFT_OK) send_line(c, peer, t.s);
    weft_text_fini(&t);
}

/* ---- children ---- */

static void close_pipe(remote_task *t, int w)
{
    if (t->pipe[w] >= 0) close(t->pipe[w]);
    t->pipe[w] = -1;
}

static void drop_task(remote_task *t)
{
    if (t->pid) kill(t->pid, SIGKILL); /* reaped with the others */
    close_pipe(t, 0);
    close_pipe(t, 1);
    *t = (remote_task){.pipe = {-1, -1}};
}

static void end_task(remote_task *t)
{
    if (t->pid || t->pipe[0] >= 0 || t->pipe[1] >= 0) return;
    end_answer(t->control, t->peer, t->code);
    drop_task(t);
}

/* The child's standard output and standard error are pipes, its signals are not blocked. */
static int spawn_child(const weft_launch__run *l, char *const *argv, const int out[2],
                       pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t          how;
    if (posix_spawn_file_actions_init(&files)) return ENOMEM;
    if (posix_spawnattr_init(&how)) {
        posix_spawn_file_actions_destroy(&files);
        return ENOMEM;
    }
    int rc = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (!rc) rc = posix_spawn_file_actions_adddup2(&files, out[0], 1);
    if (!rc) rc = posix_spawn_file_actions_adddup2(&files, out[1], 2);
    if (!rc) rc = posix_spawnattr_setsigmask(&how, &l->old_mask);
    if (!rc) rc = posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK);
    if (!rc) rc = posix_spawn(pid, "/proc/self/exe", &files, &how, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    return rc;
}

static bool watch_pipe(const weft_launch__run *l, int fd)
{
    struct epoll_event e = {.events = EPOLLIN};
    return fcntl(fd, F_SETFL, O_NONBLOCK) == 0 &&
           epoll_ctl(l->remote->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

static bool start_child(weft_launch__run *l, remote_task *t,
                        const weft_control_request *r, const char *folder)
{
    int   out[2], err[2] = {-1, -1};
    char *argv[8];
    int   n   = 0;
    argv[n++] = "weft";
    argv[n++] = r->ask == WEFT_CONTROL_STATUS ? "status" : "events";
    if (r->json) argv[n++] = "--json";
    if (r->follow) argv[n++] = "--follow";
    argv[n++] = (char *)(uintptr_t)folder;
    argv[n]   = NULL;
    if (pipe2(out, O_CLOEXEC)) return false;
    bool fine = !pipe2(err, O_CLOEXEC);
    if (fine) fine = watch_pipe(l, out[0]) && watch_pipe(l, err[0]);
    if (fine) fine = !spawn_child(l, argv, (const int[2]){out[1], err[1]}, &t->pid);
    close(out[1]);
    if (err[1] >= 0) close(err[1]);
    t->pipe[0] = out[0];
    t->pipe[1] = err[0];
    return fine;
}

static void begin_task(weft_launch__run *l, weft_control *c, int64_t peer,
                       const weft_control_request *r)
{
    const char  *folder = l->o->output ? l->o->output : "";
    const char  *name   = weft_control_ask_name(r->ask);
    remote_task *t      = NULL;
    for (int k = 0; k < MAX_TASK && !t; k++)
        if (!l->remote->task[k].control) t = &l->remote->task[k];
    if (!*folder) {
        refuse_request(c, peer, name, "the job has no output folder");
    } else if (!t) {
        refuse_request(c, peer, name, "too many requests at once: try again");
    } else {
        *t = (remote_task){.control = c, .peer = peer, .pipe = {-1, -1}};
        if (start_child(l, t, r, folder)) return;
        drop_task(t);
        refuse_request(c, peer, name, "the agent cannot start a process");
    }
}

static void read_pipe(remote_task *t, int w)
{
    static char text[CHUNK]; /* the launcher is one thread */
    while (t->pipe[w] >= 0) {
        ssize_t n = read(t->pipe[w], text, sizeof text);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) {
            close_pipe(t, w);
        } else if (weft_control_send(t->control, t->peer,
                                     w ? WEFT_CONTROL_ERR : WEFT_CONTROL_OUT, text,
                                     (size_t)n) != WEFT_OK) {
            drop_task(t);
            return;
        }
    }
}

void weft_launch__remote_ended(weft_launch__run *l, pid_t pid, int how)
{
    for (int k = 0; l->remote && k < MAX_TASK; k++) {
        remote_task *t = &l->remote->task[k];
        if (!t->control || t->pid != pid || WIFSTOPPED(how) || WIFCONTINUED(how))
            continue;
        t->pid  = 0;
        t->code = WIFEXITED(how) ? WEXITSTATUS(how) : 1;
    }
}

/* ---- requests ---- */

static void take_request(weft_launch__run *l, weft_control *c,
                         const weft_control_event *e)
{
    weft_control_request r;
    char                 why[240];
    const char          *name;
    if (e->frame != WEFT_CONTROL_REQUEST ||
        weft_control_request_parse(e->data, e->bytes, &r) != WEFT_OK) {
        refuse_request(c, e->peer, "run",
                       "a request that this version of weft does not know");
        return;
    }
    name = weft_control_ask_name(r.ask);
    if (e->reads_only && !weft_control_request_reads(&r)) {
        weft_launch__say(l, -1, "warn", "%s: refused: its token only reads", e->address);
        refuse_request(c, e->peer, name,
                       "this token only reads: weft status and weft events");
        return;
    }
    if (r.ask == WEFT_CONTROL_STATE && (l->agent || l->hosts)) {
        answer_state(l, c, e->peer);
    } else if (r.ask != WEFT_CONTROL_STATE && weft_control_request_reads(&r)) {
        begin_task(l, c, e->peer, &r);
    } else if (!l->agent) {
        refuse_request(c, e->peer, name,
                       "the job's ranks are not replaced: start it with recover=on");
    } else if (!weft_launch__control_begin(l, c, e->peer, name)) {
        refuse_request(c, e->peer, name,
                       "the job is busy with another request: try again");
    } else {
        bool taken = r.ask == WEFT_CONTROL_DRAIN
                         ? weft_launch__hosts_drain(l, r.host, why, sizeof why)
                         : weft_launch__agent_scale(l, (int)r.n, why, sizeof why);
        if (!taken) weft_launch__control_answer(l, WEFT_LAUNCH__REFUSED, why);
    }
}

static void forget_peer(weft_launch__run *l, const weft_control *c, int64_t peer)
{
    for (int k = 0; k < MAX_TASK; k++)
        if (l->remote->task[k].control == c && l->remote->task[k].peer == peer)
            drop_task(&l->remote->task[k]);
    weft_launch__control_forget(l, c, peer);
}

void weft_launch__remote_hear(weft_launch__run *l, weft_control *c,
                              const weft_control_event *e)
{
    const char *host = e->hello && *e->hello->host ? e->hello->host : "an unknown host";
    switch (e->kind) {
    case WEFT_CONTROL_REFUSED:
        weft_launch__say(l, -1, "warn", "control connection from %s (%s) refused: %s",
                         e->address, host, e->text);
        break;
    case WEFT_CONTROL_OPENED:
        if (e->hello->role == WEFT_CONTROL_TOOL) break;
        weft_launch__say(l, -1, "warn", "agent of %s (%s) refused: this job has one host",
                         host, e->address);
        weft_control_end(c, e->peer);
        break;
    case WEFT_CONTROL_FRAME: take_request(l, c, e); break;
    case WEFT_CONTROL_CLOSED: forget_peer(l, c, e->peer); break;
    }
}

/* ---- open, serve, close ---- */

weft_status weft_launch__find_proofs(const weft_launch_options *o, weft_comm_token *full,
                                     weft_comm_token *reader, weft_control_options *c)
{
    c->tls = o->tls;
    if (o->tls.cert || o->tls.key || o->tls.ca) return WEFT_OK;
    WEFT_TRY(weft_comm_token_find(&o->token, full));
    c->token = full;
    if (!o->reader_file) return WEFT_OK;
    WEFT_TRY(weft_comm_token_read(o->reader_file, reader));
    c->reader = reader;
    return WEFT_OK;
}

static weft_status listen_for_tools(weft_launch__run *l)
{
    weft_comm_token      full = {0}, reader = {0};
    weft_control_options o  = {.listen = l->o->control};
    weft_status          st = weft_launch__find_proofs(l->o, &full, &reader, &o);
    struct epoll_event   e  = {.events = EPOLLIN};
    snprintf(o.self.build, sizeof o.self.build, "%s",
             l->o->build ? l->o->build : WEFT_VERSION);
    if (gethostname(o.self.host, sizeof o.self.host - 1)) *o.self.host = 0;
    if (st == WEFT_OK) st = weft_control_open(&o, &l->remote->control);
    weft_comm_token_wipe(&full);
    weft_comm_token_wipe(&reader);
    if (st != WEFT_OK) return weft_fail_in(st, "--control: ");
    if (epoll_ctl(l->remote->epoll, EPOLL_CTL_ADD, weft_control_fd(l->remote->control),
                  &e))
        return WEFT_FAIL(WEFT_ERR_IO, "epoll: %s", strerror(errno));
    weft_launch__say(l, -1, "info", "control connections at port %d of %s",
                     weft_control_port(l->remote->control), l->o->control);
    return WEFT_OK;
}

static weft_status open_tasks(weft_launch__run *l)
{
    l->remote = calloc(1, sizeof *l->remote);
    if (!l->remote) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int k = 0; k < MAX_TASK; k++)
        l->remote->task[k].pipe[0] = l->remote->task[k].pipe[1] = -1;
    l->remote->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (l->remote->epoll >= 0) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_IO, "epoll: %s", strerror(errno));
}

weft_status weft_launch__remote_open(weft_launch__run *l)
{
    if (!l->o->control && !l->o->rdzv) return WEFT_OK;
    WEFT_TRY(open_tasks(l));
    return l->o->control ? listen_for_tools(l) : WEFT_OK;
}

/* Followers see the end of the job: their children end by themselves, soon after it. */
static void finish_tasks(weft_launch__run *l)
{
    double end_s = weft_clock_s() + FINISH_S;
    for (bool busy = true; busy && weft_clock_s() < end_s;) {
        struct pollfd p = {.fd = l->remote->epoll, .events = POLLIN};
        int           how;
        busy = false;
        (void)poll(&p, 1, 10);
        for (int k = 0; k < MAX_TASK; k++) {
            pid_t pid = l->remote->task[k].pid;
            busy      = busy || l->remote->task[k].control;
            if (pid && waitpid(pid, &how, WNOHANG) == pid)
                weft_launch__remote_ended(l, pid, how);
        }
        weft_launch__remote_tick(l);
    }
}

void weft_launch__remote_close(weft_launch__run *l)
{
    if (!l->remote) return;
    finish_tasks(l);
    for (int k = 0; k < MAX_TASK; k++) {
        remote_task *t   = &l->remote->task[k];
        pid_t        pid = t->pid;
        if (t->control) drop_task(t);
        if (pid) waitpid(pid, NULL, 0);
    }
    weft_control_close(l->remote->control);
    if (l->remote->epoll >= 0) close(l->remote->epoll);
    free(l->remote);
    l->remote = NULL;
}

int weft_launch__remote_fd(const weft_launch__run *l)
{
    return l->remote ? l->remote->epoll : -1;
}

int weft_launch__remote_wait_ms(const weft_launch__run *l)
{
    if (!l->remote || !l->remote->control) return -1;
    double left_s = weft_control_wake_s(l->remote->control) - weft_clock_s();
    return isinf(left_s) ? -1 : (int)(1e3 * fmax(left_s, 0)) + 1;
}

void weft_launch__remote_tick(weft_launch__run *l)
{
    weft_control_event e;
    if (!l->remote) return;
    if (l->remote->control) {
        weft_control_serve(l->remote->control, weft_clock_s());
        while (weft_control_next(l->remote->control, &e))
            weft_launch__remote_hear(l, l->remote->control, &e);
    }
    for (int k = 0; k < MAX_TASK; k++) {
        remote_task *t = &l->remote->task[k];
        for (int w = 0; w < 2 && t->control; w++) read_pipe(t, w);
        if (t->control) end_task(t);
    }
}
