/* A timeline: when each instruction of each rank ran.  sim makes predicted ones, exec measured
 * ones, and both are the same type, so that one can be laid over the other. */
#ifndef WEFT_PROGRAM_TIMELINE_H
#define WEFT_PROGRAM_TIMELINE_H

#include "program/program.h"

typedef struct weft_slice {
    int32_t program; /* index into the timeline's programs */
    int32_t stream;  /* number in its table */
    int32_t actor, instr, micro;
    int32_t step; /* from 0, within the timeline */
    double  start_s, end_s;
} weft_slice;

typedef struct weft_timeline {
    weft_arena                *arena;
    int                        n_program;
    const weft_program *const *program; /* borrowed */
    const char                *name;    /* "predicted", "measured" */
    int                        n_step;
    double                     total_s;  /* from 0 to the last end */
    double                     origin_s; /* measured: the process's clock at 0 */
    double step_s; /* without the filling of the first step, where there are several */
    int    n_slice, cap_slice;
    weft_slice *slice; /* in the order they began on each stream */
} weft_timeline;

/* Copies the list of programs, borrows the programs themselves. */
weft_status weft_timeline_create(const char *name, const weft_program *const *p, int n,
                                 weft_timeline **out);
void        weft_timeline_destroy(weft_timeline *t);
weft_status weft_timeline_add(weft_timeline *t, const weft_slice *s);
/* Sets total_s and step_s from the slices. */
void weft_timeline_finish(weft_timeline *t, int n_step);

/* Seconds in which a stream ran nothing, of total_s. */
double weft_timeline_idle_s(const weft_timeline *t, int program, weft_stream_kind k);

/* A summary for people: times, each stream's busy share, the actors by time. */
weft_status weft_timeline_print(const weft_timeline *t, weft_text *out);
/* The trace event format that Perfetto and chrome://tracing open; a process a rank, a thread a
 * stream. */
weft_status weft_timeline_json(const weft_timeline *t, weft_text *out);
/* Its parts, so that timelines of several ranks make one file: begin, events of each, end. */
void weft_timeline_json_begin(weft_text *out);
void weft_timeline_json_events(const weft_timeline *t, double shift_s, weft_text *out);
void weft_timeline_json_end(weft_text *out);

#endif
