/* While rank 0 works alone (saves, reads back, exports), the other ranks wait for its next
 * request.  A thread tells them, and the launcher, that rank 0 makes progress: as long as no
 * single call on a file takes longer than limit_s.
 *
 *     weft_keep_alive_start(&k, comm, gather, 600);
 *     st = work();
 *     weft_keep_alive_stop(&k);
 *
 * (1) A rank 0 that is stopped or dead sends nothing, so its peers' timeout holds as everywhere.
 * (2) A peer that takes no message for its timeout is reported to all, while rank 0 goes on with
 *     its files. */
#ifndef WEFT_SESSION_KEEP_ALIVE_H
#define WEFT_SESSION_KEEP_ALIVE_H

#include <pthread.h>
#include <stdbool.h>

#include "state/gather.h"

enum {
    WEFT_KEEP_ALIVE_LIMIT_S = 600 /* of one call on a file */
};

typedef struct weft_keep_alive {
    weft_comm      *comm; /* NULL: one rank, only the launcher is told */
    weft_gather    *gather;
    double          limit_s;
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  wake;
    bool            running, stop;
} weft_keep_alive;

/* Where no thread can be had, the work goes on without. */
void weft_keep_alive_start(weft_keep_alive *k, weft_comm *comm, weft_gather *gather,
                           double limit_s);
void weft_keep_alive_stop(weft_keep_alive *k);

#endif
