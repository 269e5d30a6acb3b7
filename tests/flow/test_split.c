/* Plans of every kind train like one rank: tensor and sequence parallel within rounding, data
 * parallel, ZeRO, pipelines and their mixtures to the last bit.  Ranks are threads of this
 * process. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lex.h"
#include "compile/compile.h"
#include "spmd/spmd.h"
#include "support/plans.h"
#include "support/test.h"

#define FAMILY(name) "tests/fixtures/families/" name
/* Four layers; under sanitizers narrow ones: the same programs on fewer numbers. */
#define TINY (WEFT_TEST_SANITIZED || !TEST_LONG ? "tests/fixtures/four" : "tiny256")

static const test_plan within_rounding[] = {
    {"tp=2", 2, 1, NULL},
    {"tp=2 sp=true", 2, 1, NULL},
    {"dp=2 tp=2", 2, 1, NULL},
    {"tp=2 dp=2 mesh_order=tp,dp sp=true", 2, 1, NULL},
    {"dp=2 tp=2 zero=1", 2, 1, NULL},
    {"dp=2 tp=2 zero=3 sp=true", 2, 1, NULL},
    {"tp=2 pp=2", 2, 1, "1f1b"},
    {"tp=2 pp=2 sp=true", 2, 1, "zb-h1"},
    {"dp=2 tp=2 pp=2", 2, 1, "1f1b"},
    {"dp=2 tp=2 pp=2 zero=1 sp=true", 2, 1, "gpipe"},
    {"dp=2 tp=2 pp=2 zero=3", 2, 1, "1f1b"},
};

/* Four layers: two stages a rank, tied embeddings in parts on two of them. */
static void chunks(void **state)
{
    static const test_plan t[] = {{"tp=2 pp=2", 4, 2, "interleaved"},
                                  {"dp=2 tp=2 pp=2 zero=3 sp=true", 4, 2, "interleaved"}};
    (void)state;
    test_plan_each(TINY, (test_job_options){.seq = 8, .n_micro = 4}, t, WEFT_COUNT(t),
                   NULL, test_plan_nearly);
    test_plan_each(TINY, (test_job_options){.seq = 8, .n_micro = 4},
                   &(test_plan){"dp=2 pp=2 zero=2", 4, 2, "interleaved"}, 1, NULL,
                   test_plan_same_bits);
    /* an encoder's result goes past stages, and micro-batches are left over */
    test_plan_each("tests/fixtures/towers", (test_job_options){.seq = 8, .n_micro = 5},
                   &(test_plan){"pp=2", 4, 2, "interleaved"}, 1, NULL,
                   test_plan_same_bits);
}

static const test_plan bitwise[] = {
    {"dp=2", 2, 1, NULL},
    {"dp=4", 4, 1, NULL},
    {"dp=2 zero=1", 2, 1, NULL},
    {"dp=2 zero=2", 2, 1, NULL},
    {"dp=2 zero=3", 2, 1, NULL},
    {"dp=2 zero=3", 4, 1, NULL},
    {"dp=4 zero=1", 4, 1, NULL},
    {"dp=4 zero=2", 4, 1, NULL}, /* one micro-batch a rank: reduced at once */
    {"dp=4 zero=3", 4, 1, NULL},
    {"pp=2", 2, 1, "1f1b"},
    {"dp=2 pp=2", 2, 1, "gpipe"},
    {"dp=2 pp=2 zero=1", 2, 1, "1f1b"},
    {"dp=2 pp=2 zero=2", 4, 1, "zb-h1"},
    {"dp=2 pp=2 zero=3", 2, 1, "1f1b"},
    {"dp=4 pp=2 zero=3", 4, 1, "zb-h1"},
    {"dp=2 pp=1 zero=1", 2, 2, "interleaved"},
};

#define NEAR(model, o)                                                                   \
    test_plan_each(model, o, within_rounding, WEFT_COUNT(within_rounding), NULL,         \
                   test_plan_nearly)
#define SAME(model, o)                                                                   \
    test_plan_each(model, o, bitwise, WEFT_COUNT(bitwise), NULL, test_plan_same_bits)

static void gpt2(void **state)
{
    test_job_options o = {.seq = 12, .n_micro = 4};
    (void)state;
    SAME(FAMILY("gpt2"), o);
    NEAR(FAMILY("gpt2"), o);
    test_plan_each(FAMILY("gpt2"), o, &(test_plan){"tp=4 sp=true", 2, 1, NULL}, 1, NULL,
                   test_plan_nearly);
}

static void llama(void **state)
{
    test_job_options o = {.seq = 12, .n_micro = 4};
    (void)state;
    SAME(FAMILY("llama"), o);
    NEAR(FAMILY("llama"), o);
}

static void bert(void **state)
{
    test_job_options o = {.seq = 12, .n_micro = 4};
    (void)state;
    SAME(FAMILY("bert"), o);
    NEAR(FAMILY("bert"), o);
}

/* Rows that no axis divides, vectors longer and shorter than the 256 elements they are dealt in,
 * an axis that leaves
 * ranks without any: of a model made for it. */
static void odd_shapes(void **state)
{
    static const test_plan t[] = {
        {"dp=2 zero=1", 4, 1, NULL},         {"dp=4 zero=2", 4, 1, NULL},
        {"dp=4 zero=3", 4, 1, NULL},         {"dp=2 pp=2 zero=3", 4, 1, "1f1b"},
        {"dp=4 pp=2 zero=1", 4, 1, "zb-h1"},
    };
    (void)state;
    test_plan_each("tests/fixtures/odd", (test_job_options){.seq = 6, .n_micro = 4}, t,
                   WEFT_COUNT(t), NULL, test_plan_same_bits);
    test_plan_each("tests/fixtures/odd", (test_job_options){.seq = 6, .n_micro = 4},
                   &(test_plan){"tp=3 sp=true", 2, 1, NULL}, 1, NULL, test_plan_nearly);
}

/* Recomputation, bf16 and other optimizers under the same plans. */
static void other_trainings(void **state)
{
    static const test_job_options o[] = {
        {.seq = 8, .n_micro = 4, .recompute = WEFT_STRATEGY_FULL},
        {.seq = 8, .n_micro = 4, .recompute = WEFT_STRATEGY_SELECTIVE},
        {.seq = 8, .n_micro = 4, .dtype = WEFT_DTYPE_BF16},
        {.seq = 8, .n_micro = 4, .optimizer = "sgd"},
    };
    static const test_plan same[] = {
        {"dp=2 zero=1", 4, 1, NULL},
        {"dp=4 zero=3", 4, 1, NULL},
        {"dp=2 pp=2 zero=3", 4, 1, "1f1b"},
        {"dp=2 pp=2 zero=2", 4, 1, "zb-h1"},
    };
    static const test_plan near[] = {
        {"tp=2 sp=true", 4, 1, NULL},
        {"dp=2 tp=2 pp=2 zero=1", 4, 1, "1f1b"},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(o); i++) {
        test_plan_each(FAMILY("llama"), o[i], same, WEFT_COUNT(same), NULL,
                       test_plan_same_bits);
        if (o[i].dtype == WEFT_DTYPE_F32)
            test_plan_each(FAMILY("gpt2"), o[i], near, WEFT_COUNT(near), NULL,
                           test_plan_nearly);
    }
}

/* Encoders, two towers, experts, windows; images, whose statistics are those of a micro-batch. */
static void families(void **state)
{
    static const char *const models[] = {"mixtral", "ernie",   "t5",
                                         "qwen2",   "mistral", "resnet"};
    static const test_plan   same[]   = {{"dp=4 zero=3", 4, 1, NULL},
                                         {"dp=2 pp=2 zero=1", 4, 1, "zb-h1"}};
    static const test_plan   near[]   = {{"tp=2 sp=true", 4, 1, NULL},
                                         {"dp=2 tp=2 pp=2 zero=1", 4, 1, "1f1b"}};
    (void)state;
    for (size_t m = 0; m < WEFT_COUNT(models); m++) {
        char             path[64];
        test_job_options o = {.seq = 8, .n_micro = 4};
        snprintf(path, sizeof path, "tests/fixtures/families/%s", models[m]);
        test_plan_each(path, o, same, WEFT_COUNT(same), NULL, test_plan_same_bits);
        if (strcmp(models[m], "resnet"))
            test_plan_each(path, o, near, WEFT_COUNT(near), NULL, test_plan_nearly);
    }
}

/* Layers that are not cut alike: of some the tensors, of others the samples of a micro-batch. */
static const test_plan unlike_layers[] = {
    {"tp=2 tp_exclude=blocks", 2, 1, NULL},
    {"tp=2 tp_exclude=head", 2, 1, NULL},
    {"tp=2 tp_exclude=input", 2, 1, NULL},
    {"tp=2 tp_exclude=input,head", 2, 1, NULL},
    {"tp=2 sp=true tp_exclude=input,head", 2, 1, NULL},
    {"tp=2 tp_exclude=0", 2, 1, NULL},
    {"tp=2 sp=true tp_exclude=1", 2, 1, NULL},
    {"dp=2 tp=2 tp_exclude=blocks zero=1", 2, 1, NULL},
    {"dp=2 tp=2 tp_exclude=input,head zero=3", 2, 1, NULL},
    {"tp=2 pp=2 tp_exclude=blocks", 2, 1, "1f1b"},
    {"dp=2 tp=2 pp=2 tp_exclude=1,head zero=3 sp=true", 2, 1, "zb-h1"},
};

static void layers_are_unlike(void **state)
{
    static const struct {
        const char *model, *words[3];
    } t[]              = {{FAMILY("gpt2"), {"blocks", "head", "input"}},
                          {FAMILY("bert"), {"blocks", "head", "0"}},
                          {FAMILY("t5"), {"0..1", "3..4", "head"}},
                          {FAMILY("mixtral"), {"blocks", "head", "1"}},
                          {"tests/fixtures/mlp", {"0..2", "input", "3"}},
                          {FAMILY("resnet"), {"0..2", "0", "head"}}};
    test_job_options o = {.seq = 8, .n_micro = 2, .rows = 2};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(unlike_layers); i += WEFT_TEST_SANITIZED ? 16
                                                           : TEST_LONG         ? 2
                                                                               : 8)
        test_plan_each("tiny256", o, &unlike_layers[i], 1, NULL, test_plan_nearly);
    test_plan_each(FAMILY("llama"), o, unlike_layers, WEFT_COUNT(unlike_layers), NULL,
                   test_plan_nearly);
    for (size_t m = 0; m < WEFT_COUNT(t); m++)
        for (int k = (int)m % 3 * WEFT_TEST_SANITIZED; k < 3; k += TEST_STRIDE(6)) {
            char words[64];
            snprintf(words, sizeof words, "tp=2 tp_exclude=%s", t[m].words[k]);
            /* statistics of few samples make differences larger */
            test_plan_how how = {.norm_tol = strstr(t[m].model, "resnet") ? 1e-4 : 1e-5};
            test_plan_each(t[m].model, o, &(test_plan){words, 2, 1, NULL}, 1, &how,
                           test_plan_nearly);
        }
    o.rows = 4;
    test_plan_each("tiny256", o, &(test_plan){"tp=4 tp_exclude=blocks", 2, 1, NULL}, 1,
                   NULL, test_plan_nearly);
    o.recompute = WEFT_STRATEGY_FULL;
    test_plan_each("tiny256", o, &unlike_layers[7], 2, NULL, test_plan_nearly);
}

/* Two stages, cut before any node: gathers, scatters and reductions go with the nodes they serve.
 */
static void cuts_anywhere(void **state)
{
    static const struct {
        const char             *model;
        test_plan               p;
        bool                    same;
        int                     step;
        weft_strategy_recompute recompute;
    } t[] = {
        {FAMILY("llama"),
         {"dp=2 pp=2 zero=1", 2, 1, "zb-h1"},
         true,
         1,
         WEFT_STRATEGY_KEEP},
        {FAMILY("gpt2"), {"dp=2 pp=2 zero=3", 2, 1, "1f1b"}, true, 3, WEFT_STRATEGY_KEEP},
        {FAMILY("mixtral"),
         {"dp=2 pp=2 zero=3", 2, 1, "1f1b"},
         true,
         2,
         WEFT_STRATEGY_SELECTIVE},
        {FAMILY("gpt2"),
         {"tp=2 pp=2 sp=true", 2, 1, "1f1b"},
         false,
         3,
         WEFT_STRATEGY_KEEP}};
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(t); i++) {
        test_job j;
        test_job_open(
            &j, t[i].model,
            (test_job_options){.seq = 6, .n_micro = 2, .recompute = t[i].recompute});
        test_result one = test_plan_one(&j, 2);
        for (int c = 1; j.training.graph->node[c].phase == WEFT_PHASE_FORWARD;
             c += t[i].step * (WEFT_TEST_SANITIZED ? 24 : TEST_FEW(4))) {
            weft_program *p[TEST_MAX_RANK];
            int n = test_plan_programs(&j, t[i].p, &(test_plan_how){.cut = &c}, p);
            test_result many = test_job_run(&j, p, n, 1);
            if (t[i].same ? memcmp(&many, &one, sizeof one) != 0
                          : test_plan_apart(many.loss[2], one.loss[2]) > 1e-5)
                fail_msg("%s, cut before node %d", t[i].p.words, c);
        }
        test_job_close(&j);
    }
}

/* Ranks of a ring attend to different runs; all the same they agree on where what is computed
 * again lies. */
static void rings_cut_within_layers(void **state)
{
    static const test_plan x = {"cp=2 pp=2 cp_comm=ring", 2, 1, "1f1b"};
    test_job               j;
    (void)state;
    test_job_open(
        &j, FAMILY("llama"),
        (test_job_options){.seq = 8, .n_micro = 2, .recompute = WEFT_STRATEGY_FULL});
    test_result       one = test_plan_one(&j, 2);
    const weft_graph *g   = j.training.graph;
    int               cut = g->value[weft_graph_find(g, "layers.1.mlp.gate_proj")].node;
    weft_program     *p[TEST_MAX_RANK];
    test_result       many = test_job_run(
              &j, p, test_plan_programs(&j, x, &(test_plan_how){.cut = &cut}, p), 1);
    for (int i = 0; i < TEST_STEPS; i++)
        assert_true(test_plan_apart(many.loss[i], one.loss[i]) < 1e-5 &&
                    test_plan_apart(many.norm[i], one.norm[i]) < 1e-5);
    test_job_close(&j);
}

/* Losses of routers with stages cut within layers: a gradient may take values of both stages, some
 * of them recomputed; every cut has programs, and they train like one rank. */
static void routers_cut_anywhere(void **state)
{
    test_plan x = {"cp=2 ep=2 pp=2", 2, 1, "1f1b"};
    test_job  j;
    int       n_run = 0;
    (void)state;
    test_job_open(
        &j, FAMILY("mixtral-balanced"),
        (test_job_options){
            .seq = 8, .n_micro = 2, .rows = 2, .recompute = WEFT_STRATEGY_SELECTIVE});
    test_result one = test_plan_one(&j, 2);
    for (int c = 1; j.training.graph->node[c].phase == WEFT_PHASE_FORWARD;
         c += WEFT_TEST_SANITIZED ? 8 : TEST_FEW(4)) {
        weft_program *p[TEST_MAX_RANK];
        int           n = test_plan_programs(&j, x, &(test_plan_how){.cut = &c}, p);
        if (c % 16 == 1) {
            test_result many = test_job_run(&j, p, n, 1);
            n_run++;
            if (test_plan_apart(many.loss[2], one.loss[2]) > 1e-5)
                fail_msg("%s, cut before node %d", x.words, c);
        } else
            for (int r = 0; r < n; r++) weft_program_destroy(p[r]);
    }
    assert_true(n_run > 3);
    test_job_close(&j);
}

/* Two stages a rank, cut within layers: what one chunk makes a later one of the same rank adds to
 * what came from outside. */
static void chunks_cut_anywhere(void **state)
{
    static const test_plan x = {"pp=2", 2, 2, "interleaved"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        test_job j;
        test_job_open(&j, i ? FAMILY("llama") : FAMILY("gpt2"),
                      (test_job_options){.seq = 6, .n_micro = 4});
        test_result one = test_plan_one(&j, 2);
        int         end = 0;
        while (j.training.graph->node[end].phase == WEFT_PHASE_FORWARD) end++;
        for (int n = 3; n < end - 1; n += 3)
            for (int c = 1; c + 2 * (n / 3) < end;
                 c += 5 * (WEFT_TEST_SANITIZED ? 24 : TEST_FEW(4))) {
                weft_program *p[TEST_MAX_RANK];
                int           cut[] = {c, c + n / 3, c + 2 * (n / 3)};
                test_result   many  = test_job_run(
                       &j, p, test_plan_programs(&j, x, &(test_plan_how){.cut = cut}, p), 1);
                if (memcmp(&many, &one, sizeof one) != 0)
                    fail_msg("cut before nodes %d, %d, %d", cut[0], cut[1], cut[2]);
            }
        test_job_close(&j);
    }
}

/* ---- memory ---- */

typedef struct bytes {
    double state, work, all;
} bytes;

/* Of the fullest rank. */
static bytes bytes_of(const test_job *j, test_plan x)
{
    weft_program *p[TEST_MAX_RANK];
    bytes         b = {0};
    int           n = test_plan_programs(j, x, NULL, p);
    for (int r = 0; r < n; r++) {
        double state = (double)weft_program_bytes(p[r], WEFT_SLAB_STATE);
        double work  = (double)weft_program_bytes(p[r], WEFT_SLAB_WORK);
        b.state      = fmax(b.state, state);
        b.work       = fmax(b.work, work);
        b.all        = fmax(b.all, state + work);
        weft_program_destroy(p[r]);
    }
    return b;
}

static void ratio(const char *what, double a, double b, double want)
{
    print_message("%s: %.3f (%.3f)\n", what, a / b, want);
    if (fabs(a / b - want) > 0.02) fail_msg("%s: %.4f, not %.4f", what, a / b, want);
}

/* Parameters, gradients and two moments are four equal shares.  Over N ranks ZeRO 1 keeps (1 +
 * 2/N) of three, ZeRO 3 3/N; gradients 1/N where each rank has one micro-batch. */
static void zero_saves(void **state)
{
    test_job j;
    (void)state;
    test_job_open(&j, "tiny256", (test_job_options){.seq = 8, .n_micro = 4});
    bytes dp = bytes_of(&j, (test_plan){"dp=4", 4, 1, NULL});
    bytes z1 = bytes_of(&j, (test_plan){"dp=4 zero=1", 4, 1, NULL});
    bytes z2 = bytes_of(&j, (test_plan){"dp=4 zero=2", 4, 1, NULL});
    bytes z3 = bytes_of(&j, (test_plan){"dp=4 zero=3", 4, 1, NULL});
    ratio("zero=1, state", z1.state, dp.state, 1.5 / 3);
    ratio("zero=2, state", z2.state, dp.state, 1.5 / 3);
    ratio("zero=3, state", z3.state, dp.state, 0.75 / 3);
    double grads = dp.state / 3;
    print_message("work: dp %.0f, zero 2 %.0f, zero 3 %.0f; gradients %.0f\n", dp.work,
                  z2.work, z3.work, grads);
    assert_true(dp.work > grads);
    assert_true(z2.work < dp.work - 0.5 * grads);
    /* what is gathered is let go: never all parameters at once */
    assert_true(z3.work < z2.work + 0.35 * grads);
    bytes tp = bytes_of(&j, (test_plan){"tp=2", 4, 1, NULL});
    print_message("tp=2, state: %.3f\n", tp.state / dp.state);
    assert_true(tp.state <
                0.6 * dp.state); /* positions, norms and some biases are whole */
    test_job_close(&j);
}

/* What is printed is what runs: also shares of different sizes, groups and parts. */
static void programs_are_text(void **state)
{
    static const char *const words[] = {"dp=2 tp=2 zero=3 sp=true", "dp=2 pp=2 zero=1"};
    test_job                 j;
    (void)state;
    test_job_open(&j, FAMILY("gpt2"), (test_job_options){.seq = 4, .n_micro = 2});
    for (size_t i = 0; i < WEFT_COUNT(words); i++) {
        weft_program *p[TEST_MAX_RANK], *q;
        int n = test_plan_programs(&j, (test_plan){words[i], 2, 1, NULL}, NULL, p);
        for (int r = 0; r < n; r++) {
            weft_text a = {0}, b = {0};
            assert_ok(weft_program_print(p[r], &a));
            assert_ok(weft_program_parse("p", a.s, a.n, &q));
            assert_ok(weft_program_print(q, &b));
            assert_string_equal(a.s, b.s);
            if (i == 0 && r == 1) assert_non_null(strstr(a.s, " unit "));
            weft_text_fini(&a);
            weft_text_fini(&b);
            weft_program_destroy(p[r]);
            weft_program_destroy(q);
        }
    }
    test_job_close(&j);
}

static void bad_plans_are_refused(void **state)
{
    test_job      j;
    weft_program *p;
    weft_strategy h;
    (void)state;
    test_job_open(&j, FAMILY("gpt2"), (test_job_options){.seq = 4, .n_micro = 4});
    weft_sharding         *s = test_plan_shard(&j, "dp=2 tp=2", &h);
    weft_partition_options o = {.n_micro = 4, .n_lane = 2, .rank = 4};
    assert_fails(weft_partition_program(j.training.graph, s, &o, &p), WEFT_ERR_ARG,
                 "rank 4 of 4");
    o = (weft_partition_options){.n_micro = 4, .n_lane = 1};
    assert_fails(weft_partition_program(j.training.graph, s, &o, &p), WEFT_ERR_ARG,
                 "set lanes to at least 2");
    weft_local_graph *l;
    assert_fails(
        weft_spmd_rewrite(j.training.graph, s, &(weft_spmd_options){.mesh_rank = 7}, &l),
        WEFT_ERR_ARG, "mesh rank 7 of 4");
    weft_sharding_destroy(s);
    test_job_close(&j);
}

/* Numbers of ranks along the lanes that are no power of two: each sums aligned subtrees.  11
 * micro-batches on 8
 * lanes: ranks also have different numbers of them, and who has fewer joins the others' gathers. */
static const test_plan any_number[] = {
    {"dp=3 zero=1", 4, 1, NULL},
    {"dp=3 zero=2", 4, 1, NULL},
    {"dp=3 zero=3", 4, 1, NULL},
    {"dp=3 zero=1", 8, 1, NULL},
    {"dp=5 zero=2", 8, 1, NULL},
    {"dp=6 zero=3", 8, 1, NULL},
    {"dp=7 zero=1", 8, 1, NULL},
    {"dp=2 zero=3", 8, 1, NULL},
    {"dp=3 pp=2 zero=1", 8, 1, "1f1b"},
    {"dp=3 pp=2 zero=3", 8, 1, "zb-h1"},
    {"dp=3 pp=2 zero=3", 8, 2, "interleaved"},
    {"dp=2 pp=2 zero=3", 8, 1, "gpipe"},
};

static void any_number_of_ranks(void **state)
{
    (void)state;
    test_plan_each(TINY, (test_job_options){.seq = 4, .n_micro = 11}, any_number,
                   WEFT_COUNT(any_number), NULL, test_plan_same_bits);
}

/* Vectors of three times 256 elements: a part is as many runs of its sum of squares. */
static void thirds(void **state)
{
    static const test_plan t[] = {
        {"dp=3 zero=1", 4, 1, NULL},
        {"dp=3 zero=2", 4, 1, NULL},
        {"dp=3 zero=3", 4, 1, NULL},
        {"dp=3 pp=2 zero=3", 4, 1, "1f1b"},
    };
    (void)state;
    test_plan_each("tests/fixtures/thirds", (test_job_options){.seq = 6, .n_micro = 5}, t,
                   WEFT_COUNT(t), NULL, test_plan_same_bits);
    test_plan_each("tests/fixtures/thirds",
                   (test_job_options){.seq = 6, .n_micro = 4, .optimizer = "lamb"}, t,
                   WEFT_COUNT(t), NULL, test_plan_same_bits);
}

static const test_plan any_mixture[] = {
    {"dp=3 tp=2", 8, 1, NULL},
    {"tp=2 dp=3 mesh_order=tp,dp sp=true", 8, 1, NULL},
    {"dp=3 tp=2 zero=1", 8, 1, NULL},
    {"dp=3 cp=2 zero=2", 8, 1, NULL},
    {"dp=3 tp=2 zero=3 sp=true", 8, 1, NULL},
    {"dp=3 tp=2 pp=2", 8, 1, "1f1b"},
};

static void any_number_of_ranks_in_mixtures(void **state)
{
    (void)state;
    test_plan_each(TINY, (test_job_options){.seq = 8, .n_micro = 11}, any_mixture,
                   WEFT_COUNT(any_mixture), NULL, test_plan_nearly);
}

/* Activations so large that a reshard would gain by ranks along the lanes, which have other ones:
 * it must not. */
static void large_activations(void **state)
{
    static const test_plan x[]    = {{"dp=2 tp=4 sp=true", 2, 1, NULL}};
    const char            *text[] = {"mesh m [dp=2, tp=4] from 0", "[*, *, *] sum(tp)",
                                     "[*, tp, *]"};
    weft_type              t      = {WEFT_DTYPE_F32, {.n = 3, .d = {16, 64, 128}}};
    weft_arena            *a;
    weft_lex               l;
    weft_mesh              m;
    weft_layout            from, to;
    weft_reshard           r;
    uint32_t               axes = 0;
    (void)state;
    assert_ok(weft_arena_create(&a));
    weft_lex_init(&l, a, "mesh", text[0], strlen(text[0]));
    assert_ok(weft_mesh_parse(&l, a, &m));
    weft_lex_init(&l, a, "from", text[1], strlen(text[1]));
    assert_ok(weft_layout_parse(&l, &m, 0, &from));
    weft_lex_init(&l, a, "to", text[2], strlen(text[2]));
    assert_ok(weft_layout_parse(&l, &m, 0, &to));
    assert_ok(weft_reshard_collectives(&m, 0, &from, &to, &t, a, &r));
    for (int i = 0; i < r.n_step; i++) axes |= r.step[i].axes;
    assert_true(axes & 1); /* the size is one at which it would */
    weft_arena_destroy(a);
    if (WEFT_TEST_SANITIZED) return; /* seconds of the calls of smaller ones */
    test_plan_each("tiny256", (test_job_options){.seq = 64, .n_micro = 2, .rows = 16}, x,
                   1, NULL, test_plan_nearly);
}

/* Of a table so large that ranks along other axes could help to sum it over the lanes: where each
 * brings several terms they are summed straight from where they are. */
static void large_tables(void **state)
{
    weft_compile_spec s = weft_compile_spec_default("gpt3-175b", 8, 384);
    weft_training     t;
    weft_compiled     c;
    weft_strategy     h;
    weft_plan        *p;
    (void)state;
    s.layers      = 2;
    s.micro_batch = 1;
    s.lanes       = 8;
    assert_ok(weft_strategy_parse("dp=3 tp=2 zero=3 sp=true", &h));
    assert_ok(weft_compile_training(&s, &t));
    assert_ok(weft_compile_plan(&t, &h, 0, &p));
    assert_ok(weft_compile_program(&t, p, 0, &c));
    assert_ok(weft_program_verify(c.program));
    weft_compiled_fini(&c);
    weft_training_fini(&t);
    weft_plan_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_sanitized(gpt2),
        test_plain(llama),
        test_sanitized(bert),
        test_plain(chunks),
        test_plain(odd_shapes),
        test_sanitized(other_trainings),
        test_sanitized(families),
        test_plain(layers_are_unlike),
        test_plain(cuts_anywhere),
        test_plain(chunks_cut_anywhere),
        test_plain(rings_cut_within_layers),
        test_plain(routers_cut_anywhere),
        cmocka_unit_test(zero_saves),
        cmocka_unit_test(programs_are_text),
        test_plain(any_number_of_ranks),
        test_sanitized(thirds),
        test_sanitized(any_number_of_ranks_in_mixtures),
        test_plain(large_activations),
        cmocka_unit_test(large_tables),
        cmocka_unit_test(bad_plans_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
