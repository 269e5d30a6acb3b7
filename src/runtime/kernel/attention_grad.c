/* Attention, backward: scores are computed again from q, k and lse, tile by tile.
 *
 * A task is one key head of one sample with all its query heads (of all samples where there is a
 * bias, whose gradient sums over them), so every sum has one owner and one order: query heads,
 * then tiles of keys, then tiles of queries.
 *     p = e^(scale q.k + bias - lse), ds = p (do.v - do.o)
 *     dv += p^T do    dk += ds^T (scale q)    dq += ds k, times scale at the end */
#include <math.h>

#include "kernel/cpu_priv.h"
#include "kernel/heads.h"

enum {
    STRIP = 16
};

typedef struct job {
    weft_kernel__heads       a;
    const weft_kernel_call  *c;
    const weft_kernel__tile *f;
    const weft_view         *dy, *o, *lse, *dq, *dk, *dv, *dbias;
    const weft_pool         *pool;
    float                   *room;
    int64_t                  per_thread;
} job;

/* A thread's room. */
typedef struct head {
    int64_t b, h, g;
    float  *kt, *vt;   /* (t/TILE) ep TILE, fp TILE */
    float  *k;         /* tp x ep */
    float  *dk, *dv;   /* tp x ep, tp x fp */
    float  *q, *dq;    /* sp x ep; q scaled */
    float  *dy;        /* sp x fp */
    float  *lse, *own; /* sp; own = do.o */
    float  *p, *ds;    /* TILE x TILE */
} head;

static int64_t layout(const weft_kernel__heads *a, head *w, float *at)
{
    int64_t size[] = {a->tp * a->ep, a->tp * a->fp,         a->tp * a->ep,
                      a->tp * a->ep, a->tp * a->fp,         a->sp * a->ep,
                      a->sp * a->ep, a->sp * a->fp,         a->sp,
                      a->sp,         WEFT_TILE * WEFT_TILE, WEFT_TILE * WEFT_TILE};
    float **to[]   = {&w->kt, &w->vt, &w->k,   &w->dk,  &w->dv, &w->q,
                      &w->dq, &w->dy, &w->lse, &w->own, &w->p,  &w->ds};
    int64_t sum    = 0;
    for (size_t i = 0; i < WEFT_COUNT(size); i++) {
        if (at) *to[i] = at + sum;
        sum += weft_kernel__pad(size[i], WEFT_TILE_LANES);
    }
    return sum;
}

static void load_keys(const weft_kernel__heads *a, head *w)
{
    for (int64_t t0 = 0; t0 < a->t; t0 += WEFT_TILE) {
        int64_t n = a->t - t0 < WEFT_TILE ? a->t - t0 : WEFT_TILE;
        weft_kernel__heads_turned(a->k, w->b, w->g, t0, n, w->kt + t0 * a->ep);
        weft_kernel__heads_turned(a->v, w->b, w->g, t0, n, w->vt + t0 * a->fp);
    }
    weft_kernel__heads_rows(a->k, w->b, w->g, 0, a->t, 1.0f, w->k, a->ep);
    memset(w->dk, 0, sizeof(float) * (size_t)(a->tp * a->ep));
    memset(w->dv, 0, sizeof(float) * (size_t)(a->tp * a->fp));
}

static void load_queries(const job *j, head *w)
{
    const weft_kernel__heads *a = &j->a;
    const weft_kernel__rows  *f = weft_kernel__rows_now();
    const weft_view          *o = j->o, *l = j->lse;

    weft_kernel__heads_rows(a->q, w->b, w->h, 0, a->s, a->scale, w->q, a->ep);
    weft_kernel__heads_rows(j->dy, w->b, w->h, 0, a->s, 1.0f, w->dy, a->fp);
    memset(w->dq, 0, sizeof(float) * (size_t)(a->sp * a->ep));
    for (int64_t i = 0; i < a->s; i++) {
        /* dq is zero and not yet in use, but ds lies free as a row of o */
        int64_t at = w->b * o->stride[0] + i * o->stride[1] + w->h * o->stride[2];
        float   lse, own = 0.0f;
        for (int64_t k = 0; k < a->f; k += WEFT_TILE) {
            int64_t      n = a->f - k < WEFT_TILE ? a->f - k : WEFT_TILE;
            const float *x = weft_kernel__read(o->p, o->dtype, at + k * o->stride[3],
                                               o->stride[3], n, w->ds);
            own += f->dot(w->dy + i * a->fp + k, x, n);
        }
        lse = ((const float *)
                   l->p)[w->b * l->stride[0] + i * l->stride[1] + w->h * l->stride[2]];
        w->lse[i] =
            lse == -INFINITY ? 0.0f : lse; /* saw nothing: all its scores are -inf */
        w->own[i] = own;
    }
}

static void keep_bias(const job *j, const head *w, int64_t i0, int64_t m, int64_t j0,
                      int64_t n)
{
    const weft_view *d = j->dbias;
    if (!d || !d->p) return;
    if (j->a.t - j0 < n) n = j->a.t - j0;
    for (int64_t r = 0; r < m && n > 0; r++)
        weft_kernel__write(d->p, d->dtype,
                           w->h * d->stride[0] + (i0 + r) * d->stride[1] +
                               j0 * d->stride[2],
                           d->stride[2], n, w->ds + r * WEFT_TILE, 1);
}

/* One tile of queries against one tile of keys. */
static void pair(const job *j, head *w, int64_t i0, int64_t j0)
{
    const weft_kernel__heads *a = &j->a;
    const weft_kernel__tile  *f = j->f;
    int64_t m = a->s - i0 < WEFT_TILE ? a->s - i0 : WEFT_TILE, n_all = 0;
    int     whole = weft_kernel__heads_width(a, i0 + 1, j0) == WEFT_TILE;
    int64_t step  = whole ? m : STRIP;
    int64_t from[WEFT_TILE / STRIP]; /* first query that the key strip meets */

    for (int k = 0; k < WEFT_TILE / STRIP; k++) from[k] = m;
    for (int64_t r = 0; r < m; r += step) {
        int64_t rows = m - r < step ? m - r : step;
        int64_t n    = weft_kernel__heads_width(a, i0 + r + rows, j0);
        int64_t keys = a->t - j0 < n ? a->t - j0 : n;
        float  *p = w->p + r * WEFT_TILE, *ds = w->ds + r * WEFT_TILE;
        if (n == 0) continue;
        if (n > n_all) n_all = n;
        for (int64_t k = 0; k < n / STRIP; k++)
            if (from[k] > r) from[k] = r;
        f->mm(rows, n, a->e, w->q + (i0 + r) * a->ep, a->ep, 1, w->kt + j0 * a->ep,
              WEFT_TILE, p, WEFT_TILE, 0);
        weft_kernel__heads_mask(a, w->h, i0 + r, rows, j0, n, p, WEFT_TILE);
        f->exp_rows(w->p, WEFT_TILE, w->lse + i0, r, r + rows, n);
        f->mm(rows, n, a->f, w->dy + (i0 + r) * a->fp, a->fp, 1, w->vt + j0 * a->fp,
              WEFT_TILE, ds, WEFT_TILE, 0);
        f->ds_rows(w->ds, w->p, WEFT_TILE, w->own + i0, r, r + rows, n);
        f->mm(rows, a->ep, keys, ds, WEFT_TILE, 1, w->k + j0 * a->ep, a->ep,
              w->dq + (i0 + r) * a->ep, a->ep, 1);
        if (j->dbias) {
            head strip = *w;
            strip.ds   = ds;
            keep_bias(j, &strip, i0 + r, rows, j0, n);
        }
    }
    int64_t wide = whole ? n_all : STRIP;
    for (int64_t k = 0; k < n_all; k += wide) {
        int64_t r = from[k / STRIP], rows = m - r;
        f->mm(wide, a->fp, rows, w->p + r * WEFT_TILE + k, 1, WEFT_TILE,
              w->dy + (i0 + r) * a->fp, a->fp, w->dv + (j0 + k) * a->fp, a->fp, 1);
        f->mm(wide, a->ep, rows, w->ds + r * WEFT_TILE + k, 1, WEFT_TILE,
              w->q + (i0 + r) * a->ep, a->ep, w->dk + (j0 + k) * a->ep, a->ep, 1);
    }
}

static void one_head(const job *j, head *w)
{
    const weft_kernel__heads *a = &j->a;
    int64_t                   r = a->h / a->g;
    load_keys(a, w);
    for (w->h = w->g * r; w->h < (w->g + 1) * r; w->h++) {
        load_queries(j, w);
        for (int64_t j0 = 0; j0 < a->t; j0 += WEFT_TILE)
            for (int64_t i0 = 0; i0 < a->s && !weft_pool_is_stopped(j->pool);
                 i0 += WEFT_TILE) {
                int64_t lo, hi, i1 = i0 + WEFT_TILE < a->s ? i0 + WEFT_TILE : a->s;
                weft_kernel__heads_keys(a, i0, i1, &lo, &hi);
                if (j0 < hi && j0 + WEFT_TILE > lo) pair(j, w, i0, j0);
            }
        weft_kernel__heads_put(j->dq, w->b, w->h, 0, a->s, a->scale, w->dq, a->ep,
                               weft_kernel__adds(j->c, 0));
    }
    weft_kernel__heads_put(j->dk, w->b, w->g, 0, a->t, 1.0f, w->dk, a->ep,
                           weft_kernel__adds(j->c, 1));
    weft_kernel__heads_put(j->dv, w->b, w->g, 0, a->t, 1.0f, w->dv, a->fp,
                           weft_kernel__adds(j->c, 2));
}

static void task_fn(void *arg, int64_t task, int thread)
{
    job                *j = arg;
    weft_kernel__heads *a = &j->a;
    head                w;
    layout(a, &w, j->room + thread * j->per_thread);
    if (!j->dbias) {
        w.b = task / a->g;
        w.g = task % a->g;
        one_head(j, &w);
        return;
    }
    w.g = task;
    for (w.b = 0; w.b < a->b; w.b++) one_head(j, &w);
}

KERNEL(attention_grad)
{
    job j = {.a = weft_kernel__heads_make(c, 1, 6), .c = c, .f = weft_kernel__tile_now()};
    head w;
    j.dy = &c->in[0], j.o = &c->in[4], j.lse = &c->in[5];
    j.dq = &c->out[0], j.dk = &c->out[1], j.dv = &c->out[2];
    j.dbias      = c->n_own_out > 3 && c->out[3].p ? &c->out[3] : NULL;
    j.pool       = x->pool;
    j.room       = x->scratch;
    j.per_thread = layout(&j.a, &w, NULL);
    if (j.dbias && !weft_kernel__adds(c, 3)) {
        int64_t   zero = 0;
        weft_view z    = *j.dbias;
        z.p            = &zero;
        for (int d = 0; d < 3; d++) z.stride[d] = 0;
        WEFT_TRY(weft_kernel__copy(j.dbias, &z, 0, x->pool));
    }
    weft_pool_run(x->pool, j.dbias ? j.a.g : j.a.b * j.a.g, task_fn, &j);
    return WEFT_OK;
}
SCRATCH(attention_grad)
{
    weft_kernel__heads a = weft_kernel__heads_make(c, 1, 6);
    head               w;
    return sizeof(float) * (size_t)(layout(&a, &w, NULL) * n_thread);
}
