/* Llama and its relatives: RMS norms, rotary positions, grouped-query attention, a gated MLP.
 *   mistral   a sliding window        qwen2   biases on q, k, v; windows on the upper layers
 *   mixtral   experts in place of the MLP: a router sends each token to top_k of them, none dropped
 * Weights lie (out, in), as torch's Linear has them. */
#include <stdio.h>
#include <string.h>

#include "model/model_priv.h"

typedef struct llama {
    int64_t     d, heads, kv, e, ffn, vocab, layers;
    int64_t     experts, top_k;       /* 0: one MLP */
    int64_t     window, first_window; /* 0: none; layers from first_window on have it */
    double      eps;
    const char *act;
    bool        qkv_bias, o_bias, mlp_bias, tied;
    char        rope[192];       /* attributes of rotary */
    double      balance, z_coef; /* weights of the router's losses; 0: none */
    double      bias_rate;       /* of the router's biases; 0: none */
    bool        reports;         /* loads of experts */
} llama;

static bool is(const weft_model__maker *mk, const char *type)
{
    return !strcmp(mk->m->type, type);
}

/* ---- the configuration ---- */

/* rope_parameters (new) and rope_theta + rope_scaling (old) say the same thing. */
static void read_rope(weft_model__maker *mk, llama *c)
{
    const weft_node *top  = mk->cfg;
    const weft_node *rope = weft_model__node(mk, "rope_parameters|rope_scaling");
    double theta = weft_model__positive(mk, "rope_theta", is(mk, "mixtral") ? 1e6 : 1e4);
    const char *kind = "default";
    if (rope && rope->kind != WEFT_NODE_MAP)
        weft_model__refuse(mk, "rope_parameters|rope_scaling", "expected { ... }");
    if (rope && mk->b.st == WEFT_OK) {
        mk->cfg = rope;
        theta   = weft_model__positive(mk, "rope_theta", theta);
        kind    = weft_model__word(mk, "rope_type|type", "default");
    }
    int n = snprintf(c->rope, sizeof c->rope, "theta=%.17g", theta);
    if (strcmp(kind, "default"))
        snprintf(c->rope + n, sizeof c->rope - (size_t)n, " kind=%s factor=%.17g", kind,
                 weft_model__positive(mk, "factor", 1));
    n = (int)strlen(c->rope);
    if (!strcmp(kind, "llama3"))
        snprintf(
            c->rope + n, sizeof c->rope - (size_t)n, " low=%.17g high=%.17g orig=%lld",
            weft_model__positive(mk, "low_freq_factor", 1),
            weft_model__positive(mk, "high_freq_factor", 4),
            (long long)weft_model__size(mk, "original_max_position_embeddings", 8192));
    else if (strcmp(kind, "default") && strcmp(kind, "linear"))
        weft_model__refuse(mk, "rope_type|type",
                           "'%s' is not supported (default, linear, llama3)", kind);
    if (weft_model__number(mk, "partial_rotary_factor", 1) != 1)
        weft_model__refuse(mk, "partial_rotary_factor", "only 1 is supported");
    mk->cfg = top;
    if (c->e % 2)
        weft_model__refuse(mk, "head_dim|hidden_size",
                           "heads of odd size %lld cannot be rotated", (long long)c->e);
}

/* mistral: 4096 unless the key says otherwise (null: none).  qwen2: only with use_sliding_window,
 * and only from layer max_window_layers on. */
static void read_window(weft_model__maker *mk, llama *c)
{
    bool named = weft_node_get(mk->cfg, "sliding_window") != NULL;
    if (weft_model__has(mk, "sliding_window"))
        c->window = weft_model__size(mk, "sliding_window", 0);
    else if (is(mk, "mistral") && !named)
        c->window = 4096;
    if (is(mk, "qwen2")) {
        if (!weft_model__flag(mk, "use_sliding_window", false)) c->window = 0;
        c->first_window = (int64_t)weft_model__number(mk, "max_window_layers", 28);
    }
    if (is(mk, "llama") || c->window >= mk->seq)
        c->window = 0; /* sees everything anyway */
}

static double read_weight(weft_model__maker *mk, const char *key, double def)
{
    double x = weft_model__number(mk, key, def);
    if (mk->b.st == WEFT_OK && x < 0)
        weft_model__refuse(mk, key, "%g must not be below 0", x);
    return mk->b.st == WEFT_OK ? x : 0;
}

static void read_experts(weft_model__maker *mk, llama *c)
{
    if (!is(mk, "mixtral")) return;
    c->experts = weft_model__size(mk, "num_local_experts", 8);
    c->top_k   = weft_model__size(mk, "num_experts_per_tok", 2);
    if (c->top_k > c->experts)
        weft_model__refuse(mk, "num_experts_per_tok", "%lld of only %lld experts",
                           (long long)c->top_k, (long long)c->experts);
    if (c->experts > 4096)
        weft_model__refuse(mk, "num_local_experts", "%lld is more than 4096",
                           (long long)c->experts);
    c->reports = weft_model__flag(mk, "output_router_logits", false);
    if (c->reports) c->balance = read_weight(mk, "router_aux_loss_coef", 0.001);
    c->z_coef    = read_weight(mk, "router_z_loss_coef", 0);
    c->bias_rate = read_weight(mk, "router_bias_update_rate", 0);
    if (weft_model__drop(mk, "router_jitter_noise", 0) > 0)
        weft_model__refuse(mk, "router_jitter_noise", "is not supported; set it to 0");
}

static llama read_config(weft_model__maker *mk)
{
    llama c  = {0};
    c.d      = weft_model__size(mk, "hidden_size", 0);
    c.heads  = weft_model__size(mk, "num_attention_heads", 0);
    c.layers = weft_model__layers(mk, "num_hidden_layers");
    c.ffn    = weft_model__size(mk, "intermediate_size", 0);
    c.vocab  = weft_model__size(mk, "vocab_size", 0);
    c.kv     = weft_model__size(mk, "num_key_value_heads", c.heads);
    if (weft_model__has(mk, "head_dim"))
        c.e = weft_model__size(mk, "head_dim", 0);
    else
        c.e = weft_model__divide(mk, "num_attention_heads", c.heads, "hidden_size", c.d);
    weft_model__divide(mk, "num_key_value_heads", c.kv, "num_attention_heads", c.heads);
    weft_model__set_seq(mk, "max_position_embeddings",
                        weft_model__size(mk, "max_position_embeddings", 2048));
    c.eps    = weft_model__positive(mk, "rms_norm_eps", is(mk, "mixtral") ? 1e-5 : 1e-6);
    c.act    = weft_model__word(mk, "hidden_act", "silu");
    c.o_bias = is(mk, "llama") && weft_model__flag(mk, "attention_bias", false);
    c.qkv_bias = c.o_bias || is(mk, "qwen2");
    c.mlp_bias = is(mk, "llama") && weft_model__flag(mk, "mlp_bias", false);
    c.tied     = weft_model__flag(mk, "tie_word_embeddings", false);
    weft_model__no_attention_drop(mk, "attention_dropout", 0);
    read_rope(mk, &c);
    read_window(mk, &c);
    read_experts(mk, &c);
    mk->std       = weft_model__positive(mk, "initializer_range", 0.02);
    mk->m->causal = true;
    mk->m->prefix = "model.";
    mk->m->info   = (weft_model_info){.vocab    = c.vocab,
                                      .layers   = c.layers,
                                      .hidden   = c.d,
                                      .heads    = c.heads,
                                      .kv_heads = c.kv,
                                      .head_dim = c.e,
                                      .ffn      = c.ffn,
                                      .context  = mk->m->info.context,
                                      .experts  = c.experts,
                                      .top_k    = c.top_k};
    return c;
}

/* ---- one layer ---- */
static weft_vid project(weft_model__maker *mk, const llama *c, const char *at,
                        const char *which, weft_vid x, int64_t heads)
{
    weft_model__linear l = {.spec   = "bsd,hed->bshe",
                            .w      = DIMS(heads, c->e, c->d),
                            .w_file = DIMS(heads * c->e, c->d),
                            .bias   = DIMS(heads, c->e)};
    if (c->qkv_bias) l.bias_file = DIMS(heads * c->e);
    return weft_model__apply(mk, weft_model__name(mk, "%s.%s", at, which),
                             weft_model__name(mk, "self_attn.%s", which), x, l);
}

static weft_vid attention(weft_model__maker *mk, const llama *c, int layer, weft_vid x)
{
    char        attr[48] = "";
    const char *at       = weft_model__name(mk, "model.layers.%d.self_attn", layer);
    weft_vid    q        = project(mk, c, at, "q_proj", x, c->heads);
    weft_vid    k        = project(mk, c, at, "k_proj", x, c->kv);
    weft_vid    v        = project(mk, c, at, "v_proj", x, c->kv);
    q = weft_build(&mk->b, WEFT_OP_ROTARY, "self_attn.q", c->rope, 1, q);
    k = weft_build(&mk->b, WEFT_OP_ROTARY, "self_attn.k", c->rope, 1, k);
    if (c->window && layer >= c->first_window)
        snprintf(attr, sizeof attr, "window=%lld", (long long)c->window);
    x = weft_model__attention(mk, "self_attn", q, k, v, -1, attr);

    weft_model__linear o = {.spec   = "bshe,dhe->bsd",
                            .w      = DIMS(c->d, c->heads, c->e),
                            .w_file = DIMS(c->d, c->heads * c->e),
                            .bias   = DIMS(c->d)};
    if (c->o_bias) o.bias_file = DIMS(c->d);
    return weft_model__apply(mk, weft_model__name(mk, "%s.o_proj", at),
                             "self_attn.o_proj", x, o);
}

static weft_vid mlp(weft_model__maker *mk, const llama *c, int layer, weft_vid x)
{
    const char        *at   = weft_model__name(mk, "model.layers.%d.mlp", layer);
    weft_model__linear up   = {.spec   = "bsd,fd->bsf",
                               .w      = DIMS(c->ffn, c->d),
                               .w_file = DIMS(c->ffn, c->d),
                               .bias   = DIMS(c->ffn)};
    weft_model__linear down = {.spec   = "bsf,df->bsd",
                               .w      = DIMS(c->d, c->ffn),
                               .w_file = DIMS(c->d, c->ffn),
                               .bias   = DIMS(c->d)};
    if (c->mlp_bias) {
        up.bias_file   = DIMS(c->ffn);
        down.bias_file = DIMS(c->d);
    }
    weft_vid g = weft_model__apply(mk, weft_model__name(mk, "%s.gate_proj", at),
                                   "mlp.gate_proj", x, up);
    weft_vid u = weft_model__apply(mk, weft_model__name(mk, "%s.up_proj", at),
                                   "mlp.up_proj", x, up);
    g          = weft_model__activation(mk, "hidden_act", c->act, "mlp.act", g);
    x          = weft_build(&mk->b, WEFT_OP_MUL, "mlp.gated", NULL, 2, g, u);
    return weft_model__apply(mk, weft_model__name(mk, "%s.down_proj", at),
                             "mlp.down_proj", x, down);
}

/* One expert's weight of all experts' product; w is (x, out, in). */
static weft_vid expert(weft_model__maker *mk, const llama *c, const char *at,
                       const char *which, int64_t out, int64_t in, weft_vid rows,
                       weft_vid offsets)
{
    weft_vid w =
        weft_model__stacked(mk, weft_model__name(mk, "%s.experts.%s.weight", at, which),
                            weft_model__name(mk, "%s.experts.%%d.%s.weight", at, which),
                            DIMS(c->experts, out, in), mk->std);
    return weft_build(&mk->b, WEFT_OP_GROUPED_MATMUL,
                      weft_model__name(mk, "moe.%s", which), NULL, 3, rows, w, offsets);
}

static weft_vid moe(weft_model__maker *mk, const llama *c, int layer, weft_vid x,
                    weft_model__router *router)
{
    char        attr[48];
    weft_vid    pick[2], sent[3], in[2];
    const char *at  = weft_model__name(mk, "model.layers.%d.block_sparse_moe", layer);
    weft_shape  all = weft_build_type(&mk->b, x).shape,
               flat = DIMS(mk->batch * mk->seq, c->d);
    weft_model__linear gate = {.spec   = "nd,xd->nx",
                               .w      = DIMS(c->experts, c->d),
                               .w_file = DIMS(c->experts, c->d)};
    x                       = weft_build_reshape(&mk->b, x, &flat);
    weft_vid r =
        weft_model__apply(mk, weft_model__name(mk, "%s.gate", at), "moe.gate", x, gate);
    weft_model__route(mk, router, weft_model__name(mk, "%s.gate", at), r, pick);
    snprintf(attr, sizeof attr, "experts=%lld", (long long)c->experts);
    in[0] = x;
    in[1] = pick[1];
    weft_build_many(&mk->b, WEFT_OP_DISPATCH, "moe.rows", attr, 2, in, 3, sent);

    weft_vid g = expert(mk, c, at, "w1", c->ffn, c->d, sent[0], sent[1]);
    weft_vid u = expert(mk, c, at, "w3", c->ffn, c->d, sent[0], sent[1]);
    g          = weft_model__activation(mk, "hidden_act", c->act, "moe.act", g);
    x          = weft_build(&mk->b, WEFT_OP_MUL, "moe.gated", NULL, 2, g, u);
    x          = expert(mk, c, at, "w2", c->d, c->ffn, x, sent[1]);
    x          = weft_build(&mk->b, WEFT_OP_COMBINE, "moe", NULL, 3, x, pick[0], sent[2]);
    return weft_build_reshape(&mk->b, x, &all);
}

static weft_vid layer(weft_model__maker *mk, const llama *c, int i, weft_vid x,
                      weft_model__router *router)
{
    const char *at = weft_model__name(mk, "model.layers.%d", i);
    mk->b.prefix   = weft_model__name(mk, "layers.%d", i);
    weft_vid y = weft_model__rms_norm(mk, weft_model__name(mk, "%s.input_layernorm", at),
                                      "input_layernorm", x, c->eps);
    y          = attention(mk, c, i, y);
    x          = weft_build(&mk->b, WEFT_OP_ADD, "self_attn.sum", NULL, 2, x, y);
    y = weft_model__rms_norm(mk, weft_model__name(mk, "%s.post_attention_layernorm", at),
                             "post_attention_layernorm", x, c->eps);
    y = c->experts ? moe(mk, c, i, y, router) : mlp(mk, c, i, y);
    return weft_build(&mk->b, WEFT_OP_ADD, "sum", NULL, 2, x, y);
}

void weft_model__make_llama(weft_model__maker *mk)
{
    llama      c     = read_config(mk);
    weft_shape table = DIMS(c.vocab, c.d);
    if (mk->b.st != WEFT_OK) return;
    mk->m->ids    = weft_model__ids(mk, "input_ids");
    weft_vid head = weft_model__param(mk, "model.embed_tokens.weight", table, table,
                                      WEFT_INIT_NORMAL, mk->std);
    weft_vid x    = weft_model__lookup(mk, "embed_tokens", head, mk->m->ids, -1);
    weft_model__router router = {.experts   = c.experts,
                                 .top_k     = c.top_k,
                                 .balance   = c.balance,
                                 .z_coef    = c.z_coef,
                                 .bias_rate = c.bias_rate,
                                 .reports   = c.reports};
    weft_model__route_start(mk, &router);
    for (int i = 0; i < c.layers && mk->b.st == WEFT_OK; i++)
        x = layer(mk, &c, i, x, &router);
    mk->b.prefix = NULL;
    weft_model__route_loss(mk, &router);
    x = weft_model__rms_norm(mk, "model.norm", "norm", x, c.eps);
    if (c.tied)
        weft_model__alias(mk, head, "lm_head.weight");
    else
        head = weft_model__param(mk, "lm_head.weight", table, table, WEFT_INIT_NORMAL,
                                 mk->std);
    x = weft_build(&mk->b, WEFT_OP_MATMUL, "logits", "spec=bsd,vd->bsv", 2, x, head);
    weft_model__loss(mk, x);
}
