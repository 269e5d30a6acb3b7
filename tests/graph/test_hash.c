/* The hash of a graph's structure, and repeated layers. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "graph/build.h"
#include "graph/graph.h"

typedef struct choice {
    const char *name;    /* put before all names */
    double      alpha;   /* an attribute */
    int64_t     width;   /* a shape */
    bool        late;    /* declares w behind the first node */
    bool        crossed; /* uses the operands the other way round */
} choice;

static uint64_t hash_of(choice c)
{
    weft_graph *g;
    assert_int_equal(weft_graph_create(c.name, &g), WEFT_OK);
    weft_builder b = weft_build_start(g);
    weft_vid     w = -1;
    weft_vid x = weft_build_input(&b, c.name, WEFT_DTYPE_F32, 2, (int64_t[]){4, c.width});
    if (!c.late)
        w = weft_build_param(&b, "w", WEFT_DTYPE_F32, 2, (int64_t[]){4, c.width});
    weft_vid y = weft_buildf(&b, WEFT_OP_SCALE, NULL, 1, &x, "alpha=%g", c.alpha);
    if (c.late) w = weft_build_param(&b, "w", WEFT_DTYPE_F32, 2, (int64_t[]){4, c.width});
    y = weft_build(&b, WEFT_OP_ADD, "sum", NULL, 2, c.crossed ? w : y, c.crossed ? y : w);
    assert_int_equal(b.st, WEFT_OK);
    weft_graph_set_output(g, y);
    uint64_t h = weft_graph_hash(g);
    weft_graph_destroy(g);
    return h;
}

static void hash_is_of_structure(void **state)
{
    (void)state;
    choice   base = {"x", 2, 8, false, false}, c = base;
    uint64_t h = hash_of(base);
    c.name     = "other";
    assert_true(hash_of(c) == h);
    c.late = true;
    assert_true(hash_of(c) == h);
    c = base, c.alpha = 3;
    assert_true(hash_of(c) != h);
    c = base, c.width = 9;
    assert_true(hash_of(c) != h);
    c = base, c.crossed = true;
    assert_true(hash_of(c) != h);
}

/* n blocks x + relu(x w_i) dropped out between a head and a tail; odd: block 2 has another
 * activation. */
static void blocks(int n, bool odd, weft_graph_layers *out)
{
    weft_graph *g;
    assert_int_equal(weft_graph_create("blocks", &g), WEFT_OK);
    weft_builder b = weft_build_start(g);
    weft_vid     t = weft_build_input(&b, "t", WEFT_DTYPE_F32, 2, (int64_t[]){4, 3});
    weft_vid     u = weft_build_param(&b, "u", WEFT_DTYPE_F32, 2, (int64_t[]){3, 8});
    weft_vid     x = weft_build(&b, WEFT_OP_MATMUL, "in", "spec=bd,dn->bn", 2, t, u);
    for (int i = 0; i < n; i++) {
        weft_vid w = weft_build_param(&b, "w", WEFT_DTYPE_F32, 2, (int64_t[]){8, 8});
        weft_vid y = weft_build(&b, WEFT_OP_MATMUL, "mm", "spec=bd,dn->bn", 2, x, w);
        y = weft_build(&b, odd && i == 2 ? WEFT_OP_TANH : WEFT_OP_RELU, "act", NULL, 1,
                       y);
        y = weft_buildf(&b, WEFT_OP_DROPOUT, "drop", 1, &y, "p=0.1 id=%d", i + 1);
        x = weft_build(&b, WEFT_OP_ADD, "x", NULL, 2, x, y);
    }
    x = weft_build(&b, WEFT_OP_REDUCE, "loss", "axes=[0,1]", 1, x);
    assert_int_equal(b.st, WEFT_OK);
    weft_graph_set_output(g, x);
    assert_int_equal(weft_graph_find_layers(g, out), WEFT_OK);
    weft_graph_destroy(g);
}

static void layers_are_found(void **state)
{
    (void)state;
    weft_graph_layers l;
    blocks(1, false, &l);
    assert_int_equal(l.count, 1);
    for (int n = 2; n < 20; n++) {
        blocks(n, false, &l);
        assert_int_equal(l.start, 1);
        assert_int_equal(l.length, 4);
        assert_int_equal(l.count, n);
    }
    blocks(8, true, &l); /* two, a stranger, five */
    assert_int_equal(l.start, 1 + 3 * 4);
    assert_int_equal(l.count, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_is_of_structure),
        cmocka_unit_test(layers_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
