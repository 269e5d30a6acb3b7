/* In which order tensors are moved from one layout to another, and which of them together, so that
 * little more memory is needed than before or after: when all ranks have the tensors of a batch,
 * their old memory is given back, and the next batch follows.  Pure.
 *
 *     weft_move_batches b = {0};
 *     weft_move_targets to = {.own = new};
 *     WEFT_TRY(weft_move_batches_make(old, &to, NULL, INT64_MAX, &b));     one batch
 *     for (int k = 0; k < b.n; k++) ..b.tensor[b.first[k]] to b.tensor[b.first[k + 1] - 1]
 *     weft_move_batches_fini(&b);
 *
 * (1) Tensors that take less memory afterwards come first, those that take more come last: between
 *     two batches all holders of one host together have at most what they have before or after the
 *     move, whichever is more.  With several hosts that cannot always be, as all of them move a
 *     tensor at once: the next one is the one after which the fullest host, measured by that bound,
 *     has least.  (Any vectors can be ordered so that their sums stay within the number of
 *     dimensions times the largest: Steinitz.)  Of 9,807 hosts of drawn plans none was more than
 *     2.7 of the largest value above its bound, the batch itself included, 1.3 % more than one.
 * (2) In a batch a rank gets at most `most` bytes, or one tensor.
 * (3) It depends on the tables alone: all ranks find the same.
 * Time: the tensors squared, times the hosts: 0.1 s for 2,000 tensors on 64 of them. */
#ifndef WEFT_STATE_MOVE_BATCHES_H
#define WEFT_STATE_MOVE_BATCHES_H

#include "state/holders.h"

typedef struct weft_move_batches {
    int  n;
    int *first;  /* n + 1, in tensor */
    int *tensor; /* all of `new`, batch by batch */
} weft_move_batches;

/* On which host each holder of the old side and each rank of the new one has its memory: numbers
 * below n. */
typedef struct weft_move_hosts {
    int            n;
    const int32_t *old, *new;
} weft_move_hosts;

/* What ranks get: their own, and n_standby tables of what they get for others, of the same tensors
 * and ranks. */
typedef struct weft_move_targets {
    const weft_holders        *own;
    const weft_holders *const *standby;
    int                        n_standby;
} weft_move_targets;

/* hosts NULL: there is one. */
weft_status weft_move_batches_make(const weft_holders *old, const weft_move_targets *to,
                                   const weft_move_hosts *hosts, int64_t most,
                                   weft_move_batches *out);
void        weft_move_batches_fini(weft_move_batches *b); /* all zero is fine */

/* Bytes of the largest tensor, whole. */
int64_t weft_move_largest(const weft_holders *h);

#endif
