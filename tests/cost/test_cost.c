#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
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
    "  stream compute compute device 0 threads 0\n"
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

/* A GPU of four times the rate in 8 bits, and one without. */
static const char eight_text[] =
    "name: c\ndevice:\n"
    "  - {name: gpu, flops: {bf16: 1e12, f8_e4m3: 4e12}, efficiency: 0.5, mem_Bps: 1e9, "
    "mem_bytes: 1000, launch_s: 0.001}\n"
    "  - {name: old, flops: {bf16: 1e12}, efficiency: 0.5, mem_Bps: 1e9, "
    "mem_bytes: 1000, launch_s: 0.001}\n"
    "link:\n  - {name: l, alpha_s: 0.01, Bps: 1000}\n"
    "  - {name: m, scope: net, alpha_s: 0.1, Bps: 100}\n"
    "node:\n  - {name: n, device: gpu, n_device: 1, link: l, net: m}\n"
    "  - {name: o, device: old, n_device: 1, link: l, net: m}\n";

static const char eight_program[] =
    "program p rank %d of 2 micro 1 lanes 1 {\n"
    "  slab w work 100000000\n  buffer a slab w at 0 bytes 64000000\n"
    "  stream compute compute device 0 threads 0\n"
    "  actor x on compute {\n"
    "    compute rows matmul \"spec=mk,nk->mn fp8=e4m3,e4m3\" (a bf16[1000,1000], a "
    "bf16[1000,1000]) -> (a "
    "bf16[1000,1000]) ;\n"
    "    compute turned matmul \"spec=km,kn->mn fp8=e4m3,e4m3\" (a bf16[1000,1000], a "
    "bf16[1000,1000]) -> (a "
    "bf16[1000,1000]) ;\n"
    "  }\n"
    "}\n";

/* The product at the rate of 8 bits (or of bf16 where there is none), bytes of codes and scales,
 * and their launches. */
static void fp8_matmuls(void **state)
{
    (void)state;
    weft_cluster *c;
    if (weft_cluster_parse("c", eight_text, strlen(eight_text), &c) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    for (int rank = 0; rank < 2; rank++) {
        weft_program *p;
        double       *s, flops = 2e9 / (rank ? 0.5e12 : 2e12), bytes = 6e6 / 1e9;
        char          text[2000];
        snprintf(text, sizeof text, eight_program, rank);
        if (weft_program_parse("p", text, strlen(text), &p) != WEFT_OK)
            fail_msg("%s", weft_error_text());
        assert_int_equal(weft_cost_program(p, c, p->arena, &s), WEFT_OK);
        double product = (flops > bytes ? flops : bytes) + 4 * 0.001;
        if (fabs(s[0] - (product + 2e6 * 4 / 1e9)) > 1e-12)
            fail_msg("rank %d, rows: %g for %g", rank, s[0], product + 2e6 * 4 / 1e9);
        if (fabs(s[1] - (product + 2e6 * 6 / 1e9)) > 1e-12)
            fail_msg("rank %d, turned: %g for %g", rank, s[1], product + 2e6 * 6 / 1e9);
        weft_program_destroy(p);
    }
    weft_cluster_destroy(c);
}

/* Two nodes of four devices with two ports: islands of 4, each rank has half a port while all
 * talk. */
static const char two_nodes[] =
    "name: c\ndevice:\n"
    "  - {name: d, flops: {f32: 1e9}, efficiency: 0.5, mem_Bps: 1e6, mem_bytes: 1000}\n"
    "link:\n  - {name: l, alpha_s: 0.01, Bps: 1000, share: 0.5}\n"
    "  - {name: m, scope: net, alpha_s: 0.1, Bps: 100}\n"
    "node:\n  - {name: n, count: 2, device: d, n_device: 4, link: l, net: m, n_port: 2}\n"
    "health:\n  - {node: 1, device: 3, state: degraded, speed: 0.5}\n";

static const char far_text[] =
    "program p rank %d of 8 micro 1 lanes 1 {\n"
    "  slab w work 100000\n  buffer a slab w at 0 bytes 32000\n"
    "  group [0,1,2,3,4,5,6,7]\n  group [3,7]\n"
    "  stream compute compute device 0 threads 0\n"
    "  actor x on compute {\n"
    "    compute wide add (a f32[50,50], a f32[50,50]) -> (a f32[50,50]) ;\n"
    "    send s to %d (a f32[500]) ;\n"
    "    collective r all_reduce group 0 (a f32[500]) -> (a f32[500]) ;\n"
    "    collective q reduce_scatter group 0 (a f32[800]) -> (a f32[100]) ;\n"
    "    collective g all_gather group 0 (a f32[500]) -> (a f32[4000]) ;\n"
    "    collective v all_reduce group 1 (a f32[500]) -> (a f32[500]) ;\n"
    "  }\n"
    "}\n";

static void links_that_are_taken(void **state)
{
    (void)state;
    weft_cluster *c;
    weft_program *p;
    double       *s, level[WEFT_COST_LEVELS] = {0};
    char          text[2000];
    if (weft_cluster_parse("c", two_nodes, strlen(two_nodes), &c) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    snprintf(text, sizeof text, far_text, 7, 3);
    if (weft_program_parse("p", text, strlen(text), &p) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    assert_int_equal(weft_cost_program(p, c, p->arena, &s), WEFT_OK);
    const double in = 1 / 500.0, out = 1 / 50.0, S = 2000;
    const double want[] = {
        2 * 3 * 50 * 50 * 4 / 1e6, /* at half speed */
        0.1 + S * out,             /* two ports, four talkers */
        2 * (2 * 0.01 + 0.75 * S * in) + 2 * 0.1 + 2 * 0.5 * S / 4 * out,
        2 * 0.01 + 0.75 * 3200 * in + 0.1 + 0.5 * 3200 / 4 * out,
        0.1 + S * out + 2 * 0.01 + 3 * 2 * S * in,
        2 * 0.1 + 2 * 0.5 * S * out,
    };
    for (size_t i = 0; i < WEFT_COUNT(want); i++)
        if (fabs(s[i] - want[i]) > 1e-9)
            fail_msg("instruction %d: %g for %g", (int)i, s[i], want[i]);
    assert_int_equal(weft_cost_traffic(p, &p->actor[0].instr[1], c, level), WEFT_OK);
    assert_int_equal(weft_cost_traffic(p, &p->actor[0].instr[2], c, level), WEFT_OK);
    assert_true(fabs(level[1] - 2 * 0.75 * S) < 1e-9);
    assert_true(fabs(level[2] - (S + 2 * 0.5 * S / 4)) < 1e-9);
    weft_program_destroy(p);
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(prices),
                                       cmocka_unit_test(fp8_matmuls),
                                       cmocka_unit_test(links_that_are_taken)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
