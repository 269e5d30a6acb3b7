#include "state/gather.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/progress.h"

enum {
    WINDOW = WEFT_MOVE_CREDITS /* boxes that are asked for at a time */
};

/* A box of the stream and where it begins in the region's order. */
typedef struct chunk {
    weft_region box;
    int64_t     first, n; /* elements */
} chunk;

/* Reads that follow each other: a region of a tensor, chunk by chunk. */
typedef struct stream {
    int         tensor; /* -1: none yet */
    weft_region region;
    int64_t     at;  /* elements of the region that were asked for */
    chunk       now; /* its numbers are in g->numbers; the next one follows it */
    chunk       asked[WINDOW];
    int         n_asked;
} stream;

struct weft_gather {
    const weft_state   *state;
    const weft_holders *holders; /* NULL: all is here */
    weft_comm          *comm;    /* NULL: alone */
    int                 rank, world;
    weft_comm_channel **ask, **answer; /* rank 0: of each rank; others: [0] */
    weft_move_list      list;          /* of one box */
    char               *message;       /* of one chunk */
    char               *numbers;       /* rank 0: of one chunk, in the box's order */
    stream              stream;
    pthread_mutex_t     lock;    /* of the following, for keep_alive's thread */
    double             *asked_s; /* when a rank last heard from rank 0 */
    double             *full_s;  /* since when it takes no message; 0: it does */
    int                 asking;  /* whom rank 0's own thread asks; -1: nobody */
};

typedef enum request_kind {
    REQUEST_DATA,
    REQUEST_WAIT, /* nothing: rank 0 is still at work */
    REQUEST_END,
} request_kind;

typedef struct request {
    int64_t     kind, tensor;
    weft_region box;
} request;

static bool is_leader(const weft_gather *g)
{
    return g->rank == 0;
}

/* ---- opening ---- */

/* Whom rank 0 will ask for anything: bit by rank. */
static weft_status find_sources(weft_gather *g, bool *asked)
{
    g->list.n = 0;
    for (int i = 0; i < g->holders->n_tensor; i++) {
        weft_region all = weft_region_whole(&g->holders->tensor[i].shape);
        WEFT_TRY(weft_move_add_region(g->holders, i, &all, 0, 0, &g->list));
    }
    for (int i = 0; i < g->list.n; i++) asked[g->list.move[i].from] = true;
    weft_move_list_fini(&g->list);
    return WEFT_OK;
}

static weft_status open_to(weft_gather *g, int peer, int at, bool answers, int tag)
{
    weft_comm_side ask    = is_leader(g) ? WEFT_COMM_SEND : WEFT_COMM_RECV;
    weft_comm_side answer = is_leader(g) ? WEFT_COMM_RECV : WEFT_COMM_SEND;
    WEFT_TRY(weft_comm_open_channel(g->comm, peer, ask, tag, sizeof(request), WINDOW,
                                    &g->ask[at]));
    if (!answers) return WEFT_OK;
    return weft_comm_open_channel(g->comm, peer, answer, tag + 1, WEFT_MOVE_CHUNK,
                                  WEFT_MOVE_CREDITS, &g->answer[at]);
}

static weft_status open_channels(weft_gather *g, const bool *asked, int tag)
{
    size_t n   = (size_t)g->world;
    g->ask     = calloc(n, sizeof(weft_comm_channel *));
    g->answer  = calloc(n, sizeof(weft_comm_channel *));
    g->asked_s = calloc(n, sizeof *g->asked_s);
    g->full_s  = calloc(n, sizeof *g->full_s);
    if (!g->ask || !g->answer || !g->asked_s || !g->full_s)
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    if (!is_leader(g)) return open_to(g, 0, 0, asked[g->rank], tag);
    for (int k = 1; k < g->world; k++) WEFT_TRY(open_to(g, k, k, asked[k], tag));
    return WEFT_OK;
}

static weft_status open_links(weft_gather *g, int tag)
{
    bool *asked = calloc((size_t)g->world, sizeof *asked);
    if (!asked) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    weft_status st = find_sources(g, asked);
    if (st == WEFT_OK) st = open_channels(g, asked, tag);
    free(asked);
    return st;
}

weft_status weft_gather_open(const weft_state *s, const weft_holders *holders,
                             weft_comm *comm, int tag, weft_gather **out)
{
    weft_status  st = WEFT_OK;
    weft_gather *g  = calloc(1, sizeof *g);
    if (!g) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *g = (weft_gather){.state   = s,
                       .holders = holders,
                       .comm    = comm,
                       .rank    = comm ? comm->rank : 0,
                       .world   = comm ? comm->world : 1,
                       .stream  = {.tensor = -1},
                       .asking  = -1};
    pthread_mutex_init(&g->lock, NULL);
    g->message = comm ? malloc(WEFT_MOVE_CHUNK) : NULL;
    g->numbers = is_leader(g) ? malloc(WEFT_MOVE_CHUNK) : NULL;
    if ((comm && !g->message) || (is_leader(g) && !g->numbers))
        WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    if (comm) WEFT_GO(open_links(g, tag));
    *out = g;
    g    = NULL;
out:
    weft_gather_close(g);
    return st;
}

void weft_gather_close(weft_gather *g)
{
    if (!g) return;
    for (int k = 0; k < g->world && g->ask && g->answer; k++) {
        if (g->ask[k]) (void)weft_comm_close_channel(g->comm, g->ask[k]);
        if (g->answer[k]) (void)weft_comm_close_channel(g->comm, g->answer[k]);
    }
    free(g->ask);
    free(g->answer);
    free(g->asked_s);
    free(g->full_s);
    weft_move_list_fini(&g->list);
    free(g->message);
    free(g->numbers);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

int64_t weft_gather_bytes(const weft_gather *g)
{
    if (!g) return 0;
    int64_t tables =
        g->comm ? g->world * (int64_t)(2 * sizeof *g->ask + 2 * sizeof *g->asked_s) : 0;
    return tables + (int64_t)sizeof *g +
           ((g->message != NULL) + (g->numbers != NULL)) * (int64_t)WEFT_MOVE_CHUNK;
}

const weft_state *weft_gather_state(const weft_gather *g)
{
    return g->state;
}

/* ---- requests ---- */

static weft_status send_request(weft_gather *g, int rank, const request *q)
{
    pthread_mutex_lock(&g->lock);
    g->asking = rank;
    pthread_mutex_unlock(&g->lock);
    weft_status st = weft_comm_send(g->comm, g->ask[rank], q, sizeof *q);
    pthread_mutex_lock(&g->lock);
    g->asking        = -1;
    g->asked_s[rank] = weft_clock_s();
    pthread_mutex_unlock(&g->lock);
    return st;
}

/* Never waits: the others must hear in time. */
static weft_status keep_alive_one(weft_gather *g, int rank, double interval_s)
{
    double now = weft_clock_s();
    if (rank == g->asking || now - g->asked_s[rank] < interval_s) return WEFT_OK;
    if (weft_comm_can_send(g->comm, g->ask[rank])) {
        g->asked_s[rank] = now;
        g->full_s[rank]  = 0;
        return weft_comm_send(g->comm, g->ask[rank], &(request){.kind = REQUEST_WAIT},
                              sizeof(request));
    }
    if (g->full_s[rank] <= 0) g->full_s[rank] = now;
    if (now - g->full_s[rank] < g->comm->timeout_s) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_PEER,
                     "rank %d timed out: it took no message of rank 0 for %g s", rank,
                     g->comm->timeout_s);
}

weft_status weft_gather_keep_alive(weft_gather *g, double interval_s)
{
    weft_status st = WEFT_OK;
    pthread_mutex_lock(&g->lock);
    for (int k = 1; k < g->world && st == WEFT_OK; k++)
        st = keep_alive_one(g, k, interval_s);
    pthread_mutex_unlock(&g->lock);
    return st;
}

/* The moves of a box to rank 0. */
static weft_status list_moves(weft_gather *g, int tensor, const weft_region *box)
{
    g->list.n = 0;
    return weft_move_add_region(g->holders, tensor, box, 0, 0, &g->list);
}

/* Is move i the first from its rank, and that rank another one? */
static bool is_first_from_other(const weft_gather *g, int i)
{
    int from = g->list.move[i].from;
    for (int k = 0; k < i; k++)
        if (g->list.move[k].from == from) return false;
    return from != 0;
}

/* ---- rank 0 ---- */

/* Asks for the next box of the stream, if there is one. */
static weft_status ask_next(weft_gather *g)
{
    stream *s    = &g->stream;
    int64_t size = weft_dtype_bytes(weft_state_at(g->state, s->tensor)->dtype);
    chunk   c    = {.first = s->at};
    if (!weft_region_next_chunk(&s->region, WEFT_MOVE_CHUNK / size, &s->at, &c.box))
        return WEFT_OK;
    c.n                    = s->at - c.first;
    s->asked[s->n_asked++] = c;
    if (!g->holders) return WEFT_OK;
    request q = {.kind = REQUEST_DATA, .tensor = s->tensor, .box = c.box};
    WEFT_TRY(list_moves(g, s->tensor, &c.box));
    for (int i = 0; i < g->list.n; i++)
        if (is_first_from_other(g, i))
            WEFT_TRY(send_request(g, g->list.move[i].from, &q));
    return WEFT_OK;
}

/* From the message of a rank to the numbers of a box. */
typedef struct unpacking {
    int64_t     size;
    const char *from;
    char       *to;
} unpacking;

static weft_status unpack_run(void *arg, int64_t at, int64_t index, int64_t n)
{
    const unpacking *u = arg;
    memcpy(u->to + at * u->size, u->from + index * u->size, (size_t)(n * u->size));
    return WEFT_OK;
}

/* Takes a rank's answer for a box; g->list is the box's. */
static weft_status take_answer(weft_gather *g, int from, const weft_region *box,
                               int64_t size, char *out)
{
    weft_interval run[WEFT_MAX_DIM];
    weft_part     whole = weft_part_of_region(box, run);
    int64_t       n     = 0;
    for (int i = 0; i < g->list.n; i++)
        if (g->list.move[i].from == from) n += weft_region_count(&g->list.move[i].region);
    WEFT_TRY(weft_comm_recv(g->comm, g->answer[from], g->message, n * size));
    n = 0;
    for (int i = 0; i < g->list.n && out; i++) {
        const weft_region *r = &g->list.move[i].region;
        unpacking          u = {size, g->message + n * size, out};
        if (g->list.move[i].from != from) continue;
        WEFT_TRY(weft_part_walk(&whole, r, 0, weft_region_count(r), unpack_run, &u));
        n += weft_region_count(r);
    }
    return WEFT_OK;
}

/* The numbers of the oldest box that was asked for; out NULL: they are dropped. */
static weft_status take_chunk(weft_gather *g, char *out)
{
    stream *s    = &g->stream;
    chunk   c    = s->asked[0];
    int64_t size = weft_dtype_bytes(weft_state_at(g->state, s->tensor)->dtype);
    for (int i = 1; i < s->n_asked; i++) s->asked[i - 1] = s->asked[i];
    s->n_asked--;
    s->now = c;
    if (out != g->numbers) s->now = (chunk){.first = c.first + c.n};
    if (out) WEFT_TRY(weft_state_read(g->state, s->tensor, &c.box, out));
    weft_progress_mark();
    if (!g->holders) return WEFT_OK;
    WEFT_TRY(list_moves(g, s->tensor, &c.box));
    for (int i = 0; i < g->list.n; i++)
        if (is_first_from_other(g, i))
            WEFT_TRY(take_answer(g, g->list.move[i].from, &c.box, size, out));
    return WEFT_OK;
}

static bool equal_regions(const weft_region *a, const weft_region *b)
{
    if (!weft_shape_equal(&a->global, &b->global)) return false;
    for (int d = 0; d < a->global.n; d++)
        if (a->offset[d] != b->offset[d] || a->extent[d] != b->extent[d]) return false;
    return true;
}

/* Begins at the box that has element `first`. */
static weft_status start_stream(weft_gather *g, int tensor, const weft_region *r,
                                int64_t first)
{
    stream *s = &g->stream;
    while (s->n_asked) WEFT_TRY(take_chunk(g, NULL));
    *s               = (stream){.tensor = tensor, .region = *r};
    int64_t     size = weft_dtype_bytes(weft_state_at(g->state, tensor)->dtype), at = 0;
    weft_region box;
    while (weft_region_next_chunk(r, WEFT_MOVE_CHUNK / size, &at, &box) && at <= first)
        s->at = at;
    s->now.first = s->at;
    if (s->at == first) return WEFT_OK;
    WEFT_TRY(ask_next(g));
    return take_chunk(g, g->numbers);
}

static bool continues(const stream *s, int tensor, const weft_region *r, int64_t first)
{
    return s->tensor == tensor && equal_regions(&s->region, r) && first >= s->now.first &&
           first <= s->now.first + s->now.n;
}

weft_status weft_gather_read(weft_gather *g, int tensor, const weft_region *r,
                             int64_t first, int64_t n, void *out)
{
    stream *s    = &g->stream;
    int64_t size = weft_dtype_bytes(weft_state_at(g->state, tensor)->dtype);
    char   *to   = out;
    if (!continues(s, tensor, r, first)) WEFT_TRY(start_stream(g, tensor, r, first));
    for (int64_t k; n > 0; to += k * size, first += k, n -= k) {
        if (first == s->now.first + s->now.n) {
            while (s->n_asked < WINDOW && s->at < weft_region_count(r))
                WEFT_TRY(ask_next(g));
            k           = s->asked[0].n;
            bool direct = k <= n; /* all of the chunk is wanted: it needs no copy */
            WEFT_TRY(take_chunk(g, direct ? to : g->numbers));
            if (direct) continue;
        }
        int64_t at = first - s->now.first;
        k          = s->now.n - at < n ? s->now.n - at : n;
        memcpy(to, g->numbers + at * size, (size_t)(k * size));
    }
    return WEFT_OK;
}

weft_status weft_gather_release(weft_gather *g)
{
    while (g->stream.n_asked) WEFT_TRY(take_chunk(g, NULL));
    g->stream = (stream){.tensor = -1};
    for (int k = 1; k < g->world; k++)
        WEFT_TRY(send_request(g, k, &(request){.kind = REQUEST_END}));
    return WEFT_OK;
}

/* ---- the others ---- */

/* A box of a tensor, no larger than a message. */
static bool is_request(const weft_gather *g, const request *q)
{
    if (q->kind != REQUEST_DATA || q->tensor < 0 ||
        q->tensor >= weft_state_count(g->state))
        return false;
    const weft_state_tensor *t = weft_state_at(g->state, (int)q->tensor);
    if (!weft_shape_equal(&q->box.global, &t->shape)) return false;
    int64_t left = WEFT_MOVE_CHUNK / weft_dtype_bytes(t->dtype);
    for (int d = 0; d < t->shape.n; d++) {
        if (q->box.extent[d] < 1 || q->box.extent[d] > left || q->box.offset[d] < 0 ||
            q->box.extent[d] > t->shape.d[d] ||
            q->box.offset[d] > t->shape.d[d] - q->box.extent[d])
            return false;
        left /= q->box.extent[d];
    }
    return true;
}

static weft_status answer(weft_gather *g, const request *q)
{
    int64_t size = weft_dtype_bytes(weft_state_at(g->state, (int)q->tensor)->dtype),
            n    = 0;
    WEFT_TRY(list_moves(g, (int)q->tensor, &q->box));
    for (int i = 0; i < g->list.n; i++) {
        const weft_move *m = &g->list.move[i];
        if (m->from != g->rank) continue;
        WEFT_TRY(weft_state_read(g->state, m->tensor, &m->region, g->message + n * size));
        n += weft_region_count(&m->region);
    }
    if (!n || !g->answer[0])
        return WEFT_FAIL(WEFT_ERR_PEER,
                         "rank 0 failed: it asked for what rank %d does not have",
                         g->rank);
    return weft_comm_send(g->comm, g->answer[0], g->message, n * size);
}

weft_status weft_gather_serve(weft_gather *g)
{
    for (;;) {
        request q;
        WEFT_TRY(weft_comm_recv(g->comm, g->ask[0], &q, sizeof q));
        weft_progress_alive();
        if (q.kind == REQUEST_END) return WEFT_OK;
        if (q.kind == REQUEST_WAIT) continue;
        if (!is_request(g, &q))
            return WEFT_FAIL(WEFT_ERR_PEER,
                             "rank 0 failed: it asked for what rank %d does not have",
                             g->rank);
        WEFT_TRY(answer(g, &q));
    }
}
