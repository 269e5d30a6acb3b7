/* Products of tiles of 64 x 64 in f32, operands through shared memory: a block
 * of 256 threads, a thread has 4 x 4.
 *
 *     tile_dot:   acc += rows of A . rows of B                   both are read
 * along their columns tile_mix:   acc += M^T rows of B M (k, 64) lies in shared
 * memory, B (k, 64) is read */
#ifndef WEFT_CUDA_TILE_H
#define WEFT_CUDA_TILE_H

#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#pragma GCC optimize("O3") /* emulated tiles are most of the tests' time: 2.5 times faster so */
#endif

#include "cuda_block.h"
#include "cuda_vec.h"

enum {
    CU_TILE         = 64,
    CU_TILE_THREADS = 256,
    CU_TILE_K       = 16,          /* columns that are in shared memory at a time */
    CU_TILE_LD      = CU_TILE + 4, /* rows in shared memory; vectors of 4 stay aligned */
    CU_TILE_ROOM    = CU_TILE_K * CU_TILE_LD
};

/* Shared memory: chunks of two operands, and a tile. */
struct alignas(16) cu_tile_shared {
    float room[2 * CU_TILE_ROOM], m[CU_TILE * CU_TILE_LD];
};

/* A matrix in memory: row r, column c at p + r * row + c * col, in elements. */
struct cu_rows {
    const void *p;
    int         dtype;
    int         row, col;
    int         n, d; /* rows, columns; beyond them is 0 */
};

CU_FN float cu_rows_get(const cu_rows &m, int r, int c)
{
    return r < m.n && c < m.d
               ? cu_get(m.p, m.dtype, (int64_t)r * m.row + (int64_t)c * m.col)
               : 0;
}

/* The thread's rows and columns in the tile: 4 from each. */
CU_FN int cu_tile_row(void)
{
    return (int)threadIdx.x / 16 * 4;
}
CU_FN int cu_tile_col(void)
{
    return (int)threadIdx.x % 16 * 4;
}

/* to[column][row]: rows from r0, CU_TILE_K columns from c0. */
CU_FN void cu_tile_load_turned(float *to, const cu_rows &m, int r0, int c0)
{
    int c = (int)threadIdx.x % CU_TILE_K, r = (int)threadIdx.x / CU_TILE_K;
    for (; r < CU_TILE; r += CU_TILE_THREADS / CU_TILE_K)
        to[c * CU_TILE_LD + r] = cu_rows_get(m, r0 + r, c0 + c);
}

/* to[row][column]: CU_TILE_K rows from r0, columns from c0. */
CU_FN void cu_tile_load(float *to, const cu_rows &m, int r0, int c0)
{
    int c = (int)threadIdx.x % CU_TILE, r = (int)threadIdx.x / CU_TILE;
    for (; r < CU_TILE_K; r += CU_TILE_THREADS / CU_TILE)
        to[r * CU_TILE_LD + c] = cu_rows_get(m, r0 + r, c0 + c);
}

/* acc[i][j] += sum over k < CU_TILE_K of a[k][row + i] b[k][col + j] */
CU_FN void cu_tile_step(float acc[4][4], const float *a, const float *b)
{
    CU_UNROLL_4
    for (int k = 0; k < CU_TILE_K; k++) {
        float4 row  = *(const float4 *)(a + k * CU_TILE_LD + cu_tile_row());
        float4 col  = *(const float4 *)(b + k * CU_TILE_LD + cu_tile_col());
        float  u[4] = {row.x, row.y, row.z, row.w}, v[4] = {col.x, col.y, col.z, col.w};
        CU_UNROLL
        for (int x = 0; x < 16; x++) {
            int i = x / 4, j = x % 4;
            acc[i][j] += u[i] * v[j];
        }
    }
}

CU_FN void cu_tile_zero(float acc[4][4])
{
    CU_UNROLL
    for (int x = 0; x < 16; x++) {
        int i = x / 4, j = x % 4;
        acc[i][j] = 0;
    }
}

/* acc = rows a0 .. of a times rows b0 .. of b, over their columns; room: 2
 * CU_TILE_ROOM floats, 16-byte aligned. */
CU_FN void cu_tile_dot(float acc[4][4], const cu_rows &a, int a0, const cu_rows &b,
                       int b0, float *room)
{
    cu_tile_zero(acc);
    for (int c = 0; c < a.d; c += CU_TILE_K) {
        cu_tile_load_turned(room, a, a0, c);
        cu_tile_load_turned(room + CU_TILE_ROOM, b, b0, c);
        __syncthreads();
        cu_tile_step(acc, room, room + CU_TILE_ROOM);
        __syncthreads();
    }
}

/* acc[i][j] += sum over k < 64 of m[k][row + i] b[r0 + k][c0 + col + j]; room:
 * CU_TILE_ROOM floats. */
CU_FN void cu_tile_mix(float acc[4][4], const float *m, const cu_rows &b, int r0, int c0,
                       float *room)
{
    for (int k = 0; k < CU_TILE && r0 + k < b.n; k += CU_TILE_K) {
        cu_tile_load(room, b, r0 + k, c0);
        __syncthreads();
        cu_tile_step(acc, m + k * CU_TILE_LD, room);
        __syncthreads();
    }
}

/* The tile to shared memory, (64, CU_TILE_LD): by rows, or turned (columns
 * first). */
CU_FN void cu_tile_put(float *to, const float acc[4][4])
{
    CU_UNROLL
    for (int i = 0; i < 4; i++) {
        float4 v = {acc[i][0], acc[i][1], acc[i][2], acc[i][3]};
        *(float4 *)(to + (cu_tile_row() + i) * CU_TILE_LD + cu_tile_col()) = v;
    }
}
CU_FN void cu_tile_get(const float *from, float acc[4][4])
{
    CU_UNROLL
    for (int i = 0; i < 4; i++) {
        float4 v =
            *(const float4 *)(from + (cu_tile_row() + i) * CU_TILE_LD + cu_tile_col());
        acc[i][0] = v.x, acc[i][1] = v.y, acc[i][2] = v.z, acc[i][3] = v.w;
    }
}
CU_FN void cu_tile_put_turned(float *to, const float acc[4][4])
{
    CU_UNROLL
    for (int j = 0; j < 4; j++) {
        float4 v = {acc[0][j], acc[1][j], acc[2][j], acc[3][j]};
        *(float4 *)(to + (cu_tile_col() + j) * CU_TILE_LD + cu_tile_row()) = v;
    }
}

#endif
