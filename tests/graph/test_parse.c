/* parse(print(g)) == g, and what the parser says about bad text. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "graph/build.h"
#include "graph/graph.h"
#include "support/same_graph.h"

/* All three phases, every kind of value, names that need quotes, attributes of every type. */
static weft_graph *rich_graph(void)
{
    weft_graph *g;
    weft_vid    out[3];
    assert_int_equal(weft_graph_create("a graph", &g), WEFT_OK);
    weft_builder b = weft_build_start(g);
    weft_vid x = weft_build_input(&b, "input", WEFT_DTYPE_F32, 3, (int64_t[]){2, 3, 8});
    weft_vid w =
        weft_build_param(&b, "0.weight \"q\"", WEFT_DTYPE_F32, 1, (int64_t[]){8});
    weft_vid lr           = weft_build_input(&b, "lr", WEFT_DTYPE_F32, 0, NULL);
    g->value[lr].per_step = true;
    weft_vid in[3]        = {x, w, w};
    weft_build_many(&b, WEFT_OP_LAYER_NORM, "ln", "eps=1e-12", 3, in, 3, out);
    weft_vid m = weft_build_state(&b, "m", WEFT_DTYPE_F32, 1, (int64_t[]){8});
    weft_vid y =
        weft_build(&b, WEFT_OP_MATMUL, "forward", "spec=bsd,d->bs", 2, out[0], w);
    y              = weft_build(&b, WEFT_OP_GELU, ".5", "approx=erf", 1, y);
    y              = weft_build(&b, WEFT_OP_DROPOUT, "a-b", "p=0.1 id=7", 1, y);
    y              = weft_build(&b, WEFT_OP_REDUCE, "loss", "axes=[0,1]", 1, y);
    weft_vid f     = weft_build(&b, WEFT_OP_FILL, "zero", "shape=[8] value=-0.25", 0);
    g->phase       = WEFT_PHASE_BACKWARD;
    f              = weft_build(&b, WEFT_OP_SCALE, "scaled", "alpha=0.1", 1, f);
    g->phase       = WEFT_PHASE_UPDATE;
    f              = weft_build(&b, WEFT_OP_ACCUMULATE, "sum", NULL, 1, f);
    weft_vid up[5] = {w, f, m, lr, lr};
    weft_build_many(&b, WEFT_OP_SGD_MOMENTUM, "w.next", NULL, 5, up, 2, out);
    assert_int_equal(b.st, WEFT_OK);
    assert_int_equal(weft_graph_set_next(g, w, out[0]), WEFT_OK);
    assert_int_equal(weft_graph_set_next(g, m, out[1]), WEFT_OK);
    weft_vid copy = weft_build_state(&b, "copy", WEFT_DTYPE_BF16, 1, (int64_t[]){8});
    assert_int_equal(weft_graph_set_copy(g, copy, w), WEFT_OK);
    assert_int_equal(weft_graph_set_output(g, y), WEFT_OK);
    assert_int_equal(weft_graph_set_output(g, out[0]), WEFT_OK);
    assert_int_equal(weft_graph_verify(g), WEFT_OK);
    return g;
}

static void text_and_back(void **state)
{
    (void)state;
    weft_graph *g = rich_graph(), *h;
    char       *a, *b;
    assert_int_equal(weft_graph_to_text(g, &a), WEFT_OK);
    if (weft_graph_from_text("a.graph", a, strlen(a), &h) != WEFT_OK)
        fail_msg("%s\n%s", weft_error_text(), a);
    test_same_graph(g, h);
    assert_int_equal(weft_graph_to_text(h, &b), WEFT_OK);
    assert_string_equal(a, b);
    free(a);
    free(b);
    weft_graph_destroy(g);
    weft_graph_destroy(h);
}

static void text_is_as_shown(void **state)
{
    (void)state;
    static const char text[] = "graph mlp {\n"
                               "  input   x: f32[8,16]\n"
                               "  param   w: f32[16,4]\n"
                               "\n"
                               "  forward\n"
                               "  y: f32[8,4] = matmul(x, w) {spec=bd,dn->bn}\n"
                               "  loss: f32[] = reduce(y) {axes=[0,1]}\n"
                               "\n"
                               "  output loss\n"
                               "}\n";
    weft_graph       *g;
    char             *s;
    assert_int_equal(weft_graph_from_text("t", text, sizeof text - 1, &g), WEFT_OK);
    assert_int_equal(weft_graph_to_text(g, &s), WEFT_OK);
    assert_string_equal(s, text);
    free(s);
    weft_graph_destroy(g);
}

static void bad_text_has_a_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } bad[] = {
        {"", "t:1: expected 'graph'"},
        {"graph g {", "t:1: expected a word, got the end"},
        {"graph g { } more", "t:1: text behind the closing"},
        {"graph g {\n input x: f31[2]\n}", "t:2: 'f31' is no data type"},
        {"graph g {\n input x: f32[-2]\n}", "t:2: dimension 0 of a shape is -2"},
        {"graph g {\n input x: f32[2,2,2,2,2,2,2,2,2]\n}", "t:2: more than 8 dimensions"},
        {"graph g {\n input x: f32[2]\n param x: f32[2]\n}",
         "t:3: there is a value 'x' already"},
        {"graph g {\n y: f32[2] = relu(x)\n}", "t:2: there is no value 'x' above"},
        {"graph g {\n input x: f32[2]\n y: f32[2] = rellu(x)\n}", "did you mean 'relu'"},
        {"graph g {\n input x: f32[2]\n y: f32[3] = relu(x)\n}",
         "t:3: y is f32[2], the text says f32[3]"},
        {"graph g {\n input x: f32[2]\n y: f32[2] = scale(x) {alpha=1\n}", "without '}'"},
        {"graph g {\n input x: f32[2]\n y: f32[2] = scale(x) {alpah=1}\n}",
         "t:3: scale: unknown attribute 'alpah', did you mean 'alpha'?"},
        {"graph g {\n input x: f32[2]\n y: f32[2], y: f32[2] = relu(x)\n}",
         "t:3: two results are called 'y'"},
        {"graph g {\n input x: f32[2]\n y: f32[2] = relu(x, x)\n}",
         "t:3: y: relu: takes 1"},
        {"graph g {\n input x: f32[2]\n next x = x\n}", "t:3: x is no state"},
        {"graph g {\n state c: bf16[2]\n input x: f32[2]\n copy c = x\n}",
         "t:4: c: only a state is a copy, of a parameter of another type"},
        {"graph g {\n state c: f32[2]\n param w: f32[2]\n copy c = w\n}",
         "t:4: c: only a state is a copy, of a parameter of another type"},
        {"graph g {\n state c: bf16[2]\n param w: f32[2]\n copy c = w\n copy c = w\n}",
         "t:5: c is a copy already"},
        {"graph g {\n hello\n}", "t:2: expected a declaration"},
        {"graph g {\n input x: f32[2]\n update\n y: f32[2] = relu(x)\n}",
         "without accumulate"},
        {"graph g {\n state x: f32[2]\n update\n y: f32[2] = relu(x)\n forward\n"
         " z: f32[2] = relu(x)\n}",
         "phases go back"},
        {"graph g {\n input \"x: f32[2]\n}", "t:2: "},
    };
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        weft_graph *g  = NULL;
        weft_status st = weft_graph_from_text("t", bad[i].text, strlen(bad[i].text), &g);
        assert_int_equal(st, WEFT_ERR_ARG);
        assert_null(g);
        if (!strstr(weft_error_text(), bad[i].error))
            fail_msg("%s\nexpected: %s", weft_error_text(), bad[i].error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_back),
        cmocka_unit_test(text_is_as_shown),
        cmocka_unit_test(bad_text_has_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
