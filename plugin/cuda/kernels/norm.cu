/* Layer norm and RMS norm, forward and backward.
 *
 * Fast kernels keep a row in registers, N vectors of 8 a thread; a row belongs to a warp, or to a block where it is
 * longer.  Gradients of the weights: each group of rows has its sums in `part`; fold adds them in order. */
#include "cuda_block.h"
#include "cuda_vec.h"

/* For all threads of a row; room as in cu_block_sum. */
CU_FN float row_sum(float x, bool warp, float *room)
{
    return warp ? cu_warp_sum(x) : cu_block_sum(x, room);
}

/* ---- forward: x and y are of type T ---- */

template <int N, int T> CU_FN void norm_rows(const weft_cuda_norm_args &a)
{
    __shared__ float room[CU_WARP];
    bool             warp = a.row_threads == CU_WARP;
    int              t    = (int)threadIdx.x % a.row_threads;
    int64_t          per  = blockDim.x / a.row_threads;
    int64_t          row  = blockIdx.x * per + threadIdx.x / a.row_threads;
    float            x[N][8], sum = 0, square = 0;
    cu_vector        raw[N] = {};
    if (row >= a.rows) return;
    for (int v = 0; v < N; v++) {
        int at = (v * a.row_threads + t) * 8;
        if (at < a.d) raw[v] = cu_read8(a.x, T, row * a.d + at);
    }
    for (int v = 0; v < N; v++) {
        cu_widen8(raw[v], T, x[v]);
        for (int j = 0; j < 8; j++) sum += x[v][j];
    }
    float mean = a.rms ? 0 : row_sum(sum, warp, room) / (float)a.d;
    for (int v = 0; v < N; v++) {
        bool in = (v * a.row_threads + t) * 8 < a.d;
        for (int j = 0; j < 8; j++) {
            x[v][j] -= mean;
            if (in) square += x[v][j] * x[v][j];
        }
    }
    float rstd = 1.0f / sqrtf(row_sum(square, warp, room) / (float)a.d + a.eps);
    for (int v = 0; v < N; v++) {
        int   at = (v * a.row_threads + t) * 8;
        float w[8];
        if (at >= a.d) continue;
        cu_get8(a.w, a.w_dtype, at, w);
        for (int j = 0; j < 8; j++) x[v][j] *= rstd * w[j];
        if (!a.rms) {
            cu_get8(a.b, a.b_dtype, at, w);
            for (int j = 0; j < 8; j++) x[v][j] += w[j];
        }
        cu_put8(a.y, T, row * a.d + at, x[v]);
    }
    if (t == 0 && a.mean) a.mean[row] = mean;
    if (t == 0 && a.rstd) a.rstd[row] = rstd;
}

#define NORM(name, n, type)                                                              \
    CU_KERNEL(name, weft_cuda_norm_args, 256)                                            \
    {                                                                                    \
        norm_rows<n, type>(a);                                                           \
    }
NORM(norm_f32_1, 1, WEFT_DTYPE_F32)
NORM(norm_f32_2, 2, WEFT_DTYPE_F32)
NORM(norm_f32_3, 3, WEFT_DTYPE_F32)
NORM(norm_f32_4, 4, WEFT_DTYPE_F32)
NORM(norm_bf16_1, 1, WEFT_DTYPE_BF16)
NORM(norm_bf16_2, 2, WEFT_DTYPE_BF16)
NORM(norm_bf16_3, 3, WEFT_DTYPE_BF16)
NORM(norm_bf16_4, 4, WEFT_DTYPE_BF16)

/* Any d and any address: a warp a row. */
CU_KERNEL(norm_any, weft_cuda_norm_args, 128)
{
    int     lane = (int)threadIdx.x % CU_WARP;
    int64_t row = cu_index() / CU_WARP, first = row * a.d;
    float   sum = 0, square = 0;
    if (row >= a.rows) return;
    for (int64_t i = lane; i < a.d && !a.rms; i += CU_WARP)
        sum += cu_get(a.x, a.x_dtype, first + i);
    float mean = cu_warp_sum(sum) / (float)a.d;
    for (int64_t i = lane; i < a.d; i += CU_WARP) {
        float h = cu_get(a.x, a.x_dtype, first + i) - mean;
        square += h * h;
    }
    float rstd = 1.0f / sqrtf(cu_warp_sum(square) / (float)a.d + a.eps);
    for (int64_t i = lane; i < a.d; i += CU_WARP) {
        float h = (cu_get(a.x, a.x_dtype, first + i) - mean) * rstd;
        float b = a.rms ? 0 : cu_get(a.b, a.b_dtype, i);
        cu_put(a.y, a.y_dtype, first + i, h * cu_get(a.w, a.w_dtype, i) + b);
    }
    if (lane == 0 && a.mean) a.mean[row] = mean;
    if (lane == 0 && a.rstd) a.rstd[row] = rstd;
}

/* ---- backward: h = (x - mean) rstd, g = dy w;  dx = rstd (g - mean(g) - h mean(g h)) ---- */

/* Rows of part p: [first, end). */
CU_FN int64_t part_start(int64_t rows, int64_t n_part, int64_t p)
{
    int64_t each = (rows + n_part - 1) / n_part;
    return p * each < rows ? p * each : rows;
}

/* One row: dx, and its share of the sums.  dy, x and dx are of type T. */
template <int N, int T>
CU_FN void grad_row(const weft_cuda_norm_grad_args &a, int64_t row, int t, bool warp,
                    float *room, float dw[N][8], float db[N][8])
{
    float     mean = a.rms ? 0 : a.mean[row], rstd = a.rstd[row], sum = 0, dot = 0;
    float     h[N][8], g[N][8];
    cu_vector dy[N] = {}, x[N] = {};
    for (int v = 0; v < N; v++) {
        int at = (v * a.row_threads + t) * 8;
        if (at >= a.d) continue;
        dy[v] = cu_read8(a.dy, T, row * a.d + at);
        x[v]  = cu_read8(a.x, T, row * a.d + at);
    }
    for (int v = 0; v < N; v++) {
        int   at = (v * a.row_threads + t) * 8;
        float w[8];
        for (int j = 0; j < 8; j++)
            w[j] = 0; /* outside: g is 0 there, and so are all sums */
        if (at < a.d) cu_get8(a.w, a.w_dtype, at, w);
        cu_widen8(dy[v], T, g[v]);
        cu_widen8(x[v], T, h[v]);
        for (int j = 0; j < 8; j++) {
            h[v][j] = (h[v][j] - mean) * rstd;
            dw[v][j] += g[v][j] * h[v][j];
            db[v][j] += g[v][j];
            g[v][j] *= w[j];
            sum += g[v][j];
            dot += g[v][j] * h[v][j];
        }
    }
    if (!a.dx) return;
    sum = a.rms ? 0 : row_sum(sum, warp, room) / (float)a.d;
    dot = row_sum(dot, warp, room) / (float)a.d;
    for (int v = 0; v < N; v++) {
        int at = (v * a.row_threads + t) * 8;
        if (at >= a.d) continue;
        for (int j = 0; j < 8; j++) g[v][j] = rstd * (g[v][j] - sum - h[v][j] * dot);
        if (a.add) {
            cu_get8(a.dx, T, row * a.d + at, h[v]);
            for (int j = 0; j < 8; j++) g[v][j] += h[v][j];
        }
        cu_put8(a.dx, T, row * a.d + at, g[v]);
    }
}

/* The warps of a block put their sums together, one after the other. */
template <int N>
CU_FN void put_sums(const weft_cuda_norm_grad_args &a, int t, float dw[N][8],
                    float db[N][8])
{
    CU_SHARED(float, total);
    int n_row = (int)blockDim.x / a.row_threads, mine = (int)threadIdx.x / a.row_threads;
    float *part = a.part + (int64_t)blockIdx.x * 2 * a.d;
    for (int r = 0; r < n_row; r++) {
        float *to = r == n_row - 1 ? part : total;
        if (r) __syncthreads();
        if (r != mine) continue;
        for (int v = 0; v < N; v++) {
            int at = (v * a.row_threads + t) * 8;
            for (int j = 0; j < 8 && at < a.d; j++) {
                to[at + j]       = dw[v][j] + (r ? total[at + j] : 0);
                to[a.d + at + j] = db[v][j] + (r ? total[a.d + at + j] : 0);
            }
        }
    }
}

template <int N, int T> CU_FN void norm_grad_rows(const weft_cuda_norm_grad_args &a)
{
    __shared__ float room[CU_WARP];
    bool             warp = a.row_threads == CU_WARP;
    int              t    = (int)threadIdx.x % a.row_threads;
    int64_t          per  = blockDim.x / a.row_threads;
    int64_t          row  = part_start(a.rows, a.n_part, blockIdx.x);
    int64_t          end  = part_start(a.rows, a.n_part, blockIdx.x + 1);
    float            dw[N][8], db[N][8];
    for (int v = 0; v < N; v++)
        for (int j = 0; j < 8; j++) dw[v][j] = db[v][j] = 0;
    for (row += threadIdx.x / a.row_threads; row < end; row += per)
        grad_row<N, T>(a, row, t, warp, room, dw, db);
    put_sums<N>(a, t, dw, db);
}

#define NORM_GRAD(name, n, type)                                                         \
    CU_KERNEL(name, weft_cuda_norm_grad_args, 256)                                       \
    {                                                                                    \
        norm_grad_rows<n, type>(a);                                                      \
    }
NORM_GRAD(norm_grad_f32_1, 1, WEFT_DTYPE_F32)
NORM_GRAD(norm_grad_f32_2, 2, WEFT_DTYPE_F32)
NORM_GRAD(norm_grad_f32_3, 3, WEFT_DTYPE_F32)
NORM_GRAD(norm_grad_f32_4, 4, WEFT_DTYPE_F32)
NORM_GRAD(norm_grad_bf16_1, 1, WEFT_DTYPE_BF16)
NORM_GRAD(norm_grad_bf16_2, 2, WEFT_DTYPE_BF16)
NORM_GRAD(norm_grad_bf16_3, 3, WEFT_DTYPE_BF16)
NORM_GRAD(norm_grad_bf16_4, 4, WEFT_DTYPE_BF16)

/* Any d and any address: dx by a warp a row, then sums by a thread a column. */
CU_KERNEL(norm_grad_any, weft_cuda_norm_grad_args, 128)
{
    int     lane = (int)threadIdx.x % CU_WARP;
    int64_t row = cu_index() / CU_WARP, first = row * a.d;
    float   sum = 0, dot = 0;
    if (row >= a.rows) return;
    float mean = a.rms ? 0 : a.mean[row], rstd = a.rstd[row];
    for (int64_t i = lane; i < a.d; i += CU_WARP) {
        float h = (cu_get(a.x, a.x_dtype, first + i) - mean) * rstd;
        float g = cu_get(a.dy, a.dy_dtype, first + i) * cu_get(a.w, a.w_dtype, i);
        sum += g;
        dot += g * h;
    }
    sum = a.rms ? 0 : cu_warp_sum(sum) / (float)a.d;
    dot = cu_warp_sum(dot) / (float)a.d;
    for (int64_t i = lane; i < a.d; i += CU_WARP) {
        float h = (cu_get(a.x, a.x_dtype, first + i) - mean) * rstd;
        float g = cu_get(a.dy, a.dy_dtype, first + i) * cu_get(a.w, a.w_dtype, i);
        float y = rstd * (g - sum - h * dot);
        if (a.add) y += cu_get(a.dx, a.dx_dtype, first + i);
        cu_put(a.dx, a.dx_dtype, first + i, y);
    }
}

/* Column i of the sums of part blockIdx.y. */
CU_KERNEL(norm_grad_columns, weft_cuda_norm_grad_args, 128)
{
    int64_t i = cu_index(), p = blockIdx.y, end = part_start(a.rows, a.n_part, p + 1);
    float   dw = 0, db = 0;
    if (i >= a.d) return;
    for (int64_t row = part_start(a.rows, a.n_part, p); row < end; row++) {
        float mean = a.rms ? 0 : a.mean[row];
        float dy   = cu_get(a.dy, a.dy_dtype, row * a.d + i);
        dw += dy * (cu_get(a.x, a.x_dtype, row * a.d + i) - mean) * a.rstd[row];
        db += dy;
    }
    a.part[p * 2 * a.d + i]       = dw;
    a.part[p * 2 * a.d + a.d + i] = db;
}

/* ---- softmax: a warp a row ---- */

CU_KERNEL(softmax, weft_cuda_softmax_args, 128)
{
    int     lane = (int)threadIdx.x % CU_WARP;
    int64_t row = cu_index() / CU_WARP, first = row * a.d;
    float   max = -INFINITY, sum = 0;
    if (row >= a.rows) return;
    for (int64_t i = lane; i < a.d; i += CU_WARP)
        max = fmaxf(max, cu_get(a.x, a.x_dtype, first + i));
    max = cu_warp_max(max);
    for (int64_t i = lane; i < a.d; i += CU_WARP)
        sum += expf(cu_get(a.x, a.x_dtype, first + i) - max);
    sum = 1.0f / cu_warp_sum(sum);
    for (int64_t i = lane; i < a.d; i += CU_WARP)
        cu_put(a.out, a.out_dtype, first + i,
               expf(cu_get(a.x, a.x_dtype, first + i) - max) * sum);
}

/* dx = y (dy - sum dy y) */
CU_KERNEL(softmax_grad, weft_cuda_softmax_args, 128)
{
    int     lane = (int)threadIdx.x % CU_WARP;
    int64_t row = cu_index() / CU_WARP, first = row * a.d;
    float   dot = 0;
    if (row >= a.rows) return;
    for (int64_t i = lane; i < a.d; i += CU_WARP)
        dot += cu_get(a.x, a.x_dtype, first + i) * cu_get(a.y, a.y_dtype, first + i);
    dot = cu_warp_sum(dot);
    for (int64_t i = lane; i < a.d; i += CU_WARP) {
        float y = cu_get(a.y, a.y_dtype, first + i);
        cu_put(a.out, a.out_dtype, first + i,
               y * (cu_get(a.x, a.x_dtype, first + i) - dot));
    }
}
