/* Element by element, of one or two operands. */
#include "cuda_map.h"

template <int W> CU_FN void map_row(const weft_cuda_map_args &a)
{
    int64_t i    = cu_index(), at[3];
    int     last = a.nd.n - 1;
    float   x[W], u[W];
    if (i >= a.nd.count) return;
    cu_nd_at<3, W>(a.nd, i, at);
    int64_t   step_a = a.nd.step[1][last], step_b = a.nd.step[2][last];
    bool      has_b = cu_map_has_b(a.kind);
    cu_row<W> ra = cu_read_row<W>(a.a, a.a_dtype, at[1], step_a), rb = {};
    if (has_b) rb = cu_read_row<W>(a.b, a.b_dtype, at[2], step_b);
    cu_widen_row<W>(ra, a.a_dtype, step_a, x);
    cu_widen_row<W>(rb, a.b_dtype, step_b, u);
    cu_map<W>(a.kind, x, u, a.s, a.t);
    if (a.add) {
        cu_get_row<W>(a.y, a.y_dtype, at[0], 1, u);
        for (int j = 0; j < W; j++) x[j] += u[j];
    }
    cu_put_row<W>(a.y, a.y_dtype, at[0], x);
}

CU_KERNEL(map_1, weft_cuda_map_args, 256)
{
    map_row<1>(a);
}
CU_KERNEL(map_8, weft_cuda_map_args, 256)
{
    map_row<8>(a);
}

/* ---- steps after products ---- */

CU_FN bool beyond_last(const weft_cuda_steps_args &a, int64_t element)
{
    return a.last &&
           (double)(element / a.row_count) >= cu_load_double(a.last, a.last_dtype, 0);
}

/* The index of vector i along each dimension, in elements. */
template <int W>
CU_FN void find_index(const weft_cuda_steps_args &a, int64_t i,
                      int64_t index[WEFT_CUDA_MAX_DIM])
{
    for (int k = WEFT_CUDA_MAX_DIM - 1; k >= 0; k--) {
        index[k] = 0;
        if (k >= a.from.n_dim) continue;
        bool    last = k == a.from.n_dim - 1;
        int64_t d    = last ? a.from.d[k] / W : a.from.d[k];
        int64_t next = a.count < INT32_MAX ? (int64_t)((uint32_t)i / (uint32_t)d) : i / d;
        index[k]     = (i - next * d) * (last ? W : 1);
        i            = next;
    }
}

CU_FN int64_t offset_of(const int64_t index[WEFT_CUDA_MAX_DIM], const int64_t *stride)
{
    int64_t at = 0;
    for (int k = 0; k < WEFT_CUDA_MAX_DIM; k++) at += index[k] * stride[k];
    return at;
}

template <int W> CU_FN void round_row(int dtype, float x[W])
{
    for (int j = 0; j < W; j++) x[j] = cu_as(dtype, x[j]);
}

template <int W> CU_FN void run_steps(const weft_cuda_steps_args &a)
{
    int64_t i = cu_index(), index[WEFT_CUDA_MAX_DIM];
    if (i >= a.count) return;
    bool  none = beyond_last(a, i * W);
    int   last = a.from.n_dim - 1;
    float x[W], u[W];
    for (int j = 0; j < W; j++) x[j] = u[j] = 0;
    find_index<W>(a, i, index);
    if (!none)
        cu_get_row<W>(a.from.p, a.from.dtype, offset_of(index, a.from.stride), 1, x);
    CU_ROLLED
    for (int s = 0; s < a.n_step; s++) {
        const weft_cuda_step &step  = a.step[s];
        bool                  store = step.kind == WEFT_CUDA_MAP_STORE;
        if (none && !store) continue;
        int64_t at = offset_of(index, step.stride);
        round_row<W>(a.dtype, x);
        if (store ? step.add : cu_map_has_b(step.kind))
            cu_get_row<W>(step.p, step.dtype, at, step.stride[last], u);
        if (!store) {
            cu_map<W>(step.kind, x, u, step.s, 0);
            continue;
        }
        for (int j = 0; j < W && step.add; j++) x[j] = cu_as(a.dtype, x[j] + u[j]);
        cu_put_row<W>(step.p, step.dtype, at, x);
    }
}

CU_KERNEL(steps_1, weft_cuda_steps_args, 256)
{
    run_steps<1>(a);
}
CU_KERNEL(steps_8, weft_cuda_steps_args, 256)
{
    run_steps<8>(a);
}

/* ---- dropout: the mask of kernel/mask.h ---- */

typedef struct step_scalars {
    uint64_t seed;
    int64_t  step, sample, micro_sample;
} step_scalars;

CU_FN void philox(uint32_t k0, uint32_t k1, uint32_t c[4])
{
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* The index within its sample of the whole that element i of a piece's sample has. */
CU_FN int64_t whole_index(const weft_cuda_dropout_args &a, int64_t i)
{
    int64_t to = 0, step = 1;
    if (!a.n_whole) return i;
    for (int k = a.n_dim - 1; k > 0; k--) {
        int64_t next = i / a.d[k];
        to += (i - next * a.d[k] + a.at[k]) * step;
        step *= a.whole[k];
        i = next;
    }
    return to;
}

/* W is 4 where four elements of a thread are those of one philox word. */
template <int W> CU_FN void drop(const weft_cuda_dropout_args &a)
{
    int64_t i = cu_index() * W;
    if (i >= a.count) return;
    const step_scalars *now    = (const step_scalars *)a.scalars;
    int64_t             in     = i / a.sample_count;
    int64_t             at     = whole_index(a, i - in * a.sample_count);
    int64_t             first  = a.n_whole ? a.at[0] : 0;
    uint64_t            sample = (uint64_t)(now->sample + now->micro_sample + first + in);
    uint32_t w[4] = {(uint32_t)(at / 4), (uint32_t)sample, (uint32_t)now->step, a.id};
    philox((uint32_t)now->seed, (uint32_t)(now->seed >> 32) ^ (uint32_t)(sample >> 32),
           w);
    for (int j = 0; j < W; j++) {
        int      k    = W == 4 ? j : (int)(at % 4);
        uint32_t word = k == 0 ? w[0] : k == 1 ? w[1] : k == 2 ? w[2] : w[3];
        float    x    = cu_get(a.x, a.x_dtype, i + j);
        cu_put(a.y, a.y_dtype, i + j, word >> 8 >= a.least ? x * a.scale : 0.0f);
    }
}

CU_KERNEL(dropout_1, weft_cuda_dropout_args, 256)
{
    drop<1>(a);
}
CU_KERNEL(dropout_4, weft_cuda_dropout_args, 256)
{
    drop<4>(a);
}
