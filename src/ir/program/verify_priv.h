/* Shared between the files that check a program. */
#ifndef WEFT_PROGRAM_VERIFY_PRIV_H
#define WEFT_PROGRAM_VERIFY_PRIV_H

#include "program/program.h"

/* "program p, actor a, send 'y': " + words. */
#define WEFT_PROGRAM__BAD(p, a, i, fmt, ...)                                             \
    WEFT_FAIL(WEFT_ERR_ARG, "program %s, actor %s, %s '%s': " fmt, (p)->name, (a)->name, \
              weft_instr_kind_name((i)->kind), (i)->name, __VA_ARGS__)

/* One instruction by itself: operands inside buffers, types, what its kind asks for. */
weft_status weft_program__verify_instr(const weft_program *p, const weft_actor *a,
                                       const weft_instr *i);
/* An operand inside its buffer; the words are put in front by the caller. */
weft_status weft_program__verify_operand(const weft_program *p, const weft_operand *o);

/* Steps after which nothing new can happen: one and its wrap into the next, or as far as the
 * longest delay of an edge reaches. */
int weft_program__verify_steps(const weft_program *p);
/* Invariants (2) and (3), over so many steps. */
weft_status weft_program__verify_memory(const weft_program *p);

#endif
