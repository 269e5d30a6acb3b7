/* Megatron-LM's arguments.  Names as its own parser has them; both spellings where a release
 * renamed one. */
#include <ctype.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "engine/engine_priv.h"
#include "estimate/describe.h"

typedef struct word {
    const char *name;
    size_t      at;   /* of an int in weft_config */
    int         flag; /* what the word alone means; -1: a number follows */
} word;

#define AT(field) offsetof(weft_config, field)

static const word words[] = {
    {"--num-layers", AT(layers), -1},
    {"--hidden-size", AT(hidden), -1},
    {"--ffn-hidden-size", AT(ffn_hidden), -1},
    {"--num-attention-heads", AT(heads), -1},
    {"--num-query-groups", AT(kv_heads), -1},
    {"--kv-channels", AT(head_dim), -1},
    {"--seq-length", AT(seq), -1},
    {"--vocab-size", AT(vocab), -1},
    {"--padded-vocab-size", AT(vocab), -1},
    {"--num-experts", AT(experts), -1},
    {"--moe-router-topk", AT(experts_topk), -1},
    {"--moe-ffn-hidden-size", AT(moe_ffn_hidden), -1},
    {"--tensor-model-parallel-size", AT(tp), -1},
    {"--pipeline-model-parallel-size", AT(pp), -1},
    {"--context-parallel-size", AT(cp), -1},
    {"--expert-model-parallel-size", AT(ep), -1},
    {"--num-virtual-stages-per-pipeline-rank", AT(vpp), -1},
    {"--virtual-pipeline-model-parallel-size", AT(vpp), -1},
    {"--micro-batch-size", AT(micro_batch), -1},
    {"--global-batch-size", AT(global_batch), -1},
    {"--sequence-parallel", AT(sp), 1},
    {"--swiglu", AT(gated_mlp), 1},
    {"--untie-embeddings-and-output-weights", AT(tied_embedding), 0},
    {"--use-flash-attn", AT(flash_attention), 1},
    {"--use-distributed-optimizer", AT(zero), 1},
};

/* Words with a meaning of their own. */
enum {
    PER_VIRTUAL,
    GRANULARITY,
    ACTIVATIONS,
    BF16,
    FP16,
    FP8,
    STRATEGY,
    BACKEND,
    TP_OVERLAP,
    FIRST,
    LAST,
    GROUPED,
    METHOD,
    MODULES,
    AGAIN,
    WITH_INPUT,
    WITH_LOSS,
    GRADS_BF16,
    GRADS_FP32,
    OFFLOAD,
    N_SPECIAL
};

static const char *const special[N_SPECIAL] = {
    [PER_VIRTUAL] = "--num-layers-per-virtual-pipeline-stage",
    [GRANULARITY] = "--recompute-granularity",
    [ACTIVATIONS] = "--recompute-activations",
    [BF16]        = "--bf16",
    [FP16]        = "--fp16",
    [FP8]         = "--fp8-format",
    [STRATEGY]    = "--data-parallel-sharding-strategy",
    [BACKEND]     = "--attention-backend",
    [TP_OVERLAP]  = "--tp-comm-overlap",
    [FIRST]       = "--decoder-first-pipeline-num-layers",
    [LAST]        = "--decoder-last-pipeline-num-layers",
    [GROUPED]     = "--group-query-attention",
    [METHOD]      = "--recompute-method",
    [MODULES]     = "--recompute-modules",
    [AGAIN]       = "--recompute-num-layers",
    [WITH_INPUT]  = "--account-for-embedding-in-pipeline-split",
    [WITH_LOSS]   = "--account-for-loss-in-pipeline-split",
    [GRADS_BF16]  = "--grad-reduce-in-bf16",
    [GRADS_FP32]  = "--accumulate-allreduce-grads-in-fp32",
    [OFFLOAD]     = "--optimizer-cpu-offload",
};

/* Parts of a layer that --recompute-modules names. */
static const struct {
    const char *name;
    weft_again  bit;
} modules[] = {{"core_attn", WEFT_AGAIN_CORE},
               {"layernorm", WEFT_AGAIN_NORM},
               {"moe_act", WEFT_AGAIN_ACT},
               {"mla_up_proj", WEFT_AGAIN_UP},
               {"mlp", WEFT_AGAIN_MLP},
               {"moe", WEFT_AGAIN_MOE},
               {"shared_experts", WEFT_AGAIN_SHARED}};

typedef struct reader {
    const char  *file;
    weft_arena  *a;
    weft_config *c;
    weft_text   *ignored;
    int          n, at;
    char       **arg;
    int          per_virtual, first, last;
    int          again; /* layers of a chunk */
    unsigned     modules;
    bool         block, with_input, with_loss;
} reader;

/* ---- words of a command line ---- */

static bool is_end(int ch)
{
    return isspace(ch) || ch == '\\';
}

/* Bytes of the word at s, with its quotes. */
static size_t word_length(const char *s, size_t n)
{
    char   quote = 0;
    size_t i     = 0;
    for (; i < n && (quote || !is_end((unsigned char)s[i])); i++) {
        if (quote ? s[i] == quote : s[i] == '"' || s[i] == '\'') quote = quote ? 0 : s[i];
    }
    return i;
}

/* Blanks part words; quotes hold them together; a backslash at the end of a line means nothing. */
static weft_status split(reader *r, const char *s, size_t n)
{
    int cap = 0;
    for (size_t i = 0; i < n;) {
        while (i < n && is_end((unsigned char)s[i])) i++;
        if (i >= n) break;
        char *w = weft_arena_alloc(r->a, word_length(s + i, n - i) + 1), *o = w;
        if (!w) return weft_arena_status(r->a);
        for (char quote = 0; i < n && (quote || !is_end((unsigned char)s[i])); i++) {
            if (quote && s[i] == quote)
                quote = 0;
            else if (!quote && (s[i] == '"' || s[i] == '\''))
                quote = s[i];
            else
                *o++ = s[i];
        }
        *o = 0;
        WEFT_TRY(weft_arena_grow(r->a, (void **)&r->arg, &cap, r->n + 1, sizeof *r->arg));
        r->arg[r->n++] = w;
    }
    return WEFT_OK;
}

static bool is_flag(const char *s)
{
    return s[0] == '-' && s[1] == '-';
}

/* What follows the word at hand, "--x=1" or "--x 1". */
static weft_status value(reader *r, const char *name, const char **out)
{
    const char *eq = strchr(r->arg[r->at], '=');
    if (eq)
        *out = eq + 1;
    else if (r->at + 1 < r->n && !is_flag(r->arg[r->at + 1]))
        *out = r->arg[++r->at];
    else
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s needs a value", r->file, name);
    return WEFT_OK;
}

static weft_status number(reader *r, const char *name, int *out)
{
    const char *s;
    char       *end;
    WEFT_TRY(value(r, name, &s));
    long x = strtol(s, &end, 10);
    if (!*s || *end || x < 1 || x > 1 << 30)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s %.40s: expected a whole number from 1 on",
                         r->file, name, s);
    *out = (int)x;
    return WEFT_OK;
}

/* ---- meanings ---- */

static weft_status read_module(reader *r, const char *s)
{
    const char *known[WEFT_COUNT(modules)];
    for (size_t i = 0; i < WEFT_COUNT(modules); i++) {
        known[i] = modules[i].name;
        if (strcmp(s, known[i])) continue;
        r->modules |= modules[i].bit;
        return WEFT_OK;
    }
    const char *near = weft_suggest(s, known, (int)WEFT_COUNT(modules));
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s: unknown module '%.40s'%s%s%s", r->file,
                     special[MODULES], s, near ? ", did you mean '" : "",
                     near ? near : "", near ? "'?" : "");
}

/* One word or several follow. */
static weft_status read_modules(reader *r)
{
    const char *s;
    WEFT_TRY(value(r, special[MODULES], &s));
    WEFT_TRY(read_module(r, s));
    while (r->at + 1 < r->n && !is_flag(r->arg[r->at + 1]))
        WEFT_TRY(read_module(r, r->arg[++r->at]));
    return WEFT_OK;
}

/* Of what light recomputation runs again where nobody says more, what there is in this model. */
static unsigned cheap(const weft_config *c)
{
    unsigned out = WEFT_AGAIN_NORM;
    if (c->experts > 0) out |= WEFT_AGAIN_ACT;
    if (!strcmp(c->attn, "mla")) out |= WEFT_AGAIN_UP;
    if (c->flash_attention == 0) out |= WEFT_AGAIN_CORE;
    return out;
}

static weft_status read_special(reader *r, int k)
{
    weft_config *c = r->c;
    const char  *s;
    switch (k) {
    case PER_VIRTUAL: return number(r, special[k], &r->per_virtual);
    case FIRST: return number(r, special[k], &r->first);
    case LAST: return number(r, special[k], &r->last);
    case ACTIVATIONS: c->recompute = "selective"; return WEFT_OK;
    case BF16: c->precision = *c->precision ? c->precision : "bf16"; return WEFT_OK;
    case FP16: c->precision = *c->precision ? c->precision : "fp16"; return WEFT_OK;
    case TP_OVERLAP: return weft_engine__feature(r->a, c, "tp-comm-overlap");
    case GROUPED: return WEFT_OK; /* --num-query-groups says how many */
    case AGAIN: return number(r, special[k], &r->again);
    case WITH_INPUT: r->with_input = true; return WEFT_OK;
    case WITH_LOSS: r->with_loss = true; return WEFT_OK;
    case GRADS_BF16: c->grad_dtype = "bf16"; return WEFT_OK;
    case GRADS_FP32: c->grad_dtype = "fp32"; return WEFT_OK;
    case MODULES: return read_modules(r);
    case OFFLOAD:
        return weft_engine__feature(r->a, c,
                                    WEFT_ENGINE__OFFLOAD "--optimizer-cpu-offload");
    case METHOD:
        WEFT_TRY(value(r, special[k], &s));
        if (strcmp(s, "block") && strcmp(s, "uniform"))
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s %.40s: expected block or uniform",
                             r->file, special[k], s);
        r->block = *s == 'b';
        return WEFT_OK;
    case FP8:
        WEFT_TRY(value(r, special[k], &s));
        c->precision = "fp8";
        return WEFT_OK;
    case GRANULARITY:
        WEFT_TRY(value(r, special[k], &s));
        if (strcmp(s, "full") && strcmp(s, "selective"))
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s %.40s: expected full or selective",
                             r->file, special[k], s);
        c->recompute = *s == 'f' ? "full" : "selective";
        return WEFT_OK;
    case BACKEND:
        WEFT_TRY(value(r, special[k], &s));
        c->flash_attention = strcmp(s, "unfused") != 0 && strcmp(s, "local") != 0;
        return WEFT_OK;
    default:
        WEFT_TRY(value(r, special[k], &s));
        c->zero = !strcmp(s, "no_shard")             ? 0
                  : !strcmp(s, "optim")              ? 1
                  : !strcmp(s, "optim_grads")        ? 2
                  : !strcmp(s, "optim_grads_params") ? 3
                                                     : -2;
        if (c->zero < -1)
            return WEFT_FAIL(WEFT_ERR_ARG, "%s: %s: unknown strategy '%.40s'", r->file,
                             special[k], s);
        return WEFT_OK;
    }
}

/* Words of its parser that are near ones we read and mean something else. */
static const char *const others[] = {
    "--vocab-file",
    "--num-workers",
    "--ckpt-format",
    "--rampup-batch-size",
    "--eval-global-batch-size",
    "--eval-micro-batch-size",
    "--window-size",
    "--num-classes",
    "--num-channels",
    "--moe-router-dtype",
    "--moe-router-fusion",
    "--moe-router-group-topk",
    "--mtp-num-layers",
    "--expert-tensor-parallel-size",
    "--pipeline-model-parallel-comm-backend",
    "--tp-comm-overlap-cfg",
    "--tp-comm-overlap-ag",
    "--tp-comm-overlap-rs",
    "--use-torch-optimizer-for-cpu-offload",
    "--optimizer-offload-fraction",
};

static bool is_other(const char *name)
{
    for (size_t i = 0; i < WEFT_COUNT(others); i++)
        if (!strcmp(name, others[i])) return true;
    return false;
}

/* A word that is nearly one of ours is a mistake, not somebody else's. */
static weft_status read_unknown(reader *r, const char *name)
{
    const char *known[WEFT_COUNT(words) + N_SPECIAL];
    int         n = 0;
    for (size_t i = 0; i < WEFT_COUNT(words); i++) known[n++] = words[i].name;
    for (int i = 0; i < N_SPECIAL; i++) known[n++] = special[i];
    const char *near = strlen(name) < 64 ? weft_suggest(name, known, n) : NULL;
    if (near && strlen(name) > 9 && !is_other(name))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: unknown argument '%.80s', did you mean '%s'?",
                         r->file, name, near);
    weft_engine__ignore(r->ignored, name);
    while (r->at + 1 < r->n && !is_flag(r->arg[r->at + 1])) r->at++;
    return WEFT_OK;
}

static weft_status read_word(reader *r)
{
    const char *s    = r->arg[r->at];
    size_t      n    = strcspn(s, "=");
    const char *name = weft_arena_strndup(r->a, s, n);
    if (!name) return weft_arena_status(r->a);
    if (!is_flag(s)) { /* torchrun pretrain_gpt.py ... */
        weft_engine__ignore(r->ignored, s);
        return WEFT_OK;
    }
    for (size_t i = 0; i < WEFT_COUNT(words); i++) {
        int *field = (int *)(void *)((char *)r->c + words[i].at);
        if (strcmp(words[i].name, name)) continue;
        if (words[i].flag < 0) return number(r, name, field);
        if (words[i].at != AT(zero) || *field < 1) *field = words[i].flag;
        return WEFT_OK;
    }
    for (int k = 0; k < N_SPECIAL; k++)
        if (!strcmp(special[k], name)) return read_special(r, k);
    return read_unknown(r, name);
}

/* The first and the last stage may hold other numbers of layers than the rest. */
static weft_status conclude_ends(reader *r, int pp)
{
    weft_config *c    = r->c;
    int          ends = (r->first > 0) + (r->last > 0);
    int          left = c->layers - r->first - r->last;
    if (pp == ends ? left : left < pp - ends || left % (pp - ends))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: %d layers between the first and last stage "
                         "do not divide by %d",
                         r->file, left, pp - ends);
    weft_text t = {0};
    for (int s = 0; s < pp; s++)
        weft_text_add(&t, "%s%d", s ? "-" : "",
                      s == 0 && r->first       ? r->first
                      : s == pp - 1 && r->last ? r->last
                                               : left / (pp - ends));
    c->stage_layers = weft_arena_strdup(r->a, weft_text_status(&t) == WEFT_OK ? t.s : "");
    weft_text_fini(&t);
    return WEFT_OK;
}

/* The input side and the loss may count as a layer each. */
static weft_status conclude_stages(reader *r, int pp)
{
    weft_config *c   = r->c;
    int          all = c->layers + r->with_input + r->with_loss;
    if (c->layers < 1) return WEFT_OK;
    if (r->per_virtual) {
        if (all % (pp * r->per_virtual))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s: %d layers are not %d stages of chunks of %d layers",
                             r->file, all, pp, r->per_virtual);
        c->vpp = all / pp / r->per_virtual;
    }
    if (pp < 2) return WEFT_OK;
    if (r->with_input || r->with_loss) {
        if (all % pp)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s: %d layers, the input side and the loss as it says "
                             "counted, do not divide by %d stages",
                             r->file, all, pp);
        if (r->with_input) r->first = all / pp - 1;
        if (r->with_loss) r->last = all / pp - 1;
    }
    return r->first || r->last ? conclude_ends(r, pp) : WEFT_OK;
}

/* As core_v0.19.0's validate_args has it: with SwiGLU two thirds, a multiple of 64. */
static int usual_ffn(const weft_config *c)
{
    int64_t wide = 4 * (int64_t)c->hidden;
    if (c->gated_mlp > 0) wide = wide * 2 / 3 / 64 * 64;
    return (int)wide;
}

/* What follows from several words together. */
static weft_status conclude(reader *r)
{
    weft_config *c = r->c;
    WEFT_TRY(conclude_stages(r, c->pp > 0 ? c->pp : 1));
    if (r->block && r->again && !strcmp(c->recompute, "full"))
        c->recompute_layers = r->again * (c->vpp > 0 ? c->vpp : 1);
    /* what its parser takes where nothing is said */
    if (c->tied_embedding < 0) c->tied_embedding = 1;
    if (c->gated_mlp < 0) c->gated_mlp = 0;
    if (c->ffn_hidden < 0 && c->hidden > 0) c->ffn_hidden = usual_ffn(c);
    if (c->zero < 0) c->zero = 0;
    if (c->sp < 0) c->sp = 0;
    if (c->vpp < 0) c->vpp = 1;
    if (!*c->recompute) c->recompute = "none";
    if (!*c->precision) c->precision = "fp32";
    if (!*c->family) c->family = c->experts > 0 ? "moe" : c->gated_mlp ? "llama" : "gpt";
    c->attn = "full";
    if (!strcmp(c->recompute, "selective") && r->modules & ~(unsigned)WEFT_AGAIN_CORE) {
        c->recompute = "light";
        if (r->modules != cheap(c)) c->recompute_modules = (int)r->modules;
    }
    c->framework = "Megatron-Core";
    return weft_arena_status(r->a);
}

weft_status weft_engine__read_megatron(const char *file, const char *text, size_t n,
                                       weft_arena *a, weft_config *c, weft_text *ignored)
{
    reader r = {.file = file, .a = a, .c = c, .ignored = ignored};
    WEFT_TRY(split(&r, text, n));
    for (r.at = 0; r.at < r.n; r.at++) WEFT_TRY(read_word(&r));
    return conclude(&r);
}

/* ---- back ---- */

enum {
    DEGREES,
    SHARDING
};

#define FSDP                                                                             \
    " \\\n--use-distributed-optimizer --use-megatron-fsdp "                              \
    "--data-parallel-sharding-strategy "

static const weft_engine__option options[] = {
    {WEFT_KEY_tp, 1, INT_MAX, DEGREES, " \\\n--tensor-model-parallel-size ", ""},
    {WEFT_KEY_pp, 1, INT_MAX, DEGREES, " --pipeline-model-parallel-size ", ""},
    {WEFT_KEY_cp, 2, INT_MAX, DEGREES, " --context-parallel-size ", ""},
    {WEFT_KEY_ep, 2, INT_MAX, DEGREES, " --expert-model-parallel-size ", ""},
    {WEFT_KEY_sp, 1, 1, DEGREES, " --sequence-parallel", NULL},
    {WEFT_KEY_chunks, 2, INT_MAX, DEGREES, " --num-virtual-stages-per-pipeline-rank ",
     ""},
    {WEFT_KEY_schedule, WEFT_STRATEGY_INTERLEAVED, WEFT_STRATEGY_INTERLEAVED, DEGREES, "",
     NULL}, /* it follows from chunks */
    {WEFT_KEY_zero, 1, 1, SHARDING, " \\\n--use-distributed-optimizer", NULL},
    {WEFT_KEY_zero, 2, 2, SHARDING, FSDP "optim_grads", NULL},
    {WEFT_KEY_zero, 3, 3, SHARDING, FSDP "optim_grads_params", NULL},
};

const weft_engine__options weft_engine__megatron = {WEFT_COUNT(options), options};

static void emit_modules(const weft_config *c, const weft_engine_plan *p, weft_text *t)
{
    unsigned of = p->recompute_modules > 0 ? (unsigned)p->recompute_modules : cheap(c);
    weft_text_add(t, " \\\n--recompute-granularity selective --recompute-modules");
    for (size_t i = 0; i < WEFT_COUNT(modules); i++)
        if (of & modules[i].bit) weft_text_add(t, " %s", modules[i].name);
}

static void emit_model(const weft_config *c, weft_text *t)
{
    const char *sep = " \\\n";
    weft_text_add(t,
                  "--num-layers %d --hidden-size %d --ffn-hidden-size %d "
                  "--num-attention-heads %d",
                  c->layers, c->hidden, c->ffn_hidden, c->heads);
    if (c->kv_heads != c->heads)
        weft_text_add(t, " --group-query-attention --num-query-groups %d", c->kv_heads);
    if (c->head_dim * c->heads != c->hidden)
        weft_text_add(t, " --kv-channels %d", c->head_dim);
    weft_text_add(t, "%s--seq-length %d --max-position-embeddings %d --vocab-size %d",
                  sep, c->seq, c->seq, c->vocab);
    if (c->gated_mlp > 0)
        weft_text_add(t, " --swiglu --normalization RMSNorm --disable-bias-linear "
                         "--position-embedding-type rope");
    if (c->rotary_base > 0) weft_text_add(t, " --rotary-base %.0f", c->rotary_base);
    if (c->rotary_factor > 0)
        weft_text_add(t, " --use-rope-scaling --rope-scaling-factor %g",
                      c->rotary_factor);
    if (c->qkv_bias) weft_text_add(t, " --add-qkv-bias");
    if (!c->tied_embedding) weft_text_add(t, " --untie-embeddings-and-output-weights");
    if (c->experts > 0)
        weft_text_add(t,
                      "%s--num-experts %d --moe-router-topk %d --moe-ffn-hidden-size %d",
                      sep, c->experts, c->experts_topk, c->moe_ffn_hidden);
}

/* Stages of unequal numbers of layers. */
static weft_status emit_stages(const weft_config *c, const weft_engine_plan *p,
                               weft_text *t)
{
    int pp     = p->strategy.pp;
    int stages = (c->layers + pp - 1) / pp * pp; /* and less than a full one */
    if (pp < 2) return WEFT_OK;
    if (p->cut) {
        weft_text_add(t,
                      " \\\n--decoder-first-pipeline-num-layers %d "
                      "--decoder-last-pipeline-num-layers %d",
                      p->cut[0], p->cut[pp - 1]);
        return WEFT_OK;
    }
    if (stages - c->layers > 2)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "Megatron has no words for %d layers in %d stages as even "
                         "as can be: give stages, or another pp",
                         c->layers, pp);
    if (stages > c->layers)
        weft_text_add(t, " \\\n--account-for-embedding-in-pipeline-split");
    if (stages - c->layers > 1) weft_text_add(t, " --account-for-loss-in-pipeline-split");
    return WEFT_OK;
}

static void emit_recompute(const weft_config *c, const weft_engine_plan *p, weft_text *t)
{
    int layers = p->recompute_layers;
    if (p->recompute == WEFT_RECOMPUTE_FULL)
        weft_text_add(t,
                      " \\\n--recompute-granularity full --recompute-method %s "
                      "--recompute-num-layers %d",
                      layers > 0 ? "block" : "uniform",
                      layers > 0 ? layers / p->strategy.chunks : 1);
    if (p->recompute == WEFT_RECOMPUTE_SELECTIVE)
        weft_text_add(t, " \\\n--recompute-granularity selective");
    if (p->recompute == WEFT_RECOMPUTE_LIGHT) emit_modules(c, p, t);
}

weft_status weft_engine__emit_megatron(const weft_config *c, const weft_engine_plan *p,
                                       weft_text *t)
{
    emit_model(c, t);
    weft_text_add(t, " \\\n--micro-batch-size %d --global-batch-size %d",
                  p->micro_batch > 0 ? p->micro_batch : 1, p->global_batch);
    weft_engine__put_options(&weft_engine__megatron, DEGREES, p, t);
    WEFT_TRY(emit_stages(c, p, t));
    weft_engine__put_options(&weft_engine__megatron, SHARDING, p, t);
    emit_recompute(c, p, t);
    if (c->flash_attention > 0) weft_text_add(t, " \\\n--use-flash-attn");
    if (!strcmp(c->precision, "fp8")) weft_text_add(t, " --bf16 --fp8-format hybrid");
    if (!strcmp(c->precision, "bf16")) weft_text_add(t, " --bf16");
    if (!strcmp(c->precision, "fp16")) weft_text_add(t, " --fp16");
    if (!strcmp(c->grad_dtype, "bf16")) weft_text_add(t, " --grad-reduce-in-bf16");
    if (!strcmp(c->grad_dtype, "fp32"))
        weft_text_add(t, " --accumulate-allreduce-grads-in-fp32");
    if (weft_engine__has(c, "tp-comm-overlap")) weft_text_add(t, " --tp-comm-overlap");
    weft_text_add(t, "\n");
    return weft_text_status(t);
}
