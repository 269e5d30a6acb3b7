/* Operators that only move elements, and the copies and sums that the executor asks for. */
#include "cuda_priv.h"

enum {
    THREADS = 256
};

static weft_status launch(const weft_kernel_ctx *x, weft_cuda_kernel k,
                          weft_cuda_copy_args *a, int64_t width)
{
    a->nd.count /= width;
    return weft_cuda_launch(x, k, weft_cuda_grid_1d(a->nd.count, THREADS), a);
}

/* The steps of rows that are moved 16 bytes at a time, in such words. */
static void count_words(weft_cuda_nd *nd, int64_t width)
{
    int last = nd->n - 1;
    nd->d[last] /= width;
    for (int o = 0; o < 2; o++)
        for (int k = 0; k < last; k++) nd->step[o][k] /= width;
}

static weft_status move_same(const weft_kernel_ctx *x, weft_cuda_copy_args *a, int bytes)
{
    int64_t width = 16 / bytes;
    if (weft_cuda_nd_vectors(&a->nd, 0, a->to, width, false) &&
        weft_cuda_nd_vectors(&a->nd, 1, a->from, width, false)) {
        count_words(&a->nd, width);
        return launch(x, WEFT_CUDA_move_16, a, width);
    }
    return launch(x,
                  bytes == 1   ? WEFT_CUDA_move_1
                  : bytes == 2 ? WEFT_CUDA_move_2
                  : bytes == 4 ? WEFT_CUDA_move_4
                               : WEFT_CUDA_move_8,
                  a, 1);
}

static weft_status copy(const weft_kernel_ctx *x, const weft_view *to,
                        const weft_view *from, bool add)
{
    weft_cuda_copy_args a = {.to         = to->p,
                             .from       = from->p,
                             .to_dtype   = (int32_t)to->dtype,
                             .from_dtype = (int32_t)from->dtype,
                             .add        = add};
    if (weft_shape_count(&to->shape) == 0) return WEFT_OK;
    weft_cuda_nd_init(&a.nd, &to->shape);
    weft_cuda_nd_add(&a.nd, to);
    weft_cuda_nd_add(&a.nd, from);
    weft_cuda_nd_merge(&a.nd);
    if (to->dtype == from->dtype && !add) {
        bool same = a.nd.n == 1 && a.nd.step[0][0] == a.nd.step[1][0];
        if (to->p == from->p && same) return WEFT_OK;
        return move_same(x, &a, weft_dtype_bytes(to->dtype));
    }
    if (!weft_cuda_is_float(to->dtype) || !weft_cuda_is_float(from->dtype))
        return launch(x, WEFT_CUDA_convert_any, &a, 1);
    if (weft_cuda_nd_vectors(&a.nd, 0, a.to, WEFT_CUDA_VECTOR, false) &&
        weft_cuda_nd_vectors(&a.nd, 1, a.from, WEFT_CUDA_VECTOR, true))
        return launch(x, WEFT_CUDA_convert_8, &a, WEFT_CUDA_VECTOR);
    return launch(x, WEFT_CUDA_convert_1, &a, 1);
}

weft_status weft_cuda_copy(const weft_kernel_ctx *x, const weft_view *to,
                           const weft_view *from)
{
    return copy(x, to, from, false);
}

weft_status weft_cuda_merge(const weft_kernel_ctx *x, const weft_view *to,
                            const weft_view *from)
{
    return copy(x, to, from, true);
}

/* ---- operators ---- */

CUDA_RUN(cast)
{
    return weft_cuda_copy(x, &c->out[0], &c->in[0]);
}

/* One conversion of f32 and bf16 that lie together, read in vectors. */
static bool is_plain_cast(const weft_kernel_call *c)
{
    const weft_view *from = &c->in[0], *to = &c->out[0];
    return weft_cuda_is_float(from->dtype) && weft_cuda_is_float(to->dtype) &&
           weft_view_contiguous(from) && weft_view_contiguous(to) &&
           (uintptr_t)from->p % 16 == 0 && (uintptr_t)to->p % 16 == 0;
}

static weft_status launch_casts(const weft_kernel_ctx *x, weft_cuda_casts_args *a,
                                int64_t *n_block)
{
    weft_cuda_grid grid = {(unsigned)*n_block, 1, 1, THREADS, 0};
    if (a->n_task) WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_casts, grid, a));
    a->n_task = 0;
    *n_block  = 0;
    return WEFT_OK;
}

CUDA_MANY(cast)
{
    weft_cuda_casts_args a       = {0};
    int64_t              n_block = 0;
    for (int i = 0; i < n; i++) {
        const weft_view *from = &c[i]->in[0], *to = &c[i]->out[0];
        if (!is_plain_cast(c[i])) {
            WEFT_TRY(weft_cuda_copy(x, to, from));
            continue;
        }
        if (a.n_task == WEFT_CUDA_MAX_MANY || a.from_dtype != (int32_t)from->dtype ||
            a.to_dtype != (int32_t)to->dtype)
            WEFT_TRY(launch_casts(x, &a, &n_block));
        a.from_dtype       = (int32_t)from->dtype;
        a.to_dtype         = (int32_t)to->dtype;
        int64_t count      = weft_shape_count(&to->shape);
        a.task[a.n_task++] = (weft_cuda_cast_task){
            .to = to->p, .from = from->p, .n = count, .first_block = n_block};
        n_block += weft_cuda_ceil(count, THREADS * WEFT_CUDA_VECTOR);
    }
    return launch_casts(x, &a, &n_block);
}

CUDA_RUN(broadcast)
{
    return weft_cuda_copy(x, &c->out[0], &c->in[0]);
}

CUDA_RUN(reshape)
{
    weft_view from = weft_view_make(c->in[0].p, c->in[0].dtype, &c->out[0].shape);
    return weft_cuda_copy(x, &c->out[0], &from);
}

CUDA_RUN(transpose)
{
    const weft_attr *perm = weft_cuda_attr(c, "perm");
    weft_view        from = c->in[0];
    from.shape            = c->out[0].shape;
    for (int k = 0; k < perm->n; k++) from.stride[k] = c->in[0].stride[perm->l[k]];
    return weft_cuda_copy(x, &c->out[0], &from);
}

static int axis_of(const weft_kernel_call *c, const weft_view *v)
{
    int64_t a = weft_cuda_attr(c, "axis")->i;
    return (int)(a < 0 ? a + v->shape.n : a);
}

CUDA_RUN(concat)
{
    int     axis = axis_of(c, &c->out[0]);
    int64_t at   = 0;
    for (int i = 0; i < c->n_in; i++) {
        int64_t   n  = c->in[i].shape.d[axis];
        weft_view to = weft_cuda_part(&c->out[0], axis, at, n);
        at += n;
        WEFT_TRY(weft_cuda_copy(x, &to, &c->in[i]));
    }
    return WEFT_OK;
}

CUDA_RUN(split)
{
    int     axis = axis_of(c, &c->in[0]);
    int64_t at   = 0;
    for (int j = 0; j < c->n_out; j++) {
        int64_t   n    = c->out[j].shape.d[axis];
        weft_view from = weft_cuda_part(&c->in[0], axis, at, n);
        at += n;
        if (c->out[j].p) WEFT_TRY(weft_cuda_copy(x, &c->out[j], &from));
    }
    return WEFT_OK;
}

CUDA_RUN(slice)
{
    int       axis = axis_of(c, &c->in[0]);
    weft_view from = weft_cuda_part(&c->in[0], axis, weft_cuda_attr(c, "start")->i,
                                    c->out[0].shape.d[axis]);
    return weft_cuda_copy(x, &c->out[0], &from);
}

/* Zeros before and after, so that no element is written twice. */
CUDA_RUN(slice_grad)
{
    const weft_view *y     = &c->out[0];
    int              axis  = axis_of(c, &c->in[0]);
    int64_t          start = weft_cuda_attr(c, "start")->i, n = c->in[0].shape.d[axis];
    weft_view        before = weft_cuda_part(y, axis, 0, start);
    weft_view        part   = weft_cuda_part(y, axis, start, n);
    weft_view after = weft_cuda_part(y, axis, start + n, y->shape.d[axis] - start - n);
    WEFT_TRY(weft_cuda_fill(x, &before, 0));
    WEFT_TRY(weft_cuda_fill(x, &after, 0));
    return weft_cuda_copy(x, &part, &c->in[0]);
}
