/* Calls of a group by NCCL.
 *
 *     sums in our order     every term's slices to their owners (grouped sends and receives), which
 *                           add them by the tree in one kernel; all_reduce: and send the sums to
 *                           all
 *     sums in any order     own terms added here, then ncclAllReduce or ncclReduceScatter
 *     rows                  their table is read by the host, which then knows all runs
 *     all else              moves bytes
 *
 * Several tensors go in one group of NCCL calls.  Where slices have unlike sizes, which NCCL's
 * collectives do not know, sends and receives do it; the choice depends on sizes alone, so it is
 * the same at all members. */
#include <stdlib.h>
#include <string.h>

#include "nccl.h"
#include "ops/sum_terms.h"

enum {
    SLICE_ELEMENTS = 128, /* slices of an all_reduce begin at multiples */
    STAGE_ALIGN    = 256
};

/* What a call is while it is issued. */
typedef struct issue {
    const weft_device_call *c;
    weft_device_group      *g;
    const weft_cuda_nccl   *l;
    weft_kernel_ctx         ctx; /* its queue */
    void                   *stream;
    int64_t                 size; /* of an element */
    weft_comm_rows          rows; /* with the host's copy of the table */
    int                     code; /* the first that is not fine */
    const char             *what;
} issue;

bool weft_cuda_nccl_takes(weft_collective kind, weft_dtype t)
{
    switch (kind) {
    case WEFT_ALL_REDUCE:
    case WEFT_REDUCE_SCATTER: return t == WEFT_DTYPE_F32 || t == WEFT_DTYPE_BF16;
    case WEFT_ALL_GATHER:
    case WEFT_ALL_TO_ALL:
    case WEFT_BROADCAST:
    case WEFT_SHIFT:
    case WEFT_SEND_ROWS:
    case WEFT_RETURN_ROWS: return true;
    default: return false; /* barriers are the host's */
    }
}

/* ---- sizes ---- */

static int64_t share_at(const weft_device_call *c, const weft_comm_part *p, int k)
{
    int n = c->g->n;
    if (c->call.kind == WEFT_ALL_REDUCE)
        return weft_comm_share_at(p->count, SLICE_ELEMENTS, n, k);
    if (p->unit) return weft_comm_share_at(p->count, p->unit, n, k);
    return c->call.kind == WEFT_ALL_GATHER ? k * p->count : p->count / n * k;
}

static int64_t share_count(const weft_device_call *c, const weft_comm_part *p, int k)
{
    return share_at(c, p, k + 1) - share_at(c, p, k);
}

static bool has_equal_shares(const weft_device_call *c, const weft_comm_part *p)
{
    for (int k = 1; k < c->g->n; k++)
        if (share_count(c, p, k) != share_count(c, p, 0)) return false;
    return true;
}

static int64_t round_up(int64_t bytes)
{
    return (bytes + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
}

/* A slice of a term that comes from another rank; all of a tensor, where own terms are added
 * first. */
static int64_t slot_bytes(const weft_device_call *c, const weft_comm_part *p)
{
    int64_t n = c->by_nccl ? p->count : share_count(c, p, c->g->me);
    return round_up(n * weft_dtype_bytes(c->call.dtype));
}

static int64_t stage_bytes(const weft_device_call *c)
{
    int64_t bytes = 0;
    int     slots = c->by_nccl ? c->n_own > 1 : c->terms->n - c->n_own;
    for (int i = 0; i < c->n_part; i++) bytes += slots * slot_bytes(c, &c->part[i]);
    return bytes;
}

/* ---- before the first step ---- */

static weft_status find_terms(weft_device_call *c)
{
    weft_comm_lanes lanes = {c->call.n_lane ? c->call.n_lane : 0, c->part[0].stride,
                             c->call.lane_share};
    c->terms              = calloc(1, sizeof *c->terms);
    if (!c->terms) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    if (c->call.n_lane) {
        WEFT_TRY(weft_comm_terms_of(&lanes, c->g->n, c->terms));
    } else {
        c->terms->n = c->g->n;
        for (int k = 0; k < c->g->n; k++) c->terms->who[k] = k;
    }
    while (c->terms->who[c->first_own] != c->g->me) c->first_own++;
    while (c->first_own + c->n_own < c->terms->n &&
           c->terms->who[c->first_own + c->n_own] == c->g->me)
        c->n_own++;
    return WEFT_OK;
}

/* NCCL's own sums know equal shares. */
static bool sums_by_nccl(const weft_device_call *c)
{
    bool equal = c->g->any_order;
    for (int i = 0; i < c->n_part && c->call.kind == WEFT_REDUCE_SCATTER; i++)
        equal = equal && has_equal_shares(c, &c->part[i]);
    return equal;
}

static bool is_sum(const weft_device_call *c)
{
    return c->call.kind == WEFT_ALL_REDUCE || c->call.kind == WEFT_REDUCE_SCATTER;
}

static weft_status reserve_stage(weft_device_group *g, int64_t bytes)
{
    weft_device *d = g->end->device;
    if (bytes <= g->stage.bytes) return WEFT_OK;
    if (g->stage.address) d->free(d, &g->stage);
    g->end->bytes -= g->stage.bytes;
    g->stage = (weft_memory){0};
    WEFT_TRY(d->alloc(d, WEFT_SPACE_DEVICE, bytes, &g->stage));
    g->end->bytes += bytes;
    return WEFT_OK;
}

static bool has_rows(const weft_device_call *c)
{
    return c->call.kind == WEFT_SEND_ROWS || c->call.kind == WEFT_RETURN_ROWS;
}

static weft_status reserve_table(weft_device_call *c)
{
    weft_device *d     = c->g->end->device;
    int64_t      bytes = c->g->n * (int64_t)(c->call.rows.n_bin + 1) * 4;
    WEFT_TRY(d->alloc(d, WEFT_SPACE_PINNED, bytes, &c->table_memory));
    c->table = c->table_memory.address;
    return WEFT_OK;
}

static weft_status fill_call(weft_device_call *c, const weft_comm_call *call)
{
    c->n_part = call->n_part ? call->n_part : 1;
    c->part   = calloc((size_t)c->n_part, sizeof *c->part);
    if (!c->part) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    memcpy(c->part, call->n_part ? call->part : &call->tensor,
           (size_t)c->n_part * sizeof *c->part);
    if (has_rows(c)) return reserve_table(c);
    if (!is_sum(c)) return WEFT_OK;
    WEFT_TRY(find_terms(c));
    c->by_nccl = sums_by_nccl(c);
    return reserve_stage(c->g, stage_bytes(c));
}

weft_status weft_cuda_nccl_prepare(weft_device_group *g, const weft_comm_call *call,
                                   const char *name, weft_device_call **out)
{
    weft_device_call *c = calloc(1, sizeof *c);
    if (!c) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *c             = (weft_device_call){.g = g, .call = *call};
    weft_status st = fill_call(c, call);
    if (st == WEFT_OK)
        st = weft_device_names_add(&g->names, call->kind, name, &c->number);
    if (st != WEFT_OK)
        weft_cuda_nccl_release(c);
    else
        *out = c;
    return st;
}

void weft_cuda_nccl_release(weft_device_call *c)
{
    if (!c) return;
    weft_device *d = c->g->end->device;
    if (c->table) d->free(d, &c->table_memory);
    free(c->terms);
    free(c->part);
    free(c);
}

/* ---- pieces that are issued ---- */

static void note_code(issue *x, int code, const char *what)
{
    if (x->code && x->code != WEFT_NCCL_IN_PROGRESS) return;
    if (code) x->code = code;
    x->what = what;
}

static void send_bytes(issue *x, const void *p, int64_t count, int peer)
{
    if (!count) return;
    note_code(x,
              x->l->send(p, (size_t)(count * x->size), WEFT_NCCL_U8, peer, x->g->comm,
                         x->stream),
              "ncclSend");
}

static void receive_bytes(issue *x, void *p, int64_t count, int peer)
{
    if (!count) return;
    note_code(x,
              x->l->recv(p, (size_t)(count * x->size), WEFT_NCCL_U8, peer, x->g->comm,
                         x->stream),
              "ncclRecv");
}

static void begin_group(issue *x)
{
    note_code(x, x->l->group_start(), "ncclGroupStart");
}

static weft_status end_group(issue *x)
{
    note_code(x, x->l->group_end(), "ncclGroupEnd");
    weft_status st = weft_cuda_nccl_settle(x->g, x->code, x->what);
    x->code        = 0;
    return st;
}

static char *element(const issue *x, const void *p, int64_t at)
{
    return (char *)(uintptr_t)p + at * x->size;
}

static weft_status copy_bytes(const issue *x, void *to, const void *from, int64_t count)
{
    if (to == from || !count) return WEFT_OK;
    CU_TRY(MemcpyAsync, (weft_cuda_ptr)(uintptr_t)to, (weft_cuda_ptr)(uintptr_t)from,
           (size_t)(count * x->size), x->stream);
    return WEFT_OK;
}

/* Each block of a kernel reads it: not over PCIe. */
static weft_status copy_stop(const issue *x)
{
    CU_TRY(MemcpyAsync, (weft_cuda_ptr)(uintptr_t)x->g->stop_copy.address,
           (weft_cuda_ptr)(uintptr_t)x->g->aborted, sizeof *x->g->aborted, x->stream);
    return WEFT_OK;
}

/* ---- sums ---- */

/* Own term i of a part. */
static char *own_term(const issue *x, const weft_comm_part *p, int i)
{
    return element(x, p->in, x->c->terms->which[x->c->first_own + i] * p->stride);
}

static bool is_own(const weft_device_call *c, int term)
{
    return c->terms->who[term] == c->g->me;
}

/* Slices to their owners, own ones from the others: into the stage, term by term. */
static void exchange_part(issue *x, const weft_comm_part *p, char *stage)
{
    const weft_device_call *c    = x->c;
    int64_t                 slot = slot_bytes(c, p), mine = share_count(c, p, c->g->me);
    for (int k = 0; k < c->g->n; k++)
        for (int i = 0; i < c->n_own && k != c->g->me; i++)
            send_bytes(x, own_term(x, p, i) + share_at(c, p, k) * x->size,
                       share_count(c, p, k), k);
    for (int t = 0; t < c->terms->n; t++) {
        if (is_own(c, t)) continue;
        receive_bytes(x, stage, mine, c->terms->who[t]);
        stage += slot;
    }
}

/* Where the sum of this position goes. */
static char *sum_place(const issue *x, const weft_comm_part *p)
{
    bool all = x->c->call.kind == WEFT_ALL_REDUCE;
    return element(x, p->out, all ? share_at(x->c, p, x->g->me) : 0);
}

static weft_status add_part(const issue *x, const weft_comm_part *p, const char *stage)
{
    const weft_device_call *c    = x->c;
    int64_t                 slot = slot_bytes(c, p);
    const void             *in[WEFT_COMM_MAX_TERM];
    for (int t = 0, own = 0; t < c->terms->n; t++) {
        if (is_own(c, t)) {
            in[t] = own_term(x, p, own++) + share_at(c, p, c->g->me) * x->size;
        } else {
            in[t] = stage;
            stage += slot;
        }
    }
    return weft_cuda_sum_terms(&x->ctx, c->call.dtype, c->terms->n, in, c->terms->level,
                               sum_place(x, p), share_count(c, p, c->g->me),
                               x->g->stop_copy.address);
}

static void gather_part(issue *x, const weft_comm_part *p)
{
    const weft_device_call *c  = x->c;
    int                     me = c->g->me;
    char                   *at = element(x, p->out, share_at(c, p, me));
    if (has_equal_shares(c, p)) {
        note_code(x,
                  x->l->all_gather(at, p->out, (size_t)(share_count(c, p, 0) * x->size),
                                   WEFT_NCCL_U8, x->g->comm, x->stream),
                  "ncclAllGather");
        return;
    }
    for (int k = 0; k < c->g->n; k++) {
        if (k == me) continue;
        send_bytes(x, at, share_count(c, p, me), k);
        receive_bytes(x, element(x, p->out, share_at(c, p, k)), share_count(c, p, k), k);
    }
}

static weft_status gather_parts(issue *x)
{
    begin_group(x);
    for (int i = 0; i < x->c->n_part; i++) gather_part(x, &x->c->part[i]);
    return end_group(x);
}

static weft_status sum_in_order(issue *x)
{
    const weft_device_call *c     = x->c;
    char                   *stage = x->g->stage.address;
    int                     away  = c->terms->n - c->n_own;
    begin_group(x);
    for (int i = 0; i < c->n_part; i++) {
        exchange_part(x, &c->part[i], stage);
        stage += away * slot_bytes(c, &c->part[i]);
    }
    WEFT_TRY(end_group(x));
    WEFT_TRY(copy_stop(x));
    stage = x->g->stage.address;
    for (int i = 0; i < c->n_part; i++) {
        WEFT_TRY(add_part(x, &c->part[i], stage));
        stage += away * slot_bytes(c, &c->part[i]);
    }
    return c->call.kind == WEFT_ALL_REDUCE ? gather_parts(x) : WEFT_OK;
}

static int nccl_type(weft_dtype t)
{
    return t == WEFT_DTYPE_BF16 ? WEFT_NCCL_BF16 : WEFT_NCCL_F32;
}

/* One term of this position; *in: where it is. */
static weft_status add_own(const issue *x, const weft_comm_part *p, char *stage,
                           const void **in)
{
    const weft_device_call *c = x->c;
    const void             *term[WEFT_COMM_MAX_TERM];
    for (int i = 0; i < c->n_own; i++) term[i] = own_term(x, p, i);
    *in = c->n_own > 1 ? stage : p->in;
    if (c->n_own < 2) return WEFT_OK;
    return weft_cuda_sum_terms(&x->ctx, c->call.dtype, c->n_own, term,
                               c->terms->level + c->first_own, stage, p->count,
                               x->g->stop_copy.address);
}

static weft_status sum_by_nccl(issue *x)
{
    const weft_device_call *c    = x->c;
    int                     type = nccl_type(c->call.dtype);
    char                   *at   = x->g->stage.address;
    const void             *in;
    if (c->n_own > 1) WEFT_TRY(copy_stop(x));
    for (int i = 0; i < c->n_part; i++) {
        WEFT_TRY(add_own(x, &c->part[i], at, &in));
        if (c->n_own > 1) at += slot_bytes(c, &c->part[i]);
    }
    at = x->g->stage.address;
    begin_group(x);
    for (int i = 0; i < c->n_part; i++) {
        const weft_comm_part *p = &c->part[i];
        in                      = c->n_own > 1 ? at : p->in;
        if (c->n_own > 1) at += slot_bytes(c, p);
        note_code(x,
                  c->call.kind == WEFT_ALL_REDUCE
                      ? x->l->all_reduce(in, p->out, (size_t)p->count, type,
                                         WEFT_NCCL_SUM, x->g->comm, x->stream)
                      : x->l->reduce_scatter(in, p->out, (size_t)share_count(c, p, 0),
                                             type, WEFT_NCCL_SUM, x->g->comm, x->stream),
                  "ncclAllReduce or ncclReduceScatter");
    }
    return end_group(x);
}

/* ---- moves ---- */

static weft_status all_gather(issue *x)
{
    const weft_device_call *c = x->c;
    for (int i = 0; i < c->n_part; i++) {
        const weft_comm_part *p = &c->part[i];
        WEFT_TRY(copy_bytes(x, element(x, p->out, share_at(c, p, c->g->me)), p->in,
                            share_count(c, p, c->g->me)));
    }
    return gather_parts(x);
}

static weft_status all_to_all(issue *x)
{
    const weft_comm_part *p = x->c->part;
    int64_t               n = p->count / x->g->n;
    WEFT_TRY(copy_bytes(x, element(x, p->out, x->g->me * n),
                        element(x, p->in, x->g->me * n), n));
    begin_group(x);
    for (int k = 0; k < x->g->n; k++) {
        if (k == x->g->me) continue;
        send_bytes(x, element(x, p->in, k * n), n, k);
        receive_bytes(x, element(x, p->out, k * n), n, k);
    }
    return end_group(x);
}

static weft_status shift(issue *x)
{
    const weft_comm_part *p = x->c->part;
    begin_group(x);
    send_bytes(x, p->in, p->count, (x->g->me + 1) % x->g->n);
    receive_bytes(x, p->out, p->count, (x->g->me + x->g->n - 1) % x->g->n);
    return end_group(x);
}

static weft_status broadcast(issue *x)
{
    const weft_comm_part *p = x->c->part;
    note_code(x,
              x->l->broadcast(x->g->me ? p->out : p->in, p->out,
                              (size_t)(p->count * x->size), WEFT_NCCL_U8, 0, x->g->comm,
                              x->stream),
              "ncclBroadcast");
    return weft_cuda_nccl_settle(x->g, x->code, x->what);
}

/* ---- rows ---- */

/* The host waits for the table, before the lock is taken. */
static weft_status read_table(issue *x, weft_comm_rows *rows)
{
    const weft_device_call *c = x->c;
    *rows                     = c->call.rows;
    CU_TRY(MemcpyAsync, (weft_cuda_ptr)(uintptr_t)c->table,
           (weft_cuda_ptr)(uintptr_t)rows->table, (size_t)c->table_memory.bytes,
           x->stream);
    CU_TRY(StreamSynchronize, x->stream);
    rows->table = c->table;
    return weft_comm_check_rows(rows, x->g->n, c->call.kind, x->g->me);
}

static weft_status move_rows(issue *x)
{
    const weft_comm_part *p   = x->c->part;
    int                   me  = x->g->me;
    weft_comm_row_run     run = {.home = -1};
    x->size                   = 1; /* of bytes from here on */
    begin_group(x);
    while (weft_comm_next_run(&x->rows, x->g->n, &run)) {
        weft_comm_way w =
            weft_comm_way_of(&x->rows, x->c->call.kind, x->c->call.dtype, &run);
        if (w.from == me && w.to != me)
            send_bytes(x, element(x, p->in, w.in), w.bytes, w.to);
        if (w.to == me && w.from != me)
            receive_bytes(x, element(x, p->out, w.out), w.bytes, w.from);
    }
    WEFT_TRY(end_group(x));
    for (run = (weft_comm_row_run){.home = -1};
         weft_comm_next_run(&x->rows, x->g->n, &run);) {
        weft_comm_way w =
            weft_comm_way_of(&x->rows, x->c->call.kind, x->c->call.dtype, &run);
        if (w.from == me && w.to == me)
            WEFT_TRY(copy_bytes(x, element(x, p->out, w.out), element(x, p->in, w.in),
                                w.bytes));
    }
    return WEFT_OK;
}

/* ---- run ---- */

weft_status weft_cuda_nccl_write_progress(const weft_device_call *c,
                                          weft_cuda_handle stream, bool ends)
{
    CU_TRY(StreamWriteValue, stream, (weft_cuda_ptr)(uintptr_t)c->g->progress,
           2 * c->number + 1 + ends, 0);
    return WEFT_OK;
}

static weft_status issue_call(issue *x)
{
    switch (x->c->call.kind) {
    case WEFT_ALL_REDUCE:
    case WEFT_REDUCE_SCATTER: return x->c->by_nccl ? sum_by_nccl(x) : sum_in_order(x);
    case WEFT_ALL_GATHER: return all_gather(x);
    case WEFT_ALL_TO_ALL: return all_to_all(x);
    case WEFT_SHIFT: return shift(x);
    case WEFT_SEND_ROWS:
    case WEFT_RETURN_ROWS: return move_rows(x);
    default: return broadcast(x);
    }
}

static weft_status issue_locked(issue *x)
{
    if (!x->g->comm || x->g->stop) return weft_cuda_nccl_ended(x->g);
    WEFT_TRY(weft_cuda_nccl_write_progress(x->c, x->stream, false));
    WEFT_TRY(issue_call(x));
    return weft_cuda_nccl_write_progress(x->c, x->stream, true);
}

weft_status weft_cuda_nccl_run(weft_device_call *c, weft_stream *s, int64_t number)
{
    if (c->is_message) return weft_cuda_nccl_run_message(c, s, number);
    issue x = {.c         = c,
               .g         = c->g,
               .l         = weft_cuda_nccl_get(),
               .ctx.queue = s->impl,
               .stream    = weft_cuda_stream_of(s),
               .size      = weft_dtype_bytes(c->call.dtype)};
    if (has_rows(c)) WEFT_TRY(read_table(&x, &x.rows));
    pthread_mutex_lock(&c->g->lock);
    weft_status st = issue_locked(&x);
    pthread_mutex_unlock(&c->g->lock);
    return st;
}
