#include "state/convert.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

static float bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float    x;
    memcpy(&x, &u, 4);
    return x;
}

static uint16_t f32_to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    if (isnan(x)) return (uint16_t)(u >> 16 | 0x40);
    u += 0x7fff + (u >> 16 & 1);
    return (uint16_t)(u >> 16);
}

static float f16_to_f32(uint16_t h)
{
    int   e = h >> 10 & 31, m = h & 0x3ff;
    float x = e == 0    ? ldexpf((float)m, -24)
              : e == 31 ? (m ? NAN : INFINITY)
                        : ldexpf((float)(m | 0x400), e - 25);
    return h & 0x8000 ? -x : x;
}

static uint16_t f32_to_f16(float x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    float    a    = fabsf(x);
    int      e;
    if (isnan(x)) return (uint16_t)(sign | 0x7e00);
    if (a >= 65520.0f) return (uint16_t)(sign | 0x7c00);
    if (a < 0x1p-14f) return (uint16_t)(sign | (uint16_t)lrintf(ldexpf(a, 24)));
    (void)frexpf(a, &e);                /* a = f * 2^e, f in [0.5, 1) */
    long m = lrintf(ldexpf(a, 11 - e)); /* [1024, 2048] */
    return (uint16_t)(sign | (uint16_t)(((e + 13) << 10) + m)); /* a carry goes into e */
}

weft_status weft_convert_to_f32(weft_dtype t, const void *from, int64_t n, float *to)
{
    const char *p = from;
    switch (t) {
    case WEFT_DTYPE_F32: memcpy(to, from, (size_t)n * 4); return WEFT_OK;
    case WEFT_DTYPE_BF16:
    case WEFT_DTYPE_F16:
        for (int64_t i = 0; i < n; i++) {
            uint16_t h;
            memcpy(&h, p + 2 * i, 2);
            to[i] = t == WEFT_DTYPE_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
        }
        return WEFT_OK;
    case WEFT_DTYPE_F64:
        for (int64_t i = 0; i < n; i++) {
            double d;
            memcpy(&d, p + 8 * i, 8);
            to[i] = (float)d;
        }
        return WEFT_OK;
    default:
        return WEFT_FAIL(WEFT_ERR_ARG, "weights of type %s cannot be read as fp32",
                         weft_dtype_name(t));
    }
}

weft_status weft_convert_from_f32(weft_dtype t, const float *from, int64_t n, void *to)
{
    char *p = to;
    switch (t) {
    case WEFT_DTYPE_F32: memcpy(to, from, (size_t)n * 4); return WEFT_OK;
    case WEFT_DTYPE_BF16:
    case WEFT_DTYPE_F16:
        for (int64_t i = 0; i < n; i++) {
            uint16_t h =
                t == WEFT_DTYPE_BF16 ? f32_to_bf16(from[i]) : f32_to_f16(from[i]);
            memcpy(p + 2 * i, &h, 2);
        }
        return WEFT_OK;
    case WEFT_DTYPE_F64:
        for (int64_t i = 0; i < n; i++) {
            double d = (double)from[i];
            memcpy(p + 8 * i, &d, 8);
        }
        return WEFT_OK;
    default:
        return WEFT_FAIL(WEFT_ERR_ARG, "fp32 weights cannot be written as %s",
                         weft_dtype_name(t));
    }
}
