/* kernel/rows.h in plain C. */
#define ROWS weft_kernel__rows_plain
#include "kernel/rows_impl.h"
