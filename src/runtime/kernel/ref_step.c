/* Reference kernels: once a step.  p parameter, g gradient, lr learning rate, scale from clip (g is
 * multiplied by it first), step counted from 1. */
#include "kernel/ref_priv.h"

#define EACH(i) for (int64_t i = 0, n_ = weft_kernel__count(&u->out[0]); i < n_; i++)

WEFT_REF(sumsq)
{
    out[0][0] = 0;
    for (int64_t i = 0, n = weft_kernel__count(&u->in[0]); i < n; i++)
        out[0][0] += in[0][i] * in[0][i];
    return WEFT_OK;
}

WEFT_REF(sumsq_parts)
{
    int64_t n = weft_kernel__count(&u->in[0]), parts = weft_kernel__count(&u->out[0]);
    int64_t each = u->in[0].shape.n > 1 && parts ? n / parts : 256;
    for (int64_t k = 0; k < parts; k++) {
        out[0][k] = 0;
        for (int64_t i = k * each; i < (k + 1) * each && i < n; i++)
            out[0][k] += in[0][i] * in[0][i];
    }
    return WEFT_OK;
}

WEFT_REF(sumsq_tree)
{
    out[0][0] = 0;
    for (int64_t i = 0, n = weft_kernel__count(&u->in[0]); i < n; i++)
        out[0][0] += in[0][i];
    return WEFT_OK;
}

/* norm = sqrt(sum of s); scale = min(1, max_norm / (norm + 1e-6)), 1 when max_norm is 0 */
WEFT_REF(clip)
{
    double sum = 0, max = weft_use_float(u, "max_norm");
    for (int i = 0; i < u->n_in; i++) sum += in[i][0];
    out[0][0] = sqrt(sum);
    out[1][0] = max > 0 ? fmin(1, max / (out[0][0] + 1e-6)) : 1;
    return WEFT_OK;
}

/* next = (1 - momentum) running + momentum stat unbias / count; stat is summed over count
 * micro-batches, unbias = n / (n - 1) for a variance */
WEFT_REF(ema)
{
    double m = weft_use_float(u, "momentum");
    EACH(i)
    out[0][i] = (1 - m) * in[0][i] +
                m * in[1][i] * weft_use_float(u, "unbias") / weft_use_float(u, "count");
    return WEFT_OK;
}

/* g += wd p;  p -= lr g */
WEFT_REF(sgd)
{
    double wd         = weft_use_float(u, "weight_decay");
    EACH(i) out[0][i] = in[0][i] - in[2][0] * (in[1][i] * in[3][0] + wd * in[0][i]);
    return WEFT_OK;
}

/* g += wd p;  m = momentum m + g;  p -= lr m */
WEFT_REF(sgd_momentum)
{
    double wd = weft_use_float(u, "weight_decay"), mu = weft_use_float(u, "momentum");
    EACH(i)
    {
        out[1][i] = mu * in[2][i] + in[1][i] * in[4][0] + wd * in[0][i];
        out[0][i] = in[0][i] - in[3][0] * out[1][i];
    }
    return WEFT_OK;
}

/* adam: g += wd p;  adamw: p -= lr wd p;  then
 * m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2,
 * p -= lr (m / (1 - b1^step)) / (sqrt(v / (1 - b2^step)) + eps) */
WEFT_REF(adam)
{
    double b1 = weft_use_float(u, "beta1"), b2 = weft_use_float(u, "beta2");
    double eps = weft_use_float(u, "eps"), wd = weft_use_float(u, "weight_decay");
    double lr = in[4][0], scale = in[5][0], step = in[6][0];
    bool   decoupled = u->op == WEFT_OP_ADAMW;
    EACH(i)
    {
        double p = in[0][i], g = in[1][i] * scale;
        if (decoupled)
            p -= lr * wd * p;
        else
            g += wd * p;
        double m = b1 * in[2][i] + (1 - b1) * g, v = b2 * in[3][i] + (1 - b2) * g * g;
        out[0][i] =
            p - lr * (m / (1 - pow(b1, step))) / (sqrt(v / (1 - pow(b2, step))) + eps);
        out[1][i] = m;
        out[2][i] = v;
    }
    return WEFT_OK;
}

/* g += wd p;  h += g^2;  p -= lr g / (sqrt(h) + eps) */
WEFT_REF(adagrad)
{
    double eps = weft_use_float(u, "eps"), wd = weft_use_float(u, "weight_decay");
    EACH(i)
    {
        double g  = in[1][i] * in[4][0] + wd * in[0][i];
        out[1][i] = in[2][i] + g * g;
        out[0][i] = in[0][i] - in[3][0] * g / (sqrt(out[1][i]) + eps);
    }
    return WEFT_OK;
}

/* u = (m / (1 - b1^step)) / (sqrt(v / (1 - b2^step)) + eps) + wd p, with the next m and v */
static double lamb_direction(const weft_op_use *u, double p, double g, double *m,
                             double *v, double step)
{
    double b1 = weft_use_float(u, "beta1"), b2 = weft_use_float(u, "beta2");
    *m = b1 * *m + (1 - b1) * g;
    *v = b2 * *v + (1 - b2) * g * g;
    return (*m / (1 - pow(b1, step))) /
               (sqrt(*v / (1 - pow(b2, step))) + weft_use_float(u, "eps")) +
           weft_use_float(u, "weight_decay") * p;
}

WEFT_REF(lamb_dir)
{
    EACH(i)
    {
        double m = in[2][i], v = in[3][i];
        out[0][i] = lamb_direction(u, in[0][i], in[1][i] * in[4][0], &m, &v, in[5][0]);
    }
    return WEFT_OK;
}

/* p -= lr |p| / |u| u; the ratio is 1 when either norm is 0 */
WEFT_REF(lamb)
{
    double ratio = in[4][0] > 0 && in[5][0] > 0 ? sqrt(in[4][0]) / sqrt(in[5][0]) : 1;
    EACH(i)
    {
        double m = in[2][i], v = in[3][i];
        double d  = lamb_direction(u, in[0][i], in[1][i] * in[7][0], &m, &v, in[8][0]);
        out[0][i] = in[0][i] - in[6][0] * ratio * d;
        out[1][i] = m;
        out[2][i] = v;
    }
    return WEFT_OK;
}
