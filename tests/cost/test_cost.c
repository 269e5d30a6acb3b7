#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "cost/cost.h"

static const char cluster_text[] =
    "name: c\ndevice:\n"
    "  - {name: d, flops: {f32: 1e9}, efficiency: 0.5, mem_Bps: 1e6, mem_bytes: 1000, "
    "launch_s: 0.001}\n"
    "link:\n  - {name: l, alpha_s: 0.01, Bps: 1000}\n"
    "node:\n  - {name: n, device: d, n_device: 4, link: l}\n";

static const char program_text[] =
    "program p rank 0 of 4 micro 1 lanes 1 {\n"
    "  slab w work 100000\n  buffer a slab w at 0 bytes 32000\n  group [0,1,2,3]\n"
    "  actor x on compute {\n"
    "    compute big matmul \"spec=mk,kn->mn\" (a f32[50,50], a f32[50,50]) -> (a "
    "f32[50,50]) ;\n"
    "    compute wide add (a f32[50,50], a f32[50,50]) -> (a f32[50,50]) ;\n"
    "    compute told add (a f32[50,50], a f32[50,50]) -> (a f32[50,50]) seconds 7 ;\n"
    "    send s to 1 (a f32[500]) ;\n"
    "    collective r all_reduce group 0 (a f32[500]) -> (a f32[500]) ;\n"
    "    collective g all_gather group 0 (a f32[500]) -> (a f32[2000]) ;\n"
    "    mark m ;\n"
    "  }\n"
    "}\n";

static void prices(void **state)
{
    (void)state;
    weft_cluster *c;
    weft_program *p;
    double       *s;
    assert_int_equal(weft_cluster_parse("c", cluster_text, strlen(cluster_text), &c),
                     WEFT_OK);
    if (weft_program_parse("p", program_text, strlen(program_text), &p) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    assert_int_equal(weft_cost_program(p, c, p->arena, &s), WEFT_OK);
    const double want[] = {
        3 * 50 * 50 * 4 / 1e6 + 0.001, /* 30 ms of bytes against 0.5 ms of flops */
        3 * 50 * 50 * 4 / 1e6 + 0.001, 7,
        0.01 + 2000 / 1000.0,          2 * 2 * 0.01 + 2 * 0.75 * 2000 / 1000.0,
        2 * 0.01 + 3 * 2000 / 1000.0,  0,
    };
    for (size_t i = 0; i < WEFT_COUNT(want); i++)
        if (fabs(s[i] - want[i]) > 1e-12)
            fail_msg("instruction %d: %g for %g", (int)i, s[i], want[i]);
    c->device[0].mem_Bps = 1e12;
    assert_int_equal(weft_cost_program(p, c, p->arena, &s), WEFT_OK);
    assert_true(fabs(s[0] - (2 * 50 * 50 * 50 / (1e9 * 0.5) + 0.001)) < 1e-12);
    p->rank = 9;
    assert_int_equal(weft_cost_program(p, c, p->arena, &s), WEFT_ERR_ARG);
    weft_program_destroy(p);
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(prices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
