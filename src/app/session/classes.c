#include "session/classes.h"

#include <string.h>

const char *weft_class_name(weft_class c)
{
    static const char *const name[WEFT_N_CLASS] = {
        "products", "attention", "norms", "loss", "update", "other", "gaps"};
    return name[c];
}

static weft_class class_of(const weft_instr *i)
{
    if (i->kind != WEFT_INSTR_COMPUTE) return WEFT_CLASS_OTHER;
    switch (i->op) {
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
        return weft_op_get(i->op)->flags & WEFT_OP_UPDATE ? WEFT_CLASS_UPDATE
                                                          : WEFT_CLASS_OTHER;
    }
}

void weft_classes_sum(const weft_timeline *t, double step_ms, double ms[WEFT_N_CLASS])
{
    double all = 0;
    memset(ms, 0, sizeof *ms * WEFT_N_CLASS);
    for (int k = 0; k < t->n_slice; k++) {
        const weft_slice *s = &t->slice[k];
        if (s->step != t->n_step - 1) continue;
        const weft_instr *i    = &t->program[s->program]->actor[s->actor].instr[s->instr];
        double            took = 1e3 * (s->end_s - s->start_s);
        ms[class_of(i)] += took;
        all += took;
    }
    ms[WEFT_CLASS_GAPS] = step_ms > all ? step_ms - all : 0;
}
