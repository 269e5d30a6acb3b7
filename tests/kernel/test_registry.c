/* Which kernel a call gets: tables in the order they were registered, rows that take it or not;
 * one clear line where there is none. */
#include "kernel/kernel.h"
#include "support/fixture.h"
#include "support/test.h"

/* ---- kernels that do nothing, for a device that is only a name ---- */

static weft_status run_nothing(const weft_kernel_call *c, const weft_kernel_ctx *x)
{
    (void)c, (void)x;
    return WEFT_OK;
}

static weft_status prepare_nothing(const weft_kernel_call *c, const weft_kernel_ctx *x,
                                   weft_arena *a, void **out)
{
    (void)c, (void)x, (void)a, (void)out;
    return WEFT_OK;
}

static void release_never(void *prepared)
{
    fail_msg("released %p, which was never prepared", prepared);
}

static bool takes_eight(const weft_kernel_call *c)
{
    return c->in[0].shape.d[0] % 8 == 0;
}

static bool takes_plain(const weft_kernel_call *c)
{
    return !c->add && !c->n_post;
}

static const char *first_id(void)
{
    return "first";
}

static const char *second_id(void)
{
    return "second";
}

enum {
    F32  = 1u << WEFT_DTYPE_F32,
    BF16 = 1u << WEFT_DTYPE_BF16
};

static const weft_kernel general[] = {
    {.op = WEFT_OP_ADD, .run = run_nothing, .takes = takes_eight}, /* the fast one */
    {.op = WEFT_OP_ADD, .run = run_nothing},
    {.op = WEFT_OP_MUL, .run = run_nothing, .takes = takes_plain},
    {.op      = WEFT_OP_SCALE,
     .run     = run_nothing,
     .prepare = prepare_nothing,
     .release = release_never},
};
static const weft_kernel late[] = {
    {.op = WEFT_OP_ADD, .run = run_nothing, .takes = takes_plain},
};

#define TABLE(name, types, id_fn, rows)                                                  \
    {                                                                                    \
        .device = name, .storage = types, .id = id_fn, .n = (int)WEFT_COUNT(rows),       \
        .kernel = rows                                                                   \
    }
static const weft_kernel_table first  = TABLE("pretend", F32, first_id, general);
static const weft_kernel_table second = TABLE("pretend", F32 | BF16, second_id, late);

/* ---- one operand, one result ---- */

typedef struct unary_call {
    weft_view        in, out;
    weft_kernel_call call;
} unary_call;

static const weft_kernel_call *call_of(weft_op op, weft_dtype t, int64_t n, unsigned add)
{
    static unary_call u;
    weft_shape        s = weft_shape_make(1, &n);
    u.in = u.out = weft_view_make(NULL, t, &s);
    u.call       = (weft_kernel_call){.op        = op,
                                      .n_in      = 1,
                                      .n_own_in  = 1,
                                      .n_out     = 1,
                                      .n_own_out = 1,
                                      .in        = &u.in,
                                      .out       = &u.out,
                                      .add       = add};
    return &u.call;
}

static const weft_kernel *find(const weft_kernel_call *c)
{
    const weft_kernel *k = NULL;
    assert_ok(weft_kernel_find("pretend", c, &k));
    return k;
}

/* Before anything else is registered. */
static void the_cpu_is_there(void **state)
{
    (void)state;
    const weft_kernel *k;
    assert_string_equal(weft_kernel_table_at(0)->device, "cpu");
    assert_null(weft_kernel_table_at(1));
    assert_null(weft_kernel_table_at(-1));
    assert_ok(weft_kernel_find("cpu", call_of(WEFT_OP_ADD, WEFT_DTYPE_F32, 8, 0), &k));
    assert_string_equal(weft_kernel_set_id("cpu"), weft_kernel_table_at(0)->id());
    assert_string_equal(weft_kernel_set_id("pretend"), "");
    assert_fails(
        weft_kernel_find("pretend", call_of(WEFT_OP_ADD, WEFT_DTYPE_F32, 8, 0), &k),
        WEFT_ERR_ARG,
        "no kernel for add on pretend in f32: no kernels are registered for pretend");
}

static void the_first_row_that_takes_it(void **state)
{
    (void)state;
    assert_ok(weft_kernel_register(&first));
    assert_ok(weft_kernel_register(&first)); /* changes nothing */
    assert_ptr_equal(weft_kernel_table_at(1), &first);
    assert_null(weft_kernel_table_at(2));
    assert_ptr_equal(find(call_of(WEFT_OP_ADD, WEFT_DTYPE_F32, 16, 0)), &general[0]);
    assert_ptr_equal(find(call_of(WEFT_OP_ADD, WEFT_DTYPE_F32, 15, 0)), &general[1]);
    assert_ptr_equal(find(call_of(WEFT_OP_MUL, WEFT_DTYPE_F32, 15, 0)), &general[2]);
    /* and the CPU's are as they were */
    const weft_kernel *k;
    assert_ok(weft_kernel_find("cpu", call_of(WEFT_OP_ADD, WEFT_DTYPE_F32, 16, 0), &k));
    assert_ptr_not_equal(k, &general[0]);
}

static void later_tables_first(void **state)
{
    (void)state;
    assert_ok(weft_kernel_register(&second));
    assert_ptr_equal(find(call_of(WEFT_OP_ADD, WEFT_DTYPE_F32, 16, 0)), &late[0]);
    assert_ptr_equal(find(call_of(WEFT_OP_ADD, WEFT_DTYPE_BF16, 16, 0)), &late[0]);
    /* not taken there: the earlier table's */
    assert_ptr_equal(find(call_of(WEFT_OP_ADD, WEFT_DTYPE_F32, 16, 1)), &general[0]);
    assert_string_equal(weft_kernel_set_id("pretend"), "first+second");
}

static void one_line_where_there_is_none(void **state)
{
    (void)state;
    const struct {
        weft_op     op;
        weft_dtype  type;
        unsigned    add;
        const char *text;
    } cases[] = {
        {WEFT_OP_MATMUL, WEFT_DTYPE_F32, 0, "no kernel for matmul on pretend in f32"},
        {WEFT_OP_MUL, WEFT_DTYPE_BF16, 0, "no kernel for mul on pretend in bf16"},
        {WEFT_OP_MUL, WEFT_DTYPE_F32, 1,
         "no kernel for mul on pretend in f32 takes f32[15], added"},
    };
    for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
        const weft_kernel *k;
        assert_int_equal(
            weft_kernel_find("pretend",
                             call_of(cases[i].op, cases[i].type, 15, cases[i].add), &k),
            WEFT_ERR_ARG);
        assert_string_equal(weft_error_text(), cases[i].text);
    }
}

static void what_is_not_prepared_is_not_released(void **state)
{
    (void)state;
    weft_kernel_call   c = *call_of(WEFT_OP_SCALE, WEFT_DTYPE_F32, 15, 0);
    const weft_kernel *k = find(&c);
    assert_int_equal(weft_kernel_scratch(k, &c, 2), 0);
    assert_ok(weft_kernel_prepare(k, &(weft_kernel_ctx){0}, arena, &c));
    assert_null(c.prepared);
    weft_kernel_release(k, &c);
}

static void bad_tables_are_refused(void **state)
{
    (void)state;
    static const weft_kernel no_run[]     = {{.op = WEFT_OP_ADD}};
    static const weft_kernel no_prepare[] = {
        {.op = WEFT_OP_ADD, .run = run_nothing, .release = release_never}};
    static const weft_kernel       no_op[]  = {{.op = WEFT_N_OP, .run = run_nothing}};
    static const weft_kernel_table tables[] = {
        TABLE("bad", F32, first_id, no_run), TABLE("bad", F32, first_id, no_prepare),
        TABLE("bad", F32, first_id, no_op),  TABLE("", F32, first_id, late),
        TABLE("bad", 0, first_id, late),     TABLE("bad", F32, NULL, late),
    };
    static const char *const text[] = {
        "kernels of bad, row 0: add has no run",
        "kernels of bad, row 0: add has a release and no prepare",
        "kernels of bad, row 0: no operator",
        "needs a device, storage types and an id",
        "needs a device, storage types and an id",
        "needs a device, storage types and an id",
    };
    int n = 0;
    while (weft_kernel_table_at(n)) n++;
    for (size_t i = 0; i < WEFT_COUNT(tables); i++)
        assert_fails(weft_kernel_register(&tables[i]), WEFT_ERR_ARG, text[i]);
    assert_null(weft_kernel_table_at(n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cpu_is_there),
        cmocka_unit_test(the_first_row_that_takes_it),
        cmocka_unit_test(later_tables_first),
        cmocka_unit_test(one_line_where_there_is_none),
        with_arena(what_is_not_prepared_is_not_released),
        cmocka_unit_test(bad_tables_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
