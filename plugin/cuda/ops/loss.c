/* Softmax cross-entropy and its gradient, alone or in one visit. */
#include "cuda_priv.h"
#include "gpu.h"

/* A view of rows, its dimensions joined where they can be: one is read without a division. */
static weft_cuda_view join_rows(weft_cuda_view v)
{
    for (int k = v.n_dim - 2; k >= 0; k--) {
        if (v.stride[k] != v.stride[k + 1] * v.d[k + 1]) continue;
        v.d[k] *= v.d[k + 1];
        v.stride[k] = v.stride[k + 1];
        v.n_dim--;
        for (int i = k + 1; i < v.n_dim; i++) {
            v.d[i]      = v.d[i + 1];
            v.stride[i] = v.stride[i + 1];
        }
    }
    return v;
}

static weft_cuda_view rows_of(const weft_view *v)
{
    return join_rows(weft_cuda_view_of(v));
}

/* Where rows begin: the view without its last dimension. */
static weft_cuda_view lead_of(const weft_view *v)
{
    weft_cuda_view lead = weft_cuda_view_of(v);
    lead.n_dim--;
    return join_rows(lead);
}

static int64_t last_of(const weft_view *v)
{
    return v->shape.d[v->shape.n - 1];
}

/* Elements from one row of contiguous elements to the next; 0: rows are not at equal distances. */
static int64_t row_distance(const weft_view *v)
{
    int64_t row = 0, next = 0;
    if (last_of(v) > 1 && v->stride[v->shape.n - 1] != 1) return 0;
    for (int d = v->shape.n - 2; d >= 0; d--) {
        if (v->shape.d[d] == 1) continue;
        if (v->stride[d] == 0) return 0; /* spread */
        if (row && v->stride[d] != next) return 0;
        if (!row) row = v->stride[d];
        next = v->stride[d] * v->shape.d[d];
    }
    if (!row) return last_of(v);
    return row < last_of(v) ? 0 : row;
}

static weft_cuda_loss_args make_args(const weft_kernel_call *c)
{
    const weft_view *logits = &c->in[0];
    return (weft_cuda_loss_args){.logits = lead_of(logits),
                                 .labels = rows_of(&c->in[1]),
                                 .v      = last_of(logits),
                                 .row    = row_distance(logits),
                                 .step   = logits->stride[logits->shape.n - 1],
                                 .ignore = weft_cuda_attr(c, "ignore")->i,
                                 .first  = weft_cuda_attr(c, "first")->i};
}

static void set_gradient(weft_cuda_loss_args *a, const weft_view *dloss,
                         const weft_view *dlogits)
{
    a->dloss   = rows_of(dloss);
    a->dlogits = lead_of(dlogits);
    a->dstep   = dlogits->stride[dlogits->shape.n - 1];
}

static weft_status make_forward(const weft_kernel_call *c, weft_cuda_loss_args *a)
{
    *a      = make_args(c);
    a->loss = c->out[0].p;
    a->lse  = c->out[1].p;
    if (!c->n_post) return WEFT_OK;
    if (c->n_post != 1 || c->post[0].op != WEFT_OP_CROSS_ENTROPY_GRAD || a->first >= 0)
        return WEFT_FAIL(WEFT_ERR_INTERNAL,
                         "cross_entropy: only its gradient may follow, and only of "
                         "the whole vocabulary");
    set_gradient(a, &c->in[c->post[0].in], &c->out[c->post[0].out]);
    return WEFT_OK;
}

static weft_cuda_loss_args make_backward(const weft_kernel_call *c)
{
    weft_cuda_loss_args a = make_args(c);
    a.lse_in              = rows_of(&c->in[2]);
    set_gradient(&a, &c->in[3], &c->out[0]);
    return a;
}

static int64_t count_rows(const weft_kernel_call *c)
{
    return weft_shape_count(&c->in[1].shape);
}

static weft_status run_plain(const weft_kernel_call *c, const weft_kernel_ctx *x,
                             const weft_cuda_loss_args *a)
{
    weft_cuda_grid grid = {(unsigned)count_rows(c), 1, 1, 256, 0};
    return weft_cuda_launch(x, WEFT_CUDA_loss, grid, a);
}

CUDA_RUN(cross_entropy)
{
    weft_cuda_loss_args a;
    WEFT_TRY(make_forward(c, &a));
    return run_plain(c, x, &a);
}

CUDA_RUN(cross_entropy_grad)
{
    weft_cuda_loss_args a = make_backward(c);
    return run_plain(c, x, &a);
}

/* ---- rows of bf16 ---- */

enum {
    ROW_THREADS = 512,
    /* of shared memory: two blocks on each SM; what a row has more is read twice */
    KEPT_BYTES = 110 << 10,
    ROOM_BYTES = 1 << 10 /* of shared memory, for the rest of a block */
};

/* Units of 16 bytes of a row that a block of this GPU has shared memory for; where kernels are
 * emulated there is no queue. */
static int64_t count_kept(const weft_kernel_ctx *x)
{
    const weft_cuda_queue *q    = x->queue;
    int64_t                most = KEPT_BYTES;
    if (q && q->gpu->max_shared_bytes - ROOM_BYTES < most)
        most = q->gpu->max_shared_bytes - ROOM_BYTES;
    return most / 16;
}

/* Rows at equal distances, and those of the gradient at the same place in 16 bytes. */
static bool is_rows(const weft_view *v, const weft_view *like)
{
    return v->dtype == WEFT_DTYPE_BF16 && row_distance(v) &&
           row_distance(v) == row_distance(like) && last_of(v) < 1 << 30 &&
           ((uintptr_t)v->p - (uintptr_t)like->p) % 16 == 0 && (uintptr_t)v->p % 2 == 0;
}

CUDA_TAKES(cross_entropy_rows)
{
    const weft_view *x = &c->in[0];
    return is_rows(x, x) && (!c->n_post || is_rows(&c->out[c->post[0].out], x));
}

CUDA_RUN(cross_entropy_rows)
{
    weft_cuda_loss_args a;
    WEFT_TRY(make_forward(c, &a));
    weft_cuda_grid grid = {(unsigned)count_rows(c), 1, 1, ROW_THREADS, 0};
    if (a.dlogits.p) {
        /* a row that does not begin at a multiple of 16 bytes has one more */
        a.kept = (a.v * 2 + 15) / 16 + 1 - WEFT_CUDA_LOSS_HELD * ROW_THREADS;
        if (a.kept < 0) a.kept = 0;
        if (a.kept > count_kept(x)) a.kept = count_kept(x);
        grid.shared_bytes = (unsigned)(a.kept * 16);
    }
    return weft_cuda_launch(x, WEFT_CUDA_loss_rows, grid, &a);
}

CUDA_TAKES(cross_entropy_grad_rows)
{
    return is_rows(&c->in[0], &c->in[0]) && is_rows(&c->out[0], &c->in[0]);
}

CUDA_RUN(cross_entropy_grad_rows)
{
    weft_cuda_loss_args a    = make_backward(c);
    weft_cuda_grid      grid = {(unsigned)count_rows(c), 1, 1, ROW_THREADS, 0};
    return weft_cuda_launch(x, WEFT_CUDA_loss_grad_rows, grid, &a);
}

/* ---- parts of a vocabulary ---- */

CUDA_RUN(cross_entropy_merge)
{
    weft_cuda_loss_merge_args a = {.loss_part = c->in[0].p,
                                   .lse_part  = c->in[1].p,
                                   .labels    = weft_cuda_view_of(&c->in[2]),
                                   .loss      = c->out[0].p,
                                   .lse       = c->out[1].p,
                                   .n_part    = c->in[0].shape.d[0],
                                   .rows      = weft_shape_count(&c->in[2].shape),
                                   .ignore    = weft_cuda_attr(c, "ignore")->i};
    return weft_cuda_launch(x, WEFT_CUDA_loss_merge, weft_cuda_grid_1d(a.rows, 256), &a);
}
