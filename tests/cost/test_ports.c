/* Who shares the ports of a node: against counting rank by rank, and in prices. */
#include "cost/ports.h"

#include <math.h>
#include <stdlib.h>

#include "cost/cost.h"
#include "support/test.h"

static uint64_t state_of = 7;

static int draw(int n)
{
    state_of = state_of * 6364136223846793005u + 1442695040888963407u;
    return (int)((state_of >> 33) % (uint64_t)n);
}

static bool has(weft_rank_range r, int64_t x)
{
    return x >= r.first && x < r.first + r.n;
}

static void crossing_ranks_are_counted(void **state)
{
    (void)state;
    for (int k = 0; k < 2000; k++) {
        weft_rank_range node   = {draw(40), 1 + draw(9)};
        weft_rank_range island = {node.first - draw(5), 0};
        weft_rank_range stage  = {draw(40), 1 + draw(20)};
        int             move = draw(41) - 20, n = 0;
        island.n = node.first + node.n - island.first + draw(5);
        for (int r = node.first; r < node.first + node.n; r++)
            n += has(stage, r) && !has(island, r + move);
        assert_int_equal(weft_cost_count_crossing(node, island, stage, move), n);
    }
}

/* A mesh of pp, dp, cp, tp, the last fastest; groups over any of its axes. */
static int other(const int *size, unsigned axes, int rank, int member)
{
    int out = 0, stride = 1;
    for (int k = 3; k >= 0; k--) {
        int at = rank % size[k];
        rank /= size[k];
        if (axes >> k & 1) {
            at = member % size[k];
            member /= size[k];
        }
        out += at * stride;
        stride *= size[k];
    }
    return out;
}

static int by_rank(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b;
}

static int members(const int *size, unsigned axes, int rank, int32_t *out)
{
    int n = 1;
    for (int k = 0; k < 4; k++)
        if (axes >> k & 1) n *= size[k];
    for (int i = 0; i < n; i++) out[i] = other(size, axes, rank, i);
    qsort(out, (size_t)n, sizeof *out, by_rank);
    return n;
}

static void members_of_crossing_groups_are_counted(void **state)
{
    weft_cluster *c;
    (void)state;
    assert_ok(weft_cluster_load("16 x (8 x v100-32g), 1 x eth-25g", NULL, &c));
    for (int k = 0; k < 500; k++) {
        const int size[4] = {1 + draw(3), 1 + draw(4), 1 + draw(3), 1 + draw(3)};
        int       world = size[0] * size[1] * size[2] * size[3], n = 0;
        unsigned  axes = 1 + (unsigned)draw(15);
        int32_t   group[128], near[128];
        int       rank = draw(world), n_group = members(size, axes, rank, group);
        if (n_group < 2) continue;
        for (int r = rank / 8 * 8; r < rank / 8 * 8 + 8 && r < world; r++) {
            int m = members(size, axes, r, near);
            n += near[0] / 8 != near[m - 1] / 8;
        }
        assert_int_equal(weft_cost_count_members(c, 0, world, group, n_group, rank), n);
    }
    weft_cluster_destroy(c);
}

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-9 * want) fail_msg("%g for %g", got, want);
}

static double message_Bps(const weft_cluster *c, int stage_ranks, int from, int to)
{
    weft_path p;
    assert_ok(weft_cost_message_path(c, stage_ranks, from, to, &p));
    return p.Bps;
}

/* Nodes of eight ranks with one port. */
static void messages_share_with_their_stage(void **state)
{
    weft_cluster *c;
    const double  port = 3.125e9 * 0.85;
    (void)state;
    assert_ok(weft_cluster_load("3 x (8 x v100-32g), 1 x eth-25g", NULL, &c));
    near(message_Bps(c, 1, 7, 8), port);     /* one rank a stage: pp=24 */
    near(message_Bps(c, 1, 8, 7), port);     /* and back */
    near(message_Bps(c, 1, 23, 0), port);    /* interleaved: the last to the first */
    near(message_Bps(c, 2, 6, 8), port / 2); /* two replicas, or tp=2 */
    near(message_Bps(c, 4, 5, 9), port / 4);
    near(message_Bps(c, 8, 3, 11), port / 8); /* whole nodes */
    near(message_Bps(c, 12, 0, 12), port / 8);
    near(message_Bps(c, 12, 9, 21), port / 8); /* four send, eight receive there */
    near(message_Bps(c, 12, 21, 9), port / 8); /* and back */
    near(message_Bps(c, 3, 5, 8), port);       /* of ranks 3 to 5 the last one leaves */
    near(message_Bps(c, 3, 6, 9), port / 2);   /* two leave */
    assert_true(message_Bps(c, 1, 6, 7) > 10 * port); /* inside a node */
    weft_cluster_destroy(c);
}

static void the_slower_end_is_by_its_own_ports(void **state)
{
    weft_cluster    *c;
    weft_group_shape g;
    const double     slow = 3.125e9 * 0.85, fast = 2.5e10 * 0.92;
    const int32_t    all[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    (void)state;
    assert_ok(weft_cluster_load("1 x (8 x v100-32g, nvlink2, 8 x eth-25g) + "
                                "1 x (8 x a100-80g, nvlink3, 1 x ib-hdr)",
                                NULL, &c));
    near(message_Bps(c, 1, 7, 8), slow); /* a slow port against a fast one */
    near(message_Bps(c, 8, 0, 8), slow); /* eight slow ones, an eighth of the fast */
    assert_ok(weft_cost_group_shape(c, 0, 16, all, 16, &g));
    near(g.outer.Bps, fmin(slow, fast / 8)); /* not an eighth of a slow one */
    weft_cluster_destroy(c);
}

/* Two stages of six on nodes of eight: sums of the first stay in its node, those of the second
 * leave it. */
static void groups_inside_a_node_take_no_port(void **state)
{
    weft_cluster    *c;
    weft_group_shape g;
    const int32_t    second[6] = {6, 7, 8, 9, 10, 11};
    (void)state;
    assert_ok(weft_cluster_load("2 x (8 x v100-32g), 1 x eth-25g", NULL, &c));
    assert_ok(weft_cost_group_shape(c, 0, 12, second, 6, &g));
    near(g.outer.Bps, 3.125e9 * 0.85 / 4); /* node 0 has two at its port, node 1 four */
    weft_cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crossing_ranks_are_counted),
        cmocka_unit_test(members_of_crossing_groups_are_counted),
        cmocka_unit_test(messages_share_with_their_stage),
        cmocka_unit_test(the_slower_end_is_by_its_own_ports),
        cmocka_unit_test(groups_inside_a_node_take_no_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
