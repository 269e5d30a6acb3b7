/* fill. */
#include "cuda_priv.h"

CUDA_RUN(fill)
{
    weft_cuda_fill_args a = {.y     = weft_cuda_view_of(&c->out[0]),
                             .n     = weft_shape_count(&c->out[0].shape),
                             .value = c->attr[1].f};
    return weft_cuda_launch(x, WEFT_CUDA_fill, weft_cuda_grid_1d(a.n, 256), &a);
}
