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

CU_FN void update(const weft_cuda_update_rule &r, const constants &c, float *p, float g,
                  float *m, float *v)
{
    g *= c.scale;
    switch (r.kind) {
    case WEFT_CUDA_UPDATE_SGD: *p -= c.lr * (g + r.decay * *p); break;
    case WEFT_CUDA_UPDATE_MOMENTUM:
        *m = r.beta1 * *m + (g + r.decay * *p);
        *p -= c.lr * *m;
        break;
    case WEFT_CUDA_UPDATE_ADAGRAD:
        g += r.decay * *p;
        *m += g * g;
        *p -= c.lr * (g / (sqrtf(*m) + r.eps));
        break;
    case WEFT_CUDA_UPDATE_ADAM:
        g += r.decay * *p;
        *p -= c.step_size * adam_direction(r, c, g, m, v);
        break;
    case WEFT_CUDA_UPDATE_ADAMW:
        *p *= 1.0f - c.lr * r.decay;
        *p -= c.step_size * adam_direction(r, c, g, m, v);
        break;
    case WEFT_CUDA_UPDATE_LAMB_DIR:
    case WEFT_CUDA_UPDATE_LAMB: {
        float u = c.step_size * adam_direction(r, c, g, m, v) + r.decay * *p;
        *p      = r.kind == WEFT_CUDA_UPDATE_LAMB ? *p - c.lr * u : u;
        break;
    }
    default: break;
    }
}

template <int W> CU_FN void update_row(const weft_cuda_update_args &a, int64_t i)
{
    constants c = read_constants(a.rule);
    float     p[W], g[W], m[W], v[W];
    for (int j = 0; j < W; j++) m[j] = v[j] = 0;
    cu_get_row<W>(a.p, WEFT_DTYPE_F32, i, 1, p);
    cu_get_row<W>(a.g, a.g_dtype, i, 1, g);
    if (a.m) cu_get_row<W>(a.m, WEFT_DTYPE_F32, i, 1, m);
    if (a.v) cu_get_row<W>(a.v, WEFT_DTYPE_F32, i, 1, v);
    for (int j = 0; j < W; j++) update(a.rule, c, &p[j], g[j], &m[j], &v[j]);
    cu_put_row<W>(a.next[0], WEFT_DTYPE_F32, i, p);
    if (a.next[1]) cu_put_row<W>(a.next[1], WEFT_DTYPE_F32, i, m);
    if (a.next[2]) cu_put_row<W>(a.next[2], WEFT_DTYPE_F32, i, v);
}

CU_KERNEL(update_1, weft_cuda_update_args, 256)
{
    int64_t i = cu_index();
    if (i < a.n) update_row<1>(a, i);
}

/* The last vector may be short. */
CU_KERNEL(update_8, weft_cuda_update_args, 256)
{
    int64_t i = cu_index() * 8;
    if (i + 8 <= a.n) {
        update_row<8>(a, i);
        return;
    }
    CU_ROLLED
    for (; i < a.n; i++) update_row<1>(a, i);
}
