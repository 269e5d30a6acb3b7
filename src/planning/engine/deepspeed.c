/* DeepSpeed's JSON.  It says nothing of the model, nor of pipeline stages. */
#include <limits.h>
#include <string.h>

#include "base/doc.h"
#include "engine/engine_priv.h"

static const char *const read_keys[] = {
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "bf16.enabled",
    "fp16.enabled",
    "zero_optimization.stage",
    "zero_optimization.offload_optimizer",
    "zero_optimization.offload_param",
    "tensor_parallel.autotp_size",
    "bf16",
    "fp16",
    "zero_optimization",
    "tensor_parallel",
    /* and what changes nothing, or little */
    "fp16.*",
    "optimizer.*",
    "scheduler.*",
    "zero_optimization.overlap_comm",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.reduce_scatter",
    "zero_optimization.allgather_partitions",
    "gradient_clipping",
    "steps_per_print",
    "wall_clock_breakdown",
    "zero_allow_untested_optimizer",
};

enum {
    N_HARMLESS = 13
};

typedef struct batches {
    int64_t all, micro, steps;
} batches;

/* Any two of the three give the third. */
static weft_status settle(const char *file, const batches *b, int dp, weft_config *c)
{
    int64_t all = b->all, micro = b->micro, steps = b->steps;
    if (all > 1 << 30 || micro > 1 << 30 || steps > 1 << 30 || all < 0 || micro < 0 ||
        steps < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: batch sizes of %lld, %lld, %lld", file,
                         (long long)all, (long long)micro, (long long)steps);
    if (!all && micro && dp) all = micro * (steps ? steps : 1) * dp;
    if (!micro && all && dp) micro = all / dp / (steps ? steps : 1);
    if (all && micro && steps && dp && micro * steps * dp != all)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%s: train_batch_size %lld is not %lld a device x %lld steps x %d "
            "replicas",
            file, (long long)all, (long long)micro, (long long)steps, dp);
    if (all > 0 && all <= 100000000) c->global_batch = (int)all;
    if (micro > 0 && micro <= 1000000) c->micro_batch = (int)micro;
    return WEFT_OK;
}

/* "auto": what starts the run fills it in (transformers does), so the file does not say. */
static bool is_auto(const weft_node *map, const char *key)
{
    const weft_node *n = weft_node_get(map, key);
    return n && n->kind == WEFT_NODE_STRING && !strcmp(n->u.s, "auto");
}

static weft_status count(const weft_doc *d, const weft_node *root, const char *key,
                         int64_t *out, weft_text *ignored)
{
    if (!is_auto(root, key)) return weft_doc_get_int(d, root, key, out);
    weft_engine__ignore(ignored, key);
    return WEFT_OK;
}

static weft_status enabled(const weft_doc *d, const weft_node *root, const char *key,
                           bool *out, bool *open)
{
    const weft_node *n = weft_node_get(root, key);
    bool             m = n && n->kind == WEFT_NODE_MAP;
    *out               = false;
    *open              = m && is_auto(n, "enabled");
    return m && !*open ? weft_doc_get_bool(d, n, "enabled", out) : WEFT_OK;
}

static const char *precision(bool bf16, bool fp16, bool bf16_open, bool fp16_open,
                             weft_text *ignored)
{
    if (bf16) return "bf16";
    if (fp16) return "fp16";
    if (bf16_open) weft_engine__ignore(ignored, "bf16.enabled");
    if (fp16_open) weft_engine__ignore(ignored, "fp16.enabled");
    return bf16_open ? "bf16" : fp16_open ? "fp16" : "fp32";
}

/* To the host or a disk; "none" is its default. */
static weft_status read_offload(const weft_doc *d, const weft_node *z, const char *key,
                                weft_arena *a, weft_config *c)
{
    const weft_node *n      = weft_node_get(z, key);
    const char      *device = "none";
    if (!n || n->kind != WEFT_NODE_MAP) return WEFT_OK;
    WEFT_TRY(weft_doc_get_string(d, n, "device", &device));
    if (!strcmp(device, "none")) return WEFT_OK;
    const char *word =
        weft_arena_printf(a, "%szero_optimization.%s", WEFT_ENGINE__OFFLOAD, key);
    WEFT_TRY(weft_arena_status(a));
    return weft_engine__feature(a, c, word);
}

static weft_status read_zero(const weft_doc *d, const weft_node *root, weft_arena *a,
                             weft_config *c)
{
    const weft_node *z     = weft_node_get(root, "zero_optimization");
    int64_t          stage = 0;
    if (z && z->kind == WEFT_NODE_MAP) {
        WEFT_TRY(weft_doc_get_int(d, z, "stage", &stage));
        if (stage < 0 || stage > 3)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s:%d: zero_optimization.stage: %lld is not from "
                             "0 to 3",
                             weft_doc_file(d), z->line, (long long)stage);
        WEFT_TRY(read_offload(d, z, "offload_optimizer", a, c));
        WEFT_TRY(read_offload(d, z, "offload_param", a, c));
    }
    c->zero = (int)stage;
    return WEFT_OK;
}

static weft_status read(const weft_doc *d, int world, weft_arena *a, weft_config *c,
                        weft_text *ignored)
{
    const weft_node *root = weft_doc_root(d), *t;
    batches          b    = {0};
    int64_t          tp   = 1;
    bool             bf16, fp16, bf16_open, fp16_open;
    if (root->kind != WEFT_NODE_MAP)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: expected a JSON object", weft_doc_file(d));
    WEFT_TRY(count(d, root, "train_batch_size", &b.all, ignored));
    WEFT_TRY(count(d, root, "train_micro_batch_size_per_gpu", &b.micro, ignored));
    WEFT_TRY(count(d, root, "gradient_accumulation_steps", &b.steps, ignored));
    WEFT_TRY(enabled(d, root, "bf16", &bf16, &bf16_open));
    WEFT_TRY(enabled(d, root, "fp16", &fp16, &fp16_open));
    WEFT_TRY(read_zero(d, root, a, c));
    t = weft_node_get(root, "tensor_parallel");
    if (t && t->kind == WEFT_NODE_MAP)
        WEFT_TRY(weft_doc_get_int(d, t, "autotp_size", &tp));
    if (tp < 1 || tp > 100000)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s:%d: tensor_parallel.autotp_size: %lld",
                         weft_doc_file(d), t->line, (long long)tp);
    c->tp = (int)tp;
    c->pp = c->cp = c->vpp = 1;
    c->sp                  = 0;
    c->precision           = precision(bf16, fp16, bf16_open, fp16_open, ignored);
    c->framework           = "DeepSpeed";
    return settle(weft_doc_file(d), &b, world / (int)tp, c);
}

weft_status weft_engine__read_deepspeed(const char *file, const char *text, size_t n,
                                        int world, weft_arena *a, weft_config *c,
                                        weft_text *ignored)
{
    weft_engine__keys k = {(int)WEFT_COUNT(read_keys) - N_HARMLESS,
                           (int)WEFT_COUNT(read_keys), read_keys};
    weft_doc         *d;
    WEFT_TRY(weft_doc_parse_json(file, text, n, &d));
    weft_status st = read(d, world, a, c, ignored);
    if (st == WEFT_OK) st = weft_engine__see_keys(d, &k, ignored);
    weft_doc_destroy(d);
    return st;
}

enum {
    DEGREES,
    SHARDING
};

static const weft_engine__option options[] = {
    {WEFT_KEY_tp, 2, INT_MAX, DEGREES,
     "  \"tensor_parallel\": {\"autotp_size\": ", "},\n"},
    {WEFT_KEY_zero, 0, 3, SHARDING,
     "  \"zero_optimization\": {\"stage\": ", ", \"overlap_comm\": true}\n}\n"},
};

const weft_engine__options weft_engine__deepspeed = {WEFT_COUNT(options), options};

weft_status weft_engine__emit_deepspeed(const weft_config *c, const weft_engine_plan *p,
                                        weft_text *t)
{
    int micro = p->micro_batch > 0 ? p->micro_batch : 1;
    int steps = p->global_batch / (p->dp * micro);
    int pp = p->strategy.pp, cp = p->strategy.cp;
    if (pp > 1 || cp > 1)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "a DeepSpeed file has no words for %s=%d: plan with pp=1 cp=1, or "
            "write another engine's flags",
            pp > 1 ? "pp" : "cp", pp > 1 ? pp : cp);
    if (p->strategy.ep > 1)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "a DeepSpeed file has no words for ep=%d, which is ep_size of the "
            "model's own MoE layers: plan with ep=1, or write another "
            "engine's flags",
            p->strategy.ep);
    weft_text_add(t, "{\n  \"train_batch_size\": %d,\n", p->global_batch);
    weft_text_add(t, "  \"train_micro_batch_size_per_gpu\": %d,\n", micro);
    weft_text_add(t, "  \"gradient_accumulation_steps\": %d,\n", steps > 0 ? steps : 1);
    if (!strcmp(c->precision, "bf16"))
        weft_text_add(t, "  \"bf16\": {\"enabled\": true},\n");
    if (!strcmp(c->precision, "fp16"))
        weft_text_add(t, "  \"fp16\": {\"enabled\": true},\n");
    weft_engine__put_options(&weft_engine__deepspeed, DEGREES, p, t);
    weft_engine__put_options(&weft_engine__deepspeed, SHARDING, p, t);
    return weft_text_status(t);
}
