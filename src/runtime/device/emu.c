/* A device that takes its time: memory that is never touched, tasks that only last.
 *
 * A stream keeps the time at which its last task is stated to end, and the next one's end is
 * counted from there, so oversleeping by a fraction of a millisecond does not add up. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "device/device.h"

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
static weft_status emu_copy(weft_device *d, const weft_memory *to,
                            const weft_memory *from)
{
    (void)d;
    if (to->space == WEFT_SPACE_DEVICE) return WEFT_OK;
    if (from->space == WEFT_SPACE_DEVICE)
        memset(to->address, 0, (size_t)from->bytes);
    else
        memmove(to->address, from->address, (size_t)from->bytes);
    return WEFT_OK;
}

static weft_status emu_submit(weft_device *d, weft_stream *s, double ready_s,
                              const weft_task *task, int n)
{
    (void)d;
    double t = s->done_s > ready_s ? s->done_s : ready_s;
    if (t == 0) t = weft_clock_s();
    s->start_s = t;
    for (int i = 0; i < n; i++) t += task[i].seconds;
    s->done_s = t;
    if (t > weft_clock_s()) sleep_until(t);
    return WEFT_OK;
}

static _Thread_local double moment;

void weft_device_set_moment(double s)
{
    moment = s;
}

double weft_device_moment(void)
{
    return moment;
}

weft_status weft_device_emu_create(weft_device **out)
{
    weft_device *d = calloc(1, sizeof *d);
    if (!d) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *d   = (weft_device){.name   = "emu",
                         .alloc  = emu_alloc,
                         .free   = emu_free,
                         .copy   = emu_copy,
                         .submit = emu_submit};
    *out = d;
    return WEFT_OK;
}

void weft_device_emu_destroy(weft_device *d)
{
    free(d);
}
