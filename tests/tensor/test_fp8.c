/* Numbers of 8 bits against tables that were written by hand of the formats' definitions, and
 * rounding against the nearest of all codes. */
#include <stdio.h>

#include "support/test.h"

#include "base/status.h"
#include "tensor/fp8.h"

/* Of e4m3 by exponent: bias 7, 15 counts too. */
static const double e4m3_first[16] = {
    0, 0x1p-6, 0x1p-5, 0x1p-4, 0x1p-3, 0x1p-2, 0x1p-1, 1, 2, 4, 8, 16, 32, 64, 128, 256};
/* Of some codes, from the OCP's specification. */
static const struct {
    weft_dtype t;
    uint8_t    code;
    double     x;
} known[] = {
    {WEFT_DTYPE_F8_E4M3, 0x00, 0},           {WEFT_DTYPE_F8_E4M3, 0x01, 0x1p-9},
    {WEFT_DTYPE_F8_E4M3, 0x07, 0.013671875}, {WEFT_DTYPE_F8_E4M3, 0x08, 0x1p-6},
    {WEFT_DTYPE_F8_E4M3, 0x38, 1},           {WEFT_DTYPE_F8_E4M3, 0x39, 1.125},
    {WEFT_DTYPE_F8_E4M3, 0x7e, 448},         {WEFT_DTYPE_F8_E4M3, 0xfe, -448},
    {WEFT_DTYPE_F8_E5M2, 0x01, 0x1p-16},     {WEFT_DTYPE_F8_E5M2, 0x03, 0x1.8p-15},
    {WEFT_DTYPE_F8_E5M2, 0x04, 0x1p-14},     {WEFT_DTYPE_F8_E5M2, 0x3c, 1},
    {WEFT_DTYPE_F8_E5M2, 0x3d, 1.25},        {WEFT_DTYPE_F8_E5M2, 0x7b, 57344},
    {WEFT_DTYPE_F8_E5M2, 0xc0, -2},
};

/* What a code is, by its bits. */
static double value_of(uint8_t code, weft_dtype t)
{
    double x;
    if (t == WEFT_DTYPE_F8_E4M3) {
        int e = code >> 3 & 15, m = code & 7;
        if (e == 15 && m == 7) return NAN;
        x = e ? e4m3_first[e] * (1 + m / 8.0) : m * 0x1p-9;
    } else { /* the upper half of a binary16 */
        int e = code >> 2 & 31, m = code & 3;
        if (e == 31) return m ? NAN : code & 0x80 ? -INFINITY : INFINITY;
        x = e ? ldexp(1 + m / 4.0, e - 15) : m * 0x1p-16;
    }
    return code & 0x80 ? -x : x;
}

static const weft_dtype formats[] = {WEFT_DTYPE_F8_E4M3, WEFT_DTYPE_F8_E5M2};

static void test_codes(void **state)
{
    (void)state;
    for (size_t i = 0; i < WEFT_COUNT(known); i++)
        assert_true((double)weft_fp8_decode(known[i].code, known[i].t) == known[i].x);
    for (size_t f = 0; f < WEFT_COUNT(formats); f++)
        for (int code = 0; code < 256; code++) {
            double want = value_of((uint8_t)code, formats[f]);
            float  got  = weft_fp8_decode((uint8_t)code, formats[f]);
            if (isnan(want)) {
                assert_true(isnan(got));
                assert_int_equal(weft_fp8_encode(got, formats[f]) & 0x7f, 0x7f);
                continue;
            }
            assert_true((double)got == want && !signbit(got) == !signbit(want));
            if (isfinite(want)) assert_int_equal(weft_fp8_encode(got, formats[f]), code);
        }
}

/* The nearest number of a format; of two the one with an even code. */
static float nearest(float x, weft_dtype t)
{
    int    best  = 0;
    double least = INFINITY;
    if (fabsf(x) > weft_fp8_format_of(t).most)
        return copysignf(weft_fp8_format_of(t).most, x);
    for (int code = 0; code < 128; code++) {
        double y = value_of((uint8_t)code, t), off = fabs(y - fabs((double)x));
        if (!isfinite(y)) continue;
        if (off < least || (off == least && code % 2 == 0)) best = code, least = off;
    }
    return copysignf((float)value_of((uint8_t)best, t), x);
}

static void check(float x, weft_dtype t)
{
    float got = weft_fp8_round(x, weft_fp8_format_of(t)), want = nearest(x, t);
    if (memcmp(&got, &want, sizeof got))
        fail_msg("%a becomes %a in %s, not %a", (double)x, (double)got,
                 weft_dtype_name(t), (double)want);
    assert_true(weft_fp8_decode(weft_fp8_encode(x, t), t) == want);
}

/* Every number, halfway between neighbours, and next to these on both sides; beyond the largest. */
static void test_rounding(void **state)
{
    (void)state;
    for (size_t f = 0; f < WEFT_COUNT(formats); f++) {
        weft_dtype t = formats[f];
        for (int code = 0; code < 0x7e; code++) {
            float a = (float)value_of((uint8_t)code, t);
            float b = (float)value_of((uint8_t)(code + 1), t), half = (a + b) / 2;
            if (!isfinite(a) || !isfinite(b)) continue;
            for (int sign = -1; sign <= 1; sign += 2) {
                float s = (float)sign;
                check(s * a, t);
                check(s * half, t);
                check(s * nextafterf(half, 0), t);
                check(s * nextafterf(half, INFINITY), t);
            }
        }
        float most = weft_fp8_format_of(t).most;
        check(most * 1.01f, t);
        check(-most * 1e30f, t);
        check(1e-30f, t);
        assert_true(weft_fp8_round(INFINITY, weft_fp8_format_of(t)) == most);
        assert_true(isnan(weft_fp8_round(NAN, weft_fp8_format_of(t))));
        for (uint32_t u = 0; u < 0x7f800000u; u += 0x0003f0f1u) {
            float x;
            memcpy(&x, &u, sizeof x);
            check(x, t);
        }
    }
}

/* A row's largest number, divided by the unit, is at most the format's largest and above half of
 * it; what comes back is a bf16. */
static void test_units(void **state)
{
    (void)state;
    for (size_t f = 0; f < WEFT_COUNT(formats); f++) {
        weft_fp8_format format = weft_fp8_format_of(formats[f]);
        for (uint32_t bf16 = 1; bf16 < 0x7f80; bf16++) {
            uint32_t u = bf16 << 16, back;
            float    x, unit = weft_fp8_unit(u, format);
            int      e;
            memcpy(&x, &u, sizeof x);
            assert_true(frexpf(unit, &e) == 0.5f); /* a power of two */
            float part = x / unit;
            assert_true(part <= format.most);
            if (x >= 0x1p-100f) assert_true(part > format.most / 2);
            float y = weft_fp8_round(part, format) * unit;
            memcpy(&back, &y, sizeof back);
            assert_int_equal(back & 0xffff, 0);
        }
        assert_true(weft_fp8_unit(0, format) > 0);
        assert_true(isnan(weft_fp8_unit(weft_fp8_magnitude(-INFINITY), format)));
        assert_true(isnan(weft_fp8_unit(weft_fp8_magnitude(NAN), format)));
    }
    assert_true(weft_fp8_unit(weft_fp8_magnitude(-448), weft_fp8_format_of(formats[0])) ==
                1);
    assert_true(weft_fp8_unit(weft_fp8_magnitude(449), weft_fp8_format_of(formats[0])) ==
                2);
}

static void test_words(void **state)
{
    weft_dtype t = WEFT_DTYPE_F32;
    (void)state;
    assert_true(weft_fp8_parse("e4m3,e5m2", 0, &t) && t == WEFT_DTYPE_F8_E4M3);
    assert_true(weft_fp8_parse("e4m3,e5m2", 1, &t) && t == WEFT_DTYPE_F8_E5M2);
    assert_false(weft_fp8_parse("e4m3,e5m2", 2, &t));
    assert_false(weft_fp8_parse("e4m3,e6m1", 1, &t));
    assert_false(weft_fp8_parse("", 0, &t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes), cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_units), cmocka_unit_test(test_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
