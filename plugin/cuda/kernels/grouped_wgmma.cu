/* Products of experts' rows in bf16 by warpgroups (sm_90a).
 *
 * A block stays and takes one tile after the other; which ones there are follows from the
 * offsets.  One warp copies boxes of 64 along k into a ring of stages, two warpgroups multiply
 * them; `full` says that a stage's bytes are there, `empty` that all who read it have.   A
 * tile's sum runs along k in one piece, so who computes it cannot be seen. */
#include "cuda_map.h"
#include "cuda_wgmma.h"

enum {
    DEPTH = 64,   /* of a stage along k: 128 bytes */
    PIECE = 8192, /* bytes of 64 x 64 elements */
    AHEAD = 8, /* stages before the end of a tile when what its steps read is fetched */
    /* bytes of a row of 64 results on their way out: no two of a warp's words in one bank */
    STAGED_ROW = 144,
    STAGED     = 16 * STAGED_ROW, /* of a warp */
    PRODUCER   = 128,             /* threads, of which one works */
    CONSUMERS  = 256
};

#ifdef CU_WGMMA

/* Steps on two elements, rounded as the kernels of steps round. */
struct step_add {
    static CU_FN_MEMBER float apply(float x, float u) { return x + u; }
};
struct step_mul {
    static CU_FN_MEMBER float apply(float x, float u) { return x * u; }
};
struct step_silu {
    static CU_FN_MEMBER float apply(float x, float) { return x * cu_sigmoid(x); }
};
struct step_silu_grad {
    static CU_FN_MEMBER float apply(float x, float u) { return x * cu_silu_slope(u); }
};

template <class S> CU_FN uint32_t cu_step_2(uint32_t x, uint32_t u)
{
    return cu_pair(
        S::apply(__uint_as_float(x << 16), __uint_as_float(u << 16)),
        S::apply(__uint_as_float(x & 0xffff0000u), __uint_as_float(u & 0xffff0000u)));
}

template <class S> CU_FN void cu_step_32(uint4 (&v)[4], const uint4 (&u)[4])
{
    CU_UNROLL
    for (int q = 0; q < 4; q++) {
        v[q].x = cu_step_2<S>(v[q].x, u[q].x), v[q].y = cu_step_2<S>(v[q].y, u[q].y);
        v[q].z = cu_step_2<S>(v[q].z, u[q].z), v[q].w = cu_step_2<S>(v[q].w, u[q].w);
    }
}

/* WGRAD: sums over rows, f32 out.  N_FIRST: n runs fastest in the right operand.  A warpgroup
 * has 64 rows of a tile. */
template <int WGRAD, int N_FIRST> struct grouped {
    enum {
        M           = WEFT_CUDA_WGMMA_M,
        N           = WEFT_CUDA_WGMMA_N,
        STAGES      = WEFT_CUDA_WGMMA_STAGES,
        LEFT_BYTES  = M * DEPTH * 2,
        RIGHT_BYTES = N * DEPTH * 2,
        STAGE_BYTES = LEFT_BYTES + RIGHT_BYTES,
        STAGED_AT   = STAGES * STAGE_BYTES,
        FULL_AT     = STAGED_AT + CONSUMERS / 32 * STAGED,
        EMPTY_AT    = FULL_AT + STAGES * 8,
        BYTES       = EMPTY_AT + STAGES * 8 + 1024 /* to begin at a multiple of 1024 */
    };

    const weft_cuda_wgmma_args &a;
    uint32_t                    base;
    /* the expert of the last tile, its rows, the tiles before it, and groups of its tiles along
     * m */
    int e, begin, end, before, groups;
    /* the tile: its first row (of all rows, or along m) and column, and stages along k */
    int row, column, n_k;
    /* the ring */
    int stage, parity;

    CU_FN_MEMBER int offset(int i) const
    {
        int64_t o = a.offsets_dtype == WEFT_DTYPE_I64 ? ((const int64_t *)a.offsets)[i]
                                                      : ((const int32_t *)a.offsets)[i];
        return o < 0 ? 0 : o > a.rows ? a.rows : (int)o;
    }

    CU_FN_MEMBER grouped(const weft_cuda_wgmma_args &args, uint32_t from)
        : a(args), base(from), e(-1), begin(0), end(0), before(0), groups(0), stage(0),
          parity(0)
    {
    }

    /* Tile t of all, where t only grows; false: there are no more. */
    CU_FN_MEMBER bool find(int t)
    {
        int n_column = (a.n + N - 1) / N;
        while (t >= before + groups * n_column) {
            before += groups * n_column;
            if (++e == a.experts) return false;
            begin    = offset(e);
            end      = offset(e + 1);
            int rows = WGRAD ? a.m : end - begin;
            groups   = rows > 0 ? (rows + M - 1) / M : 0;
        }
        int within = t - before;
        row        = within % groups * M + (WGRAD ? 0 : begin);
        column     = within / groups * N;
        n_k        = WGRAD ? end - begin : a.k;
        n_k        = n_k > 0 ? (n_k + DEPTH - 1) / DEPTH : 0;
        return true;
    }

    CU_FN_MEMBER void advance(int n)
    {
        stage += n;
        parity ^= stage / STAGES & 1;
        stage %= STAGES;
    }

    CU_FN_MEMBER uint32_t left(void) const { return base + stage * STAGE_BYTES; }
    CU_FN_MEMBER uint32_t full(int s) const { return base + FULL_AT + s * 8; }
    CU_FN_MEMBER uint32_t empty(int s) const { return base + EMPTY_AT + s * 8; }

    CU_FN_MEMBER void init(void) const
    {
        for (int s = 0; s < STAGES; s++) {
            cu_barrier_init(full(s), 1);
            cu_barrier_init(empty(s), CONSUMERS / 32);
        }
        cu_barrier_publish();
    }

    /* ---- the warp that copies ---- */

    CU_FN_MEMBER void load(int i) const
    {
        uint32_t to = left();
        int      k  = i * DEPTH;
        cu_barrier_expect(full(stage), STAGE_BYTES);
        if (WGRAD) {
            CU_UNROLL
            for (int p = 0; p < M / 64; p++)
                cu_box_load(&a.left, to + p * PIECE, full(stage), row + p * 64, begin + k,
                            0);
        } else {
            cu_box_load(&a.left, to, full(stage), k, row, 0);
        }
        to += LEFT_BYTES;
        if (WGRAD || N_FIRST) {
            CU_UNROLL
            for (int p = 0; p < N / 64; p++)
                cu_box_load(&a.right, to + p * PIECE, full(stage), column + p * 64,
                            WGRAD ? begin + k : k, WGRAD ? 0 : e);
        } else {
            cu_box_load(&a.right, to, full(stage), k, column, e);
        }
    }

    CU_FN_MEMBER void produce(int t, int step)
    {
        cu_box_prefetch(&a.left);
        cu_box_prefetch(&a.right);
        for (; find(t); t += step) {
            CU_ROLLED
            for (int i = 0; i < n_k; i++) {
                cu_barrier_wait(empty(stage), parity ^ 1);
                load(i);
                advance(1);
            }
        }
    }

    /* ---- the warpgroups that multiply ---- */

    /* Rows of the stage from n on are another expert's: zeros. */
    CU_FN_MEMBER void cut(int n) const
    {
        int words = (DEPTH - n) * 8; /* of 16 bytes, of a piece */
        for (int i = (int)threadIdx.x - PRODUCER; i < words * (M + N) / 64;
             i += CONSUMERS) {
            uint32_t at = left() + i / words * PIECE + n * 128 + i % words * 16;
            cu_shared_put4(at, make_uint4(0, 0, 0, 0));
        }
        cu_async_fence();
        cu_meet<1, CONSUMERS>();
    }

    CU_FN_MEMBER void release(int s) const
    {
        if (threadIdx.x % 32 == 0) cu_barrier_arrive(empty(s));
    }

    CU_FN_MEMBER void multiply_stage(float (&d)[N / 2], int group, bool with_d)
    {
        uint32_t at = left();
        cu_wgmma_begin();
        CU_UNROLL
        for (int k = 0; k < DEPTH / 16; k++) {
            uint64_t x = cu_operand(at + group * PIECE + k * (WGRAD ? 2048 : 32),
                                    WGRAD ? PIECE : 16);
            uint64_t y = cu_operand(at + LEFT_BYTES + k * (WGRAD || N_FIRST ? 2048 : 32),
                                    WGRAD || N_FIRST ? PIECE : 16);
            cu_wgmma<WGRAD, WGRAD || N_FIRST>(d, x, y, with_d || k);
        }
        cu_wgmma_commit();
    }

    /* What is read when the product is there, to the L2 cache. */
    CU_FN_MEMBER void fetch_ahead(void) const
    {
        int last = WGRAD ? a.m : end;
        for (int i = (int)threadIdx.x - PRODUCER; i < M * N / 64; i += CONSUMERS) {
            int r = row + i / (N / 64), c = column + i % (N / 64) * 64;
            if (r >= last || c >= a.n) continue;
            if (WGRAD && a.add) {
                float *y = a.y + ((int64_t)e * a.m + r) * a.n + c;
                cu_prefetch(y);
                if (c + 32 < a.n) cu_prefetch(y + 32);
            }
            for (int s = 0; s < a.n_step && !WGRAD; s++)
                if (a.step[s].kind != WEFT_CUDA_MAP_STORE && a.step[s].p)
                    cu_prefetch((cu_bf16 *)a.step[s].p + (int64_t)r * a.n + c);
        }
    }

    CU_FN_MEMBER void multiply(float (&d)[N / 2], int group)
    {
        int rest = WGRAD ? (end - begin) % DEPTH : 0, n = n_k - (rest != 0);
        CU_ROLLED
        for (int i = 0; i < n; i++) {
            if (i == n - AHEAD || (i == 0 && n < AHEAD)) fetch_ahead();
            cu_barrier_wait(full(stage), parity);
            multiply_stage(d, group, i != 0);
            cu_wgmma_wait<1>();
            if (i) release(stage ? stage - 1 : STAGES - 1);
            advance(1);
        }
        cu_wgmma_wait<0>();
        if (n) release(stage ? stage - 1 : STAGES - 1);
        if (!rest) return;
        cu_barrier_wait(full(stage), parity);
        cut(rest);
        multiply_stage(d, group, n != 0);
        cu_wgmma_wait<0>();
        release(stage);
        advance(1);
    }

    /* 16 rows of a warp, 64 columns at a time, over shared memory, so that 128 bytes of a row
     * meet: from there on a thread has 8 elements of four rows. */
    CU_FN_MEMBER void store_rows(const float (&d)[N / 2], int first) const
    {
        int      warp = (int)threadIdx.x / 32 - PRODUCER / 32, lane = threadIdx.x % 32;
        int      g = lane / 4, t = lane % 4, r = lane / 8, c = lane % 8 * 8;
        uint32_t from = base + STAGED_AT + warp * STAGED;
        CU_UNROLL
        for (int p = 0; p < N / 64; p++) {
            CU_UNROLL
            for (int j = 0; j < 16; j++)
                cu_shared_put(from + (g + j % 2 * 8) * STAGED_ROW + j / 2 * 16 + t * 4,
                              cu_pair(d[p * 32 + j * 2], d[p * 32 + j * 2 + 1]));
            __syncwarp();
            uint4 v[4];
            CU_UNROLL
            for (int q = 0; q < 4; q++)
                v[q] = cu_shared_get(from + (q * 4 + r) * STAGED_ROW + c * 2);
            __syncwarp();
            if (column + p * 64 + c < a.n) run_steps(v, first + r, column + p * 64 + c);
        }
    }

    /* v[q]: of row + 4 q, from a column on. */
    CU_FN_MEMBER void run_steps(uint4 (&v)[4], int at_row, int at_column) const
    {
        int64_t at = (int64_t)at_row * a.n + at_column, next = (int64_t)4 * a.n;
        CU_ROLLED
        for (int s = 0; s < a.n_step; s++) {
            int      kind = a.step[s].kind;
            cu_bf16 *p    = (cu_bf16 *)a.step[s].p + at;
            uint4    u[4] = {};
            if (kind == WEFT_CUDA_MAP_STORE) {
                CU_UNROLL
                for (int q = 0; q < 4; q++)
                    if (at_row + q * 4 < end) *(uint4 *)(p + q * next) = v[q];
                continue;
            }
            if (kind == WEFT_CUDA_MAP_SILU) {
                cu_step_32<step_silu>(v, u);
                continue;
            }
            CU_UNROLL
            for (int q = 0; q < 4; q++)
                if (at_row + q * 4 < end) u[q] = *(const uint4 *)(p + q * next);
            if (kind == WEFT_CUDA_MAP_ADD) cu_step_32<step_add>(v, u);
            if (kind == WEFT_CUDA_MAP_MUL) cu_step_32<step_mul>(v, u);
            if (kind == WEFT_CUDA_MAP_SILU_GRAD) cu_step_32<step_silu_grad>(v, u);
        }
    }

    CU_FN_MEMBER void store_gradient(const float (&d)[N / 2], int first) const
    {
        int    lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        float *y = a.y + ((int64_t)e * a.m + first + g) * a.n + column + t * 2;
        CU_UNROLL
        for (int p = 0; p < N / 64; p++) {
            float2 old[16];
            CU_UNROLL
            for (int j = 0; j < 16; j++) {
                int  c = p * 64 + j / 2 * 8;
                bool there =
                    a.add && first + g + j % 2 * 8 < a.m && column + c + t * 2 < a.n;
                old[j] = there ? *(float2 *)(y + (int64_t)(j % 2 * 8) * a.n + c)
                               : make_float2(0, 0);
            }
            CU_UNROLL
            for (int j = 0; j < 16; j++) {
                int    c = p * 64 + j / 2 * 8, i = p * 32 + j * 2;
                float2 v = {d[i] + old[j].x, d[i + 1] + old[j].y};
                if (first + g + j % 2 * 8 < a.m && column + c + t * 2 < a.n)
                    *(float2 *)(y + (int64_t)(j % 2 * 8) * a.n + c) = v;
            }
        }
    }

    /* Of an expert without rows. */
    CU_FN_MEMBER void clear_tile(void) const
    {
        for (int i = (int)threadIdx.x - PRODUCER; i < M * N / 4; i += CONSUMERS) {
            int r = row + i / (N / 4), c = column + i % (N / 4) * 4;
            if (r < a.m && c < a.n)
                *(float4 *)(a.y + ((int64_t)e * a.m + r) * a.n + c) =
                    make_float4(0, 0, 0, 0);
        }
    }

    CU_FN_MEMBER void consume(int t, int step)
    {
        float d[N / 2];
        int   group = (int)threadIdx.x / 128 - 1, warp = (int)threadIdx.x / 32 % 4;
        for (; find(t); t += step) {
            if (n_k) multiply(d, group);
            int first = row + group * 64 + warp * 16;
            if (!WGRAD)
                store_rows(d, first);
            else if (n_k)
                store_gradient(d, first);
            else if (!a.add)
                clear_tile();
        }
    }

    /* Rows beyond the last expert's: zeros in all that is stored. */
    CU_FN_MEMBER void clear_rest(void) const
    {
        int64_t n     = (int64_t)a.rows * a.n / 8,
                first = (int64_t)offset(a.experts) * a.n / 8;
        first += (int64_t)blockIdx.x * CONSUMERS + threadIdx.x - PRODUCER;
        for (int s = 0; s < a.n_step; s++)
            for (int64_t i = first; i < n; i += (int64_t)gridDim.x * CONSUMERS)
                if (a.step[s].kind == WEFT_CUDA_MAP_STORE)
                    ((uint4 *)a.step[s].p)[i] = make_uint4(0, 0, 0, 0);
    }

    CU_FN_MEMBER void run(void)
    {
        int t = (int)blockIdx.x, step = (int)gridDim.x;
        if (threadIdx.x == 0) init();
        __syncthreads();
        if (threadIdx.x < PRODUCER) {
            cu_fewer_registers<40>();
            if (threadIdx.x == 0) produce(t, step);
        } else {
            cu_more_registers<232>();
            consume(t, step);
            if (!WGRAD) clear_rest();
        }
    }
};

#define WGMMA_KERNEL(name, wgrad, n_first)                                               \
    CU_KERNEL_BLOCKS(name, weft_cuda_wgmma_args, WEFT_CUDA_WGMMA_THREADS, 1)             \
    {                                                                                    \
        typedef grouped<wgrad, n_first> product;                                         \
        CU_SHARED(unsigned char, bytes);                                                 \
        uint32_t from = (cu_shared_address(bytes) + 1023) & ~1023u;                      \
        static_assert((int)product::BYTES == (int)WEFT_CUDA_WGMMA_BYTES, "args");        \
        product(a, from).run();                                                          \
    }

#else

/* No other architecture is ever given these. */
#define WGMMA_KERNEL(name, wgrad, n_first)                                               \
    CU_KERNEL(name, weft_cuda_wgmma_args, WEFT_CUDA_WGMMA_THREADS)                       \
    {                                                                                    \
        (void)a;                                                                         \
        CU_TRAP();                                                                       \
    }

#endif

WGMMA_KERNEL(grouped_wgmma, 0, 0)
WGMMA_KERNEL(grouped_wgmma_turned, 0, 1)
WGMMA_KERNEL(grouped_wgmma_wgrad, 1, 1)
