/* Plans of every kind train like one rank: tensor and sequence parallel within rounding, data parallel, ZeRO,
 * pipelines and their mixtures to the last bit.  Ranks are threads of this process. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/partition.h"
#include "support/ranks.h"
#include "support/test.h"

#define FAMILY(name) "tests/fixtures/families/" name

typedef struct plan {
    const char *words;
    int         n_lane, n_chunk;
    const char *schedule;
} plan;

static weft_sharding *shard(const test_job *j, const char *words, int *pp)
{
    weft_arena        *a;
    weft_shorthand     h;
    weft_shard_options o;
    weft_sharding     *s;
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_shorthand_parse(words, &h));
    if (weft_shorthand_expand(&h, j->training.graph, 0, a, &o) != WEFT_OK)
        fail_msg("%s: %s", words, weft_error_text());
    o.n_mesh = 1;
    if (weft_shorthand_lane_axis(&h) >= 0) o.lanes = 1u << weft_shorthand_lane_axis(&h);
    if (weft_shard_propagate(j->training.graph, &o, &s) != WEFT_OK)
        fail_msg("%s: %s", words, weft_error_text());
    *pp = h.pp;
    weft_arena_destroy(a);
    return s;
}

/* The programs of all ranks; gives their number. */
static int make_all(const test_job *j, plan x, weft_program **p)
{
    int            pp, n;
    weft_sharding *s = shard(j, x.words, &pp);
    n                = s->mesh[0].n_rank * pp;
    assert_true(n <= TEST_MAX_RANK);
    for (int r = 0; r < n; r++) {
        weft_pipe_options o = {.n_micro  = j->o.n_micro,
                               .n_lane   = x.n_lane,
                               .pp       = pp,
                               .rank     = r,
                               .schedule = x.schedule,
                               .n_chunk  = x.n_chunk};
        if (weft_partition(j->training.graph, s, &o, &p[r]) != WEFT_OK)
            fail_msg("%s, rank %d: %s", x.words, r, weft_error_text());
        if (weft_program_verify(p[r]) != WEFT_OK)
            fail_msg("%s, rank %d: %s", x.words, r, weft_error_text());
    }
    weft_sharding_destroy(s);
    return n;
}

static test_result run_one(const test_job *j, int n_lane)
{
    weft_partition_options o = {.n_micro = j->o.n_micro, .n_lane = n_lane};
    weft_program          *p;
    assert_ok(weft_partition_one(j->training.graph, &o, &p));
    return test_job_run(j, &p, 1, 1);
}

static test_result run(const test_job *j, plan x)
{
    weft_program *p[TEST_MAX_RANK];
    int           n = make_all(j, x, p);
    return test_job_run(j, p, n, 1);
}

static void to_the_bit(const test_job *j, const test_result *one, plan x)
{
    test_result many = run(j, x);
    if (memcmp(&many, one, sizeof many) != 0)
        fail_msg("%s: loss %.9g .. %.9g, one rank %.9g .. %.9g; norm %.9g, %.9g; weights %s",
                 x.words, (double)many.loss[0], (double)many.loss[TEST_STEPS - 1],
                 (double)one->loss[0], (double)one->loss[TEST_STEPS - 1],
                 (double)many.norm[0], (double)one->norm[0],
                 many.weights == one->weights ? "equal" : "differ");
}

static double apart(float a, float b)
{
    return fabs((double)a - (double)b) / fmax(1e-30, fabs((double)b));
}

static void nearly(const test_job *j, const test_result *one, plan x)
{
    test_result many = run(j, x);
    double      loss = 0, norm = 0;
    for (int i = 0; i < TEST_STEPS; i++) {
        loss = fmax(loss, apart(many.loss[i], one->loss[i]));
        norm = fmax(norm, apart(many.norm[i], one->norm[i]));
    }
    print_message("%s: loss %.1e, norm %.1e\n", x.words, loss, norm);
    if (!(loss < 1e-5) || !(norm < 1e-5))
        fail_msg("%s: loss apart by %.3g, norm by %.3g", x.words, loss, norm);
}

static void tensor_parallel(void **state)
{
    static const struct {
        const char *model;
        plan        p;
    } t[] = {
        {FAMILY("gpt2"), {"mesh=tp=2", 2, 1, NULL}},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(t); i++) {
        test_job j;
        test_job_open(&j, t[i].model, (test_job_options){.seq = 12, .n_micro = 4});
        test_result one = run_one(&j, t[i].p.n_lane);
        nearly(&j, &one, t[i].p);
        test_job_close(&j);
    }
}

static void zero_to_the_bit(void **state)
{
    static const plan t[] = {
        {"mesh=dp=2", 2, 1, NULL},
        {"mesh=dp=2 zero=1", 2, 1, NULL},
    };
    test_job j;
    (void)state;
    test_job_open(&j, FAMILY("gpt2"), (test_job_options){.seq = 12, .n_micro = 4});
    for (size_t i = 0; i < WEFT_COUNT(t); i++) {
        test_result one = run_one(&j, t[i].n_lane);
        to_the_bit(&j, &one, t[i]);
    }
    test_job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_parallel),
        cmocka_unit_test(zero_to_the_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
