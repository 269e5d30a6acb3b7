/* The host's own memory and cores. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/device_priv.h"

enum {
    PAGE = 4096,
    HUGE = 2 << 20
};

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* linux 5.14 */
#endif

static _Atomic int64_t in_use;

int64_t weft_device_bytes(void)
{
    return atomic_load(&in_use);
}

static void account(int64_t bytes)
{
    atomic_fetch_add(&in_use, bytes);
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Large pages need an aligned start; what is cut off again was never touched.  The mapping ends
 * at a 4096-byte page, so no large page reaches past it and what is resident is what was asked
 * for. */
static void *map_aligned(size_t n)
{
    size_t align = n >= HUGE ? HUGE : PAGE;
    size_t all   = n + align - PAGE;
    char *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    char *q = (char *)round_up((size_t)p, align);
    if (q > p) munmap(p, (size_t)(q - p));
    if (q + n < p + all) munmap(q + n, (size_t)(p + all - (q + n)));
    return q;
}

static void touch(char *p, size_t n)
{
    if (madvise(p, n, MADV_POPULATE_WRITE) == 0) return;
    for (size_t i = 0; i < n; i += PAGE) ((volatile char *)p)[i] = 0;
}

/* All spaces are the host's memory; SHARED stays shared with processes that are forked later, and
 * others import it. */
weft_status weft_device__cpu_alloc(weft_device *d, weft_space space, int64_t bytes,
                                   weft_memory *out)
{
    *out = (weft_memory){.device = d, .space = space, .bytes = bytes};
    if (bytes <= 0) return WEFT_OK;
    size_t n = round_up((size_t)bytes, PAGE);
    char  *p = space == WEFT_SPACE_SHARED ? weft_device__share_map(n) : map_aligned(n);
    if (!p)
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %lld bytes: %s", (long long)bytes,
                         strerror(errno));
    if (n >= HUGE) madvise(p, n, MADV_HUGEPAGE);
    touch(p, n);
    account((int64_t)n);
    out->address = p;
    return WEFT_OK;
}

void weft_device__cpu_free(weft_device *d, const weft_memory *m)
{
    (void)d;
    if (!m->address) return;
    size_t n = round_up((size_t)m->bytes, PAGE);
    if (m->space == WEFT_SPACE_SHARED) weft_device__share_close(m->address);
    munmap(m->address, n);
    account(-(int64_t)n);
}

static weft_status cpu_copy(weft_device *d, weft_stream *s, const weft_memory *to,
                            const weft_memory *from)
{
    (void)d, (void)s;
    if (from->bytes) memcpy(to->address, from->address, (size_t)from->bytes);
    return WEFT_OK;
}

/* ---- streams: the caller's thread ---- */

weft_status weft_device__stream_open(weft_device *d, const char *name, weft_stream *out)
{
    *out = (weft_stream){.device = d, .name = name};
    return WEFT_OK;
}

void weft_device__stream_close(weft_stream *s)
{
    *s = (weft_stream){0};
}

weft_status weft_device__cpu_load(weft_device *d, const weft_task *task, int n,
                                  weft_code *out)
{
    *out = (weft_code){.task = task, .n = n};
    for (int i = 0; i < n; i++)
        if (!task[i].run)
            return WEFT_FAIL(WEFT_ERR_ARG, "task %d of %d has no function to run on %s",
                             i, n, d->name);
    return WEFT_OK;
}

void weft_device__unload(weft_device *d, weft_code *c)
{
    (void)d;
    *c = (weft_code){0};
}

weft_status weft_device__cpu_launch(weft_stream *s, const weft_code *c)
{
    weft_status st = WEFT_OK;
    s->start_s     = weft_clock_s();
    for (int i = 0; i < c->n && st == WEFT_OK; i++) st = c->task[i].run(c->task[i].arg);
    s->done_s = weft_clock_s();
    return st;
}

weft_status weft_device__cpu_call(weft_stream *s, weft_host_fn fn, void *arg)
{
    s->start_s = s->done_s = weft_clock_s();
    weft_status st         = fn(arg, &s->start_s, &s->done_s);
    s->done_s              = weft_clock_s();
    return st;
}

weft_status weft_device__cpu_wait(weft_stream *s, weft_event *e, int64_t n)
{
    double at;
    (void)s;
    return weft_device__event_reached(e, n) ? WEFT_OK
                                            : weft_device__event_block(e, n, &at);
}

weft_status weft_device__cpu_query(weft_event *e, int64_t n, double *done_s)
{
    return weft_device__event_look(e, n, done_s) ? WEFT_OK : WEFT_AGAIN;
}

weft_status weft_device__cpu_sync(weft_event *e, int64_t n, double *done_s)
{
    return weft_device__event_block(e, n, done_s);
}

weft_status weft_device__cpu_finish(weft_stream *s)
{
    (void)s;
    return WEFT_OK;
}

weft_device *weft_device_cpu(void)
{
    static weft_device cpu = {.name          = "cpu",
                              .kernels       = "cpu",
                              .host_access   = true,
                              .needs_thread  = true,
                              .alloc         = weft_device__cpu_alloc,
                              .free          = weft_device__cpu_free,
                              .copy          = cpu_copy,
                              .stream_open   = weft_device__stream_open,
                              .stream_close  = weft_device__stream_close,
                              .load          = weft_device__cpu_load,
                              .unload        = weft_device__unload,
                              .launch        = weft_device__cpu_launch,
                              .call          = weft_device__cpu_call,
                              .event_bytes   = weft_device__event_bytes,
                              .event_open    = weft_device__event_open,
                              .event_close   = weft_device__event_close,
                              .record        = weft_device__event_record,
                              .wait          = weft_device__cpu_wait,
                              .query         = weft_device__cpu_query,
                              .sync          = weft_device__cpu_sync,
                              .cancel        = weft_device__event_cancel,
                              .finish        = weft_device__cpu_finish,
                              .export_memory = weft_device__export,
                              .import_memory = weft_device__import,
                              .import_close  = weft_device__import_close};
    return &cpu;
}
