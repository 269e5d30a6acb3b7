/* Partition: a graph, a sharding and a schedule -> the program of a rank, buffers at planned
 * offsets.  Decides nothing: what it needs to know is in its options.
 *
 *     weft_partition_options o = {.n_micro = 8, .n_lane = 4, .pp = 2, .rank = 1};
 *     WEFT_TRY(weft_partition_program(graph, NULL, &o, &program));        two stages
 *     WEFT_TRY(weft_partition_program(graph, sharding, &o, &program));    of a mesh each */
#ifndef WEFT_PARTITION_PARTITION_H
#define WEFT_PARTITION_PARTITION_H

#include "lower/lower.h"
#include "shard/shard.h"

/* What the programs of one mesh rank share over the stages of a pipeline: its local graph and the
 * stage assignment of its nodes.  Valid for one graph, sharding and set of options but the rank. */
typedef struct weft_partition_cache weft_partition_cache;
void weft_partition_cache_destroy(weft_partition_cache *c); /* accepts NULL */

typedef struct weft_partition_options {
    int n_micro; /* logical micro-batches a step */
    int n_lane;  /* lanes they are assigned to; a power of two, at most n_micro */
    /* without a sharding: data-parallel ranks, at most the lanes, which they share
     * (base/lanes.h); 0 is 1.  With one, its lanes' axes say it */
    int            dp;
    const int32_t *share;    /* lanes of each; NULL: equal */
    int            pp;       /* ranks of a pipeline; 0 is 1 */
    int            rank;     /* = stage * ranks of a stage + mesh rank */
    const char    *schedule; /* by name (program/schedule.h); NULL: 1f1b */
    int            n_chunk;  /* stages a rank; 0 is 1 */
    /* pp * n_chunk - 1 forward nodes, the first ones of stages 1, 2, ...; NULL:
     * weft_partition_cuts */
    const int *cut;
    uint32_t   ring_axes;    /* weft_spmd_options */
    int        row_elements; /* weft_lower_options */
    int        head_rows;    /* likewise */
    int        join_width;   /* likewise */
    int        align_bytes;  /* likewise */
    unsigned   fusions;      /* likewise */
    bool       gather_once;  /* likewise */
    /* ZeRO 2 and 3 without lanes: gradients go to the owners of shards in every micro-batch, so
     * that a rank holds sums of its shards alone.  Bits then depend on the number of ranks.
     * Where ranks have different numbers of micro-batches each keeps whole sums all the same */
    bool shard_gradients;
    /* collectives of sharded tensors (ZeRO) overlap with compute: parameters are gathered so many
     * bytes ahead, and reduce-scatters of several stages have memory of their own; 0: they run in
     * sequence with compute */
    int64_t shard_bucket_bytes;
    /* reductions of gradients overlap with the backward pass in buckets of about so many bytes,
     * with shard_bucket_bytes also those to owners; 0: they come after it */
    int64_t reduce_bucket_bytes;
    /* every rank's state is held by so many others, too (weft_pass_add_standby): its gradients go
     * there in buckets of about so many bytes */
    int     n_standby;
    int64_t standby_bytes;
    int     standby_credits; /* weft_standby_options */
    /* where ranks of a stage hold the same state, each sends a part of it: how many, and of each
     * place which of them it is; NULL: none do */
    int            n_sharer;
    const int32_t *sharer;
    /* updates run on the host (weft_pass_offload_optimizer) in chunks of about so many bytes of
     * gradients; 0: on the device */
    int64_t offload_bytes;
    /* gradients of up to so many bytes have pinned memory of their own */
    int64_t offload_gradient_bytes;
    /* with a sharding, of several stages: made when it is NULL, then the caller's.  NULL: nothing
     * is kept */
    weft_partition_cache **cache;
} weft_partition_options;

/* One rank's program of any mixture: data, tensor, sequence and expert parallel and ZeRO by the
 * sharding (NULL: replicated values), a pipeline by the options.  Borrows g, whose inputs are one
 * micro-batch, and s.
 *
 * The same bits as one rank: each rank sums its lanes, then all sum their accumulators in the order
 * of one binary tree; every use of a parameter is summed where it is, uses on several stages are
 * exchanged and added in graph order on each, and every rank makes the clipping scale out of all
 * ranks' sums of squares.
 * On a rank are the parameters and states of its stages (tied ones on several), the inputs that
 * its stages read, all per-step inputs and all outputs.  Bindings of parameters and states are
 * shards: origin and shape say which. */
weft_status weft_partition_program(const weft_graph *g, const weft_sharding *s,
                                   const weft_partition_options *o, weft_program **out);

/* Micro-batches [*first, *end) belong to lane of n_lane: consecutive runs, larger ones first. */
void weft_partition_lane(int n_micro, int n_lane, int lane, int *first, int *end);

/* Cuts between layers for stages of about equal flops: cut[0 .. n_stage-2].  WEFT_ERR_ARG: more
 * stages than layers. */
weft_status weft_partition_cuts(const weft_graph *g, int n_stage, int *cut);
/* WEFT_ERR_ARG: cuts that do not ascend, or leave a stage empty. */
weft_status weft_partition_check_cuts(const weft_graph *g, int n_stage, const int *cut);

#endif
