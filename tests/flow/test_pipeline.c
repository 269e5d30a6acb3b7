/* A pipeline trains like one rank, to the last bit: every schedule, cuts anywhere, tied
 * embeddings, lanes, data-parallel pipelines.  Ranks are threads of this process. */
#include <stdio.h>
#include <string.h>

#include "partition/partition.h"
#include "support/ranks.h"
#include "support/sim.h"
#include "support/test.h"

enum {
    SEQ = WEFT_TEST_SANITIZED ? 4 : 16
};
/* Four layers, tied embeddings: narrow ones make the same programs of fewer numbers. */
#define NARROW "tests/fixtures/four"
#define TINY   (TEST_LONG && !WEFT_TEST_SANITIZED ? "tiny256" : NARROW)
#define WIDE   (WEFT_TEST_SANITIZED ? NARROW : "tiny256")
#define BUCKET (TEST_LONG && !WEFT_TEST_SANITIZED ? 100000 : 3000)

typedef struct plan {
    int         dp, pp, n_chunk, n_lane;
    const char *schedule;
    const int  *cut;
    int         n_thread;
} plan;

static test_result run_one(const test_job *j, int n_lane)
{
    weft_partition_options o = {.n_micro = j->o.n_micro, .n_lane = n_lane};
    weft_program          *p;
    assert_ok(weft_partition_program(j->training.graph, NULL, &o, &p));
    return test_job_run(j, &p, 1, 1);
}

/* bucket: bytes of the sums that run beside the backward pass; 0: they come behind it. */
static test_result run(const test_job *j, plan x, int64_t bucket)
{
    weft_program *p[TEST_MAX_RANK];
    int           n = x.dp * x.pp;
    for (int r = 0; r < n; r++) {
        weft_partition_options o = {.n_micro             = j->o.n_micro,
                                    .n_lane              = x.n_lane,
                                    .dp                  = x.dp,
                                    .pp                  = x.pp,
                                    .rank                = r,
                                    .schedule            = x.schedule,
                                    .n_chunk             = x.n_chunk,
                                    .cut                 = x.cut,
                                    .reduce_bucket_bytes = bucket};
        assert_ok(weft_partition_program(j->training.graph, NULL, &o, &p[r]));
    }
    return test_job_run(j, p, n, x.n_thread ? x.n_thread : 1);
}

static void same_in_buckets(const test_job *j, const test_result *one, plan x,
                            int64_t bucket)
{
    test_result many = run(j, x, bucket);
    if (memcmp(&many, one, sizeof many) != 0)
        fail_msg("dp %d, pp %d, %s x %d, lanes %d: loss %.9g %.9g, one rank %.9g %.9g; "
                 "norm %.9g, "
                 "%.9g",
                 x.dp, x.pp, x.schedule, x.n_chunk, x.n_lane, (double)many.loss[0],
                 (double)many.loss[TEST_STEPS - 1], (double)one->loss[0],
                 (double)one->loss[TEST_STEPS - 1], (double)many.norm[0],
                 (double)one->norm[0]);
}

static void same(const test_job *j, const test_result *one, plan x)
{
    same_in_buckets(j, one, x, 0);
}

static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1", "interleaved"};

static void every_schedule_of_a_model(const char *model, int n_micro)
{
    test_job j;
    test_job_open(&j, model, (test_job_options){.seq = 12, .n_micro = n_micro});
    test_result one = run_one(&j, 2);
    assert_true(one.loss[TEST_STEPS - 1] != one.loss[0]);
    for (size_t s = 0; s < WEFT_COUNT(schedules); s++)
        same(&j, &one, (plan){1, 2, 1, 2, schedules[s], NULL, 1});
    test_job_close(&j);
}

static void gpt2(void **state)
{
    (void)state;
    every_schedule_of_a_model("tests/fixtures/families/gpt2", 4);
}

static void llama(void **state)
{
    (void)state;
    every_schedule_of_a_model("tests/fixtures/families/llama", 4);
}

static void mixtral(void **state)
{
    (void)state;
    every_schedule_of_a_model("tests/fixtures/families/mixtral", 4);
}

static void the_tiny_model(void **state)
{
    test_job j;
    (void)state;
    test_job_open(&j, WIDE, (test_job_options){.seq = SEQ, .n_micro = 8});
    test_result one = run_one(&j, 4);
    for (int pp = 2; pp <= 4; pp++)
        for (size_t s = (size_t)pp % TEST_FEW(2); s < WEFT_COUNT(schedules);
             s += TEST_FEW(2))
            same(&j, &one, (plan){1, pp, 1, 4, schedules[s], NULL, 1});
    test_job_close(&j);
}

/* Two chunks a rank: stages 0 and 2 on rank 0, 1 and 3 on rank 1; tied embeddings then meet
 * across ranks and across chunks. */
static void chunks(void **state)
{
    test_job j;
    (void)state;
    test_job_open(&j, TINY, (test_job_options){.seq = SEQ, .n_micro = 8});
    uint64_t before = 0;
    for (int lanes = 1; lanes <= 8; lanes *= 2) {
        test_result one = run_one(&j, lanes);
        if (lanes <= 4)
            assert_true(one.weights != before); /* another order of sums shows */
        before = one.weights;
        same(&j, &one, (plan){1, 2, 2, lanes, "interleaved", NULL, 2});
        same(&j, &one, (plan){1, 1, 3, lanes, "interleaved", NULL, 1});
        same(&j, &one, (plan){1, 2, 1, lanes, "zb-h1", NULL, 2});
    }
    test_job_close(&j);
}

static void pipelines_side_by_side(void **state)
{
    test_job j;
    (void)state;
    test_job_open(&j, TINY, (test_job_options){.seq = SEQ, .n_micro = 8});
    test_result one = run_one(&j, 4);
    same(&j, &one, (plan){2, 2, 1, 4, "1f1b", NULL, 1});
    for (size_t s = 0; s < WEFT_COUNT(schedules); s++)
        same_in_buckets(&j, &one, (plan){2, 2, 1, 4, schedules[s], NULL, 1}, BUCKET);
    same_in_buckets(&j, &one, (plan){2, 2, 2, 4, "interleaved", NULL, 1}, BUCKET / 3);
    same(&j, &one, (plan){2, 2, 2, 4, "interleaved", NULL, 1});
    same(&j, &one, (plan){2, 3, 1, 4, "zb-h1", NULL, 1});
    same(&j, &one, (plan){4, 2, 1, 4, "gpipe", NULL, 1});
    same(&j, &one, (plan){4, 1, 1, 4, "1f1b", NULL, 1});
    test_job_close(&j);
}

/* Groups of lanes that are no subtrees of one size, and different numbers of micro-batches. */
static void three_pipelines_side_by_side(void **state)
{
    test_job j;
    (void)state;
    test_job_open(&j, TINY, (test_job_options){.seq = SEQ, .n_micro = 9});
    for (int lanes = 4; lanes <= 8; lanes *= 2) {
        test_result one = run_one(&j, lanes);
        for (size_t s = 0; s < WEFT_COUNT(schedules); s++)
            same(&j, &one, (plan){3, 2, 1, lanes, schedules[s], NULL, 1});
        same(&j, &one, (plan){3, 2, 2, lanes, "interleaved", NULL, 1});
        same_in_buckets(&j, &one, (plan){3, 2, 1, lanes, "1f1b", NULL, 1}, BUCKET);
    }
    test_job_close(&j);
}

static int n_forward(const weft_graph *g)
{
    int n = 0;
    while (n < g->n_node && g->node[n].phase == WEFT_PHASE_FORWARD) n++;
    return n;
}

/* Two stages, cut before every node there is; three stages, the cuts close together. */
static void cuts_anywhere(void **state)
{
    static const struct {
        const char      *model;
        test_job_options o;
    } t[] = {{"gpt2", {.seq = 6, .n_micro = 3}},
             {"llama", {.seq = 6, .n_micro = 3}},
             {"mixtral", {.seq = 6, .n_micro = 3}},
             {"llama", {.seq = 6, .n_micro = 3, .dtype = WEFT_DTYPE_BF16}},
             {"gpt2", {.seq = 6, .n_micro = 3, .recompute = WEFT_STRATEGY_FULL}},
             {"llama", {.seq = 6, .n_micro = 3, .recompute = WEFT_STRATEGY_FULL}}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(t); i++) {
        test_job j;
        char     path[64];
        snprintf(path, sizeof path, "tests/fixtures/families/%s", t[i].model);
        test_job_open(&j, path, t[i].o);
        test_result one = run_one(&j, 2);
        int         n   = n_forward(j.training.graph);
        for (int c = 1; c < n; c += WEFT_TEST_SANITIZED ? 6 : TEST_FEW(2)) {
            int cut[] = {c, c + 1}; /* a stage of one node */
            same(&j, &one, (plan){1, 2, 1, 2, schedules[c % 3], cut, 1});
            if (c + 1 < n && c % 5 == 0)
                same(&j, &one, (plan){1, 3, 1, 2, schedules[c % 3], cut, 1});
        }
        test_job_close(&j);
    }
}

/* Families with other structures: encoders, two towers, running statistics, windows. */
static void families(void **state)
{
    static const char *const models[] = {"bert",  "ernie",   "t5",     "t5-gated",
                                         "qwen2", "mistral", "resnet", "resnet-basic"};
    (void)state;
    for (size_t m = 0; m < WEFT_COUNT(models); m++) {
        test_job j;
        char     path[64];
        snprintf(path, sizeof path, "tests/fixtures/families/%s", models[m]);
        test_job_open(&j, path, (test_job_options){.seq = 10, .n_micro = 5});
        test_result one = run_one(&j, 4);
        for (int pp = 2; pp <= 3; pp++) {
            int n = n_forward(j.training.graph), cut[] = {n / pp, 2 * n / 3};
            for (int s = 0; s < 3; s++)
                same(&j, &one, (plan){1, pp, 1, 4, schedules[s], cut, 1});
        }
        test_job_close(&j);
    }
}

static void other_trainings(void **state)
{
    static const test_job_options o[] = {
        {.seq = SEQ, .n_micro = 6, .recompute = WEFT_STRATEGY_FULL},
        {.seq = SEQ, .n_micro = 6, .recompute = WEFT_STRATEGY_SELECTIVE},
        {.seq = SEQ, .n_micro = 6, .dtype = WEFT_DTYPE_BF16},
        {.seq       = SEQ,
         .n_micro   = 6,
         .dtype     = WEFT_DTYPE_BF16,
         .recompute = WEFT_STRATEGY_FULL},
        {.seq = SEQ, .n_micro = 6, .optimizer = "lamb"},
        {.seq = SEQ, .n_micro = 6, .optimizer = "sgd"},
        {.seq = SEQ, .n_micro = 1},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(o); i++) {
        test_job j;
        test_job_open(&j, TINY, o[i]);
        int         lanes = o[i].n_micro > 1 ? 4 : 1;
        test_result one   = run_one(&j, lanes);
        same(&j, &one, (plan){1, 2, 1, lanes, "1f1b", NULL, 1});
        same(&j, &one, (plan){1, 3, 1, lanes, "zb-h1", NULL, 1});
        same(&j, &one, (plan){1, 2, 2, lanes, "interleaved", NULL, 2});
        test_job_close(&j);
    }
}

/* GPipe's second rank goes forward with all before it goes back; a first rank that waits for each
 * to come back before it sends the next is found before anything runs. */
static void wrong_lists_are_refused(void **state)
{
    test_job      j;
    weft_program *p[2];
    (void)state;
    test_job_open(&j, "tiny256", (test_job_options){.seq = 4, .n_micro = 4});
    for (int r = 0; r < 2; r++) {
        weft_partition_options o = {
            .n_micro = 4, .n_lane = 1, .pp = 2, .rank = r, .schedule = "gpipe"};
        assert_ok(weft_partition_program(j.training.graph, NULL, &o, &p[r]));
    }
    const weft_program *const *all = (const weft_program *const *)p;
    assert_ok(weft_program_verify_all(all, 2));
    /* 4 x (read F), 4 x B */
    weft_firing *f = weft_program_stream(p[0], WEFT_STREAM_COMPUTE)->firing, old[12];
    memcpy(old, f, sizeof old);
    assert_string_equal(p[0]->actor[f[8].actor].name, "backward");
    for (int m = 0; m < 4; m++) {
        f[3 * m]     = old[2 * m];
        f[3 * m + 1] = old[2 * m + 1];
        f[3 * m + 2] = old[8 + m];
    }
    assert_ok(weft_program_verify(p[0]));
    assert_fails(weft_program_verify_all(all, 2), WEFT_ERR_ARG, "deadlock: rank 0");
    for (int r = 0; r < 2; r++) weft_program_destroy(p[r]);
    test_job_close(&j);
}

/* What is printed is what runs: text and back. */
static void programs_are_text(void **state)
{
    test_job      j;
    weft_program *p, *q;
    weft_text     a = {0}, b = {0};
    (void)state;
    test_job_open(&j, "tests/fixtures/families/gpt2",
                  (test_job_options){.seq = 4, .n_micro = 4});
    weft_partition_options o = {
        .n_micro = 4, .n_lane = 2, .pp = 2, .dp = 2, .rank = 1, .schedule = "zb-h1"};
    assert_ok(weft_partition_program(j.training.graph, NULL, &o, &p));
    assert_ok(weft_program_print(p, &a));
    assert_ok(weft_program_parse("p", a.s, a.n, &q));
    assert_ok(weft_program_print(q, &b));
    assert_string_equal(a.s, b.s);
    weft_text_fini(&a);
    weft_text_fini(&b);
    weft_program_destroy(p);
    weft_program_destroy(q);
    test_job_close(&j);
}

/* Stages behind keep fewer micro-batches, and a rank's memory shrinks with the number of stages. */
static void stages_share_the_memory(void **state)
{
    test_job      j;
    weft_program *p;
    int64_t       state_bytes[2] = {0}, work[2] = {0};
    (void)state;
    test_job_open(&j, "tiny256", (test_job_options){.seq = 64, .n_micro = 8});
    weft_partition_options one = {.n_micro = 8, .n_lane = 1};
    assert_ok(weft_partition_program(j.training.graph, NULL, &one, &p));
    int64_t whole = weft_program_bytes(p, WEFT_SLAB_STATE);
    weft_program_destroy(p);
    for (int s = 0; s < 2; s++)
        for (int r = 0; r < 4; r++) {
            weft_partition_options o = {.n_micro  = 8,
                                        .n_lane   = 1,
                                        .pp       = 4,
                                        .rank     = r,
                                        .schedule = s ? "gpipe" : "1f1b"};
            assert_ok(weft_partition_program(j.training.graph, NULL, &o, &p));
            state_bytes[s] += weft_program_bytes(p, WEFT_SLAB_STATE);
            work[s] += weft_program_bytes(p, WEFT_SLAB_WORK);
            assert_true(weft_program_bytes(p, WEFT_SLAB_STATE) < whole / 2);
            weft_program_destroy(p);
        }
    /* tied embeddings twice: 256 x 128 f32 with two moments */
    assert_int_equal(state_bytes[0] - whole, 3 * 256 * 128 * 4);
    assert_int_equal(state_bytes[1], state_bytes[0]);
    assert_true(work[1] > 2 * work[0]);
    test_job_close(&j);
}

/* Every piece takes a unit, whole backwards two, all else nothing. */
static void state_times(weft_program *p)
{
    for (int a = 0; a < p->n_actor; a++) {
        weft_actor *x = &p->actor[a];
        bool f = !strncmp(x->name, "forward", 7), b = !strncmp(x->name, "backward", 8);
        bool part = !strncmp(x->name, "backward_", 9);
        for (int i = 0; i < x->n_instr; i++) x->instr[i].seconds = 0;
        if (x->n_instr && (f || b)) x->instr[0].seconds = b && !part ? 2e-3 : 1e-3;
    }
}

/* Slots and credits are enough: with equal stages the programs stand idle as theory says, no
 * more. */
static void buffers_cost_no_time(void **state)
{
    static const struct {
        const char *schedule;
        int pp, n_chunk, parts; /* of the bubble: 3 as long as a stage's unit, or 1 */
    } t[] = {{"gpipe", 4, 1, 3},       {"1f1b", 2, 1, 3},  {"1f1b", 4, 1, 3},
             {"interleaved", 2, 2, 3}, {"zb-h1", 2, 1, 1}, {"zb-h1", 4, 1, 1}};
    test_job j;
    (void)state;
    test_job_open(&j, "tiny256", (test_job_options){.seq = 8, .n_micro = 12});
    for (size_t i = 0; i < WEFT_COUNT(t); i++) {
        weft_program  *p[4];
        weft_timeline *line;
        for (int r = 0; r < t[i].pp; r++) {
            weft_partition_options o = {.n_micro  = 12,
                                        .n_lane   = 4,
                                        .pp       = t[i].pp,
                                        .rank     = r,
                                        .schedule = t[i].schedule,
                                        .n_chunk  = t[i].n_chunk};
            assert_ok(weft_partition_program(j.training.graph, NULL, &o, &p[r]));
            state_times(p[r]);
        }
        assert_ok(test_simulate((const weft_program *const *)p, t[i].pp, NULL,
                                &(weft_sim_options){.n_step = 1}, &line));
        double work = 3.0 * 12 * t[i].n_chunk, bubble = t[i].parts * (t[i].pp - 1.0);
        double idle = 1 - 1e-3 * work / line->total_s, want = bubble / (work + bubble);
        print_message("%s, %d ranks: idle %.1f %%, theory %.1f %%\n", t[i].schedule,
                      t[i].pp, 100 * idle, 100 * want);
        assert_true(idle - want < 0.01 && want - idle < 0.01);
        weft_timeline_destroy(line);
        for (int r = 0; r < t[i].pp; r++) weft_program_destroy(p[r]);
    }
    test_job_close(&j);
}

static void bad_plans_are_refused(void **state)
{
    test_job      j;
    weft_program *p;
    (void)state;
    test_job_open(&j, "tiny256", (test_job_options){.seq = 4, .n_micro = 4});
    const weft_graph      *g = j.training.graph;
    weft_partition_options o = {.n_micro = 4, .n_lane = 2, .pp = 8};
    assert_fails(weft_partition_program(g, NULL, &o, &p), WEFT_ERR_ARG,
                 "8 stages, but tiny256 has 4 layers: a stage without layers");
    o = (weft_partition_options){.n_micro = 4, .n_lane = 2, .pp = 2, .schedule = "2f2b"};
    assert_fails(weft_partition_program(g, NULL, &o, &p), WEFT_ERR_ARG,
                 "unknown schedule");
    o = (weft_partition_options){.n_micro = 4, .n_lane = 2, .pp = 2, .dp = 4};
    assert_fails(weft_partition_program(g, NULL, &o, &p), WEFT_ERR_ARG,
                 "set lanes to at least 4");
    o = (weft_partition_options){.n_micro = 4, .n_lane = 2, .pp = 2, .rank = 2};
    assert_fails(weft_partition_program(g, NULL, &o, &p), WEFT_ERR_ARG, "rank 2 of 2");
    o = (weft_partition_options){.n_micro = 4, .n_lane = 2, .pp = 2, .cut = (int[]){0}};
    assert_fails(weft_partition_program(g, NULL, &o, &p), WEFT_ERR_ARG,
                 "no stage is empty");
    test_job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2),
        cmocka_unit_test(llama),
        cmocka_unit_test(mixtral),
        cmocka_unit_test(the_tiny_model),
        test_plain(chunks),
        test_sanitized(pipelines_side_by_side),
        test_plain(three_pipelines_side_by_side),
        test_plain(cuts_anywhere),
        test_sanitized(families),
        test_plain(other_trainings),
        cmocka_unit_test(buffers_cost_no_time),
        cmocka_unit_test(wrong_lists_are_refused),
        cmocka_unit_test(programs_are_text),
        cmocka_unit_test(stages_share_the_memory),
        cmocka_unit_test(bad_plans_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
