/* What an instruction is measured by: its kind of work, and the sizes that its time goes by.
 * Calibrations keep measured times under these words, prices look them up; no model has a word in
 * them.
 *
 *     matmul nn+add+gelu   512 768 192     a product, no operand turned, two fused steps: m n k
 *     attention            8e6 1e5 64      flops, bytes, size of a head
 *     grouped_matmul       8e6 1e5         flops and bytes
 *     adamw                1e6             bytes
 *     merge                4e5 */
#ifndef WEFT_PROGRAM_WORK_H
#define WEFT_PROGRAM_WORK_H

#include "program/program.h"

enum {
    WEFT_WORK_SIZES = 3
};

typedef struct weft_workload {
    char   kind[64];
    int    n;
    double size[WEFT_WORK_SIZES];
} weft_workload;

/* n 0: nothing to measure it by (messages, collectives, marks). */
void weft_instr_work(const weft_instr *i, weft_workload *out);

/* Bytes that each of a group's members gives to a collective, its terms counted: each travels to
 * its owner, the sum once on the way back. */
double weft_instr_given(const weft_instr *i, const weft_group *g);

#endif
