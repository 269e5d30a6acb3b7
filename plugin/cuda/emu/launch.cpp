/* weft_cuda_launch for the CPU: operators' host code starts emulated kernels directly. */
#include "emu/emu.h"

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

/* Warpgroups are not emulated. */
int weft_cuda_wgmma_blocks(void)
{
    return 0;
}

weft_status weft_cuda_map_boxes(const void *, const int64_t[3], int64_t,
                                weft_cuda_tensor_map *)
{
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "no tensor maps on the CPU");
}
}
