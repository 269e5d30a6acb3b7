/* Own kernels of a GPU: found by name in the fatbins, started on a stream. */
#include "gpu.h"

enum {
    MAX_THREADS_ATTRIBUTE   = 0, /* CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK */
    STATIC_SHARED_ATTRIBUTE = 1, /* CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES */
    /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
    MAX_DYNAMIC_SHARED_ATTRIBUTE = 8,
    MAP_BF16                     = 9, /* CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 */
    MAP_SWIZZLE                  = 3, /* CU_TENSOR_MAP_SWIZZLE_128B */
    MAP_PROMOTION                = 3  /* CU_TENSOR_MAP_L2_PROMOTION_L2_256B */
};

static const char *const names[] = {
#define CU(name, args) "weft_cuda_" #name,
#include "kernels.def"
#undef CU
};

/* Of the GPU opened last: a rank has one. */
static int wgmma_blocks, capability;

static weft_status find_kernel(weft_cuda_gpu *g, const char *name, weft_cuda_handle *out)
{
    int code = WEFT_CUDA_NOT_FOUND;
    for (int i = 0; i < g->n_library && code == WEFT_CUDA_NOT_FOUND; i++)
        code = weft_cuda_cu.LibraryGetKernel(out, g->library[i], name);
    if (code == WEFT_CUDA_NOT_FOUND)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "no fatbin of the plugin has %s", name);
    return weft_cuda_check(code, "LibraryGetKernel");
}

/* Blocks may ask for all the shared memory that the static part leaves. */
static weft_status load_kernel(weft_cuda_gpu *g, int k)
{
    weft_cuda_handle kernel;
    int              fixed;
    WEFT_TRY(find_kernel(g, names[k], &kernel));
    CU_TRY(KernelGetFunction, &g->function[k], kernel);
    CU_TRY(FuncGetAttribute, &fixed, STATIC_SHARED_ATTRIBUTE, g->function[k]);
    CU_TRY(FuncSetAttribute, g->function[k], MAX_DYNAMIC_SHARED_ATTRIBUTE,
           g->max_shared_bytes - fixed);
    return WEFT_OK;
}

weft_status weft_cuda_load_kernels(weft_cuda_gpu *g)
{
    for (int i = 0; i < weft_cuda_n_fatbin; i++) {
        if (g->n_library == WEFT_CUDA_MAX_FATBIN)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "more than %d fatbins",
                             WEFT_CUDA_MAX_FATBIN);
        CU_TRY(LibraryLoadData, &g->library[g->n_library], weft_cuda_fatbin[i], NULL,
               NULL, 0, NULL, NULL, 0);
        g->n_library++;
    }
    for (int k = 0; k < WEFT_N_CUDA_KERNEL; k++) WEFT_TRY(load_kernel(g, k));
    wgmma_blocks = g->has_wgmma && g->max_shared_bytes >= WEFT_CUDA_WGMMA_BYTES
                       ? g->n_multiprocessor
                       : 0;
    capability   = g->capability;
    return WEFT_OK;
}

void weft_cuda_unload_kernels(weft_cuda_gpu *g)
{
    while (g->n_library) weft_cuda_cu.LibraryUnload(g->library[--g->n_library]);
}

weft_status weft_cuda_launch(const weft_kernel_ctx *x, weft_cuda_kernel k,
                             weft_cuda_grid grid, const void *args)
{
    weft_cuda_queue *q    = x->queue;
    void            *p[1] = {(void *)(uintptr_t)args};
    if (!grid.x || !grid.y || !grid.z) return WEFT_OK;
    int code = weft_cuda_cu.LaunchKernel(q->gpu->function[k], grid.x, grid.y, grid.z,
                                         grid.threads, 1, 1, grid.shared_bytes, q->stream,
                                         p, NULL);
    if (!code) return WEFT_OK;
    return weft_fail_in(weft_cuda_check(code, "LaunchKernel"),
                        "%s of %u x %u x %u blocks of %u threads, %u bytes: ", names[k],
                        grid.x, grid.y, grid.z, grid.threads, grid.shared_bytes);
}

int weft_cuda_wgmma_blocks(void)
{
    return wgmma_blocks;
}

int weft_cuda_capability(void)
{
    return capability;
}

weft_status weft_cuda_map_boxes(const void *p, const int64_t d[3], int64_t box,
                                weft_cuda_tensor_map *out)
{
    uint64_t size[3]   = {(uint64_t)d[0], (uint64_t)d[1], (uint64_t)d[2]};
    uint64_t stride[2] = {(uint64_t)(2 * d[0]), (uint64_t)(2 * d[0] * d[1])};
    uint32_t boxes[3] = {64, (uint32_t)box, 1}, step[3] = {1, 1, 1};
    CU_TRY(TensorMapEncodeTiled, out, MAP_BF16, 3, (void *)(uintptr_t)p, size, stride,
           boxes, step, 0, MAP_SWIZZLE, MAP_PROMOTION, 0);
    return WEFT_OK;
}

weft_status weft_cuda_map_heads(const weft_view *v, int64_t box,
                                weft_cuda_tensor_map *out)
{
    static const int from[4] = {3, 1, 2, 0};
    uint64_t         size[4], stride[3];
    uint32_t         boxes[4] = {64, (uint32_t)box, 1, 1}, step[4] = {1, 1, 1, 1};
    for (int i = 0; i < 4; i++) size[i] = (uint64_t)v->shape.d[from[i]];
    for (int i = 1; i < 4; i++) stride[i - 1] = weft_cuda_head_stride(v, from[i]);
    CU_TRY(TensorMapEncodeTiled, out, MAP_BF16, 4, v->p, size, stride, boxes, step, 0,
           MAP_SWIZZLE, MAP_PROMOTION, 0);
    return WEFT_OK;
}
