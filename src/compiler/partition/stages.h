/* Stage assignment: which stage of a pipeline runs which node.  Side tables of one training graph,
 * the same for all ranks; pipelines are assembled by it and the planner counts costs by it.
 *
 *   copied     a node that every rank runs for itself where it needs it: views, and what is made
 *              of per-step inputs alone; gathers of once a step
 *   stage      of every other forward and backward node; stage k is on rank k % n_rank
 *   weight     a backward node of which only sums over micro-batches come
 *   runs       which ranks run an update node; level: how many exchanges between ranks come first
 *   crosses    [value][rank]: made elsewhere, needed there
 *   after      a node after the commit point, which is in the first level before which all that
 *              other nodes make has been exchanged: no node after it has a lower one
 *
 * Gradients of a value that goes from one stage to another come back the other way: a backward
 * node's stage is never above those of the gradients it takes, nor below those of the forward
 * values it takes. */
#ifndef WEFT_PARTITION_STAGES_H
#define WEFT_PARTITION_STAGES_H

#include "graph/graph.h"

typedef struct weft_stage_map {
    const weft_graph *g;
    weft_arena       *tmp;
    int               n_stage, n_rank;
    int              *first_user, *user; /* weft_graph_users */
    bool             *copied, *weight;   /* node */
    /* node of the backward pass: made of a parameter alone, by a collective (it is kept in parts):
     * where its first user is */
    bool      *fetched;
    int       *stage;   /* node; -1: copied, or of the update phase */
    weft_vid  *repeats; /* value: the forward value it is, or makes again; -1 none */
    weft_vid **in;      /* node: operands, where they differ from the graph's */
    weft_vid  *copy;    /* parameter: its copy for compute (copy_of); -1 none */
    bool      *present; /* [value][stage]: made or used there by a forward node */
    bool      *runs;    /* [node][rank] */
    int       *level, n_level; /* update node */
    bool      *after;          /* node: after the commit point (graph/commit.h) */
    int        commit_level;   /* the update's level that has it; -1: there is none */
    bool      *at;             /* [value][rank]: a leaf used there */
    bool      *crosses;        /* [value][rank] */
} weft_stage_map;

/* cut[0 .. n_stage-2]: the first nodes of stages 1, 2, ...; the first n_once nodes are copied.
 * Everything lives in tmp. */
weft_status weft_stage_map_make(const weft_graph *g, int n_stage, int n_rank,
                                const int *cut, int n_once, weft_arena *tmp,
                                weft_stage_map *out);
/* One stage for each node, where its cost is counted; n_node long, of a map with a rank for each
 * stage.  A copied node: where it is used first.  An update node that is about a parameter
 * (own[i]): where that is used first; another one: the last stage that runs it. */
weft_status weft_stage_map_homes(const weft_stage_map *p, int *home, bool *own);

/* The value under v, looking through views. */
weft_vid weft_stage_map_base(const weft_stage_map *p, weft_vid v);
/* Operand k of a node. */
weft_vid weft_stage_map_operand(const weft_stage_map *p, int node, int k);
/* Does the rank use the leaf?  Is the value made elsewhere and needed on the rank? */
bool weft_stage_map_is_at(const weft_stage_map *p, weft_vid v, int rank);
bool weft_stage_map_crosses(const weft_stage_map *p, weft_vid v, int rank);
/* Does this rank run the node?  Not for copied ones. */
bool weft_stage_map_runs_on(const weft_stage_map *p, int node, int rank);

#endif
