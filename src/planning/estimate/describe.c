/* Layers as operator instances; see describe.h.
 * T tokens of a micro-batch on one device, tensor-parallel degree t, h hidden.  Bytes are of
 * 16-bit values. */
#include "estimate/describe.h"

#include <math.h>
#include <string.h>

typedef struct maker {
    const weft_config       *c;
    const weft_cost_variant *v;
    const weft_cost_engine  *e;
    weft_description        *out;
    const char              *dtype, *half;
    double                   width;  /* bytes of an operand of products */
    double                   keep;   /* the same, kept for its gradient */
    double                   tokens; /* T */
    double                   spread; /* T split along the sequence where sp says so */
    bool                     core, routing, light;
} maker;

/* Is the module run again under light recomputation?  Where nobody says which are: those that are
 * cheap. */
static bool again(const maker *m, weft_again module)
{
    int of = m->c->recompute_modules;
    return ((unsigned)(of > 0 ? of : WEFT_AGAIN_CHEAP) & module) != 0;
}

static weft_cost_item *push(maker *m, weft_cost_phase phase)
{
    weft_cost_layer *l = &m->out->layer;
    if (l->n_item == WEFT_DESCRIBE_MAX) return &m->out->item[WEFT_DESCRIBE_MAX - 1];
    weft_cost_item *i = &m->out->item[l->n_item++];
    *i                = (weft_cost_item){.phase    = phase,
                                         .core     = m->core,
                                         .light    = m->light,
                                         .routing  = m->routing,
                                         .n_launch = 1};
    return i;
}

static void stream(maker *m, double fwd, double bwd, double launches)
{
    weft_cost_item *i = push(m, WEFT_COST_FORWARD);
    i->op             = weft_cost_stream(fwd);
    i->n_launch       = launches;
    i                 = push(m, WEFT_COST_BACKWARD);
    i->op             = weft_cost_stream(bwd);
    i->n_launch       = 2 * launches;
}

static void keep(maker *m, double bytes)
{
    /* booked on the last forward item, so that what is run again is not kept */
    for (int i = m->out->layer.n_item - 1; i >= 0; i--)
        if (m->out->item[i].phase == WEFT_COST_FORWARD) {
            m->out->item[i].keep_bytes += bytes;
            return;
        }
}

/* A product and its two gradients; weights: not for products of activations. */
static void product_as(maker *m, const char *dtype, double width, double rows, double n,
                       double k, double count)
{
    push(m, WEFT_COST_FORWARD)->op  = weft_cost_product(dtype, width, rows, n, k, count);
    push(m, WEFT_COST_BACKWARD)->op = weft_cost_product(dtype, width, rows, k, n, count);
    push(m, WEFT_COST_BACKWARD)->op = weft_cost_product(dtype, width, k, n, rows, count);
}

/* Rows of the three products just made begin at multiples of as much of n as is a power of two. */
static void align(maker *m, double n)
{
    int unit = 1;
    while (unit < 8 && fmod(n, 2 * unit) == 0) unit *= 2;
    for (int i = 1; i <= 3; i++) m->out->item[m->out->layer.n_item - i].op.unit = unit;
}

/* Gradients of n parameters are added to those of earlier micro-batches: one is read, a sum read
 * and written. */
static void accumulate(maker *m, double n)
{
    double          sum = m->e->grad_bytes > 0               ? m->e->grad_bytes
                          : !strcmp(m->c->precision, "fp16") ? 2
                                                             : 4;
    weft_cost_item *i   = push(m, WEFT_COST_BACKWARD);
    i->op       = weft_cost_stream((2 + 2 * sum) * n * m->e->accumulate / m->e->stream);
    i->n_launch = 0;
}

static void product(maker *m, double rows, double n, double k, double count)
{
    product_as(m, m->dtype, m->width, rows, n, k, count);
    if (m->e->accumulate > 0) accumulate(m, n * k * count);
    if (m->width < 2) { /* casts: read 2, write both layouts */
        double w                        = m->e->cast / m->e->stream;
        push(m, WEFT_COST_FORWARD)->op  = weft_cost_stream(4 * w * rows * k * count);
        push(m, WEFT_COST_BACKWARD)->op = weft_cost_stream(4 * w * rows * n * count);
    }
}

static void exchange(maker *m, weft_cost_phase phase, weft_collective k,
                     weft_cost_axis traffic, weft_cost_group g, double bytes)
{
    weft_cost_item *i = push(m, phase);
    i->is_collective  = true;
    i->coll           = k;
    i->traffic        = traffic;
    i->group          = g;
    i->bytes          = bytes;
}

/* Tokens to their experts, or back. */
static void dispatch(maker *m, weft_cost_phase phase, double bytes)
{
    weft_cost_group g = {m->v->ep, 1};
    exchange(m, phase, WEFT_ALL_TO_ALL, WEFT_COST_EP, g, bytes);
    m->out->item[m->out->layer.n_item - 1].copies = m->c->experts_topk;
}

/* Around a tensor-parallel block: whole activations in, sums out. */
static void tensor_parallel(maker *m)
{
    double          bytes = 2 * m->tokens * m->c->hidden;
    weft_cost_group g     = {m->v->tp, 1};
    if (m->v->tp < 2) return;
    if (!m->v->sp) {
        exchange(m, WEFT_COST_FORWARD, WEFT_ALL_REDUCE, WEFT_COST_TP, g, bytes);
        exchange(m, WEFT_COST_BACKWARD, WEFT_ALL_REDUCE, WEFT_COST_TP, g, bytes);
        return;
    }
    double part = bytes / g.n;
    exchange(m, WEFT_COST_FORWARD, WEFT_ALL_GATHER, WEFT_COST_TP, g, part);
    exchange(m, WEFT_COST_FORWARD, WEFT_REDUCE_SCATTER, WEFT_COST_TP, g, bytes);
    exchange(m, WEFT_COST_BACKWARD, WEFT_ALL_GATHER, WEFT_COST_TP, g, part);
    exchange(m, WEFT_COST_BACKWARD, WEFT_REDUCE_SCATTER, WEFT_COST_TP, g, bytes);
    exchange(m, WEFT_COST_BACKWARD, WEFT_ALL_GATHER, WEFT_COST_TP, g,
             part); /* for weights */
}

/* out: bytes of its result, kept for a product's gradient.  Its input is for who follows to keep.
 */
static void norm(maker *m, double out)
{
    double h   = m->c->hidden;
    bool   was = m->light;
    m->light   = was || (out > 0 && again(m, WEFT_AGAIN_NORM));
    stream(m, 4 * h * m->spread, 8 * h * m->spread, 1);
    keep(m, out);
    m->light = was;
}

static double norm_input(const maker *m)
{
    return m->e->mem_norm * m->c->hidden * m->spread;
}

/* Bias, dropout and the residual. */
static void residual(maker *m)
{
    double h = m->c->hidden;
    stream(m, 7 * h * m->spread, 14 * h * m->spread, 1);
    if (!m->c->flash_attention) keep(m, h * m->spread); /* the mask */
}

/* Scores are computed below the diagonal.  Windows (attn "swa") save nothing: steps of models
 * that have them are no shorter for it. */
#define CAUSAL 0.5

static void fused_attention(maker *m, double heads, double qk, double v)
{
    const weft_config *c    = m->c;
    double             rows = (double)c->seq / m->v->cp, mb = m->v->micro_batch;
    double             flops = 2 * mb * heads * rows * c->seq * (qk + v) * CAUSAL;
    /* short sequences and narrow heads leave the units waiting: h200-curves in bench/results */
    double slow                     = (1 + 60 / v) / (1 + 60 / 128.0);
    double one                      = flops * slow * (1 + 450 / rows);
    double two                      = flops * slow * (1 + 750 / rows) * 2.5 / 0.85;
    double bytes                    = 2 * m->tokens * heads * 2 * (qk + v);
    push(m, WEFT_COST_FORWARD)->op  = weft_cost_attention(m->half, one, bytes);
    push(m, WEFT_COST_BACKWARD)->op = weft_cost_attention(m->half, two, 2 * bytes);
}

/* Scores in memory.  Scale, mask and softmax are one kernel, 4 bytes a score, dropout with its
 * mask 5; backward 6 and 5. That kernel takes 4 heads at a time (Megatron's fused softmax); where
 * they do not divide, each step is one of its own, in 32 bits. */
static void plain_attention(maker *m, double heads, double qk, double v)
{
    const weft_config *c  = m->c;
    double             mb = m->v->micro_batch, rows = (double)c->seq / m->v->cp;
    double             scores = mb * heads * rows * c->seq;
    bool               fused  = fmod(mb * heads, 4) == 0;
    bool               was    = m->light;
    m->core                   = m->c->recompute_modules <= 0;
    m->light                  = again(m, WEFT_AGAIN_CORE);
    product_as(m, m->half, 2, rows, c->seq, qk, mb * heads);
    stream(m, (fused ? 9 : 41) * scores, (fused ? 11 : 45) * scores, fused ? 3 : 8);
    keep(m, 5 * scores);
    product_as(m, m->half, 2, rows, v, c->seq, mb * heads);
    m->core  = false;
    m->light = was;
}

static void context_parallel(maker *m, double kv_bytes)
{
    weft_cost_group g = {m->v->cp, m->v->tp};
    if (g.n < 2) return;
    exchange(m, WEFT_COST_FORWARD, WEFT_ALL_GATHER, WEFT_COST_CP, g, kv_bytes);
    exchange(m, WEFT_COST_BACKWARD, WEFT_ALL_GATHER, WEFT_COST_CP, g, kv_bytes);
    exchange(m, WEFT_COST_BACKWARD, WEFT_REDUCE_SCATTER, WEFT_COST_CP, g, kv_bytes * g.n);
}

static void attention(maker *m)
{
    const weft_config *c = m->c;
    double             h = c->hidden, t = m->v->tp, T = m->tokens, d = c->head_dim;
    double             heads = c->heads / t, kv = fmax(c->kv_heads / t, 1), qk = d, param;
    norm(m, m->keep * h * m->spread);
    if (!strcmp(c->attn, "mla")) { /* latent: ranks 1536 and 512, 64 rotary dimensions */
        qk            = d + 64;
        double latent = 2 * T * (1536 + 512 + 64), up = 2 * T * heads * (qk + 2 * d);
        product(m, T, 1536 + 512 + 64, h, 1);
        keep(m, norm_input(m) + fmin(latent, up));
        m->light = again(m, WEFT_AGAIN_UP);
        product(m, T, heads * qk, 1536, 1);
        product(m, T, heads * 2 * d, 512, 1);
        stream(m, 8 * T * heads * (qk + d), 16 * T * heads * (qk + d), 6);
        keep(m, up - fmin(latent, up)); /* of both, the latent ones are enough */
        m->light = false;
        kv       = heads;
        param    = h * (1536 + 512 + 64) + heads * qk * 1536 + heads * 2 * d * 512;
    } else {
        product(m, T, (heads + 2 * kv) * d, h, 1);
        stream(m, 4 * T * (heads + 2 * kv) * d, 8 * T * (heads + 2 * kv) * d, 3);
        keep(m, norm_input(m) + 2 * T * (heads * qk + 2 * kv * d));
        param = h * (heads + 2 * kv) * d;
    }
    context_parallel(m, 2 * T * kv * (qk + d));
    (c->flash_attention ? fused_attention : plain_attention)(m, heads, qk, d);
    product(m, T, h, heads * d, 1);
    keep(m, m->keep * T * heads * d);
    tensor_parallel(m);
    residual(m);
    m->out->layer.n_param += param + heads * d * h + 4 * h;
}

/* input: bytes kept of what it begins with. */
static void feed_forward(maker *m, double ffn, double input, weft_again module)
{
    bool               was = m->light;
    const weft_config *c   = m->c;
    double h = c->hidden, f = ffn / m->v->tp, T = m->tokens, g = c->gated_mlp ? 2 : 1;
    keep(m, input);
    m->light = again(m, module);
    product(m, T, g * f, h, 1);
    stream(m, (2 * g + 2) * T * f, 2 * (2 * g + 2) * T * f, 1);
    keep(m, (2 * g + m->keep) * T * f);
    product(m, T, h, f, 1);
    tensor_parallel(m);
    m->light = was;
    m->out->layer.n_param += (g + 1) * h * f;
}

static void experts(maker *m)
{
    const weft_config *c = m->c;
    double             h = c->hidden, g = c->gated_mlp ? 2 : 1, f = c->moe_ffn_hidden;
    double             ep = m->v->ep, n = c->experts, mine = fmax(n / ep, 1);
    /* dealt out evenly */
    double T    = m->tokens / (m->v->tp > 1 ? m->v->tp : 1) * c->experts_topk;
    double each = T * fmin(ep, n) / n;
    double room = T * (1 + m->e->expert_room * (ep - 1));
    bool   all  = again(m, WEFT_AGAIN_MOE);
    m->routing  = true;
    m->light    = all;
    product_as(m, m->half, 2, m->tokens, n, h, 1);
    stream(m, 4 * h * T + 12 * n * m->tokens, 8 * h * T + 24 * n * m->tokens, 12);
    dispatch(m, WEFT_COST_FORWARD, 2 * h * T);
    dispatch(m, WEFT_COST_BACKWARD, 2 * h * T);
    product(m, each, g * f, h, mine);
    keep(m, m->keep * h * room + 2 * g * room * f);
    m->light = all || again(m, WEFT_AGAIN_ACT);
    stream(m, (2 * g + 2) * room * f, 2 * (2 * g + 2) * room * f, 2);
    keep(m, m->keep * room * f);
    m->light = all;
    product(m, each, h, f, mine);
    dispatch(m, WEFT_COST_FORWARD, 2 * h * T);
    dispatch(m, WEFT_COST_BACKWARD, 2 * h * T);
    stream(m, 4 * h * T, 8 * h * T, 6);
    keep(m, 2 * h * T);
    m->routing = m->light = false;
    m->out->layer.n_expert_param += mine * (g + 1) * h * f;
    m->out->layer.n_param += n * h;
    if (c->experts_shared > 0)
        feed_forward(m, f * c->experts_shared, m->keep * h * m->spread,
                     WEFT_AGAIN_SHARED);
}

static double vocabulary(const maker *m)
{
    double unit = m->e->vocab_pad * m->v->tp;
    return unit > 1 ? ceil(m->c->vocab / unit) * unit : m->c->vocab;
}

static void input_side(maker *m)
{
    double h = m->c->hidden, T = m->tokens;
    stream(m, 4 * h * T, 8 * h * T, 3);
    if (m->v->tp > 1) {
        weft_cost_group g = {m->v->tp, 1};
        exchange(m, WEFT_COST_FORWARD, m->v->sp ? WEFT_REDUCE_SCATTER : WEFT_ALL_REDUCE,
                 WEFT_COST_TP, g, 2 * h * T);
    }
    m->out->layer.n_param = vocabulary(m) / m->v->tp * h;
}

static void head(maker *m)
{
    double h = m->c->hidden, T = m->tokens, v = vocabulary(m) / m->v->tp;
    double loss = m->e->loss / m->e->stream;
    norm(m, 0);
    keep(m, norm_input(m));
    product_as(m, m->half, 2, T, v, h, 1);
    if (strcmp(m->half, "f32")) align(m, v);
    if (m->e->accumulate > 0) accumulate(m, v * h);
    stream(m, 8 * T * v * loss, 12 * T * v * loss, 6);
    keep(m, m->e->mem_logit * T * v);
    if (m->v->tp > 1) {
        weft_cost_group g = {m->v->tp, 1};
        if (m->v->sp)
            exchange(m, WEFT_COST_FORWARD, WEFT_ALL_GATHER, WEFT_COST_TP, g,
                     2 * h * T / g.n);
        exchange(m, WEFT_COST_BACKWARD, m->v->sp ? WEFT_REDUCE_SCATTER : WEFT_ALL_REDUCE,
                 WEFT_COST_TP, g, 2 * h * T);
    }
    m->out->layer.n_param = v * h + h;
}

void weft_describe(const weft_config *c, const weft_cost_variant *v,
                   const weft_cost_engine *e, weft_layer_class k, const char *dtype,
                   const char *half, weft_description *out)
{
    maker m    = {.c = c, .v = v, .e = e, .out = out, .dtype = dtype, .half = half};
    m.width    = !strncmp(dtype, "f8", 2)   ? 1
                 : !strncmp(dtype, "f4", 2) ? 0.5
                 : !strcmp(dtype, "f32")    ? 4
                                            : 2;
    m.keep     = m.width < 1 ? 1 : m.width > 2 ? 2 : m.width;
    m.tokens   = (double)v->micro_batch * c->seq / v->cp;
    m.spread   = v->sp ? m.tokens / v->tp : m.tokens;
    out->layer = (weft_cost_layer){.item = out->item};
    switch (k) {
    case WEFT_LAYER_INPUT: input_side(&m); break;
    case WEFT_LAYER_HEAD: head(&m); break;
    case WEFT_LAYER_DENSE:
    case WEFT_LAYER_EXPERTS:
        attention(&m);
        keep(&m, norm_input(&m));
        norm(&m, k == WEFT_LAYER_DENSE ? m.keep * c->hidden * m.spread : 0);
        if (k == WEFT_LAYER_DENSE)
            feed_forward(&m, c->ffn_hidden, 0, WEFT_AGAIN_MLP);
        else
            experts(&m);
        residual(&m);
        if (v->sp && v->tp > 1) out->layer.gathered = m.tokens * c->hidden;
        out->layer.in_bytes  = 2 * m.spread * c->hidden;
        out->layer.out_bytes = 2 * m.tokens * c->hidden / v->tp;
        break;
    case WEFT_LAYER_N: break;
    }
}
