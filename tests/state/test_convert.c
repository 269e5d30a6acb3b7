/* Numbers between fp32 and the types of files. */
#include "support/test.h"

#include <math.h>

#include "state/convert.h"

/* Every fp16 number goes to fp32 and back; ties go to even. */
static void test_convert(void **s)
{
    (void)s;
    for (uint32_t u = 0; u < 65536; u++) {
        uint16_t h = (uint16_t)u, back;
        float    x;
        assert_ok(weft_convert_to_f32(WEFT_DTYPE_F16, &h, 1, &x));
        if (isnan(x)) continue;
        assert_ok(weft_convert_from_f32(WEFT_DTYPE_F16, &x, 1, &back));
        assert_int_equal(back, h);
        assert_ok(weft_convert_to_f32(WEFT_DTYPE_BF16, &h, 1, &x));
        if (isnan(x)) continue;
        assert_ok(weft_convert_from_f32(WEFT_DTYPE_BF16, &x, 1, &back));
        assert_int_equal(back, h);
    }
    float tie[] = {1 + 0x1p-11f, 1 + 3 * 0x1p-11f, 1 + 0x1p-8f, 1 + 3 * 0x1p-8f, 70000};
    uint16_t h[5];
    assert_ok(weft_convert_from_f32(WEFT_DTYPE_F16, tie, 2, h));
    assert_int_equal(h[0], 0x3c00);
    assert_int_equal(h[1], 0x3c02);
    assert_ok(weft_convert_from_f32(WEFT_DTYPE_BF16, tie + 2, 2, h));
    assert_int_equal(h[0], 0x3f80);
    assert_int_equal(h[1], 0x3f82);
    assert_ok(weft_convert_from_f32(WEFT_DTYPE_F16, tie + 4, 1, h));
    assert_int_equal(h[0], 0x7c00);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(test_convert),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
