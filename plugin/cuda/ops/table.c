/* Tables: rows taken by number, and rows added by number. */
#include "ops/table.h"

#include "ops/sort.h"

static int64_t first_of(const weft_kernel_call *c)
{
    int64_t first = weft_cuda_attr(c, "first")->i;
    return first < 0 ? 0 : first;
}

/* The sizes around an axis. */
typedef struct around {
    int64_t before, size, behind;
} around;

static around split_at(const weft_shape *s, int64_t axis)
{
    around a = {1, s->d[axis], 1};
    for (int d = 0; d < axis; d++) a.before *= s->d[d];
    for (int d = (int)axis + 1; d < s->n; d++) a.behind *= s->d[d];
    return a;
}

/* ---- take ---- */

/* The largest unit that rows and addresses are multiples of. */
static int choose_unit(const void *x, const void *y, int64_t row_bytes)
{
    uintptr_t all  = (uintptr_t)x | (uintptr_t)y | (uintptr_t)row_bytes;
    int       unit = 16;
    while (all % (uintptr_t)unit) unit /= 2;
    return unit;
}

/* in: the axis of `from` that numbers count along */
static weft_status take_rows(const weft_kernel_ctx *x, const weft_view *to,
                             const weft_view *from, around in, weft_cuda_take_args a)
{
    int64_t bytes = in.behind * weft_dtype_bytes(from->dtype);
    if (from->dtype != to->dtype)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "rows of %s are taken into rows of %s",
                         weft_dtype_name(from->dtype), weft_dtype_name(to->dtype));
    a.x          = from->p;
    a.y          = to->p;
    a.n_x        = in.size;
    a.unit_bytes = choose_unit(from->p, to->p, bytes);
    a.units      = bytes / a.unit_bytes;
    a.total      = in.before * a.n_idx * a.units;
    return weft_cuda_launch(x, WEFT_CUDA_take, weft_cuda_grid_1d(a.total, 256), &a);
}

weft_status weft_cuda_take_rows(const weft_kernel_ctx *x, const weft_view *to,
                                const weft_view *from, const weft_view *idx,
                                int64_t divide)
{
    weft_cuda_take_args a = {.idx    = weft_cuda_view_of(idx),
                             .n_idx  = weft_shape_count(&idx->shape),
                             .divide = divide};
    return take_rows(x, to, from, split_at(&from->shape, 0), a);
}

static weft_status take_axis(const weft_kernel_call *c, const weft_kernel_ctx *x,
                             int64_t axis)
{
    weft_cuda_take_args a = {.idx    = weft_cuda_view_of(&c->in[1]),
                             .n_idx  = weft_shape_count(&c->in[1].shape),
                             .first  = first_of(c),
                             .divide = 1};
    return take_rows(x, &c->out[0], &c->in[0], split_at(&c->in[0].shape, axis), a);
}

CUDA_RUN(embedding)
{
    return take_axis(c, x, 0);
}

CUDA_RUN(gather)
{
    return take_axis(c, x, weft_cuda_attr(c, "axis")->i);
}

/* ---- add ---- */

static int64_t count_pieces(int64_t n)
{
    return weft_cuda_ceil(n, WEFT_CUDA_RUN_ROWS);
}

static bool is_aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* y[b, number - first, :] += src[b, r, :] */
static weft_status add_rows(const weft_kernel_call *c, const weft_kernel_ctx *x, around y,
                            int64_t skip)
{
    const weft_view *src = &c->in[0], *idx = &c->in[1], *out = &c->out[0];
    int64_t          n = weft_shape_count(&idx->shape);
    weft_cuda_sort   s = {
          .idx = idx, .first = first_of(c), .hi = y.size, .skip = skip, .n_key = y.size};
    weft_cuda_run_args a = {.x       = src->p,
                            .y       = out->p,
                            .n       = n,
                            .n_key   = y.size,
                            .before  = y.before,
                            .behind  = y.behind,
                            .n_piece = count_pieces(n),
                            .x_dtype = (int32_t)src->dtype,
                            .y_dtype = (int32_t)out->dtype};
    bool wide            = y.behind % 8 == 0 && is_aligned(src->p) && is_aligned(out->p);

    if (n == 0 || y.before * y.behind == 0) return WEFT_OK;
    a.part = (float *)(void *)((char *)x->scratch + weft_cuda_sort_bytes(n));
    WEFT_TRY(weft_cuda_sort_run(&s, x, x->scratch));
    a.key                  = s.key;
    a.from                 = s.from;
    int64_t        columns = wide ? y.behind / 8 : y.behind;
    unsigned       threads = columns < 128 ? (unsigned)(columns + 31) / 32 * 32 : 128;
    weft_cuda_grid grid    = {.x       = (unsigned)a.n_piece,
                              .y       = (unsigned)((columns + threads - 1) / threads),
                              .z       = (unsigned)(y.before < 65535 ? y.before : 65535),
                              .threads = threads};
    WEFT_TRY(weft_cuda_launch(x, wide ? WEFT_CUDA_run_sums_8 : WEFT_CUDA_run_sums_1, grid,
                              &a));
    return weft_cuda_launch(x, wide ? WEFT_CUDA_run_merge_8 : WEFT_CUDA_run_merge_1, grid,
                            &a);
}

static size_t add_scratch(const weft_kernel_call *c, around y)
{
    int64_t n = weft_shape_count(&c->in[1].shape);
    return weft_cuda_sort_bytes(n) +
           sizeof(float) * (size_t)(2 * count_pieces(n) * y.before * y.behind);
}

/* The rows of a number are summed first and then added once to what is there. */
CUDA_RUN(embedding_grad)
{
    const weft_view *y = &c->out[0], *base = c->n_own_in > 2 ? &c->in[2] : NULL;
    if (base && base->p != y->p)
        WEFT_TRY(weft_cuda_adds(c, 0) ? weft_cuda_merge(x, y, base)
                                      : weft_cuda_copy(x, y, base));
    if (!base && !weft_cuda_adds(c, 0)) WEFT_TRY(weft_cuda_fill(x, y, 0));
    return add_rows(c, x, split_at(&y->shape, 0), weft_cuda_attr(c, "pad")->i);
}
CUDA_SCRATCH(embedding_grad)
{
    (void)n_thread;
    return add_scratch(c, split_at(&c->out[0].shape, 0));
}

CUDA_RUN(scatter_add)
{
    const weft_view *y = &c->out[0];
    WEFT_TRY(weft_cuda_fill(x, y, 0));
    return add_rows(c, x, split_at(&y->shape, weft_cuda_attr(c, "axis")->i), -1);
}
CUDA_SCRATCH(scatter_add)
{
    (void)n_thread;
    return add_scratch(c, split_at(&c->out[0].shape, weft_cuda_attr(c, "axis")->i));
}
