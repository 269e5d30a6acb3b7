/* Inside the plugin: how host code starts kernels, and the rows it offers. */
#ifndef WEFT_CUDA_PRIV_H
#define WEFT_CUDA_PRIV_H

#include "cuda_args.h"
#include "kernel/kernel.h"

/* ---- kernels of kernels/ ---- */

typedef enum weft_cuda_kernel {
#define CU(name, args) WEFT_CUDA_##name,
#include "kernels.def"
#undef CU
    WEFT_N_CUDA_KERNEL
} weft_cuda_kernel;

typedef struct weft_cuda_grid {
    unsigned x, y, z; /* blocks; 0 in any: nothing is started */
    unsigned threads; /* of a block */
    unsigned shared_bytes;
} weft_cuda_grid;

/* Issues kernel k on the stream of x; args: its struct of kernels.def, copied before the return. */
weft_status weft_cuda_launch(const weft_kernel_ctx *x, weft_cuda_kernel k,
                             weft_cuda_grid grid, const void *args);

/* Enough blocks for n threads of one dimension. */
static inline weft_cuda_grid weft_cuda_grid_1d(int64_t n, unsigned threads)
{
    return (weft_cuda_grid){(unsigned)((n + threads - 1) / threads), 1, 1, threads, 0};
}

/* Without the address where the view has none. */
weft_cuda_view weft_cuda_view_of(const weft_view *v);

/* Attributes of a call by name. */
static inline const weft_attr *weft_cuda_attr(const weft_kernel_call *c, const char *name)
{
    return &c->attr[weft_op_attr_index(c->op, name)];
}
/* Is result j added to? */
static inline int weft_cuda_adds(const weft_kernel_call *c, int j)
{
    return (int)(c->add >> j & 1);
}

/* ---- rows ---- */

/* All of them, those that are tried first in front. */
extern const weft_kernel_table weft_cuda_table;

#define CUDA_RUN(name)                                                                   \
    weft_status weft_cuda_run_##name(const weft_kernel_call *c, const weft_kernel_ctx *x)
CUDA_RUN(fill);

#endif
