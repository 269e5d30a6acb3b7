/* Private to the sweeps: a model's steps are run and their instructions timed. */
#ifndef WEFT_SESSION_SWEEP_PRIV_H
#define WEFT_SESSION_SWEEP_PRIV_H

#include "compile/compile.h"
#include "program/timeline.h"
#include "program/work.h"
#include "session/sweep.h"

typedef enum weft_sweep__family {
    WEFT_SWEEP_GPT,
    WEFT_SWEEP_LLAMA,
    WEFT_SWEEP_MOE,
} weft_sweep__family;

typedef struct weft_sweep__model {
    weft_sweep__family      family;
    int                     width, head, seq, batch; /* batch: of a micro-batch */
    weft_strategy_recompute recompute;
    int                     layers, vocab;
    int ffn, groups; /* of llama and moe; 0: by width, half the heads */
} weft_sweep__model;

typedef struct weft_sweep__sample {
    weft_workload w;
    double        s;
} weft_sweep__sample;

typedef struct weft_sweep__samples {
    weft_sweep__sample *sample; /* free() */
    int64_t             n, cap;
} weft_sweep__samples;

/* config.json of a model. */
void weft_sweep__describe(const weft_sweep__model *m, char *text, size_t n);
/* One sample for each instruction of the timeline. */
weft_status weft_sweep__keep(weft_sweep__samples *s, const weft_timeline *t);
/* The median of each work and size, in a; samples are sorted. */
weft_status weft_sweep__sum_up(weft_sweep__samples *s, weft_arena *a, weft_timing **out,
                               int *n);

/* Those that a GPU's sweep runs. */
const weft_sweep__model *weft_sweep__gpu_models(int *n);

/* A work that is launched many tensors at a time: all of a model's. */
typedef struct weft_sweep__shared {
    char   kind[64];
    int    n; /* tensors */
    double bytes, s;
    double once_s, each_s; /* of a launch, of each tensor in it, besides the bytes */
} weft_sweep__shared;

/* What a launch of x's kind takes over its bytes, once and for each tensor, from all models: least
 * squares of relative errors, with x's rate; none of the two is below 0. */
void weft_sweep__fit_launch(const weft_sweep__shared *all, int n, weft_sweep__shared *x);

#endif
