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

/* The sharding that the words make of the job's graph; the caller's. */
weft_sharding *test_plan_shard(const test_job *j, const char *words, weft_strategy *h);
test_result    test_plan_one(const test_job *j, int n_lane);
test_result    test_plan_run(const test_job *j, test_plan x);
/* The same with communication beside compute: bytes gathered ahead, and of sums at once; 0: in
 * turn. */
test_result test_plan_run_beside(const test_job *j, test_plan x, int64_t ahead,
                                 int64_t bucket);
/* Loss and norm of every step within tol of one rank's. */
void test_plan_near(const test_job *j, const test_result *one, test_plan x, double tol);
/* The same, cut before these nodes instead of between layers. */
void test_plan_near_cut(const test_job *j, const test_result *one, test_plan x,
                        const int *cut, double tol);

#endif
