/* Batch norm: a channel is all of its planes; a task is one channel. */
#include <math.h>

#include "kernel/cpu_priv.h"
#include "kernel/rows.h"

typedef struct job {
    const weft_kernel_call  *c;
    const weft_kernel__rows *f;
    int64_t                  n, ch, plane; /* samples, channels, h w */
    double                   eps;
} job;

static void put(const job *j, int out, int64_t i, double x)
{
    const weft_view *v = &j->c->out[out];
    float            f = (float)x;
    if (v->p)
        weft_kernel__write(v->p, v->dtype, i, 1, 1, &f, weft_kernel__adds(j->c, out));
}

/* Pieces of channel ch: `here` is a piece's first element, n its length. */
#define EACH_PIECE(j, ch_)                                                               \
    for (int64_t s = 0; s < (j)->n; s++)                                                 \
        for (int64_t p    = 0, n, here;                                                  \
             n            = (j)->plane - p < PIECE ? (j)->plane - p : PIECE,             \
                     here = (s * (j)->ch + (ch_)) * (j)->plane + p, p < (j)->plane;      \
             p += n)
enum {
    PIECE = WEFT_KERNEL__PIECE
};

static const float *read_at(const weft_view *v, int64_t i, int64_t n, float *tmp)
{
    return weft_kernel__read(v->p, v->dtype, i, 1, n, tmp);
}

/* y = a x + b over channel ch */
static void scale_channel(const job *j, int64_t ch, float mean, float a, float b)
{
    const weft_view *y = &j->c->out[0];
    float            tx[PIECE], ty[PIECE];
    EACH_PIECE(j, ch)
    {
        const float *v = read_at(&j->c->in[0], here, n, tx);
        float       *o = weft_kernel__room(y->p, y->dtype, here, 1, 0, ty);
        for (int64_t i = 0; i < n; i++) o[i] = (v[i] - mean) * a + b;
        weft_kernel__write(y->p, y->dtype, here, 1, n, o, 0);
    }
}

static void forward_task(void *arg, int64_t ch, int thread)
{
    const job *j = arg;
    float      tx[PIECE], td[PIECE];
    double     sum = 0.0, sq = 0.0, count = (double)(j->n * j->plane);

    (void)thread;
    EACH_PIECE(j, ch) sum += (double)j->f->sum(read_at(&j->c->in[0], here, n, tx), n);
    float mean = (float)(sum / count);
    EACH_PIECE(j, ch)
    {
        const float *v = read_at(&j->c->in[0], here, n, tx);
        for (int64_t i = 0; i < n; i++) td[i] = v[i] - mean;
        sq += (double)j->f->dot(td, td, n);
    }
    double var = sq / count;
    put(j, 1, ch, (double)mean);
    put(j, 2, ch, var);
    scale_channel(
        j, ch, mean,
        (float)((double)weft_kernel__get(&j->c->in[1], ch) / sqrt(var + j->eps)),
        weft_kernel__get(&j->c->in[2], ch));
}

static void infer_task(void *arg, int64_t ch, int thread)
{
    const job *j = arg;
    double     w = (double)weft_kernel__get(&j->c->in[1], ch),
           var   = (double)weft_kernel__get(&j->c->in[4], ch);
    (void)thread;
    scale_channel(j, ch, weft_kernel__get(&j->c->in[3], ch),
                  (float)(w / sqrt(var + j->eps)), weft_kernel__get(&j->c->in[2], ch));
}

/* h = (x - mean) rstd;  dx = w rstd (dy - mean(dy) - h mean(dy h)) */
static void backward_task(void *arg, int64_t ch, int thread)
{
    const job       *j  = arg;
    const weft_view *dy = &j->c->in[0], *x = &j->c->in[1], *dx = &j->c->out[0];
    float  ty[PIECE], tx[PIECE], th[PIECE], mean = weft_kernel__get(&j->c->in[3], ch);
    double dw = 0.0, db = 0.0, count = (double)(j->n * j->plane);
    float rstd = (float)(1.0 / sqrt((double)weft_kernel__get(&j->c->in[4], ch) + j->eps));
    float w    = weft_kernel__get(&j->c->in[2], ch);

    (void)thread;
    EACH_PIECE(j, ch)
    {
        const float *d = read_at(dy, here, n, ty), *v = read_at(x, here, n, tx);
        for (int64_t i = 0; i < n; i++) th[i] = (v[i] - mean) * rstd;
        dw += (double)j->f->dot(d, th, n);
        db += (double)j->f->sum(d, n);
    }
    put(j, 1, ch, dw);
    put(j, 2, ch, db);
    if (!dx->p) return;
    float m1 = (float)(db / count), m2 = (float)(dw / count), k = w * rstd;
    EACH_PIECE(j, ch)
    {
        const float *d = read_at(dy, here, n, ty), *v = read_at(x, here, n, tx);
        for (int64_t i = 0; i < n; i++)
            th[i] = k * (d[i] - m1 - (v[i] - mean) * rstd * m2);
        weft_kernel__write(dx->p, dx->dtype, here, 1, n, th, weft_kernel__adds(j->c, 0));
    }
}

static weft_status run(const weft_kernel_call *c, weft_pool_fn fn, weft_pool *pool)
{
    const int64_t *d = c->in[0].shape.d;
    job            j = {.c     = c,
                        .f     = weft_kernel__rows_now(),
                        .n     = d[0],
                        .ch    = d[1],
                        .plane = d[2] * d[3]};
    j.eps            = weft_kernel__attr(c, "eps")->f;
    weft_pool_run(pool, j.ch, fn, &j);
    return WEFT_OK;
}

KERNEL(batch_norm)
{
    return run(c, forward_task, x->pool);
}
KERNEL(batch_norm_grad)
{
    return run(c, backward_task, x->pool);
}
KERNEL(batch_norm_infer)
{
    return run(c, infer_task, x->pool);
}
