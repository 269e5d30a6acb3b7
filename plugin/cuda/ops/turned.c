/* The gradient of attention with rotary embeddings' gradients: what a row that knows nothing of
 * them does of it, and then dq and dk turned where they lie. */
#include "turned.h"

#include <string.h>

enum {
    N_TURNED = 2 /* dq, dk */
};

bool weft_cuda_leave_turned(const weft_kernel_call *c, weft_cuda_unturned *u)
{
    u->call = *c;
    if (!c->n_post) return true;
    if (c->n_post != N_TURNED || c->n_own_out > WEFT_CUDA_MOST_GRADIENTS) return false;
    memcpy(u->out, c->out, sizeof *c->out * (size_t)c->n_own_out);
    for (int k = 0; k < N_TURNED; k++) {
        if (c->post[k].op != WEFT_OP_ROTARY || c->post[k].out < c->n_own_out)
            return false;
        u->out[k] = c->out[c->post[k].out];
    }
    u->call.out    = u->out;
    u->call.n_out  = c->n_own_out;
    u->call.n_post = 0;
    return !c->add;
}

weft_status weft_cuda_turn(const weft_kernel_call *c, const weft_kernel_ctx *x)
{
    for (int k = 0; k < c->n_post; k++) {
        const weft_view *v = &c->out[c->post[k].out];
        weft_kernel_call r = {.op        = WEFT_OP_ROTARY,
                              .attr      = c->post[k].attr,
                              .n_in      = 1,
                              .n_own_in  = 1,
                              .n_out     = 1,
                              .n_own_out = 1,
                              .in        = v,
                              .out       = v};
        WEFT_TRY(weft_cuda_run_rotary(&r, x));
    }
    return WEFT_OK;
}

/* ---- rows: cuDNN's, and the one that takes every call ---- */

CUDA_TAKES(sdpa_turned)
{
    weft_cuda_unturned u;
    return weft_cuda_leave_turned(c, &u) && weft_cuda_takes_sdpa(&u.call);
}
CUDA_SCRATCH(sdpa_turned)
{
    weft_cuda_unturned u;
    return weft_cuda_leave_turned(c, &u) ? weft_cuda_scratch_sdpa(&u.call, n_thread) : 0;
}
CUDA_PREPARE(sdpa_turned)
{
    weft_cuda_unturned u;
    if (!weft_cuda_leave_turned(c, &u))
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "attention_grad: not a call for cuDNN");
    return weft_cuda_prepare_sdpa(&u.call, x, arena, out);
}
CUDA_RUN(sdpa_turned)
{
    WEFT_TRY(weft_cuda_run_sdpa(c, x));
    return weft_cuda_turn(c, x);
}

CUDA_TAKES(attention_grad)
{
    weft_cuda_unturned u;
    return weft_cuda_leave_turned(c, &u);
}
CUDA_RUN(attention_turned)
{
    weft_cuda_unturned u;
    if (!weft_cuda_leave_turned(c, &u))
        return WEFT_FAIL(WEFT_ERR_INTERNAL,
                         "attention_grad: steps that it does not take");
    WEFT_TRY(weft_cuda_run_attention_grad(&u.call, x));
    return weft_cuda_turn(c, x);
}
