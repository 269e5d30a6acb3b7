/* A GPU's memory before anything is allocated there: what a program will take of it, and the line
 * of a job or bench that does not fit, with remedies that were compiled before they are named.
 *
 *     WEFT_TRY(weft_gpu_need(program, device, &need));
 *     if (weft_gpu_sum(&need) > free) {
 *         weft_gpu_find_remedies(&fit, free, &remedies);
 *         return weft_gpu_refuse(&shortage, &remedies); } */
#ifndef WEFT_SESSION_GPU_MEMORY_H
#define WEFT_SESSION_GPU_MEMORY_H

#include "compile/compile.h"
#include "device/device.h"

typedef struct weft_gpu_bytes {
    int64_t state, work, scratch;
} weft_gpu_bytes;

weft_status weft_gpu_need(const weft_program *p, weft_device *d, weft_gpu_bytes *out);
int64_t     weft_gpu_sum(const weft_gpu_bytes *x);

/* WEFT_ERR_ARG: states are to go to the host's memory (weft_strategy_offload), and are there
 * already.  d may be NULL: it is not known yet. */
weft_status weft_gpu_check_offload(int offload, const weft_device *d);

/* What is to fit: the program of a rank. */
typedef struct weft_gpu_fit {
    weft_compile_spec    spec; /* as it runs now */
    bool                 given_lanes;
    weft_device         *device;
    const weft_strategy *strategy; /* NULL: one rank */
    int                  n_rank, rank;
    bool                 keeps_micro_batch; /* of a resume */
    bool                 keeps_ranks;       /* a plan says how many there are */
    bool                 as_options;        /* "--micro-batch 4", not "micro_batch=4" */
} weft_gpu_fit;

enum {
    WEFT_GPU_MOST_REMEDIES = 4
};

/* What would make it fit `have` bytes, each tried by itself. */
typedef struct weft_gpu_remedies {
    int  n;
    char text[WEFT_GPU_MOST_REMEDIES][60]; /* "recompute=selective (needs 44.0)" */
} weft_gpu_remedies;
void weft_gpu_find_remedies(const weft_gpu_fit *f, int64_t have, weft_gpu_remedies *out);

/* What does not fit where. */
typedef struct weft_gpu_shortage {
    const char    *model, *where; /* where: "cuda:0", "cuda:0 of host" */
    int            n_rank;        /* that share it */
    int64_t        need, have;
    weft_gpu_bytes part;   /* of need, of the first rank */
    int64_t        others; /* what other processes had of its memory; -1 unknown */
} weft_gpu_shortage;
weft_status weft_gpu_refuse(const weft_gpu_shortage *x, const weft_gpu_remedies *r);

#endif
