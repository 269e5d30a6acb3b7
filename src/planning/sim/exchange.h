/* A collective in virtual time, message by message: the steps of src/ir/exchange over the links
 * of a cluster.
 *
 *     weft_exchange            x = {WEFT_ALL_REDUCE, WEFT_EXCHANGE_HALVING, 64};
 *     weft_sim_exchange_result r;
 *     WEFT_TRY(weft_sim_exchange(&x, NULL, cluster, 1 << 30, &r));
 *
 * A device sends and receives one message at a time over its own link; devices of a node share
 * its ports to other nodes, first come, first served.  A message holds both ends for bytes / Bps
 * and is there alpha later.  Adding costs nothing; what switches carry less than their ports
 * (taper) is not counted. */
#ifndef WEFT_SIM_EXCHANGE_H
#define WEFT_SIM_EXCHANGE_H

#include "cluster/cluster.h"
#include "exchange/exchange.h"

typedef struct weft_sim_exchange_result {
    double seconds;    /* until the last has all */
    int    most_sent;  /* messages of one position */
    int    most_far;   /* of those, to other nodes */
    double most_bytes; /* that one position sent */
} weft_sim_exchange_result;

/* rank[i]: where position i runs; NULL: on device i.  bytes: the whole vector of n shares.
 * WEFT_ERR_ARG: no such algorithm, or a rank that the cluster does not have. */
weft_status weft_sim_exchange(const weft_exchange *x, const int32_t *rank,
                              const weft_cluster *c, double bytes,
                              weft_sim_exchange_result *out);

#endif
