/* A step as slices on rows, one a stage: what both ways to come by it fill. */
#ifndef WEFT_REPORT_TIMELINE_PRIV_H
#define WEFT_REPORT_TIMELINE_PRIV_H

#include "program/timeline.h"
#include "report/report_priv.h"

typedef enum weft_report__shade {
    SHADE_FORWARD,
    SHADE_BACKWARD,
    SHADE_WGRAD, /* the part of the backward pass that nobody waits for */
    SHADE_AGAIN,
    SHADE_WIRES,
    SHADE_BETWEEN,
    SHADE_GRADS,
    SHADE_OPTIMIZER,
    SHADE_FIXED,
    N_SHADE
} weft_report__shade;

typedef struct weft_report__slice {
    weft_report__shade kind;
    double             start, end;
} weft_report__slice;

typedef struct weft_report__row {
    int                 n, cap;
    weft_report__slice *slice;
    double              busy_s;
} weft_report__row;

typedef struct weft_report__drawing {
    const weft_report__view *v;
    int                      pp, chunks, n_micro;
    weft_report__row        *row;
    double                   pipe_s, total_s;
    int                      most_pieces; /* of a row */
    bool                     simulated;
    bool                     has[N_SHADE];
} weft_report__drawing;

weft_status weft_report__push(weft_report__drawing *d, int row, weft_report__shade kind,
                              double start, double seconds);
/* The schedule with the stages' seconds, in virtual time. */
weft_status weft_report__play(weft_report__drawing *d);
/* The last step of a simulated timeline: of each stage one rank. */
weft_status weft_report__replay(weft_report__drawing *d, const weft_timeline *t);

#endif
