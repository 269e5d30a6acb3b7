/* Arguments of attention. */
#ifndef WEFT_CUDA_ARGS_ATTENTION_H
#define WEFT_CUDA_ARGS_ATTENTION_H

enum {
    WEFT_CUDA_HEAD_TILE = 64 /* queries, keys and columns of a block */
};

/* (b, s, h, e), or lse (b, s, h), or a bias (h, s, t); p NULL: none */
typedef struct weft_cuda_heads_view {
    void   *p;
    int32_t dtype;
    int64_t stride[4];
} weft_cuda_heads_view;

/* q (b,s,h,e), k (b,t,g,e), v (b,t,g,f), o (b,s,h,f), lse (b,s,h), bias (h,s,t)
 */
typedef struct weft_cuda_attention_args {
    weft_cuda_heads_view q, k, v, o, lse, bias;
    weft_cuda_heads_view dy, dq, dk, dv, dbias; /* the backward pass */
    float               *own;                   /* (b,h,s): dy.o */
    int64_t              b, s, h, e, t, g, f;
    int64_t              window, ahead; /* query i stands at key i + ahead */
    float                scale;
    int32_t              causal;
    uint32_t             add; /* of dq, dk, dv, dbias */
} weft_cuda_attention_args;

typedef struct weft_cuda_attention_merge_args {
    const void  *o_a, *o_b;
    const float *lse_a, *lse_b;
    void        *o;   /* NULL: not kept */
    float       *lse; /* NULL: not kept */
    int64_t      rows, e;
    int32_t      dtype_a, dtype_b, dtype;
} weft_cuda_attention_merge_args;

#endif
