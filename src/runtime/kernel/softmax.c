/* Softmax over the last dimension, forward and backward; rows of any length in pieces. */
#include <math.h>

#include "kernel/cpu_priv.h"
#include "kernel/rows.h"

enum {
    TASK = 32768
};

typedef struct job {
    const weft_view         *a, *b, *y; /* x or dy; y of backward; result */
    const weft_kernel__rows *f;
    int64_t                  rows, d, grain;
} job;

#define EACH_PIECE(d) for (int64_t k = 0, n; n = piece(d, k), k < (d); k += n)

static int64_t piece(int64_t d, int64_t k)
{
    return d - k < WEFT_KERNEL__PIECE ? d - k : WEFT_KERNEL__PIECE;
}

static void forward_row(const job *j, int64_t at)
{
    float ta[WEFT_KERNEL__PIECE], ty[WEFT_KERNEL__PIECE], m = -INFINITY, sum = 0.0f;
    const float *x;
    EACH_PIECE(j->d)
    {
        x = weft_kernel__read(j->a->p, j->a->dtype, at + k, 1, n, ta);
        m = j->f->max(x, n, m);
    }
    if (m == -INFINITY) m = 0.0f;
    EACH_PIECE(j->d)
    {
        x = weft_kernel__read(j->a->p, j->a->dtype, at + k, 1, n, ta);
        sum += j->f->exp_sum(NULL, x, n, m);
    }
    EACH_PIECE(j->d)
    {
        x        = weft_kernel__read(j->a->p, j->a->dtype, at + k, 1, n, ta);
        float *y = weft_kernel__room(j->y->p, j->y->dtype, at + k, 1, 0, ty);
        j->f->exp_scale(y, x, n, m, sum > 0.0f ? 1.0f / sum : 0.0f);
        weft_kernel__write(j->y->p, j->y->dtype, at + k, 1, n, y, 0);
    }
}

static void backward_row(const job *j, int64_t at)
{
    float        ta[WEFT_KERNEL__PIECE], tb[WEFT_KERNEL__PIECE], ty[WEFT_KERNEL__PIECE];
    float        dot = 0.0f;
    const float *dy, *y;
    EACH_PIECE(j->d)
    {
        dy = weft_kernel__read(j->a->p, j->a->dtype, at + k, 1, n, ta);
        y  = weft_kernel__read(j->b->p, j->b->dtype, at + k, 1, n, tb);
        dot += j->f->dot(dy, y, n);
    }
    EACH_PIECE(j->d)
    {
        dy        = weft_kernel__read(j->a->p, j->a->dtype, at + k, 1, n, ta);
        y         = weft_kernel__read(j->b->p, j->b->dtype, at + k, 1, n, tb);
        float *dx = weft_kernel__room(j->y->p, j->y->dtype, at + k, 1, 0, ty);
        j->f->softmax_grad(dx, dy, y, n, dot);
        weft_kernel__write(j->y->p, j->y->dtype, at + k, 1, n, dx, 0);
    }
}

static void task_fn(void *arg, int64_t task, int thread)
{
    const job *j   = arg;
    int64_t    end = (task + 1) * j->grain;
    (void)thread;
    for (int64_t i = task * j->grain; i < end && i < j->rows; i++)
        if (j->b)
            backward_row(j, i * j->d);
        else
            forward_row(j, i * j->d);
}

static weft_status run(const weft_view *a, const weft_view *b, const weft_view *y,
                       weft_pool *pool)
{
    job j = {
        .a = a, .b = b, .y = y, .f = weft_kernel__rows_now(), .d = weft_kernel__last(a)};
    if (j.d == 0) return WEFT_OK;
    j.rows  = weft_shape_count(&a->shape) / j.d;
    j.grain = weft_kernel__grain(j.d, TASK);
    weft_pool_run(pool, weft_kernel__ceil(j.rows, j.grain), task_fn, &j);
    return WEFT_OK;
}

KERNEL(softmax)
{
    return run(&c->in[0], NULL, &c->out[0], x->pool);
}
KERNEL(softmax_grad)
{
    return run(&c->in[0], &c->in[1], &c->out[0], x->pool);
}
