/* Inner loops over rows, written once over vec.h; rows_plain.c, rows_avx2.c and rows_avx512.c
 * define ROWS and compile them.
 *
 * A sum over a row keeps LANES partial sums, element i in partial i mod LANES, and folds them in
 * halves: the same bits at every vector width. */
#ifndef WEFT_KERNEL_ROWS_IMPL_H
#define WEFT_KERNEL_ROWS_IMPL_H
#ifdef ROWS

#include "kernel/rows.h"
#include "kernel/vmath.h"

enum {
    LANES = 64,
    NV    = LANES / VW
};

typedef struct lanes {
    vf v[NV];
} lanes;

VFN void lanes_zero(lanes *a)
{
    for (int v = 0; v < NV; v++) a->v[v] = vf_set1(0.0f);
}

/* Folds a vector in halves: lane l and lane l + width / 2. */
VFN float vector_sum(vf x)
{
#if VW == 1
    return x;
#else
#if VW == 16
    __m256 y = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
#else
    __m256 y = x;
#endif
    __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z        = _mm_add_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_add_ss(z, _mm_movehdup_ps(z)));
#endif
}

VFN float lanes_sum(lanes *a)
{
#pragma GCC unroll 8
    for (int w = NV / 2; w > 0; w /= 2)
#pragma GCC unroll 32
        for (int v = 0; v < w; v++) a->v[v] = vf_add(a->v[v], a->v[v + w]);
    return vector_sum(a->v[0]);
}

/* Runs `full` for i over whole vectors, with v = the vector's number among NV, then `part` for a
 * last one of k < VW elements. */
#define EACH_VECTOR(full, part)                                                          \
    do {                                                                                 \
        int64_t i = 0, k;                                                                \
        int     v;                                                                       \
        for (; i + LANES <= n; i += LANES)                                               \
            for (v = 0; v < NV; v++) {                                                   \
                int64_t j = i + v * VW;                                                  \
                full;                                                                    \
            }                                                                            \
        for (v = 0; i + VW <= n; i += VW, v++) {                                         \
            int64_t j = i;                                                               \
            full;                                                                        \
        }                                                                                \
        if ((k = n - i) > 0) {                                                           \
            int64_t j = i;                                                               \
            (void)j;                                                                     \
            part;                                                                        \
        }                                                                                \
        (void)v, (void)k;                                                                \
    } while (0)

/* The same expression for whole and part vectors; LD and ST change their meaning between. */
#define LOAD(p)  vf_load((p) + j)
#define LOADN(p) vf_load_n((p) + j, k)

static void widen(float *y, const uint16_t *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VW <= n; i += VW) vf_store(y + i, vf_load_bf16(x + i));
    for (; i < n; i++) y[i] = weft_bf16_widen(x[i]);
}

static void narrow(uint16_t *y, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VW <= n; i += VW) vf_store_bf16(y + i, vf_load(x + i));
    for (; i < n; i++) y[i] = weft_bf16_round(x[i]);
}

/* ---- element by element ---- */

#define MAP1(name, expr)                                                                 \
    static void name(float *y, const float *a, const float *b, float s, int64_t n)       \
    {                                                                                    \
        int64_t i  = 0;                                                                  \
        vf      vs = vf_set1(s);                                                         \
        (void)b, (void)vs;                                                               \
        for (; i + VW <= n; i += VW) {                                                   \
            vf x = vf_load(a + i);                                                       \
            vf_store(y + i, (expr));                                                     \
        }                                                                                \
        if (i < n) {                                                                     \
            vf x = vf_load_n(a + i, n - i);                                              \
            vf_store_n(y + i, (expr), n - i);                                            \
        }                                                                                \
    }
#define MAP2(name, expr)                                                                 \
    static void name(float *y, const float *a, const float *b, float s, int64_t n)       \
    {                                                                                    \
        int64_t i  = 0;                                                                  \
        vf      vs = vf_set1(s);                                                         \
        (void)vs;                                                                        \
        for (; i + VW <= n; i += VW) {                                                   \
            vf x = vf_load(a + i), u = vf_load(b + i);                                   \
            vf_store(y + i, (expr));                                                     \
        }                                                                                \
        if (i < n) {                                                                     \
            vf x = vf_load_n(a + i, n - i), u = vf_load_n(b + i, n - i);                 \
            vf_store_n(y + i, (expr), n - i);                                            \
        }                                                                                \
    }

MAP2(map_add, vf_add(x, u))
MAP2(map_mul, vf_mul(x, u))
MAP1(map_scale, vf_mul(vs, x))
MAP2(map_axpy, vf_fma(vs, u, x))
MAP1(map_gelu_tanh, vf_gelu_tanh(x))
MAP1(map_gelu_erf, vf_gelu_erf(x))
MAP1(map_silu, vf_silu(x))
MAP1(map_relu, vf_relu(x))
MAP1(map_tanh, vf_tanh(x))
MAP2(map_gelu_tanh_grad, vf_mul(x, vf_gelu_tanh_grad(u)))
MAP2(map_gelu_erf_grad, vf_mul(x, vf_gelu_erf_grad(u)))
MAP2(map_silu_grad, vf_mul(x, vf_silu_grad(u)))
MAP2(map_relu_grad, vf_mul(x, vf_relu_grad(u)))
MAP2(map_tanh_grad, vf_mul(x, vf_fnma(u, u, vf_set1(1.0f))))
MAP1(map_exp_sub, vf_exp(vf_sub(x, vs)))

/* FAR_END: before another thread may look. */
#if VW == 16
#define FAR_STORE(p, x) _mm512_stream_ps(p, x)
#define FAR_END()       _mm_sfence()
#elif VW == 8
#define FAR_STORE(p, x) _mm256_stream_ps(p, x)
#define FAR_END()       _mm_sfence()
#else
#define FAR_STORE(p, x) vf_store(p, x)
#define FAR_END()       (void)0
#endif

static void zero_far(float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + VW <= n; i += VW) FAR_STORE(y + i, vf_set1(0.0f));
    for (; i < n; i++) y[i] = 0.0f;
    FAR_END();
}

static void add_far(float *y, const float *a, const float *b, float s, int64_t n)
{
    int64_t i = 0;
    (void)s;
    for (; i + VW <= n; i += VW) FAR_STORE(y + i, vf_add(vf_load(a + i), vf_load(b + i)));
    for (; i < n; i++) y[i] = a[i] + b[i];
    FAR_END();
}

/* ---- sums ---- */

static float sum(const float *x, int64_t n)
{
    lanes a;
    lanes_zero(&a);
    EACH_VECTOR(a.v[v] = vf_add(a.v[v], LOAD(x)), a.v[v] = vf_add(a.v[v], LOADN(x)));
    return lanes_sum(&a);
}

static float dot(const float *x, const float *y, int64_t n)
{
    lanes a;
    lanes_zero(&a);
    EACH_VECTOR(a.v[v] = vf_fma(LOAD(x), LOAD(y), a.v[v]),
                a.v[v] = vf_fma(LOADN(x), LOADN(y), a.v[v]));
    return lanes_sum(&a);
}

/* A NaN may be passed over here; the sums that follow keep it. */
static float row_max(const float *x, int64_t n, float least)
{
    lanes   a;
    float   t[VW];
    int64_t i = 0;
    for (int v = 0; v < NV; v++) a.v[v] = vf_set1(least);
    for (; i + LANES <= n; i += LANES)
        for (int v = 0; v < NV; v++) a.v[v] = vf_max(a.v[v], vf_load(x + i + v * VW));
    for (int v = 1; v < NV; v++) a.v[0] = vf_max(a.v[0], a.v[v]);
    for (; i + VW <= n; i += VW) a.v[0] = vf_max(a.v[0], vf_load(x + i));
    vf_store(t, a.v[0]);
    for (; i < n; i++) t[0] = t[0] > x[i] ? t[0] : x[i];
    for (int l = 1; l < VW; l++) t[0] = t[0] > t[l] ? t[0] : t[l];
    return t[0];
}

/* 16 partial sums, element i in partial i mod 16, folded in halves.  The product of two floats is
 * exact in a double. */
static double sumsq(const float *x, int64_t n)
{
    double  t[16] = {0};
    int64_t i     = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) t[l] += (double)x[i + l] * (double)x[i + l];
    for (int l = 0; i < n; i++, l++) t[l] += (double)x[i] * (double)x[i];
    for (int w = 8; w > 0; w /= 2)
        for (int l = 0; l < w; l++) t[l] += t[l + w];
    return t[0];
}

/* Runs of 32 rows are added first, which keeps long sums accurate. */
static void add_rows(float *acc, const float *x, int64_t ld, int64_t rows, int64_t cols)
{
    for (int64_t r0 = 0; r0 < rows; r0 += 32) {
        int64_t      nr = rows - r0 < 32 ? rows - r0 : 32, c = 0;
        const float *p = x + r0 * ld;
        for (; c + LANES <= cols; c += LANES) {
            lanes a;
            lanes_zero(&a);
            for (int64_t r = 0; r < nr; r++)
                for (int v = 0; v < NV; v++)
                    a.v[v] = vf_add(a.v[v], vf_load(p + r * ld + c + v * VW));
            for (int v = 0; v < NV; v++)
                vf_store(acc + c + v * VW, vf_add(vf_load(acc + c + v * VW), a.v[v]));
        }
        for (; c < cols; c += VW) {
            int64_t k = cols - c < VW ? cols - c : VW;
            vf      a = vf_set1(0.0f);
            for (int64_t r = 0; r < nr; r++) a = vf_add(a, vf_load_n(p + r * ld + c, k));
            vf_store_n(acc + c, vf_add(vf_load_n(acc + c, k), a), k);
        }
    }
}

#include "kernel/rows_drop.h"
#include "kernel/rows_norm.h"
#include "kernel/rows_update.h"

const weft_kernel__rows ROWS = {
    .widen           = widen,
    .narrow          = narrow,
    .map             = {[MAP_ADD]            = map_add,
                        [MAP_MUL]            = map_mul,
                        [MAP_SCALE]          = map_scale,
                        [MAP_AXPY]           = map_axpy,
                        [MAP_GELU_TANH]      = map_gelu_tanh,
                        [MAP_GELU_ERF]       = map_gelu_erf,
                        [MAP_SILU]           = map_silu,
                        [MAP_RELU]           = map_relu,
                        [MAP_TANH]           = map_tanh,
                        [MAP_GELU_TANH_GRAD] = map_gelu_tanh_grad,
                        [MAP_GELU_ERF_GRAD]  = map_gelu_erf_grad,
                        [MAP_SILU_GRAD]      = map_silu_grad,
                        [MAP_RELU_GRAD]      = map_relu_grad,
                        [MAP_TANH_GRAD]      = map_tanh_grad,
                        [MAP_EXP_SUB]        = map_exp_sub},
    .zero_far        = zero_far,
    .add_far         = add_far,
    .sum             = sum,
    .dot             = dot,
    .max             = row_max,
    .sumsq           = sumsq,
    .add_rows        = add_rows,
    .layer_norm      = layer_norm,
    .layer_norm_grad = layer_norm_grad,
    .rms_norm        = rms_norm,
    .rms_norm_grad   = rms_norm_grad,
    .exp_sum         = exp_sum,
    .exp_scale       = exp_scale,
    .softmax_grad    = softmax_grad,
    .rotate          = rotate,
    .drop            = drop,
    .update          = {[UPDATE_SGD]      = sgd,
                        [UPDATE_MOMENTUM] = momentum,
                        [UPDATE_ADAGRAD]  = adagrad,
                        [UPDATE_ADAM]     = adam,
                        [UPDATE_ADAMW]    = adamw,
                        [UPDATE_LAMB]     = lamb,
                        [UPDATE_EMA]      = ema},
    .lamb_dir        = lamb_dir,
};

#endif
#endif
