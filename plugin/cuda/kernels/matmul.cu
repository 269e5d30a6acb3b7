/* Products of any strides in tiles of 64 x 64: what no library takes, and the reference on the
 * device.
 *
 * The sum of an element: runs of 256 along k, one fma after the other, and the runs added in
 * order. */
#include "cuda_vec.h"

enum {
    TILE    = WEFT_CUDA_TILE,
    DEPTH   = 16, /* of a step along k */
    EACH    = 4,  /* rows and columns of a thread */
    THREADS = 256,
    RUN     = 16 /* steps whose sum is kept apart */
};

typedef float tile_row[TILE + 4];

/* Loads one step of both operands: element (i, k0 + k) of a and (k0 + k, j) of b, 0 outside. */
template <class Operands>
CU_FN void load_step(const Operands &o, int64_t k0, tile_row *a, tile_row *b)
{
    int t = (int)threadIdx.x;
    CU_ROLLED
    for (int e = 0; e < TILE * DEPTH / THREADS; e++) {
        int at = e * THREADS + t;
        /* neighbouring threads read neighbouring elements where memory allows it */
        int ak    = o.a_by_k() ? at % DEPTH : at / TILE,
            ai    = o.a_by_k() ? at / DEPTH : at % TILE;
        int bk    = o.b_by_k() ? at % DEPTH : at / TILE,
            bj    = o.b_by_k() ? at / DEPTH : at % TILE;
        a[ak][ai] = o.load_a(ai, k0 + ak);
        b[bk][bj] = o.load_b(k0 + bk, bj);
    }
}

CU_FN void multiply_step(const tile_row *a, const tile_row *b, float sum[EACH][EACH])
{
    int i0 = (int)threadIdx.x / (TILE / EACH) * EACH;
    int j0 = (int)threadIdx.x % (TILE / EACH) * EACH;
    for (int k = 0; k < DEPTH; k++) {
        float x[EACH], y[EACH];
        for (int e = 0; e < EACH; e++) x[e] = a[k][i0 + e], y[e] = b[k][j0 + e];
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++) sum[i][j] += x[i] * y[j];
    }
}

template <class Operands>
CU_FN void multiply(const Operands &o, int64_t n_k, float total[EACH][EACH])
{
    __shared__ tile_row a[DEPTH], b[DEPTH];
    float               sum[EACH][EACH];
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) total[i][j] = sum[i][j] = 0;
    for (int64_t k = 0, step = 1; k < n_k; k += DEPTH, step++) {
        load_step(o, k, a, b);
        __syncthreads();
        multiply_step(a, b, sum);
        __syncthreads();
        if (step % RUN && k + DEPTH < n_k) continue;
        for (int i = 0; i < EACH; i++)
            for (int j = 0; j < EACH; j++) {
                total[i][j] += sum[i][j];
                sum[i][j] = 0;
            }
    }
}

/* o.put(i, j, x) for the elements of a thread. */
template <class Operands> CU_FN void put_tile(const Operands &o, float total[EACH][EACH])
{
    int i0 = (int)threadIdx.x / (TILE / EACH) * EACH;
    int j0 = (int)threadIdx.x % (TILE / EACH) * EACH;
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) o.put(i0 + i, j0 + j, total[i][j]);
}

/* ---- a spec ---- */

struct spec_operands {
    const weft_cuda_matmul_args &m;
    /* offsets of a tile; -1: outside */
    const int64_t *row_a, *row_y, *column_b, *column_y;

    CU_FN_MEMBER bool  a_by_k() const { return m.summed.step[0][m.summed.n - 1] == 1; }
    CU_FN_MEMBER bool  b_by_k() const { return m.summed.step[1][m.summed.n - 1] == 1; }
    CU_FN_MEMBER float load_a(int i, int64_t k) const
    {
        int64_t at[2];
        if (row_a[i] < 0 || k >= m.summed.count) return 0;
        cu_nd_at<2, 1>(m.summed, k, at);
        return cu_get(m.a, m.a_dtype, row_a[i] + at[0]);
    }
    CU_FN_MEMBER float load_b(int64_t k, int j) const
    {
        int64_t at[2];
        if (column_b[j] < 0 || k >= m.summed.count) return 0;
        cu_nd_at<2, 1>(m.summed, k, at);
        return cu_get(m.b, m.b_dtype, column_b[j] + at[1]);
    }
    CU_FN_MEMBER void put(int i, int j, float x) const
    {
        if (row_a[i] < 0 || column_b[j] < 0) return;
        int64_t at = row_y[i] + column_y[j];
        if (m.add) x += cu_get(m.y, m.y_dtype, at);
        cu_put(m.y, m.y_dtype, at, x);
    }
};

/* Offsets in x (operand `op`) and y of the rows or columns of tile number t, from bx and by on;
 * threads first .. first + TILE - 1. */
CU_FN void find_offsets(const weft_cuda_nd &nd, int64_t t, int op, int first, int64_t bx,
                        int64_t by, int64_t *in_x, int64_t *in_y)
{
    int     i = (int)threadIdx.x - first;
    int64_t at[3];
    if (i < 0 || i >= TILE) return;
    in_x[i] = -1;
    if (t * TILE + i >= nd.count) return;
    cu_nd_at<3, 1>(nd, t * TILE + i, at);
    in_x[i] = bx + at[op];
    in_y[i] = by + at[2];
}

CU_KERNEL(matmul, weft_cuda_matmul_args, 256)
{
    __shared__ int64_t row_a[TILE], row_y[TILE], column_b[TILE], column_y[TILE];
    float              total[EACH][EACH];
    int64_t            tile = blockIdx.x, column = tile % a.n_column_tile;
    tile /= a.n_column_tile;
    int64_t at[3];
    cu_nd_at<3, 1>(a.batch, tile / a.n_row_tile, at);
    find_offsets(a.rows, tile % a.n_row_tile, 0, 0, at[0], at[2], row_a, row_y);
    find_offsets(a.columns, column, 1, TILE, at[1], 0, column_b, column_y);
    spec_operands o = {a, row_a, row_y, column_b, column_y};
    __syncthreads();
    multiply(o, a.summed.count, total);
    put_tile(o, total);
}

/* ---- rows of experts ---- */

struct strided_operands {
    const void *a, *b;
    void       *y;
    int         a_dtype, b_dtype, y_dtype, add;
    int64_t     m, n, k; /* of the tile: what is left from its corner on */
    int64_t     a_i, a_k, b_k, b_j, y_i;

    CU_FN_MEMBER bool  a_by_k() const { return a_k == 1; }
    CU_FN_MEMBER bool  b_by_k() const { return b_k == 1; }
    CU_FN_MEMBER float load_a(int i, int64_t at) const
    {
        return i < m && at < k ? cu_get(a, a_dtype, i * a_i + at * a_k) : 0;
    }
    CU_FN_MEMBER float load_b(int64_t at, int j) const
    {
        return j < n && at < k ? cu_get(b, b_dtype, at * b_k + j * b_j) : 0;
    }
    CU_FN_MEMBER void put(int i, int j, float x) const
    {
        if (i >= m || j >= n) return;
        int64_t at = i * y_i + j;
        if (add) x += cu_get(y, y_dtype, at);
        cu_put(y, y_dtype, at, x);
    }
};

CU_FN const void *element(const void *p, int dtype, int64_t at)
{
    return (const char *)p + at * (dtype == WEFT_DTYPE_F32 ? 4 : 2);
}

CU_FN int64_t offset(const weft_cuda_grouped_args &a, int64_t e)
{
    int64_t o = a.offsets_dtype == WEFT_DTYPE_I64 ? ((const int64_t *)a.offsets)[e]
                                                  : ((const int32_t *)a.offsets)[e];
    return o < 0 ? 0 : o > a.rows ? a.rows : o;
}

/* Tiles of rows are those of expert 0, then of 1, ..., then of rows without an expert, which
 * become 0. */
CU_KERNEL(grouped_matmul, weft_cuda_grouped_args, 256)
{
    float   total[EACH][EACH];
    int64_t tile   = blockIdx.x / a.n_column_tile,
            column = blockIdx.x % a.n_column_tile * TILE;
    int64_t e = 0, r0 = 0, r1 = 0;
    for (; e <= a.experts; e++) {
        r0             = offset(a, e);
        r1             = e < a.experts ? offset(a, e + 1) : a.rows;
        int64_t n_tile = r1 > r0 ? (r1 - r0 + TILE - 1) / TILE : 0;
        if (tile < n_tile) break;
        tile -= n_tile;
    }
    if (e > a.experts) return;
    int64_t          row  = r0 + tile * TILE;
    bool             none = e == a.experts;
    strided_operands o    = {
           element(a.x, a.x_dtype, row * a.k),
           element(a.w, a.w_dtype, (none ? 0 : e) * a.k * a.n + column * a.w_n),
           (void *)element(a.y, a.y_dtype, row * a.n + column),
           a.x_dtype,
           a.w_dtype,
           a.y_dtype,
           a.add,
           r1 - row,
           a.n - column,
        none ? 0 : a.k,
           a.k,
           1,
           a.w_k,
           a.w_n,
           a.n};
    multiply(o, o.k, total);
    put_tile(o, total);
}

/* dw[e] = sum over the rows of e: (n,k) where w_k is 1, else (k,n).  w is dy. */
CU_KERNEL(grouped_matmul_wgrad, weft_cuda_grouped_args, 256)
{
    float   total[EACH][EACH];
    bool    trans = a.w_k == 1;
    int64_t m = trans ? a.n : a.k, n = trans ? a.k : a.n;
    int64_t n_row_tile   = (m + TILE - 1) / TILE;
    int64_t column       = blockIdx.x % a.n_column_tile * TILE,
            tile         = blockIdx.x / a.n_column_tile;
    int64_t          row = tile % n_row_tile * TILE, e = tile / n_row_tile;
    int64_t          r0 = offset(a, e), r1 = offset(a, e + 1);
    const void      *left = trans ? a.w : a.x, *right = trans ? a.x : a.w;
    int              left_dtype  = trans ? a.w_dtype : a.x_dtype;
    int              right_dtype = trans ? a.x_dtype : a.w_dtype;
    strided_operands o           = {element(left, left_dtype, r0 * m + row),
                                    element(right, right_dtype, r0 * n + column),
                                    (void *)element(a.y, a.y_dtype, (e * m + row) * n + column),
                                    left_dtype,
                                    right_dtype,
                                    a.y_dtype,
                                    a.add,
                                    m - row,
                                    n - column,
                          r1 > r0 ? r1 - r0 : 0,
                                    1,
                                    m,
                                    n,
                                    1,
                                    n};
    multiply(o, o.k, total);
    put_tile(o, total);
}
