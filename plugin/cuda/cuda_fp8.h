/* For .cu files: numbers as codes of 8 bits, as src/core/tensor/fp8.h has them. */
#ifndef WEFT_CUDA_FP8_H
#define WEFT_CUDA_FP8_H

#include "cuda_vec.h"

CU_FN uint32_t cu_word(float x)
{
#ifdef __CUDACC__
    return __float_as_uint(x);
#else
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
#endif
}

/* Not finite: above all others. */
CU_FN uint32_t cu_magnitude(float x)
{
    return cu_word(x) & 0x7fffffffu;
}

CU_FN uint32_t cu_larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Of two bf16 in a word each, by their bits: magnitudes, and the larger ones. */
CU_FN uint32_t cu_magnitude2(uint32_t x)
{
    return x & 0x7fff7fffu;
}

CU_FN uint32_t cu_larger2(uint32_t a, uint32_t b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    uint32_t y;
    asm("max.u16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
    return y;
#else
    return cu_larger(a & 0xffff0000u, b & 0xffff0000u) |
           cu_larger(a & 0xffffu, b & 0xffffu);
#endif
}

/* Of a row with this largest magnitude; inverse: 1 / unit. */
CU_FN float cu_fp8_unit(uint32_t largest, bool e5m2, float *inverse)
{
    int e = (int)(largest >> 23) - 127 + ((largest & 0x7fffffu) > 0x600000u);
    e     = (e < -100 ? -100 : e) - (e5m2 ? 15 : 8);
    if (largest >= 0x7f800000u) {
        *inverse = cu_bits(0x7fc00000u);
        return *inverse;
    }
    *inverse = cu_bits((uint32_t)(127 - e) << 23);
    return cu_bits((uint32_t)(127 + e) << 23);
}

/* At most the largest number of the format, or NaN. */
CU_FN uint32_t cu_fp8_code(float x, bool e5m2)
{
    const int drop = e5m2 ? 21 : 20;
    uint32_t  u = cu_magnitude(x), sign = cu_word(x) >> 24 & 0x80u;
    if (u > 0x7f800000u) return sign | 0x7fu;
    if (u < (uint32_t)(127 - (e5m2 ? 14 : 6)) << 23) { /* multiples of the least number */
        const float lift = e5m2 ? 192.0f : 24576.0f;   /* 1.5 * 2^23 of them */
        return sign | ((cu_word(cu_bits(u) + lift) - cu_word(lift)) & 0x7fu);
    }
    u += (1u << (drop - 1)) - 1 + (u >> drop & 1u);
    return sign | ((u >> drop) - (uint32_t)((e5m2 ? 127 - 15 : 127 - 7) << (23 - drop)));
}

/* Two codes, of lo in the low byte. */
CU_FN uint32_t cu_fp8_pair(float lo, float hi, bool e5m2)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t y;
    if (e5m2)
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(y) : "f"(hi), "f"(lo));
    else
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(hi), "f"(lo));
    return y;
#else
    return cu_fp8_code(lo, e5m2) | cu_fp8_code(hi, e5m2) << 8;
#endif
}

CU_FN float cu_fp8_value(uint32_t code, bool e5m2)
{
    const int keep = e5m2 ? 2 : 3;
    uint32_t  u = code & 0x7fu, sign = (code & 0x80u) << 24;
    if (u == 0x7fu) return cu_bits(0x7fc00000u);
    float x =
        u >> keep
            ? cu_bits((u << (23 - keep)) + ((uint32_t)(e5m2 ? 127 - 15 : 127 - 7) << 23))
            : (float)u * (e5m2 ? 1.0f / 65536 : 1.0f / 512);
    return cu_bits(cu_word(x) | sign);
}

#endif
