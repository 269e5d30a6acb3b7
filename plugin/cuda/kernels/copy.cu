/* Copies of strided views, with conversion, and sums into them. */
#include "cuda_vec.h"

template <typename T> CU_FN void move_one(const weft_cuda_copy_args &a)
{
    int64_t i = cu_index(), at[2];
    if (i >= a.nd.count) return;
    cu_nd_at<2, 1>(a.nd, i, at);
    ((T *)a.to)[at[0]] = ((const T *)a.from)[at[1]];
}

/* The same type, by the size of an element; 16 bytes: elements of rows that lie together. */
CU_KERNEL(move_1, weft_cuda_copy_args, 256)
{
    move_one<uint8_t>(a);
}
CU_KERNEL(move_2, weft_cuda_copy_args, 256)
{
    move_one<uint16_t>(a);
}
CU_KERNEL(move_4, weft_cuda_copy_args, 256)
{
    move_one<uint32_t>(a);
}
CU_KERNEL(move_8, weft_cuda_copy_args, 256)
{
    move_one<uint64_t>(a);
}
CU_KERNEL(move_16, weft_cuda_copy_args, 256)
{
    move_one<uint4>(a);
}

/* f32 and bf16. */
template <int W> CU_FN void convert_row(const weft_cuda_copy_args &a)
{
    int64_t i = cu_index(), at[2];
    float   x[W], y[W];
    if (i >= a.nd.count) return;
    cu_nd_at<2, W>(a.nd, i, at);
    cu_get_row<W>(a.from, a.from_dtype, at[1], a.nd.step[1][a.nd.n - 1], x);
    if (a.add) {
        cu_get_row<W>(a.to, a.to_dtype, at[0], 1, y);
        for (int j = 0; j < W; j++) x[j] += y[j];
    }
    cu_put_row<W>(a.to, a.to_dtype, at[0], x);
}
CU_KERNEL(convert_1, weft_cuda_copy_args, 256)
{
    convert_row<1>(a);
}
CU_KERNEL(convert_8, weft_cuda_copy_args, 256)
{
    convert_row<8>(a);
}

/* Any types; integers of one type are added as such. */
CU_KERNEL(convert_any, weft_cuda_copy_args, 256)
{
    int64_t i = cu_index(), at[2];
    if (i >= a.nd.count) return;
    cu_nd_at<2, 1>(a.nd, i, at);
    if (a.add && a.to_dtype == WEFT_DTYPE_I64 && a.from_dtype == WEFT_DTYPE_I64) {
        int64_t *to = (int64_t *)a.to + at[0];
        *to = (int64_t)((uint64_t)*to + (uint64_t)((const int64_t *)a.from)[at[1]]);
        return;
    }
    double x = cu_load_double(a.from, a.from_dtype, at[1]);
    if (a.add) x += cu_load_double(a.to, a.to_dtype, at[0]);
    cu_store_double(a.to, a.to_dtype, at[0], x);
}

/* Many conversions of what lies together. */
CU_KERNEL(casts, weft_cuda_casts_args, 256)
{
    const weft_cuda_cast_task &t = a.task[cu_find_task(a.task, a.n_task)];
    int64_t i = ((blockIdx.x - t.first_block) * blockDim.x + threadIdx.x) * 8;
    float   x[8];
    if (i + 8 <= t.n) {
        cu_get8(t.from, a.from_dtype, i, x);
        cu_put8(t.to, a.to_dtype, i, x);
        return;
    }
    CU_ROLLED
    for (; i < t.n; i++) cu_put(t.to, a.to_dtype, i, cu_get(t.from, a.from_dtype, i));
}
