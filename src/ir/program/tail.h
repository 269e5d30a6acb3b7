/* The tail of a step: what a rank computes after its commit point, as a function of its state and
 * of inputs that are complete there (gradients, the clipping scale, the step's own inputs).
 *
 *     weft_tail t;
 *     WEFT_TRY(weft_program_find_tail(p, arena, &t));
 *     t.input[k] is in slab t.input[k].slab, from byte t.input[k].at on
 *
 * (1) Two programs of equal `hash` make the same of equal states and inputs, bit by bit: names,
 *     operators, attributes, types and strides, and what each operand is.  Input k of the one is
 *     input k of the other, and has as many bytes.
 * (2) So a process that holds the state after a step and gets each later step's inputs follows the
 *     job without its other ranks.
 * (3) What is computed together is a unit: a parameter, its moments, its copies.  A process that
 *     holds a unit follows for that unit, whatever the others are; where each element is computed
 *     from the same element of the unit's bindings alone, the same is true of each element. */
#ifndef WEFT_PROGRAM_TAIL_H
#define WEFT_PROGRAM_TAIL_H

#include "program/program.h"

typedef struct weft_tail_input {
    int32_t slab;
    int64_t at, bytes;
} weft_tail_input;

/* Of a binding that is state: the first binding of its unit; -1: it is no state. */
typedef struct weft_tail_unit {
    int32_t first;
    bool    by_element; /* the same for all of a unit */
} weft_tail_unit;

typedef struct weft_tail {
    /* The first instruction: of firing `at` of the stream. */
    int              stream, at, instr;
    int              n_input;
    weft_tail_input *input;
    int64_t          bytes; /* of all inputs */
    weft_tail_unit  *unit;  /* of each binding of the program */
    uint64_t         hash;
} weft_tail;

/* In a.  p is verified.  WEFT_ERR_ARG: its tail is no such function; the text says why: it has
 * none, it communicates (ZeRO's gathers), or it works on the host for a device. */
weft_status weft_program_find_tail(const weft_program *p, weft_arena *a, weft_tail *out);

#endif
