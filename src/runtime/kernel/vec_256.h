/* kernel/vec.h for AVX2 with FMA: 8 floats. */
#ifndef WEFT_KERNEL_VEC_256_H
#define WEFT_KERNEL_VEC_256_H
#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#ifndef VFN
#define VFN static inline __attribute__((always_inline, unused))
#endif
#define VW 8

typedef __m256  vf; /* floats */
typedef __m256i vi; /* int32s */
typedef __m256  vm; /* one truth a lane: all bits or none */

VFN __m256i vm_first(int64_t n) /* lanes 0..n-1, n <= VW */
{
    static const int32_t ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const void *)(ones + 8 - n));
}

VFN vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
VFN vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
VFN vf vf_load_n(const float *p, int64_t n)
{
    return _mm256_maskload_ps(p, vm_first(n));
}
VFN void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
VFN void vf_store_n(float *p, vf x, int64_t n) /* masked stores are slow on Zen 2 and 3 */
{
    float t[VW];
    _mm256_storeu_ps(t, x);
    memcpy(p, t, (size_t)n * sizeof t[0]);
}

VFN vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
VFN vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
VFN vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
VFN vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
VFN vf vf_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}
VFN vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
} /* ab + c */
VFN vf vf_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
} /* c - ab */
VFN vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
} /* a > b ? a : b */
VFN vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
} /* a < b ? a : b */
VFN vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
VFN vf vf_neg(vf a)
{
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}
VFN vf vf_sign_of(vf a, vf s) /* a >= 0 with the sign of s */
{
    return _mm256_or_ps(a, _mm256_and_ps(s, _mm256_set1_ps(-0.0f)));
}

VFN vm vf_lt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
VFN vf vf_sel(vm m, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, m);
} /* m ? a : b */

VFN vi vi_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}
VFN vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}
VFN vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}
VFN vi vi_shl(vi a, int s)
{
    return _mm256_slli_epi32(a, s);
}
VFN vi vi_sar(vi a, int s)
{
    return _mm256_srai_epi32(a, s);
}
VFN vi vi_of(vf a)
{
    return _mm256_cvtps_epi32(a);
} /* to nearest, ties to even */
VFN vf vf_of(vi a)
{
    return _mm256_cvtepi32_ps(a);
}
VFN vf vf_bits(vi a)
{
    return _mm256_castsi256_ps(a);
}

VFN vf vf_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
} /* to nearest, ties to even */
VFN vf vf_pow2(vi n) /* -126 <= n <= 127 */
{
    return vf_bits(vi_shl(vi_add(n, vi_set1(127)), 23));
}
VFN vf vf_scale2(vf a, vf n) /* a 2^n, n whole, -252 <= n <= 254; rounded once */
{
    vi i = vi_of(n), h = vi_sar(i, 1);
    return vf_mul(vf_mul(a, vf_pow2(h)), vf_pow2(vi_sub(i, h)));
}

VFN vf vf_load_bf16(const uint16_t *p)
{
    __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}

VFN void vf_store_bf16(uint16_t *p, vf x)
{
    __m256i u    = _mm256_castps_si256(x);
    __m256i odd  = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r    = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256  nan  = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    __m256i kept = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));

    r = _mm256_srli_epi32(_mm256_blendv_epi8(r, kept, _mm256_castps_si256(nan)), 16);
    r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    _mm_storeu_si128((void *)p, _mm256_castsi256_si128(r));
}

#endif
#endif
