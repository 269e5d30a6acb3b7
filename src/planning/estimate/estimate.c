/* A row -> rows of cost -> the best point that it leaves open; see estimate.h. */
#include "estimate/estimate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "estimate/describe.h"
#include "estimate/estimate_priv.h"

enum {
    MAX_MICRO   = 24,
    MAX_CHUNKS  = 12,
    MAX_VARIANT = MAX_MICRO * 3
};

/* ---- what a row leaves open ---- */

typedef struct choices {
    int                 n_micro, micro[MAX_MICRO]; /* micro-batch sizes */
    int                 n_chunks, chunks[MAX_CHUNKS];
    int                 n_again;
    weft_cost_recompute again[3];
    int                 n_open;
} choices;

static void open_micro(const weft_config *c, choices *o)
{
    if (c->micro_batch > 0) {
        o->micro[o->n_micro++] = c->micro_batch;
        return;
    }
    int share = c->global_batch / c->dp;
    for (int b = 1; b <= share && b <= 64 && o->n_micro < MAX_MICRO; b *= 2)
        if (share % b == 0) o->micro[o->n_micro++] = b;
    if (!o->n_micro) o->micro[o->n_micro++] = 1;
    o->n_open++;
}

static void open_chunks(const weft_config *c, int most, choices *o)
{
    o->chunks[o->n_chunks++] = c->vpp > 0 && c->pp > 1 ? c->vpp : 1;
    if (c->vpp > 0 || c->pp < 2) return;
    int mine = (c->layers + c->pp - 1) / c->pp; /* the ends may hold fewer */
    for (int v = 2; v <= mine && v <= most && o->n_chunks < MAX_CHUNKS; v++)
        if (mine % v == 0) o->chunks[o->n_chunks++] = v;
    o->n_open++;
}

/* Of each stage some layers run again, others not. */
static bool some_again(const weft_config *c)
{
    return c->recompute_layers > 0 && !strcmp(c->recompute, "full");
}

static void open_recompute(const weft_config *c, choices *o)
{
    if (some_again(c)) o->again[o->n_again++] = WEFT_RECOMPUTE_NONE;
    for (int i = 0; i < WEFT_RECOMPUTE_N; i++)
        if (!strcmp(c->recompute, weft_cost_recompute_name(i)))
            o->again[o->n_again++] = (weft_cost_recompute)i;
    if (o->n_again) return;
    for (int i = 0; i < 3; i++) o->again[o->n_again++] = (weft_cost_recompute)i;
    o->n_open++;
}

/* ---- the table of one row ---- */

typedef struct build {
    const weft_config      *c;
    weft_cost_table         t;
    weft_estimate__machines at;
    weft_cost_variant       variant[MAX_VARIANT];
    weft_cost_segment       segment[2];
    weft_cost_row           row[WEFT_COST_MAX_DEVICE * MAX_VARIANT * WEFT_LAYER_N];
    uint16_t                cut[4096 + 4];
} build;

static bool overlaps(const char *features)
{
    return strstr(features, "tp-comm-overlap") || strstr(features, "asyncTP");
}

void weft_estimate_fill(const weft_config *c, const weft_cost_engine *of,
                        const weft_cost_variant *v, const weft_device_kind *d,
                        const weft_cost_fabric *f, weft_cost_row *row)
{
    weft_device_kind slow = *d;
    weft_flop_rate   rate[8];
    weft_cost_engine e = *of;
    weft_description x;
    const char      *dtype = weft_estimate__dtype_of(d, c->precision);
    const char      *half  = weft_estimate__half_of(d, c->precision);
    if (e.eager > 1 && !strstr(c->features, "compile")) e.stream *= e.eager;
    slow.rate  = rate;
    bool newer = !strncmp(weft_estimate__dtype_of(d, "fp8"), "f8", 2);
    slow.attention *= e.attention * (newer ? e.older_kernels : 1);
    for (int i = 0; i < d->n_rate && i < 8; i++) {
        rate[i] = d->rate[i];
        if (strstr(c->features, "rowwise") && !strncmp(rate[i].dtype, "f8", 2))
            rate[i].efficiency *= e.rowwise;
    }
    for (int k = 0; k < WEFT_LAYER_N; k++) {
        bool block = k == WEFT_LAYER_DENSE || k == WEFT_LAYER_EXPERTS;
        if (k == WEFT_LAYER_EXPERTS && c->experts < 1) continue;
        weft_describe(c, v, &e, (weft_layer_class)k, dtype, half, &x);
        weft_cost_fill(&x.layer, block ? v->recompute : WEFT_RECOMPUTE_NONE,
                       overlaps(c->features), &slow, f, &e, &row[k]);
    }
}

void weft_estimate_table(const weft_config *c, weft_cost_segment *segment,
                         weft_cost_table *t)
{
    t->n_class = WEFT_LAYER_N;
    t->first   = WEFT_LAYER_INPUT;
    t->last    = WEFT_LAYER_HEAD;
    t->segment = segment;
    t->tied    = c->tied_embedding > 0;
    int dense  = c->experts > 0
                     ? (c->moe_first_dense < c->layers ? c->moe_first_dense : c->layers)
                     : c->layers;
    if (dense > 0) segment[t->n_segment++] = (weft_cost_segment){WEFT_LAYER_DENSE, dense};
    if (dense < c->layers)
        segment[t->n_segment++] =
            (weft_cost_segment){WEFT_LAYER_EXPERTS, c->layers - dense};
    t->param_bytes = !strcmp(c->precision, "fp32") ? 4 : 2;
    t->grad_bytes  = t->engine.grad_bytes;
    if (!(t->grad_bytes > 0)) t->grad_bytes = !strcmp(c->precision, "fp16") ? 2 : 4;
    if (!strcmp(c->grad_dtype, "fp32")) t->grad_bytes = 4;
    if (!strcmp(c->grad_dtype, "bf16") || !strcmp(c->grad_dtype, "fp16")) {
        t->grad_bytes        = 2; /* and so they are kept */
        t->engine.mem_weight = fmin(t->engine.mem_weight, t->param_bytes + 2);
    }
}

static void fill_table(build *b, const choices *o)
{
    const weft_config *c = b->c;
    weft_cost_table   *t = &b->t;
    weft_estimate_table(c, b->segment, t);
    t->variant  = b->variant;
    t->row      = b->row;
    t->n_device = b->at.n;
    t->device   = b->at.device;
    t->fabric   = b->at.fabric;
    for (int m = 0; m < o->n_micro; m++)
        for (int r = 0; r < o->n_again; r++)
            b->variant[t->n_variant++] = (weft_cost_variant){.tp          = c->tp,
                                                             .cp          = c->cp,
                                                             .ep          = c->ep,
                                                             .sp          = c->sp > 0,
                                                             .micro_batch = o->micro[m],
                                                             .recompute   = o->again[r]};
    for (int d = 0; d < t->n_device; d++)
        for (int v = 0; v < t->n_variant; v++)
            weft_estimate_fill(c, &t->engine, &b->variant[v], &t->device[d],
                               &t->fabric[d],
                               &b->row[(d * t->n_variant + v) * WEFT_LAYER_N]);
}

/* ---- stages ---- */

/* A stage between the ends that gets no layer has nothing to run. */
static bool has_gap(const weft_config *c, const uint16_t *cut)
{
    for (int s = 1; s + 1 < c->pp; s++)
        if (!cut[s]) return true;
    return false;
}

/* Stages by products, as some engines cut: parts are dealt in order, and the next stage begins
 * once the running sum has passed this one's share.  Parts without products take part too: the
 * input side, the last norm and, after the head, a cast and the loss.  False where a stage stays
 * without any part. */
static bool cut_by_cost(const weft_config *c, uint16_t *cut)
{
    double h = c->hidden, q = (double)c->head_dim * (2 * c->heads + 2 * c->kv_heads) * h;
    double one = q + (c->gated_mlp ? 3.0 : 2.0) * h * c->ffn_hidden, head = h * c->vocab;
    double all = one * c->layers + head, sum = 0;
    int    s = 0, used = 0;
    memset(cut, 0, sizeof(*cut) * (size_t)c->pp);
    for (int i = -1; i < c->layers + 4; i++) {
        bool layer = i >= 0 && i < c->layers;
        if (layer) cut[s]++;
        used = s;
        sum += layer ? one : i == c->layers + 1 ? head : 0;
        if (sum > all * (s + 1) / c->pp && s + 1 < c->pp) s++;
    }
    return used == c->pp - 1;
}

/* ---- the best of what is open ---- */

static bool better(const weft_cost_score *a, const weft_cost_score *b)
{
    bool x = a->mem_bytes <= a->mem_limit, y = b->mem_bytes <= b->mem_limit;
    if (x != y) return x;
    return x ? a->step_s < b->step_s : a->mem_bytes < b->mem_bytes;
}

/* Where recomputation is open: as many layers as it takes run again, none more. */
static void blend(weft_cost_score *full, const weft_cost_score *none)
{
    double over = none->mem_bytes - none->mem_limit,
           won  = none->mem_bytes - full->mem_bytes;
    if (over <= 0 || over >= won || full->step_s <= none->step_s) return;
    double part = over / won;
    part *= part; /* what is cheap to run again goes first */
    full->step_s    = none->step_s + part * (full->step_s - none->step_s);
    full->again_s   = none->again_s + part * (full->again_s - none->again_s);
    full->comm_s    = none->comm_s + part * (full->comm_s - none->comm_s);
    full->mem_bytes = full->mem_limit;
}

static weft_cost_score score(const build *b, const choices *o, const uint16_t *cut, int v,
                             int chunks)
{
    const weft_config       *c     = b->c;
    const weft_cost_variant *x     = &b->variant[v];
    int64_t                  batch = (int64_t)c->dp * x->micro_batch;
    weft_cost_point          p     = {
                     .variant    = v,
                     .dp         = c->dp,
                     .pp         = c->pp,
                     .chunks     = chunks,
                     .n_micro    = (int)((c->global_batch + batch - 1) / batch),
                     .zero       = c->zero,
                     .zero_group = c->zero_group > 0 ? c->zero_group : 0,
                     .cut        = cut,
                     .kinds      = b->at.n > 1 ? b->at.stage : NULL,
                     .dp_overlap = strstr(c->features, "dp-overlap") != NULL,
    };
    weft_cost_score s, none;
    if (some_again(c)) {
        p.n_again = c->recompute_layers;
        p.rest    = v - 1;
    }
    weft_cost_score_point(&b->t, &p, &s);
    if (o->n_again == 3 && x->recompute == WEFT_RECOMPUTE_FULL) {
        p.variant = v - 2; /* the same without */
        weft_cost_score_point(&b->t, &p, &none);
        blend(&s, &none);
    }
    return s;
}

static void search(build *b, const choices *o, const uint16_t *cut, weft_prediction *out)
{
    bool have = false;
    for (int v = 0; v < b->t.n_variant; v++)
        for (int i = 0; i < o->n_chunks; i++) {
            if (some_again(b->c) && b->variant[v].recompute == WEFT_RECOMPUTE_NONE)
                continue;
            weft_cost_score s = score(b, o, cut, v, o->chunks[i]);
            if (have && !better(&s, &out->score)) continue;
            have             = true;
            out->score       = s;
            out->micro_batch = b->variant[v].micro_batch;
            out->recompute   = (int)b->variant[v].recompute;
            out->chunks      = o->chunks[i];
        }
}

/* Does the engine not get through with this plan, whatever the memory? */
static bool stuck(const build *b, int micro_batch)
{
    const weft_config *c = b->c;
    double             m = (double)c->global_batch / c->dp / micro_batch,
           most          = b->t.engine.max_micro;
    return most > 0 && c->zero == 0 && c->pp > 1 && c->dp > 1 && m > most &&
           c->n_node > 1;
}

void weft_estimate_interval(const weft_cost_engine *e, double step_s, bool known,
                            int n_open, double *lo, double *hi)
{
    double var = e->spread * e->spread + n_open * e->spread_open * e->spread_open;
    if (!known) var += 0.1 * 0.1;
    double wide = 1.645 * sqrt(var);
    *lo         = step_s * exp(-wide);
    *hi         = step_s * fmax(exp(wide), e->longest);
}

static void conclude(const build *b, const choices *o, bool empty, weft_prediction *out)
{
    out->step_s = out->score.step_s;
    weft_estimate_interval(&b->t.engine, out->step_s, b->at.known, o->n_open,
                           &out->step_lo, &out->step_hi);
    out->mem_bytes = out->score.mem_bytes;
    out->fits =
        fmax(out->mem_bytes, out->score.late_bytes) <= out->score.mem_limit && !empty;
}

weft_status weft_estimate_row(const weft_hardware *h, const weft_cost_constants *k,
                              const weft_config *c, weft_prediction *out)
{
    build *b = calloc(1, sizeof(*b));
    if (!b) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a row");
    choices         o     = {0};
    weft_status     st    = WEFT_OK;
    const uint16_t *cut   = NULL;
    bool            empty = false;
    b->c                  = c;
    *out                  = (weft_prediction){0};
    WEFT_GO(weft_estimate__machines_of(h, k, c, &b->at));
    open_micro(c, &o);
    weft_cost_constants_engine(k, c->framework, &b->t.engine);
    for (int i = 0; i < b->at.n; i++)
        weft_cost_widen(k, c->framework, b->at.device[i].name, &b->t.engine);
    open_chunks(c, (int)b->t.engine.max_chunks, &o);
    open_recompute(c, &o);
    fill_table(b, &o);
    if (c->pp > 1 && weft_config_cut(c, b->cut)) {
        empty = has_gap(c, b->cut);
        cut   = b->cut;
    } else if (c->pp > 1 && b->t.engine.split_by_cost > 0.5) {
        empty = !cut_by_cost(c, b->cut);
        cut   = b->cut;
    }
    search(b, &o, cut, out);
    conclude(b, &o, empty || stuck(b, out->micro_batch), out);
    if (!isfinite(out->step_s) || !(out->step_s > 0))
        st = WEFT_FAIL(WEFT_ERR_ARG, "%s has no peak for %s", c->hw, c->precision);
out:
    free(b);
    return st;
}
