/* sumsq, its two halves, and clip. */
#include "cuda_priv.h"

enum {
    WARP    = 32,
    THREADS = 256,
    TREE    = 1024,
    WIDE    = 1024 /* threads of a tree: few of them have many leaves */
};

static weft_cuda_squares_args squares_of(const weft_view *x)
{
    int64_t n = weft_shape_count(&x->shape), d = x->shape.n ? x->shape.d[0] : 1;
    weft_cuda_squares_args a = {.x = x->p, .dtype = (int32_t)x->dtype, .n = n};
    a.row                    = x->shape.n > 1 && d > 0 ? n / d : WEFT_CUDA_SQUARE_RUN;
    a.n_part                 = a.row > 0 ? weft_cuda_ceil(n, a.row) : 0;
    a.n_piece = a.row > 0 ? weft_cuda_ceil(a.row, WEFT_CUDA_SQUARE_PIECE) : 1;
    a.vectors = (uintptr_t)x->p % 16 == 0 && a.row % 8 == 0;
    return a;
}

static weft_status launch_squares(const weft_kernel_ctx        *x,
                                  const weft_cuda_squares_args *a)
{
    return weft_cuda_launch(x, WEFT_CUDA_squares,
                            weft_cuda_grid_1d(a->n_part * a->n_piece * WARP, THREADS), a);
}

/* Doubles that the tree over so many leaves needs. */
static int64_t tree_room(int64_t n_leaf)
{
    return 2 * (n_leaf / TREE + 1);
}

static weft_status launch_tree(const weft_kernel_ctx *x, const weft_cuda_tree_args *a)
{
    return weft_cuda_launch(x, WEFT_CUDA_squares_tree, (weft_cuda_grid){1, 1, 1, WIDE, 0},
                            a);
}

CUDA_RUN(sumsq)
{
    weft_cuda_squares_args a = squares_of(&c->in[0]);
    a.part                   = x->scratch;
    WEFT_TRY(launch_squares(x, &a));
    weft_cuda_tree_args t = {.part    = a.part,
                             .room    = a.part + a.n_part * a.n_piece,
                             .sum     = c->out[0].p,
                             .n_leaf  = a.n_part,
                             .n_piece = a.n_piece};
    return launch_tree(x, &t);
}
CUDA_SCRATCH(sumsq)
{
    weft_cuda_squares_args a = squares_of(&c->in[0]);
    (void)n_thread;
    return sizeof(double) * (size_t)(a.n_part * a.n_piece + tree_room(a.n_part));
}

CUDA_RUN(sumsq_parts)
{
    weft_cuda_squares_args a = squares_of(&c->in[0]);
    a.part                   = a.n_piece > 1 ? x->scratch : c->out[0].p;
    WEFT_TRY(launch_squares(x, &a));
    if (a.n_piece <= 1) return WEFT_OK;
    weft_cuda_tree_args t = {
        .part = a.part, .room = c->out[0].p, .n_leaf = a.n_part, .n_piece = a.n_piece};
    return weft_cuda_launch(x, WEFT_CUDA_squares_leaves,
                            weft_cuda_grid_1d(a.n_part, THREADS), &t);
}
CUDA_SCRATCH(sumsq_parts)
{
    weft_cuda_squares_args a = squares_of(&c->in[0]);
    (void)n_thread;
    return a.n_piece > 1 ? sizeof(double) * (size_t)(a.n_part * a.n_piece) : 0;
}

CUDA_RUN(sumsq_tree)
{
    weft_cuda_tree_args t = {.part    = c->in[0].p,
                             .room    = x->scratch,
                             .sum     = c->out[0].p,
                             .n_leaf  = weft_shape_count(&c->in[0].shape),
                             .n_piece = 1};
    return launch_tree(x, &t);
}
CUDA_SCRATCH(sumsq_tree)
{
    (void)n_thread;
    return sizeof(double) * (size_t)tree_room(weft_shape_count(&c->in[0].shape));
}

/* ---- many: all partials, then the rooms of their trees ---- */

CUDA_MANY_SCRATCH(sumsq)
{
    int64_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += (int64_t)weft_cuda_scratch_sumsq(c[i], n_thread);
    return (size_t)bytes;
}

/* At most WEFT_CUDA_MAX_SQUARES; *free: unused scratch. */
static weft_status launch_many(const weft_kernel_call *const *c, int n,
                               const weft_kernel_ctx *x, double **free)
{
    weft_cuda_squares_many_args s       = {.n_task = n};
    weft_cuda_trees_args        t       = {0};
    int64_t                     n_block = 0;
    for (int i = 0; i < n; i++) {
        weft_cuda_squares_args a       = squares_of(&c[i]->in[0]);
        int64_t                n_piece = a.n_part * a.n_piece;
        a.part                         = *free;
        s.task[i] = (weft_cuda_squares_task){.squares = a, .first_block = n_block};
        t.tree[i] = (weft_cuda_tree_args){.part    = a.part,
                                          .room    = a.part + n_piece,
                                          .sum     = c[i]->out[0].p,
                                          .n_leaf  = a.n_part,
                                          .n_piece = a.n_piece};
        n_block += weft_cuda_ceil(n_piece * WARP, THREADS);
        *free += n_piece + tree_room(a.n_part);
    }
    WEFT_TRY(weft_cuda_launch(x, WEFT_CUDA_squares_many,
                              (weft_cuda_grid){(unsigned)n_block, 1, 1, THREADS, 0}, &s));
    return weft_cuda_launch(x, WEFT_CUDA_squares_trees,
                            (weft_cuda_grid){(unsigned)n, 1, 1, WIDE, 0}, &t);
}

CUDA_MANY(sumsq)
{
    double *free = x->scratch;
    for (int i = 0; i < n; i += WEFT_CUDA_MAX_SQUARES) {
        int k = n - i < WEFT_CUDA_MAX_SQUARES ? n - i : WEFT_CUDA_MAX_SQUARES;
        WEFT_TRY(launch_many(c + i, k, x, &free));
    }
    return WEFT_OK;
}

/* ---- clip ---- */

CUDA_RUN(clip)
{
    weft_cuda_clip_args a  = {.total    = x->scratch,
                              .norm     = c->out[0].p,
                              .scale    = c->out[1].p,
                              .max_norm = weft_cuda_attr(c, "max_norm")->f,
                              .dtype    = c->n_in ? (int32_t)c->in[0].dtype : 0};
    int                 at = 0;
    do {
        a.first = at == 0;
        for (a.n = 0; a.n < WEFT_CUDA_MAX_NORM && at < c->n_in; at++) {
            if ((int32_t)c->in[at].dtype != a.dtype)
                return WEFT_FAIL(WEFT_ERR_INTERNAL, "clip: sums of two types");
            a.s[a.n++] = c->in[at].p;
        }
        a.last = at == c->n_in;
        WEFT_TRY(
            weft_cuda_launch(x, WEFT_CUDA_clip, (weft_cuda_grid){1, 1, 1, 512, 0}, &a));
    } while (!a.last);
    return WEFT_OK;
}
CUDA_SCRATCH(clip)
{
    (void)c, (void)n_thread;
    return sizeof(double);
}
