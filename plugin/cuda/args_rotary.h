/* Arguments of rotary embeddings and of T5's relative positions. */
#ifndef WEFT_CUDA_ARGS_ROTARY_H
#define WEFT_CUDA_ARGS_ROTARY_H

#include <stdint.h>

/* (b, s, h, e), or lse (b, s, h), or a bias (h, s, t); p NULL: none */
typedef struct weft_cuda_heads_view {
    void   *p;
    int32_t dtype;
    int64_t stride[4];
} weft_cuda_heads_view;

typedef enum weft_cuda_rotary_kind {
    WEFT_CUDA_ROTARY_DEFAULT,
    WEFT_CUDA_ROTARY_LINEAR,
    WEFT_CUDA_ROTARY_LLAMA3
} weft_cuda_rotary_kind;

/* Pairs (i, i + half) of a head's elements are turned by the angle position * f_i
 * (kernel/rotary.h). */
typedef struct weft_cuda_angles {
    int64_t half;
    int64_t first; /* position of index 0 */
    double  slope; /* log2 of f_i / f_(i-1) */
    double  share; /* 1 / factor */
    double  low, high, orig;
    double  mix; /* 1 / (high - low) */
    int32_t kind;
    float   sign; /* -1: back */
} weft_cuda_angles;

/* x, y (b,s,h,e) */
typedef struct weft_cuda_rotary_args {
    weft_cuda_heads_view x, y;
    int64_t              b, s, h;
    weft_cuda_angles     by;
} weft_cuda_rotary_args;

enum {
    WEFT_CUDA_MAX_BUCKET = 512
};

/* The bucket of key position - query position: exact below `exact`, then one
 * more from each bound on. */
typedef struct weft_cuda_bucket_args {
    int32_t *ids; /* (s, t) */
    int64_t  s, t, ahead;
    int32_t  two; /* other buckets for keys after the query, from n on */
    int32_t  n, exact, n_bound;
    int32_t  bound[WEFT_CUDA_MAX_BUCKET];
} weft_cuda_bucket_args;

#endif
