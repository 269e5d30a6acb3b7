/* The commit point of a step: before it nothing writes state, after it no update waits for a
 * message.  A graph says which of its nodes are after it: those that make a next state, and what
 * follows from them.  All others can run before it. */
#ifndef WEFT_GRAPH_COMMIT_H
#define WEFT_GRAPH_COMMIT_H

#include "graph/graph.h"

/* after[i]: node i is after the commit point; n_node long.  False: no state has a next value, so
 * there is no commit point. */
bool weft_graph_find_after_commit(const weft_graph *g, bool *after);

#endif
