/* The matmuls of linear layers in fp8. */
#ifndef WEFT_GRAPH_FP8_H
#define WEFT_GRAPH_FP8_H

#include "graph/graph.h"

/* Every matmul by a parameter gets the formats ("e4m3,e4m3,e5m2": its operands', its result's
 * gradient's), in place; but not the head, whose result is `logits` (-1: none) or goes into a loss,
 * nor a router.  For forward graphs, before differentiation: gradients take formats from there. */
weft_status weft_graph_mark_fp8(weft_graph *g, const char *formats, weft_vid logits);

#endif
