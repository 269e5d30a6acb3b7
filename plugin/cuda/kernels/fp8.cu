/* Operands of matmuls in fp8: codes whose rows are contiguous along k, as tensor cores of 8 bits
 * want both operands, and a unit for each row.
 *
 * Rows that are contiguous in bf16 are read once: a row stays in registers between its largest
 * magnitude and its codes.  Rows whose numbers are apart (side by side with other rows) are read
 * twice: for the largest of pieces, then to be turned through shared memory.  A largest magnitude
 * does not depend on the order in which it is found.  Both operands in one launch where they are of
 * one kind (blockIdx.z). */
#include "cuda_block.h"
#include "cuda_fp8.h"

/* ---- rows in registers ---- */

CU_FN uint32_t row_largest(uint32_t x, bool warp, uint32_t *room)
{
    int lane = (int)threadIdx.x % CU_WARP, n = (int)blockDim.x / CU_WARP;
    for (int k = CU_WARP / 2; k; k /= 2)
        x = cu_larger(x, __shfl_xor_sync(0xffffffffu, x, k));
    if (warp) return x;
    if (lane == 0) room[threadIdx.x / CU_WARP] = x;
    __syncthreads();
    x = room[lane < n ? lane : 0];
    for (int k = CU_WARP / 2; k; k /= 2)
        x = cu_larger(x, __shfl_xor_sync(0xffffffffu, x, k));
    return x;
}

CU_FN uint2 codes_of(const float x[8], float inverse, bool e5m2)
{
    uint32_t pair[4];
    for (int j = 0; j < 4; j++)
        pair[j] = cu_fp8_pair(x[2 * j] * inverse, x[2 * j + 1] * inverse, e5m2);
    return {pair[0] | pair[1] << 16, pair[2] | pair[3] << 16};
}

/* bf16; k a multiple of 8; a row belongs to a warp, or to a block. */
CU_KERNEL(fp8_rows, weft_cuda_fp8_pair_args, 1024)
{
    const weft_cuda_fp8_args &o = a.operand[blockIdx.z];
    __shared__ uint32_t room[CU_WARP];
    const int           N    = WEFT_CUDA_FP8_VECTORS;
    bool                warp = o.row_threads == CU_WARP;
    int                 t    = (int)threadIdx.x % o.row_threads;
    int64_t             per  = blockDim.x / o.row_threads;
    int64_t             row  = blockIdx.x * per + threadIdx.x / o.row_threads;
    cu_vector           raw[WEFT_CUDA_FP8_VECTORS] = {};
    uint32_t            largest                    = 0;
    float               x[8], inverse;
    if (row >= o.rows) return;
    CU_UNROLL
    for (int v = 0; v < N; v++) {
        int at = (v * o.row_threads + t) * 8;
        if (at < o.k) raw[v] = cu_read8(o.x, WEFT_DTYPE_BF16, row * o.step + at);
    }
    CU_UNROLL
    for (int v = 0; v < N; v++) {
        cu_widen8(raw[v], WEFT_DTYPE_BF16, x);
        for (int j = 0; j < 8; j++) largest = cu_larger(largest, cu_magnitude(x[j]));
    }
    float unit = cu_fp8_unit(row_largest(largest, warp, room), o.e5m2, &inverse);
    CU_UNROLL
    for (int v = 0; v < N; v++) {
        int at = (v * o.row_threads + t) * 8;
        if (at >= o.k_row) continue;
        cu_widen8(raw[v], WEFT_DTYPE_BF16, x);
        uint2 code = {0, 0};
        if (at < o.k) code = codes_of(x, inverse, o.e5m2);
        *(uint2 *)(o.code + row * o.k_row + at) = code;
    }
    if (t == 0) o.unit[row] = unit;
}

/* ---- rows side by side ---- */

/* bf16; a block has 256 rows, 8 of a lane, and a piece of their numbers, which its warps take
 * in turns. */
CU_KERNEL(fp8_largest, weft_cuda_fp8_pair_args, WEFT_CUDA_FP8_LARGEST_THREADS)
{
    const weft_cuda_fp8_args &o = a.operand[blockIdx.z];
    const int           WARPS = WEFT_CUDA_FP8_LARGEST_THREADS / CU_WARP, EACH = 8; /* reads */
    __shared__ uint32_t room[WARPS][WEFT_CUDA_FP8_COLUMNS];
    int                 lane = (int)threadIdx.x % CU_WARP, warp = (int)threadIdx.x / CU_WARP;
    int64_t             row   = blockIdx.x * (int64_t)WEFT_CUDA_FP8_COLUMNS + lane * 8;
    int64_t             first = blockIdx.y * o.piece, end = first + o.piece;
    uint32_t            largest[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    float               x[8];
    if (end > o.k) end = o.k;
    for (int64_t i = first + warp; i < end && row < o.rows; i += EACH * WARPS) {
        cu_vector raw[EACH];
        CU_UNROLL
        for (int e = 0; e < EACH; e++) { /* the last one again changes nothing */
            int64_t at = i + e * WARPS < end ? i + e * WARPS : end - 1;
            raw[e]     = cu_read8(o.x, WEFT_DTYPE_BF16, at * o.step + row);
        }
        CU_UNROLL
        for (int e = 0; e < EACH; e++) {
            cu_widen8(raw[e], WEFT_DTYPE_BF16, x);
            for (int j = 0; j < 8; j++)
                largest[j] = cu_larger(largest[j], cu_magnitude(x[j]));
        }
    }
    for (int j = 0; j < 8; j++) room[warp][lane * 8 + j] = largest[j];
    __syncthreads();
    if (threadIdx.x >= WEFT_CUDA_FP8_COLUMNS) return;
    uint32_t most = 0;
    for (int w = 0; w < WARPS; w++) most = cu_larger(most, room[w][threadIdx.x]);
    row = blockIdx.x * (int64_t)WEFT_CUDA_FP8_COLUMNS + threadIdx.x;
    if (row < o.rows) o.largest[blockIdx.y * o.rows + row] = most;
}

/* Where a word of 4 codes of a row is in shared memory: words of 4 rows that are read or written
 * at once are in different banks. */
CU_FN int turned_at(int row, int word)
{
    return row * (WEFT_CUDA_FP8_TURN / 4) + (word ^ (row / 4 % CU_WARP));
}

/* bf16; 128 rows and 128 numbers of each.  A lane reads 4 numbers of 4 rows, which are 4 words. */
CU_KERNEL(fp8_turn, weft_cuda_fp8_pair_args, WEFT_CUDA_FP8_THREADS)
{
    const weft_cuda_fp8_args &o = a.operand[blockIdx.z];
    __shared__ uint32_t tile[WEFT_CUDA_FP8_TURN * WEFT_CUDA_FP8_TURN / 4];
    const int           EACH = WEFT_CUDA_FP8_TURN / 4 / (WEFT_CUDA_FP8_THREADS / CU_WARP);
    int                 lane = (int)threadIdx.x % CU_WARP, warp = (int)threadIdx.x / CU_WARP;
    int64_t             row0 = blockIdx.x * (int64_t)WEFT_CUDA_FP8_TURN, row = row0 + lane * 4;
    int64_t             k0   = blockIdx.y * (int64_t)WEFT_CUDA_FP8_TURN;
    int                 pieces = (int)((o.k + o.piece - 1) / o.piece);
    float               inverse[4] = {0, 0, 0, 0};
    uint2               raw[WEFT_CUDA_FP8_TURN / 4 * CU_WARP / WEFT_CUDA_FP8_THREADS][4];
    CU_UNROLL
    for (int e = 0; e < EACH; e++)
        CU_UNROLL
        for (int i = 0; i < 4; i++) {
            int64_t at = k0 + (warp * EACH + e) * 4 + i;
            raw[e][i]  = {0, 0};
            if (row < o.rows && at < o.k)
                raw[e][i] = *(const uint2 *)((const cu_bf16 *)o.x + at * o.step + row);
        }
    if (row < o.rows) {
        uint32_t largest[4] = {0, 0, 0, 0};
        for (int p = 0; p < pieces; p++) {
            uint4 m = *(const uint4 *)(o.largest + p * o.rows + row);
            largest[0] = cu_larger(largest[0], m.x), largest[1] = cu_larger(largest[1], m.y);
            largest[2] = cu_larger(largest[2], m.z), largest[3] = cu_larger(largest[3], m.w);
        }
        for (int j = 0; j < 4; j++) {
            float unit = cu_fp8_unit(largest[j], o.e5m2, &inverse[j]);
            if (blockIdx.y == 0 && warp == 0) o.unit[row + j] = unit;
        }
    }
    CU_UNROLL
    for (int e = 0; e < EACH; e++)
        CU_UNROLL
        for (int j = 0; j < 4; j++) {
            float x[4];
            for (int i = 0; i < 4; i++) {
                uint32_t two = j < 2 ? raw[e][i].x : raw[e][i].y;
                x[i]         = cu_bits(j % 2 ? two & 0xffff0000u : two << 16) * inverse[j];
            }
            tile[turned_at(lane * 4 + j, warp * EACH + e)] =
                cu_fp8_pair(x[0], x[1], o.e5m2) | cu_fp8_pair(x[2], x[3], o.e5m2) << 16;
        }
    __syncthreads();
    /* 8 lanes write the 128 codes of a row */
    CU_UNROLL
    for (int j = 0; j < 4; j++) {
        int     r = warp * 16 + lane / 8 * 4 + j, q = lane % 8 * 4;
        int64_t k = k0 + q * 4;
        if (row0 + r >= o.rows || k >= o.k_row) continue;
        uint4 y = {tile[turned_at(r, q)], tile[turned_at(r, q + 1)],
                   tile[turned_at(r, q + 2)], tile[turned_at(r, q + 3)]};
        *(uint4 *)(o.code + (row0 + r) * o.k_row + k) = y;
    }
}

/* ---- any strides: a warp a row ---- */

CU_KERNEL(fp8_any, weft_cuda_fp8_any_args, WEFT_CUDA_FP8_THREADS)
{
    int      lane = (int)threadIdx.x % CU_WARP;
    int64_t  row  = cu_index() / CU_WARP, first[2], at[2];
    uint32_t largest = 0;
    float    inverse;
    if (row >= a.row.count) return;
    cu_nd_at<2, 1>(a.row, row, first);
    for (int64_t i = lane; i < a.along.count; i += CU_WARP) {
        cu_nd_at<2, 1>(a.along, i, at);
        float x = cu_get(a.x, a.x_dtype, first[0] + at[0]);
        largest = cu_larger(largest, cu_magnitude(x));
    }
    for (int k = CU_WARP / 2; k; k /= 2)
        largest = cu_larger(largest, __shfl_xor_sync(0xffffffffu, largest, k));
    float unit = cu_fp8_unit(largest, a.e5m2, &inverse);
    for (int64_t i = lane; i < a.along.count; i += CU_WARP) {
        cu_nd_at<2, 1>(a.along, i, at);
        float    x    = cu_get(a.x, a.x_dtype, first[0] + at[0]) * inverse;
        uint32_t code = cu_fp8_code(x, a.e5m2);
        if (a.unit)
            ((uint8_t *)a.y)[first[1] + at[1]] = (uint8_t)code;
        else
            ((cu_bf16 *)a.y)[first[1] + at[1]] = cu_round(cu_fp8_value(code, a.e5m2) * unit);
    }
    if (!a.unit) return;
    for (int64_t i = a.along.count + lane; i < a.k_row; i += CU_WARP)
        ((uint8_t *)a.y)[row * a.k_row + i] = 0;
    if (lane == 0) a.unit[row] = unit;
}
