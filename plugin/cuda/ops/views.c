/* Views of the host as arguments of kernels. */
#include "cuda_priv.h"

weft_cuda_view weft_cuda_view_of(const weft_view *v)
{
    weft_cuda_view out = {.p = v->p, .dtype = (int32_t)v->dtype, .n_dim = v->shape.n};
    for (int k = 0; k < v->shape.n; k++) {
        out.d[k]      = v->shape.d[k];
        out.stride[k] = v->stride[k];
    }
    return out;
}

weft_cuda_heads_view weft_cuda_heads_of(const weft_view *v)
{
    weft_cuda_heads_view out = {.p = v->p, .dtype = (int32_t)v->dtype};
    for (int k = 0; k < v->shape.n; k++) out.stride[k] = v->stride[k];
    return out;
}
