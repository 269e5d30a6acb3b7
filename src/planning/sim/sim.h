/* The simulator: the programs of a job in virtual time.  What exec would run, priced by cost.
 *
 *     weft_timeline *t;
 *     WEFT_TRY(weft_sim_run(programs, 2, cluster, NULL, &t));
 *     printf("%g s a step\n", t->step_s);
 *     weft_timeline_destroy(t);
 */
#ifndef WEFT_SIM_SIM_H
#define WEFT_SIM_SIM_H

#include "cluster/cluster.h"
#include "program/timeline.h"

typedef struct weft_sim_options {
    int  n_step;    /* 0: two steps, so that step_s is without the filling of the first */
    bool no_slices; /* times only: the timeline has no slices but those sums */
} weft_sim_options;

/* Borrows the programs (ranks 0..n-1, verified) for the life of the timeline.  o may be NULL.
 * Instructions that state their seconds need no cluster: c may be NULL then. */
weft_status weft_sim_run(const weft_program *const *p, int n, const weft_cluster *c,
                         const weft_sim_options *o, weft_timeline **out);

#endif
