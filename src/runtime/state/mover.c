#include "state/mover.h"

#include <stdlib.h>
#include <string.h>

#include "base/failpoint.h"
#include "base/progress.h"

enum {
    STRETCH = 32 << 20 /* bytes */
};

/* Moves in one direction, by shift: how many ranks further than this one the other one is. */
typedef struct direction {
    weft_comm_channel **channel; /* by peer; NULL: nothing is moved */
    int                 n;
    int                *move; /* of the list */
    int64_t             bytes;
} direction;

struct weft_mover {
    weft_state *from, *to;
    /* by holder: states in memory that this process reaches; NULL: `from` alone */
    weft_state *const *near;
    const int32_t     *host; /* of each rank: near is there for one host; NULL: for all */
    weft_comm         *comm;
    int                rank, world;
    weft_move_list     list;
    direction          out, in; /* between ranks */
    int64_t           *size;    /* bytes an element, by move */
    char              *staging;
};

/* The next chunk of a direction. */
typedef struct cursor {
    int     k;  /* which move */
    int64_t at; /* elements of it that are done */
} cursor;

/* The rank that a holder's state comes from. */
static int server_of(const weft_mover *t, const weft_move *m)
{
    return m->from % t->world;
}

static int peer_of(const weft_mover *t, const weft_move *m)
{
    return server_of(t, m) == t->rank ? m->to : server_of(t, m);
}

/* To rank r + k and from rank r - k. */
static int shift_of(const weft_mover *t, const weft_move *m)
{
    return (m->to - server_of(t, m) + t->world) % t->world;
}

/* Both ends are in reach of the rank that it goes to. */
static bool is_copy(const weft_mover *t, const weft_move *m)
{
    if (t->host) return t->host[server_of(t, m)] == t->host[m->to];
    return t->near || m->from == m->to;
}

static const weft_state *source_of(const weft_mover *t, const weft_move *m)
{
    return t->near ? t->near[m->from] : t->from;
}

/* ---- opening ---- */

/* Moves by shift; those of one shift stay in the list's order, which both ranks have. */
static void sort_moves(const weft_mover *t, direction *d, bool sends)
{
    for (int shift = 1; shift < t->world; shift++)
        for (int i = 0; i < t->list.n; i++) {
            const weft_move *m = &t->list.move[i];
            if (shift_of(t, m) != shift || is_copy(t, m)) continue;
            if ((server_of(t, m) == t->rank) != sends) continue;
            d->move[d->n++] = i;
            d->bytes += weft_region_count(&m->region) * t->size[i];
        }
}

static weft_status open_direction(weft_mover *t, direction *d, bool sends, int tag)
{
    d->move    = malloc(sizeof *d->move * (size_t)(t->list.n + 1));
    d->channel = calloc((size_t)t->world, sizeof *d->channel);
    if (!d->move || !d->channel) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    sort_moves(t, d, sends);
    for (int i = 0; i < d->n; i++) {
        int peer = peer_of(t, &t->list.move[d->move[i]]);
        if (d->channel[peer]) continue;
        WEFT_TRY(weft_comm_open_channel(
            t->comm, peer, sends ? WEFT_COMM_SEND : WEFT_COMM_RECV, tag, WEFT_MOVE_CHUNK,
            WEFT_MOVE_CREDITS, &d->channel[peer]));
    }
    return WEFT_OK;
}

/* Does the region lie in the same bytes of both?  Also where one has more of the tensor around it.
 */
static bool is_same_place(const weft_mover *t, const weft_move *m)
{
    const weft_memory       *a    = weft_state_memory_of(source_of(t, m), m->tensor);
    const weft_memory       *b    = weft_state_memory_of(t->to, m->target);
    const weft_state_tensor *x    = weft_state_at(source_of(t, m), m->tensor);
    const weft_state_tensor *y    = weft_state_at(t->to, m->target);
    int64_t                  size = weft_dtype_bytes(y->dtype);
    weft_part_place          from, to;
    return a->device == b->device && a->address == b->address && x->dtype == y->dtype &&
           weft_part_find(x->part, &m->region, &from) &&
           weft_part_find(y->part, &m->region, &to) &&
           x->offset + from.at * size == y->offset + to.at * size &&
           !memcmp(from.stride, to.stride, sizeof to.stride);
}

/* Moves of this rank to itself that are none. */
static void drop_same_places(weft_mover *t)
{
    int n = 0;
    for (int i = 0; i < t->list.n; i++) {
        const weft_move *m = &t->list.move[i];
        if (!is_copy(t, m) || !is_same_place(t, m)) t->list.move[n++] = *m;
    }
    t->list.n = n;
}

static const char *place_of(const weft_state *s, int tensor, int64_t *bytes)
{
    const weft_state_tensor *t = weft_state_at(s, tensor);
    const char              *p = weft_state_memory_of(s, tensor)->address;
    *bytes = t->part ? weft_part_count(t->part) * weft_dtype_bytes(t->dtype) : 0;
    return p + t->offset;
}

/* What a rank copies is not where it is copied to: no chunk overwrites one that is still to be
 * read. */
static weft_status check_places(const weft_mover *t)
{
    for (int i = 0; i < t->list.n; i++) {
        const weft_move  *m    = &t->list.move[i];
        const weft_state *from = source_of(t, m);
        int64_t           n_from, n_to;
        if (m->to != t->rank || !is_copy(t, m)) continue;
        const char *a           = place_of(from, m->tensor, &n_from);
        const char *b           = place_of(t->to, m->target, &n_to);
        bool        same_device = weft_state_memory_of(from, m->tensor)->device ==
                           weft_state_memory_of(t->to, m->target)->device;
        if (same_device && a < b + n_to && b < a + n_from)
            return WEFT_FAIL(WEFT_ERR_INTERNAL,
                             "%s would be moved inside the memory that it is in",
                             weft_state_at(from, m->tensor)->name);
    }
    return WEFT_OK;
}

static weft_status open_moves(weft_mover *t, int tag)
{
    WEFT_TRY(check_places(t));
    t->size    = malloc(sizeof *t->size * (size_t)(t->list.n + 1));
    t->staging = t->list.n ? malloc(WEFT_MOVE_CHUNK) : NULL;
    if (!t->size || (t->list.n && !t->staging))
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int i = 0; i < t->list.n; i++)
        t->size[i] =
            weft_dtype_bytes(weft_state_at(t->to, t->list.move[i].target)->dtype);
    WEFT_TRY(open_direction(t, &t->out, true, tag));
    return open_direction(t, &t->in, false, tag);
}

weft_status weft_mover_open(const weft_mover_side *from, const weft_mover_side *to,
                            weft_comm *comm, int tag, weft_mover **out)
{
    weft_status st = WEFT_OK;
    weft_mover *t  = calloc(1, sizeof *t);
    if (!t) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *t = (weft_mover){.from  = from->state,
                      .to    = to->state,
                      .comm  = comm,
                      .rank  = comm ? comm->rank : 0,
                      .world = comm ? comm->world : 1};
    WEFT_GO(weft_move_plan(from->holders, to->holders, t->rank, &t->list));
    drop_same_places(t);
    WEFT_GO(open_moves(t, tag));
    *out = t;
    t    = NULL;
out:
    weft_mover_close(t);
    return st;
}

weft_status weft_mover_open_near(weft_state *const *source, const weft_holders *from,
                                 const weft_mover_side *to, int rank, weft_mover **out)
{
    weft_status st = WEFT_OK;
    weft_mover *t  = calloc(1, sizeof *t);
    if (!t) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *t = (weft_mover){.to = to->state, .near = source, .rank = rank, .world = 1};
    WEFT_GO(weft_move_plan_to(from, to->holders, rank, &t->list));
    drop_same_places(t);
    WEFT_GO(open_moves(t, 0));
    *out = t;
    t    = NULL;
out:
    weft_mover_close(t);
    return st;
}

/* Moves to this rank, and those that it sends to other hosts. */
static weft_status drop_others_moves(weft_mover *t)
{
    int n = 0;
    for (int i = 0; i < t->list.n; i++) {
        const weft_move *m     = &t->list.move[i];
        bool             sends = server_of(t, m) == t->rank && !is_copy(t, m),
             gets              = m->to == t->rank;
        if (!sends && !gets) continue;
        if ((sends || is_copy(t, m)) && !t->near[m->from])
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "state %d is not in reach of rank %d",
                             m->from, t->rank);
        t->list.move[n++] = *m;
    }
    t->list.n = n;
    return WEFT_OK;
}

weft_status weft_mover_open_hosts(weft_state *const *source, const weft_holders *from,
                                  const weft_mover_side *to, const int32_t *host,
                                  weft_comm *comm, int tag, weft_mover **out)
{
    weft_status st = WEFT_OK;
    weft_mover *t  = calloc(1, sizeof *t);
    if (!t) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *t = (weft_mover){.to    = to->state,
                      .near  = source,
                      .host  = host,
                      .comm  = comm,
                      .rank  = comm->rank,
                      .world = comm->world};
    WEFT_GO(weft_move_plan(from, to->holders, -1, &t->list));
    WEFT_GO(drop_others_moves(t));
    drop_same_places(t);
    WEFT_GO(open_moves(t, tag));
    *out = t;
    t    = NULL;
out:
    weft_mover_close(t);
    return st;
}

static void close_direction(weft_mover *t, direction *d)
{
    for (int k = 0; k < t->world && d->channel; k++)
        if (d->channel[k]) (void)weft_comm_close_channel(t->comm, d->channel[k]);
    free(d->channel);
    free(d->move);
}

void weft_mover_close(weft_mover *t)
{
    if (!t) return;
    close_direction(t, &t->out);
    close_direction(t, &t->in);
    weft_move_list_fini(&t->list);
    free(t->size);
    free(t->staging);
    free(t);
}

int64_t weft_mover_bytes(const weft_mover *t)
{
    if (!t) return 0;
    int64_t tables = (int64_t)sizeof *t + t->list.cap * (int64_t)sizeof *t->list.move;
    tables += t->list.n * (int64_t)(sizeof *t->size + 2 * sizeof *t->out.move);
    tables += 2 * t->world * (int64_t)sizeof *t->out.channel;
    return tables + (t->staging ? WEFT_MOVE_CHUNK : 0);
}

int64_t weft_mover_copied(const weft_mover *t)
{
    int64_t bytes = 0;
    for (int i = 0; i < t->list.n; i++)
        if (is_copy(t, &t->list.move[i]))
            bytes += weft_region_count(&t->list.move[i].region) * t->size[i];
    return bytes;
}

int64_t weft_mover_sent(const weft_mover *t)
{
    return t->out.bytes;
}

int64_t weft_mover_received(const weft_mover *t)
{
    return t->in.bytes;
}

/* ---- running ---- */

/* The next chunk of move i, and how many bytes it has. */
static bool next_chunk(const weft_mover *t, int i, int64_t *at, weft_region *box,
                       int64_t *bytes)
{
    if (!weft_region_next_chunk(&t->list.move[i].region, WEFT_MOVE_CHUNK / t->size[i], at,
                                box))
        return false;
    *bytes = weft_region_count(box) * t->size[i];
    return true;
}

static bool is_wanted(const bool *wanted, const weft_move *m)
{
    return !wanted || wanted[m->target];
}

static void note_chunk(void)
{
    weft_failpoint("move.chunk");
    weft_progress_mark();
}

/* A tensor of which both sides have all, with one layout in host memory, as replicas do: a copy
 * of its bytes.  Stretches are longer than the caches, so that they are not filled with it. */
static bool copy_bytes(const weft_mover *t, int i)
{
    const weft_move         *m    = &t->list.move[i];
    const weft_state        *s    = source_of(t, m);
    const weft_state_tensor *x    = weft_state_at(s, m->tensor);
    const weft_state_tensor *y    = weft_state_at(t->to, m->target);
    const char              *from = weft_memory_host(weft_state_memory_of(s, m->tensor));
    char   *to    = weft_memory_host(weft_state_memory_of(t->to, m->target));
    int64_t bytes = weft_region_count(&m->region) * t->size[i], n;
    if (!from || !to || x->dtype != y->dtype || !weft_part_equal(x->part, y->part) ||
        weft_part_count(y->part) * t->size[i] != bytes)
        return false;
    for (int64_t at = 0; at < bytes; at += n) {
        n = bytes - at < STRETCH ? bytes - at : STRETCH;
        note_chunk();
        memcpy(to + y->offset + at, from + x->offset + at, (size_t)n);
    }
    return true;
}

static weft_status copy_chunks(weft_mover *t, int i)
{
    const weft_move *m = &t->list.move[i];
    weft_region      box;
    int64_t          at = 0, bytes;
    while (next_chunk(t, i, &at, &box, &bytes)) {
        WEFT_TRY(weft_state_read(source_of(t, m), m->tensor, &box, t->staging));
        note_chunk();
        WEFT_TRY(weft_state_write(t->to, m->target, &box, t->staging));
    }
    return WEFT_OK;
}

static weft_status copy_here(weft_mover *t, const bool *wanted)
{
    for (int i = 0; i < t->list.n; i++) {
        const weft_move *m = &t->list.move[i];
        if (!is_wanted(wanted, m) || !is_copy(t, m)) continue;
        if (!copy_bytes(t, i)) WEFT_TRY(copy_chunks(t, i));
    }
    return WEFT_OK;
}

/* The shift of the move at a cursor; the number of ranks where none is left. */
static int find_shift(const weft_mover *t, const direction *d, const cursor *c)
{
    return c->k < d->n ? shift_of(t, &t->list.move[d->move[c->k]]) : t->world;
}

/* Gives the chunk at a cursor and moves it on. */
static const weft_move *take_chunk(const weft_mover *t, const direction *d, cursor *c,
                                   weft_region *box, int64_t *bytes)
{
    int              i = d->move[c->k];
    const weft_move *m = &t->list.move[i];
    next_chunk(t, i, &c->at, box, bytes);
    if (c->at == weft_region_count(&m->region)) *c = (cursor){.k = c->k + 1};
    return m;
}

static weft_status send_chunk(weft_mover *t, cursor *c)
{
    weft_region      box;
    int64_t          bytes;
    const weft_move *m = take_chunk(t, &t->out, c, &box, &bytes);
    WEFT_TRY(weft_state_read(source_of(t, m), m->tensor, &box, t->staging));
    return weft_comm_send(t->comm, t->out.channel[m->to], t->staging, bytes);
}

static weft_status receive_chunk(weft_mover *t, cursor *c)
{
    weft_region      box;
    int64_t          bytes;
    const weft_move *m = take_chunk(t, &t->in, c, &box, &bytes);
    WEFT_TRY(weft_comm_recv(t->comm, t->in.channel[server_of(t, m)], t->staging, bytes));
    return weft_state_write(t->to, m->target, &box, t->staging);
}

/* To the next move that is wanted; false: there is none. */
static bool skip_unwanted(const weft_mover *t, const direction *d, const bool *wanted,
                          cursor *c)
{
    while (c->k < d->n && !is_wanted(wanted, &t->list.move[d->move[c->k]])) c->k++;
    return c->k < d->n;
}

weft_status weft_mover_run(weft_mover *t)
{
    return weft_mover_run_tensors(t, NULL);
}

weft_status weft_mover_run_tensors(weft_mover *t, const bool *wanted)
{
    cursor out = {0}, in = {0};
    WEFT_TRY(copy_here(t, wanted));
    for (;;) {
        bool more = skip_unwanted(t, &t->out, wanted, &out);
        more      = skip_unwanted(t, &t->in, wanted, &in) || more;
        if (!more) return WEFT_OK;
        int sends = find_shift(t, &t->out, &out), receives = find_shift(t, &t->in, &in);
        if (sends <= receives) WEFT_TRY(send_chunk(t, &out));
        if (receives <= sends) WEFT_TRY(receive_chunk(t, &in));
        weft_progress_mark();
    }
}
