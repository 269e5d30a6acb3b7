/* The launcher: forks, forwards, waits.  One thread, one poll; another one for what the kernel does
 * with ranks that have ended (reap.c). */
#include "launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/environment.h"
#include "launch/launch_priv.h"

enum {
    FAIL_GRACE_S = 2,  /* after a failure, for a rank that makes no progress with files */
    STOP_GRACE_S = 5,  /* beyond the timeout, after a signal */
    REAP_S       = 30, /* for a killed rank to be gone; then it waits in the kernel */
    /* SIGTERMs that come within this are one: a batch system signals the launcher and all of its
     * ranks, some of them twice */
    ONE_SIGNAL_S = 2,
};

static const double LOOK_S = 1;
static const double IDLE   = 0.02; /* of a core: a rank that waits uses less */

/* ---- starting ---- */

static void set_number(const char *name, int x)
{
    char s[16];
    snprintf(s, sizeof s, "%d", x);
    setenv(name, s, 1);
}

/* The name of the file, never what is in it. */
static void pass_token(const weft_comm_token_options *t)
{
    if (t->file) {
        setenv("WEFT_TOKEN_FILE", t->file, 1);
        unsetenv("WEFT_INSECURE_NETWORK");
    } else if (t->insecure) {
        setenv("WEFT_INSECURE_NETWORK", "1", 1);
        unsetenv("WEFT_TOKEN_FILE");
    }
}

static void pass_request(int fd)
{
    unsetenv("WEFT_REQUEST_FD");
    if (fd < 0) return;
    fcntl(fd, F_SETFD, 0);
    set_number("WEFT_REQUEST_FD", fd);
}

/* The rank's end of its control connection, where there is one. */
static void pass_line(int fd)
{
    unsetenv("WEFT_LINE_FD");
    if (fd < 0) return;
    fcntl(fd, F_SETFD, 0);
    set_number("WEFT_LINE_FD", fd);
}

static void pass_recorder(int fd)
{
    unsetenv("WEFT_FLIGHT_FD");
    if (fd < 0) return;
    fcntl(fd, F_SETFD, 0);
    set_number("WEFT_FLIGHT_FD", fd);
}

/* As the launcher's were.  Where ranks are replaced a new one may get a signal before it can take
 * it: it lets them in when it can (cli/request.c). */
static void set_signals(const weft_launch__run *l)
{
    sigset_t mask = l->old_mask;
    if (l->agent) {
        sigaddset(&mask, SIGTERM);
        sigaddset(&mask, SIGINT);
        sigaddset(&mask, SIGUSR1);
        sigaddset(&mask, WEFT_LAUNCH_ORDER);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
}

static void pass_rdzv(int fd)
{
    unsetenv("WEFT_RDZV_FD");
    if (fd < 0) return;
    fcntl(fd, F_SETFD, 0);
    set_number("WEFT_RDZV_FD", fd);
}

static int count_world(const weft_launch__run *l, int r)
{
    int n_node = l->o->n_node > 1 ? l->o->n_node : 1;
    return l->hosts ? weft_launch__hosts_world_for(l, r)
                    : weft_launch__agent_count_for(l, r) * n_node;
}

/* Of a spare it is written over when it becomes one (spare.c). */
static void pass_rank(const weft_launch__run *l, int r, int wake)
{
    unsetenv("WEFT_SPARE_FD");
    if (r >= 0) {
        set_number("WEFT_RANK", weft_launch__rank(l, r));
        return;
    }
    setenv("WEFT_RANK", "-1        ", 1);
    fcntl(wake, F_SETFD, 0);
    set_number("WEFT_SPARE_FD", wake);
}

/* What a process finds that is to be slot r, or a spare. */
typedef struct rank_ends {
    int out, err, line, wake;
} rank_ends;

/* Of a run that others may take over by its register: an agent that is stopped alone is lost. */
static void pass_stopped(const weft_launch_options *o)
{
    double s =
        o->failure_timeout_s > 0 ? o->failure_timeout_s : WEFT_LAUNCH_FAILURE_TIMEOUT_S;
    unsetenv("WEFT_AGENT_STOPPED_MS");
    if (o->rdzv && weft_launch_is_register(o->rdzv))
        set_number("WEFT_AGENT_STOPPED_MS", (int)(1e3 * (s < 1e6 ? s : 1e6)));
}

static void be_rank(const weft_launch__run *l, int r, pid_t parent, const rank_ends *ends)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* it was gone before we asked */
    setpgid(0, 0);                     /* Ctrl-C reaches us through the launcher only */
    set_signals(l);
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    dup2(ends->out, STDOUT_FILENO);
    dup2(ends->err, STDERR_FILENO);
    if (l->o->program) weft_launch__be_program(l, r);
    fcntl(weft_comm_shm_fd(l->shm), F_SETFD, 0);
    pass_rank(l, r, ends->wake);
    set_number("WEFT_WORLD_SIZE", count_world(l, r));
    set_number("WEFT_LOCAL_RANK", weft_launch__position(l, r));
    set_number("WEFT_SLOT", r);
    set_number("WEFT_LOCAL_WORLD_SIZE", weft_launch__agent_count_for(l, r));
    set_number("WEFT_NODE_RANK", l->o->node);
    set_number("WEFT_SHM_FD", weft_comm_shm_fd(l->shm));
    pass_request(l->request);
    pass_line(ends->line);
    pass_stopped(l->o);
    pass_recorder(weft_launch__recorder_fd(l));
    pass_rdzv(weft_launch__hosts_rdzv_fd(l)); /* any slot may have rank 0 in some view */
    if (r >= 0)
        set_number("OMP_NUM_THREADS",
                   weft_launch_pin(weft_launch__position(l, r),
                                   weft_launch__agent_count_for(l, r), 0));
    if (l->o->rdzv && !weft_launch_is_register(l->o->rdzv) && !strchr(l->o->rdzv, ','))
        setenv("WEFT_RDZV", l->o->rdzv, 1);
    pass_token(&l->o->token);
    execv("/proc/self/exe", l->argv);
    fprintf(stderr, "weft: error: cannot start rank %d: %s\n", weft_launch__rank(l, r),
            strerror(errno));
    _exit(127);
}

/* Two pipes, and a control connection where there is an agent: ours first. */
static weft_status open_pipes(const weft_launch__run *l, int out[2], int err[2],
                              int line[2])
{
    line[0] = line[1] = out[0] = out[1] = -1;
    if (pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0) {
        if (!l->agent ||
            !socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, line))
            return WEFT_OK;
        close(err[0]), close(err[1]);
    }
    int why = errno;
    if (out[0] >= 0) close(out[0]), close(out[1]);
    return WEFT_FAIL(WEFT_ERR_IO, "pipe: %s", strerror(why));
}

/* The signal that ranks get for one of the launcher: a lost terminal means an orderly end. */
static int passed_on(int sig)
{
    return sig == SIGHUP || sig == SIGUSR1 ? SIGTERM : sig;
}

static void pass_signal(const weft_launch__run *l, pid_t pid, int sig)
{
    if (l->agent)
        (void)sigqueue(pid, WEFT_LAUNCH_ORDER,
                       (union sigval){.sival_int = passed_on(sig)});
    else
        (void)kill(pid, passed_on(sig));
}

weft_status weft_launch__fork(weft_launch__run *l, int r, int wake, pid_t *pid,
                              int *to_out, int *to_err, int *to_line)
{
    int   out[2], err[2], line[2];
    pid_t parent = getpid();
    WEFT_TRY(open_pipes(l, out, err, line));
    *pid = fork();
    if (!*pid) be_rank(l, r, parent, &(rank_ends){out[1], err[1], line[1], wake});
    close(out[1]), close(err[1]);
    if (line[1] >= 0) close(line[1]);
    *to_out  = out[0];
    *to_err  = err[0];
    *to_line = line[0];
    if (*pid > 0) return WEFT_OK;
    *pid = 0;
    return WEFT_FAIL(WEFT_ERR_MEM, "fork: %s", strerror(errno));
}

weft_status weft_launch__start(weft_launch__run *l, int r)
{
    weft_launch__child *c = &l->c[r];
    if (!weft_launch__spare_take(l, r))
        WEFT_TRY(weft_launch__fork(l, r, -1, &c->pid, &c->out, &c->err, &c->line));
    l->n_running++;
    weft_launch__hang_begin(c);
    if (l->stopped_by)
        pass_signal(l, c->pid, l->stopped_by); /* it came after the signal */
    return WEFT_OK;
}

static weft_status open_logs(weft_launch__run *l)
{
    if (!l->o->log_dir) return WEFT_OK;
    if (mkdir(l->o->log_dir, 0777) && errno != EEXIST)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s", l->o->log_dir, strerror(errno));
    for (int r = 0; r < l->n; r++) {
        char path[4096], host[64];
        weft_launch_host_name(host, sizeof host);
        if (l->o->node < 0) /* which ranks these are views say */
            snprintf(path, sizeof path, "%s/%s-%d.log", l->o->log_dir, host, r);
        else
            snprintf(path, sizeof path, "%s/rank%d.log", l->o->log_dir, l->first + r);
        /* not to wait for a pipe's reader, with signals blocked */
        int how = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK;
        int fd = open(path, how | (l->o->restart || l->o->unused_of ? O_APPEND : O_TRUNC),
                      0666);
        if (fd >= 0) l->c[r].log = fdopen(fd, "w");
        if (!l->c[r].log) return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s", path, strerror(errno));
    }
    return WEFT_OK;
}

/* ---- what ranks say ---- */

static void say_line(weft_launch__run *l, int r, int which, const char *s, size_t n)
{
    weft_launch__child *c = &l->c[r];
    if (c->log) fprintf(c->log, "%.*s\n", (int)n, s), fflush(c->log);
    if (which == 0 && weft_launch__rank(l, r) == 0) {
        fwrite(s, 1, n, stdout);
        putchar('\n');
        fflush(stdout);
    } else if (!l->o->program && *s != '{' && memmem(s, n, ": error: ", 9)) {
        weft_text_put(&c->error, s, n);
        weft_text_put(&c->error, "\n", 1);
    } else {
        weft_launch__say_line(l, weft_launch__rank(l, r), s, n);
    }
}

/* What a rank said before on its other pipe comes first: results behind the log. */
static void listen_to(weft_launch__run *l, int r, int which)
{
    weft_launch__child *c  = &l->c[r];
    int                *fd = which ? &c->err : &c->out;
    weft_text          *t  = &c->partial[which];
    char                buf[65536];
    if (!which) {
        struct pollfd p = {.fd = c->err, .events = POLLIN};
        while (c->err >= 0 && poll(&p, 1, 0) > 0) {
            listen_to(l, r, 1);
            p.fd = c->err;
        }
    }
    ssize_t n = read(*fd, buf, sizeof buf);
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) {
        if (t->n) say_line(l, r, which, t->s, t->n);
        t->n = 0;
        close(*fd);
        *fd = -1;
        return;
    }
    c->quiet.heard = true;
    weft_text_put(t, buf, (size_t)n);
    char *from = t->s, *end = t->s + t->n, *nl;
    while ((nl = memchr(from, '\n', (size_t)(end - from)))) {
        say_line(l, r, which, from, (size_t)(nl - from));
        from = nl + 1;
    }
    t->n = (size_t)(end - from);
    memmove(t->s, from, t->n);
}

void weft_launch__close_pipes(weft_launch__run *l, int r)
{
    weft_launch__child *c = &l->c[r];
    for (int w = 1; w >= 0; w--) {
        int          *fd = w ? &c->err : &c->out;
        struct pollfd p  = {.fd = *fd, .events = POLLIN};
        while (*fd >= 0 && poll(&p, 1, 0) > 0) listen_to(l, r, w);
        if (*fd >= 0) close(*fd);
        *fd             = -1;
        c->partial[w].n = 0;
    }
}

/* ---- how they end ---- */

static void signal_all(weft_launch__run *l, int sig)
{
    for (int r = 0; r < l->n; r++)
        if (l->c[r].pid) kill(l->c[r].pid, sig);
}

/* A program of another engine has started processes that only it knows. */
static void kill_now(const weft_launch__run *l, pid_t pid)
{
    if (l->o->program) kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
}

static void set_kill(weft_launch__run *l, double s)
{
    double at = weft_clock_s() + s;
    if (l->kill_at_s <= 0 || at < l->kill_at_s) l->kill_at_s = at;
}

/* As a rank does that was sent a signal, has saved and has left. */
bool weft_launch__is_ended_by_request(int how)
{
    return WIFEXITED(how) &&
           (WEXITSTATUS(how) == 128 + SIGTERM || WEXITSTATUS(how) == 128 + SIGINT);
}

void weft_launch__describe_exit(int how, char *why, size_t n)
{
    if (WIFSIGNALED(how))
        snprintf(why, n, "killed by signal %d (SIG%s)", WTERMSIG(how),
                 sigabbrev_np(WTERMSIG(how)));
    else
        snprintf(why, n, "exit code %d", WEXITSTATUS(how));
}

static void report_exit(const weft_launch__run *l, int r, int pid, int how)
{
    weft_launch_exit e = {.rank     = weft_launch__rank(l, r),
                          .code     = l->c[r].code,
                          .signal   = WIFSIGNALED(how) ? WTERMSIG(how) : 0,
                          .killed   = l->c[r].killed_s > 0,
                          .stopping = l->stopped_by != 0,
                          .pid      = pid};
    if (!l->o->report) return;
    e.noticed = l->c[r].noticed;
    if (e.noticed)
        snprintf(e.what, sizeof e.what, "%s", l->c[r].what);
    else
        weft_launch__describe_exit(how, e.what, sizeof e.what);
    l->o->report(l->o->arg, &e);
}

/* A rank that failed: peers see it in shared memory; what follows is the policy's. */
static void note_failure(weft_launch__run *l, int r, int how)
{
    weft_launch__child *c = &l->c[r];
    char                why[64];
    weft_launch__describe_exit(how, why, sizeof why);
    weft_comm_shm_report(l->shm, r, why);
    if (WIFSIGNALED(how) && c->killed_s > 0) return; /* our own doing */
    c->order = ++l->n_failed;
    if (l->n_failed == 1 && !l->agent && !l->stopped_by)
        weft_launch__recorder_dump(l, l->o->output, 0, r);
    if (WIFSIGNALED(how))
        weft_text_add(&c->error, "rank %d: error: %s\n", weft_launch__rank(l, r), why);
    if (l->o->on_rank_exit == WEFT_LAUNCH_REPORT) return;
    if (!l->stopped_by || !weft_launch__is_ended_by_request(how))
        weft_launch__end_all(l, l->o->grace_s);
}

void weft_launch__end_all(weft_launch__run *l, double grace_s)
{
    if (l->o->program && l->kill_at_s <= 0) signal_all(l, SIGTERM);
    set_kill(l, grace_s > 0 ? grace_s : FAIL_GRACE_S);
}

static void note_end(weft_launch__run *l, int r, int how)
{
    weft_launch__child *c   = &l->c[r];
    int                 pid = (int)c->pid;
    c->pid                  = 0;
    if (l->o->program) kill(-pid, SIGKILL); /* what it left behind */
    c->code = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    l->n_running--;
    report_exit(l, r, pid, how);
    /* it has saved: a signal to another host, or to a rank, has ended the job */
    if (!l->stopped_by && !l->o->program && weft_launch__is_ended_by_request(how))
        weft_launch__save_all(l, c->code - 128);
    if (weft_launch__restart_lost(l, r, pid, how)) return;
    if (weft_launch__agent_lost(l, r, pid, how)) return;
    if (c->code)
        note_failure(l, r, how);
    else
        l->n_done++;
}

static void note_status(weft_launch__run *l, int r, int how)
{
    if (WIFSTOPPED(how) || WIFCONTINUED(how))
        l->c[r].stopped = WIFSTOPPED(how);
    else
        note_end(l, r, how);
}

/* Ranks have groups of their own, but for a moment after fork. */
static void reap(weft_launch__run *l)
{
    int   how;
    pid_t p;
    while ((p = waitpid(0, &how, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        weft_launch__remote_ended(l, p, how);
        for (int r = 0; r < l->n; r++)
            if (l->c[r].pid == p) note_status(l, r, how);
        if (!WIFSTOPPED(how) && !WIFCONTINUED(how)) (void)weft_launch__spare_ended(l, p);
    }
    for (int r = 0; r < l->n; r++)
        while (l->c[r].pid && weft_launch__reap(l, l->c[r].pid, &how))
            note_status(l, r, how);
    while ((p = l->spare.pid) && weft_launch__reap(l, p, &how))
        if (!WIFSTOPPED(how) && !WIFCONTINUED(how)) (void)weft_launch__spare_ended(l, p);
}

/* A second signal means now: not the first one to this launcher, where another host has asked for
 * the end before.  SIGUSR1 is a warning of a SIGTERM to come, and never a second one. */
static bool is_second(const weft_launch__run *l, int sig)
{
    if (!l->stopped_by || !l->signalled || l->early || sig == SIGUSR1) return false;
    return sig != SIGTERM || weft_clock_s() - l->signal_s > ONE_SIGNAL_S;
}

void weft_launch__save_all(weft_launch__run *l, int sig)
{
    if (!l->stopped_by) {
        weft_launch__agent_stop(l);
        for (int r = 0; r < l->n; r++)
            if (l->c[r].pid) pass_signal(l, l->c[r].pid, sig);
        l->moved_s = l->signal_s = weft_clock_s();
    } else if (sig == SIGUSR1) {
        return;
    }
    l->early      = sig == SIGUSR1;
    l->stopped_by = sig == SIGUSR1 ? SIGTERM : sig;
}

static void take_signal(weft_launch__run *l, int sig)
{
    if (is_second(l, sig)) set_kill(l, 0), l->at_once = true;
    if (l->stopped_by || !weft_launch__hosts_take_signal(l, sig))
        weft_launch__save_all(l, sig);
}

void weft_launch__request_stop(weft_launch__run *l)
{
    if (l->stopped_by) return;
    if (!weft_launch__hosts_save(l, weft_launch__agent_reason(l)))
        take_signal(l, SIGTERM);
}

/* Ctrl-Z reaches the launcher alone: ranks have groups of their own. */
static void stop_all(weft_launch__run *l)
{
    signal_all(l, SIGSTOP);
    raise(SIGSTOP);
    signal_all(l, SIGCONT);
    weft_launch__watch_forgive(l);
}

static void on_signal(weft_launch__run *l)
{
    struct signalfd_siginfo s;
    bool                    ended = false;
    while (read(l->signals, &s, sizeof s) == (ssize_t)sizeof s) {
        int sig = (int)s.ssi_signo;
        if (sig == SIGTSTP)
            stop_all(l);
        else if (sig == SIGCHLD) {
            ended = true;
        } else {
            take_signal(l, sig);
            l->signalled = true;
        }
    }
    if (ended) reap(l);
}

/* ---- progress ---- */

void weft_launch__read_stat(pid_t pid, double *cpu_s, char *state)
{
    char          path[64], text[1024], *at;
    unsigned long user, kernel;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f) return;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    at = strrchr(text, ')'); /* behind the name */
    if (at && sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", state,
                     &user, &kernel) == 3)
        *cpu_s = (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

/* A rank makes progress when its word moves (it reads or writes files, or hears that another one
 * does), or when it computes. */
static void look_at_ranks(weft_launch__run *l)
{
    double now = weft_clock_s(), since = now - l->looked_s;
    bool   first = l->looked_s <= 0;
    if (since < LOOK_S) return;
    l->looked_s = now;
    if (first && l->moved_s <= 0) l->moved_s = now;
    for (int r = 0; r < l->n; r++) {
        weft_launch__child *c = &l->c[r];
        uint64_t word = atomic_load(&weft_comm_shm_slot_of(l->shm, r)->progress.word);
        double   cpu  = c->cpu_s;
        if (!c->pid || c->killed_s > 0) continue; /* keep the state it was killed in */
        weft_launch__read_stat(c->pid, &cpu, &c->state);
        if (!first && word != c->word) c->moved_s = l->moved_s = now;
        if (!first && cpu - c->cpu_s > IDLE * since) l->moved_s = now;
        c->word  = word;
        c->cpu_s = cpu;
    }
}

static double stop_grace_s(const weft_launch__run *l)
{
    return (l->o->timeout_s > 0 ? l->o->timeout_s : 60) + STOP_GRACE_S;
}

/* The job is over: who writes files may finish, the others are killed. */
static void kill_ranks(weft_launch__run *l)
{
    double now = weft_clock_s();
    for (int r = 0; r < l->n; r++) {
        weft_launch__child *c = &l->c[r];
        if (!c->pid || c->killed_s > 0) continue;
        if (!l->at_once && !l->late && now - c->moved_s < FAIL_GRACE_S) continue;
        weft_launch__read_stat(c->pid, &c->cpu_s, &c->state);
        c->killed_s = now;
        kill_now(l, c->pid);
    }
}

/* A killed rank that does not go waits in the kernel, for a device: it cannot be ended. */
static bool all_left_are_lost(const weft_launch__run *l)
{
    double now = weft_clock_s();
    for (int r = 0; r < l->n; r++) {
        const weft_launch__child *c = &l->c[r];
        if (c->pid && !(c->killed_s > 0 && now - c->killed_s > REAP_S)) return false;
    }
    return l->n_running > 0;
}

/* ---- the loop ---- */

/* On several hosts a rank that is stopped has lost its peers after their timeout; without another
 * rank here that fails, only the launcher can see that. */
static bool is_watched(const weft_launch__run *l)
{
    return l->stopped_by || l->kill_at_s > 0 || l->o->n_node > 1;
}

static bool all_are_stopped(const weft_launch__run *l)
{
    for (int r = 0; r < l->n; r++)
        if (l->c[r].pid && l->c[r].state != 'T') return false;
    return l->n_running > 0;
}

/* Of two times, -1: never. */
static int sooner(int a_ms, int b_ms)
{
    return a_ms < 0 || (b_ms >= 0 && b_ms < a_ms) ? b_ms : a_ms;
}

static int time_left_ms(const weft_launch__run *l)
{
    double now = weft_clock_s(), s = LOOK_S;
    int    agent_ms = weft_launch__agent_wait_ms(l);
    agent_ms        = sooner(agent_ms, weft_launch__watch_wait_ms(l));
    agent_ms        = sooner(agent_ms, weft_launch__export_wait_ms(l));
    agent_ms        = sooner(agent_ms, weft_launch__remote_wait_ms(l));
    agent_ms        = sooner(agent_ms, weft_launch__hosts_wait_ms(l));
    agent_ms        = sooner(agent_ms, weft_launch__hang_wait_ms(l));
    if (!is_watched(l)) return agent_ms;
    if (l->kill_at_s > now && l->kill_at_s - now < s) s = l->kill_at_s - now;
    int ms = (int)(s * 1e3) + 1;
    return sooner(ms, agent_ms);
}

static void end_ranks(weft_launch__run *l)
{
    if (!is_watched(l)) return;
    look_at_ranks(l);
    double now = weft_clock_s();
    if ((l->stopped_by || all_are_stopped(l)) && now - l->moved_s > stop_grace_s(l))
        set_kill(l, 0);
    if (l->stopped_by && l->o->stop_s > 0 && now - l->signal_s > l->o->stop_s)
        set_kill(l, 0), l->late = true;
    if (l->kill_at_s > 0 && now >= l->kill_at_s) kill_ranks(l);
}

static bool any_open(const weft_launch__run *l)
{
    for (int r = 0; r < l->n; r++)
        if (l->c[r].out >= 0 || l->c[r].err >= 0) return true;
    return false;
}

static weft_status attend(weft_launch__run *l)
{
    int            n_fd = 5 + 3 * l->n;
    struct pollfd *p    = calloc((size_t)n_fd, sizeof *p);
    weft_status    st   = WEFT_OK;
    if (!p) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    while (st == WEFT_OK &&
           (l->n_running || any_open(l) || weft_launch__hosts_is_waiting(l))) {
        p[0] = (struct pollfd){.fd = l->signals, .events = POLLIN};
        for (int r = 0; r < l->n; r++) {
            p[1 + 3 * r] = (struct pollfd){.fd = l->c[r].out, .events = POLLIN};
            p[2 + 3 * r] = (struct pollfd){.fd = l->c[r].err, .events = POLLIN};
            p[3 + 3 * r] = (struct pollfd){.fd = l->c[r].line, .events = POLLIN};
        }
        p[n_fd - 4] = (struct pollfd){.fd = weft_launch__control_fd(l), .events = POLLIN};
        p[n_fd - 2] = (struct pollfd){.fd = weft_launch__remote_fd(l), .events = POLLIN};
        p[n_fd - 3] = (struct pollfd){.fd = weft_launch__hosts_fd(l), .events = POLLIN};
        p[n_fd - 1] = (struct pollfd){.fd = weft_launch__export_fd(l), .events = POLLIN};
        if (poll(p, (nfds_t)n_fd, time_left_ms(l)) < 0 && errno != EINTR) break;
        for (int r = 0; r < l->n; r++) {
            if (p[1 + 3 * r].revents)
                listen_to(l, r, 0); /* and to what it has said on the other one */
            else if (p[2 + 3 * r].revents)
                listen_to(l, r, 1);
            if (p[3 + 3 * r].revents) weft_launch__agent_hear(l, r);
        }
        on_signal(l);
        weft_launch__control_hear(l, p[n_fd - 4].revents != 0);
        weft_launch__remote_tick(l);
        weft_launch__watch_tick(l);
        weft_launch__hang_tick(l);
        weft_launch__agent_tick(l);
        st = weft_launch__agent_act(l);
        weft_launch__hosts_serve(l);
        if (st == WEFT_OK) st = weft_launch__agent_act(l);
        if (st == WEFT_OK) st = weft_launch__restart_act(l);
        weft_launch__recorder_flush(l);
        end_ranks(l);
        weft_launch__export_tick(l);
        if (all_left_are_lost(l)) break;
    }
    free(p);
    return st;
}

/* Those that came when all was done: what they ask for has happened.  A program that is started
 * again (supervise.c) is still to be ended by them. */
static void drop_signals(const weft_launch__run *l)
{
    sigset_t mask = l->mask;
    sigdelset(&mask, SIGCHLD);
    if (l->o->program && !l->stopped_by) return;
    while (sigtimedwait(&mask, NULL, &(struct timespec){0}) > 0) {
    }
}

static void fini(weft_launch__run *l)
{
    weft_launch__control_close(l);
    weft_launch__remote_close(l);
    for (int r = 0; l->c && r < l->n; r++)
        if (l->c[r].pid) kill_now(l, l->c[r].pid);
    for (int r = 0; l->c && r < l->n; r++) {
        weft_launch__child *c = &l->c[r];
        if (c->pid) waitpid(c->pid, NULL, c->killed_s > 0 ? WNOHANG : 0);
        if (c->out >= 0) close(c->out);
        if (c->err >= 0) close(c->err);
        if (c->line >= 0) close(c->line);
        if (c->log) fclose(c->log);
        for (int w = 0; w < 2; w++) weft_text_fini(&c->partial[w]);
        weft_text_fini(&c->error);
    }
    weft_launch__spare_close(l);
    weft_launch__reaper_close(l);
    weft_launch__export_close(l);
    weft_launch__recorder_close(l);
    weft_launch__watch_close(l);
    weft_launch__agent_close(l);
    weft_launch__restart_close(l);
    weft_launch__hosts_close(l);
    free(l->c);
    weft_comm_shm_destroy(l->shm);
    if (l->signals >= 0) close(l->signals);
    if (l->request >= 0) close(l->request);
    drop_signals(l);
    sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
}

static void block_signals(weft_launch__run *l)
{
    static const int list[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP};
    sigemptyset(&l->mask);
    for (size_t k = 0; k < WEFT_COUNT(list); k++) sigaddset(&l->mask, list[k]);
    sigset_t blocked = l->mask; /* a new rank may get an order before it can take it */
    sigaddset(&blocked, WEFT_LAUNCH_ORDER);
    sigprocmask(SIG_BLOCK, &blocked, &l->old_mask);
}

/* A host that has left its job's view, and is to wait as one that joins. */
typedef struct waiting_host {
    bool waits;
    char at[WEFT_MEMBER_NAME]; /* an agent of the job */
    int  n_host;               /* of the view that it was of no use in */
} waiting_host;

/* w: does this host wait for another view, as it was of no use in the last one? */
static weft_status launch_once(int n, char *const *argv, const weft_launch_options *o,
                               int *code, waiting_host *w)
{
    weft_launch__run l = {
        .n = n, .first = o->node * n, .o = o, .argv = argv, .request = -1, .signals = -1};
    weft_status st = WEFT_OK;
    w->waits       = false;
    block_signals(&l);
    l.c = calloc((size_t)n, sizeof *l.c);
    if (!l.c) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    for (int r = 0; r < n; r++) l.c[r].out = l.c[r].err = l.c[r].line = -1;
    l.signals = signalfd(-1, &l.mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (l.signals < 0) WEFT_GO(WEFT_FAIL(WEFT_ERR_IO, "signalfd: %s", strerror(errno)));
    WEFT_GO(weft_launch__reaper_open(&l));
    WEFT_GO(open_logs(&l));
    WEFT_GO(weft_comm_shm_create(n, &l.shm));
    WEFT_GO(weft_launch__export_open(&l));
    WEFT_GO(weft_launch__remote_open(&l));
    if (!o->program) WEFT_GO(weft_launch__recorder_open(&l));
    if (o->request) WEFT_GO(weft_launch_request_seal(o->request, &l.request));
    fflush(NULL);
    if (o->on_rank_exit == WEFT_LAUNCH_RESTART) WEFT_GO(weft_launch__restart_open(&l));
    if (l.restart || (o->on_rank_exit == WEFT_LAUNCH_REPLACE && o->n_node > 1))
        WEFT_GO(weft_launch__hosts_open(&l));
    if (o->on_rank_exit == WEFT_LAUNCH_REPLACE) WEFT_GO(weft_launch__agent_open(&l));
    if (l.agent)
        WEFT_GO(weft_launch__watch_open(&l));
    else if (!l.restart)
        for (int r = 0; r < n; r++) WEFT_GO(weft_launch__start(&l, r));
    weft_launch__control_open(&l);
    WEFT_GO(attend(&l));
    *code = weft_launch__report(&l);
    weft_launch__hosts_note_end(&l, *code);
    w->waits = !*code && weft_launch__hosts_idles(&l, w->at, sizeof w->at, &w->n_host);
out:
    fini(&l);
    return st;
}

weft_status weft_launch(int n, char *const *argv, const weft_launch_options *o, int *code)
{
    weft_launch_options again = *o;
    waiting_host        w;
    WEFT_TRY(launch_once(n, argv, o, code, &w));
    while (w.waits) {
        waiting_host was = w;
        if (!weft_launch_is_register(o->rdzv)) again.rdzv = was.at;
        again.unused_of = was.n_host;
        WEFT_TRY(launch_once(n, argv, &again, code, &w));
    }
    return WEFT_OK;
}
