/* Context parallel: the sequence of the inputs cut over ranks, in blocks or zigzag.  Trains like
 * one rank within rounding; causal work is even. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/plans.h"
#include "spmd/spmd.h"
#include "support/test.h"

#define FAMILY(name) "tests/fixtures/families/" name

static void each_of(const char *model, int seq, const char *const *words, size_t n)
{
    test_job j;
    test_job_open(&j, model, (test_job_options){.seq = seq, .n_micro = 4});
    test_result one = test_plan_one(&j, 2);
    assert_true(one.loss[TEST_STEPS - 1] != one.loss[0]);
    for (size_t i = 0; i < n; i++)
        test_plan_near(&j, &one, (test_plan){words[i], 2, 1, "1f1b"}, 1e-5);
    test_job_close(&j);
}

static void each(const char *model, const char *const *words, size_t n)
{
    each_of(model, 16, words, n);
}

static const char *const words[] = {
    "cp=2",
    "cp=2 cp_comm=ring",
    "cp=3",
    "cp=4",
    "cp=4 cp_comm=ring",
    "dp=2 cp=2",
    "dp=2 cp=2 cp_comm=ring",
    "cp=2 tp=2 cp_comm=ring",
    "cp=2 tp=2 sp=true",
    "cp=2 pp=2",
    "cp=2 pp=2 cp_comm=ring",
    "dp=2 cp=2 zero=3",
    "dp=2 cp=2 pp=2 zero=1 cp_comm=ring",
};
static void gpt2(void **state)
{
    (void)state;
    each(FAMILY("gpt2"), words, WEFT_COUNT(words));
}
static void llama(void **state)
{
    (void)state;
    each(FAMILY("llama"), words, WEFT_COUNT(words));
}
/* Keys and values that several ranks along tp share: their gradients are sums over tp and cp. */
static void few_keys(void **state)
{
    static const char *const plan[] = {
        "cp=2 tp=2",
        "cp=2 tp=2 sp=true",
        "tp=2 cp=2 mesh_order=tp,cp sp=true cp_comm=ring",
        "cp=2 tp=2 pp=2 cp_comm=ring",
    };
    (void)state;
    each(FAMILY("mixtral"), plan, WEFT_COUNT(plan));
    each(FAMILY("qwen2"), plan, WEFT_COUNT(plan));
    each(FAMILY("mistral"), plan, WEFT_COUNT(plan));
    each(FAMILY("llama"), plan, WEFT_COUNT(plan));
}
/* not causal: blocks */
static void bert(void **state)
{
    (void)state;
    each(FAMILY("bert"), words, WEFT_COUNT(words));
}

/* Zigzag in runs that differ by one; parts of one size as a ring, others gathered. */
static void uneven_zigzag(void **state)
{
    static const char *const plan[] = {
        "cp=2",
        "cp=2 cp_comm=ring",
        "cp=3",
        "cp=3 cp_comm=ring",
        "cp=4",
        "cp=4 cp_comm=ring",
        "cp=2 tp=2 sp=true",
        "dp=2 cp=2 pp=2 zero=1 cp_comm=ring",
        "dp=2 cp=3 zero=3",
        "cp=8",
    };
    (void)state;
    each_of(FAMILY("gpt2"), 15, plan, WEFT_COUNT(plan));
    each_of(FAMILY("llama"), 18, plan, WEFT_COUNT(plan));
}

/* Keys go no further than somebody's window, and ranks that see nothing of them pass them on. */
static void windows(void **state)
{
    static const char *const plan[] = {
        "cp=3 cp_comm=ring", "dp=2 cp=3 zero=1 cp_comm=ring", "cp=5 cp_comm=ring"};
    (void)state;
    each_of(FAMILY("qwen2"), 15, plan, WEFT_COUNT(plan));
}

/* What is computed again is cut as it was the first time: of a size at which keys that are cut by
 * themselves would seem cheaper. */
static void computed_again(void **state)
{
    static const char *const plan[] = {
        "cp=2",
        "cp=4 cp_comm=ring",
        "cp=2 tp=2 sp=true",
        "dp=2 cp=2 zero=1",
        "dp=2 cp=2 pp=2 zero=3 cp_comm=ring",
        "cp=2 tp=2 pp=2 cp_comm=ring",
    };
    test_job j;
    (void)state;
    test_job_open(
        &j, "tiny256",
        (test_job_options){.seq = 16, .n_micro = 4, .recompute = WEFT_STRATEGY_FULL});
    test_result one = test_plan_one(&j, 2);
    for (size_t i = 0; i < WEFT_COUNT(plan); i += TEST_STRIDE(8))
        test_plan_near(&j, &one, (test_plan){plan[i], 2, 1, "1f1b"}, 1e-5);
    test_job_close(&j);
}

/* Wherever a cut is: ranks of a stage agree on what is computed again there, and parameters are
 * gathered where they are used. */
static void cuts_within_layers(void **state)
{
    static const char *const plan[] = {"cp=2 pp=2 cp_comm=ring", "dp=2 cp=2 pp=2 zero=3"};
    static const weft_strategy_recompute again[] = {WEFT_STRATEGY_FULL,
                                                    WEFT_STRATEGY_SELECTIVE};
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT(plan); k++) {
        test_job j;
        test_job_open(&j, k ? FAMILY("mixtral") : FAMILY("llama"),
                      (test_job_options){.seq = 8, .n_micro = 4, .recompute = again[k]});
        const weft_graph *g   = j.training.graph;
        test_result       one = test_plan_one(&j, 2);
        for (int c = 5; c < g->n_node && g->node[c].phase == WEFT_PHASE_FORWARD;
             c += 3 * TEST_STRIDE(16))
            test_plan_near_cut(&j, &one, (test_plan){plan[k], 2, 1, "1f1b"}, &c, 1e-5);
        test_job_close(&j);
    }
}

/* Of a layer that tp leaves whole, keys would be cut over tp behind the zigzag: they are
 * gathered. */
static void beside_whole_layers(void **state)
{
    test_job j;
    (void)state;
    test_job_open(&j, FAMILY("gpt2"),
                  (test_job_options){.seq = 16, .n_micro = 4, .rows = 2});
    test_result one = test_plan_one(&j, 2);
    test_plan_near(&j, &one,
                   (test_plan){"cp=2 tp=2 sp=true tp_exclude=blocks", 2, 1, NULL}, 1e-5);
    test_plan_near(&j, &one, (test_plan){"cp=2 tp=2 sp=true tp_exclude=0", 2, 1, NULL},
                   1e-5);
    test_job_close(&j);
}

/* Flops of attention on each place, forward and backward. */
static double uneven(const test_job *j, const weft_sharding *s, bool ring)
{
    double most = 0, sum = 0;
    int    n = s->mesh[0].n_rank;
    for (int place = 0; place < n; place++) {
        weft_spmd_options o = {.mesh_rank = place, .ring_axes = ring ? ~0u : 0};
        weft_local_graph *l;
        double            own = 0;
        assert_ok(weft_spmd_rewrite(j->training.graph, s, &o, &l));
        for (int i = 0; i < l->graph->n_node; i++) {
            const weft_graph_node *x = &l->graph->node[i];
            weft_type              in[8], out[4];
            if (x->op != WEFT_OP_ATTENTION && x->op != WEFT_OP_ATTENTION_GRAD) continue;
            weft_op_use u = weft_graph_use(l->graph, x, in, out);
            own += weft_op_flops(&u);
        }
        weft_local_graph_destroy(l);
        sum += own;
        most = fmax(most, own);
    }
    return most * n / sum;
}

/* The rank with the most work has at most 1.05 times the mean; what zigzag is for. */
static void even_work(void **state)
{
    static const struct {
        const char *words;
        int         seq;
    } t[] = {
        {"cp=2", 64}, {"cp=4", 64}, {"cp=8", 64}, /* runs of one size */
        {"cp=4", 60}, {"cp=3", 64}, {"cp=3", 128}, {"cp=5", 128}, {"cp=7", 256},
    };
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(t); i++) {
        test_job      j;
        weft_strategy h;
        test_job_open(&j, "tiny256", (test_job_options){.seq = t[i].seq, .n_micro = 1});
        weft_sharding *s = test_plan_shard(&j, t[i].words, &h);
        double         x = fmax(uneven(&j, s, false), uneven(&j, s, true));
        print_message("%s seq %d: %.3f of the mean\n", t[i].words, t[i].seq, x);
        if (x > 1.05) fail_msg("%s: the most work is %.3f of the mean", t[i].words, x);
        weft_sharding_destroy(s);
        test_job_close(&j);
    }
}

/* As a ring no place ever has all keys: nothing is gathered, everything is shifted. */
static void passed_round(void **state)
{
    test_job      j;
    weft_strategy h;
    (void)state;
    test_job_open(&j, "tiny256", (test_job_options){.seq = 32, .n_micro = 1});
    weft_sharding    *s = test_plan_shard(&j, "cp=4", &h);
    weft_spmd_options o = {.mesh_rank = 1, .ring_axes = ~0u};
    weft_local_graph *l;
    int               n_shift = 0, n_layer = 0;
    assert_ok(weft_spmd_rewrite(j.training.graph, s, &o, &l));
    for (int i = 0; i < j.training.graph->n_node; i++)
        n_layer += j.training.graph->node[i].op == WEFT_OP_ATTENTION;
    for (int i = 0; i < l->graph->n_node; i++) {
        const weft_graph_node *x = &l->graph->node[i];
        n_shift += x->op == WEFT_OP_SHIFT;
        if (x->op == WEFT_OP_ATTENTION)
            assert_true(l->graph->value[x->in[1]].type.shape.d[1] <= 8);
    }
    assert_true(n_layer > 0);
    assert_int_equal(n_shift, n_layer * (3 * 2 + 3 * 2 + 4 * 2));
    weft_local_graph_destroy(l);
    weft_sharding_destroy(s);
    test_job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_plain(gpt2),
        test_sanitized(llama),
        test_plain(bert),
        cmocka_unit_test(even_work),
        test_sanitized(uneven_zigzag),
        test_plain(computed_again),
        test_sanitized(cuts_within_layers),
        cmocka_unit_test(beside_whole_layers),
        test_plain(windows),
        cmocka_unit_test(passed_round),
        test_sanitized(few_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
