/* graph/gates.c: which products of an activation become a gate. */
#include "graph/build.h"
#include "graph/gates.h"
#include "support/test.h"

typedef struct gated {
    weft_graph *g;
    weft_vid    gate, up, act, y;
} gated;

/* mul(act(gate), up), or with the operands exchanged. */
static gated make_gated(weft_op op, const char *attr, bool exchanged, bool spread)
{
    gated         x;
    const int64_t d[] = {2, 3, 8};
    assert_ok(weft_graph_create("gated", &x.g));
    weft_builder b = weft_build_start(x.g);
    x.gate         = weft_build_input(&b, "gate", WEFT_DTYPE_F32, 3, d);
    x.up = weft_build_input(&b, "up", WEFT_DTYPE_F32, spread ? 1 : 3, spread ? d + 2 : d);
    x.act = weft_build(&b, op, "act", attr, 1, x.gate);
    x.y   = exchanged ? weft_build(&b, WEFT_OP_MUL, "y", NULL, 2, x.up, x.act)
                      : weft_build(&b, WEFT_OP_MUL, "y", NULL, 2, x.act, x.up);
    assert_ok(b.st);
    assert_ok(weft_graph_set_output(x.g, x.y));
    return x;
}

static void check_gate(weft_op op, const char *attr, bool exchanged, const char *word)
{
    gated x = make_gated(op, attr, exchanged, false);
    assert_ok(weft_graph_fuse_gates(x.g));
    assert_ok(weft_graph_verify(x.g));
    const weft_graph_node *n = &x.g->node[x.g->value[x.y].node];
    weft_op_use            u = {.op = n->op, .attr = n->attr};
    assert_int_equal(n->op, WEFT_OP_GATE);
    assert_int_equal(n->in[0], x.gate);
    assert_int_equal(n->in[1], x.up);
    assert_string_equal(weft_use_string(&u, "act"), word);
    weft_graph_destroy(x.g);
}

static void activations_become_gates(void **state)
{
    (void)state;
    check_gate(WEFT_OP_SILU, NULL, false, "silu");
    check_gate(WEFT_OP_SILU, NULL, true, "silu");
    check_gate(WEFT_OP_RELU, NULL, false, "relu");
    check_gate(WEFT_OP_GELU, "approx=tanh", false, "gelu");
    check_gate(WEFT_OP_GELU, "approx=erf", true, "gelu_erf");
}

static void others_stay(void **state)
{
    (void)state;
    gated x = make_gated(WEFT_OP_TANH, NULL, false, false); /* no such gate */
    assert_ok(weft_graph_fuse_gates(x.g));
    assert_int_equal(x.g->node[x.g->value[x.y].node].op, WEFT_OP_MUL);
    weft_graph_destroy(x.g);

    x = make_gated(WEFT_OP_SILU, NULL, false, true); /* the other operand is a row */
    assert_ok(weft_graph_fuse_gates(x.g));
    assert_int_equal(x.g->node[x.g->value[x.y].node].op, WEFT_OP_MUL);
    weft_graph_destroy(x.g);

    x = make_gated(WEFT_OP_SILU, NULL, false, false); /* somebody else takes it */
    assert_ok(weft_graph_set_output(x.g, x.act));
    assert_ok(weft_graph_fuse_gates(x.g));
    assert_int_equal(x.g->node[x.g->value[x.y].node].op, WEFT_OP_MUL);
    weft_graph_destroy(x.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_become_gates),
        cmocka_unit_test(others_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
