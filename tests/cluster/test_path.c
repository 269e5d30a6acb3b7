/* Links between two ranks, groups, runs of equal devices. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "cluster/cluster.h"

static weft_cluster *load(const char *line)
{
    weft_cluster *c = NULL;
    if (weft_cluster_parse_line(line, NULL, &c) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    return c;
}

static void near(double x, double want)
{
    if (fabs(x - want) > 1e-9 * want) fail_msg("%g, expected %g", x, want);
}

static void two_ranks(void **state)
{
    (void)state;
    weft_cluster *c = load("4 x (8 x v100-32g) + 4 x (8 x h100-80g)");
    weft_path     p;
    assert_int_equal(weft_cluster_path(c, 0, 7, &p), WEFT_OK);
    assert_int_equal(p.level, 1);
    near(p.Bps, 1.5e11 * 0.91);
    assert_int_equal(weft_cluster_path(c, 0, 8, &p), WEFT_OK);
    assert_int_equal(p.level, 2);
    near(p.Bps, 1.25e10 * 0.92);
    near(p.busy_Bps, 1.25e10 * 0.92 / 8); /* eight share one port */
    assert_int_equal(weft_cluster_path(c, 32, 40, &p), WEFT_OK);
    near(p.busy_Bps, 5e10 * 0.92);
    assert_int_equal(weft_cluster_path(c, 63, 0, &p), WEFT_OK); /* the slower end */
    near(p.Bps, 1.25e10 * 0.92);
    assert_string_equal(p.link->name, "ib-edr");
    assert_int_equal(weft_cluster_path(c, 0, 64, &p), WEFT_ERR_ARG);
    assert_int_equal(weft_cluster_path(c, -1, 0, &p), WEFT_ERR_ARG);
    weft_cluster_destroy(c);
}

static void racks_and_tapers(void **state)
{
    (void)state;
    static const char text[] =
        "node:\n  - {name: n, count: 64, device: h100-80g}\n"
        "switch:\n"
        "  - {name: leaf, span: 16, alpha_s: 1e-06}\n"
        "  - {name: spine, span: 0, alpha_s: 2e-06, taper: 0.25}\n";
    weft_cluster    *c;
    weft_path        p;
    weft_group_shape g;
    assert_int_equal(weft_cluster_parse("t", text, strlen(text), &c), WEFT_OK);
    assert_int_equal(weft_cluster_path(c, 0, 8 * 15, &p), WEFT_OK);
    assert_int_equal(p.level, 2);
    near(p.alpha_s, 6e-06);
    near(p.busy_Bps, 5e10 * 0.92);
    assert_int_equal(weft_cluster_path(c, 0, 8 * 16, &p), WEFT_OK);
    assert_int_equal(p.level, 3);
    near(p.alpha_s, 8e-06);
    near(p.Bps, 5e10 * 0.92);
    near(p.busy_Bps, 5e10 * 0.92 / 4);
    weft_cluster_destroy(c);

    c = load("36 x (4 x gb200)"); /* two racks of 18 trays */
    assert_int_equal(weft_cluster_path(c, 0, 71, &p), WEFT_OK);
    near(p.Bps, 9e11 * 0.8);
    assert_int_equal(weft_cluster_group_stride(c, 0, 72, 1, &g), WEFT_OK);
    assert_int_equal(g.n_node, 18);
    assert_int_equal(g.n_island, 1);
    assert_true(g.outer.Bps == 0);
    assert_int_equal(weft_cluster_group_stride(c, 0, 2, 72, &g), WEFT_OK);
    assert_int_equal(g.n_island, 2);
    assert_true(g.inner.Bps == 0);
    near(g.outer.Bps, 5e10 * 0.92);
    weft_cluster_destroy(c);
}

static void groups(void **state)
{
    (void)state;
    weft_cluster    *c = load("8 x (8 x v100-32g)");
    weft_group_shape g;
    const int        mixed[] = {9, 1, 0, 8, 24};
    assert_int_equal(weft_cluster_group_stride(c, 0, 8, 1, &g), WEFT_OK);
    assert_true(g.n == 8 && g.n_node == 1 && g.per_node == 8 && g.outer.Bps == 0);
    near(g.inner.Bps, 1.5e11 * 0.91);
    assert_int_equal(weft_cluster_group_stride(c, 0, 8, 8, &g), WEFT_OK);
    assert_true(g.n_node == 8 && g.per_node == 1 && g.inner.Bps == 0);
    near(g.outer.Bps, 1.25e10 * 0.92); /* alone */
    near(g.outer.busy_Bps, 1.25e10 * 0.92 / 8);
    assert_int_equal(weft_cluster_group_stride(c, 0, 32, 2, &g), WEFT_OK);
    assert_true(g.n_node == 8 && g.per_node == 4 && g.least_per_island == 4);
    near(g.outer.Bps, 1.25e10 * 0.92 / 4); /* four of its members share the port */
    assert_int_equal(weft_cluster_group(c, mixed, 5, &g), WEFT_OK);
    assert_true(g.n == 5 && g.n_node == 3 && g.per_node == 2 && g.least_per_island == 1);
    assert_int_equal(weft_cluster_group_stride(c, 0, 9, 8, &g), WEFT_ERR_ARG);
    assert_int_equal(weft_cluster_group(c, mixed, 0, &g), WEFT_ERR_ARG);
    weft_cluster_destroy(c);
}

/* A group's numbers are those of all its pairs. */
static void against_pairs(void **state)
{
    (void)state;
    static const char *const line[] = {"3 x (4 x a100-40g) + 2 x (2 x t4)",
                                       "40 x (4 x gb200)", "5 x (3 x cpu)"};
    uint64_t                 seed   = 7;
    for (size_t k = 0; k < WEFT_COUNT(line); k++) {
        weft_cluster *c = load(line[k]);
        int           n = weft_cluster_count(c);
        for (int t = 0; t < 200; t++) {
            int              rank[8], m = 2 + t % 7;
            weft_group_shape g;
            double           inner = 0, outer = 0, alpha = 0;
            for (int i = 0; i < m; i++) {
                seed    = seed * 6364136223846793005u + 1442695040888963407u;
                rank[i] = (int)((seed >> 33) % (uint64_t)n);
                for (int j = 0; j < i; j++)
                    if (rank[j] == rank[i]) i--, j = i;
            }
            assert_int_equal(weft_cluster_group(c, rank, m, &g), WEFT_OK);
            for (int i = 0; i < m; i++)
                for (int j = 0; j < i; j++) {
                    weft_path p;
                    assert_int_equal(weft_cluster_path(c, rank[i], rank[j], &p), WEFT_OK);
                    bool    net = p.link->scope == WEFT_LINK_NET;
                    double *to  = net ? &outer : &inner;
                    if (*to == 0 || p.Bps < *to) *to = p.Bps;
                    if (net && p.alpha_s > alpha) alpha = p.alpha_s;
                }
            near(g.inner.Bps + 1, inner + 1);
            near(g.outer.alpha_s + 1, alpha + 1);
            assert_true(g.outer.Bps <= outer * (1 + 1e-12));
            if (g.per_node == 1) near(g.outer.Bps + 1, outer + 1);
        }
        weft_cluster_destroy(c);
    }
}

static void runs(void **state)
{
    (void)state;
    static const char text[] =
        "node:\n  - {count: 1250, device: h100-80g}\n  - {count: 2, device: t4}\n"
        "health:\n"
        "  - {node: 3, device: 2, state: cordoned, why: ECC}\n"
        "  - {node: 10, n_node: 4, speed: 0.5}\n"
        "  - {node: 1251, link: 0.25}\n";
    static const int first[] = {0, 26, 27, 80, 112, 10000, 10004};
    weft_cluster    *c;
    weft_device_run  r;
    weft_path        p;
    weft_group_shape g;
    int              at = 0, n = 0, total = 0;
    assert_int_equal(weft_cluster_parse("t", text, strlen(text), &c), WEFT_OK);
    for (; weft_cluster_next_run(c, &at, &r); n++, total += r.n) {
        assert_true(n < 7);
        assert_int_equal(r.first, first[n]);
        assert_int_equal(r.cordoned, n == 1);
        near(r.speed, n == 3 ? 0.5 : 1);
        near(r.link, n == 6 ? 0.25 : 1);
    }
    assert_int_equal(n, 7);
    assert_int_equal(total, weft_cluster_count(c));
    assert_int_equal(weft_cluster_usable(c), 10007);
    assert_int_equal(weft_cluster_path(c, 10004, 10005, &p), WEFT_OK);
    near(p.Bps, 8e9 * 0.25);
    assert_int_equal(weft_cluster_group_stride(c, 0, 100, 1, &g), WEFT_OK);
    near(g.speed, 0.5);
    weft_cluster_destroy(c);
}

static void large(void **state)
{
    (void)state;
    double           t0 = weft_clock_s();
    weft_cluster    *c  = load("1250 x (8 x h100-80g) + 1250 x (8 x a100-80g)");
    weft_group_shape g;
    assert_true(weft_clock_s() - t0 < 1);
    assert_int_equal(weft_cluster_group_stride(c, 0, 2500, 8, &g), WEFT_OK);
    t0 = weft_clock_s();
    for (int i = 0; i < 100; i++)
        assert_int_equal(weft_cluster_group_stride(c, i % 8, 2500, 8, &g), WEFT_OK);
    double each = (weft_clock_s() - t0) / 100;
    if (!WEFT_TEST_SANITIZED && each > 1e-3) fail_msg("a group query took %g s", each);
    assert_int_equal(g.n_node, 2500);
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks), cmocka_unit_test(racks_and_tapers),
        cmocka_unit_test(groups),    cmocka_unit_test(against_pairs),
        cmocka_unit_test(runs),      cmocka_unit_test(large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
