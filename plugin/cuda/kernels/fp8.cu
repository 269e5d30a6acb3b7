/* Operands of matmuls in fp8: codes whose rows are contiguous along k, as tensor cores of 8 bits
 * want both operands, and a unit for each row.
 *
 * Rows that are contiguous in bf16 are read once: a row stays in registers between its largest
 * magnitude and its codes.  Rows whose numbers are apart (side by side with other rows) are read
 * twice: for the largest of pieces, then to be turned through shared memory.  A largest magnitude
 * does not depend on the order in which it is found; those of bf16 compare as integers of 15 bits,
 * two at once.  Where another matmul reads the same numbers the other way, the first pass finds the
 * largest of columns too, so that this one need not (lower/largest.c).  Both operands in one launch
 * where they are of one kind. */
#include "cuda_block.h"
#include "cuda_fp8.h"

/* The operand of this block, and the block's number among its. */
CU_FN const weft_cuda_fp8_args &operand_of(const weft_cuda_fp8_pair_args &a,
                                           int64_t                       *block)
{
    bool second = blockIdx.x >= a.operand[0].n_block;
    *block      = blockIdx.x - (second ? a.operand[0].n_block : 0);
    return a.operand[second];
}

CU_FN uint4 read_bf16(const void *x, int64_t at)
{
    return *(const uint4 *)((const cu_bf16 *)x + at);
}

CU_FN uint4 larger8(const uint4 &largest, const uint4 &x)
{
    return {cu_larger2(largest.x, cu_magnitude2(x.x)),
            cu_larger2(largest.y, cu_magnitude2(x.y)),
            cu_larger2(largest.z, cu_magnitude2(x.z)),
            cu_larger2(largest.w, cu_magnitude2(x.w))};
}

/* ---- rows in registers ---- */

/* Of a row that `threads` threads of the block have, for all of them. */
CU_FN uint32_t row_largest(const uint4 &m, int threads, uint32_t *room)
{
    int      lane = (int)threadIdx.x % CU_WARP, n = threads / CU_WARP;
    uint32_t two = cu_larger2(cu_larger2(m.x, m.y), cu_larger2(m.z, m.w));
    for (int k = CU_WARP / 2; k; k /= 2)
        two = cu_larger2(two, __shfl_xor_sync(0xffffffffu, two, k));
    if (n > 1) {
        int first = (int)threadIdx.x / threads * n;
        if (lane == 0) room[threadIdx.x / CU_WARP] = two;
        __syncthreads();
        two = room[first + (lane < n ? lane : 0)];
        for (int k = CU_WARP / 2; k; k /= 2)
            two = cu_larger2(two, __shfl_xor_sync(0xffffffffu, two, k));
    }
    return cu_larger(two & 0xffff0000u, two << 16);
}

CU_FN uint2 codes_of(const uint4 &raw, float inverse, bool e5m2)
{
    const uint32_t two[4] = {raw.x, raw.y, raw.z, raw.w};
    uint32_t       pair[4];
    CU_UNROLL
    for (int j = 0; j < 4; j++)
        pair[j] = cu_fp8_pair(cu_bits(two[j] << 16) * inverse,
                              cu_bits(two[j] & 0xffff0000u) * inverse, e5m2);
    return {pair[0] | pair[1] << 16, pair[2] | pair[3] << 16};
}

/* The larger ones of `columns` and of what the block's rows have there, a vector of 8 a thread: the
 * rows that the block had at once, then 8 columns of threads next to each other.  Atomics on
 * integers, whose order cannot be seen. */
CU_FN void add_columns(const weft_cuda_fp8_args &o, int first, const uint4 &largest,
                       uint4 *room)
{
    const uint32_t *word = (const uint32_t *)room;
    int             n    = o.row_threads * 4;
    room[threadIdx.x]    = largest;
    __syncthreads();
    for (int w = (int)threadIdx.x; w < n && first + 2 * w < o.k; w += (int)blockDim.x) {
        uint32_t two = 0;
        for (int at = w; at < (int)blockDim.x * 4; at += n)
            two = cu_larger2(two, word[at]);
        atomicMax(o.columns + first + 2 * w, two << 16);
        atomicMax(o.columns + first + 2 * w + 1, two & 0xffff0000u);
    }
    __syncthreads();
}

/* bf16; k a multiple of 8; a row belongs to warps of a block, which take several rows one after
 * the other. */
CU_KERNEL(fp8_rows, weft_cuda_fp8_pair_args, 1024)
{
    int64_t                   block;
    const weft_cuda_fp8_args &o = operand_of(a, &block);
    __shared__ uint32_t       room[2][CU_WARP]; /* in turns: one barrier a row */
    __shared__ uint4          strip[1024];
    uint4                     columns[WEFT_CUDA_FP8_VECTORS] = {};
    const int                 N                              = WEFT_CUDA_FP8_VECTORS;
    int                       threads = o.row_threads, t = (int)threadIdx.x % threads;
    int64_t                   per = blockDim.x / threads;
    int64_t                   row = block * o.rounds * per + threadIdx.x / threads;
    CU_ROLLED
    for (int i = 0; i < o.rounds; i++, row += per) {
        uint4 raw[WEFT_CUDA_FP8_VECTORS], largest = {0, 0, 0, 0};
        float inverse;
        CU_UNROLL
        for (int v = 0; v < N; v++) {
            int at = (v * threads + t) * 8;
            raw[v] = {0, 0, 0, 0};
            if (row < o.rows && at < o.k) raw[v] = read_bf16(o.x, row * o.step + at);
        }
        CU_UNROLL
        for (int v = 0; v < N; v++) {
            largest    = larger8(largest, raw[v]);
            columns[v] = larger8(columns[v], raw[v]);
        }
        float unit =
            cu_fp8_unit(row_largest(largest, threads, room[i % 2]), o.e5m2, &inverse);
        if (row >= o.rows) continue;
        CU_UNROLL
        for (int v = 0; v < N; v++) {
            int at = (v * threads + t) * 8;
            if (at >= o.k_row) continue;
            uint2 code = {0, 0};
            if (at < o.k) code = codes_of(raw[v], inverse, o.e5m2);
            *(uint2 *)(o.code + row * o.k_row + at) = code;
        }
        if (t == 0) o.unit[row] = unit;
    }
    if (!o.columns) return;
    CU_UNROLL
    for (int v = 0; v < N; v++)
        if (v * threads * 8 < o.k) add_columns(o, v * threads * 8, columns[v], strip);
}

/* ---- rows side by side ---- */

/* bf16; a block has 256 rows, 8 of a lane, and a piece of their numbers, which its warps take
 * in turns. */
CU_KERNEL(fp8_largest, weft_cuda_fp8_pair_args, WEFT_CUDA_FP8_LARGEST_THREADS)
{
    int64_t                   block;
    const weft_cuda_fp8_args &o = operand_of(a, &block);
    const int WARPS = WEFT_CUDA_FP8_LARGEST_THREADS / CU_WARP, EACH = 8; /* reads */
    __shared__ uint4 room[WARPS][CU_WARP];
    int              lane = (int)threadIdx.x % CU_WARP, warp = (int)threadIdx.x / CU_WARP;
    int64_t strips = (o.rows + WEFT_CUDA_FP8_COLUMNS - 1) / WEFT_CUDA_FP8_COLUMNS;
    int64_t piece = block / strips, row0 = block % strips * WEFT_CUDA_FP8_COLUMNS;
    int64_t row = row0 + lane * 8, first = piece * o.piece, end = first + o.piece;
    uint4   largest = {0, 0, 0, 0};
    if (end > o.k) end = o.k;
    for (int64_t i = first + warp; i < end && row < o.rows; i += EACH * WARPS) {
        uint4 raw[EACH];
        CU_UNROLL
        for (int e = 0; e < EACH; e++) { /* the last one again changes nothing */
            int64_t at = i + e * WARPS < end ? i + e * WARPS : end - 1;
            raw[e]     = read_bf16(o.x, at * o.step + row);
        }
        CU_UNROLL
        for (int e = 0; e < EACH; e++) largest = larger8(largest, raw[e]);
    }
    room[warp][lane] = largest;
    __syncthreads();
    /* a thread has 2 rows */
    row = row0 + threadIdx.x * 2;
    if (threadIdx.x >= WEFT_CUDA_FP8_COLUMNS / 2 || row >= o.rows) return;
    uint32_t most = 0;
    CU_UNROLL
    for (int w = 0; w < WARPS; w++)
        most = cu_larger2(most, ((const uint32_t *)room[w])[threadIdx.x]);
    *(uint32_t *)(o.largest + piece * o.rows + row) = most;
}

/* Where a word of 4 codes of a row is in shared memory: words of 4 rows that are read or written
 * at once are in different banks. */
CU_FN int turned_at(int row, int word)
{
    return row * (WEFT_CUDA_FP8_TURN / 4) + (word ^ (row / 4 % CU_WARP));
}

/* The largest magnitude of a row. */
CU_FN uint32_t largest_of(const weft_cuda_fp8_args &o, int64_t row)
{
    int      pieces = (int)((o.k + o.piece - 1) / o.piece);
    uint32_t most   = 0;
    if (o.known) return o.known[row];
    CU_UNROLL_8
    for (int p = 0; p < pieces; p++) most = cu_larger(most, o.largest[p * o.rows + row]);
    return most << 16;
}

/* bf16; 128 rows and 128 numbers of each.  A lane reads 4 numbers of 4 rows, which are 4 words. */
CU_KERNEL_BLOCKS(fp8_turn, weft_cuda_fp8_pair_args, WEFT_CUDA_FP8_THREADS, 4)
{
    int64_t                   block;
    const weft_cuda_fp8_args &o = operand_of(a, &block);
    __shared__ uint32_t       tile[WEFT_CUDA_FP8_TURN * WEFT_CUDA_FP8_TURN / 4];
    __shared__ float          factor[WEFT_CUDA_FP8_TURN];
    const int EACH = WEFT_CUDA_FP8_TURN / 4 / (WEFT_CUDA_FP8_THREADS / CU_WARP);
    int       lane = (int)threadIdx.x % CU_WARP, warp = (int)threadIdx.x / CU_WARP;
    int64_t   strips = (o.rows + WEFT_CUDA_FP8_TURN - 1) / WEFT_CUDA_FP8_TURN;
    int64_t   row0 = block % strips * WEFT_CUDA_FP8_TURN, row = row0 + lane * 4;
    int64_t   k0 = block / strips * WEFT_CUDA_FP8_TURN;
    uint2     raw[WEFT_CUDA_FP8_TURN / 4 * CU_WARP / WEFT_CUDA_FP8_THREADS][4];
    CU_UNROLL
    for (int e = 0; e < EACH; e++) CU_UNROLL
    for (int i = 0; i < 4; i++) {
        int64_t at = k0 + (warp * EACH + e) * 4 + i;
        raw[e][i]  = {0, 0};
        if (row < o.rows && at < o.k)
            raw[e][i] = *(const uint2 *)((const cu_bf16 *)o.x + at * o.step + row);
    }
    /* once for all warps */
    if (threadIdx.x < WEFT_CUDA_FP8_TURN && row0 + threadIdx.x < o.rows) {
        int64_t r    = row0 + threadIdx.x;
        float   unit = cu_fp8_unit(largest_of(o, r), o.e5m2, &factor[threadIdx.x]);
        if (k0 == 0) o.unit[r] = unit;
    }
    __syncthreads();
    CU_UNROLL
    for (int j = 0; j < 4; j++) {
        float inverse = row < o.rows ? factor[lane * 4 + j] : 0;
        CU_UNROLL
        for (int e = 0; e < EACH; e++) {
            float x[4];
            CU_UNROLL
            for (int i = 0; i < 4; i++) {
                uint32_t two = j < 2 ? raw[e][i].x : raw[e][i].y;
                x[i]         = cu_bits(j % 2 ? two & 0xffff0000u : two << 16) * inverse;
            }
            tile[turned_at(lane * 4 + j, warp * EACH + e)] =
                cu_fp8_pair(x[0], x[1], o.e5m2) | cu_fp8_pair(x[2], x[3], o.e5m2) << 16;
        }
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
    int      lane    = (int)threadIdx.x % CU_WARP;
    int64_t  row     = cu_index() / CU_WARP, first[2], at[2];
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
    if (!a.y) {
        if (lane == 0) a.largest[row] = largest;
        return;
    }
    float unit = cu_fp8_unit(largest, a.e5m2, &inverse);
    for (int64_t i = lane; i < a.along.count; i += CU_WARP) {
        cu_nd_at<2, 1>(a.along, i, at);
        float    x    = cu_get(a.x, a.x_dtype, first[0] + at[0]) * inverse;
        uint32_t code = cu_fp8_code(x, a.e5m2);
        if (a.unit)
            ((uint8_t *)a.y)[first[1] + at[1]] = (uint8_t)code;
        else
            ((cu_bf16 *)a.y)[first[1] + at[1]] =
                cu_round(cu_fp8_value(code, a.e5m2) * unit);
    }
    if (!a.unit) return;
    for (int64_t i = a.along.count + lane; i < a.k_row; i += CU_WARP)
        ((uint8_t *)a.y)[row * a.k_row + i] = 0;
    if (lane == 0) a.unit[row] = unit;
}
