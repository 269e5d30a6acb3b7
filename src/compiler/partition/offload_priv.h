/* What the parts of the offload pass share. */
#ifndef WEFT_PARTITION_OFFLOAD_PRIV_H
#define WEFT_PARTITION_OFFLOAD_PRIV_H

#include "partition/partition_priv.h"

enum {
    /* chunks under way: one is copied out, one updated, one copied in */
    WEFT_OFFLOAD_RING        = 3,
    WEFT_OFFLOAD_MOST_COPIED = 16 /* operands and results of an update and its casts */
};

/* Where a buffer of host memory is; from 0 on: a slot of the ring. */
enum {
    WEFT_OFFLOAD_SCALAR = -1, /* numbers of the step */
    WEFT_OFFLOAD_KEPT   = -2  /* memory of its own for the whole step */
};

/* Instructions while they are collected. */
typedef struct weft_offload_list {
    weft_instr *instr;
    int         n, cap;
} weft_offload_list;

typedef struct weft_offload_chunk {
    weft_offload_list out, update, in;   /* device to host, on the host, host to device */
    int64_t           bytes, ring_bytes; /* copied; of them in its slot of the ring */
} weft_offload_chunk;

/* What a piece of an update uses of a buffer on the device, and its copy in host memory. */
typedef struct weft_offload_copied {
    weft_operand device, host;
    bool         written;
} weft_offload_copied;

/* An instruction of the compute stream.  next: of the next step, seen from the updates. */
typedef struct weft_offload_place {
    int  actor, instr;
    bool next;
} weft_offload_place;

typedef struct weft_offload_pass {
    weft_program        *p;
    weft_arena          *tmp;
    weft_partition__more more;
    weft_offload_options o;
    int                  at; /* of the compute stream: the first firing with updates */
    int   front;             /* actor: what comes before them, up to the commit point */
    int   rest;              /* actor: what follows the first of them */
    int   n_slab;
    bool *on_device; /* buffer: something else than updates uses it */
    /* instructions that stay on the compute stream, by actors: in the order in which they follow
     * the updates, this step's and then the next one's; and backwards from the commit point */
    int                 n_after, n_before;
    weft_offload_place *after, *before;
    bool                overlaps; /* the next step begins while updates go on */
    bool                keeps;    /* gradients have memory of their own on the host */
    int                 n_chunk, cap_chunk, cap_buffer;
    weft_offload_chunk *chunk;
    int                *slot; /* of each new buffer */
    int                 first_buffer;
    int64_t             scalar_bytes, kept_bytes;
    weft_offload_list   scalars; /* copies of the step's numbers */
    int                 n_scalar;
    weft_offload_copied scalar[WEFT_OFFLOAD_MOST_COPIED];
} weft_offload_pass;

/* Is instruction `at` of an actor an update, or a cast of its result? */
bool weft_offload__is_moved(const weft_actor *a, int at);
/* Have two buffers bytes in common? */
bool weft_offload__overlap(const weft_buffer *a, const weft_buffer *b);

/* ---- offload_streams.c ---- */

/* Once the actor with the first update is cut: fills after, before, overlaps. */
weft_status weft_offload__find_places(weft_offload_pass *k);
/* The first of after that uses (writes_only: writes) one of these buffers; n_after: none. */
int weft_offload__find_use(const weft_offload_pass *k, const int32_t *buffer, int n,
                           bool writes_only);
/* Streams of chunks, edges, pieces of actors that wait for them. */
weft_status weft_offload__make_streams(weft_offload_pass *k);

#endif
