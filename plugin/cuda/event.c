/* Counts that streams move on: a ring of the driver's events, one for each of the newest records.
 *
 * All records of an event come from one stream, so a later one implies the earlier ones: where a
 * record is no longer in the ring, the oldest that is stands for it. */
#include <stdlib.h>

#include "base/clock.h"
#include "gpu.h"

typedef struct event_record {
    weft_cuda_handle handle;
    int64_t          capture; /* it was given inside, 0 none */
} event_record;

typedef struct event_ring {
    weft_cuda_gpu  *gpu;
    pthread_mutex_t lock;
    pthread_cond_t  moved;
    int64_t         n; /* records given */
    /* Of records for their times alone: the first one of the step, or of the capture, that the
     * others are counted from.  The driver's times are of 24 bits, so that only short ones are
     * exact. */
    weft_cuda_handle first;
    int64_t          first_capture;
    bool             cancelled;
    int              depth;
    event_record     record[]; /* record i is at (i - 1) % depth */
} event_ring;

int64_t weft_cuda_event_bytes(int64_t depth)
{
    return (int64_t)sizeof(event_ring) + depth * (int64_t)sizeof(event_record);
}

weft_status weft_cuda_event_open(weft_device *d, int64_t depth, weft_event *out)
{
    if (depth < 1 || depth > 1 << 30)
        return WEFT_FAIL(WEFT_ERR_ARG, "an event cannot keep %lld times",
                         (long long)depth);
    event_ring *r = calloc(1, (size_t)weft_cuda_event_bytes(depth));
    if (!r) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    r->gpu   = weft_cuda_gpu_of(d);
    r->depth = (int)depth;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->moved, NULL);
    weft_event  e  = {.device = d, .impl = r};
    weft_status st = weft_cuda_use(r->gpu);
    for (int i = 0; i < r->depth && st == WEFT_OK; i++)
        st = weft_cuda_check(weft_cuda_cu.EventCreate(&r->record[i].handle, 0),
                             "EventCreate");
    if (st != WEFT_OK)
        weft_cuda_event_close(&e);
    else
        *out = e;
    return st;
}

void weft_cuda_event_close(weft_event *e)
{
    event_ring *r = e->impl;
    if (r) {
        bool usable = weft_cuda_use(r->gpu) == WEFT_OK;
        for (int i = 0; i < r->depth && usable && r->record[i].handle; i++)
            weft_cuda_cu.EventDestroy(r->record[i].handle);
        pthread_mutex_destroy(&r->lock);
        pthread_cond_destroy(&r->moved);
    }
    free(r);
    *e = (weft_event){0};
}

static event_record *record_of(event_ring *r, int64_t n)
{
    if (r->n - n >= r->depth) n = r->n - r->depth + 1;
    return &r->record[(n - 1) % r->depth];
}

static void move_on(event_ring *r, int64_t capture)
{
    pthread_mutex_lock(&r->lock);
    r->n++;
    record_of(r, r->n)->capture = capture;
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->lock);
}

enum {
    EXTERNAL = 1 /* CU_EVENT_RECORD_EXTERNAL: a node of the graph that is captured */
};

static int64_t capture_of(const weft_stream *s)
{
    return ((const weft_cuda_queue *)s->impl)->capture;
}

static weft_status record_time(weft_stream *s, event_ring *r)
{
    weft_cuda_handle event = r->record[r->n % r->depth].handle;
    if (!r->first || r->first == event || r->first_capture != capture_of(s)) {
        r->first         = event;
        r->first_capture = capture_of(s);
    }
    CU_TRY(EventRecordWithFlags, event, weft_cuda_stream_of(s),
           capture_of(s) ? EXTERNAL : 0);
    move_on(r, 0);
    return WEFT_OK;
}

weft_status weft_cuda_event_record(weft_stream *s, weft_event *e)
{
    event_ring *r = e->impl;
    WEFT_TRY(weft_cuda_use(r->gpu));
    if (e->times) return record_time(s, r);
    CU_TRY(EventRecord, r->record[r->n % r->depth].handle, weft_cuda_stream_of(s));
    if (capture_of(s)) WEFT_TRY(weft_cuda_capture_moves(r->gpu, r));
    move_on(r, capture_of(s));
    return WEFT_OK;
}

void weft_cuda_event_move(void *impl, int64_t capture, int64_t n)
{
    for (event_ring *r = impl; n > 0; n--) move_on(r, capture);
}

void weft_cuda_event_move_back(void *impl, int64_t n)
{
    event_ring *r = impl;
    pthread_mutex_lock(&r->lock);
    r->n -= n;
    pthread_mutex_unlock(&r->lock);
}

/* A record of a capture orders only what is in it: outside of it, it is over (device.h). */
weft_status weft_cuda_event_wait(weft_stream *s, weft_event *e, int64_t n)
{
    event_ring *r = e->impl;
    if (n <= 0) return WEFT_OK;
    pthread_mutex_lock(&r->lock);
    bool          given = r->n >= n, cancelled = r->cancelled;
    event_record *x  = given ? record_of(r, n) : NULL;
    event_record  at = x ? *x : (event_record){0};
    pthread_mutex_unlock(&r->lock);
    if (!given && cancelled) return WEFT_FAIL(WEFT_ERR_PEER, "an event was cancelled");
    if (!given)
        return WEFT_FAIL(WEFT_ERR_INTERNAL,
                         "stream %s waits for record %lld of an event before it is given",
                         s->name, (long long)n);
    if (at.capture != capture_of(s)) return WEFT_OK;
    WEFT_TRY(weft_cuda_use(r->gpu));
    CU_TRY(StreamWaitEvent, weft_cuda_stream_of(s), at.handle, 0);
    return WEFT_OK;
}

/* ---- the host ---- */

weft_status weft_cuda_set_base(weft_cuda_gpu *g)
{
    CU_TRY(EventRecord, g->base, g->copies);
    CU_TRY(StreamSynchronize, g->copies);
    g->base_s = weft_clock_s();
    return WEFT_OK;
}

static weft_status time_of(event_ring *r, const event_record *x, double *done_s)
{
    float ms = 0;
    *done_s  = 0;
    if (x->capture) return WEFT_OK; /* not known */
    if (r->first && r->first != x->handle) {
        CU_TRY(EventElapsedTime, &ms, r->first, x->handle);
        *done_s = 1e-3 * (double)ms;
    }
    CU_TRY(EventElapsedTime, &ms, r->gpu->base, r->first ? r->first : x->handle);
    *done_s += r->gpu->base_s + 1e-3 * (double)ms;
    return WEFT_OK;
}

weft_status weft_cuda_event_query(weft_event *e, int64_t n, double *done_s)
{
    event_ring *r = e->impl;
    *done_s       = 0;
    if (n <= 0) return WEFT_OK;
    pthread_mutex_lock(&r->lock);
    bool         given = r->n >= n;
    event_record at    = given ? *record_of(r, n) : (event_record){0};
    pthread_mutex_unlock(&r->lock);
    if (!given) return WEFT_AGAIN;
    if (at.capture) return WEFT_OK;
    WEFT_TRY(weft_cuda_use(r->gpu));
    int code = weft_cuda_cu.EventQuery(at.handle);
    if (code == WEFT_CUDA_NOT_READY) return WEFT_AGAIN;
    WEFT_TRY(weft_cuda_check(code, "EventQuery"));
    return time_of(r, &at, done_s);
}

weft_status weft_cuda_event_sync(weft_event *e, int64_t n, double *done_s)
{
    event_ring *r = e->impl;
    *done_s       = 0;
    if (n <= 0) return WEFT_OK;
    pthread_mutex_lock(&r->lock);
    while (r->n < n && !r->cancelled) pthread_cond_wait(&r->moved, &r->lock);
    bool         given = r->n >= n;
    event_record at    = given ? *record_of(r, n) : (event_record){0};
    pthread_mutex_unlock(&r->lock);
    if (!given) return WEFT_FAIL(WEFT_ERR_PEER, "an event was cancelled");
    if (at.capture) return WEFT_OK;
    WEFT_TRY(weft_cuda_use(r->gpu));
    CU_TRY(EventSynchronize, at.handle);
    return time_of(r, &at, done_s);
}

void weft_cuda_event_cancel(weft_event *e)
{
    event_ring *r = e->impl;
    pthread_mutex_lock(&r->lock);
    r->cancelled = true;
    pthread_cond_broadcast(&r->moved);
    pthread_mutex_unlock(&r->lock);
}
