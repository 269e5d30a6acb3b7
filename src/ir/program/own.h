/* Which part of its states a rank computes by itself, and which it gathers from other ranks after
 * the commit point.  A rank that ends a step without its peers has the first, not the second. */
#ifndef WEFT_PROGRAM_OWN_H
#define WEFT_PROGRAM_OWN_H

#include "program/program.h"

/* What comes before the commit point, by lists and edges of one rank. */
typedef struct weft_commit_place {
    int stream; /* that has it; -1: the program has none */
    /* of each stream: the first firings of a step, so many */
    int before[WEFT_MAX_STREAM];
    int instr; /* of the firing after them in its own stream: the commit point */
} weft_commit_place;
/* p is verified; tmp: for tables. */
weft_status weft_program_find_before(const weft_program *p, weft_arena *tmp,
                                     weft_commit_place *out);

/* Elements [lo, hi) of a binding, in the order of its memory. */
typedef struct weft_own_run {
    int64_t lo, hi;
} weft_own_run;

/* One for each binding of p, in a: all of it where nothing is gathered, the rank's share where a
 * collective gathers it, none where another rank sends it (of a copy in another type perhaps on all
 * ranks: it is cast from the parameter, which some rank computes).  Of bindings that are no
 * states: all. p is verified. */
weft_status weft_program_find_own(const weft_program *p, weft_arena *a,
                                  weft_own_run **out);

#endif
