/* Steps behind products: the operator of each as weft_gemm has it.  Private to the room. */
#ifndef WEFT_KERNEL_POSTS_H
#define WEFT_KERNEL_POSTS_H

#include "kernel/gemm.h"
#include "kernel/kernel.h"

enum {
    WEFT_KERNEL__STEPS = 12 /* behind one product, results that are kept on the way too */
};

/* WEFT_ERR_INTERNAL: an operator that cannot be a step. */
weft_status weft_kernel__post_kind(const weft_kernel_post *p, weft_post_kind *out);

#endif
