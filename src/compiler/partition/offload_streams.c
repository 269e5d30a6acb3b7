/* When offloaded updates run: their streams, and what of the compute stream waits for them.
 *
 *     compute    backward ... | norm, commit | the next step's forward, by layers
 *     copy_out     out.7 out.6               | out.0 out.1 ...
 *     update                                 |    update.0  update.1 ...        device 1: the host
 *     copy_in                                |            in.0     in.1 ...
 *
 * Updates come after the commit point, in the order in which the next step uses what they write.
 * It begins at once: the compute stream is cut where it first uses a chunk's parameters, and each
 * piece waits for its chunk alone.  Gradients have host memory of their own, and the compute stream
 * waits for their copies only where it writes over what they read.  Copies are in the order of the
 * updates, which take longer, so that updates hide them; but those of the last layers, whose
 * gradients are final first, go out while the backward pass goes on, which is cut there.  Results
 * go in through a ring of RING slots.
 *
 * Where gradients are too large for that they go through the ring, too, after the commit point.
 * Where something else than the next step's compute stream uses results (ranks that gather them),
 * all of the rest waits for the last chunk, and updates keep their order. */
#include <stdlib.h>

#include "partition/offload_priv.h"

typedef weft_offload_pass  offload_pass;
typedef weft_offload_place offload_place;

enum {
    RING = WEFT_OFFLOAD_RING,
    /* one of so many chunks, the last ones, is copied during the backward pass: more would not be
     * through at its end, and hold back the first ones, which updates begin with */
    EARLY = 4
};

/* ---- the compute stream, seen from the updates ---- */

static bool uses(const weft_program *p, const weft_operand *o, int n,
                 const int32_t *buffer, int n_buffer)
{
    for (int x = 0; x < n; x++)
        for (int b = 0; o[x].buffer >= 0 && b < n_buffer; b++)
            if (weft_offload__overlap(&p->buffer[o[x].buffer], &p->buffer[buffer[b]]))
                return true;
    return false;
}

static bool uses_any(const weft_program *p, const weft_instr *i, const int32_t *buffer,
                     int n, bool writes_only)
{
    return uses(p, i->out, i->n_out, buffer, n) ||
           (!writes_only && uses(p, i->in, i->n_in, buffer, n));
}

static const weft_instr *instr_at(const offload_pass *k, const offload_place *x)
{
    return &k->p->actor[x->actor].instr[x->instr];
}

int weft_offload__find_use(const weft_offload_pass *k, const int32_t *buffer, int n,
                           bool writes_only)
{
    int at = 0;
    while (at < k->n_after &&
           !uses_any(k->p, instr_at(k, &k->after[at]), buffer, n, writes_only))
        at++;
    return at;
}

static void list_after(offload_pass *k, int actor, bool next, bool *seen)
{
    const weft_actor *a = &k->p->actor[actor];
    for (int i = 0; !seen[actor] && i < a->n_instr; i++)
        if (!weft_offload__is_moved(a, i))
            k->after[k->n_after++] = (offload_place){actor, i, next};
    seen[actor] = true;
}

static void list_before(offload_pass *k, int actor, bool *seen)
{
    for (int i = k->p->actor[actor].n_instr - 1; !seen[actor] && i >= 0; i--)
        k->before[k->n_before++] = (offload_place){actor, i, false};
    seen[actor] = true;
}

/* Buffers on the device that updates and their casts write. */
static int list_results(const offload_pass *k, int32_t *list)
{
    const weft_program     *p = k->p;
    const weft_stream_spec *s = weft_program_stream(p, WEFT_STREAM_COMPUTE);
    int                     n = 0;
    for (int f = k->at + 1; f < s->n_firing; f++) {
        const weft_actor *a = &p->actor[s->firing[f].actor];
        for (int i = 0; i < a->n_instr; i++)
            for (int x = 0; weft_offload__is_moved(a, i) && x < a->instr[i].n_out; x++) {
                int32_t b = a->instr[i].out[x].buffer;
                if (b >= 0 && k->on_device[b]) list[n++] = b;
            }
    }
    return n;
}

static int count_results(const offload_pass *k)
{
    int n = 0;
    for (int a = 0; a < k->p->n_actor; a++)
        for (int i = 0; i < k->p->actor[a].n_instr; i++)
            n += k->p->actor[a].instr[i].n_out;
    return n;
}

static bool is_gather(const weft_instr *i)
{
    return i->kind == WEFT_INSTR_COLLECTIVE &&
           (i->coll == WEFT_ALL_GATHER || i->coll == WEFT_BROADCAST);
}

/* Does another stream gather, or use what updates write?  It may do so after the commit point. */
static bool is_used_elsewhere(const offload_pass *k, const int32_t *result, int n)
{
    const weft_program *p       = k->p;
    int32_t             compute = weft_partition__stream(p, WEFT_STREAM_COMPUTE);
    for (int a = 0; a < p->n_actor; a++)
        for (int i = 0; p->actor[a].stream != compute && i < p->actor[a].n_instr; i++)
            if (is_gather(&p->actor[a].instr[i]) ||
                uses_any(p, &p->actor[a].instr[i], result, n, false))
                return true;
    return false;
}

static weft_status decide_overlap(offload_pass *k)
{
    int32_t *result = WEFT_ARENA_ARRAY(k->tmp, int32_t, count_results(k) + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    int n   = list_results(k, result);
    int use = weft_offload__find_use(k, result, n, false);
    k->overlaps =
        (use == k->n_after || k->after[use].next) && !is_used_elsewhere(k, result, n);
    return WEFT_OK;
}

weft_status weft_offload__find_places(weft_offload_pass *k)
{
    const weft_program     *p    = k->p;
    const weft_stream_spec *s    = weft_program_stream(p, WEFT_STREAM_COMPUTE);
    int                     n    = weft_program_n_instr(p);
    bool                   *seen = WEFT_ARENA_ARRAY(k->tmp, bool, p->n_actor);
    bool                   *back = WEFT_ARENA_ARRAY(k->tmp, bool, p->n_actor);
    k->after                     = WEFT_ARENA_ARRAY(k->tmp, offload_place, n + 1);
    k->before                    = WEFT_ARENA_ARRAY(k->tmp, offload_place, n + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    for (int f = k->at + 1; f < s->n_firing; f++)
        list_after(k, s->firing[f].actor, false, seen);
    for (int f = 0; f <= k->at; f++) list_after(k, s->firing[f].actor, true, seen);
    for (int f = k->at; f >= 0; f--) list_before(k, s->firing[f].actor, back);
    return decide_overlap(k);
}

/* ---- edges, whose ends may be pieces of actors ---- */

/* An edge from the instruction at `from`, and all before it, to the one at `to`, and all after
 * it; instr -1: of the actor as a whole. */
typedef struct link {
    offload_place from, to;
    int           delay;
} link;

/* An actor is cut before instruction `at`. */
typedef struct cut {
    int actor, at, piece; /* piece: what comes before, after the cut before it */
} cut;

typedef struct stream_maker {
    offload_pass *k;
    int32_t       copy_out, update, copy_in;
    int          *out, *up, *in; /* actors of each chunk */
    int          *ready; /* of each chunk: where its gradients are final, in before */
    int           n_link, cap_link, n_cut, cap_cut;
    link         *link;
    cut          *cut;
} stream_maker;

static offload_place whole(int actor)
{
    return (offload_place){.actor = actor, .instr = -1};
}

static weft_status add_link(stream_maker *m, offload_place from, offload_place to,
                            int delay)
{
    WEFT_TRY(weft_arena_grow(m->k->tmp, (void **)&m->link, &m->cap_link, m->n_link + 1,
                             sizeof *m->link));
    m->link[m->n_link++] = (link){from, to, delay};
    return WEFT_OK;
}

static weft_status order(stream_maker *m, int from, int to)
{
    return add_link(m, whole(from), whole(to), 0);
}

static weft_status add_cut(stream_maker *m, int actor, int at)
{
    if (at <= 0 || at >= m->k->p->actor[actor].n_instr) return WEFT_OK;
    WEFT_TRY(weft_arena_grow(m->k->tmp, (void **)&m->cut, &m->cap_cut, m->n_cut + 1,
                             sizeof *m->cut));
    m->cut[m->n_cut++] = (cut){.actor = actor, .at = at};
    return WEFT_OK;
}

/* Actors of this step that have updates are not cut: their instructions are going to be removed. */
static bool is_cut(const offload_pass *k, const offload_place *x)
{
    return x->next && x->actor != k->front;
}

/* From an actor to a place of after. */
static weft_status wait_at(stream_maker *m, int from, int at)
{
    const offload_place *x = &m->k->after[at];
    if (!is_cut(m->k, x)) return add_link(m, whole(from), whole(x->actor), x->next);
    WEFT_TRY(add_cut(m, x->actor, x->instr));
    return add_link(m, whole(from), *x, 1);
}

/* ---- chunks ---- */

/* Buffers of the device that a chunk's copies read (out) or write (in). */
static int list_copied(const weft_offload_list *l, bool in, int32_t *list)
{
    for (int i = 0; i < l->n; i++)
        list[i] = in ? l->instr[i].out[0].buffer : l->instr[i].in[0].buffer;
    return l->n;
}

static bool fires_once(const weft_program *p, int actor)
{
    const weft_stream_spec *s = &p->stream[p->actor[actor].stream];
    int                     n = 0;
    for (int f = 0; f < s->n_firing; f++) n += s->firing[f].actor == actor;
    return n == 1;
}

/* Where gradients of a chunk are final, a place of before; 0: at the end of front.  Of several
 * micro-batches the last one's backward pass is too short to copy in. */
static int find_ready(const offload_pass *k, const int32_t *buffer, int n)
{
    const weft_program *p       = k->p;
    int32_t             compute = weft_partition__stream(p, WEFT_STREAM_COMPUTE);
    int                 at      = 0;
    for (int a = 0; a < p->n_actor; a++)
        for (int i = 0; p->actor[a].stream != compute && i < p->actor[a].n_instr; i++)
            if (uses_any(p, &p->actor[a].instr[i], buffer, n, true)) return 0;
    while (at < k->n_before && !uses_any(p, instr_at(k, &k->before[at]), buffer, n, true))
        at++;
    return at < k->n_before && fires_once(p, k->before[at].actor) ? at : 0;
}

static weft_status find_all_ready(stream_maker *m)
{
    offload_pass *k    = m->k;
    int           late = k->n_chunk - k->n_chunk / EARLY;
    for (int i = late; k->keeps && i < k->n_chunk; i++) {
        int32_t *buffer = WEFT_ARENA_ARRAY(k->tmp, int32_t, k->chunk[i].out.n + 1);
        WEFT_TRY(weft_arena_status(k->tmp));
        int n       = list_copied(&k->chunk[i].out, false, buffer);
        m->ready[i] = find_ready(k, buffer, n);
    }
    return WEFT_OK;
}

/* The next step's writes over what a chunk's gradients are copied from. */
static weft_status protect_gradients(stream_maker *m, int chunk)
{
    offload_pass       *k       = m->k;
    const weft_program *p       = k->p;
    int32_t             compute = weft_partition__stream(p, WEFT_STREAM_COMPUTE);
    int32_t *buffer = WEFT_ARENA_ARRAY(k->tmp, int32_t, k->chunk[chunk].out.n + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    int n  = list_copied(&k->chunk[chunk].out, false, buffer);
    int at = weft_offload__find_use(k, buffer, n, true);
    if (at < k->n_after) WEFT_TRY(wait_at(m, m->out[chunk], at));
    for (int a = 0; a < p->n_actor; a++) {
        if (p->actor[a].stream == compute || p->actor[a].stream >= m->copy_out) continue;
        for (int i = 0; i < p->actor[a].n_instr; i++)
            if (uses_any(p, &p->actor[a].instr[i], buffer, n, true)) {
                WEFT_TRY(add_link(m, whole(m->out[chunk]), whole(a), 1));
                break;
            }
    }
    return WEFT_OK;
}

/* The next step's first use of what a chunk writes; without one the commit point. */
static weft_status wait_for_results(stream_maker *m, int chunk)
{
    offload_pass *k      = m->k;
    int32_t      *buffer = WEFT_ARENA_ARRAY(k->tmp, int32_t, k->chunk[chunk].in.n + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    int n  = list_copied(&k->chunk[chunk].in, true, buffer);
    int at = weft_offload__find_use(k, buffer, n, false);
    return at < k->n_after ? wait_at(m, m->in[chunk], at)
                           : add_link(m, whole(m->in[chunk]), whole(k->front), 1);
}

static weft_status order_out(stream_maker *m, int i)
{
    offload_pass  *k    = m->k;
    offload_place *from = &k->before[m->ready[i]];
    if (!k->keeps) {
        if (!i) WEFT_TRY(order(m, k->front, m->out[0]));
        if (i >= RING) WEFT_TRY(order(m, m->in[i - RING], m->out[i]));
        return WEFT_OK;
    }
    if (!m->ready[i] || from->actor == k->front) return order(m, k->front, m->out[i]);
    WEFT_TRY(add_cut(m, from->actor, from->instr + 1));
    return add_link(m, *from, whole(m->out[i]), 0);
}

static weft_status order_chunks(stream_maker *m)
{
    offload_pass *k = m->k;
    WEFT_TRY(order(m, k->front, m->up[0]));
    for (int i = 0; i < k->n_chunk; i++) {
        WEFT_TRY(order_out(m, i));
        WEFT_TRY(order(m, m->out[i], m->up[i]));
        WEFT_TRY(order(m, m->up[i], m->in[i]));
        if (k->keeps && i >= RING) WEFT_TRY(order(m, m->in[i - RING], m->up[i]));
        if (!k->overlaps) continue;
        WEFT_TRY(protect_gradients(m, i));
        WEFT_TRY(wait_for_results(m, i));
    }
    return k->overlaps ? WEFT_OK : order(m, m->in[k->n_chunk - 1], k->rest);
}

/* ---- actors and streams ---- */

static weft_status add_stream(offload_pass *k, const char *name, weft_stream_kind kind,
                              int32_t device, int32_t threads, int32_t *out)
{
    weft_program    *p = k->p;
    weft_stream_spec s = {
        .name = name, .kind = kind, .device = device, .threads = threads};
    s.firing = WEFT_ARENA_ARRAY(p->arena, weft_firing, k->n_chunk + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    return weft_program_add_stream(p, s, out);
}

static weft_status add_actor(offload_pass *k, int32_t stream, const char *what,
                             int number, const weft_offload_list *l, int *out)
{
    weft_program *p    = k->p;
    const char   *name = weft_arena_printf(p->arena, "offload.%s.%d", what, number);
    WEFT_TRY(weft_arena_status(p->arena));
    return weft_partition__more_actor(&k->more, name, stream, l->instr, l->n, out);
}

/* The next firing of a stream: once a step. */
static void add_firing(offload_pass *k, int32_t stream, int actor)
{
    weft_stream_spec *s      = &k->p->stream[stream];
    s->firing[s->n_firing++] = (weft_firing){.actor = actor, .micro = -1};
}

/* Copies go out in the order in which gradients are final, from the far end of before on, then in
 * that of the updates. */
static void fire_out(stream_maker *m)
{
    const offload_pass *k = m->k;
    for (int at = k->n_before; at >= 0; at--)
        for (int i = 0; i < k->n_chunk; i++)
            if (m->ready[i] == at) add_firing(m->k, m->copy_out, m->out[i]);
}

static weft_status make_actors(stream_maker *m)
{
    offload_pass *k = m->k;
    WEFT_TRY(add_stream(k, "copy_out", WEFT_STREAM_IO, 0, 1, &m->copy_out));
    WEFT_TRY(add_stream(k, "update", WEFT_STREAM_HOST, WEFT_HOST_DEVICE, 0, &m->update));
    WEFT_TRY(add_stream(k, "copy_in", WEFT_STREAM_IO, 0, 1, &m->copy_in));
    for (int i = 0; i < k->n_chunk; i++) {
        const weft_offload_chunk *c = &k->chunk[i];
        WEFT_TRY(add_actor(k, m->copy_out, "out", i, &c->out, &m->out[i]));
        WEFT_TRY(add_actor(k, m->update, "update", i, &c->update, &m->up[i]));
        WEFT_TRY(add_actor(k, m->copy_in, "in", i, &c->in, &m->in[i]));
        add_firing(k, m->update, m->up[i]);
        add_firing(k, m->copy_in, m->in[i]);
    }
    return WEFT_OK;
}

/* ---- pieces ---- */

static int compare_cuts(const void *a, const void *b)
{
    const cut *x = a, *y = b;
    if (x->actor != y->actor) return x->actor < y->actor ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void sort_cuts(stream_maker *m)
{
    int n = 0;
    if (m->n_cut) qsort(m->cut, (size_t)m->n_cut, sizeof *m->cut, compare_cuts);
    for (int i = 0; i < m->n_cut; i++)
        if (!i || compare_cuts(&m->cut[i], &m->cut[n - 1])) m->cut[n++] = m->cut[i];
    m->n_cut = n;
}

/* The actor itself keeps what comes after its last cut. */
static weft_status cut_actors(stream_maker *m)
{
    weft_program *p     = m->k->p;
    int           begin = 0;
    for (int i = 0; i < m->n_cut; i++) {
        cut *c = &m->cut[i];
        if (!i || c[-1].actor != c->actor) begin = 0;
        weft_actor *a    = &p->actor[c->actor];
        const char *name = weft_arena_printf(p->arena, "%s.to.%d", a->name, c->at);
        WEFT_TRY(weft_arena_status(p->arena));
        int n = c->at - begin;
        WEFT_TRY(weft_partition__more_actor(&m->k->more, name, a->stream, a->instr, n,
                                            &c->piece));
        a = &p->actor[c->actor];
        a->instr += n;
        a->n_instr -= n;
        begin = c->at;
    }
    return WEFT_OK;
}

static weft_status fire_pieces(stream_maker *m)
{
    weft_stream_spec *s = weft_program_stream(m->k->p, WEFT_STREAM_COMPUTE);
    int               n = s->n_firing;
    for (int f = 0; f < s->n_firing; f++)
        for (int i = 0; i < m->n_cut; i++) n += m->cut[i].actor == s->firing[f].actor;
    weft_firing *list = WEFT_ARENA_ARRAY(m->k->p->arena, weft_firing, n + 1);
    WEFT_TRY(weft_arena_status(m->k->p->arena));
    n = 0;
    for (int f = 0; f < s->n_firing; f++) {
        for (int i = 0; i < m->n_cut; i++) {
            if (m->cut[i].actor != s->firing[f].actor) continue;
            list[n]         = s->firing[f];
            list[n++].actor = m->cut[i].piece;
        }
        list[n++] = s->firing[f];
    }
    s->firing   = list;
    s->n_firing = n;
    return WEFT_OK;
}

static int first_piece(const stream_maker *m, int actor)
{
    for (int i = 0; i < m->n_cut; i++)
        if (m->cut[i].actor == actor) return m->cut[i].piece;
    return actor;
}

/* What an actor waits for its first piece does, too; what it gives is given by the last. */
static weft_status spread_edges(stream_maker *m)
{
    weft_program *p = m->k->p;
    int           n = p->n_edge;
    for (int i = 0; i < n; i++) {
        weft_edge e = p->edge[i], from = e, to = e;
        from.from = first_piece(m, e.from);
        to.to     = first_piece(m, e.to);
        if (from.from != e.from) WEFT_TRY(weft_partition__more_edge(&m->k->more, from));
        if (to.to != e.to) WEFT_TRY(weft_partition__more_edge(&m->k->more, to));
    }
    return WEFT_OK;
}

static int piece_of(const stream_maker *m, const offload_place *x)
{
    for (int i = 0; x->instr >= 0 && i < m->n_cut; i++)
        if (m->cut[i].actor == x->actor && x->instr < m->cut[i].at)
            return m->cut[i].piece;
    return x->actor;
}

static weft_status make_edges(stream_maker *m)
{
    for (int i = 0; i < m->n_link; i++) {
        const link *x = &m->link[i];
        weft_edge   e = {.from     = piece_of(m, &x->from),
                         .to       = piece_of(m, &x->to),
                         .credits  = 1,
                         .per_step = true,
                         .delay    = x->delay};
        WEFT_TRY(weft_partition__more_edge(&m->k->more, e));
    }
    return WEFT_OK;
}

weft_status weft_offload__make_streams(weft_offload_pass *k)
{
    stream_maker m = {.k = k};
    m.out          = WEFT_ARENA_ARRAY(k->tmp, int, k->n_chunk + 1);
    m.up           = WEFT_ARENA_ARRAY(k->tmp, int, k->n_chunk + 1);
    m.in           = WEFT_ARENA_ARRAY(k->tmp, int, k->n_chunk + 1);
    m.ready        = WEFT_ARENA_ARRAY(k->tmp, int, k->n_chunk + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    WEFT_TRY(find_all_ready(&m));
    WEFT_TRY(make_actors(&m));
    fire_out(&m);
    WEFT_TRY(order_chunks(&m));
    sort_cuts(&m);
    WEFT_TRY(cut_actors(&m));
    WEFT_TRY(fire_pieces(&m));
    WEFT_TRY(spread_edges(&m));
    return make_edges(&m);
}
