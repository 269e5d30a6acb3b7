#include "session/parts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/progress.h"

/* A parameter or state of the graph. */
typedef struct value {
    const char         *name;
    const weft_shape   *shape; /* of the whole, in the graph */
    int64_t             size;  /* bytes an element */
    char               *p;     /* this rank's part; NULL: none */
    weft_compiled_part *at;    /* by rank; type.shape.n -1: that rank has none */
    int                 copy;  /* of a parameter: its copy in another type; -1: none */
    int                 n_owner;
    int                *owner; /* ranks with different parts */
} value;

struct weft_parts {
    weft_arena         *arena;
    weft_comm          *comm; /* NULL: alone */
    int                 rank, world;
    int                 n_value;
    value              *value;
    weft_comm_channel **ask, **answer; /* rank 0: of each rank; others: [0] */
    pthread_mutex_t     lock;    /* of the following; keep_alive's thread asks, too */
    double             *asked_s; /* when a rank last heard from rank 0 */
    double             *full_s;  /* since when it takes no message; 0: it does */
    int                 asking;  /* whom rank 0's own thread asks; -1: nobody */
    char               *message;
};

typedef enum request_kind {
    REQUEST_DATA,
    REQUEST_WAIT, /* nothing: rank 0 is still at work */
    REQUEST_END,
} request_kind;

typedef struct request {
    int64_t     kind, value, first, n;
    weft_region region;
} request;

enum {
    MOST_TABLE = 1 << 26 /* numbers in which a rank says what it has */
};

/* ---- the table ---- */

static bool is_kept(const weft_graph_value *v)
{
    return v->kind == WEFT_VALUE_PARAM || (v->kind == WEFT_VALUE_STATE && v->node < 0);
}

static weft_status list_values(weft_parts *p, const weft_compiled *made,
                               const weft_runner *r)
{
    const weft_graph *g = made->graph;
    p->value            = WEFT_ARENA_ARRAY(p->arena, value, g->n_value + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (weft_vid v = 0; v < g->n_value; v++) {
        if (!is_kept(&g->value[v])) continue;
        value *x = &p->value[p->n_value++];
        x->name  = g->value[v].name;
        x->copy  = -1;
        x->shape = &g->value[v].type.shape;
        x->size  = weft_dtype_bytes(g->value[v].type.dtype);
        x->p     = weft_runner_view(r, x->name).p;
        x->at    = WEFT_ARENA_ARRAY(p->arena, weft_compiled_part, p->world);
        x->owner = WEFT_ARENA_ARRAY(p->arena, int, p->world);
        WEFT_TRY(weft_arena_status(p->arena));
        for (int k = 0; k < p->world; k++) {
            x->at[k].type         = g->value[v].type;
            x->at[k].type.shape.n = -1;
        }
        if (x->p)
            WEFT_TRY(weft_compiled_part_of(made, x->name, p->arena, &x->at[p->rank]));
    }
    for (weft_vid v = 0; v < g->n_value; v++) {
        weft_vid of = g->value[v].copy_of;
        if (of >= 0)
            p->value[weft_parts_find(p, g->value[of].name)].copy =
                weft_parts_find(p, g->value[v].name);
    }
    return WEFT_OK;
}

/* Numbers that say which parts a rank has: for each value its dimensions (-1: not there), for
 * each dimension the runs.  With out NULL only counted. */
static int64_t write_own(const weft_parts *p, int32_t *out)
{
    int64_t n = 0;
#define PUT(x) (out ? (void)(out[n] = (int32_t)(x)) : (void)0, n++)
    for (int i = 0; i < p->n_value; i++) {
        const weft_compiled_part *c = &p->value[i].at[p->rank];
        PUT(c->type.shape.n);
        for (int d = 0; d < c->type.shape.n; d++) {
            PUT(c->n[d]);
            for (int k = 0; k < c->n[d]; k++) PUT(c->run[d][k].lo), PUT(c->run[d][k].hi);
        }
    }
#undef PUT
    return n;
}

/* Numbers of another rank that are still to be read. */
typedef struct numbers {
    const int32_t *in;
    int64_t        left;
} numbers;

static bool read_number(numbers *t, int64_t lo, int64_t hi, int32_t *out)
{
    if (t->left < 1 || *t->in < lo || *t->in > hi) return false;
    *out = *t->in++;
    t->left--;
    return true;
}

/* Runs of dimension d: within it and ascending. */
static bool read_runs(weft_parts *p, numbers *t, int64_t size, int *n,
                      weft_interval **run)
{
    int32_t n_run, lo, hi = 0;
    if (!read_number(t, 0, t->left / 2, &n_run)) return false;
    *n   = n_run;
    *run = WEFT_ARENA_ARRAY(p->arena, weft_interval, n_run + 1);
    for (int k = 0; k < n_run && *run; k++) {
        if (!read_number(t, hi, size, &lo) || !read_number(t, lo, size, &hi))
            return false;
        (*run)[k] = (weft_interval){lo, hi};
    }
    return *run != NULL;
}

static bool read_part(weft_parts *p, numbers *t, const weft_shape *shape,
                      weft_compiled_part *c)
{
    int32_t n_dim;
    if (!read_number(t, -1, shape->n, &n_dim)) return false;
    c->type.shape.n = n_dim;
    if (n_dim < 0) return true;
    for (int d = 0; d < shape->n; d++)
        if (!read_runs(p, t, shape->d[d], &c->n[d], &c->run[d])) return false;
    return n_dim == shape->n;
}

/* What a rank says that it has: `in` comes from another process. */
static weft_status read_other(weft_parts *p, int rank, const int32_t *in, int64_t n)
{
    numbers t = {in, n};
    for (int i = 0; i < p->n_value; i++) {
        bool good = read_part(p, &t, p->value[i].shape, &p->value[i].at[rank]);
        WEFT_TRY(weft_arena_status(p->arena));
        if (!good)
            return WEFT_FAIL(WEFT_ERR_PEER,
                             "rank %d failed: it sent a part of %s that cannot be", rank,
                             p->value[i].name);
    }
    return WEFT_OK;
}

static weft_status exchange(weft_parts *p, weft_comm_group *all)
{
    int32_t     own = (int32_t)write_own(p, NULL), most = 0;
    int32_t    *size = malloc(sizeof *size * (size_t)p->world), *mine = NULL, *in = NULL;
    weft_status st = WEFT_OK;
    if (!size) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory"));
    WEFT_GO(weft_comm_collective(p->comm, all, WEFT_ALL_GATHER, WEFT_DTYPE_I32, &own,
                                 size, 1));
    for (int k = 0; k < p->world; k++) {
        if (size[k] < 0 || size[k] > MOST_TABLE)
            WEFT_GO(WEFT_FAIL(WEFT_ERR_PEER,
                              "rank %d failed: it sent %d as the size of its table", k,
                              size[k]));
        most = size[k] > most ? size[k] : most;
    }
    mine = calloc((size_t)most + 1, sizeof *mine);
    in   = malloc(sizeof *in * ((size_t)most + 1) * (size_t)p->world);
    if (!mine || !in) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory"));
    write_own(p, mine);
    WEFT_GO(weft_comm_collective(p->comm, all, WEFT_ALL_GATHER, WEFT_DTYPE_I32, mine, in,
                                 most));
    for (int k = 0; k < p->world; k++)
        WEFT_GO(read_other(p, k, in + (int64_t)k * most, size[k]));
out:
    free(size);
    free(mine);
    free(in);
    return st;
}

static bool same_part(const weft_compiled_part *a, const weft_compiled_part *b)
{
    for (int d = 0; d < a->type.shape.n; d++) {
        if (a->n[d] != b->n[d]) return false;
        for (int k = 0; k < a->n[d]; k++)
            if (a->run[d][k].lo != b->run[d][k].lo || a->run[d][k].hi != b->run[d][k].hi)
                return false;
    }
    return true;
}

static weft_status find_owners(weft_parts *p, const weft_graph *g)
{
    for (int i = 0; i < p->n_value; i++) {
        value  *x   = &p->value[i];
        int64_t all = weft_shape_count(&g->value[weft_graph_find(g, x->name)].type.shape);
        for (int k = 0; k < p->world; k++) {
            bool new = x->at[k].type.shape.n >= 0 && weft_part_count(&x->at[k]) > 0;
            for (int o = 0; o < x->n_owner && new; o++)
                new = !same_part(&x->at[x->owner[o]], &x->at[k]);
            if (!new) continue;
            all -= weft_part_count(&x->at[k]);
            x->owner[x->n_owner++] = k;
        }
        if (all)
            return WEFT_FAIL(WEFT_ERR_INTERNAL,
                             "%s: ranks' parts have %lld elements too few", x->name,
                             (long long)all);
    }
    return WEFT_OK;
}

/* ---- channels ---- */

static bool owns(const weft_parts *p, int rank)
{
    for (int i = 0; i < p->n_value; i++)
        for (int o = 0; o < p->value[i].n_owner; o++)
            if (p->value[i].owner[o] == rank) return true;
    return false;
}

static weft_status open_to(weft_parts *p, int peer, int at, bool answers, int tag)
{
    weft_comm_side ask = p->rank ? WEFT_COMM_RECV : WEFT_COMM_SEND;
    WEFT_TRY(
        weft_comm_open_channel(p->comm, peer, ask, tag, sizeof(request), 1, &p->ask[at]));
    if (!answers) return WEFT_OK;
    return weft_comm_open_channel(p->comm, peer,
                                  p->rank ? WEFT_COMM_SEND : WEFT_COMM_RECV, tag + 1,
                                  WEFT_PARTS_CHUNK * 8, 1, &p->answer[at]);
}

static weft_status open_channels(weft_parts *p, int tag)
{
    p->ask     = WEFT_ARENA_ARRAY(p->arena, weft_comm_channel *, p->world);
    p->answer  = WEFT_ARENA_ARRAY(p->arena, weft_comm_channel *, p->world);
    p->asked_s = WEFT_ARENA_ARRAY(p->arena, double, p->world);
    p->full_s  = WEFT_ARENA_ARRAY(p->arena, double, p->world);
    p->message = WEFT_ARENA_ARRAY(p->arena, char, WEFT_PARTS_CHUNK * 8);
    WEFT_TRY(weft_arena_status(p->arena));
    if (p->rank) return open_to(p, 0, 0, owns(p, p->rank), tag);
    for (int k = 1; k < p->world; k++) WEFT_TRY(open_to(p, k, k, owns(p, k), tag));
    return WEFT_OK;
}

weft_status weft_parts_create(const weft_compiled *made, const weft_runner *r,
                              weft_comm *comm, weft_comm_group *all, int tag,
                              weft_parts **out)
{
    weft_arena *a  = NULL;
    weft_status st = WEFT_OK;
    WEFT_GO(weft_arena_create(&a));
    weft_parts *p = WEFT_ARENA_NEW(a, weft_parts);
    if (!p) WEFT_GO(weft_arena_status(a));
    *p = (weft_parts){.arena  = a,
                      .comm   = comm,
                      .rank   = comm ? comm->rank : 0,
                      .world  = comm ? comm->world : 1,
                      .asking = -1};
    pthread_mutex_init(&p->lock, NULL);
    WEFT_GO(list_values(p, made, r));
    if (comm) WEFT_GO(exchange(p, all));
    WEFT_GO(find_owners(p, made->graph));
    if (comm && tag) WEFT_GO(open_channels(p, tag));
    *out = p;
    a    = NULL;
out:
    weft_arena_destroy(a);
    return st;
}

int64_t weft_parts_bytes(const weft_parts *p)
{
    return p ? weft_arena_bytes(p->arena) : 0;
}

void weft_parts_destroy(weft_parts *p)
{
    if (!p) return;
    pthread_mutex_destroy(&p->lock);
    weft_arena_destroy(p->arena);
}

int weft_parts_find(const weft_parts *p, const char *name)
{
    for (int i = 0; i < p->n_value; i++)
        if (!strcmp(p->value[i].name, name)) return i;
    return -1;
}

int weft_parts_copy(const weft_parts *p, int v)
{
    return p->value[v].copy;
}

void *weft_parts_memory(const weft_parts *p, int v)
{
    return p->value[v].p;
}

const weft_compiled_part *weft_parts_own(const weft_parts *p, int v)
{
    const weft_compiled_part *c = &p->value[v].at[p->rank];
    return c->type.shape.n < 0 || !p->value[v].p ? NULL : c;
}

/* ---- pull and serve ---- */

/* Between a part's memory and a message (packed), or between either and elements in the region's
 * order. */
typedef struct mover {
    int64_t size, first;
    char   *part, *packed, *out;
    int64_t n; /* elements so far */
} mover;

static weft_status move(void *arg, int64_t at, int64_t index, int64_t n)
{
    mover *m    = arg;
    size_t n_by = (size_t)(n * m->size);
    char  *to =
        m->out ? m->out + (index - m->first) * m->size : m->packed + m->n * m->size;
    char *from = m->part ? m->part + at * m->size : m->packed + m->n * m->size;
    if (to && from && to != from) memcpy(to, from, n_by);
    m->n += n;
    return WEFT_OK;
}

static weft_status count(void *arg, int64_t at, int64_t index, int64_t n)
{
    (void)at, (void)index;
    *(int64_t *)arg += n;
    return WEFT_OK;
}

static weft_status ask(weft_parts *p, int rank, const request *q)
{
    pthread_mutex_lock(&p->lock);
    p->asking = rank;
    pthread_mutex_unlock(&p->lock);
    weft_status st = weft_comm_send(p->comm, p->ask[rank], q, sizeof *q);
    pthread_mutex_lock(&p->lock);
    p->asking        = -1;
    p->asked_s[rank] = weft_clock_s();
    pthread_mutex_unlock(&p->lock);
    return st;
}

/* Never waits: the others must hear in time. */
static weft_status tell_one(weft_parts *p, int rank, double interval_s)
{
    double now = weft_clock_s();
    if (rank == p->asking || now - p->asked_s[rank] < interval_s) return WEFT_OK;
    if (weft_comm_can_send(p->comm, p->ask[rank])) {
        p->asked_s[rank] = now;
        p->full_s[rank]  = 0;
        return weft_comm_send(p->comm, p->ask[rank], &(request){.kind = REQUEST_WAIT},
                              sizeof(request));
    }
    if (p->full_s[rank] <= 0) p->full_s[rank] = now;
    if (now - p->full_s[rank] < p->comm->timeout_s) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_PEER,
                     "rank %d timed out: it took no message of rank 0 for %g s", rank,
                     p->comm->timeout_s);
}

weft_status weft_parts_keep_alive(weft_parts *p, double interval_s)
{
    weft_status st = WEFT_OK;
    pthread_mutex_lock(&p->lock);
    for (int k = 1; k < p->world && st == WEFT_OK; k++) st = tell_one(p, k, interval_s);
    pthread_mutex_unlock(&p->lock);
    return st;
}

weft_status weft_parts_pull(weft_parts *p, int v, const weft_region *r, int64_t first,
                            int64_t n, void *out)
{
    value  *x = &p->value[v];
    request q = {.kind = REQUEST_DATA, .value = v, .first = first, .n = n, .region = *r};
    for (int o = 0; o < x->n_owner; o++) {
        int                       k    = x->owner[o];
        const weft_compiled_part *c    = &x->at[k];
        mover                     m    = {.size = x->size, .first = first, .out = out};
        int64_t                   have = 0;
        if (k == p->rank) {
            m.part = x->p;
            WEFT_TRY(weft_part_walk(c, r, first, n, move, &m));
            continue;
        }
        WEFT_TRY(weft_part_walk(c, r, first, n, count, &have));
        if (!have) continue;
        WEFT_TRY(ask(p, k, &q));
        WEFT_TRY(weft_comm_recv(p->comm, p->answer[k], p->message, have * x->size));
        m.packed = p->message;
        WEFT_TRY(weft_part_walk(c, r, first, n, move, &m));
    }
    weft_progress_mark();
    return WEFT_OK;
}

/* A request of rank 0: for something that this rank has, no more than a message holds. */
static bool is_request(const weft_parts *p, const request *q)
{
    if (q->kind != REQUEST_DATA || q->value < 0 || q->value >= p->n_value) return false;
    const value      *x = &p->value[q->value];
    const weft_shape *s = x->shape;
    if (!x->p || !p->answer[0] || x->at[p->rank].type.shape.n < 0) return false;
    if (q->region.global.n != s->n || q->first < 0 || q->n < 0 || q->n > WEFT_PARTS_CHUNK)
        return false;
    for (int d = 0; d < s->n; d++)
        if (q->region.global.d[d] != s->d[d] || q->region.extent[d] < 1 ||
            q->region.extent[d] > s->d[d] || q->region.offset[d] < 0 ||
            q->region.offset[d] > s->d[d] - q->region.extent[d])
            return false;
    return q->first <= weft_region_count(&q->region) - q->n;
}

weft_status weft_parts_serve(weft_parts *p)
{
    for (;;) {
        request q;
        WEFT_TRY(weft_comm_recv(p->comm, p->ask[0], &q, sizeof q));
        weft_progress_alive();
        if (q.kind == REQUEST_END) return WEFT_OK;
        if (q.kind == REQUEST_WAIT) continue;
        if (!is_request(p, &q))
            return WEFT_FAIL(WEFT_ERR_PEER,
                             "rank 0 failed: it asked for what rank %d does not have",
                             p->rank);
        value *x = &p->value[q.value];
        mover m = {.size = x->size, .first = q.first, .part = x->p, .packed = p->message};
        WEFT_TRY(weft_part_walk(&x->at[p->rank], &q.region, q.first, q.n, move, &m));
        WEFT_TRY(weft_comm_send(p->comm, p->answer[0], p->message, m.n * x->size));
    }
}

weft_status weft_parts_release(weft_parts *p)
{
    for (int k = 1; k < p->world; k++)
        WEFT_TRY(ask(p, k, &(request){.kind = REQUEST_END}));
    return WEFT_OK;
}

/* ---- loans ---- */

typedef struct loan {
    int                from, to;
    char              *p; /* at either end */
    int64_t            bytes;
    weft_comm_channel *ch; /* NULL: of other ranks */
} loan;

struct weft_loans {
    weft_arena *arena;
    weft_comm  *comm;
    int         n, cap;
    loan       *loan;
};

enum {
    LOAN_PIECE = 8 * WEFT_PARTS_CHUNK /* bytes of a message */
};

static bool has(const value *x, int rank)
{
    return x->at[rank].type.shape.n >= 0;
}

/* Rank k's part of value y of the second program, from whoever has it in the first as x. */
static weft_status add_loan(weft_loans *l, const weft_parts *first, const value *x,
                            const value *y, int k)
{
    int from = 0;
    while (from < first->world && !(has(x, from) && same_part(&x->at[from], &y->at[k])))
        from++;
    if (from == first->world)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "no rank has what rank %d needs of %s", k,
                         y->name);
    WEFT_TRY(
        weft_arena_grow(l->arena, (void **)&l->loan, &l->cap, l->n + 1, sizeof *l->loan));
    l->loan[l->n++] = (loan){.from  = from,
                             .to    = k,
                             .p     = first->rank == from ? x->p : y->p,
                             .bytes = weft_part_count(&y->at[k]) * y->size};
    return WEFT_OK;
}

static weft_status find_loans(weft_loans *l, const weft_parts *first,
                              const weft_parts *second)
{
    for (int i = 0; i < second->n_value; i++) {
        const value *y = &second->value[i];
        int          v = weft_parts_find(first, y->name);
        for (int k = 0; v >= 0 && k < first->world; k++)
            if (has(y, k) && !has(&first->value[v], k) && weft_part_count(&y->at[k]) > 0)
                WEFT_TRY(add_loan(l, first, &first->value[v], y, k));
    }
    return WEFT_OK;
}

/* One channel for each pair of ranks. */
static weft_status open_loans(weft_loans *l, int tag)
{
    for (int i = 0; i < l->n; i++) {
        loan *x     = &l->loan[i];
        bool  gives = x->from == l->comm->rank, takes = x->to == l->comm->rank;
        for (int k = 0; k < i && !x->ch; k++)
            if (l->loan[k].from == x->from && l->loan[k].to == x->to)
                x->ch = l->loan[k].ch;
        if (x->ch || (!gives && !takes)) continue;
        WEFT_TRY(weft_comm_open_channel(l->comm, gives ? x->to : x->from,
                                        gives ? WEFT_COMM_SEND : WEFT_COMM_RECV, tag,
                                        LOAN_PIECE, 1, &x->ch));
    }
    return WEFT_OK;
}

weft_status weft_loans_create(weft_parts *first, weft_parts *second, int tag,
                              weft_loans **out)
{
    weft_arena *a  = NULL;
    weft_status st = WEFT_OK;
    WEFT_GO(weft_arena_create(&a));
    weft_loans *l = WEFT_ARENA_NEW(a, weft_loans);
    if (!l) WEFT_GO(weft_arena_status(a));
    *l = (weft_loans){.arena = a, .comm = first->comm};
    WEFT_GO(find_loans(l, first, second));
    WEFT_GO(open_loans(l, tag));
    *out = l;
    a    = NULL;
out:
    weft_arena_destroy(a);
    return st;
}

/* All ranks go through the same list, so nobody waits in a circle. */
weft_status weft_loans_renew(weft_loans *l)
{
    for (int i = 0; i < l->n; i++) {
        const loan *x = &l->loan[i];
        for (int64_t at = 0, k; x->ch && at < x->bytes; at += k) {
            k = x->bytes - at < LOAN_PIECE ? x->bytes - at : LOAN_PIECE;
            WEFT_TRY(x->from == l->comm->rank
                         ? weft_comm_send(l->comm, x->ch, x->p + at, k)
                         : weft_comm_recv(l->comm, x->ch, x->p + at, k));
        }
    }
    return WEFT_OK;
}

int64_t weft_loans_bytes(const weft_loans *l)
{
    return l ? weft_arena_bytes(l->arena) : 0;
}

void weft_loans_destroy(weft_loans *l)
{
    if (l) weft_arena_destroy(l->arena);
}
