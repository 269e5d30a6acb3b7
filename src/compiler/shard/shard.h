/* Where each slice of each value lives, and how to get it elsewhere.
 *
 *   mesh       ranks arranged in n dimensions with named axes; nothing depends on the names
 *   layout     of one value: for each dimension the axes that cut it, and the axes it is
 *   unreduced over mark       what a user (or a planner) says about a value: part of its layout
 *   sharding   layouts for a whole graph: of each value as produced, of each operand as consumed
 *   reshard    the steps from one layout to another
 *
 *     weft_mark mark[] = {{.name = "input_ids", .layout = on_dp, .open = ~0u}};
 *     weft_shard_options o = {.n_mesh = 1, .mesh = &mesh, .n_mark = 1, .mark = mark};
 *     WEFT_TRY(weft_shard_propagate(g, &o, &s));
 *
 * Integers only: the same input gives the same bytes on every machine. */
#ifndef WEFT_SHARD_SHARD_H
#define WEFT_SHARD_SHARD_H

#include "base/lex.h"
#include "base/text.h"
#include "exchange/collective.h"
#include "graph/graph.h"
#include "strategy/strategy.h"
#include "tensor/part.h"

/* ---- meshes ---- */

#define WEFT_MAX_AXIS 6
#define WEFT_MAX_LINK 4 /* link classes, 0 the fastest */

typedef struct weft_mesh_axis {
    const char *name;
    int         size;
    int         link; /* class of the links between ranks that differ along it */
} weft_mesh_axis;

typedef struct weft_mesh {
    const char    *name;
    int            n_axis; /* 0: one rank */
    weft_mesh_axis axis[WEFT_MAX_AXIS];
    int            n_rank;
    const int32_t *rank; /* by coordinates, the last axis fastest; all different */
} weft_mesh;

/* Axes as given, ranks first, first + 1, ...; names and ranks go to a. */
weft_status weft_mesh_make(weft_arena *a, const char *name, int n_axis,
                           const weft_mesh_axis *axis, int32_t first, weft_mesh *out);
weft_status weft_mesh_verify(const weft_mesh *m);
/* "mesh name [dp=2 link 1, tp=4] from 0" or "... ranks [0, 3, 5]" */
void        weft_mesh_print(const weft_mesh *m, weft_text *t);
weft_status weft_mesh_parse(weft_lex *l, weft_arena *a, weft_mesh *out);
bool        weft_mesh_equal(const weft_mesh *a, const weft_mesh *b);
/* The same axes (sizes and names), perhaps of other ranks: layouts carry over. */
bool weft_mesh_alike(const weft_mesh *a, const weft_mesh *b);

int weft_mesh_find(const weft_mesh *m, const char *axis); /* -1: no such axis */
/* A rank's place in rank[]; -1 when it is not in the mesh. */
int  weft_mesh_place(const weft_mesh *m, int32_t rank);
void weft_mesh_coords(const weft_mesh *m, int place, int coord[WEFT_MAX_AXIS]);
int  weft_mesh_place_of(const weft_mesh *m, const int coord[WEFT_MAX_AXIS]);

/* ---- layouts ---- */

typedef enum weft_split_order {
    WEFT_SPLIT_BLOCK,  /* consecutive runs */
    WEFT_SPLIT_CYCLIC, /* 0, P, 2P, ... to part 0 */
    WEFT_SPLIT_ZIGZAG, /* 2P runs; part i has run i and run 2P-1-i, together as many as a block */
    WEFT_SPLIT_OWN, /* each part has rows of its own up to the whole bound: split experts */
} weft_split_order;

/* One axis that cuts one dimension.  The dimension's positions are counted in units; with a period
 * the cut is repeated in each period (a factor inside a composite dimension).  Cuts of one
 * dimension with equal unit and period nest: the second cuts what the first left, as it lies.
 *
 * The rule for sizes, everywhere: n units over P parts are runs that differ by at most one, the
 * larger ones first (5 over 3: 2 2 1).  The last unit may be short. */
typedef struct weft_split {
    int8_t  dim, axis;
    uint8_t order;  /* weft_split_order */
    bool    ragged; /* rows that each part has sorted for itself: may not be recut */
    int64_t unit;   /* 1: single positions */
    int64_t period; /* 0: the whole dimension */
} weft_split;

typedef enum weft_unreduced {
    WEFT_REDUCED,
    WEFT_UNREDUCED_SUM,
    WEFT_UNREDUCED_MAX,
    WEFT_UNREDUCED_PAIR, /* softmax: a value and its log-sum-exp, combined by weight */
    WEFT_N_UNREDUCED
} weft_unreduced;

/* A value's layout: plain data, compared and copied freely.  An axis stands at most once. */
typedef struct weft_layout {
    int16_t    mesh; /* which of the meshes at hand */
    int8_t     n_dim;
    int8_t     n; /* splits; those of one dimension in their order */
    weft_split split[WEFT_MAX_AXIS];
    uint8_t    unreduced[WEFT_MAX_AXIS]; /* by axis: weft_unreduced */
} weft_layout;

weft_layout weft_layout_replicated(int mesh, int n_dim);
/* Adds one cut behind those that are there; unit 1, no period. */
void weft_layout_cut(weft_layout *l, int dim, int axis, weft_split_order order);
/* The axis' split, or NULL. */
const weft_split *weft_layout_find(const weft_layout *l, int axis);

weft_status weft_layout_verify(const weft_layout *l, const weft_mesh *m,
                               const weft_shape *s);
bool        weft_layout_equal(const weft_layout *a, const weft_layout *b);
/* The same slices on the same ranks: cuts that come out even whatever their unit are equal. */
bool weft_layout_same(const weft_layout *a, const weft_layout *b, const weft_mesh *m,
                      const weft_shape *s);
/* "[dp, *, tp cp zigzag] sum(ep) pair(cp)": one word a dimension, '*' not cut */
void        weft_layout_print(const weft_layout *l, const weft_mesh *m, weft_text *t);
weft_status weft_layout_parse(weft_lex *x, const weft_mesh *m, int mesh,
                              weft_layout *out);

/* The positions of one dimension that a place of the mesh has, ascending; in a. */
weft_status weft_layout_intervals(const weft_layout *l, const weft_mesh *m, int dim,
                                  int64_t size, int place, weft_arena *a,
                                  weft_interval **out, int *n);
/* The regions of a place: what its local tensor holds, dimension by dimension in ascending order.
 */
weft_status weft_layout_regions(const weft_layout *l, const weft_mesh *m,
                                const weft_shape *s, int place, weft_arena *a,
                                weft_region **out, int *n);
/* The shape of the local tensor: all its regions side by side. */
weft_shape weft_layout_local(const weft_layout *l, const weft_mesh *m,
                             const weft_shape *s, int place);

/* ---- marks ---- */

/* What is said about a value.  Dimensions whose bit of open is set may get more cuts by
 * propagation. */
typedef struct weft_mark {
    const char *name; /* of values; '*' stands for anything.  NULL: value is the one */
    weft_vid    value;
    weft_layout layout;
    uint32_t    open;     /* by dimension */
    uint32_t    never;    /* by axis: not cut, not now and not by propagation */
    bool        rest;     /* where it is kept, not how it is used: uses gather it */
    int         priority; /* 0 first; cuts of later ones come behind those found so far */
} weft_mark;

/* "mark h.*.c_fc.weight [?, tp ?] never(dp) rest priority 1"; '?' an open dimension */
void        weft_mark_print(const weft_mark *k, const weft_mesh *m, weft_text *t);
weft_status weft_mark_parse(weft_lex *x, const weft_mesh *m, weft_mark *out);
bool        weft_mark_matches(const weft_mark *k, const char *name);
/* The first value from `from` on that a named mark is on; -1: none. */
weft_vid weft_mark_next(const weft_mark *k, const weft_graph *g, weft_vid from);

/* ---- shardings ---- */

typedef struct weft_shard_options {
    int              n_mesh;
    const weft_mesh *mesh;
    const int16_t   *node_mesh; /* by node; NULL: all on mesh 0 */
    int              n_mark;
    const weft_mark *mark; /* layout.mesh is taken from the value's own mesh */
    /* by axis: ranks along it have micro-batches of their own, of which the graph is one. Every
     * sum over micro-batches is unreduced over it; marks that would cut inputs or such sums by it
     * are passed over */
    uint32_t lanes;
} weft_shard_options;

/* Copies of shards: the lanes' axis of every mesh becomes two, "copies" (so many ranks, the slower)
 * and after it the axis of its own name (the ranks left).  Marks cut by the latter, lanes are of
 * both; o is changed, what is new is in a.  WEFT_ERR_ARG: copies do not divide the axis. */
weft_status weft_shard_split_lanes(weft_shard_options *o, int axis, int copies,
                                   weft_arena *a);
/* The axis of the mesh before the split that axis of the mesh after it is, or is a part of. */
int weft_shard_axis_before(int lane_axis, int axis);

/* Two wishes that one operator could not fulfil at once. */
typedef struct weft_conflict {
    int32_t  node;
    int      axis;
    weft_vid kept, lost; /* whose wish */
    int      kept_dim, lost_dim;
    /* what fulfilling either costs a rank; -1: a mark decided */
    int64_t     kept_bytes, lost_bytes;
    const char *text;
} weft_conflict;

/* Beside a graph: where everything lies.  Tables by value, by node, by operand. */
typedef struct weft_sharding {
    weft_arena    *arena;
    int            n_mesh;
    weft_mesh     *mesh;
    uint32_t       lanes; /* as in the options */
    int            n_value, n_node, n_use, n_output;
    weft_layout   *value;  /* as produced; inputs, parameters and states: at rest */
    weft_layout   *node;   /* which factors an axis cuts: dim is the number of a factor */
    int32_t       *first;  /* operand k of node i is use[first[i] + k] */
    weft_layout   *use;    /* as consumed */
    weft_layout   *output; /* the graph's outputs as given out: reduced */
    int            n_conflict, cap_conflict;
    weft_conflict *conflict; /* not part of the text form */
    int            n_sweep;
} weft_sharding;

/* Spreads the marks over the graph, forwards and backwards, to a fixed point.  Borrows g and o for
 * the call; *out is the caller's.  WEFT_ERR_ARG: a mark that does not fit its value. */
weft_status weft_shard_propagate(const weft_graph *g, const weft_shard_options *o,
                                 weft_sharding **out);
void        weft_sharding_destroy(weft_sharding *s);
weft_status weft_sharding_verify(const weft_sharding *s, const weft_graph *g);
weft_status weft_sharding_print(const weft_sharding *s, const weft_graph *g,
                                weft_text *t);
weft_status weft_sharding_parse(const char *file, const char *text, size_t n,
                                const weft_graph *g, weft_sharding **out);
bool        weft_sharding_equal(const weft_sharding *a, const weft_sharding *b);

/* ---- one operator under a sharding ---- */

/* The factors of a node as sharding counts them: those of its rule, then, where it has ragged rows,
 * '@': which experts' rows a part holds (cut as WEFT_SPLIT_OWN together with factor x). */
typedef struct weft_node_factors {
    weft_factors      f;
    int               n_in, n_out;
    weft_dim_factors *dim;    /* as weft_op_factors() has it */
    int               own;    /* number of '@', -1 none */
    int               expert; /* number of x beside '@', -1 none */
} weft_node_factors;

weft_status weft_shard_factors(const weft_op_use *u, weft_arena *a,
                               weft_node_factors *out);
/* May an axis cut it?  (not whole, no halo) */
bool weft_shard_can_cut(const weft_node_factors *f, int factor);
/* The layout of operand or result i (results behind operands) when factors are cut as cut says;
 * results also get what they are unreduced over. */
weft_layout weft_shard_project(const weft_op_use *u, const weft_node_factors *f,
                               const weft_mesh *m, const weft_layout *cut, int i);
/* Attributes that repeat sizes of the results, for local results. */
void weft_shard_local_attr(const weft_op_use *u, const weft_type *local_out,
                           weft_attr *attr);
/* Does the operator know positions along the factor (in a sequence, in a table, of a random
 * mask)?  A part of such a
 * factor has to be one run: a part of two runs is two uses. */
bool weft_shard_is_positional(const weft_op_use *u, const weft_node_factors *f,
                              int factor);
/* Attributes that say where a part begins.  cut: the node's, by factor; part: the run of each
 * factor that this is, of '@' the experts whose rows are kept here (weft_shard_own_experts()). */
void weft_shard_local_first(const weft_op_use *u, const weft_node_factors *f,
                            const weft_layout *cut, const weft_interval *part,
                            weft_attr *attr);
/* Of n experts those of a place, where '@' or x is cut. */
weft_status weft_shard_own_experts(const weft_node_factors *f, const weft_mesh *m,
                                   const weft_layout *cut, int64_t n, int place,
                                   weft_arena *a, weft_interval *out);
/* The node that sorted the rows which this one uses, of which it has the offsets or sources; -1:
 * none.  Only beside those can rows be sent to their experts' owners or back. */
int weft_shard_sorter(const weft_graph *g, int node);
/* The integer operand whose numbers count along a factor (rows of a table: letter v), -1 none. */
int weft_shard_index_operand(const weft_op_use *u, const weft_node_factors *f,
                             int *factor);

/* ---- resharding ---- */

typedef enum weft_step_kind {
    WEFT_STEP_SLICE,  /* local: keep a part of what is there */
    WEFT_STEP_SPREAD, /* local: own part, neutral elements elsewhere: becomes unreduced */
    /* all_gather, reduce_scatter, all_reduce, all_to_all; send_rows: ragged rows to their
     * experts' owners, return_rows: and back */
    WEFT_STEP_COLLECTIVE,
} weft_step_kind;

typedef struct weft_reshard_step {
    weft_step_kind  kind;
    weft_collective coll; /* WEFT_STEP_COLLECTIVE */
    weft_layout     before, after;
    uint32_t       axes; /* collectives: ranks that differ only along these are a group */
    weft_unreduced reduce; /* how reductions combine */
    int64_t        bytes;  /* on the wire, all ranks together */
} weft_reshard_step;

/* The measure by which reshards are compared: bytes received by all ranks over each class of links,
 * the slowest first; then steps. */
typedef struct weft_measure {
    int64_t bytes[WEFT_MAX_LINK];
    int64_t steps; /* a local one is none, a collective one */
} weft_measure;

int weft_measure_compare(const weft_measure *a, const weft_measure *b);

typedef struct weft_reshard {
    int                n_step;
    weft_reshard_step *step;
    weft_measure       measure;
    int64_t            bytes; /* of all steps */
} weft_reshard;

/* From one layout to another on a mesh, for a value of type t, by collectives and local steps: few
 * steps first, then bytes; a step more is taken where it saves each rank 64 KiB.  Replicas are not
 * made to help each other for little, and never along axes of still: ranks along these have other
 * values (lanes), unless a layout names them.  Steps in arena.  WEFT_ERR_ARG: a pair that makes no
 * sense (ragged rows recut). */
weft_status weft_reshard_collectives(const weft_mesh *m, uint32_t still,
                                     const weft_layout *from, const weft_layout *to,
                                     const weft_type *t, weft_arena *arena,
                                     weft_reshard *out);
bool        weft_step_is(const weft_reshard_step *s, weft_collective c);
const char *weft_step_name(const weft_reshard_step *s); /* "slice", "all_reduce" */
/* The ranks of the group that a place belongs to when axes vary; in mesh order. */
int weft_mesh_group(const weft_mesh *m, uint32_t axes, int place, int32_t *rank);

/* Roughly what a rank receives, without a search: what propagation compares conflicts by. */
weft_measure weft_reshard_estimate(const weft_mesh *m, const weft_layout *from,
                                   const weft_layout *to, const weft_type *t);

/* ---- strategies ---- */

/* Layers of a graph, for tp_exclude. */
typedef struct weft_shard_layers {
    int n;
    /* first nodes of the layers, and where the last one ends; borrowed */
    const int *first;
} weft_shard_layers;

/* Meshes (one a stage, pp slowest) and marks for a training graph (or a forward one, without
 * zero); all in a.  layers NULL: as weft_graph_find_runs has them.  world: how many ranks there
 * are, 0: as many as it takes.  node_mesh is left to the caller. */
weft_status weft_shard_expand(const weft_strategy *y, const weft_graph *g,
                              const weft_shard_layers *layers, int world, weft_arena *a,
                              weft_shard_options *out);
/* The axes of a strategy in order, names static; returns how many. */
int weft_shard_axes(const weft_strategy *y, weft_mesh_axis out[WEFT_MAX_AXIS]);

#endif
