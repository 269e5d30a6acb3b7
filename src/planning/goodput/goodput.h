/* One job through a trace of hosts that come and go, in virtual time: its
 * goodput, the share of the time that its committed steps take without disturbance.
 *
 *     weft_goodput_trace t = {0};
 *     WEFT_TRY(weft_goodput_parse("trace.csv", text, n, &t));
 *     weft_goodput_result r;
 *     WEFT_TRY(weft_goodput_run(&t, &(weft_goodput_spec){.step_s = step_s, ..}, &r));
 *     weft_goodput_trace_fini(&t);
 *
 * Pure.  Between events the hosts of the view run steps of step_s[hosts]; a change is a pause:
 *     lost without notice   the step under way is lost; detect_s, then pause_s
 *     a host that joins     takes part join_s after it came, the others train meanwhile; pause_s
 *     a process replaced    the step under way is lost; pause_s, with the same hosts
 *     lost with notice      it leaves in time, a step and a pause before it goes; pause_s.  Shorter
 *                           notice is none
 * Regions of state are held by `copies` hosts that follow each other in the view's ring.  Where all
 * of a region's are lost in one moment, the job goes back to its newest checkpoint: restart_s
 * instead of pause_s, and the steps since then are run again. */
#ifndef WEFT_GOODPUT_GOODPUT_H
#define WEFT_GOODPUT_GOODPUT_H

#include <stdbool.h>

#include "base/status.h"

enum {
    WEFT_GOODPUT_MAX_HOST = 4096
};

typedef struct weft_goodput_event {
    double at_s;
    bool   adds;     /* else: it is gone, */
    bool   replaces; /* or one of its processes is, and another one takes its place */
    int    host;     /* index of its name */
} weft_goodput_event;

typedef struct weft_goodput_trace {
    weft_goodput_event *event; /* in the order of time */
    int                 n, n_host;
    int                 most; /* hosts at a time */
} weft_goodput_trace;

/* Lines "milliseconds,add|remove|replace,host", in the order of time; those that begin
 * with # and empty ones are left out.  WEFT_ERR_ARG: the line, and what is wrong with it. */
weft_status weft_goodput_parse(const char *name, const char *text, size_t n,
                               weft_goodput_trace *out);
void        weft_goodput_trace_fini(weft_goodput_trace *t);

typedef struct weft_goodput_spec {
    /* [n]: a step on n hosts where nothing disturbs it, up to n_step_s - 1 hosts; 0: the job does
     * not fit so few.  More hosts than that wait. */
    const double *step_s;
    int           n_step_s;
    double        detect_s, pause_s, join_s, restart_s;
    double        notice_s;     /* of a host that goes; 0: none */
    double        checkpoint_s; /* from one to the next */
    int           copies;       /* of each region of state, at least 1 */
} weft_goodput_spec;

typedef struct weft_goodput_result {
    double wall_s; /* from the first moment with hosts enough to the last event */
    /* committed steps, each as long as it takes the hosts that were there */
    double  effective_s;
    int64_t n_committed;
    int     n_view;     /* changes of it */
    int     n_lost;     /* hosts that went without notice */
    int     n_replaced; /* processes */
    int     n_restart;  /* times it went back to a checkpoint */
    /* where the rest of wall_s went */
    double pause_s, torn_s, repeated_s, waiting_s;
    /* what hosts would have added that were there and did not take part yet */
    double idle_s;
} weft_goodput_result;

/* WEFT_ERR_ARG: numbers that cannot be, or a trace without a moment with hosts enough. */
weft_status weft_goodput_run(const weft_goodput_trace *t, const weft_goodput_spec *s,
                             weft_goodput_result *out);

#endif
