/* weft_cuda_launch for the CPU: operators' host code starts emulated kernels directly. */
#include "emu/wgmma.h"

#ifndef __clang__
#define _Atomic /* of C's headers; nothing here reads what is declared with it */
#endif

extern "C" {
#include "cuda_priv.h"

#define CU(name, args) void weft_cuda_emu_##name(const void *p);
#include "kernels.def"
#undef CU

weft_status weft_cuda_launch(const weft_kernel_ctx *, weft_cuda_kernel k,
                             weft_cuda_grid grid, const void *args)
{
    static void (*const bodies[])(const void *) = {
#define CU(name, args) weft_cuda_emu_##name,
#include "kernels.def"
#undef CU
    };
    emu_run(bodies[k], {grid.x, grid.y, grid.z}, grid.threads, grid.shared_bytes, args);
    return WEFT_OK;
}

int weft_cuda_capability(void)
{
    return 0;
}

/* Of products by warpgroups; 0: rows of the table that need them take nothing. */
int weft_cuda_emu_blocks;

int weft_cuda_wgmma_blocks(void)
{
    return weft_cuda_emu_blocks;
}

weft_status weft_cuda_map_boxes(const void *p, const int64_t d[3], int64_t box,
                                weft_cuda_tensor_map *out)
{
    const uint64_t size[4]   = {(uint64_t)d[0], (uint64_t)d[1], (uint64_t)d[2], 1};
    const uint64_t stride[3] = {2 * size[0], 2 * size[0] * size[1], 16};
    const uint32_t boxes[4]  = {64, (uint32_t)box, 1, 1};
    *out                     = emu_map(p, size, stride, boxes);
    return WEFT_OK;
}

weft_status weft_cuda_map_heads(const weft_view *v, int64_t box,
                                weft_cuda_tensor_map *out)
{
    const int64_t *d         = v->shape.d;
    const uint64_t size[4]   = {(uint64_t)d[3], (uint64_t)d[1], (uint64_t)d[2],
                                (uint64_t)d[0]};
    const uint64_t stride[3] = {weft_cuda_head_stride(v, 1), weft_cuda_head_stride(v, 2),
                                weft_cuda_head_stride(v, 0)};
    const uint32_t boxes[4]  = {64, (uint32_t)box, 1, 1};
    *out                     = emu_map(v->p, size, stride, boxes);
    return WEFT_OK;
}
}
