/* One rank of a pipeline while its program is made.
 *
 * A piece is what runs in one go: of each chunk the forward, the backward, or the two parts of
 * it; then the levels of the update with an exchange between ranks behind each.  Pieces are
 * numbered in the order of data flow; a storage that reaches from one piece to another has a slot
 * for each micro-batch between. */
#ifndef WEFT_PARTITION_PIPE_PRIV_H
#define WEFT_PARTITION_PIPE_PRIV_H

#include "partition/partition_priv.h"
#include "program/schedule.h"

typedef struct weft_partition__store {
    int  first, last;    /* pieces that use it; -1 none */
    bool received, sent; /* by messages of a micro-batch */
    bool given;          /* in the update, by an exchange */
    bool once;           /* filled once a step, before all pieces */
} weft_partition__store;

/* Actors by what they do; -1: there is none. */
typedef struct weft_partition__actors {
    int *compute, *merge, *recv, *send, *join; /* of each piece */
    int *read;                                 /* of each chunk */
    int *exchange;                             /* of each level */
    int  reduce, gather;
} weft_partition__actors;

typedef struct weft_partition__pipe {
    const weft_graph             *g;
    const weft_partition_options *o;
    weft_arena                   *tmp;
    weft_stage_map                stages;
    weft_schedule                *schedule;
    bool                          split; /* backward in two parts */
    const weft_partition__ranks  *r;
    int                           dp, pp, group,
        me; /* ranks along the lanes, of a pipeline; which of them this is */
    int                   n_chunk, n_stage;
    weft_partition__lanes lanes;
    int                   n_own_lane, first_micro, n_own; /* micro-batches of this rank */
    int n_listed; /* of the schedule: the most of a rank, where all gather in each of them */

    /* the rank's graph: node k of part is node[k] of g */
    weft_graph *part;
    int         n_node, *node, *piece; /* piece: of each node of g, -1 not here */
    int        *low, *high; /* of each value of g: chunks of its users here; -1 none */

    /* exchanges: of each value the rank that sends it, -1 none, and its place in that rank's
     * share of a level's gathered memory; of each level the bytes of a share */
    int     *from;
    int64_t *in_share, *share;

    weft_segment          *s;
    weft_partition__store *store;
    weft_program          *p;
    weft_partition__actors actor;
    int                    cap_edge;
} weft_partition__pipe;

/* Pieces. */
int weft_partition__piece(const weft_partition__pipe *k, int node); /* placed nodes */
int weft_partition__n_piece(const weft_partition__pipe *k);
weft_work weft_partition__work(const weft_partition__pipe *k, int piece);
int       weft_partition__piece_of(const weft_partition__pipe *k, const weft_work *w);
/* The piece of an instruction. */
int weft_partition__instr_piece(const weft_partition__pipe *k, int instr);
/* Does it gather what stays for the step? */
bool weft_partition__is_once(const weft_partition__pipe *k, int instr);

/* The rank of the job that is rank r of this pipeline. */
int weft_partition__peer(const weft_partition__pipe *k, int r);
/* Does the value, made in a forward or backward node, go from this rank to r?  From another to
 * this? */
bool weft_partition__sends(const weft_partition__pipe *k, weft_vid v, int r);
bool weft_partition__receives(const weft_partition__pipe *k, weft_vid v);
/* The piece before which a received value must be there. */
int weft_partition__wanted_by(const weft_partition__pipe *k, weft_vid v);
/* Where the rank has a value of g: as the segment's bindings say. */
weft_status weft_partition__where(const weft_partition__pipe *k, weft_vid v,
                                  weft_operand *out);
/* A new actor; instr has room for n. */
weft_status weft_partition__add_actor(weft_partition__pipe *k, const char *name,
                                      weft_stream_kind stream, int n, int *out);

/* pipe_graph.c */
weft_status weft_partition__rank_graph(weft_partition__pipe *k);
/* pipe_memory.c: after lowering; buffers are numbered as storages, more may follow */
weft_status weft_partition__plan_memory(weft_partition__pipe *k);
/* Messages that may be under way to or from a buffer of so many slots. */
int weft_partition__credits(const weft_partition__pipe *k, int n_slot);
/* pipe_message.c: who gives what in the exchanges of the update; actors that send and receive,
 * with their edges; exchanges of the update */
weft_status weft_partition__plan_exchanges(weft_partition__pipe *k);
weft_status weft_partition__messages(weft_partition__pipe *k);
weft_status weft_partition__exchanges(weft_partition__pipe *k);
#endif
