/* Loops over strided views: the dimensions of one result, with every operand's step along each.
 *
 *     weft_kernel__nd nd;
 *     weft_kernel__nd_init(&nd, &y->shape);
 *     weft_kernel__nd_add(&nd, y);              operand 0
 *     weft_kernel__nd_add(&nd, bias);           operand 1, spread as NumPy does
 *     weft_kernel__nd_merge(&nd);
 *     n = nd.size[nd.n - 1], steps nd.step[0][nd.n - 1], ...; the rest by weft_kernel__nd_at() */
#ifndef WEFT_KERNEL_ND_H
#define WEFT_KERNEL_ND_H

#include "weft/tensor.h"

#define WEFT_KERNEL__ND_DIM 16
#define WEFT_KERNEL__ND_OP  20

typedef struct weft_kernel__nd {
    int     n, n_op;
    int64_t size[WEFT_KERNEL__ND_DIM];
    int64_t step[WEFT_KERNEL__ND_OP][WEFT_KERNEL__ND_DIM];
} weft_kernel__nd;

void weft_kernel__nd_init(weft_kernel__nd *nd, const weft_shape *s);
/* Aligned at the last dimension; a missing or size-1 dimension gets step 0.  Gives its number. */
int weft_kernel__nd_add(weft_kernel__nd *nd, const weft_view *v);
/* Appends a dimension with these steps, for those who build the list by hand. */
void weft_kernel__nd_dim(weft_kernel__nd *nd, int64_t size, const int64_t *step);
/* Drops dimensions of size 1 and joins neighbours that are one in all operands.  At least one
 * dimension remains. */
void weft_kernel__nd_merge(weft_kernel__nd *nd);
/* Offsets in elements of the operands at number i of the outer n_outer dimensions, last fastest. */
void weft_kernel__nd_at(const weft_kernel__nd *nd, int n_outer, int64_t i, int64_t *at);
/* Product of the sizes of the outer n_outer dimensions. */
int64_t weft_kernel__nd_count(const weft_kernel__nd *nd, int n_outer);

#endif
