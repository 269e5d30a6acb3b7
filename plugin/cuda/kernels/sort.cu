/* A stable radix sort of small numbers: count digits by block, add them up, move.  Integers
 * only, so that the order of atomics cannot be seen. */
#include "cuda_block.h"

enum {
    DIGITS  = WEFT_CUDA_SORT_DIGITS,
    THREADS = WEFT_CUDA_SORT_THREADS,
    BLOCK   = WEFT_CUDA_SORT_BLOCK,
    WARPS   = THREADS / CU_WARP
};

CU_FN uint32_t key_at(const weft_cuda_sort_args &a, int64_t i)
{
    if (a.key) return a.key[i];
    int64_t id = cu_id(a.idx, i);
    if (id == a.skip) return (uint32_t)a.n_key;
    id -= a.first;
    return id >= a.lo && id < a.hi ? (uint32_t)id : (uint32_t)a.n_key;
}

CU_FN uint32_t digit_of(const weft_cuda_sort_args &a, uint32_t key)
{
    return key >> a.shift & (DIGITS - 1);
}

CU_KERNEL(sort_count, weft_cuda_sort_args, WEFT_CUDA_SORT_THREADS)
{
    __shared__ uint32_t count[DIGITS];
    int                 t = (int)threadIdx.x;
    count[t]              = 0;
    __syncthreads();
    for (int64_t i = (int64_t)blockIdx.x * BLOCK + t, k = 0; k < BLOCK;
         k += THREADS, i += THREADS)
        if (i < a.n) atomicAdd(&count[digit_of(a, key_at(a, i))], 1u);
    __syncthreads();
    a.count[(int64_t)t * a.n_block + blockIdx.x] = count[t];
}

/* Counts become sums of all before them; one block. */
CU_KERNEL(sort_sum, weft_cuda_sort_args, WEFT_CUDA_SORT_THREADS)
{
    __shared__ uint32_t digit[DIGITS];
    int                 t   = (int)threadIdx.x;
    uint32_t           *own = a.count + (int64_t)t * a.n_block, sum = 0;
    for (int i = 0; i < a.n_block; i++) sum += own[i];
    digit[t] = sum;
    for (int k = 1; k < DIGITS; k *= 2) {
        __syncthreads();
        uint32_t before = t >= k ? digit[t - k] : 0;
        __syncthreads();
        digit[t] += before;
    }
    sum = digit[t] - sum;
    for (int i = 0; i < a.n_block; i++) {
        uint32_t n = own[i];
        own[i]     = sum;
        sum += n;
    }
}

/* In rounds of THREADS numbers: a number's place is after those of its digit in earlier rounds,
 * in warps before it and in lanes before it. */
CU_KERNEL(sort_move, weft_cuda_sort_args, WEFT_CUDA_SORT_THREADS)
{
    __shared__ uint32_t next[DIGITS], count[WARPS][DIGITS];
    int                 t = (int)threadIdx.x, lane = t % CU_WARP, warp = t / CU_WARP;
    int64_t             end = (int64_t)(blockIdx.x + 1) * BLOCK;
    if (end > a.n) end = a.n;
    next[t] = a.count[(int64_t)t * a.n_block + blockIdx.x];
    for (int64_t first = (int64_t)blockIdx.x * BLOCK; first < end; first += THREADS) {
        int64_t  i     = first + t;
        bool     is_in = i < end;
        uint32_t key   = is_in ? key_at(a, i) : 0;
        /* threads past the end match no digit */
        uint32_t digit = is_in ? digit_of(a, key) : (uint32_t)DIGITS;
        unsigned same  = __match_any_sync(0xffffffffu, digit);
        unsigned rank  = (unsigned)__popc(same & ((1u << lane) - 1));
        for (int w = 0; w < WARPS; w++) count[w][t] = 0;
        __syncthreads();
        if (is_in && rank == 0) count[warp][digit] = (uint32_t)__popc(same);
        __syncthreads();
        uint32_t to = 0;
        if (is_in) {
            to = next[digit] + rank;
            for (int w = 0; w < warp; w++) to += count[w][digit];
        }
        __syncthreads();
        for (int w = 0; w < WARPS; w++) next[t] += count[w][t];
        if (is_in) {
            a.key_out[to]  = key;
            a.from_out[to] = a.from ? a.from[i] : (uint32_t)i;
        }
        __syncthreads();
    }
}
