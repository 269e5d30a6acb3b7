/* Rows of any storage as floats, and the choice of inner loops. */
#include "kernel/rows.h"

#include "kernel/isa.h"
#include "kernel/vec.h"

const weft_kernel__rows *weft_kernel__rows_now(void)
{
#if defined(__x86_64__)
    switch (weft_kernel_isa()) {
    case WEFT_ISA_AVX512: return &weft_kernel__rows_avx512;
    case WEFT_ISA_AVX2: return &weft_kernel__rows_avx2;
    default: break;
    }
#endif
    return &weft_kernel__rows_plain;
}

const float *weft_kernel__read(const void *p, weft_dtype t, int64_t at, int64_t step,
                               int64_t n, float *tmp)
{
    if (t == WEFT_DTYPE_F32) {
        const float *f = (const float *)p + at;
        if (step == 1) return f;
        for (int64_t i = 0; i < n; i++) tmp[i] = f[i * step];
        return tmp;
    }
    const uint16_t *h = (const uint16_t *)p + at;
    if (step == 1)
        weft_kernel__rows_now()->widen(tmp, h, n);
    else
        for (int64_t i = 0; i < n; i++) tmp[i] = weft_bf16_widen(h[i * step]);
    return tmp;
}

void weft_kernel__write(void *p, weft_dtype t, int64_t at, int64_t step, int64_t n,
                        const float *x, int add)
{
    if (t == WEFT_DTYPE_F32) {
        float *f = (float *)p + at;
        if (f == x && step == 1) return;
        if (step != 1)
            for (int64_t i = 0; i < n; i++) f[i * step] = add ? f[i * step] + x[i] : x[i];
        else if (add)
            weft_kernel__rows_now()->map[MAP_ADD](f, f, x, 0, n);
        else
            memcpy(f, x, (size_t)n * sizeof *f);
        return;
    }
    uint16_t *h = (uint16_t *)p + at;
    if (step == 1 && !add) {
        weft_kernel__rows_now()->narrow(h, x, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        h[i * step] = weft_bf16_round(add ? weft_bf16_widen(h[i * step]) + x[i] : x[i]);
}

double weft_kernel__scalar(const weft_view *v)
{
    switch (v->dtype) {
    case WEFT_DTYPE_F32: return (double)*(const float *)v->p;
    case WEFT_DTYPE_F64: return *(const double *)v->p;
    case WEFT_DTYPE_BF16: return (double)weft_bf16_widen(*(const uint16_t *)v->p);
    case WEFT_DTYPE_I32: return (double)*(const int32_t *)v->p;
    case WEFT_DTYPE_U32: return (double)*(const uint32_t *)v->p;
    default: return (double)*(const int64_t *)v->p;
    }
}

const weft_attr *weft_kernel__attr(const weft_kernel_call *c, const char *name)
{
    int i = weft_op_attr_index(c->op, name);
    return c->attr + i;
}
