/* How a job cuts its batch whose ranks may become more or fewer: micro_batch and lanes decide
 * bits, so they are chosen once, for all the numbers of ranks that it may have.
 *
 *     weft_elastic_size    size[] = {{.n_host = 1, ..}, {.n_host = 4, ..}};       the fewest first
 *     weft_elastic_request q      = {.training = &t, .n_size = 2, .size = size};
 *     WEFT_TRY(weft_elastic_choose(&q, &a));          a.lanes, a.micro_batch, a.recompute
 *
 * (1) With lanes up to the ranks of the largest size each number of ranks has a best plan, that
 *     which weft_replanner_decide() finds.  Chosen is what makes the mean step over the sizes
 *     least: a job of one lane that is a fast pipeline with many ranks, and cannot use others, is
 *     not.
 * (2) Cuts with which the job fits at all sizes come before others; and those without
 *     recomputation before those with it.
 * (3) Predictions are some 10 % off: of what is as good within that, the most lanes are taken.
 *     They are replicas, so that the state outlives a host. */
#ifndef WEFT_PLANNER_ELASTIC_H
#define WEFT_PLANNER_ELASTIC_H

#include "cluster/cluster.h"
#include "compile/compile.h"

enum {
    WEFT_ELASTIC_MAX_SIZE = 5
};

/* Ranks that the job may have, and what they run on. */
typedef struct weft_elastic_size {
    int                 n_host;
    const int          *host_ranks;
    const weft_cluster *cluster;
    int                 n_least; /* ranks that are used whatever it costs (replan.h) */
} weft_elastic_size;

/* Borrowed. */
typedef struct weft_elastic_request {
    const weft_training     *training; /* of any micro_batch and lanes */
    bool                     on_cpus;
    int                      n_size;
    const weft_elastic_size *size;
    int64_t                  micro_batch, lanes; /* 0: to be chosen */
    int                      recompute;          /* -1: to be chosen */
} weft_elastic_request;

typedef struct weft_elastic_answer {
    int64_t micro_batch, lanes;
    int     recompute;
    double  step_s[WEFT_ELASTIC_MAX_SIZE]; /* predicted; INFINITY: nothing fits */
} weft_elastic_answer;

/* WEFT_ERR_NOFIT: nothing fits at any size, by fast estimates, or nothing can be priced. */
weft_status weft_elastic_choose(const weft_elastic_request *q, weft_elastic_answer *out);

#endif
