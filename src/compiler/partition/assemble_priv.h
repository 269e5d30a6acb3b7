/* One rank while its program is assembled.  One stage is a pipeline of length 1.
 *
 * A piece is what runs in one go: of each chunk the forward, the backward, or the two parts of
 * it; then the levels of the update with an exchange between ranks after each.  Pieces are
 * numbered in the order of data flow; a storage that reaches from one piece to another has a slot
 * for each micro-batch between. */
#ifndef WEFT_PARTITION_ASSEMBLE_PRIV_H
#define WEFT_PARTITION_ASSEMBLE_PRIV_H

#include "partition/partition_priv.h"
#include "program/schedule.h"

typedef struct weft_partition__store {
    int  first, last;    /* pieces that use it; -1 none */
    bool received, sent; /* by messages of a micro-batch */
    bool given;          /* in the update, by an exchange */
    bool once;           /* filled once a step, before all pieces */
    bool early;          /* a share of a sum, reduced while other sums are still made */
} weft_partition__store;

/* Actors by what they do; -1: there is none. */
typedef struct weft_partition__actors {
    int *compute, *merge, *recv, *send, *join; /* of each piece */
    int *read;                                 /* of each chunk */
    int *exchange;                             /* of each level */
    int  reduce, gather;
} weft_partition__actors;

/* Micro-batches of the rank and the order of its pieces.  What tells one stage from several, and
 * the last stage from the first, is said here. */
typedef struct weft_partition__batch {
    weft_schedule        *schedule;
    weft_partition__lanes lanes;
    int                   n_own_lane, first_micro, n_own; /* of this rank */
    int n_listed; /* of the schedule: the most of a rank, where all gather in each of them */
    bool split; /* backward in two parts */
    /* every micro-batch is over before the next begins: memory from piece to piece has one slot,
     * and is free before and after */
    bool one_at_a_time;
    bool several;  /* some rank has more than one */
    bool one_term; /* one stage, on every rank one: a sum over them is its only term */
} weft_partition__batch;

/* The rank's graph: its node k is node[k] of the whole one. */
typedef struct weft_partition__part {
    const weft_graph *graph;
    weft_graph       *extracted;     /* graph, where it is not the whole one */
    int               n_node, *node; /* of the rank */
    int              *piece;         /* of each node of the whole graph; -1: not here */
    /* of each value of the whole graph: chunks of its users here; -1: none */
    int *low, *high;
} weft_partition__part;

/* Exchanges of the update: of each value the rank that sends it, -1 none, and its offset in that
 * rank's share of a level's gathered memory; of each level the bytes of a share. */
typedef struct weft_partition__exchange {
    int     *from;
    int64_t *in_share, *share;
} weft_partition__exchange;

typedef struct weft_partition__assembly {
    const weft_graph             *graph;
    const weft_partition_options *options;
    const weft_partition__ranks  *ranks;
    weft_arena                   *tmp;
    /* ranks along the lanes, ranks of a pipeline, which of these this is */
    int                      dp, pp, me;
    int                      n_chunk, n_stage;
    weft_stage_map           stages;
    weft_partition__batch    batch;
    weft_partition__part     part;
    weft_partition__exchange exchange;
    weft_segment            *segment;
    weft_partition__store   *store; /* of each storage */
    weft_program            *program;
    weft_partition__actors   actor;
    int                      cap_edge;
} weft_partition__assembly;

/* Of a node that is assigned to a stage. */
int       weft_partition__piece(const weft_partition__assembly *build, int node);
int       weft_partition__n_piece(const weft_partition__assembly *build);
weft_work weft_partition__work(const weft_partition__assembly *build, int piece);
int weft_partition__piece_of(const weft_partition__assembly *build, const weft_work *w);
/* The piece of an instruction. */
int weft_partition__instr_piece(const weft_partition__assembly *build, int instr);
/* Does it gather what stays for the step? */
bool weft_partition__is_once(const weft_partition__assembly *build, int instr);

/* The rank of the job that is rank r of this pipeline. */
int weft_partition__peer(const weft_partition__assembly *build, int r);
/* Does the value, made in a forward or backward node, go from this rank to r?  From another to
 * this? */
bool weft_partition__sends(const weft_partition__assembly *build, weft_vid v, int r);
bool weft_partition__receives(const weft_partition__assembly *build, weft_vid v);
/* The piece before which a received value must be there. */
int weft_partition__wanted_by(const weft_partition__assembly *build, weft_vid v);
/* Where the rank has a value of g: as the segment's bindings say. */
weft_status weft_partition__where(const weft_partition__assembly *build, weft_vid v,
                                  weft_operand *out);
/* A new actor; instr has room for n. */
weft_status weft_partition__add_actor(weft_partition__assembly *build, const char *name,
                                      weft_stream_kind stream, int n, int *out);

/* assemble_graph.c */
weft_status weft_partition__rank_graph(weft_partition__assembly *build);
/* assemble_memory.c: after lowering; buffers are numbered as storages, more may follow */
weft_status weft_partition__plan_memory(weft_partition__assembly *build);
/* Messages that may be under way to or from a buffer of so many slots. */
int weft_partition__credits(const weft_partition__assembly *build, int n_slot);
/* assemble_actor.c: gathers, reads, pieces, sums */
weft_status weft_partition__make_actors(weft_partition__assembly *build);
/* assemble_message.c: who gives what in the exchanges of the update; actors that send and receive,
 * with their edges; exchanges of the update */
weft_status weft_partition__plan_exchanges(weft_partition__assembly *build);
weft_status weft_partition__messages(weft_partition__assembly *build);
weft_status weft_partition__exchanges(weft_partition__assembly *build);
#endif
