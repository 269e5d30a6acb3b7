/* The simulator: the programs of a job in virtual time.  What exec would run, priced by cost.
 * The call is weft_sim_fold (sim/fold.h). */
#ifndef WEFT_SIM_SIM_H
#define WEFT_SIM_SIM_H

#include "cluster/cluster.h"
#include "program/timeline.h"

typedef struct weft_sim_options {
    int  n_step;    /* 0: two steps, so that step_s is without the filling of the first */
    bool no_slices; /* times only: the timeline has no slices but those sums */
} weft_sim_options;

#endif
