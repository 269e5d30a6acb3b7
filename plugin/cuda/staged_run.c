/* A call of the backend "staged", issued on its stream and two branches of it. */
#include "ops/sum_terms.h"
#include "staged.h"

enum {
    WAIT_AND = 2 /* CU_STREAM_WAIT_VALUE_AND: a bit of it is set */
};

/* A call while it is issued. */
typedef struct staged_issue {
    const weft_device_call *c;
    weft_device_group      *g;
    weft_cuda_handle        stream;
    weft_kernel_ctx         ctx;
    int                     first_slot;
    const uint32_t         *stop; /* the device's copy of aborted */
} staged_issue;

static weft_cuda_ptr ptr_of(const void *p)
{
    return (weft_cuda_ptr)(uintptr_t)p;
}

/* One stream goes on after what another has so far. */
static weft_status order(weft_cuda_handle event, weft_cuda_handle from,
                         weft_cuda_handle to)
{
    CU_TRY(EventRecord, event, from);
    CU_TRY(StreamWaitEvent, to, event, 0);
    return WEFT_OK;
}

static weft_status send_piece(const staged_issue *x, const staged_step *p)
{
    const weft_device_group *g    = x->g;
    int                      slot = x->first_slot + p->slot;
    weft_cuda_ptr            flag =
        g->shared_at + (weft_cuda_ptr)weft_cuda_staged_flag(g, g->me, p->peer, slot);
    weft_cuda_ptr at =
        g->shared_at + (weft_cuda_ptr)weft_cuda_staged_slot(g, g->me, p->peer, slot);
    CU_TRY(StreamWaitValue, g->out.stream, flag, STAGED_EMPTY, WAIT_AND);
    CU_TRY(MemcpyAsync, at, ptr_of(p->from), (size_t)p->bytes, g->out.stream);
    CU_TRY(StreamWriteValue, g->out.stream, flag, STAGED_FULL, 0);
    return WEFT_OK;
}

/* Behind everything that `in` has so far. */
static weft_status copy_flag(const staged_issue *x)
{
    CU_TRY(MemcpyAsync, ptr_of(x->stop), x->g->shared_at, STAGED_STOP, x->g->in.stream);
    return WEFT_OK;
}

/* The flag comes before the write: a kernel behind a write starts sooner than one behind a copy. */
static weft_status receive_piece(const staged_issue *x, const staged_step *p)
{
    const weft_device_group *g    = x->g;
    int                      slot = x->first_slot + p->slot;
    weft_cuda_ptr            flag =
        g->shared_at + (weft_cuda_ptr)weft_cuda_staged_flag(g, p->peer, g->me, slot);
    weft_cuda_ptr at =
        g->shared_at + (weft_cuda_ptr)weft_cuda_staged_slot(g, p->peer, g->me, slot);
    CU_TRY(StreamWaitValue, g->in.stream, flag, STAGED_FULL, WAIT_AND);
    CU_TRY(MemcpyAsync, ptr_of(p->to), at, (size_t)p->bytes, g->in.stream);
    if (p->stops) WEFT_TRY(copy_flag(x));
    CU_TRY(StreamWriteValue, g->in.stream, flag, STAGED_EMPTY, 0);
    return WEFT_OK;
}

static weft_status meet(const staged_issue *x, const staged_step *p)
{
    const weft_device_group *g = x->g;
    if (p->stops) WEFT_TRY(copy_flag(x));
    WEFT_TRY(order(g->arrived, g->in.stream, x->stream));
    return order(g->left, g->out.stream, x->stream);
}

static weft_status copy_piece(const staged_issue *x, const staged_step *p)
{
    weft_cuda_peer_message_args m = {x->stop, p->from, p->to, p->bytes};
    int64_t                     blocks =
        (p->bytes + WEFT_CUDA_PEER_COPY_BLOCK - 1) / WEFT_CUDA_PEER_COPY_BLOCK;
    return weft_cuda_launch(&x->ctx, WEFT_CUDA_peer_message,
                            (weft_cuda_grid){(unsigned)blocks, 1, 1, 256, 0}, &m);
}

static weft_status issue_step(const staged_issue *x, const staged_step *p)
{
    weft_device_group *g     = x->g;
    weft_cuda_handle   freed = g->freed[p->round % STAGED_ROUNDS];
    switch (p->kind) {
    case STAGED_BEGIN:
        if (p->round >= STAGED_ROUNDS) CU_TRY(StreamWaitEvent, g->in.stream, freed, 0);
        return WEFT_OK;
    case STAGED_SEND: return send_piece(x, p);
    case STAGED_RECEIVE: return receive_piece(x, p);
    case STAGED_MEET: return meet(x, p);
    case STAGED_SUM:
        return weft_cuda_sum_terms(&x->ctx, x->c->dtype, x->c->n_term, p->term,
                                   x->c->level, p->to,
                                   p->bytes / weft_dtype_bytes(x->c->dtype), x->stop);
    case STAGED_COPY: return copy_piece(x, p);
    case STAGED_END: CU_TRY(EventRecord, freed, x->stream); return WEFT_OK;
    case STAGED_TURN: return order(g->left, x->stream, g->out.stream);
    }
    return WEFT_OK;
}

static weft_status write_progress(const staged_issue *x, uint32_t ends)
{
    weft_cuda_ptr word = x->g->shared_at + (weft_cuda_ptr)weft_cuda_staged_word(x->g->me);
    CU_TRY(StreamWriteValue, x->stream, word, 2 * x->c->number + 1 + ends, 0);
    return WEFT_OK;
}

weft_status weft_cuda_staged_run(weft_device_call *c, weft_stream *s, int64_t number)
{
    weft_device_group *g   = c->g;
    weft_cuda_gpu     *gpu = weft_cuda_gpu_of(g->end->dc->device);
    staged_issue       x   = {.c         = c,
                              .g         = g,
                              .stream    = weft_cuda_stream_of(s),
                              .ctx.queue = s->impl,
                              .stop      = g->ring.address};
    if (c->is_message) x.first_slot = (int)(number % g->credits) * g->n_piece;
    WEFT_TRY(write_progress(&x, 0));
    WEFT_TRY(weft_cuda_branch_fork(gpu, &g->out, x.stream, g->left));
    WEFT_TRY(weft_cuda_branch_fork(gpu, &g->in, x.stream, g->arrived));
    for (int k = 0; k < c->n_step; k++) WEFT_TRY(issue_step(&x, &c->step[k]));
    WEFT_TRY(order(g->left, g->out.stream, x.stream));
    return write_progress(&x, 1);
}
