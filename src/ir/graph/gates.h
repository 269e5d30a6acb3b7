/* Gated activations as one operator, for devices that have a kernel for it. */
#ifndef WEFT_GRAPH_GATES_H
#define WEFT_GRAPH_GATES_H

#include "graph/graph.h"

/* mul(act(g), u) becomes gate(g, u), in place: values keep their numbers, and the activation, which
 * no other node uses, is left without users.  For forward graphs, before differentiation. */
weft_status weft_graph_fuse_gates(weft_graph *g);

#endif
