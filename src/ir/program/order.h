/* What every firing of one program waits for and gives: edges and credits turned into counters.
 *
 * An edge has two counters over the life of a run: given (messages) and taken (credits returned).
 * In step t (from 0) a firing may start when, for each of its waits,
 *
 *     counter >= t * per_step + at
 *
 * and when it ends it adds one to the counter of each of its gives.  Who gives count number n is
 * fixed, because the firings of an actor run in the order of its stream's list.
 * Verify, sim and exec all read this table, so they mean the same by an edge. */
#ifndef WEFT_PROGRAM_ORDER_H
#define WEFT_PROGRAM_ORDER_H

#include "program/program.h"

typedef struct weft_wait {
    int32_t edge;
    bool    credit;   /* waits on taken instead of given */
    int32_t per_step; /* how much the counter grows a step */
    int64_t at;
} weft_wait;

typedef struct weft_give {
    int32_t edge;
    bool    credit; /* adds to taken */
} weft_give;

typedef struct weft_firing_order {
    int        n_wait, n_give;
    weft_wait *wait;
    weft_give *give;
} weft_firing_order;

typedef struct weft_order {
    weft_firing_order *firing[WEFT_MAX_STREAM]; /* of each stream, as its list */
    int32_t           *per_step;                /* of each edge: messages a step */
    /* of each edge, for k in 0..per_step-1: place in the stream's list of the firing that gives
     * message k, and of the one that returns credit k */
    int32_t **giver, **taker;
} weft_order;

/* In a.  Edges between actors of one stream are left out unless all: the list orders those already.
 * WEFT_ERR_ARG: an edge whose ends do not fire for the same micro-batches. */
weft_status weft_order_make(const weft_program *p, weft_arena *a, bool all,
                            weft_order *out);

#endif
