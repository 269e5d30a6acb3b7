/* Passes from program to program: in is only read, *out is a new program, the caller's.  The same
 * instructions on the same operands: bits stay.  Where there is nothing to overlap, *out says the
 * same as in. */
#ifndef WEFT_PARTITION_PASSES_H
#define WEFT_PARTITION_PASSES_H

#include "program/program.h"
#include "shard/shard.h"
#include "strategy/strategy.h"

typedef struct weft_overlap_options {
    int64_t bucket_bytes;
    /* also reduce-scatters to the owners of shards; the program, of several stages, was made with
     * shard_bucket_bytes */
    bool to_owners;
    /* what the program was made of; NULL: ranks with replicated values */
    const weft_graph    *graph;
    const weft_sharding *sharding;
} weft_overlap_options;

/* Reductions of gradients over ranks move to the comm stream, in buckets of about bucket_bytes,
 * each as soon as the backward pass has finished its accumulators. */
weft_status weft_pass_overlap_reductions(const weft_program         *in,
                                         const weft_overlap_options *o,
                                         weft_program              **out);

/* The collectives of a program of one stage move to the comm stream and overlap the compute that
 * needs neither their operands nor their results; in the same order on all ranks. */
weft_status weft_pass_overlap_collectives(const weft_program *in, weft_program **out);

/* All-gathers of once a step, on the comm stream, become one actor each; the compute stream waits
 * for each at its first use. */
weft_status weft_pass_overlap_step_gathers(const weft_program *in, weft_program **out);

/* Of ranks that hold the same state, which one sends: parameters are shared out among them by
 * bytes, each with its states. */
typedef struct weft_standby_share {
    int at, of; /* of 0: there is no other */
} weft_standby_share;

typedef struct weft_standby_options {
    /* who hold replicas of this rank's state, and whose replicas this rank holds, as many: their
     * programs as they come in, without replicas */
    int                 n;
    const weft_program *guard[WEFT_MAX_STANDBY], *ward[WEFT_MAX_STANDBY];
    weft_standby_share  share, ward_share[WEFT_MAX_STANDBY];
    int64_t             bucket_bytes; /* of gradients that begin at once, about */
    /* of a message; 0: a send ends with its receive, out of the sender's memory where ranks share
     * it.  Between hosts it would wait for each answer */
    int credits;
} weft_standby_options;

/* A rank sends its gradients to its guards, overlapped with the backward pass, and holds the state
 * of its wards, which it updates after its own (standby.c).  What both hold anyway is left out.
 * WEFT_ERR_ARG: state that is gathered after the commit point; a rank without parameters, of whose
 * ward gradients are clipped. */
weft_status weft_pass_add_standby(const weft_program *in, const weft_standby_options *o,
                                  weft_program **out);

typedef struct weft_offload_options {
    int64_t chunk_bytes; /* of gradients */
    /* gradients of up to so many bytes have pinned memory of their own; larger ones go through a
     * ring of chunks */
    int64_t gradient_bytes;
} weft_offload_options;

#define WEFT_OFFLOAD_CHUNK_BYTES    ((int64_t)64 << 20)
#define WEFT_OFFLOAD_GRADIENT_BYTES ((int64_t)16 << 30)
/* Is it an update of a parameter, which the pass moves? */
bool weft_offload_is_update(const weft_instr *i);
/* Updates run on device 1, the host, in chunks, and states that only they use are in its memory.
 * The next step's forward pass may begin while they go on, where no rank gathers their results.
 * Bits are those of the host's kernels.  The last pass.  WEFT_ERR_ARG: the optimizer is lamb. */
weft_status weft_pass_offload_optimizer(const weft_program         *in,
                                        const weft_offload_options *o,
                                        weft_program              **out);

#endif
