/* Numbers in order, on the device. */
#ifndef WEFT_CUDA_SORT_H
#define WEFT_CUDA_SORT_H

#include "cuda_priv.h"

typedef struct weft_cuda_sort {
    const weft_view *idx; /* contiguous */
    /* keys are numbers minus first, where this is one of [lo, hi) and the number is not skip;
     * others' are n_key */
    int64_t first, lo, hi, skip, n_key;
    /* results: keys in order, and the index of each in idx; equal ones stay in order */
    const uint32_t *key, *from;
} weft_cuda_sort;

size_t      weft_cuda_sort_bytes(int64_t n); /* of scratch, a multiple of 256 */
weft_status weft_cuda_sort_run(weft_cuda_sort *s, const weft_kernel_ctx *x,
                               void *scratch);

#endif
