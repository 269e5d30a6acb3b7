/* What a state holds, as bytes: kept next to its tensors in memory that outlives a process, so that
 * another process that has this memory reads what is in it.
 *
 *     weft_state_table_write(s, weft_state_table_bytes(s), memory);     the holder of the state
 *     WEFT_TRY(weft_state_table_open(memory, bytes, &tensors, &s));     a later process
 *
 * Bytes of another process are checked before they are used: lengths, a checksum, and every part
 * against the tensors' memory.
 *
 * A mark for each tensor, after the checksum, says whether its numbers are there.  While a state is
 * moved to another layout by batches, some tensors are not there yet in the new one, and some are
 * no more in the old one: a reader finds both states, each with the tensors that it has.  A mark is
 * one byte, so a process that is killed leaves it as it was or as it shall be. */
#ifndef WEFT_STATE_TABLE_H
#define WEFT_STATE_TABLE_H

#include "state/state.h"

int64_t weft_state_table_bytes(const weft_state *s);
/* n: of weft_state_table_bytes().  All tensors are there. */
void weft_state_table_write(const weft_state *s, int64_t n, void *out);
/* A tensor, and what is held of it for another rank, is there or not; after what it says was done,
 * or before.  tensor -1: all of them. */
void weft_state_table_mark(void *table, int64_t n, int tensor, bool there);
bool weft_state_table_has(const void *table, int64_t n, int tensor);
/* How many tensors are there; -1: it is no table.  *all: of so many. */
int weft_state_table_count(const void *table, int64_t n, int *all);
/* A state over m, which is borrowed: destroying it frees no tensor.  WEFT_ERR_ARG: there is no
 * table, or it is not of this memory.  Tensors in host memory are not part of it; what is held for
 * another rank is (weft_state_standby).  Of a tensor that is not there nothing is held. */
weft_status weft_state_table_open(const void *table, int64_t n, const weft_memory *m,
                                  weft_state **out);

/* The table that was read last, and its state.  Replicas have the same bytes in their tables: the
 * states that are opened one after another share what is made of them, and the first of them
 * outlives the others.  All zero before the first one. */
typedef struct weft_state_table_last {
    int64_t          *word;
    int64_t           n;
    const weft_state *state;
} weft_state_table_last;

weft_status weft_state_table_open_next(const void *table, int64_t n, const weft_memory *m,
                                       weft_state_table_last *last, weft_state **out);
void        weft_state_table_last_fini(weft_state_table_last *last);

#endif
