/* What a standby replica is made of: the part of a rank's program that computes its state after
 * its commit point, and what that takes from before it. */
#ifndef WEFT_PARTITION_STANDBY_PRIV_H
#define WEFT_PARTITION_STANDBY_PRIV_H

#include "partition/partition_priv.h"
#include "partition/passes.h"

typedef enum weft_tail_from {
    WEFT_TAIL_GRADIENT, /* complete when the micro-batches are over */
    WEFT_TAIL_LATE,     /* made after them: sums over ranks, norms */
    WEFT_TAIL_CLIP,     /* the clipping scale, the same on every rank */
    WEFT_TAIL_STEP      /* an input of the step, on every rank */
} weft_tail_from;

/* Bytes [lo, hi) of a buffer. */
typedef struct weft_partition__tail_input {
    int32_t        buffer;
    int64_t        lo, hi;
    weft_dtype     dtype;
    weft_tail_from from;
    int            result; /* of clip: which of its results */
    const char    *name;   /* of the step's input */
} weft_partition__tail_input;

typedef struct weft_partition__tail {
    bool                       *state; /* buffer: of the state that is computed */
    int                         n_instr;
    const weft_instr          **instr; /* in order */
    int                         n_input;
    weft_partition__tail_input *input;
} weft_partition__tail;

/* Of p's share of its state without what `other` holds, too.  WEFT_ERR_ARG: a message writes it
 * after the commit point.  Everything in a. */
weft_status weft_partition__find_tail(const weft_program *p, const weft_program *other,
                                      weft_standby_share share, weft_arena *a,
                                      weft_partition__tail *out);
/* Does the firing belong to a micro-batch, or merge its sums? */
bool weft_partition__fills_gradients(const weft_program *p, const weft_firing *f);
/* overlap_reductions.c: the actor of sends on the compute stream becomes buckets of the comm
 * stream, overlapped with the backward pass. */
weft_status weft_partition__overlap_sends(weft_program *p, int64_t bucket_bytes);

#endif
