/* A matmul call as products of row-major matrices that cublasLt can take: what ops/product.c
 * issues.
 *
 *     D (m,n) = epilogue(alpha A (m,k) B (k,n) + beta C (m,n) + bias (n))          for each of
 *     `batch`, for each loop
 *
 * The plan depends on types, shapes, strides and attributes alone. */
#ifndef WEFT_CUDA_PRODUCT_H
#define WEFT_CUDA_PRODUCT_H

#include "kernel/kernel.h"
#include "library.h"

enum { /* operands */
    PRODUCT_A,
    PRODUCT_B,
    PRODUCT_C, /* what is added: D itself, or a residual */
    PRODUCT_D,
    PRODUCT_AUX, /* values before gelu: stored by the forward pass, read by the gradient */
    N_PRODUCT_OPERAND
};

enum {
    PRODUCT_MAX_LOOP = 6,
    PRODUCT_MAX_PART = 8
};

/* Strides in elements; a dimension of size 1 may have any. */
typedef struct weft_cuda_product {
    int64_t m, n, k, batch;
    int64_t row[N_PRODUCT_OPERAND], col[N_PRODUCT_OPERAND];
    int64_t batch_stride[N_PRODUCT_OPERAND];
    /* NULL: there is none */
    const weft_view *view[N_PRODUCT_OPERAND];
    const weft_view *bias;
    /* of A's rows and B's columns, which are multiplied by them; NULL: they are not */
    const float *unit[2];
    int          epilogue; /* WEFT_BLAS_EPILOGUE_.. */
    float        alpha, beta;
    /* dimensions that are no run with others; the summed ones last */
    int     n_loop, n_sum_loop;
    int64_t loop_size[PRODUCT_MAX_LOOP];
    int64_t loop_stride[PRODUCT_MAX_LOOP][N_PRODUCT_OPERAND];
    int     n_ridden; /* steps after the product that the epilogue does */
} weft_cuda_product;

/* A part of the product: [m0, m0 + m) and so on.  Odd sizes are cut into a multiple of 64 and the
 * rest, since cublasLt is several times slower where a contiguous dimension is no multiple of 8. */
typedef struct weft_cuda_product_part {
    int64_t m0, n0, k0, m, n, k;
    /* along k: the first adds C, the others D; the last has the epilogue */
    bool first, last;
} weft_cuda_product_part;

/* Of a matrix with these strides: its columns are contiguous, not its rows. */
bool weft_cuda_product_turned(int64_t rows, int64_t cols, int64_t row, int64_t col);

/* Prepares products of a plan that is borrowed, in a workspace of so many bytes at the beginning of
 * the scratch; unfolds: the call's steps follow as own kernels.  For weft_cuda_run_product() and
 * weft_cuda_release_product(), which take *out.  WEFT_ERR_NOFIT: cublasLt has no algorithm. */
weft_status weft_cuda_product_prepare(const weft_cuda_product *p, bool unfolds,
                                      size_t workspace_bytes, const weft_kernel_ctx *x,
                                      weft_arena *arena, void **out);

/* ride: all steps by the epilogue; otherwise none, and D holds the product itself.  false:
 * cublasLt cannot take the call so.  p borrows the views of c. */
bool weft_cuda_product_plan(const weft_kernel_call *c, bool ride, weft_cuda_product *p);

/* At most PRODUCT_MAX_PART parts, in the order in which they run; gives their number. */
int weft_cuda_product_parts(const weft_cuda_product *p, weft_cuda_product_part *part);

#endif
