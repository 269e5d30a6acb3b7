#include <math.h>

#include "support/test.h"
#include "base/random.h"

/* The known answers that the authors of Philox publish with Random123. */
static void known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t ctr[4], key[2], out[4];
    } kat[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        weft_random_philox(kat[i].key, kat[i].ctr, out);
        assert_memory_equal(out, kat[i].out, sizeof out);
    }
}

static void uniform_range(void **state)
{
    (void)state;
    assert_true(weft_random_uniform(0) == 0.0f);
    assert_true(weft_random_uniform(0xffffffff) < 1.0f);
    assert_true(weft_random_uniform(0x80000000) == 0.5f);
}

static void normal_moments(void **state)
{
    (void)state;
    enum {
        N = 100000
    };
    double s1 = 0, s2 = 0, s4 = 0;
    for (uint32_t i = 0; i < N; i++) {
        uint32_t key[2] = {1, 2}, ctr[4] = {i, 0, 0, 0}, w[4];
        float    x[2];
        weft_random_philox(key, ctr, w);
        weft_random_normal2(w[0], w[1], x);
        for (int k = 0; k < 2; k++) {
            double v = (double)x[k];
            s1 += v, s2 += v * v, s4 += v * v * v * v;
        }
    }
    assert_true(fabs(s1 / (2 * N)) < 0.01);
    assert_true(fabs(s2 / (2 * N) - 1) < 0.02);
    assert_true(fabs(s4 / (2 * N) - 3) < 0.1);
    float x[2];
    weft_random_normal2(0, 0, x);
    assert_true(isfinite(x[0]) && isfinite(x[1]));
    weft_random_normal2(0xffffffff, 0xffffffff, x);
    assert_true(isfinite(x[0]) && isfinite(x[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(uniform_range),
        cmocka_unit_test(normal_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
