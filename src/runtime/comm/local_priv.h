/* Threads of one process as ranks: what channels, groups and ends share.  Channels and groups
 * belong to the world and are found by key when a rank opens them; each has its own lock. */
#ifndef WEFT_COMM_LOCAL_PRIV_H
#define WEFT_COMM_LOCAL_PRIV_H

#include <pthread.h>
#include <stdbool.h>

#include "comm/comm.h"

typedef struct local_gate {
    pthread_mutex_t lock;
    pthread_cond_t  moved;
} local_gate;

typedef struct local_message {
    uint32_t epoch;
    int64_t  bytes;
    /* into the ring, or the sender's own memory when there are no credits */
    const void *p;
} local_message;

struct weft_comm_channel {
    local_gate         g;
    weft_comm_channel *next;
    int                from, to, tag, credits;
    uint32_t           instance;
    int                n_closed; /* sides that have closed it */
    int64_t            bytes;
    char              *ring;
    local_message     *msg; /* credits of them, at least 1 */
    int64_t            sent, received;
};

typedef struct local_member {
    const void *in;
    void       *out;
    bool        here, left; /* it has come; and given up waiting */
} local_member;

typedef struct local_group {
    local_gate          g;
    struct local_group *next;
    int                 n, tag;
    uint32_t            instance;
    int                 n_closed; /* members that have closed it */
    int32_t            *rank;
    local_member       *member;
    const void        **in; /* for the sums of each position: n pointers each */
    uint32_t            epoch;
    int                 n_here;
    int64_t             turn;   /* how often all have met */
    int                 n_busy; /* who have met and not done their share yet */
    weft_collective     kind;   /* of the first to come: the others must agree */
    weft_dtype          dtype;
    int64_t             count;
    weft_comm_lanes     lanes;
    uint32_t            dealt; /* of them: weft_comm_dealt */
} local_group;

/* A group at one end. */
struct weft_comm_group {
    weft_comm_group_head head; /* first */
    weft_comm_group     *next;
    local_group         *at;
};

struct weft_comm_local {
    pthread_mutex_t    lock;
    int                n;
    weft_comm_channel *channel;
    local_group       *group;
    weft_comm_group   *handle; /* of all ends */
    /* the verdict, the first over an epoch; read under a channel's or group's lock, written under
     * all of them */
    bool     aborted;
    uint32_t abort_epoch;
    int      abort_rank; /* who gave up; -1: why is all that is to be said */
    char     why[240];

    weft_comm_notes *notes; /* of each rank */
    weft_comm      **end;   /* of each; NULL: it has none */
};

/* 0: done. */
int  weft_comm__local_gate_init(local_gate *g);
void weft_comm__local_gate_fini(local_gate *g);
/* Waits once; false: the deadline has passed. */
bool weft_comm__local_gate_wait(local_gate *g, double deadline);
/* Has somebody given up?  A lock of the world, a channel or a group is held. */
weft_status weft_comm__local_check(const weft_comm *c);

/* ---- local_group.c ---- */

weft_status weft_comm__local_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                        uint32_t instance, weft_comm_group **out);
weft_status weft_comm__local_close_group(weft_comm *c, weft_comm_group *g);
void        weft_comm__local_free_group(local_group *g);
weft_status weft_comm__local_run(weft_comm *c, const weft_comm_call *call);

#endif
