/* Communication between ranks that reach each other's device memory: the owner of a run reads it
 * from all members and writes it to its targets; no other rank touches that run.  Streams have
 * waited for the flags of all members before, so every rank's table and tensors are there. */
#include "cuda_vec.h"

/* Flags that other processes write or read. */
CU_FN uint32_t read_flag(const uint32_t *p)
{
    return *(const volatile uint32_t *)p;
}

CU_FN void write_flag(uint32_t *p, uint32_t x)
{
    *(volatile uint32_t *)p = x;
}

CU_FN void fence_system(void)
{
#ifdef __CUDACC__
    __threadfence_system();
#else
    __sync_synchronize();
#endif
}

/* The addresses of one tensor at all members. */
struct peer_tensor {
    const char *in[WEFT_CUDA_PEER_MAX_RANK];
    char       *out[WEFT_CUDA_PEER_MAX_RANK];
    int64_t     stride[WEFT_CUDA_PEER_MAX_RANK];
    uint32_t    aborted;
};

/* The addresses of a tensor, in shared memory.  false: nothing may be written. */
CU_FN bool find_tensor(const uint32_t *aborted, const weft_cuda_peer_map *map, int n,
                       int part, peer_tensor &t)
{
    int r = (int)threadIdx.x;
    if (r < n) {
        const char    *board = map->board[r];
        const uint32_t table = read_flag((const uint32_t *)(board + map->slot[r]));
        const weft_cuda_peer_part *p =
            (const weft_cuda_peer_part *)(board + table) + part;
        t.in[r]     = map->slab[r][p->in_slab] + p->in;
        t.out[r]    = map->slab[r][p->out_slab] + p->out;
        t.stride[r] = p->stride;
    }
    if (r == 0) t.aborted = read_flag(aborted);
    __syncthreads();
    return !t.aborted;
}

CU_FN int64_t at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

/* ---- bytes ---- */

CU_FN void copy_bytes(const char *from, char *to, int64_t n)
{
    int64_t step = blockDim.x, i = threadIdx.x, done = 0;
    if (from == to) return;
    if (((uintptr_t)from | (uintptr_t)to) % 16 == 0) {
        const uint4 *x = (const uint4 *)from;
        uint4       *y = (uint4 *)to;
        int64_t      m = n / 16;
        for (; i + 3 * step < m; i += 4 * step) {
            uint4 v[4];
            CU_UNROLL for (int k = 0; k < 4; k++) v[k]            = x[i + k * step];
            CU_UNROLL for (int k = 0; k < 4; k++) y[i + k * step] = v[k];
        }
        for (; i < m; i += step) y[i] = x[i];
        done = m * 16;
    }
    for (i = done + threadIdx.x; i < n; i += step) to[i] = from[i];
}

CU_KERNEL(peer_copy, weft_cuda_peer_args, 256)
{
    __shared__ peer_tensor     t;
    const weft_cuda_peer_work &w = a.work[cu_find_task(a.work, a.n_work)];
    if (!find_tensor(a.aborted, a.map, a.n, w.part, t)) return;
    int64_t at = ((int64_t)blockIdx.x - w.first_block) * WEFT_CUDA_PEER_COPY_BLOCK;
    int64_t n  = at_most(w.count - at, WEFT_CUDA_PEER_COPY_BLOCK);
    for (int k = 0; k < a.n; k++) { /* the next member's first: not all to the same one */
        int r = (a.me + k) % a.n;
        if (w.to < 0 || w.to == r)
            copy_bytes(t.in[w.from] + w.in + at, t.out[r] + w.out + at, n);
    }
}

CU_KERNEL(peer_message, weft_cuda_peer_message_args, 256)
{
    __shared__ uint32_t aborted;
    if (threadIdx.x == 0) aborted = read_flag(a.aborted);
    __syncthreads();
    if (aborted) return;
    int64_t at = (int64_t)blockIdx.x * WEFT_CUDA_PEER_COPY_BLOCK;
    int64_t n  = at_most(a.bytes - at, WEFT_CUDA_PEER_COPY_BLOCK);
    copy_bytes(a.from + at, a.to + at, n);
}

/* ---- rows in bins ---- */

/* As weft_comm_share_at with units of 1. */
CU_FN int first_bin(int n_bin, int n, int k)
{
    int more = n_bin % n;
    return n_bin / n * k + (k < more ? k : more);
}

/* A bin's rows of one position: where they are at home, and at the owner of the bin. */
struct row_run {
    int     owner, home;
    int64_t n, at_home, at_owner;
};

CU_FN row_run find_run(const weft_cuda_peer_rows_args &a, int bin, int home)
{
    const int32_t *t = a.table, row = a.n_bin + 1;
    row_run        x = {0, home, 0, t[home * row + bin], 0};
    x.n              = t[home * row + bin + 1] - x.at_home;
    while (bin >= first_bin(a.n_bin, a.n, x.owner + 1)) x.owner++;
    int first = first_bin(a.n_bin, a.n, x.owner);
    for (int p = 0; p < a.n; p++) {
        x.at_owner += t[p * row + bin] - t[p * row + first];
        if (p < home) x.at_owner += t[p * row + bin + 1] - t[p * row + bin];
    }
    return x;
}

/* A run for each bin and position (y); who has its rows gives them to who gets them. */
CU_KERNEL(peer_rows, weft_cuda_peer_rows_args, 256)
{
    __shared__ peer_tensor t;
    row_run                x = find_run(a, (int)blockIdx.y / a.n, (int)blockIdx.y % a.n);
    int     from = a.sends ? x.home : x.owner, to = a.sends ? x.owner : x.home;
    int64_t in = a.sends ? x.at_home : x.at_owner, out = a.sends ? x.at_owner : x.at_home;
    if (from != a.me || x.n == 0) return;
    if (!find_tensor(a.aborted, a.map, a.n, 0, t)) return;
    if (x.n < 0 || in < 0 || out < 0 || in + x.n > a.in_rows ||
        out + x.n > t.stride[to]) {
        if (threadIdx.x == 0) write_flag(a.bad, 1);
        return;
    }
    int64_t bytes = x.n * a.row_bytes, block = WEFT_CUDA_PEER_COPY_BLOCK / 4;
    for (int64_t at = blockIdx.x * block; at < bytes; at += gridDim.x * block)
        copy_bytes(t.in[a.me] + in * a.row_bytes + at, t.out[to] + out * a.row_bytes + at,
                   at_most(bytes - at, block));
}

/* ---- sums ---- */

/* Partial sums like the digits of a binary counter, as in comm/sum.c: the same bits. */
template <class Sum, class Stored>
CU_FN Sum add_terms(const weft_cuda_peer_args &a, const peer_tensor &t, int64_t i)
{
    Sum part[12];
    int top = 0;
    for (int k = 0; k < a.n_term; k++) {
        int           r = a.who[k];
        const Stored *p = (const Stored *)(t.in[r] + a.which[k] * t.stride[r]);
        Sum           x = sizeof(Stored) == 2 ? (Sum)cu_float((cu_bf16)p[i]) : (Sum)p[i];
        for (int m = a.adds[k]; m > 0; m--) x = part[--top] + x;
        part[top++] = x;
    }
    for (; top > 1; top--) part[top - 2] = part[top - 2] + part[top - 1];
    return part[0];
}

template <class Sum, class Stored>
CU_FN void sum_any(const weft_cuda_peer_args &a, const weft_cuda_peer_work &w,
                   const peer_tensor &t, int64_t at, int64_t end)
{
    CU_ROLLED for (int64_t i = at + threadIdx.x; i < end; i += blockDim.x)
    {
        Sum    x = add_terms<Sum, Stored>(a, t, w.in + i);
        Stored y = sizeof(Stored) == 2 ? (Stored)cu_round((float)x) : (Stored)x;
        for (int r = 0; r < a.n; r++)
            if (w.to < 0 || w.to == r) ((Stored *)t.out[r])[w.out + i] = y;
    }
}

CU_KERNEL(peer_sum, weft_cuda_peer_args, 256)
{
    __shared__ peer_tensor     t;
    const weft_cuda_peer_work &w = a.work[cu_find_task(a.work, a.n_work)];
    if (!find_tensor(a.aborted, a.map, a.n, w.part, t)) return;
    int64_t at  = ((int64_t)blockIdx.x - w.first_block) * WEFT_CUDA_PEER_SUM_BLOCK;
    int64_t end = at + at_most(w.count - at, WEFT_CUDA_PEER_SUM_BLOCK);
    switch (a.dtype) {
    case WEFT_DTYPE_F32: sum_any<float, float>(a, w, t, at, end); break;
    case WEFT_DTYPE_BF16: sum_any<float, uint16_t>(a, w, t, at, end); break;
    case WEFT_DTYPE_F64: sum_any<double, double>(a, w, t, at, end); break;
    case WEFT_DTYPE_I64:
    case WEFT_DTYPE_U64: sum_any<uint64_t, uint64_t>(a, w, t, at, end); break;
    default: sum_any<uint32_t, uint32_t>(a, w, t, at, end); break;
    }
}

/* Are all runs of the block at addresses for vectors? */
CU_FN bool has_vectors(const weft_cuda_peer_args &a, const weft_cuda_peer_work &w,
                       const peer_tensor &t)
{
    int64_t   size = a.dtype == WEFT_DTYPE_F32 ? 4 : 2;
    uintptr_t bits = 0;
    for (int k = 0; k < a.n_term; k++)
        bits |=
            (uintptr_t)(t.in[a.who[k]] + a.which[k] * t.stride[a.who[k]] + w.in * size);
    for (int r = 0; r < a.n; r++)
        if (w.to < 0 || w.to == r) bits |= (uintptr_t)(t.out[r] + w.out * size);
    return bits % 16 == 0;
}

/* A whole tree of N terms, U vectors of 8 elements under way: ((0 + 1) + (2 + 3)) + ... */
template <int N, int U, int DTYPE>
CU_FN int64_t sum_tree(const weft_cuda_peer_args &a, const weft_cuda_peer_work &w,
                       const peer_tensor &t, int64_t at, int64_t end)
{
    const char *in[N];
    CU_UNROLL for (int k = 0; k < N; k++) in[k] =
        t.in[a.who[k]] + a.which[k] * t.stride[a.who[k]];
    int64_t n = (end - at) / (8 * U), rounds = n - n % blockDim.x;
    for (int64_t i = threadIdx.x; i < rounds; i += blockDim.x) {
        int64_t   first = at + (i / blockDim.x * U * blockDim.x + i % blockDim.x) * 8;
        cu_vector v[N][U];
        CU_UNROLL for (int u = 0; u < U; u++) CU_UNROLL for (int k = 0; k < N; k++)
            v[k][u] = cu_read8(in[k], DTYPE, w.in + first + (int64_t)u * blockDim.x * 8);
        CU_UNROLL for (int u = 0; u < U; u++)
        {
            float x[N][8];
            CU_UNROLL for (int k = 0; k < N; k++) cu_widen8(v[k][u], DTYPE, x[k]);
            CU_UNROLL for (int m = 1; m < N; m *= 2)
                CU_UNROLL for (int k = 0; k + m < N; k += 2 * m)
                    CU_UNROLL for (int j = 0; j < 8; j++) x[k][j] = x[k][j] + x[k + m][j];
            for (int r = 0; r < a.n; r++)
                if (w.to < 0 || w.to == r)
                    cu_put8(t.out[r], DTYPE, w.out + first + (int64_t)u * blockDim.x * 8,
                            x[0]);
        }
    }
    return at + rounds * U * 8;
}

template <int N, int U> CU_FN void sum_fast(const weft_cuda_peer_args &a)
{
    __shared__ peer_tensor     t;
    const weft_cuda_peer_work &w = a.work[cu_find_task(a.work, a.n_work)];
    if (!find_tensor(a.aborted, a.map, a.n, w.part, t)) return;
    int64_t at  = ((int64_t)blockIdx.x - w.first_block) * WEFT_CUDA_PEER_SUM_BLOCK;
    int64_t end = at + at_most(w.count - at, WEFT_CUDA_PEER_SUM_BLOCK);
    bool    f32 = a.dtype == WEFT_DTYPE_F32;
    if (has_vectors(a, w, t))
        at = f32 ? sum_tree<N, U, WEFT_DTYPE_F32>(a, w, t, at, end)
                 : sum_tree<N, U, WEFT_DTYPE_BF16>(a, w, t, at, end);
    if (f32)
        sum_any<float, float>(a, w, t, at, end);
    else
        sum_any<float, uint16_t>(a, w, t, at, end);
}

CU_KERNEL(peer_sum_2, weft_cuda_peer_args, 256)
{
    sum_fast<2, 2>(a);
}

CU_KERNEL(peer_sum_4, weft_cuda_peer_args, 256)
{
    sum_fast<4, 1>(a);
}

CU_KERNEL(peer_sum_8, weft_cuda_peer_args, 256)
{
    sum_fast<8, 1>(a);
}

/* ---- meeting ---- */

CU_KERNEL(peer_signal, weft_cuda_peer_signal_args, 32)
{
    __shared__ uint32_t aborted;
    int                 t = (int)threadIdx.x;
    if (t == 0) aborted = read_flag(a.aborted);
    __syncthreads();
    if (aborted) return;
    if (t < a.n_reset) write_flag(a.reset[t], 0);
    if (t == 0 && a.slot) write_flag(a.slot, a.value);
    if (t == 0) write_flag(a.count, a.progress);
    fence_system();
    __syncthreads();
    if (t < a.n_set) write_flag(a.set[t], 1);
}
