/* Arguments of experts: routing, rows sorted by expert, and the way back. */
#ifndef WEFT_CUDA_ARGS_MOE_H
#define WEFT_CUDA_ARGS_MOE_H

/* A warp a row of n logits. */
typedef struct weft_cuda_route_args {
    const void    *logits;
    void          *w;   /* NULL: not kept */
    int32_t       *idx; /* NULL: not kept */
    int64_t        rows, n, k;
    int32_t        logits_dtype, w_dtype;
    const void    *bias; /* of each expert, for the choice alone; NULL: none */
    int32_t        bias_dtype;
    int32_t        norm;   /* weights sum to 1 */
    weft_cuda_view chosen; /* the gradient: idx of the forward pass */
    const void    *dw;
    void          *dlogits;
    int32_t        dw_dtype, dlogits_dtype;
} weft_cuda_route_args;

/* src and offsets of sorted numbers: key, from. */
typedef struct weft_cuda_offsets_args {
    const uint32_t *key, *from;
    int32_t        *src, *offsets; /* NULL: not kept */
    int64_t         n, experts;
} weft_cuda_offsets_args;

typedef struct weft_cuda_own_offsets_args {
    const int32_t *table; /* (parts, experts + 1) */
    int32_t       *offsets;
    int64_t        parts, experts, first, end;
} weft_cuda_own_offsets_args;

/* inv[src[r]] = r */
typedef struct weft_cuda_invert_args {
    weft_cuda_view src;
    int32_t       *inv;
    int64_t        n;
} weft_cuda_invert_args;

/* y[token] = sum over its k slots of w rows[inv]; w NULL: of the rows */
typedef struct weft_cuda_combine_args {
    const void    *rows, *w;
    void          *y;
    const int32_t *inv;
    int64_t        n, k, d;
    int32_t        rows_dtype, w_dtype, y_dtype;
} weft_cuda_combine_args;

/* drows[r] = w dy[token], dw = dy[token].rows[r]: a warp a row */
typedef struct weft_cuda_combine_grad_args {
    const void    *dy, *rows, *w;
    weft_cuda_view src;
    void          *drows, *dw; /* NULL: not kept */
    int64_t        n, k, d;    /* n: rows */
    int32_t        dy_dtype, rows_dtype, w_dtype, drows_dtype, dw_dtype;
} weft_cuda_combine_grad_args;

#endif
