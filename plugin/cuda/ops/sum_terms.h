/* Sums over ranks on the device, for all communication backends: the order of comm/sum.c.
 *
 *     weft_cuda_sum_terms(ctx, WEFT_DTYPE_F32, 4, in, NULL, out, count, NULL);
 *
 * adds (0 + 1) + (2 + 3). */
#ifndef WEFT_CUDA_SUM_TERMS_H
#define WEFT_CUDA_SUM_TERMS_H

#include "cuda_priv.h"

/* out = in[0..n-1] added, count elements that lie together, f32 or bf16; out may be one of them.
 * level: each is a sum of 2^level leaves already; NULL: single ones.  stop: 32 bits
 * of device memory, NULL none; not 0 when the kernel starts: it writes nothing.  Of x only the
 * queue is used. */
weft_status weft_cuda_sum_terms(const weft_kernel_ctx *x, weft_dtype t, int n,
                                const void *const *in, const int *level, void *out,
                                int64_t count, const uint32_t *stop);

#endif
