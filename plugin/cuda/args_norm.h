/* Arguments of norms, softmax and reductions. */
#ifndef WEFT_CUDA_ARGS_NORM_H
#define WEFT_CUDA_ARGS_NORM_H

enum {
    WEFT_CUDA_ROW_WARPS = 4 /* warps of a block, where a row is a warp's */
};

/* Rows of d.  mean NULL: not kept; b NULL: rms_norm. */
typedef struct weft_cuda_norm_args {
    const void *x, *w, *b;
    void       *y;
    float      *mean, *rstd;
    int32_t     x_dtype, w_dtype, b_dtype, y_dtype;
    int32_t     rms;
    int32_t     row_threads; /* threads of a row */
    int64_t     rows, d;
    float       eps;
} weft_cuda_norm_args;

/* mean NULL: rms_norm.  part (n_part, n_sum, d): over groups of rows the sums of dy h, of dy
 * (not of rms_norm) and, where asked for, of the result. */
typedef struct weft_cuda_norm_grad_args {
    const void *dy, *x, *w;
    const void *residual; /* added to dx as it would be stored; of its type; NULL: none */
    const float *mean, *rstd;
    void        *dx; /* NULL: not kept */
    float       *part;
    int32_t      dy_dtype, x_dtype, w_dtype, dx_dtype;
    int32_t      rms, add, sums;
    int64_t      rows, d, n_part, n_sum;
} weft_cuda_norm_grad_args;

/* Rows of d: softmax of x, or its gradient from dy (x) and y. */
typedef struct weft_cuda_softmax_args {
    const void *x, *y;
    void       *out;
    int32_t     x_dtype, y_dtype, out_dtype;
    int64_t     rows, d;
} weft_cuda_softmax_args;

typedef enum weft_cuda_reduce_kind {
    WEFT_CUDA_REDUCE_SUM,
    WEFT_CUDA_REDUCE_MAX
} weft_cuda_reduce_kind;

/* Of part (n_part, n_result, y.count): results, each over all parts in order. */
typedef struct weft_cuda_fold_args {
    const float *part;
    int64_t      n_part;
    int32_t      n_result, kind;
    weft_cuda_nd y;         /* operand 0: of every result */
    void        *result[3]; /* NULL: not kept */
    int32_t      dtype[3], add[3];
    float        scale;
} weft_cuda_fold_args;

/* kept: operands x, y; gone: operand x.  Parts of the gone elements have sums of their own. */
typedef struct weft_cuda_reduce_args {
    weft_cuda_nd kept, gone;
    const void  *x;
    void        *y;
    float       *part; /* (n_part, kept) where n_part > 1 */
    int32_t      x_dtype, y_dtype;
    int32_t      kind, add;
    int64_t      n_part;
    float        scale;
} weft_cuda_reduce_args;

#endif
