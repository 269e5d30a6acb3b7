/* Products of experts' rows: bf16 by warpgroups where the GPU has them (sm_90), else by the
 * tensor cores of a warp where rows are whole vectors; everything else by the plain kernel.
 *
 * prepare makes the tensor maps of the first: all addresses are planned.  Steps after a product
 * are launched on their own, on the product in the memory of the last result. */
#include "cuda_priv.h"

enum {
    THREADS = 256
};

static weft_cuda_grouped_args group_rows(const weft_kernel_call *c, const weft_view *w,
                                         const weft_view *y, bool add)
{
    bool                   trans = weft_cuda_attr(c, "trans")->i != 0;
    const weft_view       *rows = &c->in[0], *offsets = &c->in[2];
    weft_cuda_grouped_args a = {.x             = rows->p,
                                .w             = c->in[1].p,
                                .offsets       = offsets->p,
                                .y             = y->p,
                                .x_dtype       = (int32_t)rows->dtype,
                                .w_dtype       = (int32_t)c->in[1].dtype,
                                .offsets_dtype = (int32_t)offsets->dtype,
                                .y_dtype       = (int32_t)y->dtype,
                                .add           = add,
                                .rows          = rows->shape.d[0],
                                .k             = rows->shape.d[1],
                                .n             = w->shape.d[trans ? 1 : 2],
                                .experts       = w->shape.d[0]};
    a.w_k                    = trans ? 1 : a.n;
    a.w_n                    = trans ? a.k : 1;
    return a;
}

/* All of them at once, on the product in the memory of the last result. */
static weft_status run_steps(const weft_kernel_call *c, const weft_kernel_ctx *x)
{
    weft_view last = c->in[2];
    if (!c->n_post) return WEFT_OK;
    last.p = weft_cuda_at(&last, c->in[1].shape.d[0]);
    return weft_cuda_steps(c, x, weft_cuda_last_result(c), &last);
}

/* bf16 by tensor cores: both operands are read 16 bytes at a time. */
static bool is_tensor_work(const weft_cuda_grouped_args *a)
{
    return a->x_dtype == WEFT_DTYPE_BF16 && a->w_dtype == WEFT_DTYPE_BF16 &&
           a->k % 8 == 0 && a->n % 8 == 0 && (uintptr_t)a->x % 16 == 0 &&
           (uintptr_t)a->w % 16 == 0;
}

/* ---- by warpgroups ---- */

typedef struct prepared_product {
    weft_cuda_wgmma_args args;
    weft_cuda_kernel     kernel;
    weft_cuda_grid       grid;
    bool                 has_steps; /* all of the call's */
} prepared_product;

/* Sizes that 32 bits and the tensor maps hold: strides are multiples of 16 bytes. */
static bool fits_wgmma(const weft_cuda_grouped_args *a)
{
    int64_t most = a->rows + a->k + a->n + a->experts * WEFT_CUDA_WGMMA_M;
    return is_tensor_work(a) && a->rows && a->k && a->n && a->experts &&
           most < INT32_MAX / 2 && (uintptr_t)a->y % 16 == 0;
}

static weft_status make_prepared(const weft_cuda_grouped_args *a, weft_arena *arena,
                                 prepared_product **out)
{
    enum {
        MAP = _Alignof(prepared_product)
    };
    char *room = weft_arena_alloc(arena, sizeof(prepared_product) + MAP);
    if (!room) return weft_arena_status(arena);
    *out         = (prepared_product *)(((uintptr_t)room + MAP - 1) / MAP * MAP);
    (*out)->args = (weft_cuda_wgmma_args){.offsets       = a->offsets,
                                          .offsets_dtype = a->offsets_dtype,
                                          .add           = a->add,
                                          .rows          = (int32_t)a->rows,
                                          .experts       = (int32_t)a->experts};
    return WEFT_OK;
}

/* Blocks stay and take tiles in turn: no more than run at once.  Results do not depend on their
 * number. */
static weft_cuda_grid wgmma_grid(int64_t n_row_tile, int64_t n)
{
    int64_t n_tile = n_row_tile * weft_cuda_ceil(n, WEFT_CUDA_WGMMA_N);
    int64_t most   = weft_cuda_wgmma_blocks();
    return (weft_cuda_grid){(unsigned)(n_tile < most ? n_tile : most), 1, 1,
                            WEFT_CUDA_WGMMA_THREADS, WEFT_CUDA_WGMMA_BYTES};
}

static int step_kind(weft_op op)
{
    switch (op) {
    case WEFT_OP_ADD: return WEFT_CUDA_MAP_ADD;
    case WEFT_OP_MUL: return WEFT_CUDA_MAP_MUL;
    case WEFT_OP_SILU: return WEFT_CUDA_MAP_SILU;
    case WEFT_OP_SILU_GRAD: return WEFT_CUDA_MAP_SILU_GRAD;
    default: return -1;
    }
}

/* v: NULL: a step without an operand. */
static bool add_step(weft_cuda_wgmma_args *a, int kind, const weft_view *v)
{
    if (kind < 0 || a->n_step == WEFT_CUDA_WGMMA_MAX_STEP) return false;
    if (v && (v->dtype != WEFT_DTYPE_BF16 || (uintptr_t)v->p % 16 ||
              !weft_view_contiguous(v) ||
              weft_shape_count(&v->shape) != (int64_t)a->rows * a->n))
        return false;
    a->step[a->n_step++] = (weft_cuda_wgmma_step){.p = v ? v->p : NULL, .kind = kind};
    return true;
}

/* A value of the chain meets its result; one that is added to is no step of the kernel. */
static bool keep_value(weft_cuda_wgmma_args *a, const weft_kernel_call *c, int out)
{
    if (out < 0 || !c->out[out].p) return true;
    return !(c->add >> out & 1) && add_step(a, WEFT_CUDA_MAP_STORE, &c->out[out]);
}

static bool add_steps(weft_cuda_wgmma_args *a, const weft_kernel_call *c)
{
    if (!keep_value(a, c, 0)) return false;
    for (int i = 0; i < c->n_post; i++) {
        const weft_kernel_post *p = &c->post[i];
        if (!add_step(a, step_kind(p->op), p->in >= 0 ? &c->in[p->in] : NULL) ||
            !keep_value(a, c, p->out))
            return false;
    }
    return true;
}

CUDA_TAKES(grouped_wgmma)
{
    const weft_view *y = weft_cuda_last_result(c);
    if (!y || y->dtype != WEFT_DTYPE_BF16 || !weft_cuda_wgmma_blocks()) return false;
    weft_cuda_grouped_args a = group_rows(c, &c->in[1], y, false);
    return fits_wgmma(&a);
}

CUDA_PREPARE(grouped_wgmma)
{
    const weft_view       *y       = weft_cuda_last_result(c);
    weft_cuda_grouped_args a       = group_rows(c, &c->in[1], y, false);
    bool                   turned  = a.w_k != 1;
    int64_t                rows[3] = {a.k, a.rows, 1};
    int64_t                w[3]    = {turned ? a.n : a.k, turned ? a.k : a.n, a.experts};
    int64_t                box     = turned ? 64 : WEFT_CUDA_WGMMA_N;
    prepared_product      *p;
    (void)x;
    WEFT_TRY(make_prepared(&a, arena, &p));
    p->args.k    = (int32_t)a.k;
    p->args.n    = (int32_t)a.n;
    p->kernel    = turned ? WEFT_CUDA_grouped_wgmma_turned : WEFT_CUDA_grouped_wgmma;
    p->grid      = wgmma_grid(a.rows / WEFT_CUDA_WGMMA_M + a.experts, a.n);
    p->has_steps = add_steps(&p->args, c);
    if (!p->has_steps) {
        p->args.n_step  = 1;
        p->args.step[0] = (weft_cuda_wgmma_step){a.y, WEFT_CUDA_MAP_STORE};
    }
    WEFT_TRY(weft_cuda_map_boxes(a.x, rows, WEFT_CUDA_WGMMA_M, &p->args.left));
    WEFT_TRY(weft_cuda_map_boxes(a.w, w, box, &p->args.right));
    *out = p;
    return WEFT_OK;
}

CUDA_RUN(grouped_wgmma)
{
    const prepared_product *p = c->prepared;
    WEFT_TRY(weft_cuda_launch(x, p->kernel, p->grid, &p->args));
    return p->has_steps ? WEFT_OK : run_steps(c, x);
}

CUDA_TAKES(grouped_wgmma_wgrad)
{
    weft_cuda_grouped_args a = group_rows(c, &c->out[0], &c->out[0], c->add & 1);
    return a.y_dtype == WEFT_DTYPE_F32 && weft_cuda_wgmma_blocks() && fits_wgmma(&a);
}

CUDA_PREPARE(grouped_wgmma_wgrad)
{
    weft_cuda_grouped_args a        = group_rows(c, &c->out[0], &c->out[0], c->add & 1);
    bool                   trans    = a.w_k == 1;
    int64_t                left[3]  = {trans ? a.n : a.k, a.rows, 1};
    int64_t                right[3] = {trans ? a.k : a.n, a.rows, 1};
    prepared_product      *p;
    (void)x;
    WEFT_TRY(make_prepared(&a, arena, &p));
    p->args.y = a.y;
    p->args.m = (int32_t)left[0];
    p->args.n = (int32_t)right[0];
    p->kernel = WEFT_CUDA_grouped_wgmma_wgrad;
    p->grid =
        wgmma_grid(weft_cuda_ceil(left[0], WEFT_CUDA_WGMMA_M) * a.experts, right[0]);
    WEFT_TRY(weft_cuda_map_boxes(trans ? a.w : a.x, left, 64, &p->args.left));
    WEFT_TRY(weft_cuda_map_boxes(trans ? a.x : a.w, right, 64, &p->args.right));
    *out = p;
    return WEFT_OK;
}

CUDA_RUN(grouped_wgmma_wgrad)
{
    const prepared_product *p = c->prepared;
    return weft_cuda_launch(x, p->kernel, p->grid, &p->args);
}

/* ---- by warps, and by the plain kernel ---- */

static weft_status launch_rows(const weft_kernel_ctx *x, weft_cuda_grouped_args *a)
{
    bool    fast        = is_tensor_work(a);
    int64_t tile        = fast ? WEFT_CUDA_GROUPED_TILE : WEFT_CUDA_TILE;
    int64_t n           = a->rows ? a->rows / tile + a->experts + 1 : 0;
    a->n_column_tile    = weft_cuda_ceil(a->n, tile);
    weft_cuda_grid grid = {(unsigned)(n * a->n_column_tile), 1, 1, THREADS, 0};
    return weft_cuda_launch(x, fast ? WEFT_CUDA_grouped_bf16 : WEFT_CUDA_grouped_matmul,
                            grid, a);
}

CUDA_RUN(grouped_matmul)
{
    const weft_view *y = weft_cuda_last_result(c);
    if (!y)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "grouped_matmul: its last value is not kept");
    weft_cuda_grouped_args a = group_rows(c, &c->in[1], y, false);
    WEFT_TRY(launch_rows(x, &a));
    return run_steps(c, x);
}

CUDA_RUN(grouped_matmul_wgrad)
{
    weft_cuda_grouped_args a     = group_rows(c, &c->out[0], &c->out[0], c->add & 1);
    bool                   trans = a.w_k == 1, fast = is_tensor_work(&a);
    int64_t                tile = fast ? WEFT_CUDA_GROUPED_TILE : WEFT_CUDA_TILE;
    int64_t                n    = weft_cuda_ceil(trans ? a.n : a.k, tile) * a.experts;
    a.n_column_tile             = weft_cuda_ceil(trans ? a.k : a.n, tile);
    weft_cuda_grid grid         = {(unsigned)(n * a.n_column_tile), 1, 1, THREADS, 0};
    return weft_cuda_launch(
        x, fast ? WEFT_CUDA_grouped_bf16_wgrad : WEFT_CUDA_grouped_matmul_wgrad, grid,
        &a);
}
