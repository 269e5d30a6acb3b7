/* Which rank of a host is lost without having ended: stopped, silent, or stuck in an instruction.
 * Pure: what the agent has seen of each rank in, suspicions out; no clock, no process
 * (tests/member/test_detect.c).
 *
 *     weft_detect *d;
 *     WEFT_TRY(weft_detect_create(4, &options, &d));
 *     n = weft_detect_look(d, now_s, load, sample, found);      about every period_s
 *     weft_detect_destroy(d);
 *
 * (1) stopped (SIGSTOP) alone for failure_timeout_s; at once or never, as on_stop says.  All ranks
 *     stopped together are no failure; the only one that there is is lost after failure_timeout_s,
 *     as the agent still runs.
 * (2) silent: no sign of progress and no core used for failure_timeout_s x load, while a peer shows
 *     progress.
 * (3) hang: one instruction runs longer than max(1 s, 8 x the longest that it took x load).  One
 *     that runs for the first time: 5 s, and what instructions of its kind took; not before one of
 *     them has run on this host.
 * A stalled observer marks no rank as failed: time in which the agent itself did not run, in
 * which a rank was stopped with all others or waited for a core does not count.  That is what the
 * kernel says of a thread once it has run again; and what a rank did not have of one core from one
 * look to the next, with a thread that wanted to run in both. */
#ifndef WEFT_MEMBER_DETECT_H
#define WEFT_MEMBER_DETECT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum weft_detect_on_stop {
    WEFT_DETECT_STOP_TIMEOUT, /* a rank that is stopped alone is lost after the timeout */
    WEFT_DETECT_STOP_REPLACE, /* ... at once */
    WEFT_DETECT_STOP_WAIT,    /* ... never */
} weft_detect_on_stop;

typedef struct weft_detect_options {
    double              failure_timeout_s;
    weft_detect_on_stop on_stop;
} weft_detect_options;

/* A rank as the agent sees it now. */
typedef struct weft_detect_sample {
    bool     there;   /* it has a process */
    bool     running; /* and runs in the newest view */
    bool     stopped;
    bool     on_disk; /* it waits in the kernel, for a device */
    uint64_t beat;    /* moves with its progress */
    double   cpu_s;   /* that it has used */
    /* that its threads have waited for a core: the longest of them; rises */
    double wait_s;
    bool   wants_core; /* one of its threads runs, or would */
    /* the task of this process that runs longest: since when, and how long it took before; 0: none,
     * not known */
    double begun_s, longest_s;
    bool   first; /* longest_s is an estimate */
} weft_detect_sample;

typedef enum weft_detect_cause {
    WEFT_DETECT_STOPPED,
    WEFT_DETECT_SILENT,
    WEFT_DETECT_HANG,
} weft_detect_cause;

typedef struct weft_detect_found {
    int               slot;
    weft_detect_cause cause;
    double            seconds, limit_s;
} weft_detect_found;

typedef struct weft_detect weft_detect;

weft_status weft_detect_create(int n_slot, const weft_detect_options *o,
                               weft_detect **out);
void        weft_detect_destroy(weft_detect *d); /* accepts NULL */
double      weft_detect_period_s(const weft_detect *d);
/* load: of the machine, threads that want to run for each core; below 1 counts as 1.  found: room
 * for n_slot; gives how many are lost. */
int weft_detect_look(weft_detect *d, double now_s, double load,
                     const weft_detect_sample *sample, weft_detect_found *found);
/* All times begin anew: the agent itself was stopped and goes on. */
void weft_detect_forgive(weft_detect *d);
/* Of a process that is waited for, in two samples passed_s apart: has it used a core, used_s of it,
 * or waited for one or for a device?  Its beat says nothing: that moves while it waits for
 * others. */
bool weft_detect_works(const weft_detect_sample *was, const weft_detect_sample *is,
                       double passed_s, double *used_s);

#endif
