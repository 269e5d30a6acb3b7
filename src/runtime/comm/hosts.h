/* Two transports as one: ranks of the same host by one end, all others by another.
 *
 *     weft_comm_hosts_create(shm, net, &c);          takes both; shm has this host's ranks, net
 *     all of them
 *
 * Channels between ranks of one host and groups within one host go near, so tensor-parallel
 * groups stay in shared memory.  Groups over hosts that have equally many of their positions, one
 * behind the other, go by levels: inside the hosts first, then between them (levels.c).
 * Everything else goes far. */
#ifndef WEFT_COMM_HOSTS_H
#define WEFT_COMM_HOSTS_H

#include "comm/comm.h"

/* Every rank of far calls it (they tell each other who and where they are), near NULL: alone on
 * its host.  On WEFT_OK both ends belong to *out. */
weft_status weft_comm_hosts_create(weft_comm *near, weft_comm *far, weft_comm **out);

/* The end over shared memory, of which weft_comm_shm_alloc() gives memory that peers reach: c
 * itself, the near one, or NULL. */
weft_comm *weft_comm_shared_end(weft_comm *c);

/* Of each rank the first rank of its host; NULL: all are on one host, or none shares memory. */
const int32_t *weft_comm_hosts_of(const weft_comm *c);

#endif
