#include "compile/compile.h"

#include <string.h>

#include "compile/compile_priv.h"
#include "graph/build.h"
#include "partition/partition.h"

weft_compile_spec weft_compile_spec_default(const char *model, int64_t batch, int64_t seq)
{
    return (weft_compile_spec){
        .model       = model,
        .seq         = seq,
        .batch       = batch,
        .micro_batch = batch,
        .lanes       = 1,
        .dtype       = "fp32",
        .recompute   = "none",
        .optimizer   = {"adamw", 1e-4, {0.9, 0.999}, 1e-8, 0.01, 0, 1}};
}

/* Graph text says one batch; a step has others. */
static weft_status follow_batch(const weft_compile_spec *s, weft_compiled *out)
{
    weft_model *m;
    int64_t     own = weft_graph_batch(out->model->graph);
    if (own == s->micro_batch || own < 1) return WEFT_OK;
    WEFT_TRY(weft_model_of_graph(out->model->graph, s->micro_batch, &m));
    weft_model_destroy(out->model);
    out->model = m;
    return WEFT_OK;
}

static weft_status load_model(const weft_compile_spec *s, bool with_loss, bool dropout,
                              weft_compiled *out)
{
    weft_model_options o = {
        .batch     = s->micro_batch,
        .seq       = s->seq,
        .dtype     = WEFT_DTYPE_F32, /* bf16 comes in with the training graph */
        .with_loss = with_loss,
        .dropout   = dropout};
    if (s->graph)
        WEFT_TRY(weft_model_of_graph(s->graph, s->micro_batch, &out->model));
    else
        WEFT_TRY(weft_model_load(s->model, &o, &out->model));
    if (out->model->kind == WEFT_MODEL_TEXT) WEFT_TRY(follow_batch(s, out));
    if (with_loss && out->model->loss_sum < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s has no loss to train", out->model->name);
    return s->layers ? weft_model_shorten(out->model, s->layers, s->longer, s->more)
                     : WEFT_OK;
}

static weft_status shard(const weft_compile_spec *s, weft_compiled *out)
{
    weft_arena        *a  = NULL;
    weft_status        st = WEFT_OK;
    weft_shard_options o;
    weft_plan          p = *s->plan;
    WEFT_GO(weft_arena_create(&a));
    if (!out->training.graph) WEFT_GO(weft_compile__forward_marks(s, out->graph, a, &p));
    WEFT_GO(weft_plan_shard(&p, out->graph, a, &o));
    WEFT_GO(weft_shard_propagate(out->graph, &o, &out->sharding));
    if (s->kept && s->kept->sharding) WEFT_GO(weft_compile__same_parts(s->kept, out));
out:
    weft_arena_destroy(a);
    return st;
}

/* ZeRO on one stage: collectives of sharded tensors overlap with compute, reductions among them. */
static bool overlaps_shards(const weft_plan *p)
{
    return p->strategy.zero && p->strategy.pp * p->strategy.chunks == 1;
}

/* Data-parallel ranks and stages; values replicated, or sharded as the marks say. */
static weft_status make_ranks(const weft_compile_spec *s, weft_partition_cache **cache,
                              weft_partition_options o, weft_compiled *out)
{
    const weft_plan *p    = s->plan;
    weft_arena      *a    = NULL;
    weft_status      st   = WEFT_OK;
    o.dp                  = weft_plan_lane_ranks(p);
    o.share               = p->share;
    o.pp                  = p->strategy.pp;
    o.schedule            = weft_strategy_schedule_name(&p->strategy);
    o.n_chunk             = p->strategy.chunks;
    o.ring_axes           = p->strategy.cp_comm == WEFT_CP_RING ? ~0u : 0;
    o.gather_once         = p->strategy.overlap_param_gather && out->training.graph;
    o.shard_bucket_bytes  = p->strategy.zero ? p->strategy.bucket_bytes : 0;
    o.reduce_bucket_bytes = overlaps_shards(p) ? 0 : p->strategy.bucket_bytes;
    o.cache               = cache;
    WEFT_GO(weft_arena_create(&a));
    int *cut = WEFT_ARENA_ARRAY(a, int, p->strategy.pp * p->strategy.chunks + 1);
    WEFT_GO(weft_arena_status(a));
    WEFT_GO(weft_plan_cuts(p, out->graph, cut));
    o.cut = cut;
    if (!weft_plan_lanes_only(p, out->graph)) {
        out->place = s->rank % weft_plan_places(p);
        if (!out->sharding) WEFT_GO(shard(s, out));
    }
    WEFT_GO(weft_partition_program(out->graph, out->sharding, &o, &out->program));
out:
    weft_arena_destroy(a);
    return st;
}

static weft_status make_program(const weft_compile_spec *s, weft_partition_cache **cache,
                                weft_compiled *out)
{
    weft_partition_options o = {.n_micro = (int)(s->batch / s->micro_batch),
                                .n_lane  = (int)s->lanes,
                                .rank    = s->rank};
    if (s->plan) return make_ranks(s, cache, o, out);
    return weft_partition_program(out->graph, NULL, &o, &out->program);
}

static weft_status make_training(const weft_compile_spec *s, weft_compiled *out)
{
    const weft_model  *m  = out->model;
    weft_arena        *a  = NULL;
    weft_status        st = WEFT_OK;
    weft_train_options o  = {.loss         = m->loss_sum,
                             .optimizer    = s->optimizer.name,
                             .beta         = {s->optimizer.beta[0], s->optimizer.beta[1]},
                             .eps          = s->optimizer.eps,
                             .weight_decay = s->optimizer.weight_decay,
                             .momentum     = s->optimizer.momentum,
                             .clip         = s->optimizer.clip,
                             .dtype        = strcmp(s->dtype, "bf16") ? WEFT_DTYPE_F32
                                                                      : WEFT_DTYPE_BF16,
                             .recompute    = s->recompute,
                             .n_param      = m->n_param,
                             .n_stat       = m->n_stat,
                             .n_micro      = s->batch / s->micro_batch};
    WEFT_GO(weft_arena_create(&a));
    weft_train_param *p = WEFT_ARENA_ARRAY(a, weft_train_param, m->n_param + 1);
    weft_train_stat  *t = WEFT_ARENA_ARRAY(a, weft_train_stat, m->n_stat + 1);
    WEFT_GO(weft_arena_status(a));
    for (int i = 0; i < m->n_param; i++)
        p[i] = (weft_train_param){m->param[i].value, m->param[i].decay};
    for (int i = 0; i < m->n_stat; i++)
        t[i] = (weft_train_stat){m->stat[i].p.value, m->stat[i].stat, m->stat[i].momentum,
                                 m->stat[i].unbias};
    o.param = p;
    o.stat  = t;
    WEFT_GO(weft_graph_make_training(m->graph, &o, &out->training));
    out->graph = out->training.graph;
out:
    weft_arena_destroy(a);
    return st;
}

weft_status weft_compile_model(const weft_compile_spec *s, weft_model **out)
{
    weft_compiled c  = {0};
    weft_status   st = load_model(s, true, s->dropout, &c);
    if (st == WEFT_OK)
        *out = c.model;
    else
        weft_compiled_fini(&c);
    return st;
}

weft_status weft_compile_graph(const weft_compile_spec *s, weft_compiled *out)
{
    weft_compiled c  = {0};
    weft_status   st = load_model(s, true, s->dropout, &c);
    if (st == WEFT_OK) st = make_training(s, &c);
    if (st != WEFT_OK) {
        weft_compiled_fini(&c);
        return st;
    }
    *out = c;
    return WEFT_OK;
}

weft_status weft_compile_training(const weft_compile_spec *s, weft_compiled *out)
{
    weft_compiled c = {0};
    WEFT_TRY(weft_compile_graph(s, &c));
    weft_status st = s->plan ? weft_plan_check_marks(s->plan, c.graph) : WEFT_OK;
    if (st == WEFT_OK) st = make_program(s, NULL, &c);
    if (st != WEFT_OK) {
        weft_compiled_fini(&c);
        return st;
    }
    *out = c;
    return WEFT_OK;
}

weft_status weft_compile__rank(const weft_compile_spec *s, weft_compiled *base,
                               weft_partition_cache **cache, weft_compiled *out)
{
    weft_compiled c = *base;
    c.lent          = true;
    weft_status st  = make_program(s, cache, &c);
    base->sharding  = c.sharding;
    if (st == WEFT_OK) *out = c;
    return st;
}

/* The model's own graph with the loss summed over the step. */
static weft_status sum_loss(weft_model *m)
{
    weft_graph  *g = m->graph;
    weft_builder b = weft_build_start(g);
    g->phase       = WEFT_PHASE_UPDATE;
    weft_vid sum = weft_build(&b, WEFT_OP_ACCUMULATE, "eval.loss", NULL, 1, m->loss_sum);
    WEFT_TRY(b.st);
    g->n_output = 0; /* the loss of a micro-batch is of no use to anybody */
    return weft_graph_set_output(g, sum);
}

/* Its messages beside those of the training program. */
static void move_tags(weft_program *p)
{
    for (int a = 0; a < p->n_actor; a++)
        for (int i = 0; i < p->actor[a].n_instr; i++)
            if (weft_instr_is_comm(&p->actor[a].instr[i]))
                p->actor[a].instr[i].tag += WEFT_COMPILE_EVAL_TAG;
}

weft_status weft_compile_eval(const weft_compile_spec *s, weft_compiled *out)
{
    weft_compiled c  = {0};
    weft_status   st = load_model(s, true, false, &c);
    if (st == WEFT_OK) st = sum_loss(c.model);
    if (st == WEFT_OK) c.graph = c.model->graph;
    if (st == WEFT_OK) st = make_program(s, NULL, &c);
    if (st != WEFT_OK) {
        weft_compiled_fini(&c);
        return st;
    }
    move_tags(c.program);
    *out = c;
    return WEFT_OK;
}

weft_status weft_compile_logits(const weft_compile_spec *s, weft_compiled *out)
{
    weft_compiled c  = {0};
    weft_status   st = load_model(s, false, false, &c);
    if (st == WEFT_OK) c.graph = c.model->graph;
    if (st == WEFT_OK) st = make_program(s, NULL, &c);
    if (st != WEFT_OK) {
        weft_compiled_fini(&c);
        return st;
    }
    *out = c;
    return WEFT_OK;
}

int64_t weft_compiled_bytes(const weft_compiled *c)
{
    int64_t n = weft_arena_bytes(c->program ? c->program->arena : NULL);
    n += weft_arena_bytes(c->sharding ? c->sharding->arena : NULL);
    n += weft_arena_bytes(c->training.graph ? c->training.graph->arena : NULL);
    if (!c->model) return n;
    return n + weft_arena_bytes(c->model->arena) +
           weft_arena_bytes(c->model->graph->arena);
}

void weft_compiled_fini(weft_compiled *c)
{
    weft_program_destroy(c->program);
    if (!c->lent) {
        weft_sharding_destroy(c->sharding);
        weft_graph_destroy(c->training.graph);
        weft_model_destroy(c->model);
    }
    *c = (weft_compiled){0};
}
