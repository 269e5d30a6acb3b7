/* Partition: lowered segments + a schedule -> programs, buffers at planned offsets.
 * Decides nothing: what it needs to know is in its options. */
#ifndef WEFT_PARTITION_PARTITION_H
#define WEFT_PARTITION_PARTITION_H

#include "lower/lower.h"
#include "shard/shard.h"

typedef struct weft_partition_options {
    int n_micro; /* logical micro-batches a step */
    int n_lane;  /* lanes they are dealt to; a power of two, at most n_micro */
    /* data-parallel ranks, at most the lanes, which they share (base/lanes.h); 0 is 1 */
    int            world;
    const int32_t *share; /* lanes of each; NULL: equal */
    int            rank;
    /* operands of collectives live on until the next one (weft_partition_ahead) */
    bool ahead;
} weft_partition_options;

/* One rank's program of a graph whose inputs are one micro-batch.  Borrows g.  With several ranks
 * each sums its lanes, then all sum their accumulators over the ranks in the order of the same
 * binary tree, so that any number of ranks gives the same bits. */
weft_status weft_partition_one(const weft_graph *g, const weft_partition_options *o,
                               weft_program **out);

/* Micro-batches [*first, *end) belong to lane of n_lane: consecutive runs, larger ones first. */
void weft_partition_lane(int n_micro, int n_lane, int lane, int *first, int *end);

/* What the programs of one mesh rank share over the stages of a pipeline: its local graph and the
 * stage assignment of its nodes.  Valid for one graph, sharding and set of options but the rank. */
typedef struct weft_partition_cache weft_partition_cache;
void weft_partition_cache_destroy(weft_partition_cache *c); /* accepts NULL */

/* A pipeline of pp ranks, dp of them side by side: rank = stage * dp + lane group. */
typedef struct weft_pipe_options {
    int            n_micro, n_lane;
    int            dp, pp;   /* 0 is 1 */
    const int32_t *share;    /* lanes of each of dp; NULL: equal */
    int            rank;     /* of dp * pp, pp slowest */
    const char    *schedule; /* by name (program/schedule.h); NULL: 1f1b */
    int            n_chunk;  /* stages a rank; 0 is 1 */
    uint32_t       ring;     /* weft_spmd_options.ring_axes */
    bool           once;     /* weft_spmd_options.gather_once */
    /* of one stage: collectives run beside compute, what is kept in parts is gathered so many
     * bytes ahead; of several: sums that go to their owners have room of their own, for
     * weft_partition_overlap; 0: all in turn */
    int64_t ahead;
    /* pp * n_chunk - 1 forward nodes, the first ones of stages 1, 2, ...; NULL:
     * weft_partition_cuts */
    const int *cut;
    /* weft_partition, of several stages: what programs of one mesh rank share; made when it is
     * NULL, then the caller's.  NULL: nothing is kept */
    weft_partition_cache **cache;
} weft_pipe_options;

/* One rank's program.  Borrows g.  The same bits as one rank: every use of a parameter is summed
 * where it is, uses on several stages are exchanged and added in graph order on each, and every
 * rank makes the clipping scale out of all ranks' sums of squares.
 * On a rank are the parameters and states of its stages (tied ones on several), the inputs that
 * its stages read, all per-step inputs and all outputs. */
weft_status weft_partition_pipe(const weft_graph *g, const weft_pipe_options *o,
                                weft_program **out);

/* Moves a program's sums over ranks to the comm stream, in buckets of about bucket_bytes, each as
 * soon as the backward pass has finished its accumulators.  The same sums: bits stay.  Nothing to
 * sum: nothing changes.
 * g, s: what it was made of; s NULL: ranks with whole values.
 * shares: also those that go to their owners; the program, of several stages, was made with
 * `ahead`. */
weft_status weft_partition_overlap(weft_program *p, const weft_graph *g,
                                   const weft_sharding *s, int64_t bucket_bytes,
                                   bool shares);

/* Moves the collectives of a program of one stage to the comm stream, beside the compute that
 * needs neither their operands nor their results; in the same order on all ranks.  Where none
 * could run beside anything, nothing changes. */
weft_status weft_partition_ahead(weft_program *p);

/* Cuts between layers for stages of about equal flops: cut[0 .. n_stage-2].  WEFT_ERR_ARG: more
 * stages than layers. */
weft_status weft_partition_cuts(const weft_graph *g, int n_stage, int *cut);
/* WEFT_ERR_ARG: cuts that do not ascend, or leave a stage empty. */
weft_status weft_partition_check_cuts(const weft_graph *g, int n_stage, const int *cut);

/* One rank's program of any mixture: data, tensor and sequence parallel and ZeRO by the sharding,
 * a pipeline by the options, whose dp is left out (the lanes' axes say it).  Rank = stage *
 * places + place.  Bindings of parameters and states are parts of the whole: origin and shape say
 * which. */
weft_status weft_partition(const weft_graph *g, const weft_sharding *s,
                           const weft_pipe_options *o, weft_program **out);

#endif
