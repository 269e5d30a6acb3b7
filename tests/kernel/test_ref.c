/* The reference kernels: every row has one and every row has a case; known answers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/status.h"
#include "kernel/mask.h"
#include "kernel/ref.h"
#include "support/fixture.h"
#include "support/op_cases.h"

static double *numbers(const weft_type *t)
{
    int64_t n = weft_shape_count(&t->shape);
    return WEFT_ARENA_ARRAY(arena, double, n ? n : 1);
}

/* Runs a case; gives its operands and results. */
static void run_case(const weft_test_case *c, uint64_t seed, weft_op_use *u, double ***in,
                     double ***out)
{
    char text[256];
    if (weft_test_case_make(c, arena, u) != WEFT_OK)
        fail_msg("%s: %s", weft_test_case_text(c, text, sizeof text), weft_error_text());
    *in  = WEFT_ARENA_ARRAY(arena, double *, u->n_in + 1);
    *out = WEFT_ARENA_ARRAY(arena, double *, u->n_out);
    for (int k = 0; k < u->n_in; k++) {
        (*in)[k] = numbers(&u->in[k]);
        weft_test_case_fill(c, u, k, seed, (*in)[k]);
    }
    for (int j = 0; j < u->n_out; j++) {
        (*out)[j] = numbers(&u->out[j]);
        for (int64_t i = 0, n = weft_shape_count(&u->out[j].shape); i < n; i++)
            (*out)[j][i] = NAN;
    }
    weft_ref_ctx ctx = {.seed = 7, .step = 3};
    if (weft_kernel_ref_run(u, (const double *const *)*in, *out, &ctx) != WEFT_OK)
        fail_msg("%s: %s", weft_test_case_text(c, text, sizeof text), weft_error_text());
}

/* Every result is written everywhere, with numbers. */
static void every_case_runs(void **state)
{
    (void)state;
    char text[256];
    for (int i = 0; i < weft_n_test_case; i++) {
        weft_op_use u;
        double    **in, **out;
        run_case(&weft_test_cases[i], 42, &u, &in, &out);
        for (int j = 0; j < u.n_out; j++)
            for (int64_t k = 0, n = weft_shape_count(&u.out[j].shape); k < n; k++)
                if (!isfinite(out[j][k]) && /* what sees no key */
                    !(u.op == WEFT_OP_ATTENTION && j == 1 && out[j][k] == -INFINITY))
                    fail_msg("%s: result %d[%ld] is %g",
                             weft_test_case_text(&weft_test_cases[i], text, sizeof text),
                             j, (long)k, out[j][k]);
    }
}

static void every_row_has_a_case(void **state)
{
    (void)state;
    bool seen[WEFT_N_OP] = {0};
    for (int i = 0; i < weft_n_test_case; i++) seen[weft_test_cases[i].op] = true;
    for (int op = 0; op < WEFT_N_OP; op++)
        if (!seen[op] && !(weft_op_get((weft_op)op)->flags & WEFT_OP_COMM))
            fail_msg("no test case for %s", weft_op_get((weft_op)op)->name);
}

/* ---- known answers ---- */

static weft_op_use one(weft_op op, const char *attr, const char *in, int n_out,
                       double ***x, double ***y)
{
    static weft_test_case c;
    weft_op_use           u;
    c = (weft_test_case){op, attr, in, n_out};
    run_case(&c, 1, &u, x, y);
    return u;
}
static void again(const weft_op_use *u, double **x, double **y, const weft_ref_ctx *ctx)
{
    assert_int_equal(weft_kernel_ref_run(u, (const double *const *)x, y, ctx), WEFT_OK);
}
static void near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-12 * fmax(1, fabs(b)));
}

static void gelu_known(void **state)
{
    (void)state;
    double    **x, **y;
    weft_op_use u = one(WEFT_OP_GELU, "approx=erf", "f32[1]", 1, &x, &y);
    x[0][0]       = 1;
    again(&u, x, y, NULL);
    assert_true(fabs(y[0][0] - 0.8413447460685429) <
                1e-12); /* the normal distribution at 1 */
    u       = one(WEFT_OP_GELU, "approx=tanh", "f32[1]", 1, &x, &y);
    x[0][0] = 1;
    again(&u, x, y, NULL);
    assert_true(fabs(y[0][0] - 0.8411919906082768) < 1e-12);
}

static void clip_known(void **state)
{
    (void)state;
    double    **x, **y;
    weft_op_use u = one(WEFT_OP_CLIP, "max_norm=1", "f64[]=9 f64[]=16", 2, &x, &y);
    near(y[0][0], 5);
    near(y[1][0], 1 / (5 + 1e-6));
    x[0][0] = 0.04, x[1][0] = 0;
    again(&u, x, y, NULL);
    near(y[1][0], 1);
}

/* A query that stands at the end sees everything; position follows the ends. */
static void causal_aligns_ends(void **state)
{
    (void)state;
    double **x, **y, **x2, **y2;
    one(WEFT_OP_ATTENTION, "causal=1", "f32[1,1,1,2] f32[1,4,1,2] f32[1,4,1,2]", 2, &x,
        &y);
    one(WEFT_OP_ATTENTION, "causal=0", "f32[1,1,1,2] f32[1,4,1,2] f32[1,4,1,2]", 2, &x2,
        &y2);
    near(y[0][0], y2[0][0]);
    near(y[1][0], y2[1][0]);
}

static void dispatch_known(void **state)
{
    (void)state;
    double    **x, **y;
    weft_op_use u = one(WEFT_OP_DISPATCH, "experts=3", "f32[3,1] i32[3,2]!3", 3, &x, &y);
    double      idx[6]  = {2, 0, 0, 2, 1, 0};
    double      want[6] = {1, 2, 5, 4, 0, 3}; /* expert 0: slots 1, 2, 5; 1: 4; 2: 0, 3 */
    for (int i = 0; i < 6; i++) x[1][i] = idx[i];
    again(&u, x, y, NULL);
    for (int i = 0; i < 6; i++) {
        near(y[2][i], want[i]);
        near(y[0][i], x[0][(int)want[i] / 2]);
    }
    near(y[1][0], 0);
    near(y[1][1], 3);
    near(y[1][2], 4);
    near(y[1][3], 6);
}

/* The rotation keeps lengths, and its inverse takes it back. */
static void rotary_turns(void **state)
{
    (void)state;
    double    **x, **y, **x2, **y2;
    const char *in = "f32[1,5,2,8]";
    weft_op_use u  = one(WEFT_OP_ROTARY, "kind=llama3 factor=8 orig=16", in, 1, &x, &y);
    weft_op_use v =
        one(WEFT_OP_ROTARY, "kind=llama3 factor=8 orig=16 inverse=1", in, 1, &x2, &y2);
    (void)u;
    x2[0] = y[0];
    again(&v, x2, y2, NULL);
    for (int i = 0; i < 80; i++) near(y2[0][i], x[0][i]);
    for (int i = 0; i < 16; i++) near(y[0][i], x[0][i]); /* position 0 is not turned */
    assert_true(fabs(y[0][16] - x[0][16]) > 1e-3);
    double c = cos(1.0), s = sin(1.0);
    u = one(WEFT_OP_ROTARY, "", in, 1, &x, &y); /* pair 0 at position 1: one radian */
    near(y[0][16], x[0][16] * c - x[0][20] * s);
    near(y[0][20], x[0][20] * c + x[0][16] * s);
}

/* T5's own answers for 32 buckets up to 128: near ones exact, far ones logarithmic. */
static void rel_bucket_known(void **state)
{
    (void)state;
    double    **x, **y;
    weft_op_use u = one(WEFT_OP_REL_BUCKET, "s=1 t=200", "", 1, &x, &y);
    (void)u;
    near(y[0][0], 0);
    near(y[0][7], 16 + 7);
    near(y[0][8], 16 + 8);
    near(y[0][12], 16 + 9);
    near(y[0][199], 16 + 15);
}

static void dropout_statistics(void **state)
{
    (void)state;
    double    **x, **y, **x2, **y2;
    weft_op_use u    = one(WEFT_OP_DROPOUT, "p=0.3 id=4", "f32[50,400]", 1, &x, &y);
    double      kept = 0;
    for (int i = 0; i < 20000; i++) {
        kept += y[0][i] != 0;
        if (y[0][i] != 0) near(y[0][i], x[0][i] / 0.7);
    }
    assert_true(fabs(kept / 20000 - 0.7) < 4 * sqrt(0.21 / 20000));

    /* another seed, step or op id: other bits; another place in the batch: the same sample's */
    weft_op_use  v   = one(WEFT_OP_DROPOUT, "p=0.3 id=4", "f32[50,400]", 1, &x2, &y2);
    weft_ref_ctx ctx = {.seed = 7, .step = 3};
    again(&v, x2, y2, &ctx);
    for (int i = 0; i < 20000; i++) assert_true(y[0][i] == y2[0][i]);
    const weft_ref_ctx other[] = {{.seed = 8, .step = 3},
                                  {.seed = 7, .step = 4},
                                  {.seed = 7 + (1ull << 32), .step = 3},
                                  {.seed = 7, .step = 3, .first_sample = 1ll << 32}};
    for (size_t k = 0; k < WEFT_COUNT(other); k++) {
        int differ = 0;
        again(&v, x2, y2, &other[k]);
        for (int i = 0; i < 20000; i++) differ += (y[0][i] == 0) != (y2[0][i] == 0);
        assert_true(fabs(differ / 20000.0 - 0.42) < 0.02);
    }
    ctx.first_sample = 10;
    again(&v, x2, y2, &ctx);
    for (int i = 0; i < 40 * 400; i++)
        assert_true((y2[0][i] == 0) == (y[0][10 * 400 + i] == 0));
    (void)u;
}

static void mask_edges(void **state)
{
    (void)state;
    assert_int_equal(weft_mask_least(0), 0);
    assert_int_equal(weft_mask_least(0.5), 1 << 23);
    assert_int_equal(weft_mask_least(1), 1 << 24);
    assert_int_equal(weft_mask_least(0x1p-25), 1);
    for (int i = 0; i < 1000; i++) { /* the integers say what the definition says */
        double    p = i / 1000.0;
        weft_mask m = weft_mask_make(1, 2, 3, 4, p);
        uint32_t  w[4];
        weft_mask_words(&m, i, w);
        for (int k = 0; k < 4; k++)
            assert_int_equal(weft_mask_keeps(&m, 4 * i + k),
                             (double)weft_random_uniform(w[k]) >= p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_a_case), cmocka_unit_test(every_case_runs),
        cmocka_unit_test(gelu_known),           cmocka_unit_test(clip_known),
        cmocka_unit_test(causal_aligns_ends),   cmocka_unit_test(dispatch_known),
        cmocka_unit_test(rotary_turns),         cmocka_unit_test(rel_bucket_known),
        cmocka_unit_test(dropout_statistics),   cmocka_unit_test(mask_edges),
    };
    return cmocka_run_group_tests(tests, test_arena_setup, test_arena_teardown);
}
