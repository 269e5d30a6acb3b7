/* Tables: rows taken by number and rows added by number.
 *
 * Adding is cut by the columns and, where several rows may be met at once, by ranges of the table's
 * rows; each task reads all numbers in order, so sums have the order of the numbers. */
#include "kernel/cpu_priv.h"
#include "kernel/rows.h"

/* ---- zero ---- */

enum {
    ZERO = 1 << 18
}; /* bytes of a task */

typedef struct zero {
    char  *p;
    size_t n;
} zero;

static void zero_task(void *arg, int64_t task, int thread)
{
    const zero *z  = arg;
    size_t      at = (size_t)task * ZERO, n = z->n - at < ZERO ? z->n - at : ZERO;
    (void)thread;
    if (z->n > WEFT_KERNEL__FAR && ((uintptr_t)z->p & 63) == 0 && n % sizeof(float) == 0)
        weft_kernel__rows_now()->zero_far((float *)(void *)(z->p + at),
                                          (int64_t)(n / sizeof(float)));
    else
        memset(z->p + at, 0, n);
}

void weft_kernel__zero(void *p, size_t n, weft_pool *pool)
{
    zero z = {p, n};
    weft_pool_run(pool, weft_kernel__ceil((int64_t)n, ZERO), zero_task, &z);
}

/* ---- take: y[b, r, :] = x[b, idx[r], :] ---- */

typedef struct job {
    const weft_view *x, *idx, *y;
    int64_t          before, n_x, n_idx, behind; /* sizes around the axis */
    int64_t          grain, cols, n_col;
    int64_t          pad;   /* add: a row that is passed over, -1 none */
    int64_t          first; /* the number of x's row 0 */
} job;

/* Row r's number as a row of x; -1: it is in nobody's table, or in another part's. */
static inline int64_t row_of(const job *j, int64_t r)
{
    int64_t id = weft_kernel__id(j->idx->p, j->idx->dtype, r) - j->first;
    return id < 0 || id >= j->n_x ? -1 : id;
}

static void take_task(void *arg, int64_t task, int thread)
{
    const job *j     = arg;
    size_t     bytes = (size_t)j->behind * (size_t)weft_dtype_bytes(j->x->dtype);
    int64_t    end = (task + 1) * j->grain, all = j->before * j->n_idx;
    (void)thread;
    for (int64_t i = task * j->grain; i < end && i < all; i++) {
        int64_t b = i / j->n_idx, id = row_of(j, i % j->n_idx);
        char   *y = weft_kernel__ptr(j->y->p, j->y->dtype, i * j->behind);
        if (id < 0)
            memset(y, 0, bytes);
        else
            memcpy(y,
                   weft_kernel__ptr(j->x->p, j->x->dtype, (b * j->n_x + id) * j->behind),
                   bytes);
    }
}

static weft_status take(job *j, weft_pool *pool)
{
    if (j->x->dtype != j->y->dtype)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "gather: operand and result differ in type");
    j->grain = weft_kernel__grain(j->behind, 16384);
    weft_pool_run(pool, weft_kernel__ceil(j->before * j->n_idx, j->grain), take_task, j);
    return WEFT_OK;
}

static int64_t first_of(const weft_kernel_call *c)
{
    int64_t first = weft_kernel__attr(c, "first")->i;
    return first < 0 ? 0 : first;
}

KERNEL(embedding)
{
    job j    = {.x = &c->in[0], .idx = &c->in[1], .y = &c->out[0], .before = 1};
    j.n_x    = j.x->shape.d[0];
    j.behind = j.x->shape.d[1];
    j.n_idx  = weft_shape_count(&j.idx->shape);
    j.first  = first_of(c);
    return take(&j, x->pool);
}

static void around(job *j, const weft_shape *s, int64_t axis)
{
    j->before = j->behind = 1;
    for (int d = 0; d < axis; d++) j->before *= s->d[d];
    for (int d = (int)axis + 1; d < s->n; d++) j->behind *= s->d[d];
    j->n_x = s->d[axis];
}

KERNEL(gather)
{
    job j = {.x = &c->in[0], .idx = &c->in[1], .y = &c->out[0]};
    around(&j, &j.x->shape, weft_kernel__attr(c, "axis")->i);
    j.n_idx = j.idx->shape.d[0];
    j.first = first_of(c);
    return take(&j, x->pool);
}

/* ---- add: y[b, idx[r], :] += src[b, r, :]; x is y's shape here, y what is read ---- */

static void add_task(void *arg, int64_t task, int thread)
{
    const job               *j = arg;
    const weft_kernel__rows *f = weft_kernel__rows_now();
    int64_t b = task / j->n_col, k = task % j->n_col * j->cols, n = j->behind - k;
    float   tmp[WEFT_KERNEL__PIECE], own[WEFT_KERNEL__PIECE];

    (void)thread;
    if (n > j->cols) n = j->cols;
    for (int64_t r = 0; r < j->n_idx; r++) {
        int64_t id = row_of(j, r);
        if (id < 0 || id + j->first == j->pad) continue;
        int64_t to     = (b * j->n_x + id) * j->behind + k,
                at     = (b * j->n_idx + r) * j->behind + k;
        const float *s = weft_kernel__read(j->y->p, j->y->dtype, at, 1, n, tmp);
        const float *o = weft_kernel__read(j->x->p, j->x->dtype, to, 1, n, own);
        float       *y = weft_kernel__room(j->x->p, j->x->dtype, to, 1, 0, own);
        f->map[MAP_ADD](y, o, s, 0, n);
        weft_kernel__write(j->x->p, j->x->dtype, to, 1, n, y, 0);
    }
}

static void clear(const job *j, weft_pool *pool)
{
    weft_kernel__zero(j->x->p,
                      (size_t)weft_shape_count(&j->x->shape) *
                          (size_t)weft_dtype_bytes(j->x->dtype),
                      pool);
}

static weft_status add(job *j, int adds, weft_pool *pool)
{
    if (!adds) clear(j, pool);
    if (j->behind == 0) return WEFT_OK;
    j->cols  = j->behind < 128 ? j->behind : 128;
    j->n_col = weft_kernel__ceil(j->behind, j->cols);
    weft_pool_run(pool, j->before * j->n_col, add_task, j);
    return WEFT_OK;
}

/* ---- base + sums of rows: a row's numbers are summed first, then added once ---- */

/* Occurrences of a number chained in order: next[r] is the next one after r, or -1; first[r] tells
 * whether r is the first of its number. */
typedef struct chains {
    const job *j;
    int32_t   *last; /* of each table row */
    int32_t   *next;
    uint8_t   *first;
} chains;

static void chain(const chains *c)
{
    const job *j = c->j;
    for (int64_t i = 0; i < j->n_x; i++) c->last[i] = -1;
    for (int64_t r = 0; r < j->n_idx; r++) {
        int64_t id = row_of(j, r);
        c->next[r] = -1, c->first[r] = 0;
        if (id < 0 || id + j->first == j->pad) continue;
        if (c->last[id] < 0)
            c->first[r] = 1;
        else
            c->next[c->last[id]] = (int32_t)r;
        c->last[id] = (int32_t)r;
    }
}

static void base_task(void *arg, int64_t task, int thread)
{
    const chains            *c = arg;
    const job               *j = c->j;
    const weft_kernel__rows *f = weft_kernel__rows_now();
    int64_t b = task / j->n_col, k = task % j->n_col * j->cols, n = j->behind - k;
    float   sum[WEFT_KERNEL__PIECE], tmp[WEFT_KERNEL__PIECE];

    (void)thread;
    if (n > j->cols) n = j->cols;
    for (int64_t r = 0; r < j->n_idx; r++) {
        if (!c->first[r]) continue;
        memset(sum, 0, sizeof *sum * (size_t)n);
        for (int64_t q = r; q >= 0; q = c->next[q]) {
            int64_t      at = (b * j->n_idx + q) * j->behind + k;
            const float *s  = weft_kernel__read(j->y->p, j->y->dtype, at, 1, n, tmp);
            f->map[MAP_ADD](sum, sum, s, 0, n);
        }
        int64_t      to = (b * j->n_x + row_of(j, r)) * j->behind + k;
        const float *o  = weft_kernel__read(j->x->p, j->x->dtype, to, 1, n, tmp);
        float       *y  = weft_kernel__room(j->x->p, j->x->dtype, to, 1, 0, tmp);
        f->map[MAP_ADD](y, o, sum, 0, n);
        weft_kernel__write(j->x->p, j->x->dtype, to, 1, n, y, 0);
    }
}

/* Adds the rows' sums to what is there. */
static weft_status add_sums(job *j, const weft_kernel_ctx *x)
{
    chains c = {.j = j, .last = x->scratch};
    c.next   = c.last + j->n_x;
    c.first  = (uint8_t *)(c.next + j->n_idx);
    if (j->behind == 0) return WEFT_OK;
    chain(&c);
    j->cols  = j->behind < 128 ? j->behind : 128;
    j->n_col = weft_kernel__ceil(j->behind, j->cols);
    weft_pool_run(x->pool, j->before * j->n_col, base_task, &c);
    return WEFT_OK;
}

static size_t sums_scratch(int64_t rows, int64_t ids)
{
    return sizeof(int32_t) * (size_t)(rows + ids) + (size_t)ids;
}

static weft_status add_to_base(job *j, const weft_view *base, const weft_kernel_ctx *x)
{
    if (j->x->dtype != WEFT_DTYPE_F32 || base->dtype != WEFT_DTYPE_F32)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "embedding_grad: a base is f32");
    if (base->p != j->x->p)
        memcpy(j->x->p, base->p, sizeof(float) * (size_t)weft_shape_count(&base->shape));
    return add_sums(j, x);
}

KERNEL(embedding_grad)
{
    job j    = {.x = &c->out[0], .y = &c->in[0], .idx = &c->in[1], .before = 1};
    j.n_x    = j.x->shape.d[0];
    j.behind = j.x->shape.d[1];
    j.n_idx  = weft_shape_count(&j.idx->shape);
    j.pad    = weft_kernel__attr(c, "pad")->i;
    j.first  = first_of(c);
    if (c->n_own_in > 2) return add_to_base(&j, &c->in[2], x);
    return add(&j, weft_kernel__adds(c, 0), x->pool);
}

SCRATCH(embedding_grad)
{
    (void)n_thread;
    if (c->n_own_in < 3) return 0;
    return sums_scratch(c->out[0].shape.d[0], weft_shape_count(&c->in[1].shape));
}

KERNEL(scatter_add)
{
    job j = {.x = &c->out[0], .y = &c->in[0], .idx = &c->in[1], .pad = -1};
    around(&j, &j.x->shape, weft_kernel__attr(c, "axis")->i);
    j.n_idx = j.idx->shape.d[0];
    j.first = first_of(c);
    if (j.x->dtype == WEFT_DTYPE_F32) return add(&j, weft_kernel__adds(c, 0), x->pool);
    if (!weft_kernel__adds(c, 0)) clear(&j, x->pool);
    return add_sums(&j, x); /* rounded once, not after every row */
}

SCRATCH(scatter_add)
{
    (void)n_thread;
    if (c->out[0].dtype == WEFT_DTYPE_F32) return 0;
    return sums_scratch(c->out[0].shape.d[weft_kernel__attr(c, "axis")->i],
                        c->in[1].shape.d[0]);
}
