/* A device that takes its time: memory that is never touched, tasks that only last.
 *
 * A launch returns at once.  A stream keeps the time at which its last task is stated to end, its
 * deadline; the next one's is counted from there, so a thread that gives work or wakes up late
 * makes no lasting delay.  Only sync, finish and host work sleep until a deadline. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "device/device_priv.h"

static void sleep_until(double t)
{
    struct timespec ts = {.tv_sec = (time_t)t};
    ts.tv_nsec         = (long)((t - (double)ts.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR) {
    }
}

/* Addresses without pages behind them. */
static weft_status emu_alloc(weft_device *d, weft_space space, int64_t bytes,
                             weft_memory *out)
{
    *out = (weft_memory){.device = d, .space = space, .bytes = bytes};
    if (bytes <= 0) return WEFT_OK;
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return WEFT_FAIL(WEFT_ERR_MEM, "no addresses for %lld bytes: %s",
                         (long long)bytes, strerror(errno));
    out->address = p;
    return WEFT_OK;
}

static void emu_free(weft_device *d, const weft_memory *m)
{
    (void)d;
    if (m->address) munmap(m->address, (size_t)m->bytes);
}

/* DEVICE memory holds nothing: what is read from it is zero, what is written is dropped. */
static weft_status emu_copy(weft_device *d, weft_stream *s, const weft_memory *to,
                            const weft_memory *from)
{
    (void)d, (void)s;
    if (to->space == WEFT_SPACE_DEVICE) return WEFT_OK;
    if (from->space == WEFT_SPACE_DEVICE)
        memset(to->address, 0, (size_t)from->bytes);
    else
        memcpy(to->address, from->address, (size_t)from->bytes);
    return WEFT_OK;
}

/* ---- streams: a time that runs ahead of the clock ---- */

/* When the stream's next work begins: one that was waited for starts again with the clock. */
static double next_start(weft_stream *s)
{
    double now = s->busy ? 0 : weft_clock_s();
    s->busy    = true;
    return s->done_s > now ? s->done_s : now;
}

static weft_status emu_load(weft_device *d, const weft_task *task, int n, weft_code *out)
{
    (void)d;
    *out = (weft_code){.task = task, .n = n};
    return WEFT_OK;
}

static weft_status emu_launch(weft_stream *s, const weft_code *c)
{
    s->start_s = s->done_s = next_start(s);
    for (int i = 0; i < c->n; i++) s->done_s += c->task[i].seconds;
    return WEFT_OK;
}

/* Host work cannot begin before what is in front of it has ended. */
static weft_status emu_call(weft_stream *s, weft_host_fn fn, void *arg)
{
    s->start_s = s->done_s = next_start(s);
    sleep_until(s->start_s);
    return fn(arg, &s->start_s, &s->done_s);
}

static weft_status emu_wait(weft_stream *s, weft_event *e, int64_t n)
{
    double at;
    if (!weft_device__event_look(e, n, &at))
        return WEFT_FAIL(WEFT_ERR_INTERNAL,
                         "stream %s waits for record %lld of an event before it is given",
                         s->name, (long long)n);
    if (at > s->done_s) s->done_s = at;
    return WEFT_OK;
}

static weft_status emu_query(weft_event *e, int64_t n, double *done_s)
{
    if (!weft_device__event_look(e, n, done_s) || *done_s > weft_clock_s())
        return WEFT_AGAIN;
    return WEFT_OK;
}

static weft_status emu_sync(weft_event *e, int64_t n, double *done_s)
{
    WEFT_TRY(weft_device__event_block(e, n, done_s));
    sleep_until(*done_s);
    return WEFT_OK;
}

static weft_status emu_finish(weft_stream *s)
{
    if (s->busy) sleep_until(s->done_s);
    s->busy = false;
    return WEFT_OK;
}

weft_status weft_device_emu_create(weft_device **out)
{
    weft_device *d = calloc(1, sizeof *d);
    if (!d) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *d   = (weft_device){.name         = "emu",
                         .kernels      = "emu",
                         .alloc        = emu_alloc,
                         .free         = emu_free,
                         .copy         = emu_copy,
                         .stream_open  = weft_device__stream_open,
                         .stream_close = weft_device__stream_close,
                         .load         = emu_load,
                         .unload       = weft_device__unload,
                         .launch       = emu_launch,
                         .call         = emu_call,
                         .event_bytes  = weft_device__event_bytes,
                         .event_open   = weft_device__event_open,
                         .event_close  = weft_device__event_close,
                         .record       = weft_device__event_record,
                         .wait         = emu_wait,
                         .query        = emu_query,
                         .sync         = emu_sync,
                         .cancel       = weft_device__event_cancel,
                         .finish       = emu_finish};
    *out = d;
    return WEFT_OK;
}

void weft_device_emu_destroy(weft_device *d)
{
    free(d);
}
