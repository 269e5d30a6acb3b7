/* torchtitan's TOML. */
#include <limits.h>
#include <string.h>

#include "base/doc.h"
#include "base/suggest.h"
#include "engine/engine_priv.h"

/* Sizes of the flavours that its files name. */
typedef struct flavour {
    const char *model, *name;
    int         layers, hidden, heads, kv_heads, ffn, vocab;
} flavour;

static const flavour flavours[] = {
    {"llama3", "8B", 32, 4096, 32, 8, 14336, 128256},
    {"llama3", "70B", 80, 8192, 64, 8, 28672, 128256},
    {"llama3", "405B", 126, 16384, 128, 8, 53248, 128256},
};

/* rope_theta of all flavours (v0.2.2, models/llama3/__init__.py). */
#define ROTARY_BASE 500000

#define DEGREES(table)                                                                   \
    table ".tensor_parallel_degree", table ".pipeline_parallel_degree",                  \
        table ".context_parallel_degree", table ".expert_parallel_degree",               \
        table ".data_parallel_shard_degree", table ".data_parallel_replicate_degree"

static const char *const read_keys[] = {
    DEGREES("parallelism"), DEGREES("experimental"), DEGREES("training"), "model.name",
    "model.flavor", "training.batch_size", "training.local_batch_size",
    "training.global_batch_size", "training.seq_len", "training.compile",
    "parallelism.pipeline_parallel_microbatch_size",
    "parallelism.enable_async_tensor_parallel", "parallelism.fsdp_reshard_after_forward",
    "training.mixed_precision_param", "activation_checkpoint.mode", "compile.enable",
    "training.enable_cpu_offload", "model.converters", "float8.enable_float8_linear",
    "training.enable_float8_linear", "training.enable_fp8_linear", "training.fp8_linear",
    "model", "training", "parallelism", "activation_checkpoint", "compile", "float8",
    "quantize",
    /* and what changes nothing */
    "float8.*", "quantize.*", "mx.*", "validation.*", "job.*", "profiling.*", "metrics.*",
    "optimizer.*", "lr_scheduler.*", "checkpoint.*", "comm.*", "training.steps",
    "training.warmup_steps", "training.max_norm", "training.dataset",
    "training.dataset_path", "training.seed", "training.deterministic",
    "model.tokenizer_path", "model.hf_assets_path", "compile.components"};

enum {
    N_HARMLESS = 21
};

static weft_status read_model(const weft_doc *d, const weft_node *root, weft_config *c)
{
    const weft_node *m    = weft_node_get(root, "model");
    const char      *name = "", *size = "";
    if (!m || m->kind != WEFT_NODE_MAP || c->layers > 0) return WEFT_OK;
    WEFT_TRY(weft_doc_get_string(d, m, "name", &name));
    WEFT_TRY(weft_doc_get_string(d, m, "flavor", &size));
    for (size_t i = 0; i < WEFT_COUNT(flavours); i++) {
        const flavour *f = &flavours[i];
        if (strcmp(f->model, name) || strcmp(f->name, size)) continue;
        c->family         = "llama";
        c->layers         = f->layers;
        c->hidden         = f->hidden;
        c->heads          = f->heads;
        c->kv_heads       = f->kv_heads;
        c->head_dim       = f->hidden / f->heads;
        c->ffn_hidden     = f->ffn;
        c->vocab          = f->vocab;
        c->gated_mlp      = 1;
        c->tied_embedding = 0;
        return WEFT_OK;
    }
    if (!*name && !*size)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s:%d: [model] has no name and no flavor: give "
                         "its config.json with --model",
                         weft_doc_file(d), m->line);
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s:%d: model %s %s is not known here: give its "
                     "config.json with --model",
                     weft_doc_file(d), m->line, name, size);
}

/* A number of a table, from whichever of two names it has. */
static weft_status get(const weft_doc *d, const weft_node *root, const char *table,
                       const char *key, int64_t *out)
{
    const weft_node *t = weft_node_get(root, table);
    if (!t || t->kind != WEFT_NODE_MAP) return WEFT_OK;
    WEFT_TRY(weft_doc_get_int(d, t, key, out));
    if (*out < -1 || *out > 1 << 24)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: %s.%s: %lld is out of range",
                         weft_doc_file(d), t->line, table, key, (long long)*out);
    return WEFT_OK;
}

typedef struct degrees {
    int64_t tp, pp, cp, ep, shard, replicate;
    /* after the forward pass: always, never, default: not in pipelines */
    const char *reshard;
} degrees;

static weft_status read_degrees(const weft_doc *d, const weft_node *root, degrees *g)
{
    static const char *const table[] = {"parallelism", "experimental", "training"};
    *g                               = (degrees){.tp        = 1,
                                                 .pp        = 1,
                                                 .cp        = 1,
                                                 .ep        = 1,
                                                 .shard     = -1,
                                                 .replicate = 1,
                                                 .reshard   = "default"};
    const weft_node *t               = weft_node_get(root, "parallelism");
    if (t && t->kind == WEFT_NODE_MAP)
        WEFT_TRY(weft_doc_get_string(d, t, "fsdp_reshard_after_forward", &g->reshard));
    for (size_t i = 0; i < WEFT_COUNT(table); i++) { /* where releases have had them */
        WEFT_TRY(get(d, root, table[i], "tensor_parallel_degree", &g->tp));
        WEFT_TRY(get(d, root, table[i], "pipeline_parallel_degree", &g->pp));
        WEFT_TRY(get(d, root, table[i], "context_parallel_degree", &g->cp));
        WEFT_TRY(get(d, root, table[i], "expert_parallel_degree", &g->ep));
        WEFT_TRY(get(d, root, table[i], "data_parallel_shard_degree", &g->shard));
        WEFT_TRY(get(d, root, table[i], "data_parallel_replicate_degree", &g->replicate));
    }
    if (g->tp < 1 || g->pp < 1 || g->cp < 1 || g->ep < 1 || g->replicate < 1 || !g->shard)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: a degree of parallelism below 1",
                         weft_doc_file(d));
    if (g->tp * g->pp > 1 << 24 || g->cp * g->replicate > 1 << 24)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: too many devices", weft_doc_file(d));
    return WEFT_OK;
}

static weft_status put_degrees(const weft_doc *d, const degrees *g, int world,
                               weft_config *c)
{
    int64_t rest = g->tp * g->pp * g->cp * g->replicate, shard = g->shard;
    if (shard < 0) {
        if (world && world % rest)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "%s: %d devices are no multiple of tp x pp x cp x replicas = %lld",
                weft_doc_file(d), world, (long long)rest);
        shard = world ? world / rest : 1;
    }
    c->tp = (int)g->tp;
    c->pp = (int)g->pp;
    c->cp = (int)g->cp;
    c->ep = (int)g->ep;
    if (world || g->shard > 0) c->dp = (int)(shard * g->replicate);
    bool whole = !strcmp(g->reshard, "never") ||
                 (strcmp(g->reshard, "always") && g->pp > 1); /* gathered once a step */
    c->zero       = shard * g->cp > 1 ? (whole ? 2 : 3) : 0;
    c->zero_group = (int)(shard * g->cp);
    c->sp         = c->tp > 1;
    return WEFT_OK;
}

static weft_status read_batch(const weft_doc *d, const weft_node *root, weft_config *c)
{
    int64_t local = 8, all = -1, seq = 2048, piece = 1;
    WEFT_TRY(get(d, root, "training", "batch_size", &local));
    WEFT_TRY(get(d, root, "training", "local_batch_size", &local));
    WEFT_TRY(get(d, root, "training", "global_batch_size", &all));
    WEFT_TRY(get(d, root, "training", "seq_len", &seq));
    WEFT_TRY(get(d, root, "parallelism", "pipeline_parallel_microbatch_size", &piece));
    if (local < 1 || seq < 1 || !all || piece < 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: training: a batch or sequence below 1",
                         weft_doc_file(d));
    c->seq         = (int)seq;
    c->micro_batch = (int)(c->pp > 1 ? piece : local);
    if (all > 0)
        c->global_batch = (int)all;
    else if (c->dp > 0 && local * c->dp <= 100000000)
        c->global_batch = (int)local * c->dp;
    return WEFT_OK;
}

/* ---- 8 bits ----
 *
 * What switches float8 on, by torchtitan's releases (its config manager, llama3_70b.toml):
 *   until July 2024      training.fp8_linear, then .enable_fp8_linear, then .enable_float8_linear
 *   until February 2025  float8.enable_float8_linear
 *   v0.1.0 (June 2025)   model.converters = ["float8"]; months before, a string with commas
 *   v0.2.0 to v0.2.2     model.converters = ["quantize.linear.float8"]; for some days in
 *                        September 2025 "quantize.dense.float8".  v0.2.2's llama3_405b.toml
 *                        still has "float8", which is read as it is meant
 *   after v0.2.2         Python instead of TOML
 * The tables [float8] and [quantize.linear.float8] say how: alone they switch nothing on. */

/* The converters that quantize, and to what. */
static const struct converter {
    const char *name, *table; /* table: of its recipe and of `emulate` */
    bool        linear;       /* of all linear layers, not of experts alone */
    bool        mx;
} converters[] = {
    {"float8", "float8", true, false},
    {"quantize.linear.float8", "quantize.linear.float8", true, false},
    {"quantize.dense.float8", "quantize.dense.float8", true, false},
    {"mx", "mx", true, true},
    {"quantize.linear.mx", "quantize.linear.mx", true, true},
    {"quantize.dense.mx", "quantize.dense.mx", true, true},
    {"quantize.grouped_mm.float8", "quantize.grouped_mm.float8", false, false},
    {"quantize.moe.float8", "quantize.moe.float8", false, false},
    {"quantize.grouped_mm.mx", "quantize.grouped_mm.mx", false, true},
    {"quantize.moe.mx", "quantize.moe.mx", false, true},
};

/* The table of a dotted name, or NULL. */
static const weft_node *find_table(const weft_node *at, const char *dotted)
{
    char part[64];
    while (at && *dotted) {
        size_t n = strcspn(dotted, ".");
        if (at->kind != WEFT_NODE_MAP || n >= sizeof part) return NULL;
        memcpy(part, dotted, n);
        part[n] = 0;
        at      = weft_node_get(at, part);
        dotted += n + (dotted[n] == '.');
    }
    return at && at->kind == WEFT_NODE_MAP ? at : NULL;
}

/* Emulated 8 bits are rounded numbers in products of 16 bits; mx has recipes of 4 bits. */
static weft_status read_recipe(const weft_doc *d, const weft_node *root,
                               const struct converter *x, weft_config *c)
{
    const weft_node *t       = find_table(root, x->table);
    const char      *recipe  = "";
    bool             emulate = false;
    if (t && !x->mx) WEFT_TRY(weft_doc_get_bool(d, t, "emulate", &emulate));
    if (t && x->mx) WEFT_TRY(weft_doc_get_string(d, t, "recipe_name", &recipe));
    if (emulate) return WEFT_OK;
    c->precision = strstr(recipe, "fp4") ? "fp4" : "fp8";
    if (x->mx) c->features = WEFT_ENGINE__MX; /* the first feature that is read */
    return WEFT_OK;
}

static const struct converter *find_converter(const char *name)
{
    for (size_t i = 0; i < WEFT_COUNT(converters); i++)
        if (!strcmp(converters[i].name, name)) return &converters[i];
    return NULL;
}

/* torchtitan stops at a converter that it does not know, so a slip is a mistake here too. */
static weft_status check_converter(const weft_doc *d, const weft_node *at,
                                   const char *name)
{
    const char *known[WEFT_COUNT(converters)];
    for (size_t i = 0; i < WEFT_COUNT(converters); i++) known[i] = converters[i].name;
    const char *near = weft_suggest(name, known, (int)WEFT_COUNT(converters));
    if (!near) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s:%d: model.converters: '%.60s' is not known, did you mean '%s'?",
                     weft_doc_file(d), at->line, name, near);
}

/* One converter.  Those of experts alone are counted in 16 bits and named, like those that are not
 * known. */
static weft_status read_converter(const weft_doc *d, const weft_node *root,
                                  const weft_node *at, const char *name, weft_config *c,
                                  weft_text *ignored)
{
    const struct converter *x = find_converter(name);
    if (!x) WEFT_TRY(check_converter(d, at, name));
    if (x && x->linear) return read_recipe(d, root, x, c);
    if (ignored && !(x && !strcmp(c->precision, "fp8")))
        weft_text_add(ignored, "%smodel.converters:%s", ignored->n ? " " : "", name);
    return WEFT_OK;
}

/* "a, b" is two. */
static weft_status read_converter_text(const weft_doc *d, const weft_node *root,
                                       const weft_node *at, weft_config *c,
                                       weft_text *ignored)
{
    char one[64];
    for (const char *s = at->u.s; *s;) {
        size_t n = strcspn(s, ", ");
        if (n >= sizeof one)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s:%d: model.converters: '%.60s' is not known",
                             weft_doc_file(d), at->line, s);
        memcpy(one, s, n);
        one[n] = 0;
        if (n) WEFT_TRY(read_converter(d, root, at, one, c, ignored));
        s += n + (s[n] != 0);
    }
    return WEFT_OK;
}

static weft_status read_converters(const weft_doc *d, const weft_node *root,
                                   weft_config *c, weft_text *ignored)
{
    const weft_node *m = weft_node_get(root, "model"), *x = NULL;
    if (m && m->kind == WEFT_NODE_MAP) x = weft_node_get(m, "converters");
    int n = !x ? 0 : x->kind == WEFT_NODE_LIST ? x->u.list.n : 1;
    for (int i = 0; i < n; i++) {
        const weft_node *at = x->kind == WEFT_NODE_LIST ? x->u.list.node[i] : x;
        if (at->kind != WEFT_NODE_STRING)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s:%d: model.converters: expected a list of names",
                             weft_doc_file(d), x->line);
        WEFT_TRY(read_converter_text(d, root, at, c, ignored));
    }
    return WEFT_OK;
}

static weft_status read_precision(const weft_doc *d, const weft_node *root,
                                  weft_config *c, weft_text *ignored)
{
    static const char *const before[][2] = {{"float8", "enable_float8_linear"},
                                            {"training", "enable_float8_linear"},
                                            {"training", "enable_fp8_linear"},
                                            {"training", "fp8_linear"}};
    const char              *dtype       = "bfloat16";
    const weft_node         *n           = weft_node_get(root, "training");
    if (n && n->kind == WEFT_NODE_MAP)
        WEFT_TRY(weft_doc_get_string(d, n, "mixed_precision_param", &dtype));
    c->precision = strcmp(dtype, "float32") ? "bf16" : "fp32";
    for (size_t i = 0; i < WEFT_COUNT(before); i++) {
        const weft_node *t  = weft_node_get(root, before[i][0]);
        bool             on = false;
        if (t && t->kind == WEFT_NODE_MAP)
            WEFT_TRY(weft_doc_get_bool(d, t, before[i][1], &on));
        if (on) c->precision = "fp8";
    }
    return read_converters(d, root, c, ignored);
}

static weft_status read_rest(const weft_doc *d, const weft_node *root, weft_arena *a,
                             weft_config *c, weft_text *ignored)
{
    const weft_node *n;
    const char      *mode = "selective";
    bool             on   = false;
    n                     = weft_node_get(root, "activation_checkpoint");
    if (n && n->kind == WEFT_NODE_MAP) WEFT_TRY(weft_doc_get_string(d, n, "mode", &mode));
    c->recompute = !strcmp(mode, "full")   ? "full"
                   : !strcmp(mode, "none") ? "none"
                                           : "selective";
    WEFT_TRY(read_precision(d, root, c, ignored));
    n = weft_node_get(root, "compile");
    if (n && n->kind == WEFT_NODE_MAP) WEFT_TRY(weft_doc_get_bool(d, n, "enable", &on));
    n = weft_node_get(root, "training");
    if (n && n->kind == WEFT_NODE_MAP) WEFT_TRY(weft_doc_get_bool(d, n, "compile", &on));
    if (on) WEFT_TRY(weft_engine__feature(a, c, "compile"));
    on = false;
    if (n && n->kind == WEFT_NODE_MAP)
        WEFT_TRY(weft_doc_get_bool(d, n, "enable_cpu_offload", &on));
    if (on)
        WEFT_TRY(weft_engine__feature(
            a, c, WEFT_ENGINE__OFFLOAD "training.enable_cpu_offload"));
    on = false;
    n  = weft_node_get(root, "parallelism");
    if (n && n->kind == WEFT_NODE_MAP)
        WEFT_TRY(weft_doc_get_bool(d, n, "enable_async_tensor_parallel", &on));
    if (on) WEFT_TRY(weft_engine__feature(a, c, "asyncTP"));
    c->vpp             = 1;
    c->flash_attention = 1;
    c->attn            = "full";
    c->framework       = "torchtitan";
    return WEFT_OK;
}

static weft_status read(const weft_doc *d, int world, weft_arena *a, weft_config *c,
                        weft_text *ignored)
{
    const weft_node *root = weft_doc_root(d);
    degrees          g;
    WEFT_TRY(read_model(d, root, c));
    WEFT_TRY(read_degrees(d, root, &g));
    WEFT_TRY(put_degrees(d, &g, world, c));
    WEFT_TRY(read_batch(d, root, c));
    return read_rest(d, root, a, c, ignored);
}

weft_status weft_engine__read_torchtitan(const char *file, const char *text, size_t n,
                                         int world, weft_arena *a, weft_config *c,
                                         weft_text *ignored)
{
    weft_engine__keys k = {(int)WEFT_COUNT(read_keys) - N_HARMLESS,
                           (int)WEFT_COUNT(read_keys), read_keys};
    weft_doc         *d;
    WEFT_TRY(weft_doc_parse_toml(file, text, n, &d));
    weft_status st = read(d, world, a, c, ignored);
    if (st == WEFT_OK) st = weft_engine__see_keys(d, &k, ignored);
    weft_doc_destroy(d);
    return st;
}

/* NULL: none is of these sizes. */
static const flavour *flavour_of(const weft_config *c)
{
    for (size_t i = 0; i < WEFT_COUNT(flavours); i++) {
        const flavour *f = &flavours[i];
        if (f->layers == c->layers && f->hidden == c->hidden && f->ffn == c->ffn_hidden &&
            f->heads == c->heads && f->kv_heads == c->kv_heads && f->vocab == c->vocab &&
            c->experts < 1 && !(c->rotary_base > 0 && c->rotary_base != ROTARY_BASE))
            return f;
    }
    return NULL;
}

bool weft_engine__has_flavour(const weft_config *c)
{
    return flavour_of(c) != NULL;
}

/* As v0.2.0 to v0.2.2 read it, like the rest of the file. */
static void put_converters(const weft_config *c, weft_text *t)
{
    if (strcmp(c->precision, "fp8")) return;
    weft_text_add(t, "converters = [\"quantize.linear.float8\"%s]\n",
                  c->experts > 0 ? ", \"quantize.grouped_mm.float8\"" : "");
}

enum {
    DEGREES,
    EXPERTS
};

static const weft_engine__option options[] = {
    {WEFT_KEY_tp, 1, INT_MAX, DEGREES, "tensor_parallel_degree = ", "\n"},
    {WEFT_KEY_pp, 1, INT_MAX, DEGREES, "pipeline_parallel_degree = ", "\n"},
    {WEFT_KEY_cp, 1, INT_MAX, DEGREES, "context_parallel_degree = ", "\n"},
    {WEFT_KEY_ep, 2, INT_MAX, EXPERTS, "expert_parallel_degree = ", "\n"},
    /* what follows from tp, and what is written with replicas and stages */
    {WEFT_KEY_sp, 1, 1, DEGREES, "", NULL},
    {WEFT_KEY_zero, 1, 3, DEGREES, "", NULL},
    {WEFT_KEY_chunks, 2, INT_MAX, DEGREES, "", NULL},
    {WEFT_KEY_schedule, WEFT_STRATEGY_INTERLEAVED, WEFT_STRATEGY_INTERLEAVED, DEGREES, "",
     NULL},
};

const weft_engine__options weft_engine__torchtitan = {WEFT_COUNT(options), options};

static void put_parallelism(const weft_config *c, const weft_engine_plan *p, weft_text *t)
{
    const weft_strategy *y     = &p->strategy;
    int                  shard = y->zero < 2 ? 1 : p->dp;
    weft_text_add(t,
                  "\n[parallelism]\ndata_parallel_replicate_degree = %d\n"
                  "data_parallel_shard_degree = %d\n",
                  p->dp / shard, shard);
    weft_engine__put_options(&weft_engine__torchtitan, DEGREES, p, t);
    if (shard * weft_engine__value(p, WEFT_KEY_cp) > 1 &&
        (y->zero > 2) != (y->pp < 2)) /* not as it would by default */
        weft_text_add(t, "fsdp_reshard_after_forward = \"%s\"\n",
                      y->zero > 2 ? "always" : "never");
    weft_engine__put_options(&weft_engine__torchtitan, EXPERTS, p, t);
    if (y->pp > 1)
        weft_text_add(t,
                      "pipeline_parallel_schedule = \"%s\"\n"
                      "pipeline_parallel_microbatch_size = %d\n",
                      y->chunks > 1 ? "Interleaved1F1B" : "1F1B",
                      p->micro_batch > 0 ? p->micro_batch : 1);
    if (weft_engine__has(c, "asyncTP"))
        weft_text_add(t, "enable_async_tensor_parallel = true\n");
}

weft_status weft_engine__emit_torchtitan(const weft_config *c, const weft_engine_plan *p,
                                         weft_text *t)
{
    const flavour *f = flavour_of(c);
    if (f)
        weft_text_add(t, "[model]\nname = \"%s\"\nflavor = \"%s\"\n", f->model, f->name);
    else
        weft_text_add(
            t, "[model]\n# no flavour of these sizes is known: name yours (and to weft "
               "check by --model);\n# torchtitan stops at this one, without any it "
               "trains its debugmodel\nflavor = \"name-yours\"\n");
    put_converters(c, t);
    weft_text_add(
        t, "\n[training]\nlocal_batch_size = %d\nglobal_batch_size = %d\nseq_len = %d\n",
        p->strategy.pp > 1   ? p->global_batch / p->dp
        : p->micro_batch > 0 ? p->micro_batch
                             : 1,
        p->global_batch, c->seq);
    if (!strcmp(c->precision, "fp32"))
        weft_text_add(t, "mixed_precision_param = \"float32\"\n");
    put_parallelism(c, p, t);
    weft_text_add(t, "\n[activation_checkpoint]\nmode = \"%s\"\n",
                  weft_cost_recompute_name((int)p->recompute));
    weft_text_add(t, "\n[compile]\nenable = true\n");
    if (!strcmp(c->precision, "fp8"))
        weft_text_add(t, "\n[quantize.linear.float8]\nrecipe_name = \"tensorwise\"\n");
    if (!strcmp(c->precision, "fp8") && c->experts > 0)
        weft_text_add(t, "\n[quantize.grouped_mm.float8]\nfqns = [\"experts\"]\n");
    return weft_text_status(t);
}
