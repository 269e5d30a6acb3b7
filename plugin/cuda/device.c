/* The weft_device of a GPU: memory, copies, streams. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "gpu.h"
#include "library.h"
#include "ops/sdpa.h"

enum {
    PORTABLE_MAPPED = 1 | 2, /* CU_MEMHOSTALLOC_PORTABLE | _DEVICEMAP */
    NON_BLOCKING    = 1,
    ALIGN           = 4096
};

/* ---- memory ---- */

static weft_status fail_to_alloc(weft_cuda_gpu *g, int code, weft_space space,
                                 int64_t bytes)
{
    size_t      left = 0, all = 0;
    weft_status st =
        weft_cuda_check(code, space == WEFT_SPACE_DEVICE ? "MemAlloc" : "MemHostAlloc");
    if (code != WEFT_CUDA_OUT_OF_MEMORY || space != WEFT_SPACE_DEVICE ||
        weft_cuda_cu.MemGetInfo(&left, &all))
        return weft_fail_in(st, "%s, %lld bytes of %s memory: ", g->name,
                            (long long)bytes,
                            space == WEFT_SPACE_DEVICE ? "device" : "pinned");
    return WEFT_FAIL(WEFT_ERR_NOFIT, "%s has no %.2f GB free: %.2f of %.2f GB are",
                     g->name, 1e-9 * (double)bytes, 1e-9 * (double)left,
                     1e-9 * (double)all);
}

static weft_status alloc_device(weft_cuda_gpu *g, int64_t bytes, void **out)
{
    weft_cuda_ptr p    = 0;
    int           code = weft_cuda_cu.MemAlloc(&p, (size_t)bytes);
    if (code) return fail_to_alloc(g, code, WEFT_SPACE_DEVICE, bytes);
    code = weft_cuda_cu.MemsetAsync(p, 0, (size_t)bytes, g->copies);
    if (!code) code = weft_cuda_cu.StreamSynchronize(g->copies);
    if (code) {
        weft_cuda_cu.MemFree(p);
        return weft_fail_in(weft_cuda_check(code, "MemsetAsync"), "%s: ", g->name);
    }
    *out = (void *)(uintptr_t)p;
    return WEFT_OK;
}

static weft_status alloc_pinned(weft_cuda_gpu *g, int64_t bytes, void **out)
{
    int code = weft_cuda_cu.MemHostAlloc(out, (size_t)bytes, PORTABLE_MAPPED);
    if (code) return fail_to_alloc(g, code, WEFT_SPACE_PINNED, bytes);
    memset(*out, 0, (size_t)bytes);
    return WEFT_OK;
}

static weft_status alloc_host(int64_t bytes, void **out)
{
    *out = aligned_alloc(ALIGN, ((size_t)bytes + ALIGN - 1) / ALIGN * ALIGN);
    if (!*out)
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %lld bytes", (long long)bytes);
    memset(*out, 0, (size_t)bytes);
    return WEFT_OK;
}

static weft_status cuda_alloc(weft_device *d, weft_space space, int64_t bytes,
                              weft_memory *out)
{
    weft_cuda_gpu *g = weft_cuda_gpu_of(d);
    weft_memory    m = {.device = d, .space = space, .bytes = bytes};
    if (bytes > 0) {
        WEFT_TRY(weft_cuda_use(g));
        WEFT_TRY(space == WEFT_SPACE_DEVICE ? alloc_device(g, bytes, &m.address)
                 : space == WEFT_SPACE_HOST ? alloc_host(bytes, &m.address)
                                            : alloc_pinned(g, bytes, &m.address));
    }
    *out = m;
    return WEFT_OK;
}

/* Errors of calls that end something say nothing new. */
static void cuda_free(weft_device *d, const weft_memory *m)
{
    if (!m->address || weft_cuda_use(weft_cuda_gpu_of(d)) != WEFT_OK) return;
    if (m->space == WEFT_SPACE_HOST)
        free(m->address);
    else if (m->space == WEFT_SPACE_DEVICE)
        weft_cuda_cu.MemFree((weft_cuda_ptr)(uintptr_t)m->address);
    else
        weft_cuda_cu.MemFreeHost(m->address);
}

/* Addresses of all spaces are one address space; host memory that is not pinned has been read when
 * the driver returns. */
static weft_status copy_memory(weft_cuda_gpu *g, weft_stream *s, const weft_memory *to,
                               const weft_memory *from)
{
    weft_cuda_handle stream = s ? weft_cuda_stream_of(s) : g->copies;
    WEFT_TRY(weft_cuda_use(g));
    CU_TRY(MemcpyAsync, (weft_cuda_ptr)(uintptr_t)to->address,
           (weft_cuda_ptr)(uintptr_t)from->address, (size_t)from->bytes, stream);
    if (!s) CU_TRY(StreamSynchronize, stream);
    return WEFT_OK;
}

static weft_status cuda_copy(weft_device *d, weft_stream *s, const weft_memory *to,
                             const weft_memory *from)
{
    weft_cuda_gpu *g = weft_cuda_gpu_of(d);
    if (!from->bytes) return WEFT_OK;
    weft_status st = copy_memory(g, s, to, from);
    return st == WEFT_OK ? st
                         : weft_fail_in(st, "%s, copy of %lld bytes: ", g->name,
                                        (long long)from->bytes);
}

/* ---- streams ---- */

static void cuda_stream_close(weft_stream *s)
{
    weft_cuda_queue *q = s->impl;
    if (q && weft_cuda_use(q->gpu) == WEFT_OK) {
        if (q->stream) weft_cuda_cu.StreamSynchronize(q->stream);
        if (q->stream) weft_cuda_cu.StreamDestroy(q->stream);
        if (q->progress) weft_cuda_cu.MemFreeHost((void *)(uintptr_t)q->progress);
    }
    free(q);
    *s = (weft_stream){0};
}

static weft_status open_queue(weft_cuda_queue *q)
{
    void *word = NULL;
    WEFT_TRY(weft_cuda_use(q->gpu));
    CU_TRY(StreamCreate, &q->stream, NON_BLOCKING);
    CU_TRY(MemHostAlloc, &word, sizeof *q->progress, PORTABLE_MAPPED);
    q->progress  = word;
    *q->progress = 0;
    return WEFT_OK;
}

static weft_status cuda_stream_open(weft_device *d, const char *name, weft_stream *out)
{
    weft_cuda_queue *q = calloc(1, sizeof *q);
    if (!q) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    q->gpu         = weft_cuda_gpu_of(d);
    weft_stream s  = {.device = d, .name = name, .impl = q};
    weft_status st = open_queue(q);
    if (st != WEFT_OK)
        cuda_stream_close(&s);
    else
        *out = s;
    return st;
}

weft_status weft_cuda_stream_failed(weft_stream *s, weft_status st)
{
    weft_cuda_queue *q = s->impl;
    if (st == WEFT_OK) return st;
    uint32_t    k    = *q->progress;
    const char *name = k > 0 && k <= (uint32_t)q->n_name ? q->name[k - 1] : NULL;
    return weft_fail_in(st, "%s, stream %s%s%s: ", q->gpu->name, s->name,
                        name ? ", in " : "", name ? name : "");
}

static void sleep_until(double s)
{
    struct timespec t = {.tv_sec = (time_t)s};
    t.tv_nsec         = (long)((s - (double)t.tv_sec) * 1e9);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* The driver spins: of a graph that has run before this thread sleeps through most (pace.h). */
static weft_status wait_for_stream(weft_stream *s)
{
    weft_cuda_queue *q = s->impl;
    weft_cuda_pace  *p = q->replayed ? weft_cuda_pace_of(q->pace, q->replayed) : NULL;
    weft_cuda_wait   w = {.begin_s = q->replayed_s};
    q->replayed        = 0;
    if (p) w.wake_s = weft_cuda_pace_wake(p, w.begin_s);
    if (w.wake_s <= weft_clock_s()) w.wake_s = 0; /* it came late */
    if (w.wake_s > 0) sleep_until(w.wake_s);
    w.asked_s = weft_clock_s();
    int code  = weft_cuda_cu.StreamSynchronize(q->stream);
    w.done_s  = weft_clock_s();
    if (p && !code) weft_cuda_pace_note(p, &w);
    return weft_cuda_check(code, "StreamSynchronize");
}

static weft_status cuda_load(weft_device *d, const weft_task *task, int n, weft_code *out)
{
    for (int i = 0; i < n; i++)
        if (!task[i].run)
            return WEFT_FAIL(WEFT_ERR_ARG, "task %d of %d has no function to run on %s",
                             i, n, d->name);
    *out = (weft_code){.task = task, .n = n};
    return WEFT_OK;
}

static void cuda_unload(weft_device *d, weft_code *c)
{
    (void)d;
    *c = (weft_code){0};
}

/* WEFT_CUDA_SYNC=1: an error is the task's that was just given. */
static weft_status check_task(weft_stream *s, const weft_code *c, int i)
{
    weft_status st = wait_for_stream(s);
    if (st == WEFT_OK) return st;
    return c->blame ? c->blame(c->task[i].arg, st) : st;
}

/* The number of a name; 0: there are too many. */
static uint32_t number_of(weft_cuda_queue *q, const char *name)
{
    for (int i = 0; i < q->n_name; i++)
        if (q->name[i] == name) return (uint32_t)i + 1;
    if (q->n_name == WEFT_CUDA_MAX_NAME) return 0;
    q->name[q->n_name++] = name;
    return (uint32_t)q->n_name;
}

/* Tasks only issue. */
static weft_status issue_tasks(weft_stream *s, const weft_code *c)
{
    weft_cuda_queue *q = s->impl;
    WEFT_TRY(weft_cuda_use(q->gpu));
    s->busy = true;
    if (c->name)
        CU_TRY(StreamWriteValue, q->stream, (weft_cuda_ptr)(uintptr_t)q->progress,
               number_of(q, c->name), 0);
    for (int i = 0; i < c->n; i++) {
        WEFT_TRY(c->task[i].run(c->task[i].arg));
        if (q->gpu->sync) WEFT_TRY(check_task(s, c, i));
    }
    return WEFT_OK;
}

static weft_status cuda_launch(weft_stream *s, const weft_code *c)
{
    weft_status st = issue_tasks(s, c);
    return st == WEFT_OK ? st : weft_fail_in(st, "%s: ", s->device->name);
}

static weft_status cuda_call(weft_stream *s, weft_host_fn fn, void *arg)
{
    weft_cuda_queue *q = s->impl;
    WEFT_TRY(weft_cuda_use(q->gpu));
    WEFT_TRY(weft_cuda_stream_failed(s, wait_for_stream(s)));
    s->start_s = s->done_s = weft_clock_s();
    weft_status st         = fn(arg, &s->start_s, &s->done_s);
    s->done_s              = weft_clock_s();
    return st;
}

enum {
    BASE_LASTS_S = 10
};

static weft_status cuda_finish(weft_stream *s)
{
    weft_cuda_queue *q = s->impl;
    WEFT_TRY(weft_cuda_use(q->gpu));
    WEFT_TRY(weft_cuda_stream_failed(s, wait_for_stream(s)));
    s->busy = false;
    return weft_clock_s() - q->gpu->base_s > BASE_LASTS_S ? weft_cuda_set_base(q->gpu)
                                                          : WEFT_OK;
}

/* ---- facts ---- */

static weft_status cuda_facts(weft_device *d, weft_device_facts *out)
{
    weft_cuda_gpu *g    = weft_cuda_gpu_of(d);
    size_t         left = 0, all = 0;
    unsigned char  uuid[16];
    int            v = weft_cuda_cu.version, b = WEFT_CUDA_BUILD_VERSION;
    *out = (weft_device_facts){.capability = g->capability};
    WEFT_TRY(weft_cuda_use(g));
    CU_TRY(DeviceGetName, out->name, (int)sizeof out->name, g->ordinal);
    CU_TRY(DeviceGetUuid, uuid, g->ordinal);
    for (int i = 0; i < (int)sizeof uuid; i++)
        snprintf(out->id + 2 * i, sizeof out->id - 2 * (size_t)i, "%02x", uuid[i]);
    CU_TRY(MemGetInfo, &left, &all);
    int n = snprintf(out->versions, sizeof out->versions,
                     "driver of CUDA %d.%d, kernels of %d.%d, ", v / 1000, v % 1000 / 10,
                     b / 1000, b % 1000 / 10);
    weft_cuda_libraries_name(out->versions + n, sizeof out->versions - (size_t)n);
    char no_dnn[512];
    snprintf(no_dnn, sizeof no_dnn, "%s", weft_cuda_library_get(WEFT_CUDA_DNN)->why);
    if (!*no_dnn) weft_cuda_sdpa_failure(no_dnn, sizeof no_dnn);
    if (*no_dnn)
        snprintf(out->warning, sizeof out->warning,
                 "%.400s: attention runs on own kernels, which are slower", no_dnn);
    out->other_bytes = g->other_bytes;
    out->free_bytes  = (int64_t)left;
    out->total_bytes = (int64_t)all;
    return WEFT_OK;
}

void weft_cuda_fill_device(weft_cuda_gpu *g)
{
    g->device = (weft_device){.name          = g->name,
                              .kernels       = "cuda",
                              .alloc         = cuda_alloc,
                              .free          = cuda_free,
                              .copy          = cuda_copy,
                              .stream_open   = cuda_stream_open,
                              .stream_close  = cuda_stream_close,
                              .load          = cuda_load,
                              .unload        = cuda_unload,
                              .launch        = cuda_launch,
                              .call          = cuda_call,
                              .event_bytes   = weft_cuda_event_bytes,
                              .event_open    = weft_cuda_event_open,
                              .event_close   = weft_cuda_event_close,
                              .record        = weft_cuda_event_record,
                              .wait          = weft_cuda_event_wait,
                              .query         = weft_cuda_event_query,
                              .sync          = weft_cuda_event_sync,
                              .cancel        = weft_cuda_event_cancel,
                              .finish        = cuda_finish,
                              .impl          = g,
                              .facts         = cuda_facts,
                              .capture_begin = weft_cuda_capture_begin,
                              .capture_end   = weft_cuda_capture_end,
                              .replay        = weft_cuda_replay,
                              .export_memory = weft_cuda_export,
                              .import_memory = weft_cuda_import,
                              .import_close  = weft_cuda_import_close,
                              .captured_free = weft_cuda_captured_free};
}
