/* A whole training graph on all places of its meshes, beside the same on one: each node by
 * reference kernels on each place's slices, operands resharded by plans between them.
 *
 *     test_graph_run(graph, sharding, seed, &report);      fails the running test where they
 *     differ */
#ifndef WEFT_TEST_SHARD_GRAPH_H
#define WEFT_TEST_SHARD_GRAPH_H

#include "shard/shard.h"

typedef struct test_graph_report {
    int     n_reshard, n_value; /* reshards done, values compared */
    int64_t bytes;              /* on the wire */
} test_graph_report;

/* Inputs, parameters and states are made up from the seed; labels are some of them ignored. */
void test_graph_run(const weft_graph *g, const weft_sharding *s, uint64_t seed,
                    test_graph_report *out);

#endif
