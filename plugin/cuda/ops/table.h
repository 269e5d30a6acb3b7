/* Rows of tables, for other operators. */
#ifndef WEFT_CUDA_TABLE_H
#define WEFT_CUDA_TABLE_H

#include "cuda_priv.h"

/* to[r, :] = from[idx[r] / divide, :]; zeros where the number is below 0. */
weft_status weft_cuda_take_rows(const weft_kernel_ctx *x, const weft_view *to,
                                const weft_view *from, const weft_view *idx,
                                int64_t divide);

#endif
