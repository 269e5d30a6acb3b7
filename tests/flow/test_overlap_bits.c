/* Communication that is overlapped with compute changes no bit: collectives on the comm stream,
 * parameters that the next step gathers, gradients summed in buckets.  Ranks are threads of this
 * process; what overlapping saves is tested by test_overlap.c. */
#include <string.h>

#include "support/plans.h"
#include "support/test.h"

#define FAMILY(name) "tests/fixtures/families/" name
/* Four layers; under sanitizers narrow ones: the same programs on fewer numbers. */
#define TINY   (WEFT_TEST_SANITIZED ? "tests/fixtures/four" : "tiny256")
#define BUCKET (WEFT_TEST_SANITIZED ? 3000 : 50000)

/* With collectives on the comm stream the bits are the same. */
static void collectives_overlap_compute(void **state)
{
    static const char *const words[] = {
        "dp=2 zero=3", "dp=2 zero=1", "dp=4 zero=3", "tp=2", "dp=2 tp=2 zero=3 sp=true",
        "dp=3 zero=3", "dp=3 zero=1"};
    test_job j;
    (void)state;
    test_job_open(&j, FAMILY("llama"), (test_job_options){.seq = 12, .n_micro = 4});
    for (size_t i = 0; i < WEFT_COUNT(words); i++) {
        test_plan     x = {words[i], 4, 1, NULL};
        weft_program *p[TEST_MAX_RANK];
        test_result   want = test_plan_run(&j, x);
        int n     = test_plan_programs(&j, x, &(test_plan_how){.gather_bytes = 3000}, p);
        int moved = 0;
        for (int r = 0; r < n; r++)
            moved += weft_program_stream(p[r], WEFT_STREAM_COMM)->n_firing;
        test_result got = test_job_run(&j, p, n, 1);
        print_message("%s: %d collectives overlapped\n", words[i], moved / n);
        if (strstr(words[i], "zero")) assert_true(moved > 0);
        if (memcmp(&got, &want, sizeof got) != 0)
            fail_msg("%s: other bits on the comm stream", words[i]);
    }
    test_job_close(&j);
}

/* Parameters that the next step gathers, once: of one micro-batch a rank, of several, of some
 * parameters; overlapped with compute and not. */
static void parameters_are_gathered_later(void **state)
{
    static const struct {
        const char      *model;
        test_job_options o;
        test_plan        x;
    } t[] = {
        {FAMILY("llama"),
         {.n_micro = 4},
         {"dp=4 zero=1 overlap_param_gather=1", 4, 1, NULL}},
        {FAMILY("llama"),
         {.n_micro = 4},
         {"dp=2 zero=1 overlap_param_gather=0.6", 4, 1, NULL}},
        {FAMILY("gpt2"),
         {.n_micro = 4},
         {"dp=4 zero=2 overlap_param_gather=0.6", 4, 1, NULL}},
        {FAMILY("gpt2"),
         {.n_micro = 6},
         {"dp=2 zero=1 overlap_param_gather=1", 2, 1, NULL}},
        {"tests/fixtures/odd",
         {.n_micro = 4},
         {"dp=4 zero=1 overlap_param_gather=0.5", 4, 1, NULL}},
        {TINY, {.n_micro = 11}, {"dp=3 zero=1 overlap_param_gather=0.8", 8, 1, NULL}},
        {TINY, {.n_micro = 11}, {"dp=2 zero=2 overlap_param_gather=1", 8, 1, NULL}},
        {FAMILY("llama"),
         {.n_micro = 4, .recompute = WEFT_STRATEGY_FULL},
         {"dp=2 zero=1 overlap_param_gather=0.75", 4, 1, NULL}},
        {FAMILY("llama"),
         {.n_micro = 2, .recompute = WEFT_STRATEGY_SELECTIVE},
         {"dp=2 zero=1 overlap_param_gather=0.75", 2, 1, NULL}},
        {FAMILY("llama"),
         {.n_micro = 4, .dtype = WEFT_DTYPE_BF16},
         {"dp=4 zero=1 overlap_param_gather=0.7", 4, 1, NULL}},
        {FAMILY("gpt2"),
         {.n_micro = 4, .dtype = WEFT_DTYPE_BF16, .optimizer = "sgd"},
         {"dp=2 zero=1 overlap_param_gather=1", 2, 1, NULL}},
        {FAMILY("mixtral"),
         {.n_micro = 4},
         {"dp=2 zero=1 overlap_param_gather=0.66", 4, 1, NULL}},
        {FAMILY("t5"),
         {.n_micro = 2},
         {"dp=2 zero=2 overlap_param_gather=0.66", 2, 1, NULL}},
        {FAMILY("resnet"),
         {.n_micro = 4},
         {"dp=4 zero=1 overlap_param_gather=0.66", 4, 1, NULL}},
        {FAMILY("gpt2"),
         {.n_micro = 8},
         {"dp=2 pp=2 zero=1 overlap_param_gather=0.66", 4, 1, "1f1b"}},
        {FAMILY("llama"),
         {.n_micro = 4},
         {"dp=2 pp=2 zero=2 overlap_param_gather=1", 4, 1, "zb-h1"}},
        {"tests/fixtures/four",
         {.n_micro = 8},
         {"dp=2 pp=2 zero=1 overlap_param_gather=0.66", 4, 2, "interleaved"}},
        {TINY,
         {.n_micro = 11},
         {"dp=3 pp=2 zero=1 overlap_param_gather=0.8", 8, 1, "gpipe"}},
        {"tests/fixtures/four",
         {.n_micro = 4, .recompute = WEFT_STRATEGY_FULL, .dtype = WEFT_DTYPE_BF16},
         {"dp=2 pp=2 zero=1 overlap_param_gather=0.5", 2, 1, "1f1b"}},
    };
    static const test_plan mixed[] = {
        {"dp=2 tp=2 zero=1 overlap_param_gather=0.66", 2, 1, NULL},
        {"tp=2 dp=2 mesh_order=tp,dp zero=2 sp=true overlap_param_gather=1", 4, 1, NULL},
        {"dp=2 tp=2 pp=2 zero=1 overlap_param_gather=0.66", 4, 1, "1f1b"},
        {"dp=2 cp=2 zero=1 overlap_param_gather=0.66", 4, 1, NULL}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(t); i += TEST_STRIDE(4)) {
        test_job_options o = t[i].o;
        o.seq              = 6;
        test_plan_how how  = {0};
        test_plan_each(t[i].model, o, &t[i].x, 1, &how, test_plan_same_bits);
        how.gather_bytes = 3000;
        test_plan_each(t[i].model, o, &t[i].x, 1, &how, test_plan_same_bits);
        if (!strstr(t[i].x.words, "pp=")) continue;
        how.reduce_bytes = 3000;
        test_plan_each(t[i].model, o, &t[i].x, 1, &how, test_plan_same_bits);
    }
    for (int64_t bytes = 0; bytes < 4000; bytes += 3000)
        test_plan_each(FAMILY("llama"), (test_job_options){.seq = 6, .n_micro = 4}, mixed,
                       WEFT_COUNT(mixed), &(test_plan_how){.gather_bytes = bytes},
                       test_plan_nearly);
}

static int count_scatters(const weft_program *p)
{
    int n = 0;
    for (int i = 0; i < weft_program_stream(p, WEFT_STREAM_COMM)->n_firing; i++) {
        const weft_actor *a =
            &p->actor[weft_program_stream(p, WEFT_STREAM_COMM)->firing[i].actor];
        for (int k = 0; k < a->n_instr; k++)
            n += a->instr[k].kind == WEFT_INSTR_COLLECTIVE &&
                 a->instr[k].coll == WEFT_REDUCE_SCATTER;
    }
    return n;
}

/* ZeRO in a pipeline: sums go to their owners during the backward pass, in buckets. */
static void scatters_in_pipelines(void **state)
{
    static const test_plan list[] = {
        {"dp=2 pp=2 zero=1", 4, 1, "1f1b"},
        {"dp=2 pp=2 zero=3", 4, 1, "zb-h1"},
        {"dp=3 pp=2 zero=2", 4, 1, "gpipe"},
        {"dp=2 pp=2 zero=1", 4, 2, "interleaved"},
        {"dp=2 tp=2 pp=2 zero=1 sp=true", 4, 1, "1f1b"},
    };
    test_job j;
    (void)state;
    test_job_open(&j, "tests/fixtures/four", (test_job_options){.seq = 6, .n_micro = 8});
    for (size_t i = 0; i < WEFT_COUNT(list); i++) {
        weft_program *p[TEST_MAX_RANK];
        test_plan_how how   = {.gather_bytes = 2000, .reduce_bytes = 2000};
        test_result   want  = test_plan_run(&j, list[i]);
        int           moved = 0;
        int           n     = test_plan_programs(&j, list[i], &how, p);
        for (int r = 0; r < n; r++) moved += count_scatters(p[r]);
        test_result got = test_job_run(&j, p, n, 1);
        print_message("%s, %s: %d scatters a rank overlapped\n", list[i].words,
                      list[i].schedule, moved / n);
        assert_true(moved / n > 0);
        if (memcmp(&got, &want, sizeof got) != 0)
            fail_msg("%s: other bits on the comm stream", list[i].words);
    }
    test_job_close(&j);
}

static const test_plan in_buckets[] = {
    {"dp=2 tp=2", 8, 1, NULL},
    {"dp=3 tp=2 sp=true", 8, 1, NULL},
    {"dp=2 tp=2 zero=1", 8, 1, NULL},
    {"dp=2 tp=2 pp=2 sp=true", 8, 1, "1f1b"},
};

/* Tensor parallel plans, whose gradients are summed over some of the ranks. */
static void sums_in_buckets(void **state)
{
    (void)state;
    test_plan_each(TINY, (test_job_options){.seq = 16, .n_micro = 11}, in_buckets,
                   WEFT_COUNT(in_buckets), &(test_plan_how){.reduce_bytes = BUCKET},
                   test_plan_nearly);
    /* parts of different sizes: buckets are the same ones */
    test_plan_each(FAMILY("gpt2"), (test_job_options){.seq = 16, .n_micro = 2, .rows = 2},
                   &(test_plan){"cp=2 tp=3 sp=true", 2, 1, NULL}, 1,
                   &(test_plan_how){.reduce_bytes = 2000}, test_plan_nearly);
}

static int count_tensors(const weft_actor *a)
{
    int n = 0;
    for (int i = 0; i < a->n_instr; i++) n += a->instr[i].n_in;
    return n;
}

/* A bucket is a sum in place; what is not, stays where it was. */
static void sums_leave_the_update(void **state)
{
    static const char *const words[] = {"dp=2 tp=2", "dp=3 tp=2"};
    test_job                 j;
    (void)state;
    test_job_open(&j, "tiny256", (test_job_options){.seq = 16, .n_micro = 8});
    for (size_t w = 0; w < WEFT_COUNT(words); w++) {
        weft_program *p[TEST_MAX_RANK];
        test_plan_how how = {.reduce_bytes = 50000};
        int n     = test_plan_programs(&j, (test_plan){words[w], 8, 1, NULL}, &how, p),
            n_sum = 0;
        assert_true(weft_program_stream(p[0], WEFT_STREAM_COMM)->n_firing > 3);
        for (int i = 0; i < weft_program_stream(p[0], WEFT_STREAM_COMM)->n_firing; i++)
            n_sum += count_tensors(
                &p[0]->actor
                     [weft_program_stream(p[0], WEFT_STREAM_COMM)->firing[i].actor]);
        assert_true(n_sum >=
                    j.model->n_param); /* one of each, the loss, tied ones twice */
        for (int r = 0; r < n; r++) weft_program_destroy(p[r]);
    }
    test_job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_sanitized(collectives_overlap_compute),
        test_plain(parameters_are_gathered_later),
        test_sanitized(scatters_in_pipelines),
        test_sanitized(sums_in_buckets),
        cmocka_unit_test(sums_leave_the_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
