/* The stages of a pipeline, by what a step of our programs takes on them. */
#ifndef WEFT_COST_PIPE_PRIV_H
#define WEFT_COST_PIPE_PRIV_H

#include "cost/score.h"

enum {
    WEFT_COST__PARTS = 64 /* runs of alike stages; more are counted into the last */
};

/* Alike stages from `first` on, and all that is before them. */
typedef struct weft_cost__part {
    int    first, n;
    double fwd_s, bwd_s, weight_s, fwd_before_s, bwd_before_s;
} weft_cost__part;

typedef struct weft_cost__pipe {
    int             n;
    weft_cost__part part[WEFT_COST__PARTS];
    double          fwd_s, bwd_s; /* of all stages so far */
} weft_cost__pipe;

void weft_cost__pipe_add(weft_cost__pipe *x, int stage, int n, double fwd_s, double bwd_s,
                         double weight_s);
/* All micro-batches of a step; bytes: of a message to the next stage. */
double weft_cost__pipe_seconds(const weft_cost__pipe *x, const weft_cost_point *p,
                               const weft_cost_fabric *f, weft_cost_group g,
                               double bytes);

#endif
