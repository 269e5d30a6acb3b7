/* Gated activations: act(g) u and its gradient, rows at any strides. */
#include <string.h>

#include "cuda_priv.h"

enum {
    THREADS = 256
};

static weft_status gate_kind(const weft_kernel_call *c, int32_t *out)
{
    static const struct {
        const char *name;
        int32_t     kind;
    } map[]       = {{"silu", WEFT_CUDA_MAP_SILU},
                     {"gelu", WEFT_CUDA_MAP_GELU_TANH},
                     {"gelu_erf", WEFT_CUDA_MAP_GELU_ERF},
                     {"relu", WEFT_CUDA_MAP_RELU}};
    const char *s = weft_cuda_attr(c, "act")->s;
    for (size_t i = 0; i < WEFT_COUNT(map); i++)
        if (!strcmp(s, map[i].name)) {
            *out = map[i].kind;
            return WEFT_OK;
        }
    return WEFT_FAIL(WEFT_ERR_ARG, "%s: act '%s' is not silu, gelu, gelu_erf or relu",
                     weft_op_get(c->op)->name, s);
}

/* Results, then operands. */
static weft_status launch_gate(const weft_kernel_call *c, const weft_kernel_ctx *x,
                               int n_out, weft_cuda_kernel plain, weft_cuda_kernel fast)
{
    weft_cuda_gate_args a      = {.kind = 0};
    bool                vector = true;
    WEFT_TRY(gate_kind(c, &a.kind));
    weft_cuda_nd_init(&a.nd, &c->in[0].shape);
    for (int o = 0; o < n_out + c->n_in; o++) {
        const weft_view *v = o < n_out ? &c->out[o] : &c->in[o - n_out];
        weft_cuda_nd_add(&a.nd, v);
        a.dtype[o] = (int32_t)v->dtype;
        if (o < n_out)
            a.out[o] = v->p;
        else
            a.in[o - n_out] = v->p;
    }
    weft_cuda_nd_merge(&a.nd);
    for (int o = 0; o < n_out + c->n_in; o++)
        vector = vector &&
                 weft_cuda_nd_vectors(&a.nd, o, o < n_out ? a.out[o] : a.in[o - n_out],
                                      WEFT_CUDA_VECTOR, false);
    if (vector) a.nd.count /= WEFT_CUDA_VECTOR;
    return weft_cuda_launch(x, vector ? fast : plain,
                            weft_cuda_grid_1d(a.nd.count, THREADS), &a);
}

CUDA_RUN(gate)
{
    return launch_gate(c, x, 1, WEFT_CUDA_gate_1, WEFT_CUDA_gate_8);
}

CUDA_RUN(gate_grad)
{
    return launch_gate(c, x, 2, WEFT_CUDA_gate_grad_1, WEFT_CUDA_gate_grad_8);
}
