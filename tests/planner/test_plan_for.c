/* Graphs that nobody named: built through the public headers, as text, for other batches. */
#include <stdlib.h>

#include "graph/graph.h"
#include "plan/plan.h"
#include "support/test.h"
#include "weft/plan.h"

/* Towers of dense layers with a gate, of a kind that no preset has: y = relu(x a) * (x b) + x. */
static weft_vid op(weft_graph *g, const char *name, const char *attr, weft_vid a,
                   weft_vid b)
{
    weft_vid out[2], in[2] = {a, b};
    int      two = !strcmp(name, "cross_entropy");
    assert_ok(
        weft_graph_add_op(g, name, attr, b < 0 ? 1 : 2, in, name, two ? 2 : 1, out));
    return out[0];
}

static weft_graph *towers(int64_t batch, int64_t width, int n_layer)
{
    weft_graph *g;
    weft_vid    x, labels, w;
    assert_ok(weft_graph_create("towers", &g));
    assert_ok(
        weft_graph_add_input(g, "x", WEFT_DTYPE_F32, 2, (int64_t[]){batch, width}, &x));
    assert_ok(weft_graph_add_input(g, "labels", WEFT_DTYPE_I32, 1, (int64_t[]){batch},
                                   &labels));
    for (int i = 0; i < n_layer; i++) {
        weft_vid y[2];
        for (int k = 0; k < 2; k++) {
            assert_ok(weft_graph_add_param(g, k ? "b" : "a", WEFT_DTYPE_F32, 2,
                                           (int64_t[]){width, width}, &w));
            y[k] = op(g, "matmul", "spec=bd,dn->bn", x, w);
        }
        x = op(g, "add", "", op(g, "mul", "", op(g, "relu", "", y[0], -1), y[1]), x);
    }
    assert_ok(
        weft_graph_add_param(g, "head", WEFT_DTYPE_F32, 2, (int64_t[]){width, 1000}, &w));
    x = op(g, "cross_entropy", "", op(g, "matmul", "spec=bd,dn->bn", x, w), labels);
    x = op(g, "reduce", "axes=[0]", x, -1);
    assert_ok(weft_graph_set_output(g, x));
    return g;
}

static void a_graph_is_planned(void **state)
{
    (void)state;
    weft_graph       *g = towers(8, 4096, WEFT_TEST_SANITIZED ? 3 : 9);
    weft_plan_request r = {
        .cluster = "1 x (8 x a100-80g)", .batch = 1024, .dtype = "bf16"};
    char      *words, *text;
    weft_plan *p;
    assert_ok(weft_plan_for(g, &r, &words, &text));
    print_message("%s", words);
    assert_non_null(strstr(words, "plan: "));
    assert_ok(weft_plan_parse("plan", text, strlen(text), &p));
    assert_int_equal(p->of.batch, 1024);
    assert_true(weft_plan_world(p) <= 8);
    assert_true(p->predicted.step_s > 0);
    weft_plan_destroy(p);
    free(words);
    free(text);
    r.constraints = "pp=2";
    assert_ok(weft_plan_for(g, &r, NULL, &text));
    assert_ok(weft_plan_parse("plan", text, strlen(text), &p));
    assert_int_equal(p->strategy.pp, 2);
    weft_plan_destroy(p);
    free(text);
    r.cluster = "1 x (8 x nothing)";
    assert_true(weft_plan_for(g, &r, NULL, NULL) == WEFT_ERR_ARG);
    weft_graph_destroy(g);
}

static void batches_follow(void **state)
{
    (void)state;
    weft_graph *g = towers(8, 64, 2), *h = towers(32, 64, 2), *x;
    assert_int_equal(weft_graph_batch(g), 8);
    assert_ok(weft_graph_rebatch(g, 32, &x));
    assert_ok(weft_graph_verify(x));
    assert_true(weft_graph_hash(x) == weft_graph_hash(h));
    weft_graph_destroy(x);
    weft_graph_destroy(h);
    weft_graph_destroy(g);
}

/* A parameter as large as the batch: there is no other batch. */
static void what_cannot_follow_is_refused(void **state)
{
    (void)state;
    weft_graph *g, *x;
    weft_vid    a, b;
    assert_ok(weft_graph_create("fixed", &g));
    assert_ok(weft_graph_add_input(g, "x", WEFT_DTYPE_F32, 2, (int64_t[]){8, 4}, &a));
    assert_ok(weft_graph_add_param(g, "w", WEFT_DTYPE_F32, 2, (int64_t[]){8, 4}, &b));
    a = op(g, "reduce", "axes=[0,1]", op(g, "mul", "", a, b), -1);
    assert_ok(weft_graph_set_output(g, a));
    assert_fails(weft_graph_rebatch(g, 16, &x), WEFT_ERR_ARG, "a batch of 16");
    weft_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_follow),
        cmocka_unit_test(what_cannot_follow_is_refused),
        test_plain(a_graph_is_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
