/* Halving beside a ring, message by message: at 64 and 1,024 ranks at most 1.1 times its time,
 * with log2 n messages a half.  Where eight devices share one port a ring sends inside the node
 * and out of it at once; halving does so in two parts, with log2 n messages a half between nodes
 * and one more. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "sim/exchange.h"
#include "support/test.h"

/* Devices alone; eight to a node with eight ports; eight that share one. */
#define DEVICE                                                                           \
    "device: [{name: d, flops: {f32: 1e12}, efficiency: 0.7, mem_Bps: 1e12, "            \
    "mem_bytes: 1000000000, launch_s: 0}]\n"
#define LINKS                                                                            \
    "link: [{name: in, alpha_s: 2e-06, Bps: 3e11}, {name: net, scope: net, alpha_s: "    \
    "5e-06, Bps: 5e10}]\n"
static const char *const clusters[] = {
    DEVICE
    "link: [{name: net, scope: net, alpha_s: 5e-06, Bps: 1e10}]\n"
    "node: [{name: n, count: 1024, device: d, n_device: 1, net: net, n_port: 1}]\n",
    DEVICE LINKS "node: [{name: n, count: 128, device: d, n_device: 8, link: in, net: "
                 "net, n_port: 8}]\n",
    DEVICE LINKS "node: [{name: n, count: 128, device: d, n_device: 8, link: in, net: "
                 "net, n_port: 1}]\n",
};
static const char *const cluster_names[] = {"alone", "8 ports", "1 port"};

static weft_cluster *load(int k)
{
    weft_cluster *c;
    if (weft_cluster_parse("c", clusters[k], strlen(clusters[k]), &c) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    return c;
}

static weft_sim_exchange_result price(const weft_cluster *c, weft_collective kind,
                                      weft_exchange_algorithm a, int n, double bytes,
                                      int near)
{
    weft_exchange            x = {kind, a, n, near};
    weft_sim_exchange_result r;
    if (weft_sim_exchange(&x, NULL, c, bytes, &r) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    return r;
}

static void compare(const weft_cluster *c, const char *name, int n, double bytes,
                    int near)
{
    weft_collective          kind = WEFT_ALL_REDUCE;
    weft_sim_exchange_result ring = price(c, kind, WEFT_EXCHANGE_RING, n, bytes, 0);
    weft_sim_exchange_result half = price(c, kind, WEFT_EXCHANGE_HALVING, n, bytes, near);
    weft_sim_exchange_result twice = price(c, kind, WEFT_EXCHANGE_DOUBLING, n, bytes, 0);
    print_message("%-8s %4d ranks %11.0f bytes: ring %10.1f us, halving %10.1f (%.3f), "
                  "doubling %10.1f; messages %d, %d (%d far), %d\n",
                  name, n, bytes, 1e6 * ring.seconds, 1e6 * half.seconds,
                  half.seconds / ring.seconds, 1e6 * twice.seconds, ring.most_sent,
                  half.most_sent, half.most_far, twice.most_sent);
    assert_true(half.seconds <= 1.1 * ring.seconds);
    assert_true(half.most_far <= 2 * log2(n) + 2);
    if (!near) assert_true(half.most_sent <= 2 * log2(n) + 2);
    assert_true(twice.most_sent <= log2(n) + 2);
    assert_true(half.most_bytes <= 2 * bytes);
    if (n > 64 && bytes < 1 << 30) return; /* many messages */
    for (int k = WEFT_REDUCE_SCATTER; k <= WEFT_ALL_GATHER; k++) {
        kind = (weft_collective)k;
        ring = price(c, kind, WEFT_EXCHANGE_RING, n, bytes, 0);
        half = price(c, kind, WEFT_EXCHANGE_HALVING, n, bytes, near);
        assert_true(half.seconds <= 1.1 * ring.seconds);
        assert_true(half.most_far <= log2(n) + 2);
    }
}

static void halving_beside_a_ring(void **state)
{
    (void)state;
    static const double bytes[] = {4096, 65536, 1 << 20, 16 << 20, 256 << 20, 1 << 30};
    for (int k = 0; k < 3; k += TEST_STRIDE(2)) {
        weft_cluster *c    = load(k);
        int           near = k < 2 ? 0 : 8;
        for (int i = 0; i < 6; i++) compare(c, cluster_names[k], 64, bytes[i], near);
        for (int i = 1; i < 6; i += WEFT_TEST_SANITIZED ? 4 : 2)
            compare(c, cluster_names[k], 1024, bytes[i], near);
        weft_cluster_destroy(c);
    }
}

/* Where nobody shares a wire the sum over steps of alpha + bytes / Bps is known. */
static void like_the_formulas(void **state)
{
    (void)state;
    weft_cluster *c = load(0);
    double        S = 3e7, beta = 1e-10, alpha = 5e-6;
    for (int n = 2; n <= 1024; n *= 2) {
        double moved = (n - 1.0) / n * S * beta;
        double half  = price(c, WEFT_ALL_REDUCE, WEFT_EXCHANGE_HALVING, n, S, 0).seconds;
        double ring  = price(c, WEFT_ALL_REDUCE, WEFT_EXCHANGE_RING, n, S, 0).seconds;
        double spread =
            price(c, WEFT_REDUCE_SCATTER, WEFT_EXCHANGE_HALVING, n, S, 0).seconds;
        assert_true(fabs(half / (2 * log2(n) * alpha + 2 * moved) - 1) < 1e-9);
        assert_true(fabs(ring / (2 * (n - 1) * alpha + 2 * moved) - 1) < 1e-9);
        assert_true(fabs(spread / (log2(n) * alpha + moved) - 1) < 1e-9);
    }
    weft_cluster_destroy(c);
}

/* Devices that share a port take turns. */
static void ports_are_shared(void **state)
{
    (void)state;
    weft_cluster *wide = load(1), *narrow = load(2);
    double        S = 1e9;
    double a     = price(wide, WEFT_ALL_TO_ALL, WEFT_EXCHANGE_DIRECT, 16, S, 0).seconds;
    double b     = price(narrow, WEFT_ALL_TO_ALL, WEFT_EXCHANGE_DIRECT, 16, S, 0).seconds;
    double least = 64 * S / 16 / 5e10; /* what leaves a node by its one port */
    assert_true(b >= least && b < 1.2 * least && a < least / 3);
    weft_cluster_destroy(wide);
    weft_cluster_destroy(narrow);
}

static void mistakes(void **state)
{
    (void)state;
    weft_cluster            *c = load(1);
    weft_sim_exchange_result r;
    weft_exchange            x = {WEFT_ALL_TO_ALL, WEFT_EXCHANGE_RING, 8, 0};
    assert_int_equal(weft_sim_exchange(&x, NULL, c, 1, &r), WEFT_ERR_ARG);
    x = (weft_exchange){WEFT_ALL_REDUCE, WEFT_EXCHANGE_RING, 1025, 0};
    assert_int_equal(weft_sim_exchange(&x, NULL, c, 1, &r), WEFT_ERR_ARG);
    x = (weft_exchange){WEFT_ALL_REDUCE, WEFT_EXCHANGE_RING, 1, 0};
    assert_int_equal(weft_sim_exchange(&x, NULL, c, 1, &r), WEFT_OK);
    assert_true(r.seconds == 0 && !r.most_sent);
    /* by the rank list: neighbours in one node are faster */
    int32_t                  near[4] = {0, 1, 2, 3}, far[4] = {0, 8, 16, 24};
    weft_sim_exchange_result s;
    x.n = 4;
    assert_int_equal(weft_sim_exchange(&x, near, c, 1e6, &r), WEFT_OK);
    assert_int_equal(weft_sim_exchange(&x, far, c, 1e6, &s), WEFT_OK);
    assert_true(s.seconds > 2 * r.seconds);
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halving_beside_a_ring),
        cmocka_unit_test(like_the_formulas),
        cmocka_unit_test(ports_are_shared),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
