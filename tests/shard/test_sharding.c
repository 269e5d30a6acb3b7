/* Whole training steps of tiny models under the strategies of jobs: every place runs its slices,
 * and every value, output, gradient and updated parameter is the serial one. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "partition/partition.h"
#include "partition/stages.h"
#include "support/shard_case.h"
#include "support/shard_graph.h"

#define FAMILY(name) "tests/fixtures/families/" name

/* The stages of a pipeline's programs. */
static weft_status assign_stages(test_shard *c, int pp, weft_shard_options *o)
{
    const weft_graph *g    = c->t.graph;
    int              *cut  = WEFT_ARENA_ARRAY(c->a, int, pp + 1);
    int              *home = WEFT_ARENA_ARRAY(c->a, int, g->n_node);
    bool             *own  = WEFT_ARENA_ARRAY(c->a, bool, g->n_node);
    int16_t          *mesh = WEFT_ARENA_ARRAY(c->a, int16_t, g->n_node);
    weft_stage_map    map;
    WEFT_TRY(weft_arena_status(c->a));
    WEFT_TRY(weft_partition_cuts(g, pp, cut));
    WEFT_TRY(weft_stage_map_make(g, pp, pp, cut, 0, c->a, &map));
    WEFT_TRY(weft_stage_map_homes(&map, home, own));
    for (int i = 0; i < g->n_node; i++) mesh[i] = (int16_t)home[i];
    o->node_mesh = mesh;
    return WEFT_OK;
}

static void try_plan(const char *model, const char *words)
{
    test_shard         c;
    weft_strategy      h;
    weft_shard_options o;
    test_graph_report  r;
    clock_t            t0 = clock();
    test_shard_open(&c, model, 4, 8);
    if (weft_strategy_parse(words, &h) != WEFT_OK ||
        weft_shard_expand(&h, c.t.graph, NULL, 0, c.a, &o) != WEFT_OK ||
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
        "dp=2",
        "dp=3",
        "tp=2",
        "tp=2 sp=true",
        "cp=2",
        "dp=2 zero=1",
        "dp=3 zero=2",
        "dp=2 zero=3",
        "dp=2 tp=2",
        "dp=2 tp=2 zero=1 sp=true",
        "cp=2 tp=2",
        "dp=2 cp=2 zero=3",
        "tp=3",
        "dp=1 pp=2",
        "dp=2 pp=2",
        "tp=2 pp=3 sp=true",
        "dp=2 tp=2 pp=2 zero=1",
        "dp=2 pp=2 zero=3",
        "pp=4",
    };
    for (size_t i = 0; i < sizeof plan / sizeof plan[0]; i++)
        try_plan(FAMILY("gpt2"), plan[i]);
}

static void mixtral(void **state)
{
    (void)state;
    static const char *const plan[] = {
        "dp=2",
        "ep=2",
        "ep=3",
        "tp=2",
        "dp=2 ep=2",
        "ep=2 tp=2",
        "dp=2 ep=2 zero=3",
        "tp=2 sp=true",
        "cp=2",
        "dp=2 cp=2",
        "dp=2 tp=2 sp=true zero=2",
        "ep=2 cp=2 mesh_order=ep,cp",
        "dp=2 ep=2 pp=2 zero=1",
    };
    for (size_t i = 0; i < sizeof plan / sizeof plan[0]; i++)
        try_plan(FAMILY("mixtral"), plan[i]);
}

static void others(void **state)
{
    (void)state;
    static const char *const model[] = {FAMILY("llama"), FAMILY("bert"), FAMILY("ernie"),
                                        FAMILY("qwen2"), FAMILY("t5")};
    static const char *const plan[]  = {"dp=2 zero=2", "tp=2 sp=true", "dp=2 tp=2 zero=1",
                                        "cp=2", "dp=2 pp=2 zero=1"};
    for (size_t k = 0; k < sizeof model / sizeof model[0]; k++)
        for (size_t i = 0; i < sizeof plan / sizeof plan[0]; i++)
            try_plan(model[k], plan[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_plain(gpt2),
        test_sanitized(mixtral),
        test_plain(others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
