/* Arguments of kernels: plain structs, filled by ops/ on the host and passed by value to
 * kernels/ on the device. */
#ifndef WEFT_CUDA_ARGS_H
#define WEFT_CUDA_ARGS_H

#include <stdint.h>

enum {
    WEFT_CUDA_MAX_DIM = 8
};

/* A view on the device; strides in elements, 0: spread.  dtype: a weft_dtype. */
typedef struct weft_cuda_view {
    void   *p;
    int32_t dtype;
    int32_t n_dim;
    int64_t d[WEFT_CUDA_MAX_DIM];
    int64_t stride[WEFT_CUDA_MAX_DIM];
} weft_cuda_view;

typedef struct weft_cuda_fill_args {
    weft_cuda_view y;
    int64_t        n; /* elements */
    double         value;
} weft_cuda_fill_args;

typedef struct weft_cuda_zero_args {
    void   *y;
    int64_t n; /* units of 16 bytes */
} weft_cuda_zero_args;

#include "args_elem.h"
#include "args_fp8.h"
#include "args_matmul.h"
#include "args_attention.h"
#include "args_norm.h"
#include "args_peer.h"
#include "args_update.h"
#include "args_loss.h"
#include "args_moe.h"
#include "args_rotary.h"
#include "args_table.h"
#include "args_terms.h"
#include "args_vision.h"

#endif
