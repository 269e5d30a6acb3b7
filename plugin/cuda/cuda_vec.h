/* For .cu files: rows of 8 elements at once, strided operands. */
#ifndef WEFT_CUDA_VEC_H
#define WEFT_CUDA_VEC_H

#include "cuda_device.h"

/* ---- functions of one number ---- */

#ifdef __CUDACC__
CU_FN float cu_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
CU_FN float cu_inverse(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
CU_FN float cu_exp2(float x)
{
    return exp2f(x);
}
CU_FN float cu_inverse(float x)
{
    return 1 / x;
}
#endif

/* ---- numbers of any type ---- */

CU_FN double cu_load_double(const void *p, int dtype, int64_t at)
{
    switch (dtype) {
    case WEFT_DTYPE_F32: return ((const float *)p)[at];
    case WEFT_DTYPE_BF16: return cu_float(((const cu_bf16 *)p)[at]);
    case WEFT_DTYPE_F64: return ((const double *)p)[at];
    case WEFT_DTYPE_I32: return ((const int32_t *)p)[at];
    case WEFT_DTYPE_I64: return (double)((const int64_t *)p)[at];
    case WEFT_DTYPE_U32: return ((const uint32_t *)p)[at];
    case WEFT_DTYPE_I16: return ((const int16_t *)p)[at];
    case WEFT_DTYPE_U16: return ((const uint16_t *)p)[at];
    case WEFT_DTYPE_I8: return ((const int8_t *)p)[at];
    default: return ((const uint8_t *)p)[at];
    }
}

CU_FN void cu_store_double(void *p, int dtype, int64_t at, double x)
{
    switch (dtype) {
    case WEFT_DTYPE_F32: ((float *)p)[at] = (float)x; break;
    case WEFT_DTYPE_BF16: ((cu_bf16 *)p)[at] = cu_round((float)x); break;
    case WEFT_DTYPE_F64: ((double *)p)[at] = x; break;
    case WEFT_DTYPE_I32: ((int32_t *)p)[at] = (int32_t)x; break;
    case WEFT_DTYPE_I64: ((int64_t *)p)[at] = (int64_t)x; break;
    case WEFT_DTYPE_U32: ((uint32_t *)p)[at] = (uint32_t)x; break;
    case WEFT_DTYPE_I16: ((int16_t *)p)[at] = (int16_t)x; break;
    case WEFT_DTYPE_U16: ((uint16_t *)p)[at] = (uint16_t)x; break;
    case WEFT_DTYPE_I8: ((int8_t *)p)[at] = (int8_t)x; break;
    default: ((uint8_t *)p)[at] = (uint8_t)x; break;
    }
}

/* f32 or bf16 as float, and back. */
CU_FN float cu_get(const void *p, int dtype, int64_t at)
{
    return dtype == WEFT_DTYPE_F32 ? ((const float *)p)[at]
                                   : cu_float(((const cu_bf16 *)p)[at]);
}

CU_FN void cu_put(void *p, int dtype, int64_t at, float x)
{
    if (dtype == WEFT_DTYPE_F32)
        ((float *)p)[at] = x;
    else
        ((cu_bf16 *)p)[at] = cu_round(x);
}

/* As if x had been stored in the type and read again. */
CU_FN float cu_as(int dtype, float x)
{
    return dtype == WEFT_DTYPE_F32 ? x : cu_float(cu_round(x));
}

/* ---- 8 elements ---- */

/* Two bf16, in one instruction on a GPU. */
CU_FN uint32_t cu_pack(float lo, float hi)
{
#ifdef __CUDACC__
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
    return y;
#else
    return (uint32_t)cu_round(lo) | (uint32_t)cu_round(hi) << 16;
#endif
}

/* 8 elements as they are in memory.  Reading and widening are two steps, so that a thread can
 * have several reads under way: a kernel that widens at once waits for each. */
struct cu_vector {
    uint4 lo, hi; /* hi: f32 only */
};

/* p[at .. at + 8): f32 or bf16, address a multiple of 16. */
CU_FN cu_vector cu_read8(const void *p, int dtype, int64_t at)
{
    cu_vector   v     = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    const char *first = (const char *)p + at * (dtype == WEFT_DTYPE_F32 ? 4 : 2);
    v.lo              = *(const uint4 *)first;
    if (dtype == WEFT_DTYPE_F32) v.hi = *(const uint4 *)(first + 16);
    return v;
}

CU_FN float cu_bits(uint32_t x)
{
#ifdef __CUDACC__
    return __uint_as_float(x);
#else
    float f;
    memcpy(&f, &x, sizeof f);
    return f;
#endif
}

CU_FN void cu_widen8(const cu_vector &v, int dtype, float x[8])
{
    uint32_t lo[4] = {v.lo.x, v.lo.y, v.lo.z, v.lo.w};
    uint32_t hi[4] = {v.hi.x, v.hi.y, v.hi.z, v.hi.w};
    bool     f32   = dtype == WEFT_DTYPE_F32;
    for (int j = 0; j < 4; j++) {
        x[j] = cu_bits(f32 ? lo[j] : j % 2 ? lo[j / 2] & 0xffff0000u : lo[j / 2] << 16);
        x[j + 4] = cu_bits(f32     ? hi[j]
                           : j % 2 ? lo[2 + j / 2] & 0xffff0000u
                                   : lo[2 + j / 2] << 16);
    }
}

CU_FN void cu_get8(const void *p, int dtype, int64_t at, float x[8])
{
    cu_widen8(cu_read8(p, dtype, at), dtype, x);
}

CU_FN void cu_put8(void *p, int dtype, int64_t at, const float x[8])
{
    if (dtype == WEFT_DTYPE_F32) {
        float4 a = {x[0], x[1], x[2], x[3]}, b = {x[4], x[5], x[6], x[7]};
        *(float4 *)((float *)p + at)     = a;
        *(float4 *)((float *)p + at + 4) = b;
    } else {
        uint4 a = {cu_pack(x[0], x[1]), cu_pack(x[2], x[3]), cu_pack(x[4], x[5]),
                   cu_pack(x[6], x[7])};
        *(uint4 *)((cu_bf16 *)p + at) = a;
    }
}

/* As if 8 elements had been stored in the type and read again. */
CU_FN void cu_as8(int dtype, float x[8])
{
    if (dtype == WEFT_DTYPE_F32) return;
    cu_vector v = {{cu_pack(x[0], x[1]), cu_pack(x[2], x[3]), cu_pack(x[4], x[5]),
                    cu_pack(x[6], x[7])},
                   {0, 0, 0, 0}};
    cu_widen8(v, dtype, x);
}

/* p[at .. at + 4): f32 at a multiple of 16 bytes, or bf16 at one of 8. */
CU_FN void cu_get4(const void *p, int dtype, int64_t at, float x[4])
{
    if (dtype == WEFT_DTYPE_F32) {
        float4 a = *(const float4 *)((const float *)p + at);
        x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
    } else {
        uint2 a = *(const uint2 *)((const cu_bf16 *)p + at);
        x[0] = cu_float((cu_bf16)a.x), x[1] = cu_float((cu_bf16)(a.x >> 16));
        x[2] = cu_float((cu_bf16)a.y), x[3] = cu_float((cu_bf16)(a.y >> 16));
    }
}

/* 4 floats at a multiple of 16 bytes, or 4 bf16 at one of 8, that nobody reads
 * again soon: first to leave the cache. They are issued in the order in which
 * they are written. */
CU_FN void cu_stream_get4(const float *p, float x[4])
{
#ifdef __CUDACC__
    asm volatile("ld.global.cs.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "l"(p));
#else
    memcpy(x, p, 4 * sizeof *p);
#endif
}

CU_FN void cu_stream_put4(float *p, const float x[4])
{
#ifdef __CUDACC__
    asm volatile("st.global.cs.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(p), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
                 : "memory");
#else
    memcpy(p, x, 4 * sizeof *p);
#endif
}

CU_FN void cu_stream_put4(cu_bf16 *p, const float x[4])
{
    uint32_t lo = cu_pack(x[0], x[1]), hi = cu_pack(x[2], x[3]);
#ifdef __CUDACC__
    asm volatile("st.global.cs.v2.b32 [%0], {%1, %2};"
                 :
                 : "l"(p), "r"(lo), "r"(hi)
                 : "memory");
#else
    memcpy(p, &lo, sizeof lo);
    memcpy(p + 2, &hi, sizeof hi);
#endif
}

/* W elements along a step that is 1 or 0 where W is 8, of types f32 and bf16: read, then
 * widened. */
template <int W> struct cu_row {
    cu_vector v;
    float     one; /* W is 1, or the step 0 */
};

template <int W>
CU_FN cu_row<W> cu_read_row(const void *p, int dtype, int64_t at, int64_t step)
{
    cu_row<W> r = {{{0, 0, 0, 0}, {0, 0, 0, 0}}, 0};
    if (W == 1 || step == 0)
        r.one = cu_get(p, dtype, at);
    else
        r.v = cu_read8(p, dtype, at);
    return r;
}

template <int W>
CU_FN void cu_widen_row(const cu_row<W> &r, int dtype, int64_t step, float x[W])
{
    if (W == 8) cu_widen8(r.v, dtype, x);
    if (W == 1 || step == 0)
        for (int j = 0; j < W; j++) x[j] = r.one;
}

template <int W>
CU_FN void cu_get_row(const void *p, int dtype, int64_t at, int64_t step, float x[W])
{
    cu_widen_row<W>(cu_read_row<W>(p, dtype, at, step), dtype, step, x);
}

template <int W> CU_FN void cu_put_row(void *p, int dtype, int64_t at, const float x[W])
{
    if (W == 1)
        cu_put(p, dtype, at, x[0]);
    else
        cu_put8(p, dtype, at, x);
}

/* ---- strided operands ---- */

/* Offsets of N operands at number i of nd's vectors of W elements (along the last dimension). */
template <int N, int W>
CU_FN void cu_nd_at(const weft_cuda_nd &nd, int64_t i, int64_t at[N])
{
    for (int o = 0; o < N; o++) at[o] = 0;
    for (int k = nd.n - 1; k > 0; k--) {
        int64_t d = k == nd.n - 1 ? nd.d[k] / W : nd.d[k];
        int64_t next =
            nd.count < INT32_MAX ? (int64_t)((uint32_t)i / (uint32_t)d) : i / d;
        int64_t at_k = (i - next * d) * (k == nd.n - 1 ? W : 1);
        for (int o = 0; o < N; o++) at[o] += at_k * nd.step[o][k];
        i = next;
    }
    i *= nd.n == 1 ? W : 1;
    for (int o = 0; o < N; o++) at[o] += i * nd.step[o][0];
}

/* ---- many tensors in one launch ---- */

/* The number of the task that has this block; tasks are in order of their first_block. */
template <class Task> CU_FN int cu_find_task(const Task *task, int n)
{
    int lo = 0, hi = n;
    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;
        if ((int64_t)blockIdx.x < task[mid].first_block)
            hi = mid;
        else
            lo = mid;
    }
    return lo;
}

#endif
