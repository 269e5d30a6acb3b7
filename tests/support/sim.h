/* The simulator without folding: every rank's program is walked.
 *     weft_timeline *t;
 *     assert_ok(test_simulate(program, n, cluster, NULL, &t)); */
#ifndef TEST_SUPPORT_SIM_H
#define TEST_SUPPORT_SIM_H

#include "sim/sim_priv.h"

/* Borrows the programs (ranks 0..n-1, verified) for the life of the timeline.  c may be NULL where
 * every instruction states its seconds, o too. */
static inline weft_status test_simulate(const weft_program *const *p, int n,
                                        const weft_cluster *c, const weft_sim_options *o,
                                        weft_timeline **out)
{
    return weft_sim__run(p, p, n, c, o, out);
}

#endif
