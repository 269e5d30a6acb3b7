/* ResNet (Hugging Face's names and keys) and a plain stack of dense layers.
 * Training takes statistics of the micro-batch; without a loss the running ones are used. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model_priv.h"

static weft_vid batch_norm(weft_model__maker *mk, const char *at, const char *out,
                           weft_vid x)
{
    weft_type t  = weft_build_type(&mk->b, x);
    int64_t   c  = t.shape.n == 4 ? t.shape.d[1] : 1,
            n    = weft_shape_count(&t.shape) / (c ? c : 1);
    weft_shape s = DIMS(c);
    weft_vid   r[3], in[5] = {x, -1, -1, -1, -1};
    in[1] = weft_model__param(mk, weft_model__name(mk, "%s.weight", at), s, s,
                              WEFT_INIT_ONES, 0);
    in[2] = weft_model__param(mk, weft_model__name(mk, "%s.bias", at), s, s,
                              WEFT_INIT_ZEROS, 0);
    in[3] = weft_model__stat(mk, weft_model__name(mk, "%s.running_mean", at), c,
                             WEFT_INIT_ZEROS);
    in[4] = weft_model__stat(mk, weft_model__name(mk, "%s.running_var", at), c,
                             WEFT_INIT_ONES);
    if (!mk->o.with_loss) {
        weft_build_many(&mk->b, WEFT_OP_BATCH_NORM_INFER, out, NULL, 5, in, 1, r);
        return r[0];
    }
    weft_build_many(&mk->b, WEFT_OP_BATCH_NORM, out, NULL, 3, in, 3, r);
    if (mk->b.st != WEFT_OK) return -1;
    weft_model_stat *mean = &mk->m->stat[mk->m->n_stat - 2], *var = mean + 1;
    mean->stat = r[1];
    var->stat  = r[2];
    if (n > 1) var->unbias = (double)n / (double)(n - 1);
    return r[0];
}

/* ---- ResNet ---- */
typedef struct conv {
    int64_t out, kernel, stride;
} conv;

/* convolution + batch norm (+ activation) */
static weft_vid conv_layer(weft_model__maker *mk, const char *at, const char *out,
                           weft_vid x, conv c, const char *act)
{
    weft_type  t = weft_build_type(&mk->b, x);
    weft_shape s = DIMS(c.out, t.shape.n == 4 ? t.shape.d[1] : 1, c.kernel, c.kernel);
    double     fan_out = (double)(c.out * c.kernel * c.kernel);
    weft_vid w = weft_model__param(mk, weft_model__name(mk, "%s.convolution.weight", at),
                                   s, s, WEFT_INIT_NORMAL, sqrt(2 / fan_out));
    weft_vid in[2] = {x, w};
    x = weft_buildf(&mk->b, WEFT_OP_CONV2D, weft_model__name(mk, "%s.convolution", out),
                    2, in, "stride=[%lld,%lld] pad=[%lld,%lld]", (long long)c.stride,
                    (long long)c.stride, (long long)c.kernel / 2,
                    (long long)c.kernel / 2);
    x = batch_norm(mk, weft_model__name(mk, "%s.normalization", at),
                   weft_model__name(mk, "%s.normalization", out), x);
    if (!act) return x;
    return weft_model__activation(mk, "hidden_act", act, out, x);
}

static weft_vid block(weft_model__maker *mk, const char *at, weft_vid x, int64_t out,
                      int64_t stride, bool bottleneck, const char *act)
{
    int64_t  in      = weft_build_type(&mk->b, x).shape.d[1];
    weft_vid skip    = x;
    conv     wide[3] = {{out / 4, 1, 1}, {out / 4, 3, stride}, {out, 1, 1}};
    conv     thin[2] = {{out, 3, stride}, {out, 3, 1}};
    int      n       = bottleneck ? 3 : 2;
    if (in != out || stride != 1)
        skip = conv_layer(mk, weft_model__name(mk, "%s.shortcut", at), "shortcut", x,
                          (conv){out, 1, stride}, NULL);
    for (int i = 0; i < n; i++)
        x = conv_layer(mk, weft_model__name(mk, "%s.layer.%d", at, i),
                       weft_model__name(mk, "layer.%d", i), x,
                       bottleneck ? wide[i] : thin[i], i + 1 < n ? act : NULL);
    x = weft_build(&mk->b, WEFT_OP_ADD, "sum", NULL, 2, x, skip);
    return weft_model__activation(mk, "hidden_act", act, "out", x);
}

/* The i-th number of a list of sizes. */
static int64_t list_size(weft_model__maker *mk, const char *key, int i, int64_t def)
{
    const weft_node *n = weft_model__node(mk, key);
    if (mk->b.st != WEFT_OK) return 1;
    if (!n) return def;
    if (n->kind != WEFT_NODE_LIST || i >= n->u.list.n ||
        n->u.list.node[i]->kind != WEFT_NODE_INT || n->u.list.node[i]->u.i < 1 ||
        n->u.list.node[i]->u.i > INT32_MAX) {
        weft_model__refuse(mk, key, "expected a list of sizes, at least %d of them",
                           i + 1);
        return 1;
    }
    return n->u.list.node[i]->u.i;
}

static int list_length(weft_model__maker *mk, const char *key, int def)
{
    const weft_node *n = weft_model__node(mk, key);
    if (!n) return def;
    if (n->kind == WEFT_NODE_LIST && n->u.list.n > 0 && n->u.list.n <= 10000)
        return n->u.list.n;
    weft_model__refuse(mk, key, "expected a list of 1 to 10000 sizes");
    return 1;
}

/* How many classes: num_labels, or as many as id2label names. */
static int64_t n_class(weft_model__maker *mk, int64_t def)
{
    const weft_node *names = weft_model__node(mk, "id2label");
    if (names && names->kind == WEFT_NODE_MAP && names->u.list.n > 0)
        def = names->u.list.n;
    return weft_model__size(mk, "num_labels", def);
}

static weft_vid classify(weft_model__maker *mk, const char *name, weft_vid x,
                         int64_t classes)
{
    weft_type          t  = weft_build_type(&mk->b, x);
    int64_t            in = t.shape.n == 2 ? t.shape.d[1] : 1;
    weft_model__linear l  = {.spec      = "bd,nd->bn",
                             .w         = DIMS(classes, in),
                             .w_file    = DIMS(classes, in),
                             .bias      = DIMS(classes),
                             .bias_file = DIMS(classes),
                             .std       = 1 / sqrt(3 * (double)in)};
    mk->b.prefix          = NULL;
    return weft_model__apply(mk, name, "logits", x, l);
}

static weft_vid stages(weft_model__maker *mk, const char *act, weft_vid x)
{
    static const int64_t depth[] = {3, 4, 6, 3}, width[] = {256, 512, 1024, 2048};
    const char          *kind  = weft_model__word(mk, "layer_type", "bottleneck");
    bool                 first = weft_model__flag(mk, "downsample_in_first_stage", false);
    int                  n     = list_length(mk, "hidden_sizes", 4);
    if (weft_model__flag(mk, "downsample_in_bottleneck", false))
        weft_model__refuse(mk, "downsample_in_bottleneck",
                           "is not supported; set it to false");
    if (strcmp(kind, "bottleneck") && strcmp(kind, "basic"))
        weft_model__refuse(mk, "layer_type", "'%s' is neither bottleneck nor basic",
                           kind);
    for (int s = 0; s < n; s++) {
        int64_t out = list_size(mk, "hidden_sizes", s, width[s % 4]);
        int64_t k   = list_size(mk, "depths", s, depth[s % 4]);
        if (k > 10000)
            weft_model__refuse(mk, "depths", "%lld layers are too many", (long long)k);
        for (int i = 0; i < k && mk->b.st == WEFT_OK; i++) {
            mk->b.prefix = weft_model__name(mk, "stages.%d.layers.%d", s, i);
            x = block(mk, weft_model__name(mk, "resnet.encoder.%s", mk->b.prefix), x, out,
                      i == 0 && (s > 0 || first) ? 2 : 1, !strcmp(kind, "bottleneck"),
                      act);
        }
        mk->m->info.layers += k;
        mk->m->info.hidden = out;
    }
    return x;
}

void weft_model__make_resnet(weft_model__maker *mk)
{
    int64_t     colours = weft_model__size(mk, "num_channels", 3);
    int64_t     side    = weft_model__size(mk, "image_size", 224);
    int64_t     stem    = weft_model__size(mk, "embedding_size", 64);
    const char *act     = weft_model__word(mk, "hidden_act", "relu");
    weft_vid    r[2];
    if (mk->b.st != WEFT_OK) return;
    weft_vid x    = weft_build_input(&mk->b, "images", mk->o.dtype, 4,
                                     (int64_t[]){mk->batch, colours, side, side});
    mk->m->ids    = x;
    mk->m->prefix = "resnet.";
    mk->b.prefix  = "embedder";
    x = conv_layer(mk, "resnet.embedder.embedder", "stem", x, (conv){stem, 7, 2}, act);
    weft_build_many(&mk->b, WEFT_OP_MAX_POOL, "pool",
                    "kernel=[3,3] stride=[2,2] pad=[1,1]", 1, &x, 2, r);
    x            = stages(mk, act, r[0]);
    mk->b.prefix = NULL;
    x = weft_build(&mk->b, WEFT_OP_REDUCE, "pooler", "axes=[2,3] kind=mean", 1, x);
    weft_model__loss(mk, classify(mk, "classifier.1", x, n_class(mk, 1000)));
}

/* ---- dense layers ---- */
void weft_model__make_mlp(weft_model__maker *mk)
{
    int64_t     in  = weft_model__size(mk, "input_size", 784);
    const char *act = weft_model__word(mk, "hidden_act", "relu");
    int         n   = list_length(mk, "hidden_sizes", 1);
    if (mk->b.st != WEFT_OK) return;
    weft_vid x =
        weft_build_input(&mk->b, "x", mk->o.dtype, 2, (int64_t[]){mk->batch, in});
    mk->m->ids = x;
    for (int i = 0; i < n && mk->b.st == WEFT_OK; i++) {
        int64_t            out = list_size(mk, "hidden_sizes", i, 1024);
        weft_model__linear l   = {.spec      = "bd,nd->bn",
                                  .w         = DIMS(out, in),
                                  .w_file    = DIMS(out, in),
                                  .bias      = DIMS(out),
                                  .bias_file = DIMS(out),
                                  .std       = sqrt(2 / (double)in)};
        const char        *at  = weft_model__name(mk, "layers.%d", i);
        x                      = weft_model__apply(mk, at, at, x, l);
        x                      = weft_model__activation(mk, "hidden_act", act,
                                                        weft_model__name(mk, "%s.act", at), x);
        in                     = out;
    }
    mk->m->info = (weft_model_info){.layers = n, .hidden = in};
    weft_model__loss(mk, classify(mk, "classifier", x, n_class(mk, 10)));
}
