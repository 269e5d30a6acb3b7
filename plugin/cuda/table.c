/* The rows of the plugin: fast kernels in front of plain ones. */
#include <stdio.h>
#include <string.h>

#include "cuda_priv.h"
#include "library.h"

#define ROW(which, name)                                                                 \
    {                                                                                    \
        .op = WEFT_OP_##which, .run = weft_cuda_run_##name,                              \
        .scratch = weft_cuda_scratch_##name, .takes = weft_cuda_takes_##name,            \
        .prepare = weft_cuda_prepare_##name, .release = weft_cuda_release_##name         \
    }

#define UPDATE(which)                                                                    \
    {                                                                                    \
        .op = WEFT_OP_##which, .run = weft_cuda_run_update,                              \
        .takes = weft_cuda_takes_update, .many = &many_updates,                          \
        .fusions = WEFT_FUSION_COPY                                                      \
    }

static const weft_kernel_many many_casts   = {.run = weft_cuda_many_cast};
static const weft_kernel_many many_updates = {.run = weft_cuda_many_update};
static const weft_kernel_many many_sumsq   = {.run     = weft_cuda_many_sumsq,
                                              .scratch = weft_cuda_many_scratch_sumsq};

static const weft_kernel rows[] = {
    /* in front of a library's */
    {.op      = WEFT_OP_ATTENTION_GRAD,
     .run     = weft_cuda_run_attention_back,
     .scratch = weft_cuda_scratch_attention_back,
     .takes   = weft_cuda_takes_attention_back,
     .prepare = weft_cuda_prepare_attention_back,
     .fusions = WEFT_FUSION_ROTARY},

    /* NVIDIA's libraries */
    {.op      = WEFT_OP_MATMUL, /* also for the next two, which multiply what it rounds */
     .run     = weft_cuda_run_fp8,
     .scratch = weft_cuda_scratch_fp8,
     .takes   = weft_cuda_takes_fp8,
     .prepare = weft_cuda_prepare_fp8,
     .release = weft_cuda_release_fp8,
     .fusions = WEFT_FUSION_LARGEST},
    {.op      = WEFT_OP_MATMUL,
     .run     = weft_cuda_run_product,
     .scratch = weft_cuda_scratch_product,
     .takes   = weft_cuda_takes_wide_product,
     .prepare = weft_cuda_prepare_product,
     .release = weft_cuda_release_product},
    ROW(ATTENTION, sdpa),
    {.op      = WEFT_OP_ATTENTION_GRAD,
     .run     = weft_cuda_run_sdpa_turned,
     .scratch = weft_cuda_scratch_sdpa_turned,
     .takes   = weft_cuda_takes_sdpa_turned,
     .prepare = weft_cuda_prepare_sdpa_turned,
     .release = weft_cuda_release_sdpa,
     .fusions = WEFT_FUSION_ROTARY},

    /* products */
    {.op      = WEFT_OP_MATMUL,
     .run     = weft_cuda_run_matmul,
     .scratch = weft_cuda_scratch_matmul,
     .takes   = weft_cuda_takes_wide_matmul},
    {.op      = WEFT_OP_GROUPED_MATMUL,
     .run     = weft_cuda_run_grouped_wgmma,
     .takes   = weft_cuda_takes_grouped_wgmma,
     .prepare = weft_cuda_prepare_grouped_wgmma},
    {.op = WEFT_OP_GROUPED_MATMUL, .run = weft_cuda_run_grouped_matmul},
    {.op      = WEFT_OP_GROUPED_MATMUL_WGRAD,
     .run     = weft_cuda_run_grouped_wgmma_wgrad,
     .takes   = weft_cuda_takes_grouped_wgmma_wgrad,
     .prepare = weft_cuda_prepare_grouped_wgmma_wgrad},
    {.op = WEFT_OP_GROUPED_MATMUL_WGRAD, .run = weft_cuda_run_grouped_matmul_wgrad},

    /* shapes */
    {.op = WEFT_OP_FILL, .run = weft_cuda_run_fill},
    {.op = WEFT_OP_CAST, .run = weft_cuda_run_cast, .many = &many_casts},
    {.op = WEFT_OP_BROADCAST, .run = weft_cuda_run_broadcast},
    {.op = WEFT_OP_RESHAPE, .run = weft_cuda_run_reshape},
    {.op = WEFT_OP_TRANSPOSE, .run = weft_cuda_run_transpose},
    {.op = WEFT_OP_CONCAT, .run = weft_cuda_run_concat},
    {.op = WEFT_OP_SPLIT, .run = weft_cuda_run_split},
    {.op = WEFT_OP_SLICE, .run = weft_cuda_run_slice},
    {.op = WEFT_OP_SLICE_GRAD, .run = weft_cuda_run_slice_grad},

    /* element by element */
    {.op = WEFT_OP_ADD, .run = weft_cuda_run_map},
    {.op = WEFT_OP_MUL, .run = weft_cuda_run_map},
    {.op = WEFT_OP_SCALE, .run = weft_cuda_run_map},
    {.op = WEFT_OP_ACCUMULATE, .run = weft_cuda_run_map},
    {.op = WEFT_OP_GELU, .run = weft_cuda_run_map},
    {.op = WEFT_OP_GELU_GRAD, .run = weft_cuda_run_map},
    {.op = WEFT_OP_SILU, .run = weft_cuda_run_map},
    {.op = WEFT_OP_SILU_GRAD, .run = weft_cuda_run_map},
    {.op = WEFT_OP_RELU, .run = weft_cuda_run_map},
    {.op = WEFT_OP_RELU_GRAD, .run = weft_cuda_run_map},
    {.op = WEFT_OP_TANH, .run = weft_cuda_run_map},
    {.op = WEFT_OP_TANH_GRAD, .run = weft_cuda_run_map},
    {.op = WEFT_OP_EMA, .run = weft_cuda_run_ema},
    {.op = WEFT_OP_GATE, .run = weft_cuda_run_gate},
    {.op = WEFT_OP_GATE_GRAD, .run = weft_cuda_run_gate_grad},
    {.op = WEFT_OP_DROPOUT, .run = weft_cuda_run_dropout},

    /* norms, softmax, reductions */
    {.op = WEFT_OP_LAYER_NORM, .run = weft_cuda_run_layer_norm},
    {.op      = WEFT_OP_LAYER_NORM_GRAD,
     .run     = weft_cuda_run_layer_norm_grad,
     .scratch = weft_cuda_scratch_layer_norm_grad,
     .takes   = weft_cuda_takes_norm_grad,
     .fusions = WEFT_FUSION_RESIDUAL | WEFT_FUSION_NORM_SUMS},
    {.op = WEFT_OP_RMS_NORM, .run = weft_cuda_run_rms_norm},
    {.op      = WEFT_OP_RMS_NORM_GRAD,
     .run     = weft_cuda_run_rms_norm_grad,
     .scratch = weft_cuda_scratch_rms_norm_grad,
     .takes   = weft_cuda_takes_norm_grad,
     .fusions = WEFT_FUSION_RESIDUAL | WEFT_FUSION_NORM_SUMS},
    {.op = WEFT_OP_SOFTMAX, .run = weft_cuda_run_softmax},
    {.op = WEFT_OP_SOFTMAX_GRAD, .run = weft_cuda_run_softmax_grad},
    {.op      = WEFT_OP_REDUCE,
     .run     = weft_cuda_run_reduce,
     .scratch = weft_cuda_scratch_reduce},

    /* once a step */
    {.op      = WEFT_OP_SUMSQ,
     .run     = weft_cuda_run_sumsq,
     .scratch = weft_cuda_scratch_sumsq,
     .many    = &many_sumsq},
    {.op      = WEFT_OP_SUMSQ_PARTS,
     .run     = weft_cuda_run_sumsq_parts,
     .scratch = weft_cuda_scratch_sumsq_parts},
    {.op      = WEFT_OP_SUMSQ_TREE,
     .run     = weft_cuda_run_sumsq_tree,
     .scratch = weft_cuda_scratch_sumsq_tree},
    {.op = WEFT_OP_CLIP, .run = weft_cuda_run_clip, .scratch = weft_cuda_scratch_clip},
    UPDATE(SGD),
    UPDATE(SGD_MOMENTUM),
    UPDATE(ADAM),
    UPDATE(ADAMW),
    UPDATE(ADAGRAD),
    {.op = WEFT_OP_LAMB_DIR, .run = weft_cuda_run_update},
    UPDATE(LAMB),

    /* tables */
    {.op = WEFT_OP_EMBEDDING, .run = weft_cuda_run_embedding},
    {.op      = WEFT_OP_EMBEDDING_GRAD,
     .run     = weft_cuda_run_embedding_grad,
     .scratch = weft_cuda_scratch_embedding_grad},
    {.op = WEFT_OP_GATHER, .run = weft_cuda_run_gather},
    {.op      = WEFT_OP_SCATTER_ADD,
     .run     = weft_cuda_run_scatter_add,
     .scratch = weft_cuda_scratch_scatter_add},

    /* losses */
    {.op    = WEFT_OP_CROSS_ENTROPY,
     .run   = weft_cuda_run_cross_entropy_rows,
     .takes = weft_cuda_takes_cross_entropy_rows},
    {.op = WEFT_OP_CROSS_ENTROPY, .run = weft_cuda_run_cross_entropy},
    {.op = WEFT_OP_CROSS_ENTROPY_MERGE, .run = weft_cuda_run_cross_entropy_merge},
    {.op    = WEFT_OP_CROSS_ENTROPY_GRAD,
     .run   = weft_cuda_run_cross_entropy_grad_rows,
     .takes = weft_cuda_takes_cross_entropy_grad_rows},
    {.op = WEFT_OP_CROSS_ENTROPY_GRAD, .run = weft_cuda_run_cross_entropy_grad},

    /* attention */
    {.op = WEFT_OP_ATTENTION, .run = weft_cuda_run_attention},
    {.op      = WEFT_OP_ATTENTION_GRAD,
     .run     = weft_cuda_run_attention_turned,
     .scratch = weft_cuda_scratch_attention_grad,
     .takes   = weft_cuda_takes_attention_grad,
     .fusions = WEFT_FUSION_ROTARY},
    {.op = WEFT_OP_ATTENTION_MERGE, .run = weft_cuda_run_attention_merge},
    {.op = WEFT_OP_ROTARY, .run = weft_cuda_run_rotary},
    {.op      = WEFT_OP_REL_BUCKET,
     .run     = weft_cuda_run_rel_bucket,
     .prepare = weft_cuda_prepare_rel_bucket},

    /* experts */
    {.op = WEFT_OP_ROUTE, .run = weft_cuda_run_route},
    {.op = WEFT_OP_ROUTE_GRAD, .run = weft_cuda_run_route_grad},
    {.op      = WEFT_OP_DISPATCH,
     .run     = weft_cuda_run_dispatch,
     .scratch = weft_cuda_scratch_dispatch},
    {.op = WEFT_OP_OWN_OFFSETS, .run = weft_cuda_run_own_offsets},
    {.op      = WEFT_OP_DISPATCH_GRAD,
     .run     = weft_cuda_run_dispatch_grad,
     .scratch = weft_cuda_scratch_dispatch_grad},
    {.op      = WEFT_OP_COMBINE,
     .run     = weft_cuda_run_combine,
     .scratch = weft_cuda_scratch_combine},
    {.op = WEFT_OP_COMBINE_GRAD, .run = weft_cuda_run_combine_grad},

    /* vision */
    {.op = WEFT_OP_CONV2D, .run = weft_cuda_run_conv2d},
    {.op = WEFT_OP_CONV2D_GRAD_X, .run = weft_cuda_run_conv2d_grad_x},
    {.op      = WEFT_OP_CONV2D_GRAD_W,
     .run     = weft_cuda_run_conv2d_grad_w,
     .scratch = weft_cuda_scratch_conv2d_grad_w},
    {.op = WEFT_OP_MAX_POOL, .run = weft_cuda_run_max_pool},
    {.op      = WEFT_OP_MAX_POOL_GRAD,
     .run     = weft_cuda_run_max_pool_grad,
     .scratch = weft_cuda_scratch_max_pool_grad},
    {.op = WEFT_OP_AVG_POOL, .run = weft_cuda_run_avg_pool},
    {.op = WEFT_OP_AVG_POOL_GRAD, .run = weft_cuda_run_avg_pool_grad},
    {.op      = WEFT_OP_BATCH_NORM,
     .run     = weft_cuda_run_batch_norm,
     .scratch = weft_cuda_scratch_batch_norm},
    {.op      = WEFT_OP_BATCH_NORM_GRAD,
     .run     = weft_cuda_run_batch_norm_grad,
     .scratch = weft_cuda_scratch_batch_norm_grad},
    {.op = WEFT_OP_BATCH_NORM_INFER, .run = weft_cuda_run_batch_norm_infer},
};

static const char *name_set(void)
{
    static _Thread_local char text[256];
    weft_cuda_libraries_id(text, sizeof text);
    size_t n = strlen(text);
    if (weft_cuda_wgmma_blocks())
        snprintf(text + n, sizeof text - n, " attention_back-1");
    return text;
}

const weft_kernel_table weft_cuda_table = {
    .device  = "cuda",
    .storage = 1u << WEFT_DTYPE_F32 | 1u << WEFT_DTYPE_BF16,
    .id      = name_set,
    .n       = (int)WEFT_COUNT(rows),
    .kernel  = rows,
    .copy    = weft_cuda_copy,
    .merge   = weft_cuda_merge,
};
