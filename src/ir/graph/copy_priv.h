/* Copying a graph piece by piece: what passes that give a new graph are made of. */
#ifndef WEFT_GRAPH_COPY_PRIV_H
#define WEFT_GRAPH_COPY_PRIV_H

#include "graph/graph.h"

typedef struct weft_graph__copy {
    const weft_graph *from;
    weft_graph       *to;
    weft_vid         *map; /* value of from -> value of to; -1 not there */
    weft_arena       *tmp;
} weft_graph__copy;

/* An empty graph of the same name; nothing is mapped.  c->to is the caller's. */
weft_status weft_graph__copy_start(weft_graph__copy *c, const weft_graph *from,
                                   weft_arena *tmp);
/* Input, parameter or state v. */
weft_status weft_graph__copy_leaf(weft_graph__copy *c, weft_vid v);
/* Node i in phase p on the operands in (values of to); suffix NULL: under its own names.  out may
 * be NULL: the results are then mapped. */
weft_status weft_graph__copy_node(weft_graph__copy *c, int i, weft_phase p,
                                  const weft_vid *in, const char *suffix, weft_vid *out);
/* Outputs, and the next values of states. */
weft_status weft_graph__copy_ends(weft_graph__copy *c);
/* Which states are copies of which parameters, where both are mapped. */
weft_status weft_graph__copy_relations(weft_graph__copy *c);

#endif
