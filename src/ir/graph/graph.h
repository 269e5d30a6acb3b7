/* The graph from inside the library: its tables, read-only once built.
 *
 * Always true (weft_graph_verify):
 * (1) node i's operands are inputs, params, states or results of nodes before i
 * (2) types are what the operator's shape rule says
 * (3) phases do not go back: forward, backward, update.  What a micro-batch computes reaches the
 *     update phase only through an accumulate node, which sums it over the step's micro-batches
 *     in the job's order; everything else in that phase happens once a step. */
#ifndef WEFT_GRAPH_GRAPH_H
#define WEFT_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/text.h"
#include "op/op.h"
#include "weft/graph.h"

typedef enum weft_phase {
    WEFT_PHASE_FORWARD,
    WEFT_PHASE_BACKWARD,
    WEFT_PHASE_UPDATE,
} weft_phase;

typedef struct weft_graph_value {
    const char     *name;
    weft_type       type;
    weft_value_kind kind;
    bool            per_step; /* input: one for the whole step (lr, step, 1/labels) */
    int32_t         node;     /* who makes it; -1 for inputs, params, states */
    int32_t         index;    /* which of its results */
    weft_vid        next;     /* state, param: its value after the step; -1 none */
    /* state: the parameter whose values it holds in another type, for compute; -1 none */
    weft_vid copy_of;
} weft_graph_value;

typedef struct weft_graph_node {
    weft_op          op;
    weft_phase       phase;
    int              n_in, n_out;
    weft_vid        *in, *out;
    const weft_attr *attr; /* in row order */
} weft_graph_node;

struct weft_graph {
    weft_arena       *arena;
    const char       *name;
    int               n_value, cap_value;
    weft_graph_value *value;
    int               n_node, cap_node;
    weft_graph_node  *node;
    int               n_output, cap_output;
    weft_vid         *output;
    weft_phase        phase; /* of nodes added from now on */
    void             *names; /* name -> value, graph__names */
};

/* The op-level view of a node; types are written into in and out, which the caller provides. */
weft_op_use weft_graph_use(const weft_graph *g, const weft_graph_node *n, weft_type *in,
                           weft_type *out);

/* Adds a node with attributes already in row order (copied).  The heart of weft_graph_add_op(). */
weft_status weft_graph_add_node(weft_graph *g, weft_op op, const weft_attr *attr,
                                int n_in, const weft_vid *in, const char *name, int n_out,
                                weft_vid *out);

/* Says that a state holds a parameter's values in another type; the state's next value keeps it
 * so.  WEFT_ERR_ARG: not a state, not a parameter, or of one type. */
weft_status weft_graph_set_copy(weft_graph *g, weft_vid copy, weft_vid param);
weft_vid weft_graph_find_copy(const weft_graph *g, weft_vid param); /* -1: it has none */

/* For each value, the nodes that use it: users[first[v] .. first[v+1]).  Arrays live in a. */
weft_status weft_graph_users(const weft_graph *g, weft_arena *a, int **first,
                             int **users);

/* Structural hashes: node_hash[i] from operator, attributes, types and the hashes of operands
 * within the given depth, so that equal layers give equal runs.  See graph/hash.c. */
typedef struct weft_graph_layers {
    /* nodes [start, start + length) repeat count times in a row */
    int start, length, count;
} weft_graph_layers;
/* The longest repetition among forward nodes; count = 1 when nothing repeats. */
weft_status weft_graph_find_layers(const weft_graph *g, weft_graph_layers *out);
/* All that repeats, and what is between, in order and without gaps: runs of layers, of which
 * those that stand alone have count 1.  Nodes before the first run and behind the last one (an
 * input side, a head) are in none.  A graph can be cut before any layer but the first.  In a. */
weft_status weft_graph_find_runs(const weft_graph *g, weft_arena *a, int *n,
                                 weft_graph_layers **out);
/* The same for another batch: dimension 0 of the inputs that have the first one's.  WEFT_ERR_ARG:
 * an operator that does not go with it. */
weft_status weft_graph_rebatch(const weft_graph *g, int64_t batch, weft_graph **out);
int64_t     weft_graph_batch(const weft_graph *g);     /* 0: no input has dimensions */
int         weft_graph_n_forward(const weft_graph *g); /* nodes; they come first */

#endif
