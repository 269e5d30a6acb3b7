/* Classes of instructions, for time by class: weft bench, weft trace. */
#ifndef WEFT_PROGRAM_CLASS_H
#define WEFT_PROGRAM_CLASS_H

#include "program/program.h"

typedef enum weft_class {
    WEFT_CLASS_PRODUCTS,
    WEFT_CLASS_ATTENTION,
    WEFT_CLASS_NORMS,
    WEFT_CLASS_LOSS,
    WEFT_CLASS_UPDATE, /* with sums of squares and clipping */
    WEFT_CLASS_OTHER,
    WEFT_CLASS_GAPS, /* of a step without tracing: what no instruction takes */
    WEFT_N_CLASS
} weft_class;

const char *weft_class_name(weft_class c);
weft_class  weft_op_class(weft_op op);
weft_class  weft_instr_class(const weft_instr *i);

#endif
