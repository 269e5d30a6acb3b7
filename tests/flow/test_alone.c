/* A rank is lost in the middle of a step: whichever call it is lost in, the step is committed by
 * all ranks or by none.  Before the commit point no bit of state changes; after it every rank
 * makes its updates without the others, and what it computes has the bits of the undisturbed run.
 */
#include "support/test.h"

#include "support/plans.h"

#define FAMILY(name) "tests/fixtures/families/" name

typedef struct trial {
    const char *model, *optimizer;
    test_plan   plan;
    int64_t     bucket;
    weft_dtype  dtype;
    int         lost, every;
} trial;

static void lose_ranks(const trial *t, test_lost *out)
{
    test_job_options o = {
        .seq = 6, .n_micro = 4, .optimizer = t->optimizer, .dtype = t->dtype};
    test_plan_how how = {.gather_bytes = t->bucket, .reduce_bytes = t->bucket};
    weft_program *p[TEST_MAX_RANK];
    test_job      j;
    test_job_open(&j, t->model, o);
    int n = test_plan_programs(&j, t->plan, &how, p);
    test_job_run_lost(&j, p, n, t->lost < n ? t->lost : n - 1, t->every, out);
    for (int r = 0; r < n; r++) weft_program_destroy(p[r]);
    test_job_close(&j);
}

static void a_step_is_committed_by_all_or_none(void **state)
{
    static const char *const four   = "tests/fixtures/four";
    static const trial       list[] = {
              {four, "adamw", {"dp=2", 4, 1, NULL}, 2000, WEFT_DTYPE_F32, 1, 1},
              {four, "lamb", {"dp=2 zero=1", 4, 1, NULL}, 2000, WEFT_DTYPE_F32, 0, 3},
              {four, "adamw", {"dp=2 zero=2", 4, 1, NULL}, 0, WEFT_DTYPE_BF16, 1, 1},
              {four, "lamb", {"dp=2 zero=3", 4, 1, NULL}, 2000, WEFT_DTYPE_F32, 1, 9},
              {four,
               "adamw",
               {"dp=2 zero=1 overlap_param_gather=0.6", 4, 1, NULL},
               2000,
               WEFT_DTYPE_F32,
               0,
               4},
              {four, "lamb", {"tp=2", 4, 1, NULL}, 0, WEFT_DTYPE_F32, 1, 7},
              {four, "adamw", {"pp=2", 4, 1, "zb-h1"}, 0, WEFT_DTYPE_BF16, 0, 1},
              {four,
               "adamw",
               {"dp=2 pp=2 zero=1", 4, 2, "interleaved"},
               2000,
               WEFT_DTYPE_F32,
               2,
               6},
              {FAMILY("resnet"), "sgd", {"pp=2", 4, 1, "1f1b"}, 0, WEFT_DTYPE_F32, 1, 2},
    };
    test_lost all = {0};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(list); i++) {
        test_lost out = {0};
        if (!TEST_HERE(i)) continue;
        lose_ranks(&list[i], &out);
        print_message("%s, %s: %d trials; ranks held %d, alone %d, ran %d, finished "
                      "later %d\n",
                      list[i].plan.words, list[i].optimizer, out.n_trial, out.n_held,
                      out.n_alone, out.n_ran, out.n_finished);
        assert_true(out.n_held > 0);
        all.n_trial += out.n_trial;
        all.n_alone += out.n_alone;
        all.n_finished += out.n_finished;
    }
    assert_true(all.n_trial >= (TEST_SPLIT ? 20 : 50));
    assert_true(all.n_alone > 0 && all.n_finished > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_committed_by_all_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
