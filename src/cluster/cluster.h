/* A cluster: what machines there are, frozen.  Kinds with counts, never one record a device.
 *
 *     name: two-boxes
 *     device:
 *       - {name: h100, flops: {bf16: 9.89e14, f32: 6.7e13}, efficiency: 0.7, mem_Bps: 3.35e12,
 *          mem_bytes: 80000000000, launch_s: 4e-06,
 *          half_size: 300, attention: 0.5, stream: 0.85, efficiency_of: {f8_e4m3: 0.6}}   (these may be left out)
 *     link:
 *       - {name: nvlink, alpha_s: 2e-06, Bps: 4.5e11}
 *       - {name: ib, alpha_s: 5e-06, Bps: 5e10}
 *     node:
 *       - {name: box, count: 2, device: h100, n_device: 8, link: nvlink}
 *     net: ib
 *
 * Ranks are dealt out in the order written: node by node, device by device. */
#ifndef WEFT_CLUSTER_CLUSTER_H
#define WEFT_CLUSTER_CLUSTER_H

#include "base/arena.h"
#include "base/text.h"

typedef struct weft_flop_rate {
    const char *dtype;      /* "f32" */
    double      flops;      /* a second, the device's peak */
    double      efficiency; /* share of it that large products reach; 0: the kind's */
} weft_flop_rate;

typedef struct weft_device_kind {
    const char     *name;
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
} weft_device_kind;

typedef struct weft_link_kind {
    const char *name;
    double      alpha_s; /* one message of no bytes */
    double      Bps;
} weft_link_kind;

typedef struct weft_host_kind {
    const char *name;
    int         count;    /* nodes of this kind */
    int         device;   /* kind of its devices */
    int         n_device; /* in one node */
    int         link;     /* between the devices of a node; -1 with a single one */
} weft_host_kind;

typedef struct weft_cluster {
    weft_arena       *arena;
    const char       *name;
    int               n_device;
    weft_device_kind *device;
    int               n_link;
    weft_link_kind   *link;
    int               n_node;
    weft_host_kind   *node;
    int               net; /* link between nodes; -1 with a single one */
} weft_cluster;

weft_status weft_cluster_parse(const char *file, const char *text, size_t n,
                               weft_cluster **out);
weft_status weft_cluster_print(const weft_cluster *c, weft_text *t);
weft_status weft_cluster_verify(const weft_cluster *c);
void        weft_cluster_destroy(weft_cluster *c);

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

/* How many devices, and one's kind; NULL past the end. */
int                     weft_cluster_count(const weft_cluster *c);
const weft_device_kind *weft_cluster_device(const weft_cluster *c, int rank);
/* The link that two ranks talk over; NULL when one of them is not there. */
const weft_link_kind *weft_cluster_link(const weft_cluster *c, int a, int b);
/* Peak flops for a data type; that of f32 where the kind says nothing about it; 0: neither. */
double weft_cluster_flops(const weft_device_kind *d, const char *dtype);

#endif
