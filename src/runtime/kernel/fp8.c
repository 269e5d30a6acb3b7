/* Rounding of operands to fp8 (tensor/fp8.h says why their product is that of a device which
 * multiplies codes).
 *
 * A row of an operand is what one result sums over: its letters that y does not have.  Letters that
 * y has number the rows.  A task has some rows next to each other: their largest magnitudes first,
 * then all of their numbers. */
#include "kernel/fp8.h"

#include "kernel/nd.h"
#include "kernel/rows.h"
#include "tensor/fp8.h"

enum {
    ROWS = 64, /* of a task */
    FROM = 0,
    TO   = 1
};

typedef struct rounding {
    const weft_view *from, *to;
    weft_fp8_format  format;
    weft_kernel__nd  row, summed; /* which rows; along one */
    bool             along;       /* runs of memory go along rows, not over rows */
    int64_t          n_chunk;     /* tasks along the last of `row` */
} rounding;

static const char *formats_of(const weft_kernel_call *c)
{
    return weft_kernel__attr(c, "fp8")->s;
}

bool weft_kernel__is_fp8(const weft_kernel_call *c)
{
    const char *s = c->op == WEFT_OP_MATMUL ? formats_of(c) : NULL;
    return s && *s;
}

weft_status weft_kernel__fp8_call(const weft_kernel_call *c, void *room,
                                  weft_kernel__fp8 *out)
{
    if (c->n_in > WEFT_KERNEL__FP8_IN)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "matmul: more than %d operands",
                         WEFT_KERNEL__FP8_IN);
    out->bytes = 0;
    for (int i = 0; i < c->n_in; i++) {
        const weft_view *v = &c->in[i];
        out->in[i]         = *v;
        if (i > 1) continue;
        out->in[i] = weft_view_make((char *)room + out->bytes, v->dtype, &v->shape);
        size_t n   = (size_t)(weft_shape_count(&v->shape) * weft_dtype_bytes(v->dtype));
        out->bytes += (n + 63) / 64 * 64;
    }
    out->call    = *c;
    out->call.in = out->in;
    return WEFT_OK;
}

/* ---- a task ---- */

/* A piece of memory: n numbers of one row, or one of each of n rows. */
typedef struct piece {
    int64_t at[2], n;
    int     first; /* row of the task */
} piece;

static void take_largest(const rounding *r, const piece *p, uint32_t *largest)
{
    float        tmp[WEFT_KERNEL__PIECE];
    int64_t      step = r->along ? r->summed.step[FROM][r->summed.n - 1]
                                 : r->row.step[FROM][r->row.n - 1];
    const float *x =
        weft_kernel__read(r->from->p, r->from->dtype, p->at[FROM], step, p->n, tmp);
    for (int64_t i = 0; i < p->n; i++) {
        uint32_t *most = &largest[p->first + (r->along ? 0 : i)];
        uint32_t  u    = weft_fp8_magnitude(x[i]);
        if (u > *most) *most = u;
    }
}

static void round_piece(const rounding *r, const piece *p, const float *unit)
{
    float          tmp[WEFT_KERNEL__PIECE], y[WEFT_KERNEL__PIECE];
    const int      from    = r->along ? r->summed.n - 1 : r->row.n - 1;
    const int64_t *step[2] = {r->along ? r->summed.step[FROM] : r->row.step[FROM],
                              r->along ? r->summed.step[TO] : r->row.step[TO]};
    const float *x = weft_kernel__read(r->from->p, r->from->dtype, p->at[FROM],
                                       step[FROM][from], p->n, tmp);
    for (int64_t i = 0; i < p->n; i++) {
        float u = unit[p->first + (r->along ? 0 : i)];
        y[i]    = weft_fp8_round(x[i] / u, r->format) * u;
    }
    weft_kernel__write(r->to->p, r->to->dtype, p->at[TO], step[TO][from], p->n, y, 0);
}

static void take_piece(const rounding *r, const piece *p, uint32_t *largest,
                       const float *unit)
{
    if (unit)
        round_piece(r, p, unit);
    else
        take_largest(r, p, largest);
}

/* Every number of the rows from `at` on, each piece once. */
static void walk_rows(const rounding *r, const int64_t at[2], int64_t n_row,
                      uint32_t *largest, const float *unit)
{
    const weft_kernel__nd *s = &r->summed, *k = &r->row;
    int                    last  = s->n - 1;
    int64_t                width = r->along ? s->size[last] : 1;
    int64_t                outer = weft_kernel__nd_count(s, r->along ? last : s->n);
    for (int64_t row = 0; row < n_row; row += r->along ? 1 : n_row)
        for (int64_t o = 0; o < outer; o++) {
            int64_t to[WEFT_KERNEL__ND_OP];
            weft_kernel__nd_at(s, r->along ? last : s->n, o, to);
            for (int64_t i = 0; i < width; i += WEFT_KERNEL__PIECE) {
                piece p = {.n = n_row, .first = (int)row};
                if (r->along)
                    p.n = width - i < WEFT_KERNEL__PIECE ? width - i : WEFT_KERNEL__PIECE;
                for (int e = FROM; e <= TO; e++)
                    p.at[e] =
                        at[e] + to[e] + row * k->step[e][k->n - 1] + i * s->step[e][last];
                take_piece(r, &p, largest, unit);
            }
        }
}

static void round_rows(void *arg, int64_t task, int thread)
{
    const rounding *r             = arg;
    uint32_t        largest[ROWS] = {0};
    float           unit[ROWS];
    int64_t         at[WEFT_KERNEL__ND_OP];
    int             last  = r->row.n - 1;
    int64_t         first = task % r->n_chunk * ROWS;
    int64_t         n     = r->row.size[last] - first;
    (void)thread;
    if (n > ROWS) n = ROWS;
    weft_kernel__nd_at(&r->row, last, task / r->n_chunk, at);
    for (int e = FROM; e <= TO; e++) at[e] += first * r->row.step[e][last];
    walk_rows(r, at, n, largest, NULL);
    for (int64_t i = 0; i < n; i++) unit[i] = weft_fp8_unit(largest[i], r->format);
    walk_rows(r, at, n, largest, unit);
}

/* ---- an operand ---- */

/* letters: of the operand; result: those of y and what follows. */
static void round_operand(const weft_view *from, const weft_view *to, const char *letters,
                          const char *result, weft_dtype format, weft_pool *pool)
{
    rounding r = {.from = from, .to = to, .format = weft_fp8_format_of(format)};
    r.row.n_op = r.summed.n_op = 2;
    if (weft_shape_count(&from->shape) == 0) return;
    for (int d = 0; d < from->shape.n; d++) {
        int64_t step[2] = {from->stride[d], to->stride[d]};
        weft_kernel__nd_dim(strchr(result, letters[d]) ? &r.row : &r.summed,
                            from->shape.d[d], step);
    }
    weft_kernel__nd_merge(&r.row);
    weft_kernel__nd_merge(&r.summed);
    int last  = r.row.n - 1;
    r.along   = r.row.step[FROM][last] != 1 || r.row.size[last] == 1;
    r.n_chunk = weft_kernel__ceil(r.row.size[last], ROWS);
    weft_pool_run(pool, weft_kernel__nd_count(&r.row, last) * r.n_chunk, round_rows, &r);
}

void weft_kernel__fp8_round(const weft_kernel_call *c, const weft_kernel__fp8 *p,
                            weft_pool *pool)
{
    const char *spec = weft_kernel__attr(c, "spec")->s;
    const char *part = spec, *result = strstr(spec, "->") + 2;
    for (int k = 0; k < 2; k++, part = strchr(spec, ',') + 1) {
        weft_dtype t = WEFT_DTYPE_F8_E4M3;
        (void)weft_fp8_parse(formats_of(c), k, &t);
        round_operand(&c->in[k], &p->in[k], part, result, t, pool);
    }
}

/* ---- largest magnitudes for another matmul ---- */

void weft_kernel__fp8_columns(const weft_kernel_call *c)
{
    const char *spec   = weft_kernel__attr(c, "spec")->s;
    const char *result = strstr(spec, "->") + 2;
    for (int k = 0; k < c->n_own_out - 1; k++) {
        const weft_view *x = &c->in[k], *to = &c->out[1 + k];
        const char      *part  = k ? strchr(spec, ',') + 1 : spec;
        weft_kernel__nd  nd[2] = {{.n_op = 1}, {.n_op = 1}}; /* columns; of one */
        int64_t          at, from;
        float            tmp[1];
        if (!to->p) continue;
        for (int d = 0; d < x->shape.n; d++)
            weft_kernel__nd_dim(&nd[strchr(result, part[d]) != NULL], x->shape.d[d],
                                &x->stride[d]);
        for (int64_t i = 0; i < weft_kernel__nd_count(&nd[0], nd[0].n); i++) {
            uint32_t largest = 0;
            weft_kernel__nd_at(&nd[0], nd[0].n, i, &from);
            for (int64_t row = 0; row < weft_kernel__nd_count(&nd[1], nd[1].n); row++) {
                weft_kernel__nd_at(&nd[1], nd[1].n, row, &at);
                uint32_t u = weft_fp8_magnitude(
                    *weft_kernel__read(x->p, x->dtype, from + at, 1, 1, tmp));
                if (u > largest) largest = u;
            }
            memcpy((float *)to->p + i * to->stride[0], &largest, sizeof largest);
        }
    }
}
