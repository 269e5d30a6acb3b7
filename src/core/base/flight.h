/* A flight recorder: the last tasks and communications of a rank, in memory that another process
 * keeps, so that they can be read after a hang or a crash.
 *
 *     weft_flight_share(ring_in_shared_memory, rank);        the rank
 *     weft_flight_begin_view(epoch, rank, world);            counts begin anew
 *     k = weft_flight_begin(&(weft_flight_event){..});  ..  weft_flight_end(k);
 *     weft_flight_print(ring, epoch, &text);                 the owner of the ring: JSON
 *
 * Safe to call from any thread; nothing happens where no ring is shared. */
#ifndef WEFT_BASE_FLIGHT_H
#define WEFT_BASE_FLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

enum {
    WEFT_FLIGHT_ENTRIES = 2048,
    WEFT_FLIGHT_GROUPS  = 64,
    WEFT_FLIGHT_RANKS   = 64, /* of a group that are remembered */
};

typedef enum weft_flight_kind {
    WEFT_FLIGHT_TASK,       /* an instruction that computes */
    WEFT_FLIGHT_COLLECTIVE, /* of a group */
    WEFT_FLIGHT_SEND,       /* to a peer */
    WEFT_FLIGHT_RECV,
    WEFT_N_FLIGHT_KIND
} weft_flight_kind;

typedef struct weft_flight_event {
    weft_flight_kind kind;
    int              stream;
    const char      *op;   /* "all_reduce", "matmul" */
    const char      *name; /* of the value */
    int64_t          step, bytes;
    /* the how-many-th of its group it is said to be; 0: counted here */
    int64_t seq;
    double  ago_s; /* it began so long ago */
    int32_t tag;
    /* of a collective all members, of a message the two ends: the sender first */
    int            n_rank;
    const int32_t *rank;
} weft_flight_event;

typedef struct weft_flight_entry {
    _Atomic uint64_t begun_ns, ended_ns; /* ended 0: it runs */
    int64_t          step, bytes, seq;   /* seq: the how-many-th of its group, from 0 */
    uint32_t         epoch;
    int32_t          group; /* -1: none */
    uint8_t          kind, stream;
    char             op[16], name[46];
} weft_flight_entry;

typedef struct weft_flight_group {
    int32_t kind, tag, n_rank; /* kind: of its entries, SEND for both ends of a message */
    int32_t rank[WEFT_FLIGHT_RANKS];
    int64_t n_send, n_recv; /* calls so far; collectives count as n_send */
} weft_flight_group;

typedef struct weft_flight_view {
    int32_t           rank, world;
    uint32_t          epoch;
    int32_t           n_group;
    weft_flight_group group[WEFT_FLIGHT_GROUPS];
} weft_flight_view;

typedef struct weft_flight_ring {
    weft_flight_view  now, before;
    _Atomic uint64_t  n; /* entries so far */
    weft_flight_entry entry[WEFT_FLIGHT_ENTRIES];
} weft_flight_ring;

/* From now on, from nothing; NULL: no longer.  It must stay as long as it is shared. */
void weft_flight_share(weft_flight_ring *ring, int rank);
bool weft_flight_is_on(void);
void weft_flight_begin_view(uint32_t epoch, int rank, int world);
/* Gives what end needs. */
int64_t weft_flight_begin(const weft_flight_event *e);
void    weft_flight_end(int64_t k);

/* One object: the view of that epoch, or the newest before it; entries of later ones are left out.
 * Whatever the ring holds, after a process that crashed, it is valid JSON. */
void weft_flight_print(const weft_flight_ring *ring, uint32_t epoch, weft_text *t);

/* Of memory that holds rings one after another: that of a rank of this host.  WEFT_ERR_ARG: it is
 * too small. */
weft_status weft_flight_map(int fd, int local_rank, weft_flight_ring **out);

#endif
