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
    for (; j < n; j++) tmp[j] = weft_bf16_widen(h[j * cs]);
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
    for (; j < n; j++) h[j * cs] = weft_bf16_round(x[j]);
}

static char *at(const void *p, weft_dtype t, int64_t index)
{
    return (char *)(uintptr_t)p + index * (t == WEFT_DTYPE_F32 ? 4 : 2);
}

/* ---- a few vectors of a row, in registers ---------------------------------------------- */

enum {
    SOME = 4 /* vectors that go through the steps together */
};

#define EACH(v) _Pragma("GCC unroll 4") for (int v = 0; v < V; v++)

/* V vectors with n elements; only the last may have fewer than VW. */
VFN void some_read(int V, vf *x, const void *p, weft_dtype t, int64_t cs, int64_t n)
{
    float        tmp[SOME * VW];
    const float *f = row_read(p, t, cs, n, tmp);

    if (n == V * VW)
        EACH(v) x[v] = vf_load(f + v * VW);
    else
        EACH(v) x[v] = vf_load_n(f + v * VW, n - v * VW);
}

VFN void some_write(int V, const vf *x, void *p, weft_dtype t, int64_t cs, int64_t n)
{
    float tmp[SOME * VW];

    if (n == V * VW && cs == 1) {
        if (t == WEFT_DTYPE_F32)
            EACH(v) vf_store((float *)p + v * VW, x[v]);
        else
            EACH(v) vf_store_bf16((uint16_t *)p + v * VW, x[v]);
        return;
    }
    EACH(v) vf_store(tmp + v * VW, x[v]);
    row_write(p, t, cs, n, tmp);
}

/* As if x had been stored in bf16 and read again. */
VFN void some_round(int V, vf *x)
{
    uint16_t h[VW];

    EACH(v)
    {
        vf_store_bf16(h, x[v]);
        x[v] = vf_load_bf16(h);
    }
}

#define MAP(expr)                                                                        \
    EACH(v)                                                                              \
    {                                                                                    \
        vf vx = x[v], vu = u[v];                                                         \
        (void)vx, (void)vu;                                                              \
        x[v] = (expr);                                                                   \
    }                                                                                    \
    break

VFN void some_step(int V, weft_post_kind kind, vf *x, const vf *u)
{
    switch (kind) {
    case WEFT_POST_ADD: MAP(vf_add(vx, vu));
    case WEFT_POST_MUL: MAP(vf_mul(vx, vu));
    case WEFT_POST_GELU_TANH: MAP(vf_gelu_tanh(vx));
    case WEFT_POST_GELU_ERF: MAP(vf_gelu_erf(vx));
    case WEFT_POST_SILU: MAP(vf_silu(vx));
    case WEFT_POST_RELU: MAP(vf_relu(vx));
    case WEFT_POST_TANH: MAP(vf_tanh(vx));
    case WEFT_POST_GELU_TANH_GRAD: MAP(vf_mul(vx, vf_gelu_tanh_grad(vu)));
    case WEFT_POST_GELU_ERF_GRAD: MAP(vf_mul(vx, vf_gelu_erf_grad(vu)));
    case WEFT_POST_SILU_GRAD: MAP(vf_mul(vx, vf_silu_grad(vu)));
    case WEFT_POST_RELU_GRAD: MAP(vf_mul(vx, vf_relu_grad(vu)));
    case WEFT_POST_TANH_GRAD: MAP(vf_mul(vx, vf_fnma(vu, vu, vf_set1(1.0f))));
    case WEFT_POST_STORE:
    case WEFT_N_POST: break;
    }
}

/* Columns [j, j + n) of row r.  Between two steps a number is rounded as it would be on its way
 * through memory, so that what is fused with what changes no bit. */
VFN void some(int V, const weft_kernel__gemm_rows *b, int r, int64_t j, int64_t n)
{
    const weft_gemm *g    = b->g;
    const int64_t    i    = b->i + r;
    float           *part = b->part ? b->part + i * b->ld_part + b->j + j : NULL;
    char    *c = at(g->c, g->tc, b->batch * g->c_bs + i * g->c_rs + (b->j + j) * g->c_cs);
    const vf alpha = vf_set1(g->alpha);
    vf       x[SOME], u[SOME];

    EACH(v) x[v] = vf_load(b->sum + r * b->ld_sum + j + v * VW);
    if (!b->first || g->accumulate) {
        if (part && !b->first)
            some_read(V, u, part, WEFT_DTYPE_F32, 1, n);
        else
            some_read(V, u, c, g->tc, g->c_cs, n);
        EACH(v) x[v] = vf_fma(alpha, x[v], u[v]);
    } else if (g->alpha != 1.0f) {
        EACH(v) x[v] = vf_mul(alpha, x[v]);
    }
    if (!b->last) {
        some_write(V, x, part ? (void *)part : c, WEFT_DTYPE_F32, 1, n);
        return;
    }
    for (int s = 0; s < g->n_post; s++) {
        const weft_gemm_post *q = g->post + s;
        char *p = at(q->p, q->dtype, b->batch * q->bs + i * q->rs + (b->j + j) * q->cs);
        if (g->tc == WEFT_DTYPE_BF16) some_round(V, x);
        if (q->kind == WEFT_POST_STORE) {
            some_write(V, x, p, q->dtype, q->cs, n);
            continue;
        }
        if (q->p)
            some_read(V, u, p, q->dtype, q->cs, n);
        else
            EACH(v) u[v] = x[v];
        some_step(V, q->kind, x, u);
    }
    some_write(V, x, c, g->tc, g->c_cs, n);
}

__attribute__((unused)) static void finish(const weft_kernel__gemm_rows *b)
{
    for (int r = 0; r < b->rows; r++) {
        int64_t j = 0;
        for (; j + SOME * VW <= b->cols; j += SOME * VW) some(SOME, b, r, j, SOME * VW);
        for (; j < b->cols; j += VW) some(1, b, r, j, gemm_min(VW, b->cols - j));
    }
}

#endif
