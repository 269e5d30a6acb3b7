/* Shared between the files of the room. */
#ifndef WEFT_SHARD_PRIV_H
#define WEFT_SHARD_PRIV_H

#include "base/status.h"
#include "shard/shard.h"

/* Part i of n units over p parts: runs that differ by at most one, the larger ones first. */
static inline int64_t weft_shard__start(int64_t n, int64_t p, int64_t i)
{
    return n / p * i + (i < n % p ? i : n % p);
}

/* Which dimension's or factor's splits: the k-th of dim, NULL past the last. */
const weft_split *weft_shard__nth(const weft_layout *l, int dim, int k);
/* Adds a split; the axis must be free.  False: there is no room. */
bool weft_shard__add(weft_layout *l, const weft_split *s);
/* Takes away the axis' split. */
void weft_shard__drop(weft_layout *l, int axis);
bool weft_shard__split_equal(const weft_split *a, const weft_split *b);
/* Units that do not matter become 1. */
weft_layout weft_shard__normal(const weft_layout *l, const weft_mesh *m,
                               const weft_shape *s);
/* Splits ordered by dimension, so that equal layouts have equal bytes. */
void weft_shard__sort(weft_layout *l);

/* How many positions two ascending lists have in common. */
int64_t weft_shard__common(const weft_interval *a, int n_a, const weft_interval *b,
                           int n_b);

int64_t weft_shard__bytes(const weft_type *t);

/* ---- propagation's own state, between its files ---- */

typedef struct weft_shard__node {
    weft_op_use       u; /* types are kept with it */
    weft_node_factors f;
    weft_layout       cut; /* dim is a factor */
} weft_shard__node;

typedef struct weft_shard__run {
    const weft_graph         *g;
    const weft_shard_options *o;
    weft_arena               *tmp;
    weft_sharding            *s;
    weft_shard__node         *node;
    weft_layout              *wish; /* by value: the cuts that its users and maker like */
    uint32_t                 *closed; /* by value: dimensions a mark closed */
    uint32_t                 *never;  /* by value: axes a mark forbade */
    weft_layout              *marked; /* by value: cuts that a mark put there */
    weft_layout              *rest;   /* by value: cuts where it is kept only */
    uint32_t *maybe;             /* by value: axes it is unreduced over as things stand */
    int      *first_user, *user; /* nodes that use a value */
    bool     *summed;            /* by value: used for sums over micro-batches only */
    weft_vid *repeats;           /* by value: the forward value it makes again */
    uint32_t  data;              /* axes that cut an input */
    uint32_t  whole_rows;        /* axes that may not cut ragged rows */
    bool      changed;
} weft_shard__run;

weft_status weft_shard__visit(weft_shard__run *r, int node);
weft_status weft_shard__find_summed(weft_shard__run *r);
weft_status weft_shard__resolve(weft_shard__run *r);
/* Empty tables for the graph. */
weft_status weft_shard__make_tables(weft_sharding *s, const weft_graph *g);
weft_vid    weft_shard__value_at(const weft_graph_node *n, int i);
/* Does something enter the update phase here? */
bool weft_shard__is_boundary(const weft_graph *g, int node);
/* The factors' wish that a value's layout is, seen from operand or result i. */
int weft_shard__to_factors(const weft_shard__node *n, int i, const weft_layout *l,
                           const weft_mesh *m, weft_split *out);

/* ---- of strategies ---- */

/* Layers that tensor parallelism leaves replicated. */
typedef struct weft_shard__excluded {
    bool     *node;   /* by node: of such a layer's forward pass */
    bool     *weight; /* by value: a leaf that such a node uses */
    int       n_entry, cap_entry;
    weft_vid *entry; /* values whose dimension 0, the samples, is to be split there */
} weft_shard__excluded;

/* f: by node.  layers NULL: as weft_graph_find_runs has them. */
weft_status weft_shard__find_excluded(const weft_strategy     *y,
                                      const weft_shard_layers *layers,
                                      const weft_graph *g, const weft_node_factors *f,
                                      weft_arena *a, weft_shard__excluded *out);

#endif
