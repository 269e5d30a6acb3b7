/* Attention by own kernels, any sizes and strides: what cuDNN does not take. */
#include <math.h>

#include "cuda_priv.h"

/* Kernels count rows and columns of a head in 32 bits. */
static weft_status check_strides(const weft_kernel_call *c)
{
    for (int i = 0; i < c->n_own_in + c->n_own_out; i++) {
        const weft_view *v = i < c->n_own_in ? &c->in[i] : &c->out[i - c->n_own_in];
        for (int k = 0; k < v->shape.n; k++)
            if ((k % 2 == 1 && v->stride[k] > INT32_MAX) || v->shape.d[k] > INT32_MAX / 2)
                return WEFT_FAIL(WEFT_ERR_ARG,
                                 "%s: rows or columns of a head are %ld elements apart",
                                 weft_op_get(c->op)->name, (long)v->stride[k]);
    }
    return WEFT_OK;
}

/* first: the operand that is q; bias: that of the bias, where it is there. */
static weft_cuda_attention_args make_args(const weft_kernel_call *c, int first, int bias)
{
    const weft_view         *q = &c->in[first], *k = q + 1, *v = q + 2;
    double                   scale   = weft_cuda_attr(c, "scale")->f;
    int64_t                  q_first = weft_cuda_attr(c, "q_first")->i;
    weft_cuda_attention_args a       = {.q      = weft_cuda_heads_of(q),
                                        .k      = weft_cuda_heads_of(k),
                                        .v      = weft_cuda_heads_of(v),
                                        .b      = q->shape.d[0],
                                        .s      = q->shape.d[1],
                                        .h      = q->shape.d[2],
                                        .e      = q->shape.d[3],
                                        .t      = k->shape.d[1],
                                        .g      = k->shape.d[2],
                                        .f      = v->shape.d[3],
                                        .window = weft_cuda_attr(c, "window")->i,
                                        .causal = weft_cuda_attr(c, "causal")->i != 0,
                                        .add    = c->add};
    a.scale = (float)(scale != 0 ? scale : 1 / sqrt((double)a.e));
    a.ahead = q_first < 0 ? a.t - a.s : q_first - weft_cuda_attr(c, "k_first")->i;
    if (c->n_own_in > bias) a.bias = weft_cuda_heads_of(&c->in[bias]);
    return a;
}

static int64_t count_tiles(int64_t n)
{
    return weft_cuda_ceil(n, WEFT_CUDA_HEAD_TILE);
}

/* Blocks of tiles of n rows for each of so many heads of all samples. */
static weft_cuda_grid tile_grid(const weft_cuda_attention_args *a, int64_t n,
                                int64_t heads, int64_t columns)
{
    return (weft_cuda_grid){(unsigned)(count_tiles(n) * heads * a->b), (unsigned)columns,
                            1, 256, 0};
}

CUDA_RUN(attention)
{
    weft_cuda_attention_args a    = make_args(c, 0, 3);
    bool                     wide = a.f > WEFT_CUDA_HEAD_TILE;
    WEFT_TRY(check_strides(c));
    a.o   = weft_cuda_heads_of(&c->out[0]);
    a.lse = weft_cuda_heads_of(&c->out[1]);
    weft_cuda_grid grid =
        tile_grid(&a, a.s, a.h, wide ? weft_cuda_ceil(a.f, 2 * WEFT_CUDA_HEAD_TILE) : 1);
    return weft_cuda_launch(x, wide ? WEFT_CUDA_attention_2 : WEFT_CUDA_attention_1, grid,
                            &a);
}

CUDA_RUN(attention_grad)
{
    weft_cuda_attention_args a = make_args(c, 1, 6);
    int64_t                  e = count_tiles(a.e), f = count_tiles(a.f);
    WEFT_TRY(check_strides(c));
    a.dy  = weft_cuda_heads_of(&c->in[0]);
    a.o   = weft_cuda_heads_of(&c->in[4]);
    a.lse = weft_cuda_heads_of(&c->in[5]);
    a.dq  = weft_cuda_heads_of(&c->out[0]);
    a.dk  = weft_cuda_heads_of(&c->out[1]);
    a.dv  = weft_cuda_heads_of(&c->out[2]);
    a.own = x->scratch;
    if (c->n_own_out > 3) a.dbias = weft_cuda_heads_of(&c->out[3]);

    WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_attention_own,
                              weft_cuda_grid_1d(a.b * a.h * a.s * 32, 256), &a));
    if (a.dq.p)
        WEFT_TRY(
            weft_cuda_launch(x, WEFT_CUDA_attention_dq, tile_grid(&a, a.s, a.h, e), &a));
    if (a.dk.p || a.dv.p)
        WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_attention_dkv,
                                  tile_grid(&a, a.t, a.g, e > f ? e : f), &a));
    if (!a.dbias.p) return WEFT_OK;
    weft_cuda_grid grid = {(unsigned)count_tiles(a.t), (unsigned)count_tiles(a.s),
                           (unsigned)a.h, 256, 0};
    return weft_cuda_launch(x, WEFT_CUDA_attention_dbias, grid, &a);
}
CUDA_SCRATCH(attention_grad)
{
    const int64_t *q = c->in[1].shape.d;
    (void)n_thread;
    return sizeof(float) * (size_t)(q[0] * q[1] * q[2]);
}

CUDA_RUN(attention_merge)
{
    weft_cuda_attention_merge_args a = {.o_a     = c->in[0].p,
                                        .lse_a   = c->in[1].p,
                                        .o_b     = c->in[2].p,
                                        .lse_b   = c->in[3].p,
                                        .o       = c->out[0].p,
                                        .lse     = c->out[1].p,
                                        .rows    = weft_shape_count(&c->in[1].shape),
                                        .e       = c->in[0].shape.d[3],
                                        .dtype_a = (int32_t)c->in[0].dtype,
                                        .dtype_b = (int32_t)c->in[2].dtype,
                                        .dtype   = (int32_t)c->out[0].dtype};
    return weft_cuda_launch(x, WEFT_CUDA_attention_merge,
                            weft_cuda_grid_1d(a.rows * 32, 256), &a);
}
