/* attention_grad with fused steps (WEFT_FUSION_ROTARY): dq and dk are turned back, and kept only
 * so. */
#ifndef WEFT_CUDA_TURNED_H
#define WEFT_CUDA_TURNED_H

#include "cuda_priv.h"

enum {
    WEFT_CUDA_MOST_GRADIENTS = 4 /* results of attention_grad */
};

typedef struct weft_cuda_unturned {
    weft_kernel_call call; /* without steps; dq and dk lie where the turned ones do */
    weft_view        out[WEFT_CUDA_MOST_GRADIENTS];
} weft_cuda_unturned;

/* False: it has other steps.  u->call borrows c and u. */
bool weft_cuda_leave_turned(const weft_kernel_call *c, weft_cuda_unturned *u);
/* The steps, over what the call without them has made. */
weft_status weft_cuda_turn(const weft_kernel_call *c, const weft_kernel_ctx *x);

#endif
