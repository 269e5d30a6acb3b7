/* fill. */
#include "cuda_priv.h"

weft_status weft_cuda_fill(const weft_kernel_ctx *x, const weft_view *y, double value)
{
    int64_t bytes = weft_shape_count(&y->shape) * weft_dtype_bytes(y->dtype);
    if (value == 0 && weft_view_contiguous(y) &&
        ((uintptr_t)y->p | (uintptr_t)bytes) % 16 == 0) {
        weft_cuda_zero_args z = {.y = y->p, .n = bytes / 16};
        return weft_cuda_launch(x, WEFT_CUDA_fill_zero, weft_cuda_grid_1d(z.n, 256), &z);
    }
    weft_cuda_fill_args a = {
        .y = weft_cuda_view_of(y), .n = weft_shape_count(&y->shape), .value = value};
    return weft_cuda_launch(x, WEFT_CUDA_fill, weft_cuda_grid_1d(a.n, 256), &a);
}

CUDA_RUN(fill)
{
    return weft_cuda_fill(x, &c->out[0], weft_cuda_attr(c, "value")->f);
}
