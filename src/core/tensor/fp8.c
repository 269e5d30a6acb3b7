#include "tensor/fp8.h"

uint8_t weft_fp8_encode(float x, weft_dtype t)
{
    weft_fp8_format f    = weft_fp8_format_of(t);
    float           y    = weft_fp8_round(x, f);
    uint8_t         sign = signbit(x) ? 0x80 : 0;
    uint32_t        u;
    if (isnan(x)) return sign | 0x7f;
    y = fabsf(y);
    if (y < f.least_normal) return sign | (uint8_t)(y / f.step);
    memcpy(&u, &y, sizeof u);
    /* both exponents count from their bias, mantissas are the upper bits */
    int bias = t == WEFT_DTYPE_F8_E5M2 ? 15 : 7;
    int code = ((int)(u >> 23) - 127 + bias) << f.mantissa |
               (int)(u >> (23 - f.mantissa) & ((1u << f.mantissa) - 1));
    return sign | (uint8_t)code;
}

float weft_fp8_decode(uint8_t code, weft_dtype t)
{
    weft_fp8_format f    = weft_fp8_format_of(t);
    int             bias = t == WEFT_DTYPE_F8_E5M2 ? 15 : 7;
    int             e = (code & 0x7f) >> f.mantissa, m = code & ((1 << f.mantissa) - 1);
    float           sign = code & 0x80 ? -1.0f : 1.0f;
    if (t == WEFT_DTYPE_F8_E5M2 && e == 31) return m ? NAN : sign * INFINITY;
    if (t != WEFT_DTYPE_F8_E5M2 && (code & 0x7f) == 0x7f) return NAN;
    if (e == 0) return sign * (float)m * f.step;
    return sign * ldexpf((float)(m + (1 << f.mantissa)), e - bias - f.mantissa);
}

bool weft_fp8_parse(const char *text, int k, weft_dtype *out)
{
    for (; text && k > 0; k--) {
        text = strchr(text, ',');
        if (text) text++;
    }
    if (!text) return false;
    size_t n = strcspn(text, ",");
    if (n != 4) return false;
    if (!strncmp(text, "e4m3", n))
        *out = WEFT_DTYPE_F8_E4M3;
    else if (!strncmp(text, "e5m2", n))
        *out = WEFT_DTYPE_F8_E5M2;
    else
        return false;
    return true;
}
