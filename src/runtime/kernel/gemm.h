/* Matrix products: C = alpha A B, or C += alpha A B, then a chain of steps on each element.
 *
 *     weft_gemm_post post[] = {{.kind = WEFT_POST_ADD, .p = bias, .cs = 1},
 *                              {.kind = WEFT_POST_STORE, .p = pre, .rs = n, .cs = 1},
 *                              {.kind = WEFT_POST_GELU_TANH}};
 *     weft_gemm g = weft_gemm_make(m, n, k, x, k, 1, w, n, 1, y, n);
 *     g.post = post, g.n_post = 3;
 *     weft_gemm_run(&g, pool, scratch);       scratch: weft_gemm_scratch(&g, n_thread) bytes
 *
 * Any strides, so a transposed operand is two strides exchanged; f32 or bf16 storage (widened
 * when read, rounded to nearest even when stored); sums in f32.
 *
 * The bits of c[i][j] depend on row i of A, column j of B, k and the steps, on nothing else: not
 * on the number of threads, on m or n, on where the element lies, or on the vector instructions.
 * The sum: k is cut into blocks of at most 512 (sizes from k alone); within a block one fma after
 * the other from zero; two blocks are added into a chunk; the chunks, times alpha, are added to C
 * in order by fma. */
#ifndef WEFT_KERNEL_GEMM_H
#define WEFT_KERNEL_GEMM_H

#include "base/pool.h"
#include "weft/tensor.h"

/* x is the value so far, u = p[i][j]; done in order on each element after its last sum. */
typedef enum weft_post_kind {
    WEFT_POST_ADD,   /* x + u: a residual; rs = 0 makes it a bias for each column */
    WEFT_POST_MUL,   /* x u */
    WEFT_POST_STORE, /* u = x, rounded to p's type; x goes on as C's type has it */
    WEFT_POST_GELU_TANH,
    WEFT_POST_GELU_ERF,
    WEFT_POST_SILU,
    WEFT_POST_RELU,
    WEFT_POST_TANH,
    WEFT_POST_GELU_TANH_GRAD, /* x gelu'(u), u the value before the activation */
    WEFT_POST_GELU_ERF_GRAD,
    WEFT_POST_SILU_GRAD,
    WEFT_POST_RELU_GRAD,
    WEFT_POST_TANH_GRAD, /* x (1 - u^2), u = tanh of it, as the operator has it */
    WEFT_N_POST
} weft_post_kind;

typedef struct weft_gemm_post {
    weft_post_kind kind;
    void          *p; /* read, or written by STORE; must not overlap C (see accumulate) */
    weft_dtype     dtype; /* F32 or BF16 */
    int64_t        rs, cs, bs;
} weft_gemm_post;

/* One product, or `batch` of them.  Strides in elements: _rs from row to row, _cs from column to
 * column, _bs from one product of the batch to the next.  C must not overlap A or B. */
typedef struct weft_gemm {
    int64_t               batch, m, n, k; /* any may be 0; k = 0 gives C = 0 */
    const void           *a;              /* (m,k) */
    const void           *b;              /* (k,n) */
    void                 *c;              /* (m,n) */
    weft_dtype            ta, tb, tc;     /* F32 or BF16 */
    int64_t               a_rs, a_cs, a_bs;
    int64_t               b_rs, b_cs, b_bs;
    int64_t               c_rs, c_cs, c_bs;
    float                 alpha;
    int                   accumulate; /* 0: C = .., 1: C += .. */
    const weft_gemm_post *post;
    int                   n_post;
} weft_gemm;

/* f32, batch 1, alpha 1, no accumulation, no steps; C row major. */
weft_gemm weft_gemm_make(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_rs,
                         int64_t a_cs, const float *b, int64_t b_rs, int64_t b_cs,
                         float *c, int64_t c_rs);

/* Bytes of scratch, aligned to 64, for a pool of n_thread.  Never less for a larger m, n, k or
 * batch, so what is enough for the bound of a ragged size is enough for every size. */
size_t weft_gemm_scratch(const weft_gemm *g, int n_thread);

/* Runs the product on the pool (NULL: here).  Allocates nothing. */
void weft_gemm_run(const weft_gemm *g, weft_pool *pool, void *scratch);

/* Several independent products through one task grid, so that small ones (experts with few rows
 * each) keep all threads busy.  No C may overlap another product's operands.  Same bits as one
 * by one. */
size_t weft_gemm_scratch_many(const weft_gemm *g, int n_gemm, int n_thread);
void   weft_gemm_run_many(const weft_gemm *g, int n_gemm, weft_pool *pool, void *scratch);

/* Names the order of sums and the polynomials: equal ids give equal bits, whatever the machine.
 * The vector instructions in use are weft_kernel_isa()'s to tell and change no bit. */
const char *weft_gemm_id(void);

#endif
