/* T5: an encoder and a decoder with cross attention, RMS norms before each part, no biases, and
 * positions only as a bias of the scores that all layers of a stack share.
 * Weights lie (out, in).  Scores are not scaled; the initial weights make up for it. */
#include <math.h>
#include <string.h>

#include "model/model_priv.h"

typedef struct t5 {
    int64_t     d, heads, e, ffn, vocab, enc_layers, dec_layers, buckets, distance;
    double      eps, factor, drop;
    const char *act;
    bool        gated, tied, scaled; /* scaled: the decoder's result, by 1 / sqrt(d) */
} t5;

/* "relu" or "gated-gelu" */
static void read_ffn(weft_model__maker *mk, t5 *c)
{
    const char *word = weft_model__word(mk, "feed_forward_proj", "relu");
    c->gated         = !strncmp(word, "gated-", 6);
    c->act           = c->gated ? word + 6 : word;
    if (c->gated && !strcmp(c->act, "gelu"))
        c->act = "gelu_new"; /* as its makers meant it */
}

static t5 read_config(weft_model__maker *mk)
{
    t5 c         = {0};
    c.d          = weft_model__size(mk, "d_model", 0);
    c.e          = weft_model__size(mk, "d_kv", 64);
    c.heads      = weft_model__size(mk, "num_heads", 0);
    c.ffn        = weft_model__size(mk, "d_ff", 0);
    c.vocab      = weft_model__size(mk, "vocab_size", 0);
    c.enc_layers = weft_model__layers(mk, "num_layers");
    c.dec_layers = weft_model__has(mk, "num_decoder_layers")
                       ? weft_model__layers(mk, "num_decoder_layers")
                       : c.enc_layers;
    c.buckets    = weft_model__size(mk, "relative_attention_num_buckets", 32);
    c.distance   = weft_model__size(mk, "relative_attention_max_distance", 128);
    c.eps        = weft_model__positive(mk, "layer_norm_epsilon", 1e-6);
    c.factor     = weft_model__positive(mk, "initializer_factor", 1);
    c.tied       = weft_model__flag(mk, "tie_word_embeddings", true);
    c.drop       = weft_model__drop(mk, "dropout_rate", 0.1);
    /* old files tie and scale together; new ones say each by itself */
    c.scaled = weft_model__flag(mk, "scale_decoder_outputs", c.tied);
    weft_model__no_attention_drop(mk, "dropout_rate", 0.1);
    read_ffn(mk, &c);
    /* any length will do: positions are relative */
    int64_t context = weft_model__size(mk, "n_positions", 512);
    weft_model__set_seq(mk, "n_positions", mk->o.seq > context ? mk->o.seq : context);
    mk->m->info = (weft_model_info){.vocab    = c.vocab,
                                    .layers   = c.enc_layers + c.dec_layers,
                                    .hidden   = c.d,
                                    .heads    = c.heads,
                                    .kv_heads = c.heads,
                                    .head_dim = c.e,
                                    .ffn      = c.ffn,
                                    .context  = context};
    return c;
}

/* A token of the configuration; null and nothing: def. */
static int32_t read_token(weft_model__maker *mk, const char *key, int64_t vocab,
                          int32_t def)
{
    const weft_node *n = weft_node_get(mk->cfg, key);
    if (!n || n->kind == WEFT_NODE_NULL) return def;
    if (n->kind != WEFT_NODE_INT || n->u.i < 0 || n->u.i >= vocab) {
        weft_model__refuse(mk, key, "is no token of the %lld of vocab_size",
                           (long long)vocab);
        return def;
    }
    return (int32_t)n->u.i;
}

/* (h,s,t) from a table (buckets,h) of the stack's first layer. */
static weft_vid position_bias(weft_model__maker *mk, const t5 *c, const char *stack,
                              bool both_ways)
{
    weft_vid ids =
        weft_buildf(&mk->b, WEFT_OP_REL_BUCKET, "position.bucket", 0, NULL,
                    "s=%lld t=%lld bidirectional=%d buckets=%lld max_distance=%lld",
                    (long long)mk->seq, (long long)mk->seq, both_ways,
                    (long long)c->buckets, (long long)c->distance);
    const char *name = weft_model__name(
        mk, "%s.block.0.layer.0.SelfAttention.relative_attention_bias.weight", stack);
    weft_shape s = DIMS(c->buckets, c->heads);
    weft_vid   t = weft_model__param(mk, name, s, s, WEFT_INIT_NORMAL,
                                     c->factor / sqrt((double)c->d));
    t            = weft_build(&mk->b, WEFT_OP_EMBEDDING, "position", NULL, 2, t, ids);
    return weft_build(&mk->b, WEFT_OP_TRANSPOSE, "position.bias", "perm=[2,0,1]", 1, t);
}

/* ---- the parts of a block; at is "encoder.block.3.layer.0" ---- */
static weft_vid project(weft_model__maker *mk, const t5 *c, const char *at,
                        const char *part, const char *which, double std, weft_vid x)
{
    weft_model__linear l = {.spec   = "bsd,hed->bshe",
                            .w      = DIMS(c->heads, c->e, c->d),
                            .w_file = DIMS(c->heads * c->e, c->d),
                            .std    = c->factor * std};
    return weft_model__apply(mk, weft_model__name(mk, "%s.%s.%s", at, part, which),
                             weft_model__name(mk, "%s.%s", part, which), x, l);
}

/* x + attention(norm(x), from); from -1: itself. */
static weft_vid attend(weft_model__maker *mk, const t5 *c, const char *at,
                       const char *part, weft_vid x, weft_vid from, weft_vid bias,
                       const char *attr)
{
    double   in = 1 / sqrt((double)c->d), head = 1 / sqrt((double)c->e);
    weft_vid y =
        weft_model__rms_norm(mk, weft_model__name(mk, "%s.layer_norm", at),
                             weft_model__name(mk, "%s.layer_norm", part), x, c->eps);
    weft_vid kv          = from >= 0 ? from : y;
    weft_vid q           = project(mk, c, at, part, "q", in * head, y);
    weft_vid k           = project(mk, c, at, part, "k", in, kv);
    weft_vid v           = project(mk, c, at, part, "v", in, kv);
    y                    = weft_model__attention(mk, part, q, k, v, bias, attr);
    weft_model__linear o = {.spec   = "bshe,dhe->bsd",
                            .w      = DIMS(c->d, c->heads, c->e),
                            .w_file = DIMS(c->d, c->heads * c->e),
                            .std    = c->factor / sqrt((double)(c->heads * c->e))};
    y = weft_model__apply(mk, weft_model__name(mk, "%s.%s.o", at, part),
                          weft_model__name(mk, "%s.o", part), y, o);
    y = weft_model__dropout(mk, weft_model__name(mk, "%s.dropout", part), c->drop, y);
    return weft_build(&mk->b, WEFT_OP_ADD, weft_model__name(mk, "%s.sum", part), NULL, 2,
                      x, y);
}

static weft_vid feed_forward(weft_model__maker *mk, const t5 *c, const char *at,
                             weft_vid x)
{
    const char        *ff = weft_model__name(mk, "%s.DenseReluDense", at);
    weft_model__linear wi = {.spec   = "bsd,fd->bsf",
                             .w      = DIMS(c->ffn, c->d),
                             .w_file = DIMS(c->ffn, c->d),
                             .std    = c->factor / sqrt((double)c->d)};
    weft_model__linear wo = {.spec   = "bsf,df->bsd",
                             .w      = DIMS(c->d, c->ffn),
                             .w_file = DIMS(c->d, c->ffn),
                             .std    = c->factor / sqrt((double)c->ffn)};
    weft_vid n = weft_model__rms_norm(mk, weft_model__name(mk, "%s.layer_norm", at),
                                      "ff.layer_norm", x, c->eps);
    weft_vid y = weft_model__apply(
        mk, weft_model__name(mk, c->gated ? "%s.wi_0" : "%s.wi", ff), "ff.wi", n, wi);
    y = weft_model__activation(mk, "feed_forward_proj", c->act, "ff.act", y);
    if (c->gated) {
        n = weft_model__apply(mk, weft_model__name(mk, "%s.wi_1", ff), "ff.wi_1", n, wi);
        y = weft_build(&mk->b, WEFT_OP_MUL, "ff.gated", NULL, 2, y, n);
    }
    y = weft_model__dropout(mk, "ff.drop", c->drop, y);
    y = weft_model__apply(mk, weft_model__name(mk, "%s.wo", ff), "ff.wo", y, wo);
    y = weft_model__dropout(mk, "ff.dropout", c->drop, y);
    return weft_build(&mk->b, WEFT_OP_ADD, "sum", NULL, 2, x, y);
}

/* memory -1: the encoder's stack; else the decoder's, which looks at memory. */
static weft_vid stack(weft_model__maker *mk, const t5 *c, const char *name,
                      weft_vid table, weft_vid ids, weft_vid memory, int64_t layers)
{
    bool decoder  = memory >= 0;
    mk->b.prefix  = name;
    weft_vid bias = position_bias(mk, c, name, !decoder);
    weft_vid x =
        weft_build(&mk->b, WEFT_OP_EMBEDDING, "embed_tokens", NULL, 2, table, ids);
    x = weft_model__dropout(mk, "dropout", c->drop, x);
    for (int i = 0; i < layers && mk->b.st == WEFT_OK; i++) {
        int part       = 0;
        mk->b.prefix   = weft_model__name(mk, "%s.block.%d", name, i);
        const char *at = weft_model__name(mk, "%s.layer.%d", mk->b.prefix, part++);
        x              = attend(mk, c, at, "SelfAttention", x, -1, bias,
                   decoder ? "scale=1" : "causal=0 scale=1");
        at             = weft_model__name(mk, "%s.layer.%d", mk->b.prefix, part++);
        if (decoder) {
            x  = attend(mk, c, at, "EncDecAttention", x, memory, -1, "causal=0 scale=1");
            at = weft_model__name(mk, "%s.layer.%d", mk->b.prefix, part);
        }
        x = feed_forward(mk, c, at, x);
    }
    mk->b.prefix = name;
    x = weft_model__rms_norm(mk, weft_model__name(mk, "%s.final_layer_norm", name),
                             "final_layer_norm", x, c->eps);
    x = weft_model__dropout(mk, "final_dropout", c->drop, x);
    mk->b.prefix = NULL;
    return x;
}

void weft_model__make_t5(weft_model__maker *mk)
{
    t5 c = read_config(mk);
    if (mk->b.st != WEFT_OK) return;
    weft_model *m    = mk->m;
    weft_shape  s    = DIMS(c.vocab, c.d);
    m->ids           = weft_model__ids(mk, "input_ids");
    m->decoder_ids   = weft_model__ids(mk, "decoder_input_ids");
    m->decoder_pad   = read_token(mk, "pad_token_id", c.vocab, 0);
    m->decoder_start = read_token(mk, "decoder_start_token_id", c.vocab, m->decoder_pad);
    weft_vid shared =
        weft_model__param(mk, "shared.weight", s, s, WEFT_INIT_NORMAL, c.factor);
    weft_vid head = shared;
    weft_model__alias(mk, shared, "encoder.embed_tokens.weight");
    weft_model__alias(mk, shared, "decoder.embed_tokens.weight");
    weft_vid x = stack(mk, &c, "encoder", shared, m->ids, -1, c.enc_layers);
    x          = stack(mk, &c, "decoder", shared, m->decoder_ids, x, c.dec_layers);
    if (c.scaled)
        x = weft_buildf(&mk->b, WEFT_OP_SCALE, "decoder.scaled", 1, &x, "alpha=%.17g",
                        1 / sqrt((double)c.d));
    if (c.tied)
        weft_model__alias(mk, shared, "lm_head.weight");
    else
        head = weft_model__param(mk, "lm_head.weight", s, s, WEFT_INIT_NORMAL, c.factor);
    x = weft_build(&mk->b, WEFT_OP_MATMUL, "logits", "spec=bsd,vd->bsv", 2, x, head);
    weft_model__loss(mk, x);
}
