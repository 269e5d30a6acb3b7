/* peer: ranks of one host that reach each other's device memory (the same GPU, or NVLink between
 * two), by memory of other processes.
 *
 *     board     a rank's device memory that all members read: for each prepared call, where its
 *               tensors lie in the rank's slabs.  Its first flag is the rank's own: 1, nothing may
 *               be written any more (blocks of kernels read it, so it is not in host memory)
 *     flags     32 bits each in memory of the host that all members of a group have mapped:
 *               begin[a][b] and end[a][b], written 1 by a and 0 by b
 *
 * A call, on each member's stream:
 *     signal    the slot of its board says which table; begin[me][*] = 1
 *     wait      for begin[*][me]
 *     work      its own run of every tensor: read everywhere, written wherever it goes
 *     signal    begin[*][me] = 0, end[me][*] = 1
 *     wait      for end[*][me]; the next call sets them to 0
 * A member comes to its next call only after all have signalled the end of this one, so a flag is 0
 * again before it is written 1 again, and nothing in a call changes from step to step: it can be
 * captured.  No kernel waits; streams do (cuStreamWaitValue32).
 *
 * Members that share one GPU take turns on its multiprocessors, and a turn costs 75 us or more (as
 * much as a sum of 80 MB).  So there position 0 does the work of all, and signals are memory
 * operations of the streams, which need no turn.  The order of sums is the same.
 *
 * An abort sets the first flag of all boards that this rank reaches, then lets its own streams go
 * on: signals that they give after that reach members whose kernels write nothing. */
#ifndef WEFT_CUDA_PEER_H
#define WEFT_CUDA_PEER_H

#include <pthread.h>

#include "comm/device_comm.h"
#include "gpu.h"

enum {
    PEER_RANKS   = WEFT_CUDA_PEER_MAX_RANK,
    PEER_SLABS   = WEFT_CUDA_PEER_MAX_SLAB,
    PEER_CREDITS = 64 /* slots of a channel, at most */
};

/* What the members of a group have mapped. */
typedef struct peer_flags {
    uint32_t begin[PEER_RANKS][PEER_RANKS], end[PEER_RANKS][PEER_RANKS];
    uint32_t full[PEER_CREDITS], empty[PEER_CREDITS]; /* of a channel */
    /* of each member: its last signal, 2 * number of the call + 1 or 2 */
    uint32_t count[PEER_RANKS];
    uint32_t bad[PEER_RANKS]; /* of each member: a table of rows did not fit */
} peer_flags;

/* Memory of another rank, opened once for all groups. */
typedef struct peer_import {
    struct peer_import *next;
    int                 rank, n_user;
    weft_memory_handle  handle;
    weft_memory         memory;
} peer_import;

/* A rank's end. */
typedef struct peer_end {
    weft_device_comm  *dc;
    pthread_mutex_t    lock; /* of the list of groups: the watcher goes through it */
    weft_device_group *group;
    bool               aborted;
    peer_import       *import;
    weft_memory        board;
    weft_memory_handle board_handle;
    int64_t            board_used;
    int                n_user; /* groups and calls that have some of it */
} peer_end;

struct weft_device_group {
    weft_device_group *next;
    peer_end          *end;
    int                n, me;
    bool               one_gpu; /* of all members */
    int32_t            rank[PEER_RANKS];
    weft_comm_group   *meeting;
    peer_flags        *flags;
    weft_cuda_ptr      flags_at; /* the same for the device */
    bool               registered;
    int64_t            slot; /* in the board */
    int                n_slab;
    weft_memory        slab[PEER_SLABS];
    weft_memory        map;               /* a weft_cuda_peer_map */
    weft_memory        board[PEER_RANKS]; /* of the others */
    int                n_import;
    peer_import       *import[PEER_RANKS * (PEER_SLABS + 2)];
    /* a channel: slots at the receiver */
    int         n_slot;
    int64_t     slot_bytes;
    weft_memory ring; /* the receiver's own, or imported */
    /* for the watcher */
    weft_device_names   names;
    weft_device_watched watched;
};

/* peer.c: bytes of the board, from a multiple of 64; freed when none are in use. */
weft_status weft_cuda_peer_take(peer_end *e, int64_t bytes, int64_t *at);
void        weft_cuda_peer_give_back(peer_end *e);

/* What the watcher knows of a group. */
void weft_cuda_peer_watch(weft_device_group *g, int32_t tag);

/* Do they all have the same GPU? */
bool weft_cuda_peer_shares_gpu(const weft_device_comm *dc, int n, const int32_t *rank);

/* [at, at + bytes) of device memory, done on return. */
weft_status weft_cuda_peer_write(const weft_memory *m, int64_t at, const void *from,
                                 int64_t bytes);

/* peer_group.c */
weft_status weft_cuda_peer_open_group(weft_device_comm             *dc,
                                      const weft_device_group_spec *spec,
                                      weft_device_group           **out);
void        weft_cuda_peer_close_group(weft_device_group *g, bool broken);

/* peer_call.c */
bool        weft_cuda_peer_takes(weft_collective kind, weft_dtype t);
weft_status weft_cuda_peer_prepare(weft_device_group *g, const weft_comm_call *call,
                                   const char *name, weft_device_call **out);
weft_status weft_cuda_peer_prepare_message(weft_device_group *g, weft_comm_side side,
                                           const weft_memory *at, const char *name,
                                           weft_device_call **out);
weft_status weft_cuda_peer_run(weft_device_call *call, weft_stream *s, int64_t number);
void        weft_cuda_peer_release(weft_device_call *call);

extern const weft_device_backend weft_cuda_peer_backend;

#endif
