/* Layer norm and RMS norm, forward and backward.
 *
 * Forward: a row in registers, N vectors of 8 a thread; it belongs to a warp, or to a block
 * where it is longer.  Of bf16 up to 2048 columns, a warp has the next rows under way meanwhile.
 * Backward: a block goes through a part of the rows, a thread has 8 columns and their sums over
 * these rows, in order; fold adds the parts in order. */
#include "cuda_async.h"
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
NORM(norm_bf16_4, 4, WEFT_DTYPE_BF16)

/* ---- forward, rows of bf16: a warp goes through rows ---- */

/* A lane has N vectors of a row; STAGES rows have room in shared memory, where later ones are under
 * way while one is computed.  A lane reads only what it copied. */
template <int N, int STAGES> struct warp_rows {
    uint4 *room; /* of the lane: (STAGES, N, lanes) */

    CU_FN_MEMBER void fetch(const weft_cuda_norm_args &a, int stage, int64_t row) const
    {
        int lane = (int)threadIdx.x % CU_WARP;
        CU_UNROLL
        for (int v = 0; v < N; v++) {
            int at = (v * CU_WARP + lane) * 8;
            if (row < a.rows && at < a.d)
                cu_copy16(room + (stage * N + v) * CU_WARP,
                          (const cu_bf16 *)a.x + row * a.d + at);
        }
        cu_copy_commit();
    }
    /* Vector v of a stage; 0 where the row has ended. */
    CU_FN_MEMBER cu_vector get(int stage, int v, bool in) const
    {
        cu_vector x = {};
        if (in) x.lo = room[(stage * N + v) * CU_WARP];
        return x;
    }
};

/* Weights as f32, in two halves of a vector: neighbours read without conflicts. */
struct shared_weights {
    float4 *lo, *hi;

    CU_FN_MEMBER void read(const void *p, int dtype, int n) const
    {
        for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
            float w[8];
            cu_get8(p, dtype, i * 8, w);
            lo[i] = make_float4(w[0], w[1], w[2], w[3]);
            hi[i] = make_float4(w[4], w[5], w[6], w[7]);
        }
    }
    CU_FN_MEMBER void get(int i, float w[8]) const
    {
        float4 p = lo[i], q = hi[i];
        w[0] = p.x, w[1] = p.y, w[2] = p.z, w[3] = p.w;
        w[4] = q.x, w[5] = q.y, w[6] = q.z, w[7] = q.w;
    }
};

template <int N, bool RMS>
CU_FN void norm_row(const weft_cuda_norm_args &a, const cu_vector raw[N], int64_t row,
                    const shared_weights &w, const shared_weights &b, float scale)
{
    int   lane = (int)threadIdx.x % CU_WARP;
    float x[N][8], sum = 0, square = 0, mean = 0;
    CU_UNROLL
    for (int v = 0; v < N; v++) {
        cu_widen8(raw[v], WEFT_DTYPE_BF16, x[v]);
        for (int j = 0; j < 8 && !RMS; j++) sum += x[v][j];
    }
    if (!RMS) mean = cu_warp_sum(sum) * scale;
    CU_UNROLL
    for (int v = 0; v < N; v++) {
        bool in = (v * CU_WARP + lane) * 8 < a.d;
        for (int j = 0; j < 8; j++) {
            x[v][j] -= mean;
            if (in) square += x[v][j] * x[v][j];
        }
    }
    float rstd = 1.0f / sqrtf(cu_warp_sum(square) * scale + a.eps);
    CU_UNROLL
    for (int v = 0; v < N; v++) {
        int   i = v * CU_WARP + lane;
        float u[8];
        if (i * 8 >= a.d) continue;
        w.get(i, u);
        for (int j = 0; j < 8; j++) x[v][j] *= rstd * u[j];
        if (!RMS) {
            b.get(i, u);
            for (int j = 0; j < 8; j++) x[v][j] += u[j];
        }
        cu_put8(a.y, WEFT_DTYPE_BF16, row * a.d + i * 8, x[v]);
    }
    if (lane == 0 && a.mean) a.mean[row] = mean;
    if (lane == 0 && a.rstd) a.rstd[row] = rstd;
}

template <int N, int STAGES, bool RMS> CU_FN void norm_warp(const weft_cuda_norm_args &a)
{
    CU_SHARED(float4, shared);
    int            n = (int)a.d / 8, lane = (int)threadIdx.x % CU_WARP;
    int            warp = (int)threadIdx.x / CU_WARP, warps = (int)blockDim.x / CU_WARP;
    shared_weights w           = {shared, shared + n};
    shared_weights b           = {shared + 2 * n, shared + 3 * n};
    uint4         *rooms       = (uint4 *)(shared + (RMS ? 2 : 4) * n);
    warp_rows<N, STAGES> rows  = {rooms + warp * STAGES * N * CU_WARP + lane};
    int64_t              step  = (int64_t)gridDim.x * warps;
    int64_t              row   = (int64_t)blockIdx.x * warps + warp;
    int                  stage = 0;
    float                scale = 1.0f / (float)a.d;
    CU_UNROLL
    for (int k = 0; k < STAGES - 1; k++) rows.fetch(a, k, row + k * step);
    w.read(a.w, a.w_dtype, n);
    if (!RMS) b.read(a.b, a.b_dtype, n);
    __syncthreads();
    CU_ROLLED
    for (; row < a.rows; row += step) {
        cu_vector raw[N];
        rows.fetch(a, stage ? stage - 1 : STAGES - 1, row + (STAGES - 1) * step);
        cu_copy_wait<STAGES - 1>();
        CU_UNROLL
        for (int v = 0; v < N; v++)
            raw[v] = rows.get(stage, v, (v * CU_WARP + lane) * 8 < a.d);
        norm_row<N, RMS>(a, raw, row, w, b, scale);
        if (++stage == STAGES) stage = 0;
    }
}

#define NORM_WARP(n, stages, blocks)                                                     \
    CU_KERNEL_BLOCKS(norm_warp_##n, weft_cuda_norm_args, 256, blocks)                    \
    {                                                                                    \
        if (a.rms)                                                                       \
            norm_warp<n, stages, true>(a);                                               \
        else                                                                             \
            norm_warp<n, stages, false>(a);                                              \
    }
NORM_WARP(1, 3, 4)
NORM_WARP(2, 3, 4)
NORM_WARP(3, 2, 4)
NORM_WARP(4, 3, 3)
NORM_WARP(5, 3, 2)
NORM_WARP(6, 3, 2)
NORM_WARP(7, 3, 2)
NORM_WARP(8, 3, 2)

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

/* A thread has 8 columns of R rows at a time, which are of type T: dy, x and the residual.
 * They are in shared memory, where STAGES groups of R rows have room: later ones are under way
 * while a group is computed.  A thread reads only what it copied. */
template <int R, int STAGES, int T> struct row_stages {
    enum {
        WORDS    = T == WEFT_DTYPE_F32 ? 2 : 1, /* of 16 bytes, for 8 elements */
        OPERANDS = 3
    };
    uint4 *room; /* (STAGES, R, OPERANDS, WORDS, threads) */

    CU_FN_MEMBER uint4 *at(int stage, int r, int operand) const
    {
        int n = (int)blockDim.x;
        return room + ((stage * R + r) * OPERANDS + operand) * WORDS * n + threadIdx.x;
    }
    CU_FN_MEMBER void copy(int stage, int r, int operand, const void *p,
                           int64_t first) const
    {
        const char *from = (const char *)p + first * (T == WEFT_DTYPE_F32 ? 4 : 2);
        CU_UNROLL
        for (int k = 0; k < WORDS; k++)
            cu_copy16(at(stage, r, operand) + k * (int)blockDim.x, from + 16 * k);
    }
    CU_FN_MEMBER void get(int stage, int r, int operand, float x[8]) const
    {
        cu_vector v = {};
        v.lo        = *at(stage, r, operand);
        if (WORDS > 1) v.hi = at(stage, r, operand)[blockDim.x];
        cu_widen8(v, T, x);
    }
};

/* Starts the copies of R rows. */
template <int R, int STAGES, int T>
CU_FN void fetch_rows(const weft_cuda_norm_grad_args &a,
                      const row_stages<R, STAGES, T> &stages, int stage, int64_t row,
                      int64_t end)
{
    int at = (int)threadIdx.x * 8;
    CU_UNROLL
    for (int r = 0; r < R; r++) {
        int64_t first = (row + r) * a.d + at;
        if (row + r >= end || at >= a.d) continue;
        stages.copy(stage, r, 0, a.dy, first);
        stages.copy(stage, r, 1, a.x, first);
        if (a.residual) stages.copy(stage, r, 2, a.residual, first);
    }
    cu_copy_commit();
}

/* The sums of a thread's columns over rows. */
struct column_sums {
    float dw[8], db[8], dx[8];
};

/* Means and inverse deviations of rows, 32 at a time: lane k has those of row first + k, and of
 * the 32 rows after them. Read when they are needed, every eighth row would wait for memory. */
template <bool RMS> struct row_stats {
    float mean, rstd, next_mean, next_rstd;
    int   at; /* rows of the 32 that are over */

    CU_FN_MEMBER void read(const weft_cuda_norm_grad_args &a, int64_t first, int64_t end)
    {
        int64_t row = first + threadIdx.x % CU_WARP;
        next_rstd   = row < end ? a.rstd[row] : 0;
        next_mean   = RMS || row >= end ? 0 : a.mean[row];
    }
    CU_FN_MEMBER void start(const weft_cuda_norm_grad_args &a, int64_t first, int64_t end)
    {
        at = CU_WARP;
        read(a, first, end);
    }
    /* Before row `row` and those of its group; groups divide 32. */
    CU_FN_MEMBER void move(const weft_cuda_norm_grad_args &a, int64_t row, int64_t end)
    {
        if (at < CU_WARP) return;
        at   = 0;
        mean = next_mean;
        rstd = next_rstd;
        read(a, row + CU_WARP, end);
    }
    /* Of the next row: 1 / deviation, and what h is of an x of 0. */
    CU_FN_MEMBER void take(float &inverse, float &shift)
    {
        inverse = __shfl_sync(0xffffffffu, rstd, at);
        shift   = RMS ? 0 : -__shfl_sync(0xffffffffu, mean, at) * inverse;
        at++;
    }
};

/* Row r of a stage: dy and h. */
template <int R, int STAGES, int T>
CU_FN void get_row(const row_stages<R, STAGES, T> &stages, int stage, int r, float shift,
                   float rstd, float dy[8], float h[8])
{
    stages.get(stage, r, 0, dy);
    stages.get(stage, r, 1, h);
    CU_UNROLL
    for (int j = 0; j < 8; j++) h[j] = fmaf(h[j], rstd, shift);
}

enum {
    ROOM = CU_WARP / 4 /* fours of warps */
};

/* N sums over rows for all threads; room: of every warp, 0 where there is none. */
template <int N> CU_FN void sum_rows(float sum[N], float4 room[N][ROOM])
{
    int lane = (int)threadIdx.x % CU_WARP, n = (int)blockDim.x / CU_WARP;
    CU_UNROLL
    for (int k = 0; k < N; k++) {
        sum[k] = cu_warp_sum(sum[k]);
        if (lane == 0) ((float *)room[k])[threadIdx.x / CU_WARP] = sum[k];
        sum[k] = 0;
    }
    __syncthreads();
    CU_ROLLED
    for (int w = 0; w < n; w += 4) {
        CU_UNROLL
        for (int k = 0; k < N; k++) {
            float4 x = room[k][w / 4];
            sum[k]   = (((sum[k] + x.x) + x.y) + x.z) + x.w;
        }
    }
}

CU_FN void clear_room(float4 *room, int n)
{
    float4 zero = {0, 0, 0, 0};
    for (int k = (int)threadIdx.x; k < n; k += (int)blockDim.x) room[k] = zero;
    __syncthreads();
}

/* A row's part in the sums over rows and over itself; dy becomes g. */
template <bool RMS>
CU_FN void add_row(const float w[8], float dy[8], const float h[8], column_sums &c,
                   float *dot, float *plain)
{
    CU_UNROLL
    for (int j = 0; j < 8; j++) {
        c.dw[j] += dy[j] * h[j];
        if (!RMS) c.db[j] += dy[j];
        dy[j] *= w[j];
        if (!RMS) *plain += dy[j];
        *dot += dy[j] * h[j];
    }
}

/* dx of 8 columns: g becomes it, rounded as it is stored. */
template <int T>
CU_FN void write_row(const weft_cuda_norm_grad_args &a, int64_t first, float g[8],
                     const float residual[8], float total[8])
{
    if (a.add) {
        float was[8];
        cu_get8(a.dx, T, first, was);
        for (int j = 0; j < 8; j++) g[j] += was[j];
    }
    if (a.residual) { /* as if dx had been stored */
        cu_as8(T, g);
        for (int j = 0; j < 8; j++) g[j] += residual[j];
    }
    cu_put8(a.dx, T, first, g);
    if (!a.sums) return;
    cu_as8(T, g);
    for (int j = 0; j < 8; j++) total[j] += g[j];
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

/* A block a part: its rows in order, R at a time.  g = dy w and h stay in registers from the
 * sums over a row to its result.  LATE: they are made again, and weights are read when they are
 * needed, which leaves registers for more threads. */
template <int R, int STAGES, int T, bool RMS, bool LATE>
CU_FN void norm_grad_rows(const weft_cuda_norm_grad_args &a)
{
    enum {
        KEPT = LATE ? 1 : R,
        SUMS = RMS ? 1 : 2 /* of a row: of g h, and of g */
    };
    CU_SHARED(uint4, shared);
    __shared__ float4        room[2][SUMS * R][ROOM]; /* in turn: one barrier is enough */
    row_stages<R, STAGES, T> stages = {shared};
    int64_t                  row    = part_start(a.rows, a.n_part, blockIdx.x);
    int64_t                  end    = part_start(a.rows, a.n_part, blockIdx.x + 1);
    int                      turn = 0, stage = 0, at = (int)threadIdx.x * 8;
    row_stats<RMS>           stats;
    column_sums              c     = {};
    float                    w[8]  = {};
    float                    scale = 1.0f / (float)a.d;
    if (!LATE) stats.start(a, row, end);
    CU_UNROLL
    for (int k = 0; k < STAGES - 1; k++) fetch_rows(a, stages, k, row + k * R, end);
    clear_room(&room[0][0][0], 2 * SUMS * R * ROOM);
    if (!LATE) read_weights(a, w);
    CU_ROLLED
    for (; row < end; row += R, turn ^= 1) {
        float sum[SUMS * R], shift[R], rstd[R], g[KEPT][8], h[KEPT][8];
        fetch_rows(a, stages, stage ? stage - 1 : STAGES - 1, row + (STAGES - 1) * R,
                   end);
        if (!LATE) stats.move(a, row, end);
        CU_UNROLL
        for (int r = 0; r < R; r++) {
            if (!LATE) {
                stats.take(rstd[r], shift[r]);
            } else {
                rstd[r]  = row + r < end ? a.rstd[row + r] : 0;
                shift[r] = RMS || row + r >= end ? 0 : -a.mean[row + r] * rstd[r];
            }
        }
        if (LATE) read_weights(a, w);
        cu_copy_wait<STAGES - 1>();
        CU_UNROLL
        for (int r = 0; r < R; r++) {
            float dot = 0, plain = 0;
            int   k = LATE ? 0 : r;
            if (row + r < end && at < a.d) {
                get_row(stages, stage, r, shift[r], rstd[r], g[k], h[k]);
                add_row<RMS>(w, g[k], h[k], c, &dot, &plain);
            }
            sum[SUMS * r] = dot;
            if (!RMS) sum[SUMS * r + SUMS - 1] = plain;
        }
        if (a.dx) sum_rows<SUMS * R>(sum, room[turn]);
        if (LATE) read_weights(a, w);
        CU_UNROLL
        for (int r = 0; r < R; r++) {
            float by_h = -rstd[r] * (sum[SUMS * r] * scale);
            float by_1 = RMS ? 0 : -rstd[r] * (sum[SUMS * r + SUMS - 1] * scale);
            int   k    = LATE ? 0 : r;
            if (!a.dx || row + r >= end || at >= a.d) continue;
            if (LATE) {
                get_row(stages, stage, r, shift[r], rstd[r], g[k], h[k]);
                CU_UNROLL
                for (int j = 0; j < 8; j++) g[k][j] *= w[j];
            }
            CU_UNROLL
            for (int j = 0; j < 8; j++)
                g[k][j] = fmaf(g[k][j], rstd[r], fmaf(h[k][j], by_h, by_1));
            if (a.residual) stages.get(stage, r, 2, h[k]);
            write_row<T>(a, (row + r) * a.d + at, g[k], h[k], c.dx);
        }
        if (++stage == STAGES) stage = 0;
    }
    put_sums(a, c);
}

#define NORM_GRAD(type, TYPE, threads, rows, stages, blocks, late)                       \
    CU_KERNEL_BLOCKS(norm_grad_##type##_##threads, weft_cuda_norm_grad_args, threads,    \
                     blocks)                                                             \
    {                                                                                    \
        if (a.rms)                                                                       \
            norm_grad_rows<rows, stages, WEFT_DTYPE_##TYPE, true, late>(a);              \
        else                                                                             \
            norm_grad_rows<rows, stages, WEFT_DTYPE_##TYPE, false, late>(a);             \
    }
NORM_GRAD(f32, F32, 128, 1, 3, 5, false)
NORM_GRAD(f32, F32, 256, 1, 3, 2, false)
NORM_GRAD(f32, F32, 512, 1, 2, 1, false)
NORM_GRAD(bf16, BF16, 128, 1, 4, 4, false)
NORM_GRAD(bf16, BF16, 256, 2, 2, 2, false)
NORM_GRAD(bf16, BF16, 1024, 1, 2, 1, true)

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
