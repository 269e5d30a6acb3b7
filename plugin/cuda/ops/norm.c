/* layer_norm, rms_norm, their gradients, softmax: fast kernels where a row's vectors fit the
 * registers of its threads. */
#include "cuda_priv.h"
#include "gpu.h"

enum {
    WARP             = 32,
    MAX_VECTORS      = 4, /* of a thread */
    MAX_WARP_VECTORS = 8, /* of a lane, where a warp has a row of bf16 */
    ROW_THREADS      = WARP * WEFT_CUDA_ROW_WARPS,
    FAST_BLOCK       = 256, /* threads of a row, at most */
    COLUMN_BLOCK     = 128
};

static int64_t last_size(const weft_view *v)
{
    return v->shape.n ? v->shape.d[v->shape.n - 1] : 1;
}

static int64_t count_rows(const weft_view *v)
{
    int64_t d = last_size(v);
    return d ? weft_shape_count(&v->shape) / d : 0;
}

/* Threads of a row, so that none has more than MAX_VECTORS vectors; 0: more than `most`. */
static int threads_of_row(int64_t d, int most)
{
    int64_t n = WARP * weft_cuda_ceil(d, 8 * WARP * MAX_VECTORS);
    return n <= most ? (int)n : 0;
}

static int vectors_of_thread(int64_t d, int row_threads)
{
    return (int)weft_cuda_ceil(d, (int64_t)8 * row_threads);
}

static bool is_aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* A block a row, or several rows of a warp each. */
static weft_cuda_grid grid_of_rows(int64_t rows, int row_threads, int block)
{
    if (row_threads > WARP) block = row_threads;
    int64_t per = block / row_threads;
    return (weft_cuda_grid){(unsigned)weft_cuda_ceil(rows, per), 1, 1, (unsigned)block,
                            0};
}

/* ---- forward ---- */

/* Rows of bf16 that a warp goes through, up to MAX_WARP_VECTORS vectors of 8 a lane.  As many
 * blocks as an H200 has room for: each reads the weights once.  False: rows are too long, or a
 * block of this GPU has less shared memory than it takes. */
static bool plan_warps(const weft_kernel_ctx *x, const weft_cuda_norm_args *a,
                       weft_cuda_kernel *k, weft_cuda_grid *grid)
{
    enum {
        THREADS = 256,
        WARPS   = THREADS / WARP,
        SMS     = 132
    };
    static const struct {
        weft_cuda_kernel kernel;
        int              stages; /* rows that a warp has room for */
        int              blocks; /* that an SM has room for */
    } kernels[MAX_WARP_VECTORS] = {
        {WEFT_CUDA_norm_warp_1, 3, 4}, {WEFT_CUDA_norm_warp_2, 3, 4},
        {WEFT_CUDA_norm_warp_3, 2, 4}, {WEFT_CUDA_norm_warp_4, 3, 3},
        {WEFT_CUDA_norm_warp_5, 3, 2}, {WEFT_CUDA_norm_warp_6, 3, 2},
        {WEFT_CUDA_norm_warp_7, 3, 2}, {WEFT_CUDA_norm_warp_8, 3, 2}};
    const weft_cuda_queue *q = x->queue;
    int64_t n = weft_cuda_ceil(a->d, 8 * WARP), blocks = weft_cuda_ceil(a->rows, WARPS);
    if (n > MAX_WARP_VECTORS) return false;
    int64_t bytes = (a->rms ? 4 : 8) * a->d /* weights */
                    + WARPS * kernels[n - 1].stages * n * WARP * 16;
    int64_t most = (int64_t)SMS * kernels[n - 1].blocks;
    *k           = kernels[n - 1].kernel;
    *grid = (weft_cuda_grid){(unsigned)(blocks < most ? blocks : most), 1, 1, THREADS,
                             (unsigned)bytes};
    return bytes <= q->gpu->max_shared_bytes;
}

static weft_status norm(const weft_kernel_call *c, const weft_kernel_ctx *x, bool rms)
{
    static const weft_cuda_kernel f32[MAX_VECTORS] = {
        WEFT_CUDA_norm_f32_1, WEFT_CUDA_norm_f32_2, WEFT_CUDA_norm_f32_3,
        WEFT_CUDA_norm_f32_4};
    const weft_view    *b       = &c->in[rms ? 1 : 2];
    weft_cuda_norm_args a       = {.x       = c->in[0].p,
                                   .w       = c->in[1].p,
                                   .b       = b->p,
                                   .y       = c->out[0].p,
                                   .mean    = rms ? NULL : c->out[1].p,
                                   .rstd    = c->out[rms ? 1 : 2].p,
                                   .x_dtype = (int32_t)c->in[0].dtype,
                                   .w_dtype = (int32_t)c->in[1].dtype,
                                   .b_dtype = (int32_t)b->dtype,
                                   .y_dtype = (int32_t)c->out[0].dtype,
                                   .rms     = rms,
                                   .rows    = count_rows(&c->in[0]),
                                   .d       = last_size(&c->in[0]),
                                   .eps     = (float)weft_cuda_attr(c, "eps")->f};
    int                 threads = threads_of_row(a.d, FAST_BLOCK);
    if (a.d % 8 == 0 && threads && a.x_dtype == a.y_dtype && is_aligned(a.x) &&
        is_aligned(a.w) && is_aligned(a.b) && is_aligned(a.y)) {
        bool             bf16 = a.x_dtype == WEFT_DTYPE_BF16;
        weft_cuda_kernel k;
        weft_cuda_grid   grid;
        if (bf16 && plan_warps(x, &a, &k, &grid)) return weft_cuda_launch(x, k, grid, &a);
        a.row_threads = threads;
        return weft_cuda_launch(
            x, bf16 ? WEFT_CUDA_norm_bf16_4 : f32[vectors_of_thread(a.d, threads) - 1],
            grid_of_rows(a.rows, threads, ROW_THREADS), &a);
    }
    return weft_cuda_launch(x, WEFT_CUDA_norm_any,
                            grid_of_rows(a.rows, WARP, ROW_THREADS), &a);
}

CUDA_RUN(layer_norm)
{
    return norm(c, x, false);
}
CUDA_RUN(rms_norm)
{
    return norm(c, x, true);
}

/* ---- backward ---- */

/* The step that makes a further result of dx, or adds to it; NULL: none. */
static const weft_kernel_post *find_step(const weft_kernel_call *c, weft_op op)
{
    for (int i = 0; i < c->n_post; i++)
        if (c->post[i].op == op) return &c->post[i];
    return NULL;
}

/* dx, or what it is with the residual. */
static const weft_view *last_dx(const weft_kernel_call *c)
{
    const weft_kernel_post *add = find_step(c, WEFT_OP_ADD);
    return &c->out[add ? add->out : 0];
}

static weft_status fold_sums(const weft_kernel_call *c, const weft_kernel_ctx *x,
                             const weft_cuda_norm_grad_args *g)
{
    const weft_kernel_post *sums = find_step(c, WEFT_OP_REDUCE);
    weft_cuda_fold_args     f    = {
               .part = g->part, .n_part = g->n_part, .n_result = (int32_t)g->n_sum, .scale = 1};
    f.y            = (weft_cuda_nd){.n = 1, .n_op = 1, .count = g->d};
    f.y.d[0]       = g->d;
    f.y.step[0][0] = 1;
    for (int k = 0; k < g->n_sum; k++) {
        int j       = sums && k == g->n_sum - 1 ? sums->out : k + 1;
        f.result[k] = c->out[j].p;
        f.dtype[k]  = (int32_t)c->out[j].dtype;
        f.add[k]    = weft_cuda_adds(c, j);
    }
    return weft_cuda_fold(x, &f);
}

/* A fast kernel of the backward pass: for blocks of so many threads, with rows and stages as it
 * has them. */
typedef struct grad_kernel {
    weft_cuda_kernel kernel;
    unsigned         threads, rows, stages;
} grad_kernel;

/* NULL: rows are too long. */
static const grad_kernel *find_grad_kernel(bool bf16, unsigned threads)
{
    static const grad_kernel kernels[2][3] = {
        {{WEFT_CUDA_norm_grad_f32_128, 128, 1, 3},
         {WEFT_CUDA_norm_grad_f32_256, 256, 1, 3},
         {WEFT_CUDA_norm_grad_f32_512, 512, 1, 2}},
        {{WEFT_CUDA_norm_grad_bf16_128, 128, 1, 4},
         {WEFT_CUDA_norm_grad_bf16_256, 256, 2, 2},
         {WEFT_CUDA_norm_grad_bf16_1024, 1024, 1, 2}}};
    for (int k = 0; k < 3; k++)
        if (threads <= kernels[bf16][k].threads) return &kernels[bf16][k];
    return NULL;
}

static weft_status launch_grad(const weft_kernel_ctx *x, weft_cuda_norm_grad_args *a)
{
    bool               bf16    = a->x_dtype == WEFT_DTYPE_BF16;
    unsigned           threads = (unsigned)(WARP * weft_cuda_ceil(a->d, 8 * WARP));
    const grad_kernel *fast    = a->d ? find_grad_kernel(bf16, threads) : NULL;
    if (fast && a->d % 8 == 0 && a->x_dtype == a->dy_dtype && a->x_dtype == a->dx_dtype &&
        is_aligned(a->x) && is_aligned(a->w) && is_aligned(a->dy) && is_aligned(a->dx) &&
        is_aligned(a->residual)) {
        weft_cuda_grid grid = {(unsigned)a->n_part, 1, 1, threads, 0};
        /* 8 elements of dy, x and the residual */
        grid.shared_bytes = fast->stages * fast->rows * threads * 3 * (bf16 ? 16 : 32);
        return weft_cuda_launch(x, fast->kernel, grid, a);
    }
    if (a->dx)
        WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_norm_grad_any,
                                  grid_of_rows(a->rows, WARP, ROW_THREADS), a));
    weft_cuda_grid grid = weft_cuda_grid_1d(a->d, COLUMN_BLOCK);
    grid.y              = (unsigned)a->n_part;
    return weft_cuda_launch(x, WEFT_CUDA_norm_grad_columns, grid, a);
}

static int64_t count_sums(const weft_kernel_call *c, bool rms)
{
    return (rms ? 1 : 2) + (find_step(c, WEFT_OP_REDUCE) ? 1 : 0);
}

static weft_status norm_grad(const weft_kernel_call *c, const weft_kernel_ctx *x,
                             bool rms)
{
    const weft_kernel_post  *add = find_step(c, WEFT_OP_ADD);
    weft_cuda_norm_grad_args a   = {.dy       = c->in[0].p,
                                    .x        = c->in[1].p,
                                    .w        = c->in[2].p,
                                    .residual = add ? c->in[add->in].p : NULL,
                                    .mean     = rms ? NULL : c->in[3].p,
                                    .rstd     = c->in[rms ? 3 : 4].p,
                                    .dx       = last_dx(c)->p,
                                    .part     = x->scratch,
                                    .dy_dtype = (int32_t)c->in[0].dtype,
                                    .x_dtype  = (int32_t)c->in[1].dtype,
                                    .w_dtype  = (int32_t)c->in[2].dtype,
                                    .dx_dtype = (int32_t)last_dx(c)->dtype,
                                    .rms      = rms,
                                    .add      = weft_cuda_adds(c, 0),
                                    .sums     = find_step(c, WEFT_OP_REDUCE) != NULL,
                                    .rows     = count_rows(&c->in[0]),
                                    .d        = last_size(&c->in[0]),
                                    .n_sum    = count_sums(c, rms)};
    a.n_part                     = weft_cuda_column_parts(a.rows, a.d);
    WEFT_TRY(launch_grad(x, &a));
    return fold_sums(c, x, &a);
}

/* The steps that lowering fuses: an add whose operand has dx' type, then sums of what is kept. */
CUDA_TAKES(norm_grad)
{
    const weft_kernel_post *add = find_step(c, WEFT_OP_ADD);
    const weft_view        *dx  = last_dx(c);
    if (!c->n_post) return true;
    if (!dx->p || c->n_post > 2) return false;
    if (c->n_post == 2 && (!add || c->post[1].op != WEFT_OP_REDUCE)) return false;
    if (add && (c->out[0].p || c->in[add->in].dtype != dx->dtype)) return false;
    return !weft_cuda_adds(c, 0);
}

static size_t grad_scratch(const weft_kernel_call *c, bool rms)
{
    int64_t d = last_size(&c->in[0]), rows = count_rows(&c->in[0]);
    return sizeof(float) *
           (size_t)(count_sums(c, rms) * d * weft_cuda_column_parts(rows, d));
}

CUDA_RUN(layer_norm_grad)
{
    return norm_grad(c, x, false);
}
CUDA_SCRATCH(layer_norm_grad)
{
    (void)n_thread;
    return grad_scratch(c, false);
}
CUDA_RUN(rms_norm_grad)
{
    return norm_grad(c, x, true);
}
CUDA_SCRATCH(rms_norm_grad)
{
    (void)n_thread;
    return grad_scratch(c, true);
}

/* ---- softmax ---- */

static weft_status softmax(const weft_kernel_call *c, const weft_kernel_ctx *x,
                           weft_cuda_kernel k)
{
    const weft_view       *y = &c->in[c->n_in - 1];
    weft_cuda_softmax_args a = {.x         = c->in[0].p,
                                .y         = y->p,
                                .out       = c->out[0].p,
                                .x_dtype   = (int32_t)c->in[0].dtype,
                                .y_dtype   = (int32_t)y->dtype,
                                .out_dtype = (int32_t)c->out[0].dtype,
                                .rows      = count_rows(&c->in[0]),
                                .d         = last_size(&c->in[0])};
    return weft_cuda_launch(x, k, grid_of_rows(a.rows, WARP, ROW_THREADS), &a);
}

CUDA_RUN(softmax)
{
    return softmax(c, x, WEFT_CUDA_softmax);
}
CUDA_RUN(softmax_grad)
{
    return softmax(c, x, WEFT_CUDA_softmax_grad);
}
