/* Placement: brute force where there are few, the simple ways where there are many, repair. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "place/place.h"

static weft_cluster *load(const char *line)
{
    weft_cluster *c = NULL;
    if (weft_cluster_parse_line(line, NULL, &c) != WEFT_OK)
        fail_msg("%s", weft_error_text());
    return c;
}

static weft_cluster *change(weft_cluster *c, const char *event)
{
    weft_cluster *d;
    if (weft_cluster_change(c, event, &d) != WEFT_OK) fail_msg("%s", weft_error_text());
    weft_cluster_destroy(c);
    return d;
}

static uint64_t seed = 11;

static int pick(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

/* Every order of every choice of devices, without any thought of which are alike. */
static double brute(const weft_place_job *j, const weft_cluster *c, int *device,
                    bool *taken, int rank)
{
    weft_place_seconds s;
    double             best = INFINITY;
    if (rank == weft_place_n_rank(j)) {
        assert_int_equal(weft_place_price(j, c, device, &s), WEFT_OK);
        return s.total_s;
    }
    for (int d = 0; d < weft_cluster_count(c); d++) {
        if (taken[d]) continue;
        taken[d]     = true;
        device[rank] = d;
        double x     = brute(j, c, device, taken, rank + 1);
        if (x < best) best = x;
        taken[d] = false;
    }
    return best;
}

static weft_place_job random_job(int n_rank)
{
    static const int shapes[][3] = {{2, 1, 1}, {3, 1, 1}, {2, 2, 1}, {4, 1, 1},
                                    {5, 1, 1}, {2, 3, 1}, {6, 1, 1}, {2, 2, 2},
                                    {4, 2, 1}, {8, 1, 1}};
    weft_place_job   j = {.n_axis = 3, .dtype = "f16", .flops = pick(2) ? 1e13 : 0};
    int              k;
    do {
        k = pick((int)WEFT_COUNT(shapes));
    } while (shapes[k][0] * shapes[k][1] * shapes[k][2] != n_rank);
    static const char *const name[] = {"a", "b", "c"};
    int                      turn   = pick(3);
    for (int i = 0; i < 3; i++)
        j.axis[i] =
            (weft_place_axis){name[i], shapes[k][(i + turn) % 3],
                              (weft_place_pattern)pick(3), pow(10, 6 + pick(5)), pick(2)};
    return j;
}

static void equals_brute_force(void **state)
{
    (void)state;
    static const char *const small[] = {"2 x (2 x t4)", "(2 x t4) + (3 x v100-32g)",
                                        "3 x (2 x a100-40g)",
                                        "(1 x t4) + (4 x v100-32g) + (1 x h100-80g)"};
    static const int         sizes[] = {2, 3, 4, 4, 5, 6};
    for (int t = 0; t < 60; t++) {
        weft_cluster *c = load(small[t % 4]);
        if (t % 3 == 1) c = change(c, "degrade node 0 device 0 speed 0.5 link 0.5");
        int n = weft_cluster_count(c), m;
        do {
            m = sizes[pick(6)];
        } while (m > n);
        weft_place_job j = random_job(m);
        weft_placement p;
        int            device[8];
        bool           taken[8] = {false};
        double         best     = brute(&j, c, device, taken, 0);
        assert_int_equal(weft_place_map(&j, c, &p), WEFT_OK);
        assert_true(p.exact);
        if (fabs(p.price.total_s - best) > 1e-9 * best)
            fail_msg("case %d: %g, brute force %g", t, p.price.total_s, best);
        weft_placement_fini(&p);
        weft_cluster_destroy(c);
    }
}

/* Eight ranks on eight devices: 40320 placements. */
static void eight(void **state)
{
    (void)state;
    static const char *const line[] = {"2 x (4 x t4)", "4 x (2 x v100-16g)",
                                       "(4 x t4) + (4 x v100-32g)"};
    for (int t = 0; t < (WEFT_TEST_SANITIZED ? 1 : 2); t++) {
        weft_cluster  *c = load(line[t]);
        weft_place_job j = random_job(8);
        weft_placement p;
        int            device[8];
        bool           taken[8] = {false};
        double         best     = brute(&j, c, device, taken, 0);
        assert_int_equal(weft_place_map(&j, c, &p), WEFT_OK);
        assert_true(p.exact && fabs(p.price.total_s - best) <= 1e-9 * best);
        weft_placement_fini(&p);
        weft_cluster_destroy(c);
    }
}

/* A transformer's traffic: tensor parallelism by far the most, then data parallelism, stages
 * little. */
static weft_place_job transformer(const int *size, const int *order)
{
    static const weft_place_axis axis[3] = {
        {"tp", 0, WEFT_PLACE_RING, 2e10, true},
        {"dp", 0, WEFT_PLACE_RING, 2e9, false},
        {"pp", 0, WEFT_PLACE_CHAIN, 1e8, false},
    };
    weft_place_job j = {.n_axis = 3, .flops = 1e16, .dtype = "f16"};
    for (int i = 0; i < 3; i++) {
        j.axis[i]      = axis[order[i]];
        j.axis[i].size = size[order[i]];
    }
    return j;
}

enum {
    MOST_DEVICES = 1024
};

/* Devices that may be used, and for each how many of its node come before it. */
static int list_usable(const weft_cluster *c, int *device, int *before)
{
    weft_device_run r;
    int             place, n = 0;
    for (int at = 0; weft_cluster_next_run(c, &at, &r);)
        for (int d = r.first; d < r.first + r.n && !r.cordoned; d++, n++) {
            bool same = n && weft_cluster_node(c, d, &place) ==
                                 weft_cluster_node(c, device[n - 1], &place);
            device[n] = d;
            before[n] = same ? before[n - 1] + 1 : 0;
        }
    return n;
}

/* Ranks one by one onto the next device, or in turn onto the next node. */
static double price_simple(const weft_place_job *j, const weft_cluster *c, bool in_turn)
{
    int                usable[MOST_DEVICES], before[MOST_DEVICES], device[MOST_DEVICES];
    weft_place_seconds s;
    int                n_usable = list_usable(c, usable, before), n = 0;
    for (int round = 0; n < n_usable; round++)
        for (int i = 0; i < n_usable; i++)
            if (!in_turn || before[i] == round) device[n++] = usable[i];
    assert_int_equal(weft_place_price(j, c, device, &s), WEFT_OK);
    return s.total_s;
}

static void beats_the_simple_ways(void **state)
{
    (void)state;
    static const struct {
        const char *line, *event;
        int         size[3]; /* tp, dp, pp */
    } cases[] = {
        {"8 x (8 x a100-80g)", NULL, {8, 4, 2}},
        {"8 x (8 x a100-80g)", NULL, {4, 4, 4}},
        {"9 x (8 x v100-32g)", "cordon node 2 device 3", {8, 8, 1}},
        {"4 x (8 x v100-32g) + 4 x (8 x h100-80g)", NULL, {4, 2, 8}},
        {"16 x (8 x h100-80g)", NULL, {2, 16, 4}},
        {"22 x (6 x a100-80g)", NULL, {4, 16, 2}},
        {"32 x (8 x t4) + 32 x (8 x a100-40g)", NULL, {8, 16, 4}},
        {"16 x (4 x gb200) + 48 x (4 x gb200)", NULL, {16, 4, 4}},
        {"128 x (8 x h100-80g)", NULL, {8, 16, 8}},
    };
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    double           log_first = 0, log_turn = 0;
    int              n = 0, better_first = 0, better_turn = 0;
    for (size_t i = 0; i < WEFT_COUNT(cases); i++) {
        weft_cluster *c = load(cases[i].line);
        if (cases[i].event) c = change(c, cases[i].event);
        for (int o = 0; o < (WEFT_TEST_SANITIZED ? 1 : 6); o++) {
            weft_place_job j = transformer(cases[i].size, orders[o]);
            weft_placement p;
            assert_int_equal(weft_place_map(&j, c, &p), WEFT_OK);
            double a = price_simple(&j, c, false) / p.price.total_s;
            double b = price_simple(&j, c, true) / p.price.total_s;
            if (a < 1 - 1e-9 || b < 1 - 1e-9) fail_msg("%s: %g %g", cases[i].line, a, b);
            log_first += log(a);
            log_turn += log(b);
            better_first += a > 1.01;
            better_turn += b > 1.01;
            n++;
            weft_placement_fini(&p);
        }
        weft_cluster_destroy(c);
    }
    printf("%d meshes on 64 to 1024 devices: first fit takes %.2f x ours (worse in %d), "
           "round "
           "robin %.2f x (worse in %d)\n",
           n, exp(log_first / n), better_first, exp(log_turn / n), better_turn);
    if (WEFT_TEST_SANITIZED) return;
    assert_true(exp(log_first / n) > 1.5 && exp(log_turn / n) > 1.5);
    assert_true(better_first > n / 2 && better_turn > n / 2);
}

/* Tensor parallelism stays inside a node whatever the order of the axes. */
static void heavy_inside(void **state)
{
    (void)state;
    static const int size[3] = {8, 4, 2}, order[3] = {0, 1, 2};
    weft_cluster    *c = load("8 x (8 x a100-80g)");
    weft_place_job   j = transformer(size, order);
    weft_placement   p;
    weft_text        t = {0};
    assert_int_equal(weft_place_map(&j, c, &p), WEFT_OK);
    for (int g = 0; g < 8; g++)
        for (int k = 1; k < 8; k++)
            assert_int_equal(weft_cluster_node(c, p.device[g], NULL),
                             weft_cluster_node(c, p.device[g + 8 * k], NULL));
    assert_int_equal(weft_place_print(&j, c, &p, &t), WEFT_OK);
    assert_non_null(strstr(t.s, "node 0, a100-80g: tp0.dp"));
    weft_text_fini(&t);
    weft_placement_fini(&p);
    weft_cluster_destroy(c);
}

/* Groups that split evenly do not mix kinds. */
static void kinds_apart(void **state)
{
    (void)state;
    static const int size[3] = {4, 4, 4}, order[3] = {0, 1, 2};
    weft_cluster    *c =
        load("(4 x t4) + 3 x (8 x v100-32g) + (4 x t4) + 4 x (8 x h100-80g)");
    weft_place_job j = transformer(size, order);
    weft_placement p;
    assert_int_equal(weft_place_map(&j, c, &p), WEFT_OK);
    for (int g = 0; g < 16; g++)
        for (int k = 1; k < 4; k++)
            assert_ptr_equal(weft_cluster_device(c, p.device[g]),
                             weft_cluster_device(c, p.device[g + 16 * k]));
    weft_placement_fini(&p);
    weft_cluster_destroy(c);
}

static void repairs(void **state)
{
    (void)state;
    static const int size[3] = {4, 8, 2}, order[3] = {2, 1, 0};
    weft_cluster    *c = load("9 x (8 x a100-80g)");
    weft_place_job   j = transformer(size, order);
    weft_placement   p, q, fresh;
    int              moved = -1;
    assert_int_equal(weft_place_map(&j, c, &p), WEFT_OK);
    /* one device */
    char event[64];
    int  place, node = weft_cluster_node(c, p.device[17], &place);
    snprintf(event, sizeof event, "cordon node %d device %d", node, place);
    c = change(c, event);
    assert_int_equal(weft_place_repair(&j, c, p.device, &q, &moved), WEFT_OK);
    assert_int_equal(moved, 1);
    for (int i = 0; i < p.n_rank; i++)
        if (i != 17) assert_int_equal(p.device[i], q.device[i]);
    assert_true(q.device[17] != p.device[17]);
    weft_placement_fini(&q);
    /* its whole node: eight ranks, and the best place for them is together */
    snprintf(event, sizeof event, "cordon node %d", node);
    c = change(c, event);
    assert_int_equal(weft_place_repair(&j, c, p.device, &q, &moved), WEFT_OK);
    assert_int_equal(moved, 8);
    for (int i = 0; i < p.n_rank; i++)
        if (weft_cluster_node(c, p.device[i], NULL) != node)
            assert_int_equal(p.device[i], q.device[i]);
    assert_int_equal(weft_place_map(&j, c, &fresh), WEFT_OK);
    assert_true(q.price.total_s <= fresh.price.total_s * 1.001);
    weft_placement_fini(&q);
    weft_placement_fini(&fresh);
    /* nothing left over */
    snprintf(event, sizeof event, "cordon node %d", node ? 0 : 1);
    c = change(c, event);
    assert_int_equal(weft_place_repair(&j, c, p.device, &q, &moved), WEFT_ERR_NOFIT);
    weft_placement_fini(&p);
    weft_cluster_destroy(c);
}

static void same_twice(void **state)
{
    (void)state;
    static const int size[3] = {8, 16, 2}, order[3] = {1, 0, 2};
    weft_cluster    *c = load("16 x (8 x v100-32g) + 16 x (8 x h100-80g)");
    weft_place_job   j = transformer(size, order);
    weft_placement   p, q;
    assert_int_equal(weft_place_map(&j, c, &p), WEFT_OK);
    assert_int_equal(weft_place_map(&j, c, &q), WEFT_OK);
    assert_memory_equal(p.device, q.device, sizeof(int) * (size_t)p.n_rank);
    weft_placement_fini(&p);
    weft_placement_fini(&q);
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_brute_force),
        cmocka_unit_test(eight),
        cmocka_unit_test(beats_the_simple_ways),
        cmocka_unit_test(heavy_inside),
        cmocka_unit_test(kinds_apart),
        cmocka_unit_test(repairs),
        cmocka_unit_test(same_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
