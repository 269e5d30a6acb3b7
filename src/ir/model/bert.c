/* BERT and ERNIE as masked language models: bidirectional, norms behind each half of a layer, a
 * head with a transform of its own and the table of words again.  Token types are all 0, and so are
 * ERNIE's task types.  Weights lie (out, in). */
#include <stdio.h>
#include <string.h>

#include "model/model_priv.h"

typedef struct bert {
    int64_t d, heads, e, ffn, vocab, layers, context, types, tasks; /* tasks 0: none */
    double  eps, drop;
    const char *act, *root; /* root: "bert" or "ernie" */
    bool        tied;
} bert;

static bert read_config(weft_model__maker *mk)
{
    bert c    = {.root = mk->m->type};
    c.d       = weft_model__size(mk, "hidden_size", 0);
    c.heads   = weft_model__size(mk, "num_attention_heads", 0);
    c.layers  = weft_model__layers(mk, "num_hidden_layers");
    c.ffn     = weft_model__size(mk, "intermediate_size", 0);
    c.vocab   = weft_model__size(mk, "vocab_size", 0);
    c.context = weft_model__size(mk, "max_position_embeddings", 512);
    c.types   = weft_model__size(mk, "type_vocab_size", 2);
    c.e    = weft_model__divide(mk, "num_attention_heads", c.heads, "hidden_size", c.d);
    c.eps  = weft_model__positive(mk, "layer_norm_eps", 1e-12);
    c.act  = weft_model__word(mk, "hidden_act", "gelu");
    c.tied = weft_model__flag(mk, "tie_word_embeddings", true);
    c.drop = weft_model__drop(mk, "hidden_dropout_prob", 0.1);
    weft_model__no_attention_drop(mk, "attention_probs_dropout_prob", 0.1);
    if (!strcmp(c.root, "ernie") && weft_model__flag(mk, "use_task_id", false))
        c.tasks = weft_model__size(mk, "task_type_vocab_size", 3);
    if (weft_model__flag(mk, "is_decoder", false))
        weft_model__refuse(mk, "is_decoder",
                           "only the encoder is supported; set it to false");
    const char *pos = weft_model__word(mk, "position_embedding_type", "absolute");
    if (strcmp(pos, "absolute"))
        weft_model__refuse(mk, "position_embedding_type",
                           "'%s' is not supported (absolute)", pos);
    weft_model__set_seq(mk, "max_position_embeddings", c.context);
    mk->std       = weft_model__positive(mk, "initializer_range", 0.02);
    mk->m->prefix = weft_model__name(mk, "%s.", c.root);
    mk->m->info   = (weft_model_info){.vocab    = c.vocab,
                                      .layers   = c.layers,
                                      .hidden   = c.d,
                                      .heads    = c.heads,
                                      .kv_heads = c.heads,
                                      .head_dim = c.e,
                                      .ffn      = c.ffn,
                                      .context  = c.context};
    return c;
}

static weft_model__linear dense(const char *spec, int64_t out, int64_t in)
{
    return (weft_model__linear){.spec      = spec,
                                .w         = DIMS(out, in),
                                .w_file    = DIMS(out, in),
                                .bias      = DIMS(out),
                                .bias_file = DIMS(out)};
}

/* ---- embeddings ---- */
static weft_vid table(weft_model__maker *mk, const bert *c, const char *which,
                      int64_t rows)
{
    weft_shape s = DIMS(rows, c->d);
    return weft_model__param(
        mk, weft_model__name(mk, "%s.embeddings.%s.weight", c->root, which), s, s,
        WEFT_INIT_NORMAL, mk->std);
}

/* x + the first rows of a table. */
static weft_vid add_rows(weft_model__maker *mk, const bert *c, const char *which,
                         int64_t have, int64_t rows, weft_vid x)
{
    weft_vid t = table(mk, c, which, have);
    if (rows < have)
        t = weft_buildf(&mk->b, WEFT_OP_SLICE, which, 1, &t, "axis=0 stop=%lld",
                        (long long)rows);
    return weft_build(&mk->b, WEFT_OP_ADD, weft_model__name(mk, "%s.sum", which), NULL, 2,
                      x, t);
}

static weft_vid embed(weft_model__maker *mk, const bert *c, weft_vid words)
{
    mk->b.prefix = "embeddings";
    weft_vid x   = weft_model__lookup(mk, "word_embeddings", words, mk->m->ids, 0);
    x            = add_rows(mk, c, "token_type_embeddings", c->types, 1, x);
    x            = add_rows(mk, c, "position_embeddings", c->context, mk->seq, x);
    if (c->tasks) x = add_rows(mk, c, "task_type_embeddings", c->tasks, 1, x);
    x = weft_model__layer_norm(mk,
                               weft_model__name(mk, "%s.embeddings.LayerNorm", c->root),
                               "LayerNorm", x, c->eps);
    return weft_model__dropout(mk, "dropout", c->drop, x);
}

/* ---- one layer ---- */
static weft_vid heads_of(weft_model__maker *mk, const bert *c, const char *at,
                         const char *which, weft_vid x)
{
    weft_model__linear l = {.spec      = "bsd,hed->bshe",
                            .w         = DIMS(c->heads, c->e, c->d),
                            .w_file    = DIMS(c->d, c->d),
                            .bias      = DIMS(c->heads, c->e),
                            .bias_file = DIMS(c->d)};
    return weft_model__apply(mk, weft_model__name(mk, "%s.attention.self.%s", at, which),
                             weft_model__name(mk, "attention.self.%s", which), x, l);
}

/* norm(x + dropout(y)) */
static weft_vid close_half(weft_model__maker *mk, const bert *c, const char *at,
                           const char *which, weft_vid x, weft_vid y)
{
    const char *name = weft_model__name(mk, "%s.LayerNorm", which);
    y = weft_model__dropout(mk, weft_model__name(mk, "%s.dropout", which), c->drop, y);
    y = weft_build(&mk->b, WEFT_OP_ADD, weft_model__name(mk, "%s.sum", which), NULL, 2, y,
                   x);
    return weft_model__layer_norm(mk, weft_model__name(mk, "%s.%s", at, name), name, y,
                                  c->eps);
}

static weft_vid layer(weft_model__maker *mk, const bert *c, int i, weft_vid x)
{
    const char *at = weft_model__name(mk, "%s.encoder.layer.%d", c->root, i);
    mk->b.prefix   = weft_model__name(mk, "layer.%d", i);
    weft_vid q = heads_of(mk, c, at, "query", x), k = heads_of(mk, c, at, "key", x),
             v = heads_of(mk, c, at, "value", x);
    weft_vid y = weft_model__attention(mk, "attention.self", q, k, v, -1, "causal=0");

    weft_model__linear out = {.spec      = "bshe,dhe->bsd",
                              .w         = DIMS(c->d, c->heads, c->e),
                              .w_file    = DIMS(c->d, c->d),
                              .bias      = DIMS(c->d),
                              .bias_file = DIMS(c->d)};
    y = weft_model__apply(mk, weft_model__name(mk, "%s.attention.output.dense", at),
                          "attention.output.dense", y, out);
    x = close_half(mk, c, at, "attention.output", x, y);
    y = weft_model__apply(mk, weft_model__name(mk, "%s.intermediate.dense", at),
                          "intermediate.dense", x, dense("bsd,fd->bsf", c->ffn, c->d));
    y = weft_model__activation(mk, "hidden_act", c->act, "intermediate", y);
    y = weft_model__apply(mk, weft_model__name(mk, "%s.output.dense", at), "output.dense",
                          y, dense("bsf,df->bsd", c->d, c->ffn));
    return close_half(mk, c, at, "output", x, y);
}

/* ---- the head ---- */
static weft_vid predictions(weft_model__maker *mk, const bert *c, weft_vid words,
                            weft_vid x)
{
    const char *at = "cls.predictions.transform";
    weft_shape  s = DIMS(c->vocab, c->d), v = DIMS(c->vocab);
    mk->b.prefix = "cls.predictions";
    x = weft_model__apply(mk, weft_model__name(mk, "%s.dense", at), "transform.dense", x,
                          dense("bsd,ed->bse", c->d, c->d));
    x = weft_model__activation(mk, "hidden_act", c->act, "transform", x);
    x = weft_model__layer_norm(mk, weft_model__name(mk, "%s.LayerNorm", at),
                               "transform.LayerNorm", x, c->eps);
    if (c->tied)
        weft_model__alias(mk, words, "cls.predictions.decoder.weight");
    else
        words = weft_model__param(mk, "cls.predictions.decoder.weight", s, s,
                                  WEFT_INIT_NORMAL, mk->std);
    weft_vid bias =
        weft_model__param(mk, "cls.predictions.bias", v, v, WEFT_INIT_ZEROS, 0);
    weft_model__alias(mk, bias, "cls.predictions.decoder.bias");
    x = weft_build(&mk->b, WEFT_OP_MATMUL, "decoder", "spec=bsd,vd->bsv", 2, x, words);
    mk->b.prefix = NULL;
    return weft_build(&mk->b, WEFT_OP_ADD, "logits", NULL, 2, x, bias);
}

void weft_model__make_bert(weft_model__maker *mk)
{
    bert c = read_config(mk);
    if (mk->b.st != WEFT_OK) return;
    mk->m->ids     = weft_model__ids(mk, "input_ids");
    weft_vid words = table(mk, &c, "word_embeddings", c.vocab);
    weft_vid x     = embed(mk, &c, words);
    for (int i = 0; i < c.layers && mk->b.st == WEFT_OK; i++) x = layer(mk, &c, i, x);
    weft_model__loss(mk, predictions(mk, &c, words, x));
}
