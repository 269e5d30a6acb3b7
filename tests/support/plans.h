/* Programs of all ranks from a plan's short words, run in this process.
 *
 *     test_plan_near(&j, &one, (test_plan){"cp=2", 2, 1, NULL}, 1e-5);
 *
 * Any failure fails the running cmocka test. */
#ifndef WEFT_TEST_PLANS_H
#define WEFT_TEST_PLANS_H

#include "partition/partition.h"
#include "support/ranks.h"

typedef struct test_plan {
    const char *words; /* dp=2 cp=2 pp=2 */
    int         n_lane, n_chunk;
    const char *schedule;
} test_plan;

/* How its programs are made; all zero: stages end between layers, nothing is overlapped. */
typedef struct test_plan_how {
    const int *cut; /* stages begin before these nodes */
    /* communication overlapped with compute, in buckets of so many bytes; 0: it is not */
    int64_t gather_bytes, reduce_bytes;
    int64_t standby_bytes;   /* weft_partition_options */
    int     standby_credits; /* likewise */
    int     n_standby;       /* likewise; 0 with standby_bytes: 1 */
    bool    shard_gradients; /* likewise */
    /* updates on the host, in chunks of so many bytes; 0: they are not */
    int64_t offload_bytes;
    int64_t offload_gradient_bytes; /* weft_partition_options */
    double  norm_tol;               /* of test_plan_nearly; 0: 1e-5 */
} test_plan_how;

/* The sharding that the words make of the job's graph; the caller's. */
weft_sharding *test_plan_shard(const test_job *j, const char *words, weft_strategy *h);
/* The programs of all ranks, verified; how may be NULL.  Gives their number. */
int test_plan_programs(const test_job *j, test_plan x, const test_plan_how *how,
                       weft_program **p);

test_result test_plan_one(const test_job *j, int n_lane);
test_result test_plan_run(const test_job *j, test_plan x);
/* The same with communication overlapped with compute. */
test_result test_plan_run_beside(const test_job *j, test_plan x, int64_t gather_bytes,
                                 int64_t reduce_bytes);

/* Relative to b. */
double test_plan_apart(float a, float b);
/* Loss and norm of every step within tol of one rank's. */
void test_plan_near(const test_job *j, const test_result *one, test_plan x, double tol);
/* The same, cut before these nodes instead of between layers. */
void test_plan_near_cut(const test_job *j, const test_result *one, test_plan x,
                        const int *cut, double tol);

typedef void (*test_plan_check)(const test_job *j, const test_result *one, test_plan x,
                                const test_plan_how *how);
/* Losses, norms and weights of one rank, to the bit. */
void test_plan_same_bits(const test_job *j, const test_result *one, test_plan x,
                         const test_plan_how *how);
/* Loss within 1e-5 of one rank's, norm within how's. */
void test_plan_nearly(const test_job *j, const test_result *one, test_plan x,
                      const test_plan_how *how);
/* One after the other against one rank of as many lanes; how may be NULL.  Under sanitizers every
 * third of them, each call from another one on. */
void test_plan_each(const char *model, test_job_options o, const test_plan *x, size_t n,
                    const test_plan_how *how, test_plan_check check);

#endif
