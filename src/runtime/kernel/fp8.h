/* Operands of a matmul in fp8: copies with the numbers that their formats hold, so that the product
 * of the copies is the matmul.  Private to the module. */
#ifndef WEFT_KERNEL_FP8_H
#define WEFT_KERNEL_FP8_H

#include "kernel/kernel.h"

enum {
    WEFT_KERNEL__FP8_IN = 32 /* operands of a call, those of its steps too */
};

typedef struct weft_kernel__fp8 {
    weft_kernel_call call; /* on the copies */
    weft_view        in[WEFT_KERNEL__FP8_IN];
    size_t           bytes; /* of the copies, a multiple of 64 */
} weft_kernel__fp8;

/* Does the call say fp8? */
bool weft_kernel__is_fp8(const weft_kernel_call *c);
/* The call on copies in room, aligned to 64 (as an address alone: nothing is read or written). */
weft_status weft_kernel__fp8_call(const weft_kernel_call *c, void *room,
                                  weft_kernel__fp8 *out);
/* Makes the copies.  The bits do not depend on the pool. */
void weft_kernel__fp8_round(const weft_kernel_call *c, const weft_kernel__fp8 *p,
                            weft_pool *pool);
/* The largest magnitudes of columns, where the call gives them (ops.def).  Those of rows are
 * found here, also where the call has them. */
void weft_kernel__fp8_columns(const weft_kernel_call *c);

#endif
