/* The choice of tile functions. */
#include "kernel/tile.h"

#include "kernel/isa.h"

const weft_kernel__tile *weft_kernel__tile_now(void)
{
#if defined(__x86_64__)
    switch (weft_kernel_isa()) {
    case WEFT_ISA_AVX512: return &weft_kernel__tile_avx512;
    case WEFT_ISA_AVX2: return &weft_kernel__tile_avx2;
    default: break;
    }
#endif
    return &weft_kernel__tile_plain;
}

float weft_kernel__fold_lanes(const float lane[WEFT_TILE_LANES])
{
    float t[WEFT_TILE_LANES];
    for (int l = 0; l < WEFT_TILE_LANES; l++) t[l] = lane[l];
    for (int w = WEFT_TILE_LANES / 2; w > 0; w /= 2)
        for (int l = 0; l < w; l++) t[l] += t[l + w];
    return t[0];
}
