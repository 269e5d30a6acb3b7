/* Arguments of convolution, pooling and batch norm.  Images are (n, c, h, w), windows of kh x
 * kw. */
#ifndef WEFT_CUDA_ARGS_VISION_H
#define WEFT_CUDA_ARGS_VISION_H

/* Windows over an image of h x w: oh x ow of them, sh and sw apart, the first one ph and pw
 * before it. */
typedef struct weft_cuda_window {
    int32_t h, w, oh, ow, kh, kw, sh, sw, ph, pw;
} weft_cuda_window;

enum {
    WEFT_CUDA_CONV_TILE = 64,
    /* windows that a block of the weights' gradient adds up */
    WEFT_CUDA_CONV_SPOTS = 4096
};

/* x (n,c,h,w), w (o,c,kh,kw), y (n,o,oh,ow); the one that is the result is written */
typedef struct weft_cuda_conv_args {
    void            *x, *w, *y;
    int32_t          x_dtype, w_dtype, y_dtype;
    int32_t          n, c, o;
    weft_cuda_window win;
    float           *part; /* the weights' gradient: (pieces, o, c kh kw) */
    int32_t          n_piece, add;
} weft_cuda_conv_args;

/* x: planes of images, y: planes of windows; idx: of y, the winner's place in the plane */
typedef struct weft_cuda_pool_args {
    void            *x, *y;
    int32_t         *idx; /* NULL: not kept */
    weft_cuda_view   winners;
    int32_t          x_dtype, y_dtype;
    int64_t          planes;
    weft_cuda_window win;
    /* the gradient of max_pool: windows that chose a place, as a list: head of each place, next
     * of each window */
    int32_t *head, *next;
} weft_cuda_pool_args;

/* (n, c, plane): a channel is cut into pieces, whose sums are in part: (c, pieces), twice for a
 * gradient */
typedef struct weft_cuda_batch_norm_args {
    const void *x, *w, *b, *dy;
    const void *mean_in, *var_in;
    void       *y, *mean, *var; /* y: the result; the gradient: dx */
    void       *dw, *db;
    float      *part, *part2;
    int64_t     n, c, plane, piece, n_piece;
    double      eps;
    int32_t     x_dtype, w_dtype, b_dtype, dy_dtype, y_dtype;
    int32_t     mean_dtype, var_dtype, dw_dtype, db_dtype;
    uint32_t    add;
} weft_cuda_batch_norm_args;

#endif
