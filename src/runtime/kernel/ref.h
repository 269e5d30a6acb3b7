/* The plain reference kernels: every operator in double precision, one obvious loop nest each.
 *
 * What a row means is said here and nowhere else; every other kernel is compared with these.
 * Tensors are contiguous arrays of double, whatever their dtype; indices are held as doubles too.
 *
 *     weft_ref_ctx ctx = {.seed = 1};
 *     weft_kernel_ref_run(&use, in, out, &ctx);            use: operand and result types set
 *
 * Slow and serial on purpose. */
#ifndef WEFT_KERNEL_REF_H
#define WEFT_KERNEL_REF_H

#include "op/op.h"

/* Which step and samples random bits are those of; where a piece lies in a whole is in
 * attributes. */
typedef struct weft_ref_ctx {
    uint64_t seed;
    int64_t  step;
    int64_t  first_sample; /* dropout: the global number of the whole's sample 0 */
} weft_ref_ctx;

/* WEFT_ERR_ARG when an attribute makes no sense; ctx may be NULL. */
weft_status weft_kernel_ref_run(const weft_op_use *u, const double *const *in,
                                double *const *out, const weft_ref_ctx *ctx);

#endif
