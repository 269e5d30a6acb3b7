/* A bfloat16 is the upper half of a float.  The one rule for it on CPUs: kernels and collectives
 * give the same bits. */
#ifndef WEFT_TENSOR_BF16_H
#define WEFT_TENSOR_BF16_H

#include <stdint.h>
#include <string.h>

static inline float weft_bf16_widen(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float    f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* To nearest, ties to even; a NaN stays a NaN. */
static inline uint16_t weft_bf16_round(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

#endif
