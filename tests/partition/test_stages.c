/* Stages of a pipeline: what crosses between them, and where parameters are. */
#include <stdlib.h>

#include "partition/partition.h"
#include "partition/stages.h"
#include "support/shard_case.h"
#include "support/test.h"

enum {
    N_STAGE = 4
};

typedef struct staged {
    test_shard     c;
    int            cut[N_STAGE - 1];
    weft_stage_map map;
} staged;

static void open_staged(staged *x)
{
    test_shard_open(&x->c, "gpt2", 1, 64);
    const weft_graph *g = x->c.t.graph;
    assert_ok(weft_partition_cuts(g, N_STAGE, x->cut));
    assert_ok(weft_partition_check_cuts(g, N_STAGE, x->cut));
    assert_ok(weft_stage_map_make(g, N_STAGE, N_STAGE, x->cut, 0, x->c.a, &x->map));
}

/* The residual stream and its gradient cross, between neighbours, and nothing else. */
static void only_the_residual_stream_crosses(void **state)
{
    staged x;
    int    n_crossing = 0, seen = 0;
    (void)state;
    open_staged(&x);
    const weft_graph *g = x.c.t.graph;
    for (int i = 0; i < g->n_node; i++) {
        if (x.map.stage[i] >= 0) seen |= 1 << x.map.stage[i];
        for (int k = 0; k < g->node[i].n_in && x.map.stage[i] >= 0; k++) {
            weft_vid v    = g->node[i].in[k];
            int      from = g->value[v].node;
            if (from < 0 || x.map.stage[from] < 0 || x.map.stage[from] == x.map.stage[i])
                continue;
            const weft_shape *s = &g->value[v].type.shape;
            n_crossing++;
            assert_int_equal(s->n, 3);
            assert_int_equal(s->d[2], 768);
            assert_int_equal(abs(x.map.stage[i] - x.map.stage[from]), 1);
        }
    }
    assert_true(n_crossing > 0);
    assert_int_equal(seen, (1 << N_STAGE) - 1);
    test_shard_close(&x.c);
}

/* The stages that use v, as bits; a node without a stage is made wherever its result is used. */
static int find_users(const staged *x, weft_vid v)
{
    const weft_graph *g    = x->c.t.graph;
    int               seen = 0;
    for (int i = 0; i < g->n_node && g->node[i].phase != WEFT_PHASE_UPDATE; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            if (g->node[i].in[k] != v) continue;
            if (x->map.stage[i] >= 0) seen |= 1 << x->map.stage[i];
            for (int j = 0; j < g->node[i].n_out && x->map.stage[i] < 0; j++)
                seen |= find_users(x, g->node[i].out[j]);
        }
    return seen;
}

/* A parameter is used on one stage in both passes; the tied one on the first and the last. */
static void parameters_have_one_stage(void **state)
{
    staged x;
    int    n_tied = 0;
    (void)state;
    open_staged(&x);
    const weft_graph *g = x.c.t.graph;
    for (int i = 0; i < x.c.m->n_param; i++) {
        int seen = find_users(&x, weft_graph_find(g, x.c.m->param[i].name));
        assert_true(seen);
        if (!(seen & (seen - 1))) continue;
        assert_string_equal(x.c.m->param[i].name, "transformer.wte.weight");
        assert_int_equal(seen, 1 | 1 << (N_STAGE - 1));
        n_tied++;
    }
    assert_int_equal(n_tied, 1);
    test_shard_close(&x.c);
}

/* The cost of a parameter's update counts on the stage that uses it first. */
static void updates_are_with_their_parameters(void **state)
{
    staged x;
    (void)state;
    open_staged(&x);
    const weft_graph *g    = x.c.t.graph;
    int              *home = WEFT_ARENA_ARRAY(x.c.a, int, g->n_node);
    bool             *own  = WEFT_ARENA_ARRAY(x.c.a, bool, g->n_node);
    assert_ok(weft_arena_status(x.c.a));
    assert_ok(weft_stage_map_homes(&x.map, home, own));
    for (int i = 0; i < x.c.m->n_param; i++) {
        weft_vid v      = weft_graph_find(g, x.c.m->param[i].name);
        int      update = g->value[g->value[v].next].node, users = find_users(&x, v);
        assert_true(own[update]);
        assert_true(users >> home[update] & 1);
        assert_false(users & ((1 << home[update]) - 1));
    }
    test_shard_close(&x.c);
}

static void more_stages_than_layers_are_refused(void **state)
{
    staged x;
    int    cut[300];
    (void)state;
    open_staged(&x);
    assert_fails(weft_partition_cuts(x.c.t.graph, 300, cut), WEFT_ERR_ARG,
                 "take at most");
    cut[0] = cut[1] = x.cut[0];
    assert_fails(weft_partition_check_cuts(x.c.t.graph, 3, cut), WEFT_ERR_ARG,
                 "cuts ascend");
    test_shard_close(&x.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_residual_stream_crosses),
        cmocka_unit_test(parameters_have_one_stage),
        cmocka_unit_test(updates_are_with_their_parameters),
        cmocka_unit_test(more_stages_than_layers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
