/* Attention by cuDNN's backend interface: one plan a shape, made once, run many times.
 *
 *     const weft_cuda_sdpa *plan = weft_cuda_sdpa_get(dnn, handle, NULL, &shape);   NULL: cuDNN
 *     has none
 *
 * With handle NULL and a device's properties as JSON a plan can be made where there is no GPU:
 * cuDNN picks the engine and compiles its kernel.  Such a plan cannot be run.
 * The backward pass is always deterministic: gradients of the scores go through memory, and dq is
 * summed by one matmul instead of atomics. */
#ifndef WEFT_CUDA_SDPA_H
#define WEFT_CUDA_SDPA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "library.h"

enum { /* tensors that have memory; also their names in a plan */
    SDPA_Q = 1,
    SDPA_K,
    SDPA_V,
    SDPA_O,
    SDPA_LSE,
    SDPA_DO,
    SDPA_DQ,
    SDPA_DK,
    SDPA_DV,
    SDPA_SCALE,  /* by value */
    SDPA_LOWEST, /* by value: what masked scores are */
    SDPA_SHIFT,  /* by value */
    SDPA_ONE,    /* by value */
    SDPA_SUM,    /* rows of do * o (b,h,s) in f32: scratch */
    N_SDPA_TENSOR
};

/* Strides in elements, in the order (batch, head, position, element). */
typedef struct weft_cuda_sdpa_shape {
    /* batch, heads of q, heads of k and v, queries, keys, head size */
    int64_t b, h, g, s, t, e;
    int64_t stride[SDPA_DV + 1][4]; /* of SDPA_Q .. SDPA_DV */
    int64_t causal;                 /* 1: key <= query + shift */
    int64_t shift;
    int64_t backward;
} weft_cuda_sdpa_shape;

enum {
    SDPA_MOST_DESC = 512
};

typedef struct weft_cuda_sdpa {
    weft_cuda_sdpa_shape   shape;
    void                  *plan; /* NULL: cuDNN has none */
    int64_t                workspace_bytes;
    int                    n_tensor; /* with memory or by value */
    int64_t                tensor[N_SDPA_TENSOR];
    char                   name[256]; /* engine and knobs */
    char                   why[512];  /* there is none */
    int                    n_desc;
    void                  *desc[SDPA_MOST_DESC];
    struct weft_cuda_sdpa *next;
} weft_cuda_sdpa;

/* The plan of a shape, made at the first call and kept; also that there is none is kept.  NULL:
 * no memory. Borrowed until weft_cuda_sdpa_drop(). */
const weft_cuda_sdpa *weft_cuda_sdpa_get(const weft_cuda_dnn *dnn, void *handle,
                                         const char                 *device_json,
                                         const weft_cuda_sdpa_shape *shape);
/* A shape that cuDNN had no plan for, and why: a text for people; "": there was none. */
void weft_cuda_sdpa_failure(char *text, size_t n);
/* Above this the backward pass runs in slices; 2.25 GiB. */
extern int64_t weft_cuda_sdpa_most_bytes;

/* All plans; before cuDNN's handle is destroyed. */
void weft_cuda_sdpa_drop(void);

#endif
