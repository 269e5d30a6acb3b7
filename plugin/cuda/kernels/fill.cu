/* One value everywhere. */
#include "cuda_device.h"

CU_KERNEL(fill, weft_cuda_fill_args, 256)
{
    int64_t i = cu_index();
    if (i < a.n) cu_store(a.y, cu_at(a.y, i), (float)a.value);
}
