/* What the files of the reference kernels share. */
#ifndef WEFT_KERNEL_REF_PRIV_H
#define WEFT_KERNEL_REF_PRIV_H

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "kernel/ref.h"

typedef weft_status (*weft_kernel__ref_fn)(const weft_op_use *u, const double *const *in,
                                           double *const *out, const weft_ref_ctx *c);

/* A kernel; unused arguments are silenced. */
#define WEFT_REF(name)                                                                   \
    weft_status weft_kernel__ref_##name(                                                 \
        const weft_op_use *u, const double *const *in __attribute__((unused)),           \
        double *const *out, const weft_ref_ctx *c __attribute__((unused)))

static inline int64_t weft_kernel__count(const weft_type *t)
{
    return weft_shape_count(&t->shape);
}
static inline int64_t weft_kernel__last(const weft_type *t)
{
    return t->shape.n ? t->shape.d[t->shape.n - 1] : 1;
}
/* All dimensions but the last as one; 0 where nothing is there. */
static inline int64_t weft_kernel__rows(const weft_type *t)
{
    int64_t r = 1;
    for (int d = 0; d + 1 < t->shape.n; d++) r *= t->shape.d[d];
    return r;
}
/* The sizes before, of and behind one dimension. */
static inline void weft_kernel__around(const weft_shape *s, int64_t axis, int64_t *before,
                                       int64_t *behind)
{
    if (axis < 0) axis += s->n;
    *before = *behind = 1;
    for (int d = 0; d < s->n; d++)
        if (d < axis)
            *before *= s->d[d];
        else if (d > axis)
            *behind *= s->d[d];
}
static inline void weft_kernel__zero(double *y, const weft_type *t)
{
    memset(y, 0, sizeof(double) * (size_t)weft_kernel__count(t));
}

WEFT_REF(matmul);
WEFT_REF(grouped_matmul);
WEFT_REF(grouped_matmul_wgrad);
WEFT_REF(add);
WEFT_REF(mul);
WEFT_REF(scale);
WEFT_REF(copy);
WEFT_REF(gelu);
WEFT_REF(gelu_grad);
WEFT_REF(silu);
WEFT_REF(silu_grad);
WEFT_REF(gate);
WEFT_REF(gate_grad);
WEFT_REF(relu);
WEFT_REF(relu_grad);
WEFT_REF(tanh);
WEFT_REF(tanh_grad);
WEFT_REF(dropout);
WEFT_REF(layer_norm);
WEFT_REF(layer_norm_grad);
WEFT_REF(rms_norm);
WEFT_REF(rms_norm_grad);
WEFT_REF(softmax);
WEFT_REF(softmax_grad);
WEFT_REF(rotary);
WEFT_REF(attention);
WEFT_REF(attention_merge);
WEFT_REF(attention_grad);
WEFT_REF(rel_bucket);
WEFT_REF(embedding);
WEFT_REF(embedding_grad);
WEFT_REF(cross_entropy);
WEFT_REF(cross_entropy_merge);
WEFT_REF(cross_entropy_grad);
WEFT_REF(gather);
WEFT_REF(scatter_add);
WEFT_REF(reduce);
WEFT_REF(broadcast);
WEFT_REF(transpose);
WEFT_REF(concat);
WEFT_REF(split);
WEFT_REF(slice);
WEFT_REF(slice_grad);
WEFT_REF(fill);
WEFT_REF(route);
WEFT_REF(route_grad);
WEFT_REF(dispatch);
WEFT_REF(own_offsets);
WEFT_REF(dispatch_grad);
WEFT_REF(combine);
WEFT_REF(combine_grad);
WEFT_REF(conv2d);
WEFT_REF(conv2d_grad_x);
WEFT_REF(conv2d_grad_w);
WEFT_REF(max_pool);
WEFT_REF(max_pool_grad);
WEFT_REF(avg_pool);
WEFT_REF(avg_pool_grad);
WEFT_REF(batch_norm);
WEFT_REF(batch_norm_grad);
WEFT_REF(batch_norm_infer);
WEFT_REF(sumsq);
WEFT_REF(sumsq_parts);
WEFT_REF(sumsq_tree);
WEFT_REF(clip);
WEFT_REF(ema);
WEFT_REF(sgd);
WEFT_REF(sgd_momentum);
WEFT_REF(adam);
WEFT_REF(adagrad);
WEFT_REF(lamb_dir);
WEFT_REF(lamb);

#endif
