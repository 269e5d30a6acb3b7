/* graph/fp8.c: which matmuls of models are in fp8, and the formats of their gradients. */
#include "support/test.h"

#include "compile/compile.h"
#include "graph/fp8.h"

typedef struct marks {
    int matmul, fp8, dy_first, dy_second; /* of the last two: e5m2 in front, behind */
} marks;

static const char *formats_of(const weft_graph_node *n)
{
    const char *s = n->attr[weft_op_attr_index(n->op, "fp8")].s;
    return s ? s : "";
}

static marks count_marks(const weft_graph *g)
{
    marks m = {0};
    for (int i = 0; i < g->n_node; i++) {
        const weft_graph_node *n = &g->node[i];
        if (n->op != WEFT_OP_MATMUL) continue;
        m.matmul++;
        m.fp8 += *formats_of(n) != 0;
        m.dy_first += !strcmp(formats_of(n), "e5m2,e4m3");
        m.dy_second += !strcmp(formats_of(n), "e4m3,e5m2");
        /* the weights of head and router stay as they are */
        const char *b = g->value[n->in[1]].name;
        if (strstr(b, "wte") || strstr(b, "moe.gate") || strstr(b, "lm_head"))
            assert_string_equal(formats_of(n), "");
    }
    return m;
}

static marks train(const char *model, const char *dtype, const char *format)
{
    weft_compile_spec s = weft_compile_spec_default(model, 1, 8);
    weft_training     t = {0};
    s.dtype             = dtype;
    s.fp8_format        = format;
    assert_ok(weft_compile_training(&s, &t));
    marks m = count_marks(t.graph);
    weft_training_fini(&t);
    return m;
}

/* Four linear layers a block and their gradients; the head's three stay. */
static void linear_layers_alone(void **state)
{
    (void)state;
    marks m = train("tiny256", "fp8", "hybrid");
    assert_int_equal(m.matmul, 3 * (4 * 4 + 1));
    assert_int_equal(m.fp8, 3 * 4 * 4);
    assert_int_equal(m.dy_first, 4 * 4);
    assert_int_equal(m.dy_second, 4 * 4);
    m = train("tiny256", "fp8", "e4m3");
    assert_int_equal(m.fp8, 3 * 4 * 4);
    assert_int_equal(m.dy_first + m.dy_second, 0);
    assert_int_equal(train("tiny256", "bf16", "hybrid").fp8, 0);
}

/* q, k, v and o of each layer; experts' products and the router stay. */
static void experts_stay(void **state)
{
    (void)state;
    weft_compile_spec s = weft_compile_spec_default("mixtral-8x7b", 1, 8);
    weft_training     t = {0};
    s.layers            = 2;
    s.dtype             = "fp8";
    assert_ok(weft_compile_training(&s, &t));
    marks m = count_marks(t.graph);
    assert_int_equal(m.fp8, 3 * 2 * 4);
    weft_training_fini(&t);
}

static void bad_formats(void **state)
{
    static const char text[] = "graph x\n"
                               "  input a: f32[4,4]\n"
                               "  y: f32[4,4] = matmul(a, a) {spec=ik,kj->ij fp8=e4m3}\n"
                               "  output y\n";
    weft_graph       *g;
    (void)state;
    weft_status st = weft_graph_from_text("x", text, sizeof text - 1, &g);
    assert_int_equal(st, WEFT_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(linear_layers_alone),
                                       cmocka_unit_test(experts_stay),
                                       cmocka_unit_test(bad_formats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
