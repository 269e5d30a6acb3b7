/* Ranks on several hosts, over TCP sockets, or over UCX where it is asked for.
 *
 *     weft_comm_net_open(&(weft_comm_net_options){.rank = r, .world = n, .timeout_s = 60}, &c);
 *     weft_comm_net_address(c, &p, &bytes);                     told to all others (rdzv.h)
 *     weft_comm_net_connect(c, &key, address, address_bytes);   returns when all ranks are there
 *
 * A rank whose process dies is noticed when its connections break; one that stops, or whose cable
 * is cut, by the deadline of whoever waits for it, who then asks along the chain of waiting
 * ranks, names the one that does not answer, and tells all. */
#ifndef WEFT_COMM_NET_H
#define WEFT_COMM_NET_H

#include <stdatomic.h>

#include "comm/auth.h"
#include "comm/comm.h"

typedef struct weft_comm_net_options {
    int    rank, world;
    int    local_world; /* ranks on this host: with more than cores, nobody spins; 0: 1 */
    double timeout_s;
    const char *device; /* or NULL: the first network that is up; UCX_NET_DEVICES wins */
    /* "tcp", "tls" (TCP, all of it encrypted), "ucx"; NULL: WEFT_NET, else ucx where UCX_TLS is
     * set */
    const char *by;
    /* Every wait ends with WEFT_ERR_PEER once this is epoch or more: the membership is over, as
     * an agent knows.  NULL: never. */
    const _Atomic uint32_t *over;
    uint32_t                epoch;
} weft_comm_net_options;

/* WEFT_ERR_ARG: UCX is asked for, and not built in or not installed. */
weft_status weft_comm_net_open(const weft_comm_net_options *o, weft_comm **out);
/* Borrowed. */
void weft_comm_net_address(const weft_comm *c, const void **p, int64_t *bytes);
/* address[r] of every rank, which are copied; membership: a key that the ranks of this run have
 * and nobody else. */
weft_status weft_comm_net_connect(weft_comm *c, const weft_comm_key *membership,
                                  const void *const *address, const int64_t *bytes);
/* What a rank says its address is, as other ranks may connect to it: WEFT_ERR_ARG where it is
 * none, or a loopback address and the rank is not of this machine. */
weft_status weft_comm_net_check_address(const void *address, int64_t bytes,
                                        bool loopback);

/* A group that works by levels (comm/levels.c): who waits in rail, and is asked or asks whom it
 * waits for, speaks for all of flat; elsewhere(arg) names the rank waited for outside of this
 * end, or -1.  Nothing where c is another transport's. */
void weft_comm_net_family(weft_comm *c, weft_comm_group *flat, weft_comm_group *rail,
                          int (*elsewhere)(void *arg), void *arg);
/* This rank has waited for `rank` in vain, elsewhere: asks on from there, and tells all whose
 * fault it is.
 * WEFT_OK: c is another transport's. */
weft_status weft_comm_net_blame(weft_comm *c, weft_comm_group *flat, int rank,
                                const char *what);

#endif
