/* Reference kernels: convolution, pooling, batch norm.  x (n,c,h,w), w (o,c,kh,kw). */
#include "kernel/ref_priv.h"

/* A window's place: calls body with image position (y, x) for output (oy, ox) and tap (ky, kx). */
typedef struct window {
    int64_t h, w, oh, ow, kh, kw, sh, sw, ph, pw;
} window;

static window window_of(const weft_op_use *u, const weft_shape *image,
                        const weft_shape *result, int64_t kh, int64_t kw)
{
    const weft_attr *s = weft_use_attr(u, "stride"), *p = weft_use_attr(u, "pad");
    return (window){image->d[2], image->d[3], result->d[2], result->d[3], kh,
                    kw,          s->l[0],     s->l[1],      p->l[0],      p->l[1]};
}

/* Every (output, tap) that lies in the image: at = position in the image plane. */
#define EACH_TAP(v)                                                                      \
    for (int64_t oy = 0; oy < (v).oh; oy++)                                              \
        for (int64_t ox = 0; ox < (v).ow; ox++)                                          \
            for (int64_t ky = 0; ky < (v).kh; ky++)                                      \
                for (int64_t kx = 0, at; kx < (v).kw; kx++)                              \
                    if (inside(&(v), oy, ox, ky, kx, &at))

static bool inside(const window *v, int64_t oy, int64_t ox, int64_t ky, int64_t kx,
                   int64_t *at)
{
    int64_t y = oy * v->sh - v->ph + ky, x = ox * v->sw - v->pw + kx;
    *at = y * v->w + x;
    return y >= 0 && y < v->h && x >= 0 && x < v->w;
}

/* y[n,o,oy,ox] = sum over c, taps of x[n,c,at] w[o,c,ky,kx] */
WEFT_REF(conv2d)
{
    const int64_t *x = u->in[0].shape.d, *w = u->in[1].shape.d;
    window         v = window_of(u, &u->in[0].shape, &u->out[0].shape, w[2], w[3]);
    weft_kernel__zero(out[0], &u->out[0]);
    for (int64_t n = 0; n < x[0]; n++)
        for (int64_t o = 0; o < w[0]; o++)
            for (int64_t ch = 0; ch < w[1]; ch++) EACH_TAP(v)
    out[0][((n * w[0] + o) * v.oh + oy) * v.ow + ox] +=
        in[0][(n * w[1] + ch) * v.h * v.w + at] *
        in[1][((o * w[1] + ch) * v.kh + ky) * v.kw + kx];
    return WEFT_OK;
}
WEFT_REF(conv2d_grad_x)
{
    const int64_t *w = u->in[1].shape.d;
    window         v = window_of(u, &u->out[0].shape, &u->in[0].shape, w[2], w[3]);
    weft_kernel__zero(out[0], &u->out[0]);
    for (int64_t n = 0; n < u->in[0].shape.d[0]; n++)
        for (int64_t o = 0; o < w[0]; o++)
            for (int64_t ch = 0; ch < w[1]; ch++) EACH_TAP(v)
    out[0][(n * w[1] + ch) * v.h * v.w + at] +=
        in[0][((n * w[0] + o) * v.oh + oy) * v.ow + ox] *
        in[1][((o * w[1] + ch) * v.kh + ky) * v.kw + kx];
    return WEFT_OK;
}
WEFT_REF(conv2d_grad_w)
{
    const int64_t *w = u->out[0].shape.d;
    window         v = window_of(u, &u->in[1].shape, &u->in[0].shape, w[2], w[3]);
    weft_kernel__zero(out[0], &u->out[0]);
    for (int64_t n = 0; n < u->in[0].shape.d[0]; n++)
        for (int64_t o = 0; o < w[0]; o++)
            for (int64_t ch = 0; ch < w[1]; ch++) EACH_TAP(v)
    out[0][((o * w[1] + ch) * v.kh + ky) * v.kw + kx] +=
        in[0][((n * w[0] + o) * v.oh + oy) * v.ow + ox] *
        in[1][(n * w[1] + ch) * v.h * v.w + at];
    return WEFT_OK;
}

/* y = the largest in the window, the first one among equals; idx = its place in the h x w plane;
 * padding never wins (a window that sees only padding: -inf, idx -1) */
WEFT_REF(max_pool)
{
    const weft_attr *k = weft_use_attr(u, "kernel");
    window  v      = window_of(u, &u->in[0].shape, &u->out[0].shape, k->l[0], k->l[1]);
    int64_t planes = u->in[0].shape.d[0] * u->in[0].shape.d[1];
    for (int64_t i = 0, n = weft_kernel__count(&u->out[0]); i < n; i++)
        out[0][i] = -INFINITY, out[1][i] = -1;
    for (int64_t p = 0; p < planes; p++) EACH_TAP(v)
        {
            int64_t o = (p * v.oh + oy) * v.ow + ox;
            if (in[0][p * v.h * v.w + at] > out[0][o]) {
                out[0][o] = in[0][p * v.h * v.w + at];
                out[1][o] = (double)at;
            }
        }
    return WEFT_OK;
}
WEFT_REF(max_pool_grad)
{
    const int64_t *y = u->in[0].shape.d, *x = u->out[0].shape.d;
    weft_kernel__zero(out[0], &u->out[0]);
    for (int64_t p = 0; p < y[0] * y[1]; p++)
        for (int64_t i = p * y[2] * y[3]; i < (p + 1) * y[2] * y[3]; i++)
            if (in[1][i] >= 0) out[0][p * x[2] * x[3] + (int64_t)in[1][i]] += in[0][i];
    return WEFT_OK;
}

/* y = sum over the window / (kh kw): padding counts as zeros */
WEFT_REF(avg_pool)
{
    const weft_attr *k = weft_use_attr(u, "kernel");
    window  v      = window_of(u, &u->in[0].shape, &u->out[0].shape, k->l[0], k->l[1]);
    int64_t planes = u->in[0].shape.d[0] * u->in[0].shape.d[1];
    weft_kernel__zero(out[0], &u->out[0]);
    for (int64_t p = 0; p < planes; p++) EACH_TAP(v)
    out[0][(p * v.oh + oy) * v.ow + ox] +=
        in[0][p * v.h * v.w + at] / (double)(v.kh * v.kw);
    return WEFT_OK;
}
WEFT_REF(avg_pool_grad)
{
    const weft_attr *k = weft_use_attr(u, "kernel");
    window  v      = window_of(u, &u->out[0].shape, &u->in[0].shape, k->l[0], k->l[1]);
    int64_t planes = u->in[0].shape.d[0] * u->in[0].shape.d[1];
    weft_kernel__zero(out[0], &u->out[0]);
    for (int64_t p = 0; p < planes; p++) EACH_TAP(v)
    out[0][p * v.h * v.w + at] +=
        in[0][(p * v.oh + oy) * v.ow + ox] / (double)(v.kh * v.kw);
    return WEFT_OK;
}

/* ---- batch norm: one channel is all of n, h, w ---- */

/* i runs over the elements of channel ch of x (n,c,h,w) */
#define EACH_OF_CHANNEL(x, ch, i)                                                        \
    for (int64_t n_ = 0; n_ < (x)[0]; n_++)                                              \
        for (int64_t i    = (n_ * (x)[1] + (ch)) * (x)[2] * (x)[3],                      \
                     end_ = i + (x)[2] * (x)[3];                                         \
             i < end_; i++)

/* y = (x - mean) / sqrt(var + eps) w + b, var biased */
WEFT_REF(batch_norm)
{
    const int64_t *d     = u->in[0].shape.d;
    double         count = (double)(d[0] * d[2] * d[3]);
    for (int64_t ch = 0; ch < d[1]; ch++) {
        double mean = 0, var = 0;
        EACH_OF_CHANNEL(d, ch, i) mean += in[0][i] / count;
        EACH_OF_CHANNEL(d, ch, i) var += (in[0][i] - mean) * (in[0][i] - mean) / count;
        double rstd = 1 / sqrt(var + weft_use_float(u, "eps"));
        EACH_OF_CHANNEL(d, ch, i)
        out[0][i]  = (in[0][i] - mean) * rstd * in[1][ch] + in[2][ch];
        out[1][ch] = mean;
        out[2][ch] = var;
    }
    return WEFT_OK;
}
/* h = (x - mean) rstd;  dx = w rstd (dy - mean(dy) - h mean(dy h)), dw = sum dy h, db = sum dy */
WEFT_REF(batch_norm_grad)
{
    const int64_t *d     = u->in[0].shape.d;
    double         count = (double)(d[0] * d[2] * d[3]);
    for (int64_t ch = 0; ch < d[1]; ch++) {
        double mean = in[3][ch], rstd = 1 / sqrt(in[4][ch] + weft_use_float(u, "eps"));
        double dw = 0, db = 0;
        EACH_OF_CHANNEL(d, ch, i)
        {
            dw += in[0][i] * (in[1][i] - mean) * rstd;
            db += in[0][i];
        }
        EACH_OF_CHANNEL(d, ch, i)
        out[0][i] = in[2][ch] * rstd *
                    (in[0][i] - db / count - (in[1][i] - mean) * rstd * dw / count);
        out[1][ch] = dw;
        out[2][ch] = db;
    }
    return WEFT_OK;
}
WEFT_REF(batch_norm_infer)
{
    const int64_t *d = u->in[0].shape.d;
    for (int64_t ch = 0; ch < d[1]; ch++) {
        double rstd = 1 / sqrt(in[4][ch] + weft_use_float(u, "eps"));
        EACH_OF_CHANNEL(d, ch, i)
        out[0][i] = (in[0][i] - in[3][ch]) * rstd * in[1][ch] + in[2][ch];
    }
    return WEFT_OK;
}
