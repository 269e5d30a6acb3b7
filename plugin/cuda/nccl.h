/* Communication between GPUs by NCCL: a backend of comm/device_comm.h.
 *
 * A group of ranks has a communicator of its own, and so has each tag of it: calls of one group are
 * issued on one stream, in the same order by all members.  Communicators are non-blocking: whatever
 * NCCL still has to do on the host is waited for here, at most timeout_s. */
#ifndef WEFT_CUDA_NCCL_H
#define WEFT_CUDA_NCCL_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/device_comm.h"
#include "gpu.h"
#include "library.h"

/* One group's communicator.  lock: held by the thread that calls NCCL with it. */
struct weft_device_group {
    weft_device_comm  *end;
    weft_device_group *next; /* of the same end */
    void              *comm; /* ncclComm_t; NULL: aborted, or never there */
    int                n, me;
    int32_t           *rank;
    bool               any_order; /* sums may have NCCL's order */
    pthread_mutex_t    lock;
    _Atomic bool       stop; /* aborting: who waits inside the lock leaves it */
    bool               busy; /* the watcher works with it; under the end's lock */
    /* terms that came to be added here; as large as the largest call wants it */
    weft_memory stage;
    /* Flags in pinned memory.  progress is written in the stream's order: odd while a call is under
     * way, another number for each call of a program.  aborted: sums write nothing; they read a
     * copy in device memory, made in the stream's order before them. */
    weft_memory         flags;
    volatile uint32_t  *progress;
    uint32_t           *aborted;
    weft_memory         stop_copy;
    weft_device_names   names;
    weft_device_watched watched;
    /* A channel: the sender's slots.  The branch sends what was copied to them, so that n_slot
     * messages may wait unreceived. */
    int               n_slot;
    int64_t           slot_bytes;
    weft_memory       ring;
    weft_cuda_branch  branch;
    weft_cuda_handle  filled;
    struct nccl_slot *slot;
};

/* sent: recorded after its last message, in that capture (0: in none). */
typedef struct nccl_slot {
    weft_cuda_handle sent;
    int64_t          capture;
    bool             used;
} nccl_slot;

struct weft_device_call {
    weft_device_group *g;
    uint32_t           number; /* in its group */
    /* a message */
    bool        is_message;
    weft_memory at;
    /* a collective */
    weft_comm_call   call;
    int              n_part;
    weft_comm_part  *part;
    weft_comm_terms *terms; /* of sums */
    int              first_own, n_own;
    bool             by_nccl; /* sums by its collectives */
    int32_t         *table;   /* of rows: pinned memory for it */
    weft_memory      table_memory;
};

/* Everything that the communicator was given has been issued.  code: what a call of NCCL returned;
 * what: its name, for the error.  The lock is held. */
weft_status weft_cuda_nccl_settle(weft_device_group *g, int code, const char *what);
/* The event is over: at most timeout_s.  The lock is held. */
weft_status weft_cuda_nccl_wait(weft_device_group *g, weft_cuda_handle event,
                                const char *what);
/* After an abort: why. */
weft_status weft_cuda_nccl_ended(const weft_device_group *g);
/* "ranks 0, 2, 3" */
const char *weft_cuda_nccl_print_ranks(const weft_device_group *g, char *text,
                                       size_t bytes);

/* nccl_call.c: calls of a group. */
weft_status weft_cuda_nccl_prepare(weft_device_group *g, const weft_comm_call *call,
                                   const char *name, weft_device_call **out);
weft_status weft_cuda_nccl_run(weft_device_call *call, weft_stream *s, int64_t number);
void        weft_cuda_nccl_release(weft_device_call *call);
bool        weft_cuda_nccl_takes(weft_collective kind, weft_dtype t);
/* Around what a call gives to a stream; the lock is held. */
weft_status weft_cuda_nccl_write_progress(const weft_device_call *c,
                                          weft_cuda_handle stream, bool ends);

/* nccl_message.c: channels. */
weft_status weft_cuda_nccl_open_channel(weft_device_group            *g,
                                        const weft_device_group_spec *spec);
/* Both ends, once their communicator is there: no later call waits for the other end's. */
weft_status weft_cuda_nccl_connect_channel(weft_device_group *g);
void        weft_cuda_nccl_close_channel(weft_device_group *g);
weft_status weft_cuda_nccl_prepare_message(weft_device_group *g, weft_comm_side side,
                                           const weft_memory *at, const char *name,
                                           weft_device_call **out);
weft_status weft_cuda_nccl_run_message(weft_device_call *c, weft_stream *s,
                                       int64_t number);

#endif
