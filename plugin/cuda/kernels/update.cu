/* Optimizer updates: each element is read and written once; learning rate, factor of the gradient and step are read
 * here. */
#include "cuda_vec.h"

/* What a rule is in this step. */
struct constants {
    float lr, scale, step_size, inv_sqrt_bc2;
};

CU_FN float read_scalar(const weft_cuda_scalar &s)
{
    return s.p ? (float)cu_load_double(s.p, (int)s.dtype, 0) : 1.0f;
}

/* 1 - beta^t without cancellation. */
CU_FN float correction(float log_beta, float t)
{
    return -expm1f(t * log_beta);
}

CU_FN constants read_constants(const weft_cuda_update_rule &r)
{
    constants c = {read_scalar(r.lr), read_scalar(r.scale), 0, 0};
    if (r.kind < WEFT_CUDA_UPDATE_ADAM) return c;
    float t        = read_scalar(r.step);
    bool  lamb     = r.kind >= WEFT_CUDA_UPDATE_LAMB_DIR;
    c.step_size    = (lamb ? 1.0f : c.lr) / correction(r.log_beta1, t);
    c.inv_sqrt_bc2 = 1.0f / sqrtf(correction(r.log_beta2, t));
    if (r.kind == WEFT_CUDA_UPDATE_LAMB) {
        float p = read_scalar(r.p_sq), u = read_scalar(r.u_sq);
        if (p > 0.0f && u > 0.0f) c.lr *= sqrtf(p) / sqrtf(u);
    }
    return c;
}

/* m and v move towards g and g^2; m / (sqrt(v / (1 - beta2^t)) + eps) */
CU_FN float adam_direction(const weft_cuda_update_rule &r, const constants &c, float g,
                           float *m, float *v)
{
    *m += (1.0f - r.beta1) * (g - *m);
    *v = r.beta2 * *v + (1.0f - r.beta2) * g * g;
    return *m / (sqrtf(*v) * c.inv_sqrt_bc2 + r.eps);
}

CU_FN void update(const weft_cuda_update_rule &r, const constants &c, float decay,
                  float *p, float g, float *m, float *v)
{
    g *= c.scale;
    switch (r.kind) {
    case WEFT_CUDA_UPDATE_SGD: *p -= c.lr * (g + decay * *p); break;
    case WEFT_CUDA_UPDATE_MOMENTUM:
        *m = r.beta1 * *m + (g + decay * *p);
        *p -= c.lr * *m;
        break;
    case WEFT_CUDA_UPDATE_ADAGRAD:
        g += decay * *p;
        *m += g * g;
        *p -= c.lr * (g / (sqrtf(*m) + r.eps));
        break;
    case WEFT_CUDA_UPDATE_ADAM:
        g += decay * *p;
        *p -= c.step_size * adam_direction(r, c, g, m, v);
        break;
    case WEFT_CUDA_UPDATE_ADAMW:
        *p *= 1.0f - c.lr * decay;
        *p -= c.step_size * adam_direction(r, c, g, m, v);
        break;
    case WEFT_CUDA_UPDATE_LAMB_DIR:
    case WEFT_CUDA_UPDATE_LAMB: {
        float u = c.step_size * adam_direction(r, c, g, m, v) + decay * *p;
        *p      = r.kind == WEFT_CUDA_UPDATE_LAMB ? *p - c.lr * u : u;
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
    if (W == 4) {
        float4 v           = {x[0], x[1], x[2], x[3]};
        *(float4 *)(p + i) = v;
    } else {
        p[i] = x[0];
    }
}

template <int W> CU_FN void read_tensors(const tensors &t, int64_t i, elements<W> &x)
{
    read_elements<W>(t.p, WEFT_DTYPE_F32, i, x.p);
    read_elements<W>(t.g, t.g_dtype, i, x.g);
    for (int j = 0; j < W; j++) x.m[j] = x.v[j] = 0;
    if (t.m) read_elements<W>(t.m, WEFT_DTYPE_F32, i, x.m);
    if (t.v) read_elements<W>(t.v, WEFT_DTYPE_F32, i, x.v);
}

template <int W>
CU_FN void update_tensors(const weft_cuda_update_rule &r, const constants &c,
                          const tensors &t, int64_t i, elements<W> &x)
{
    for (int j = 0; j < W; j++) update(r, c, t.decay, &x.p[j], x.g[j], &x.m[j], &x.v[j]);
    write_elements<W>(t.next[0], i, x.p);
    if (t.next[1]) write_elements<W>(t.next[1], i, x.m);
    if (t.next[2]) write_elements<W>(t.next[2], i, x.v);
    if (t.copy && W == 4) {
        uint2 v                = {cu_pack(x.p[0], x.p[1]), cu_pack(x.p[2], x.p[3])};
        *(uint2 *)(t.copy + i) = v;
    } else if (t.copy) {
        t.copy[i] = cu_round(x.p[0]);
    }
}

/* 4 elements of each thread, fewer at the end; what the rule is in this step is found once for the block, while
 * elements are on their way. */
CU_FN void update_block(const weft_cuda_update_rule &r, const tensors &t, int64_t i,
                        int64_t n)
{
    __shared__ constants c;
    elements<4>          x;
    if (i + 4 <= n) read_tensors<4>(t, i, x);
    if (threadIdx.x == 0) c = read_constants(r);
    __syncthreads();
    if (i + 4 <= n) {
        update_tensors<4>(r, c, t, i, x);
        return;
    }
    CU_ROLLED
    for (; i < n; i++) {
        elements<1> one;
        read_tensors<1>(t, i, one);
        update_tensors<1>(r, c, t, i, one);
    }
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
CU_KERNEL_BLOCKS(update_4, weft_cuda_update_args, 256, 4)
{
    update_block(a.rule, tensors_of(a), cu_index() * 4, a.n);
}
CU_KERNEL_BLOCKS(updates, weft_cuda_updates_args, 256, 4)
{
    const weft_cuda_update_task &t     = a.task[cu_find_task(a.task, a.n_task)];
    int64_t                      block = (int64_t)blockIdx.x - t.first_block;
    tensors of = {t.p,       t.m,    t.v, t.g, {t.p, t.m, t.v}, (cu_bf16 *)t.copy,
                  a.g_dtype, t.decay};
    update_block(a.rule, of, (block * blockDim.x + threadIdx.x) * 4, t.n);
}
