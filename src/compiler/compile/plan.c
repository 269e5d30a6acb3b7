/* Plans for a model, and which part of a value a rank of a plan has. */
#include "compile/compile.h"
#include "partition/partition.h"

weft_reduction weft_compile_reduction(const weft_compile_spec *s)
{
    return s->reduction == WEFT_REDUCTION_AUTO ? WEFT_REDUCTION_INVARIANT : s->reduction;
}

void weft_compile_plan_of(const weft_training *t, weft_plan_of *of)
{
    *of = (weft_plan_of){.model       = t->model->name,
                         .graph_hash  = t->model->graph_hash,
                         .dtype       = t->spec.dtype,
                         .batch       = t->spec.batch,
                         .seq         = t->model->seq,
                         .micro_batch = t->spec.micro_batch,
                         .lanes       = t->spec.lanes,
                         .reduction   = weft_compile_reduction(&t->spec)};
}

/* The forward node of the step that stands where node i of the model's graph does. */
static int find_moved(const weft_training *t, int i)
{
    const weft_graph *g = t->model->graph;
    if (i >= g->n_node) return weft_graph_n_forward(t->graph);
    weft_vid v = weft_graph_find(t->graph, g->value[g->node[i].out[0]].name);
    return v < 0 ? -1 : t->graph->value[v].node;
}

/* Runs of a model's layers (weft_graph_find_runs; a shortened model knows its own). */
static weft_status find_runs(const weft_model *m, weft_arena *a, int *n,
                             weft_graph_layers **out)
{
    if (!m->n_run) return weft_graph_find_runs(m->graph, a, n, out);
    *n   = m->n_run;
    *out = m->run;
    return WEFT_OK;
}

weft_status weft_compile_layers(const weft_training *t, weft_arena *a, int *n, int **node)
{
    weft_graph_layers *run;
    int                n_run, n_layer = 0;
    WEFT_TRY(find_runs(t->model, a, &n_run, &run));
    for (int r = 0; r < n_run; r++) n_layer += run[r].count;
    *node = WEFT_ARENA_ARRAY(a, int, n_layer + 1);
    WEFT_TRY(weft_arena_status(a));
    *n = 0;
    for (int r = 0; r < n_run; r++)
        for (int k = 0; k < run[r].count; k++) {
            int x           = find_moved(t, run[r].start + k * run[r].length);
            (*node)[(*n)++] = x;
            if (x < 0)
                return WEFT_FAIL(WEFT_ERR_INTERNAL, "layer %d of %s is not in its step",
                                 *n - 1, t->model->name);
        }
    if (n_run)
        (*node)[*n] = find_moved(t, run[n_run - 1].start +
                                        run[n_run - 1].count * run[n_run - 1].length);
    return WEFT_OK;
}

/* First nodes of stages that have so many layers each. */
static weft_status cut_by_layers(const weft_training *t, int n_stage, const int *layers,
                                 weft_arena *a, int *cut)
{
    int n, *node, at = 0, sum = 0;
    WEFT_TRY(weft_compile_layers(t, a, &n, &node));
    for (int k = 0; k < n_stage; k++) sum += layers[k];
    if (sum != n)
        return WEFT_FAIL(WEFT_ERR_ARG, "stages of %d layers in all, but %s has %d", sum,
                         t->graph->name, n);
    for (int k = 0; k + 1 < n_stage; k++) {
        at += layers[k];
        cut[k] = node[at];
    }
    return WEFT_OK;
}

weft_status weft_compile_plan_layers(const weft_training *t, const weft_strategy *y,
                                     const int *layers, int world, weft_plan **out)
{
    weft_arena       *a       = NULL;
    weft_status       st      = WEFT_OK;
    int               n_stage = y->pp * y->chunks;
    weft_plan_input   w       = {.strategy = *y};
    weft_shard_layers all;
    WEFT_GO(weft_arena_create(&a));
    int *cut = WEFT_ARENA_ARRAY(a, int, n_stage + 1);
    WEFT_GO(weft_arena_status(a));
    weft_compile_plan_of(t, &w.of);
    w.strategy.recompute = (int)t->spec.recompute;
    w.strategy.offload   = (int)t->spec.offload;
    if (y->n_tp_exclude) {
        int *first;
        WEFT_GO(weft_compile_layers(t, a, &all.n, &first));
        all.first = first;
        w.layers  = &all;
    }
    if (layers)
        WEFT_GO(cut_by_layers(t, n_stage, layers, a, cut));
    else
        WEFT_GO(weft_partition_cuts(t->graph, n_stage, cut));
    w.cut = cut;
    WEFT_GO(weft_plan_make(&w, t->graph, world, out));
out:
    weft_arena_destroy(a);
    return st;
}

weft_status weft_compile_plan(const weft_training *t, const weft_strategy *y, int world,
                              weft_plan **out)
{
    return weft_compile_plan_layers(t, y, NULL, world, out);
}

/* Of value v as it is produced, or at rest. */
static weft_status find_value_part(const weft_compiled *c, weft_vid v, int place,
                                   weft_arena *a, weft_part *out)
{
    *out = (weft_part){.shape = c->graph->value[v].type.shape};
    for (int d = 0; d < out->shape.n; d++) {
        weft_interval *run;
        if (c->sharding) {
            WEFT_TRY(weft_layout_intervals(&c->sharding->value[v], &c->sharding->mesh[0],
                                           d, out->shape.d[d], place, a, &run,
                                           &out->n[d]));
        } else {
            run = WEFT_ARENA_NEW(a, weft_interval);
            if (!run) return weft_arena_status(a);
            *run      = (weft_interval){0, out->shape.d[d]};
            out->n[d] = 1;
        }
        out->run[d] = run;
    }
    return WEFT_OK;
}

static weft_status find_part(const weft_compiled *c, const char *name, int place,
                             weft_arena *a, weft_part *out)
{
    weft_vid v = weft_graph_find(c->graph, name);
    if (v < 0)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "graph %s has no %s", c->graph->name, name);
    return find_value_part(c, v, place, a, out);
}

weft_status weft_compiled_computed_part_of(const weft_compiled *c, const char *name,
                                           weft_arena *a, weft_part *out)
{
    weft_vid v = weft_graph_find(c->graph, name);
    if (v < 0)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "graph %s has no %s", c->graph->name, name);
    weft_vid next = c->graph->value[v].next;
    *out          = (weft_part){.shape = c->graph->value[v].type.shape};
    if (!c->sharding || next < 0 ||
        weft_layout_equal(&c->sharding->value[v], &c->sharding->value[next]))
        return WEFT_OK;
    return find_value_part(c, next, c->place, a, out);
}

weft_status weft_compiled_part_of(const weft_compiled *c, const char *name, weft_arena *a,
                                  weft_part *out)
{
    return find_part(c, name, c->place, a, out);
}

weft_status weft_compiled_standby_part_of(const weft_compiled *c, int k, const char *name,
                                          weft_arena *a, weft_part *out)
{
    int ward   = weft_standby_ward(c->program->rank, c->program->world, c->n_standby, k);
    int places = c->sharding ? c->sharding->mesh[0].n_rank : 1;
    return find_part(c, name, ward % places, a, out);
}
