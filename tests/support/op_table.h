/* The operator table on a device: every row of ops.def that is no communication, by every kernel
 * that the device has for it, in the device's memory, compared with the reference kernels.
 *
 *     weft_op_table_options o = {.seed = 11};
 *     weft_op_table_report  r;
 *     WEFT_TRY(weft_op_table_run(device, &o, &r));
 *     ok = !r.n_failed && !r.n_missing && !r.n_without_case;
 *
 * A case (op_cases.h) runs in f32 and bf16 and in every form that its row promises: strided views,
 * adding into results, fused steps, results over operands, results that nobody keeps (op_trial.h).
 * Operands are in space DEVICE, written and read by weft_device_write and _read; the kernel runs as
 * a loaded task on a stream of the device, with scratch and step scalars in device memory
 * (device_call.h).  Checked: numbers (||out - ref|| / ||ref|| at most 1e-5 in f32, 1e-2 in bf16, by
 * the type of the result; moves and integers exactly), every element written, nothing written
 * outside, operands unchanged, the same bits again, and that a call prepared once serves steps with
 * other numbers.
 *
 * Prints a line for each failing case, then a table of operators and types.  No test framework:
 * programs without one use it too. */
#ifndef WEFT_TESTS_OP_TABLE_H
#define WEFT_TESTS_OP_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "device/device.h"

/* How kernels run: all settings give the same bits. */
typedef struct weft_op_table_setting {
    const char *name;    /* "2 threads, avx2" */
    int         threads; /* of the pool that kernels get; 0: no pool */
    /* called before; false: leave the setting out.  NULL: nothing */
    bool (*enter)(int arg);
    int arg;
} weft_op_table_setting;

typedef struct weft_op_table_options {
    const char *only; /* operators, "matmul,add"; NULL: all */
    uint64_t    seed; /* of the numbers */
    /* empty and small cases alone, or the large ones alone, which have more than one task each */
    bool small, large;
    /* from one small or large case to the next; 0: all of them */
    int small_stride, large_stride;
    /* without fused steps, also: no element is off by more than 1e-5 (bf16: 8e-3) of the largest */
    bool by_element;
    bool fail_fast; /* stop at the first failure */
    /* NULL: one, without a pool.  All forms run under the first one */
    const weft_op_table_setting *setting;
    int                          n_setting;
    FILE                        *out;   /* NULL: standard output */
    bool                         quiet; /* failures alone, no table */
} weft_op_table_options;

typedef struct weft_op_table_report {
    int n_trial;        /* a case in one form by one kernel */
    int n_failed;       /* trials that failed, and forms that no kernel takes */
    int n_missing;      /* rows without any kernel, in f32 and bf16 */
    int n_without_case; /* rows that no case is for */
} weft_op_table_report;

/* What fails is printed and counted; other results than WEFT_OK mean that nothing could be run. */
weft_status weft_op_table_run(weft_device *d, const weft_op_table_options *o,
                              weft_op_table_report *out);

#endif
