#include "session/keep_alive.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/progress.h"

static const double TICK_S = 0.25; /* between two looks; the launcher is told at each */
static const double MOST_S = 2;    /* between two messages to a peer */

/* False: it is time to end. */
static bool wait_tick(weft_keep_alive *k, double seconds)
{
    double          at = weft_clock_s() + seconds;
    struct timespec t  = {.tv_sec = (time_t)at};
    t.tv_nsec          = (long)((at - (double)t.tv_sec) * 1e9);
    pthread_mutex_lock(&k->lock);
    if (!k->stop) pthread_cond_timedwait(&k->wake, &k->lock, &t);
    bool stop = k->stop;
    pthread_mutex_unlock(&k->lock);
    return !stop;
}

static void report_stuck(const weft_keep_alive *k)
{
    char text[160];
    snprintf(text, sizeof text,
             "one call on its files has taken longer than %g s (--io-timeout)",
             k->limit_s);
    weft_comm_abort(k->comm, text);
}

static void *keep_alive(void *arg)
{
    weft_keep_alive *k        = arg;
    double           interval = MOST_S, tick = TICK_S, moved_s = weft_clock_s();
    uint64_t         seen    = weft_progress_count();
    bool             reports = k->comm != NULL; /* until somebody is lost */
    if (k->comm && k->comm->timeout_s / 4 < interval) interval = k->comm->timeout_s / 4;
    if (interval / 2 < tick) tick = interval / 2;
    while (wait_tick(k, tick)) {
        double   now   = weft_clock_s();
        uint64_t count = weft_progress_count();
        if (count != seen) moved_s = now;
        seen = count;
        if (now - moved_s > k->limit_s) {
            if (reports) report_stuck(k);
            reports = false;
            continue;
        }
        weft_progress_alive();
        if (!reports || weft_gather_keep_alive(k->gather, interval) == WEFT_OK) continue;
        weft_comm_abort(k->comm, weft_error_text());
        reports = false;
    }
    return NULL;
}

void weft_keep_alive_start(weft_keep_alive *k, weft_comm *comm, weft_gather *gather,
                           double limit_s)
{
    pthread_condattr_t a;
    sigset_t           all, before;
    *k = (weft_keep_alive){.comm    = comm,
                           .gather  = gather,
                           .limit_s = limit_s > 0 ? limit_s : WEFT_KEEP_ALIVE_LIMIT_S};
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->wake, &a);
    pthread_condattr_destroy(&a);
    sigfillset(&all); /* signals are the caller's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    k->running = pthread_create(&k->thread, NULL, keep_alive, k) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void weft_keep_alive_stop(weft_keep_alive *k)
{
    if (k->running) {
        pthread_mutex_lock(&k->lock);
        k->stop = true;
        pthread_cond_signal(&k->wake);
        pthread_mutex_unlock(&k->lock);
        pthread_join(k->thread, NULL);
    }
    pthread_cond_destroy(&k->wake);
    pthread_mutex_destroy(&k->lock);
}
