/* Differentiation that keeps the uses of a value apart.
 *
 * A parameter with several uses (tied embeddings) has each use's gradient summed over all
 * micro-batches first and the uses added afterwards, in graph order; so whoever builds a training
 * graph needs them one by one. */
#ifndef WEFT_GRAPH_GRAD_H
#define WEFT_GRAPH_GRAD_H

#include "graph/graph.h"

typedef struct weft_grad_uses {
    int       n;    /* 0: y does not depend on it */
    weft_vid *grad; /* one for each use, in graph order; in the graph's arena */
} weft_grad_uses;

/* As weft_graph_differentiate(), uses[i] for wrt[i].  Nodes are added in phase backward.
 * Gradients of bf16 and f16 parameters and states come out as f32, all others in their own dtype.
 */
weft_status weft_graph_differentiate_uses(weft_graph *g, weft_vid y, weft_vid seed,
                                          int n_wrt, const weft_vid *wrt,
                                          weft_grad_uses *uses);

#endif
