/* Shared by the files of the module. */
#ifndef WEFT_PARTITION_PRIV_H
#define WEFT_PARTITION_PRIV_H

#include "partition/partition.h"
#include "partition/passes.h"
#include "partition/stages.h"
#include "spmd/spmd.h"

/* ---- stages_update.c ---- */

/* The second half of the assignment: the update phase, and what crosses. */
weft_status weft_partition__assign_update(weft_stage_map *p);

/* ---- pack.c ---- */

/* A block of memory wanted during [first, last]. */
typedef struct weft_partition__block {
    int64_t bytes, offset;
    int     first, last;
} weft_partition__block;

/* Gives each block an offset so that blocks alive at the same time do not overlap; *total is the
 * room needed.  The same blocks give the same offsets. */
weft_status weft_partition__pack(weft_partition__block *b, int n, weft_arena *tmp,
                                 int64_t *total);

/* ---- cache.c ---- */

/* Opens *c where it is NULL. */
weft_status weft_partition__open_cache(weft_partition_cache **c);

struct weft_partition_cache {
    weft_arena       *arena;
    weft_local_graph *local;
    /* assemble.c: the stage assignment of its nodes; NULL: not asked for yet */
    struct weft_partition__stages *stages;
};

/* Which lanes a rank has. */
typedef struct weft_partition__lanes {
    int            n_micro, n_lane;
    int            world; /* ranks along the lanes; 0 is 1 */
    const int32_t *share; /* lanes of each; NULL: equal */
    int            rank;
} weft_partition__lanes;

/* Who the ranks are.  Along the lanes n_part of them share the micro-batches; n_place are in a
 * stage. */
typedef struct weft_partition__ranks {
    int              n_part, part, n_place, place;
    const weft_mesh *mesh;
    /* its graph has the sums over ranks; NULL: an actor has them */
    weft_local_graph     *local;
    weft_partition_cache *cache; /* or NULL */
    uint32_t              lanes; /* with local: axes along the lanes */
} weft_partition__ranks;

/* Which lanes a rank has. */
weft_partition__lanes weft_partition__lanes_of(const weft_partition_options *o,
                                               const weft_partition__ranks  *r);

/* ---- assemble.c ---- */

/* The program of rank o->rank: its part of the graph as actors, instructions, buffers, lists. */
weft_status weft_partition__assemble(const weft_graph *g, const weft_partition_options *o,
                                     const weft_partition__ranks *r, weft_program **out);

/* ---- lanes.c: what every program has ---- */

enum {
    WEFT_PARTITION__STATE,
    WEFT_PARTITION__WORK,
    WEFT_PARTITION__STAGING,
    WEFT_PARTITION__N_SLAB
};

weft_status weft_partition__check(const weft_partition__lanes *o);
/* Lanes [*first, *end) are the rank's. */
void weft_partition__own_lanes(const weft_partition__lanes *o, int *first, int *end);
/* The lane of a micro-batch. */
int weft_partition__lane_of(int n_micro, int n_lane, int micro);
/* Accumulators that the binary tree over them needs. */
int weft_partition__lane_slots(const weft_partition__lanes *o);
/* Which of them a lane of the rank's adds to, and how many merges come behind it: slot into slot
 * - 1, and so on. */
typedef struct weft_partition__turn {
    int slot, merge;
} weft_partition__turn;
weft_partition__turn weft_partition__lane_turn(const weft_partition__lanes *o, int lane);
/* What the sum over ranks is told: lanes where ranks' shares are no equal subtrees, else 0. */
int weft_partition__sum_lanes(const weft_partition__lanes *o);
/* And the group that sums over all of them, which of them are whose. */
weft_status weft_partition__deal(const weft_partition__lanes *o, weft_program *p,
                                 weft_group *g);

/* Adds a stream of the kind, on device 0, where there is none. */
weft_status weft_partition__need_stream(weft_program *p, weft_stream_kind k);
/* A new program gets one of each kind, in the order of the kinds: there the kind is the number. */
weft_status weft_partition__all_streams(weft_program *p);
/* The number of the first stream of a kind, which there is. */
int32_t weft_partition__stream(const weft_program *p, weft_stream_kind k);

void weft_partition__slabs(weft_program *p, const int64_t bytes[WEFT_PARTITION__N_SLAB]);
weft_instr weft_partition__bare(weft_instr_kind kind, const char *name);
/* An instruction with one operand, one result or both; NULL: none. */
weft_status weft_partition__move(weft_program *p, weft_instr_kind kind, const char *name,
                                 const weft_operand *in, const weft_operand *out,
                                 weft_instr *i);
/* The commit point, whose operands are n outcomes of the step. */
weft_status weft_partition__commit(weft_program *p, int n, const weft_operand *outcome,
                                   weft_instr *i);
/* Micro-batches of a rank, and the most that one has: who has fewer still takes part in what
 * others gather. */
int weft_partition__n_own(const weft_partition__lanes *o, int rank);
int weft_partition__most_own(const weft_partition__lanes *o);
/* Fills `actor`, which has room, with what actor `of` does together with ranks that have other
 * micro-batches: parameters that are kept in parts are gathered. */
weft_status weft_partition__join(weft_program *p, int of, const weft_partition__ranks *r,
                                 int actor);
/* What instructions write of an accumulator: its bytes are rounded up, and nobody writes the
 * rest. */
weft_operand weft_partition__whole(const weft_segment *s, int storage);

/* ---- pass.c: what passes over programs share ---- */

/* *out: a copy of in, changed by edit.  What a pass is: nothing is left of a copy that failed. */
typedef weft_status weft_partition__edit(weft_program *p, const void *options);
weft_status weft_partition__edit_copy(const weft_program *in, weft_partition__edit *edit,
                                      const void *options, weft_program **out);

typedef struct weft_partition__more {
    weft_program *p;
    int           cap_actor, cap_edge;
} weft_partition__more;

weft_status weft_partition__more_start(weft_program *p, weft_partition__more *m);
/* With room for n instructions: those given, or (NULL) none yet. */
weft_status weft_partition__more_actor(weft_partition__more *m, const char *name,
                                       int32_t stream, const weft_instr *instr, int n,
                                       int *out);
weft_status weft_partition__more_edge(weft_partition__more *m, weft_edge e);

/* n collectives that have nothing to do with each other, each on tensors that no other one has,
 * become as few as can be. */
weft_status weft_partition__meet(weft_program *p, weft_instr *list, int *n);

/* ---- standby.c ---- */

/* The actor of messages with gradients for the rank's standby replicas. */
#define WEFT_PARTITION__STANDBY "standby"

/* ---- overlap_step_gathers.c ---- */

/* The actor that fires first on the comm stream, and gathers what stays for the step. */
#define WEFT_PARTITION__GATHER "gather"

#endif
