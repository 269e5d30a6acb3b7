/* A timeline read back from its file: what `weft train --trace` measured, what `weft sim -o`
 * predicted.
 *
 *     weft_trace *m;
 *     WEFT_TRY(weft_trace_load("measured.json", &m));
 *     WEFT_TRY(weft_trace_fit(m, cluster, &corrected, &fit));      this machine's constants, as
 *     it ran
 *     weft_trace_destroy(m);
 */
#ifndef WEFT_TRACE_TRACE_H
#define WEFT_TRACE_TRACE_H

#include "cluster/cluster.h"
#include "program/work.h"

typedef struct weft_trace_event {
    const char   *name, *kind, *actor; /* kind: the operator, collective or instruction */
    int           rank, stream, micro, step;
    double        start_s, dur_s; /* dur_s without wait_s */
    double        wait_s;         /* for other ranks: before a collective, in a receive */
    double        flops, bytes;   /* -1: the file does not say */
    weft_workload work;           /* n 0: none, or the file does not say */
    int           ranks, first; /* of a collective: members, the first one; 0: not said */
    double        given;
} weft_trace_event;

typedef struct weft_trace {
    weft_arena       *arena;
    const char       *file;
    int               n_event, n_step, n_rank;
    weft_trace_event *event;
    double            step_s; /* from the first start to the last end, over the steps */
    /* Only whole steps are kept: where a stream's record begins inside one, that one is left out.
     */
} weft_trace;

weft_status weft_trace_load(const char *path, weft_trace **out);
weft_status weft_trace_parse(const char *file, const char *text, size_t n,
                             weft_trace **out);
void        weft_trace_destroy(weft_trace *t);

/* Predicted and measured side by side, a line for each kind of instruction, by measured time, then
 * one for each class (program/class.h); seconds are of one step, over all ranks. */
weft_status weft_trace_diff(const weft_trace *predicted, const weft_trace *measured,
                            weft_text *t);

/* The last steps of both in one file for Perfetto, two tracks for each class of a rank. */
weft_status weft_trace_overlay(const weft_trace *predicted, const weft_trace *measured,
                               weft_text *out);

typedef struct weft_trace_fitted {
    int    n_compute, n_comm;         /* instructions it was fitted to */
    double error_before, error_after; /* mean |predicted / measured - 1| by time */
    double sum_before, sum_after, sum_measured; /* seconds of all of them */
} weft_trace_fitted;

/* c as the trace shows it, one version on.  Where c has timings, those of the kinds of work and
 * collectives that ran are moved in proportion, and what ran is added.  Else the constants of the
 * first device kind (peak reached, memory bandwidth, launch) and of the link between rank 0 and
 * 1; never further off than c was. */
weft_status weft_trace_fit(const weft_trace *m, const weft_cluster *c, weft_cluster **out,
                           weft_trace_fitted *fit);

#endif
