/* The CPU's table of kernels, one row an operator.  All of them take f32 and bf16 storage. */
#include <stdio.h>

#include "kernel/cpu_priv.h"
#include "kernel/gemm.h"
#include "kernel/rows.h"

#define PLAIN(ID, name)                                                                  \
    {                                                                                    \
        .op = WEFT_OP_##ID, .run = weft_kernel__cpu_##name                               \
    }
/* with scratch */
#define ROOMY(ID, name)                                                                  \
    {                                                                                    \
        .op = WEFT_OP_##ID, .run = weft_kernel__cpu_##name,                              \
        .scratch = weft_kernel__cpu_##name##_scratch                                     \
    }

/* an update, which also makes the bf16 copy of its parameter */
#define UPDATE(ID)                                                                       \
    {                                                                                    \
        .op = WEFT_OP_##ID, .run = weft_kernel__cpu_update,                              \
        .prepare = weft_kernel__cpu_update_prepare, .takes = weft_kernel__takes_update,  \
        .fusions = WEFT_FUSION_COPY, .undoes = true                                      \
    }
#define PREPARED(ID, name)                                                               \
    {                                                                                    \
        .op = WEFT_OP_##ID, .run = weft_kernel__cpu_##name,                              \
        .prepare = weft_kernel__cpu_##name##_prepare                                     \
    }

static const weft_kernel kernels[] = {
    ROOMY(MATMUL, matmul),
    ROOMY(GROUPED_MATMUL, grouped_matmul),
    ROOMY(GROUPED_MATMUL_WGRAD, grouped_matmul_wgrad),

    PLAIN(ADD, map),
    PLAIN(MUL, map),
    PLAIN(SCALE, map),
    PLAIN(CAST, cast),
    PLAIN(GELU, map),
    PLAIN(GELU_GRAD, map),
    PLAIN(SILU, map),
    PLAIN(SILU_GRAD, map),
    PLAIN(RELU, map),
    PLAIN(RELU_GRAD, map),
    PLAIN(TANH, map),
    PLAIN(TANH_GRAD, map),
    PLAIN(GATE, gate),
    PLAIN(GATE_GRAD, gate_grad),
    PLAIN(DROPOUT, dropout),

    ROOMY(LAYER_NORM, layer_norm),
    ROOMY(LAYER_NORM_GRAD, layer_norm_grad),
    ROOMY(RMS_NORM, rms_norm),
    ROOMY(RMS_NORM_GRAD, rms_norm_grad),
    PLAIN(SOFTMAX, softmax),
    PLAIN(SOFTMAX_GRAD, softmax_grad),

    ROOMY(ROTARY, rotary),
    ROOMY(ATTENTION, attention),
    PLAIN(ATTENTION_MERGE, attention_merge),
    ROOMY(ATTENTION_GRAD, attention_grad),
    PLAIN(REL_BUCKET, rel_bucket),

    PLAIN(EMBEDDING, embedding),
    ROOMY(EMBEDDING_GRAD, embedding_grad),
    PLAIN(CROSS_ENTROPY, cross_entropy),
    PLAIN(CROSS_ENTROPY_MERGE, cross_entropy_merge),
    PLAIN(CROSS_ENTROPY_GRAD, cross_entropy_grad),
    PLAIN(GATHER, gather),
    ROOMY(SCATTER_ADD, scatter_add),

    ROOMY(REDUCE, reduce),
    PLAIN(BROADCAST, broadcast),
    PLAIN(RESHAPE, reshape),
    PLAIN(TRANSPOSE, transpose),
    PLAIN(CONCAT, concat),
    PLAIN(SPLIT, split),
    PLAIN(SLICE, slice),
    PLAIN(SLICE_GRAD, slice_grad),
    PLAIN(FILL, fill),

    PLAIN(OWN_OFFSETS, own_offsets),
    PLAIN(ROUTE, route),
    PLAIN(ROUTE_GRAD, route_grad),
    ROOMY(DISPATCH, dispatch),
    ROOMY(DISPATCH_GRAD, dispatch_grad),
    ROOMY(COMBINE, combine),
    PLAIN(COMBINE_GRAD, combine_grad),

    ROOMY(CONV2D, conv2d),
    ROOMY(CONV2D_GRAD_X, conv2d_grad_x),
    ROOMY(CONV2D_GRAD_W, conv2d_grad_w),
    PLAIN(MAX_POOL, max_pool),
    PLAIN(MAX_POOL_GRAD, max_pool_grad),
    PLAIN(AVG_POOL, avg_pool),
    PLAIN(AVG_POOL_GRAD, avg_pool_grad),
    PLAIN(BATCH_NORM, batch_norm),
    PLAIN(BATCH_NORM_GRAD, batch_norm_grad),
    PLAIN(BATCH_NORM_INFER, batch_norm_infer),

    PLAIN(ACCUMULATE, map),
    ROOMY(SUMSQ, sumsq),
    PLAIN(SUMSQ_PARTS, sumsq_parts),
    ROOMY(SUMSQ_TREE, sumsq_tree),
    PLAIN(CLIP, clip),
    {.op      = WEFT_OP_EMA,
     .run     = weft_kernel__cpu_update,
     .prepare = weft_kernel__cpu_update_prepare,
     .takes   = weft_kernel__takes_ema,
     .undoes  = true},
    PLAIN(EMA, ema),
    UPDATE(SGD),
    UPDATE(SGD_MOMENTUM),
    UPDATE(ADAM),
    UPDATE(ADAMW),
    UPDATE(ADAGRAD),
    PREPARED(LAMB_DIR, update),
    UPDATE(LAMB),
};

/* Orders of sums are the same for every instruction set, so none is named.  "rows1" changes with
 * any change of order in this module outside of gemm. */
static const char *name_set(void)
{
    static _Thread_local char id[96];
    snprintf(id, sizeof id, "cpu-rows1-%s", weft_gemm_id());
    return id;
}

const weft_kernel_table weft_kernel__cpu_table = {
    .device  = "cpu",
    .storage = 1u << WEFT_DTYPE_F32 | 1u << WEFT_DTYPE_BF16,
    .id      = name_set,
    .n       = (int)WEFT_COUNT(kernels),
    .kernel  = kernels,
    .copy    = weft_kernel__run_copy,
    .merge   = weft_kernel__run_merge,
};
