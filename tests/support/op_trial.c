#include "support/op_trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "kernel/ref.h"
#include "kernel/vec.h"

enum {
    ALIGN    = 64,  /* of a program's buffers */
    INT_FILL = 0xab /* poison of integers, which -1 would not be */
};

static const double tolerance_f32 = 1e-5, tolerance_bf16 = 1e-2;
/* Sums of fp8 products have fewer bits than f32 in Hopper's tensor cores: 6e-5 to 9e-5 by norm on
 * an H200 (bench/results/gpu-fp8.txt). */
static const double tolerance_fp8 = 2e-4;

/* ---- one tensor ---- */

static int64_t element_offset(const op_tensor *t, int64_t i)
{
    const weft_view *v  = &t->v;
    int64_t          at = 0;
    if (t->dense) return i;
    for (int d = v->shape.n - 1; d >= 0; d--) {
        at += i % v->shape.d[d] * v->stride[d];
        i /= v->shape.d[d];
    }
    return at;
}

static double get_element(const op_tensor *t, int64_t i)
{
    int64_t at = element_offset(t, i);
    switch (t->v.dtype) {
    case WEFT_DTYPE_F32: return (double)((float *)t->v.p)[at];
    case WEFT_DTYPE_BF16: return (double)weft_bf16_widen(((uint16_t *)t->v.p)[at]);
    case WEFT_DTYPE_F64: return ((double *)t->v.p)[at];
    case WEFT_DTYPE_I64: return (double)((int64_t *)t->v.p)[at];
    default: return (double)((int32_t *)t->v.p)[at];
    }
}

static void put_element(op_tensor *t, int64_t i, double x)
{
    int64_t at = element_offset(t, i);
    switch (t->v.dtype) {
    case WEFT_DTYPE_F32: ((float *)t->v.p)[at] = (float)x; break;
    case WEFT_DTYPE_BF16: ((uint16_t *)t->v.p)[at] = weft_bf16_round((float)x); break;
    case WEFT_DTYPE_F64: ((double *)t->v.p)[at] = x; break;
    case WEFT_DTYPE_I64: ((int64_t *)t->v.p)[at] = (int64_t)x; break;
    default: ((int32_t *)t->v.p)[at] = (int32_t)x; break;
    }
}

static double round_to(weft_dtype t, double x)
{
    switch (t) {
    case WEFT_DTYPE_F32: return (double)(float)x;
    case WEFT_DTYPE_BF16: return (double)weft_bf16_widen(weft_bf16_round((float)x));
    default: return x;
    }
}

static bool is_integer(weft_dtype t)
{
    return t == WEFT_DTYPE_I32 || t == WEFT_DTYPE_I64;
}

/* Strides for a layout; returns how many elements it spans. */
static int64_t set_strides(weft_view *v, op_layout layout)
{
    const weft_shape *s    = &v->shape;
    int64_t           span = 1;
    for (int k = 0; k < s->n; k++) {
        int d        = layout == OP_TURNED ? k : s->n - 1 - k;
        v->stride[d] = span;
        if (layout == OP_PADDED) span *= s->d[d] + k % 2;
        if (layout == OP_TURNED) span *= s->d[d] + 1;
        if (layout != OP_PADDED && layout != OP_TURNED) span *= s->d[d];
    }
    for (int d = 0; d < s->n && layout == OP_SPREAD; d++)
        if (s->d[d] > 1) {
            v->stride[d] = 0;
            break;
        }
    return span;
}

static void make_tensor(op_tensor *t, weft_arena *arena, const weft_type *type,
                        op_layout layout)
{
    int64_t size = weft_dtype_bytes(type->dtype);
    t->n         = weft_shape_count(&type->shape);
    t->v         = weft_view_make(NULL, type->dtype, &type->shape);
    int64_t span = set_strides(&t->v, layout);
    t->dense     = layout == OP_DENSE || layout == OP_SHIFTED;
    int64_t skip = layout == OP_SHIFTED || layout == OP_PADDED ? 1 : 0;
    t->bytes     = (size_t)((span + skip) * size) + ALIGN;
    char *memory = weft_arena_alloc(arena, t->bytes + ALIGN);
    t->before    = weft_arena_alloc(arena, t->bytes);
    t->x         = WEFT_ARENA_ARRAY(arena, double, t->n + 1);
    if (!memory || !t->before || !t->x) return; /* the arena knows */
    t->mem = memory + (ALIGN - (uintptr_t)memory % ALIGN) % ALIGN;
    memset(t->mem, is_integer(type->dtype) ? INT_FILL : 0xff, t->bytes);
    memcpy(t->before, t->mem, t->bytes);
    t->v.p = t->mem + skip * size;
}

/* Nothing but the elements changed since `before`. */
static bool only_elements_changed(const op_tensor *t, weft_arena *arena)
{
    size_t size  = (size_t)weft_dtype_bytes(t->v.dtype);
    size_t first = (size_t)((char *)t->v.p - t->mem);
    if (t->dense) {
        size_t end = first + (size_t)t->n * size;
        return !memcmp(t->mem, t->before, first) &&
               !memcmp(t->mem + end, t->before + end, t->bytes - end);
    }
    char *copy = weft_arena_memdup(arena, t->before, t->bytes);
    if (!copy) return false;
    for (int64_t i = 0; i < t->n; i++) {
        size_t at = first + (size_t)element_offset(t, i) * size;
        memcpy(copy + at, t->mem + at, size);
    }
    return memcmp(copy, t->mem, t->bytes) == 0;
}

/* ---- operands and results of the operator ---- */

/* Operands that stay f32 whatever the storage: statistics, states, what weighs a loss. */
static bool stays_f32(weft_op op, op_storage storage, int k)
{
    bool mixed = storage == OP_STORAGE_MIXED;
    switch (op) {
    case WEFT_OP_LAYER_NORM:
    case WEFT_OP_RMS_NORM:
    case WEFT_OP_BATCH_NORM: return mixed && k >= 1;
    case WEFT_OP_LAYER_NORM_GRAD:
    case WEFT_OP_BATCH_NORM_GRAD:
    case WEFT_OP_RMS_NORM_GRAD: return k >= (mixed ? 2 : 3);
    case WEFT_OP_BATCH_NORM_INFER: return k >= (mixed ? 1 : 3);
    case WEFT_OP_ATTENTION_GRAD: return k == 5;
    case WEFT_OP_CROSS_ENTROPY_GRAD: return k >= 2;
    case WEFT_OP_EMBEDDING_GRAD: return k == 2;
    case WEFT_OP_ATTENTION_MERGE: return k % 2 == 1;
    case WEFT_OP_LAMB_DIR:
    case WEFT_OP_CROSS_ENTROPY_MERGE: return true;
    default: return (weft_op_get(op)->flags & WEFT_OP_UPDATE) != 0;
    }
}

static weft_status make_use(op_trial *t)
{
    weft_op_use *u = &t->use;
    WEFT_TRY(weft_test_case_make(t->the_case, t->arena, u));
    weft_type *in  = WEFT_ARENA_ARRAY(t->arena, weft_type, u->n_in + 1);
    weft_type *out = WEFT_ARENA_ARRAY(t->arena, weft_type, u->n_out);
    WEFT_TRY(weft_arena_status(t->arena));
    for (int k = 0; k < u->n_in; k++) {
        in[k] = u->in[k];
        if (in[k].dtype == WEFT_DTYPE_F32 && t->form.storage != OP_STORAGE_F32 &&
            !stays_f32(u->op, t->form.storage, k))
            in[k].dtype = WEFT_DTYPE_BF16;
    }
    u->in  = in;
    u->out = out;
    return weft_op_infer(u, out);
}

/* Is `next` the result that overwrites operand k?  "p_next" is the next value of "p". */
static bool is_next_of(const char *next, const char *operand)
{
    size_t n = strcspn(operand, " ?*");
    return !strncmp(next, operand, n) && !strncmp(next + n, "_next", 5);
}

/* The operand that result j may be placed over; -1 none. */
static int find_operand_under(const op_trial *t, int j)
{
    const weft_op_row *row = weft_op_get(t->use.op);
    if (op_has_base(t->the_case)) return 2;
    if (t->use.op == WEFT_OP_EMA) return 0;
    if (row->flags & WEFT_OP_ELEM) return j == 0 ? 0 : -1;
    const char *next = row->out, *operand = row->in;
    for (int i = 0; i < j; i++) next = strchr(next, ' ') + 1;
    for (int k = 0; k < t->use.n_in; k++) {
        if (is_next_of(next, operand)) return k;
        operand = strchr(operand, ' ') + 1;
    }
    return -1;
}

static weft_status place_over(op_trial *t, int j, int k)
{
    const op_tensor *under = &t->in[k];
    op_tensor       *over  = &t->out[j];
    if (k < 0 || under->v.dtype != over->v.dtype ||
        !weft_shape_equal(&under->v.shape, &over->v.shape))
        return WEFT_AGAIN;
    double *x = over->x;
    *over     = *under;
    over->x   = x;
    return WEFT_OK;
}

static weft_status make_tensors(op_trial *t)
{
    const weft_op_use *u       = &t->use;
    op_layout          results = t->form.layout == OP_SPREAD ? OP_DENSE : t->form.layout;
    t->n_in                    = u->n_in;
    t->n_out                   = u->n_out;
    t->in  = WEFT_ARENA_ARRAY(t->arena, op_tensor, u->n_in + OP_MAX_STEP + 1);
    t->out = WEFT_ARENA_ARRAY(t->arena, op_tensor, u->n_out + OP_MAX_STEP);
    WEFT_TRY(weft_arena_status(t->arena));
    for (int k = 0; k < u->n_in; k++)
        make_tensor(&t->in[k], t->arena, &u->in[k], t->form.layout);
    for (int j = 0; j < u->n_out; j++) {
        make_tensor(&t->out[j], t->arena, &u->out[j], results);
        WEFT_TRY(weft_arena_status(t->arena));
        if (t->form.in_place) WEFT_TRY(place_over(t, j, find_operand_under(t, j)));
        for (int64_t i = 0; i < t->out[j].n && t->form.add >> j & 1; i++)
            put_element(&t->out[j], i, sin((double)(i + 3 * j)));
        memcpy(t->out[j].before, t->out[j].mem, t->out[j].bytes);
        if (t->form.unkept >> j & 1) t->out[j].v.p = NULL;
    }
    return weft_arena_status(t->arena);
}

/* ---- operands and results of fused steps ---- */

/* Trailing dimensions of a product that come from its second operand alone. */
static int count_row_dims(const weft_op_use *u)
{
    const weft_shape *y = &u->out[0].shape;
    int               k = 0;
    if (u->op != WEFT_OP_MATMUL) return 0;
    const char *spec = weft_use_string(u, "spec"), *comma = strchr(spec, ',');
    const char *result = strstr(spec, "->") + 2;
    while (k < y->n && !memchr(spec, result[y->n - 1 - k], (size_t)(comma - spec))) k++;
    return k;
}

static weft_type type_of_other(const weft_op_use *u, char other)
{
    weft_type type = u->out[0];
    int       row = count_row_dims(u), n = type.shape.n;
    if (other == 'r' && row) {
        memmove(type.shape.d, type.shape.d + n - row, sizeof(int64_t) * (size_t)row);
        type.shape.n = row;
    }
    return type;
}

/* "axes=[0,1] dtype=f32" for the first result's dimensions but the last; WEFT_AGAIN: it has no
 * others. */
static weft_status parse_column_sum(op_trial *t, weft_attr *attr)
{
    char   text[64] = "dtype=f32 axes=[";
    int    n        = t->use.out[0].shape.n;
    size_t at       = strlen(text);
    if (n < 2) return WEFT_AGAIN;
    for (int d = 0; d < n - 1; d++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%d%s", d,
                               d < n - 2 ? "," : "]");
    return weft_op_parse_attr(WEFT_OP_REDUCE, text, t->arena, attr);
}

/* A result of its own type, made of the value so far. */
static bool is_further_result(weft_op step)
{
    return step == WEFT_OP_REDUCE || step == WEFT_OP_CAST;
}

static weft_status make_step_result(op_trial *t, const weft_kernel_post *post)
{
    op_layout  results = t->form.layout == OP_SPREAD ? OP_DENSE : t->form.layout;
    weft_type  type    = t->use.out[0];
    op_tensor *out     = &t->out[post->out];
    if (is_further_result(post->op)) {
        weft_op_use u = {.op    = post->op,
                         .attr  = post->attr,
                         .n_in  = 1,
                         .n_out = 1,
                         .in    = &t->use.out[0]};
        WEFT_TRY(weft_op_infer(&u, &type));
    }
    make_tensor(out, t->arena, &type, results);
    WEFT_TRY(weft_arena_status(t->arena));
    if (post->op != WEFT_OP_REDUCE || !t->form.add_sums) return WEFT_OK;
    t->call.add |= 1u << post->out;
    for (int64_t i = 0; i < out->n; i++) put_element(out, i, cos((double)i));
    memcpy(out->before, out->mem, out->bytes);
    return WEFT_OK;
}

static weft_status add_steps(op_trial *t, weft_kernel_post *post)
{
    const op_chain *c = op_chain_of(t->use.op, t->form.chain);
    if (!c->product_kept) t->out[0].v.p = NULL;
    for (int i = 0; i < c->n; i++) {
        weft_attr *attr  = WEFT_ARENA_ARRAY(t->arena, weft_attr, WEFT_MAX_ATTR);
        weft_type  other = type_of_other(&t->use, c->s[i].other);
        WEFT_TRY(weft_arena_status(t->arena));
        WEFT_TRY(c->s[i].attr
                     ? weft_op_parse_attr(c->s[i].op, c->s[i].attr, t->arena, attr)
                     : parse_column_sum(t, attr));
        post[i] = (weft_kernel_post){.op = c->s[i].op, .attr = attr, .in = -1, .out = -1};
        if (c->s[i].other) {
            post[i].in = t->n_in;
            make_tensor(&t->in[t->n_in++], t->arena, &other, t->form.layout);
        }
        if (c->s[i].kept) {
            post[i].out = t->n_out++;
            WEFT_TRY(make_step_result(t, &post[i]));
        }
    }
    t->call.n_post = c->n;
    return weft_arena_status(t->arena);
}

/* The gradient behind a loss: its weights are operand 2, its result is result 2. */
static weft_status add_gradient(op_trial *t, weft_kernel_post *post)
{
    bool       in_place = t->form.chain == OP_LOSS_IN_PLACE;
    char       text[64];
    weft_attr *attr    = WEFT_ARENA_ARRAY(t->arena, weft_attr, WEFT_MAX_ATTR);
    weft_type  weights = t->use.out[0];
    WEFT_TRY(weft_arena_status(t->arena));
    snprintf(text, sizeof text, "ignore=%ld", (long)weft_use_int(&t->use, "ignore"));
    WEFT_TRY(weft_op_parse_attr(WEFT_OP_CROSS_ENTROPY_GRAD, text, t->arena, attr));
    *post = (weft_kernel_post){
        .op = WEFT_OP_CROSS_ENTROPY_GRAD, .attr = attr, .in = 2, .out = 2};
    make_tensor(&t->in[t->n_in++], t->arena, &weights, OP_DENSE);
    for (int d = 0; d < weights.shape.n && in_place; d++) t->in[2].v.stride[d] = 0;
    t->in[2].dense = !in_place;
    make_tensor(&t->out[t->n_out++], t->arena, &t->use.in[0], OP_DENSE);
    WEFT_TRY(weft_arena_status(t->arena));
    t->call.n_post = 1;
    if (!in_place) return WEFT_OK;
    t->out[1].v.p = NULL;
    return place_over(t, 2, 0);
}

static weft_status make_call(op_trial *t)
{
    weft_kernel_post *post = WEFT_ARENA_ARRAY(t->arena, weft_kernel_post, OP_MAX_STEP);
    weft_view *in  = WEFT_ARENA_ARRAY(t->arena, weft_view, t->n_in + OP_MAX_STEP + 1);
    weft_view *out = WEFT_ARENA_ARRAY(t->arena, weft_view, t->n_out + OP_MAX_STEP);
    WEFT_TRY(weft_arena_status(t->arena));
    t->call = (weft_kernel_call){.op        = t->use.op,
                                 .attr      = t->use.attr,
                                 .n_own_in  = t->n_in,
                                 .n_own_out = t->n_out,
                                 .in        = in,
                                 .out       = out,
                                 .post      = post,
                                 .add       = t->form.add};
    if (t->form.chain >= 0)
        WEFT_TRY(t->use.op == WEFT_OP_CROSS_ENTROPY ? add_gradient(t, post)
                                                    : add_steps(t, post));
    t->call.n_in  = t->n_in;
    t->call.n_out = t->n_out;
    for (int i = 0; i < t->n_in; i++) in[i] = t->in[i].v;
    for (int j = 0; j < t->n_out; j++) out[j] = t->out[j].v;
    return WEFT_OK;
}

weft_status op_trial_make(op_trial *t, weft_arena *arena, const weft_test_case *c,
                          const op_form *f, op_numbers *numbers, uint64_t seed)
{
    *t = (op_trial){.the_case = c, .form = *f, .arena = arena, .numbers = numbers};
    WEFT_TRY(make_use(t));
    WEFT_TRY(make_tensors(t));
    WEFT_TRY(make_call(t));
    t->want = WEFT_ARENA_ARRAY(arena, double *, t->n_out);
    WEFT_TRY(weft_arena_status(arena));
    for (int j = 0; j < t->n_out; j++) t->want[j] = t->out[j].x;
    op_trial_fill(t, seed, 1);
    return WEFT_OK;
}

static void draw_numbers(const op_trial *t, int k, uint64_t seed, double *x)
{
    static const weft_test_case normal = {.in = "f32[]"}; /* for operands of steps */
    weft_type                   type   = {t->in[k].v.dtype, t->in[k].v.shape};
    weft_op_use                 alone  = {.in = &type};
    if (k < t->use.n_in)
        weft_test_case_fill(t->the_case, &t->use, k, seed, x);
    else
        weft_test_case_fill(&normal, &alone, 0, seed + 1000 + (uint64_t)k, x);
}

/* Drawn now, or in an earlier form of the case. */
static void get_numbers(op_trial *t, int k, uint64_t seed, double *x)
{
    op_numbers *d     = t->numbers;
    int64_t     n     = t->in[k].n;
    size_t      bytes = sizeof *x * (size_t)n;
    int         i     = 0;
    while (i < d->n &&
           (d->drawn[i].seed != seed || d->drawn[i].operand != k || d->drawn[i].n != n))
        i++;
    if (i < d->n) {
        memcpy(x, d->drawn[i].x, bytes);
        return;
    }
    draw_numbers(t, k, seed, x);
    if (i == (int)WEFT_COUNT(d->drawn)) return;
    double *copy = weft_arena_memdup(d->arena, x, bytes);
    if (!copy) return;
    d->drawn[i].seed = seed, d->drawn[i].operand = k, d->drawn[i].n = n;
    d->drawn[i].x = copy;
    d->n++;
}

void op_trial_fill(op_trial *t, uint64_t seed, double factor)
{
    for (int k = 0; k < t->n_in; k++) {
        op_tensor *in = &t->in[k];
        get_numbers(t, k, seed, in->x);
        if (!in->v.shape.n) in->x[0] *= factor;
        memcpy(in->mem, in->before, in->bytes);
        for (int64_t i = 0; i < in->n; i++) put_element(in, i, in->x[i]);
        for (int64_t i = 0; i < in->n; i++) in->x[i] = get_element(in, i);
        memcpy(in->before, in->mem, in->bytes);
    }
}

/* ---- the reference ---- */

/* Rows of experts' products that are nobody's stay 0, whatever the steps. */
static void clear_rows_of_nobody(const op_trial *t, double *x)
{
    if (t->use.op != WEFT_OP_GROUPED_MATMUL) return;
    const op_tensor *offsets = &t->in[2];
    int64_t          width   = t->use.out[0].shape.d[1];
    for (int64_t i = (int64_t)offsets->x[offsets->n - 1] * width; i < t->out[0].n; i++)
        x[i] = 0;
}

/* Numbers as the step before would have stored them. */
static weft_status run_further_result(op_trial *t, const weft_kernel_post *p,
                                      const double *x)
{
    op_tensor  *out  = &t->out[p->out];
    double     *want = t->want[p->out];
    weft_type   type = {out->v.dtype, out->v.shape};
    weft_op_use use  = {.op    = p->op,
                        .attr  = p->attr,
                        .n_in  = 1,
                        .n_out = 1,
                        .in    = &t->use.out[0],
                        .out   = &type};
    WEFT_TRY(weft_kernel_ref_run(&use, &x, &want, NULL));
    for (int64_t i = 0; i < out->n && t->call.add >> p->out & 1; i++)
        want[i] += get_element(out, i);
    return WEFT_OK;
}

static weft_status run_steps(op_trial *t)
{
    const weft_type *type = &t->use.out[0];
    int64_t          n    = t->out[0].n;
    double          *x    = WEFT_ARENA_ARRAY(t->arena, double, n + 1);
    WEFT_TRY(weft_arena_status(t->arena));
    for (int64_t i = 0; i < n; i++) x[i] = round_to(type->dtype, t->want[0][i]);
    for (int s = 0; s < t->call.n_post; s++) {
        const weft_kernel_post *p     = &t->call.post[s];
        weft_type               in[2] = {*type};
        if (is_further_result(p->op)) {
            WEFT_TRY(run_further_result(t, p, x));
            continue;
        }
        const double *xs[2] = {x};
        double       *y     = WEFT_ARENA_ARRAY(t->arena, double, n + 1);
        WEFT_TRY(weft_arena_status(t->arena));
        if (p->in >= 0) {
            in[1] = (weft_type){t->in[p->in].v.dtype, t->in[p->in].v.shape};
            xs[1] = t->in[p->in].x;
        }
        weft_op_use use = {.op    = p->op,
                           .attr  = p->attr,
                           .n_in  = p->in >= 0 ? 2 : 1,
                           .n_out = 1,
                           .in    = in,
                           .out   = type};
        WEFT_TRY(weft_kernel_ref_run(&use, xs, &y, NULL));
        for (int64_t i = 0; i < n; i++) x[i] = round_to(type->dtype, y[i]);
        clear_rows_of_nobody(t, x);
        if (p->out >= 0) memcpy(t->want[p->out], x, sizeof *x * (size_t)n);
    }
    return WEFT_OK;
}

static weft_status run_gradient(op_trial *t)
{
    weft_type     in[4] = {t->use.in[0], t->use.in[1], t->use.out[1], t->use.out[0]};
    const double *xs[4] = {t->in[0].x, t->in[1].x, t->want[1], t->in[2].x};
    weft_op_use   use   = {.op    = WEFT_OP_CROSS_ENTROPY_GRAD,
                           .attr  = t->call.post[0].attr,
                           .n_in  = 4,
                           .n_out = 1,
                           .in    = in,
                           .out   = &t->use.in[0]};
    return weft_kernel_ref_run(&use, xs, &t->want[2], NULL);
}

weft_status op_trial_reference(op_trial *t, const weft_step_scalars *s)
{
    weft_ref_ctx ctx = {
        .seed = s->seed, .step = s->step, .first_sample = s->sample + s->micro_sample};
    const double **in = WEFT_ARENA_ARRAY(t->arena, const double *, t->n_in + 1);
    WEFT_TRY(weft_arena_status(t->arena));
    op_trial_restore(t);
    for (int k = 0; k < t->n_in; k++) in[k] = t->in[k].x;
    WEFT_TRY(weft_kernel_ref_run(&t->use, in, t->want, &ctx));
    for (int j = 0; j < t->use.n_out; j++)
        for (int64_t i = 0; i < t->out[j].n && t->form.add >> j & 1; i++)
            t->want[j][i] += get_element(&t->out[j], i);
    if (t->form.chain < 0) return WEFT_OK;
    return t->use.op == WEFT_OP_CROSS_ENTROPY ? run_gradient(t) : run_steps(t);
}

void op_trial_restore(op_trial *t)
{
    for (int k = 0; k < t->n_in; k++)
        memcpy(t->in[k].mem, t->in[k].before, t->in[k].bytes);
    for (int j = 0; j < t->n_out; j++)
        memcpy(t->out[j].mem, t->out[j].before, t->out[j].bytes);
}

/* ---- the comparison ---- */

/* Moves: nothing but the rounding of the result's type. */
static bool is_exact(const weft_op_use *u)
{
    switch (u->op) {
    case WEFT_OP_CAST:
    case WEFT_OP_RELU:
    case WEFT_OP_RELU_GRAD:
    case WEFT_OP_EMBEDDING:
    case WEFT_OP_GATHER:
    case WEFT_OP_BROADCAST:
    case WEFT_OP_RESHAPE:
    case WEFT_OP_TRANSPOSE:
    case WEFT_OP_CONCAT:
    case WEFT_OP_SPLIT:
    case WEFT_OP_SLICE:
    case WEFT_OP_SLICE_GRAD:
    case WEFT_OP_FILL:
    case WEFT_OP_DISPATCH:
    case WEFT_OP_MAX_POOL:
    case WEFT_OP_ACCUMULATE: return true;
    case WEFT_OP_REDUCE: return !strcmp(weft_use_string(u, "kind"), "max");
    default: return false;
    }
}

static weft_status check_exact(const op_trial *t, int j)
{
    const op_tensor *o = &t->out[j];
    for (int64_t i = 0; i < o->n; i++) {
        double got = get_element(o, i), want = round_to(o->v.dtype, t->want[j][i]);
        if (got != want)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "result %d[%lld] is %.9g, not %.9g", j,
                             (long long)i, got, want);
    }
    return WEFT_OK;
}

/* Does a real GPU multiply codes of 8 bits here? */
static bool has_fp8_sums(const op_trial *t)
{
    const char *real = getenv("WEFT_TEST_GPU");
    if (t->call.op != WEFT_OP_MATMUL || !real || strcmp(real, "1") != 0) return false;
    const char *formats = t->call.attr[weft_op_attr_index(WEFT_OP_MATMUL, "fp8")].s;
    return formats && *formats;
}

static double find_tolerance(const op_trial *t, const op_tensor *o)
{
    if (o->v.dtype == WEFT_DTYPE_BF16) return tolerance_bf16;
    return has_fp8_sums(t) ? tolerance_fp8 : tolerance_f32;
}

static weft_status check_norm(const op_trial *t, int j, double *error)
{
    const op_tensor *o          = &t->out[j];
    double           tol        = find_tolerance(t, o);
    double           difference = 0, size = 0, largest = -1;
    int64_t          at = 0;
    for (int64_t i = 0; i < o->n; i++) {
        double got = get_element(o, i), want = t->want[j][i], d = fabs(got - want);
        if (got == want) d = 0; /* infinite ones too */
        if (!(d <= largest)) largest = isnan(d) ? INFINITY : d, at = i;
        difference += d * d;
        if (isfinite(want)) size += want * want;
    }
    /* A few elements may cancel all at once; numbers that are drawn have size 1. */
    if (o->n < 8) size = fmax(size, (double)o->n);
    double e = difference == 0 ? 0 : sqrt(difference / size);
    if (!(e <= *error)) *error = e;
    if (e <= tol) return WEFT_OK;
    return WEFT_FAIL(
        WEFT_ERR_INTERNAL,
        "result %d: error %.3g by norm, above %.0e; [%lld] is %.9g, not %.9g", j, e, tol,
        (long long)at, get_element(o, at), t->want[j][at]);
}

static weft_status check_elements(const op_trial *t, int j)
{
    const op_tensor *o   = &t->out[j];
    double           tol = o->v.dtype == WEFT_DTYPE_BF16 ? 8e-3 : 1e-5, size = 0;
    for (int64_t i = 0; i < o->n; i++)
        if (isfinite(t->want[j][i])) size = fmax(size, fabs(t->want[j][i]));
    for (int64_t i = 0; i < o->n; i++) {
        double got = get_element(o, i), want = t->want[j][i];
        if (got != want && !(fabs(got - want) <= tol * size))
            return WEFT_FAIL(WEFT_ERR_INTERNAL,
                             "result %d[%lld] is %.9g, not %.9g (largest %g)", j,
                             (long long)i, got, want, size);
    }
    return WEFT_OK;
}

static bool is_overwritten(const op_trial *t, int k)
{
    for (int j = 0; j < t->n_out; j++)
        if (t->out[j].mem == t->in[k].mem) return true;
    return false;
}

weft_status op_trial_check(op_trial *t, const op_limits *limits, double *error)
{
    *error = 0;
    for (int k = 0; k < t->n_in; k++)
        if (!is_overwritten(t, k) &&
            memcmp(t->in[k].mem, t->in[k].before, t->in[k].bytes))
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "operand %d was written to", k);
    for (int j = 0; j < t->n_out; j++) {
        const op_tensor *o     = &t->out[j];
        bool             exact = is_integer(o->v.dtype) ||
                     (is_exact(&t->use) && !t->form.add && j < t->use.n_out);
        if (!o->v.p) continue;
        WEFT_TRY(exact ? check_exact(t, j) : check_norm(t, j, error));
        if (limits->by_element && !exact && t->form.chain < 0)
            WEFT_TRY(check_elements(t, j));
        if (!only_elements_changed(o, t->arena))
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "result %d: written between its elements",
                             j);
    }
    return WEFT_OK;
}

char *op_trial_bytes(const op_trial *t)
{
    size_t n = 0, at = 0;
    for (int j = 0; j < t->n_out; j++) n += t->out[j].bytes;
    char *copy = weft_arena_alloc(t->arena, n);
    for (int j = 0; copy && j < t->n_out; at += t->out[j++].bytes)
        memcpy(copy + at, t->out[j].mem, t->out[j].bytes);
    return copy;
}

bool op_trial_same(const op_trial *t, const char *bytes)
{
    size_t at = 0;
    for (int j = 0; j < t->n_out; at += t->out[j++].bytes)
        if (memcmp(bytes + at, t->out[j].mem, t->out[j].bytes) != 0) return false;
    return true;
}
