/* Ranks of another engine's program that hang (--hang-timeout).  It knows nothing of us: what can
 * be seen of a rank is what it writes, and the CPU time of its process group.  A rank that shows
 * neither for that long is killed, and what follows is what follows any failure.  Of several the
 * one that has been quiet for longest, which the others may wait for. */
#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/launch_priv.h"

static const double MOST_PERIOD_S = 1;    /* between two looks */
static const double IDLE          = 0.02; /* of a core: a process that waits uses less */

static bool is_on(const weft_launch__run *l)
{
    return l->o->program && l->o->hang_timeout_s > 0 && !l->stopped_by &&
           l->kill_at_s <= 0;
}

static double find_period(const weft_launch__run *l)
{
    double s = l->o->hang_timeout_s / 4;
    return s < MOST_PERIOD_S ? s : MOST_PERIOD_S;
}

int weft_launch__hang_wait_ms(const weft_launch__run *l)
{
    return is_on(l) ? (int)(1e3 * find_period(l)) + 1 : -1;
}

void weft_launch__hang_begin(weft_launch__child *c)
{
    c->quiet = (weft_launch__quiet){.since_s = weft_clock_s()};
}

/* A process: its group, and what it and children that it has waited for have used. */
static bool read_process(const char *pid, int *group, double *cpu_s)
{
    char          path[64], text[1024], *at;
    unsigned long user, kernel, of_user, of_kernel;
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    at = strrchr(text, ')'); /* after the name */
    if (!at ||
        sscanf(at + 1, " %*c %*d %d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %lu %lu",
               group, &user, &kernel, &of_user, &of_kernel) != 5)
        return false;
    *cpu_s = (double)(user + kernel + of_user + of_kernel) / (double)sysconf(_SC_CLK_TCK);
    return true;
}

/* A rank leads a group of its own. */
static void read_groups(weft_launch__run *l)
{
    struct dirent *e;
    DIR           *d = opendir("/proc");
    for (int r = 0; r < l->n; r++) l->c[r].quiet.cpu_s = 0;
    while (d && (e = readdir(d))) {
        int    group;
        double cpu_s;
        if (!isdigit((unsigned char)e->d_name[0]) ||
            !read_process(e->d_name, &group, &cpu_s))
            continue;
        for (int r = 0; r < l->n; r++)
            if (l->c[r].pid == group) l->c[r].quiet.cpu_s += cpu_s;
    }
    if (d) closedir(d);
}

/* A sum that is less: a process has left the group, so something has happened. */
static bool is_quiet(const weft_launch__child *c, double now_s)
{
    const weft_launch__quiet *q    = &c->quiet;
    double                    used = q->cpu_s - q->from_cpu_s;
    bool idle = used >= 0 && (used == 0 || used < IDLE * (now_s - q->since_s));
    return idle && !q->heard && !c->stopped;
}

void weft_launch__hang_tick(weft_launch__run *l)
{
    double              now_s    = weft_clock_s();
    weft_launch__child *longest  = NULL;
    double              passed_s = l->hang_s > 0 ? now_s - l->hang_s : 0;
    if (!is_on(l) || (l->hang_s > 0 && passed_s < find_period(l))) return;
    /* time in which this process did not look, as it was stopped, does not count */
    double stall_s = passed_s > 4 * MOST_PERIOD_S ? passed_s : 0;
    l->hang_s      = now_s;
    read_groups(l);
    for (int r = 0; r < l->n; r++) {
        weft_launch__child *c = &l->c[r];
        if (!c->pid || c->killed_s > 0 || c->noticed) continue;
        c->quiet.since_s += stall_s;
        if (!is_quiet(c, now_s)) {
            c->quiet.since_s    = now_s;
            c->quiet.from_cpu_s = c->quiet.cpu_s;
            c->quiet.heard      = false;
        } else if (!longest || c->quiet.since_s < longest->quiet.since_s) {
            longest = c;
        }
    }
    if (!longest || now_s - longest->quiet.since_s < l->o->hang_timeout_s) return;
    longest->noticed = "hang";
    snprintf(longest->what, sizeof longest->what,
             "no output and no CPU time for %.3g s (--hang-timeout %.3g)",
             now_s - longest->quiet.since_s, l->o->hang_timeout_s);
    kill(-longest->pid, SIGKILL);
    kill(longest->pid, SIGKILL);
}
