/* The kernels of the CPU, by operator; cpu.c lists them.  Private to the module. */
#ifndef WEFT_KERNEL_CPU_PRIV_H
#define WEFT_KERNEL_CPU_PRIV_H

#include "kernel/kernel.h"

extern const weft_kernel_table weft_kernel__cpu_table;

#define KERNEL(name)                                                                     \
    weft_status weft_kernel__cpu_##name(const weft_kernel_call *c,                       \
                                        const weft_kernel_ctx  *x)
#define SCRATCH(name)                                                                    \
    size_t weft_kernel__cpu_##name##_scratch(const weft_kernel_call *c, int n_thread)
#define PREPARE(name)                                                                    \
    weft_status weft_kernel__cpu_##name##_prepare(const weft_kernel_call *c,             \
                                                  const weft_kernel_ctx  *x,             \
                                                  weft_arena *arena, void **out)

KERNEL(matmul);
SCRATCH(matmul);
KERNEL(grouped_matmul);
SCRATCH(grouped_matmul);
KERNEL(grouped_matmul_wgrad);
SCRATCH(grouped_matmul_wgrad);

KERNEL(map); /* add, mul, scale, the activations and their gradients, accumulate */
KERNEL(dropout);
KERNEL(ema);
KERNEL(gate);
KERNEL(gate_grad);

KERNEL(layer_norm);
SCRATCH(layer_norm);
KERNEL(layer_norm_grad);
SCRATCH(layer_norm_grad);
KERNEL(rms_norm);
SCRATCH(rms_norm);
KERNEL(rms_norm_grad);
SCRATCH(rms_norm_grad);
KERNEL(softmax);
KERNEL(softmax_grad);

KERNEL(rotary);
SCRATCH(rotary);
KERNEL(attention);
SCRATCH(attention);
KERNEL(attention_merge);
KERNEL(attention_grad);
SCRATCH(attention_grad);
KERNEL(rel_bucket);

KERNEL(embedding);
KERNEL(embedding_grad);
SCRATCH(embedding_grad);
KERNEL(cross_entropy);
KERNEL(cross_entropy_merge);
KERNEL(cross_entropy_grad);
KERNEL(gather);
KERNEL(scatter_add);
SCRATCH(scatter_add);

KERNEL(reduce);
SCRATCH(reduce);
KERNEL(broadcast);
KERNEL(reshape);
KERNEL(transpose);
KERNEL(concat);
KERNEL(split);
KERNEL(slice);
KERNEL(slice_grad);
KERNEL(fill);
KERNEL(cast);

KERNEL(route);
KERNEL(route_grad);
KERNEL(dispatch);
KERNEL(own_offsets);
SCRATCH(dispatch);
KERNEL(dispatch_grad);
SCRATCH(dispatch_grad);
KERNEL(combine);
SCRATCH(combine);
KERNEL(combine_grad);

KERNEL(conv2d);
SCRATCH(conv2d);
KERNEL(conv2d_grad_x);
SCRATCH(conv2d_grad_x);
KERNEL(conv2d_grad_w);
SCRATCH(conv2d_grad_w);
KERNEL(max_pool);
KERNEL(max_pool_grad);
KERNEL(avg_pool);
KERNEL(avg_pool_grad);
KERNEL(batch_norm);
KERNEL(batch_norm_grad);
KERNEL(batch_norm_infer);

KERNEL(sumsq);
SCRATCH(sumsq);
KERNEL(sumsq_parts);
KERNEL(sumsq_tree);
SCRATCH(sumsq_tree);
KERNEL(clip);
KERNEL(update); /* sgd, sgd_momentum, adam, adamw, adagrad, lamb_dir, lamb */
bool weft_kernel__takes_update(const weft_kernel_call *c);
bool weft_kernel__takes_ema(const weft_kernel_call *c);
PREPARE(update);

/* Loss, log-sum-exp and gradient of each row of logits in one visit; loss and lse may be NULL
 * views (p == NULL), dlogits may be the logits.  Same bits as the two operators one after the
 * other. */
weft_status weft_kernel__cross_entropy_both(const weft_view *logits,
                                            const weft_view *labels,
                                            const weft_view *dloss, const weft_view *loss,
                                            const weft_view *lse,
                                            const weft_view *dlogits, int64_t ignore,
                                            weft_pool *pool);

/* Copies (and converts) a strided view to another of the same shape. */
weft_status weft_kernel__copy(const weft_view *to, const weft_view *from, int add,
                              weft_pool *pool);
/* Sets n bytes at p to zero, in parallel. */
void weft_kernel__zero(void *p, size_t n, weft_pool *pool);

/* move.c */
weft_status weft_kernel__run_copy(const weft_kernel_ctx *x, const weft_view *to,
                                  const weft_view *from);
weft_status weft_kernel__run_merge(const weft_kernel_ctx *x, const weft_view *to,
                                   const weft_view *from);

#endif
