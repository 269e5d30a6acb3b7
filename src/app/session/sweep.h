/* How long instructions take on this machine, by kind of work and size: steps of small models of
 * several families, widths and lengths are run and their instructions timed where they stand,
 * with the caches as a step leaves them. What comes out belongs to the device; no price knows
 * which model it was measured in. */
#ifndef WEFT_SESSION_SWEEP_H
#define WEFT_SESSION_SWEEP_H

#include "base/arena.h"
#include "base/pool.h"
#include "cluster/cluster.h"

/* Ranks that measure at once begin each step together, so that all are at the same work and share
 * memory as in a run. *enough: in, whether this one has measured enough; out, whether anyone has.
 */
typedef struct weft_sweep_peers {
    weft_status (*meet)(void *arg, bool *enough);
    void *arg;
} weft_sweep_peers;

/* Medians, in the same order for every call; device 0, link -1.  peers NULL: alone.  The list is
 * in a. */
weft_status weft_sweep_run(weft_pool *pool, const weft_sweep_peers *peers, weft_arena *a,
                           weft_timing **out, int *n);

#endif
