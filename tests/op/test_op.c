/* Rows: names, arity, attributes as text and back, shape rules that say no, counts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/status.h"
#include "base/text.h"
#include "support/fixture.h"
#include "support/op_cases.h"

static void rows_are_whole(void **state)
{
    (void)state;
    for (int i = 0; i < WEFT_N_OP; i++) {
        const weft_op_row *row = weft_op_get((weft_op)i);
        weft_op            back;
        int                in_min, in_max, out_min, out_max;
        assert_true(weft_op_find(row->name, &back));
        assert_int_equal(back, i); /* names are unique */
        weft_op_arity((weft_op)i, &in_min, &in_max, &out_min, &out_max);
        assert_true(in_min >= 0 && in_min <= in_max && out_max >= 1 &&
                    out_min <= out_max);
        assert_non_null(row->shape);
        assert_non_null(row->flops);
        assert_non_null(row->bytes);
        assert_true(weft_op_n_attr((weft_op)i) <= WEFT_MAX_ATTR);
    }
    assert_string_equal(weft_op_suggest("matmull"), "matmul");
}

/* What the defaults of strings are is in the row; a default that is not known there would be "". */
static void defaults_are_read(void **state)
{
    (void)state;
    for (int i = 0; i < WEFT_N_OP; i++) {
        weft_attr attr[WEFT_MAX_ATTR];
        char      name[32], want[64];
        weft_op_attr_defaults((weft_op)i, attr);
        for (int k = 0; k < weft_op_n_attr((weft_op)i); k++) {
            if (weft_op_attr_type((weft_op)i, k) != WEFT_ATTR_STRING) continue;
            weft_op_attr_name((weft_op)i, k, name, sizeof name);
            snprintf(want, sizeof want, "%s:s=%s", name, attr[k].s);
            if (*attr[k].s) assert_non_null(strstr(weft_op_get((weft_op)i)->attr, want));
            snprintf(want, sizeof want, "%s:s=", name);
            if (!*attr[k].s) assert_null(strstr(weft_op_get((weft_op)i)->attr, want));
        }
    }
}

static void attributes_read_back(void **state)
{
    (void)state;
    for (int i = 0; i < weft_n_test_case; i++) {
        const weft_test_case *c = &weft_test_cases[i];
        weft_attr             a[WEFT_MAX_ATTR], b[WEFT_MAX_ATTR];
        weft_text             t = {0}, t2 = {0};
        assert_int_equal(weft_op_parse_attr(c->op, c->attr, arena, a), WEFT_OK);
        weft_op_print_attr(c->op, a, &t);
        assert_int_equal(weft_op_parse_attr(c->op, t.s, arena, b), WEFT_OK);
        weft_op_print_attr(c->op, b, &t2);
        assert_string_equal(t.s ? t.s : "", t2.s ? t2.s : "");
        for (int k = 0; k < weft_op_n_attr(c->op); k++) {
            assert_true(a[k].i == b[k].i && a[k].f == b[k].f && a[k].n == b[k].n);
            assert_memory_equal(a[k].l, b[k].l, sizeof(int64_t) * (size_t)a[k].n);
        }
        weft_text_fini(&t);
        weft_text_fini(&t2);
    }
}

static void says_no(void **state)
{
    (void)state;
    static const weft_test_case bad[] = {
        {WEFT_OP_MATMUL, "spec=mk,kn->mn", "f32[3,5] f32[4,7]", 1},
        {WEFT_OP_MATMUL, "spec=mk,kn", "f32[3,5] f32[5,7]", 1},
        {WEFT_OP_MATMUL, "spec=mk,kn->mz", "f32[3,5] f32[5,7]", 1},
        {WEFT_OP_MATMUL, "spec=mkk,kn->mn", "f32[3,5,5] f32[5,7]", 1},
        {WEFT_OP_ADD, "", "f32[3,5] f32[4]", 1},
        {WEFT_OP_ADD, "", "f32[3,5]", 1},
        {WEFT_OP_GELU_GRAD, "", "f32[3] f32[4]", 1},
        {WEFT_OP_LAYER_NORM, "", "f32[3,5] f32[4] f32[5]", 3},
        {WEFT_OP_LAYER_NORM, "", "f32[3,5] f32[5] f32[5]", 2},
        {WEFT_OP_ROTARY, "", "f32[2,3,2,5]", 1},
        {WEFT_OP_ROTARY, "", "f32[2,3,4]", 1},
        {WEFT_OP_ATTENTION, "", "f32[1,2,3,4] f32[1,2,2,4] f32[1,2,2,4]", 2},
        {WEFT_OP_ATTENTION_GRAD, "", "f32[2] f32[2] f32[2] f32[2] f32[2] f32[2]", 3},
        {WEFT_OP_EMBEDDING, "", "f32[7,5] f32[2]", 1},
        {WEFT_OP_CROSS_ENTROPY, "", "f32[2,7] i32[3]", 2},
        {WEFT_OP_REDUCE, "axes=[2]", "f32[2,7]", 1},
        {WEFT_OP_REDUCE, "axes=[0] kind=min", "f32[2,7]", 1},
        {WEFT_OP_RESHAPE, "shape=[4]", "f32[2,3]", 1},
        {WEFT_OP_TRANSPOSE, "perm=[0,0]", "f32[2,3]", 1},
        {WEFT_OP_CONCAT, "axis=0", "f32[2,3] f32[2,4]", 1},
        {WEFT_OP_SPLIT, "axis=0 sizes=[1,2]", "f32[4,3]", 2},
        {WEFT_OP_SLICE, "axis=0 start=1 stop=5", "f32[4]", 1},
        {WEFT_OP_ROUTE, "k=5", "f32[3,4]", 2},
        {WEFT_OP_ROUTE_GRAD, "k=2", "f32[5,4] f32[5,3] i32[5,3] f32[5,3]", 1},
        {WEFT_OP_DISPATCH_GRAD, "k=2", "f32[10,3] i32[9]", 1},
        {WEFT_OP_COMBINE, "", "f32[10,3] f32[5,2] i32[9]", 1},
        {WEFT_OP_COMBINE_GRAD, "", "f32[5,4] f32[10,3] f32[5,2] i32[10]", 2},
        {WEFT_OP_GROUPED_MATMUL_WGRAD, "", "f32[7,3] f32[6,5] i32[4]", 1},
        {WEFT_OP_CONV2D, "stride=[1,1] pad=[0,0]", "f32[1,2,3,3] f32[4,3,1,1]", 1},
        {WEFT_OP_CONV2D, "stride=[0,1] pad=[0,0]", "f32[1,2,3,3] f32[4,2,1,1]", 1},
        {WEFT_OP_CONV2D_GRAD_X, "stride=[1,1] pad=[1,1] size=[5,5]",
         "f32[2,4,5,4] f32[4,3,3,3]", 1},
        {WEFT_OP_CONV2D_GRAD_W, "stride=[1,1] pad=[1,1] size=[2,3]",
         "f32[2,4,5,4] f32[2,3,5,4]", 1},
        {WEFT_OP_MAX_POOL_GRAD, "size=[4,6]", "f32[2,3,2,3] i32[2,3,2,2]", 1},
        {WEFT_OP_AVG_POOL_GRAD, "kernel=[2,2] stride=[2,2] pad=[0,0] size=[9,6]",
         "f32[2,3,2,3]", 1},
        {WEFT_OP_ADAMW, "", "f32[3] f32[4] f32[3] f32[3] f32[] f32[] f32[]", 3},
    };
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        weft_op_use u;
        char        text[256];
        if (weft_test_case_make(&bad[i], arena, &u) != WEFT_ERR_ARG)
            fail_msg("%s: accepted", weft_test_case_text(&bad[i], text, sizeof text));
        const char *name = weft_op_get(bad[i].op)->name;
        if (strncmp(weft_error_text(), name, strlen(name)) != 0)
            fail_msg("'%s' does not name %s", weft_error_text(), name);
    }
}

static void bad_attributes(void **state)
{
    (void)state;
    weft_attr a[WEFT_MAX_ATTR];
    assert_int_equal(weft_op_parse_attr(WEFT_OP_DROPOUT, "q=1", arena, a), WEFT_ERR_ARG);
    assert_int_equal(weft_op_parse_attr(WEFT_OP_DROPOUT, "p=x", arena, a), WEFT_ERR_ARG);
    assert_int_equal(weft_op_parse_attr(WEFT_OP_DROPOUT, "p", arena, a), WEFT_ERR_ARG);
    assert_int_equal(weft_op_parse_attr(WEFT_OP_RESHAPE, "shape=[1,", arena, a),
                     WEFT_ERR_ARG);
    assert_int_equal(weft_op_parse_attr(WEFT_OP_RESHAPE, "shape=3", arena, a),
                     WEFT_ERR_ARG);
    assert_int_equal(weft_op_parse_attr(WEFT_OP_ATTENTION, "casual=1", arena, a),
                     WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "causal"));
}

static double flops_of(weft_test_case c)
{
    weft_op_use u;
    assert_int_equal(weft_test_case_make(&c, arena, &u), WEFT_OK);
    return weft_op_flops(&u);
}

static void counts(void **state)
{
    (void)state;
    for (int i = 0; i < weft_n_test_case; i++) {
        weft_op_use u;
        assert_int_equal(weft_test_case_make(&weft_test_cases[i], arena, &u), WEFT_OK);
        assert_true(isfinite(weft_op_flops(&u)) && weft_op_flops(&u) >= 0);
        assert_true(isfinite(weft_op_bytes(&u)) && weft_op_bytes(&u) >= 0);
    }
    assert_true(flops_of((weft_test_case){WEFT_OP_MATMUL, "spec=mk,kn->mn",
                                          "f32[3,5] f32[5,7]", 1}) == 2 * 3 * 5 * 7);
    /* two products of (s,e)(e,t): all pairs, and those on or below the diagonal */
    const char *qkv = "f32[2,4,3,8] f32[2,4,3,8] f32[2,4,3,8]";
    assert_true(flops_of((weft_test_case){WEFT_OP_ATTENTION, "causal=0", qkv, 2}) ==
                4.0 * 2 * 3 * 8 * 16);
    assert_true(flops_of((weft_test_case){WEFT_OP_ATTENTION, "causal=1", qkv, 2}) ==
                4.0 * 2 * 3 * 8 * 10);
    assert_true(flops_of((weft_test_case){WEFT_OP_CONV2D, "stride=[1,1] pad=[1,1]",
                                          "f32[2,3,5,4] f32[4,3,3,3]", 1}) ==
                2.0 * (2 * 4 * 5 * 4) * 27);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_whole),       cmocka_unit_test(defaults_are_read),
        cmocka_unit_test(attributes_read_back), cmocka_unit_test(says_no),
        cmocka_unit_test(bad_attributes),       cmocka_unit_test(counts),
    };
    return cmocka_run_group_tests(tests, test_arena_setup, test_arena_teardown);
}
