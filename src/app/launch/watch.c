/* The agent looks at its ranks: what the detector needs to know of each of them.
 *
 * Progress comes from the rank itself, by its record in shared memory; the kernel says whether it
 * is stopped, how much of a core it had and how long it waited for one.  That is only asked of
 * ranks whose record did not move. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/launch_priv.h"
#include "member/detect.h"

/* For ranks to end after rank 0, before those that are stopped are killed. */
static const double DONE_S = 1;
/* An instruction that takes longer is looked at: half of what is ever taken for a hang. */
static const double LONG_S = 0.5;
/* Between two looks at a rank that is waited for: cores are counted by hundredths of a second. */
static const double WORK_S = 1;

/* The last of these. */
typedef struct work_look {
    int                pid;
    double             at_s;
    weft_detect_sample sample;
} work_look;

struct weft_launch__watch {
    weft_detect        *detect;
    weft_detect_sample *sample; /* of each slot, as last seen */
    weft_detect_found  *found;
    int                *pid;   /* that the sample is of, */
    double             *pid_s; /* and since when */
    work_look          *work;  /* of each slot */
    double              looked_s;
    double              n_core;
    double              done_s; /* when rank 0 was seen to have ended; 0: it has not */
};

weft_status weft_launch__watch_open(weft_launch__run *l)
{
    weft_launch__watch *w = calloc(1, sizeof *w);
    if (!w) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    l->watch  = w;
    w->n_core = (double)sysconf(_SC_NPROCESSORS_ONLN);
    w->sample = calloc((size_t)l->n, sizeof *w->sample);
    w->found  = calloc((size_t)l->n, sizeof *w->found);
    w->pid    = calloc((size_t)l->n, sizeof *w->pid);
    w->pid_s  = calloc((size_t)l->n, sizeof *w->pid_s);
    w->work   = calloc((size_t)l->n, sizeof *w->work);
    if (!w->sample || !w->found || !w->pid || !w->pid_s || !w->work)
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    weft_detect_options o = {.failure_timeout_s = l->o->failure_timeout_s,
                             .on_stop           = l->o->on_stop};
    if (o.failure_timeout_s <= 0) o.failure_timeout_s = WEFT_LAUNCH_FAILURE_TIMEOUT_S;
    return weft_detect_create(l->n, &o, &w->detect);
}

void weft_launch__watch_close(weft_launch__run *l)
{
    weft_launch__watch *w = l->watch;
    if (!w) return;
    weft_detect_destroy(w->detect);
    free(w->sample);
    free(w->found);
    free(w->pid);
    free(w->pid_s);
    free(w->work);
    free(w);
    l->watch = NULL;
}

/* ---- what the kernel says ---- */

/* Threads that want to run, for each core. */
static double read_load(const weft_launch__watch *w)
{
    double average = 0;
    int    running = 0;
    FILE  *f       = fopen("/proc/loadavg", "re");
    if (!f) return 1;
    if (fscanf(f, "%lf %*f %*f %d", &average, &running) != 2) average = running = 0;
    fclose(f);
    double most = average > running ? average : running;
    return w->n_core > 0 ? most / w->n_core : 1;
}

static double read_wait(const char *path)
{
    unsigned long long run = 0, wait = 0;
    FILE              *f = fopen(path, "re");
    if (!f) return 0;
    if (fscanf(f, "%llu %llu", &run, &wait) != 2) wait = 0;
    fclose(f);
    return 1e-9 * (double)wait;
}

static char read_state(const char *path)
{
    char  text[512], *at = NULL;
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    at = strrchr(text, ')'); /* after the name */
    return at && at[1] ? at[2] : 0;
}

/* The longest that one of its threads has waited for a core, of those waits that are over; and does
 * one want a core now? */
static void find_wait(int pid, weft_detect_sample *s)
{
    char           path[320];
    struct dirent *e;
    s->wait_s     = 0;
    s->wants_core = false;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *d = opendir(path);
    while (d && (e = readdir(d))) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", pid, e->d_name);
        double wait = read_wait(path);
        if (wait > s->wait_s) s->wait_s = wait;
        snprintf(path, sizeof path, "/proc/%d/task/%s/stat", pid, e->d_name);
        s->wants_core = s->wants_core || read_state(path) == 'R';
    }
    if (d) closedir(d);
}

static void ask_kernel(pid_t pid, weft_detect_sample *s)
{
    char state = 0;
    weft_launch__read_stat(pid, &s->cpu_s, &state);
    s->on_disk = state == 'D';
    find_wait((int)pid, s);
}

/* ---- samples ---- */

/* Of an instruction that runs for the first time: the longest that it may take, by those of its
 * kind that ran in any rank of this host, also in processes that are gone; 0: none did. */
static double estimate_task(const weft_launch__run *l, const weft_progress_work *work)
{
    double most_s = 0;
    for (int r = 0; r < l->n; r++) {
        double s =
            weft_progress_estimate(&weft_comm_shm_slot_of(l->shm, r)->progress, work);
        if (s > most_s) most_s = s;
    }
    return most_s;
}

/* The one that began first of those whose time is known; none of a process before this one, which
 * began after since_s. */
static void find_task(const weft_launch__run *l, const weft_progress_record *r,
                      double since_s, weft_detect_sample *s)
{
    double now_s = weft_clock_s();
    s->first     = false;
    s->begun_s = s->longest_s = 0;
    for (int k = 0; k < WEFT_PROGRESS_STREAMS; k++) {
        const weft_progress_task *t       = &r->task[k];
        uint64_t                  at      = atomic_load(&t->begun_ns);
        double                    begun   = 1e-9 * (double)at;
        double                    longest = 1e-9 * (double)atomic_load(&t->longest_ns);
        bool                      first   = longest <= 0;
        if (begun <= since_s || (first && now_s - begun < LONG_S)) continue;
        if (first) longest = estimate_task(l, &t->work);
        if (longest <= 0 || atomic_load(&t->begun_ns) != at)
            continue; /* of the next one */
        if (s->begun_s > 0 && begun >= s->begun_s) continue;
        s->begun_s   = begun;
        s->longest_s = longest;
        s->first     = first;
    }
}

static void take_sample(weft_launch__run *l, int r)
{
    weft_launch__watch         *w      = l->watch;
    weft_launch__child         *c      = &l->c[r];
    weft_detect_sample         *s      = &w->sample[r];
    const weft_progress_record *record = &weft_comm_shm_slot_of(l->shm, r)->progress;
    uint64_t beat  = atomic_load_explicit(&record->beat, memory_order_relaxed);
    bool     moved = beat != s->beat;
    if (w->pid[r] != (int)c->pid) {
        *s          = (weft_detect_sample){0};
        w->pid_s[r] = weft_clock_s();
    }
    w->pid[r]  = (int)c->pid;
    s->there   = c->pid && c->killed_s <= 0;
    s->running = s->there && weft_launch__agent_is_running(l, r);
    s->stopped = c->stopped;
    s->beat    = beat;
    find_task(l, record, w->pid_s[r], s);
    /* other streams of a rank may go on while one is in a long instruction */
    bool is_long = s->begun_s > 0 && weft_clock_s() - s->begun_s > LONG_S;
    if (!s->there || (moved && !is_long)) return;
    ask_kernel(c->pid, s);
}

bool weft_launch__watch_works(weft_launch__run *l, int r, double now_s, double *used_s)
{
    const weft_launch__child *c = &l->c[r];
    if (!l->watch || !c->pid || c->killed_s > 0) return false;
    work_look *last = &l->watch->work[r], was = *last;
    bool       known = was.pid == (int)c->pid && now_s - was.at_s < 4 * WORK_S;
    if (known && now_s - was.at_s < WORK_S) return false;
    *last =
        (work_look){.pid = (int)c->pid, .at_s = now_s, .sample = {.stopped = c->stopped}};
    ask_kernel(c->pid, &last->sample);
    return known &&
           weft_detect_works(&was.sample, &last->sample, now_s - was.at_s, used_s);
}

/* ---- what follows ---- */

static void describe(const weft_launch__run *l, const weft_detect_found *f, char *what,
                     size_t n)
{
    const weft_progress_record *r = &weft_comm_shm_slot_of(l->shm, f->slot)->progress;
    const weft_detect_sample   *s = &l->watch->sample[f->slot];
    switch (f->cause) {
    case WEFT_DETECT_STOPPED:
        snprintf(what, n, "stopped (SIGSTOP) for %.3g s", f->seconds);
        break;
    case WEFT_DETECT_SILENT:
        snprintf(what, n, "no sign of progress for %.3g s", f->seconds);
        break;
    case WEFT_DETECT_HANG:
        snprintf(what, n, "hangs in an instruction for %.3g s", f->seconds);
        for (int k = 0; k < WEFT_PROGRESS_STREAMS; k++) {
            char name[WEFT_PROGRESS_NAME];
            if (1e-9 * (double)atomic_load(&r->task[k].begun_ns) != s->begun_s) continue;
            memcpy(name, r->task[k].name, sizeof name);
            name[sizeof name - 1] = 0;
            snprintf(what, n, "hangs in instruction '%s' for %.3g s; %s %.3g s", name,
                     f->seconds,
                     s->first ? "it runs for the first time, and is to take less than"
                              : "the longest before took",
                     s->longest_s);
        }
        break;
    }
}

static void lose(weft_launch__run *l, const weft_detect_found *f)
{
    static const char *const noticed[] = {[WEFT_DETECT_STOPPED] = "stop",
                                          [WEFT_DETECT_SILENT]  = "silence",
                                          [WEFT_DETECT_HANG]    = "hang"};
    weft_launch__child      *c         = &l->c[f->slot];
    describe(l, f, c->what, sizeof c->what);
    c->noticed  = noticed[f->cause];
    c->killed_s = weft_clock_s();
    c->seen_s   = c->killed_s - f->seconds;
    kill(c->pid, SIGKILL);
}

/* With --on-stop wait peers wait for a stopped rank without an end. */
static void hold_deadlines(weft_launch__run *l, double now_s)
{
    bool any = false;
    if (l->o->on_stop != WEFT_DETECT_STOP_WAIT) return;
    for (int r = 0; r < l->n; r++) {
        if (!l->watch->sample[r].there || !l->watch->sample[r].stopped) continue;
        any = true;
        weft_launch__agent_keep(l, r, now_s);
    }
    weft_launch__agent_hold(l, any);
}

/* All is written: a rank that is stopped has nothing left to do, also where it is the last one, and
 * so all are stopped. */
static void end_stopped(weft_launch__run *l, double now_s)
{
    weft_launch__watch *w = l->watch;
    if (!weft_launch__agent_is_done(l) || l->o->on_stop == WEFT_DETECT_STOP_WAIT) return;
    if (w->done_s <= 0) w->done_s = now_s;
    for (int r = 0; r < l->n && now_s - w->done_s > DONE_S; r++) {
        if (!l->c[r].pid || !l->c[r].stopped || l->c[r].killed_s > 0) continue;
        l->c[r].killed_s = now_s;
        kill(l->c[r].pid, SIGKILL);
    }
}

void weft_launch__watch_tick(weft_launch__run *l)
{
    weft_launch__watch *w = l->watch;
    if (!w || l->stopped_by) return;
    double now_s = weft_clock_s();
    if (now_s - w->looked_s < weft_detect_period_s(w->detect) / 2) return;
    w->looked_s = now_s;
    end_stopped(l, now_s);
    for (int r = 0; r < l->n; r++) take_sample(l, r);
    hold_deadlines(l, now_s);
    int n = weft_detect_look(w->detect, now_s, read_load(w), w->sample, w->found);
    for (int k = 0; k < n; k++) lose(l, &w->found[k]);
}

int weft_launch__watch_wait_ms(const weft_launch__run *l)
{
    return l->watch && !l->stopped_by
               ? (int)(1e3 * weft_detect_period_s(l->watch->detect)) + 1
               : -1;
}

void weft_launch__watch_forgive(weft_launch__run *l)
{
    if (l->watch) weft_detect_forgive(l->watch->detect);
}
