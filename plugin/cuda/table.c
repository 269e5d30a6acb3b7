/* The rows of the plugin: fast kernels in front of plain ones. */
#include "cuda_priv.h"

static const weft_kernel rows[] = {
    {.op = WEFT_OP_FILL, .run = weft_cuda_run_fill},
};

static const char *name_set(void)
{
    return "cuda"; /* architecture, versions and pinned algorithms join it with the libraries */
}

const weft_kernel_table weft_cuda_table = {
    .device  = "cuda",
    .storage = 1u << WEFT_DTYPE_F32 | 1u << WEFT_DTYPE_BF16,
    .id      = name_set,
    .n       = (int)WEFT_COUNT(rows),
    .kernel  = rows,
};
