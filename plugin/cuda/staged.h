/* staged: ranks of one host that do not reach each other's device memory communicate through
 * pinned memory that all of them have mapped.
 *
 * Each ordered pair of members has a ring of slots there, and a flag for each slot: EMPTY or FULL.
 *     out (a branch of the stream)    wait for EMPTY, copy a piece to the slot, write FULL
 *     in  (another)                   wait for FULL, copy it to device memory, write EMPTY
 *     the stream                      kernels add the pieces of some rounds, or put them in place
 * All three are the device's work: copies by its copy engines in both directions at once, waits and
 * writes of flags by streams (cuStreamWaitValue32).  No host thread wakes up and none touches a
 * byte, and nothing in a call changes from step to step, so it can be captured.
 *
 * All members give pieces in one order (round, distance of the pair, term), so the first transfer
 * that is not over can always go on: its sender and its receiver have done all earlier ones.
 *
 * Each member has a word there that its stream writes: odd while a call is under way.
 *
 * After an abort `aborted` of the group is set first, then every wait is released.  With the last
 * piece of a burst, behind its bytes, that flag is copied to device memory: a kernel that finds it
 * set writes nothing, at whichever member. */
#ifndef WEFT_CUDA_STAGED_H
#define WEFT_CUDA_STAGED_H

#include <pthread.h>

#include "comm/device_comm.h"
#include "gpu.h"

enum {
    STAGED_RANKS  = 16,
    STAGED_ROUNDS = 8, /* of which pieces may be in device memory */
    STAGED_BURST  = 4, /* of which one half is worked on while the other arrives */
    STAGED_ALIGN  = 256,
    /* The flag's copy to device memory is so long: one of 4 bytes in a graph costs ranks that share
     * a GPU a turn of 2 ms (H200). */
    STAGED_STOP = 64 << 10,
    /* in those bytes, after the flag: a word of each member, apart from those of others */
    STAGED_WORD  = 64,
    STAGED_EMPTY = 1, /* bits of a flag; with both set no stream waits on it */
    STAGED_FULL  = 2
};

typedef struct staged_end {
    weft_device_comm  *dc;
    pthread_mutex_t    lock; /* of the list: the watcher goes through it */
    weft_device_group *group;
} staged_end;

struct weft_device_group {
    weft_device_group *next;
    staged_end        *end;
    int                n, me;
    bool               is_channel;
    int32_t            rank[STAGED_RANKS];
    weft_comm_group   *meeting;
    /* the mapping: aborted, flags, slots; the same for the device */
    int           n_slot; /* of a pair */
    int64_t       slot_bytes, bytes;
    char         *shared;
    weft_cuda_ptr shared_at;
    bool          registered;
    int credits, n_piece; /* of a channel: slots are those of credits messages */
    /* device memory: STAGED_STOP bytes with the flag that kernels read, then the pieces of
     * STAGED_ROUNDS rounds */
    weft_memory      ring;
    int64_t          round_bytes;
    weft_cuda_branch out, in;
    weft_cuda_handle arrived, left, freed[STAGED_ROUNDS];
    /* for the watcher */
    weft_device_names   names;
    weft_device_watched watched;
};

typedef enum staged_kind {
    STAGED_BEGIN, /* a round: its device memory is free */
    STAGED_SEND,
    STAGED_RECEIVE,
    STAGED_MEET, /* pieces of the last rounds are here, and what they overwrite has left */
    STAGED_SUM,
    STAGED_COPY,
    STAGED_END,
    STAGED_TURN /* what is sent from now on was computed before */
} staged_kind;

typedef struct staged_step {
    staged_kind  kind;
    int          peer, slot, round;
    bool         stops; /* the flag is copied: RECEIVE, or MEET after none */
    int64_t      bytes;
    const char  *from; /* SEND, COPY */
    char        *to;   /* RECEIVE, COPY, SUM */
    const void **term; /* SUM */
} staged_step;

struct weft_device_call {
    weft_device_group *g;
    uint32_t           number; /* in its group */
    bool               is_message;
    weft_dtype         dtype;
    int                n_step, cap_step;
    staged_step       *step;
    int                n_term, n_sum, cap_sum;
    const void       **term; /* n_term of each sum */
    int               *level;
};

/* staged_group.c.  pair: from one member to another. */
static inline int weft_cuda_staged_pair(const weft_device_group *g, int from, int to)
{
    return g->is_channel ? 0 : from * (g->n - 1) + (to < from ? to : to - 1);
}
/* A member's progress word. */
int64_t     weft_cuda_staged_word(int member);
int64_t     weft_cuda_staged_flag(const weft_device_group *g, int from, int to, int slot);
int64_t     weft_cuda_staged_slot(const weft_device_group *g, int from, int to, int slot);
weft_status weft_cuda_staged_open_group(weft_device_comm             *dc,
                                        const weft_device_group_spec *spec,
                                        weft_device_group           **out);
void        weft_cuda_staged_close_group(weft_device_group *g, bool broken);

/* staged.c: what the watcher knows of a group. */
void weft_cuda_staged_watch(weft_device_group *g, int32_t tag);

/* staged_plan.c */
bool        weft_cuda_staged_takes(weft_collective kind, weft_dtype t);
weft_status weft_cuda_staged_prepare(weft_device_group *g, const weft_comm_call *call,
                                     const char *name, weft_device_call **out);
weft_status weft_cuda_staged_prepare_message(weft_device_group *g, weft_comm_side side,
                                             const weft_memory *at, const char *name,
                                             weft_device_call **out);
void        weft_cuda_staged_release(weft_device_call *c);

/* staged_run.c */
weft_status weft_cuda_staged_run(weft_device_call *c, weft_stream *s, int64_t number);

#endif
