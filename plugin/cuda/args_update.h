/* Arguments of what runs once a step: sums of squares, clipping, updates. */
#ifndef WEFT_CUDA_ARGS_UPDATE_H
#define WEFT_CUDA_ARGS_UPDATE_H

enum {
    WEFT_CUDA_SQUARE_RUN = 256, /* elements of a partial of a tensor of one dimension */
    WEFT_CUDA_SQUARE_PIECE =
        8192,                /* elements of a partial that have a sum of their own */
    WEFT_CUDA_MAX_NORM = 440 /* sums that one launch of clip adds */
};

/* part (n_part, n_piece): the sum of squares of each partial of `row` elements, in pieces. */
typedef struct weft_cuda_squares_args {
    const void *x;
    double     *part;
    int32_t     dtype;
    int32_t     vectors; /* x can be read 16 bytes at a time */
    int64_t     n, row, n_part, n_piece;
} weft_cuda_squares_args;

/* The binary tree over leaves, each the sum of its n_piece pieces.  room: n_leaf / 1024 + 1 doubles, twice. */
typedef struct weft_cuda_tree_args {
    const double *part;
    double       *room, *sum; /* sum NULL: leaves are stored to room, and that is all */
    int64_t       n_leaf, n_piece;
} weft_cuda_tree_args;

/* Adds n sums, from s[0] on, to *total (the first launch: to 0); the last one makes norm and scale. */
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

/* What updates of one kind share.  momentum is beta1, log_*: logarithms. */
typedef struct weft_cuda_update_rule {
    int32_t          kind; /* weft_cuda_update_kind */
    float            beta1, beta2, log_beta1, log_beta2, eps, decay;
    weft_cuda_scalar lr, scale, step, p_sq, u_sq;
} weft_cuda_update_rule;

/* State m and v: as many as the kind has.  next[k] may be the memory of p, m, v; lamb_dir: next[0] is u. */
typedef struct weft_cuda_update_args {
    weft_cuda_update_rule rule;
    const float          *p, *m, *v;
    const void           *g;
    float                *next[3];
    int32_t               g_dtype;
    int64_t               n;
} weft_cuda_update_args;

#endif
