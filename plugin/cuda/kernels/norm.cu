/* Layer norm and RMS norm, forward and backward.
 *
 * Forward: a row in registers, N vectors of 8 a thread; it belongs to a warp, or to a block where it is longer.
 * Backward: a block goes through a part of the rows, a thread has 8 columns and their sums over these rows, in order;
 * fold adds the parts in order. */
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

/* A thread has 8 columns of R rows at a time; dy, x, the residual and dx are of type T.  What was read is kept as it
 * was, and widened twice. */
template <int R, int T> struct grad_rows {
    cu_vector dy[R], x[R], residual[R];
    float     mean[R], rstd[R];
};

/* The sums of a thread's columns over rows. */
struct column_sums {
    float dw[8], db[8], dx[8];
};

template <int R, int T, bool LATE>
CU_FN void read_rows(const weft_cuda_norm_grad_args &a, int64_t row, int64_t end,
                     grad_rows<R, T> &g)
{
    int at = (int)threadIdx.x * 8;
    CU_UNROLL
    for (int r = 0; r < R; r++) {
        int64_t first = (row + r) * a.d + at;
        g.dy[r] = g.x[r] = g.residual[r] = {};
        g.mean[r] = g.rstd[r] = 0;
        if (row + r >= end) continue;
        if (at < a.d) {
            g.dy[r] = cu_read8(a.dy, T, first);
            g.x[r]  = cu_read8(a.x, T, first);
            if (a.residual && !LATE) g.residual[r] = cu_read8(a.residual, T, first);
        }
        if (!a.rms) g.mean[r] = a.mean[row + r];
        g.rstd[r] = a.rstd[row + r];
    }
}

/* sum[2 r], sum[2 r + 1]: of g and of g h over row r, for all threads; room: of every warp. */
template <int R> CU_FN void sum_rows(float sum[2 * R], float room[CU_WARP][2 * R])
{
    int lane = (int)threadIdx.x % CU_WARP, n = (int)blockDim.x / CU_WARP;
    CU_UNROLL
    for (int k = 0; k < 2 * R; k++) {
        sum[k] = cu_warp_sum(sum[k]);
        if (lane == k) room[threadIdx.x / CU_WARP][k] = sum[k];
    }
    __syncthreads();
    CU_UNROLL
    for (int k = 0; k < 2 * R; k++) sum[k] = room[0][k];
    CU_ROLLED
    for (int w = 1; w < n; w++) {
        CU_UNROLL
        for (int k = 0; k < 2 * R; k++) sum[k] += room[w][k];
    }
}

template <int R, int T, bool LATE>
CU_FN void write_rows(const weft_cuda_norm_grad_args &a, int64_t row, int64_t end,
                      const grad_rows<R, T> &v, const float w[8], const float sum[2 * R],
                      float total[8])
{
    int   at    = (int)threadIdx.x * 8;
    float scale = 1.0f / (float)a.d;
    CU_UNROLL
    for (int r = 0; r < R; r++) {
        float g[8], h[8], mean_g = a.rms ? 0 : sum[2 * r] * scale;
        float mean_gh = sum[2 * r + 1] * scale;
        if (row + r >= end || at >= a.d) continue;
        cu_widen8(v.dy[r], T, g);
        cu_widen8(v.x[r], T, h);
        CU_UNROLL
        for (int j = 0; j < 8; j++) {
            h[j] = (h[j] - v.mean[r]) * v.rstd[r];
            g[j] = v.rstd[r] * (g[j] * w[j] - mean_g - h[j] * mean_gh);
        }
        if (a.add) {
            cu_get8(a.dx, T, (row + r) * a.d + at, h);
            CU_UNROLL
            for (int j = 0; j < 8; j++) g[j] += h[j];
        }
        if (a.residual) { /* as if dx had been stored */
            if (LATE)
                cu_get8(a.residual, T, (row + r) * a.d + at, h);
            else
                cu_widen8(v.residual[r], T, h);
            CU_UNROLL
            for (int j = 0; j < 8; j++) g[j] = cu_as(T, g[j]) + h[j];
        }
        cu_put8(a.dx, T, (row + r) * a.d + at, g);
        CU_UNROLL
        for (int j = 0; j < 8; j++) total[j] += cu_as(T, g[j]);
    }
}

CU_FN void put_sums(const weft_cuda_norm_grad_args &a, const column_sums &c)
{
    int    at   = (int)threadIdx.x * 8;
    float *part = a.part + (int64_t)blockIdx.x * a.n_sum * a.d + at;
    if (at >= a.d) return;
    cu_put8(part, WEFT_DTYPE_F32, 0, c.dw);
    if (!a.rms) cu_put8(part, WEFT_DTYPE_F32, a.d, c.db);
    if (a.sums) cu_put8(part, WEFT_DTYPE_F32, (a.n_sum - 1) * a.d, c.dx);
}

CU_FN void read_weights(const weft_cuda_norm_grad_args &a, float w[8])
{
    int at = (int)threadIdx.x * 8;
    if (at < a.d) cu_get8(a.w, a.w_dtype, at, w);
}

/* A block a part: its rows in order, R at a time.  LATE: weights and residual are read when they are needed, which
 * leaves registers for more threads. */
template <int R, int T, bool LATE>
CU_FN void norm_grad_rows(const weft_cuda_norm_grad_args &a)
{
    __shared__ float room[2][CU_WARP][2 * R]; /* in turn, so that one barrier is enough */
    int64_t          row  = part_start(a.rows, a.n_part, blockIdx.x);
    int64_t          end  = part_start(a.rows, a.n_part, blockIdx.x + 1);
    int              turn = 0;
    column_sums      c    = {};
    float            w[8] = {};
    if (!LATE) read_weights(a, w);
    CU_ROLLED
    for (; row < end; row += R, turn ^= 1) {
        grad_rows<R, T> v;
        float           sum[2 * R];
        read_rows<R, T, LATE>(a, row, end, v);
        if (LATE) read_weights(a, w);
        CU_UNROLL
        for (int r = 0; r < R; r++) {
            float g[8], h[8];
            sum[2 * r] = sum[2 * r + 1] = 0;
            cu_widen8(v.dy[r], T, g);
            cu_widen8(v.x[r], T, h);
            CU_UNROLL
            for (int j = 0; j < 8; j++) {
                h[j] = (h[j] - v.mean[r]) * v.rstd[r];
                c.dw[j] += g[j] * h[j];
                c.db[j] += g[j];
                g[j] *= w[j];
                sum[2 * r] += g[j];
                sum[2 * r + 1] += g[j] * h[j];
            }
        }
        if (!a.dx) continue;
        sum_rows<R>(sum, room[turn]);
        if (LATE) read_weights(a, w);
        write_rows<R, T, LATE>(a, row, end, v, w, sum, c.dx);
    }
    put_sums(a, c);
}

#define NORM_GRAD(threads, rows, rows_f32, blocks)                                       \
    CU_KERNEL_BLOCKS(norm_grad_f32_##threads, weft_cuda_norm_grad_args, threads, blocks) \
    {                                                                                    \
        norm_grad_rows<rows_f32, WEFT_DTYPE_F32, (threads > 256)>(a);                    \
    }                                                                                    \
    CU_KERNEL_BLOCKS(norm_grad_bf16_##threads, weft_cuda_norm_grad_args, threads,        \
                     blocks)                                                             \
    {                                                                                    \
        norm_grad_rows<rows, WEFT_DTYPE_BF16, (threads > 256)>(a);                       \
    }
NORM_GRAD(128, 4, 2, 3)
NORM_GRAD(256, 2, 1, 2)
NORM_GRAD(1024, 1, 1, 1)

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
        if (a.residual)
            y = cu_as(a.dx_dtype, y) + cu_get(a.residual, a.dx_dtype, first + i);
        cu_put(a.dx, a.dx_dtype, first + i, y);
    }
}

/* Column i of the sums of part blockIdx.y. */
CU_KERNEL(norm_grad_columns, weft_cuda_norm_grad_args, 128)
{
    int64_t i = cu_index(), p = blockIdx.y, end = part_start(a.rows, a.n_part, p + 1);
    float   dw = 0, db = 0, dx = 0;
    if (i >= a.d) return;
    for (int64_t row = part_start(a.rows, a.n_part, p); row < end; row++) {
        float mean = a.rms ? 0 : a.mean[row];
        float dy   = cu_get(a.dy, a.dy_dtype, row * a.d + i);
        dw += dy * (cu_get(a.x, a.x_dtype, row * a.d + i) - mean) * a.rstd[row];
        db += dy;
        if (a.sums) dx += cu_get(a.dx, a.dx_dtype, row * a.d + i);
    }
    float *part = a.part + p * a.n_sum * a.d + i;
    part[0]     = dw;
    if (!a.rms) part[a.d] = db;
    if (a.sums) part[(a.n_sum - 1) * a.d] = dx;
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
