/* kernel/rows.h for AVX2 with FMA. */
#define ROWS weft_kernel__rows_avx2
#include "kernel/rows_impl.h"
