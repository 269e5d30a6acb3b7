/* Plans for a model, and which part of a value a rank of a plan has. */
#include "compile/compile.h"
#include "partition/partition.h"

void weft_compile_plan_of(const weft_compile_spec *s, const weft_model *m,
                          weft_plan_of *of)
{
    *of = (weft_plan_of){.model       = m->name,
                         .graph_hash  = weft_graph_hash(m->graph),
                         .batch       = s->batch,
                         .seq         = m->seq,
                         .micro_batch = s->micro_batch,
                         .lanes       = s->lanes};
}

/* First nodes of stages that have so many layers each. */
static weft_status cut_by_layers(const weft_graph *g, int n_stage, const int *layers,
                                 int *cut)
{
    weft_graph_layers l;
    int               at = 0, sum = 0;
    WEFT_TRY(weft_graph_find_layers(g, &l));
    for (int k = 0; k < n_stage; k++) sum += layers[k];
    if (sum != l.count)
        return WEFT_FAIL(WEFT_ERR_ARG, "stages of %d layers in all, but %s repeats %d",
                         sum, g->name, l.count);
    for (int k = 0; k + 1 < n_stage; k++) {
        at += layers[k];
        cut[k] = l.start + at * l.length;
    }
    return WEFT_OK;
}

weft_status weft_compile_plan_layers(const weft_compile_spec *s, const weft_shorthand *h,
                                     const char *schedule, int chunks, const int *layers,
                                     int world, weft_plan **out)
{
    weft_compiled   c  = {0};
    weft_arena     *a  = NULL;
    weft_status     st = WEFT_OK;
    weft_plan_words w  = {
         .h = *h, .schedule = schedule, .chunks = chunks, .recompute = s->recompute};
    WEFT_GO(weft_compile_graph(s, &c));
    WEFT_GO(weft_arena_create(&a));
    int *cut = WEFT_ARENA_ARRAY(a, int, h->pp *chunks + 1);
    WEFT_GO(weft_arena_status(a));
    weft_compile_plan_of(s, c.model, &w.of);
    if (layers)
        WEFT_GO(cut_by_layers(c.graph, h->pp * chunks, layers, cut));
    else
        WEFT_GO(weft_partition_cuts(c.graph, h->pp * chunks, cut));
    w.cut = cut;
    WEFT_GO(weft_plan_make(&w, c.graph, world, out));
out:
    weft_arena_destroy(a);
    weft_compiled_fini(&c);
    return st;
}

weft_status weft_compile_plan(const weft_compile_spec *s, const weft_shorthand *h,
                              const char *schedule, int chunks, int world,
                              weft_plan **out)
{
    return weft_compile_plan_layers(s, h, schedule, chunks, NULL, world, out);
}

weft_status weft_compiled_part_of(const weft_compiled *c, const char *name, weft_arena *a,
                                  weft_compiled_part *out)
{
    weft_vid v = weft_graph_find(c->graph, name);
    if (v < 0)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "graph %s has no %s", c->graph->name, name);
    *out = (weft_compiled_part){.type = c->graph->value[v].type};
    for (int d = 0; d < out->type.shape.n && c->sharding; d++)
        WEFT_TRY(weft_layout_intervals(&c->sharding->value[v], &c->sharding->mesh[0], d,
                                       out->type.shape.d[d], c->place, a, &out->run[d],
                                       &out->n[d]));
    for (int d = 0; d < out->type.shape.n && !c->sharding; d++) {
        out->n[d]   = 1;
        out->run[d] = WEFT_ARENA_NEW(a, weft_interval);
        if (!out->run[d]) return weft_arena_status(a);
        *out->run[d] = (weft_interval){0, out->type.shape.d[d]};
    }
    return WEFT_OK;
}
