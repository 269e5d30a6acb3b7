/* Sums over the threads of a warp and of a block, always in the same order. */
#ifndef WEFT_CUDA_BLOCK_H
#define WEFT_CUDA_BLOCK_H

#include "cuda_device.h"

enum {
    CU_WARP = 32
};

/* For all lanes. */
CU_FN float cu_warp_sum(float x)
{
    for (int k = CU_WARP / 2; k; k /= 2) x += __shfl_xor_sync(0xffffffffu, x, k);
    return x;
}

CU_FN float cu_warp_max(float x)
{
    for (int k = CU_WARP / 2; k; k /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, k));
    return x;
}

/* For all threads of a block of whole warps.  room: CU_WARP floats of shared memory, free again
 * on return. */
CU_FN float cu_block_sum(float x, float *room)
{
    int lane = (int)threadIdx.x % CU_WARP, n = (int)blockDim.x / CU_WARP;
    x = cu_warp_sum(x);
    if (lane == 0) room[threadIdx.x / CU_WARP] = x;
    __syncthreads();
    x = cu_warp_sum(lane < n ? room[lane] : 0);
    __syncthreads();
    return x;
}

CU_FN float cu_block_max(float x, float *room)
{
    int lane = (int)threadIdx.x % CU_WARP, n = (int)blockDim.x / CU_WARP;
    x = cu_warp_max(x);
    if (lane == 0) room[threadIdx.x / CU_WARP] = x;
    __syncthreads();
    x = cu_warp_max(room[lane < n ? lane : 0]);
    __syncthreads();
    return x;
}

#endif
