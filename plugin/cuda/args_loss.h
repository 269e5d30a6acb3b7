/* Arguments of softmax cross-entropy. */
#ifndef WEFT_CUDA_ARGS_LOSS_H
#define WEFT_CUDA_ARGS_LOSS_H

enum {
    WEFT_CUDA_LOSS_HELD = 6 /* units of 16 bytes that a thread has in registers */
};

/* A block a row.  Views without a last dimension of columns: element `row` of each is the row's. */
typedef struct weft_cuda_loss_args {
    weft_cuda_view logits, dlogits; /* where rows begin; dlogits.p NULL: no gradient */
    weft_cuda_view labels, dloss;
    weft_cuda_view lse_in;     /* p NULL: to be found */
    float         *loss, *lse; /* NULL: not kept */
    /* elements from a row to the next, in logits and dlogits; of loss_rows and loss_grad_rows */
    int64_t row;
    /* columns, and the distances of those of logits and dlogits */
    int64_t v, step, dstep;
    int64_t ignore, first;
    /* rows of 16-byte units: so many of those that registers do not hold are kept in shared
     * memory */
    int64_t kept;
} weft_cuda_loss_args;

/* Parts of a vocabulary as one: (part, row). */
typedef struct weft_cuda_loss_merge_args {
    const float   *loss_part, *lse_part;
    weft_cuda_view labels;
    float         *loss, *lse; /* NULL: not kept */
    int64_t        n_part, rows, ignore;
} weft_cuda_loss_merge_args;

#endif
