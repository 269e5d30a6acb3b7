/* A part of a graph as a graph of its own: chosen nodes in a chosen order.  What makes the graphs
 * of pipeline stages. */
#ifndef WEFT_GRAPH_EXTRACT_H
#define WEFT_GRAPH_EXTRACT_H

#include "graph/graph.h"

typedef struct weft_graph_part {
    int        n_node;
    const int *node; /* of g: operands' makers come before, phases do not go back */
    /* of each node of g: its operands, where they differ; may be NULL */
    weft_vid *const *in;
    int              n_output;
    const weft_vid  *output; /* values of g */
    /* value: a leaf that is there even if no node uses it; may be NULL */
    const bool *leaf;
} weft_graph_part;

/* What the chosen nodes need and do not make comes from outside: leaves as they are, results of
 * other nodes as inputs (once a step where the update phase makes them).  A state whose next
 * value nobody here makes gets it as an input too.  map[v], n_value long: the new graph's value,
 * or -1. */
weft_status weft_graph_extract(const weft_graph *g, const weft_graph_part *p,
                               weft_vid *map, weft_graph **out);

#endif
