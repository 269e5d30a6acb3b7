/* Products of experts' rows in bf16 by tensor cores: tiles of 128 x 128, 32 along k at a time.
 *
 * A warp has 64 x 32 of a tile.  Both operands are kept in shared memory with k running
 * fastest, whatever runs fastest in memory; the next step's elements are read while this one's
 * are multiplied. */
#include "cuda_mma.h"
#include "cuda_vec.h"

enum {
    TILE  = WEFT_CUDA_GROUPED_TILE,
    DEPTH = 32, /* of a step along k */
    /* elements of a row in shared memory: no two of a warp's words in one bank */
    ROW     = 40,
    THREADS = 256,
    READS   = TILE * DEPTH / 8 / THREADS /* vectors of a thread and step */
};

/* Element (i, k) of an operand is p[i * step_i + k * step_k]; one of the steps is 1. */
struct operand {
    const cu_bf16 *p;
    int64_t        step_i, step_k;
    int64_t        n_i, n_k; /* what is left from the tile's corner on */
};

/* Where vector e of this thread begins: 8 elements along what runs fastest. */
CU_FN void find_vector(const operand &o, int e, int *i, int *k)
{
    int q = e * THREADS + (int)threadIdx.x;
    if (o.step_k == 1) {
        *i = q / (DEPTH / 8);
        *k = q % (DEPTH / 8) * 8;
    } else {
        *i = q / DEPTH * 8;
        *k = q % DEPTH;
    }
}

CU_FN void read_step(const operand &o, int64_t k0, uint4 v[READS])
{
    for (int e = 0; e < READS; e++) {
        int i, k;
        find_vector(o, e, &i, &k);
        v[e] = {0, 0, 0, 0};
        if (i < o.n_i && k0 + k < o.n_k)
            v[e] = *(const uint4 *)(o.p + i * o.step_i + (k0 + k) * o.step_k);
    }
}

CU_FN void put_step(const operand &o, const uint4 v[READS], cu_bf16 *tile)
{
    for (int e = 0; e < READS; e++) {
        int i, k;
        find_vector(o, e, &i, &k);
        if (o.step_k == 1) {
            *(uint4 *)(tile + i * ROW + k) = v[e];
            continue;
        }
        uint32_t w[4] = {v[e].x, v[e].y, v[e].z, v[e].w};
        for (int j = 0; j < 8; j++)
            tile[(i + j) * ROW + k] = (cu_bf16)(j % 2 ? w[j / 2] >> 16 : w[j / 2]);
    }
}

/* Two elements along k. */
CU_FN uint32_t pair(const cu_bf16 *tile, int i, int k)
{
    return *(const uint32_t *)(tile + i * ROW + k);
}

CU_FN void multiply_step(const cu_bf16 *a, const cu_bf16 *b, int row, int column,
                         float sum[4][4][4])
{
    int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    for (int k = 2 * t; k < DEPTH; k += 16) {
        uint32_t x[4][4], y[4][2];
        for (int m = 0; m < 4; m++) {
            int i   = row + m * 16 + g;
            x[m][0] = pair(a, i, k), x[m][1] = pair(a, i + 8, k);
            x[m][2] = pair(a, i, k + 8), x[m][3] = pair(a, i + 8, k + 8);
        }
        for (int n = 0; n < 4; n++) {
            int j   = column + n * 8 + g;
            y[n][0] = pair(b, j, k), y[n][1] = pair(b, j, k + 8);
        }
        for (int m = 0; m < 4; m++)
            for (int n = 0; n < 4; n++) cu_mma(sum[m][n], x[m], y[n]);
    }
}

/* y (n_i of a, n_i of b), rows of y_row elements. */
CU_FN void multiply(const operand &a, const operand &b, void *y, int dtype, int64_t first,
                    int64_t y_row, int add)
{
    __shared__ uint4 left_room[TILE * ROW / 8], right_room[TILE * ROW / 8];
    cu_bf16         *left = (cu_bf16 *)left_room, *right = (cu_bf16 *)right_room;
    int   warp = (int)threadIdx.x / 32, row = warp % 2 * 64, column = warp / 2 * 32;
    int   g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    float sum[4][4][4];
    uint4 va[READS], vb[READS];
    for (int m = 0; m < 4; m++)
        for (int n = 0; n < 4; n++)
            for (int e = 0; e < 4; e++) sum[m][n][e] = 0;
    read_step(a, 0, va);
    read_step(b, 0, vb);
    for (int64_t k = 0; k < a.n_k; k += DEPTH) {
        put_step(a, va, left);
        put_step(b, vb, right);
        __syncthreads();
        read_step(a, k + DEPTH, va);
        read_step(b, k + DEPTH, vb);
        multiply_step(left, right, row, column, sum);
        __syncthreads();
    }
    CU_UNROLLED
    for (int m = 0; m < 4; m++) CU_UNROLLED
    for (int n = 0; n < 4; n++) CU_UNROLLED
    for (int e = 0; e < 4; e++) {
        int i = row + m * 16 + g + e / 2 * 8, j = column + n * 8 + 2 * t + e % 2;
        if (i >= a.n_i || j >= b.n_i) continue;
        int64_t at = first + i * y_row + j;
        float   x  = sum[m][n][e];
        if (add) x += cu_get(y, dtype, at);
        cu_put(y, dtype, at, x);
    }
}

CU_FN int64_t offset(const weft_cuda_grouped_args &a, int64_t e)
{
    int64_t o = a.offsets_dtype == WEFT_DTYPE_I64 ? ((const int64_t *)a.offsets)[e]
                                                  : ((const int32_t *)a.offsets)[e];
    return o < 0 ? 0 : o > a.rows ? a.rows : o;
}

/* As grouped_matmul, in bf16. */
CU_KERNEL(grouped_bf16, weft_cuda_grouped_args, 256)
{
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
    int64_t row = r0 + tile * TILE, k = e == a.experts ? 0 : a.k;
    operand x = {(const cu_bf16 *)a.x + row * a.k, a.k, 1, r1 - row, k};
    operand w = {(const cu_bf16 *)a.w + (k ? e * a.k * a.n : 0) + column * a.w_n, a.w_n,
                 a.w_k, a.n - column, k};
    multiply(x, w, a.y, a.y_dtype, row * a.n + column, a.n, a.add);
}

/* As grouped_matmul_wgrad, in bf16. */
CU_KERNEL(grouped_bf16_wgrad, weft_cuda_grouped_args, 256)
{
    bool           trans = a.w_k == 1;
    int64_t        m = trans ? a.n : a.k, n = trans ? a.k : a.n;
    int64_t        n_row_tile = (m + TILE - 1) / TILE;
    int64_t        column     = blockIdx.x % a.n_column_tile * TILE;
    int64_t        tile       = blockIdx.x / a.n_column_tile;
    int64_t        row = tile % n_row_tile * TILE, e = tile / n_row_tile;
    int64_t        r0 = offset(a, e), r1 = offset(a, e + 1), k = r1 > r0 ? r1 - r0 : 0;
    const cu_bf16 *left  = (const cu_bf16 *)(trans ? a.w : a.x);
    const cu_bf16 *right = (const cu_bf16 *)(trans ? a.x : a.w);
    operand        x     = {left + r0 * m + row, 1, m, m - row, k};
    operand        y     = {right + r0 * n + column, 1, n, n - column, k};
    multiply(x, y, a.y, a.y_dtype, (e * m + row) * n + column, n, a.add);
}
