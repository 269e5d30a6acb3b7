/* What .cu files include: kernels as nvcc compiles them for a GPU, or as a C++ compiler does
 * for the CPU (emu/).
 *
 *     CU_KERNEL(fill, weft_cuda_fill_args, 256)      name, arguments, the most threads of a block
 *     {
 *         int64_t i = cu_index();                    `a` are the arguments
 *         if (i < a.n) cu_store(a.y, cu_at(a.y, i), (float)a.value);
 *     }
 */
#ifndef WEFT_CUDA_DEVICE_H
#define WEFT_CUDA_DEVICE_H

#include "cuda_args.h"
#include "weft/tensor.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#define CU_KERNEL(name, args, threads)                                                   \
    extern "C" __global__ void __launch_bounds__(threads)                                \
        weft_cuda_##name(const __grid_constant__ args a)
/* blocks: so many have room on an SM, which bounds the registers */
#define CU_KERNEL_BLOCKS(name, args, threads, blocks)                                    \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                        \
        weft_cuda_##name(const __grid_constant__ args a)
#define CU_TRAP()    __trap()
#define CU_FN        static __device__ __forceinline__
#define CU_FN_MEMBER __device__ __forceinline__
#define CU_ROLLED    _Pragma("unroll 1") /* before a loop that is not to be unrolled */
#define CU_UNROLLED  _Pragma("unroll")   /* before one that is */
/* Before a loop: all of it, so that arrays stay in registers; or n rounds at once. */
#define CU_UNROLL   _Pragma("unroll")
#define CU_UNROLL_4 _Pragma("unroll 4")
#define CU_UNROLL_8 _Pragma("unroll 8")
/* The dynamic shared memory of a block, as an array. */
extern __shared__ __align__(16) unsigned char cu_shared_bytes[];
#define CU_SHARED(type, name) type *name = (type *)cu_shared_bytes
#else
#include "emu/emu.h"
#define CU_KERNEL(name, args, threads)                                                   \
    static void     name##_body(const args &a);                                          \
    extern "C" void weft_cuda_emu_##name(const void *p);                                 \
    extern "C" void weft_cuda_emu_##name(const void *p)                                  \
    {                                                                                    \
        name##_body(*(const args *)p);                                                   \
    }                                                                                    \
    static void name##_body(const args &a)
#define CU_KERNEL_BLOCKS(name, args, threads, blocks) CU_KERNEL(name, args, threads)
#define CU_TRAP()                                     __builtin_trap()
#define CU_FN                                         static inline
#define CU_FN_MEMBER                                  inline
#define CU_ROLLED
#define CU_UNROLLED
#define CU_UNROLL
#define CU_UNROLL_4
#define CU_UNROLL_8
#define CU_SHARED(type, name) type *name = (type *)emu_shared
#endif

/* bf16 by its bits, so that both compilers round the same way: to nearest, ties to even; NaN
 * stays NaN. */
typedef uint16_t cu_bf16;

CU_FN float cu_float(cu_bf16 x)
{
#ifdef __CUDACC__
    return __uint_as_float((unsigned)x << 16);
#else
    union {
        uint32_t u;
        float    f;
    } v = {(uint32_t)x << 16};
    return v.f;
#endif
}

CU_FN cu_bf16 cu_round(float x)
{
#ifdef __CUDACC__
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
#else
    union {
        float    f;
        uint32_t u;
    } v = {x};
    if ((v.u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (cu_bf16)((v.u + 0x7fffu + (v.u >> 16 & 1u)) >> 16);
#endif
}

/* x, which the compiler cannot know: what is made of it is not kept from one time to the next. */
CU_FN uint32_t cu_again(uint32_t x)
{
#ifdef __CUDACC__
    asm volatile("" : "+r"(x));
#endif
    return x;
}

/* The thread's number in a grid of one dimension. */
CU_FN int64_t cu_index(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* Where element i of a view lies, counted row by row: in elements from v.p. */
CU_FN int64_t cu_at(const weft_cuda_view &v, int64_t i)
{
    int64_t at = 0;
    for (int k = v.n_dim - 1; k >= 0; k--) {
        int64_t next = i / v.d[k];
        at += (i - next * v.d[k]) * v.stride[k];
        i = next;
    }
    return at;
}

/* Any type of a view as float, and back. */
CU_FN float cu_load(const weft_cuda_view &v, int64_t at)
{
    switch (v.dtype) {
    case WEFT_DTYPE_F32: return ((const float *)v.p)[at];
    case WEFT_DTYPE_BF16: return cu_float(((const cu_bf16 *)v.p)[at]);
    case WEFT_DTYPE_F64: return (float)((const double *)v.p)[at];
    case WEFT_DTYPE_I32: return (float)((const int32_t *)v.p)[at];
    case WEFT_DTYPE_I64: return (float)((const int64_t *)v.p)[at];
    default: return 0;
    }
}

/* Element `at` of ids or labels. */
CU_FN int64_t cu_id(const weft_cuda_view &v, int64_t at)
{
    return v.dtype == WEFT_DTYPE_I64 ? ((const int64_t *)v.p)[at]
                                     : ((const int32_t *)v.p)[at];
}

CU_FN void cu_store(const weft_cuda_view &v, int64_t at, float x)
{
    switch (v.dtype) {
    case WEFT_DTYPE_F32: ((float *)v.p)[at] = x; break;
    case WEFT_DTYPE_BF16: ((cu_bf16 *)v.p)[at] = cu_round(x); break;
    case WEFT_DTYPE_F64: ((double *)v.p)[at] = x; break;
    case WEFT_DTYPE_I32: ((int32_t *)v.p)[at] = (int32_t)x; break;
    case WEFT_DTYPE_I64: ((int64_t *)v.p)[at] = (int64_t)x; break;
    default: break;
    }
}

#endif
