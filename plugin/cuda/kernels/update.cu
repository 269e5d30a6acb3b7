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

/* The tensors of an update; m, v and next[1], next[2] may be NULL. */
struct tensors {
    const float *p, *m, *v;
    const void  *g;
    float       *next[3];
    int          g_dtype;
    float        decay;
};

template <int W>
CU_FN void update_row(const weft_cuda_update_rule &r, const tensors &t, int64_t i)
{
    cu_row<W> row = cu_read_row<W>(t.g, t.g_dtype, i, 1);
    float     p[W], g[W], m[W], v[W];
    for (int j = 0; j < W; j++) m[j] = v[j] = 0;
    cu_get_row<W>(t.p, WEFT_DTYPE_F32, i, 1, p);
    if (t.m) cu_get_row<W>(t.m, WEFT_DTYPE_F32, i, 1, m);
    if (t.v) cu_get_row<W>(t.v, WEFT_DTYPE_F32, i, 1, v);
    constants c = read_constants(r);
    cu_widen_row<W>(row, t.g_dtype, 1, g);
    for (int j = 0; j < W; j++) update(r, c, t.decay, &p[j], g[j], &m[j], &v[j]);
    cu_put_row<W>(t.next[0], WEFT_DTYPE_F32, i, p);
    if (t.next[1]) cu_put_row<W>(t.next[1], WEFT_DTYPE_F32, i, m);
    if (t.next[2]) cu_put_row<W>(t.next[2], WEFT_DTYPE_F32, i, v);
}

/* 8 elements, or what is left of n. */
CU_FN void update_vector(const weft_cuda_update_rule &r, const tensors &t, int64_t i,
                         int64_t n)
{
    if (i + 8 <= n) {
        update_row<8>(r, t, i);
        return;
    }
    CU_ROLLED
    for (; i < n; i++) update_row<1>(r, t, i);
}

CU_FN tensors tensors_of(const weft_cuda_update_args &a)
{
    return {a.p,       a.m,         a.v, a.g, {a.next[0], a.next[1], a.next[2]},
            a.g_dtype, a.rule.decay};
}

CU_KERNEL(update_1, weft_cuda_update_args, 256)
{
    int64_t i = cu_index();
    if (i < a.n) update_row<1>(a.rule, tensors_of(a), i);
}
CU_KERNEL(update_8, weft_cuda_update_args, 256)
{
    update_vector(a.rule, tensors_of(a), cu_index() * 8, a.n);
}
CU_KERNEL(updates, weft_cuda_updates_args, 256)
{
    const weft_cuda_update_task &t     = a.task[cu_find_task(a.task, a.n_task)];
    int64_t                      block = (int64_t)blockIdx.x - t.first_block;
    tensors of = {t.p, t.m, t.v, t.g, {t.p, t.m, t.v}, a.g_dtype, t.decay};
    update_vector(a.rule, of, (block * blockDim.x + threadIdx.x) * 8, t.n);
}
