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

/* A firing knows, for each stream, the last firing that is surely over; of its own stream, itself.
 * Firings count on from step to step. */
typedef struct weft_program__clock {
    int64_t at[WEFT_MAX_STREAM];
} weft_program__clock;

/* A run of a program's firings through the steps, without the work. */
typedef struct weft_program__run {
    weft_program__clock *clock[WEFT_MAX_STREAM]; /* of each firing */
    int64_t              n;
    struct {
        int     stream;
        int64_t at;
    } * fired; /* in an order that everything allows */
} weft_program__run;

/* Steps after which nothing new can happen: one and its wrap into the next, or as far as the
 * longest delay of an edge reaches. */
int weft_program__verify_steps(const weft_program *p);
/* Invariants (2) and (3), over so many steps; then (5). */
weft_status weft_program__verify_memory(const weft_program *p);

/* Invariant (5), by the order that a run has found. */
weft_status weft_program__verify_commit(const weft_program      *p,
                                        const weft_program__run *run, weft_arena *tmp);

#endif
