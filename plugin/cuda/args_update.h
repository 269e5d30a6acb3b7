/* Arguments of what runs once a step: sums of squares, clipping, updates. */
#ifndef WEFT_CUDA_ARGS_UPDATE_H
#define WEFT_CUDA_ARGS_UPDATE_H

enum {
    WEFT_CUDA_SQUARE_RUN = 256, /* elements of a partial of a tensor of one dimension */
    /* elements of a partial that have a sum of their own */
    WEFT_CUDA_SQUARE_PIECE = 8192,
    WEFT_CUDA_MAX_NORM     = 440, /* sums that one launch of clip adds */
    WEFT_CUDA_MAX_MANY     = 500, /* tensors of one launch: arguments may have 32 KB */
    WEFT_CUDA_MAX_SQUARES  = 430,
    /* threads of a block of updates, and its elements */
    WEFT_CUDA_UPDATE_THREADS = 256,
    WEFT_CUDA_UPDATE_BLOCK   = 8192
};

/* part (n_part, n_piece): the sum of squares of each partial of `row` elements, in pieces. */
typedef struct weft_cuda_squares_args {
    const void *x;
    double     *part;
    int32_t     dtype;
    int32_t     vectors; /* x can be read 16 bytes at a time */
    int64_t     n, row, n_part, n_piece;
} weft_cuda_squares_args;

/* The binary tree over leaves, each the sum of its n_piece pieces.  room: n_leaf / 1024 + 1
 * doubles, twice. */
typedef struct weft_cuda_tree_args {
    const double *part;
    double       *room, *sum; /* sum NULL: leaves are stored to room, and that is all */
    int64_t       n_leaf, n_piece;
} weft_cuda_tree_args;

/* Adds n sums, from s[0] on, to *total (the first launch: to 0); the last one makes norm and
 * scale. */
typedef struct weft_cuda_clip_args {
    const void *s[WEFT_CUDA_MAX_NORM];
    double     *total;
    float      *norm, *scale; /* NULL: not kept */
    double      max_norm;
    int32_t     n, dtype, first, last;
} weft_cuda_clip_args;

typedef enum weft_cuda_update_kind {
    WEFT_CUDA_UPDATE_SGD,
    WEFT_CUDA_UPDATE_MOMENTUM,
    WEFT_CUDA_UPDATE_ADAGRAD,
    WEFT_CUDA_UPDATE_ADAM,
    WEFT_CUDA_UPDATE_ADAMW,
    WEFT_CUDA_UPDATE_LAMB_DIR,
    WEFT_CUDA_UPDATE_LAMB
} weft_cuda_update_kind;

/* A scalar that changes from step to step; p NULL: 1. */
typedef struct weft_cuda_scalar {
    const void *p;
    int64_t     dtype;
} weft_cuda_scalar;

/* What updates of one kind share.  momentum is beta1; power*: betas as the job has them. */
typedef struct weft_cuda_update_rule {
    int32_t          kind; /* weft_cuda_update_kind */
    float            beta1, beta2, eps, decay;
    double           power1, power2;
    weft_cuda_scalar lr, scale, step, p_sq, u_sq;
} weft_cuda_update_rule;

/* State m and v: as many as the kind has.  next[k] may be the memory of p, m, v; lamb_dir:
 * next[0] is u. */
typedef struct weft_cuda_update_args {
    weft_cuda_update_rule rule;
    const float          *p, *m, *v;
    const void           *g;
    float                *next[3];
    void                 *copy; /* next[0] in bf16; NULL: none */
    int32_t               g_dtype;
    int64_t               n;
} weft_cuda_update_args;

/* ---- many tensors in one launch: blocks from first_block on are a tensor's ---- */

/* State is updated in place.  The rule's decay is not used. */
typedef struct weft_cuda_update_task {
    float      *p, *m, *v;
    const void *g;
    void       *copy;
    int64_t     n;
    int32_t     first_block;
    float       decay;
} weft_cuda_update_task;

typedef struct weft_cuda_updates_args {
    weft_cuda_update_rule rule;
    int32_t               n_task, g_dtype;
    weft_cuda_update_task task[WEFT_CUDA_MAX_MANY];
} weft_cuda_updates_args;

typedef struct weft_cuda_squares_task {
    weft_cuda_squares_args squares;
    int64_t                first_block;
} weft_cuda_squares_task;

typedef struct weft_cuda_squares_many_args {
    int64_t                n_task;
    weft_cuda_squares_task task[WEFT_CUDA_MAX_SQUARES];
} weft_cuda_squares_many_args;

/* A block a tree. */
typedef struct weft_cuda_trees_args {
    weft_cuda_tree_args tree[WEFT_CUDA_MAX_MANY];
} weft_cuda_trees_args;

/* f32 or bf16 that lies together, from a multiple of 16 bytes on. */
typedef struct weft_cuda_cast_task {
    void       *to;
    const void *from;
    int64_t     n, first_block;
} weft_cuda_cast_task;

typedef struct weft_cuda_casts_args {
    int32_t             n_task, to_dtype, from_dtype;
    weft_cuda_cast_task task[WEFT_CUDA_MAX_MANY];
} weft_cuda_casts_args;

#endif
