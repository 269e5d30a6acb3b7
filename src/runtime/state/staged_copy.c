#include "state/staged_copy.h"

#include <string.h>

#include "base/failpoint.h"
#include "base/pool.h"
#include "base/progress.h"

enum {
    N_BUFFER = 2,
    SLICE    = 1 << 20, /* bytes that a thread copies at a time */
    THREADS  = 4 /* one moves 5 to 8 GB/s of memory that no cache holds, the link 55 */
};
#define PIECE ((int64_t)16 << 20)

typedef struct staging {
    const weft_memory  *device, *host; /* the two ends */
    weft_device        *owner;
    weft_stream        *stream;
    weft_memory         buffer[N_BUFFER];
    weft_event          copied; /* pieces */
    const _Atomic bool *stop;
    weft_pool          *pool; /* copy_up's; NULL: this thread alone */
} staging;

static int64_t piece_bytes(const staging *g, int64_t i)
{
    int64_t left = g->device->bytes - i * PIECE;
    return left < PIECE ? left : PIECE;
}

/* The device copies piece i, from or to its buffer. */
static weft_status issue(staging *g, int64_t i, bool down)
{
    int64_t     n = piece_bytes(g, i);
    weft_memory device, buffer;
    WEFT_TRY(weft_memory_part(g->device, i * PIECE, n, &device));
    WEFT_TRY(weft_memory_part(&g->buffer[i % N_BUFFER], 0, n, &buffer));
    WEFT_TRY(g->owner->copy(g->owner, g->stream, down ? &buffer : &device,
                            down ? &device : &buffer));
    return g->owner->record(g->stream, &g->copied);
}

static weft_status await_pieces(staging *g, int64_t n)
{
    double done_s;
    if (g->stop && atomic_load(g->stop))
        return WEFT_FAIL(WEFT_ERR_PEER, "the copy was given up");
    weft_progress_mark();
    return n > 0 ? g->owner->sync(&g->copied, n, &done_s) : WEFT_OK;
}

static weft_status copy_down(staging *g, int64_t n)
{
    for (int64_t i = 0; i <= n; i++) {
        if (i < n) WEFT_TRY(issue(g, i, true));
        WEFT_TRY(await_pieces(g, i));
        weft_failpoint("snapshot.piece_down");
        if (i > 0)
            memcpy((char *)g->host->address + (i - 1) * PIECE,
                   g->buffer[(i - 1) % N_BUFFER].address, (size_t)piece_bytes(g, i - 1));
    }
    return WEFT_OK;
}

typedef struct host_copy {
    char       *to;
    const char *from;
    int64_t     bytes;
} host_copy;

static void copy_slice(void *arg, int64_t task, int thread)
{
    const host_copy *c    = arg;
    int64_t          at   = task * SLICE;
    int64_t          left = c->bytes - at;
    (void)thread;
    memcpy(c->to + at, c->from + at, (size_t)(left < SLICE ? left : SLICE));
}

/* No rank trains meanwhile, so several threads copy. */
static weft_status copy_up(staging *g, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        WEFT_TRY(await_pieces(g, i + 1 - N_BUFFER)); /* its buffer is free */
        host_copy c = {.to    = g->buffer[i % N_BUFFER].address,
                       .from  = (char *)g->host->address + i * PIECE,
                       .bytes = piece_bytes(g, i)};
        weft_pool_run(g->pool, (c.bytes + SLICE - 1) / SLICE, copy_slice, &c);
        WEFT_TRY(issue(g, i, false));
        weft_failpoint("snapshot.piece_up");
    }
    return await_pieces(g, n);
}

static weft_status run_staged(staging *g, bool down)
{
    weft_status st   = WEFT_OK;
    int64_t     size = g->device->bytes < PIECE ? g->device->bytes : PIECE;
    int64_t     n    = (g->device->bytes + PIECE - 1) / PIECE;
    for (int k = 0; k < N_BUFFER; k++)
        WEFT_GO(weft_device_alloc(g->owner, WEFT_SPACE_PINNED, size, &g->buffer[k]));
    WEFT_GO(g->owner->event_open(g->owner, 1, &g->copied));
    if (!down && n > N_BUFFER) {
        int cores = weft_pool_cores();
        if (weft_pool_create(cores < THREADS ? cores : THREADS, 0, &g->pool) != WEFT_OK)
            g->pool = NULL; /* one thread copies, too */
    }
    WEFT_GO(down ? copy_down(g, n) : copy_up(g, n));
out:
    if (st != WEFT_OK) { /* what was given to the device still uses the buffers */
        weft_status finished = g->owner->finish(g->stream);
        (void)finished;
    }
    weft_pool_destroy(g->pool);
    if (g->copied.impl) g->owner->event_close(&g->copied);
    for (int k = 0; k < N_BUFFER; k++) weft_device_free(&g->buffer[k]);
    return st;
}

weft_status weft_state_copy_staged(const weft_state *from, weft_state *to,
                                   weft_stream *stream, const _Atomic bool *stop)
{
    const weft_memory *a = weft_state_memory(from), *b = weft_state_memory(to);
    bool               down = !weft_memory_host(a);
    weft_stream        own  = {0};
    if (a->bytes != b->bytes || !a->bytes || down == !weft_memory_host(b) ||
        weft_state_host_memory(from)->bytes) {
        WEFT_TRY(weft_state_copy(from, to, stream));
        return stream ? weft_stream_wait(stream) : WEFT_OK;
    }
    weft_device *d = down ? a->device : b->device;
    if (!stream) WEFT_TRY(d->stream_open(d, "copy", &own));
    staging     g  = {.device = down ? a : b,
                      .host   = down ? b : a,
                      .owner  = d,
                      .stream = stream ? stream : &own,
                      .stop   = stop};
    weft_status st = run_staged(&g, down);
    if (!stream) d->stream_close(&own);
    if (st == WEFT_OK) weft_state_set_step(to, weft_state_step(from));
    return st;
}
