/* The host's own memory and cores. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/device.h"

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

static weft_status cpu_alloc(weft_device *d, int64_t bytes, void **out)
{
    (void)d;
    *out = NULL;
    if (bytes <= 0) return WEFT_OK;
    size_t n = round_up((size_t)bytes, PAGE);
    char  *p = map_aligned(n);
    if (!p)
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %lld bytes: %s", (long long)bytes,
                         strerror(errno));
    if (n >= HUGE) madvise(p, n, MADV_HUGEPAGE);
    touch(p, n);
    account((int64_t)n);
    *out = p;
    return WEFT_OK;
}

static void cpu_free(weft_device *d, void *p, int64_t bytes)
{
    (void)d;
    if (!p) return;
    size_t n = round_up((size_t)bytes, PAGE);
    munmap(p, n);
    account(-(int64_t)n);
}

static weft_status cpu_submit(weft_device *d, weft_stream *s, double ready_s,
                              const weft_task *task, int n)
{
    (void)d;
    (void)ready_s;
    weft_status st = WEFT_OK;
    s->start_s     = weft_clock_s();
    for (int i = 0; i < n && st == WEFT_OK; i++) st = task[i].run(task[i].arg);
    s->done_s = weft_clock_s();
    return st;
}

weft_device *weft_device_cpu(void)
{
    static weft_device cpu = {.name     = "cpu",
                              .computes = true,
                              .alloc    = cpu_alloc,
                              .free     = cpu_free,
                              .submit   = cpu_submit};
    return &cpu;
}
