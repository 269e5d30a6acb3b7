/* Arguments of attention. */
#ifndef WEFT_CUDA_ARGS_ATTENTION_H
#define WEFT_CUDA_ARGS_ATTENTION_H

#include "args_rotary.h"

enum {
    WEFT_CUDA_HEAD_TILE = 64 /* queries, keys and columns of a block */
};

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

/* ---- the backward pass by warpgroups ---- */

enum {
    WEFT_CUDA_BACK_KEYS     = 128, /* of a block of keys */
    WEFT_CUDA_BACK_TILE_64  = 128, /* queries, for heads of 64 */
    WEFT_CUDA_BACK_TILE_128 = 64,
    /* elements of a sum that are added to at once: 64 x 64 */
    WEFT_CUDA_BACK_PIECE   = 4096,
    WEFT_CUDA_BACK_THREADS = 384,
    WEFT_CUDA_BACK_ROWS    = 4,        /* of queries, of a thread that makes their sums */
    WEFT_CUDA_BACK_BYTES   = 227 << 10 /* shared memory: all of a multiprocessor's */
};

/* q, dy, dq (e, s, h, b); k, v, dk, dv (e, t, g, b), in bf16.  Queries come in tiles, keys in
 * blocks; a ticket is one block of keys of one query head. */
typedef struct weft_cuda_attention_back_args {
    weft_cuda_tensor_map q, k, v, dy, dq, dk, dv;
    float               *rows;   /* (b, h, tiles, 2, tile): lse in powers of 2, dy.o */
    float               *dq_sum; /* (b, h, tiles but the first `alone`, 2) pieces */
    /* (b, g, blocks, 2, dk and dv) pieces; more than one query head has a key head */
    float    *dkv_sum;
    uint32_t *ticket;             /* the next */
    uint32_t *dq_turn;            /* (b, h, tiles, 2): terms that a sum has */
    uint32_t *dkv_turn;           /* (b, g, blocks, 2) */
    int32_t   heads, h, g, ratio; /* of all samples; of one; its key heads; h / g */
    int32_t   s, t, n_tile, n_block;
    int32_t   alone;         /* tiles that see one block of keys */
    int32_t   ahead, causal; /* query i sees keys up to i + ahead */
    int32_t   rising;        /* the first keys first, else the last */
    /* In which order tickets are taken: a unit is all query heads of a key head, and the blocks
     * of one are taken before those of the next; units come in sets of `together`, whose blocks
     * are taken in turns */
    int32_t units, together;
    /* (position, 32): cosines and sines by which pairs of dq and of dk are turned as they are
     * stored; NULL: they are not, or heads are not of 64 */
    const float *turned;
    float        scale, scale_2; /* of scores; in powers of 2 */
} weft_cuda_attention_back_args;

/* Rows of the above; clears the counters, and finds n_turned positions of `turned`. */
typedef struct weft_cuda_attention_rows_args {
    weft_cuda_heads_view dy, o, lse;
    float               *rows;
    uint32_t            *counters;
    float               *turned;
    int64_t              n_counter, n_turned;
    weft_cuda_angles     by;
    int32_t              b, s, h, e, n_tile, tile;
} weft_cuda_attention_rows_args;

typedef struct weft_cuda_attention_merge_args {
    const void  *o_a, *o_b;
    const float *lse_a, *lse_b;
    void        *o;   /* NULL: not kept */
    float       *lse; /* NULL: not kept */
    int64_t      rows, e;
    int32_t      dtype_a, dtype_b, dtype;
} weft_cuda_attention_merge_args;

#endif
