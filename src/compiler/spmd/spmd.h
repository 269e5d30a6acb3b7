/* SPMD rewriting: a graph and a sharding -> the local graph of one rank of the mesh, with the
 * collectives between its nodes.  Shardy and XLA call this the SPMD partitioner.
 *
 *     weft_local_graph *local;
 *     WEFT_TRY(weft_spmd_rewrite(g, sharding, &(weft_spmd_options){.mesh_rank = 3}, &local));
 *     local->graph                                   an ordinary graph on local shapes
 *     weft_local_graph_destroy(local);
 *
 * All ranks of the mesh write the same nodes in the same order, so collectives match. */
#ifndef WEFT_SPMD_SPMD_H
#define WEFT_SPMD_SPMD_H

#include "shard/shard.h"

/* What one rank of a mesh does: the given graph's nodes on local shapes, with collectives between
 * them. */
typedef struct weft_local_graph {
    weft_arena *arena;
    weft_graph *graph;
    int         n_node;
    int       n_gather_once; /* the first ones gather parameters that stay for the step */
    int      *node;   /* of each node: which of the given graph's it is or serves */
    int      *bucket; /* of each node: collectives of one bucket are coalesced; -1 none */
    int       n_bucket;
    weft_vid *value; /* of each value of the given graph: the local leaf; -1 */
    /* of each parameter and state of the given graph: which shard it is, by its first piece;
     * extent -1: of several, as the sharding says */
    weft_region *region;
    weft_vid    *output; /* of each output of the given graph: replicated on every rank */
    int          n_group;
    /* of each group that collectives name (attribute group): its ranks differ along these axes */
    uint32_t *group_axes;
} weft_local_graph;

typedef struct weft_spmd_options {
    int mesh_rank; /* row-major mesh coordinate */
    /* axes: attention over a sequence that one of them shards shifts keys and values round a
     * ring, a shard at a time, where shards are of one size; other axes gather them */
    uint32_t ring_axes;
    /* sharded parameters are gathered once a step and stay for it; with one_micro_batch every
     * gradient is reduced as soon as it is made */
    bool gather_once;
    /* every rank along the lanes has one micro-batch a step: its gradients are its sums */
    bool one_micro_batch;
    /* gradients of which ranks along the lanes want shards are reduce-scattered in every
     * micro-batch and summed there; all of them have as many micro-batches */
    bool shard_gradients;
    /* the lanes of a rank are not one subtree of equal size on all ranks: a sum over them has
     * several terms per rank */
    bool several_terms;
} weft_spmd_options;

/* The sharding is of one mesh (all stages of a pipeline have equal ones), and the graph is that of
 * one micro-batch: ranks along the lanes have other micro-batches, not shards of it.  *out is the
 * caller's. */
weft_status weft_spmd_rewrite(const weft_graph *g, const weft_sharding *s,
                              const weft_spmd_options *o, weft_local_graph **out);
void        weft_local_graph_destroy(weft_local_graph *l); /* accepts NULL */

/* n cuts between the given graph's nodes become cuts between the local ones. */
void weft_spmd_map_cuts(const weft_local_graph *l, int n, int *cut);
/* Is the local value a sum over a rank's own micro-batches, not yet reduced over the lanes?
 * seen: by value, false at first. */
bool weft_spmd_is_lane_partial(const weft_local_graph *l, uint32_t lanes, weft_vid v,
                               bool *seen);

/* What a collective counts for its bucket of coalesced ones: the largest result of `node` of the
 * unsharded graph g, which it serves, among those with n_dim dimensions if there are any.  Sizes
 * of the unsharded graph are the same on all ranks, so all ranks fill the same buckets. */
int64_t weft_spmd_served_bytes(const weft_graph *g, int node, int n_dim);

/* ---- passes from local graph to local graph: nodes get another order, collectives buckets ---- */

typedef struct weft_coalesce_options {
    int64_t bucket_bytes; /* of a bucket; 0: WEFT_COALESCE_BYTES (program/coalesce.h) */
    /* of a pipeline: accumulators are added to between collectives */
    bool     several_stages;
    uint32_t several_terms; /* along these axes ranks bring several terms to a sum */
    /* of two axes: a sum over one follows that over the other, bucket by bucket */
    uint32_t lanes;
} weft_coalesce_options;

/* of: the graph that l was rewritten from.  Collectives whose results can wait are put one after
 * the other, about a bucket of them, and coalesced. */
weft_status weft_spmd_coalesce_collectives(const weft_graph *of, weft_local_graph *l,
                                           const weft_coalesce_options *o);
/* All-gathers of what steps after a matmul take (biases) go before the matmul: a fused step may
 * round otherwise than one of its own, so ranks with shards fuse what one rank fuses. */
weft_status weft_spmd_gather_before_matmuls(const weft_graph *of, weft_local_graph *l);
/* All-gathers of sharded parameters in every micro-batch start one bucket ahead of their use. */
weft_status weft_spmd_prefetch_gathers(const weft_graph *of, weft_local_graph *l,
                                       int64_t bucket_bytes);
/* All-gathers along the lanes' axes, once a step, go before everything, in buckets. */
weft_status weft_spmd_gather_once_per_step(const weft_graph *of, weft_local_graph *l,
                                           uint32_t lanes, int64_t bucket_bytes);

#endif
