/* A local graph while it is made: shared by local*.c.
 *
 * A value of the given graph has forms: as it is produced, and every layout that somebody wanted
 * it in. */
#ifndef WEFT_PARTITION_LOCAL_PRIV_H
#define WEFT_PARTITION_LOCAL_PRIV_H

#include "graph/build.h"
#include "partition/partition.h"
#include "shard/shard.h"

typedef struct weft_partition__form {
    weft_layout l;
    weft_vid    v;     /* of the local graph */
    weft_phase  phase; /* made in */
    int         node;  /* made for */
    /* as produced, or by a reduction: everybody uses it; else it is made again in the backward
     * pass instead of being kept for it */
    bool made;
    bool lanes; /* gathered over the lanes: kept for a few nodes only */
    struct weft_partition__form *next;
} weft_partition__form;

/* A reshard that was found: layers repeat theirs. */
typedef struct weft_partition__way {
    weft_layout                 from, to;
    weft_type                   type;
    weft_reshard                plan;
    struct weft_partition__way *next;
} weft_partition__way;

/* What everybody along an axis has of each expert, and where the own experts' rows begin when all
 * are put together. */
typedef struct weft_partition__counts {
    int                            sorter; /* node of the given graph */
    int                            axis;
    weft_vid                       table, offsets; /* of the local graph */
    struct weft_partition__counts *next;
} weft_partition__counts;

typedef struct weft_partition__local {
    const weft_graph         *g;
    const weft_sharding      *s;
    const weft_mesh          *m;
    const weft_local_options *o;
    int                       coord[WEFT_MAX_AXIS];
    weft_arena               *tmp;
    weft_local               *out;
    weft_builder              b;    /* of the local graph */
    int                       node; /* of g, being written */
    int                       cap_node, cap_group;
    weft_partition__form    **form;    /* by value of g */
    bool                     *is_next; /* by value: some state's next one */
    weft_vid *early; /* by node: a sum's term, reduced before it is summed; -1 */
    int      *first_user, *user;
    weft_partition__way    *way;
    weft_partition__counts *counts;
} weft_partition__local;

/* ---- local.c ---- */

/* The form of v in layout `to`; made when there is none. */
weft_status weft_partition__take(weft_partition__local *k, weft_vid v,
                                 const weft_layout *to, weft_vid *out);
weft_status weft_partition__add_form(weft_partition__local *k, weft_vid v,
                                     const weft_layout *l, weft_vid local, bool made);
/* The number of the group whose ranks differ along the axes. */
weft_status weft_partition__group(weft_partition__local *k, uint32_t axes, int *out);
/* The same place but for its coordinate along one axis. */
int        weft_partition__neighbour(const weft_partition__local *k, int axis, int at);
weft_shape weft_partition__local_shape(const weft_partition__local *k,
                                       const weft_layout *l, const weft_shape *s);

/* ---- local_step.c: one function for each kind of step ---- */

/* x, a local value of layout step->before of a value of type t, as step->after has it. */
weft_status weft_partition__step(weft_partition__local *k, const weft_reshard_step *step,
                                 const weft_type *t, weft_vid x, weft_vid *out);

/* Positions of a unit of split s that other cuts of the layout, repeated within it, leave here. */
int64_t weft_partition__unit(const weft_partition__local *k, const weft_layout *l,
                             const weft_split *s);

/* ---- local_runs.c ---- */

/* Writes the node, told where its part lies.  attr: those of the local results' sizes. */
weft_status weft_partition__place(weft_partition__local *k, int node,
                                  const weft_op_use *u, const weft_node_factors *f,
                                  const weft_attr *attr, const weft_vid *in,
                                  weft_vid *out);

/* ---- local_experts.c ---- */

/* Rows to the owners of their experts, or back: a step of a reshard for the node that is being
 * written. */
weft_status weft_partition__move_rows(weft_partition__local   *k,
                                      const weft_reshard_step *s, const weft_type *t,
                                      weft_vid x, weft_vid *out);
/* The offsets of rows that were sent to this node; -1: they were sorted here. */
weft_status weft_partition__sent_offsets(weft_partition__local *k, int node,
                                         weft_vid *out);

/* ---- local_ring.c ---- */

/* Attention over a sequence in parts, keys and values passed round; *done: it was, with all its
 * results. */
weft_status weft_partition__ring(weft_partition__local *k, int node, bool *done);

/* ---- local_rows.c: operators that need more than local shapes ---- */

/* Writes the node itself in another way; *done: it did, with all its results. */
weft_status weft_partition__special(weft_partition__local *k, int node,
                                    const weft_vid *in, bool *done);
/* Behind the node: parts of a softmax are put together.  out: its local results, replaced. */
weft_status weft_partition__combine(weft_partition__local *k, int node,
                                    const weft_vid *in, weft_vid *out, weft_layout *l);

#endif
