/* Runs of leaves of a binary tree: who sums which part of it.
 *
 * n_lane leaves (a power of two) are dealt to n positions in consecutive runs: as many to each as
 * its share says, or as equal as can be, larger ones first.  A run is the fewest aligned
 * subtrees, its terms; a position sums each by itself, and the terms of all positions, added
 * where two of one level meet, are the tree's sum.
 *
 *     8 lanes, 3 positions:     0 1 2 | 3 4 5 | 6 7     terms of levels   1 0 | 0 1 | 1
 *     by shares 5, 2, 1:    0 1 2 3 4 | 5 6 | 7                           2 0 | 0 0 | 0 */
#ifndef WEFT_BASE_LANES_H
#define WEFT_BASE_LANES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    WEFT_LANES_MAX_TERM = 64 /* of one run */
};

typedef struct weft_lanes {
    int            n_lane, n; /* leaves, positions */
    const int32_t *share;     /* leaves of each position; NULL: equal */
} weft_lanes;

/* Lanes where nobody says, of n data-parallel ranks: the smallest power of two that is at least n.
 * A rank then holds one sum of gradients (two, where n is no power of two), and the bits are the
 * same for fewer ranks.  Fewer where a step has too few micro-batches for all ranks. */
int64_t weft_lanes_default(int64_t n, int64_t n_micro);
/* micro_batch, or the largest below it that divides the batch and gives each of so many lanes a
 * micro-batch; lanes are at most batch. */
int64_t weft_lanes_fit_micro(int64_t batch, int64_t micro_batch, int64_t lanes);
/* Is this a dealing: a power of two of leaves, at least one for each position, all of them dealt?
 */
bool weft_lanes_right(const weft_lanes *d);
/* Leaves [*first, *end) are position k's. */
void weft_lanes_of(const weft_lanes *d, int k, int *first, int *end);
/* The terms of a run in order: their number, and level[i], a term having 2^level leaves; level
 * may be NULL. */
int weft_lanes_terms(int first, int end, int *level);
/* The most terms that a position has. */
int weft_lanes_most_terms(const weft_lanes *d);
/* Has each position one subtree, all of one level?  The tree over positions then needs no levels.
 */
bool weft_lanes_plain(const weft_lanes *d);

#endif
