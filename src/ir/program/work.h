/* What an instruction is measured by: its kind of work, and the sizes that its time goes by.
 * Calibrations keep measured times under these words, prices look them up; no model has a word in
 * them.
 *
 *     matmul nn+add+gelu   512 768 192     a product, no operand turned, two fused steps: m n k
 *     matmul tn fp8        512 768 192     its operands rounded to fp8
 *     attention by keys    8e6 1024 64     flops, keys that a row sees, size of a head; its
 *                                          gradient "+shared" where heads share keys
 *     grouped_matmul       8e6 1e5         flops and bytes
 *     layer_norm           1e6 768         bytes, width of a row; reduce: bytes, results
 *     adamw                1e6             bytes
 *     merge                4e5
 *     graph node           1               GPUs: between two launches of a step's graph
 *     step                 1               GPUs: what a step takes besides its instructions */
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

#define WEFT_WORK_NODE "graph node"
#define WEFT_WORK_STEP "step"

/* Is it a node of a step's graph?  Updates, sums of squares and conversions are launched many at a
 * time (exec/group.c). */
bool weft_instr_launches(const weft_instr *i);

/* n 0: nothing to measure it by (messages, collectives, marks). */
void weft_instr_work(const weft_instr *i, weft_workload *out);

/* A matmul whose operands are rounded to fp8. */
bool weft_instr_is_fp8(const weft_instr *i);
/* What making and reading the codes of its operands moves in a device's memory, besides
 * weft_instr_bytes(). */
double weft_instr_fp8_bytes(const weft_instr *i);

/* Bytes that each of a group's members gives to a collective, its terms counted: each travels to
 * its owner, the sum once on the way back. */
double weft_instr_given(const weft_instr *i, const weft_group *g);

#endif
