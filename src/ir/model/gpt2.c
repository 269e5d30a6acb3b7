/* GPT-2: learned positions, norms before each half of a block, one product for q, k and v.
 * Weights lie (in, out), as the original's Conv1D has them. */
#include <math.h>
#include <stdio.h>

#include "model/model_priv.h"

typedef struct gpt2 {
    int64_t     d, heads, e, ffn, vocab, layers, context;
    double      eps, resid_drop, embd_drop;
    const char *act;
    bool        scaled, scaled_by_layer; /* scores / sqrt(e), and again / (layer + 1) */
} gpt2;

static gpt2 read_config(weft_model__maker *mk)
{
    gpt2 c    = {0};
    c.d       = weft_model__size(mk, "n_embd|hidden_size", 0);
    c.heads   = weft_model__size(mk, "n_head|num_attention_heads", 0);
    c.layers  = weft_model__layers(mk, "n_layer|num_hidden_layers");
    c.vocab   = weft_model__size(mk, "vocab_size", 0);
    c.context = weft_model__size(mk, "n_positions|n_ctx|max_position_embeddings", 1024);
    c.ffn     = weft_model__size(mk, "n_inner", 4 * c.d);
    c.e   = weft_model__divide(mk, "n_head|num_attention_heads", c.heads, "n_embd", c.d);
    c.eps = weft_model__positive(mk, "layer_norm_epsilon", 1e-5);
    c.act = weft_model__word(mk, "activation_function", "gelu_new");
    c.scaled          = weft_model__flag(mk, "scale_attn_weights", true);
    c.scaled_by_layer = weft_model__flag(mk, "scale_attn_by_inverse_layer_idx", false);
    c.resid_drop      = weft_model__drop(mk, "resid_pdrop", 0.1);
    c.embd_drop       = weft_model__drop(mk, "embd_pdrop", 0.1);
    weft_model__no_attention_drop(mk, "attn_pdrop", 0.1);
    if (weft_model__flag(mk, "add_cross_attention", false))
        weft_model__refuse(mk, "add_cross_attention",
                           "GPT-2 with cross attention is not supported");
    weft_model__set_seq(mk, "n_positions|n_ctx|max_position_embeddings", c.context);
    mk->std       = weft_model__positive(mk, "initializer_range", 0.02);
    mk->m->causal = true;
    mk->m->prefix = "transformer.";
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

static weft_vid attention(weft_model__maker *mk, const gpt2 *c, int layer, weft_vid x)
{
    char               attr[64] = "";
    weft_vid           qkv, part[3];
    const char        *at    = weft_model__name(mk, "transformer.h.%d.attn", layer);
    weft_shape         head  = DIMS(mk->batch, mk->seq, c->heads, c->e);
    weft_model__linear in    = {.spec      = "bsd,dche->bsche",
                                .w         = DIMS(c->d, 3, c->heads, c->e),
                                .w_file    = DIMS(c->d, 3 * c->d),
                                .bias      = DIMS(3, c->heads, c->e),
                                .bias_file = DIMS(3 * c->d)};
    weft_model__linear out   = {.spec      = "bshe,hed->bsd",
                                .w         = DIMS(c->heads, c->e, c->d),
                                .w_file    = DIMS(c->d, c->d),
                                .bias      = DIMS(c->d),
                                .bias_file = DIMS(c->d),
                                .std       = mk->std / sqrt(2.0 * (double)c->layers)};
    double             scale = c->scaled ? 1 / sqrt((double)c->e) : 1;
    if (c->scaled_by_layer) scale /= layer + 1;
    if (!c->scaled || c->scaled_by_layer)
        snprintf(attr, sizeof attr, "scale=%.17g", scale);

    qkv = weft_model__apply(mk, weft_model__name(mk, "%s.c_attn", at), "attn.c_attn", x,
                            in);
    weft_build_many(&mk->b, WEFT_OP_SPLIT, "attn.qkv", "axis=2 sizes=[1,1,1]", 1, &qkv, 3,
                    part);
    for (int i = 0; i < 3; i++) part[i] = weft_build_reshape(&mk->b, part[i], &head);
    x = weft_model__attention(mk, "attn", part[0], part[1], part[2], -1, attr);
    x = weft_model__apply(mk, weft_model__name(mk, "%s.c_proj", at), "attn.c_proj", x,
                          out);
    return weft_model__dropout(mk, "attn.resid_dropout", c->resid_drop, x);
}

static weft_vid mlp(weft_model__maker *mk, const gpt2 *c, int layer, weft_vid x)
{
    const char        *at   = weft_model__name(mk, "transformer.h.%d.mlp", layer);
    weft_model__linear fc   = {.spec      = "bsd,df->bsf",
                               .w         = DIMS(c->d, c->ffn),
                               .w_file    = DIMS(c->d, c->ffn),
                               .bias      = DIMS(c->ffn),
                               .bias_file = DIMS(c->ffn)};
    weft_model__linear proj = {.spec      = "bsf,fd->bsd",
                               .w         = DIMS(c->ffn, c->d),
                               .w_file    = DIMS(c->ffn, c->d),
                               .bias      = DIMS(c->d),
                               .bias_file = DIMS(c->d),
                               .std       = mk->std / sqrt(2.0 * (double)c->layers)};
    x = weft_model__apply(mk, weft_model__name(mk, "%s.c_fc", at), "mlp.c_fc", x, fc);
    x = weft_model__activation(mk, "activation_function", c->act, "mlp.act", x);
    x = weft_model__apply(mk, weft_model__name(mk, "%s.c_proj", at), "mlp.c_proj", x,
                          proj);
    return weft_model__dropout(mk, "mlp.dropout", c->resid_drop, x);
}

static weft_vid embed(weft_model__maker *mk, const gpt2 *c, weft_vid wte)
{
    weft_vid wpe = weft_model__param(mk, "transformer.wpe.weight", DIMS(c->context, c->d),
                                     DIMS(c->context, c->d), WEFT_INIT_NORMAL, mk->std);
    weft_vid x   = weft_build(&mk->b, WEFT_OP_EMBEDDING, "wte", NULL, 2, wte, mk->m->ids);
    weft_vid pos = wpe;
    if (mk->seq < c->context)
        pos = weft_buildf(&mk->b, WEFT_OP_SLICE, "wpe", 1, &wpe, "axis=0 stop=%lld",
                          (long long)mk->seq);
    x = weft_build(&mk->b, WEFT_OP_ADD, "embd", NULL, 2, x, pos);
    return weft_model__dropout(mk, "embd.drop", c->embd_drop, x);
}

/* The table itself where it is tied. */
static weft_vid head(weft_model__maker *mk, const gpt2 *c, weft_vid wte)
{
    if (weft_model__flag(mk, "tie_word_embeddings", true)) {
        weft_model__alias(mk, wte, "lm_head.weight");
        return wte;
    }
    return weft_model__param(mk, "lm_head.weight", DIMS(c->vocab, c->d),
                             DIMS(c->vocab, c->d), WEFT_INIT_NORMAL, mk->std);
}

void weft_model__make_gpt2(weft_model__maker *mk)
{
    gpt2 c = read_config(mk);
    if (mk->b.st != WEFT_OK) return;
    mk->m->ids   = weft_model__ids(mk, "input_ids");
    weft_vid wte = weft_model__param(mk, "transformer.wte.weight", DIMS(c.vocab, c.d),
                                     DIMS(c.vocab, c.d), WEFT_INIT_NORMAL, mk->std);
    weft_vid x   = embed(mk, &c, wte), y;
    for (int i = 0; i < c.layers && mk->b.st == WEFT_OK; i++) {
        const char *at = weft_model__name(mk, "transformer.h.%d", i);
        mk->b.prefix   = weft_model__name(mk, "h.%d", i);
        y = weft_model__layer_norm(mk, weft_model__name(mk, "%s.ln_1", at), "ln_1", x,
                                   c.eps);
        y = attention(mk, &c, i, y);
        x = weft_build(&mk->b, WEFT_OP_ADD, "attn.sum", NULL, 2, x, y);
        y = weft_model__layer_norm(mk, weft_model__name(mk, "%s.ln_2", at), "ln_2", x,
                                   c.eps);
        y = mlp(mk, &c, i, y);
        x = weft_build(&mk->b, WEFT_OP_ADD, "sum", NULL, 2, x, y);
    }
    mk->b.prefix = NULL;
    x            = weft_model__layer_norm(mk, "transformer.ln_f", "ln_f", x, c.eps);
    y            = head(mk, &c, wte);
    x = weft_build(&mk->b, WEFT_OP_MATMUL, "logits", "spec=bsd,vd->bsv", 2, x, y);
    weft_model__loss(mk, x);
}
