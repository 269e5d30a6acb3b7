/* Calls of the backend "peer": what each member does of them, found once; then signals, waits and
 * one kernel. */
#include <stdlib.h>
#include <string.h>

#include "peer.h"

enum {
    SUM_UNIT   = 64, /* elements: runs of a sum begin at a multiple */
    WAIT_EQUAL = 1   /* CU_STREAM_WAIT_VALUE_EQ */
};

struct weft_device_call {
    weft_device_group *g;
    uint32_t           number; /* in its group */
    /* a collective */
    weft_cuda_kernel         kernel;
    weft_cuda_grid           grid;
    weft_cuda_peer_args      args;
    weft_cuda_peer_rows_args rows;
    uint32_t                 table; /* in the board */
    /* a message */
    bool        is_message;
    weft_memory at;
};

/* The device's address of a flag. */
static uint32_t *flag_at(const weft_device_group *g, const uint32_t *w)
{
    return (uint32_t *)(uintptr_t)(g->flags_at + (weft_cuda_ptr)((const char *)w -
                                                                 (const char *)g->flags));
}

/* ---- what a member does ---- */

/* While a call is prepared. */
typedef struct peer_plan {
    weft_device_group    *g;
    const weft_comm_call *call;
    bool                  sums;
    int64_t               size; /* bytes of an element */
    int                   n_part, n_work;
    weft_cuda_peer_part  *part;
    weft_cuda_peer_work  *work;
    int64_t               n_block;
} peer_plan;

bool weft_cuda_peer_takes(weft_collective kind, weft_dtype t)
{
    switch (kind) {
    case WEFT_ALL_REDUCE:
    case WEFT_REDUCE_SCATTER:
        return t == WEFT_DTYPE_F32 || t == WEFT_DTYPE_BF16 || t == WEFT_DTYPE_F64 ||
               t == WEFT_DTYPE_I32 || t == WEFT_DTYPE_U32 || t == WEFT_DTYPE_I64 ||
               t == WEFT_DTYPE_U64;
    case WEFT_ALL_GATHER:
    case WEFT_ALL_TO_ALL:
    case WEFT_BROADCAST:
    case WEFT_SHIFT:
    case WEFT_SEND_ROWS:
    case WEFT_RETURN_ROWS: return true;
    default: return false;
    }
}

static weft_status find_slab(const weft_device_group *g, const void *p, int32_t *slab,
                             int64_t *offset)
{
    for (int k = 0; k < g->n_slab; k++) {
        const char *first = g->slab[k].address;
        if ((const char *)p < first || (const char *)p >= first + g->slab[k].bytes)
            continue;
        *slab   = k;
        *offset = (const char *)p - first;
        return WEFT_OK;
    }
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "peer: a tensor is in no slab of the program");
}

static weft_status place_part(peer_plan *x, int k, const weft_comm_part *t)
{
    weft_cuda_peer_part *p = &x->part[k];
    *p                     = (weft_cuda_peer_part){.stride = t->stride * x->size};
    if (t->in) WEFT_TRY(find_slab(x->g, t->in, &p->in_slab, &p->in));
    if (t->out) WEFT_TRY(find_slab(x->g, t->out, &p->out_slab, &p->out));
    return WEFT_OK;
}

/* A run of elements. */
static void add_work(peer_plan *x, int part, int from, int to, int64_t in, int64_t out,
                     int64_t count)
{
    int64_t scale = x->sums ? 1 : x->size;
    int64_t block = x->sums ? WEFT_CUDA_PEER_SUM_BLOCK : WEFT_CUDA_PEER_COPY_BLOCK;
    if (count <= 0) return;
    x->work[x->n_work++] = (weft_cuda_peer_work){.first_block = x->n_block,
                                                 .in          = in * scale,
                                                 .out         = out * scale,
                                                 .count       = count * scale,
                                                 .part        = part,
                                                 .from        = from,
                                                 .to          = to};
    x->n_block += (count * scale + block - 1) / block;
}

/* What a position has to do of a tensor. */
static void divide_part(peer_plan *x, int k, const weft_comm_part *t, int who)
{
    int     n     = x->g->n;
    int64_t share = t->count / n, first = who * share;
    if (t->unit) {
        first = weft_comm_share_at(t->count, t->unit, n, who);
        share = weft_comm_share_at(t->count, t->unit, n, who + 1) - first;
    }
    switch (x->call->kind) {
    case WEFT_ALL_REDUCE:
        first = weft_comm_share_at(t->count, SUM_UNIT, n, who);
        share = weft_comm_share_at(t->count, SUM_UNIT, n, who + 1) - first;
        add_work(x, k, who, -1, first, first, share);
        break;
    case WEFT_REDUCE_SCATTER: add_work(x, k, who, who, first, 0, share); break;
    case WEFT_ALL_GATHER:
        if (t->unit)
            add_work(x, k, who, -1, 0, first, share);
        else
            add_work(x, k, who, -1, 0, who * t->count, t->count);
        break;
    case WEFT_BROADCAST:
        if (who == 0) add_work(x, k, who, -1, 0, 0, t->count);
        break;
    case WEFT_ALL_TO_ALL:
        for (int r = 0; r < n; r++) add_work(x, k, who, r, r * share, first, share);
        break;
    default: add_work(x, k, who, (who + 1) % n, 0, 0, t->count); break; /* shift */
    }
}

/* Its own part of it; of one GPU's members position 0 has all. */
static void take_work(peer_plan *x, int k, const weft_comm_part *t)
{
    const weft_device_group *g = x->g;
    if (!g->one_gpu) divide_part(x, k, t, g->me);
    for (int who = 0; g->one_gpu && g->me == 0 && who < g->n; who++)
        divide_part(x, k, t, who);
}

/* ---- sums ---- */

/* The tree: after which term partial sums of one level meet. */
static weft_status plan_sum(const peer_plan *x, weft_cuda_peer_args *a)
{
    weft_comm_lanes  lanes = weft_comm_lanes_of(x->call);
    weft_comm_terms *t     = calloc(1, sizeof *t);
    int              level[32], top = 0;
    weft_status      st = WEFT_OK;
    if (!t) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    t->n = x->g->n;
    for (int k = 0; k < t->n; k++) t->who[k] = k;
    if (lanes.n_lane) WEFT_GO(weft_comm_terms_of(&lanes, x->g->n, t));
    if (t->n > WEFT_CUDA_PEER_MAX_TERM)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "peer: a sum of %d terms, at most %d", t->n,
                          WEFT_CUDA_PEER_MAX_TERM));
    for (int k = 0; k < t->n; k++) {
        int of      = t->level[k];
        a->who[k]   = (uint8_t)t->who[k];
        a->which[k] = (uint8_t)t->which[k];
        for (; top && level[top - 1] == of; top--, of++) a->adds[k]++;
        level[top++] = of;
    }
    a->n_term = t->n;
out:
    free(t);
    return st;
}

/* A whole tree of 2, 4 or 8 terms has a kernel of its own. */
static weft_cuda_kernel choose_kernel(const peer_plan *x, const weft_cuda_peer_args *a)
{
    if (!x->sums) return WEFT_CUDA_peer_copy;
    if (a->dtype != WEFT_DTYPE_F32 && a->dtype != WEFT_DTYPE_BF16)
        return WEFT_CUDA_peer_sum;
    for (int k = 0; k < a->n_term; k++)
        if (a->adds[k] != __builtin_ctz((unsigned)k + 1)) return WEFT_CUDA_peer_sum;
    return a->n_term == 2   ? WEFT_CUDA_peer_sum_2
           : a->n_term == 4 ? WEFT_CUDA_peer_sum_4
           : a->n_term == 8 ? WEFT_CUDA_peer_sum_8
                            : WEFT_CUDA_peer_sum;
}

/* ---- preparing ---- */

/* The table that others read, and this member's work. */
static weft_status write_board(peer_plan *x, weft_device_call *c)
{
    peer_end *e      = x->g->end;
    int64_t   tables = x->n_part * (int64_t)sizeof *x->part;
    int64_t   works  = x->n_work * (int64_t)sizeof *x->work, at;
    tables           = (tables + 63) / 64 * 64;
    WEFT_TRY(weft_cuda_peer_take(e, tables + works, &at));
    c->table = (uint32_t)at;
    c->args.work =
        (const weft_cuda_peer_work *)(void *)((char *)e->board.address + at + tables);
    WEFT_TRY(weft_cuda_peer_write(&e->board, at, x->part,
                                  x->n_part * (int64_t)sizeof *x->part));
    return weft_cuda_peer_write(&e->board, at + tables, x->work, works);
}

static bool has_rows(const weft_comm_call *call)
{
    return call->kind == WEFT_SEND_ROWS || call->kind == WEFT_RETURN_ROWS;
}

/* Which rows go where is in a table on the device: all runs that there may be get blocks. */
static void plan_rows(const peer_plan *x, weft_device_call *c)
{
    const weft_comm_rows *r = &x->call->rows;
    c->rows =
        (weft_cuda_peer_rows_args){.aborted = c->args.aborted,
                                   .map     = c->args.map,
                                   .bad     = flag_at(x->g, &x->g->flags->bad[x->g->me]),
                                   .table   = r->table,
                                   .n       = x->g->n,
                                   .me      = x->g->me,
                                   .n_bin   = r->n_bin,
                                   .sends   = x->call->kind == WEFT_SEND_ROWS,
                                   .row_bytes = r->width * x->size,
                                   .in_rows   = r->in_rows};
    c->kernel = WEFT_CUDA_peer_rows;
    c->grid = (weft_cuda_grid){WEFT_CUDA_PEER_ROW_BLOCKS, (unsigned)(r->n_bin * x->g->n),
                               1, 256, 0};
}

static weft_status fill_call(peer_plan *x, weft_device_call *c)
{
    const weft_comm_call *call = x->call;
    for (int k = 0; k < x->n_part; k++) {
        const weft_comm_part *t = call->n_part ? &call->part[k] : &call->tensor;
        WEFT_TRY(place_part(x, k, t));
        if (has_rows(call))
            x->part[k].stride = call->rows.out_rows;
        else
            take_work(x, k, t);
    }
    c->args.aborted = x->g->end->board.address;
    c->args.map     = x->g->map.address;
    c->args.n_work  = x->n_work;
    c->args.n       = x->g->n;
    c->args.me      = x->g->me;
    c->args.dtype   = (int32_t)call->dtype;
    if (x->sums) WEFT_TRY(plan_sum(x, &c->args));
    c->kernel = choose_kernel(x, &c->args);
    c->grid   = (weft_cuda_grid){(unsigned)x->n_block, 1, 1, 256, 0};
    if (has_rows(call)) plan_rows(x, c);
    return write_board(x, c);
}

weft_status weft_cuda_peer_prepare(weft_device_group *g, const weft_comm_call *call,
                                   const char *name, weft_device_call **out)
{
    weft_status       st = WEFT_OK;
    weft_device_call *c  = calloc(1, sizeof *c);
    peer_plan         x  = {.g      = g,
                            .call   = call,
                            .size   = weft_dtype_bytes(call->dtype),
                            .n_part = call->n_part ? call->n_part : 1};
    x.sums = call->kind == WEFT_ALL_REDUCE || call->kind == WEFT_REDUCE_SCATTER;
    x.part = calloc((size_t)x.n_part, sizeof *x.part);
    x.work = calloc((size_t)(x.n_part * g->n * g->n), sizeof *x.work);
    if (!c || !x.part || !x.work) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    c->g = g;
    WEFT_GO(weft_device_names_add(&g->names, call->kind, name, &c->number));
    WEFT_GO(fill_call(&x, c));
    *out = c;
    c    = NULL;
out:
    free(c);
    free(x.part);
    free(x.work);
    return st;
}

weft_status weft_cuda_peer_prepare_message(weft_device_group *g, weft_comm_side side,
                                           const weft_memory *at, const char *name,
                                           weft_device_call **out)
{
    weft_device_call *c = calloc(1, sizeof *c);
    if (!c) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *c = (weft_device_call){.g = g, .is_message = true, .at = *at};
    if (side != (g->me ? WEFT_COMM_RECV : WEFT_COMM_SEND) || at->bytes > g->slot_bytes) {
        free(c);
        return WEFT_FAIL(WEFT_ERR_ARG, "peer: a message of %lld bytes, slots have %lld",
                         (long long)at->bytes, (long long)g->slot_bytes);
    }
    weft_status st = weft_device_names_add_message(&g->names, side, name, &c->number);
    if (st == WEFT_OK)
        *out = c;
    else
        free(c);
    return st;
}

void weft_cuda_peer_release(weft_device_call *c)
{
    if (!c) return;
    if (c->table) weft_cuda_peer_give_back(c->g->end);
    free(c);
}

/* ---- running ---- */

static weft_cuda_peer_signal_args signal_of(const weft_device_group *g)
{
    return (weft_cuda_peer_signal_args){.aborted = g->end->board.address,
                                        .count   = flag_at(g, &g->flags->count[g->me])};
}

static weft_status write_flag(const weft_stream *s, const uint32_t *flag, uint32_t value)
{
    CU_TRY(StreamWriteValue, weft_cuda_stream_of(s), (weft_cuda_ptr)(uintptr_t)flag,
           value, 0);
    return WEFT_OK;
}

/* What the kernel does, by the stream: each write comes after all before it. */
static weft_status signal_by_stream(const weft_stream                *s,
                                    const weft_cuda_peer_signal_args *a)
{
    for (int i = 0; i < a->n_reset; i++) WEFT_TRY(write_flag(s, a->reset[i], 0));
    if (a->slot) WEFT_TRY(write_flag(s, a->slot, a->value));
    WEFT_TRY(write_flag(s, a->count, a->progress));
    for (int i = 0; i < a->n_set; i++) WEFT_TRY(write_flag(s, a->set[i], 1));
    return WEFT_OK;
}

/* The word that it writes differs from that of the signal before. */
static weft_status send_signal(const weft_device_call *c, weft_stream *s,
                               weft_cuda_peer_signal_args *a, bool begins)
{
    weft_kernel_ctx x = {.queue = s->impl};
    a->progress       = 2 * c->number + (begins ? 1 : 2);
    if (c->g->one_gpu) return signal_by_stream(s, a);
    return weft_cuda_launch(&x, WEFT_CUDA_peer_signal, (weft_cuda_grid){1, 1, 1, 32, 0},
                            a);
}

static weft_status wait_flag(weft_stream *s, const weft_device_group *g,
                             const uint32_t *w)
{
    CU_TRY(StreamWaitValue, weft_cuda_stream_of(s),
           (weft_cuda_ptr)(uintptr_t)flag_at(g, w), 1, WAIT_EQUAL);
    return WEFT_OK;
}

/* One of the two meetings of a call: `mine` are the flags by which members know that this one is
 * here, `last` those of the meeting before. */
static weft_status meet(weft_device_call *c, weft_stream *s, bool begins)
{
    weft_device_group         *g = c->g;
    weft_cuda_peer_signal_args a = signal_of(g);
    if (begins) {
        a.slot  = (uint32_t *)(void *)((char *)g->end->board.address + g->slot);
        a.value = c->table;
    }
    for (int r = 0; r < g->n; r++) {
        if (r == g->me) continue;
        a.reset[a.n_reset++] =
            flag_at(g, begins ? &g->flags->end[r][g->me] : &g->flags->begin[r][g->me]);
        a.set[a.n_set++] =
            flag_at(g, begins ? &g->flags->begin[g->me][r] : &g->flags->end[g->me][r]);
    }
    WEFT_TRY(send_signal(c, s, &a, begins));
    for (int r = 0; r < g->n; r++)
        if (r != g->me)
            WEFT_TRY(wait_flag(
                s, g, begins ? &g->flags->begin[r][g->me] : &g->flags->end[r][g->me]));
    return WEFT_OK;
}

static weft_status run_message(weft_device_call *c, weft_stream *s, int64_t number)
{
    weft_device_group *g    = c->g;
    weft_kernel_ctx    x    = {.queue = s->impl};
    int64_t            slot = number % g->n_slot;
    char              *ring = (char *)g->ring.address + slot * g->slot_bytes;
    bool               send = g->me == 0;
    uint32_t          *full = &g->flags->full[slot], *empty = &g->flags->empty[slot];
    weft_cuda_peer_signal_args  a = signal_of(g);
    weft_cuda_peer_message_args m = {.aborted = a.aborted,
                                     .from    = send ? c->at.address : ring,
                                     .to      = send ? ring : c->at.address,
                                     .bytes   = c->at.bytes};
    int64_t                     blocks =
        (m.bytes + WEFT_CUDA_PEER_COPY_BLOCK - 1) / WEFT_CUDA_PEER_COPY_BLOCK;
    WEFT_TRY(send_signal(c, s, &a, true));
    WEFT_TRY(wait_flag(s, g, send ? empty : full));
    WEFT_TRY(weft_cuda_launch(&x, WEFT_CUDA_peer_message,
                              (weft_cuda_grid){(unsigned)blocks, 1, 1, 256, 0}, &m));
    a.reset[a.n_reset++] = flag_at(g, send ? empty : full);
    a.set[a.n_set++]     = flag_at(g, send ? full : empty);
    return send_signal(c, s, &a, false);
}

weft_status weft_cuda_peer_run(weft_device_call *c, weft_stream *s, int64_t number)
{
    weft_kernel_ctx x = {.queue = s->impl};
    if (c->is_message) return run_message(c, s, number);
    WEFT_TRY(meet(c, s, true));
    WEFT_TRY(weft_cuda_launch(&x, c->kernel, c->grid,
                              c->rows.table ? (const void *)&c->rows : &c->args));
    return meet(c, s, false);
}
