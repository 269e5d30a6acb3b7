/* From a model's forward graph to the graph of an evaluation: without dropout, the loss summed
 * over the step's micro-batches.
 *
 *     WEFT_TRY(weft_graph_make_eval(m->graph, m->loss_sum, &g));
 *     ...
 *     weft_graph_destroy(g); */
#ifndef WEFT_GRAPH_EVAL_H
#define WEFT_GRAPH_EVAL_H

#include "graph/graph.h"

/* Borrows model, which stays as it is.  Values keep their names and their order; the sum,
 * "eval.loss", is the only output.  *out is the caller's. */
weft_status weft_graph_make_eval(const weft_graph *model, weft_vid loss,
                                 weft_graph **out);

#endif
