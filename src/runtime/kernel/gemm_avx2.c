/* The product's inner parts for AVX2 with FMA: tiles of 6 x 16. */
#include "kernel/gemm_finish.h"

#if defined(__AVX2__) && defined(__FMA__)

#define MR 6
#include "kernel/gemm_tile.h"

/* clang-format off */
TILE_PACKED(1)
TILE_PACKED(2)
TILE_PACKED(3)
TILE_PACKED(4)
TILE_PACKED(5)
TILE_PACKED(6)
TILE_COPY_A
TILE_COPY_B
/* clang-format on */

static void tile(int rows, const weft_kernel__gemm_tile *t)
{
    static void (*const packed[])(const weft_kernel__gemm_tile *) = {
        packed_1, packed_2, packed_3, packed_4, packed_5, packed_6,
    };
    packed[rows - 1](t);
}

/* ---- packing --------------------------------------------------------------------------- */

VFN __m256 load8(const void *src, int bf16, int64_t at_)
{
    if (bf16) return vf_load_bf16((const uint16_t *)src + at_);
    return _mm256_loadu_ps((const float *)src + at_);
}

VFN float load1(const void *src, int bf16, int64_t at_)
{
    return bf16 ? weft_bf16_widen(((const uint16_t *)src)[at_])
                : ((const float *)src)[at_];
}

/* Rows become columns: pairs, fours, then halves of registers change places. */
VFN void transpose8(__m256 r[8])
{
    __m256 t[8];

    _Pragma("GCC unroll 4") for (int i = 0; i < 8; i += 2)
    {
        t[i]     = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    _Pragma("GCC unroll 2") for (int i = 0; i < 8; i += 4)
    {
        r[i]     = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        t[i]     = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) r[i] = t[i];
}

VFN void store_w(float *d, __m256 x, int w) /* the first w lanes: 8 or 6 */
{
    if (w == 8) {
        _mm256_storeu_ps(d, x);
    } else {
        _mm_storeu_ps(d, _mm256_castps256_ps128(x));
        _mm_storel_pi((void *)(d + 4), _mm256_extractf128_ps(x, 1));
    }
}

/* w <= 8 rows, contiguous along k, into columns [0,w) of the panel. */
VFN void pack_turn(int width, int w, float *panel, const void *src, int bf16,
                   int64_t rows, int64_t k, int64_t rs)
{
    __m256  r[8];
    int64_t p = 0;

    for (; p + 8 <= k; p += 8) {
        _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) r[i] =
            i < w && i < rows ? load8(src, bf16, i * rs + p) : _mm256_setzero_ps();
        transpose8(r);
        _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++)
            store_w(panel + (p + i) * width, r[i], w);
    }
    for (; p < k; p++)
        for (int i = 0; i < w; i++)
            panel[p * width + i] = i < rows ? load1(src, bf16, i * rs + p) : 0.0f;
}

/* Contiguous along the rows: a copy for each k. */
VFN void pack_copy(int width, float *panel, const void *src, int bf16, int64_t rows,
                   int64_t k, int64_t cs)
{
    int64_t p = 0;

    if (rows >= width) /* a 6 wide copy reads 8: not the last one */
        for (; p < (width == MR ? k - 1 : k); p++) {
            store_w(panel + p * width, load8(src, bf16, p * cs), width == MR ? 6 : 8);
            if (width == NR)
                store_w(panel + p * width + 8, load8(src, bf16, p * cs + 8), 8);
        }
    for (; p < k; p++)
        for (int i = 0; i < width; i++)
            panel[p * width + i] = i < rows ? load1(src, bf16, p * cs + i) : 0.0f;
}

VFN void pack_width(int width, float *panel, const void *src, int bf16, int64_t rows,
                    int64_t k, int64_t rs, int64_t cs)
{
    const int64_t size = bf16 ? 2 : 4;

    if (rs == 1 && (width == NR || cs >= 8)) {
        pack_copy(width, panel, src, bf16, rows, k, cs);
    } else if (cs == 1) {
        for (int g = 0; g < width; g += 8)
            pack_turn(width, width - g < 8 ? width - g : 8, panel + g,
                      (const char *)src + g * rs * size, bf16, rows - g, k, rs);
    } else {
        for (int64_t p = 0; p < k; p++)
            for (int64_t i = 0; i < width; i++)
                panel[p * width + i] =
                    i < rows ? load1(src, bf16, i * rs + p * cs) : 0.0f;
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

const weft_kernel__gemm_isa weft_kernel__gemm_avx2 = {
    .mr           = MR,
    .nr           = NR,
    .strip_floats = 64 << 10, /* an L2 of 512 KiB */
    .placed       = false,
    .tile         = tile,
    .copy_a       = copy_a,
    .copy_b       = copy_b,
    .pack         = pack,
    .finish       = finish,
};

#endif
