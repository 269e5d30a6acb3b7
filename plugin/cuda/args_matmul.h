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

/* x (rows,k) by w (experts; k and n in any order), or x and dy (rows,n) to dw; offsets (experts + 1). */
typedef struct weft_cuda_grouped_args {
    const void *x, *w, *offsets;
    void       *y;
    int32_t     x_dtype, w_dtype, offsets_dtype, y_dtype;
    int32_t     add;
    int64_t     rows, k, n, experts;
    int64_t     w_k, w_n; /* steps of an expert's matrix along k and n */
    int64_t     n_column_tile;
} weft_cuda_grouped_args;

#endif
