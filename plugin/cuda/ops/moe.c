/* Experts: routing, rows sorted by expert, and the way back. */
#include "ops/sort.h"
#include "ops/table.h"

static bool is_aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

static int64_t last_of(const weft_view *v)
{
    return v->shape.d[v->shape.n - 1];
}

/* A warp for each of n rows. */
static weft_cuda_grid warp_grid(int64_t n)
{
    return weft_cuda_grid_1d(n * 32, 256);
}

/* ---- routing ---- */

CUDA_RUN(route)
{
    const weft_view     *l = &c->in[0], *w = &c->out[0];
    weft_cuda_route_args a = {.logits       = l->p,
                              .logits_dtype = (int32_t)l->dtype,
                              .n            = last_of(l),
                              .k            = last_of(w),
                              .w            = w->p,
                              .w_dtype      = (int32_t)w->dtype,
                              .idx          = c->out[1].p,
                              .norm         = weft_cuda_attr(c, "norm")->i != 0};
    a.rows                 = a.n ? weft_shape_count(&l->shape) / a.n : 0;
    if (c->n_own_in > 1) {
        a.bias       = c->in[1].p;
        a.bias_dtype = (int32_t)c->in[1].dtype;
    }
    return weft_cuda_launch(x, WEFT_CUDA_route, warp_grid(a.rows), &a);
}

CUDA_RUN(route_grad)
{
    const weft_view     *l = &c->in[0], *w = &c->in[1], *dw = &c->in[3], *dl = &c->out[0];
    weft_cuda_route_args a = {.logits        = l->p,
                              .logits_dtype  = (int32_t)l->dtype,
                              .n             = last_of(l),
                              .k             = last_of(w),
                              .w             = w->p,
                              .w_dtype       = (int32_t)w->dtype,
                              .chosen        = weft_cuda_view_of(&c->in[2]),
                              .dw            = dw->p,
                              .dw_dtype      = (int32_t)dw->dtype,
                              .dlogits       = dl->p,
                              .dlogits_dtype = (int32_t)dl->dtype,
                              .norm          = weft_cuda_attr(c, "norm")->i != 0};
    a.rows                 = a.n ? weft_shape_count(&l->shape) / a.n : 0;
    return weft_cuda_launch(x, WEFT_CUDA_route_grad, warp_grid(a.rows), &a);
}

/* ---- rows by expert ---- */

/* Experts [first, end) whose rows are kept. */
static weft_status find_own(const weft_kernel_call *c, int64_t experts, int64_t *first,
                            int64_t *end)
{
    *first = weft_cuda_attr(c, "first_expert")->i;
    *end   = *first + weft_cuda_attr(c, "own")->i;
    if (*end < *first) *first = 0, *end = experts; /* all of them */
    if (*first >= 0 && *end <= experts) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: experts %ld to %ld of %ld",
                     weft_op_get(c->op)->name, (long)*first, (long)*end, (long)experts);
}

CUDA_RUN(dispatch)
{
    const weft_view *idx = &c->in[1];
    int64_t        n = weft_shape_count(&idx->shape), experts = c->out[1].shape.d[0] - 1;
    weft_cuda_sort s         = {.idx = idx, .skip = -1, .n_key = experts};
    weft_cuda_offsets_args a = {
        .src = c->out[2].p, .offsets = c->out[1].p, .n = n, .experts = experts};
    weft_view src = c->out[2];

    WEFT_TRY(find_own(c, experts, &s.lo, &s.hi));
    WEFT_TRY(weft_cuda_sort_run(&s, x, x->scratch));
    if (!src.p) src.p = (char *)x->scratch + weft_cuda_sort_bytes(n);
    a.src  = src.p;
    a.key  = s.key;
    a.from = s.from;
    WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_dispatch_offsets,
                              weft_cuda_grid_1d(n > experts ? n : experts + 1, 256), &a));
    if (!c->out[0].p) return WEFT_OK;
    return weft_cuda_take_rows(x, &c->out[0], &c->in[0], &src, idx->shape.d[1]);
}
CUDA_SCRATCH(dispatch)
{
    int64_t n = weft_shape_count(&c->in[1].shape);
    (void)n_thread;
    return weft_cuda_sort_bytes(n) + sizeof(int32_t) * (size_t)n;
}

CUDA_RUN(own_offsets)
{
    const weft_view           *table = &c->in[0];
    weft_cuda_own_offsets_args a     = {.table   = table->p,
                                        .offsets = c->out[0].p,
                                        .parts   = table->shape.d[0],
                                        .experts = table->shape.d[1] - 1};
    weft_cuda_grid             one   = {1, 1, 1, 256, 0};
    WEFT_TRY(find_own(c, a.experts, &a.first, &a.end));
    return weft_cuda_launch(x, WEFT_CUDA_own_offsets, one, &a);
}

/* Tokens from their rows: where a slot's row is stands in scratch. */
static weft_status gather_tokens(weft_cuda_combine_args *a, const weft_view *rows,
                                 const weft_view *src, const weft_view *y,
                                 const weft_kernel_ctx *x)
{
    weft_view             inv = weft_view_make(x->scratch, WEFT_DTYPE_I32, &src->shape);
    weft_cuda_invert_args i   = {.src = weft_cuda_view_of(src),
                                 .inv = x->scratch,
                                 .n   = weft_shape_count(&src->shape)};
    bool                  wide;
    a->inv        = i.inv;
    a->rows       = rows->p;
    a->rows_dtype = (int32_t)rows->dtype;
    a->y          = y->p;
    a->y_dtype    = (int32_t)y->dtype;
    a->n          = y->shape.d[0];
    a->d          = y->shape.d[1];
    wide          = a->d % 8 == 0 && is_aligned(a->rows) && is_aligned(a->y);
    WEFT_TRY(weft_cuda_fill(x, &inv, -1));
    WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_invert, weft_cuda_grid_1d(i.n, 256), &i));
    return weft_cuda_launch(x, wide ? WEFT_CUDA_combine_8 : WEFT_CUDA_combine_1,
                            weft_cuda_grid_1d(a->n * a->d / (wide ? 8 : 1), 256), a);
}

CUDA_RUN(dispatch_grad)
{
    weft_cuda_combine_args a = {.k = weft_cuda_attr(c, "k")->i};
    return gather_tokens(&a, &c->in[0], &c->in[1], &c->out[0], x);
}
CUDA_SCRATCH(dispatch_grad)
{
    (void)n_thread;
    return sizeof(int32_t) * (size_t)c->in[0].shape.d[0];
}

CUDA_RUN(combine)
{
    const weft_view       *w = &c->in[1];
    weft_cuda_combine_args a = {
        .k = w->shape.d[1], .w = w->p, .w_dtype = (int32_t)w->dtype};
    return gather_tokens(&a, &c->in[0], &c->in[2], &c->out[0], x);
}
CUDA_SCRATCH(combine)
{
    (void)n_thread;
    return sizeof(int32_t) * (size_t)c->in[0].shape.d[0];
}

CUDA_RUN(combine_grad)
{
    const weft_view            *dy = &c->in[0], *rows = &c->in[1], *w = &c->in[2];
    weft_cuda_combine_grad_args a = {.dy          = dy->p,
                                     .rows        = rows->p,
                                     .w           = w->p,
                                     .src         = weft_cuda_view_of(&c->in[3]),
                                     .drows       = c->out[0].p,
                                     .dw          = c->out[1].p,
                                     .n           = rows->shape.d[0],
                                     .k           = w->shape.d[1],
                                     .d           = rows->shape.d[1],
                                     .dy_dtype    = (int32_t)dy->dtype,
                                     .rows_dtype  = (int32_t)rows->dtype,
                                     .w_dtype     = (int32_t)w->dtype,
                                     .drows_dtype = (int32_t)c->out[0].dtype,
                                     .dw_dtype    = (int32_t)c->out[1].dtype};
    bool                        wide =
        a.d % 8 == 0 && is_aligned(a.dy) && is_aligned(a.rows) && is_aligned(a.drows);
    if (a.dw) WEFT_TRY(weft_cuda_fill(x, &c->out[1], 0));
    return weft_cuda_launch(x, wide ? WEFT_CUDA_combine_grad_8 : WEFT_CUDA_combine_grad_1,
                            warp_grid(a.n), &a);
}
