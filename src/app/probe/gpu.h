/* NVIDIA GPUs of this host, measured through the driver and cublasLt, which are opened at run time.
 *
 *     weft_probe_gpus g;
 *     WEFT_TRY(weft_probe_gpus_measure(arena, &g));       g.n 0: g.why says what is missing
 *     WEFT_TRY(weft_probe_gpus_cluster(&g, processors, &c));
 *
 * One GPU of each kind is measured, at the clocks that it holds after two seconds of work. */
#ifndef WEFT_PROBE_GPU_H
#define WEFT_PROBE_GPU_H

#include "cluster/cluster.h"

enum {
    WEFT_PROBE_GPU_KINDS    = 8,
    WEFT_PROBE_GPU_MOST     = 64,
    WEFT_PROBE_GPU_SUMS     = 6,
    WEFT_PROBE_GPU_PRODUCTS = 128
};

typedef struct weft_probe_gpu_product {
    const char *dtype; /* "bf16", "tf32", ...: a rate of a kind */
    int         bytes; /* an element of its operands */
    double      m, n, k;
    double      s;
} weft_probe_gpu_product;

/* A message of no bytes, and a long one; Bps 0: not measured. */
typedef struct weft_probe_gpu_wire {
    double alpha_s, Bps;
} weft_probe_gpu_wire;

typedef struct weft_probe_gpu {
    char    name[96]; /* as the driver says it: "NVIDIA H200" */
    int     n_device, device[WEFT_PROBE_GPU_MOST]; /* of the host's */
    int     n_sm, capability;
    double  peak_Bps; /* memory clock times width; 0: not said */
    int64_t mem_bytes, free_bytes;
    double launch_s, issue_s; /* an empty kernel behind others; the host's time for one */
    double copy_Bps, read_Bps, scale_Bps, add_Bps, update_Bps; /* read and written */
    weft_probe_gpu_wire up, down, peer; /* from and to pinned memory; to another GPU */
    int                 n_sum;          /* all-reduces by NCCL, by rising n */
    weft_link_measured  sum[WEFT_PROBE_GPU_SUMS];
    int                 n_product;
    weft_probe_gpu_product *product;
    double drift;     /* of one product from before the others to after them */
    char   note[320]; /* what could not be measured, and why; "" */
} weft_probe_gpu;

typedef struct weft_probe_gpus {
    int            n; /* kinds */
    int            driver;
    char           why[256]; /* n 0: what is missing */
    weft_probe_gpu kind[WEFT_PROBE_GPU_KINDS];
} weft_probe_gpus;

/* A library or a GPU that is not there is no error. */
weft_status weft_probe_gpus_measure(weft_arena *a, weft_probe_gpus *out);

/* What was measured as constants of a kind; sheet: what its data sheet says, NULL where nobody
 * knows it.  error: the mean one of products by these constants. */
weft_status weft_probe_gpu_fit(const weft_probe_gpu *g, const weft_device_kind *sheet,
                               weft_arena *a, weft_device_kind *out, double *error);

/* One node of the first kind; the other kinds, and those of processors (NULL: none), beside it
 * without nodes. */
weft_status weft_probe_gpus_cluster(const weft_probe_gpus *g,
                                    const weft_cluster *processors, weft_cluster **out);

/* All that was measured, as CSV: what,m,n,k,bytes,seconds,per_s (flops of products, bytes of the
 * others). */
weft_status weft_probe_gpus_list(const weft_probe_gpus *g, weft_text *t);

/* The kind we know that a model as NVIDIA names it is; NULL: none. */
const weft_device_kind *weft_probe_gpu_kind(const weft_cluster *kinds, const char *model,
                                            double mem_bytes);
/* What joins several of them in a host. */
const char *weft_probe_gpu_link(const char *model, const char *kind);

#endif
