/* Element by element: add, mul, scale, activations and their gradients, accumulate, ema, dropout;
 * steps after products. */
#include <string.h>

#include "cuda_priv.h"
#include "kernel/mask.h"

enum {
    THREADS = 256
};

/* The map of an element-wise operator; -1: it is none. */
static int map_of(weft_op op, const weft_attr *attr)
{
    static const struct {
        weft_op op;
        int     kind;
    } map[] = {{WEFT_OP_ADD, WEFT_CUDA_MAP_ADD},
               {WEFT_OP_MUL, WEFT_CUDA_MAP_MUL},
               {WEFT_OP_SCALE, WEFT_CUDA_MAP_SCALE},
               {WEFT_OP_ACCUMULATE, WEFT_CUDA_MAP_SCALE},
               {WEFT_OP_GELU, WEFT_CUDA_MAP_GELU_TANH},
               {WEFT_OP_GELU_GRAD, WEFT_CUDA_MAP_GELU_TANH_GRAD},
               {WEFT_OP_SILU, WEFT_CUDA_MAP_SILU},
               {WEFT_OP_SILU_GRAD, WEFT_CUDA_MAP_SILU_GRAD},
               {WEFT_OP_RELU, WEFT_CUDA_MAP_RELU},
               {WEFT_OP_RELU_GRAD, WEFT_CUDA_MAP_RELU_GRAD},
               {WEFT_OP_TANH, WEFT_CUDA_MAP_TANH},
               {WEFT_OP_TANH_GRAD, WEFT_CUDA_MAP_TANH_GRAD}};
    for (size_t i = 0; i < WEFT_COUNT(map); i++) {
        if (map[i].op != op) continue;
        if (op != WEFT_OP_GELU && op != WEFT_OP_GELU_GRAD) return map[i].kind;
        bool erf = strcmp(attr[weft_op_attr_index(op, "approx")].s, "erf") == 0;
        return map[i].kind + erf;
    }
    return -1;
}

/* The factor of a scale; 1 for others. */
static float factor_of(weft_op op, const weft_attr *attr)
{
    return op == WEFT_OP_SCALE ? (float)attr[weft_op_attr_index(op, "alpha")].f : 1.0f;
}

static weft_status launch_map(const weft_kernel_ctx *x, weft_cuda_map_args *m,
                              const weft_view *y, const weft_view *a, const weft_view *b)
{
    const weft_view *view[] = {y, a, b};
    bool             fast   = true;
    weft_cuda_nd_init(&m->nd, &y->shape);
    for (int o = 0; o < 3; o++) weft_cuda_nd_add(&m->nd, view[o]);
    weft_cuda_nd_merge(&m->nd);
    m->y = y->p, m->a = a->p, m->b = b->p;
    m->y_dtype = (int32_t)y->dtype;
    m->a_dtype = (int32_t)a->dtype;
    m->b_dtype = (int32_t)b->dtype;
    for (int o = 0; o < 3; o++)
        fast =
            fast && weft_cuda_nd_vectors(&m->nd, o, view[o]->p, WEFT_CUDA_VECTOR, o != 0);
    if (fast) m->nd.count /= WEFT_CUDA_VECTOR;
    return weft_cuda_launch(x, fast ? WEFT_CUDA_map_8 : WEFT_CUDA_map_1,
                            weft_cuda_grid_1d(m->nd.count, THREADS), m);
}

CUDA_RUN(map)
{
    weft_cuda_map_args m = {.kind = map_of(c->op, c->attr),
                            .add  = c->add & 1,
                            .s    = factor_of(c->op, c->attr)};
    return launch_map(x, &m, &c->out[0], &c->in[0], &c->in[c->n_in > 1]);
}

/* stat is a sum over count micro-batches; unbias turns the variance of a batch into that of what
 * it is drawn from. */
CUDA_RUN(ema)
{
    double momentum = weft_cuda_attr(c, "momentum")->f;
    double unbias = weft_cuda_attr(c, "unbias")->f, count = weft_cuda_attr(c, "count")->f;
    weft_cuda_map_args m = {.kind = WEFT_CUDA_MAP_EMA,
                            .s    = (float)(1.0 - momentum),
                            .t    = (float)(momentum * unbias / count)};
    return launch_map(x, &m, &c->out[0], &c->in[0], &c->in[1]);
}

/* ---- dropout ---- */

/* Four elements that follow each other from a multiple of four on share a word. */
static bool by_words(const weft_cuda_dropout_args *a)
{
    int last = a->n_dim - 1;
    if (a->sample_count % 4) return false;
    return !a->n_whole || (last > 0 && a->d[last] % 4 == 0 && a->at[last] % 4 == 0 &&
                           a->whole[last] % 4 == 0);
}

CUDA_RUN(dropout)
{
    const weft_view *v  = &c->in[0];
    const weft_attr *at = weft_cuda_attr(c, "at"), *whole = weft_cuda_attr(c, "whole");
    double           p       = weft_cuda_attr(c, "p")->f;
    int64_t          count   = weft_shape_count(&v->shape);
    weft_cuda_dropout_args a = {.x       = v->p,
                                .y       = c->out[0].p,
                                .x_dtype = (int32_t)v->dtype,
                                .y_dtype = (int32_t)c->out[0].dtype,
                                .count   = count,
                                .n_dim   = v->shape.n,
                                .n_whole = whole->n,
                                .scalars = x->scalars,
                                .id      = (uint32_t)weft_cuda_attr(c, "id")->i,
                                .least   = weft_mask_least(p),
                                .scale   = (float)(1.0 / (1.0 - p))};
    if (!(p >= 0.0 && p < 1.0))
        return WEFT_FAIL(WEFT_ERR_ARG, "dropout: p = %g is not in [0,1)", p);
    if (count == 0) return WEFT_OK;
    a.sample_count = count / (v->shape.n ? v->shape.d[0] : 1);
    for (int k = 0; k < v->shape.n; k++) {
        a.d[k]     = v->shape.d[k];
        a.at[k]    = k < at->n ? at->l[k] : 0;
        a.whole[k] = k < whole->n ? whole->l[k] : 0;
    }
    bool words = by_words(&a);
    return weft_cuda_launch(x, words ? WEFT_CUDA_dropout_4 : WEFT_CUDA_dropout_1,
                            weft_cuda_grid_1d(words ? count / 4 : count, THREADS), &a);
}

/* ---- steps after products ---- */

static weft_status add_step(weft_cuda_steps_args *a, const weft_shape *shape, int kind,
                            float s, const weft_view *v, bool add)
{
    if (a->n_step == WEFT_CUDA_MAX_STEP)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "more than %d steps after a product",
                         WEFT_CUDA_MAX_STEP);
    weft_cuda_step *step = &a->step[a->n_step++];
    *step                = (weft_cuda_step){.kind = kind, .s = s, .add = add};
    if (!v) return WEFT_OK;
    step->p     = v->p;
    step->dtype = (int32_t)v->dtype;
    for (int k = 0; k < shape->n; k++) {
        int from        = k - (shape->n - v->shape.n);
        step->stride[k] = from < 0 || v->shape.d[from] == 1 ? 0 : v->stride[from];
    }
    return WEFT_OK;
}

/* A value of the chain meets its result. */
static weft_status keep(weft_cuda_steps_args *a, const weft_kernel_call *c, int out)
{
    if (out < 0 || !c->out[out].p) return WEFT_OK;
    return add_step(a, &c->out[0].shape, WEFT_CUDA_MAP_STORE, 1, &c->out[out],
                    c->add >> out & 1);
}

/* ---- their dimensions ---- */

static int64_t *strides_of(weft_cuda_steps_args *a, int operand)
{
    return operand == 0 ? a->from.stride : a->step[operand - 1].stride;
}

static bool joins(weft_cuda_steps_args *a, int outer, int inner)
{
    for (int o = 0; o <= a->n_step; o++) {
        const int64_t *stride = strides_of(a, o);
        if (stride[outer] != stride[inner] * a->from.d[inner]) return false;
    }
    return true;
}

/* Dimension `from` becomes number `to`, times the size that is joined to it. */
static void move_dim(weft_cuda_steps_args *a, int to, int from, int64_t times)
{
    a->from.d[to] = a->from.d[from] * times;
    for (int o = 0; o <= a->n_step; o++) {
        int64_t *stride = strides_of(a, o);
        stride[to]      = stride[from];
    }
}

/* Drops dimensions of size 1 and joins neighbours that are one in all operands. */
static void merge_dims(weft_cuda_steps_args *a)
{
    int n = 0;
    for (int k = 0; k < a->from.n_dim; k++) {
        if (a->from.d[k] == 1) continue;
        if (n > 0 && joins(a, n - 1, k))
            move_dim(a, n - 1, k, a->from.d[n - 1]);
        else
            move_dim(a, n++, k, 1);
    }
    for (int k = n; k < a->from.n_dim; k++)
        for (int o = 0; o <= a->n_step; o++) strides_of(a, o)[k] = 0;
    if (n == 0) a->from.d[n++] = 1;
    a->from.n_dim = n;
}

/* Read and written in vectors; what is only read may be one element for a whole row. */
static bool has_vectors(weft_cuda_steps_args *a)
{
    int last = a->from.n_dim - 1;
    if (a->from.d[last] % WEFT_CUDA_VECTOR || a->row_count % WEFT_CUDA_VECTOR)
        return false;
    for (int o = 0; o <= a->n_step; o++) {
        const int64_t *stride = strides_of(a, o);
        const void    *p      = o ? a->step[o - 1].p : a->from.p;
        bool           spread = o && a->step[o - 1].kind != WEFT_CUDA_MAP_STORE;
        if (!p) continue; /* a step without an operand */
        if ((uintptr_t)p % 16 || (stride[last] != 1 && !(spread && stride[last] == 0)))
            return false;
        for (int k = 0; k < last; k++)
            if (stride[k] % WEFT_CUDA_VECTOR) return false;
    }
    return true;
}

static weft_status launch_steps(const weft_kernel_ctx *x, weft_cuda_steps_args *a)
{
    if (a->count == 0) return WEFT_OK;
    merge_dims(a);
    bool fast = has_vectors(a);
    if (fast) a->count /= WEFT_CUDA_VECTOR;
    return weft_cuda_launch(x, fast ? WEFT_CUDA_steps_8 : WEFT_CUDA_steps_1,
                            weft_cuda_grid_1d(a->count, THREADS), a);
}

const weft_view *weft_cuda_last_result(const weft_kernel_call *c)
{
    if (!c->n_post) return &c->out[0];
    int out = c->post[c->n_post - 1].out;
    return out >= 0 && c->out[out].p ? &c->out[out] : NULL;
}

weft_status weft_cuda_steps(const weft_kernel_call *c, const weft_kernel_ctx *x,
                            const weft_view *from, const weft_view *last_row)
{
    const weft_view     *y = weft_cuda_last_result(c);
    weft_cuda_steps_args a = {.from  = weft_cuda_view_of(from),
                              .count = weft_shape_count(&from->shape),
                              .dtype = y ? (int32_t)y->dtype : 0};
    if (!y)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: its last value is not kept",
                         weft_op_get(c->op)->name);
    if (last_row) {
        a.last       = last_row->p;
        a.last_dtype = (int32_t)last_row->dtype;
        a.row_count  = from->shape.d[from->shape.n - 1];
    }
    WEFT_TRY(keep(&a, c, 0));
    for (int i = 0; i < c->n_post; i++) {
        const weft_kernel_post *p    = &c->post[i];
        int                     kind = map_of(p->op, p->attr);
        if (kind < 0)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s cannot be a step after a product",
                             weft_op_get(p->op)->name);
        WEFT_TRY(add_step(&a, &from->shape, kind, factor_of(p->op, p->attr),
                          p->in >= 0 ? &c->in[p->in] : NULL, false));
        WEFT_TRY(keep(&a, c, p->out));
    }
    return launch_steps(x, &a);
}
