/* Shared between the files of the room. */
#ifndef WEFT_GRAPH_PRIV_H
#define WEFT_GRAPH_PRIV_H

#include "graph/graph.h"

/* weft_graph_add_node() with a name for each result, taken as they are: the caller has seen to it
 * that they are new. */
weft_status weft_graph__add_named(weft_graph *g, weft_op op, const weft_attr *attr,
                                  int n_in, const weft_vid *in, const char *const *name,
                                  int n_out, weft_vid *out);

/* weft_graph_find_layers() among forward nodes [first, end). */
weft_status weft_graph__find_layers_in(const weft_graph *g, int first, int end,
                                       weft_graph_layers *out);

#endif
