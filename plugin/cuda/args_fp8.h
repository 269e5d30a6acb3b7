/* Arguments of the kernels that make operands of matmuls in fp8. */
#ifndef WEFT_CUDA_ARGS_FP8_H
#define WEFT_CUDA_ARGS_FP8_H

enum {
    WEFT_CUDA_FP8_COLUMNS = 256, /* rows of a block that finds the largest of each */
    WEFT_CUDA_FP8_TURN    = 128, /* rows and numbers of each of a block that turns them */
    WEFT_CUDA_FP8_VECTORS = 4,   /* of 8 numbers that a thread has of a row */
    WEFT_CUDA_FP8_THREADS = 256,
    WEFT_CUDA_FP8_LARGEST_THREADS = 512
};

/* x (rows,k) to codes (rows,k_row), which are zeros from k on, and the unit of each row: a code
 * counts so many (tensor/fp8.h). */
typedef struct weft_cuda_fp8_args {
    const void     *x;
    uint8_t        *code;
    float          *unit;    /* of each row */
    uint16_t       *largest; /* (pieces, rows): largest magnitudes, as bf16 */
    const uint32_t *known;   /* of each row, as f32; NULL: those of pieces */
    uint32_t *columns; /* of each column, as f32, 0 before; NULL: they are not wanted */
    int64_t   rows, k, k_row;
    /* from row to row, or from number to number where rows are side by side */
    int64_t step;
    int64_t piece;       /* numbers */
    int64_t n_block;     /* of the grid, which has those of the first operand first */
    int32_t row_threads; /* of a row that is in registers */
    int32_t rounds;      /* rows that such threads take */
    int32_t e5m2;
} weft_cuda_fp8_args;

/* One or both operands of a matmul. */
typedef struct weft_cuda_fp8_pair_args {
    weft_cuda_fp8_args operand[2];
} weft_cuda_fp8_pair_args;

/* Any strides: operands of row and along are x and y.  y: codes (unit is written, zeros from k on),
 * or bf16 (unit NULL), or nothing but the largest magnitude of each row is wanted (y NULL). */
typedef struct weft_cuda_fp8_any_args {
    const void  *x;
    void        *y;
    float       *unit;
    uint32_t    *largest;
    weft_cuda_nd row, along;
    int64_t      k_row;
    int32_t      x_dtype;
    int32_t      e5m2;
} weft_cuda_fp8_any_args;

#endif
