/* How fast a training step of a model is, on random data. */
#ifndef WEFT_SESSION_BENCH_H
#define WEFT_SESSION_BENCH_H

#include "base/pool.h"
#include "compile/compile.h"
#include "session/classes.h"

typedef struct weft_bench_result {
    int64_t steps;
    double *step_ms; /* each timed step, in order; the caller frees it */
    double  step_ms_median, step_ms_min;
    double  gflops; /* model flops over the median step */
    /* an fp32 product of 2048 x 2048 x 2048 in this process; 0: not measured (GPU) */
    double  peak_gflops;
    double  tokens_per_s;
    double  loss; /* of the last step */
    int64_t weights, mem_peak_bytes;
    int64_t batch, seq, micro_batch;
    int     threads;
    /* of a GPU: from a few steps with a record before and after each instruction */
    bool   has_classes;
    double class_ms[WEFT_N_CLASS];
    char   warning[600]; /* what the device lacks and does without; "" nothing */
} weft_bench_result;

typedef struct weft_bench_options {
    int64_t     steps;   /* timed, after one that is not */
    int         threads; /* 0: the cores there are */
    const char *device;  /* as the job's key; NULL: cpu */
    const char *trace;   /* a timeline of the last step, or NULL */
} weft_bench_options;

weft_status weft_bench_run(const weft_compile_spec *s, const weft_bench_options *o,
                           weft_bench_result *out);
/* Random weights, as a job begins with. */
struct weft_runner;
weft_status weft_bench_draw_weights(struct weft_runner *r, const weft_compiled *c,
                                    weft_pool *pool);

#endif
