/* Sums and maxima over some dimensions, and over parts of rows. */
#include "cuda_block.h"
#include "cuda_vec.h"

enum {
    COLUMNS = 32, /* vectors of columns of a block: a warp has a part of the rows */
    AHEAD   = 8
};

CU_FN float combine(int kind, float x, float y)
{
    return kind == WEFT_CUDA_REDUCE_SUM ? x + y : fmaxf(x, y);
}

CU_FN float neutral(int kind)
{
    return kind == WEFT_CUDA_REDUCE_SUM ? 0.0f : -INFINITY;
}

CU_FN int64_t part_start(int64_t n, int64_t n_part, int64_t p)
{
    int64_t each = (n + n_part - 1) / n_part;
    return p * each < n ? p * each : n;
}

CU_FN void put_result(void *y, int dtype, int64_t at, int add, float x)
{
    if (add) x += cu_get(y, dtype, at);
    cu_put(y, dtype, at, x);
}

/* ---- the last stage: parts in order, 16 threads W columns ---- */

template <int W> struct fold_columns {
    float x[W];
};

template <int W> CU_FN fold_columns<W> read_columns(const float *p)
{
    fold_columns<W> c;
    if (W == 4) {
        float4 v = *(const float4 *)p;
        c.x[0] = v.x, c.x[1 % W] = v.y, c.x[2 % W] = v.z, c.x[3 % W] = v.w;
    } else {
        c.x[0] = *p;
    }
    return c;
}

/* Thread r of a column has parts r, r + 16, ..., in order, AHEAD of them read before the first is
 * added; then the 16 are added in order. */
template <int W> CU_FN void fold_parts(const weft_cuda_fold_args &a)
{
    __shared__ float sum[16][16 * W + 1];
    int              c = (int)threadIdx.x % 16, r = (int)threadIdx.x / 16;
    int64_t          i = ((int64_t)blockIdx.x * 16 + c) * W, n = a.y.count * a.n_result;
    float            x[W];
    for (int j = 0; j < W; j++) x[j] = neutral(a.kind);
    CU_ROLLED
    for (int64_t p = r; p < a.n_part && i < n; p += 16 * AHEAD) {
        fold_columns<W> v[AHEAD];
        CU_UNROLL
        for (int k = 0; k < AHEAD; k++)
            if (p + 16 * k < a.n_part)
                v[k] = read_columns<W>(a.part + (p + 16 * k) * n + i);
        CU_UNROLL
        for (int k = 0; k < AHEAD; k++)
            for (int j = 0; j < W && p + 16 * k < a.n_part; j++)
                x[j] = combine(a.kind, x[j], v[k].x[j]);
    }
    for (int j = 0; j < W; j++) sum[r][c * W + j] = x[j];
    __syncthreads();
    i = (int64_t)blockIdx.x * 16 * W + threadIdx.x;
    if (threadIdx.x >= 16 * W || i >= n) return;
    float total = sum[0][threadIdx.x];
    for (int k = 1; k < 16; k++) total = combine(a.kind, total, sum[k][threadIdx.x]);
    int     k = (int)(i / a.y.count);
    int64_t at[1];
    if (!a.result[k]) return;
    cu_nd_at<1, 1>(a.y, i - k * a.y.count, at);
    put_result(a.result[k], a.dtype[k], at[0], a.add[k], total * a.scale);
}

CU_KERNEL(fold_1, weft_cuda_fold_args, 256)
{
    fold_parts<1>(a);
}
/* Columns of all results are a multiple of 4, and parts begin at multiples of 16 bytes. */
CU_KERNEL(fold_4, weft_cuda_fold_args, 256)
{
    fold_parts<4>(a);
}

/* ---- columns: what is kept lies together; a thread has W of them in one part of the rows ---- */

/* Columns [i, i + W) of rows [row, end), one after the other, AHEAD reads before their sums.  x
 * is of type T. */
template <int W, int T>
CU_FN void add_rows(const weft_cuda_reduce_args &a, int64_t row, int64_t end, int64_t i,
                    float x[W])
{
    int64_t   step = a.gone.step[0][0];
    cu_row<W> ahead[AHEAD];
    float     u[W];
    CU_ROLLED
    for (; row + AHEAD <= end; row += AHEAD) {
        CU_UNROLL
        for (int k = 0; k < AHEAD; k++)
            ahead[k] = cu_read_row<W>(a.x, T, (row + k) * step + i, 1);
        CU_UNROLL
        for (int k = 0; k < AHEAD; k++) {
            cu_widen_row<W>(ahead[k], T, 1, u);
            for (int j = 0; j < W; j++) x[j] = combine(a.kind, x[j], u[j]);
        }
    }
    CU_ROLLED
    for (; row < end; row++) {
        cu_get_row<W>(a.x, T, row * step + i, 1, u);
        for (int j = 0; j < W; j++) x[j] = combine(a.kind, x[j], u[j]);
    }
}

template <int W> CU_FN void reduce_columns(const weft_cuda_reduce_args &a)
{
    int     c = (int)threadIdx.x % COLUMNS;
    int64_t p = (int64_t)blockIdx.y * (blockDim.x / COLUMNS) + (int)threadIdx.x / COLUMNS;
    int64_t n = a.kept.count, i = ((int64_t)blockIdx.x * COLUMNS + c) * W;
    float   x[W];
    if (i >= n || p >= a.n_part) return;
    int64_t first = part_start(a.gone.count, a.n_part, p);
    int64_t end   = part_start(a.gone.count, a.n_part, p + 1);
    for (int j = 0; j < W; j++) x[j] = neutral(a.kind);
    if (a.x_dtype == WEFT_DTYPE_F32)
        add_rows<W, WEFT_DTYPE_F32>(a, first, end, i, x);
    else
        add_rows<W, WEFT_DTYPE_BF16>(a, first, end, i, x);
    if (a.n_part > 1) {
        cu_put_row<W>(a.part, WEFT_DTYPE_F32, p * n + i, x);
        return;
    }
    for (int j = 0; j < W; j++)
        put_result(a.y, a.y_dtype, (i + j) * a.kept.step[1][0], a.add, x[j] * a.scale);
}

CU_KERNEL(reduce_columns_1, weft_cuda_reduce_args, 64)
{
    reduce_columns<1>(a);
}
CU_KERNEL_BLOCKS(reduce_columns_8, weft_cuda_reduce_args, 64, 16)
{
    reduce_columns<8>(a);
}

/* ---- any strides: a warp a result and part ---- */

CU_KERNEL(reduce_any, weft_cuda_reduce_args, 128)
{
    int     lane = (int)threadIdx.x % CU_WARP;
    int64_t i = cu_index() / CU_WARP, p = blockIdx.y, at[2], in[1];
    int64_t end = part_start(a.gone.count, a.n_part, p + 1);
    float   x   = neutral(a.kind);
    if (i >= a.kept.count) return;
    cu_nd_at<2, 1>(a.kept, i, at);
    for (int64_t k = part_start(a.gone.count, a.n_part, p) + lane; k < end;
         k += CU_WARP) {
        cu_nd_at<1, 1>(a.gone, k, in);
        x = combine(a.kind, x, cu_get(a.x, a.x_dtype, at[0] + in[0]));
    }
    x = a.kind == WEFT_CUDA_REDUCE_SUM ? cu_warp_sum(x) : cu_warp_max(x);
    if (lane) return;
    if (a.n_part > 1)
        a.part[p * a.kept.count + i] = x;
    else
        put_result(a.y, a.y_dtype, at[1], a.add, x * a.scale);
}
