/* Declaring parameters, and the modules that transformers are made of. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/suggest.h"
#include "model/model_priv.h"

const char *weft_model__name(weft_model__maker *mk, const char *fmt, ...)
{
    char    buf[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    char *s = weft_arena_strdup(mk->m->arena, buf);
    if (!s && mk->b.st == WEFT_OK) mk->b.st = weft_arena_status(mk->m->arena);
    return s ? s : "";
}

/* ---- parameters ---- */

/* A new row of param[] with room for n tensors; NULL after a failure. */
static weft_model_param *add_param(weft_model__maker *mk, const char *name,
                                   const weft_shape *s, int n)
{
    weft_model *m = mk->m;
    weft_vid    v = weft_build_param(&mk->b, name, mk->o.dtype, s->n, s->d);
    if (mk->b.st != WEFT_OK) return NULL;
    mk->b.st = weft_arena_grow(m->arena, (void **)&m->param, &m->cap_param,
                               m->n_param + 1, sizeof *m->param);
    if (mk->b.st != WEFT_OK) return NULL;
    weft_model_param *p = &m->param[m->n_param];
    *p                  = (weft_model_param){.value = v, .n_tensor = n};
    p->name             = weft_graph_value_name(m->graph, v);
    p->tensor           = WEFT_ARENA_ARRAY(m->arena, weft_model_tensor, n);
    if (!p->tensor) {
        mk->b.st = weft_arena_status(m->arena);
        return NULL;
    }
    m->n_param++;
    return p;
}

weft_vid weft_model__param(weft_model__maker *mk, const char *name, weft_shape shape,
                           weft_shape file, weft_init_kind init, double std)
{
    weft_model_param *p = add_param(mk, name, &shape, 1);
    if (!p) return -1;
    p->decay     = file.n >= 2;
    p->init      = init;
    p->init_std  = init == WEFT_INIT_NORMAL ? std : 0;
    p->tensor[0] = (weft_model_tensor){p->name, file, weft_region_whole(&shape)};
    return p->value;
}

weft_vid weft_model__stacked(weft_model__maker *mk, const char *name, const char *each,
                             weft_shape shape, double std)
{
    int               n    = (int)shape.d[0];
    weft_shape        file = weft_shape_make(shape.n - 1, shape.d + 1);
    weft_model_param *p    = add_param(mk, name, &shape, n);
    const char       *hole = strstr(each, "%d");
    if (!p || !hole) return -1;
    p->decay    = file.n >= 2;
    p->init     = WEFT_INIT_NORMAL;
    p->init_std = std;
    for (int i = 0; i < n; i++) {
        weft_region r = weft_region_whole(&shape);
        r.offset[0]   = i;
        r.extent[0]   = 1;
        p->tensor[i]  = (weft_model_tensor){
             weft_model__name(mk, "%.*s%d%s", (int)(hole - each), each, i, hole + 2), file,
             r};
    }
    return p->value;
}

void weft_model__alias(weft_model__maker *mk, weft_vid v, const char *name)
{
    for (int i = 0; i < mk->m->n_param; i++) {
        weft_model_param *p = &mk->m->param[i];
        for (size_t k = 0; p->value == v && k + 1 < WEFT_COUNT(p->alias); k++)
            if (!p->alias[k]) {
                p->alias[k] = name;
                return;
            }
    }
}

/* ---- modules ---- */
weft_vid weft_model__apply(weft_model__maker *mk, const char *name, const char *out,
                           weft_vid x, weft_model__linear l)
{
    const char *weight = weft_model__name(mk, "%s.weight", name);
    double      std    = l.std > 0 ? l.std : mk->std;
    weft_vid    w = weft_model__param(mk, weight, l.w, l.w_file, WEFT_INIT_NORMAL, std);
    bool        biased = l.bias_file.n > 0;
    weft_vid    b      = -1;
    if (biased)
        b = weft_model__param(mk, weft_model__name(mk, "%s.bias", name), l.bias,
                              l.bias_file, WEFT_INIT_ZEROS, 0);
    weft_vid in[2] = {x, w};
    weft_vid y     = weft_buildf(&mk->b, WEFT_OP_MATMUL,
                             biased ? weft_model__name(mk, "%s.mm", out) : out, 2, in,
                                 "spec=%s", l.spec);
    return biased ? weft_build(&mk->b, WEFT_OP_ADD, out, NULL, 2, y, b) : y;
}

static weft_vid vector(weft_model__maker *mk, const char *name, const char *part,
                       weft_vid x, weft_init_kind init)
{
    weft_type  t = weft_build_type(&mk->b, x);
    weft_shape s = DIMS(t.shape.n ? t.shape.d[t.shape.n - 1] : 1);
    return weft_model__param(mk, weft_model__name(mk, "%s.%s", name, part), s, s, init,
                             0);
}

weft_vid weft_model__layer_norm(weft_model__maker *mk, const char *name, const char *out,
                                weft_vid x, double eps)
{
    char     attr[48];
    weft_vid r[3], in[3] = {x, vector(mk, name, "weight", x, WEFT_INIT_ONES),
                            vector(mk, name, "bias", x, WEFT_INIT_ZEROS)};
    snprintf(attr, sizeof attr, "eps=%.17g", eps);
    weft_build_many(&mk->b, WEFT_OP_LAYER_NORM, out, attr, 3, in, 3, r);
    return r[0];
}

weft_vid weft_model__rms_norm(weft_model__maker *mk, const char *name, const char *out,
                              weft_vid x, double eps)
{
    char     attr[48];
    weft_vid r[2], in[2] = {x, vector(mk, name, "weight", x, WEFT_INIT_ONES)};
    snprintf(attr, sizeof attr, "eps=%.17g", eps);
    weft_build_many(&mk->b, WEFT_OP_RMS_NORM, out, attr, 2, in, 2, r);
    return r[0];
}

weft_vid weft_model__activation(weft_model__maker *mk, const char *key, const char *act,
                                const char *out, weft_vid x)
{
    static const struct {
        const char *word;
        weft_op     op;
        const char *attr;
    } known[] = {
        {"gelu", WEFT_OP_GELU, "approx=erf"},
        {"gelu_new", WEFT_OP_GELU, "approx=tanh"},
        {"gelu_pytorch_tanh", WEFT_OP_GELU, "approx=tanh"},
        {"gelu_fast", WEFT_OP_GELU, "approx=tanh"},
        {"silu", WEFT_OP_SILU, NULL},
        {"swish", WEFT_OP_SILU, NULL},
        {"relu", WEFT_OP_RELU, NULL},
        {"tanh", WEFT_OP_TANH, NULL},
    };
    const char *word[WEFT_COUNT(known)];
    for (size_t i = 0; i < WEFT_COUNT(known); i++) {
        if (!strcmp(act, known[i].word))
            return weft_build(&mk->b, known[i].op, out, known[i].attr, 1, x);
        word[i] = known[i].word;
    }
    const char *near = weft_suggest(act, word, (int)WEFT_COUNT(word));
    weft_model__refuse(
        mk, key, "unknown activation '%s'%s%s%s (gelu, gelu_new, silu, relu, tanh)", act,
        near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
    return -1;
}

weft_vid weft_model__dropout(weft_model__maker *mk, const char *out, double p, weft_vid x)
{
    if (!(p > 0)) return x;
    return weft_buildf(&mk->b, WEFT_OP_DROPOUT, out, 1, &x, "p=%.17g id=%d", p,
                       ++mk->n_drop);
}

weft_vid weft_model__attention(weft_model__maker *mk, const char *out, weft_vid q,
                               weft_vid k, weft_vid v, weft_vid bias, const char *attr)
{
    weft_vid r[2], in[4] = {q, k, v, bias};
    weft_build_many(&mk->b, WEFT_OP_ATTENTION, out, attr, bias >= 0 ? 4 : 3, in, 2, r);
    return r[0];
}

weft_vid weft_model__lookup(weft_model__maker *mk, const char *out, weft_vid table,
                            weft_vid ids, int64_t pad)
{
    const weft_node *n    = weft_node_get(mk->cfg, "pad_token_id");
    int64_t          rows = weft_build_type(&mk->b, table).shape.d[0];
    if (n) pad = n->kind == WEFT_NODE_INT ? (n->u.i < 0 ? n->u.i + rows : n->u.i) : -1;
    if (pad < 0 || pad >= rows) pad = -1;
    return weft_buildf(&mk->b, WEFT_OP_EMBEDDING, out, 2, (weft_vid[]){table, ids},
                       "pad=%lld", (long long)pad);
}

weft_vid weft_model__ids(weft_model__maker *mk, const char *name)
{
    return weft_build_input(&mk->b, name, WEFT_DTYPE_I32, 2,
                            (int64_t[]){mk->batch, mk->seq});
}

/* How many labels of each sequence count: those below the vocabulary's size have a row in a table
 * of ones, ignored ones have none and give zeros. */
static weft_vid count_labels(weft_model__maker *mk)
{
    weft_shape logits = weft_build_type(&mk->b, mk->m->logits).shape;
    weft_vid   ones   = weft_buildf(&mk->b, WEFT_OP_FILL, "labels.ones", 0, NULL,
                                    "shape=[%lld,1] value=1", (long long)logits.d[2]);
    weft_vid each = weft_build(&mk->b, WEFT_OP_EMBEDDING, "labels.counted", "first=0", 2,
                               ones, mk->m->labels);
    return weft_build(&mk->b, WEFT_OP_REDUCE, "labels.count", "axes=[1,2]", 1, each);
}

static weft_vid sum_more_loss(weft_model__maker *mk)
{
    weft_vid x = weft_build(&mk->b, WEFT_OP_MUL, "more_loss", NULL, 2, mk->more_loss,
                            count_labels(mk));
    return weft_build(&mk->b, WEFT_OP_REDUCE, "more_loss_sum", "axes=[0]", 1, x);
}

void weft_model__loss(weft_model__maker *mk, weft_vid logits)
{
    weft_model *m = mk->m;
    weft_type   t = weft_build_type(&mk->b, logits);
    weft_vid    r[2], in[2] = {logits, -1};
    mk->b.prefix = NULL;
    m->logits    = logits;
    if (!mk->o.with_loss) {
        if (mk->b.st == WEFT_OK) mk->b.st = weft_graph_set_output(m->graph, logits);
        return;
    }
    t.shape.n -= t.shape.n > 0;
    m->n_label = weft_shape_count(&t.shape);
    m->labels  = in[1] =
        weft_build_input(&mk->b, "labels", WEFT_DTYPE_I32, t.shape.n, t.shape.d);
    weft_build_many(&mk->b, WEFT_OP_CROSS_ENTROPY, "loss_rows", NULL, 2, in, 2, r);
    m->loss_rows = r[0];
    m->label_sum = weft_build(&mk->b, WEFT_OP_REDUCE, "loss_sum",
                              t.shape.n == 2 ? "axes=[0,1]" : "axes=[0]", 1, r[0]);
    m->loss_sum  = m->label_sum;
    if (mk->more_loss >= 0)
        m->loss_sum = weft_build(&mk->b, WEFT_OP_ADD, "loss_all", NULL, 2, m->label_sum,
                                 sum_more_loss(mk));
    if (mk->b.st == WEFT_OK) mk->b.st = weft_graph_set_output(m->graph, m->loss_sum);
}

weft_vid weft_model__stat(weft_model__maker *mk, const char *name, int64_t n,
                          weft_init_kind init)
{
    weft_model *m = mk->m;
    weft_shape  s = DIMS(n);
    weft_vid    v = weft_build_state(&mk->b, name, WEFT_DTYPE_F32, 1, &n);
    if (mk->b.st != WEFT_OK) return -1;
    mk->b.st = weft_arena_grow(m->arena, (void **)&m->stat, &m->cap_stat, m->n_stat + 1,
                               sizeof *m->stat);
    weft_model_tensor *t = WEFT_ARENA_NEW(m->arena, weft_model_tensor);
    if (mk->b.st != WEFT_OK || !t) {
        mk->b.st = WEFT_ERR_MEM;
        return -1;
    }
    *t =
        (weft_model_tensor){weft_graph_value_name(m->graph, v), s, weft_region_whole(&s)};
    m->stat[m->n_stat++] = (weft_model_stat){
        .p    = {.value = v, .name = t->name, .init = init, .n_tensor = 1, .tensor = t},
        .stat = -1,
        .momentum = 0.1,
        .unbias   = 1};
    return v;
}
