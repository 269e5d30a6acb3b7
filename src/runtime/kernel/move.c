/* copy and merge: instructions of programs that are no operators. */
#include <string.h>

#include "kernel/cpu_priv.h"
#include "tensor/bf16.h"

/* ---- copy: any strides, the same shape ---- */

static void copy_dims(const weft_view *from, const weft_view *to, int d, const char *x,
                      char *y)
{
    size_t  size = (size_t)weft_dtype_bytes(from->dtype);
    int64_t n    = from->shape.d[d];
    int64_t dx = from->stride[d] * (int64_t)size, dy = to->stride[d] * (int64_t)size;
    if (d == from->shape.n - 1 && from->stride[d] == 1 && to->stride[d] == 1) {
        memcpy(y, x, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++, x += dx, y += dy) {
        if (d == from->shape.n - 1)
            memcpy(y, x, size);
        else
            copy_dims(from, to, d + 1, x, y);
    }
}

weft_status weft_kernel__run_copy(const weft_kernel_ctx *x, const weft_view *to,
                                  const weft_view *from)
{
    int64_t n = weft_shape_count(&from->shape);
    (void)x;
    if (!n) return WEFT_OK;
    if (weft_view_contiguous(from) && weft_view_contiguous(to))
        memcpy(to->p, from->p, (size_t)n * (size_t)weft_dtype_bytes(from->dtype));
    else
        copy_dims(from, to, 0, from->p, to->p);
    return WEFT_OK;
}

/* ---- merge: to += from, both without gaps ---- */

enum {
    GRAIN = 1 << 15
};

typedef struct merge {
    const weft_view *to, *from;
    int64_t          n;
} merge;

#define ADD(type)                                                                        \
    for (int64_t i = lo; i < hi; i++)                                                    \
    ((type *)m->to->p)[i] += ((const type *)m->from->p)[i]

static void merge_task(void *arg, int64_t task, int thread)
{
    const merge *m  = arg;
    int64_t      lo = task * GRAIN, hi = m->n - lo < GRAIN ? m->n : lo + GRAIN;
    (void)thread;
    switch (m->to->dtype) {
    case WEFT_DTYPE_F32: ADD(float); break;
    case WEFT_DTYPE_F64: ADD(double); break;
    case WEFT_DTYPE_I32:
    case WEFT_DTYPE_U32: ADD(uint32_t); break;
    case WEFT_DTYPE_I64:
    case WEFT_DTYPE_U64: ADD(uint64_t); break;
    default: {
        uint16_t       *y = m->to->p;
        const uint16_t *x = m->from->p;
        for (int64_t i = lo; i < hi; i++)
            y[i] = weft_bf16_round(weft_bf16_widen(y[i]) + weft_bf16_widen(x[i]));
    }
    }
}

static bool can_add(weft_dtype t)
{
    return t == WEFT_DTYPE_F32 || t == WEFT_DTYPE_F64 || t == WEFT_DTYPE_BF16 ||
           t == WEFT_DTYPE_I32 || t == WEFT_DTYPE_U32 || t == WEFT_DTYPE_I64 ||
           t == WEFT_DTYPE_U64;
}

weft_status weft_kernel__run_merge(const weft_kernel_ctx *x, const weft_view *to,
                                   const weft_view *from)
{
    merge m = {.to = to, .from = from, .n = weft_shape_count(&from->shape)};
    if (!can_add(to->dtype))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s values cannot be summed",
                         weft_dtype_name(to->dtype));
    weft_pool_run(x->pool, (m.n + GRAIN - 1) / GRAIN, merge_task, &m);
    return WEFT_OK;
}
