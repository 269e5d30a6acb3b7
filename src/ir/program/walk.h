/* Walks the firings of all programs of a job in the order that their lists, edges, sends,
 * receives and collectives allow, in virtual time.  With no seconds it proves that nothing can
 * deadlock (each firing's order is fixed, so if one order gets to the end every order does); with
 * seconds it is the simulator's engine.
 *
 *   instruction   starts when its stream is free, takes its seconds
 *   send          credits > 0: starts when fewer than that many messages of its channel are
 *                 unreceived; the message arrives when it ends.  credits = 0: both ends start
 *                 when both are there and take the longer of their seconds
 *   recv          starts when the message has arrived; its credit returns when it ends
 *   collective    starts when all its ranks are there and takes the longest of their seconds
 *
 * Ranks of one host may share its cores and memory: what runs there then gets on the more slowly
 * the more of it runs at once (waiting takes nothing; talking keeps cores busy, but lasts as long
 * as is said). */
#ifndef WEFT_PROGRAM_WALK_H
#define WEFT_PROGRAM_WALK_H

#include "program/timeline.h"

/* How much longer work takes while 1, 2, ... instructions run on a host; past the end in
 * proportion. */
typedef struct weft_walk_host {
    int           n_slow;
    const double *slow;
} weft_walk_host;

typedef struct weft_walk_options {
    int n_step;
    /* [program][instruction number] (weft_program_instr_base); NULL: everything takes no time */
    const double *const *seconds;
    /* told of each instruction that ran; what is not OK ends the walk */
    weft_status (*visit)(void *user, const weft_slice *s);
    void *user;
    /* where ranks share hosts; NULL: they share nothing */
    int                   n_host;
    const weft_walk_host *host;
    const int            *host_of; /* [program] */
} weft_walk_options;

/* The n programs are those of ranks 0..n-1 in any order, each verified by itself.
 * WEFT_ERR_ARG: a deadlock, or messages and collectives that do not match; the text says who
 * waits for what. */
weft_status weft_program_walk(const weft_program *const *p, int n,
                              const weft_walk_options *o);

#endif
