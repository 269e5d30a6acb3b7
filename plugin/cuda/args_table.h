/* Arguments of kernels that take rows by number and sort numbers. */
#ifndef WEFT_CUDA_ARGS_TABLE_H
#define WEFT_CUDA_ARGS_TABLE_H

/* y[b, r, :] = x[b, (idx[r] - first) / divide, :]; zeros where the number is outside the table */
typedef struct weft_cuda_take_args {
    const void    *x;
    void          *y;
    weft_cuda_view idx;
    int64_t        n_x, n_idx, units; /* rows of x, numbers, units of a row */
    int64_t        total;             /* units of y */
    int64_t        first;             /* the number of row 0 of x */
    int64_t        divide;            /* so many numbers have the same row */
    int32_t        unit_bytes;        /* 2, 4, 8 or 16 */
} weft_cuda_take_args;

enum {
    WEFT_CUDA_SORT_BITS    = 8, /* of a digit */
    WEFT_CUDA_SORT_DIGITS  = 1 << WEFT_CUDA_SORT_BITS,
    WEFT_CUDA_SORT_THREADS = 256,
    WEFT_CUDA_SORT_BLOCK   = 2048 /* numbers of a block */
};

/* One pass of a stable radix sort of numbers: key, and where it came from. */
typedef struct weft_cuda_sort_args {
    /* first pass: keys are made of idx: its number minus first where this is one of [lo, hi) and
     * not skip, else n_key, which sorts last */
    weft_cuda_view  idx;
    int64_t         first, lo, hi, skip;
    int32_t         n_key;
    const uint32_t *key, *from; /* NULL: first pass */
    uint32_t       *key_out, *from_out;
    uint32_t       *count; /* (digits, blocks) of numbers; then where they begin */
    int32_t         n_block, shift;
    int64_t         n;
} weft_cuda_sort_args;

enum {
    WEFT_CUDA_RUN_ROWS = 32 /* sorted rows that one block adds */
};

/* y[b, key, :] (+)= sums of the rows x[b, from, :] whose keys are equal, in the order of
 * `from`.  Sorted rows are cut into pieces of WEFT_CUDA_RUN_ROWS; a key that crosses pieces
 * leaves its sums in part, (piece, 2, behind): slot 0 what goes on from the piece before, slot
 * 1 what goes on in the next one. */
typedef struct weft_cuda_run_args {
    const void     *x;
    void           *y;
    const uint32_t *key, *from;
    float          *part;
    int64_t         n, n_key, before, behind, n_piece;
    int32_t         x_dtype, y_dtype;
} weft_cuda_run_args;

#endif
