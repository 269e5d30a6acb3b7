/* Ranks with shares of the lanes of their own train like one, to the last bit: with ZeRO,
 * pipelines, sums beside compute, accumulation, and lanes that are not of one size. */
#include "support/test.h"

#include <string.h>

#include "support/plans.h"

typedef struct beside {
    test_plan plan;
    int64_t   ahead, bucket; /* test_plan_run_beside */
} beside;

static void same(const test_job *j, const test_result *one, beside b)
{
    test_plan   x    = b.plan;
    test_result many = test_plan_run_beside(j, x, b.ahead, b.bucket);
    if (memcmp(&many, one, sizeof many) != 0)
        fail_msg("%s: loss %.9g .. %.9g, one rank %.9g .. %.9g; weights %s", x.words,
                 (double)many.loss[0], (double)many.loss[TEST_STEPS - 1],
                 (double)one->loss[0], (double)one->loss[TEST_STEPS - 1],
                 many.weights == one->weights ? "equal" : "differ");
}

static void in_turn(const char *model, int n_micro, int n_lane, const beside *t, size_t n)
{
    test_job j;
    test_job_open(&j, model, (test_job_options){.seq = 8, .n_micro = n_micro});
    test_result one = test_plan_one(&j, n_lane);
    assert_true(one.loss[TEST_STEPS - 1] != one.loss[0]);
    for (size_t i = 0; i < n; i++) same(&j, &one, t[i]);
    test_job_close(&j);
}

#define FAMILY(x) "tests/fixtures/families/" x "/config.json"

static void two_ranks(void **state)
{
    static const beside t[] = {
        {{"dp=2 batch_split=3,1", 4, 1, NULL}, 0, 0},
        {{"dp=2 batch_split=1,3", 4, 1, NULL}, 0, 0},
        {{"dp=2 batch_split=2,2", 4, 1, NULL}, 0, 0},
        {{"dp=2 batch_split=3,1 zero=1", 4, 1, NULL}, 0, 0},
        {{"dp=2 batch_split=3,1 zero=2", 4, 1, NULL}, 0, 0},
        {{"dp=2 batch_split=1,3 zero=3", 4, 1, NULL}, 0, 0},
        {{"dp=2 batch_split=3,1 zero=3", 4, 1, NULL}, 4096, 0},
        {{"dp=2 batch_split=3,1", 4, 1, NULL}, 0, 4096},
        {{"dp=2 pp=2 batch_split=3,1", 4, 1, "1f1b"}, 0, 0},
        {{"dp=2 pp=2 batch_split=1,3 zero=2", 4, 1, "zb-h1"}, 0, 0},
        {{"dp=2 pp=2 batch_split=3,1 zero=3", 4, 1, "gpipe"}, 0, 0},
        {{"dp=2 pp=2 batch_split=3,1 zero=1", 4, 1, "1f1b"}, 4096, 4096},
        {{"dp=2 batch_split=3,1 zero=1", 4, 2, "interleaved"}, 0, 0},
    };
    (void)state;
    in_turn(FAMILY("gpt2"), 4, 4, t, WEFT_COUNT(t));
}

/* Eleven micro-batches on eight lanes: the first three have two. */
static void three_ranks(void **state)
{
    static const beside t[] = {
        {{"dp=3 batch_split=5,2,1", 8, 1, NULL}, 0, 0},
        {{"dp=3 batch_split=1,6,1 zero=1", 8, 1, NULL}, 0, 0},
        {{"dp=3 batch_split=2,1,5 zero=3", 8, 1, NULL}, 0, 0},
        {{"dp=3 pp=2 batch_split=5,2,1 zero=3", 8, 1, "1f1b"}, 0, 0},
        {{"dp=4 batch_split=4,2,1,1", 8, 1, NULL}, 0, 0},
        {{"dp=4 pp=2 batch_split=3,3,1,1 zero=2", 8, 1, "zb-h1"}, 0, 0},
    };
    (void)state;
    in_turn(FAMILY("llama"), 11, 8, t, WEFT_COUNT(t));
}

/* Parts of one size: squares of gradients are summed over them. */
static void parts_of_one_size(void **state)
{
    static const beside t[] = {
        {{"dp=2 batch_split=3,1 zero=1", 4, 1, NULL}, 0, 0},
        {{"dp=2 batch_split=1,3 zero=3", 4, 1, NULL}, 1 << 20, 0},
        {{"dp=2 pp=2 batch_split=3,1 zero=2", 4, 1, "1f1b"}, 0, 0},
    };
    (void)state;
    in_turn("tiny256", 4, 4, t, WEFT_COUNT(t));
}

static void with_tensor_parallel(void **state)
{
    test_job j;
    (void)state;
    test_job_open(&j, FAMILY("llama"), (test_job_options){.seq = 8, .n_micro = 4});
    test_result one = test_plan_one(&j, 4);
    test_plan_near(&j, &one, (test_plan){"dp=2 tp=2 batch_split=3,1", 4, 1, NULL}, 1e-5);
    test_plan_near(
        &j, &one,
        (test_plan){"tp=2 dp=2 mesh_order=tp,dp batch_split=1,3 zero=3 sp=true", 4, 1,
                    NULL},
        1e-5);
    test_job_close(&j);
}

/* The text of a program says who has which lanes. */
static void programs_are_text(void **state)
{
    test_job      j;
    weft_strategy h;
    weft_program *p, *q;
    weft_text     a = {0}, b = {0};
    (void)state;
    test_job_open(&j, FAMILY("gpt2"), (test_job_options){.seq = 8, .n_micro = 8});
    int32_t                lanes[] = {5, 2, 1};
    weft_sharding         *s       = test_plan_shard(&j, "dp=3 zero=1", &h);
    weft_partition_options o = {.n_micro = 8, .n_lane = 8, .rank = 1, .share = lanes};
    assert_ok(weft_partition_program(j.training.graph, s, &o, &p));
    assert_ok(weft_program_print(p, &a));
    assert_non_null(strstr(a.s, "group [0,1,2] lanes [5,2,1]"));
    assert_ok(weft_program_parse("text", a.s, a.n, &q));
    assert_ok(weft_program_verify(q));
    assert_ok(weft_program_print(q, &b));
    assert_string_equal(a.s, b.s);
    q->group[0].share[0] = 4;
    assert_int_equal(weft_program_verify(q), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "cannot share 8 lanes"));
    lanes[0] = 6;
    assert_int_equal(weft_partition_program(j.training.graph, s, &o, &q), WEFT_ERR_ARG);
    weft_program_destroy(p);
    weft_program_destroy(q);
    weft_sharding_destroy(s);
    weft_text_fini(&a);
    weft_text_fini(&b);
    test_job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_sanitized(two_ranks),           test_plain(three_ranks),
        test_plain(parts_of_one_size),       cmocka_unit_test(with_tensor_parallel),
        cmocka_unit_test(programs_are_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
