/* Arguments of kernels that go element by element: copies, sums of two, maps, dropout, steps
 * after products. */
#ifndef WEFT_CUDA_ARGS_ELEM_H
#define WEFT_CUDA_ARGS_ELEM_H

enum {
    WEFT_CUDA_ND_OP = 5,
    /* elements of a thread where rows can be read 16 bytes at a time */
    WEFT_CUDA_VECTOR   = 8,
    WEFT_CUDA_MAX_STEP = 28
};

/* Dimensions of a result, joined where all operands allow it, and each operand's step along
 * them. */
typedef struct weft_cuda_nd {
    int32_t n; /* dimensions, at least one */
    int32_t n_op;
    int64_t count; /* of elements; in kernels of vectors: of vectors */
    int64_t d[WEFT_CUDA_MAX_DIM];
    int64_t step[WEFT_CUDA_ND_OP][WEFT_CUDA_MAX_DIM]; /* in elements */
} weft_cuda_nd;

/* operand 0: to, 1: from */
typedef struct weft_cuda_copy_args {
    weft_cuda_nd nd;
    void        *to;
    const void  *from;
    int32_t      to_dtype, from_dtype;
    int32_t      add;
} weft_cuda_copy_args;

typedef enum weft_cuda_map_kind {
    WEFT_CUDA_MAP_ADD,   /* a + b */
    WEFT_CUDA_MAP_MUL,   /* a b */
    WEFT_CUDA_MAP_SCALE, /* s a */
    WEFT_CUDA_MAP_EMA,   /* s a + t b */
    WEFT_CUDA_MAP_GELU_TANH,
    WEFT_CUDA_MAP_GELU_ERF,
    WEFT_CUDA_MAP_SILU,
    WEFT_CUDA_MAP_RELU,
    WEFT_CUDA_MAP_TANH,
    WEFT_CUDA_MAP_GELU_TANH_GRAD, /* a is dy, b is x */
    WEFT_CUDA_MAP_GELU_ERF_GRAD,
    WEFT_CUDA_MAP_SILU_GRAD,
    WEFT_CUDA_MAP_RELU_GRAD,
    WEFT_CUDA_MAP_TANH_GRAD, /* a is dy, b is tanh x */
    WEFT_CUDA_MAP_STORE      /* steps only: keeps the value */
} weft_cuda_map_kind;

/* operand 0: y, 1: a, 2: b (a again where there is none) */
typedef struct weft_cuda_map_args {
    weft_cuda_nd nd;
    void        *y;
    const void  *a, *b;
    int32_t      y_dtype, a_dtype, b_dtype;
    int32_t      kind; /* weft_cuda_map_kind */
    int32_t      add;
    float        s, t;
} weft_cuda_map_args;

/* operand 0: y, 1: g, 2: u; of the gradient 0: dg, 1: du, 2: dy, 3: g, 4: u */
typedef struct weft_cuda_gate_args {
    weft_cuda_nd nd;
    void        *out[2]; /* NULL: not wanted */
    const void  *in[3];
    int32_t      dtype[WEFT_CUDA_ND_OP]; /* of each operand */
    int32_t      kind;                   /* weft_cuda_map_kind of the activation */
} weft_cuda_gate_args;

/* Dimension 0 counts samples.  at, whole: as the attributes; n_whole 0: x is whole. */
typedef struct weft_cuda_dropout_args {
    const void *x;
    void       *y;
    int32_t     x_dtype, y_dtype;
    int64_t     count, sample_count; /* of all elements; of those of a sample */
    int32_t     n_dim, n_whole;
    int64_t     d[WEFT_CUDA_MAX_DIM], at[WEFT_CUDA_MAX_DIM], whole[WEFT_CUDA_MAX_DIM];
    const void *scalars; /* weft_step_scalars */
    uint32_t    id, least;
    float       scale;
} weft_cuda_dropout_args;

/* A step after a product: what it reads or, STORE, writes. */
typedef struct weft_cuda_step {
    void   *p;
    int32_t dtype;
    int32_t kind; /* weft_cuda_map_kind */
    int32_t add;  /* STORE: the value becomes its sum with what is there */
    float   s;
    int64_t stride[WEFT_CUDA_MAX_DIM];
} weft_cuda_step;

/* Steps on each element of a value; the last one is a STORE.  Between two steps a value is
 * rounded as `dtype` is. Dimensions are joined where all operands allow it; count is of vectors
 * in kernels of vectors. */
typedef struct weft_cuda_steps_args {
    weft_cuda_view from;
    int64_t        count;
    int32_t        dtype;
    int32_t        n_step;
    const void    *last; /* grouped products: rows from *last on are 0; NULL: none */
    int32_t        last_dtype;
    int64_t        row_count; /* elements of a row there */
    weft_cuda_step step[WEFT_CUDA_MAX_STEP];
} weft_cuda_steps_args;

#endif
