/* How long instructions take on this machine, by kind of work and size: steps of small models of
 * several families, widths and lengths are run and their instructions timed where they stand,
 * with the caches as a step leaves them. What comes out belongs to the device; no price knows
 * which model it was measured in. */
#ifndef WEFT_SESSION_SWEEP_H
#define WEFT_SESSION_SWEEP_H

#include "base/arena.h"
#include "base/pool.h"
#include "base/text.h"
#include "cluster/cluster.h"
#include "device/device.h"

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

/* The same of a GPU, in bf16, with what a step takes besides its instructions (program/work.h). */
typedef struct weft_sweep_gpu_options {
    weft_device *device;
    weft_pool   *pool;    /* draws weights */
    int          n_model; /* the first so many alone, for tests; 0: all */
    double settle_s;      /* of steps without a pause before one counts; 0: by the step */
    /* nothing is timed: programs of these models, and of common ones, are made once, so that the
     * plugin chooses the algorithms of their matmuls (WEFT_CUDA_TUNE) */
    bool       tunes;
    double     tune_limit_s;       /* no model is begun after; 0: no limit */
    weft_text *list;               /* steps and their parts, as CSV; NULL */
    void (*log)(const char *line); /* a line for each model; NULL */
} weft_sweep_gpu_options;

weft_status weft_sweep_gpu(const weft_sweep_gpu_options *o, weft_arena *a,
                           weft_timing **out, int *n);

/* What the host does for a GPU with offload=optimizer, in memory that the GPU copies from and to:
 * AdamW of n parameters on all cores of the pool ("host update"), and copies of so many bytes, both
 * ways at once ("host copy").  Sizes are bytes, device 0. */
weft_status weft_sweep_host_update(weft_device *d, weft_pool *pool, int64_t n,
                                   weft_timing *out);
weft_status weft_sweep_host_copy(weft_device *d, int64_t bytes, weft_timing *out);

#endif
