/* Sums over ranks, on the device: terms of one tensor that are in its memory. */
#include "ops/sum_terms.h"

static bool is_aligned(int n, const void *const *in, const void *out)
{
    uintptr_t all = (uintptr_t)out;
    for (int t = 0; t < n; t++) all |= (uintptr_t)in[t];
    return all % 16 == 0;
}

/* n is a power of two that has a kernel of its own, and all are of one level. */
static bool is_even(int n, const int *level)
{
    for (int t = 1; t < n; t++)
        if (level && level[t] != level[0]) return false;
    return n == 2 || n == 4 || n == 8;
}

static weft_status add_few(const weft_kernel_ctx *x, const weft_cuda_few_terms_args *a)
{
    weft_cuda_kernel k = a->n_term == 2   ? WEFT_CUDA_terms_2
                         : a->n_term == 4 ? WEFT_CUDA_terms_4
                                          : WEFT_CUDA_terms_8;
    return weft_cuda_launch(x, k, weft_cuda_grid_1d((a->n + 7) / 8, 256), a);
}

weft_status weft_cuda_sum_terms(const weft_kernel_ctx *x, weft_dtype t, int n,
                                const void *const *in, const int *level, void *out,
                                int64_t count, const uint32_t *stop)
{
    weft_cuda_terms_args a;
    bool                 aligned = is_aligned(n, in, out);
    if (n < 1 || n > WEFT_CUDA_MAX_TERM || (t != WEFT_DTYPE_F32 && t != WEFT_DTYPE_BF16))
        return WEFT_FAIL(WEFT_ERR_ARG, "a sum of %d terms of %s on the device", n,
                         weft_dtype_name(t));
    if (aligned && is_even(n, level)) {
        weft_cuda_few_terms_args few = {
            .out = out, .stop = stop, .n = count, .dtype = (int32_t)t, .n_term = n};
        for (int i = 0; i < n; i++) few.in[i] = in[i];
        return add_few(x, &few);
    }
    a.out    = out;
    a.stop   = stop;
    a.n      = count;
    a.dtype  = (int32_t)t;
    a.n_term = n;
    for (int i = 0; i < n; i++) {
        a.in[i]    = in[i];
        a.level[i] = (uint8_t)(level ? level[i] : 0);
    }
    for (int i = n; i < WEFT_CUDA_MAX_TERM; i++) a.in[i] = NULL, a.level[i] = 0;
    return aligned ? weft_cuda_launch(x, WEFT_CUDA_terms_any,
                                      weft_cuda_grid_1d((count + 7) / 8, 256), &a)
                   : weft_cuda_launch(x, WEFT_CUDA_terms_single,
                                      weft_cuda_grid_1d(count, 256), &a);
}
