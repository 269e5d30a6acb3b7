/* Every bfloat16 survives; every float goes to the nearest one, of two to the even one. */
#include "tensor/bf16.h"

#include <math.h>

#include "support/test.h"

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void all_survive(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 1u << 16; h++) {
        float f = weft_bf16_widen((uint16_t)h);
        if (isnan(f))
            assert_true(isnan(weft_bf16_widen(weft_bf16_round(f))));
        else
            assert_int_equal(weft_bf16_round(f), h);
    }
}

/* Between two neighbours the distances say where to. */
static void nearest(void **state)
{
    static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    (void)state;
    for (uint32_t h = 0; h < 0x7f7f; h++)
        for (size_t k = 0; k < sizeof low / sizeof low[0]; k++) {
            float    x    = float_of((h << 16) + low[k]);
            double   a    = (double)(x - float_of(h << 16));
            double   b    = (double)(float_of((h + 1) << 16) - x);
            uint32_t want = a < b ? h : a > b ? h + 1 : h + (h & 1);
            assert_int_equal(weft_bf16_round(x), want);
            assert_int_equal(weft_bf16_round(-x), want | 0x8000u);
        }
}

static void ends(void **state)
{
    (void)state;
    assert_int_equal(weft_bf16_round(INFINITY), 0x7f80);
    assert_int_equal(weft_bf16_round(-INFINITY), 0xff80);
    assert_int_equal(weft_bf16_round(3.4028234e38f), 0x7f80);
    assert_true(isnan(weft_bf16_widen(weft_bf16_round(float_of(0x7f800001u)))));
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(all_survive),
        cmocka_unit_test(nearest),
        cmocka_unit_test(ends),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
