/* Ranks that do the same at the same time are simulated once.
 *
 *     weft_sim_folded *f;
 *     WEFT_TRY(weft_sim_fold(&world, cluster, NULL, &f));
 *     printf("%d ranks, %d classes, %g s a step\n", world.n, f->n_class, f->timeline->step_s);
 *     weft_sim_folded_destroy(f);
 *
 * Ranks are of one class when their programs are alike, their devices and links are, and so are,
 * class by class,
 * those whom they talk to: the coarsest such partition, by refinement.  What one rank of a class
 * does and when is then what each does, and the folded run takes as long as the whole one, to the
 * last bits. */
#ifndef WEFT_SIM_FOLD_H
#define WEFT_SIM_FOLD_H

#include "program/world.h"
#include "sim/sim.h"

typedef struct weft_sim_folded {
    weft_arena    *arena;
    weft_timeline *timeline; /* of one rank a class, the lowest one */
    int            n_class;
    int           *class_of; /* [rank] */
    int           *n_rank;   /* [class] */
    weft_program **program;  /* [class]: that rank's, with real ranks */
} weft_sim_folded;

/* c may be NULL where every instruction states its seconds.  Borrows the world's programs for the
 * life of *out. */
weft_status weft_sim_fold(const weft_world *w, const weft_cluster *c,
                          const weft_sim_options *o, weft_sim_folded **out);
void        weft_sim_folded_destroy(weft_sim_folded *f); /* accepts NULL */

/* The timeline of every rank: each has its class's.  Lives no longer than f. */
weft_status weft_sim_folded_expand(const weft_sim_folded *f, const weft_world *w,
                                   weft_timeline **out);
/* Bytes that all ranks of class k send in a step, by level of links (WEFT_COST_LEVELS of them). */
weft_status weft_sim_folded_traffic(const weft_sim_folded *f, const weft_cluster *c,
                                    int k, double *level);

#endif
