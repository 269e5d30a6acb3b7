/* Pooling: windows of planes, forward and backward.  A task is one plane. */
#include <math.h>

#include "kernel/cpu_priv.h"
#include "kernel/rows.h"

typedef struct job {
    const weft_view *x, *y, *idx; /* image, windows, winners */
    int64_t          h, w, oh, ow, kh, kw, sh, sw, ph, pw;
} job;

static job make(const weft_kernel_call *c, const weft_view *x, const weft_view *y,
                bool window)
{
    job j = {.x = x, .y = y};
    j.h = x->shape.d[2], j.w = x->shape.d[3], j.oh = y->shape.d[2], j.ow = y->shape.d[3];
    if (window) {
        const weft_attr *k = weft_kernel__attr(c, "kernel"),
                        *s = weft_kernel__attr(c, "stride");
        const weft_attr *p = weft_kernel__attr(c, "pad");
        j.kh = k->l[0], j.kw = k->l[1], j.sh = s->l[0], j.sw = s->l[1];
        j.ph = p->l[0], j.pw = p->l[1];
    }
    return j;
}

/* The part of a window that lies in the image. */
typedef struct box {
    int64_t y0, y1, x0, x1;
} box;
static box window(const job *j, int64_t oy, int64_t ox)
{
    box b = {oy * j->sh - j->ph, 0, ox * j->sw - j->pw, 0};
    b.y1  = b.y0 + j->kh < j->h ? b.y0 + j->kh : j->h;
    b.x1  = b.x0 + j->kw < j->w ? b.x0 + j->kw : j->w;
    if (b.y0 < 0) b.y0 = 0;
    if (b.x0 < 0) b.x0 = 0;
    return b;
}

static void max_task(void *arg, int64_t plane, int thread)
{
    const job *j = arg;
    (void)thread;
    for (int64_t o = 0; o < j->oh * j->ow; o++) {
        box     b    = window(j, o / j->ow, o % j->ow);
        float   best = -INFINITY;
        int64_t from = -1, to = plane * j->oh * j->ow + o;
        for (int64_t y = b.y0; y < b.y1; y++)
            for (int64_t x = b.x0; x < b.x1; x++) {
                float v = weft_kernel__get(j->x, plane * j->h * j->w + y * j->w + x);
                if (v > best) best = v, from = y * j->w + x;
            }
        weft_kernel__put(j->y, to, best);
        if (j->idx->p) ((int32_t *)j->idx->p)[to] = (int32_t)from;
    }
}

KERNEL(max_pool)
{
    job j = make(c, &c->in[0], &c->out[0], true);
    j.idx = &c->out[1];
    weft_pool_run(x->pool, c->in[0].shape.d[0] * c->in[0].shape.d[1], max_task, &j);
    return WEFT_OK;
}

static void zero_plane(const job *j, int64_t plane)
{
    int64_t n = j->h * j->w;
    memset(weft_kernel__ptr(j->x->p, j->x->dtype, plane * n), 0,
           (size_t)(n * weft_dtype_bytes(j->x->dtype)));
}

static void max_grad_task(void *arg, int64_t plane, int thread)
{
    const job *j = arg;
    (void)thread;
    zero_plane(j, plane);
    for (int64_t o = plane * j->oh * j->ow; o < (plane + 1) * j->oh * j->ow; o++) {
        int64_t from = weft_kernel__id(j->idx->p, j->idx->dtype, o),
                to   = plane * j->h * j->w + from;
        if (from >= 0 && from < j->h * j->w)
            weft_kernel__put(j->x, to,
                             weft_kernel__get(j->x, to) + weft_kernel__get(j->y, o));
    }
}

KERNEL(max_pool_grad)
{
    job j = make(c, &c->out[0], &c->in[0], false);
    j.idx = &c->in[1];
    weft_pool_run(x->pool, c->in[0].shape.d[0] * c->in[0].shape.d[1], max_grad_task, &j);
    return WEFT_OK;
}

static void avg_task(void *arg, int64_t plane, int thread)
{
    const job *j     = arg;
    float      share = 1.0f / (float)(j->kh * j->kw);
    (void)thread;
    for (int64_t o = 0; o < j->oh * j->ow; o++) {
        box   b   = window(j, o / j->ow, o % j->ow);
        float sum = 0.0f;
        for (int64_t y = b.y0; y < b.y1; y++)
            for (int64_t x = b.x0; x < b.x1; x++)
                sum += weft_kernel__get(j->x, plane * j->h * j->w + y * j->w + x);
        weft_kernel__put(j->y, plane * j->oh * j->ow + o, sum * share);
    }
}

KERNEL(avg_pool)
{
    job j = make(c, &c->in[0], &c->out[0], true);
    weft_pool_run(x->pool, c->in[0].shape.d[0] * c->in[0].shape.d[1], avg_task, &j);
    return WEFT_OK;
}

/* Each place of the image sums the windows that cover it, in order. */
static void avg_grad_task(void *arg, int64_t plane, int thread)
{
    const job *j     = arg;
    float      share = 1.0f / (float)(j->kh * j->kw);
    (void)thread;
    for (int64_t y = 0; y < j->h; y++)
        for (int64_t x = 0; x < j->w; x++) {
            int64_t oy  = (y + j->ph - j->kh + j->sh) / j->sh,
                    ox0 = (x + j->pw - j->kw + j->sw) / j->sw;
            float sum   = 0.0f;
            if (y + j->ph < j->kh) oy = 0;
            if (x + j->pw < j->kw) ox0 = 0;
            for (; oy < j->oh && oy * j->sh <= y + j->ph; oy++)
                for (int64_t ox = ox0; ox < j->ow && ox * j->sw <= x + j->pw; ox++)
                    sum += weft_kernel__get(j->y, (plane * j->oh + oy) * j->ow + ox);
            weft_kernel__put(j->x, (plane * j->h + y) * j->w + x, sum * share);
        }
}

KERNEL(avg_pool_grad)
{
    job j = make(c, &c->out[0], &c->in[0], true);
    weft_pool_run(x->pool, c->in[0].shape.d[0] * c->in[0].shape.d[1], avg_grad_task, &j);
    return WEFT_OK;
}
