/* Measured times: read and printed, learned, looked up, and ranks that share a host's cores. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cost/cost.h"
#include "program/work.h"
#include "support/sim.h"
#include "support/test.h"

#define HEAD                                                                             \
    "name: c\ndevice:\n  - {name: d, flops: {f32: 1e9}, mem_Bps: 1e6, mem_bytes: 1000, " \
    "launch_s: 0.001}\n"                                                                 \
    "link:\n  - {name: l, alpha_s: 0.01, Bps: 1000}\n"

static const char text[] =
    HEAD "node:\n  - {name: n, device: d, n_device: 4, link: l}\n"
         "timing:\n"
         "  - {device: d, work: \"matmul nn\", size: [64, 64, 64], s: 1e-04}\n"
         "  - {device: d, work: \"matmul nn\", size: [128, 64, 64], s: 3e-04}\n"
         "  - {device: d, work: \"matmul nn+gelu\", size: [64, 64, 64], s: 2e-04}\n"
         "  - {device: d, work: add, size: [1000], s: 1e-05}\n"
         "  - {device: d, work: add, size: [100000], s: 1e-03}\n"
         "  - {device: d, work: stream, size: [1000], s: 2e-05}\n"
         "  - {link: l, work: all_reduce, n: 2, size: [100], s: 1e-06}\n"
         "  - {link: l, work: all_reduce, n: 2, size: [10000], s: 1e-04}\n"
         "  - {link: l, work: all_reduce, n: 4, size: [100], s: 5e-06}\n"
         "  - {link: l, work: send, size: [100], s: 7e-06}\n";

static weft_cluster *parse(const char *s)
{
    weft_cluster *c;
    if (weft_cluster_parse("c.yaml", s, strlen(s), &c) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    return c;
}

static void close_to(double a, double b)
{
    if (fabs(a / b - 1) > 1e-9) fail_msg("%.12g, expected %.12g", a, b);
}

static double work(const weft_cluster *c, const char *kind, int n, double x, double y,
                   double z)
{
    weft_workload w = {.n = n, .size = {x, y, z}};
    double        s;
    strcpy(w.kind, kind);
    assert_true(weft_cost_timed_work(c, 0, &w, &s));
    return s;
}

static void looked_up(void **state)
{
    (void)state;
    weft_cluster *c = parse(text);
    double        s;
    assert_int_equal(c->n_timing, 10);
    /* what was measured comes back */
    close_to(work(c, "matmul nn", 3, 64, 64, 64), 1e-4);
    double mid = work(c, "matmul nn", 3, 90.5, 64, 64);
    assert_true(mid > 1e-4 && mid < 3e-4);
    /* far outside: no faster than the fastest, no less than half the slowest */
    s = work(c, "matmul nn", 3, 1280, 640, 640);
    assert_true(s >= 0.199 && s < 0.61);
    /* one size: on a log-log line; below all of them their least, above all in proportion */
    close_to(work(c, "add", 1, 10000, 0, 0), 1e-4);
    close_to(work(c, "add", 1, 10, 0, 0), 1e-5);
    close_to(work(c, "add", 1, 1e6, 0, 0), 1e-2);
    /* without its fused steps; a kind that nobody measured streams */
    close_to(work(c, "matmul nn+gelu+add", 3, 64, 64, 64), 2e-4);
    close_to(work(c, "tanh_grad", 1, 1000, 0, 0), 2e-5);
    weft_workload none = {.kind = "attention", .n = 2, .size = {1, 1}};
    assert_false(weft_cost_timed_work(c, 0, &none, &s));
    assert_true(weft_cost_timed_link(c, 0, "all_reduce", 2, 1000, &s));
    close_to(s, 1e-5);
    assert_false(weft_cost_timed_link(c, 0, "all_reduce", 3, 1000, &s));
    assert_true(weft_cost_timed_link(c, 0, "send", 0, 200, &s));
    close_to(s, 1.4e-5);
    weft_cluster_destroy(c);
}

static void read_back_and_learned(void **state)
{
    (void)state;
    weft_cluster *c = parse(text), *d, *e;
    weft_text     t = {0}, u = {0};
    assert_ok(weft_cluster_print(c, &t));
    d = parse(t.s);
    assert_ok(weft_cluster_print(d, &u));
    assert_string_equal(t.s, u.s);
    assert_true(weft_cluster_hash_constants(c) == weft_cluster_hash_constants(d));
    weft_timing more[] = {
        {.link = -1, .work = "add", .n_size = 1, .size = {1000}, .s = 4e-5},
        {.link = -1, .work = "mul", .n_size = 1, .size = {1000}, .s = 6e-5},
    };
    assert_ok(weft_cluster_learn(c, more, 2, &e));
    assert_int_equal(e->n_timing, c->n_timing + 1);
    assert_int_equal(e->version, c->version + 1);
    close_to(work(e, "add", 1, 1000, 0, 0), 4e-5);
    close_to(work(e, "mul", 1, 1000, 0, 0), 6e-5);
    assert_true(weft_cluster_hash_constants(c) != weft_cluster_hash_constants(e));
    assert_true(weft_cluster_hash_shape(c) == weft_cluster_hash_shape(e));
    weft_cluster_destroy(c);
    weft_cluster_destroy(d);
    weft_cluster_destroy(e);
    weft_text_fini(&t);
    weft_text_fini(&u);
}

static void refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{work: add, size: [1], s: 1}",
        "{device: x, work: add, size: [1], s: 1}",
        "{device: d, link: l, work: add, size: [1], s: 1}",
        "{device: d, work: add, size: [], s: 1}",
        "{device: d, work: add, size: [1], s: 0}",
        "{device: d, work: add, size: [1, 2, 3, 4], s: 1}",
        "{device: d, work: add, size: [one], s: 1}",
        "{device: d, work: add, size: [1], s: 1, t: 1}",
    };
    for (size_t i = 0; i < WEFT_COUNT(bad); i++) {
        char          s[1024];
        weft_cluster *c;
        snprintf(s, sizeof s, "%snode:\n  - {name: n, device: d}\ntiming:\n  - %s\n",
                 HEAD, bad[i]);
        assert_int_equal(weft_cluster_parse("c.yaml", s, strlen(s), &c), WEFT_ERR_ARG);
        if (!strstr(weft_error_text(), "c.yaml:9:")) fail_msg("%s", weft_error_text());
    }
}

/* ---- shared cores ---- */

static const char alone[] = "program p rank %d of 2 micro 1 lanes 1 {\n"
                            "  slab w work 64\n  buffer a slab w at 0 bytes 64\n"
                            "  group [0,1]\n  stream compute compute device 0 threads 0\n"
                            "  actor x on compute {\n"
                            "    compute one fill \"shape=[4]\" () -> (a f32[4]) seconds "
                            "%d ;\n"
                            "    collective r all_reduce group 0 (a f32[4]) -> (a "
                            "f32[4]) seconds 1 ;\n"
                            "  }\n  list compute { x; }\n}\n";

/* Rank 0 has 1 second of work, rank 1 three, then both one together. */
static double total(const char *oversubscription)
{
    char          s[1400], cluster[600];
    weft_program *p[2];
    for (int r = 0; r < 2; r++) {
        snprintf(s, sizeof s, alone, r, r ? 3 : 1);
        if (weft_program_parse("p", s, strlen(s), &p[r]) != WEFT_OK)
            fail_msg("%s", weft_error_text());
    }
    snprintf(cluster, sizeof cluster,
             HEAD "node:\n  - {name: n, device: d, n_device: 2, link: l%s}\n",
             oversubscription);
    weft_cluster  *c = parse(cluster);
    weft_timeline *t;
    if (test_simulate((const weft_program *const *)p, 2, c,
                      &(weft_sim_options){.n_step = 1}, &t) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    double all = t->total_s;
    weft_timeline_destroy(t);
    weft_cluster_destroy(c);
    for (int r = 0; r < 2; r++) weft_program_destroy(p[r]);
    return all;
}

static void shared_cores(void **state)
{
    (void)state;
    close_to(total(""), 4);
    close_to(total(", oversubscription: [1, 1]"), 4);
    /* one core for two: 2 s until rank 0 is done, 2 s more of rank 1 alone, 1 s of talking */
    close_to(total(", oversubscription: [1, 2]"), 5);
    close_to(total(", oversubscription: [1]"), 5);
    close_to(total(", oversubscription: [0.5, 1]"), 1 + 2 * 0.5 + 1);
}

/* GPUs: the gap between launches of a graph, the rest of a step at the commit point, and nothing
 * but bf16 for matmuls. */
static void steps_of_gpus(void **state)
{
    (void)state;
    static const char gpu[] =
        HEAD "  - {name: unused, alpha_s: 0.01, Bps: 1000}\n"
             "node:\n  - {name: n, device: d}\n"
             "timing:\n"
             "  - {device: d, work: \"matmul nn\", size: [64, 64, 64], s: 1e-04}\n"
             "  - {device: d, work: add, size: [768], s: 1e-05}\n"
             "  - {device: d, work: sumsq, size: [264], s: 3e-06}\n"
             "  - {device: d, work: graph node, size: [1], s: 2e-06}\n"
             "  - {device: d, work: step, size: [1], s: 5e-05}\n";
    static const char prog[] =
        "program p rank 0 of 1 micro 1 lanes 1 {\n"
        "  slab work work 65536\n"
        "  buffer x slab work at 0 bytes 65536\n"
        "  stream compute compute device 0 threads 0\n"
        "  actor all on compute {\n"
        "    compute a matmul \"spec=mk,kn->mn\" (x bf16[64,64], x bf16[64,64]) -> (x "
        "bf16[64,64]) ;\n"
        "    compute b matmul \"spec=mk,kn->mn\" (x f32[64,64], x f32[64,64]) -> (x "
        "f32[64,64]) ;\n"
        "    compute c add (x f32[64], x f32[64]) -> (x f32[64]) ;\n"
        "    compute d sumsq (x f32[64]) -> (x f64[]) ;\n"
        "    commit step (x f64[]) ;\n"
        "  }\n"
        "  list compute { all; }\n"
        "}\n";
    weft_cluster *c = parse(gpu);
    weft_program *p = NULL;
    weft_arena   *a = NULL;
    double       *s;
    assert_ok(weft_program_parse("p", prog, strlen(prog), &p));
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_cost_program(p, c, a, &s));
    close_to(s[0], 1e-4 + 2e-6);
    close_to(s[1], 0.001 + fmax(2.0 * 64 * 64 * 64 / 1e9, 3 * 4.0 * 64 * 64 / 1e6));
    close_to(s[2], 1e-5 + 2e-6);
    close_to(s[3], 3e-6); /* launched with others */
    close_to(s[4], 5e-5);
    weft_arena_destroy(a);
    weft_program_destroy(p);
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_gpus),         cmocka_unit_test(looked_up),
        cmocka_unit_test(read_back_and_learned), cmocka_unit_test(refused),
        cmocka_unit_test(shared_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
