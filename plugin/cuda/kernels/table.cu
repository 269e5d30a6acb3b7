/* Rows taken by number. */
#include "cuda_vec.h"

template <typename T> CU_FN void take_unit(const weft_cuda_take_args &a, int64_t i)
{
    int64_t row, b, u;
    if (a.total < INT32_MAX) {
        row = (uint32_t)i / (uint32_t)a.units;
        b   = (uint32_t)row / (uint32_t)a.n_idx;
    } else {
        row = i / a.units;
        b   = row / a.n_idx;
    }
    u          = i - row * a.units;
    int64_t id = cu_id(a.idx, row - b * a.n_idx) - a.first;
    T       v  = {};
    if (a.divide > 1 && id >= 0) id = (int64_t)((uint32_t)id / (uint32_t)a.divide);
    if (id >= 0 && id < a.n_x) v = ((const T *)a.x)[(b * a.n_x + id) * a.units + u];
    ((T *)a.y)[i] = v;
}

CU_KERNEL(take, weft_cuda_take_args, 256)
{
    int64_t i = cu_index();
    if (i >= a.total) return;
    switch (a.unit_bytes) {
    case 16: take_unit<uint4>(a, i); break;
    case 8: take_unit<uint2>(a, i); break;
    case 4: take_unit<uint32_t>(a, i); break;
    default: take_unit<uint16_t>(a, i); break;
    }
}
