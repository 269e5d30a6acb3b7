/* kernel/vec.h for AVX-512: 16 floats. */
#ifndef WEFT_KERNEL_VEC_512_H
#define WEFT_KERNEL_VEC_512_H
#if defined(__AVX512F__)

#include <immintrin.h>
#include <stdint.h>

#ifndef VFN
#define VFN static inline __attribute__((always_inline, unused))
#endif
#define VW 16

typedef __m512    vf; /* floats */
typedef __m512i   vi; /* int32s */
typedef __mmask16 vm; /* one truth a lane */

VFN vm vm_first(int64_t n)
{
    return (vm)((1u << n) - 1u);
} /* lanes 0..n-1, n <= VW */

VFN vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
VFN vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
VFN vf vf_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(vm_first(n), p);
}
VFN void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
VFN void vf_store_n(float *p, vf x, int64_t n)
{
    _mm512_mask_storeu_ps(p, vm_first(n), x);
}

VFN vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
VFN vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
VFN vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
VFN vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
VFN vf vf_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}
VFN vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
} /* ab + c */
VFN vf vf_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
} /* c - ab */
VFN vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
} /* a > b ? a : b */
VFN vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
} /* a < b ? a : b */
VFN vf vf_abs(vf a)
{
    return _mm512_abs_ps(a);
}
VFN vf vf_neg(vf a)
{
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}
VFN vf vf_sign_of(vf a, vf s) /* a >= 0 with the sign of s */
{
    return _mm512_or_ps(a, _mm512_and_ps(s, _mm512_set1_ps(-0.0f)));
}

VFN vm vf_lt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
VFN vf vf_sel(vm m, vf a, vf b)
{
    return _mm512_mask_blend_ps(m, b, a);
} /* m ? a : b */

VFN vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
VFN vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
VFN vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}
VFN vi vi_shl(vi a, int s)
{
    return _mm512_slli_epi32(a, (unsigned)s);
}
VFN vi vi_sar(vi a, int s)
{
    return _mm512_srai_epi32(a, (unsigned)s);
}
VFN vi vi_of(vf a)
{
    return _mm512_cvtps_epi32(a);
} /* to nearest, ties to even */
VFN vf vf_of(vi a)
{
    return _mm512_cvtepi32_ps(a);
}
VFN vf vf_bits(vi a)
{
    return _mm512_castsi512_ps(a);
}

VFN vf vf_round(vf a)
{
    return _mm512_roundscale_ps(a, 0);
} /* to nearest, ties to even */
VFN vf vf_scale2(vf a, vf n)
{
    return _mm512_scalef_ps(a, n);
} /* a 2^n, n whole, -252 <= n <= 254; rounded once */

VFN vf vf_load_bf16(const uint16_t *p)
{
    __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
}

VFN void vf_store_bf16(uint16_t *p, vf x)
{
    __m512i   u   = _mm512_castps_si512(x);
    __m512i   odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i   r   = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    __m512i   kept = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));

    r = _mm512_srli_epi32(_mm512_mask_mov_epi32(r, nan, kept), 16);
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(r));
}

#endif
#endif
