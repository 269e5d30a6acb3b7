/* The machine's peak as far as we are concerned: an fp32 matrix product of n x n x n with the
 * pool's threads, in GFLOP/s, the best of several runs. */
#ifndef WEFT_SESSION_PEAK_H
#define WEFT_SESSION_PEAK_H

#include "base/pool.h"

weft_status weft_peak_gflops(weft_pool *pool, int n_thread, int64_t n, int n_run,
                             double *out);

#endif
