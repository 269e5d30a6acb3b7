/* Functions of vectors of floats: exp, tanh, erf, the activations and their derivatives.
 *
 * Same bits at every vector width (kernel/vec.h).  Largest errors over the floats that
 * tests/kernel/test_vmath.c walks, in ulp: exp 1, sigmoid, silu and tanh 2.1, erf 2.4, normal cdf
 * 7, gelu by tanh 10 where it is small (x near -3), being no better than its inner cube.
 * Polynomials: interpolation at Chebyshev nodes, coefficients rounded to float. */
#ifndef WEFT_KERNEL_VMATH_H
#define WEFT_KERNEL_VMATH_H

#include "kernel/vec.h"

/* e^x = 2^n e^r, |r| <= ln 2 / 2; a subnormal result is rounded once.  NaN stays NaN: vf_min and
 * vf_max give their second operand then. */
VFN vf vf_exp(vf x)
{
    vf c = vf_max(vf_set1(-104.5f), vf_min(vf_set1(89.0f), x));
    vf f = vf_round(vf_mul(c, vf_set1(1.44269504f)));
    vf r = vf_fnma(f, vf_set1(0x1.62e4p-1f), c);
    vf q = vf_set1(0.000198919806f);

    r = vf_fnma(f, vf_set1(0x1.7f7d1cp-20f), r); /* ln 2 - 0x1.62e4p-1 */
    q = vf_fma(q, r, vf_set1(0.00139345415f));
    q = vf_fma(q, r, vf_set1(0.00833331048f));
    q = vf_fma(q, r, vf_set1(0.0416664556f));
    q = vf_fma(q, r, vf_set1(0.166666672f));
    q = vf_fma(q, r, vf_set1(0.5f));
    q = vf_add(vf_fma(vf_mul(r, r), q, r), vf_set1(1.0f));
    return vf_scale2(q, f);
}

/* 1 / (1 + e^-x) */
VFN vf vf_sigmoid(vf x)
{
    return vf_div(vf_set1(1.0f), vf_add(vf_set1(1.0f), vf_exp(vf_neg(x))));
}

/* Small |x|: an odd polynomial; otherwise 1 - 2 / (e^2|x| + 1), which meets 1 by itself. */
VFN vf vf_tanh(vf x)
{
    vf a = vf_abs(x);
    vf u = vf_mul(x, x);
    vf p = vf_set1(0.00221490278f);
    vf e = vf_exp(vf_add(a, a));
    vf t;

    p = vf_fma(p, u, vf_set1(-0.00827245694f));
    p = vf_fma(p, u, vf_set1(0.0217461865f));
    p = vf_fma(p, u, vf_set1(-0.0539563484f));
    p = vf_fma(p, u, vf_set1(0.133332908f));
    p = vf_fma(p, u, vf_set1(-0.333333343f));
    p = vf_fma(vf_mul(p, u), x, x);
    t = vf_sub(vf_set1(1.0f), vf_div(vf_set1(2.0f), vf_add(e, vf_set1(1.0f))));
    return vf_sel(vf_lt(a, vf_set1(0.625f)), p, vf_sign_of(t, x));
}

/* erfc(z) e^(z^2), 0 <= z <= 10.2: t P(t) with t = 1 / (1 + 0.35 z). */
VFN vf vf_erfcx(vf z)
{
    vf t = vf_div(vf_set1(1.0f), vf_fma(vf_set1(0.35f), z, vf_set1(1.0f)));
    vf p = vf_set1(0.0369987972f);

    p = vf_fma(p, t, vf_set1(-0.151487261f));
    p = vf_fma(p, t, vf_set1(0.164410278f));
    p = vf_fma(p, t, vf_set1(-0.00561262248f));
    p = vf_fma(p, t, vf_set1(0.0692233071f));
    p = vf_fma(p, t, vf_set1(0.15526104f));
    p = vf_fma(p, t, vf_set1(0.148121372f));
    p = vf_fma(p, t, vf_set1(0.188531741f));
    p = vf_fma(p, t, vf_set1(0.197066024f));
    p = vf_fma(p, t, vf_set1(0.197487324f));
    return vf_mul(p, t);
}

/* e^(-s x^2), s a power of two: what rounding x^2 loses is put back, since e^x magnifies it. */
VFN vf vf_exp_square(vf x, float s)
{
    vf x2 = vf_mul(x, x);
    vf lo = vf_mul(vf_fnma(x, x, x2), vf_set1(s)); /* s (x2 - x x), exactly */
    vf e  = vf_exp(vf_mul(x2, vf_set1(-s)));
    return vf_fma(e, lo, e);
}

VFN vf vf_erf(vf x)
{
    vf a = vf_abs(x);
    vf c = vf_min(vf_set1(10.1f), a); /* erfc(10.1) = 0 in float */
    vf u = vf_mul(x, x);
    vf r = vf_mul(vf_exp_square(c, 1.0f), vf_erfcx(c));
    vf p = vf_set1(-9.66704465e-06f);

    p = vf_fma(p, u, vf_set1(0.000112659589f));
    p = vf_fma(p, u, vf_set1(-0.000848408032f));
    p = vf_fma(p, u, vf_set1(0.00522103161f));
    p = vf_fma(p, u, vf_set1(-0.0268654302f));
    p = vf_fma(p, u, vf_set1(0.112837821f));
    p = vf_fma(p, u, vf_set1(-0.376126379f));
    p = vf_fma(p, u, vf_set1(1.12837923f));
    return vf_sel(vf_lt(a, vf_set1(1.0f)), vf_mul(p, x),
                  vf_sign_of(vf_sub(vf_set1(1.0f), r), x));
}

/* The normal distribution's cdf, (1 + erf(x / sqrt 2)) / 2, without cancellation at x << 0; e is
 * e^(-x^2 / 2). */
VFN vf vf_normal_cdf_e(vf x, vf e)
{
    vf z = vf_mul(vf_min(vf_set1(14.2f), vf_abs(x)), vf_set1(0.707106781f));
    vf h = vf_mul(vf_mul(vf_set1(0.5f), e), vf_erfcx(z));
    return vf_sel(vf_lt(x, vf_set1(0.0f)), h, vf_sub(vf_set1(1.0f), h));
}

VFN vf vf_exp_half_square(vf x)
{
    return vf_exp_square(vf_min(vf_set1(14.5f), vf_abs(x)), 0.5f); /* 0 there */
}

VFN vf vf_normal_cdf(vf x)
{
    return vf_normal_cdf_e(x, vf_exp_half_square(x));
}

/* ---- activations and their derivatives at u ------------------------------------------- */

#define WEFT_GELU_C0 0.797884561f  /* sqrt(2 / pi) */
#define WEFT_GELU_C1 0.0356774081f /* sqrt(2 / pi) 0.044715 */

/* x (1 + tanh v) / 2 = x sigmoid(2 v), v = sqrt(2 / pi) (x + 0.044715 x^3) */
VFN vf vf_gelu_tanh_2v(vf x)
{
    vf s =
        vf_fma(vf_mul(x, x), vf_set1(2.0f * WEFT_GELU_C1), vf_set1(2.0f * WEFT_GELU_C0));
    return vf_mul(x, s);
}

VFN vf vf_gelu_tanh(vf x)
{
    vf e = vf_exp(vf_neg(vf_gelu_tanh_2v(x)));
    return vf_div(x, vf_add(vf_set1(1.0f), e));
}

/* s + x s (1 - s) 2v', s = sigmoid(2v); 1 - s = e s without cancellation, e = e^-2v */
VFN vf vf_gelu_tanh_grad(vf x)
{
    vf e = vf_exp(vf_min(vf_set1(80.0f), vf_neg(vf_gelu_tanh_2v(x))));
    vf s = vf_div(vf_set1(1.0f), vf_add(vf_set1(1.0f), e));
    vf d =
        vf_fma(vf_mul(x, x), vf_set1(6.0f * WEFT_GELU_C1), vf_set1(2.0f * WEFT_GELU_C0));
    return vf_fma(vf_mul(vf_mul(x, s), vf_mul(e, s)), d, s);
}

VFN vf vf_gelu_erf(vf x)
{
    return vf_mul(x, vf_normal_cdf(x));
}

/* cdf(x) + x pdf(x) */
VFN vf vf_gelu_erf_grad(vf x)
{
    vf e = vf_exp_half_square(x);
    return vf_fma(vf_mul(x, e), vf_set1(0.398942280f), vf_normal_cdf_e(x, e));
}

VFN vf vf_silu(vf x)
{
    return vf_div(x, vf_add(vf_set1(1.0f), vf_exp(vf_neg(x))));
}

VFN vf vf_silu_grad(vf x)
{
    vf e = vf_exp(vf_min(vf_set1(80.0f), vf_neg(x)));
    vf s = vf_div(vf_set1(1.0f), vf_add(vf_set1(1.0f), e));
    return vf_fma(vf_mul(x, s), vf_mul(e, s), s);
}

VFN vf vf_relu(vf x)
{
    return vf_max(vf_set1(0.0f), x);
} /* NaN stays NaN */

VFN vf vf_relu_grad(vf x)
{
    return vf_sel(vf_lt(vf_set1(0.0f), x), vf_set1(1.0f), vf_set1(0.0f));
}

VFN vf vf_tanh_grad(vf x)
{
    vf t = vf_tanh(x);
    return vf_fnma(t, t, vf_set1(1.0f));
}

#endif
