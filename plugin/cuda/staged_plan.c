/* Calls of the backend "staged" as lists of steps, found once.
 *
 *     sums of two terms of two members   both send all they have and add everything
 *     other sums                         slices to their owners, which add them; all_reduce: and
 *                                        send the sums to all
 *     all else                           moves pieces
 *
 * Kernels come in bursts: the pieces of STAGED_BURST rounds are on their way, then one meeting,
 * then all that is done with them.  Ranks that share a GPU take turns on its multiprocessors, and
 * each burst is a turn. */
#include <stdlib.h>
#include <string.h>

#include "staged.h"

enum {
    SLICE_ELEMENTS = 128 /* slices of an all_reduce begin at multiples */
};

/* While a call is planned.  st: the first error. */
typedef struct staged_plan {
    weft_device_call     *c;
    weft_device_group    *g;
    const weft_comm_call *call;
    weft_comm_terms      *terms;
    int64_t               size; /* of an element */
    int64_t               piece;
    int                   sent[STAGED_RANKS], received[STAGED_RANKS]; /* pieces so far */
    int                   round;                                      /* -1: none yet */
    int64_t               used; /* of the round's device memory */
    /* what is done with the pieces of the last rounds, after they have met */
    int          n_later, cap_later, rounds_later;
    int          burst_at; /* steps before the burst */
    staged_step *later;
    weft_status  st;
} staged_plan;

/* What one member has for another, and gets from it: bytes that lie together. */
typedef struct staged_move {
    const char *from;
    char       *to;
    int64_t     out_bytes, in_bytes;
} staged_move;

bool weft_cuda_staged_takes(weft_collective kind, weft_dtype t)
{
    switch (kind) {
    case WEFT_ALL_REDUCE:
    case WEFT_REDUCE_SCATTER: return t == WEFT_DTYPE_F32 || t == WEFT_DTYPE_BF16;
    case WEFT_ALL_GATHER:
    case WEFT_ALL_TO_ALL:
    case WEFT_BROADCAST:
    case WEFT_SHIFT: return true;
    default: return false; /* rows: copy engines want sizes that the host knows */
    }
}

/* ---- steps ---- */

static void append(staged_plan *x, staged_step **list, int *n, int *cap, staged_step step)
{
    if (*n == *cap) {
        int          more = *cap ? 2 * *cap : 64;
        staged_step *p    = realloc(*list, sizeof *p * (size_t)more);
        if (!p) {
            x->st = WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
            return;
        }
        *list = p;
        *cap  = more;
    }
    (*list)[(*n)++] = step;
}

static void add_step(staged_plan *x, staged_step step)
{
    weft_device_call *c = x->c;
    step.round          = x->round;
    append(x, &c->step, &c->n_step, &c->cap_step, step);
}

static void add_later(staged_plan *x, staged_step step)
{
    step.round = x->round;
    append(x, &x->later, &x->n_later, &x->cap_later, step);
}

/* The last piece that the burst receives; NULL: none. */
static staged_step *find_last_piece(const staged_plan *x)
{
    for (int k = x->c->n_step - 1; k >= x->burst_at; k--)
        if (x->c->step[k].kind == STAGED_RECEIVE) return &x->c->step[k];
    return NULL;
}

/* The rounds so far meet, and what is to be done is done. */
static void end_burst(staged_plan *x)
{
    weft_device_call *c    = x->c;
    staged_step      *last = find_last_piece(x);
    if (last) last->stops = true;
    if (x->rounds_later) add_step(x, (staged_step){.kind = STAGED_MEET, .stops = !last});
    for (int k = 0; k < x->n_later; k++)
        append(x, &c->step, &c->n_step, &c->cap_step, x->later[k]);
    x->n_later = x->rounds_later = 0;
    x->burst_at                  = c->n_step;
}

static void end_round(staged_plan *x)
{
    add_later(x, (staged_step){.kind = STAGED_END});
    if (++x->rounds_later == STAGED_BURST) end_burst(x);
}

static void begin_round(staged_plan *x)
{
    x->round++;
    x->used = 0;
    add_step(x, (staged_step){.kind = STAGED_BEGIN});
}

static void add_send(staged_plan *x, int peer, const char *from, int64_t bytes)
{
    if (bytes <= 0) return;
    add_step(x, (staged_step){.kind  = STAGED_SEND,
                              .peer  = peer,
                              .slot  = x->sent[peer]++ % x->g->n_slot,
                              .bytes = bytes,
                              .from  = from});
}

/* Gives where the piece will be. */
static char *add_receive(staged_plan *x, int peer, int64_t bytes)
{
    int64_t at = STAGED_STOP + x->round % STAGED_ROUNDS * x->g->round_bytes + x->used;
    char   *to = (char *)x->g->ring.address + at;
    if (bytes <= 0) return NULL;
    x->used += (bytes + STAGED_ALIGN - 1) / STAGED_ALIGN * STAGED_ALIGN;
    if (x->used > x->g->round_bytes)
        x->st = WEFT_FAIL(WEFT_ERR_INTERNAL, "staged: a round of %lld bytes",
                          (long long)x->used);
    add_step(x, (staged_step){.kind  = STAGED_RECEIVE,
                              .peer  = peer,
                              .slot  = x->received[peer]++ % x->g->n_slot,
                              .bytes = bytes,
                              .to    = to});
    return to;
}

static void add_copy(staged_plan *x, const char *from, char *to, int64_t bytes)
{
    if (bytes > 0 && from != to)
        add_later(x, (staged_step){
                         .kind = STAGED_COPY, .from = from, .to = to, .bytes = bytes});
}

static int64_t at_most(int64_t bytes, int64_t most)
{
    return bytes < 0 ? 0 : bytes < most ? bytes : most;
}

/* ---- moves ---- */

static void move_round(staged_plan *x, const staged_move *move, int64_t at)
{
    int   n = x->g->n, me = x->g->me;
    char *got[STAGED_RANKS];
    begin_round(x);
    for (int k = 1; k < n; k++) {
        const staged_move *m = &move[(me + k) % n];
        add_send(x, (me + k) % n, m->from + at, at_most(m->out_bytes - at, x->piece));
    }
    for (int k = 1; k < n; k++) {
        int r  = (me + n - k) % n;
        got[r] = add_receive(x, r, at_most(move[r].in_bytes - at, x->piece));
    }
    for (int r = 0; r < n; r++)
        if (r != me && got[r])
            add_copy(x, got[r], move[r].to + at,
                     at_most(move[r].in_bytes - at, x->piece));
    end_round(x);
}

/* move: of each member; the own one is a copy. */
static void add_moves(staged_plan *x, const staged_move *move)
{
    int64_t most = 0;
    for (int r = 0; r < x->g->n; r++) {
        if (r == x->g->me) {
            add_copy(x, move[r].from, move[r].to, move[r].in_bytes);
            continue;
        }
        if (move[r].out_bytes > most) most = move[r].out_bytes;
        if (move[r].in_bytes > most) most = move[r].in_bytes;
    }
    for (int64_t at = 0; at < most; at += x->piece) move_round(x, move, at);
}

static char *element(const staged_plan *x, const void *p, int64_t at)
{
    return (char *)(uintptr_t)p + at * x->size;
}

static int64_t share_at(const staged_plan *x, const weft_comm_part *p, int k)
{
    int n = x->g->n;
    if (x->call->kind == WEFT_ALL_REDUCE)
        return weft_comm_share_at(p->count, SLICE_ELEMENTS, n, k);
    if (p->unit) return weft_comm_share_at(p->count, p->unit, n, k);
    return x->call->kind == WEFT_ALL_GATHER ? k * p->count : p->count / n * k;
}

static int64_t share_bytes(const staged_plan *x, const weft_comm_part *p, int k)
{
    return (share_at(x, p, k + 1) - share_at(x, p, k)) * x->size;
}

/* own: where this member's share is. */
static void add_gather(staged_plan *x, const weft_comm_part *p, const char *own)
{
    staged_move move[STAGED_RANKS];
    for (int r = 0; r < x->g->n; r++)
        move[r] = (staged_move){.from      = own,
                                .to        = element(x, p->out, share_at(x, p, r)),
                                .out_bytes = share_bytes(x, p, x->g->me),
                                .in_bytes  = share_bytes(x, p, r)};
    add_moves(x, move);
}

static void add_all_to_all(staged_plan *x, const weft_comm_part *p)
{
    staged_move move[STAGED_RANKS];
    int64_t     share = p->count / x->g->n;
    for (int r = 0; r < x->g->n; r++)
        move[r] = (staged_move){.from      = element(x, p->in, r * share),
                                .to        = element(x, p->out, r * share),
                                .out_bytes = share * x->size,
                                .in_bytes  = share * x->size};
    add_moves(x, move);
}

static void add_shift(staged_plan *x, const weft_comm_part *p)
{
    staged_move move[STAGED_RANKS] = {{0}};
    int         n = x->g->n, next = (x->g->me + 1) % n, last = (x->g->me + n - 1) % n;
    move[next].from      = p->in;
    move[next].out_bytes = p->count * x->size;
    move[last].to        = p->out;
    move[last].in_bytes  = p->count * x->size;
    add_moves(x, move);
}

static void add_broadcast(staged_plan *x, const weft_comm_part *p)
{
    staged_move move[STAGED_RANKS] = {{0}};
    int64_t     bytes              = p->count * x->size;
    for (int r = 0; r < x->g->n; r++) {
        if (x->g->me == 0) move[r] = (staged_move){.from = p->in, .out_bytes = bytes};
        if (r == 0) move[r].to = p->out, move[r].in_bytes = bytes;
    }
    add_moves(x, move);
}

/* ---- sums ---- */

/* Where a sum finds its terms; a row of its own for each. */
static const void **next_terms(staged_plan *x)
{
    weft_device_call *c = x->c;
    if (c->n_sum < c->cap_sum) return c->term + (ptrdiff_t)c->n_sum++ * c->n_term;
    x->st = WEFT_FAIL(WEFT_ERR_INTERNAL, "staged: more sums than were counted");
    return c->term;
}

/* A piece of the run [first, first + bytes) of this position's sum.  to_all: others add the same
 * run themselves; else each has a run of its own. */
static void sum_round(staged_plan *x, const weft_comm_part *p, int64_t at, bool to_all)
{
    const weft_comm_terms *t = x->terms;
    int                    n = x->g->n, me = x->g->me;
    int64_t                whole = p->count * x->size, own = share_bytes(x, p, me),
            first      = to_all ? 0 : share_at(x, p, me) * x->size;
    bool         all   = x->call->kind == WEFT_ALL_REDUCE;
    int64_t      bytes = at_most((to_all ? whole : own) - at, x->piece);
    const void **in    = next_terms(x);
    begin_round(x);
    for (int k = 1; k < n; k++) {
        int     to   = (me + k) % n;
        int64_t from = to_all ? 0 : share_at(x, p, to) * x->size;
        int64_t send = at_most((to_all ? whole : share_bytes(x, p, to)) - at, x->piece);
        for (int i = 0; i < t->n; i++)
            if (t->who[i] == me)
                add_send(x, to, element(x, p->in, t->which[i] * p->stride) + from + at,
                         send);
    }
    for (int k = 0; k < n; k++)
        for (int i = 0; i < t->n; i++) {
            if (t->who[i] != (me + n - k) % n) continue;
            in[i] = k ? add_receive(x, t->who[i], bytes)
                      : element(x, p->in, t->which[i] * p->stride) + first + at;
        }
    if (bytes > 0)
        add_later(x, (staged_step){.kind  = STAGED_SUM,
                                   .bytes = bytes,
                                   .to    = (char *)p->out + (all ? first : 0) + at,
                                   .term  = in});
    end_round(x);
}

/* Bytes of the longest run that a member adds. */
static int64_t longest_run(const staged_plan *x, const weft_comm_part *p, bool to_all)
{
    int64_t most = to_all ? p->count * x->size : 0;
    for (int r = 0; r < x->g->n && !to_all; r++)
        if (share_bytes(x, p, r) > most) most = share_bytes(x, p, r);
    return most;
}

static weft_status find_terms(staged_plan *x)
{
    weft_comm_lanes lanes = weft_comm_lanes_of(x->call);
    x->terms              = calloc(1, sizeof *x->terms);
    if (!x->terms) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    x->terms->n = x->g->n;
    for (int k = 0; k < x->g->n; k++) x->terms->who[k] = k;
    return lanes.n_lane ? weft_comm_terms_of(&lanes, x->g->n, x->terms) : WEFT_OK;
}

static weft_status plan_sums(staged_plan *x, int n_part, const weft_comm_part *part)
{
    weft_device_call *c   = x->c;
    bool              all = x->call->kind == WEFT_ALL_REDUCE;
    WEFT_TRY(find_terms(x));
    bool to_all = all && x->g->n == 2 && x->terms->n == 2;
    /* each member has a term of its own at least */
    int64_t room = x->g->round_bytes / (x->terms->n - 1) / STAGED_ALIGN * STAGED_ALIGN;
    if (room < x->piece) x->piece = room;
    if (x->piece < STAGED_ALIGN)
        return WEFT_FAIL(WEFT_ERR_ARG, "staged: a sum of %d terms", x->terms->n);
    for (int i = 0; i < n_part; i++)
        c->cap_sum += (int)((longest_run(x, &part[i], to_all) + x->piece - 1) / x->piece);
    c->n_term = x->terms->n;
    c->term   = calloc((size_t)(c->n_term * (c->cap_sum + 1)), sizeof *c->term);
    c->level  = calloc((size_t)c->n_term, sizeof *c->level);
    if (!c->term || !c->level) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    memcpy(c->level, x->terms->level, sizeof *c->level * (size_t)c->n_term);
    for (int i = 0; i < n_part; i++)
        for (int64_t at = 0; at < longest_run(x, &part[i], to_all); at += x->piece)
            sum_round(x, &part[i], at, to_all);
    if (!all || to_all) return x->st;
    end_burst(x);
    add_step(x, (staged_step){.kind = STAGED_TURN});
    for (int i = 0; i < n_part; i++)
        add_gather(x, &part[i], element(x, part[i].out, share_at(x, &part[i], x->g->me)));
    return x->st;
}

/* ---- calls ---- */

static weft_status plan_call(staged_plan *x)
{
    const weft_comm_call *call   = x->call;
    int                   n_part = call->n_part ? call->n_part : 1;
    const weft_comm_part *part   = call->n_part ? call->part : &call->tensor;
    switch (call->kind) {
    case WEFT_ALL_REDUCE:
    case WEFT_REDUCE_SCATTER: return plan_sums(x, n_part, part);
    case WEFT_ALL_GATHER:
        for (int i = 0; i < n_part; i++) add_gather(x, &part[i], part[i].in);
        break;
    case WEFT_ALL_TO_ALL: add_all_to_all(x, part); break;
    case WEFT_SHIFT: add_shift(x, part); break;
    default: add_broadcast(x, part); break;
    }
    return x->st;
}

static weft_status make_call(weft_device_group *g, weft_device_call **out)
{
    weft_device_call *c = *out = calloc(1, sizeof *c);
    if (!c) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    c->g = g;
    return WEFT_OK;
}

weft_status weft_cuda_staged_prepare(weft_device_group *g, const weft_comm_call *call,
                                     const char *name, weft_device_call **out)
{
    weft_device_call *c;
    WEFT_TRY(make_call(g, &c));
    c->dtype       = call->dtype;
    staged_plan x  = {.c     = c,
                      .g     = g,
                      .call  = call,
                      .size  = weft_dtype_bytes(call->dtype),
                      .piece = g->slot_bytes,
                      .round = -1};
    weft_status st = plan_call(&x);
    end_burst(&x);
    if (st == WEFT_OK) st = x.st;
    if (st == WEFT_OK)
        st = weft_device_names_add(&g->names, call->kind, name, &c->number);
    free(x.later);
    free(x.terms);
    if (st != WEFT_OK)
        weft_cuda_staged_release(c);
    else
        *out = c;
    return st;
}

weft_status weft_cuda_staged_prepare_message(weft_device_group *g, weft_comm_side side,
                                             const weft_memory *at, const char *name,
                                             weft_device_call **out)
{
    bool              send = side == WEFT_COMM_SEND;
    weft_device_call *c;
    WEFT_TRY(make_call(g, &c));
    c->is_message    = true;
    staged_plan x    = {.c = c, .g = g, .piece = g->slot_bytes, .round = -1};
    staged_move m[2] = {{0}};
    m[!g->me].from   = at->address;
    m[!g->me].to     = at->address;
    if (send)
        m[!g->me].out_bytes = at->bytes;
    else
        m[!g->me].in_bytes = at->bytes;
    if (send != !g->me || at->bytes > g->n_piece * g->slot_bytes)
        x.st = WEFT_FAIL(WEFT_ERR_ARG, "staged: a message of %lld bytes, slots have %lld",
                         (long long)at->bytes, (long long)(g->n_piece * g->slot_bytes));
    else
        add_moves(&x, m);
    end_burst(&x);
    free(x.later);
    if (x.st == WEFT_OK)
        x.st = weft_device_names_add_message(&g->names, side, name, &c->number);
    if (x.st != WEFT_OK)
        weft_cuda_staged_release(c);
    else
        *out = c;
    return x.st;
}

void weft_cuda_staged_release(weft_device_call *c)
{
    if (!c) return;
    free(c->step);
    free(c->term);
    free(c->level);
    free(c);
}
