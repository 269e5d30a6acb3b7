/* kernel/tile.h for plain C. */
#define TILE_SET weft_kernel__tile_plain
#include "kernel/tile_impl.h"
