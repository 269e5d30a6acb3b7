/* The product's inner parts for AVX-512: tiles of 12 x 32. */
#include "kernel/gemm_finish.h"

#if defined(__AVX512F__)

#define MR 12
#include "kernel/gemm_tile.h"

/* clang-format off */
TILE_PACKED(1)
TILE_PACKED(2)
TILE_PACKED(3)
TILE_PACKED(4)
TILE_PACKED(5)
TILE_PACKED(6)
TILE_PACKED(7)
TILE_PACKED(8)
TILE_PACKED(9)
TILE_PACKED(10)
TILE_PACKED(11)
TILE_PACKED(12)
TILE_PLACED(1)
TILE_PLACED(2)
TILE_PLACED(3)
TILE_PLACED(4)
TILE_PLACED(5)
TILE_PLACED(6)
TILE_PLACED(7)
TILE_PLACED(8)
TILE_PLACED(9)
TILE_PLACED(10)
TILE_PLACED(11)
TILE_PLACED(12)
TILE_COPY_A
TILE_COPY_B
TILE_COPY_B_PLACED
/* clang-format on */

static void tile(int rows, const weft_kernel__gemm_tile *t)
{
    static void (*const packed[])(const weft_kernel__gemm_tile *) = {
        packed_1, packed_2, packed_3, packed_4,  packed_5,  packed_6,
        packed_7, packed_8, packed_9, packed_10, packed_11, packed_12,
    };
    static void (*const placed[])(const weft_kernel__gemm_tile *) = {
        placed_1, placed_2, placed_3, placed_4,  placed_5,  placed_6,
        placed_7, placed_8, placed_9, placed_10, placed_11, placed_12,
    };
    if (t->a_rs)
        placed[rows - 1](t);
    else
        packed[rows - 1](t);
}

static void tile_copy_b(const weft_kernel__gemm_tile *t)
{
    if (t->a_rs)
        copy_b_placed(t);
    else
        copy_b(t);
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
                    : bf16    ? weft_bf16_widen(((const uint16_t *)src)[i * rs + p * cs])
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

const weft_kernel__gemm_isa weft_kernel__gemm_avx512 = {
    .mr           = MR,
    .nr           = NR,
    .strip_floats = 104 << 10, /* an L2 of 1 MiB and more */
    .placed       = true,
    .tile         = tile,
    .copy_a       = copy_a,
    .copy_b       = tile_copy_b,
    .pack         = pack,
    .finish       = finish,
};

#endif
