/* Ends of ranks.  When a process is waited for, the kernel takes it out of /proc, and goes on
 * trying while another process looks at it there: up to 0.6 s on an overloaded machine, in which an
 * agent would be silent to other hosts.  So the launcher looks at the status of a rank that has
 * ended and leaves it, and a thread waits for it, and for what the rank has started and left. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/launch_priv.h"

enum {
    MAX_GROUP = 256,
    LOOK_MS   = 1000 /* between two looks at groups whose first process has ended */
};

struct weft_launch__reaper {
    pthread_t thread;
    int       pids[2]; /* a pipe: processes that have ended; 0: there are no more */
    /* groups of ended ranks that have processes which are children of this one now */
    pid_t group[MAX_GROUP];
    int   n_group;
};

static void wait_for(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
}

/* Of a group whose first process is gone.  false: none of it is a child of this process, or a new
 * process has that number. */
static bool reap_group(pid_t group)
{
    for (;;) {
        siginfo_t s   = {0};
        int       any = waitid(P_PGID, (id_t)group, &s, WEXITED | WNOHANG | WNOWAIT);
        if (any && errno == EINTR) continue;
        if (any || s.si_pid == group) return false;
        if (!s.si_pid) return true;
        wait_for(s.si_pid);
    }
}

/* What ranks have started comes to a launcher that is the first process of its container. */
static void reap_groups(weft_launch__reaper *x)
{
    for (int k = 0; k < x->n_group; k++)
        if (!reap_group(x->group[k])) x->group[k--] = x->group[--x->n_group];
}

static void free_rank(weft_launch__reaper *x, pid_t pid)
{
    wait_for(pid);
    if (x->n_group == MAX_GROUP) x->group[0] = x->group[--x->n_group];
    x->group[x->n_group++] = pid;
}

/* The next process that has ended; false: there are no more.  The end of the pipe says nothing:
 * children that run no other program have it open, too. */
static bool take_ended(weft_launch__reaper *x)
{
    pid_t   pid = 0;
    ssize_t n;
    do n = read(x->pids[0], &pid, sizeof pid);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof pid || !pid) return false;
    free_rank(x, pid);
    return true;
}

static void *free_ended(void *arg)
{
    weft_launch__reaper *x    = arg;
    struct pollfd        end  = {.fd = x->pids[0], .events = POLLIN};
    bool                 more = true;
    while (more) {
        if (poll(&end, 1, x->n_group ? LOOK_MS : -1) > 0) more = take_ended(x);
        reap_groups(x);
    }
    return NULL;
}

weft_status weft_launch__reaper_open(weft_launch__run *l)
{
    weft_launch__reaper *x = calloc(1, sizeof *x);
    if (!x) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    int why = pipe2(x->pids, O_CLOEXEC) ? errno : 0;
    if (!why && (why = pthread_create(&x->thread, NULL, free_ended, x)))
        close(x->pids[0]), close(x->pids[1]);
    if (!why) {
        l->reaper = x;
        return WEFT_OK;
    }
    free(x);
    return WEFT_FAIL(WEFT_ERR_IO, "a thread for ranks that end: %s", strerror(why));
}

void weft_launch__reaper_close(weft_launch__run *l)
{
    weft_launch__reaper *x    = l->reaper;
    pid_t                none = 0;
    if (!x) return;
    while (write(x->pids[1], &none, sizeof none) < 0 && errno == EINTR) continue;
    close(x->pids[1]);
    pthread_join(x->thread, NULL);
    close(x->pids[0]);
    free(x);
    l->reaper = NULL;
}

/* The status that waitpid() gives. */
static int make_status(const siginfo_t *s)
{
    switch (s->si_code) {
    case CLD_EXITED: return (s->si_status & 0xff) << 8;
    case CLD_DUMPED: return s->si_status | 0x80;
    case CLD_STOPPED: return s->si_status << 8 | 0x7f;
    case CLD_CONTINUED: return 0xffff;
    default: return s->si_status;
    }
}

bool weft_launch__reap(weft_launch__run *l, pid_t pid, int *how)
{
    siginfo_t s  = {0};
    id_t      id = (id_t)pid;
    /* an error where it has ended */
    bool goes_on = !waitid(P_PID, id, &s, WSTOPPED | WCONTINUED | WNOHANG) && s.si_pid;
    if (!goes_on) {
        if (waitid(P_PID, id, &s, WEXITED | WNOHANG | WNOWAIT) || !s.si_pid) return false;
        if (write(l->reaper->pids[1], &pid, sizeof pid) != (ssize_t)sizeof pid)
            wait_for(pid);
    }
    *how = make_status(&s);
    return true;
}
