/* ZeRO 2 and 3 whose gradients are summed in shards (reduction: fixed): reduce-scattered in every
 * micro-batch, so that a rank holds sums of its shards alone.  Plans train like one rank within
 * rounding, a second run has the same bits.  Ranks are threads of this process. */
#include <math.h>
#include <string.h>

#include "partition/partition.h"
#include "support/ranks.h"
#include "support/test.h"

#define MODEL "tests/fixtures/four"

typedef struct plan {
    const char *strategy;
    int         n_micro; /* of a rank */
    int         n_lane;  /* of a rank; 0 is 1 */
    const char *schedule;
    int64_t bucket; /* collectives overlap with compute, in buckets of so many bytes */
} plan;

static weft_partition_options options_of(const test_job *j, const plan *x,
                                         const weft_strategy *y)
{
    return (weft_partition_options){
        .n_micro             = j->o.n_micro,
        .n_lane              = y->dp * (x->n_lane ? x->n_lane : 1),
        .pp                  = y->pp,
        .n_chunk             = y->chunks,
        .schedule            = x->schedule,
        .shard_bucket_bytes  = x->bucket,
        .reduce_bucket_bytes = y->pp > 1 ? x->bucket : 0,
        .gather_once         = y->overlap_param_gather > 0,
        .shard_gradients     = true,
    };
}

/* The programs of all ranks; gives their number. */
static int make_programs(const test_job *j, const plan *x, bool shard_gradients,
                         weft_program **p)
{
    weft_arena        *a;
    weft_strategy      y;
    weft_shard_options so;
    weft_sharding     *s;
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_strategy_parse(x->strategy, &y));
    assert_ok(weft_shard_expand(&y, j->training.graph, NULL, 0, a, &so));
    so.n_mesh = 1;
    so.lanes  = 1u << weft_strategy_axis_at(&y, WEFT_AXIS_DP);
    assert_ok(weft_shard_propagate(j->training.graph, &so, &s));
    int n = s->mesh[0].n_rank * y.pp;
    assert_true(n <= TEST_MAX_RANK);
    for (int r = 0; r < n; r++) {
        weft_partition_options o = options_of(j, x, &y);
        o.rank                   = r;
        o.shard_gradients        = shard_gradients;
        if (weft_partition_program(j->training.graph, s, &o, &p[r]) != WEFT_OK ||
            weft_program_verify(p[r]) != WEFT_OK)
            fail_msg("%s, rank %d: %s", x->strategy, r, weft_error_text());
    }
    weft_sharding_destroy(s);
    weft_arena_destroy(a);
    return n;
}

static test_result run(const test_job *j, const plan *x)
{
    weft_program *p[TEST_MAX_RANK];
    int           n = make_programs(j, x, true, p);
    return test_job_run(j, p, n, 1);
}

static test_result run_one(const test_job *j)
{
    weft_partition_options o = {.n_micro = j->o.n_micro, .n_lane = 1};
    weft_program          *p;
    assert_ok(weft_partition_program(j->training.graph, NULL, &o, &p));
    return test_job_run(j, &p, 1, 1);
}

static int dp_of(const plan *x)
{
    weft_strategy y;
    assert_ok(weft_strategy_parse(x->strategy, &y));
    return y.dp;
}

static double apart(float a, float b)
{
    return fabs((double)a - (double)b) / fmax(1e-30, fabs((double)b));
}

static void check_plan(const plan *x, test_job_options o, double within)
{
    test_job j;
    double   loss = 0, norm = 0;
    o.seq     = 8;
    o.n_micro = x->n_micro * dp_of(x);
    test_job_open(&j, MODEL, o);
    test_result one = run_one(&j), many = run(&j, x), again = run(&j, x);
    for (int i = 0; i < TEST_STEPS; i++) {
        loss = fmax(loss, apart(many.loss[i], one.loss[i]));
        norm = fmax(norm, apart(many.norm[i], one.norm[i]));
    }
    print_message("%s, %d micro-batches: loss %.1e, norm %.1e\n", x->strategy, x->n_micro,
                  loss, norm);
    if (!(loss < within) || !(norm < within))
        fail_msg("%s: loss apart by %.3g, norm by %.3g", x->strategy, loss, norm);
    if (memcmp(&many, &again, sizeof many) != 0)
        fail_msg("%s: other bits in a second run", x->strategy);
    test_job_close(&j);
}

static const plan plans[] = {
    {.strategy = "dp=2 zero=2", .n_micro = 1},
    {.strategy = "dp=2 zero=2", .n_micro = 4},
    {.strategy = "dp=2 zero=3", .n_micro = 4, .bucket = 3000},
    {.strategy = "dp=4 zero=2", .n_micro = 4, .bucket = 3000},
    {.strategy = "dp=4 zero=3", .n_micro = 1},
    {.strategy = "dp=4 zero=3", .n_micro = 4, .n_lane = 2},
    {.strategy = "dp=8 zero=2", .n_micro = 4},
    {.strategy = "dp=8 zero=3", .n_micro = 4, .bucket = 100000},
    {.strategy = "dp=2 tp=2 zero=2", .n_micro = 4},
    {.strategy = "dp=2 tp=2 sp=true zero=3", .n_micro = 4, .bucket = 3000},
    {.strategy = "dp=2 cp=2 zero=3", .n_micro = 4},
    {.strategy = "dp=2 pp=2 zero=2", .n_micro = 4},
    {.strategy = "dp=4 pp=2 zero=3", .n_micro = 4, .bucket = 3000},
    {.strategy = "dp=2 pp=2 zero=2", .n_micro = 4, .schedule = "zb-h1"},
    {.strategy = "dp=2 pp=2 zero=3", .n_micro = 4, .schedule = "gpipe"},
    {.strategy = "dp=2 pp=2 zero=2 schedule=interleaved chunks=2",
     .n_micro  = 4,
     .schedule = "interleaved"},
    {.strategy = "dp=2 tp=2 pp=2 zero=3", .n_micro = 4},
    {.strategy = "dp=2 zero=2 overlap_param_gather=0.66", .n_micro = 4, .bucket = 3000},
    {.strategy = "dp=2 zero=2 overlap_param_gather=1", .n_micro = 1, .bucket = 3000}};

static void trains_like_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(plans); i += TEST_STRIDE(8))
        check_plan(&plans[i], (test_job_options){0}, 1e-5);
}

static void trains_with_other_updates(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(plans); i += 3 * TEST_STRIDE(4)) {
        check_plan(&plans[i], (test_job_options){.optimizer = "lamb"}, 1e-4);
        check_plan(&plans[i], (test_job_options){.no_clip = true}, 1e-5);
    }
}

/* bf16 has three digits. */
static void trains_in_bf16(void **state)
{
    (void)state;
    for (size_t i = 1; i < WEFT_COUNT(plans); i += 3 * TEST_STRIDE(4))
        check_plan(&plans[i], (test_job_options){.dtype = WEFT_DTYPE_BF16}, 2e-2);
}

/* ---- what a rank holds ---- */

static int64_t sum_bytes(const weft_program *p)
{
    int64_t n = 0;
    for (int b = 0; b < p->n_buffer; b++)
        if (p->buffer[b].slot_by == WEFT_SLOT_LANE)
            n += p->buffer[b].bytes * p->buffer[b].n_slot;
    return n;
}

static void holds_its_shards_alone(void **state)
{
    static const plan held[] = {{.strategy = "dp=2 zero=2", .n_micro = 4},
                                {.strategy = "dp=4 zero=3", .n_micro = 4},
                                {.strategy = "dp=8 zero=2", .n_micro = 2},
                                {.strategy = "dp=4 pp=2 zero=2", .n_micro = 4}};
    test_job          j;
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(held); i++) {
        weft_program *p[TEST_MAX_RANK], *whole[TEST_MAX_RANK];
        int           dp = dp_of(&held[i]);
        test_job_open(&j, "tiny256",
                      (test_job_options){.seq = 8, .n_micro = dp * held[i].n_micro});
        int n = make_programs(&j, &held[i], true, p);
        make_programs(&j, &held[i], false, whole);
        for (int r = 0; r < n; r++) {
            double share = (double)sum_bytes(p[r]) / (double)sum_bytes(whole[r]);
            print_message("%s, rank %d: sums are %.3f of whole ones\n", held[i].strategy,
                          r, share);
            assert_true(share > 0.9 / dp && share < 1.15 / dp);
            assert_true(weft_program_bytes(p[r], WEFT_SLAB_WORK) <
                        weft_program_bytes(whole[r], WEFT_SLAB_WORK));
            weft_program_destroy(p[r]);
            weft_program_destroy(whole[r]);
        }
        test_job_close(&j);
    }
}

/* Ranks with different numbers of micro-batches keep whole sums: reduce-scatters take all. */
static void unequal_ranks_keep_whole_sums(void **state)
{
    static const plan unequal = {.strategy = "dp=2 zero=2"};
    weft_program     *p[TEST_MAX_RANK], *whole[TEST_MAX_RANK];
    test_job          j;
    (void)state;
    test_job_open(&j, MODEL, (test_job_options){.seq = 8, .n_micro = 5});
    int n = make_programs(&j, &unequal, true, p);
    make_programs(&j, &unequal, false, whole);
    for (int r = 0; r < n; r++) {
        assert_int_equal(sum_bytes(p[r]), sum_bytes(whole[r]));
        weft_program_destroy(whole[r]);
    }
    test_result many = test_job_run(&j, p, n, 1);
    assert_true(apart(many.loss[0], run_one(&j).loss[0]) < 1e-5);
    test_job_close(&j);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        test_plain(trains_like_one_rank),
        test_sanitized(trains_with_other_updates),
        test_plain(trains_in_bf16),
        cmocka_unit_test(holds_its_shards_alone),
        cmocka_unit_test(unequal_ranks_keep_whole_sums),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
