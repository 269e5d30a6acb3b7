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
static weft_status emu_alloc(weft_device *d, int64_t bytes, void **out)
{
    (void)d;
    *out = NULL;
    if (bytes <= 0) return WEFT_OK;
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return WEFT_FAIL(WEFT_ERR_MEM, "no addresses for %lld bytes: %s",
                         (long long)bytes, strerror(errno));
    *out = p;
    return WEFT_OK;
}

static void emu_free(weft_device *d, void *p, int64_t bytes)
{
    (void)d;
    if (p) munmap(p, (size_t)bytes);
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
    *d = (weft_device){
        .name = "emu", .alloc = emu_alloc, .free = emu_free, .submit = emu_submit};
    *out = d;
    return WEFT_OK;
}

void weft_device_emu_destroy(weft_device *d)
{
    free(d);
}
