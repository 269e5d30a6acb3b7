#include "program/class.h"

const char *weft_class_name(weft_class c)
{
    static const char *const name[WEFT_N_CLASS] = {
        "products", "attention", "norms", "loss", "update", "other", "gaps"};
    return name[c];
}

weft_class weft_op_class(weft_op op)
{
    switch (op) {
    case WEFT_OP_MATMUL:
    case WEFT_OP_GROUPED_MATMUL:
    case WEFT_OP_GROUPED_MATMUL_WGRAD:
    case WEFT_OP_CONV2D:
    case WEFT_OP_CONV2D_GRAD_X:
    case WEFT_OP_CONV2D_GRAD_W: return WEFT_CLASS_PRODUCTS;
    case WEFT_OP_ATTENTION:
    case WEFT_OP_ATTENTION_MERGE:
    case WEFT_OP_ATTENTION_GRAD: return WEFT_CLASS_ATTENTION;
    case WEFT_OP_LAYER_NORM:
    case WEFT_OP_LAYER_NORM_GRAD:
    case WEFT_OP_RMS_NORM:
    case WEFT_OP_RMS_NORM_GRAD:
    case WEFT_OP_BATCH_NORM:
    case WEFT_OP_BATCH_NORM_GRAD: return WEFT_CLASS_NORMS;
    case WEFT_OP_CROSS_ENTROPY:
    case WEFT_OP_CROSS_ENTROPY_MERGE:
    case WEFT_OP_CROSS_ENTROPY_GRAD: return WEFT_CLASS_LOSS;
    case WEFT_OP_SUMSQ:
    case WEFT_OP_SUMSQ_PARTS:
    case WEFT_OP_SUMSQ_TREE:
    case WEFT_OP_CLIP: return WEFT_CLASS_UPDATE;
    default:
        return weft_op_get(op)->flags & WEFT_OP_UPDATE ? WEFT_CLASS_UPDATE
                                                       : WEFT_CLASS_OTHER;
    }
}

weft_class weft_instr_class(const weft_instr *i)
{
    return i->kind == WEFT_INSTR_COMPUTE ? weft_op_class(i->op) : WEFT_CLASS_OTHER;
}
