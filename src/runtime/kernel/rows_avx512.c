/* kernel/rows.h for AVX-512. */
#define ROWS weft_kernel__rows_avx512
#include "kernel/rows_impl.h"
