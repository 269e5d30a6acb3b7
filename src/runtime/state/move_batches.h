/* In which order tensors are moved from one layout to another, and which of them together, so that
 * little more memory is needed than before or after: when all ranks have the tensors of a batch,
 * their old memory is given back, and the next batch follows.  Pure.
 *
 *     weft_move_batches b = {0};
 *     WEFT_TRY(weft_move_batches_make(old, new, standby, INT64_MAX, &b));      one batch
 *     for (int k = 0; k < b.n; k++) ..b.tensor[b.first[k]] to b.tensor[b.first[k + 1] - 1]
 *     weft_move_batches_fini(&b);
 *
 * (1) Tensors that take less memory afterwards come first, those that take more come last: between
 *     two batches all holders together have at most what they have before or after the move,
 *     whichever is more.
 * (2) In a batch a rank gets at most `most` bytes, or one tensor.
 * (3) It depends on the tables alone: all ranks find the same. */
#ifndef WEFT_STATE_MOVE_BATCHES_H
#define WEFT_STATE_MOVE_BATCHES_H

#include "state/holders.h"

typedef struct weft_move_batches {
    int  n;
    int *first;  /* n + 1, in tensor */
    int *tensor; /* all of `new`, batch by batch */
} weft_move_batches;

/* standby: what ranks get for others, of the same tensors and ranks as `new`; or NULL. */
weft_status weft_move_batches_make(const weft_holders *old, const weft_holders *new,
                                   const weft_holders *standby, int64_t most,
                                   weft_move_batches *out);
void        weft_move_batches_fini(weft_move_batches *b); /* all zero is fine */

/* Bytes of the largest tensor, whole. */
int64_t weft_move_largest(const weft_holders *h);

#endif
