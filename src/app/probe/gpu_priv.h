/* Private to the room: a GPU that is being measured. */
#ifndef WEFT_PROBE_GPU_PRIV_H
#define WEFT_PROBE_GPU_PRIV_H

#include "probe/cuda_priv.h"
#include "probe/gpu.h"

typedef struct weft_probe__bench {
    const weft_probe__cuda *c;
    int                     device, n_sm;
    weft_cuda_handle        ctx, stream, from, to, module;
    weft_cuda_ptr           area; /* of bytes, in the device */
    size_t                  bytes;
    void                   *host; /* pinned, of host_bytes */
    size_t                  host_bytes;
    double                  launch_s;
    weft_cuda_handle        read; /* a kernel that reads the area, and what it takes */
    double                  read_s;
    /* short calls are issued while the device has other work: without the host's part */
    bool queue;
} weft_probe__bench;

weft_status weft_probe__bench_open(const weft_probe__cuda *c, int device,
                                   weft_probe__bench *b);
void        weft_probe__bench_close(weft_probe__bench *b);

/* Gives the device so many seconds of reading to do. */
weft_status weft_probe__bench_hold(weft_probe__bench *b, double s);

/* The median time of one call of work, i counting up; least_s: how long to go on for. */
typedef weft_status (*weft_probe__work)(void *arg, int i);
weft_status weft_probe__bench_time(weft_probe__bench *b, weft_probe__work work, void *arg,
                                   double least_s, double *s);

weft_status weft_probe__time_launch(weft_probe__bench *b, weft_probe_gpu *g);
weft_status weft_probe__time_memory(weft_probe__bench *b, weft_probe_gpu *g);
weft_status weft_probe__time_host(weft_probe__bench *b, weft_probe_gpu *g);
weft_status weft_probe__time_peers(weft_probe__bench *b, weft_probe_gpu *g);
weft_status weft_probe__time_sums(weft_probe__bench *b, weft_probe_gpu *g);
/* product: room for WEFT_PROBE_GPU_PRODUCTS. */
weft_status weft_probe__time_products(weft_probe__bench *b, weft_probe_gpu *g);

#endif
