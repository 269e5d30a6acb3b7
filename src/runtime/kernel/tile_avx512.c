/* kernel/tile.h for AVX-512. */
#define TILE_SET weft_kernel__tile_avx512
#include "kernel/tile_impl.h"
