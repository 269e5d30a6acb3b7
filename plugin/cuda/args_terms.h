/* Arguments of sums over ranks: terms that lie together, added by the binary tree of comm/sum.c. */
#ifndef WEFT_CUDA_ARGS_TERMS_H
#define WEFT_CUDA_ARGS_TERMS_H

#include <stdint.h>

enum {
    WEFT_CUDA_FEW_TERM = 8,
    WEFT_CUDA_MAX_TERM = 1024
};

/* dtype: f32 or bf16, of all.  level: a term is itself a sum of 2^level leaves; two are added where
 * they are of one level. */
typedef struct weft_cuda_few_terms_args {
    void *out; /* may be one of in */
    /* not 0: nothing is written, for terms did not come; NULL: none */
    const uint32_t *stop;
    int64_t         n; /* elements */
    int32_t         dtype, n_term;
    const void     *in[WEFT_CUDA_FEW_TERM];
    uint8_t         level[WEFT_CUDA_FEW_TERM];
} weft_cuda_few_terms_args;

typedef struct weft_cuda_terms_args {
    void           *out;
    const uint32_t *stop;
    int64_t         n;
    int32_t         dtype, n_term;
    const void     *in[WEFT_CUDA_MAX_TERM];
    uint8_t         level[WEFT_CUDA_MAX_TERM];
} weft_cuda_terms_args;

#endif
