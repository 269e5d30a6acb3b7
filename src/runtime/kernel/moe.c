/* Experts: which ones a token goes to, its rows sorted by expert, and the way back. */
#include <math.h>

#include "kernel/cpu_priv.h"
#include "kernel/rows.h"

enum {
    TASK       = 16384,
    MAX_CHOSEN = 64
};

/* ---- routing ---- */

typedef struct route {
    const weft_kernel_call *c;
    int64_t                 rows, n, k, grain;
    bool                    norm;
    const weft_view        *bias; /* NULL: none */
} route;

static void put(const weft_view *v, int64_t i, double x)
{
    if (v->p) weft_kernel__put(v, i, (float)x);
}

static double row_lse(const weft_view *v, int64_t row, int64_t n)
{
    double max = -INFINITY, sum = 0.0;
    for (int64_t e = 0; e < n; e++)
        max = fmax(max, (double)weft_kernel__get(v, row * n + e));
    for (int64_t e = 0; e < n; e++)
        sum += exp((double)weft_kernel__get(v, row * n + e) - max);
    return max + log(sum);
}

/* What decides a choice: the logit, or its probability with a bias. */
static double score_expert(const route *r, int64_t row, int64_t e, double lse)
{
    double l = (double)weft_kernel__get(&r->c->in[0], row * r->n + e);
    return r->bias ? exp(l - lse) + (double)weft_kernel__get(r->bias, e) : l;
}

/* The k largest, the lower number first among equals. */
static void choose(const route *r, int64_t row, double lse, int32_t *chosen)
{
    int64_t n = r->n, k = r->k;
    for (int64_t s = 0; s < k; s++) {
        int32_t best = -1;
        for (int32_t e = 0; e < n; e++) {
            bool taken = false;
            for (int64_t q = 0; q < s; q++) taken = taken || chosen[q] == e;
            if (!taken && (best < 0 || score_expert(r, row, e, lse) >
                                           score_expert(r, row, best, lse)))
                best = e;
        }
        chosen[s] = best;
    }
}

static void route_task(void *arg, int64_t task, int thread)
{
    const route     *r = arg;
    const weft_view *l = &r->c->in[0], *w = &r->c->out[0], *idx = &r->c->out[1];
    int32_t          chosen[MAX_CHOSEN];
    double           p[MAX_CHOSEN];
    (void)thread;
    for (int64_t i = task * r->grain; i < (task + 1) * r->grain && i < r->rows; i++) {
        double lse = row_lse(l, i, r->n), sum = 0.0;
        choose(r, i, lse, chosen);
        for (int64_t s = 0; s < r->k; s++) {
            p[s] = exp((double)weft_kernel__get(l, i * r->n + chosen[s]) - lse);
            sum += p[s];
            if (idx->p) ((int32_t *)idx->p)[i * r->k + s] = chosen[s];
        }
        for (int64_t s = 0; s < r->k; s++)
            put(w, i * r->k + s, r->norm ? p[s] / sum : p[s]);
    }
}

static weft_status route_make(const weft_kernel_call *c, int64_t k, route *r)
{
    int64_t n = weft_kernel__last(&c->in[0]);
    *r = (route){.c = c, .n = n, .k = k, .norm = weft_kernel__attr(c, "norm")->i != 0};
    r->rows  = weft_shape_count(&c->in[0].shape) / n;
    r->grain = weft_kernel__grain(n * k, 4096);
    if (k > MAX_CHOSEN)
        return WEFT_FAIL(WEFT_ERR_ARG, "route: k = %ld is above %d", (long)k, MAX_CHOSEN);
    return WEFT_OK;
}

KERNEL(route)
{
    route r;
    WEFT_TRY(route_make(c, weft_kernel__attr(c, "k")->i, &r));
    if (c->n_own_in > 1) r.bias = &c->in[1];
    weft_pool_run(x->pool, weft_kernel__ceil(r.rows, r.grain), route_task, &r);
    return WEFT_OK;
}

/* norm: dl_s = w_s (dw_s - sum w dw) for the chosen; else through the softmax over all */
static void route_grad_task(void *arg, int64_t task, int thread)
{
    const route     *r = arg;
    const weft_view *l = &r->c->in[0], *w = &r->c->in[1], *idx = &r->c->in[2],
                    *dw = &r->c->in[3];
    const weft_view *dl = &r->c->out[0];
    (void)thread;
    for (int64_t i = task * r->grain; i < (task + 1) * r->grain && i < r->rows; i++) {
        double lse = r->norm ? 0.0 : row_lse(l, i, r->n), sum = 0.0;
        for (int64_t s = i * r->k; s < (i + 1) * r->k; s++)
            sum += (double)weft_kernel__get(w, s) * (double)weft_kernel__get(dw, s);
        for (int64_t e = 0; e < r->n; e++)
            put(dl, i * r->n + e,
                r->norm ? 0.0
                        : -exp((double)weft_kernel__get(l, i * r->n + e) - lse) * sum);
        for (int64_t s = i * r->k; s < (i + 1) * r->k; s++) {
            int64_t e   = i * r->n + weft_kernel__id(idx->p, idx->dtype, s);
            double  own = (double)weft_kernel__get(w, s) *
                         ((double)weft_kernel__get(dw, s) - (r->norm ? sum : 0.0));
            if (!r->norm) own -= exp((double)weft_kernel__get(l, e) - lse) * sum;
            put(dl, e, own);
        }
    }
}

KERNEL(route_grad)
{
    route r;
    WEFT_TRY(route_make(c, weft_kernel__last(&c->in[1]), &r));
    weft_pool_run(x->pool, weft_kernel__ceil(r.rows, r.grain), route_grad_task, &r);
    return WEFT_OK;
}

/* ---- rows by expert ---- */

typedef struct job {
    const weft_view *rows, *w, *y, *dw; /* sorted rows; weights; tokens' rows */
    const weft_view *from;              /* combine_grad: the rows of the forward pass */
    const int32_t   *src, *inv;         /* row -> token * k + slot and back, -1 none */
    int64_t          r, n, k, d, grain;
} job;

static void dispatch_task(void *arg, int64_t task, int thread)
{
    const job *j     = arg;
    size_t     bytes = (size_t)(j->d * weft_dtype_bytes(j->y->dtype));
    (void)thread;
    for (int64_t i = task * j->grain; i < (task + 1) * j->grain && i < j->r; i++) {
        void *to = weft_kernel__ptr(j->rows->p, j->rows->dtype, i * j->d);
        if (j->src[i] < 0)
            memset(to, 0, bytes);
        else
            memcpy(to, weft_kernel__ptr(j->y->p, j->y->dtype, j->src[i] / j->k * j->d),
                   bytes);
    }
}

KERNEL(dispatch)
{
    const weft_view *idx = &c->in[1];
    int64_t          n = weft_kernel__attr(c, "experts")->i, *next = x->scratch, sum = 0;
    int64_t          first = weft_kernel__attr(c, "first_expert")->i,
            end            = first + weft_kernel__attr(c, "own")->i;
    job j                  = {.y = &c->in[0], .rows = &c->out[0]};
    j.d                    = c->in[0].shape.d[1];
    j.k                    = idx->shape.d[1];
    j.r                    = idx->shape.d[0] * j.k;
    int32_t *src           = c->out[2].p ? c->out[2].p : (void *)(next + n + 1);
    int32_t *offsets       = c->out[1].p;

    if (end < first) first = 0, end = n; /* all of them */
    if (first < 0 || end > n)
        return WEFT_FAIL(WEFT_ERR_ARG, "dispatch: experts %ld to %ld of %ld", (long)first,
                         (long)end, (long)n);
    memset(next, 0, sizeof *next * (size_t)(n + 1));
    for (int64_t i = 0; i < j.r; i++) {
        int64_t e = weft_kernel__id(idx->p, idx->dtype, i);
        if (e >= first && e < end) next[e]++;
    }
    for (int64_t e = 0; e <= n; e++) {
        int64_t count = e < n ? next[e] : 0;
        next[e]       = sum;
        if (offsets) offsets[e] = (int32_t)sum;
        sum += count;
    }
    for (int64_t i = sum; i < j.r; i++) src[i] = -1;
    for (int64_t i = 0; i < j.r; i++) {
        int64_t e = weft_kernel__id(idx->p, idx->dtype, i);
        if (e >= first && e < end) src[next[e]++] = (int32_t)i;
    }
    j.src   = src;
    j.grain = weft_kernel__grain(j.d, TASK);
    if (j.rows->p)
        weft_pool_run(x->pool, weft_kernel__ceil(j.r, j.grain), dispatch_task, &j);
    return WEFT_OK;
}
SCRATCH(dispatch)
{
    (void)n_thread;
    return sizeof(int64_t) * (size_t)(weft_kernel__attr(c, "experts")->i + 1) +
           sizeof(int32_t) * (size_t)weft_shape_count(&c->in[1].shape);
}

KERNEL(own_offsets)
{
    const weft_view *table = &c->in[0];
    const int32_t   *t     = table->p;
    int32_t         *y     = c->out[0].p;
    int64_t          parts = table->shape.d[0], n = table->shape.d[1] - 1, sum = 0;
    int64_t          first = weft_kernel__attr(c, "first_expert")->i,
            end            = first + weft_kernel__attr(c, "own")->i;
    (void)x;
    if (end < first) first = 0, end = n; /* all of them */
    for (int64_t e = 0; e < n; e++) {
        y[e] = (int32_t)sum;
        for (int64_t p = 0; p < parts && e >= first && e < end; p++)
            sum += t[p * (n + 1) + e + 1] - t[p * (n + 1) + e];
    }
    y[n] = (int32_t)sum;
    return WEFT_OK;
}

/* y[token] = the sum over its slots of w * row, or of the rows alone */
static void gather_task(void *arg, int64_t task, int thread)
{
    const job               *j = arg;
    const weft_kernel__rows *f = weft_kernel__rows_now();
    float                    sum[WEFT_KERNEL__PIECE], tmp[WEFT_KERNEL__PIECE];
    (void)thread;
    for (int64_t t = task * j->grain; t < (task + 1) * j->grain && t < j->n; t++)
        for (int64_t p = 0; p < j->d; p += WEFT_KERNEL__PIECE) {
            int64_t n = j->d - p < WEFT_KERNEL__PIECE ? j->d - p : WEFT_KERNEL__PIECE;
            memset(sum, 0, sizeof(float) * (size_t)n);
            for (int64_t s = t * j->k; s < (t + 1) * j->k; s++) {
                if (j->inv[s] < 0) continue;
                const float *row = weft_kernel__read(j->rows->p, j->rows->dtype,
                                                     j->inv[s] * j->d + p, 1, n, tmp);
                f->map[MAP_AXPY](sum, sum, row, j->w ? weft_kernel__get(j->w, s) : 1.0f,
                                 n);
            }
            weft_kernel__write(j->y->p, j->y->dtype, t * j->d + p, 1, n, sum, 0);
        }
}

static weft_status gather_rows(job *j, const weft_view *src, const weft_kernel_ctx *x)
{
    int32_t *inv = x->scratch;
    for (int64_t i = 0; i < j->r; i++) inv[i] = -1;
    for (int64_t i = 0; i < j->r; i++) {
        int64_t s = weft_kernel__id(src->p, src->dtype, i);
        if (s >= j->r)
            return WEFT_FAIL(WEFT_ERR_ARG, "combine: src %ld of %ld", (long)s,
                             (long)j->r);
        if (s >= 0) inv[s] = (int32_t)i;
    }
    j->inv   = inv;
    j->d     = j->y->shape.d[1];
    j->n     = j->y->shape.d[0];
    j->grain = weft_kernel__grain(j->d * j->k, TASK);
    weft_pool_run(x->pool, weft_kernel__ceil(j->n, j->grain), gather_task, j);
    return WEFT_OK;
}

KERNEL(dispatch_grad)
{
    job j = {.rows = &c->in[0], .y = &c->out[0]};
    j.k   = weft_kernel__attr(c, "k")->i;
    j.r   = j.rows->shape.d[0];
    return gather_rows(&j, &c->in[1], x);
}
SCRATCH(dispatch_grad)
{
    (void)n_thread;
    return sizeof(int32_t) * (size_t)c->in[0].shape.d[0];
}

KERNEL(combine)
{
    job j = {.rows = &c->in[0], .w = &c->in[1], .y = &c->out[0]};
    j.k   = j.w->shape.d[1];
    j.r   = j.rows->shape.d[0];
    return gather_rows(&j, &c->in[2], x);
}
SCRATCH(combine)
{
    (void)n_thread;
    return sizeof(int32_t) * (size_t)c->in[0].shape.d[0];
}

/* drows[r] = w dy[token], dw = dy[token].rows[r] */
static void combine_grad_task(void *arg, int64_t task, int thread)
{
    const job               *j = arg;
    const weft_kernel__rows *f = weft_kernel__rows_now();
    float ty[WEFT_KERNEL__PIECE], tr[WEFT_KERNEL__PIECE], to[WEFT_KERNEL__PIECE];
    (void)thread;
    for (int64_t i = task * j->grain; i < (task + 1) * j->grain && i < j->r; i++) {
        int64_t s   = j->src[i];
        float   dot = 0.0f, w = s < 0 ? 0.0f : weft_kernel__get(j->w, s);
        for (int64_t p = 0; p < j->d; p += WEFT_KERNEL__PIECE) {
            int64_t n    = j->d - p < WEFT_KERNEL__PIECE ? j->d - p : WEFT_KERNEL__PIECE;
            int64_t here = i * j->d + p, token = s < 0 ? 0 : s / j->k * j->d + p;
            const float *dy = weft_kernel__read(j->y->p, j->y->dtype, token, 1, n, ty);
            const float *x =
                weft_kernel__read(j->from->p, j->from->dtype, here, 1, n, tr);
            if (s >= 0) dot += f->dot(dy, x, n);
            if (!j->rows->p) continue;
            f->map[MAP_SCALE](to, dy, dy, w, n);
            if (s < 0) memset(to, 0, sizeof(float) * (size_t)n);
            weft_kernel__write(j->rows->p, j->rows->dtype, here, 1, n, to, 0);
        }
        if (s >= 0) put(j->dw, s, (double)dot);
    }
}

KERNEL(combine_grad)
{
    job j = {.y    = &c->in[0],
             .from = &c->in[1],
             .w    = &c->in[2],
             .rows = &c->out[0],
             .dw   = &c->out[1]};
    if (c->in[3].dtype != WEFT_DTYPE_I32)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "combine_grad: src is not i32");
    j.src   = c->in[3].p;
    j.k     = j.w->shape.d[1];
    j.r     = j.from->shape.d[0];
    j.d     = j.from->shape.d[1];
    j.grain = weft_kernel__grain(j.d, TASK);
    if (j.dw->p) memset(j.dw->p, 0, (size_t)(j.r * weft_dtype_bytes(j.dw->dtype)));
    weft_pool_run(x->pool, weft_kernel__ceil(j.r, j.grain), combine_grad_task, &j);
    return WEFT_OK;
}
