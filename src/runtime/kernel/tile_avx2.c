/* kernel/tile.h for AVX2 with FMA. */
#define TILE_SET weft_kernel__tile_avx2
#include "kernel/tile_impl.h"
