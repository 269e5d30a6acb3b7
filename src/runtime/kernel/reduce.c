/* Sums, means and maxima over some dimensions of a strided view.
 *
 * Three ways, chosen by shape and strides:
 *   rows     what is summed is one run with step 1: a sum for each result
 *   columns  what is kept is one run with step 1: rows are added, cut into blocks of columns and,
 *            where there are few columns, into parts of rows whose sums are added in order
 *   any      one result after the other, in double */
#include <math.h>

#include "kernel/cpu_priv.h"
#include "kernel/nd.h"
#include "kernel/rows.h"

enum {
    TASK     = 32768,
    BLOCK    = 128,
    MAX_PART = 32
};
typedef enum kind {
    SUM,
    MEAN,
    MAX
} kind;

typedef struct job {
    const weft_kernel_call  *c;
    const weft_kernel__rows *f;
    kind                     kind;
    weft_kernel__nd          kept, gone; /* operands x, y; operand x */
    int64_t                  n_kept, n_gone, grain;
    float                    scale;
    int64_t                  n_block, n_part; /* columns */
    float                   *part;
} job;

static void make(job *j, const weft_kernel_call *c)
{
    const weft_view *x = &c->in[0], *y = &c->out[0];
    const weft_attr *axes               = weft_kernel__attr(c, "axes");
    const char      *k                  = weft_kernel__attr(c, "kind")->s;
    bool             keep               = weft_kernel__attr(c, "keep")->i != 0;
    bool             gone[WEFT_MAX_DIM] = {0};
    int              at                 = 0;

    *j           = (job){.c = c, .f = weft_kernel__rows_now(), .scale = 1.0f};
    j->kind      = strcmp(k, "sum") == 0 ? SUM : strcmp(k, "mean") == 0 ? MEAN : MAX;
    j->kept.n_op = 2;
    j->gone.n_op = 1;
    for (int i = 0; i < axes->n; i++)
        gone[axes->l[i] < 0 ? axes->l[i] + x->shape.n : axes->l[i]] = true;
    for (int d = 0; d < x->shape.n; d++) {
        int64_t st[2] = {x->stride[d], 0};
        if (gone[d]) {
            weft_kernel__nd_dim(&j->gone, x->shape.d[d], st);
            at += keep;
        } else {
            st[1] = y->stride[at++];
            weft_kernel__nd_dim(&j->kept, x->shape.d[d], st);
        }
    }
    weft_kernel__nd_merge(&j->kept);
    weft_kernel__nd_merge(&j->gone);
    j->n_kept = weft_kernel__nd_count(&j->kept, j->kept.n);
    j->n_gone = weft_kernel__nd_count(&j->gone, j->gone.n);
    if (j->kind == MEAN) j->scale = (float)(1.0 / (double)j->n_gone);
    j->grain   = weft_kernel__grain(j->n_gone, TASK);
    j->n_block = weft_kernel__ceil(j->n_kept, BLOCK);
    j->n_part  = 1;
    if (j->n_block < 8 && j->n_gone >= 512) {
        j->n_part = j->n_gone / 256;
        if (j->n_part > MAX_PART) j->n_part = MAX_PART;
    }
}

static bool by_rows(const job *j)
{
    return j->gone.n == 1 && (j->gone.step[0][0] == 1 || j->n_gone == 1);
}
static bool by_columns(const job *j)
{
    return j->kind != MAX && j->gone.n == 1 && j->kept.n == 1 &&
           j->kept.step[0][0] == 1 && j->kept.step[1][0] == 1;
}

static void put(const job *j, int64_t at, float x)
{
    const weft_view *y = &j->c->out[0];
    weft_kernel__write(y->p, y->dtype, at, 1, 1, &x, weft_kernel__adds(j->c, 0));
}

static float row(const job *j, int64_t at)
{
    const weft_view *x = &j->c->in[0];
    float            tmp[WEFT_KERNEL__PIECE], max = -INFINITY;
    double           sum = 0.0;
    for (int64_t k = 0; k < j->n_gone; k += WEFT_KERNEL__PIECE) {
        int64_t n =
            j->n_gone - k < WEFT_KERNEL__PIECE ? j->n_gone - k : WEFT_KERNEL__PIECE;
        const float *p = weft_kernel__read(x->p, x->dtype, at + k, 1, n, tmp);
        if (j->kind == MAX)
            max = j->f->max(p, n, max);
        else
            sum += (double)j->f->sum(p, n);
    }
    return j->kind == MAX ? max : (float)(sum * (double)j->scale);
}

static float any(const job *j, int64_t at)
{
    const weft_view *x   = &j->c->in[0];
    double           sum = 0.0, max = -INFINITY;
    for (int64_t i = 0; i < j->n_gone; i++) {
        int64_t to[WEFT_KERNEL__ND_OP];
        float   tmp, v;
        weft_kernel__nd_at(&j->gone, j->gone.n, i, to);
        v = *weft_kernel__read(x->p, x->dtype, at + to[0], 1, 1, &tmp);
        sum += (double)v;
        max = max > (double)v ? max : (double)v;
    }
    return (float)(j->kind == MAX ? max : sum * (double)j->scale);
}

static void result_task(void *arg, int64_t task, int thread)
{
    const job *j = arg;
    int64_t    at[WEFT_KERNEL__ND_OP];
    (void)thread;
    for (int64_t i = task * j->grain; i < (task + 1) * j->grain && i < j->n_kept; i++) {
        weft_kernel__nd_at(&j->kept, j->kept.n, i, at);
        put(j, at[1], by_rows(j) ? row(j, at[0]) : any(j, at[0]));
    }
}

/* Adds rows [r0, r1) of a block of columns to acc. */
static void add_block(const job *j, float *acc, int64_t r0, int64_t r1, int64_t c0,
                      int64_t n)
{
    const weft_view *x  = &j->c->in[0];
    int64_t          ld = j->gone.step[0][0];
    if (x->dtype == WEFT_DTYPE_F32) {
        j->f->add_rows(acc, (const float *)x->p + r0 * ld + c0, ld, r1 - r0, n);
        return;
    }
    float tmp[32 * BLOCK];
    for (int64_t r = r0; r < r1; r += 32) {
        int64_t m = r1 - r < 32 ? r1 - r : 32;
        for (int64_t i = 0; i < m; i++)
            j->f->widen(tmp + i * BLOCK, (const uint16_t *)x->p + (r + i) * ld + c0, n);
        j->f->add_rows(acc, tmp, BLOCK, m, n);
    }
}

static void column_task(void *arg, int64_t task, int thread)
{
    const job *j = arg;
    int64_t    p = task / j->n_block, c0 = task % j->n_block * BLOCK, n = j->n_kept - c0;
    float      acc[BLOCK] = {0};
    (void)thread;
    if (n > BLOCK) n = BLOCK;
    add_block(j, acc, j->n_gone * p / j->n_part, j->n_gone * (p + 1) / j->n_part, c0, n);
    if (j->n_part > 1) {
        memcpy(j->part + p * j->n_kept + c0, acc, sizeof(float) * (size_t)n);
        return;
    }
    const weft_view *y = &j->c->out[0];
    if (j->kind == MEAN) j->f->map[MAP_SCALE](acc, acc, acc, j->scale, n);
    weft_kernel__write(y->p, y->dtype, c0, 1, n, acc, weft_kernel__adds(j->c, 0));
}

static void fold(const job *j)
{
    const weft_view *y = &j->c->out[0];
    for (int64_t p = 1; p < j->n_part; p++)
        j->f->map[MAP_ADD](j->part, j->part, j->part + p * j->n_kept, 0, j->n_kept);
    if (j->kind == MEAN)
        j->f->map[MAP_SCALE](j->part, j->part, j->part, j->scale, j->n_kept);
    weft_kernel__write(y->p, y->dtype, 0, 1, j->n_kept, j->part,
                       weft_kernel__adds(j->c, 0));
}

KERNEL(reduce)
{
    job j;
    make(&j, c);
    j.part = x->scratch;
    if (j.n_kept == 0) return WEFT_OK;
    if (by_columns(&j) && !(by_rows(&j) && j.n_kept == 1)) {
        weft_pool_run(x->pool, j.n_block * j.n_part, column_task, &j);
        if (j.n_part > 1) fold(&j);
    } else {
        weft_pool_run(x->pool, weft_kernel__ceil(j.n_kept, j.grain), result_task, &j);
    }
    return WEFT_OK;
}
SCRATCH(reduce)
{
    job j;
    (void)n_thread;
    make(&j, c);
    return j.n_part > 1 ? sizeof(float) * (size_t)(j.n_part * j.n_kept) : 0;
}
