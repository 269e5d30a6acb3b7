/* Two graphs equal in every field but memory. */
#ifndef WEFT_TEST_SAME_GRAPH_H
#define WEFT_TEST_SAME_GRAPH_H

#include "graph/graph.h"

/* Fails the running cmocka test at the first difference. */
void test_same_graph(const weft_graph *a, const weft_graph *b);

#endif
