/* For .cu files: the element-wise operators, for maps and for steps after products. */
#ifndef WEFT_CUDA_MAP_H
#define WEFT_CUDA_MAP_H

#include "cuda_vec.h"

/* 1 / (1 + e^-x) */
CU_FN float cu_sigmoid(float x)
{
    return cu_inverse(1.0f + cu_exp2(-1.44269504f * x));
}

/* x / 2 (1 + tanh u) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3) */
CU_FN float cu_gelu_tanh(float x)
{
    return x * cu_sigmoid(x * (1.59576912f + 0.0713548163f * x * x));
}

/* s + 2 x s (1 - s) u', s = sigmoid(2 u) */
CU_FN float cu_gelu_tanh_slope(float x)
{
    float s = cu_sigmoid(x * (1.59576912f + 0.0713548163f * x * x));
    return s + x * s * (1.0f - s) * (1.59576912f + 0.214064449f * x * x);
}

CU_FN float cu_gelu_erf(float x)
{
    return 0.5f * x * (1.0f + erff(0.707106781f * x));
}

CU_FN float cu_gelu_erf_slope(float x)
{
    return 0.5f * (1.0f + erff(0.707106781f * x)) +
           0.398942280f * x * cu_exp2(-0.721347520f * x * x);
}

CU_FN float cu_silu_slope(float x)
{
    float s = cu_sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}

#define CU_MAP_CASE(kind, expr)                                                          \
    case WEFT_CUDA_MAP_##kind:                                                           \
        for (int j = 0; j < W; j++) {                                                    \
            float x = a[j], u = b[j];                                                    \
            a[j] = (expr);                                                               \
            (void)x, (void)u;                                                            \
        }                                                                                \
        break

/* a = f(a, b) on W elements. */
template <int W>
CU_FN void cu_map(int kind, float a[W], const float b[W], float s, float t)
{
    switch (kind) {
        CU_MAP_CASE(ADD, x + u);
        CU_MAP_CASE(MUL, x * u);
        CU_MAP_CASE(SCALE, s * x);
        CU_MAP_CASE(EMA, s * x + t * u);
        CU_MAP_CASE(GELU_TANH, cu_gelu_tanh(x));
        CU_MAP_CASE(GELU_ERF, cu_gelu_erf(x));
        CU_MAP_CASE(SILU, x * cu_sigmoid(x));
        CU_MAP_CASE(RELU, x > 0.0f ? x : 0.0f);
        CU_MAP_CASE(TANH, tanhf(x));
        CU_MAP_CASE(GELU_TANH_GRAD, x * cu_gelu_tanh_slope(u));
        CU_MAP_CASE(GELU_ERF_GRAD, x * cu_gelu_erf_slope(u));
        CU_MAP_CASE(SILU_GRAD, x * cu_silu_slope(u));
        CU_MAP_CASE(RELU_GRAD, u > 0.0f ? x : 0.0f);
        CU_MAP_CASE(TANH_GRAD, x * (1.0f - u * u));
    default: break;
    }
}

/* Kinds that read b. */
CU_FN bool cu_map_has_b(int kind)
{
    return kind == WEFT_CUDA_MAP_ADD || kind == WEFT_CUDA_MAP_MUL ||
           kind == WEFT_CUDA_MAP_EMA || kind >= WEFT_CUDA_MAP_GELU_TANH_GRAD;
}

#endif
