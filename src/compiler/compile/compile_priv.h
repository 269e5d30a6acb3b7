/* Shared by the files of the module. */
#ifndef WEFT_COMPILE_PRIV_H
#define WEFT_COMPILE_PRIV_H

#include "compile/compile.h"
#include "partition/partition.h"

/* A program to be made.  Everything is borrowed. */
typedef struct weft_compile__request {
    const weft_compile_spec *spec;
    const weft_graph        *graph;
    const weft_plan         *plan; /* NULL: one rank */
    int                      rank;
    bool trains; /* graph is of a training step, else it is forward only */
    const weft_compiled *beside; /* forward: the program that has the parameters; NULL */
} weft_compile__request;

/* The marks of a plan as a forward graph takes them: those on values it has (a copy's mark is its
 * parameter's), and where the training program shards parameters over more axes than these say
 * (q->beside), marks for that.  In a. */
weft_status weft_compile__forward_marks(const weft_compile__request *q, weft_arena *a,
                                        weft_plan *out);
/* Parameters of g are sharded as they are beside it. */
weft_status weft_compile__same_parts(const weft_compiled *beside, const weft_graph *g,
                                     const weft_sharding *sharding);

/* How the graph is sharded: the same for all ranks.  *out NULL: values are replicated. */
weft_status weft_compile__shard(const weft_compile__request *q, weft_sharding **out);
/* The program of q->rank.  sharding: of weft_compile__shard().  *cache: shared by the stages of
 * its mesh rank; NULL at first, then the caller's.  cache NULL: nothing is kept. */
weft_status weft_compile__rank(const weft_compile__request *q,
                               const weft_sharding         *sharding,
                               weft_partition_cache **cache, weft_program **out);

#endif
