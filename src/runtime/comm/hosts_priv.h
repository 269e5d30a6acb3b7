/* Inside the end that joins two: near and far. */
#ifndef WEFT_COMM_HOSTS_PRIV_H
#define WEFT_COMM_HOSTS_PRIV_H

#include <stdatomic.h>
#include <stdbool.h>

#include "comm/hosts.h"

typedef struct hosts_pair {
    weft_comm  c;
    weft_comm *near, *far;
    int32_t   *near_rank; /* of each rank: its number on this host, -1 elsewhere */
    int32_t   *name;      /* of each of this host: its rank */
    int32_t   *host;      /* of each rank: the first rank of its host */
    /* what was opened, for the end */
    weft_comm_group   *group;
    weft_comm_channel *channel;
} hosts_pair;

typedef enum hosts_phase {
    HOSTS_OUT, /* of any call */
    HOSTS_NEAR,
    HOSTS_FAR,
} hosts_phase;

/* A group over both.  By levels: position p = host * m + i; home has the m of this host, rail
 * those with this i. */
struct weft_comm_group {
    weft_comm_group_head head; /* first */
    weft_comm_group     *next;
    weft_comm           *by;       /* flat */
    weft_comm_group     *inner;    /* of by */
    int                  n, me, m; /* m 0: flat */
    weft_comm_group     *home, *rail;
    hosts_pair          *p;
    _Atomic int          phase;
    double               since_s; /* it is in it */
    char                *scratch; /* in the near end's shared memory, where it has some */
    int64_t              scratch_bytes;
    int32_t              rank[];
};

/* An end takes what was set from outside. */
weft_comm *weft_comm__hosts_current(const weft_comm *c, weft_comm *by);

/* What an operation of one end came to; on WEFT_ERR_PEER the other end has been told. */
weft_status weft_comm__hosts_told(weft_comm *c, weft_status st);

/* ---- levels.c ---- */

weft_status weft_comm__levels_open(hosts_pair *p, weft_comm_group *g, int tag);
void        weft_comm__levels_close(weft_comm_group *g);
/* Whether such a call goes by levels; count: elements of the whole vector. */
bool weft_comm__levels_can(const weft_comm_group *g, weft_collective kind, weft_dtype t,
                           int64_t count);
weft_status weft_comm__levels_collective(weft_comm_group *g, weft_collective kind,
                                         weft_dtype t, const void *in, void *out,
                                         int64_t count);
weft_status weft_comm__levels_shares(weft_comm_group *g, weft_collective kind,
                                     weft_dtype t, const void *in, void *out,
                                     int64_t total, int64_t unit);

#endif
