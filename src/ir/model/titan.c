/* ERNIE 3.0 Titan's shape, for planning: a very wide universal stack, a projection, and a narrow
 * stack for the task (here: generation, so both look backwards only).  Its weights are not public,
 * so names are ours; the original's recurrent memory of 128 positions is left out.
 * Weights lie (out, in). */
#include "model/model_priv.h"

typedef struct titan_stack {
    const char *name; /* "universal" or "task" */
    int64_t     layers, d, heads, e, ffn;
} titan_stack;

static titan_stack read_stack(weft_model__maker *mk, const char *name, const char *layers,
                              const char *hidden, const char *heads, const char *ffn)
{
    titan_stack t = {.name = name};
    t.layers      = weft_model__layers(mk, layers);
    t.d           = weft_model__size(mk, hidden, 0);
    t.heads       = weft_model__size(mk, heads, 0);
    t.ffn         = weft_model__size(mk, ffn, 4 * t.d);
    t.e           = weft_model__divide(mk, heads, t.heads, hidden, t.d);
    return t;
}

static weft_vid heads_of(weft_model__maker *mk, const titan_stack *t, const char *at,
                         const char *which, weft_vid x)
{
    weft_model__linear l = {.spec      = "bsd,hed->bshe",
                            .w         = DIMS(t->heads, t->e, t->d),
                            .w_file    = DIMS(t->d, t->d),
                            .bias      = DIMS(t->heads, t->e),
                            .bias_file = DIMS(t->d)};
    return weft_model__apply(mk, weft_model__name(mk, "%s.attention.%s", at, which),
                             weft_model__name(mk, "attention.%s", which), x, l);
}

static weft_model__linear dense(const char *spec, int64_t out, int64_t in)
{
    return (weft_model__linear){.spec      = spec,
                                .w         = DIMS(out, in),
                                .w_file    = DIMS(out, in),
                                .bias      = DIMS(out),
                                .bias_file = DIMS(out)};
}

static weft_vid layer(weft_model__maker *mk, const titan_stack *t, int i, double eps,
                      const char *act, weft_vid x)
{
    const char *at = weft_model__name(mk, "%s.layer.%d", t->name, i);
    mk->b.prefix   = at;
    weft_vid y =
        weft_model__layer_norm(mk, weft_model__name(mk, "%s.norm1", at), "norm1", x, eps);
    weft_vid q = heads_of(mk, t, at, "query", y), k = heads_of(mk, t, at, "key", y),
             v             = heads_of(mk, t, at, "value", y);
    y                      = weft_model__attention(mk, "attention", q, k, v, -1, NULL);
    weft_model__linear out = {.spec      = "bshe,dhe->bsd",
                              .w         = DIMS(t->d, t->heads, t->e),
                              .w_file    = DIMS(t->d, t->d),
                              .bias      = DIMS(t->d),
                              .bias_file = DIMS(t->d)};
    y = weft_model__apply(mk, weft_model__name(mk, "%s.attention.output", at),
                          "attention.output", y, out);
    x = weft_build(&mk->b, WEFT_OP_ADD, "attention.sum", NULL, 2, x, y);
    y = weft_model__layer_norm(mk, weft_model__name(mk, "%s.norm2", at), "norm2", x, eps);
    y = weft_model__apply(mk, weft_model__name(mk, "%s.ffn.in", at), "ffn.in", y,
                          dense("bsd,fd->bsf", t->ffn, t->d));
    y = weft_model__activation(mk, "hidden_act", act, "ffn.act", y);
    y = weft_model__apply(mk, weft_model__name(mk, "%s.ffn.out", at), "ffn.out", y,
                          dense("bsf,df->bsd", t->d, t->ffn));
    return weft_build(&mk->b, WEFT_OP_ADD, "sum", NULL, 2, x, y);
}

static weft_vid run_stack(weft_model__maker *mk, const titan_stack *t, weft_vid x)
{
    double      eps = weft_model__positive(mk, "layer_norm_eps", 1e-5);
    const char *act = weft_model__word(mk, "hidden_act", "gelu");
    for (int i = 0; i < t->layers && mk->b.st == WEFT_OK; i++)
        x = layer(mk, t, i, eps, act, x);
    mk->b.prefix = NULL;
    return weft_model__layer_norm(mk, weft_model__name(mk, "%s.norm", t->name),
                                  weft_model__name(mk, "%s.norm", t->name), x, eps);
}

void weft_model__make_titan(weft_model__maker *mk)
{
    titan_stack u = read_stack(mk, "universal", "num_hidden_layers", "hidden_size",
                               "num_attention_heads", "intermediate_size");
    titan_stack t = read_stack(mk, "task", "task_num_hidden_layers", "task_hidden_size",
                               "task_num_attention_heads", "task_intermediate_size");
    int64_t     vocab = weft_model__size(mk, "vocab_size", 0);
    int64_t     ctx   = weft_model__size(mk, "max_position_embeddings", 512);
    mk->std           = weft_model__positive(mk, "initializer_range", 0.02);
    weft_model__set_seq(mk, "max_position_embeddings", ctx);
    if (mk->b.st != WEFT_OK) return;
    mk->m->causal    = true;
    mk->m->info      = (weft_model_info){.vocab    = vocab,
                                         .layers   = u.layers + t.layers,
                                         .hidden   = u.d,
                                         .heads    = u.heads,
                                         .kv_heads = u.heads,
                                         .head_dim = u.e,
                                         .ffn      = u.ffn,
                                         .context  = ctx};
    mk->m->ids       = weft_model__ids(mk, "input_ids");
    weft_shape words = DIMS(vocab, u.d), places = DIMS(ctx, u.d);
    weft_vid   word  = weft_model__param(mk, "embeddings.word.weight", words, words,
                                         WEFT_INIT_NORMAL, mk->std);
    weft_vid   place = weft_model__param(mk, "embeddings.position.weight", places, places,
                                         WEFT_INIT_NORMAL, mk->std);
    if (mk->seq < ctx)
        place = weft_buildf(&mk->b, WEFT_OP_SLICE, "position", 1, &place,
                            "axis=0 stop=%lld", (long long)mk->seq);
    weft_vid x = weft_build(&mk->b, WEFT_OP_EMBEDDING, "word", NULL, 2, word, mk->m->ids);
    x          = weft_build(&mk->b, WEFT_OP_ADD, "embeddings", NULL, 2, x, place);
    x          = run_stack(mk, &u, x);
    x          = weft_model__apply(mk, "task.project", "task.project", x,
                                   dense("bsd,ed->bse", t.d, u.d));
    x          = run_stack(mk, &t, x);
    x = weft_model__apply(mk, "task.head", "logits", x, dense("bsd,vd->bsv", vocab, t.d));
    weft_model__loss(mk, x);
}
