/* fp8: 8-bit floating-point numbers as matmuls take them, and the scales of their rows.
 *
 *     e4m3   4 bits of exponent, 3 of mantissa: to 448, no infinity       f8_e4m3
 *     e5m2   5 bits of exponent, 2 of mantissa: to 57,344                 f8_e5m2
 *
 * A row is scaled by a power of two, so that its largest number just fits: scaling is exact, and
 * what is left of a number, back in the row's range, is a bf16 number again.  So a product of such
 * rows is the same function whether a device multiplies the 8-bit codes and scales the sum, or
 * rounds the operands and multiplies them in bf16 or f32: only the order of the sum differs.
 *
 *     unit = weft_fp8_unit(bits of the row's largest |x|, t);
 *     code = weft_fp8_encode(x / unit, t);        x is about weft_fp8_decode(code, t) * unit */
#ifndef WEFT_TENSOR_FP8_H
#define WEFT_TENSOR_FP8_H

#include <math.h>
#include <string.h>

#include "weft/tensor.h"

typedef struct weft_fp8_format {
    int   mantissa;     /* bits */
    int   top;          /* the largest number is 1.75 * 2^top */
    float most;         /* that number */
    float least_normal; /* numbers below it have fewer bits: multiples of step */
    float step;
} weft_fp8_format;

static inline weft_fp8_format weft_fp8_format_of(weft_dtype t)
{
    if (t == WEFT_DTYPE_F8_E5M2)
        return (weft_fp8_format){2, 15, 57344.0f, 0x1p-14f, 0x1p-16f};
    return (weft_fp8_format){3, 8, 448.0f, 0x1p-6f, 0x1p-9f};
}

/* To nearest, ties to even; beyond the largest number to that one; NaN stays NaN. */
static inline float weft_fp8_round(float x, weft_fp8_format f)
{
    float    a    = fabsf(x) > f.most ? f.most : fabsf(x), small, large;
    float    lift = f.step * 0x1.8p23f; /* sums with it are multiples of step */
    int      drop = 23 - f.mantissa;
    uint32_t u;
    memcpy(&u, &a, sizeof u);
    u += ((uint32_t)1 << (drop - 1)) - 1 + (u >> drop & 1u);
    u &= ~(((uint32_t)1 << drop) - 1);
    memcpy(&large, &u, sizeof large);
    small = (a + lift) - lift;
    if (!(a >= f.least_normal)) large = small; /* NaN, too */
    return copysignf(large, x);
}

/* Of a row whose largest magnitude has these bits (of a f32 without its sign): what one is of its
 * codes, a power of two.  Not finite: NaN, so that all of the row is.  Rows below 2^-100 have the
 * unit of that. */
static inline float weft_fp8_unit(uint32_t largest, weft_fp8_format f)
{
    int      e    = (int)(largest >> 23) - 127;
    uint32_t bits = 0x7fc00000u;
    float    unit;
    if (largest < 0x7f800000u) {
        e += (largest & 0x7fffffu) > 0x600000u; /* above 1.75 */
        bits = (uint32_t)((e < -100 ? -100 : e) - f.top + 127) << 23;
    }
    memcpy(&unit, &bits, sizeof unit);
    return unit;
}

/* The bits that weft_fp8_unit() takes: the largest of a row's are those of its largest magnitude,
 * or of one that is not finite. */
static inline uint32_t weft_fp8_magnitude(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u & 0x7fffffffu;
}

/* A number rounded as weft_fp8_round() does, as a code, and back. */
uint8_t weft_fp8_encode(float x, weft_dtype t);
float   weft_fp8_decode(uint8_t code, weft_dtype t);

/* Formats of a matmul's operands and of its result's gradient: "e4m3,e4m3,e5m2", the last ones
 * may be left out.  k: which; false: the text has none there, or another word. */
bool weft_fp8_parse(const char *text, int k, weft_dtype *out);

#endif
