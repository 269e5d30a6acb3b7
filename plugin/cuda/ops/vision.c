/* Convolution, pooling and batch norm. */
#include "cuda_priv.h"

/* Windows of kh x kw over an image that give the result. */
static weft_cuda_window find_window(const weft_kernel_call *c, const weft_view *image,
                                    const weft_view *result, int64_t kh, int64_t kw)
{
    const weft_attr *s = weft_cuda_attr(c, "stride"), *p = weft_cuda_attr(c, "pad");
    return (weft_cuda_window){.h  = (int32_t)image->shape.d[2],
                              .w  = (int32_t)image->shape.d[3],
                              .oh = (int32_t)result->shape.d[2],
                              .ow = (int32_t)result->shape.d[3],
                              .kh = (int32_t)kh,
                              .kw = (int32_t)kw,
                              .sh = (int32_t)s->l[0],
                              .sw = (int32_t)s->l[1],
                              .ph = (int32_t)p->l[0],
                              .pw = (int32_t)p->l[1]};
}

/* ---- convolution ---- */

/* x, w, y: views of the image, the weights and the result, whichever of them are gradients. */
static weft_status make_conv(const weft_kernel_call *c, const weft_view *x,
                             const weft_view *w, const weft_view *y,
                             weft_cuda_conv_args *a)
{
    *a = (weft_cuda_conv_args){.x       = x->p,
                               .w       = w->p,
                               .y       = y->p,
                               .x_dtype = (int32_t)x->dtype,
                               .w_dtype = (int32_t)w->dtype,
                               .y_dtype = (int32_t)y->dtype,
                               .n       = (int32_t)x->shape.d[0],
                               .c       = (int32_t)x->shape.d[1],
                               .o       = (int32_t)y->shape.d[1],
                               .win = find_window(c, x, y, w->shape.d[2], w->shape.d[3])};
    /* kernels count places of all images in 32 bits */
    if (x->shape.d[0] * x->shape.d[2] * x->shape.d[3] > INT32_MAX / 2 ||
        y->shape.d[0] * y->shape.d[2] * y->shape.d[3] > INT32_MAX / 2)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: a channel has more than 2^30 elements",
                         weft_op_get(c->op)->name);
    return WEFT_OK;
}

static weft_cuda_grid conv_grid(int64_t rows, int64_t columns)
{
    return (weft_cuda_grid){(unsigned)weft_cuda_ceil(columns, WEFT_CUDA_CONV_TILE),
                            (unsigned)weft_cuda_ceil(rows, WEFT_CUDA_CONV_TILE), 1, 256,
                            0};
}

CUDA_RUN(conv2d)
{
    weft_cuda_conv_args a;
    WEFT_TRY(make_conv(c, &c->in[0], &c->in[1], &c->out[0], &a));
    return weft_cuda_launch(x, WEFT_CUDA_conv2d,
                            conv_grid(a.o, (int64_t)a.n * a.win.oh * a.win.ow), &a);
}

CUDA_RUN(conv2d_grad_x)
{
    weft_cuda_conv_args a;
    WEFT_TRY(make_conv(c, &c->out[0], &c->in[1], &c->in[0], &a));
    return weft_cuda_launch(x, WEFT_CUDA_conv2d_grad_x,
                            conv_grid(a.c, (int64_t)a.n * a.win.h * a.win.w), &a);
}

static int64_t count_pieces(const weft_view *dy)
{
    int64_t spots = dy->shape.d[0] * dy->shape.d[2] * dy->shape.d[3];
    return weft_cuda_ceil(spots, WEFT_CUDA_CONV_SPOTS);
}

CUDA_RUN(conv2d_grad_w)
{
    weft_cuda_conv_args a;
    WEFT_TRY(make_conv(c, &c->in[1], &c->out[0], &c->in[0], &a));
    int64_t taps        = (int64_t)a.c * a.win.kh * a.win.kw;
    a.n_piece           = (int32_t)count_pieces(&c->in[0]);
    a.part              = x->scratch;
    a.add               = weft_cuda_adds(c, 0);
    weft_cuda_grid grid = conv_grid(a.o, taps);
    grid.z              = (unsigned)a.n_piece;
    WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_conv2d_grad_w, grid, &a));
    return weft_cuda_launch(x, WEFT_CUDA_conv2d_grad_w_sum,
                            weft_cuda_grid_1d(a.o * taps, 256), &a);
}
CUDA_SCRATCH(conv2d_grad_w)
{
    (void)n_thread;
    return sizeof(float) *
           (size_t)(count_pieces(&c->in[0]) * weft_shape_count(&c->out[0].shape));
}

/* ---- pooling ---- */

/* x: the image or its gradient, y: that of the windows */
static weft_cuda_pool_args make_pool(const weft_view *x, const weft_view *y)
{
    return (weft_cuda_pool_args){.x       = x->p,
                                 .y       = y->p,
                                 .x_dtype = (int32_t)x->dtype,
                                 .y_dtype = (int32_t)y->dtype,
                                 .planes  = x->shape.d[0] * x->shape.d[1]};
}

static weft_cuda_window pool_window(const weft_kernel_call *c, const weft_view *x,
                                    const weft_view *y)
{
    const weft_attr *k = weft_cuda_attr(c, "kernel");
    return find_window(c, x, y, k->l[0], k->l[1]);
}

static weft_cuda_grid each_of(const weft_view *v)
{
    return weft_cuda_grid_1d(weft_shape_count(&v->shape), 256);
}

CUDA_RUN(max_pool)
{
    weft_cuda_pool_args a = make_pool(&c->in[0], &c->out[0]);
    a.win                 = pool_window(c, &c->in[0], &c->out[0]);
    a.idx                 = c->out[1].p;
    return weft_cuda_launch(x, WEFT_CUDA_max_pool, each_of(&c->out[0]), &a);
}

CUDA_RUN(max_pool_grad)
{
    const weft_view    *dy = &c->in[0], *dx = &c->out[0];
    weft_cuda_pool_args a    = make_pool(dx, dy);
    weft_view           head = weft_view_make(x->scratch, WEFT_DTYPE_I32, &dx->shape);
    if (weft_shape_count(&dy->shape) > INT32_MAX)
        return WEFT_FAIL(WEFT_ERR_ARG, "max_pool_grad: more than 2^31 windows");
    a.win     = (weft_cuda_window){.h  = (int32_t)dx->shape.d[2],
                                   .w  = (int32_t)dx->shape.d[3],
                                   .oh = (int32_t)dy->shape.d[2],
                                   .ow = (int32_t)dy->shape.d[3]};
    a.winners = weft_cuda_view_of(&c->in[1]);
    a.head    = x->scratch;
    a.next    = a.head + weft_shape_count(&dx->shape);
    WEFT_TRY(weft_cuda_fill(x, &head, -1));
    WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_max_pool_link, each_of(dy), &a));
    return weft_cuda_launch(x, WEFT_CUDA_max_pool_grad, each_of(dx), &a);
}
CUDA_SCRATCH(max_pool_grad)
{
    (void)n_thread;
    return sizeof(int32_t) * (size_t)(weft_shape_count(&c->out[0].shape) +
                                      weft_shape_count(&c->in[0].shape));
}

CUDA_RUN(avg_pool)
{
    weft_cuda_pool_args a = make_pool(&c->in[0], &c->out[0]);
    a.win                 = pool_window(c, &c->in[0], &c->out[0]);
    return weft_cuda_launch(x, WEFT_CUDA_avg_pool, each_of(&c->out[0]), &a);
}

CUDA_RUN(avg_pool_grad)
{
    weft_cuda_pool_args a = make_pool(&c->out[0], &c->in[0]);
    a.win                 = pool_window(c, &c->out[0], &c->in[0]);
    return weft_cuda_launch(x, WEFT_CUDA_avg_pool_grad, each_of(&c->out[0]), &a);
}

/* ---- batch norm ---- */

enum {
    PIECE     = 8192, /* elements of a channel that a block has, at least */
    MAX_PIECE = 64    /* pieces of a channel, whose sums are added by every block */
};

static weft_cuda_batch_norm_args make_norm(const weft_kernel_call *c, const weft_view *x,
                                           const weft_kernel_ctx *ctx)
{
    const int64_t            *d   = x->shape.d;
    weft_cuda_batch_norm_args a   = {.x       = x->p,
                                     .x_dtype = (int32_t)x->dtype,
                                     .n       = d[0],
                                     .c       = d[1],
                                     .plane   = d[2] * d[3],
                                     .eps     = weft_cuda_attr(c, "eps")->f,
                                     .y       = c->out[0].p,
                                     .y_dtype = (int32_t)c->out[0].dtype,
                                     .add     = c->add};
    int64_t                   all = a.n * a.plane;
    a.piece                       = weft_cuda_ceil(all, MAX_PIECE);
    if (a.piece < PIECE) a.piece = PIECE;
    a.n_piece = weft_cuda_ceil(all, a.piece);
    if (a.n_piece < 1) a.n_piece = 1;
    if (ctx) a.part = ctx->scratch, a.part2 = a.part + a.c * a.n_piece;
    return a;
}

static size_t norm_scratch(const weft_kernel_call *c)
{
    weft_cuda_batch_norm_args a = make_norm(c, &c->in[0], NULL);
    return sizeof(float) * (size_t)(2 * a.c * a.n_piece);
}

static weft_cuda_grid norm_grid(const weft_cuda_batch_norm_args *a)
{
    return (weft_cuda_grid){(unsigned)a->n_piece, (unsigned)a->c, 1, 256, 0};
}

CUDA_RUN(batch_norm)
{
    const weft_view *w = &c->in[1], *b = &c->in[2], *mean = &c->out[1], *var = &c->out[2];
    weft_cuda_batch_norm_args a = make_norm(c, &c->in[0], x);
    a.w = w->p, a.w_dtype = (int32_t)w->dtype;
    a.b = b->p, a.b_dtype = (int32_t)b->dtype;
    a.mean = mean->p, a.mean_dtype = (int32_t)mean->dtype;
    a.var = var->p, a.var_dtype = (int32_t)var->dtype;
    WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_batch_norm_sum, norm_grid(&a), &a));
    WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_batch_norm_square, norm_grid(&a), &a));
    return weft_cuda_launch(x, WEFT_CUDA_batch_norm, norm_grid(&a), &a);
}
CUDA_SCRATCH(batch_norm)
{
    (void)n_thread;
    return norm_scratch(c);
}

static void set_statistics(weft_cuda_batch_norm_args *a, const weft_view *mean,
                           const weft_view *var)
{
    a->mean_in = mean->p, a->mean_dtype = (int32_t)mean->dtype;
    a->var_in = var->p, a->var_dtype = (int32_t)var->dtype;
}

CUDA_RUN(batch_norm_infer)
{
    const weft_view          *w = &c->in[1], *b = &c->in[2];
    weft_cuda_batch_norm_args a = make_norm(c, &c->in[0], x);
    a.w = w->p, a.w_dtype = (int32_t)w->dtype;
    a.b = b->p, a.b_dtype = (int32_t)b->dtype;
    set_statistics(&a, &c->in[3], &c->in[4]);
    return weft_cuda_launch(x, WEFT_CUDA_batch_norm_infer, norm_grid(&a), &a);
}

CUDA_RUN(batch_norm_grad)
{
    const weft_view *dy = &c->in[0], *w = &c->in[2], *dw = &c->out[1], *db = &c->out[2];
    weft_cuda_batch_norm_args a = make_norm(c, &c->in[1], x);
    a.dy = dy->p, a.dy_dtype = (int32_t)dy->dtype;
    a.w = w->p, a.w_dtype = (int32_t)w->dtype;
    a.dw = dw->p, a.dw_dtype = (int32_t)dw->dtype;
    a.db = db->p, a.db_dtype = (int32_t)db->dtype;
    set_statistics(&a, &c->in[3], &c->in[4]);
    WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_batch_norm_grad_sum, norm_grid(&a), &a));
    return weft_cuda_launch(x, WEFT_CUDA_batch_norm_grad, norm_grid(&a), &a);
}
CUDA_SCRATCH(batch_norm_grad)
{
    (void)n_thread;
    return norm_scratch(c);
}
