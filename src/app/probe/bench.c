/* A GPU made ready for measuring: its context, a stream, two events, memory, our kernels; and its
 * times of work. */
#include <math.h>
#include <stdlib.h>

#include "base/text.h"
#include "probe/gpu_priv.h"

enum {
    HOST_BYTES = 64 << 20,
    LEAST_AREA = 256 << 20,
    N_BATCH    = 7,
    MOST_CALLS = 300, /* in a row; a driver queues about a thousand kernels */
    N_THREAD   = 256
};
#define SHORT_S   1e-4 /* calls below that may be the host's to wait for */
#define ISSUE_S   3e-5 /* more than the host needs for one of them */
#define MOST_AREA ((size_t)6 << 30)

static weft_status load_kernels(weft_probe__bench *b)
{
    weft_text   t = {0};
    weft_status st;
    WEFT_GO(weft_probe__kernels(&t));
    st = weft_probe__cuda_check(b->c, b->c->ModuleLoadData(&b->module, t.s),
                                "ModuleLoadData");
out:
    weft_text_fini(&t);
    return st;
}

static weft_status read_area(void *arg, int i)
{
    weft_probe__bench *b     = arg;
    uint64_t           count = b->bytes / 16, stride = b->bytes;
    void              *args[3] = {&b->area, &stride, &count};
    (void)i;
    WEFT_CUDA(b->c, LaunchKernel, b->read, (unsigned)(count / N_THREAD), 1, 1, N_THREAD,
              1, 1, 0, b->stream, args, NULL);
    return WEFT_OK;
}

weft_status weft_probe__bench_hold(weft_probe__bench *b, double s)
{
    for (double at = 0; at < s; at += b->read_s) WEFT_TRY(read_area(b, 0));
    return WEFT_OK;
}

static weft_status open_all(weft_probe__bench *b)
{
    const weft_probe__cuda *c = b->c;
    size_t                  free_bytes, total;
    WEFT_CUDA(c, CtxRetain, &b->ctx, b->device);
    WEFT_CUDA(c, CtxSetCurrent, b->ctx);
    WEFT_CUDA(c, DeviceGetAttribute, &b->n_sm, 16, b->device);
    WEFT_CUDA(c, StreamCreate, &b->stream, 1); /* not tied to the default one */
    WEFT_CUDA(c, EventCreate, &b->from, 0);
    WEFT_CUDA(c, EventCreate, &b->to, 0);
    WEFT_CUDA(c, MemGetInfo, &free_bytes, &total);
    b->bytes = free_bytes / 3 < MOST_AREA ? free_bytes / 3 : MOST_AREA;
    b->bytes = b->bytes / HOST_BYTES * HOST_BYTES;
    if (b->bytes < LEAST_AREA)
        return WEFT_FAIL(WEFT_ERR_MEM, "%zu MiB of memory are free, of %zu",
                         free_bytes >> 20, total >> 20);
    WEFT_CUDA(c, MemAlloc, &b->area, b->bytes);
    b->host_bytes = HOST_BYTES;
    WEFT_CUDA(c, MemAllocHost, &b->host, b->host_bytes);
    WEFT_TRY(load_kernels(b));
    WEFT_CUDA(c, ModuleGetFunction, &b->read, b->module, "read");
    return weft_probe__bench_time(b, read_area, b, 0.01, &b->read_s);
}

weft_status weft_probe__bench_open(const weft_probe__cuda *c, int device,
                                   weft_probe__bench *b)
{
    *b             = (weft_probe__bench){.c = c, .device = device};
    weft_status st = open_all(b);
    if (st != WEFT_OK) weft_probe__bench_close(b);
    return st;
}

void weft_probe__bench_close(weft_probe__bench *b)
{
    const weft_probe__cuda *c = b->c;
    if (b->module) c->ModuleUnload(b->module);
    if (b->host) c->MemFreeHost(b->host);
    if (b->area) c->MemFree(b->area);
    if (b->from) c->EventDestroy(b->from);
    if (b->to) c->EventDestroy(b->to);
    if (b->stream) c->StreamDestroy(b->stream);
    if (b->ctx) c->CtxRelease(b->device);
    *b = (weft_probe__bench){.c = c, .device = b->device};
}

/* n calls in a row, by the device's own clock. */
static weft_status time_batch(weft_probe__bench *b, weft_probe__work work, void *arg,
                              int first, int n, double *s)
{
    const weft_probe__cuda *c = b->c;
    float                   ms;
    WEFT_CUDA(c, EventRecord, b->from, b->stream);
    for (int i = 0; i < n; i++) WEFT_TRY(work(arg, first + i));
    WEFT_CUDA(c, EventRecord, b->to, b->stream);
    WEFT_CUDA(c, EventSynchronize, b->to);
    WEFT_CUDA(c, EventElapsedTime, &ms, b->from, b->to);
    *s = 1e-3 * (double)ms / n;
    return WEFT_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

weft_status weft_probe__bench_time(weft_probe__bench *b, weft_probe__work work, void *arg,
                                   double least_s, double *s)
{
    double one[N_BATCH], most = b->queue ? MOST_CALLS : 1000, hold = 0;
    int    n = 1, at = 5;
    WEFT_TRY(time_batch(b, work, arg, 0, 1, &one[0])); /* loads what it needs */
    WEFT_TRY(time_batch(b, work, arg, 1, 4, &one[0]));
    if (one[0] > 0) most = fmin(most, least_s / N_BATCH / one[0]);
    if (most > 1) n = (int)most;
    if (b->queue && one[0] < SHORT_S) hold = n * ISSUE_S;
    for (int k = 0; k < N_BATCH; k++, at += n) {
        WEFT_TRY(weft_probe__bench_hold(b, hold));
        WEFT_TRY(time_batch(b, work, arg, at, n, &one[k]));
    }
    qsort(one, N_BATCH, sizeof *one, by_value);
    *s = one[N_BATCH / 2];
    if (!(*s > 0))
        return WEFT_FAIL(WEFT_ERR_IO, "cuEventElapsedTime says that work takes no time");
    return WEFT_OK;
}
