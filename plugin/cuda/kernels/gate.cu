/* act(g) u and its gradient: operands are read once, results written once. */
#include "cuda_map.h"

/* act(g) of W elements. */
template <int W> CU_FN void gate_value(int kind, const float g[W], float y[W])
{
    for (int j = 0; j < W; j++) y[j] = g[j];
    cu_map<W>(kind, y, g, 1.0f, 0.0f);
}

/* d times the slope of act at g. */
template <int W> CU_FN void gate_slope(int kind, const float g[W], float d[W])
{
    switch (kind) {
    case WEFT_CUDA_MAP_SILU: cu_map<W>(WEFT_CUDA_MAP_SILU_GRAD, d, g, 1.0f, 0.0f); break;
    case WEFT_CUDA_MAP_GELU_TANH:
        cu_map<W>(WEFT_CUDA_MAP_GELU_TANH_GRAD, d, g, 1.0f, 0.0f);
        break;
    case WEFT_CUDA_MAP_GELU_ERF:
        cu_map<W>(WEFT_CUDA_MAP_GELU_ERF_GRAD, d, g, 1.0f, 0.0f);
        break;
    default: cu_map<W>(WEFT_CUDA_MAP_RELU_GRAD, d, g, 1.0f, 0.0f); break;
    }
}

template <int W> CU_FN void gate_row(const weft_cuda_gate_args &a)
{
    int64_t i = cu_index(), at[3];
    float   g[W], u[W], y[W];
    if (i >= a.nd.count) return;
    cu_nd_at<3, W>(a.nd, i, at);
    cu_row<W> rg = cu_read_row<W>(a.in[0], a.dtype[1], at[1], 1);
    cu_row<W> ru = cu_read_row<W>(a.in[1], a.dtype[2], at[2], 1);
    cu_widen_row<W>(rg, a.dtype[1], 1, g);
    cu_widen_row<W>(ru, a.dtype[2], 1, u);
    gate_value<W>(a.kind, g, y);
    for (int j = 0; j < W; j++) y[j] *= u[j];
    cu_put_row<W>(a.out[0], a.dtype[0], at[0], y);
}

CU_KERNEL(gate_1, weft_cuda_gate_args, 256)
{
    gate_row<1>(a);
}
CU_KERNEL(gate_8, weft_cuda_gate_args, 256)
{
    gate_row<8>(a);
}

/* dg may be over dy: all is read before anything is written. */
template <int W> CU_FN void gate_grad_row(const weft_cuda_gate_args &a)
{
    int64_t i = cu_index(), at[5];
    float   dy[W], g[W], u[W], y[W];
    if (i >= a.nd.count) return;
    cu_nd_at<5, W>(a.nd, i, at);
    cu_row<W> rd = cu_read_row<W>(a.in[0], a.dtype[2], at[2], 1);
    cu_row<W> rg = cu_read_row<W>(a.in[1], a.dtype[3], at[3], 1);
    cu_row<W> ru = cu_read_row<W>(a.in[2], a.dtype[4], at[4], 1);
    cu_widen_row<W>(rd, a.dtype[2], 1, dy);
    cu_widen_row<W>(rg, a.dtype[3], 1, g);
    cu_widen_row<W>(ru, a.dtype[4], 1, u);
    gate_value<W>(a.kind, g, y);
    for (int j = 0; j < W; j++) {
        y[j] *= dy[j];
        u[j] *= dy[j];
    }
    gate_slope<W>(a.kind, g, u);
    if (a.out[0]) cu_put_row<W>(a.out[0], a.dtype[0], at[0], u);
    if (a.out[1]) cu_put_row<W>(a.out[1], a.dtype[1], at[1], y);
}

CU_KERNEL(gate_grad_1, weft_cuda_gate_args, 256)
{
    gate_grad_row<1>(a);
}
CU_KERNEL(gate_grad_8, weft_cuda_gate_args, 256)
{
    gate_grad_row<8>(a);
}
