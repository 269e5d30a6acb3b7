/* Tiles written once over vec.h; tile_plain.c, tile_avx2.c and tile_avx512.c define TILE_SET. */
#ifndef WEFT_KERNEL_TILE_IMPL_H
#define WEFT_KERNEL_TILE_IMPL_H
#ifdef TILE_SET

#include <math.h>

#include "kernel/tile.h"
#include "kernel/vmath.h"

enum {
    LANES = WEFT_TILE_LANES,
    NL    = LANES / VW
};

/* Registers: MR rows times NV vectors of sums. */
#if VW == 16
enum {
    MR = 8,
    NV = 2
};
#elif VW == 8
enum {
    MR = 6,
    NV = 2
};
#else
enum {
    MR = 2,
    NV = 4
};
#endif

/* R and V are constants after inlining, so the sums live in registers. */
VFN void block(int R, int V, int64_t k, const float *a, int64_t a_rs, int64_t a_cs,
               const float *b, int64_t ldb, float *c, int64_t ldc, int add)
{
    vf s[MR][NV];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++)
            s[r][v] = add ? vf_load(c + r * ldc + v * VW) : vf_set1(0.0f);
    for (int64_t i = 0; i < k; i++) {
        vf u[NV];
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) u[v] = vf_load(b + i * ldb + v * VW);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            vf x = vf_set1(a[r * a_rs + i * a_cs]);
#pragma GCC unroll 8
            for (int v = 0; v < V; v++) s[r][v] = vf_fma(x, u[v], s[r][v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) vf_store(c + r * ldc + v * VW, s[r][v]);
}

VFN void strip(int V, int64_t m, int64_t k, const float *a, int64_t a_rs, int64_t a_cs,
               const float *b, int64_t ldb, float *c, int64_t ldc, int add)
{
    int64_t i = 0;
    for (; i + MR <= m; i += MR)
        block(MR, V, k, a + i * a_rs, a_rs, a_cs, b, ldb, c + i * ldc, ldc, add);
#if VW > 1
    for (; i + 4 <= m; i += 4)
        block(4, V, k, a + i * a_rs, a_rs, a_cs, b, ldb, c + i * ldc, ldc, add);
#endif
    for (; i < m; i++)
        block(1, V, k, a + i * a_rs, a_rs, a_cs, b, ldb, c + i * ldc, ldc, add);
}

static void mm(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_rs,
               int64_t a_cs, const float *b, int64_t ldb, float *c, int64_t ldc, int add)
{
    int64_t j = 0;
    for (; j + NV * VW <= n; j += NV * VW)
        strip(NV, m, k, a, a_rs, a_cs, b + j, ldb, c + j, ldc, add);
    for (; j + VW <= n; j += VW)
        strip(1, m, k, a, a_rs, a_cs, b + j, ldb, c + j, ldc, add);
}

VFN float lanes_max(vf x)
{
#if VW == 16
    return _mm512_reduce_max_ps(x);
#else
    float t[VW];
    vf_store(t, x);
    for (int l = 1; l < VW; l++) t[0] = t[0] > t[l] ? t[0] : t[l];
    return t[0];
#endif
}

static void soften(weft_kernel__softmax *w, float *s, int64_t lds, int64_t r0, int64_t r1,
                   int64_t n)
{
    float now[WEFT_TILE];
    for (int64_t i = r0; i < r1; i++) {
        vf m = vf_set1(-INFINITY);
        for (int64_t j = 0; j < n; j += VW) m = vf_max(m, vf_load(s + i * lds + j));
        float x = lanes_max(m);
        now[i]  = x > w->max[i] ? x : w->max[i];
        /* nothing seen yet: any finite number in place of -inf gives zeros */
        w->fix[i] = now[i] == -INFINITY ? 0.0f : w->max[i] - now[i];
    }
    for (int64_t i = r0; i < r1; i += VW) {
        int64_t k = r1 - i < VW ? r1 - i : VW;
        vf_store_n(w->fix + i, vf_exp(vf_load_n(w->fix + i, k)), k);
    }
    for (int64_t i = r0; i < r1; i++) {
        vf m = vf_set1(now[i] == -INFINITY ? 0.0f : now[i]), f = vf_set1(w->fix[i]),
           sum[NL];
        for (int l = 0; l < NL; l++) sum[l] = vf_mul(f, vf_load(w->sum[i] + l * VW));
        for (int64_t j = 0; j < n; j += LANES)
            for (int l = 0; l < NL; l++) {
                float *p = s + i * lds + j + l * VW;
                vf     e = vf_exp(vf_sub(vf_load(p), m));
                sum[l]   = vf_add(sum[l], e);
                vf_store(p, e);
            }
        for (int l = 0; l < NL; l++) vf_store(w->sum[i] + l * VW, sum[l]);
        w->max[i] = now[i];
    }
}

static void exp_rows(float *p, int64_t ldp, const float *lse, int64_t r0, int64_t r1,
                     int64_t n)
{
    for (int64_t i = r0; i < r1; i++) {
        vf m = vf_set1(lse[i]);
        for (int64_t j = 0; j < n; j += VW)
            vf_store(p + i * ldp + j, vf_exp(vf_sub(vf_load(p + i * ldp + j), m)));
    }
}

static void ds_rows(float *d, const float *p, int64_t ld, const float *own, int64_t r0,
                    int64_t r1, int64_t n)
{
    for (int64_t i = r0; i < r1; i++) {
        vf o = vf_set1(own[i]);
        for (int64_t j = 0; j < n; j += VW)
            vf_store(d + i * ld + j,
                     vf_mul(vf_load(p + i * ld + j), vf_sub(vf_load(d + i * ld + j), o)));
    }
}

#if VW > 1
/* 8 x 8 floats: pairs, then fours, then halves change places. */
VFN void turn8(float *to, const float *from, int64_t ld)
{
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_ps(from + i * ld);
    for (int i = 0; i < 8; i += 2) {
        b[i]     = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        a[i]     = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * WEFT_TILE,
                         _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * WEFT_TILE,
                         _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    }
}
#else
VFN void turn8(float *to, const float *from, int64_t ld)
{
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 8; i++) to[j * WEFT_TILE + i] = from[i * ld + j];
}
#endif

static void turn(float *to, const float *from, int64_t ld, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i += 8)
        for (int64_t j = 0; j < cols; j += 8)
            turn8(to + j * WEFT_TILE + i, from + i * ld + j, ld);
}

static void move_rows(float *to, int64_t ld_to, const float *from, int64_t ld,
                      int64_t rows, int64_t n, float s)
{
    const vf f = vf_set1(s);

    for (int64_t i = 0; i < rows; i++, to += ld_to, from += ld) {
        int64_t j = 0;
        for (; j + VW <= n; j += VW) vf_store(to + j, vf_mul(f, vf_load(from + j)));
        if (j < n) vf_store_n(to + j, vf_mul(f, vf_load_n(from + j, n - j)), n - j);
    }
}

static void scale_rows(float *c, int64_t ldc, const float *s, int64_t rows, int64_t n)
{
    for (int64_t i = 0; i < rows; i++) {
        vf f = vf_set1(s[i]);
        if (s[i] == 1.0f) continue;
        for (int64_t j = 0; j < n; j += VW)
            vf_store(c + i * ldc + j, vf_mul(f, vf_load(c + i * ldc + j)));
    }
}

const weft_kernel__tile TILE_SET = {mm,   soften,    exp_rows,  ds_rows,
                                    turn, move_rows, scale_rows};

#endif
#endif
