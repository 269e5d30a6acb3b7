/* One trial: a case of the op-test table in one form, run by one kernel on a device and compared
 * with the reference kernels.  Used by op_table.c.
 *
 *     op_trial t;
 *     op_trial_make(&t, arena, &the_case, &form, &numbers, seed);     operands in host memory
 *     op_trial_reference(&t, &scalars);
 *     op_trial_restore(&t);  device_call_run(..);              on t.call
 *     op_trial_check(&t, &limits, &error);
 *
 * Results are poisoned before a run (or hold numbers, where they are added to), and so are the gaps
 * of strided views: a check finds elements that were not written, gaps that were, and operands that
 * changed. */
#ifndef WEFT_TESTS_OP_TRIAL_H
#define WEFT_TESTS_OP_TRIAL_H

#include "kernel/kernel.h"
#include "support/op_form.h"

typedef struct op_tensor {
    weft_view v;
    bool      dense;
    double   *x; /* its numbers, contiguous */
    int64_t   n;
    char     *mem, *before; /* all of its memory, and what it holds before a run */
    size_t    bytes;
} op_tensor;

/* Numbers that were drawn, which the forms of a case share.  In an arena that outlives trials. */
typedef struct op_numbers {
    weft_arena *arena;
    int         n;
    struct {
        uint64_t seed;
        int      operand;
        int64_t  n;
        double  *x;
    } drawn[32];
} op_numbers;

typedef struct op_trial {
    const weft_test_case *the_case;
    op_form               form;
    weft_arena           *arena;
    op_numbers           *numbers; /* borrowed */
    weft_op_use           use;
    int                   n_in, n_out; /* with those of fused steps */
    op_tensor            *in, *out;
    double         **want; /* result j by the reference kernels, as it would be stored */
    weft_kernel_call call;
} op_trial;

typedef struct op_limits {
    /* without fused steps, also: no element differs by more than a fraction of the largest */
    bool by_element;
} op_limits;

weft_status op_trial_make(op_trial *t, weft_arena *arena, const weft_test_case *c,
                          const op_form *f, op_numbers *numbers, uint64_t seed);
/* Other numbers for the same operands; scalar operands are multiplied by factor. */
void        op_trial_fill(op_trial *t, uint64_t seed, double factor);
weft_status op_trial_reference(op_trial *t, const weft_step_scalars *s);
/* Operands and results as they are before a run. */
void op_trial_restore(op_trial *t);
/* After a run.  *error: the largest relative error by norm.  WEFT_ERR_INTERNAL: it is wrong. */
weft_status op_trial_check(op_trial *t, const op_limits *limits, double *error);
/* All bytes of all results one after the other, in the arena; and whether they are the same now. */
char *op_trial_bytes(const op_trial *t);
bool  op_trial_same(const op_trial *t, const char *bytes);

#endif
