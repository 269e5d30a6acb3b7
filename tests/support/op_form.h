/* The forms of a case: what is asked of a kernel beside its operator.  Used by op_table.c. */
#ifndef WEFT_TESTS_OP_FORM_H
#define WEFT_TESTS_OP_FORM_H

#include "support/op_cases.h"

enum {
    OP_MAX_STEP = 6 /* fused steps of one call */
};

typedef enum op_storage {
    OP_STORAGE_F32,
    OP_STORAGE_BF16,
    OP_STORAGE_MIXED, /* bf16, with weights of norms in f32 as bf16 jobs have them */
    OP_N_STORAGE
} op_storage;

typedef enum op_layout {
    OP_DENSE,
    OP_SHIFTED, /* dense, one element after an aligned address */
    OP_PADDED,  /* gaps between rows */
    OP_TURNED,  /* the first dimension runs fastest */
    OP_SPREAD, /* operands: stride 0 in the first dimension that has more than one index */
    OP_N_LAYOUT
} op_layout;

/* What is asked of the kernel beside its operator. */
typedef struct op_form {
    op_storage storage;
    op_layout  layout;
    unsigned   add;      /* bit j: result j is added to */
    unsigned   unkept;   /* bit j: nobody keeps result j */
    bool       in_place; /* results over the operands that the row lets them overwrite */
    int        chain;    /* fused steps: a number below op_n_chain(op); -1 none */
    bool       add_sums; /* the sums that a step makes are added to */
} op_form;

/* An operator behind another one, in the same call. */
typedef struct op_step {
    weft_op     op;
    const char *attr; /* NULL: sums over all dimensions but the last */
    /* the other operand: 'r' as large as a row of the product (all of it where the product has no
     * rows), 'f' as large as the result, 0 none */
    char other;
    bool kept;
} op_step;

typedef struct op_chain {
    bool    product_kept;
    int     n;
    op_step s[OP_MAX_STEP];
} op_chain;

/* Chain i of those that the operator takes: behind a product, or a fusion (weft_fusion). */
const op_chain *op_chain_of(weft_op op, int i);
/* The fusions (weft_fusion) that a device must have for it; 0: every device does. */
unsigned op_form_fusions(weft_op op, const op_form *f);

/* A loss with its gradient: all results kept and one weight for each row; log-sum-exp not kept, the
 * gradient over the logits, one weight for all rows. */
enum {
    OP_LOSS_KEPT,
    OP_LOSS_IN_PLACE,
    OP_N_LOSS
};

/* Does the row promise this form, and can the case take it?  Only after op_trial_make is it known
 * whether a result can be placed over an operand; WEFT_AGAIN there: it cannot. */
bool op_form_fits(const weft_test_case *c, const op_form *f);
int  op_n_chain(weft_op op);
/* "bf16 padded, adding 1, without result 2, steps add gelu" */
void op_form_text(const weft_test_case *c, const op_form *f, char *buf, size_t n);

/* An embedding's gradient with a table that it is added to. */
bool op_has_base(const weft_test_case *c);

#endif
