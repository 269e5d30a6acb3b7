#include "launch/spare.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/launch_priv.h"

enum {
    MOST_LOST = 3 /* spares that end by themselves: no further one is started */
};

/* Which rank a spare becomes. */
typedef struct slot_message {
    int32_t rank, slot, position, world, local_world;
} slot_message;

/* ---- in the spare ---- */

bool weft_launch_is_spare(void)
{
    return getenv("WEFT_SPARE_FD") != NULL;
}

int weft_launch_spare_world(void)
{
    const char *n = getenv("WEFT_LOCAL_WORLD_SIZE");
    return n ? atoi(n) : 1;
}

static void set_number(const char *name, int x)
{
    char s[16];
    snprintf(s, sizeof s, "%d", x);
    setenv(name, s, 1);
}

/* Where the process was given it, so that others read it there. */
static void set_in_place(const char *name, int x)
{
    char *value = getenv(name);
    if (value) snprintf(value, strlen(value) + 1, "%d", x);
}

bool weft_launch_await_slot(void)
{
    slot_message m;
    ssize_t      n;
    int          fd = atoi(getenv("WEFT_SPARE_FD"));
    do n = recv(fd, &m, sizeof m, 0);
    while (n < 0 && errno == EINTR);
    close(fd);
    unsetenv("WEFT_SPARE_FD");
    if (n != (ssize_t)sizeof m) return false;
    set_in_place("WEFT_RANK", m.rank);
    set_number("WEFT_LOCAL_RANK", m.position);
    set_number("WEFT_SLOT", m.slot);
    set_number("WEFT_WORLD_SIZE", m.world);
    set_number("WEFT_LOCAL_WORLD_SIZE", m.local_world);
    set_number("OMP_NUM_THREADS",
               weft_launch_pin(m.position, m.local_world, (int)getppid()));
    return true;
}

/* ---- in the launcher ---- */

static void close_ends(weft_launch__spare *s)
{
    int *fd[] = {&s->out, &s->err, &s->line, &s->wake};
    for (size_t k = 0; k < WEFT_COUNT(fd); k++) {
        if (*fd[k] >= 0) close(*fd[k]);
        *fd[k] = -1;
    }
    s->pid = 0;
}

static bool is_wanted(const weft_launch__run *l)
{
    for (int r = 0; l->o->spares && r < l->n; r++)
        if (l->o->spares[r]) return true;
    return false;
}

void weft_launch__spare_start(weft_launch__run *l)
{
    weft_launch__spare *s = &l->spare;
    int                 wake[2];
    if (!is_wanted(l) || s->pid || s->n_lost >= MOST_LOST || l->stopped_by) return;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, wake)) return;
    *s = (weft_launch__spare){.wake = wake[0], .n_lost = s->n_lost};
    if (weft_launch__fork(l, -1, wake[1], &s->pid, &s->out, &s->err, &s->line) !=
        WEFT_OK) {
        s->out = s->err = s->line = -1;
        close_ends(s);
    }
    close(wake[1]);
}

bool weft_launch__spare_take(weft_launch__run *l, int r)
{
    weft_launch__spare *s     = &l->spare;
    weft_launch__child *c     = &l->c[r];
    int                 n     = weft_launch__agent_count_for(l, r);
    int                 world = l->hosts ? weft_launch__hosts_world_for(l, r)
                                         : n * (l->o->n_node > 1 ? l->o->n_node : 1);
    slot_message m = {weft_launch__rank(l, r), r, weft_launch__position(l, r), world, n};
    if (!s->pid || !l->o->spares[r]) return false;
    if (send(s->wake, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof m)
        return false; /* it has ended, and is reaped soon */
    c->pid  = s->pid;
    c->out  = s->out;
    c->err  = s->err;
    c->line = s->line;
    s->out = s->err = s->line = -1;
    close_ends(s);
    return true;
}

bool weft_launch__spare_ended(weft_launch__run *l, pid_t pid)
{
    weft_launch__spare *s = &l->spare;
    if (!s->pid || s->pid != pid) return false;
    close_ends(s);
    s->n_lost++;
    return true;
}

void weft_launch__spare_close(weft_launch__run *l)
{
    weft_launch__spare *s = &l->spare;
    if (!s->pid) return;
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    close_ends(s);
}
