/* The end of a product's row block: adds to C, does the steps, stores.  Written over vec.h and
 * compiled once for each instruction set.  In: sums in f32.  Out: rows of C, in C's type. */
#ifndef WEFT_KERNEL_GEMM_FINISH_H
#define WEFT_KERNEL_GEMM_FINISH_H

#include "kernel/gemm_priv.h"
#include "kernel/vmath.h"

/* n elements of a row as floats: the row itself where it is such, else a copy in tmp. */
static const float *row_read(const void *p, weft_dtype t, int64_t cs, int64_t n,
                             float *tmp)
{
    const uint16_t *h = p;
    const float    *f = p;
    int64_t         j = 0;

    if (t == WEFT_DTYPE_F32) {
        if (cs == 1) return f;
        for (; j < n; j++) tmp[j] = f[j * cs];
        return tmp;
    }
    if (cs == 1)
        for (; j + VW <= n; j += VW) vf_store(tmp + j, vf_load_bf16(h + j));
    for (; j < n; j++) tmp[j] = bf16_widen(h[j * cs]);
    return tmp;
}

static void row_write(void *p, weft_dtype t, int64_t cs, int64_t n, const float *x)
{
    uint16_t *h = p;
    float    *f = p;
    int64_t   j = 0;

    if (t == WEFT_DTYPE_F32) {
        if (cs == 1)
            for (; j + VW <= n; j += VW) vf_store(f + j, vf_load(x + j));
        for (; j < n; j++) f[j * cs] = x[j];
        return;
    }
    if (cs == 1)
        for (; j + VW <= n; j += VW) vf_store_bf16(h + j, vf_load(x + j));
    for (; j < n; j++) h[j * cs] = bf16_round(x[j]);
}

/* As if x had been stored in bf16 and read again; x is padded to whole vectors. */
static void row_round(float *x, int64_t n)
{
    uint16_t h[VW];

    for (int64_t j = 0; j < n; j += VW) {
        vf_store_bf16(h, vf_load(x + j));
        vf_store(x + j, vf_load_bf16(h));
    }
}

/* x[j] = expr, which reads vx and vu, over the row; x is padded to whole vectors, u is not. */
#define ROW_MAP(expr)                                                                    \
    do {                                                                                 \
        for (j = 0; j + VW <= n; j += VW) {                                              \
            vf vx = vf_load(x + j), vu = vf_load(u + j);                                 \
            (void)vx, (void)vu;                                                          \
            vf_store(x + j, (expr));                                                     \
        }                                                                                \
        if (j < n) {                                                                     \
            vf vx = vf_load(x + j), vu = vf_load_n(u + j, n - j);                        \
            (void)vx, (void)vu;                                                          \
            vf_store(x + j, (expr));                                                     \
        }                                                                                \
    } while (0)

static void row_step(weft_post_kind kind, float *x, const float *u, int64_t n)
{
    int64_t j;

    switch (kind) {
    case WEFT_POST_ADD: ROW_MAP(vf_add(vx, vu)); break;
    case WEFT_POST_MUL: ROW_MAP(vf_mul(vx, vu)); break;
    case WEFT_POST_GELU_TANH: ROW_MAP(vf_gelu_tanh(vx)); break;
    case WEFT_POST_GELU_ERF: ROW_MAP(vf_gelu_erf(vx)); break;
    case WEFT_POST_SILU: ROW_MAP(vf_silu(vx)); break;
    case WEFT_POST_RELU: ROW_MAP(vf_relu(vx)); break;
    case WEFT_POST_TANH: ROW_MAP(vf_tanh(vx)); break;
    case WEFT_POST_GELU_TANH_GRAD: ROW_MAP(vf_mul(vx, vf_gelu_tanh_grad(vu))); break;
    case WEFT_POST_GELU_ERF_GRAD: ROW_MAP(vf_mul(vx, vf_gelu_erf_grad(vu))); break;
    case WEFT_POST_SILU_GRAD: ROW_MAP(vf_mul(vx, vf_silu_grad(vu))); break;
    case WEFT_POST_RELU_GRAD: ROW_MAP(vf_mul(vx, vf_relu_grad(vu))); break;
    case WEFT_POST_TANH_GRAD: ROW_MAP(vf_mul(vx, vf_fnma(vu, vu, vf_set1(1.0f)))); break;
    case WEFT_POST_STORE:
    case WEFT_N_POST: break;
    }
}

static char *at(const void *p, weft_dtype t, int64_t index)
{
    return (char *)(uintptr_t)p + index * (t == WEFT_DTYPE_F32 ? 4 : 2);
}

__attribute__((unused)) static void finish(const weft_kernel__gemm_rows *b)
{
    const weft_gemm *g = b->g;
    float            tmp[GEMM_MAX_COLS];
    int64_t          n     = b->cols, j;
    const vf         alpha = vf_set1(g->alpha);

    for (int r = 0; r < b->rows; r++) {
        int64_t i = b->i + r;
        float  *x = b->sum + r * b->ld_sum;
        char   *c = at(g->c, g->tc, b->batch * g->c_bs + i * g->c_rs + b->j * g->c_cs);

        if (b->first ? g->accumulate : 1) {
            const float *u = b->first || !b->part ? row_read(c, g->tc, g->c_cs, n, tmp)
                                                  : b->part + i * b->ld_part + b->j;
            ROW_MAP(vf_fma(alpha, vx, vu));
        } else if (g->alpha != 1.0f) {
            const float *u = x;
            ROW_MAP(vf_mul(alpha, vx));
        }
        if (!b->last) {
            if (b->part)
                memcpy(b->part + i * b->ld_part + b->j, x, (size_t)n * sizeof *x);
            else
                row_write(c, WEFT_DTYPE_F32, 1, n, x);
            continue;
        }
        /* Between two steps a number is rounded as it would be on its way through memory, so
         * that what is fused with what changes no bit. */
        for (int s = 0; s < g->n_post; s++) {
            const weft_gemm_post *q = g->post + s;
            if (g->tc == WEFT_DTYPE_BF16) row_round(x, n);
            char *p = at(q->p, q->dtype, b->batch * q->bs + i * q->rs + b->j * q->cs);
            if (q->kind == WEFT_POST_STORE)
                row_write(p, q->dtype, q->cs, n, x);
            else
                row_step(q->kind, x, q->p ? row_read(p, q->dtype, q->cs, n, tmp) : x, n);
        }
        row_write(c, g->tc, g->c_cs, n, x);
    }
}

#endif
