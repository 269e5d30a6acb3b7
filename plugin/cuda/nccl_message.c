/* Messages by NCCL.
 *
 * ncclSend ends when its receiver has come, but the schedule of a pipeline counts on credits
 * messages that may wait unreceived (weft_instr.credits).  So a send copies the message to a slot,
 * and a branch of the stream sends slots in their order; a slot is filled again after its last
 * message has gone.  A receive is an ncclRecv in the order of its stream.
 *
 * NCCL connects two ranks in the first call between them, in which the host of each waits for the
 * other: that is one of its own, where the channel is opened and both are there. */
#include <stdlib.h>

#include "nccl.h"

enum {
    NO_TIMING  = 2, /* CU_EVENT_DISABLE_TIMING */
    SLOT_ALIGN = 256
};

static weft_status open_slots(weft_device_group *g, int n)
{
    weft_device *d = g->end->device;
    g->slot        = calloc((size_t)n, sizeof *g->slot);
    if (!g->slot) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    WEFT_TRY(d->alloc(d, WEFT_SPACE_DEVICE, n * g->slot_bytes, &g->ring));
    g->end->bytes += g->ring.bytes;
    for (; g->n_slot < n; g->n_slot++)
        CU_TRY(EventCreate, &g->slot[g->n_slot].sent, NO_TIMING);
    return WEFT_OK;
}

weft_status weft_cuda_nccl_open_channel(weft_device_group            *g,
                                        const weft_device_group_spec *spec)
{
    g->slot_bytes = (spec->bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
    CU_TRY(EventCreate, &g->filled, NO_TIMING);
    WEFT_TRY(weft_cuda_branch_open(weft_cuda_gpu_of(g->end->device), &g->branch));
    return g->me == 0 ? open_slots(g, spec->credits > 1 ? spec->credits : 1) : WEFT_OK;
}

static weft_status connect_locked(weft_device_group *g)
{
    const weft_cuda_nccl *l  = weft_cuda_nccl_get();
    void                 *at = g->stop_copy.address; /* unused in a channel */
    weft_cuda_handle      on = g->branch.stream;
    size_t                n  = sizeof *g->aborted;
    WEFT_TRY(g->me
                 ? weft_cuda_nccl_settle(g, l->recv(at, n, WEFT_NCCL_U8, 0, g->comm, on),
                                         "the first ncclRecv")
                 : weft_cuda_nccl_settle(g, l->send(at, n, WEFT_NCCL_U8, 1, g->comm, on),
                                         "the first ncclSend"));
    CU_TRY(EventRecord, g->filled, on);
    return weft_cuda_nccl_wait(g, g->filled, "the first message");
}

weft_status weft_cuda_nccl_connect_channel(weft_device_group *g)
{
    pthread_mutex_lock(&g->lock);
    weft_status st = connect_locked(g);
    pthread_mutex_unlock(&g->lock);
    return st;
}

/* Of a group that is none: nothing. */
void weft_cuda_nccl_close_channel(weft_device_group *g)
{
    weft_device *d = g->end->device;
    weft_cuda_branch_close(weft_cuda_gpu_of(d), &g->branch);
    for (int k = 0; k < g->n_slot; k++) weft_cuda_cu.EventDestroy(g->slot[k].sent);
    if (g->filled) weft_cuda_cu.EventDestroy(g->filled);
    g->end->bytes -= g->ring.bytes;
    if (g->ring.address) d->free(d, &g->ring);
    free(g->slot);
}

weft_status weft_cuda_nccl_prepare_message(weft_device_group *g, weft_comm_side side,
                                           const weft_memory *at, const char *name,
                                           weft_device_call **out)
{
    weft_device_call *c = calloc(1, sizeof *c);
    if (!c) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *c = (weft_device_call){.g = g, .is_message = true, .at = *at};
    if (side != (g->me ? WEFT_COMM_RECV : WEFT_COMM_SEND) || at->bytes > g->slot_bytes) {
        free(c);
        return WEFT_FAIL(WEFT_ERR_ARG, "nccl: a message of %lld bytes, slots have %lld",
                         (long long)at->bytes, (long long)g->slot_bytes);
    }
    weft_status st = weft_device_names_add_message(&g->names, side, name, &c->number);
    if (st == WEFT_OK)
        *out = c;
    else
        free(c);
    return st;
}

/* A wait for a record of another capture is none: streams and branches were idle in between. */
static weft_status wait_for_slot(weft_cuda_gpu *gpu, const nccl_slot *slot,
                                 weft_cuda_handle stream)
{
    if (!slot->used || slot->capture != gpu->capture) return WEFT_OK;
    CU_TRY(StreamWaitEvent, stream, slot->sent, 0);
    return WEFT_OK;
}

static weft_status send_locked(weft_device_call *c, weft_cuda_handle stream,
                               int64_t number)
{
    weft_device_group *g    = c->g;
    weft_cuda_gpu     *gpu  = weft_cuda_gpu_of(g->end->device);
    int64_t            k    = number % g->n_slot;
    nccl_slot         *slot = &g->slot[k];
    char              *at   = (char *)g->ring.address + k * g->slot_bytes;
    WEFT_TRY(wait_for_slot(gpu, slot, stream));
    CU_TRY(MemcpyAsync, (weft_cuda_ptr)(uintptr_t)at,
           (weft_cuda_ptr)(uintptr_t)c->at.address, (size_t)c->at.bytes, stream);
    WEFT_TRY(weft_cuda_branch_fork(gpu, &g->branch, stream, g->filled));
    WEFT_TRY(weft_cuda_nccl_write_progress(c, g->branch.stream, false));
    WEFT_TRY(weft_cuda_nccl_settle(g,
                                   weft_cuda_nccl_get()->send(at, (size_t)c->at.bytes,
                                                              WEFT_NCCL_U8, 1, g->comm,
                                                              g->branch.stream),
                                   "ncclSend"));
    WEFT_TRY(weft_cuda_nccl_write_progress(c, g->branch.stream, true));
    CU_TRY(EventRecord, slot->sent, g->branch.stream);
    slot->used    = true;
    slot->capture = gpu->capture;
    return WEFT_OK;
}

static weft_status receive_locked(weft_device_call *c, weft_cuda_handle stream)
{
    WEFT_TRY(weft_cuda_nccl_write_progress(c, stream, false));
    WEFT_TRY(weft_cuda_nccl_settle(
        c->g,
        weft_cuda_nccl_get()->recv(c->at.address, (size_t)c->at.bytes, WEFT_NCCL_U8, 0,
                                   c->g->comm, stream),
        "ncclRecv"));
    return weft_cuda_nccl_write_progress(c, stream, true);
}

weft_status weft_cuda_nccl_run_message(weft_device_call *c, weft_stream *s,
                                       int64_t number)
{
    weft_device_group *g      = c->g;
    weft_cuda_handle   stream = weft_cuda_stream_of(s);
    weft_status        st;
    pthread_mutex_lock(&g->lock);
    if (!g->comm || g->stop)
        st = weft_cuda_nccl_ended(g);
    else
        st = g->me ? receive_locked(c, stream) : send_locked(c, stream, number);
    pthread_mutex_unlock(&g->lock);
    return st;
}
