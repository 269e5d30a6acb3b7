/* Optimizer updates: each element is read and written once; learning rate, factor of the
 * gradient and step are read here.
 *
 * A state and its gradient have the bits of the CPU's update (kernel/rows_update.h, optim.c):
 * ranks of both kinds that hold the same parameters stay replicas of each other.  So each
 * operation here is one of IEEE 754 that the compiler neither joins nor divides, in that order. */
#include "cuda_vec.h"

enum {
    WIDTH    = 4,                              /* elements of a thread at once */
    THREADS  = WEFT_CUDA_UPDATE_THREADS,       /* of a block */
    ROUND    = THREADS * WIDTH,                /* elements of a block at once */
    N_ROUND  = WEFT_CUDA_UPDATE_BLOCK / ROUND, /* of a block's elements */
    ANY_KIND = -1
};

/* What a rule is in this step. */
struct constants {
    float lr, scale, step_size, inv_sqrt_bc2;
};

/* Floats are read by a load that nothing waits for yet, so that several are
 * under way. */
CU_FN float read_scalar(const weft_cuda_scalar &s)
{
    if (!s.p) return 1.0f;
    if (s.dtype == WEFT_DTYPE_F32) return *(const float *)s.p;
    return (float)cu_load_double(s.p, (int)s.dtype, 0);
}

CU_FN double read_double(const weft_cuda_scalar &s, double otherwise)
{
    return s.p ? cu_load_double(s.p, (int)s.dtype, 0) : otherwise;
}

/* beta^t for whole t: kernel/optim.c has the same products. */
CU_FN double power(double beta, int64_t t)
{
    double x = 1;
    CU_ROLLED
    for (; t > 0; t /= 2, beta = __dmul_rn(beta, beta))
        if (t % 2) x = __dmul_rn(x, beta);
    return x;
}

CU_FN double correction(double beta, int64_t t)
{
    return __dsub_rn(1.0, power(beta, t));
}

CU_FN constants read_constants(const weft_cuda_update_rule &r)
{
    double    lr = read_double(r.lr, 1);
    constants c  = {(float)lr, read_scalar(r.scale), 0, 0};
    if (r.kind < WEFT_CUDA_UPDATE_ADAM) return c;
    int64_t t    = (int64_t)read_double(r.step, 1);
    bool    lamb = r.kind >= WEFT_CUDA_UPDATE_LAMB_DIR;
    c.step_size  = (float)__ddiv_rn(lamb ? 1.0 : lr, correction(r.power1, t));
    c.inv_sqrt_bc2 =
        (float)__ddiv_rn(1.0, __dsqrt_rn(correction(r.power2, t)));
    if (r.kind == WEFT_CUDA_UPDATE_LAMB) {
        double p = read_double(r.p_sq, 0), u = read_double(r.u_sq, 0);
        if (p > 0 && u > 0)
            c.lr = (float)__dmul_rn(lr, __ddiv_rn(__dsqrt_rn(p), __dsqrt_rn(u)));
    }
    return c;
}

/* m and v move towards g and g^2; m / (sqrt(v / (1 - beta2^t)) + eps) */
CU_FN float adam_direction(const weft_cuda_update_rule &r, const constants &c, float g,
                           float *m, float *v)
{
    *m = __fmaf_rn(1.0f - r.beta1, __fsub_rn(g, *m), *m);
    *v = __fmaf_rn(__fmul_rn(1.0f - r.beta2, g), g, __fmul_rn(r.beta2, *v));
    return __fdiv_rn(*m, __fmaf_rn(__fsqrt_rn(*v), c.inv_sqrt_bc2, r.eps));
}

/* KIND: the rule's, or ANY_KIND where it is known at run time alone. */
template <int KIND>
CU_FN void update(const weft_cuda_update_rule &r, const constants &c, float decay,
                  float *p, float g, float *m, float *v)
{
    g = __fmul_rn(g, c.scale);
    switch (KIND == ANY_KIND ? r.kind : KIND) {
    case WEFT_CUDA_UPDATE_SGD:
        *p = __fmaf_rn(-c.lr, __fmaf_rn(decay, *p, g), *p);
        break;
    case WEFT_CUDA_UPDATE_MOMENTUM:
        *m = __fmaf_rn(r.beta1, *m, __fmaf_rn(decay, *p, g));
        *p = __fmaf_rn(-c.lr, *m, *p);
        break;
    case WEFT_CUDA_UPDATE_ADAGRAD:
        g  = __fmaf_rn(decay, *p, g);
        *m = __fmaf_rn(g, g, *m);
        g  = __fdiv_rn(g, __fadd_rn(__fsqrt_rn(*m), r.eps));
        *p = __fmaf_rn(-c.lr, g, *p);
        break;
    case WEFT_CUDA_UPDATE_ADAM:
        g  = __fmaf_rn(decay, *p, g);
        *p = __fmaf_rn(-c.step_size, adam_direction(r, c, g, m, v), *p);
        break;
    case WEFT_CUDA_UPDATE_ADAMW: {
        float kept = __fmul_rn(*p, __fsub_rn(1.0f, __fmul_rn(c.lr, decay)));
        *p         = __fmaf_rn(-c.step_size, adam_direction(r, c, g, m, v), kept);
        break;
    }
    case WEFT_CUDA_UPDATE_LAMB_DIR:
    case WEFT_CUDA_UPDATE_LAMB: {
        float u = __fmaf_rn(
            decay, *p, __fmul_rn(adam_direction(r, c, g, m, v), c.step_size));
        *p = r.kind == WEFT_CUDA_UPDATE_LAMB ? __fmaf_rn(-c.lr, u, *p) : u;
        break;
    }
    default: break;
    }
}

/* The tensors of an update; m, v, next[1], next[2] and copy may be NULL. */
struct tensors {
    const float *p, *m, *v;
    const void  *g;
    float       *next[3];
    cu_bf16     *copy; /* of next[0] */
    int          g_dtype;
    float        decay;
};

/* W elements: 4, or 1 of memory that is at any address. */
template <int W> struct elements {
    float p[W], g[W], m[W], v[W];
};

template <int W> CU_FN void read_elements(const void *p, int dtype, int64_t i, float x[W])
{
    if (W == 4)
        cu_get4(p, dtype, i, x);
    else
        x[0] = cu_get(p, dtype, i);
}

template <int W> CU_FN void write_elements(float *p, int64_t i, const float x[W])
{
    if (W == 4)
        cu_stream_put4(p + i, x);
    else
        p[i] = x[0];
}

template <int W> CU_FN void read_tensors(const tensors &t, int64_t i, elements<W> &x)
{
    read_elements<W>(t.p, WEFT_DTYPE_F32, i, x.p);
    read_elements<W>(t.g, t.g_dtype, i, x.g);
    for (int j = 0; j < W; j++) x.m[j] = x.v[j] = 0;
    if (t.m) read_elements<W>(t.m, WEFT_DTYPE_F32, i, x.m);
    if (t.v) read_elements<W>(t.v, WEFT_DTYPE_F32, i, x.v);
}

template <int W> CU_FN void write_copy(const tensors &t, int64_t i, const elements<W> &x)
{
    if (!t.copy) return;
    if (W == 4)
        cu_stream_put4(t.copy + i, x.p);
    else
        t.copy[i] = cu_round(x.p[0]);
}

template <int W>
CU_FN void update_tensors(const weft_cuda_update_rule &r, const constants &c,
                          const tensors &t, int64_t i, elements<W> &x)
{
    for (int j = 0; j < W; j++)
        update<ANY_KIND>(r, c, t.decay, &x.p[j], x.g[j], &x.m[j], &x.v[j]);
    write_elements<W>(t.next[0], i, x.p);
    if (t.next[1]) write_elements<W>(t.next[1], i, x.m);
    if (t.next[2]) write_elements<W>(t.next[2], i, x.v);
    write_copy<W>(t, i, x);
}

/* Any rule, any end: elements [i, n) of a block's, ROUND at a time. */
CU_FN void update_any(const weft_cuda_update_rule &r, const constants &c,
                      const tensors &t, int64_t i, int64_t n)
{
    CU_ROLLED
    for (i += threadIdx.x * WIDTH; i < n; i += ROUND) {
        if (i + WIDTH <= n) {
            elements<4> x;
            read_tensors<4>(t, i, x);
            update_tensors<4>(r, c, t, i, x);
            continue;
        }
        CU_ROLLED
        for (int64_t k = i; k < n; k++) {
            elements<1> one;
            read_tensors<1>(t, k, one);
            update_tensors<1>(r, c, t, k, one);
        }
    }
}

/* ---- adamw with gradients in f32, whole blocks ---- */

CU_FN void read_round(const tensors &t, int64_t i, elements<4> &x)
{
    cu_stream_get4(t.p + i, x.p);
    cu_stream_get4((const float *)t.g + i, x.g);
    cu_stream_get4(t.m + i, x.m);
    cu_stream_get4(t.v + i, x.v);
}

CU_FN void update_round(const weft_cuda_update_rule &r, const constants &c,
                        const tensors &t, int64_t i, elements<4> &x)
{
    for (int j = 0; j < 4; j++)
        update<WEFT_CUDA_UPDATE_ADAMW>(r, c, t.decay, &x.p[j], x.g[j], &x.m[j], &x.v[j]);
    write_elements<4>(t.next[0], i, x.p);
    write_elements<4>(t.next[1], i, x.m);
    write_elements<4>(t.next[2], i, x.v);
    write_copy<4>(t, i, x);
}

/* The elements of a round are on their way while those of the round before are
 * updated; x: those of the first. */
CU_FN void update_adamw(const weft_cuda_update_rule &r, const constants &c,
                        const tensors &t, int64_t i, elements<4> &x)
{
    elements<4> y;
    CU_ROLLED
    for (int k = 0; k < N_ROUND; k += 2, i += 2 * ROUND) {
        read_round(t, i + ROUND, y);
        update_round(r, c, t, i, x);
        if (k + 2 < N_ROUND) read_round(t, i + 2 * ROUND, x);
        update_round(r, c, t, i + ROUND, y);
    }
}

/* The elements [i, i + WEFT_CUDA_UPDATE_BLOCK) of n; what the rule is in this
 * step is found once for the block, while elements are on their way. */
CU_FN void update_block(const weft_cuda_update_rule &r, const tensors &t, int64_t i,
                        int64_t n)
{
    __shared__ constants c;
    elements<4>          x;
    int64_t              first = i + threadIdx.x * WIDTH;
    bool whole = i + WEFT_CUDA_UPDATE_BLOCK <= n && r.kind == WEFT_CUDA_UPDATE_ADAMW &&
                 t.g_dtype == WEFT_DTYPE_F32;
    if (whole) read_round(t, first, x);
    if (threadIdx.x == 0) c = read_constants(r);
    __syncthreads();
    if (whole)
        update_adamw(r, c, t, first, x);
    else
        update_any(r, c, t, i,
                   i + WEFT_CUDA_UPDATE_BLOCK < n ? i + WEFT_CUDA_UPDATE_BLOCK : n);
}

CU_FN tensors tensors_of(const weft_cuda_update_args &a)
{
    return {a.p,
            a.m,
            a.v,
            a.g,
            {a.next[0], a.next[1], a.next[2]},
            (cu_bf16 *)a.copy,
            a.g_dtype,
            a.rule.decay};
}

CU_KERNEL(update_1, weft_cuda_update_args, 256)
{
    int64_t     i = cu_index();
    elements<1> x;
    if (i >= a.n) return;
    read_tensors<1>(tensors_of(a), i, x);
    update_tensors<1>(a.rule, read_constants(a.rule), tensors_of(a), i, x);
}
CU_KERNEL_BLOCKS(update_4, weft_cuda_update_args, THREADS, 4)
{
    update_block(a.rule, tensors_of(a), (int64_t)blockIdx.x * WEFT_CUDA_UPDATE_BLOCK,
                 a.n);
}
CU_KERNEL_BLOCKS(updates, weft_cuda_updates_args, THREADS, 4)
{
    const weft_cuda_update_task &t     = a.task[cu_find_task(a.task, a.n_task)];
    int64_t                      block = (int64_t)blockIdx.x - t.first_block;
    tensors of = {t.p,       t.m,    t.v, t.g, {t.p, t.m, t.v}, (cu_bf16 *)t.copy,
                  a.g_dtype, t.decay};
    update_block(a.rule, of, block * WEFT_CUDA_UPDATE_BLOCK, t.n);
}
