/* This machine: what is there, and how fast it is.
 *
 *     weft_cluster *c;
 *     WEFT_TRY(weft_probe_discover(&c));          devices, memory, peaks as written on the box
 *
 *     weft_probe_numbers n = {0};
 *     WEFT_TRY(weft_probe_device(pool, n_thread, &n));    matmuls, memory, start of a kernel
 *     WEFT_TRY(weft_probe_link(comm, &n));                messages between ranks 0 and 1
 *     WEFT_TRY(weft_probe_oversubscription(comm, pool, fit, n.oversubscription));
 *     WEFT_TRY(weft_probe_cluster(&n, n_rank, &c));
 *     WEFT_TRY(weft_probe_streams(..)), weft_probe_links(..)      timings, for weft_cluster_learn()
 *
 *     WEFT_TRY(weft_probe_between(comm, &wire));                  one rank a host: the network
 *     WEFT_TRY(weft_probe_hosts(c, n_host, &wire, &all));
 */
#ifndef WEFT_PROBE_PROBE_H
#define WEFT_PROBE_PROBE_H

#include "base/pool.h"
#include "cluster/cluster.h"
#include "comm/comm.h"

/* GPUs where NVML finds any (opened at run time), else this host's processors as one device:
 * cores and sockets from hwloc where it is installed, else from /proc and /sys. */
weft_status weft_probe_discover(weft_cluster **out);
/* n_node hosts like this one, each cut into `local` devices on which programs run (processors,
 * also where there are GPUs): numbers as found, shared out.  n_core: the cores that the devices
 * of a host have together; 0: those that this process may use, which of a rank are its own alone.
 */
weft_status weft_probe_divided(int n_node, int local, int n_core, weft_cluster **out);
/* The same where hosts have different numbers of devices: local[i] of host i. */
weft_status weft_probe_unlike(int n_node, const int *local, int n_core,
                              weft_cluster **out);
/* The GPUs of hosts like this one, as jobs use them: local[i] ranks of host i have one each, or
 * (shared, on one host alone) one together.  As weft cluster calibrate measured them here, else
 * as on the box (NVML).  WEFT_ERR_ARG: there are none or fewer, or of a kind we have no numbers
 * for. */
weft_status weft_probe_gpu_hosts(int n_host, const int *local, bool shared,
                                 weft_cluster **out);
/* The same without a look at GPUs: what our programs run on. */
weft_status weft_probe_processors(int n_core, weft_cluster **out);

enum {
    WEFT_PROBE_POINTS = 8,
    WEFT_PROBE_RANKS  = 64
};

typedef struct weft_probe_numbers {
    int              n_point;
    weft_share_point point[WEFT_PROBE_POINTS]; /* of flops, below */
    double           flops;                    /* the best product's, fp32 */
    double           mem_Bps;                  /* read and written, past the caches */
    double           launch_s;                 /* starting a task on all threads */
    double           alpha_s, Bps;             /* 0: not measured */
    int              n_oversubscription;
    /* of a node (cluster.h); n_oversubscription 0: not measured */
    double oversubscription[WEFT_PROBE_RANKS];
} weft_probe_numbers;

weft_status weft_probe_device(weft_pool *pool, int n_thread, weft_probe_numbers *out);
/* All ranks call it; the numbers are everyone's. */
weft_status weft_probe_link(weft_comm *c, weft_probe_numbers *out);
/* How much longer the same work takes with 1, 2, ... world ranks at it than with fit of them:
 * products and streams that do not stay in a cache.  With fit of them it is how far the slowest
 * is behind the mean: who meets waits for it.  All ranks call it. */
weft_status weft_probe_oversubscription(weft_comm *c, weft_pool *pool, int fit,
                                        double *oversubscription);

/* Timings of device 0: "stream", bytes read and written element by element. */
weft_status weft_probe_streams(weft_pool *pool, weft_arena *a, weft_timing **out, int *n);
/* Timings of link 0: messages, and collectives of 2, 3, 4, 8, ... and all ranks, over memory that
 * ranks share.  fit: how many ranks have cores of their own; where there are more, meeting costs
 * what it costs while they take turns.  All ranks call it, rank 0 gets them. */
weft_status weft_probe_links(weft_comm *c, int fit, weft_arena *a, weft_timing **out,
                             int *n);

/* One node of n_rank devices with these numbers. */
weft_status weft_probe_cluster(const weft_probe_numbers *n, int n_rank,
                               weft_cluster **out);

/* The network between hosts. */
typedef struct weft_probe_wire {
    double alpha_s, Bps; /* one message of no bytes; a long one */
} weft_probe_wire;
/* One rank a host, at least two of them: neighbours measure at once, all get the median pair's
 * numbers. */
weft_status weft_probe_between(weft_comm *c, weft_probe_wire *out);
/* n_host hosts like this one, joined by such wires. */
weft_status weft_probe_hosts(const weft_cluster *host, int n_host,
                             const weft_probe_wire *w, weft_cluster **out);

/* Where calibrations are kept: $XDG_CACHE_HOME/weft or ~/.cache/weft, a file for this host and
 * number of ranks, and of hosts where they are several. */
weft_status weft_probe_cache_path(int n_host, int n_rank, char *path, size_t n);
/* And of this host's GPUs. */
weft_status weft_probe_gpu_cache_path(char *path, size_t n);

/* What hwloc says: sockets and cores; false: it is not there. */
bool weft_probe_hwloc(int *n_package, int *n_core);

#endif
