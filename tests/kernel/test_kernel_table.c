/* What the operator table (support/op_table.h) finds: the CPU's kernels with one mistake each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/kernels.h"
#include "support/op_table.h"
#include "support/test.h"

/* ---- kernels with a mistake ---- */

static const weft_kernel *right; /* the CPU's */

static weft_kernel copy_right(weft_op op)
{
    const weft_kernel_table *t = weft_kernel_table_at(0);
    for (int i = 0; i < t->n; i++)
        if (t->kernel[i].op == op) {
            right = &t->kernel[i];
            return t->kernel[i];
        }
    return (weft_kernel){0};
}

static weft_kernel make_wrong(weft_op op, weft_kernel_fn run)
{
    weft_kernel k = {0};
    if (op == WEFT_OP_MUL) k = copy_right(op);
    if (k.run) k.run = run;
    return k;
}

#define WRONG(name, after)                                                               \
    static weft_status run_##name(const weft_kernel_call *c, const weft_kernel_ctx *x)   \
    {                                                                                    \
        weft_status st = right->run(c, x);                                               \
        int64_t     n  = weft_shape_count(&c->out[0].shape);                             \
        if (st == WEFT_OK && n > 0) after;                                               \
        return st;                                                                       \
    }                                                                                    \
    static weft_kernel choose_##name(weft_op op)                                         \
    {                                                                                    \
        return make_wrong(op, run_##name);                                               \
    }

static int n_run;

static size_t element(const weft_kernel_call *c)
{
    return (size_t)weft_dtype_bytes(c->out[0].dtype);
}

/* One element is as it was: poison. */
WRONG(unwritten, memset(c->out[0].p, 0xff, element(c)))
WRONG(number, memset(c->out[0].p, 0x3f, element(c)))
WRONG(operand, memset(c->in[1].p, 0x3f, element(c)))
/* In front of it: behind it may be a gap that is part of the view. */
WRONG(outside, memset((char *)c->out[0].p - 64, 0, 1))
/* Other bits when it runs again. */
WRONG(unsteady, if (n_run++ % 2) * (char *)c->out[0].p ^= 1)
static weft_status run_failing(const weft_kernel_call *c, const weft_kernel_ctx *x)
{
    (void)c, (void)x;
    return WEFT_FAIL(WEFT_ERR_ARG, "broken on purpose");
}

static weft_kernel choose_failing(weft_op op)
{
    return make_wrong(op, run_failing);
}

static weft_kernel choose_nothing(weft_op op)
{
    (void)op;
    return (weft_kernel){0};
}

static bool takes_dense(const weft_kernel_call *c)
{
    return weft_view_contiguous(&c->in[0]);
}

/* A row that does not keep its promise about strides. */
static weft_kernel choose_dense(weft_op op)
{
    weft_kernel k = make_wrong(op, NULL);
    if (op == WEFT_OP_MUL) k.run = right->run, k.takes = takes_dense;
    return k;
}

static weft_kernel choose_right(weft_op op)
{
    return op == WEFT_OP_MUL ? copy_right(op) : (weft_kernel){0};
}

/* ---- */

static void run_table(const char           *name, weft_kernel (*choose)(weft_op op),
                      weft_op_table_report *r, char **text)
{
    size_t                n;
    FILE                 *out = open_memstream(text, &n);
    weft_op_table_options o   = {
          .only = "mul", .seed = 5, .small = true, .quiet = true, .out = out};
    assert_non_null(out);
    assert_ok(weft_op_table_run(test_device_with(name, choose), &o, r));
    fclose(out);
}

static void finds_mistakes(void **state)
{
    (void)state;
    const struct {
        const char *name;
        weft_kernel (*choose)(weft_op op);
        const char *says;
    } cases[] = {
        {"unwritten", choose_unwritten, "nan by norm"},
        {"number", choose_number, "by norm, above 1e-05"},
        {"operand", choose_operand, "operand 1 was written to"},
        {"outside", choose_outside, "outside of operands"},
        {"unsteady", choose_unsteady, "the same call again"},
        {"failing", choose_failing, "broken on purpose"},
        {"dense", choose_dense, "no kernel takes it"},
    };
    for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
        weft_op_table_report r;
        char                *text;
        run_table(cases[i].name, cases[i].choose, &r, &text);
        if (!r.n_failed || !strstr(text, cases[i].says))
            fail_msg("%s: %d failed, '%s' is not said in: %s", cases[i].name, r.n_failed,
                     cases[i].says, text);
        assert_int_equal(r.n_missing, 0);
        free(text);
    }
}

static void finds_nothing_wrong(void **state)
{
    (void)state;
    weft_op_table_report r;
    char                *text;
    run_table("right", choose_right, &r, &text);
    assert_int_equal(r.n_failed + r.n_missing + r.n_without_case, 0);
    assert_true(r.n_trial > 10);
    assert_string_equal(text, "");
    free(text);
}

static void counts_missing_rows(void **state)
{
    (void)state;
    weft_op_table_report r;
    char                *text;
    run_table("nothing", choose_nothing, &r, &text);
    assert_int_equal(r.n_missing, 2);
    assert_int_equal(r.n_trial, 0);
    free(text);
}

static void knows_operators_by_name(void **state)
{
    (void)state;
    weft_op_table_report  r;
    weft_op_table_options o = {.only = "add,mull", .quiet = true};
    assert_fails(weft_op_table_run(weft_device_cpu(), &o, &r), WEFT_ERR_ARG,
                 "no operator 'mull'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_nothing_wrong),
        cmocka_unit_test(finds_mistakes),
        cmocka_unit_test(counts_missing_rows),
        cmocka_unit_test(knows_operators_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
