#include "support/plan_case.h"

#include "support/test.h"

/* The first forward node of the second half, third quarter, ...: any place will do. */
static void some_cuts(const weft_graph *g, int n_stage, int *cut)
{
    int n = 0;
    while (g->node[n].phase == WEFT_PHASE_FORWARD) n++;
    for (int k = 1; k < n_stage; k++) cut[k - 1] = k * n / n_stage;
}

weft_status test_plan_make(const test_shard *c, const char *words, int chunks,
                           weft_plan **out)
{
    int             cut[16];
    weft_plan_input w = {.of  = {.model       = "m",
                                 .graph_hash  = 0x123,
                                 .batch       = 16,
                                 .seq         = 8,
                                 .micro_batch = 2,
                                 .lanes       = 8},
                         .cut = cut};
    assert_ok(weft_strategy_parse(words, &w.strategy));
    w.strategy.chunks = chunks;
    if (chunks > 1) w.strategy.schedule = WEFT_STRATEGY_INTERLEAVED;
    some_cuts(c->t.graph, w.strategy.pp * chunks, cut);
    return weft_plan_make(&w, c->t.graph, 0, out);
}

char *test_plan_text(const weft_plan *p)
{
    weft_text t = {0};
    assert_ok(weft_plan_print(p, &t));
    return t.s;
}
