/* A local graph while it is made: shared by the files of the module.
 *
 * A value of the given graph is materialized in the layout it is produced in, and in every layout
 * that some node takes it in. */
#ifndef WEFT_SPMD_SPMD_PRIV_H
#define WEFT_SPMD_SPMD_PRIV_H

#include "graph/build.h"
#include "spmd/spmd.h"

typedef struct weft_spmd__materialized {
    weft_layout l;
    weft_vid    v;     /* of the local graph */
    weft_phase  phase; /* made in */
    int         node;  /* made for */
    /* as produced, or by a reduction: everybody uses it; else it is made again in the backward
     * pass instead of being kept for it */
    bool made;
    bool lanes; /* gathered over the lanes: kept for a few nodes only */
    struct weft_spmd__materialized *next;
} weft_spmd__materialized;

/* A reshard path that was found: layers repeat theirs. */
typedef struct weft_spmd__reshard_path {
    weft_layout                     from, to;
    weft_type                       type;
    weft_reshard                    plan;
    struct weft_spmd__reshard_path *next;
} weft_spmd__reshard_path;

/* What everybody along an axis has of each expert, and where the own experts' rows begin when all
 * are put together. */
typedef struct weft_spmd__expert_counts {
    int                              sorter; /* node of the given graph */
    int                              axis;
    weft_vid                         table, offsets; /* of the local graph */
    struct weft_spmd__expert_counts *next;
} weft_spmd__expert_counts;

typedef struct weft_spmd__rewriter {
    const weft_graph         *g;
    const weft_sharding      *s;
    const weft_mesh          *m;
    const weft_spmd_options  *o;
    int                       coord[WEFT_MAX_AXIS];
    weft_arena               *tmp;
    weft_local_graph         *out;
    weft_builder              b;    /* of the local graph */
    int                       node; /* of g, being written */
    int                       cap_node, cap_group;
    weft_spmd__materialized **materialized; /* by value of g */
    bool                     *is_next;      /* by value: some state's next one */
    weft_vid *early; /* by node: a sum's term, reduced before it is summed; -1 */
    int      *first_user, *user;
    weft_spmd__reshard_path  *path;
    weft_spmd__expert_counts *counts;
} weft_spmd__rewriter;

/* ---- rewrite.c ---- */

/* v in layout `to`; the nodes that make it are added when it is not there yet. */
weft_status weft_spmd__materialize(weft_spmd__rewriter *rw, weft_vid v,
                                   const weft_layout *to, weft_vid *out);
weft_status weft_spmd__add_materialized(weft_spmd__rewriter *rw, weft_vid v,
                                        const weft_layout *l, weft_vid local, bool made);
/* The number of the group whose ranks differ along the axes. */
weft_status weft_spmd__group_of_axes(weft_spmd__rewriter *rw, uint32_t axes, int *out);
/* The mesh rank with the same coordinates but along one axis. */
int        weft_spmd__neighbour(const weft_spmd__rewriter *rw, int axis, int at);
weft_shape weft_spmd__local_shape(const weft_spmd__rewriter *rw, const weft_layout *l,
                                  const weft_shape *s);

/* ---- reshard_step.c: one function for each kind of step ---- */

/* x, a local value of layout step->before of a value of type t, as step->after has it. */
weft_status weft_spmd__add_reshard_step(weft_spmd__rewriter     *rw,
                                        const weft_reshard_step *step, const weft_type *t,
                                        weft_vid x, weft_vid *out);

/* Positions of a unit of split s that other cuts of the layout, repeated within it, leave here. */
int64_t weft_spmd__split_unit(const weft_spmd__rewriter *rw, const weft_layout *l,
                              const weft_split *s);

/* ---- position.c ---- */

/* Writes the node, told where its part lies.  attr: those of the local results' sizes. */
weft_status weft_spmd__add_positioned_node(weft_spmd__rewriter *rw, int node,
                                           const weft_op_use       *u,
                                           const weft_node_factors *f,
                                           const weft_attr *attr, const weft_vid *in,
                                           weft_vid *out);

/* ---- experts.c ---- */

/* Rows to the owners of their experts, or back: a step of a reshard for the node that is being
 * written. */
weft_status weft_spmd__move_expert_rows(weft_spmd__rewriter     *k,
                                        const weft_reshard_step *s, const weft_type *t,
                                        weft_vid x, weft_vid *out);
/* The offsets of rows that were sent to this node; -1: they were sorted here. */
weft_status weft_spmd__received_offsets(weft_spmd__rewriter *rw, int node, weft_vid *out);

/* ---- ring_attention.c ---- */

/* Attention over a sequence in parts, keys and values passed round; *done: it was, with all its
 * results. */
weft_status weft_spmd__add_ring_attention(weft_spmd__rewriter *rw, int node, bool *done);

/* ---- special_ops.c: operators that need more than local shapes ---- */

/* Writes the node itself in another way; *done: it did, with all its results. */
weft_status weft_spmd__add_special_node(weft_spmd__rewriter *rw, int node,
                                        const weft_vid *in, bool *done);
/* After the node: parts of a softmax are put together.  out: its local results, replaced. */
weft_status weft_spmd__combine_softmax(weft_spmd__rewriter *rw, int node,
                                       const weft_vid *in, weft_vid *out, weft_layout *l);

/* ---- local_graph.c ---- */

/* l's nodes, of graph `of`, in another order. */
weft_status weft_spmd__reorder(const weft_graph *of, weft_local_graph *l,
                               const int *order, int n);

#endif
