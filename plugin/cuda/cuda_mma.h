/* For .cu files: products of small matrices by the tensor cores of a warp. */
#ifndef WEFT_CUDA_MMA_H
#define WEFT_CUDA_MMA_H

#include "cuda_device.h"

/* d (16 x 8, f32) += a (16 x 16) b (16 x 8), bf16, two elements along k a word.  With
 * g = lane / 4 and t = lane % 4:
 *     a[0] row g, k 2t; a[1] row g + 8, k 2t; a[2] row g, k 2t + 8; a[3] row g + 8, k 2t + 8
 *     b[0] column g, k 2t; b[1] column g, k 2t + 8
 *     d[0], d[1] row g, columns 2t, 2t + 1; d[2], d[3] row g + 8 */
#ifdef __CUDACC__
CU_FN void cu_mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
CU_FN float cu_dot2(uint32_t a, uint32_t b)
{
    return cu_float((cu_bf16)a) * cu_float((cu_bf16)b) +
           cu_float((cu_bf16)(a >> 16)) * cu_float((cu_bf16)(b >> 16));
}

CU_FN void cu_mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    int      g = emu_lane() / 4, t = emu_lane() % 4;
    uint64_t upper = (uint64_t)a[2] << 32 | a[0], lower = (uint64_t)a[3] << 32 | a[1];
    uint64_t both = (uint64_t)b[1] << 32 | b[0];
    for (int s = 0; s < 4; s++) {
        uint64_t up  = emu_exchange(upper, g * 4 + s),
                 low = emu_exchange(lower, g * 4 + s);
        for (int c = 0; c < 2; c++) {
            uint64_t w = emu_exchange(both, (2 * t + c) * 4 + s);
            d[c] += cu_dot2((uint32_t)up, (uint32_t)w) +
                    cu_dot2((uint32_t)(up >> 32), (uint32_t)(w >> 32));
            d[c + 2] += cu_dot2((uint32_t)low, (uint32_t)w) +
                        cu_dot2((uint32_t)(low >> 32), (uint32_t)(w >> 32));
        }
    }
}
#endif

#endif
