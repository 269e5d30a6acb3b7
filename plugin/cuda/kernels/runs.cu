/* Sums of rows with equal numbers, from the sorted numbers: each sum has one order, that of the
 * rows. */
#include "cuda_vec.h"

enum {
    ROWS  = WEFT_CUDA_RUN_ROWS,
    AHEAD = 4 /* rows that are read before they are added */
};

template <int W>
CU_FN void add_to(const weft_cuda_run_args &a, int64_t at, const float sum[W])
{
    float y[W];
    cu_get_row<W>(a.y, a.y_dtype, at, 1, y);
    for (int j = 0; j < W; j++) y[j] += sum[j];
    cu_put_row<W>(a.y, a.y_dtype, at, y);
}

/* What happens after a sorted row was added: the sum goes on, or it goes somewhere. */
enum after_row {
    GOES_ON,
    TO_TABLE,
    TO_PART_0,
    TO_PART_1,
    TO_NOBODY
};

/* Of row t of the piece that begins at first and has n rows. */
CU_FN int find_after(const weft_cuda_run_args &a, int64_t first, int n, int t)
{
    int64_t  i    = first + t;
    uint32_t key  = a.key[i];
    bool     more = i + 1 < a.n && a.key[i + 1] == key;
    if (more && t + 1 < n) return GOES_ON;
    if (key >= (uint32_t)a.n_key) return TO_NOBODY;
    if (first > 0 && a.key[first - 1] == key) return TO_PART_0;
    return more ? TO_PART_1 : TO_TABLE;
}

struct piece_rows {
    uint32_t key[ROWS], from[ROWS];
    int      after[ROWS];
};

/* Columns [col, col + W) of the rows of a piece. */
template <int W>
CU_FN void add_piece(const weft_cuda_run_args &a, const piece_rows &p, int n, int64_t b,
                     int64_t col)
{
    int64_t part = (b * a.n_piece + blockIdx.x) * 2 * a.behind + col;
    float   sum[W], row[AHEAD][W];
    for (int j = 0; j < W; j++) sum[j] = 0;
    for (int i0 = 0; i0 < n; i0 += AHEAD) {
        CU_UNROLL
        for (int k = 0; k < AHEAD; k++)
            if (i0 + k < n)
                cu_get_row<W>(a.x, a.x_dtype, (b * a.n + p.from[i0 + k]) * a.behind + col,
                              1, row[k]);
        CU_UNROLL
        for (int k = 0; k < AHEAD; k++) {
            if (i0 + k >= n) break;
            int after = p.after[i0 + k];
            for (int j = 0; j < W; j++) sum[j] += row[k][j];
            if (after == GOES_ON) continue;
            if (after == TO_TABLE)
                add_to<W>(a, (b * a.n_key + p.key[i0 + k]) * a.behind + col, sum);
            else if (after != TO_NOBODY)
                cu_put_row<W>(a.part, WEFT_DTYPE_F32,
                              part + (after == TO_PART_1 ? a.behind : 0), sum);
            for (int j = 0; j < W; j++) sum[j] = 0;
        }
    }
}

/* Blocks: pieces, columns, samples. */
template <int W> CU_FN void add_pieces(const weft_cuda_run_args &a)
{
    __shared__ piece_rows p;
    int                   t     = (int)threadIdx.x;
    int64_t               first = (int64_t)blockIdx.x * ROWS, rest = a.n - first;
    int                   n = rest < ROWS ? (int)rest : ROWS;
    if (t < n) {
        p.key[t]   = a.key[first + t];
        p.from[t]  = a.from[first + t];
        p.after[t] = find_after(a, first, n, t);
    }
    __syncthreads();
    int64_t col = ((int64_t)blockIdx.y * blockDim.x + t) * W;
    if (col >= a.behind) return;
    for (int64_t b = blockIdx.z; b < a.before; b += gridDim.z)
        add_piece<W>(a, p, n, b, col);
}

CU_KERNEL(run_sums_1, weft_cuda_run_args, 128)
{
    add_pieces<1>(a);
}
CU_KERNEL(run_sums_8, weft_cuda_run_args, 128)
{
    add_pieces<8>(a);
}

/* How many of the sorted keys from `lo` on are not above key: the first that is. */
CU_FN int64_t find_end(const weft_cuda_run_args &a, int64_t lo, uint32_t key)
{
    int64_t hi = a.n;
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (a.key[mid] <= key)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

template <int W>
CU_FN void merge_columns(const weft_cuda_run_args &a, int64_t piece, int64_t last,
                         uint32_t key, int64_t b, int64_t col)
{
    int64_t at = ((b * a.n_piece + piece) * 2 + 1) * a.behind + col;
    float   sum[W], part[W];
    cu_get_row<W>(a.part, WEFT_DTYPE_F32, at, 1, sum);
    at += a.behind;
    CU_UNROLL_8
    for (int64_t p = piece + 1; p <= last; p++, at += 2 * a.behind) {
        cu_get_row<W>(a.part, WEFT_DTYPE_F32, at, 1, part);
        for (int j = 0; j < W; j++) sum[j] += part[j];
    }
    add_to<W>(a, (b * a.n_key + key) * a.behind + col, sum);
}

/* The piece where a key begins that crosses pieces adds up what they left, in order. */
template <int W> CU_FN void merge_pieces(const weft_cuda_run_args &a)
{
    int64_t piece = blockIdx.x, end = (piece + 1) * ROWS;
    if (end >= a.n) return;
    uint32_t key = a.key[end - 1];
    if (key >= (uint32_t)a.n_key || a.key[end] != key) return;
    if (piece > 0 && a.key[piece * ROWS - 1] == key) return; /* began before */
    int64_t col = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * W;
    if (col >= a.behind) return;
    int64_t last = (find_end(a, end, key) - 1) / ROWS;
    for (int64_t b = blockIdx.z; b < a.before; b += gridDim.z)
        merge_columns<W>(a, piece, last, key, b, col);
}

CU_KERNEL(run_merge_1, weft_cuda_run_args, 128)
{
    merge_pieces<1>(a);
}
CU_KERNEL(run_merge_8, weft_cuda_run_args, 128)
{
    merge_pieces<8>(a);
}
