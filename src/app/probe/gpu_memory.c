/* What moves bytes: our kernels over memory, copies within the device, to the host and to other
 * GPUs; and the start of a kernel that does nothing. */
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "probe/gpu_priv.h"

enum {
    N_LAUNCH   = 400, /* a driver queues about a thousand */
    N_THREAD   = 256,
    VECTOR     = 16, /* bytes of a thread at a time */
    LEAST_PEER = 128 << 20
};
#define SHORT_S 0.04
#define QUEUE_S 0.02 /* of work that runs while kernels are queued behind it */

/* ---- an empty kernel ---- */

static weft_status copy_half(void *arg, int i)
{
    weft_probe__bench *b    = arg;
    size_t             half = b->bytes / 2;
    WEFT_CUDA(b->c, Copy, b->area + (i & 1 ? half : 0), b->area + (i & 1 ? 0 : half),
              half, b->stream);
    return WEFT_OK;
}

static weft_status launch(weft_probe__bench *b, weft_cuda_handle f, unsigned grid,
                          void **args)
{
    WEFT_CUDA(b->c, LaunchKernel, f, grid, 1, 1, N_THREAD, 1, 1, 0, b->stream, args,
              NULL);
    return WEFT_OK;
}

/* They are issued while the device has other work, so that the host is not what is measured. */
weft_status weft_probe__time_launch(weft_probe__bench *b, weft_probe_gpu *g)
{
    const weft_probe__cuda *c = b->c;
    weft_cuda_handle        nothing;
    double                  copy_s, least = 1, issue = 1;
    float                   ms;
    WEFT_CUDA(c, ModuleGetFunction, &nothing, b->module, "nothing");
    WEFT_TRY(weft_probe__bench_time(b, copy_half, b, SHORT_S, &copy_s));
    g->copy_Bps = (double)b->bytes / copy_s;
    for (int round = 0; round < 4; round++) { /* the first loads it */
        WEFT_TRY(weft_probe__bench_hold(b, QUEUE_S));
        double start = weft_clock_s();
        WEFT_CUDA(c, EventRecord, b->from, b->stream);
        for (int i = 0; i < N_LAUNCH; i++) WEFT_TRY(launch(b, nothing, 1, NULL));
        WEFT_CUDA(c, EventRecord, b->to, b->stream);
        double host = (weft_clock_s() - start) / N_LAUNCH;
        WEFT_CUDA(c, EventSynchronize, b->to);
        WEFT_CUDA(c, EventElapsedTime, &ms, b->from, b->to);
        double s = 1e-3 * (double)ms / N_LAUNCH;
        if (s < least) least = s;
        if (host < issue) issue = host;
    }
    g->launch_s = b->launch_s = least;
    g->issue_s                = issue;
    return WEFT_OK;
}

/* ---- kernels over memory ---- */

typedef struct stream {
    weft_probe__bench *b;
    weft_cuda_handle   f;
    uint64_t           base, stride, count;
} stream;

static weft_status run_stream(void *arg, int i)
{
    stream *s       = arg;
    void   *args[3] = {&s->base, &s->stride, &s->count};
    (void)i;
    return launch(s->b, s->f, (unsigned)((s->count + N_THREAD - 1) / N_THREAD), args);
}

static weft_status time_stream(weft_probe__bench *b, const weft_probe__stream *k,
                               double *Bps)
{
    uint64_t each  = b->bytes / (uint64_t)k->n_read / VECTOR / N_THREAD;
    uint64_t count = (each < 1 << 20 ? each : 1 << 20) * N_THREAD; /* 4 GiB at most */
    stream   s     = {.b = b, .base = b->area, .stride = count * VECTOR, .count = count};
    double   t;
    WEFT_CUDA(b->c, ModuleGetFunction, &s.f, b->module, k->name);
    WEFT_TRY(weft_probe__bench_time(b, run_stream, &s, SHORT_S, &t));
    *Bps = (double)(count * VECTOR) * (k->n_read + k->n_write) /
           (t > 2 * b->launch_s ? t - b->launch_s : t);
    return WEFT_OK;
}

weft_status weft_probe__time_memory(weft_probe__bench *b, weft_probe_gpu *g)
{
    double *const Bps[WEFT_PROBE_N_STREAM] = {&g->read_Bps, &g->scale_Bps, &g->add_Bps,
                                              &g->update_Bps};
    for (int i = 0; i < WEFT_PROBE_N_STREAM; i++)
        WEFT_TRY(time_stream(b, &weft_probe__streams[i], Bps[i]));
    return WEFT_OK;
}

/* ---- wires ---- */

typedef struct move {
    weft_probe__bench *b;
    weft_cuda_handle   ctx; /* of the other GPU */
    weft_cuda_ptr      there;
    size_t             bytes;
} move;

static weft_status move_in(void *arg, int i)
{
    move *m = arg;
    (void)i;
    WEFT_CUDA(m->b->c, CopyIn, m->b->area, m->b->host, m->bytes, m->b->stream);
    return WEFT_OK;
}

static weft_status move_out(void *arg, int i)
{
    move *m = arg;
    (void)i;
    WEFT_CUDA(m->b->c, CopyOut, m->b->host, m->b->area, m->bytes, m->b->stream);
    return WEFT_OK;
}

static weft_status move_across(void *arg, int i)
{
    move *m = arg;
    (void)i;
    WEFT_CUDA(m->b->c, CopyPeer, m->there, m->ctx, m->b->area, m->b->ctx, m->bytes,
              m->b->stream);
    return WEFT_OK;
}

static weft_status time_wire(move *m, weft_probe__work work, size_t longest,
                             weft_probe_gpu_wire *out)
{
    double small, large;
    m->bytes = 64;
    WEFT_TRY(weft_probe__bench_time(m->b, work, m, SHORT_S / 4, &small));
    m->bytes = longest;
    WEFT_TRY(weft_probe__bench_time(m->b, work, m, SHORT_S, &large));
    if (!(large > small))
        return WEFT_FAIL(WEFT_ERR_IO, "64 bytes take as long as %zu MiB", longest >> 20);
    *out = (weft_probe_gpu_wire){small, (double)longest / (large - small)};
    return WEFT_OK;
}

weft_status weft_probe__time_host(weft_probe__bench *b, weft_probe_gpu *g)
{
    move m = {.b = b};
    WEFT_TRY(time_wire(&m, move_in, b->host_bytes, &g->up));
    return time_wire(&m, move_out, b->host_bytes, &g->down);
}

/* One other GPU; its memory is given back. */
static weft_status time_peer(weft_probe__bench *b, int other, weft_probe_gpu_wire *out)
{
    const weft_probe__cuda *c  = b->c;
    move                    m  = {.b = b};
    weft_status             st = WEFT_OK;
    int                     can;
    WEFT_CUDA(c, CanAccessPeer, &can, b->device, other);
    WEFT_CUDA(c, CtxRetain, &m.ctx, other);
    c->CtxSetCurrent(m.ctx);
    WEFT_GO(weft_probe__cuda_check(c, c->MemAlloc(&m.there, LEAST_PEER), "MemAlloc"));
    WEFT_GO(weft_probe__cuda_check(c, c->CtxSetCurrent(b->ctx), "CtxSetCurrent"));
    if (can) c->EnablePeer(m.ctx, 0); /* already so: as well */
    WEFT_GO(time_wire(&m, move_across, LEAST_PEER, out));
out:
    c->CtxSetCurrent(m.ctx);
    if (m.there) c->MemFree(m.there);
    c->CtxSetCurrent(b->ctx);
    c->CtxRelease(other);
    return st;
}

/* The slowest pair is what a collective waits for. */
weft_status weft_probe__time_peers(weft_probe__bench *b, weft_probe_gpu *g)
{
    for (int i = 1; i < g->n_device; i++) {
        weft_probe_gpu_wire w;
        WEFT_TRY(time_peer(b, g->device[i], &w));
        if (!(g->peer.Bps > 0) || w.Bps < g->peer.Bps) g->peer.Bps = w.Bps;
        if (w.alpha_s > g->peer.alpha_s) g->peer.alpha_s = w.alpha_s;
    }
    return WEFT_OK;
}
