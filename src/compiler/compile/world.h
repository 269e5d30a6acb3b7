/* The programs of all ranks of a plan, few of them compiled: along an axis ranks do what a lower
 * one does, with its peers moved along the axis, wherever both ends of a run of places do the same.
 *
 *     weft_compiled_world *w;
 *     WEFT_TRY(weft_compile_world(&training, plan, WEFT_RANKS_FOLDED, &w));
 *     w->world.like[r]                                  what rank r does
 *     weft_compiled_world_destroy(w);
 *
 * Uneven parts are larger on lower places, so ends that are alike mean that all between them are.
 * Along the lanes that holds for places in a row whose lanes are dealt alike: as many, in
 * subtrees of the same levels, with as many micro-batches. */
#ifndef WEFT_COMPILE_WORLD_H
#define WEFT_COMPILE_WORLD_H

#include "compile/compile.h"
#include "program/world.h"

typedef struct weft_compiled_world {
    weft_arena          *arena;
    weft_world           world;
    const weft_training *training;   /* borrowed */
    const weft_plan     *plan;       /* borrowed */
    int n_axis, size[WEFT_MAX_AXIS]; /* of the mesh; copies are an axis of their own */
    int lane_axis;                   /* of these; -1: none, or two */
    uint64_t      *deal;  /* [place along the lanes]: equal where lanes are dealt alike */
    bool           alike; /* all of them */
    int           *from;  /* [rank]: whose program it has */
    int            n_made;
    bool           quick;               /* WEFT_RANKS_ENDS */
    weft_sharding *sharding;            /* of all of them; NULL: values are replicated */
    weft_program **made;                /* [rank]; NULL: like another's */
    const weft_program          **like; /* world.like */
    int                           n_cache;
    struct weft_partition_cache **cache; /* [mesh rank]: shared by all stages, or NULL */
} weft_compiled_world;

typedef enum weft_compile_ranks {
    WEFT_RANKS_FOLDED, /* those that are unlike others */
    WEFT_RANKS_EACH,   /* every rank's own program */
    /* the first along an axis, and the last where it holds or does more; all others are taken for
     * the first with such lanes, whose parts are the largest: quick where replicas own unlike
     * parts of the states. Of a stage only the first place's program is verified */
    WEFT_RANKS_ENDS,
} weft_compile_ranks;

/* WEFT_ERR_ARG: as weft_compile_program().  Both are borrowed until the world is destroyed. */
weft_status weft_compile_world(const weft_training *t, const weft_plan *plan,
                               weft_compile_ranks which, weft_compiled_world **out);
void        weft_compiled_world_destroy(weft_compiled_world *w); /* accepts NULL */

#endif
