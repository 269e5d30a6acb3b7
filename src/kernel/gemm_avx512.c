/* The product's inner parts for AVX-512: tiles of 12 x 32. */
#include "kernel/gemm_finish.h"

#if defined(__AVX512F__)

enum {
    MR = 12,
    NR = 32
};

#define FOR_ROWS(R) _Pragma("GCC unroll 12") for (int i = 0; i < R; i++)

/* One step of k: R x 32 sums in 2 R registers; a row of a is one broadcast. */
#define STEP(R)                                                                          \
    do {                                                                                 \
        __m512 b0 = _mm512_loadu_ps(b), b1 = _mm512_loadu_ps(b + 16);                    \
        FOR_ROWS(R)                                                                      \
        {                                                                                \
            __m512 ai = _mm512_set1_ps(a[i]);                                            \
            s[i][0]   = _mm512_fmadd_ps(ai, b0, s[i][0]);                                \
            s[i][1]   = _mm512_fmadd_ps(ai, b1, s[i][1]);                                \
        }                                                                                \
        a += MR, b += NR;                                                                \
    } while (0)

#define ADD_ROWS(R, from, ld)                                                            \
    if (from) FOR_ROWS(R)                                                                \
        {                                                                                \
            s[i][0] = _mm512_add_ps(_mm512_loadu_ps(from + i * ld), s[i][0]);            \
            s[i][1] = _mm512_add_ps(_mm512_loadu_ps(from + i * ld + 16), s[i][1]);       \
        }

#define TILE(R)                                                                          \
    static void tile_##R(const weft_kernel__gemm_tile *t)                                \
    {                                                                                    \
        const float            *a = t->a, *b = t->b;                                     \
        weft_kernel__gemm_ahead h = *t->ahead;                                           \
        int64_t                 p;                                                       \
        __m512                  s[R][2];                                                 \
                                                                                         \
        FOR_ROWS(R)                                                                      \
        {                                                                                \
            s[i][0] = s[i][1] = _mm512_setzero_ps();                                     \
            __builtin_prefetch(t->out + i * t->ld_out, 1);                               \
            __builtin_prefetch(t->out + i * t->ld_out + 31, 1);                          \
        }                                                                                \
        for (p = t->kc; p >= GEMM_AHEAD; p -= GEMM_AHEAD) {                              \
            __builtin_prefetch(h.p, 0, 2);                                               \
            __builtin_prefetch(h.p + 64, 0, 2);                                          \
            h.p += GEMM_PAIR;                                                            \
            if (--h.left == 0) h.left = h.run, h.p += h.skip;                            \
            STEP(R);                                                                     \
            STEP(R);                                                                     \
            STEP(R);                                                                     \
            STEP(R);                                                                     \
        }                                                                                \
        *t->ahead = h;                                                                   \
        for (; p > 0; p--) STEP(R);                                                      \
        ADD_ROWS(R, t->in, t->ld_in)                                                     \
        ADD_ROWS(R, t->add, t->ld_add)                                                   \
        FOR_ROWS(R)                                                                      \
        {                                                                                \
            _mm512_storeu_ps(t->out + i * t->ld_out, s[i][0]);                           \
            _mm512_storeu_ps(t->out + i * t->ld_out + 16, s[i][1]);                      \
        }                                                                                \
    }
TILE(1)
TILE(2)
TILE(3) TILE(4) TILE(5) TILE(6) TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)

    static void tile(int rows, const weft_kernel__gemm_tile *t)
{
    static void (*const f[])(const weft_kernel__gemm_tile *) = {
        tile_1, tile_2, tile_3, tile_4,  tile_5,  tile_6,
        tile_7, tile_8, tile_9, tile_10, tile_11, tile_12};
    f[rows - 1](t);
}

/* ---- packing --------------------------------------------------------------------------- */

VFN __m512 load(const void *src, int bf16, int64_t at_, __mmask16 m)
{
    if (!bf16) return _mm512_maskz_loadu_ps(m, (const float *)src + at_);
    return _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, (const uint16_t *)src + at_)),
        16));
}

VFN __mmask16 lanes(int64_t n) /* the first n of 16, for any n */
{
    return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1 << n) - 1);
}

/* Rows become columns: pairs, fours, then quarters of registers change places. */
VFN void transpose16(__m512 r[16])
{
    __m512 t[16];

    _Pragma("GCC unroll 8") for (int i = 0; i < 16; i += 2)
    {
        t[i]     = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < 16; i += 4)
    {
        __m512d a0 = _mm512_castps_pd(t[i]), a1 = _mm512_castps_pd(t[i + 1]);
        __m512d a2 = _mm512_castps_pd(t[i + 2]), a3 = _mm512_castps_pd(t[i + 3]);
        r[i]     = _mm512_castpd_ps(_mm512_unpacklo_pd(a0, a2));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a0, a2));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(a1, a3));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(a1, a3));
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        __m512 x  = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        __m512 y  = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        __m512 z  = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        __m512 w  = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
        t[i]      = _mm512_shuffle_f32x4(x, z, 0x88);
        t[i + 4]  = _mm512_shuffle_f32x4(y, w, 0x88);
        t[i + 8]  = _mm512_shuffle_f32x4(x, z, 0xdd);
        t[i + 12] = _mm512_shuffle_f32x4(y, w, 0xdd);
    }
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) r[i] = t[i];
}

/* 16 rows, contiguous along k, into columns [0,w) of the panel. */
VFN void pack_turn(int width, int w, float *panel, const void *src, int bf16,
                   int64_t rows, int64_t k, int64_t rs)
{
    const __mmask16 out = lanes(w);
    __m512          r[16];

    for (int64_t p = 0; p < k; p += 16) {
        __mmask16 in = lanes(k - p);
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++)
        {
            if (i < w)
                r[i] = load(src, bf16, i < rows ? i * rs + p : p, i < rows ? in : 0);
            else
                r[i] = _mm512_setzero_ps();
        }
        transpose16(r);
        float *d = panel + p * width;
        if (in == 0xffff) {
            _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++)
                _mm512_mask_storeu_ps(d + i * width, out, r[i]);
        } else {
            _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) if (p + i < k)
                _mm512_mask_storeu_ps(d + i * width, out, r[i]);
        }
    }
}

/* Contiguous along the rows: a copy for each k. */
VFN void pack_copy(int width, float *panel, const void *src, int bf16, int64_t rows,
                   int64_t k, int64_t cs)
{
    for (int64_t p = 0; p < k; p++)
        for (int g = 0; g < width; g += 16)
            _mm512_mask_storeu_ps(panel + p * width + g, lanes(width - g),
                                  load(src, bf16, p * cs + g, lanes(rows - g)));
}

VFN void pack_width(int width, float *panel, const void *src, int bf16, int64_t rows,
                    int64_t k, int64_t rs, int64_t cs)
{
    if (rs == 1) {
        pack_copy(width, panel, src, bf16, rows, k, cs);
    } else if (cs == 1) {
        for (int g = 0; g < width; g += 16)
            pack_turn(width, width - g < 16 ? width - g : 16, panel + g,
                      bf16 ? (const void *)((const uint16_t *)src + g * rs)
                           : (const void *)((const float *)src + g * rs),
                      bf16, rows - g, k, rs);
    } else {
        for (int64_t p = 0; p < k; p++)
            for (int64_t i = 0; i < width; i++)
                panel[p * width + i] =
                    i >= rows ? 0.0f
                    : bf16    ? bf16_widen(((const uint16_t *)src)[i * rs + p * cs])
                              : ((const float *)src)[i * rs + p * cs];
    }
}

static void pack(int width, float *panel, const void *src, weft_dtype t, int64_t rows,
                 int64_t k, int64_t rs, int64_t cs)
{
    if (t == WEFT_DTYPE_F32) {
        if (width == MR)
            pack_width(MR, panel, src, 0, rows, k, rs, cs);
        else
            pack_width(NR, panel, src, 0, rows, k, rs, cs);
    } else {
        if (width == MR)
            pack_width(MR, panel, src, 1, rows, k, rs, cs);
        else
            pack_width(NR, panel, src, 1, rows, k, rs, cs);
    }
}

const weft_kernel__gemm_isa weft_kernel__gemm_avx512 = {MR, NR, tile, pack, finish};

#endif
