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

/* A pipeline of pp ranks, dp of them side by side: rank = stage * dp + lane group. */
typedef struct weft_pipe_options {
    int            n_micro, n_lane;
    int            dp, pp;   /* 0 is 1 */
    const int32_t *share;    /* lanes of each of dp; NULL: equal */
    int            rank;     /* of dp * pp, pp slowest */
    const char    *schedule; /* by name (program/schedule.h); NULL: 1f1b */
    int            n_chunk;  /* stages a rank; 0 is 1 */
    uint32_t       ring;     /* weft_local_options */
    bool           once;     /* likewise */
    /* of one stage: collectives run beside compute, what is kept in parts is gathered so many
     * bytes ahead; of several: sums that go to their owners have room of their own, for
     * weft_partition_overlap; 0: all in turn */
    int64_t ahead;
    /* pp * n_chunk - 1 forward nodes, the first ones of stages 1, 2, ...; NULL:
     * weft_partition_cuts */
    const int *cut;
    /* weft_partition, of several stages: what its place does, the same on all of them; made when
     * it is NULL, then the caller's.  NULL: nothing is kept */
    struct weft_local **local;
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

/* The stage of each forward and backward node under these cuts, as pipelines have it; -1: every
 * rank makes it for itself where it is used, or it is of the update phase.  weight[i]: a backward
 * node of which only sums over micro-batches come.  n_node long. */
weft_status weft_partition_stages(const weft_graph *g, int n_stage, const int *cut,
                                  int *stage, bool *weight);
/* ---- graphs of places ---- */

/* What one place of a mesh does: the given graph's nodes on local shapes, with collectives
 * between them. */
typedef struct weft_local {
    weft_arena *arena;
    weft_graph *graph;
    int         n_node;
    int         n_once;  /* the first ones gather what stays for the step */
    int        *node;    /* of each node: which of the given graph's it is or serves */
    int        *meeting; /* of each node: collectives of one number meet at once; -1 */
    int         n_meeting;
    weft_vid   *value; /* of each value of the given graph: the local leaf; -1 */
    /* of each parameter and state of the given graph: which part it is, by its first piece;
     * extent -1: of several, as the sharding says */
    weft_region *region;
    weft_vid    *output; /* of each output of the given graph: whole on every place */
    int n_group; /* what collectives' attribute group counts: ranks that differ along axes */
    uint32_t *axes;
    /* pipe.c: where its nodes run; NULL: not asked yet */
    struct weft_partition__stages *stages;
} weft_local;

typedef struct weft_local_options {
    int place; /* of the mesh */
    /* axes: attention over a sequence that one of them cuts passes keys and values round, a part
     * at a time, where parts are of one size; others gather them */
    uint32_t ring;
    /* what is kept in parts is gathered once a step and stays for it; where one_term holds, every
     * gradient is summed as soon as it is made */
    bool once;
    /* every rank along the lanes has one micro-batch a step: its gradients are its sums */
    bool one_term;
    /* ranks' shares of the lanes are no equal subtrees: sums over them have terms of their own */
    bool terms;
} weft_local_options;

/* The sharding is of one mesh (all stages of a pipeline have alike ones), and the graph is that
 * of one
 * micro-batch: ranks along the lanes have other micro-batches, not parts of it.  *out is the
 * caller's. */
weft_status weft_partition_local(const weft_graph *g, const weft_sharding *s,
                                 const weft_local_options *o, weft_local **out);
void        weft_local_destroy(weft_local *l); /* accepts NULL */
/* n cuts between the given graph's nodes become cuts between the local ones. */
void weft_partition_move_cuts(const weft_local *l, int n, int *cut);

/* One rank's program of any mixture: data, tensor and sequence parallel and ZeRO by the sharding,
 * a pipeline by the options, whose dp is left out (the lanes' axes say it).  Rank = stage *
 * places + place.  Bindings of parameters and states are parts of the whole: origin and shape say
 * which. */
weft_status weft_partition(const weft_graph *g, const weft_sharding *s,
                           const weft_pipe_options *o, weft_program **out);

#endif
