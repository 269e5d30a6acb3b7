/* Convolution through matrix products.  x (n,c,h,w), w (o,c,kh,kw), y (n,o,oh,ow).
 *
 * One image at a time its windows are written as columns, col (c kh kw, oh ow), in f32:
 *     y = w col        dw = sum over images of dy col^T        dx = columns of (w^T dy), added back
 * A 1 x 1 window without padding needs no columns: the image itself is col. */
#include "kernel/cpu_priv.h"
#include "kernel/gemm.h"
#include "kernel/rows.h"

typedef struct conv {
    int64_t n, c, h, w, o, oh, ow, kh, kw, sh, sw, ph, pw;
    int64_t taps, spots; /* c kh kw, oh ow */
    bool    direct;
} conv;

static conv make(const weft_kernel_call *c, const weft_view *x, const weft_view *y,
                 int64_t kh, int64_t kw)
{
    const weft_attr *s = weft_kernel__attr(c, "stride"), *p = weft_kernel__attr(c, "pad");
    conv             v = {.n  = x->shape.d[0],
                          .c  = x->shape.d[1],
                          .h  = x->shape.d[2],
                          .w  = x->shape.d[3],
                          .o  = y->shape.d[1],
                          .oh = y->shape.d[2],
                          .ow = y->shape.d[3],
                          .kh = kh,
                          .kw = kw,
                          .sh = s->l[0],
                          .sw = s->l[1],
                          .ph = p->l[0],
                          .pw = p->l[1]};
    v.taps             = v.c * kh * kw;
    v.spots            = v.oh * v.ow;
    v.direct = kh == 1 && kw == 1 && v.sh == 1 && v.sw == 1 && v.ph == 0 && v.pw == 0;
    return v;
}

typedef struct job {
    conv             v;
    const weft_view *x;
    float           *col, *row; /* row: w floats a thread */
    int64_t          image;
} job;

/* Windows [lo, hi) along a line whose tap k lies in an image of n. */
static void inside(int64_t n, int64_t n_out, int64_t k, int64_t stride, int64_t pad,
                   int64_t *lo, int64_t *hi)
{
    *lo = k >= pad ? 0 : (pad - k + stride - 1) / stride;
    *hi = n + pad - k <= 0 ? 0 : (n + pad - k - 1) / stride + 1;
    if (*hi > n_out) *hi = n_out;
    if (*lo > *hi) *lo = *hi;
}

/* One channel's rows of col. */
static void spread_task(void *arg, int64_t ch, int thread)
{
    const job  *j = arg;
    const conv *v = &j->v;
    (void)thread;
    for (int64_t t = 0; t < v->kh * v->kw; t++) {
        int64_t ky = t / v->kw, kx = t % v->kw, y0, y1, x0, x1;
        float  *to = j->col + (ch * v->kh * v->kw + t) * v->spots;
        inside(v->h, v->oh, ky, v->sh, v->ph, &y0, &y1);
        inside(v->w, v->ow, kx, v->sw, v->pw, &x0, &x1);
        for (int64_t oy = 0; oy < v->oh; oy++, to += v->ow) {
            memset(to, 0, sizeof(float) * (size_t)v->ow);
            if (oy < y0 || oy >= y1 || x0 == x1) continue;
            int64_t at = (j->image * v->c + ch) * v->h + oy * v->sh - v->ph + ky;
            at         = at * v->w + x0 * v->sw - v->pw + kx;
            const float *x =
                weft_kernel__read(j->x->p, j->x->dtype, at, v->sw, x1 - x0, to + x0);
            if (x != to + x0) memcpy(to + x0, x, sizeof(float) * (size_t)(x1 - x0));
        }
    }
}

/* One row of a channel of the image from its rows of col, taps in order. */
static void fold_row(const job *j, int64_t ch, int64_t y, float *row)
{
    const conv *v = &j->v;
    for (int64_t t = 0; t < v->kh * v->kw; t++) {
        int64_t yy = y + v->ph - t / v->kw, kx = t % v->kw, x0, x1;
        if (yy < 0 || yy % v->sh || yy / v->sh >= v->oh) continue;
        const float *from =
            j->col + (ch * v->kh * v->kw + t) * v->spots + yy / v->sh * v->ow;
        inside(v->w, v->ow, kx, v->sw, v->pw, &x0, &x1);
        float *to = row + x0 * v->sw - v->pw + kx;
        for (int64_t x = x0; x < x1; x++) to[(x - x0) * v->sw] += from[x];
    }
}

static void fold_task(void *arg, int64_t ch, int thread)
{
    const job  *j   = arg;
    const conv *v   = &j->v;
    float      *row = j->row + thread * v->w;
    for (int64_t y = 0; y < v->h; y++) {
        memset(row, 0, sizeof(float) * (size_t)v->w);
        fold_row(j, ch, y, row);
        weft_kernel__write(j->x->p, j->x->dtype,
                           ((j->image * v->c + ch) * v->h + y) * v->w, 1, v->w, row, 0);
    }
}

/* The columns of an image: the image itself, or scratch. */
static void columns(job *j, weft_pool *pool, const void **p, weft_dtype *t)
{
    if (j->v.direct) {
        *p = weft_kernel__ptr(j->x->p, j->x->dtype, j->image * j->v.taps * j->v.spots);
        *t = j->x->dtype;
        return;
    }
    weft_pool_run(pool, j->v.c, spread_task, j);
    *p = j->col;
    *t = WEFT_DTYPE_F32;
}

static size_t col_bytes(const conv *v)
{
    size_t n = v->direct ? 0 : sizeof(float) * (size_t)(v->taps * v->spots);
    return (n + 63) & ~(size_t)63;
}

static weft_gemm forward(const conv *v)
{
    return weft_gemm_make(v->o, v->spots, v->taps, NULL, v->taps, 1, NULL, v->spots, 1,
                          NULL, v->spots);
}

KERNEL(conv2d)
{
    const weft_view *w = &c->in[1], *y = &c->out[0];
    job              j = {.v   = make(c, &c->in[0], y, w->shape.d[2], w->shape.d[3]),
                          .x   = &c->in[0],
                          .col = x->scratch};
    weft_gemm        g = forward(&j.v);
    g.a = w->p, g.ta = w->dtype, g.tc = y->dtype;
    for (j.image = 0; j.image < j.v.n; j.image++) {
        columns(&j, x->pool, &g.b, &g.tb);
        g.c = weft_kernel__ptr(y->p, y->dtype, j.image * j.v.o * j.v.spots);
        weft_gemm_run(&g, x->pool, (char *)x->scratch + col_bytes(&j.v));
    }
    return WEFT_OK;
}
SCRATCH(conv2d)
{
    const weft_view *w = &c->in[1];
    conv             v = make(c, &c->in[0], &c->out[0], w->shape.d[2], w->shape.d[3]);
    weft_gemm        g = forward(&v);
    g.ta = w->dtype, g.tc = c->out[0].dtype;
    return col_bytes(&v) + weft_gemm_scratch(&g, n_thread);
}

/* col = w^T dy */
static weft_gemm backward_x(const conv *v)
{
    return weft_gemm_make(v->taps, v->spots, v->o, NULL, 1, v->taps, NULL, v->spots, 1,
                          NULL, v->spots);
}

KERNEL(conv2d_grad_x)
{
    const weft_view *dy = &c->in[0], *w = &c->in[1], *dx = &c->out[0];
    job              j = {.x = dx, .col = x->scratch};
    j.v                = make(c, dx, dy, w->shape.d[2], w->shape.d[3]);
    weft_gemm g        = backward_x(&j.v);
    g.a = w->p, g.ta = w->dtype, g.tb = dy->dtype;
    j.row = (float *)(void *)((char *)x->scratch +
                              col_bytes(&j.v)); /* when the product is done */
    for (j.image = 0; j.image < j.v.n; j.image++) {
        g.b = weft_kernel__ptr(dy->p, dy->dtype, j.image * j.v.o * j.v.spots);
        g.c = j.col;
        if (j.v.direct) {
            g.c  = weft_kernel__ptr(dx->p, dx->dtype, j.image * j.v.taps * j.v.spots);
            g.tc = dx->dtype;
        }
        weft_gemm_run(&g, x->pool, (char *)x->scratch + col_bytes(&j.v));
        if (!j.v.direct) weft_pool_run(x->pool, j.v.c, fold_task, &j);
    }
    return WEFT_OK;
}
SCRATCH(conv2d_grad_x)
{
    const weft_view *w = &c->in[1];
    conv             v = make(c, &c->out[0], &c->in[0], w->shape.d[2], w->shape.d[3]);
    weft_gemm        g = backward_x(&v);
    g.ta = w->dtype, g.tb = c->in[0].dtype;
    if (v.direct) g.tc = c->out[0].dtype;
    size_t product = weft_gemm_scratch(&g, n_thread);
    size_t rows    = sizeof(float) * (size_t)(v.w * n_thread);
    return col_bytes(&v) + (product > rows ? product : rows);
}

/* dw += dy col^T */
static weft_gemm backward_w(const conv *v)
{
    return weft_gemm_make(v->o, v->taps, v->spots, NULL, v->spots, 1, NULL, 1, v->spots,
                          NULL, v->taps);
}

KERNEL(conv2d_grad_w)
{
    const weft_view *dy = &c->in[0], *dw = &c->out[0];
    job              j = {.v   = make(c, &c->in[1], dy, dw->shape.d[2], dw->shape.d[3]),
                          .x   = &c->in[1],
                          .col = x->scratch};
    weft_gemm        g = backward_w(&j.v);
    g.ta = dy->dtype, g.tc = dw->dtype, g.c = dw->p;
    for (j.image = 0; j.image < j.v.n; j.image++) {
        columns(&j, x->pool, &g.b, &g.tb);
        g.a          = weft_kernel__ptr(dy->p, dy->dtype, j.image * j.v.o * j.v.spots);
        g.accumulate = j.image > 0 || weft_kernel__adds(c, 0);
        weft_gemm_run(&g, x->pool, (char *)x->scratch + col_bytes(&j.v));
    }
    return WEFT_OK;
}
SCRATCH(conv2d_grad_w)
{
    const weft_view *dw = &c->out[0];
    conv             v  = make(c, &c->in[1], &c->in[0], dw->shape.d[2], dw->shape.d[3]);
    weft_gemm        g  = backward_w(&v);
    g.ta = c->in[0].dtype, g.tc = dw->dtype;
    return col_bytes(&v) + weft_gemm_scratch(&g, n_thread);
}
