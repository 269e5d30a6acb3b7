/* Private to the module. */
#ifndef WEFT_SIM_PRIV_H
#define WEFT_SIM_PRIV_H

#include "sim/sim.h"

/* Walks `walked` (ranks 0..n-1, verified), priced and reported as `real`: the same programs except
 * for the ranks they communicate with.  Borrows both for the life of the timeline.  c may be NULL
 * where every instruction states its seconds, o too. */
weft_status weft_sim__run(const weft_program *const *real,
                          const weft_program *const *walked, int n, const weft_cluster *c,
                          const weft_sim_options *o, weft_timeline **out);
/* Ranks of a host share its cores: none of them is like another. */
bool weft_sim__crowded(const weft_cluster *c);

#endif
