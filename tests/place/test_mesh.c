/* The mesh of a plan: ranks keep to their kinds, runs of nodes tell all of them, replicas that
 * lost devices go. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "place/place.h"
#include "support/test.h"

static weft_cluster *load(const char *line)
{
    weft_cluster *c = NULL;
    assert_ok(weft_cluster_parse_line(line, NULL, &c));
    return c;
}

/* Two kinds, stages pinned to one each: nobody lies elsewhere, and the result is the best there
 * is of those. */
static void kinds_are_kept(void **state)
{
    weft_cluster   *c       = load("1 x (3 x v100-32g) + 1 x (3 x h100-80g)");
    uint8_t         kind[6] = {1, 1, 1, 2, 2, 2}, may[4] = {2, 2, 1, 1};
    weft_place_mesh m        = {{2, 2, 1, 1, 1}, {1e9, 1e8, 0, 0, 0}};
    weft_place_job  j        = weft_place_mesh_job(&m);
    int             guess[4] = {3, 4, 0, 1};
    weft_placement  p;
    (void)state;
    j.may   = may;
    j.kind  = kind;
    j.guess = guess;
    assert_ok(weft_place_map(&j, c, &p));
    assert_true(p.exact);
    double best = 1e30;
    for (int i = 0; i < 6 * 6 * 6 * 6; i++) { /* all there are */
        int                d[4] = {i % 6, i / 6 % 6, i / 36 % 6, i / 216};
        bool               bad  = false;
        weft_place_seconds s;
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < 4; b++)
                bad = bad || (a != b && d[a] == d[b]) || !(may[a] & kind[d[a]]);
        if (bad) continue;
        assert_ok(weft_place_price(&j, c, d, &s));
        best = s.total_s < best ? s.total_s : best;
    }
    for (int r = 0; r < 4; r++) assert_true(may[r] & kind[p.device[r]]);
    assert_true(p.price.total_s <= best * (1 + 1e-9));
    weft_placement_fini(&p);
    may[0] = 4; /* a kind that nobody is of */
    assert_int_equal(weft_place_map(&j, c, &p), WEFT_ERR_NOFIT);
    weft_cluster_destroy(c);
}

static void runs_tell_all(void **state)
{
    weft_cluster   *c = load("40 x (8 x a100-80g)"), *sick;
    weft_place_mesh m = {{4, 16, 1, 1, 4}, {1e9, 1e9, 0, 0, 1e10}};
    weft_place_job  j = weft_place_mesh_job(&m);
    weft_arena     *a;
    weft_place_run *run;
    weft_placement  p;
    int             n, node = 0, ranks = 0;
    (void)state;
    assert_ok(weft_cluster_change(c, "cordon node 5", &sick));
    assert_ok(weft_arena_create(&a));
    assert_ok(weft_place_map(&j, sick, &p));
    assert_ok(weft_place_runs(&j, sick, &p, a, &run, &n));
    assert_true(n > 4 && n < 20);
    for (int i = 0; i < n; i++) {
        assert_int_equal(run[i].node, node);
        node += run[i].n_node;
        ranks += run[i].n_node * run[i].n_rank;
        assert_true(run[i].box);
    }
    assert_int_equal(node, 40);
    assert_int_equal(ranks, 256);
    weft_text t = {0};
    assert_ok(weft_place_print(&j, sick, &p, &t));
    assert_non_null(strstr(t.s, "nodes 0 to 4, 5 x (8 x a100-80g): pp 0"));
    assert_non_null(strstr(t.s, "node 5, 1 x (8 x a100-80g): -"));
    weft_text_fini(&t);
    weft_placement_fini(&p);
    weft_arena_destroy(a);
    weft_cluster_destroy(sick);
    weft_cluster_destroy(c);
}

/* Four replicas of two stages on 8 devices of 4 nodes, a node lost: the replica on it goes. */
static void replicas_that_lost_go(void **state)
{
    weft_cluster   *c   = load("4 x (2 x a100-80g)"), *sick;
    weft_place_mesh was = {{2, 4, 1, 1, 1}, {0}}, now = {{2, 3, 1, 1, 1}, {0}};
    int             old[8] = {0, 2, 4, 6, 1, 3, 5, 7}, next[8];
    (void)state;
    assert_ok(weft_cluster_change(c, "cordon node 1", &sick));
    bool same;
    assert_ok(weft_place_inherit(&was, old, &now, sick, next, &same));
    assert_true(same);
    static const int want[6] = {0, 4, 6, 1, 5, 7};
    for (int r = 0; r < 6; r++) assert_int_equal(next[r], want[r]);
    now.size[WEFT_PLACE_PP] = 1; /* cut otherwise: nothing stays */
    assert_ok(weft_place_inherit(&was, old, &now, sick, next, &same));
    assert_false(same);
    assert_int_equal(next[0], -1);
    weft_cluster_destroy(sick);
    weft_cluster_destroy(c);
}

/* Ten thousand devices, placed and repaired within a second each; three with room for a busy
 * machine. */
static void ten_thousand(void **state)
{
    weft_cluster   *c = load("640 x (8 x a100-80g) + 640 x (8 x h100-80g)"), *sick;
    weft_place_mesh m = {{16, 39, 2, 2, 4}, {1e9, 1e9, 1e9, 1e9, 1e10}};
    weft_place_job  j = weft_place_mesh_job(&m);
    weft_placement  p, q;
    int             moved, want = 0;
    clock_t         start = clock();
    (void)state;
    assert_ok(weft_place_map(&j, c, &p));
    double map_s = (double)(clock() - start) / CLOCKS_PER_SEC;
    assert_ok(weft_cluster_change(c, "cordon node 77", &sick));
    for (int r = 0; r < p.n_rank; r++)
        want += weft_cluster_node(c, p.device[r], NULL) == 77;
    start = clock();
    assert_ok(weft_place_repair(&j, sick, p.device, &q, &moved));
    double repair_s = (double)(clock() - start) / CLOCKS_PER_SEC;
    assert_int_equal(moved, want);
    print_message("placed in %.2f s, repaired in %.2f s\n", map_s, repair_s);
    if (!WEFT_TEST_SANITIZED) assert_true(map_s < 3 && repair_s < 3);
    weft_placement_fini(&p);
    weft_placement_fini(&q);
    weft_cluster_destroy(sick);
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_are_kept), cmocka_unit_test(runs_tell_all),
        cmocka_unit_test(replicas_that_lost_go), cmocka_unit_test(ten_thousand)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
