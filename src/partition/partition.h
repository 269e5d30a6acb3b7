/* Partition: lowered segments + a schedule -> programs, buffers at planned offsets.
 * Decides nothing: what it needs to know is in its options. */
#ifndef WEFT_PARTITION_PARTITION_H
#define WEFT_PARTITION_PARTITION_H

#include "lower/lower.h"

typedef struct weft_partition_options {
    int n_micro; /* logical micro-batches a step */
    int n_lane; /* lanes they are dealt to (DESIGN-details 2); a power of two, at most n_micro */
    int world; /* data-parallel ranks, each with an equal share of the lanes; 0 is 1 */
    int rank;
} weft_partition_options;

/* One rank's program of a graph whose inputs are one micro-batch.  Borrows g.  With several ranks each
 * sums its lanes, then all sum their accumulators over the ranks in the order of the same binary tree, so
 * that any number of ranks gives the same bits. */
weft_status weft_partition_one(const weft_graph *g, const weft_partition_options *o,
                               weft_program **out);

/* Micro-batches [*first, *end) belong to lane of n_lane: consecutive runs, larger ones first. */
void weft_partition_lane(int n_micro, int n_lane, int lane, int *first, int *end);

#endif
