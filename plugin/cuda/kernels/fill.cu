/* One value everywhere. */
#include "cuda_vec.h"

CU_KERNEL(fill, weft_cuda_fill_args, 256)
{
    int64_t i = cu_index();
    if (i < a.n) cu_store_double(a.y.p, a.y.dtype, cu_at(a.y, i), a.value);
}

/* Units of 16 bytes. */
CU_KERNEL(fill_zero, weft_cuda_zero_args, 256)
{
    int64_t i    = cu_index();
    uint4   zero = {};
    if (i < a.n) ((uint4 *)a.y)[i] = zero;
}
