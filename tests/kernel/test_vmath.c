/* Vector functions (plain form: test_gemm.c shows that the others have its bits) against libm in
 * double, over floats of every size. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernel/vmath.h"

static double ulps(float got, double want)
{
    double one = fabs(want) < (double)FLT_MIN ? 0x1p-149 : ldexp(1.0, ilogb(want) - 23);
    return fabs((double)got - want) / one;
}

static float one_of(vf (*f)(vf), float x)
{
    float out[VW];
    vf_store(out, f(vf_set1(x)));
    return out[0];
}

/* The largest error in ulp over about a million floats with lo <= |x| < hi. */
static double worst(vf (*f)(vf), double (*g)(double), float lo, float hi)
{
    uint32_t a, b;
    double   most = 0;

    memcpy(&a, &lo, 4), memcpy(&b, &hi, 4);
    for (uint32_t u = a; u < b; u += 1 + (b - a) / 500000)
        for (uint32_t s = 0; s <= 0x80000000u; s += 0x80000000u) {
            uint32_t w = u | s;
            float    x;
            memcpy(&x, &w, 4);
            most = fmax(most, ulps(one_of(f, x), g((double)x)));
            if (s) break;
        }
    return most;
}

#define WRAP(name)                                                                       \
    static vf w_##name(vf x)                                                             \
    {                                                                                    \
        return vf_##name(x);                                                             \
    }
WRAP(exp)
WRAP(sigmoid)
WRAP(tanh)
WRAP(erf)
WRAP(normal_cdf)
WRAP(gelu_tanh)
WRAP(gelu_erf)
WRAP(silu)

static double d_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double d_cdf(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}
static double d_silu(double x)
{
    return x / (1 + exp(-x));
}
static double d_gelu_erf(double x)
{
    return x * d_cdf(x);
}
static double d_gelu_tanh(double x)
{
    double v = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    return x / (1 + exp(-2 * v));
}

static void precise(void **state)
{
    (void)state;
    assert_true(worst(w_exp, exp, 1e-30f, 88.7f) <=
                1.01); /* down to 3e-39, a subnormal */
    assert_true(worst(w_sigmoid, d_sigmoid, 1e-30f, 80.0f) <= 2.1);
    assert_true(worst(w_silu, d_silu, 1e-30f, 80.0f) <= 2.1);
    assert_true(worst(w_tanh, tanh, 1e-30f, 20.0f) <= 2.1);
    assert_true(worst(w_erf, erf, 1e-30f, 6.0f) <= 3.0);
    assert_true(worst(w_normal_cdf, d_cdf, 1e-30f, 5.0f) <= 7.0);
    assert_true(worst(w_gelu_erf, d_gelu_erf, 1e-30f, 5.0f) <= 7.0);
    assert_true(worst(w_gelu_tanh, d_gelu_tanh, 1e-30f, 3.0f) <= 10.0);
}

static void special(void **state)
{
    (void)state;
    assert_true(one_of(w_exp, 0.0f) == 1.0f);
    assert_true(one_of(w_exp, INFINITY) == INFINITY);
    assert_true(one_of(w_exp, 89.0f) == INFINITY);
    assert_true(one_of(w_exp, -INFINITY) == 0.0f);
    assert_true(one_of(w_exp, 88.72f) < INFINITY);
    assert_true(isnan(one_of(w_exp, NAN)));
    assert_true(isnan(one_of(w_tanh, NAN)));
    assert_true(one_of(w_tanh, 50.0f) == 1.0f && one_of(w_tanh, -50.0f) == -1.0f);
    assert_true(one_of(w_erf, 50.0f) == 1.0f && one_of(w_erf, -50.0f) == -1.0f);
    assert_true(one_of(w_gelu_tanh, -100.0f) == 0.0f &&
                one_of(w_gelu_tanh, 100.0f) == 100.0f);
    assert_true(one_of(w_gelu_erf, -100.0f) == 0.0f &&
                one_of(w_gelu_erf, 100.0f) == 100.0f);
    assert_true(weft_bf16_widen(weft_bf16_round(1.00390625f)) ==
                1.0f); /* a tie goes to even */
    assert_true(isnan(weft_bf16_widen(weft_bf16_round(NAN))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(precise),
                                       cmocka_unit_test(special)};
    return cmocka_run_group_tests_name("vmath", tests, NULL, NULL);
}
