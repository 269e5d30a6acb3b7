/* Recomputation: activations that the backward pass needs are made again instead of kept.
 *
 * A graph in, another one out: backward nodes use clones of forward nodes, in phase backward,
 * each placed right before its first use.  Clones keep attributes (dropout ids too), so the
 * numbers are the same. */
#ifndef WEFT_GRAPH_RECOMPUTE_H
#define WEFT_GRAPH_RECOMPUTE_H

#include "graph/graph.h"
#include "strategy/recompute.h"

/* By policy; with WEFT_STRATEGY_KEEP a graph like g. */
weft_status weft_graph_recompute(const weft_graph *g, weft_strategy_recompute policy,
                                 weft_graph **out);

/* By hand: keep[v] for each value of g; only forward nodes' results are looked at. */
weft_status weft_graph_recompute_but(const weft_graph *g, const bool *keep,
                                     weft_graph **out);

/* Have two nodes of one operator the same attributes? */
bool weft_graph_same_attr(const weft_graph_node *a, const weft_graph_node *b);

/* The forward value that each value is or makes again, -1 none: of[v].  first_user, user:
 * weft_graph_users(). */
void weft_graph_find_repeats(const weft_graph *g, const int *first_user, const int *user,
                             weft_vid *of);

#endif
