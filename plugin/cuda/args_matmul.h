/* Arguments of the plain products. */
#ifndef WEFT_CUDA_ARGS_MATMUL_H
#define WEFT_CUDA_ARGS_MATMUL_H

enum {
    WEFT_CUDA_TILE         = 64, /* rows and columns of a block */
    WEFT_CUDA_GROUPED_TILE = 128 /* the same, of tensor cores */
};

/* Letters of a spec in four groups; operands of each: a, b, y. */
typedef struct weft_cuda_matmul_args {
    weft_cuda_nd batch, rows, columns, summed;
    const void  *a, *b;
    void        *y;
    int32_t      a_dtype, b_dtype, y_dtype;
    int32_t      add;
    int64_t      n_row_tile, n_column_tile;
} weft_cuda_matmul_args;

/* x (rows,k) by w (experts; k and n in any order), or x and dy (rows,n) to dw; offsets (experts
 * + 1). */
typedef struct weft_cuda_grouped_args {
    const void *x, *w, *offsets;
    void       *y;
    int32_t     x_dtype, w_dtype, offsets_dtype, y_dtype;
    int32_t     add;
    int64_t     rows, k, n, experts;
    int64_t     w_k, w_n; /* steps of an expert's matrix along k and n */
    int64_t     n_column_tile;
} weft_cuda_grouped_args;

/* ---- products by warpgroups ---- */

enum {
    WEFT_CUDA_WGMMA_M       = 128, /* of a block's tile */
    WEFT_CUDA_WGMMA_N       = 256,
    WEFT_CUDA_WGMMA_STAGES  = 4,
    WEFT_CUDA_WGMMA_THREADS = 384,
    /* shared memory: stages of 64 along k, results on their way out, barriers, alignment */
    WEFT_CUDA_WGMMA_BYTES =
        WEFT_CUDA_WGMMA_STAGES * (WEFT_CUDA_WGMMA_M + WEFT_CUDA_WGMMA_N) * 128 +
        8 * 16 * 144 + WEFT_CUDA_WGMMA_STAGES * 16 + 1024,
    WEFT_CUDA_WGMMA_MAX_STEP = 6
};

/* What the driver makes of a tensor's address, sizes and box: see cuTensorMapEncodeTiled. */
typedef struct weft_cuda_tensor_map {
    uint64_t word[16];
} __attribute__((aligned(64))) weft_cuda_tensor_map;

/* On a product in bf16: STORE it to p, or ADD, MUL, SILU, SILU_GRAD with what is there.  Shapes
 * are the product's, without gaps. */
typedef struct weft_cuda_wgmma_step {
    void   *p;
    int32_t kind; /* weft_cuda_map_kind */
} weft_cuda_wgmma_step;

/* left: rows (k, rows), right: weights (k, n, experts) or (n, k, experts); the product goes
 * through the steps. The gradient of weights: left (m, rows), right (n, rows), y (experts, m,
 * n) in f32. */
typedef struct weft_cuda_wgmma_args {
    weft_cuda_tensor_map left, right;
    const void          *offsets;
    float               *y;
    int32_t              offsets_dtype;
    int32_t              add;
    int32_t              rows, experts;
    int32_t              m, n, k;
    int32_t              n_step;
    weft_cuda_wgmma_step step[WEFT_CUDA_WGMMA_MAX_STEP];
} weft_cuda_wgmma_args;

#endif
