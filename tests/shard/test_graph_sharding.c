/* Whole training steps of tiny models under the shorthand of jobs: every place runs its slices,
 * and every value, output, gradient and updated parameter is the serial one. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "partition/partition.h"
#include "support/shard_case.h"
#include "support/shard_graph.h"

#define FAMILY(name) "tests/fixtures/families/" name

/* A node that partition gives no stage (updates, what ranks make for themselves) is where the
 * first of its operands is that has one. */
static int find_stage(const weft_graph *g, const int *stage, const int *leaf, int node)
{
    const weft_graph_node *n = &g->node[node];
    for (int k = 0; k < n->n_in; k++) {
        int from = g->value[n->in[k]].node;
        int s    = from < 0 ? leaf[n->in[k]] : stage[from];
        if (s >= 0) return s;
    }
    return 0;
}

/* The stages of a pipeline's programs. */
static weft_status assign_stages(test_shard *c, int pp, weft_shard_options *o)
{
    const weft_graph *g     = c->t.graph;
    int              *cut   = WEFT_ARENA_ARRAY(c->a, int, pp + 1);
    int              *stage = WEFT_ARENA_ARRAY(c->a, int, g->n_node);
    int     *leaf   = WEFT_ARENA_ARRAY(c->a, int, g->n_value); /* of its first user */
    bool    *weight = WEFT_ARENA_ARRAY(c->a, bool, g->n_node);
    int16_t *mesh   = WEFT_ARENA_ARRAY(c->a, int16_t, g->n_node);
    WEFT_TRY(weft_arena_status(c->a));
    WEFT_TRY(weft_partition_cuts(g, pp, cut));
    WEFT_TRY(weft_partition_stages(g, pp, cut, stage, weight));
    for (weft_vid v = 0; v < g->n_value; v++) leaf[v] = -1;
    for (int i = 0; i < g->n_node; i++) {
        if (stage[i] < 0) stage[i] = find_stage(g, stage, leaf, i);
        for (int k = 0; k < g->node[i].n_in; k++)
            if (leaf[g->node[i].in[k]] < 0) leaf[g->node[i].in[k]] = stage[i];
        mesh[i] = (int16_t)stage[i];
    }
    o->node_mesh = mesh;
    return WEFT_OK;
}

static void try_plan(const char *model, const char *words)
{
    test_shard         c;
    weft_shorthand     h;
    weft_shard_options o;
    test_graph_report  r;
    clock_t            t0 = clock();
    test_shard_open(&c, model, 4, 8);
    if (weft_shorthand_parse(words, &h) != WEFT_OK ||
        weft_shorthand_expand(&h, c.t.graph, 0, c.a, &o) != WEFT_OK ||
        assign_stages(&c, h.pp, &o) != WEFT_OK ||
        weft_shard_propagate(c.t.graph, &o, &c.s) != WEFT_OK)
        fail_msg("%s %s: %s", model, words, weft_error_text());
    print_message("%s %s: ", strrchr(model, '/') + 1, words);
    test_graph_run(c.t.graph, c.s, 17, &r);
    print_message("%d values, %d reshards, %ld bytes, %.2f s\n", r.n_value, r.n_reshard,
                  (long)r.bytes, (double)(clock() - t0) / CLOCKS_PER_SEC);
    test_shard_close(&c);
}

static void gpt2(void **state)
{
    (void)state;
    static const char *const plan[] = {
        "mesh=dp=2",
        "mesh=dp=3",
        "mesh=tp=2",
        "mesh=tp=2 sp=1",
        "mesh=cp=2",
        "mesh=dp=2 zero=1",
        "mesh=dp=3 zero=2",
        "mesh=dp=2 zero=3",
        "mesh=dp=2,tp=2",
        "mesh=dp=2,tp=2 zero=1 sp=1",
        "mesh=cp=2,tp=2",
        "mesh=dp=2,cp=2 zero=3",
        "mesh=tp=3",
        "mesh=dp=1 pp=2",
        "mesh=dp=2 pp=2",
        "mesh=tp=2 pp=3 sp=1",
        "mesh=dp=2,tp=2 pp=2 zero=1",
        "mesh=dp=2 pp=2 zero=3",
        "mesh= pp=4",
    };
    for (size_t i = 0; i < sizeof plan / sizeof plan[0]; i++)
        try_plan(FAMILY("gpt2"), plan[i]);
}

static void mixtral(void **state)
{
    (void)state;
    static const char *const plan[] = {
        "mesh=dp=2",
        "mesh=ep=2",
        "mesh=ep=3",
        "mesh=tp=2",
        "mesh=dp=2,ep=2",
        "mesh=ep=2,tp=2",
        "mesh=dp=2,ep=2 zero=3",
        "mesh=tp=2 sp=1",
        "mesh=cp=2",
        "mesh=dp=2,cp=2",
        "mesh=dp=2,tp=2 sp=1 zero=2",
        "mesh=ep=2,cp=2",
        "mesh=dp=2,ep=2 pp=2 zero=1",
    };
    for (size_t i = 0; i < sizeof plan / sizeof plan[0]; i++)
        try_plan(FAMILY("mixtral"), plan[i]);
}

static void others(void **state)
{
    (void)state;
    static const char *const model[] = {FAMILY("llama"), FAMILY("bert"), FAMILY("ernie"),
                                        FAMILY("qwen2"), FAMILY("t5")};
    static const char *const plan[]  = {"mesh=dp=2 zero=2", "mesh=tp=2 sp=1",
                                        "mesh=dp=2,tp=2 zero=1", "mesh=cp=2",
                                        "mesh=dp=2 pp=2 zero=1"};
    for (size_t k = 0; k < sizeof model / sizeof model[0]; k++)
        for (size_t i = 0; i < sizeof plan / sizeof plan[0]; i++)
            try_plan(model[k], plan[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2),
        cmocka_unit_test(mixtral),
        cmocka_unit_test(others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
