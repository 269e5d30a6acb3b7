/* The walk; see walk.h.  Each stream goes as far as it can, then waits to be woken by whoever moves
 * what it waits for; when nobody can move and not all are done, that is a deadlock. */
#include <stdio.h>
#include <string.h>

#include "program/walk_priv.h"

typedef weft_program__walk    walk;
typedef weft_program__stream  stream;
typedef weft_program__channel channel;
typedef weft_program__meeting meeting;

static double later(double a, double b)
{
    return a > b ? a : b;
}

static void wake(walk *w, int id)
{
    if (id < 0 || w->stream[id].queued || w->stream[id].done) return;
    w->stream[id].queued                             = true;
    w->queue[(w->head + w->n_queue++) % w->n_stream] = id;
}

static const weft_firing *firing_of(const walk *w, const stream *x)
{
    return &w->program[x->program]->stream[x->number].firing[x->firing];
}

static const weft_instr *instr_of(const walk *w, const stream *x)
{
    return &w->program[x->program]->actor[firing_of(w, x)->actor].instr[x->instr];
}

static int instr_number(const walk *w, const stream *x)
{
    return w->instr_at[x->program][firing_of(w, x)->actor] + x->instr;
}

static double seconds_of(const walk *w, const stream *x)
{
    return w->o->seconds ? w->o->seconds[x->program][instr_number(w, x)] : 0;
}

/* The instruction of x ran from start to end. */
static weft_status ran(walk *w, stream *x, double start, double end)
{
    const weft_firing *f = firing_of(w, x);
    weft_slice         s = {.program = x->program,
                            .stream  = x->number,
                            .actor   = f->actor,
                            .instr   = x->instr,
                            .micro   = f->micro,
                            .step    = x->step,
                            .start_s = start,
                            .end_s   = end};
    x->now               = end;
    x->instr++;
    return w->o->visit ? w->o->visit(w->o->user, &s) : WEFT_OK;
}

/* ---- messages ---- */

static weft_status check_bytes(const channel *c, double sent, double received)
{
    if (sent == received) return WEFT_OK;
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "rank %d sends %.0f bytes with tag %d to rank %d, which receives %.0f", c->from,
        sent, c->tag, c->to, received);
}

/* credits = 0: the second one to come finishes for both. */
static weft_status meet(walk *w, stream *x, channel *c, int me)
{
    c->here[me]    = true;
    c->ready[me]   = x->now;
    c->seconds[me] = seconds_of(w, x);
    c->instr[me]   = instr_of(w, x);
    if (!c->here[!me]) return WEFT_OK;
    WEFT_TRY(
        check_bytes(c, weft_instr_bytes(c->instr[0]), weft_instr_bytes(c->instr[1])));
    double start   = later(c->ready[0], c->ready[1]);
    double seconds = later(c->seconds[0], c->seconds[1]);
    for (int k = 0; k < 2; k++) {
        c->here[k] = false;
        c->n_done[k]++;
        WEFT_TRY(weft_program__begin(w, &w->stream[c->side[k]], start, seconds));
    }
    wake(w, c->side[!me]);
    return WEFT_OK;
}

static weft_status do_send(walk *w, stream *x, channel *c)
{
    int64_t n = c->n_done[0];
    if (n - c->n_done[1] >= c->credits) return WEFT_OK; /* blocked */
    double start = x->now;
    if (n >= c->credits) start = later(start, c->freed[(n - c->credits) % c->cap]);
    return weft_program__begin(w, x, start, seconds_of(w, x));
}

static void sent(walk *w, const stream *x, channel *c, double end)
{
    int64_t n             = c->n_done[0]++;
    c->arrive[n % c->cap] = end;
    c->bytes[n % c->cap]  = weft_instr_bytes(instr_of(w, x));
    wake(w, c->side[1]);
}

static weft_status do_recv(walk *w, stream *x, channel *c)
{
    int64_t n = c->n_done[1];
    if (n >= c->n_done[0]) return WEFT_OK; /* blocked */
    WEFT_TRY(check_bytes(c, c->bytes[n % c->cap], weft_instr_bytes(instr_of(w, x))));
    return weft_program__begin(w, x, later(x->now, c->arrive[n % c->cap]),
                               seconds_of(w, x));
}

static void received(walk *w, channel *c, double end)
{
    c->freed[c->n_done[1]++ % c->cap] = end;
    wake(w, c->side[0]);
}

/* ---- collectives ---- */

/* Ranks must agree on each tensor; a gather's shares are the kind's own. */
static weft_status check_same_tensor(const weft_instr *a, int32_t first,
                                     const weft_instr *b, int32_t rank, int t)
{
    int64_t u = weft_instr_unit(a, t), v = weft_instr_unit(b, t);
    if (u != v)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s '%s': rank %d has units of %lld elements, rank %d of %lld",
                         weft_collective_name(a->coll), a->name, first, (long long)u,
                         rank, (long long)v);
    bool    gathers = a->coll == WEFT_ALL_GATHER && u;
    int64_t n = weft_shape_count(gathers ? &a->out[t].type.shape : &a->in[t].type.shape);
    int64_t k = weft_shape_count(gathers ? &b->out[t].type.shape : &b->in[t].type.shape);
    if (n == k) return WEFT_OK;
    if (gathers)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s '%s': rank %d gathers %lld elements, rank %d %lld",
                         weft_collective_name(a->coll), a->name, first, (long long)n,
                         rank, (long long)k);
    int64_t size = weft_dtype_bytes(a->in[t].type.dtype);
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s '%s': rank %d gives %lld bytes, rank %d gives %lld",
                     weft_collective_name(a->coll), a->name, first, (long long)(n * size),
                     rank, (long long)(k * size));
}

/* Ranks must agree on kind, data type and how much. */
static weft_status check_same(const walk *w, const meeting *m, const stream *x)
{
    const weft_instr *a = m->first, *b = instr_of(w, x);
    int32_t           rank = w->program[x->program]->rank;
    if (a->coll != b->coll)
        return WEFT_FAIL(WEFT_ERR_ARG, "'%s' of rank %d is %s, '%s' of rank %d is %s",
                         a->name, m->first_rank, weft_collective_name(a->coll), b->name,
                         rank, weft_collective_name(b->coll));
    if (a->coll == WEFT_BARRIER) return WEFT_OK;
    if (a->n_in != b->n_in)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s '%s': rank %d has %d tensors, rank %d has %d",
                         weft_collective_name(a->coll), a->name, m->first_rank, a->n_in,
                         rank, b->n_in);
    if (a->in[0].type.dtype != b->in[0].type.dtype)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s '%s': rank %d gives %s, rank %d gives %s",
                         weft_collective_name(a->coll), a->name, m->first_rank,
                         weft_dtype_name(a->in[0].type.dtype), rank,
                         weft_dtype_name(b->in[0].type.dtype));
    if (a->lanes != b->lanes)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s '%s': rank %d shares %d lanes, rank %d %d",
                         weft_collective_name(a->coll), a->name, m->first_rank, a->lanes,
                         rank, b->lanes);
    if (a->coll == WEFT_SEND_ROWS || a->coll == WEFT_RETURN_ROWS) {
        if (a->in[0].type.shape.d[1] == b->in[0].type.shape.d[1] &&
            a->in[1].type.shape.d[1] == b->in[1].type.shape.d[1])
            return WEFT_OK;
        return WEFT_FAIL(WEFT_ERR_ARG, "%s '%s': ranks %d and %d have other rows or bins",
                         weft_collective_name(a->coll), a->name, m->first_rank, rank);
    }
    for (int t = 0; t < a->n_in; t++)
        WEFT_TRY(check_same_tensor(a, m->first_rank, b, rank, t));
    return WEFT_OK;
}

static weft_status do_collective(walk *w, stream *x, meeting *m)
{
    int32_t rank = w->program[x->program]->rank;
    int     me   = w->place[x->program][instr_number(w, x)];
    if (m->here[me]) return WEFT_OK; /* still waiting */
    if (!m->n_here) {
        m->first      = instr_of(w, x);
        m->first_rank = rank;
        m->ready = m->seconds = 0;
    }
    WEFT_TRY(check_same(w, m, x));
    m->here[me] = true;
    m->ready    = later(m->ready, x->now);
    m->seconds  = later(m->seconds, seconds_of(w, x));
    if (++m->n_here < m->group->n_rank) return WEFT_OK;
    m->n_here = 0;
    for (int k = 0; k < m->group->n_rank; k++) {
        m->here[k] = false;
        WEFT_TRY(weft_program__begin(w, &w->stream[m->side[k]], m->ready, m->seconds));
        if (k != me) wake(w, m->side[k]);
    }
    return WEFT_OK;
}

/* ---- firings ---- */

/* Runs the instruction if it can; x->instr moves when it did. */
static weft_status do_instr(walk *w, stream *x)
{
    const weft_instr *i    = instr_of(w, x);
    int               link = w->link[x->program][instr_number(w, x)];
    if (i->kind == WEFT_INSTR_COLLECTIVE) return do_collective(w, x, &w->meeting[link]);
    if (i->kind != WEFT_INSTR_SEND && i->kind != WEFT_INSTR_RECV)
        return weft_program__begin(w, x, x->now, seconds_of(w, x));
    channel *c  = &w->channel[link];
    int      me = i->kind == WEFT_INSTR_RECV;
    if (!c->credits) return meet(w, x, c, me);
    return me ? do_recv(w, x, c) : do_send(w, x, c);
}

weft_status weft_program__end(walk *w, stream *x, double start, double end)
{
    const weft_instr *i    = instr_of(w, x);
    bool              send = i->kind == WEFT_INSTR_SEND;
    if (send || i->kind == WEFT_INSTR_RECV) {
        channel *c = &w->channel[w->link[x->program][instr_number(w, x)]];
        if (c->credits && send) sent(w, x, c, end);
        if (c->credits && !send) received(w, c, end);
    }
    return ran(w, x, start, end);
}

static bool begin_firing(walk *w, stream *x)
{
    const weft_firing_order *f = &w->order[x->program].firing[x->number][x->firing];
    double                   t = x->now;
    for (int i = 0; i < f->n_wait; i++) {
        weft_program__edge *e    = &w->edge[x->program][f->wait[i].edge];
        int64_t             need = (int64_t)x->step * f->wait[i].per_step + f->wait[i].at;
        int                 k    = f->wait[i].credit;
        if (e->count[k] < need) return false;
        if (need > 0) t = later(t, e->at[k][need - 1]);
    }
    x->now    = t;
    x->inside = true;
    x->instr  = 0;
    return true;
}

static void end_firing(walk *w, stream *x)
{
    const weft_firing_order *f = &w->order[x->program].firing[x->number][x->firing];
    for (int i = 0; i < f->n_give; i++) {
        weft_program__edge *e   = &w->edge[x->program][f->give[i].edge];
        int                 k   = f->give[i].credit;
        e->at[k][e->count[k]++] = x->now;
        wake(w, e->side[k]);
    }
    x->inside = false;
    if (++x->firing < w->program[x->program]->stream[x->number].n_firing) return;
    x->firing = 0;
    if (++x->step == w->o->n_step) x->done = true;
}

static weft_status advance(walk *w, stream *x)
{
    while (!x->done && !x->running) {
        if (!x->inside && !begin_firing(w, x)) return WEFT_OK;
        if (x->instr == w->program[x->program]->actor[firing_of(w, x)->actor].n_instr) {
            end_firing(w, x);
            continue;
        }
        int at = x->instr;
        WEFT_TRY(do_instr(w, x));
        if (x->instr == at) return WEFT_OK; /* blocked */
    }
    return WEFT_OK;
}

/* ---- reports ---- */

/* What a stream that cannot move waits for. */
static void say_wait(const walk *w, const stream *x, weft_text *t)
{
    const weft_program *p = w->program[x->program];
    const weft_firing  *f = firing_of(w, x);
    weft_text_add(t, "%srank %d %s: actor %s", t->n ? "; " : "", p->rank,
                  w->program[x->program]->stream[x->number].name,
                  p->actor[f->actor].name);
    if (f->micro >= 0) weft_text_add(t, " micro-batch %d", f->micro);
    if (!x->inside) {
        const weft_firing_order *o = &w->order[x->program].firing[x->number][x->firing];
        for (int i = 0; i < o->n_wait; i++) {
            const weft_wait *v = &o->wait[i];
            const weft_edge *e = &p->edge[v->edge];
            if (w->edge[x->program][v->edge].count[v->credit] >=
                (int64_t)x->step * v->per_step + v->at)
                continue;
            weft_text_add(t, " waits for %s of %s", v->credit ? "a credit" : "a message",
                          p->actor[v->credit ? e->to : e->from].name);
            return;
        }
    }
    const weft_instr *i = instr_of(w, x);
    weft_text_add(t, " waits in %s '%s'", weft_instr_kind_name(i->kind), i->name);
    if (i->kind == WEFT_INSTR_COLLECTIVE) {
        const meeting *m = &w->meeting[w->link[x->program][instr_number(w, x)]];
        weft_text_add(t, " for rank");
        for (int k = 0; k < m->group->n_rank; k++)
            if (!m->here[k]) weft_text_add(t, " %d", m->group->rank[k]);
    } else {
        weft_text_add(t, " for rank %d (tag %d)", i->peer, i->tag);
    }
}

static weft_status deadlock(const walk *w)
{
    weft_text t = {0};
    for (int i = 0, said = 0; i < w->n_stream && said < 4; i++)
        if (!w->stream[i].done) {
            say_wait(w, &w->stream[i], &t);
            said++;
        }
    weft_status st = WEFT_FAIL(WEFT_ERR_ARG, "deadlock: %s", t.s ? t.s : "");
    weft_text_fini(&t);
    return st;
}

static weft_status all_received(const walk *w)
{
    for (int i = 0; i < w->n_channel; i++) {
        const channel *c = &w->channel[i];
        if (c->n_done[0] != c->n_done[1])
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "rank %d sends %lld messages with tag %d to rank %d in %d steps, "
                "which receives %lld",
                c->from, (long long)c->n_done[0], c->tag, c->to, w->o->n_step,
                (long long)c->n_done[1]);
    }
    return WEFT_OK;
}

/* ---- setting out ---- */

static weft_status add_streams(walk *w)
{
    int most     = w->n_program * WEFT_MAX_STREAM;
    w->stream    = WEFT_ARENA_ARRAY(w->arena, stream, most);
    w->queue     = WEFT_ARENA_ARRAY(w->arena, int, most);
    w->stream_at = WEFT_ARENA_ARRAY(w->arena, int, most);
    WEFT_TRY(weft_arena_status(w->arena));
    for (int i = 0; i < w->n_program; i++)
        for (int s = 0; s < w->program[i]->n_stream; s++) {
            bool fires                            = w->program[i]->stream[s].n_firing > 0;
            w->stream_at[i * WEFT_MAX_STREAM + s] = fires ? w->n_stream : -1;
            if (fires) w->stream[w->n_stream++] = (stream){.program = i, .number = s};
        }
    return WEFT_OK;
}

static weft_status add_edges(walk *w, int at)
{
    const weft_program *p = w->program[at];
    WEFT_TRY(weft_order_make(p, w->arena, true, &w->order[at]));
    w->edge[at] = WEFT_ARENA_ARRAY(w->arena, weft_program__edge, p->n_edge);
    WEFT_TRY(weft_arena_status(w->arena));
    for (int e = 0; e < p->n_edge; e++) {
        weft_program__edge *x = &w->edge[at][e];
        for (int k = 0; k < 2; k++)
            x->at[k] = WEFT_ARENA_ARRAY(w->arena, double,
                                        (int64_t)w->order[at].per_step[e] * w->o->n_step);
        const int *of = &w->stream_at[at * WEFT_MAX_STREAM];
        x->side[0]    = of[p->actor[p->edge[e].to].stream];
        x->side[1]    = of[p->actor[p->edge[e].from].stream];
    }
    return weft_arena_status(w->arena);
}

static weft_status number_instrs(walk *w, int at)
{
    const weft_program *p = w->program[at];
    int                 n = 0;
    w->instr_at[at]       = WEFT_ARENA_ARRAY(w->arena, int, p->n_actor);
    if (!w->instr_at[at]) return weft_arena_status(w->arena);
    for (int a = 0; a < p->n_actor; n += p->actor[a++].n_instr) w->instr_at[at][a] = n;
    w->link[at]  = WEFT_ARENA_ARRAY(w->arena, int, n);
    w->place[at] = WEFT_ARENA_ARRAY(w->arena, int, n);
    return weft_arena_status(w->arena);
}

static weft_status set_out(walk *w)
{
    int n       = w->n_program;
    w->of_rank  = WEFT_ARENA_ARRAY(w->arena, int, n);
    w->order    = WEFT_ARENA_ARRAY(w->arena, weft_order, n);
    w->edge     = WEFT_ARENA_ARRAY(w->arena, weft_program__edge *, n);
    w->link     = WEFT_ARENA_ARRAY(w->arena, int *, n);
    w->place    = WEFT_ARENA_ARRAY(w->arena, int *, n);
    w->instr_at = WEFT_ARENA_ARRAY(w->arena, int *, n);
    WEFT_TRY(weft_arena_status(w->arena));
    if (w->o->host) w->n_active = WEFT_ARENA_ARRAY(w->arena, int, w->o->n_host + 1);
    WEFT_TRY(weft_arena_status(w->arena));
    for (int i = 0; i < n; i++) w->of_rank[i] = -1;
    for (int i = 0; i < n; i++) {
        const weft_program *p = w->program[i];
        if (p->world != n || p->rank < 0 || p->rank >= n || w->of_rank[p->rank] >= 0)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "%d programs are to be ranks 0..%d of %d, but %s is rank %d of %d%s", n,
                n - 1, n, p->name, p->rank, p->world, p->world == n ? " again" : "");
        w->of_rank[p->rank] = i;
    }
    WEFT_TRY(add_streams(w));
    for (int i = 0; i < n; i++) {
        WEFT_TRY(number_instrs(w, i));
        WEFT_TRY(add_edges(w, i));
    }
    return weft_program__link(w);
}

weft_status weft_program_walk(const weft_program *const *p, int n,
                              const weft_walk_options *o)
{
    walk        w  = {.o = o, .n_program = n, .program = p};
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_arena_create(&w.arena));
    WEFT_GO(set_out(&w));
    for (int i = 0; i < w.n_stream; i++) wake(&w, i);
    for (bool more = true; more;) {
        while (w.n_queue) {
            stream *x = &w.stream[w.queue[w.head]];
            w.head    = (w.head + 1) % w.n_stream;
            w.n_queue--;
            x->queued = false;
            WEFT_GO(advance(&w, x));
        }
        WEFT_GO(weft_program__pass_time(&w, &more));
        for (int i = 0; more && i < w.n_stream; i++)
            if (!w.stream[i].running) wake(&w, i);
    }
    for (int i = 0; i < w.n_stream; i++)
        if (!w.stream[i].done) WEFT_GO(deadlock(&w));
    WEFT_GO(all_received(&w));
out:
    weft_arena_destroy(w.arena);
    return st;
}
