#include "support/plans.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/status.h"
#include "support/test.h"

weft_sharding *test_plan_shard(const test_job *j, const char *words, weft_strategy *h)
{
    weft_arena        *a;
    weft_shard_options o;
    weft_sharding     *s;
    assert_ok(weft_arena_create(&a));
    if (weft_strategy_parse(words, h) != WEFT_OK ||
        weft_shard_expand(h, j->training.graph, NULL, 0, a, &o) != WEFT_OK)
        fail_msg("%s: %s", words, weft_error_text());
    o.n_mesh = 1;
    if (h->dp) o.lanes = 1u << weft_strategy_axis_at(h, WEFT_AXIS_DP);
    if (weft_shard_propagate(j->training.graph, &o, &s) != WEFT_OK)
        fail_msg("%s: %s", words, weft_error_text());
    weft_arena_destroy(a);
    return s;
}

test_result test_plan_one(const test_job *j, int n_lane)
{
    weft_partition_options o = {.n_micro = j->o.n_micro, .n_lane = n_lane};
    weft_program          *p;
    assert_ok(weft_partition_program(j->training.graph, NULL, &o, &p));
    return test_job_run(j, &p, 1, 1);
}

static test_result run(const test_job *j, test_plan x, const int *cut, int64_t ahead,
                       int64_t bucket)
{
    weft_program  *p[TEST_MAX_RANK];
    weft_strategy  h;
    weft_sharding *s = test_plan_shard(j, x.words, &h);
    int            n = s->mesh[0].n_rank * h.pp;
    assert_true(n <= TEST_MAX_RANK);
    for (int r = 0; r < n; r++) {
        weft_partition_options o = {.n_micro             = j->o.n_micro,
                                    .n_lane              = x.n_lane,
                                    .pp                  = h.pp,
                                    .rank                = r,
                                    .schedule            = x.schedule,
                                    .n_chunk             = x.n_chunk,
                                    .reduce_bucket_bytes = bucket,
                                    .cut                 = cut,
                                    .share = h.n_batch_split ? h.batch_split : NULL,
                                    .shard_bucket_bytes = ahead,
                                    .gather_once        = h.overlap_param_gather > 0,
                                    .ring_axes = h.cp_comm == WEFT_CP_RING ? ~0u : 0};
        if (weft_partition_program(j->training.graph, s, &o, &p[r]) != WEFT_OK ||
            weft_program_verify(p[r]) != WEFT_OK)
            fail_msg("%s, rank %d: %s", x.words, r, weft_error_text());
    }
    weft_sharding_destroy(s);
    return test_job_run(j, p, n, 1);
}

test_result test_plan_run(const test_job *j, test_plan x)
{
    return run(j, x, NULL, 0, 0);
}

test_result test_plan_run_beside(const test_job *j, test_plan x, int64_t ahead,
                                 int64_t bucket)
{
    return run(j, x, NULL, ahead, bucket);
}

static double apart(float a, float b)
{
    return fabs((double)a - (double)b) / fmax(1e-30, fabs((double)b));
}

void test_plan_near(const test_job *j, const test_result *one, test_plan x, double tol)
{
    test_plan_near_cut(j, one, x, NULL, tol);
}

void test_plan_near_cut(const test_job *j, const test_result *one, test_plan x,
                        const int *cut, double tol)
{
    test_result many = run(j, x, cut, 0, 0);
    double      loss = 0, norm = 0;
    for (int i = 0; i < TEST_STEPS; i++) {
        loss = fmax(loss, apart(many.loss[i], one->loss[i]));
        norm = fmax(norm, apart(many.norm[i], one->norm[i]));
    }
    print_message("%s: loss %.1e, norm %.1e\n", x.words, loss, norm);
    if (!(loss < tol) || !(norm < tol))
        fail_msg("%s: loss apart by %.3g, norm by %.3g", x.words, loss, norm);
}
