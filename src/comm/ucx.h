/* Ranks on several hosts, over UCX (here: TCP; its other transports where they are).
 *
 *     weft_comm_ucx_open(&(weft_comm_ucx_options){.rank = r, .world = n, .timeout_s = 60}, &c);
 *     weft_comm_ucx_address(c, &p, &bytes);                     told to all others (rdzv.h)
 *     weft_comm_ucx_connect(c, job, address, address_bytes);    returns when all ranks are there
 *
 * A library that is loaded when the first end is opened: the program needs it nowhere else.
 * A rank whose process dies is noticed when its connections break; one that stops, or whose cable is cut, by
 * the deadline of whoever waits for it, who then asks along the chain of waiting ranks, names the one that does not
 * answer, and tells all. */
#ifndef WEFT_COMM_UCX_H
#define WEFT_COMM_UCX_H

#include "comm/comm.h"

typedef struct weft_comm_ucx_options {
    int    rank, world;
    int    local_world; /* ranks on this host: with more than cores, nobody spins; 0: 1 */
    double timeout_s;
    const char *device; /* network device, or NULL: UCX chooses; UCX_NET_DEVICES wins */
} weft_comm_ucx_options;

/* WEFT_ERR_ARG: built without UCX, or its library is not installed. */
weft_status weft_comm_ucx_open(const weft_comm_ucx_options *o, weft_comm **out);
/* Borrowed. */
void weft_comm_ucx_address(const weft_comm *c, const void **p, int64_t *bytes);
/* address[r] of every rank, which are copied; job: a number that no other job has. */
weft_status weft_comm_ucx_connect(weft_comm *c, uint64_t job, const void *const *address,
                                  const int64_t *bytes);

#endif
