#include "program/work.h"

#include <stdio.h>
#include <string.h>

#include "base/lanes.h"

/* Letters of part [from, to) of a product's spec. */
typedef struct letters {
    const char *s;
    int         n;
} letters;

static bool has(letters l, char c)
{
    return memchr(l.s, c, (size_t)l.n) != NULL;
}

/* Taken apart by its punctuation; false: it is no spec. */
static bool parts_of(const char *spec, letters *a, letters *b, letters *y)
{
    const char *comma = strchr(spec, ','), *arrow = strstr(spec, "->");
    if (!comma || !arrow || arrow < comma) return false;
    *a = (letters){spec, (int)(comma - spec)};
    *b = (letters){comma + 1, (int)(arrow - comma - 1)};
    *y = (letters){arrow + 2, (int)strlen(arrow + 2)};
    return a->n > 0 && b->n > 0;
}

bool weft_instr_is_fp8(const weft_instr *i)
{
    if (i->kind != WEFT_INSTR_COMPUTE || i->op != WEFT_OP_MATMUL) return false;
    const char *s = i->attr[weft_op_attr_index(i->op, "fp8")].s;
    return s && *s;
}

/* An operand whose rows are contiguous is read once for both the row's scale and its codes, which
 * stay in registers meanwhile, and so is one whose largest magnitudes are known; another one
 * twice. */
double weft_instr_fp8_bytes(const weft_instr *i)
{
    letters a, b, y, *in[2] = {&a, &b};
    double  bytes = 0;
    if (!weft_instr_is_fp8(i) ||
        !parts_of(i->attr[weft_op_attr_index(i->op, "spec")].s, &a, &b, &y))
        return 0;
    for (int k = 0; k < 2; k++) {
        const weft_type *t     = &i->in[k].type;
        bool             known = 2 + k < i->n_own_in && i->in[2 + k].buffer >= 0;
        int              reads = has(y, in[k]->s[in[k]->n - 1]) && !known ? 2 : 1;
        bytes += (double)weft_shape_count(&t->shape) *
                 (reads * weft_dtype_bytes(t->dtype) + 2); /* codes written and read */
    }
    return bytes;
}

/* m: rows of the result with those of its batch, n its columns, k what is summed over. */
static bool product(const weft_instr *i, weft_workload *w, const char **turned)
{
    static const char *const how[] = {"nn", "nt", "tn", "tt"};
    letters                  a, b, y;
    int                      at = weft_op_attr_index(i->op, "spec");
    if (at < 0 || i->n_in < 2 || !parts_of(i->attr[at].s, &a, &b, &y)) return false;
    if (a.n != i->in[0].type.shape.n || b.n != i->in[1].type.shape.n) return false;
    w->n       = 3;
    w->size[0] = w->size[1] = w->size[2] = 1;
    for (int d = 0; d < a.n; d++)
        w->size[has(y, a.s[d]) ? 0 : 2] *= (double)i->in[0].type.shape.d[d];
    for (int d = 0; d < b.n; d++)
        if (!has(a, b.s[d])) w->size[1] *= (double)i->in[1].type.shape.d[d];
    *turned = how[2 * has(y, a.s[a.n - 1]) + !has(y, b.s[b.n - 1])];
    return true;
}

static void add_steps(const weft_instr *i, weft_workload *w)
{
    for (int k = 0; k < i->n_post; k++) {
        size_t n = strlen(w->kind);
        snprintf(w->kind + n, sizeof w->kind - n, "+%s",
                 weft_op_get(i->post[k].op)->name);
    }
}

static void by_bytes(const weft_instr *i, weft_workload *w)
{
    w->n       = 1;
    w->size[0] = weft_instr_bytes(i);
}

static bool is_attention(const weft_instr *i)
{
    return i->op == WEFT_OP_ATTENTION || i->op == WEFT_OP_ATTENTION_GRAD;
}

/* Kernels go by the number of keys that a row sees and by the width of vectors; bytes say less,
 * since heads may share keys.  The gradient of keys that heads share is a sum over these. */
static void by_keys(const weft_instr *i, weft_workload *w)
{
    int               at = i->op == WEFT_OP_ATTENTION ? 0 : 1;
    const weft_shape *q = &i->in[at].type.shape, *k = &i->in[at + 1].type.shape;
    bool              shared = at && k->d[2] < q->d[2];
    snprintf(w->kind, sizeof w->kind, "%s by keys%s", weft_op_get(i->op)->name,
             shared ? "+shared" : "");
    w->n       = 3;
    w->size[0] = weft_instr_flops(i);
    w->size[1] = (double)k->d[1];
    w->size[2] = (double)q->d[q->n - 1];
}

bool weft_instr_launches(const weft_instr *i)
{
    if (i->kind == WEFT_INSTR_COPY || i->kind == WEFT_INSTR_MERGE) return true;
    if (i->kind != WEFT_INSTR_COMPUTE) return false;
    return i->op != WEFT_OP_SUMSQ && i->op != WEFT_OP_CAST &&
           !(weft_op_get(i->op)->flags & WEFT_OP_UPDATE);
}

static double last_extent(const weft_shape *x)
{
    return x->n ? (double)x->d[x->n - 1] : 0;
}

/* What a row kernel's speed goes by besides bytes: the width of its rows; of a sum, how many it
 * makes. */
static double row_width(const weft_instr *i)
{
    switch (i->op) {
    case WEFT_OP_LAYER_NORM:
    case WEFT_OP_LAYER_NORM_GRAD:
    case WEFT_OP_RMS_NORM:
    case WEFT_OP_RMS_NORM_GRAD:
    case WEFT_OP_CROSS_ENTROPY: return last_extent(&i->in[0].type.shape);
    case WEFT_OP_REDUCE: return (double)weft_shape_count(&i->out[0].type.shape);
    default: return 0;
    }
}

void weft_instr_work(const weft_instr *i, weft_workload *w)
{
    const char *turned = "";
    *w                 = (weft_workload){.n = 0};
    switch (i->kind) {
    case WEFT_INSTR_COPY:
    case WEFT_INSTR_MERGE:
    case WEFT_INSTR_READ:
        snprintf(w->kind, sizeof w->kind, "%s", weft_instr_kind_name(i->kind));
        by_bytes(i, w);
        return;
    case WEFT_INSTR_COMPUTE: break;
    default: return;
    }
    const char *name = weft_op_get(i->op)->name;
    if (i->op == WEFT_OP_MATMUL && product(i, w, &turned)) {
        snprintf(w->kind, sizeof w->kind, "%s %s%s", name, turned,
                 weft_instr_is_fp8(i) ? " fp8" : "");
    } else if (is_attention(i)) {
        by_keys(i, w);
    } else {
        snprintf(w->kind, sizeof w->kind, "%s", name);
        by_bytes(i, w);
        if (i->op == WEFT_OP_GROUPED_MATMUL || i->op == WEFT_OP_GROUPED_MATMUL_WGRAD) {
            w->size[w->n++] = w->size[0];
            w->size[0]      = weft_instr_flops(i);
        }
        if (row_width(i) > 0) w->size[w->n++] = row_width(i);
    }
    add_steps(i, w);
}

/* Of shares of different sizes the mean: who gathers gets all of them. */
static double gathered(const weft_instr *i, const weft_group *g)
{
    double bytes = 0;
    for (int t = 0; t < i->n_in; t++) {
        const weft_type *x = weft_instr_unit(i, t) ? &i->out[t].type : &i->in[t].type;
        double           n = weft_instr_unit(i, t) ? g->n_rank : 1;
        bytes += (double)(weft_shape_count(&x->shape) * weft_dtype_bytes(x->dtype)) / n;
    }
    return bytes;
}

double weft_instr_given(const weft_instr *i, const weft_group *g)
{
    double bytes = i->coll == WEFT_ALL_GATHER ? gathered(i, g) : weft_instr_bytes(i);
    if (!i->lanes) return bytes;
    int most = weft_lanes_most_terms(&(weft_lanes){i->lanes, g->n_rank, g->share});
    return bytes * (i->coll == WEFT_ALL_REDUCE ? (most + 1) / 2.0 : most);
}
