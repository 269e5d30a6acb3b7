/* Kernels: functions that change numbers in tensors.  A backend registers a table; exec asks
 * once, when a program is loaded.
 *
 * Every kernel promises:
 * (1) its bits depend on shapes, dtypes and attributes only: work is cut into a task grid
 *     computed from the shape, threads only decide who runs a task
 * (2) it allocates nothing; scratch is what its scratch() said for the same call
 * (3) what its row in ops.def promises: WEFT_OP_STRIDED views, WEFT_OP_ADDS into results,
 *     WEFT_OP_POSTS
 * Anything else comes contiguous. */
#ifndef WEFT_KERNEL_KERNEL_H
#define WEFT_KERNEL_KERNEL_H

#include "base/pool.h"
#include "op/op.h"

/* Mirrors weft_post of program.h with views instead of buffers. */
typedef struct weft_kernel_post {
    weft_op          op;
    const weft_attr *attr;
    int              in;  /* index into call->in, -1 none */
    int              out; /* index into call->out, -1 not kept */
} weft_kernel_post;

typedef struct weft_kernel_call {
    weft_op          op;
    const weft_attr *attr;
    int              n_in, n_own_in;
    int              n_out, n_own_out;
    const weft_view *in;
    /* p == NULL: an own result nobody keeps (its shape is still given) */
    const weft_view        *out;
    int                     n_post;
    const weft_kernel_post *post;
    unsigned                add; /* bit j: add to result j instead of storing it */
} weft_kernel_call;

typedef struct weft_kernel_ctx {
    weft_pool *pool;
    void      *scratch;
    uint64_t   seed;
    int64_t    step;
    /* global number of the micro-batch's first sample, counted from the job's start */
    int64_t sample;
} weft_kernel_ctx;

typedef weft_status (*weft_kernel_fn)(const weft_kernel_call *c,
                                      const weft_kernel_ctx  *x);
typedef size_t (*weft_kernel_scratch_fn)(const weft_kernel_call *c, int n_thread);

typedef struct weft_kernel {
    weft_op                op;
    weft_kernel_fn         run;
    weft_kernel_scratch_fn scratch; /* NULL: none */
} weft_kernel;

/* The kernel of a device ("cpu") for an operator and a storage type (F32 or BF16: that of the first
 * floating operand), or NULL: there is none. */
const weft_kernel *weft_kernel_find(weft_op op, const char *device, weft_dtype storage);

/* Names this set of kernels: build, libraries, instruction set.  Bitwise promises hold while it
 * is equal. */
const char *weft_kernel_set_id(void);

#endif
