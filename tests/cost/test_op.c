#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "cost/fabric.h"
#include "cost/op.h"

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-9 * fabs(want)) fail_msg("%.12g for %.12g", got, want);
}

static void rooflines(void **state)
{
    (void)state;
    weft_flop_rate   rate[] = {{"bf16", 1e12, 0}, {"f8_e4m3", 2e12, 0.25}};
    weft_device_kind d      = {.name       = "d",
                               .n_rate     = 2,
                               .rate       = rate,
                               .efficiency = 0.5,
                               .mem_Bps    = 1e9,
                               .launch_s   = 1e-3,
                               .stream     = 0.5};
    weft_cost_op     p      = weft_cost_product("bf16", 2, 1000, 2000, 3000, 1);
    near(weft_cost_op_seconds(&p, &d), 2 * 11e6 / 5e8 + 1e-3); /* bound by memory */
    d.mem_Bps = 1e15;
    near(weft_cost_op_seconds(&p, &d), 1.2e10 / 5e11 + 1e-3);
    d.half_size = 1000; /* sums of 3000, 2e6 results against 6e6 */
    near(weft_cost_op_seconds(&p, &d), 1.2e10 / (5e11 * 0.75 * 0.25) + 1e-3);
    p = weft_cost_product(
        "f8_e4m3", 1, 1000, 1000, 1000,
        2); /* the rate's own share; twice as fast: sums twice as long */
    near(weft_cost_op_seconds(&p, &d), 4e9 / (2e12 * 0.25 / 3 * 0.25) + 1e-3);
    p = weft_cost_stream(1e12);
    near(weft_cost_op_seconds(&p, &d), 1e12 / 5e14 + 1e-3);
    p = weft_cost_attention("bf16", 1e12, 0);
    near(weft_cost_op_seconds(&p, &d), 1 / 0.5 + 1e-3);
    d.attention = 0.25;
    near(weft_cost_op_seconds(&p, &d), 4 + 1e-3);
}

/* A vocabulary that nobody padded: odd rows are loaded in pieces, the more so by newer devices. */
static void rows_that_begin_anywhere(void **state)
{
    (void)state;
    weft_flop_rate   rate[] = {{"f16", 1e12, 0}, {"f8_e4m3", 2e12, 0}};
    weft_device_kind d      = {
             .name = "d", .n_rate = 1, .rate = rate, .efficiency = 0.5, .mem_Bps = 1e15};
    weft_cost_op p    = weft_cost_product("f16", 2, 1000, 2000, 3000, 1);
    double       even = weft_cost_op_seconds(&p, &d);
    p.unit            = 8;
    near(weft_cost_op_seconds(&p, &d), even);
    p.unit = 4;
    near(weft_cost_op_seconds(&p, &d), even / 0.66);
    p.unit = 1;
    near(weft_cost_op_seconds(&p, &d), even / 0.33);
    d.n_rate = 2;
    near(weft_cost_op_seconds(&p, &d), even / 0.165);
}

static void groups(void **state)
{
    (void)state;
    weft_cost_fabric f  = {.domain = 8,
                           .in     = {.alpha_s = 1e-6, .Bps = 1e11},
                           .out    = {.alpha_s = 1e-5, .Bps = 1e10}};
    weft_cost_group  in = {8, 1}, wide = {8, 8}, both = {16, 1};
    near(weft_cost_group_seconds(&f, in, WEFT_ALL_REDUCE, 1e9),
         6e-6 + 2 * 0.875 * 1e9 / 1e11);
    /* one member a domain: each has its own wire */
    near(weft_cost_group_seconds(&f, wide, WEFT_ALL_REDUCE, 1e9),
         6e-5 + 2 * 0.875 * 1e9 / 1e10);
    /* eight members of a domain share eight wires */
    near(weft_cost_group_seconds(&f, both, WEFT_ALL_REDUCE, 1e9),
         2 * (3e-6 + 1e-5) + 2 * 15.0 / 16 * 1e9 / 8e10);
    /* gathers go once round */
    near(weft_cost_group_seconds(&f, both, WEFT_ALL_GATHER, 1e8),
         15e-5 + 15 * 1e8 / 8e10);
    /* half of an all-to-all leaves, each by its own wire */
    near(weft_cost_group_seconds(&f, both, WEFT_ALL_TO_ALL, 1e9),
         3e-6 + 1e-5 + 0.5 * 1e9 / 1e10);
    assert_int_equal(weft_cost_group_domains(&f, both), 2);
    assert_int_equal(weft_cost_group_domains(&f, in), 1);
    near(weft_cost_send_seconds(&f, in, 1e9), 1e-6 + 1e-2);
    near(weft_cost_send_seconds(&f, wide, 1e9), 1e-5 + 1e-1);
    assert_true(weft_cost_send_seconds(&f, (weft_cost_group){1, 8}, 1e9) == 0);
    f.out.decay = 0.5; /* 8 domains: half */
    near(weft_cost_group_seconds(&f, wide, WEFT_REDUCE_SCATTER, 1e9),
         7e-5 + 0.875 * 1e9 / 0.5e10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rooflines),
                                       cmocka_unit_test(rows_that_begin_anywhere),
                                       cmocka_unit_test(groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
