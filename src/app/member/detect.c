#include "member/detect.h"

#include <stdlib.h>

static const double MOST_PERIOD_S = 0.25; /* between two samples */
static const double SETTLE_S      = 0.05; /* in which others may stop, too */
static const double LEAST_HANG_S  = 1;
static const double LEAST_FIRST_S = 5; /* with pages, files and tables that it needs */
static const double HANG_FACTOR   = 8;
static const double IDLE          = 0.02; /* of a core: a rank that waits uses less */
static const double STARVED = 0.1; /* of the time: one that does nothing waits less */

/* What is remembered of a rank. */
typedef struct slot_watch {
    bool     known;      /* the rest is of the process that is there */
    uint64_t beat;       /* when it last moved: */
    double   quiet_s;    /* since then it shows no progress */
    double   quiet_cpu;  /* its cpu_s then, */
    double   quiet_wait; /* and its wait_s, and starved_s */
    double   quiet_starved;
    double   stopped_s;    /* since when it is stopped; 0: it is not */
    double   begun_s;      /* of the task that was last seen, */
    double   excused_s;    /* of its time: the agent or the rank was stopped */
    double   task_wait;    /* wait_s when it was first seen, */
    double   task_starved; /* and starved_s */
    bool     wanted_core;  /* when it was last looked at, */
    double   cpu_s;        /* and what it had used then */
    double   starved_s;    /* it wanted a core and had none; rises */
} slot_watch;

struct weft_detect {
    int                 n;
    weft_detect_options o;
    double              period_s, looked_s; /* 0: not yet */
    slot_watch         *slot;
};

weft_status weft_detect_create(int n_slot, const weft_detect_options *o,
                               weft_detect **out)
{
    weft_detect *d = calloc(1, sizeof *d);
    if (d) d->slot = calloc((size_t)n_slot, sizeof *d->slot);
    if (!d || !d->slot) {
        free(d);
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    d->n        = n_slot;
    d->o        = *o;
    d->period_s = o->failure_timeout_s / 5 < MOST_PERIOD_S ? o->failure_timeout_s / 5
                                                           : MOST_PERIOD_S;
    *out        = d;
    return WEFT_OK;
}

void weft_detect_destroy(weft_detect *d)
{
    if (!d) return;
    free(d->slot);
    free(d);
}

double weft_detect_period_s(const weft_detect *d)
{
    return d->period_s;
}

void weft_detect_forgive(weft_detect *d)
{
    for (int k = 0; k < d->n; k++) d->slot[k].known = false;
}

/* ---- what is remembered ---- */

static void begin_slot(slot_watch *w, const weft_detect_sample *s, double now_s)
{
    *w = (slot_watch){.known      = true,
                      .beat       = s->beat,
                      .quiet_s    = now_s,
                      .quiet_cpu  = s->cpu_s,
                      .quiet_wait = s->wait_s,
                      .stopped_s  = s->stopped ? now_s : 0,
                      .begun_s    = s->begun_s,
                      .task_wait  = s->wait_s,
                      .cpu_s      = s->cpu_s};
    /* what it has done before it was watched is not known */
    if (s->begun_s > 0 && s->begun_s < now_s) w->excused_s = now_s - s->begun_s;
}

static void note_quiet(slot_watch *w, const weft_detect_sample *s, double now_s)
{
    double cpu_s = s->cpu_s - w->quiet_cpu, since = now_s - w->quiet_s;
    bool   uses = cpu_s > 0 && cpu_s >= IDLE * since;
    if (s->beat == w->beat && !uses && !s->on_disk && !s->stopped) return;
    w->beat          = s->beat;
    w->quiet_s       = now_s;
    w->quiet_cpu     = s->cpu_s;
    w->quiet_wait    = s->wait_s;
    w->quiet_starved = w->starved_s;
}

/* One thread that wants to run for all of the time has used a core, or waited for one. */
static void note_core(slot_watch *w, const weft_detect_sample *s, double passed_s)
{
    double had_s = s->cpu_s - w->cpu_s;
    if (w->wanted_core && s->wants_core && had_s < passed_s)
        w->starved_s += passed_s - (had_s > 0 ? had_s : 0);
    w->wanted_core = s->wants_core;
    w->cpu_s       = s->cpu_s;
}

/* Time in which it waited for a core: two ways to see it, of which neither sees all. */
static double find_waited(const slot_watch *w, const weft_detect_sample *s, double wait_s,
                          double starved_s)
{
    double waited_s = s->wait_s - wait_s, starved = w->starved_s - starved_s;
    return waited_s > starved ? waited_s : starved;
}

/* lost_s: of the time since the last sample, in which nothing is expected of it. */
static void note_task(slot_watch *w, const weft_detect_sample *s, double now_s,
                      double lost_s)
{
    double runs_s = now_s - s->begun_s;
    if (s->begun_s != w->begun_s) {
        w->begun_s      = s->begun_s;
        w->excused_s    = 0;
        w->task_wait    = s->wait_s;
        w->task_starved = w->starved_s;
    }
    w->excused_s += lost_s < runs_s ? lost_s : runs_s;
}

/* passed_s: since the last sample; stall_s: of it, too long. */
static void note_sample(slot_watch *w, const weft_detect_sample *s, double now_s,
                        double passed_s, double stall_s)
{
    if (!s->there) {
        w->known = false;
        return;
    }
    if (!w->known) begin_slot(w, s, now_s);
    w->quiet_s += stall_s;
    if (w->stopped_s > 0) w->stopped_s += stall_s;
    note_task(w, s, now_s, s->stopped ? passed_s : stall_s);
    note_quiet(w, s, now_s);
    note_core(w, s, passed_s - stall_s);
    if (!s->stopped)
        w->stopped_s = 0;
    else if (w->stopped_s <= 0)
        w->stopped_s = now_s;
}

/* ---- who is lost ---- */

/* How many; 0: not all that are there. */
static int count_all_stopped(const weft_detect *d, const weft_detect_sample *s)
{
    int n = 0;
    for (int k = 0; k < d->n; k++) {
        if (s[k].there && !s[k].stopped) return 0;
        n += s[k].there;
    }
    return n;
}

static bool has_live_peer(const weft_detect *d, const weft_detect_sample *s, int slot,
                          double now_s)
{
    for (int k = 0; k < d->n; k++)
        if (k != slot && s[k].there && !s[k].stopped &&
            now_s - d->slot[k].quiet_s < d->o.failure_timeout_s / 2)
            return true;
    return d->n == 1;
}

/* The only rank of a host: the agent may be about to be stopped as well. */
static bool is_stopped(const weft_detect *d, const slot_watch *w, bool only, double now_s,
                       weft_detect_found *f)
{
    bool at_once = d->o.on_stop == WEFT_DETECT_STOP_REPLACE && !only;
    f->cause     = WEFT_DETECT_STOPPED;
    f->seconds   = now_s - w->stopped_s;
    f->limit_s   = at_once ? SETTLE_S : d->o.failure_timeout_s;
    return d->o.on_stop != WEFT_DETECT_STOP_WAIT && f->seconds >= f->limit_s;
}

static bool is_silent(const weft_detect *d, const slot_watch *w,
                      const weft_detect_sample *s, double now_s, double load,
                      weft_detect_found *f)
{
    f->cause   = WEFT_DETECT_SILENT;
    f->seconds = now_s - w->quiet_s - find_waited(w, s, w->quiet_wait, w->quiet_starved);
    f->limit_s = d->o.failure_timeout_s * load;
    return f->seconds >= f->limit_s;
}

static bool is_hanging(const slot_watch *w, const weft_detect_sample *s, double now_s,
                       double load, weft_detect_found *f)
{
    if (s->begun_s <= 0 || s->longest_s <= 0) return false;
    f->cause   = WEFT_DETECT_HANG;
    f->seconds = now_s - s->begun_s - w->excused_s -
                 find_waited(w, s, w->task_wait, w->task_starved);
    f->limit_s     = HANG_FACTOR * s->longest_s * load;
    double least_s = s->first ? LEAST_FIRST_S : LEAST_HANG_S;
    if (f->limit_s < least_s) f->limit_s = least_s;
    return f->seconds >= f->limit_s;
}

static bool is_lost(const weft_detect *d, int k, const weft_detect_sample *all,
                    double now_s, double load, weft_detect_found *f)
{
    const weft_detect_sample *s = &all[k];
    const slot_watch         *w = &d->slot[k];
    f->slot                     = k;
    if (!s->there) return false;
    if (s->stopped) return is_stopped(d, w, count_all_stopped(d, all) == 1, now_s, f);
    if (s->on_disk) return false;
    if (is_hanging(w, s, now_s, load, f))
        return true; /* also where it is to leave a view */
    return s->running && is_silent(d, w, s, now_s, load, f) &&
           has_live_peer(d, all, k, now_s);
}

int weft_detect_look(weft_detect *d, double now_s, double load,
                     const weft_detect_sample *sample, weft_detect_found *found)
{
    double passed_s = d->looked_s > 0 ? now_s - d->looked_s : 0;
    double stall_s  = passed_s > 2 * d->period_s ? passed_s - d->period_s : 0;
    int    n        = 0;
    if (load < 1) load = 1;
    d->looked_s = now_s;
    for (int k = 0; k < d->n; k++)
        note_sample(&d->slot[k], &sample[k], now_s, passed_s, stall_s);
    if (count_all_stopped(d, sample) > 1) {
        for (int k = 0; k < d->n; k++)
            if (sample[k].there) d->slot[k].stopped_s = now_s;
        return 0;
    }
    for (int k = 0; k < d->n; k++) n += is_lost(d, k, sample, now_s, load, &found[n]);
    return n;
}

bool weft_detect_works(const weft_detect_sample *was, const weft_detect_sample *is,
                       double passed_s, double *used_s)
{
    double cpu_s = is->cpu_s - was->cpu_s, waited_s = is->wait_s - was->wait_s;
    *used_s = cpu_s > 0 ? cpu_s : 0;
    if (is->stopped || passed_s <= 0) return false;
    return (cpu_s > 0 && cpu_s >= IDLE * passed_s) || waited_s >= STARVED * passed_s ||
           (was->wants_core && is->wants_core) || (was->on_disk && is->on_disk);
}
