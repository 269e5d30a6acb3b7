#include "compile/compile.h"

#include <string.h>

#include "compile/compile_priv.h"
#include "graph/eval.h"
#include "graph/fp8.h"
#include "graph/gates.h"
#include "graph/sums.h"
#include "partition/partition.h"
#include "partition/passes.h"

/* ---- the model ---- */

/* Graph text says one batch; a step has others. */
static weft_status follow_batch(const weft_compile_spec *s, weft_model **model)
{
    weft_model *m;
    int64_t     own = weft_graph_batch((*model)->graph);
    if (own == s->micro_batch || own < 1) return WEFT_OK;
    WEFT_TRY(weft_model_of_graph((*model)->graph, s->micro_batch, &m));
    weft_model_destroy(*model);
    *model = m;
    return WEFT_OK;
}

static weft_status make_model(const weft_compile_spec *s, bool with_loss, bool dropout,
                              weft_model **out)
{
    weft_model        *m  = NULL;
    weft_status        st = WEFT_OK;
    weft_model_options o  = {
         .batch     = s->micro_batch,
         .seq       = s->seq,
         .dtype     = WEFT_DTYPE_F32, /* bf16 comes in with the training graph */
         .with_loss = with_loss,
         .dropout   = dropout};
    if (s->source)
        WEFT_GO(weft_model_build(s->source, &o, &m));
    else
        WEFT_GO(weft_model_load(s->model, &o, &m));
    if (m->kind == WEFT_MODEL_TEXT) WEFT_GO(follow_batch(s, &m));
    if (with_loss && m->loss_sum < 0)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s has no loss to train", m->name));
    if (s->layers) WEFT_GO(weft_model_shorten(m, s->layers, s->longer, s->more));
    m->graph_hash = weft_graph_hash(m->graph);
    if (s->rewrites) WEFT_GO(weft_graph_fuse_gates(m->graph));
    const char *formats = weft_compile_fp8_formats(s);
    if (formats) WEFT_GO(weft_graph_mark_fp8(m->graph, formats, m->logits));
    *out = m;
    m    = NULL;
out:
    weft_model_destroy(m);
    return st;
}

weft_status weft_compile_model(const weft_compile_spec *s, weft_model **out)
{
    return make_model(s, true, s->dropout, out);
}

weft_status weft_compile_logits_model(const weft_compile_spec *s, weft_model **out)
{
    return make_model(s, false, false, out);
}

/* ---- one rank's program ---- */

weft_status weft_compile__shard(const weft_compile__request *q, weft_sharding **out)
{
    weft_arena        *a  = NULL;
    weft_status        st = WEFT_OK;
    weft_shard_options o;
    weft_sharding     *sharding = NULL;
    *out                        = NULL;
    if (!q->plan || weft_plan_lanes_only(q->plan, q->graph)) return WEFT_OK;
    weft_plan p = *q->plan;
    WEFT_GO(weft_arena_create(&a));
    if (!q->trains) WEFT_GO(weft_compile__forward_marks(q, a, &p));
    WEFT_GO(weft_plan_shard(&p, q->graph, a, &o));
    WEFT_GO(weft_shard_propagate(q->graph, &o, &sharding));
    if (q->beside && q->beside->sharding)
        WEFT_GO(weft_compile__same_parts(q->beside, q->graph, sharding));
    *out     = sharding;
    sharding = NULL;
out:
    weft_sharding_destroy(sharding);
    weft_arena_destroy(a);
    return st;
}

/* ZeRO on one stage: collectives of sharded tensors overlap with compute, reductions among them. */
static bool overlaps_shards(const weft_plan *p)
{
    return p->strategy.zero && p->strategy.pp * p->strategy.chunks == 1;
}

/* ZeRO 2 and 3 without the lanes' order of sums. */
static bool shards_gradients(const weft_plan *p)
{
    return p->of.reduction == WEFT_REDUCTION_FIXED && p->strategy.zero > 1;
}

static int64_t offload_bytes(const weft_compile__request *q, int offload)
{
    int64_t own = q->spec->offload_bytes;
    if (!q->trains || offload != WEFT_OFFLOAD_OPTIMIZER) return 0;
    return own > 0 ? own : WEFT_OFFLOAD_CHUNK_BYTES;
}

enum {
    /* both directions are full at once: the answer to a message waits for what goes the other way,
     * small messages take one each, too */
    STANDBY_CREDITS = 8
};

/* Plans between hosts have buckets. */
static weft_status set_standby(const weft_plan *p, weft_arena *a,
                               weft_partition_options *o)
{
    bool     hosts     = p->strategy.bucket_bytes > 0;
    int      places    = weft_plan_places(p);
    int32_t *sharer    = WEFT_ARENA_ARRAY(a, int32_t, places);
    o->n_standby       = weft_plan_n_standby(p);
    o->standby_bytes   = hosts ? p->strategy.bucket_bytes : WEFT_PLAN_BUCKET;
    o->standby_credits = hosts ? STANDBY_CREDITS : 0;
    WEFT_TRY(weft_arena_status(a));
    for (int k = 0; k < places; k++)
        o->n_sharer = weft_strategy_sharers(&p->strategy, k, &sharer[k]);
    o->sharer = sharer;
    return WEFT_OK;
}

/* Data-parallel ranks and stages; values replicated, or sharded. */
static weft_status make_ranks(const weft_compile__request *q,
                              const weft_sharding *sharding, weft_partition_cache **cache,
                              weft_partition_options o, weft_program **out)
{
    const weft_plan *p       = q->plan;
    weft_arena      *a       = NULL;
    weft_status      st      = WEFT_OK;
    o.dp                     = weft_plan_lane_ranks(p);
    o.share                  = p->share;
    o.pp                     = p->strategy.pp;
    o.schedule               = weft_strategy_schedule_name(&p->strategy);
    o.n_chunk                = p->strategy.chunks;
    o.ring_axes              = p->strategy.cp_comm == WEFT_CP_RING ? ~0u : 0;
    o.gather_once            = p->strategy.overlap_param_gather && q->trains;
    o.shard_gradients        = shards_gradients(p) && q->trains;
    o.shard_bucket_bytes     = p->strategy.zero ? p->strategy.bucket_bytes : 0;
    o.reduce_bucket_bytes    = overlaps_shards(p) ? 0 : p->strategy.bucket_bytes;
    o.cache                  = cache;
    o.offload_bytes          = offload_bytes(q, p->strategy.offload);
    o.offload_gradient_bytes = WEFT_OFFLOAD_GRADIENT_BYTES;
    WEFT_GO(weft_arena_create(&a));
    int *cut = WEFT_ARENA_ARRAY(a, int, p->strategy.pp * p->strategy.chunks + 1);
    WEFT_GO(weft_arena_status(a));
    WEFT_GO(weft_plan_cuts(p, q->graph, cut));
    o.cut = cut;
    if (q->trains && weft_plan_n_standby(p)) WEFT_GO(set_standby(p, a, &o));
    WEFT_GO(weft_partition_program(q->graph, sharding, &o, out));
out:
    weft_arena_destroy(a);
    return st;
}

weft_status weft_compile__rank(const weft_compile__request *q,
                               const weft_sharding         *sharding,
                               weft_partition_cache **cache, weft_program **out)
{
    const weft_compile_spec *s = q->spec;
    weft_partition_options   o = {.n_micro      = (int)(s->batch / s->micro_batch),
                                  .n_lane       = (int)s->lanes,
                                  .rank         = q->rank,
                                  .row_elements = s->row_elements,
                                  .head_rows    = s->head_rows,
                                  .join_width   = s->join_width,
                                  .align_bytes  = s->align_bytes,
                                  .fusions      = s->fusions};
    if (q->plan) return make_ranks(q, sharding, cache, o, out);
    o.offload_bytes          = offload_bytes(q, (int)s->offload);
    o.offload_gradient_bytes = WEFT_OFFLOAD_GRADIENT_BYTES;
    return weft_partition_program(q->graph, NULL, &o, out);
}

/* out->model and forward are set. */
static weft_status compile_request(const weft_compile__request *q, weft_compiled *out)
{
    out->graph = q->graph;
    WEFT_TRY(weft_compile__shard(q, &out->sharding));
    if (out->sharding) out->place = q->rank % weft_plan_places(q->plan);
    if (q->plan && q->trains) out->n_standby = weft_plan_n_standby(q->plan);
    return weft_compile__rank(q, out->sharding, NULL, &out->program);
}

/* ---- training ---- */

static weft_status make_graph(const weft_compile_spec *s, const weft_model *m,
                              weft_graph **out)
{
    weft_training_graph made;
    weft_arena         *a  = NULL;
    weft_status         st = WEFT_OK;
    weft_train_options  o  = {.loss         = m->loss_sum,
                              .optimizer    = s->optimizer.name,
                              .beta         = {s->optimizer.beta[0], s->optimizer.beta[1]},
                              .eps          = s->optimizer.eps,
                              .weight_decay = s->optimizer.weight_decay,
                              .momentum     = s->optimizer.momentum,
                              .clip         = s->optimizer.clip,
                              .dtype     = weft_compile_is_bf16(s->dtype) ? WEFT_DTYPE_BF16
                                                                          : WEFT_DTYPE_F32,
                              .recompute = s->recompute,
                              .n_param   = m->n_param,
                              .n_stat    = m->n_stat,
                              .n_load    = m->n_load,
                              .load      = m->load,
                              .n_micro   = s->batch / s->micro_batch};
    WEFT_GO(weft_arena_create(&a));
    weft_train_param *p = WEFT_ARENA_ARRAY(a, weft_train_param, m->n_param + 1);
    weft_train_stat  *t = WEFT_ARENA_ARRAY(a, weft_train_stat, m->n_stat + 1);
    WEFT_GO(weft_arena_status(a));
    for (int i = 0; i < m->n_param; i++)
        p[i] = (weft_train_param){m->param[i].value, m->param[i].decay};
    for (int i = 0; i < m->n_stat; i++)
        t[i] = (weft_train_stat){m->stat[i].p.value, m->stat[i].stat, m->stat[i].momentum,
                                 m->stat[i].unbias, m->stat[i].rate};
    o.param = p;
    o.stat  = t;
    WEFT_GO(weft_graph_make_training(m->graph, &o, &made));
    if (s->rewrites) st = weft_graph_chain_sums(made.graph);
    if (st != WEFT_OK) {
        weft_graph_destroy(made.graph);
        goto out;
    }
    *out = made.graph;
out:
    weft_arena_destroy(a);
    return st;
}

weft_status weft_compile_training(const weft_compile_spec *s, weft_training *out)
{
    weft_training t = {.spec = *s};
    WEFT_TRY(weft_compile_model(s, &t.model));
    weft_status st = make_graph(s, t.model, &t.graph);
    if (st == WEFT_OK)
        *out = t;
    else
        weft_training_fini(&t);
    return st;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static bool same_optimizer(const weft_compile_optimizer *a,
                           const weft_compile_optimizer *b)
{
    return same_text(a->name, b->name) && a->beta[0] == b->beta[0] &&
           a->beta[1] == b->beta[1] && a->eps == b->eps &&
           a->weight_decay == b->weight_decay && a->momentum == b->momentum &&
           a->clip == b->clip;
}

bool weft_compile_spec_equal(const weft_compile_spec *x, const weft_compile_spec *s)
{
    return same_text(x->model, s->model) && x->source == s->source &&
           x->layers == s->layers && x->longer == s->longer && x->more == s->more &&
           x->seq == s->seq && x->batch == s->batch && x->micro_batch == s->micro_batch &&
           x->lanes == s->lanes &&
           weft_compile_reduction(x) == weft_compile_reduction(s) &&
           same_text(x->dtype, s->dtype) &&
           same_text(weft_compile_fp8_formats(x), weft_compile_fp8_formats(s)) &&
           x->recompute == s->recompute && x->offload == s->offload &&
           x->offload_bytes == s->offload_bytes && x->dropout == s->dropout &&
           x->row_elements == s->row_elements && x->head_rows == s->head_rows &&
           x->join_width == s->join_width && x->align_bytes == s->align_bytes &&
           x->fusions == s->fusions && x->rewrites == s->rewrites &&
           same_optimizer(&x->optimizer, &s->optimizer);
}

bool weft_training_is_for(const weft_training *t, const weft_compile_spec *s)
{
    return t->graph && weft_compile_spec_equal(&t->spec, s);
}

weft_status weft_compile_training_of(const weft_training *t, const weft_plan_of *of,
                                     weft_training *own, const weft_training **out)
{
    weft_compile_spec spec = t->spec;
    spec.micro_batch       = of->micro_batch;
    spec.lanes             = of->lanes;
    bool same              = weft_training_is_for(t, &spec);
    if (!same) WEFT_TRY(weft_compile_training(&spec, own));
    *out = same ? t : own;
    return WEFT_OK;
}

int64_t weft_training_bytes(const weft_training *t)
{
    int64_t n = weft_arena_bytes(t->graph ? t->graph->arena : NULL);
    if (!t->model) return n;
    return n + weft_arena_bytes(t->model->arena) +
           weft_arena_bytes(t->model->graph->arena);
}

void weft_training_fini(weft_training *t)
{
    weft_graph_destroy(t->graph);
    weft_model_destroy(t->model);
    *t = (weft_training){0};
}

weft_status weft_compile_program(const weft_training *t, const weft_plan *plan, int rank,
                                 weft_compiled *out)
{
    weft_compiled         c = {.model = t->model};
    weft_compile__request q = {
        .spec = &t->spec, .graph = t->graph, .plan = plan, .rank = rank, .trains = true};
    if (plan) WEFT_TRY(weft_plan_check_marks(plan, t->graph));
    weft_status st = compile_request(&q, &c);
    if (st == WEFT_OK)
        *out = c;
    else
        weft_compiled_fini(&c);
    return st;
}

/* ---- forward ---- */

/* Its messages beside those of the training program. */
static void move_tags(weft_program *p)
{
    for (int a = 0; a < p->n_actor; a++)
        for (int i = 0; i < p->actor[a].n_instr; i++)
            if (weft_instr_is_comm(&p->actor[a].instr[i]))
                p->actor[a].instr[i].tag += WEFT_COMPILE_EVAL_TAG;
}

weft_status weft_compile_eval(const weft_compile_spec *s, const weft_model *m,
                              const weft_plan *plan, int rank,
                              const weft_compiled *beside, weft_compiled *out)
{
    weft_compiled c = {.model = m};
    WEFT_TRY(weft_graph_make_eval(m->graph, m->label_sum, &c.forward));
    weft_compile__request q = {
        .spec = s, .graph = c.forward, .plan = plan, .rank = rank, .beside = beside};
    weft_status st = compile_request(&q, &c);
    if (st != WEFT_OK) {
        weft_compiled_fini(&c);
        return st;
    }
    move_tags(c.program);
    *out = c;
    return WEFT_OK;
}

weft_status weft_compile_logits(const weft_compile_spec *s, const weft_model *m,
                                weft_compiled *out)
{
    weft_compiled         c  = {.model = m};
    weft_compile__request q  = {.spec = s, .graph = m->graph};
    weft_status           st = compile_request(&q, &c);
    if (st == WEFT_OK)
        *out = c;
    else
        weft_compiled_fini(&c);
    return st;
}

/* ---- what it holds ---- */

int64_t weft_compiled_bytes(const weft_compiled *c)
{
    return weft_arena_bytes(c->program ? c->program->arena : NULL) +
           weft_arena_bytes(c->sharding ? c->sharding->arena : NULL) +
           weft_arena_bytes(c->forward ? c->forward->arena : NULL);
}

void weft_compiled_fini(weft_compiled *c)
{
    weft_program_destroy(c->program);
    weft_sharding_destroy(c->sharding);
    weft_graph_destroy(c->forward);
    *c = (weft_compiled){0};
}
