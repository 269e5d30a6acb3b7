/* torchtitan's TOML. */
#include <string.h>

#include "base/doc.h"
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

#define DEGREES(table)                                                                   \
    table ".tensor_parallel_degree", table ".pipeline_parallel_degree",                  \
        table ".context_parallel_degree", table ".expert_parallel_degree",               \
        table ".data_parallel_shard_degree", table ".data_parallel_replicate_degree"

static const char *const read_keys[] = {
    DEGREES("parallelism"), DEGREES("experimental"), DEGREES("training"), "model.name",
    "model.flavor", "training.batch_size", "training.local_batch_size",
    "training.global_batch_size", "training.seq_len", "training.compile",
    "parallelism.pipeline_parallel_microbatch_size",
    "parallelism.enable_async_tensor_parallel", "activation_checkpoint.mode",
    "compile.enable", "model", "training", "parallelism", "activation_checkpoint",
    "compile", "float8",
    /* and what changes nothing */
    "float8.*", "job.*", "profiling.*", "metrics.*", "optimizer.*", "lr_scheduler.*",
    "checkpoint.*", "comm.*", "training.steps", "training.warmup_steps",
    "training.max_norm", "training.dataset", "training.dataset_path", "training.seed",
    "training.deterministic", "model.tokenizer_path", "model.hf_assets_path",
    "compile.components"};

enum {
    N_HARMLESS = 18
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
} degrees;

static weft_status read_degrees(const weft_doc *d, const weft_node *root, degrees *g)
{
    static const char *const table[] = {"parallelism", "experimental", "training"};
    *g = (degrees){.tp = 1, .pp = 1, .cp = 1, .ep = 1, .shard = -1, .replicate = 1};
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
    c->zero       = shard * g->cp > 1 ? (g->pp > 1 ? 2 : 3) : 0;
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

static weft_status read_rest(const weft_doc *d, const weft_node *root, weft_arena *a,
                             weft_config *c)
{
    const weft_node *n;
    const char      *mode = "selective";
    bool             on   = false;
    n                     = weft_node_get(root, "activation_checkpoint");
    if (n && n->kind == WEFT_NODE_MAP) WEFT_TRY(weft_doc_get_string(d, n, "mode", &mode));
    c->recompute = !strcmp(mode, "full")   ? "full"
                   : !strcmp(mode, "none") ? "none"
                                           : "selective";
    c->precision = weft_node_get(root, "float8") ? "fp8" : "bf16";
    n            = weft_node_get(root, "compile");
    if (n && n->kind == WEFT_NODE_MAP) WEFT_TRY(weft_doc_get_bool(d, n, "enable", &on));
    n = weft_node_get(root, "training");
    if (n && n->kind == WEFT_NODE_MAP) WEFT_TRY(weft_doc_get_bool(d, n, "compile", &on));
    if (on) WEFT_TRY(weft_engine__feature(a, c, "compile"));
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

static weft_status read(const weft_doc *d, int world, weft_arena *a, weft_config *c)
{
    const weft_node *root = weft_doc_root(d);
    degrees          g;
    WEFT_TRY(read_model(d, root, c));
    WEFT_TRY(read_degrees(d, root, &g));
    WEFT_TRY(put_degrees(d, &g, world, c));
    WEFT_TRY(read_batch(d, root, c));
    return read_rest(d, root, a, c);
}

weft_status weft_engine__read_torchtitan(const char *file, const char *text, size_t n,
                                         int world, weft_arena *a, weft_config *c,
                                         weft_text *ignored)
{
    weft_engine__keys k = {(int)WEFT_COUNT(read_keys) - N_HARMLESS,
                           (int)WEFT_COUNT(read_keys), read_keys};
    weft_doc         *d;
    WEFT_TRY(weft_doc_parse_toml(file, text, n, &d));
    weft_status st = read(d, world, a, c);
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
            c->experts < 1)
            return f;
    }
    return NULL;
}

weft_status weft_engine__emit_torchtitan(const weft_config *c, weft_text *t)
{
    int micro = c->micro_batch > 0 ? c->micro_batch : 1, group = c->zero_group;
    int shard = c->zero < 2 ? 1 : group > 0 && group / c->cp > 0 ? group / c->cp : c->dp;
    if (c->dp % shard) shard = c->dp;
    const flavour *f = flavour_of(c);
    if (f)
        weft_text_add(t, "[model]\nname = \"%s\"\nflavor = \"%s\"\n", f->model, f->name);
    else
        weft_text_add(t, "[model]\n# no flavour of these sizes is known: name yours "
                         "(and to weft check by --model)\n");
    weft_text_add(
        t, "\n[training]\nlocal_batch_size = %d\nglobal_batch_size = %d\nseq_len = %d\n",
        c->pp > 1 ? c->global_batch / c->dp : micro, c->global_batch, c->seq);
    weft_text_add(t,
                  "\n[parallelism]\ndata_parallel_replicate_degree = %d\n"
                  "data_parallel_shard_degree = %d\ntensor_parallel_degree = %d\n"
                  "pipeline_parallel_degree = %d\ncontext_parallel_degree = %d\n",
                  c->dp / shard, shard, c->tp, c->pp, c->cp);
    if (c->ep > 1) weft_text_add(t, "expert_parallel_degree = %d\n", c->ep);
    if (c->pp > 1)
        weft_text_add(t,
                      "pipeline_parallel_schedule = \"%s\"\n"
                      "pipeline_parallel_microbatch_size = %d\n",
                      c->vpp > 1 ? "Interleaved1F1B" : "1F1B", micro);
    if (weft_engine__has(c, "asyncTP"))
        weft_text_add(t, "enable_async_tensor_parallel = true\n");
    weft_text_add(t, "\n[activation_checkpoint]\nmode = \"%s\"\n",
                  *c->recompute ? c->recompute : "none");
    weft_text_add(t, "\n[compile]\nenable = true\n");
    if (!strcmp(c->precision, "fp8"))
        weft_text_add(t, "\n[float8]\nrecipe_name = \"tensorwise\"\n");
    return weft_text_status(t);
}
