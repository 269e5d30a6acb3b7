/* Shape rules and counts named in ops.def; private to the room. */
#ifndef WEFT_OP_PRIV_H
#define WEFT_OP_PRIV_H

#include "base/status.h"
#include "op/op.h"

/* "matmul: a is 4,64 and b is 32,768: ..." needs shapes as words. */
#define WEFT_OP__TEXT 96
const char *weft_op__shape(const weft_op_use *u, int in, char buf[WEFT_OP__TEXT]);

/* A matmul's spec "bsd,dn->bsn" taken apart; WEFT_ERR_ARG says what is wrong with it. */
typedef struct weft_op__spec {
    char part[3][WEFT_MAX_DIM + 1]; /* letters of a, b, y */
} weft_op__spec;
weft_status weft_op__parse_spec(const char *spec, weft_op__spec *out);

#define OP(ID, name, in, out, attr, rule, shape, flops, bytes, flags)                    \
    weft_status weft_op__shape_##shape(const weft_op_use *u, weft_type *o);
#include "op/ops.def"
#undef OP
#define OP(ID, name, in, out, attr, rule, shape, flops, bytes, flags)                    \
    double weft_op__flops_##flops(const weft_op_use *u);                                 \
    double weft_op__bytes_##bytes(const weft_op_use *u);
#include "op/ops.def"
#undef OP

#endif
