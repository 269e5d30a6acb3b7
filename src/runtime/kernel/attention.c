/* Attention, forward: blockwise with a running softmax, never a matrix of all scores.
 *
 * K turned and V are first put into scratch, tile by tile: in memory a head's rows lie far apart,
 * at distances that share few sets of a cache.  Where there are many key heads a task is one of
 * them with all its queries, so that they stay in the thread's cache; else all are put there
 * first and a task is a tile of queries.  A tile of queries visits the tiles of keys it sees in
 * order; those on the diagonal in strips of STRIP queries, each as wide as it needs. */
#include <math.h>

#include "kernel/cpu_priv.h"
#include "kernel/heads.h"

enum {
    STRIP = 16,
    MANY  = 32
};

typedef struct job {
    weft_kernel__heads       a;
    const weft_kernel__tile *f;
    const weft_view         *o, *lse;
    float                   *kt; /* b g (t/TILE) ep TILE, where they are not a thread's */
    float                   *v;  /* b g tp fp */
    const weft_pool         *pool;
    float                   *room; /* of each thread */
    int64_t                  per_thread;
} job;

static bool many(const weft_kernel__heads *a)
{
    return a->b * a->g >= MANY;
}

static void pack(const weft_kernel__heads *a, int64_t bg, int64_t t0, float *kt, float *v)
{
    int64_t n = a->t - t0 < WEFT_TILE ? a->t - t0 : WEFT_TILE;
    weft_kernel__heads_turned(a->k, bg / a->g, bg % a->g, t0, n, kt + t0 * a->ep);
    weft_kernel__heads_rows(a->v, bg / a->g, bg % a->g, t0, n, 1.0f, v + t0 * a->fp,
                            a->fp);
}

static void pack_task(void *arg, int64_t task, int thread)
{
    job    *j      = arg;
    int64_t n_tile = j->a.tp / WEFT_TILE, bg = task / n_tile;
    (void)thread;
    pack(&j->a, bg, task % n_tile * WEFT_TILE, j->kt + bg * j->a.tp * j->a.ep,
         j->v + bg * j->a.tp * j->a.fp);
}

typedef struct tile {
    int64_t              b, h, i0, m; /* queries [i0, i0 + m) of head h */
    const float         *kt, *v;      /* of its key head */
    float               *q, *s, *o;   /* TILE x ep, TILE x TILE, TILE x fp */
    weft_kernel__softmax w;
} tile;

static void keys(job *j, tile *t, int64_t j0)
{
    weft_kernel__heads *a = &j->a;
    /* in one go where every query sees the whole tile */
    int64_t step = weft_kernel__heads_width(a, t->i0 + 1, j0) == WEFT_TILE ? t->m : STRIP;
    for (int64_t r = 0; r < t->m; r += step) {
        int64_t m = t->m - r < step ? t->m - r : step;
        int64_t n = weft_kernel__heads_width(a, t->i0 + r + m, j0);
        int64_t k = a->t - j0 < n ? a->t - j0 : n;
        float  *s = t->s + r * WEFT_TILE, *o = t->o + r * a->fp;
        if (n == 0) continue;
        j->f->mm(m, n, a->e, t->q + r * a->ep, a->ep, 1, t->kt + j0 * a->ep, WEFT_TILE, s,
                 WEFT_TILE, 0);
        weft_kernel__heads_mask(a, t->h, t->i0 + r, m, j0, n, s, WEFT_TILE);
        j->f->soften(&t->w, t->s, WEFT_TILE, r, r + m, n);
        j->f->scale_rows(o, a->fp, t->w.fix + r, m, a->fp);
        j->f->mm(m, a->fp, k, s, WEFT_TILE, 1, t->v + j0 * a->fp, a->fp, o, a->fp, 1);
    }
}

static void finish(job *j, tile *t)
{
    weft_kernel__heads *a  = &j->a;
    const int64_t      *st = j->lse->stride;
    for (int64_t r = 0; r < t->m; r++) {
        float  sum = weft_kernel__fold_lanes(t->w.sum[r]);
        bool   any = t->w.max[r] != -INFINITY;
        float *lse = j->lse->p;
        if (lse)
            lse[t->b * st[0] + (t->i0 + r) * st[1] + t->h * st[2]] =
                any ? t->w.max[r] + logf(sum) : -INFINITY;
        t->w.fix[r] = any ? 1.0f / sum : 0.0f;
    }
    j->f->scale_rows(t->o, a->fp, t->w.fix, t->m, a->fp);
    weft_kernel__heads_put(j->o, t->b, t->h, t->i0, t->m, 1.0f, t->o, a->fp, 0);
}

static void queries(job *j, int64_t b, int64_t h, int64_t i0, const float *kt,
                    const float *v, float *room)
{
    weft_kernel__heads *a = &j->a;
    tile                t = {.b = b, .h = h, .i0 = i0, .kt = kt, .v = v, .q = room};
    int64_t             lo, hi;

    t.m = a->s - i0 < WEFT_TILE ? a->s - i0 : WEFT_TILE;
    t.s = t.q + WEFT_TILE * a->ep;
    t.o = t.s + WEFT_TILE * WEFT_TILE;
    memset(t.o, 0, sizeof(float) * (size_t)(WEFT_TILE * a->fp));
    for (int r = 0; r < WEFT_TILE; r++) t.w.max[r] = -INFINITY;
    weft_kernel__heads_rows(a->q, b, h, i0, t.m, a->scale, t.q, a->ep);
    weft_kernel__heads_keys(a, i0, i0 + t.m, &lo, &hi);
    for (int64_t j0 = lo / WEFT_TILE * WEFT_TILE; j0 < hi; j0 += WEFT_TILE)
        keys(j, &t, j0);
    finish(j, &t);
}

/* Floats of a thread: the tiles of queries, then perhaps one head's keys. */
static int64_t tile_room(const weft_kernel__heads *a)
{
    return WEFT_TILE * (a->ep + WEFT_TILE + a->fp);
}

static void query_task(void *arg, int64_t task, int thread)
{
    job                *j      = arg;
    weft_kernel__heads *a      = &j->a;
    int64_t             n_tile = a->sp / WEFT_TILE, bh = task / n_tile;
    int64_t b = bh / a->h, h = bh % a->h, at = (b * a->g + h / (a->h / a->g)) * a->tp;
    /* late queries see most keys: largest first */
    queries(j, b, h, (n_tile - 1 - task % n_tile) * WEFT_TILE, j->kt + at * a->ep,
            j->v + at * a->fp, j->room + thread * j->per_thread);
}

static void group_task(void *arg, int64_t bg, int thread)
{
    job                *j    = arg;
    weft_kernel__heads *a    = &j->a;
    float              *room = j->room + thread * j->per_thread;
    float              *kt = room + tile_room(a), *v = kt + a->tp * a->ep;
    int64_t             r = a->h / a->g, g = bg % a->g;
    for (int64_t t0 = 0; t0 < a->t; t0 += WEFT_TILE) pack(a, bg, t0, kt, v);
    for (int64_t h = g * r; h < (g + 1) * r; h++)
        for (int64_t i0 = 0; i0 < a->s && !weft_pool_is_stopped(j->pool); i0 += WEFT_TILE)
            queries(j, bg / a->g, h, i0, kt, v, room);
}

static int64_t layout(const weft_kernel__heads *a, job *j, int n_thread, float *scratch)
{
    int64_t kt = a->tp * a->ep, v = a->tp * a->fp, per = tile_room(a);
    int64_t shared = many(a) ? 0 : a->b * a->g;
    if (many(a)) per += kt + v;
    if (j) {
        j->kt         = scratch;
        j->v          = scratch + shared * kt;
        j->room       = scratch + shared * (kt + v);
        j->per_thread = per;
    }
    return shared * (kt + v) + per * n_thread;
}

/* ---- two sets of keys as one ---- */

typedef struct merge {
    const weft_kernel_call  *c;
    const weft_kernel__rows *f;
    int64_t                  rows, e, grain;
} merge;

static void merge_row(const merge *m, int64_t r)
{
    const weft_view *in = m->c->in, *o = &m->c->out[0], *l = &m->c->out[1];
    float            ta[WEFT_KERNEL__PIECE], tb[WEFT_KERNEL__PIECE], w[2];
    float            a = ((const float *)in[1].p)[r], b = ((const float *)in[3].p)[r];
    float            max = a > b ? a : b, lse = -INFINITY;
    if (max > -INFINITY) lse = max + logf(expf(a - max) + expf(b - max));
    w[0] = max > -INFINITY ? expf(a - lse) : 0.0f;
    w[1] = max > -INFINITY ? expf(b - lse) : 0.0f;
    if (l->p) ((float *)l->p)[r] = lse;
    for (int64_t k = 0; k < m->e && o->p; k += WEFT_KERNEL__PIECE) {
        int64_t      n  = m->e - k < WEFT_KERNEL__PIECE ? m->e - k : WEFT_KERNEL__PIECE;
        int64_t      at = r * m->e + k;
        const float *x  = weft_kernel__read(in[0].p, in[0].dtype, at, 1, n, ta);
        const float *y  = weft_kernel__read(in[2].p, in[2].dtype, at, 1, n, tb);
        m->f->map[MAP_SCALE](ta, x, x, w[0], n);
        m->f->map[MAP_AXPY](ta, ta, y, w[1], n);
        weft_kernel__write(o->p, o->dtype, at, 1, n, ta, 0);
    }
}

static void merge_task(void *arg, int64_t task, int thread)
{
    const merge *m   = arg;
    int64_t      end = (task + 1) * m->grain;
    (void)thread;
    for (int64_t r = task * m->grain; r < end && r < m->rows; r++) merge_row(m, r);
}

KERNEL(attention_merge)
{
    merge m = {.c = c, .f = weft_kernel__rows_now(), .e = c->in[0].shape.d[3]};
    m.rows  = weft_shape_count(&c->in[1].shape);
    m.grain = weft_kernel__grain(m.e, 16384);
    weft_pool_run(x->pool, weft_kernel__ceil(m.rows, m.grain), merge_task, &m);
    return WEFT_OK;
}

KERNEL(attention)
{
    job j  = {.a = weft_kernel__heads_make(c, 0, 3), .f = weft_kernel__tile_now()};
    j.pool = x->pool;
    j.o    = &c->out[0];
    j.lse  = &c->out[1];
    layout(&j.a, &j, 1, x->scratch);
    if (many(&j.a)) {
        weft_pool_run(x->pool, j.a.b * j.a.g, group_task, &j);
        return WEFT_OK;
    }
    weft_pool_run(x->pool, j.a.b * j.a.g * (j.a.tp / WEFT_TILE), pack_task, &j);
    weft_pool_run(x->pool, j.a.b * j.a.h * (j.a.sp / WEFT_TILE), query_task, &j);
    return WEFT_OK;
}
SCRATCH(attention)
{
    weft_kernel__heads a = weft_kernel__heads_make(c, 0, 3);
    return sizeof(float) * (size_t)layout(&a, NULL, n_thread, NULL);
}
