/* graph/sums.c: which sums get another order. */
#include "graph/build.h"
#include "graph/sums.h"
#include "support/test.h"

typedef struct summed {
    weft_graph *g;
    weft_vid    m[3], inner, outer;
} summed;

/* (m[2] + m[1]) + m[0]; a term may be something else than a matmul. */
static summed make_sum(weft_op other)
{
    summed        x;
    const int64_t d[] = {4, 4};
    assert_ok(weft_graph_create("sum", &x.g));
    weft_builder b = weft_build_start(x.g);
    weft_vid     a = weft_build_input(&b, "a", WEFT_DTYPE_F32, 2, d);
    for (int i = 0; i < 3; i++)
        x.m[i] = i == 1 && other != WEFT_OP_MATMUL
                     ? weft_build(&b, other, "m", NULL, 1, a)
                     : weft_build(&b, WEFT_OP_MATMUL, "m", "spec=ik,kj->ij", 2, a, a);
    x.inner = weft_build(&b, WEFT_OP_ADD, "inner", NULL, 2, x.m[2], x.m[1]);
    x.outer = weft_build(&b, WEFT_OP_ADD, "outer", NULL, 2, x.inner, x.m[0]);
    assert_ok(b.st);
    assert_ok(weft_graph_set_output(x.g, x.outer));
    return x;
}

static void check_add(const summed *x, weft_vid v, weft_vid a, weft_vid b)
{
    const weft_graph_node *n = &x->g->node[x->g->value[v].node];
    assert_int_equal(n->in[0], a);
    assert_int_equal(n->in[1], b);
}

static void matmuls_are_added_in_their_order(void **state)
{
    (void)state;
    summed x = make_sum(WEFT_OP_MATMUL);
    assert_ok(weft_graph_chain_sums(x.g));
    assert_ok(weft_graph_verify(x.g));
    check_add(&x, x.inner, x.m[1], x.m[0]);
    check_add(&x, x.outer, x.m[2], x.inner);
    assert_ok(weft_graph_chain_sums(x.g)); /* nothing more to do */
    check_add(&x, x.inner, x.m[1], x.m[0]);
    weft_graph_destroy(x.g);
}

static void other_sums_stay(void **state)
{
    (void)state;
    summed x = make_sum(WEFT_OP_SILU);
    assert_ok(weft_graph_chain_sums(x.g));
    check_add(&x, x.inner, x.m[2], x.m[1]);
    check_add(&x, x.outer, x.inner, x.m[0]);
    weft_graph_destroy(x.g);

    x = make_sum(WEFT_OP_MATMUL); /* somebody else takes a part */
    assert_ok(weft_graph_set_output(x.g, x.inner));
    assert_ok(weft_graph_chain_sums(x.g));
    check_add(&x, x.inner, x.m[2], x.m[1]);
    weft_graph_destroy(x.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmuls_are_added_in_their_order),
        cmocka_unit_test(other_sums_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
