/* Sums over ranks: out = terms added by the binary tree, bf16 in f32 and rounded once, as
 * comm/sum.c does on the host. */
#include "cuda_vec.h"

enum {
    MAX_LEVEL = 12
};

/* May the block write? */
CU_FN bool may_write(const uint32_t *stop)
{
    __shared__ uint32_t stopped;
    if (threadIdx.x == 0) stopped = stop ? *(const volatile uint32_t *)stop : 0;
    __syncthreads();
    return !stopped;
}

/* Partial sums are kept like the digits of a binary counter. */
template <int W, class Args> CU_FN void add_terms(const Args &a, int64_t i, float sum[W])
{
    float part[MAX_LEVEL][W], x[W];
    int   of[MAX_LEVEL], top = 0;
    CU_ROLLED
    for (int t = 0; t < a.n_term; t++) {
        int level = a.level[t];
        cu_get_row<W>(a.in[t], a.dtype, i, 1, x);
        CU_ROLLED
        for (; top && of[top - 1] == level; level++) {
            top--;
            for (int j = 0; j < W; j++) x[j] = part[top][j] + x[j];
        }
        for (int j = 0; j < W; j++) part[top][j] = x[j];
        of[top++] = level;
    }
    CU_ROLLED
    for (top--; top > 0; top--)
        for (int j = 0; j < W; j++) part[top - 1][j] = part[top - 1][j] + part[top][j];
    for (int j = 0; j < W; j++) sum[j] = part[0][j];
}

/* The last elements, or all where addresses are not multiples of 16. */
template <class Args> CU_FN void add_singly(const Args &a, int64_t i, int64_t end)
{
    float y[1];
    CU_ROLLED
    for (; i < end && i < a.n; i++) {
        add_terms<1>(a, i, y);
        cu_put(a.out, a.dtype, i, y[0]);
    }
}

/* N terms of one level, N a power of two: all reads are under way before the first sum. */
template <int N, int W>
CU_FN void add_even_row(const weft_cuda_few_terms_args &a, int64_t i)
{
    cu_row<W> v[N];
    float     x[N][W];
    for (int t = 0; t < N; t++) v[t] = cu_read_row<W>(a.in[t], a.dtype, i, 1);
    for (int t = 0; t < N; t++) cu_widen_row<W>(v[t], a.dtype, 1, x[t]);
    for (int s = 1; s < N; s *= 2)
        for (int t = 0; t + s < N; t += 2 * s)
            for (int j = 0; j < W; j++) x[t][j] += x[t + s][j];
    cu_put_row<W>(a.out, a.dtype, i, x[0]);
}

template <int N> CU_FN void add_even(const weft_cuda_few_terms_args &a)
{
    int64_t i = cu_index() * 8;
    if (!may_write(a.stop)) return;
    if (i + 8 <= a.n) {
        add_even_row<N, 8>(a, i);
        return;
    }
    CU_ROLLED
    for (; i < a.n; i++) add_even_row<N, 1>(a, i);
}

CU_KERNEL(terms_2, weft_cuda_few_terms_args, 256)
{
    add_even<2>(a);
}
CU_KERNEL(terms_4, weft_cuda_few_terms_args, 256)
{
    add_even<4>(a);
}
CU_KERNEL(terms_8, weft_cuda_few_terms_args, 256)
{
    add_even<8>(a);
}

CU_KERNEL(terms_any, weft_cuda_terms_args, 256)
{
    int64_t i = cu_index() * 8;
    float   y[8];
    if (!may_write(a.stop)) return;
    if (i + 8 > a.n) {
        add_singly(a, i, i + 8);
        return;
    }
    add_terms<8>(a, i, y);
    cu_put8(a.out, a.dtype, i, y);
}

CU_KERNEL(terms_single, weft_cuda_terms_args, 256)
{
    int64_t i = cu_index();
    if (!may_write(a.stop)) return;
    add_singly(a, i, i + 1);
}
