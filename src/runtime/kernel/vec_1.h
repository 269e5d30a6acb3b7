/* kernel/vec.h in plain C: 1 float.  fmaf is exact everywhere, fast where the machine has it. */
#ifndef WEFT_KERNEL_VEC_1_H
#define WEFT_KERNEL_VEC_1_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tensor/bf16.h"

#ifndef VFN
#define VFN static inline __attribute__((always_inline, unused))
#endif
#define VW 1

typedef float   vf;
typedef int32_t vi;
typedef int     vm;

VFN vf vf_set1(float x)
{
    return x;
}
VFN vf vf_load(const float *p)
{
    return *p;
}
VFN vf vf_load_n(const float *p, int64_t n)
{
    return n > 0 ? *p : 0.0f;
}
VFN void vf_store(float *p, vf x)
{
    *p = x;
}
VFN void vf_store_n(float *p, vf x, int64_t n)
{
    if (n > 0) *p = x;
}

VFN vf vf_add(vf a, vf b)
{
    return a + b;
}
VFN vf vf_sub(vf a, vf b)
{
    return a - b;
}
VFN vf vf_mul(vf a, vf b)
{
    return a * b;
}
VFN vf vf_div(vf a, vf b)
{
    return a / b;
}
VFN vf vf_sqrt(vf a)
{
    return sqrtf(a);
}
VFN vf vf_fma(vf a, vf b, vf c)
{
    return fmaf(a, b, c);
}
VFN vf vf_fnma(vf a, vf b, vf c)
{
    return fmaf(-a, b, c);
}
VFN vf vf_max(vf a, vf b)
{
    return a > b ? a : b;
}
VFN vf vf_min(vf a, vf b)
{
    return a < b ? a : b;
}
VFN vf vf_abs(vf a)
{
    return fabsf(a);
}
VFN vf vf_neg(vf a)
{
    return -a;
}
VFN vf vf_sign_of(vf a, vf s)
{
    return copysignf(a, s);
}

VFN vm vf_lt(vf a, vf b)
{
    return a < b;
}
VFN vf vf_sel(vm m, vf a, vf b)
{
    return m ? a : b;
}

VFN vi vi_set1(int32_t x)
{
    return x;
}
VFN vi vi_add(vi a, vi b)
{
    return (vi)((uint32_t)a + (uint32_t)b);
}
VFN vi vi_sub(vi a, vi b)
{
    return (vi)((uint32_t)a - (uint32_t)b);
}
VFN vi vi_shl(vi a, int s)
{
    return (vi)((uint32_t)a << s);
}
VFN vi vi_sar(vi a, int s)
{
    return a >> s;
}
VFN vi vi_of(vf a) /* out of range and NaN as the vector forms have it */
{
    float r = nearbyintf(a);
    return r >= -2147483648.0f && r < 2147483648.0f ? (vi)r : INT32_MIN;
}
VFN vf vf_of(vi a)
{
    return (float)a;
}
VFN vf vf_bits(vi a)
{
    float f;
    memcpy(&f, &a, sizeof f);
    return f;
}

VFN vf vf_round(vf a)
{
    return vf_of(vi_of(a));
} /* to nearest, ties to even; |a| < 2^31 */
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
    return vf_bits((vi)((uint32_t)*p << 16));
}

VFN void vf_store_bf16(uint16_t *p, vf x)
{
    *p = weft_bf16_round(x);
}

#endif
