/* A cluster: what machines there are, frozen.  Kinds with counts, never one record a device.
 *
 *     name: two-boxes
 *     version: 3
 *     device:
 *       - {name: h100, flops: {bf16: 9.89e14, f32: 6.7e13}, efficiency: 0.7, mem_Bps: 3.35e12,
 *          mem_bytes: 80000000000, launch_s: 4e-06,
 *          half_size: 300, attention: 0.5, stream: 0.85, efficiency_of: {f8_e4m3: 0.6}}   (these
 *          may be left out)
 *       - {name: mine, like: a100-80g, efficiency: 0.8}     the rest as the kind we know
 *     link:
 *       - {name: nvlink, alpha_s: 2e-06, Bps: 4.5e11}
 *       - {name: ib, scope: net, alpha_s: 5e-06, Bps: 5e10}
 *     node:
 *       - {name: box, count: 2, device: h100, n_device: 8, link: nvlink, net: ib, n_port: 8}
 *     switch:
 *       - {name: leaf, span: 16, alpha_s: 1e-06, taper: 0.5}
 *     health:
 *       - {node: 1, device: 3, state: cordoned, why: "double-bit ECC errors"}
 *     timing:                                        what was measured, instead of what the
 *     numbers above say
 *       - {device: h100, work: "matmul nn+add", size: [512, 768, 768], s: 2.1e-05}
 *       - {link: nvlink, work: all_reduce, n: 8, size: [1048576], s: 3.1e-05}
 *
 * or one line: weft_cluster_load("2 x (8 x h100-80g)", NULL, &c).
 * Devices are numbered in the order written: node by node, device by device; these numbers are
 * called ranks. */
#ifndef WEFT_CLUSTER_CLUSTER_H
#define WEFT_CLUSTER_CLUSTER_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/text.h"

typedef struct weft_flop_rate {
    const char *dtype;      /* "f32" */
    double      flops;      /* a second, the device's dense peak */
    double      efficiency; /* share of it that large products reach; 0: the kind's */
} weft_flop_rate;

typedef struct weft_share_point {
    double flops; /* of one matrix product */
    double share; /* of the peak that it reached */
} weft_share_point;

typedef struct weft_device_kind {
    const char     *name;
    const char     *vendor; /* "nvidia"; "" where nothing is said */
    int             n_rate;
    weft_flop_rate *rate;
    double          efficiency; /* share of the peak that large products reach */
    double          mem_Bps;
    int64_t         mem_bytes;
    double          launch_s; /* what starting any instruction costs */
    /* The curve: 0 where it is not known. */
    double half_size; /* a product's side at which half of the efficiency is reached */
    double attention; /* share of the peak that fused attention reaches; 0: efficiency */
    double stream;    /* share of mem_Bps that element-wise kernels reach; 0: 1 */
    int n_point; /* a measured curve of products instead of half_size, by rising flops */
    weft_share_point *point;
    const char       *source; /* where the numbers are from; "" */
} weft_device_kind;

typedef enum weft_link_scope {
    WEFT_LINK_NODE, /* each device has its own */
    WEFT_LINK_NET,  /* ports of a node, shared by its devices */
} weft_link_scope;

/* Measured all-reduce over n devices: alpha_s + 2 (n-1)/n * bytes / Bps. */
typedef struct weft_link_measured {
    int    n;
    double alpha_s, Bps;
} weft_link_measured;

typedef struct weft_link_kind {
    const char         *name;
    weft_link_scope     scope;
    double              alpha_s; /* one message of no bytes */
    double              Bps;     /* one direction, of one device or one port */
    double              share;   /* of Bps that long messages reach */
    int                 n_measured;
    weft_link_measured *measured; /* by rising n */
    const char         *source;
} weft_link_kind;

typedef struct weft_host_kind {
    const char *name;
    int         count;    /* nodes of this kind */
    int         device;   /* kind of its devices */
    int         n_device; /* in one node */
    int         link;     /* between the devices of a node; -1 with a single one */
    int         net;      /* of its ports to other nodes; -1: it has none */
    int         n_port;
    int first_node, first_rank; /* of all nodes of this kind; set when it is frozen */
    /* Devices that share cores and memory: how much longer work takes while 1, 2, ... of them
     * work, against the kind's own numbers; 0: they share nothing. */
    int     n_oversubscription;
    double *oversubscription;
} weft_host_kind;

/* Switches, from the innermost out: nodes [k span, (k+1) span) hang on the k-th one. */
typedef struct weft_switch_kind {
    const char *name;
    int         span; /* nodes; 0: all there are */
    int link; /* each device's own link into it (a rack-wide NVLink); -1: by the nodes' ports */
    double alpha_s; /* crossing it adds */
    /* share of the ports' bandwidth that it carries when all of them talk, (0,1] */
    double taper;
} weft_switch_kind;

/* What is not in order.  Sorted by node, without overlap. */
typedef struct weft_health {
    int         node, n_node;       /* counted over all kinds */
    int         device;             /* in the node; -1: all of them */
    bool        cordoned;           /* not to be used */
    double      speed;              /* of its kind's, (0,1] */
    double      link;               /* bandwidth of its links, of the kind's, (0,1] */
    const char *why;                /* "" */
    int         first_rank, n_rank; /* set when it is frozen */
} weft_health;

enum {
    WEFT_TIMING_SIZES = 3
};

/* A measured time: of a kind of work on a device (program/work.h), or of a message or collective
 * over a link. */
typedef struct weft_timing {
    int         device, link; /* kinds; one of them is -1 */
    const char *work;         /* "matmul nn+add"; over a link "send", "all_reduce" */
    int         n;            /* ranks of a collective; else 0 */
    int         n_size;
    double      size[WEFT_TIMING_SIZES]; /* over a link: bytes that each gives */
    double      s;
} weft_timing;

typedef struct weft_cluster {
    weft_arena       *arena;
    const char       *name;
    int64_t           version; /* one more with each weft_cluster_change() */
    int               n_device;
    weft_device_kind *device;
    int               n_link;
    weft_link_kind   *link;
    int               n_node; /* kinds of nodes */
    weft_host_kind   *node;
    int               n_switch;
    weft_switch_kind *sw;
    int               n_health;
    weft_health      *health;
    int               n_timing;
    weft_timing      *timing; /* by device, link, work and n */
} weft_cluster;

/* ---- making one ---- */

/* what: a file (YAML, JSON, Paddle's cluster.json), or a one-line description:
 *     line  = group { "+" group } [ "," ports ]
 *     group = [ N "x" ] "(" N "x" device { "," link } ")"  |  [ N "x" ] device
 *     ports = [ N "x" ] link
 * kinds: a file of more device and link kinds, or NULL.  A name there hides ours. */
weft_status weft_cluster_load(const char *what, const char *kinds, weft_cluster **out);
/* Text of a file; file is for messages. */
weft_status weft_cluster_parse(const char *file, const char *text, size_t n,
                               weft_cluster **out);
weft_status weft_cluster_parse_line(const char *line, const char *kinds,
                                    weft_cluster **out);
weft_status weft_cluster_print(const weft_cluster *c, weft_text *t);
/* A line of its lists "device:" and "link:". */
void weft_cluster_print_device(const weft_device_kind *k, weft_text *t);
void weft_cluster_print_link(const weft_link_kind *l, weft_text *t);
/* For people: a few lines. */
weft_status weft_cluster_describe(const weft_cluster *c, weft_text *t);
weft_status weft_cluster_verify(const weft_cluster *c);
/* One of its own, verified: it shares nothing with c, whose lists may be the caller's. */
weft_status weft_cluster_copy(const weft_cluster *c, weft_cluster **out);
void        weft_cluster_destroy(weft_cluster *c);

/* A new cluster, one version on, after one event:
 *     cordon node 3            degrade node 5 device 2 speed 0.5 link 0.25      restore node 3
 *     remove node 4            add 2 x (8 x h100-80g)
 *     share node 0 ranks 4     its one device is that of 4 ranks, which take turns
 * Events in the same order give the same cluster. */
weft_status weft_cluster_change(const weft_cluster *c, const char *event,
                                weft_cluster **out);

/* Devices of c as 0, 1, ... of a new cluster, in this order; neighbours of one node stay in one. */
weft_status weft_cluster_pick(const weft_cluster *c, const int *device, int n,
                              weft_cluster **out);

/* A new cluster, one version on, that has also measured these; they replace what was known of the
 * same work, ranks and sizes. */
weft_status weft_cluster_learn(const weft_cluster *c, const weft_timing *t, int n,
                               weft_cluster **out);
/* c, and beside it the kinds of devices and links of more with what was measured of them, without
 * more's nodes; a name that both have is c's. */
weft_status weft_cluster_beside(const weft_cluster *c, const weft_cluster *more,
                                weft_cluster **out);
/* What was measured of a work: a run of *n timings; NULL: nothing.  device or link -1; ranks -1:
 * of any number. */
const weft_timing *weft_cluster_timings(const weft_cluster *c, int device, int link,
                                        const char *work, int ranks, int *n);
/* The same of all works of a device whose words begin so. */
const weft_timing *weft_cluster_timings_like(const weft_cluster *c, int device,
                                             const char *begin, int *n);

/* Kinds, counts, link classes; and every number and health.  A plan must match the first. */
uint64_t weft_cluster_hash_shape(const weft_cluster *c);
uint64_t weft_cluster_hash_constants(const weft_cluster *c);

/* This host as one node of n_device equal devices, from numbers that the caller measured; 0: the
 * built-in one (see builtin.c for its source). */
typedef struct weft_cluster_measured {
    int     n_device;
    double  f32_flops; /* reached by large products, of one device */
    double  mem_Bps;
    int64_t mem_bytes;
    double  link_alpha_s, link_Bps;
} weft_cluster_measured;
weft_status weft_cluster_this_host(const weft_cluster_measured *m, weft_cluster **out);

/* ---- devices ---- */

/* How many devices (cordoned ones too), and one's kind; NULL past the end. */
int                     weft_cluster_count(const weft_cluster *c);
int                     weft_cluster_n_node(const weft_cluster *c);
const weft_device_kind *weft_cluster_device(const weft_cluster *c, int rank);
/* Node of a rank, over all kinds, and its place in it; -1 past the end. */
int weft_cluster_node(const weft_cluster *c, int rank, int *place);
/* Peak flops for a data type; that of f32 where the kind says nothing about it; 0: neither. */
double weft_cluster_flops(const weft_device_kind *d, const char *dtype);

/* Is it a CPU, by its name ("cpu", "cpu-..", and those of data/devices.yaml)? */
bool weft_cluster_is_cpu(const weft_device_kind *d);
/* Is it a GPU of compute capability 9.0, by its name ("h100", "h200-141g", ..)? */
bool weft_cluster_is_hopper(const weft_device_kind *d);
/* Are all devices of all nodes NVIDIA's GPUs? */
bool weft_cluster_is_cuda(const weft_cluster *c);

/* The share of an accelerator's memory that no plan of ours fills, over what the engine is known
 * to need: communicators (NCCL takes 0.1 to 0.4 GB for each group, and a rank is in up to five),
 * cuBLAS and cuDNN workspaces, and what the driver keeps when capacities differ by driver and by
 * board (79.1 to 79.4 GiB of "80 GB").  The one owner of this number. */
#define WEFT_CLUSTER_MEM_RESERVE 0.04

/* Bytes of a device that a plan may fill: all but the reserve; of a CPU all (the session compares
 * with what is free when it starts). */
int64_t weft_cluster_usable_bytes(const weft_device_kind *d);
/* Devices that are alike, as a run of ranks: *at = 0 at the start; false when there are no more.
 * 10^4 equal devices are one run. */
typedef struct weft_device_run {
    int                     first, n; /* ranks */
    const weft_device_kind *device;
    const weft_host_kind   *node;
    bool                    cordoned;
    double                  speed, link; /* 1 in good health */
} weft_device_run;
bool weft_cluster_next_run(const weft_cluster *c, int *at, weft_device_run *out);
/* Devices that may be used. */
int weft_cluster_usable(const weft_cluster *c);

/* ---- links ---- */

/* The link that two ranks talk over; NULL when one of them is not there, or they are one. */
const weft_link_kind *weft_cluster_link(const weft_cluster *c, int a, int b);

/* The way between two ranks.  level 0: the same device, 1: within a node, 2 + i: over switch i
 * (or, with n_switch of them, over the net outside all of them). */
typedef struct weft_path {
    int                   level;
    const weft_link_kind *link; /* the slower end's */
    double                alpha_s;
    double                Bps;      /* while nobody else talks; with share and health */
    double                busy_Bps; /* while every device of the nodes talks */
} weft_path;
weft_status weft_cluster_path(const weft_cluster *c, int a, int b, weft_path *out);

/* The ports of a rank's node as paths of this level use them: what one port carries, what all of
 * them carry together after the switches' taper.  False: such paths use links of the devices'
 * own. */
bool weft_cluster_ports(const weft_cluster *c, int rank, int level, double *one_Bps,
                        double *all_Bps);

/* Consecutive ranks: first .. first + n - 1. */
typedef struct weft_rank_range {
    int first, n;
} weft_rank_range;
/* The devices that share the ports of a rank's node; those of its island (below). */
weft_rank_range weft_cluster_node_ranks(const weft_cluster *c, int rank);
weft_rank_range weft_cluster_island_ranks(const weft_cluster *c, int rank);

/* A group of ranks as collectives see it.  An island is a set of devices joined by links of their
 * own: a node, or the nodes under a switch that has a link. */
typedef struct weft_group_shape {
    int       n, n_node, n_island;
    int       per_node, per_island; /* the most */
    int       least_per_island;
    weft_path inner; /* the slowest within an island; Bps 0: no two in one */
    /* between islands, for each member while this group alone talks; Bps 0: none */
    weft_path outer;
    double    speed; /* of the slowest member in health, 1: all well */
} weft_group_shape;
weft_status weft_cluster_group(const weft_cluster *c, const int *rank, int n,
                               weft_group_shape *out);
/* Ranks first, first + stride, ... */
weft_status weft_cluster_group_stride(const weft_cluster *c, int first, int n, int stride,
                                      weft_group_shape *out);

/* ---- kinds we know ---- */

/* Names of built-in devices and links, for help and suggestions; the texts are static. */
weft_status weft_cluster_kinds(const char *kinds, weft_cluster **out);

#endif
