/* Sums of matmuls in an order in which each can be added to by the next. */
#ifndef WEFT_GRAPH_SUMS_H
#define WEFT_GRAPH_SUMS_H

#include "graph/graph.h"

/* ((m2 + m1) + m0), of matmuls without other users, becomes m2 + (m1 + m0) where m0, m1, m2 is
 * the order that they run in: every matmul but the first adds what is there already, which a device
 * does in the matmul itself.  In place: values keep their numbers; sums round in another order.
 * For graphs of a step. */
weft_status weft_graph_chain_sums(weft_graph *g);

#endif
