/* Making graphs and what verify refuses. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "graph/build.h"
#include "graph/graph.h"

static weft_graph *new_graph(void)
{
    weft_graph *g;
    assert_int_equal(weft_graph_create("t", &g), WEFT_OK);
    return g;
}

static void names_are_unique(void **state)
{
    (void)state;
    weft_graph *g = new_graph();
    weft_vid    v[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(weft_graph_add_input(g, "x", WEFT_DTYPE_F32, 0, NULL, &v[i]),
                         WEFT_OK);
    assert_string_equal(weft_graph_value_name(g, v[1]), "x.1");
    assert_string_equal(weft_graph_value_name(g, v[2]), "x.2");
    for (int i = 0; i < 2000; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", i);
        assert_int_equal(weft_graph_add_state(g, name, WEFT_DTYPE_F32, 0, NULL, &v[0]),
                         WEFT_OK);
        assert_int_equal(weft_graph_find(g, name), v[0]);
    }
    assert_int_equal(weft_graph_find(g, "nothing"), -1);
    assert_int_equal(weft_graph_verify(g), WEFT_OK);
    weft_graph_destroy(g);
}

static void shape_rules_speak(void **state)
{
    (void)state;
    weft_graph *g = new_graph();
    weft_vid    x, w, y;
    weft_graph_add_input(g, "x", WEFT_DTYPE_F32, 2, (int64_t[]){8, 16}, &x);
    weft_graph_add_param(g, "w", WEFT_DTYPE_F32, 2, (int64_t[]){15, 4}, &w);
    weft_vid in[2] = {x, w};
    assert_int_equal(weft_graph_add_op(g, "matmul", "spec=bd,dn->bn", 2, in, "y", 1, &y),
                     WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "y: matmul"));
    assert_non_null(strstr(weft_error_text(), "16 and 15"));
    assert_int_equal(weft_graph_add_op(g, "matmull", "", 2, in, "y", 1, &y),
                     WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "did you mean 'matmul'"));
    assert_int_equal(weft_graph_add_op(g, "gelu", "aprox=tanh", 1, &x, "y", 1, &y),
                     WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "did you mean 'approx'"));
    in[1] = 99;
    assert_int_equal(weft_graph_add_op(g, "add", "", 2, in, "y", 1, &y), WEFT_ERR_ARG);
    assert_int_equal(weft_graph_n_value(g), 2);
    weft_graph_destroy(g);
}

/* x -> relu -> (accumulate) -> sgd: the smallest graph with all three phases. */
static weft_graph *step_graph(bool accumulate)
{
    weft_graph  *g        = new_graph();
    weft_builder b        = weft_build_start(g);
    weft_vid     x        = weft_build_input(&b, "x", WEFT_DTYPE_F32, 1, (int64_t[]){4});
    weft_vid     w        = weft_build_param(&b, "w", WEFT_DTYPE_F32, 1, (int64_t[]){4});
    weft_vid     lr       = weft_build_input(&b, "lr", WEFT_DTYPE_F32, 0, NULL);
    g->value[lr].per_step = true;
    weft_vid y            = weft_build(&b, WEFT_OP_MUL, "y", NULL, 2, x, w);
    g->phase              = WEFT_PHASE_BACKWARD;
    weft_vid d            = weft_build(&b, WEFT_OP_RELU_GRAD, "d", NULL, 2, x, y);
    g->phase              = WEFT_PHASE_UPDATE;
    if (accumulate) d = weft_build(&b, WEFT_OP_ACCUMULATE, "sum", NULL, 1, d);
    weft_vid n = weft_build(&b, WEFT_OP_SGD, "w.next", NULL, 4, w, d, lr, lr);
    assert_int_equal(b.st, WEFT_OK);
    assert_int_equal(weft_graph_set_next(g, w, n), WEFT_OK);
    assert_int_equal(weft_graph_set_output(g, y), WEFT_OK);
    return g;
}

static void refuses(weft_graph *g, const char *why)
{
    assert_int_equal(weft_graph_verify(g), WEFT_ERR_ARG);
    if (!strstr(weft_error_text(), why))
        fail_msg("%s, expected: %s", weft_error_text(), why);
    weft_graph_destroy(g);
}

static void verify_holds_the_phases(void **state)
{
    (void)state;
    weft_graph *g = step_graph(true);
    assert_int_equal(weft_graph_verify(g), WEFT_OK);
    g->node[1].phase = WEFT_PHASE_FORWARD;
    assert_int_equal(weft_graph_verify(g), WEFT_OK);
    g->node[0].phase = WEFT_PHASE_BACKWARD;
    refuses(g, "phases go back");

    refuses(step_graph(false), "without accumulate");

    g                                           = step_graph(true);
    g->value[weft_graph_find(g, "lr")].per_step = false;
    refuses(g, "lr is made once a micro-batch");

    g                                      = step_graph(true);
    g->value[weft_graph_find(g, "w")].next = weft_graph_find(g, "d");
    refuses(g, "accumulate it first");
}

static void verify_sees_damage(void **state)
{
    (void)state;
    weft_graph *g                                     = step_graph(true);
    g->value[weft_graph_find(g, "y")].type.shape.d[0] = 5;
    refuses(g, "shape rule"); /* or an operand that no longer fits: both name the rule */

    g                = step_graph(true);
    g->node[0].in[0] = g->node[2].out[0];
    refuses(g, "does not come before");

    g                                      = step_graph(true);
    g->value[weft_graph_find(g, "y")].name = "x";
    refuses(g, "two values have this name");

    g            = step_graph(true);
    g->output[0] = 77;
    refuses(g, "no value");
}

static void users_are_complete(void **state)
{
    (void)state;
    weft_graph *g = step_graph(true);
    weft_arena *a;
    int        *first, *users;
    assert_int_equal(weft_arena_create(&a), WEFT_OK);
    assert_int_equal(weft_graph_users(g, a, &first, &users), WEFT_OK);
    weft_vid x = weft_graph_find(g, "x"), w = weft_graph_find(g, "w");
    assert_int_equal(first[x + 1] - first[x], 2);
    assert_int_equal(users[first[x]], 0);
    assert_int_equal(users[first[x] + 1], 1);
    assert_int_equal(first[w + 1] - first[w], 2);
    weft_arena_destroy(a);
    weft_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_unique),        cmocka_unit_test(shape_rules_speak),
        cmocka_unit_test(verify_holds_the_phases), cmocka_unit_test(verify_sees_damage),
        cmocka_unit_test(users_are_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
