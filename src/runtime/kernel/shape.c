/* Copies of strided views, with conversion: the fallback of every operator that only moves. */
#include "kernel/cpu_priv.h"
#include "kernel/nd.h"
#include "kernel/rows.h"
#include "kernel/vec.h"

enum {
    TASK = 32768,
    TILE = 32
};

typedef struct job {
    weft_kernel__nd nd; /* to, from */
    weft_view       to, from;
    int     add, rows; /* rows: how many of the inner dimensions a unit covers, 1 or 2 */
    int64_t n_unit, n_piece, piece, grain;
} job;

static bool is_float(weft_dtype t)
{
    return t == WEFT_DTYPE_F32 || t == WEFT_DTYPE_BF16;
}

/* One element of any type through double or int64. */
static double get(const void *p, weft_dtype t, int64_t i)
{
    switch (t) {
    case WEFT_DTYPE_F32: return (double)((const float *)p)[i];
    case WEFT_DTYPE_BF16: return (double)weft_bf16_widen(((const uint16_t *)p)[i]);
    case WEFT_DTYPE_F64: return ((const double *)p)[i];
    case WEFT_DTYPE_I32: return (double)((const int32_t *)p)[i];
    case WEFT_DTYPE_I64: return (double)((const int64_t *)p)[i];
    case WEFT_DTYPE_U32: return (double)((const uint32_t *)p)[i];
    case WEFT_DTYPE_I16: return (double)((const int16_t *)p)[i];
    case WEFT_DTYPE_U16: return (double)((const uint16_t *)p)[i];
    case WEFT_DTYPE_I8: return (double)((const int8_t *)p)[i];
    default: return (double)((const uint8_t *)p)[i];
    }
}
static void put(void *p, weft_dtype t, int64_t i, double x)
{
    switch (t) {
    case WEFT_DTYPE_F32: ((float *)p)[i] = (float)x; break;
    case WEFT_DTYPE_BF16: ((uint16_t *)p)[i] = weft_bf16_round((float)x); break;
    case WEFT_DTYPE_F64: ((double *)p)[i] = x; break;
    case WEFT_DTYPE_I32: ((int32_t *)p)[i] = (int32_t)x; break;
    case WEFT_DTYPE_I64: ((int64_t *)p)[i] = (int64_t)x; break;
    case WEFT_DTYPE_U32: ((uint32_t *)p)[i] = (uint32_t)x; break;
    case WEFT_DTYPE_I16: ((int16_t *)p)[i] = (int16_t)x; break;
    case WEFT_DTYPE_U16: ((uint16_t *)p)[i] = (uint16_t)x; break;
    case WEFT_DTYPE_I8: ((int8_t *)p)[i] = (int8_t)x; break;
    default: ((uint8_t *)p)[i] = (uint8_t)x; break;
    }
}

static void move_strided(char *to, int64_t st, const char *from, int64_t sf, int64_t n,
                         int bytes)
{
    switch (bytes) {
    case 4:
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)(void *)to)[i * st] =
                ((const uint32_t *)(const void *)from)[i * sf];
        break;
    case 2:
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)(void *)to)[i * st] =
                ((const uint16_t *)(const void *)from)[i * sf];
        break;
    case 8:
        for (int64_t i = 0; i < n; i++)
            ((uint64_t *)(void *)to)[i * st] =
                ((const uint64_t *)(const void *)from)[i * sf];
        break;
    default:
        for (int64_t i = 0; i < n; i++) to[i * st] = from[i * sf];
    }
}

/* n elements at offsets `to` and `from`, n <= PIECE where types differ. */
static void run_of(const job *j, int64_t to, int64_t st, int64_t from, int64_t sf,
                   int64_t n)
{
    weft_dtype tt = j->to.dtype, tf = j->from.dtype;
    int        bytes = weft_dtype_bytes(tt);
    if (tt == tf && !j->add) {
        char       *p = weft_kernel__ptr(j->to.p, tt, to);
        const char *q = weft_kernel__ptr(j->from.p, tf, from);
        if (st == 1 && sf == 1)
            memcpy(p, q, (size_t)(n * bytes));
        else
            move_strided(p, st, q, sf, n, bytes);
    } else if (is_float(tt) && is_float(tf)) {
        float        tmp[WEFT_KERNEL__PIECE];
        const float *x = weft_kernel__read(j->from.p, tf, from, sf, n, tmp);
        weft_kernel__write(j->to.p, tt, to, st, n, x, j->add);
    } else {
        for (int64_t i = 0; i < n; i++) {
            double x = get(j->from.p, tf, from + i * sf);
            if (j->add) x += get(j->to.p, tt, to + i * st);
            put(j->to.p, tt, to + i * st, x);
        }
    }
}

/* A tile of words, read along the dimension that lies together in the source. */
static void turn_tile(const job *j, const int64_t *at, int64_t r0, int64_t m, int64_t c0,
                      int64_t n)
{
    const weft_kernel__nd *nd = &j->nd;
    int                    in = nd->n - 1;
    const uint32_t        *from =
        (const uint32_t *)j->from.p + at[1] + r0 + c0 * nd->step[1][in];
    uint32_t *to =
        (uint32_t *)j->to.p + at[0] + r0 * nd->step[0][in - 1] + c0 * nd->step[0][in];
    uint32_t tmp[TILE][TILE];
    for (int64_t c = 0; c < n; c++)
        for (int64_t r = 0; r < m; r++) tmp[r][c] = from[c * nd->step[1][in] + r];
    for (int64_t r = 0; r < m; r++)
        for (int64_t c = 0; c < n; c++)
            to[r * nd->step[0][in - 1] + c * nd->step[0][in]] = tmp[r][c];
}

/* Unit: a piece of the last dimension, or a tile of the last two where one is read across. */
static void unit(const job *j, int64_t u)
{
    const weft_kernel__nd *nd = &j->nd;
    int                    in = nd->n - 1;
    int64_t at[WEFT_KERNEL__ND_OP], p = u % j->n_piece, m = 1, n, r0 = 0, c0;

    weft_kernel__nd_at(nd, nd->n - j->rows, u / j->n_piece, at);
    if (j->rows == 2) {
        int64_t across = weft_kernel__ceil(nd->size[in], TILE);
        r0             = p / across * TILE;
        c0             = p % across * TILE;
        m              = nd->size[in - 1] - r0 < TILE ? nd->size[in - 1] - r0 : TILE;
        n              = nd->size[in] - c0 < TILE ? nd->size[in] - c0 : TILE;
    } else {
        c0 = p * j->piece;
        n  = nd->size[in] - c0 < j->piece ? nd->size[in] - c0 : j->piece;
    }
    if (j->rows == 2 && weft_dtype_bytes(j->to.dtype) == 4 &&
        j->to.dtype == j->from.dtype && !j->add) {
        turn_tile(j, at, r0, m, c0, n);
        return;
    }
    for (int64_t r = r0; r < r0 + m; r++) {
        int64_t to = at[0] + c0 * nd->step[0][in], from = at[1] + c0 * nd->step[1][in];
        if (j->rows == 2) to += r * nd->step[0][in - 1], from += r * nd->step[1][in - 1];
        run_of(j, to, nd->step[0][in], from, nd->step[1][in], n);
    }
}

static void task_fn(void *arg, int64_t task, int thread)
{
    const job *j   = arg;
    int64_t    end = (task + 1) * j->grain;
    (void)thread;
    for (int64_t u = task * j->grain; u < end && u < j->n_unit; u++) unit(j, u);
}

weft_status weft_kernel__copy(const weft_view *to, const weft_view *from, int add,
                              weft_pool *pool)
{
    job j = {.to = *to, .from = *from, .add = add};
    if (weft_shape_count(&to->shape) == 0) return WEFT_OK;
    if (to->p == from->p && !add && to->dtype == from->dtype &&
        weft_view_contiguous(to) && weft_view_contiguous(from))
        return WEFT_OK;
    weft_kernel__nd_init(&j.nd, &to->shape);
    weft_kernel__nd_add(&j.nd, to);
    weft_kernel__nd_add(&j.nd, from);
    weft_kernel__nd_merge(&j.nd);

    int     in   = j.nd.n - 1;
    int64_t n    = j.nd.size[in];
    int     tile = j.nd.n > 1 && j.nd.step[1][in] > 1 && j.nd.step[1][in - 1] == 1;
    j.rows       = tile ? 2 : 1;
    j.piece      = n < WEFT_KERNEL__PIECE ? n : WEFT_KERNEL__PIECE;
    j.n_piece =
        tile ? weft_kernel__ceil(j.nd.size[in - 1], TILE) * weft_kernel__ceil(n, TILE)
             : weft_kernel__ceil(n, j.piece);
    j.n_unit = weft_kernel__nd_count(&j.nd, j.nd.n - j.rows) * j.n_piece;
    j.grain  = weft_kernel__grain(tile ? TILE * TILE : j.piece, TASK);
    weft_pool_run(pool, weft_kernel__ceil(j.n_unit, j.grain), task_fn, &j);
    return WEFT_OK;
}

/* ---- operators ---- */

KERNEL(cast)
{
    return weft_kernel__copy(&c->out[0], &c->in[0], 0, x->pool);
}

KERNEL(reshape)
{
    weft_view from = weft_view_make(c->in[0].p, c->in[0].dtype, &c->out[0].shape);
    return weft_kernel__copy(&c->out[0], &from, 0, x->pool);
}

/* nd_add() spreads by itself. */
KERNEL(broadcast)
{
    return weft_kernel__copy(&c->out[0], &c->in[0], 0, x->pool);
}

KERNEL(transpose)
{
    const weft_attr *perm = weft_kernel__attr(c, "perm");
    weft_view        from = c->in[0];
    from.shape            = c->out[0].shape;
    for (int d = 0; d < perm->n; d++) from.stride[d] = c->in[0].stride[perm->l[d]];
    return weft_kernel__copy(&c->out[0], &from, 0, x->pool);
}

/* The part of v that starts at `start` along axis and has the given size there. */
static weft_view part(const weft_view *v, int axis, int64_t start, int64_t size)
{
    weft_view r     = *v;
    r.p             = weft_kernel__ptr(v->p, v->dtype, start * v->stride[axis]);
    r.shape.d[axis] = size;
    return r;
}

static int axis_of(const weft_kernel_call *c, const weft_view *v)
{
    int64_t a = weft_kernel__attr(c, "axis")->i;
    return (int)(a < 0 ? a + v->shape.n : a);
}

KERNEL(concat)
{
    int     axis = axis_of(c, &c->out[0]);
    int64_t at   = 0;
    for (int i = 0; i < c->n_in; i++) {
        weft_view to = part(&c->out[0], axis, at, c->in[i].shape.d[axis]);
        at += c->in[i].shape.d[axis];
        WEFT_TRY(weft_kernel__copy(&to, &c->in[i], 0, x->pool));
    }
    return WEFT_OK;
}

KERNEL(split)
{
    int     axis = axis_of(c, &c->in[0]);
    int64_t at   = 0;
    for (int j = 0; j < c->n_out; j++) {
        int64_t   n    = c->out[j].shape.d[axis];
        weft_view from = part(&c->in[0], axis, at, n);
        at += n;
        if (c->out[j].p) WEFT_TRY(weft_kernel__copy(&c->out[j], &from, 0, x->pool));
    }
    return WEFT_OK;
}

KERNEL(slice)
{
    int       axis = axis_of(c, &c->in[0]);
    weft_view from =
        part(&c->in[0], axis, weft_kernel__attr(c, "start")->i, c->out[0].shape.d[axis]);
    return weft_kernel__copy(&c->out[0], &from, 0, x->pool);
}

KERNEL(slice_grad)
{
    int              axis = axis_of(c, &c->in[0]);
    const weft_view *y    = &c->out[0];
    weft_view        to =
        part(y, axis, weft_kernel__attr(c, "start")->i, c->in[0].shape.d[axis]);
    weft_kernel__zero(
        y->p, (size_t)weft_shape_count(&y->shape) * (size_t)weft_dtype_bytes(y->dtype),
        x->pool);
    return weft_kernel__copy(&to, &c->in[0], 0, x->pool);
}

KERNEL(fill)
{
    double    value = weft_kernel__attr(c, "value")->f;
    weft_view from  = c->out[0];
    int64_t   room  = 0;
    put(&room, c->out[0].dtype, 0, value);
    from.p = &room;
    for (int d = 0; d < from.shape.n; d++) from.stride[d] = 0;
    return weft_kernel__copy(&c->out[0], &from, 0, x->pool);
}
