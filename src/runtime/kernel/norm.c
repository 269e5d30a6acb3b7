/* Layer norm and RMS norm over the last dimension, forward and backward.
 *
 * Backward: rows are cut into at most MAX_PART runs by the shape alone; each run sums its share
 * of dw and db into a row of scratch, and the shares are added in order. */

#include "kernel/cpu_priv.h"
#include "kernel/rows.h"

enum {
    TASK     = 32768,
    MAX_PART = 32
};

typedef struct job {
    const weft_kernel_call  *c;
    const weft_kernel__rows *f;
    int64_t                  rows, d, grain;
    int                      n_part, rms;
    float                    eps;
    const float             *w, *b; /* as floats */
    float                   *part;  /* n_part x 2 x d */
    float                   *tmp;   /* n_thread x 3 x d, where storage is not f32 */
} job;

static bool all_f32(const weft_kernel_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i].dtype != WEFT_DTYPE_F32) return false;
    return c->out[0].dtype == WEFT_DTYPE_F32 && !c->add;
}

/* Floats of scratch: w and b widened, then three rows a thread. */
static size_t row_scratch(const weft_kernel_call *c, int n_thread, int64_t d)
{
    return all_f32(c) ? 0 : (size_t)(2 * d + 3 * d * n_thread);
}

static job make(const weft_kernel_call *c, const weft_kernel_ctx *x, int w, int b,
                float *scratch)
{
    job j   = {.c = c, .f = weft_kernel__rows_now(), .d = weft_kernel__last(&c->in[0])};
    j.rows  = j.d ? weft_shape_count(&c->in[0].shape) / j.d : 0;
    j.grain = weft_kernel__grain(j.d, TASK);
    j.eps   = (float)weft_kernel__attr(c, "eps")->f;
    j.w     = weft_kernel__read(c->in[w].p, c->in[w].dtype, 0, 1, j.d, scratch);
    if (b >= 0)
        j.b = weft_kernel__read(c->in[b].p, c->in[b].dtype, 0, 1, j.d, scratch + j.d);
    j.tmp = scratch + 2 * j.d;
    (void)x;
    return j;
}

static void keep(const weft_view *v, int64_t i, float x)
{
    if (v->p) ((float *)v->p)[i] = x;
}

static void forward_task(void *arg, int64_t task, int thread)
{
    job             *j = arg;
    const weft_view *y = &j->c->out[0], *x = &j->c->in[0];
    float           *t   = j->tmp + 3 * j->d * thread;
    int64_t          end = (task + 1) * j->grain;
    for (int64_t i = task * j->grain; i < end && i < j->rows; i++) {
        float        stat[2];
        const float *px = weft_kernel__read(x->p, x->dtype, i * j->d, 1, j->d, t);
        float       *py = weft_kernel__room(y->p, y->dtype, i * j->d, 1, 0, t + j->d);
        if (j->rms) {
            j->f->rms_norm(py, px, j->w, j->d, j->eps, stat);
            keep(&j->c->out[1], i, stat[0]);
        } else {
            j->f->layer_norm(py, px, j->w, j->b, j->d, j->eps, stat);
            keep(&j->c->out[1], i, stat[0]);
            keep(&j->c->out[2], i, stat[1]);
        }
        weft_kernel__write(y->p, y->dtype, i * j->d, 1, j->d, py, 0);
    }
}

KERNEL(layer_norm)
{
    job j = make(c, x, 1, 2, x->scratch);
    weft_pool_run(x->pool, weft_kernel__ceil(j.rows, j.grain), forward_task, &j);
    return WEFT_OK;
}
SCRATCH(layer_norm)
{
    return row_scratch(c, n_thread, weft_kernel__last(&c->in[0])) * sizeof(float);
}

KERNEL(rms_norm)
{
    job j = make(c, x, 1, -1, x->scratch);
    j.rms = 1;
    weft_pool_run(x->pool, weft_kernel__ceil(j.rows, j.grain), forward_task, &j);
    return WEFT_OK;
}
SCRATCH(rms_norm)
{
    return row_scratch(c, n_thread, weft_kernel__last(&c->in[0])) * sizeof(float);
}

/* ---- backward ---- */

static int n_part(int64_t rows, int64_t d)
{
    int64_t n = weft_kernel__ceil(rows, weft_kernel__grain(d, 8192));
    return (int)(n < 1 ? 1 : n > MAX_PART ? MAX_PART : n);
}

static void backward_task(void *arg, int64_t task, int thread)
{
    job                    *j  = arg;
    const weft_kernel_call *c  = j->c;
    const weft_view        *dy = &c->in[0], *x = &c->in[1], *dx = &c->out[0];
    const float            *mean = c->in[3].p, *rstd = c->in[j->rms ? 3 : 4].p;
    float                  *t  = j->tmp + 3 * j->d * thread;
    float                  *dw = j->part + task * 2 * j->d, *db = dw + j->d;
    int64_t i = j->rows * task / j->n_part, end = j->rows * (task + 1) / j->n_part;

    memset(dw, 0, sizeof(float) * 2 * (size_t)j->d);
    for (; i < end; i++) {
        int64_t      at = i * j->d;
        const float *pd = weft_kernel__read(dy->p, dy->dtype, at, 1, j->d, t);
        const float *px = weft_kernel__read(x->p, x->dtype, at, 1, j->d, t + j->d);
        float       *po = dx->p ? weft_kernel__room(dx->p, dx->dtype, at, 1,
                                                    weft_kernel__adds(c, 0), t + 2 * j->d)
                                : t + 2 * j->d;
        if (j->rms)
            j->f->rms_norm_grad(po, pd, px, j->w, j->d, rstd[i], dw);
        else
            j->f->layer_norm_grad(po, pd, px, j->w, j->d, mean[i], rstd[i], dw, db);
        if (dx->p)
            weft_kernel__write(dx->p, dx->dtype, at, 1, j->d, po,
                               weft_kernel__adds(c, 0));
    }
}

/* The shares of the parts, added in order. */
static void fold(const job *j, int out, int64_t offset)
{
    const weft_view *v   = &j->c->out[out];
    float           *sum = j->part + offset;
    if (!v->p) return;
    for (int p = 1; p < j->n_part; p++)
        j->f->map[MAP_ADD](sum, sum, j->part + p * 2 * j->d + offset, 0, j->d);
    weft_kernel__write(v->p, v->dtype, 0, 1, j->d, sum, weft_kernel__adds(j->c, out));
}

static void backward(const weft_kernel_call *c, const weft_kernel_ctx *x, int rms)
{
    float  *scratch = x->scratch;
    int64_t d       = weft_kernel__last(&c->in[0]);
    int     parts   = n_part(d ? weft_shape_count(&c->in[0].shape) / d : 0, d);
    job     j       = make(c, x, 2, -1, scratch + 2 * d * parts);
    j.n_part        = parts;
    j.part          = scratch;
    j.rms           = rms;
    weft_pool_run(x->pool, j.n_part, backward_task, &j);
    fold(&j, 1, 0);
    if (!rms) fold(&j, 2, d);
}

static size_t backward_scratch(const weft_kernel_call *c, int n_thread)
{
    int64_t d    = weft_kernel__last(&c->in[0]);
    int     part = n_part(d ? weft_shape_count(&c->in[0].shape) / d : 0, d);
    /* rows of temporaries also where dx is not kept */
    return sizeof(float) * (size_t)(2 * d * part + 2 * d + 3 * d * n_thread);
}

KERNEL(layer_norm_grad)
{
    backward(c, x, 0);
    return WEFT_OK;
}
SCRATCH(layer_norm_grad)
{
    return backward_scratch(c, n_thread);
}
KERNEL(rms_norm_grad)
{
    backward(c, x, 1);
    return WEFT_OK;
}
SCRATCH(rms_norm_grad)
{
    return backward_scratch(c, n_thread);
}
