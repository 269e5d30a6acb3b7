/* reduce: columns where what is kept lies together, else a warp a result; many gone elements are
 * cut into parts. */
#include <string.h>

#include "cuda_priv.h"

enum {
    COLUMNS = 32, /* vectors of columns of a block */
    /* parts of a block of columns: with MAX_PART of them 132 blocks a block of columns */
    BLOCK_PARTS = 2,
    PART_ROWS   = 8, /* rows of a part, at least */
    MAX_PART    = 264,
    WIDE        = 16, /* blocks of columns: what has more needs fewer parts */
    WIDE_PARTS  = MAX_PART * 16,
    /* with one block of columns; fewer with more, MAX_PART at least */
    NARROW_PARTS = 1584,
    BLOCKS       = 1056,
    ANY_BLOCK    = 128,
    ANY_WARPS    = ANY_BLOCK / 32,
    ANY_ELEMENTS = 256 /* gone elements of a part, at least */
};

typedef struct plan {
    weft_cuda_reduce_args a;
    bool                  columns;
    int                   width; /* columns of a thread */
} plan;

/* What is kept and what is gone, as dimensions. */
static void split_dims(plan *p, const weft_kernel_call *c)
{
    const weft_view *x = &c->in[0], *y = &c->out[0];
    const weft_attr *axes               = weft_cuda_attr(c, "axes");
    bool             keep               = weft_cuda_attr(c, "keep")->i != 0;
    bool             gone[WEFT_MAX_DIM] = {0};
    int              at                 = 0;
    p->a.kept                           = (weft_cuda_nd){.n_op = 2, .count = 1};
    p->a.gone                           = (weft_cuda_nd){.n_op = 1, .count = 1};
    for (int i = 0; i < axes->n; i++)
        gone[axes->l[i] < 0 ? axes->l[i] + x->shape.n : axes->l[i]] = true;
    for (int k = 0; k < x->shape.n; k++) {
        int64_t step[2] = {x->stride[k], 0};
        if (gone[k]) {
            weft_cuda_nd_dim(&p->a.gone, x->shape.d[k], step);
            at += keep;
        } else {
            step[1] = y->stride[at++];
            weft_cuda_nd_dim(&p->a.kept, x->shape.d[k], step);
        }
    }
    weft_cuda_nd_merge(&p->a.kept);
    weft_cuda_nd_merge(&p->a.gone);
}

static int64_t clamp(int64_t n, int64_t most)
{
    if (n > most) n = most;
    return n < 1 ? 1 : n;
}

static plan make(const weft_kernel_call *c)
{
    plan                   p    = {.width = 1};
    weft_cuda_reduce_args *a    = &p.a;
    const char            *kind = weft_cuda_attr(c, "kind")->s;
    split_dims(&p, c);
    a->x = c->in[0].p, a->y = c->out[0].p;
    a->x_dtype = (int32_t)c->in[0].dtype;
    a->y_dtype = (int32_t)c->out[0].dtype;
    a->add     = weft_cuda_adds(c, 0);
    a->scale   = strcmp(kind, "mean") == 0 ? (float)(1.0 / (double)a->gone.count) : 1.0f;
    a->kind    = strcmp(kind, "max") == 0 ? WEFT_CUDA_REDUCE_MAX : WEFT_CUDA_REDUCE_SUM;
    p.columns =
        a->gone.n == 1 && a->kept.n == 1 && a->kept.count > 1 && a->kept.step[0][0] == 1;
    if (p.columns) {
        if (weft_cuda_nd_vectors(&a->kept, 0, a->x, WEFT_CUDA_VECTOR, false) &&
            a->gone.step[0][0] % WEFT_CUDA_VECTOR == 0)
            p.width = WEFT_CUDA_VECTOR;
        a->n_part = weft_cuda_column_parts(a->gone.count, a->kept.count);
    } else {
        int64_t across = weft_cuda_ceil(a->kept.count, ANY_WARPS);
        a->n_part      = clamp(across ? BLOCKS / across : 1,
                          weft_cuda_ceil(a->gone.count, ANY_ELEMENTS));
    }
    return p;
}

/* Narrow rows have more parts: else too few threads would read them.  Rows of a part are a multiple
 * of those that a thread reads at once. */
int64_t weft_cuda_column_parts(int64_t rows, int64_t d)
{
    int64_t across = weft_cuda_ceil(d, COLUMNS * WEFT_CUDA_VECTOR);
    int64_t most   = across ? NARROW_PARTS / across : 1;
    if (across > WIDE)
        most = WIDE_PARTS / across;
    else if (most < MAX_PART)
        most = MAX_PART;
    int64_t n    = clamp(weft_cuda_ceil(rows, PART_ROWS), most);
    int64_t each = weft_cuda_ceil(weft_cuda_ceil(rows, n), PART_ROWS) * PART_ROWS;
    return each ? weft_cuda_ceil(rows, each) : 1;
}

weft_status weft_cuda_fold(const weft_kernel_ctx *x, const weft_cuda_fold_args *f)
{
    enum {
        COLUMN_THREADS = 16, /* of a block; as many threads for each */
        FOLD_WIDE      = 4   /* columns of a thread */
    };
    int64_t        n    = f->y.count * f->n_result;
    bool           wide = n % FOLD_WIDE == 0 && (uintptr_t)f->part % 16 == 0;
    weft_cuda_grid grid = weft_cuda_grid_1d(n, COLUMN_THREADS * (wide ? FOLD_WIDE : 1));
    grid.threads        = COLUMN_THREADS * COLUMN_THREADS;
    return weft_cuda_launch(x, wide ? WEFT_CUDA_fold_4 : WEFT_CUDA_fold_1, grid, f);
}

static weft_status fold_parts(const weft_kernel_ctx *x, const weft_cuda_reduce_args *a)
{
    weft_cuda_fold_args f = {.part     = a->part,
                             .n_part   = a->n_part,
                             .n_result = 1,
                             .kind     = a->kind,
                             .y        = a->kept,
                             .result   = {a->y},
                             .dtype    = {a->y_dtype},
                             .add      = {a->add},
                             .scale    = a->scale};
    memcpy(f.y.step[0], f.y.step[1], sizeof f.y.step[0]);
    return weft_cuda_fold(x, &f);
}

CUDA_RUN(reduce)
{
    plan           p    = make(c);
    weft_cuda_grid grid = {1, (unsigned)p.a.n_part, 1, 0, 0};
    p.a.part            = x->scratch;
    if (p.columns) {
        int64_t parts = clamp(p.a.n_part, BLOCK_PARTS);
        grid.threads  = (unsigned)(COLUMNS * parts);
        grid.y        = (unsigned)weft_cuda_ceil(p.a.n_part, parts);
        grid.x        = (unsigned)weft_cuda_ceil(p.a.kept.count, COLUMNS * p.width);
        WEFT_TRY(weft_cuda_launch(
            x, p.width > 1 ? WEFT_CUDA_reduce_columns_8 : WEFT_CUDA_reduce_columns_1,
            grid, &p.a));
    } else {
        grid.x       = (unsigned)weft_cuda_ceil(p.a.kept.count, ANY_WARPS);
        grid.threads = ANY_BLOCK;
        WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_reduce_any, grid, &p.a));
    }
    return p.a.n_part > 1 ? fold_parts(x, &p.a) : WEFT_OK;
}
CUDA_SCRATCH(reduce)
{
    plan p = make(c);
    (void)n_thread;
    return p.a.n_part > 1 ? sizeof(float) * (size_t)(p.a.n_part * p.a.kept.count) : 0;
}
