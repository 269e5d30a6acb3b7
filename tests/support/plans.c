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
    o.n_mesh   = 1;
    int dp     = weft_strategy_axis_at(h, WEFT_AXIS_DP),
        copies = weft_strategy_shard_copies(h);
    if (h->dp) o.lanes = 1u << dp;
    if (copies > 1) assert_ok(weft_shard_split_lanes(&o, dp, copies, a));
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

int test_plan_programs(const test_job *j, test_plan x, const test_plan_how *how,
                       weft_program **p)
{
    static const test_plan_how none;
    weft_strategy              h;
    weft_sharding             *s = test_plan_shard(j, x.words, &h);
    int                        n = s->mesh[0].n_rank * h.pp;
    int32_t                    share[TEST_MAX_RANK], sharer[TEST_MAX_RANK];
    int                        n_sharer = 1, n_standby;
    assert_true(n <= TEST_MAX_RANK);
    weft_strategy_expand_split(&h, share);
    if (!how) how = &none;
    n_standby = how->n_standby ? how->n_standby : how->standby_bytes > 0;
    for (int k = 0; k < s->mesh[0].n_rank; k++)
        n_sharer = weft_strategy_sharers(&h, k, &sharer[k]);
    for (int r = 0; r < n; r++) {
        weft_partition_options o = {.n_micro             = j->o.n_micro,
                                    .n_lane              = x.n_lane,
                                    .pp                  = h.pp,
                                    .rank                = r,
                                    .schedule            = x.schedule,
                                    .n_chunk             = x.n_chunk,
                                    .reduce_bucket_bytes = how->reduce_bytes,
                                    .cut                 = how->cut,
                                    .share               = h.n_batch_split ? share : NULL,
                                    .shard_bucket_bytes  = how->gather_bytes,
                                    .gather_once         = h.overlap_param_gather > 0,
                                    .shard_gradients     = how->shard_gradients,
                                    .standby_bytes       = how->standby_bytes,
                                    .n_standby           = n_standby,
                                    .n_sharer            = n_sharer,
                                    .sharer              = sharer,
                                    .standby_credits     = how->standby_credits,
                                    .offload_bytes       = how->offload_bytes,
                                    .offload_gradient_bytes = how->offload_gradient_bytes,
                                    .ring_axes = h.cp_comm == WEFT_CP_RING ? ~0u : 0};
        if (weft_partition_program(j->training.graph, s, &o, &p[r]) != WEFT_OK ||
            weft_program_verify(p[r]) != WEFT_OK)
            fail_msg("%s, rank %d: %s", x.words, r, weft_error_text());
    }
    weft_sharding_destroy(s);
    return n;
}

static test_result run(const test_job *j, test_plan x, const test_plan_how *how)
{
    weft_program *p[TEST_MAX_RANK];
    int           n = test_plan_programs(j, x, how, p);
    return test_job_run(j, p, n, 1);
}

test_result test_plan_run(const test_job *j, test_plan x)
{
    return run(j, x, NULL);
}

test_result test_plan_run_beside(const test_job *j, test_plan x, int64_t gather_bytes,
                                 int64_t reduce_bytes)
{
    return run(
        j, x,
        &(test_plan_how){.gather_bytes = gather_bytes, .reduce_bytes = reduce_bytes});
}

double test_plan_apart(float a, float b)
{
    return fabs((double)a - (double)b) / fmax(1e-30, fabs((double)b));
}

static void check_near(const test_job *j, const test_result *one, test_plan x,
                       const test_plan_how *how, double loss_tol, double norm_tol)
{
    test_result many = run(j, x, how);
    double      loss = 0, norm = 0;
    for (int i = 0; i < TEST_STEPS; i++) {
        loss = fmax(loss, test_plan_apart(many.loss[i], one->loss[i]));
        norm = fmax(norm, test_plan_apart(many.norm[i], one->norm[i]));
    }
    print_message("%s: loss %.1e, norm %.1e\n", x.words, loss, norm);
    if (!(loss < loss_tol) || !(norm < norm_tol))
        fail_msg("%s: loss apart by %.3g, norm by %.3g", x.words, loss, norm);
}

void test_plan_near(const test_job *j, const test_result *one, test_plan x, double tol)
{
    check_near(j, one, x, NULL, tol, tol);
}

void test_plan_near_cut(const test_job *j, const test_result *one, test_plan x,
                        const int *cut, double tol)
{
    check_near(j, one, x, &(test_plan_how){.cut = cut}, tol, tol);
}

void test_plan_nearly(const test_job *j, const test_result *one, test_plan x,
                      const test_plan_how *how)
{
    check_near(j, one, x, how, 1e-5, how && how->norm_tol > 0 ? how->norm_tol : 1e-5);
}

void test_plan_same_bits(const test_job *j, const test_result *one, test_plan x,
                         const test_plan_how *how)
{
    test_result many = run(j, x, how);
    if (memcmp(&many, one, sizeof many) != 0)
        fail_msg(
            "%s: loss %.9g .. %.9g, one rank %.9g .. %.9g; norm %.9g, %.9g; weights %s",
            x.words, (double)many.loss[0], (double)many.loss[TEST_STEPS - 1],
            (double)one->loss[0], (double)one->loss[TEST_STEPS - 1], (double)many.norm[0],
            (double)one->norm[0], many.weights == one->weights ? "equal" : "differ");
}

void test_plan_each(const char *model, test_job_options o, const test_plan *x, size_t n,
                    const test_plan_how *how, test_plan_check check)
{
    static size_t n_call;
    const size_t  stride = TEST_STRIDE(6);
    test_job      j;
    test_result   one   = {0};
    int           lanes = 0;
    test_job_open(&j, model, o);
    for (size_t i = n_call++ % (n < stride ? n : stride); i < n; i += stride) {
        if (x[i].n_lane != lanes) one = test_plan_one(&j, lanes = x[i].n_lane);
        assert_true(one.loss[TEST_STEPS - 1] != one.loss[0]);
        check(&j, &one, x[i], how);
    }
    test_job_close(&j);
}
