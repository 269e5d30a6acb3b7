/* Runs of leaves of a binary tree: who sums which part of it.
 *
 * n_lane leaves (a power of two) are dealt to n positions in consecutive runs, as equal as can be, larger
 * ones first.  A run is the fewest aligned subtrees, its terms; a position sums each by itself, and the
 * terms of all positions, added where two of one level meet, are the tree's sum.
 *
 *     8 lanes, 3 positions:   0 1 2 | 3 4 5 | 6 7     terms of levels   1 0 | 0 1 | 1 */
#ifndef WEFT_BASE_LANES_H
#define WEFT_BASE_LANES_H

enum {
    WEFT_LANES_MAX_TERM = 64 /* of one run */
};

/* Leaves [*first, *end) are position k's. */
void weft_lanes_of(int n_lane, int n, int k, int *first, int *end);
/* The terms of a run in order: their number, and level[i], a term having 2^level leaves; level may be NULL. */
int weft_lanes_terms(int first, int end, int *level);
/* The most terms that a position has. */
int weft_lanes_most_terms(int n_lane, int n);

#endif
