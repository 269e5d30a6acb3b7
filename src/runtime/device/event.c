/* Events in host memory: what cpu, guard and emu share.  One stream records an event, any thread
 * waits for it; who waits sleeps on a word that changes with the count while somebody waits. */
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/device_priv.h"

typedef struct event_count {
    _Atomic int64_t  n;
    _Atomic uint32_t changed; /* the word */
    _Atomic int      n_waiting;
    _Atomic bool     cancelled;
    int              depth;
    double           at[]; /* when the newest `depth` counts were reached */
} event_count;

int64_t weft_device__event_bytes(int64_t depth)
{
    return (int64_t)sizeof(event_count) + depth * (int64_t)sizeof(double);
}

weft_status weft_device__event_open(weft_device *d, int64_t depth, weft_event *out)
{
    if (depth < 1 || depth > 1 << 30)
        return WEFT_FAIL(WEFT_ERR_ARG, "an event cannot keep %lld times",
                         (long long)depth);
    event_count *c = calloc(1, (size_t)weft_device__event_bytes(depth));
    if (!c) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    c->depth = (int)depth;
    *out     = (weft_event){.device = d, .impl = c};
    return WEFT_OK;
}

void weft_device__event_close(weft_event *e)
{
    free(e->impl);
    *e = (weft_event){0};
}

static void wake_waiters(event_count *c)
{
    if (!atomic_load(&c->n_waiting)) return;
    atomic_fetch_add(&c->changed, 1);
    syscall(SYS_futex, &c->changed, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

weft_status weft_device__event_record(weft_stream *s, weft_event *e)
{
    event_count *c      = e->impl;
    int64_t      n      = atomic_load_explicit(&c->n, memory_order_relaxed);
    c->at[n % c->depth] = s->done_s;
    atomic_store(&c->n, n + 1);
    wake_waiters(c);
    return WEFT_OK;
}

void weft_device__event_cancel(weft_event *e)
{
    event_count *c = e->impl;
    atomic_store(&c->cancelled, true);
    wake_waiters(c);
}

/* Counts that are no longer kept were reached long ago. */
static double time_of(event_count *c, int64_t n)
{
    return n > 0 && atomic_load(&c->n) - n < c->depth ? c->at[(n - 1) % c->depth] : 0;
}

weft_status weft_device__event_block(weft_event *e, int64_t n, double *at)
{
    event_count *c = e->impl;
    atomic_fetch_add(&c->n_waiting, 1);
    for (;;) {
        uint32_t seen = atomic_load(&c->changed);
        if (atomic_load(&c->n) >= n || atomic_load(&c->cancelled)) break;
        syscall(SYS_futex, &c->changed, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    }
    atomic_fetch_sub(&c->n_waiting, 1);
    if (atomic_load(&c->n) < n) return WEFT_FAIL(WEFT_ERR_PEER, "an event was cancelled");
    *at = time_of(c, n);
    return WEFT_OK;
}

bool weft_device__event_reached(const weft_event *e, int64_t n)
{
    event_count *c = e->impl;
    return atomic_load_explicit(&c->n, memory_order_acquire) >= n;
}

bool weft_device__event_look(const weft_event *e, int64_t n, double *at)
{
    *at = 0;
    if (!weft_device__event_reached(e, n)) return false;
    *at = time_of(e->impl, n);
    return true;
}
