/* Invariants (2) and (3): runs one step and its wrap into the next, or as far as delays of edges
 * reach, without doing the work, and keeps for each piece of memory who wrote it last and who read
 * it since.  A step ends before the next begins, so a run may be of any number of steps; order
 * between firings comes from lists and edges alone.
 *
 * (a) what is read was written before, by the same buffer, in the same step, for the same
 *     micro-batch
 * (b) two uses of the same bytes, one of them a write, are ordered by the streams' lists and the
 *     edges
 * (c) no result lies over an operand of its own instruction, except where the operator allows it
 * (d) at the end of the step each output still holds what was written to it
 *
 * Order is known by vector clocks: a firing knows, for each stream, the last firing that is
 * surely over. Strided operands count with the box they span.  Slabs are cut into cells at the
 * ends of all operands. */
#include <stdlib.h>
#include <string.h>

#include "program/order.h"
#include "program/verify_priv.h"

typedef struct cell {
    int32_t buffer, slot; /* who holds it; -1 nobody */
    int32_t actor, micro, step;
    int     stream; /* of the last write; -1: from outside, before the step */
    int64_t at;     /* its firing, counted over steps */
    int64_t read[WEFT_MAX_STREAM];
} cell;

typedef struct slab_map {
    int      n, cap; /* boundaries */
    int64_t *edge;
    cell    *cell;
} slab_map;

typedef weft_program__clock vclock;

typedef struct checker {
    const weft_program *p;
    weft_arena         *arena;
    slab_map           *map;
    weft_order          order;
    int64_t (*count)[2]; /* of each edge: given, taken */
    int               n_step;
    weft_program__run run;     /* clock: [step * n_firing + i] */
    bool             *written; /* of each buffer: some instruction writes it */
    /* now running */
    int                stream, step;
    int64_t            at;
    const weft_firing *f;
    const weft_actor  *a;
    const weft_instr  *i;
    int                term; /* of its operand */
} checker;

typedef struct range {
    int32_t buffer, slot;
    int64_t lo, hi; /* in the slab */
} range;

static bool resolve(const checker *c, const weft_operand *o, bool is_out, range *r)
{
    int64_t lo, hi;
    if (o->buffer < 0 || !weft_operand_span(o, &lo, &hi) || lo == hi) return false;
    const weft_buffer *b    = &c->p->buffer[o->buffer];
    int32_t            slot = weft_program_slot(c->p, c->i, is_out, o->buffer, c->f);
    if (!is_out) slot += c->term;
    int64_t base = b->offset + slot * b->bytes;
    *r = (range){.buffer = o->buffer, .slot = slot, .lo = base + lo, .hi = base + hi};
    return true;
}

/* Terms of a sum that this rank brings, each in a slot of the operand's buffer. */
static int terms(const checker *c)
{
    if (c->i->kind != WEFT_INSTR_COLLECTIVE || !c->i->lanes) return 1;
    const weft_group *g = &c->p->group[c->i->group];
    for (int k = 0; k < g->n_rank; k++)
        if (g->rank[k] == c->p->rank) return weft_instr_terms(c->i, g, k);
    return 1;
}

/* ---- cells ---- */

static weft_status add_edge(checker *c, int slab, int64_t at)
{
    slab_map *m = &c->map[slab];
    void     *v = m->edge;
    WEFT_TRY(weft_arena_grow(c->arena, &v, &m->cap, m->n + 1, sizeof at));
    m->edge         = v;
    m->edge[m->n++] = at;
    return WEFT_OK;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void sort_edges(slab_map *m)
{
    int n = 0;
    if (m->n) qsort(m->edge, (size_t)m->n, sizeof *m->edge, compare);
    for (int i = 0; i < m->n; i++)
        if (!i || m->edge[i] != m->edge[i - 1]) m->edge[n++] = m->edge[i];
    m->n = n;
}

/* The cell that starts at this boundary. */
static cell *cell_at(const slab_map *m, int64_t at)
{
    int lo = 0, hi = m->n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (m->edge[mid] < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return &m->cell[lo];
}

static weft_status cut_operand(checker *c, const weft_operand *o, bool is_out)
{
    range r;
    if (!resolve(c, o, is_out, &r)) return WEFT_OK;
    int slab = c->p->buffer[o->buffer].slab;
    WEFT_TRY(add_edge(c, slab, r.lo));
    if (is_out) c->written[o->buffer] = true;
    return add_edge(c, slab, r.hi);
}

static weft_status cut_instrs(checker *c)
{
    for (int n = 0; n < c->a->n_instr; n++) {
        c->i = &c->a->instr[n];
        for (c->term = 0; c->term < terms(c); c->term++)
            for (int k = 0; k < c->i->n_in; k++)
                WEFT_TRY(cut_operand(c, &c->i->in[k], false));
        for (int k = 0; k < c->i->n_out; k++)
            WEFT_TRY(cut_operand(c, &c->i->out[k], true));
    }
    return WEFT_OK;
}

static weft_status cut_slabs(checker *c)
{
    const weft_program *p = c->p;
    for (int s = 0; s < c->p->n_stream; s++)
        for (int i = 0; i < p->stream[s].n_firing; i++) {
            c->f = &p->stream[s].firing[i];
            c->a = &p->actor[c->f->actor];
            WEFT_TRY(cut_instrs(c));
        }
    for (int b = 0; b < p->n_buffer; b++) {
        WEFT_TRY(add_edge(c, p->buffer[b].slab, p->buffer[b].offset));
        WEFT_TRY(
            add_edge(c, p->buffer[b].slab,
                     p->buffer[b].offset + p->buffer[b].n_slot * p->buffer[b].bytes));
    }
    for (int i = 0; i < p->n_binding; i++) {
        const weft_operand *o = &p->binding[i].at;
        const weft_buffer  *b = &p->buffer[o->buffer];
        int64_t             lo, hi;
        if (!weft_operand_span(o, &lo, &hi)) continue;
        WEFT_TRY(add_edge(c, b->slab, b->offset + lo));
        WEFT_TRY(add_edge(c, b->slab, b->offset + hi));
    }
    for (int s = 0; s < p->n_slab; s++) {
        slab_map *m = &c->map[s];
        sort_edges(m);
        m->cell = WEFT_ARENA_ARRAY(c->arena, cell, m->n + 1);
        if (!m->cell) return weft_arena_status(c->arena);
        for (int i = 0; i <= m->n; i++) {
            m->cell[i] = (cell){.buffer = -1, .slot = -1, .stream = -1, .at = -1};
            for (int k = 0; k < WEFT_MAX_STREAM; k++) m->cell[i].read[k] = -1;
        }
    }
    return WEFT_OK;
}

/* Memory that comes filled from outside: state, and inputs that no instruction fills. */
static void fill(checker *c, int32_t buffer)
{
    const weft_buffer *b   = &c->p->buffer[buffer];
    slab_map          *m   = &c->map[b->slab];
    int64_t            end = b->offset + b->n_slot * b->bytes;
    for (cell *x = cell_at(m, b->offset); m->edge[x - m->cell] < end; x++) {
        x->buffer = buffer;
        x->slot   = -1; /* all of them */
        x->micro = x->actor = x->step = -1;
    }
}

static weft_status fill_outside(checker *c)
{
    const weft_program *p = c->p;
    for (int b = 0; b < p->n_buffer; b++)
        if (weft_slab_kind_is_state(p->slab[p->buffer[b].slab].kind)) fill(c, b);
    for (int i = 0; i < p->n_binding; i++) {
        const weft_binding *x = &p->binding[i];
        const weft_buffer  *b = &p->buffer[x->at.buffer];
        if (x->kind == WEFT_BIND_OUTPUT) continue;
        bool input = x->kind == WEFT_BIND_INPUT || x->kind == WEFT_BIND_STEP_INPUT;
        if (input && c->written[x->at.buffer]) continue;
        if (x->kind == WEFT_BIND_INPUT && b->n_slot < p->n_micro && p->world == 1)
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "program %s: input %s has %d slots for %d micro-batches and no "
                "instruction fills it",
                p->name, x->name, b->n_slot, p->n_micro);
        fill(c, x->at.buffer);
    }
    return WEFT_OK;
}

/* ---- uses ---- */

static bool is_over(const checker *c, int stream, int64_t at)
{
    return at < 0 || c->run.clock[c->stream][c->at].at[stream] >= at;
}

#define BAD(c, ...) WEFT_PROGRAM__BAD((c)->p, (c)->a, (c)->i, __VA_ARGS__)

/* Values carried from step to step in work memory travel over an edge with a delay. */
static bool may_carry(const checker *c, int32_t actor)
{
    for (int e = 0; e < c->p->n_edge; e++)
        if (c->p->edge[e].from == actor && c->p->edge[e].delay) return true;
    return false;
}

static weft_status check_content(const checker *c, const cell *x, const range *r,
                                 bool adds)
{
    const weft_program *p    = c->p;
    const char         *name = p->buffer[r->buffer].name;
    if (x->buffer < 0)
        return BAD(c, "it reads buffer %s before anything was written there", name);
    if (x->buffer != r->buffer || (x->slot >= 0 && x->slot != r->slot))
        return BAD(c, "it reads buffer %s, but %s%s has been written over it", name,
                   x->buffer == r->buffer ? "another slot of " : "",
                   p->buffer[x->buffer].name);
    if (x->step >= 0 && x->step != c->step && !may_carry(c, x->actor) &&
        !weft_slab_kind_is_state(p->slab[p->buffer[r->buffer].slab].kind))
        return BAD(c, "it reads buffer %s, which was written in the step before", name);
    if (!adds && x->micro >= 0 && c->f->micro >= 0 && x->micro != c->f->micro &&
        p->buffer[r->buffer].slot_by != WEFT_SLOT_LANE &&
        !weft_slab_kind_is_state(p->slab[p->buffer[r->buffer].slab].kind))
        return BAD(c, "micro-batch %d reads buffer %s, which holds micro-batch %d",
                   c->f->micro, name, x->micro);
    return WEFT_OK;
}

static weft_status no_order(const checker *c, const range *r, const char *what,
                            int stream)
{
    return BAD(
        c, "nothing orders it against a %s of buffer %s on stream %s; an edge is missing",
        what, c->p->buffer[r->buffer].name, c->p->stream[stream].name);
}

static weft_status do_read(checker *c, const range *r, bool adds)
{
    slab_map *m = &c->map[c->p->buffer[r->buffer].slab];
    for (cell *x = cell_at(m, r->lo); m->edge[x - m->cell] < r->hi; x++) {
        WEFT_TRY(check_content(c, x, r, adds));
        if (x->stream >= 0 && !is_over(c, x->stream, x->at))
            return no_order(c, r, "write", x->stream);
        x->read[c->stream] = c->at;
    }
    return WEFT_OK;
}

static weft_status do_write(checker *c, const range *r)
{
    slab_map *m = &c->map[c->p->buffer[r->buffer].slab];
    for (cell *x = cell_at(m, r->lo); m->edge[x - m->cell] < r->hi; x++) {
        if (x->stream >= 0 && !is_over(c, x->stream, x->at))
            return no_order(c, r, "write", x->stream);
        for (int s = 0; s < c->p->n_stream; s++) {
            if (!is_over(c, s, x->read[s])) return no_order(c, r, "read", s);
            x->read[s] = -1;
        }
        x->buffer = r->buffer;
        x->slot   = r->slot;
        x->actor  = c->f->actor;
        x->micro  = c->f->micro;
        x->step   = c->step;
        x->stream = c->stream;
        x->at     = c->at;
    }
    return WEFT_OK;
}

/* ---- results over operands ---- */

static bool same_view(const weft_operand *a, const weft_operand *b)
{
    if (weft_dtype_bytes(a->type.dtype) != weft_dtype_bytes(b->type.dtype)) return false;
    if (weft_operand_contiguous(a) && weft_operand_contiguous(b))
        return weft_shape_count(&a->type.shape) == weft_shape_count(&b->type.shape);
    return weft_shape_equal(&a->type.shape, &b->type.shape) &&
           !memcmp(a->stride, b->stride, sizeof(int64_t) * (size_t)a->type.shape.n);
}

/* May result j of the running instruction lie exactly over operand k? */
static bool may_overwrite(const checker *c, int j, int k)
{
    const weft_instr *i = c->i;
    if (i->kind == WEFT_INSTR_COLLECTIVE)
        return j == k && (i->coll == WEFT_ALL_REDUCE || i->coll == WEFT_BROADCAST);
    if (i->kind != WEFT_INSTR_COMPUTE) return false;
    if (weft_op_get(i->op)->flags & (WEFT_OP_ELEM | WEFT_OP_UPDATE)) return true;
    if (i->op == WEFT_OP_ROTARY) return true;           /* pair by pair */
    if (i->op == WEFT_OP_EMBEDDING_GRAD) return k == 2; /* its base, row by row */
    if (i->op == WEFT_OP_CROSS_ENTROPY)
        return k == 0 && j >= i->n_own_out; /* row by row */
    return k >= i->n_own_in && j >= 0;      /* fused steps go element by element */
}

/* An all_gather's operand may lie where it goes. */
static bool is_own_share(const checker *c, int t, const range *in, const range *out)
{
    const weft_instr *i = c->i;
    if (i->kind != WEFT_INSTR_COLLECTIVE || i->coll != WEFT_ALL_GATHER) return false;
    const weft_group *g    = &c->p->group[i->group];
    int64_t           size = weft_dtype_bytes(i->in[0].type.dtype), lo, hi;
    for (int k = 0; k < g->n_rank; k++)
        if (g->rank[k] == c->p->rank) {
            weft_instr_share(i, t, g->n_rank, k, &lo, &hi);
            return in->lo == out->lo + lo * size && in->hi == out->lo + hi * size;
        }
    return false;
}

static weft_status check_overlap(const checker *c, int j)
{
    const weft_instr *i = c->i;
    range             out, in;
    if (!resolve(c, &i->out[j], true, &out)) return WEFT_OK;
    for (int k = 0; k < i->n_in; k++) {
        if (!resolve(c, &i->in[k], false, &in)) continue;
        if (c->p->buffer[in.buffer].slab != c->p->buffer[out.buffer].slab) continue;
        if (in.hi <= out.lo || out.hi <= in.lo) continue;
        bool boxes =
            weft_operand_contiguous(&i->in[k]) && weft_operand_contiguous(&i->out[j]);
        bool exact = in.lo == out.lo && same_view(&i->in[k], &i->out[j]);
        if (j == k && is_own_share(c, k, &in, &out)) continue;
        if (exact ? !may_overwrite(c, j, k) : boxes)
            return BAD(c, "result %s lies over operand %s", c->p->buffer[out.buffer].name,
                       c->p->buffer[in.buffer].name);
    }
    return WEFT_OK;
}

/* Tensors of one collective are written at once. */
static weft_status check_apart(const checker *c, int j)
{
    const weft_instr *i = c->i;
    range             a, b;
    if (i->kind != WEFT_INSTR_COLLECTIVE || !resolve(c, &i->out[j], true, &a))
        return WEFT_OK;
    for (int k = 0; k < j; k++)
        if (resolve(c, &i->out[k], true, &b) &&
            c->p->buffer[a.buffer].slab == c->p->buffer[b.buffer].slab && a.lo < b.hi &&
            b.lo < a.hi)
            return BAD(c, "result %s lies over result %s", c->p->buffer[a.buffer].name,
                       c->p->buffer[b.buffer].name);
    return WEFT_OK;
}

/* ---- running ---- */

static weft_status run_instr(checker *c)
{
    const weft_instr *i = c->i;
    range             r;
    for (c->term = 0; c->term < terms(c); c->term++)
        for (int k = 0; k < i->n_in; k++)
            if (resolve(c, &i->in[k], false, &r)) WEFT_TRY(do_read(c, &r, false));
    c->term = 0;
    for (int j = 0; j < i->n_out; j++) {
        if (!resolve(c, &i->out[j], true, &r)) continue;
        bool adds = j < 32 && ((c->f->first ? i->into : i->add | i->into) >> j & 1);
        if (adds || i->kind == WEFT_INSTR_MERGE) WEFT_TRY(do_read(c, &r, true));
        if (c->step == 0) WEFT_TRY(check_overlap(c, j));
        if (c->step == 0) WEFT_TRY(check_apart(c, j));
    }
    for (int j = 0; j < i->n_out; j++)
        if (resolve(c, &i->out[j], true, &r)) WEFT_TRY(do_write(c, &r));
    return WEFT_OK;
}

static void join(vclock *a, const vclock *b)
{
    for (int s = 0; s < WEFT_MAX_STREAM; s++)
        if (b->at[s] > a->at[s]) a->at[s] = b->at[s];
}

/* Sets the firing's vclock; false: it must wait. */
static bool begin(checker *c)
{
    const weft_program      *p  = c->p;
    int                      i  = (int)(c->at % p->stream[c->stream].n_firing);
    const weft_firing_order *f  = &c->order.firing[c->stream][i];
    vclock                  *me = &c->run.clock[c->stream][c->at];
    for (int k = 0; k < f->n_wait; k++)
        if (c->count[f->wait[k].edge][f->wait[k].credit] <
            (int64_t)c->step * f->wait[k].per_step + f->wait[k].at)
            return false;
    for (int s = 0; s < WEFT_MAX_STREAM; s++) me->at[s] = -1;
    if (c->at) *me = c->run.clock[c->stream][c->at - 1];
    me->at[c->stream] = c->at;
    for (int k = 0; k < f->n_wait; k++) {
        const weft_wait *w    = &f->wait[k];
        const weft_edge *e    = &p->edge[w->edge];
        int64_t          need = (int64_t)c->step * w->per_step + w->at;
        if (need <= 0) continue;
        int      s    = (int)p->actor[w->credit ? e->to : e->from].stream;
        int64_t  step = (need - 1) / w->per_step, n = (need - 1) % w->per_step;
        int32_t *who = w->credit ? c->order.taker[w->edge] : c->order.giver[w->edge];
        join(me, &c->run.clock[s][step * p->stream[s].n_firing + who[n]]);
    }
    return true;
}

static weft_status fire(checker *c)
{
    int i = (int)(c->at % c->p->stream[c->stream].n_firing);
    c->f  = &c->p->stream[c->stream].firing[i];
    c->a  = &c->p->actor[c->f->actor];
    for (int n = 0; n < c->a->n_instr; n++) {
        c->i = &c->a->instr[n];
        WEFT_TRY(run_instr(c));
    }
    const weft_firing_order *f = &c->order.firing[c->stream][i];
    for (int k = 0; k < f->n_give; k++) c->count[f->give[k].edge][f->give[k].credit]++;
    return WEFT_OK;
}

static weft_status run_step(checker *c, int step, int64_t *next)
{
    const weft_program *p = c->p;
    c->step               = step;
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < p->n_stream; s++)
            for (; next[s] < (int64_t)(step + 1) * p->stream[s].n_firing; next[s]++) {
                c->stream = s;
                c->at     = next[s];
                if (!begin(c)) break;
                WEFT_TRY(fire(c));
                c->run.fired[c->run.n].stream = s;
                c->run.fired[c->run.n++].at   = c->at;
                moved                         = true;
            }
    }
    for (int s = 0; s < p->n_stream; s++)
        if (next[s] < (int64_t)(step + 1) * p->stream[s].n_firing) {
            const weft_firing *f = &p->stream[s].firing[next[s] % p->stream[s].n_firing];
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "program %s: deadlock: actor %s, micro-batch %d, waits for ever on "
                "its edges",
                p->name, p->actor[f->actor].name, f->micro);
        }
    return WEFT_OK;
}

/* Until the longest delay has brought a message that was really given. */
int weft_program__verify_steps(const weft_program *p)
{
    int most = 1;
    for (int i = 0; i < p->n_edge; i++)
        if (p->edge[i].delay > most) most = p->edge[i].delay;
    return most < INT32_MAX ? most + 1 : most;
}

/* (d); only bytes that some instruction writes count, the rest of a slot is padding. */
static weft_status check_outputs(const checker *c)
{
    const weft_program *p = c->p;
    for (int i = 0; i < p->n_binding; i++) {
        const weft_binding *x = &p->binding[i];
        const weft_buffer  *b = &p->buffer[x->at.buffer];
        const slab_map     *m = &c->map[b->slab];
        int64_t             lo, hi;
        if (x->kind != WEFT_BIND_OUTPUT || !c->written[x->at.buffer]) continue;
        if (!weft_operand_span(&x->at, &lo, &hi) || lo == hi) continue;
        for (cell *k = cell_at(m, b->offset + lo); m->edge[k - m->cell] < b->offset + hi;
             k++)
            if (k->buffer >= 0 && k->buffer != x->at.buffer)
                return WEFT_FAIL(WEFT_ERR_ARG,
                                 "program %s: buffer %s is written over output %s",
                                 p->name, p->buffer[k->buffer].name, x->name);
    }
    return WEFT_OK;
}

weft_status weft_program__verify_memory(const weft_program *p)
{
    checker     c                     = {.p = p, .n_step = weft_program__verify_steps(p)};
    int64_t     next[WEFT_MAX_STREAM] = {0};
    weft_status st                    = WEFT_OK;
    WEFT_TRY(weft_arena_create(&c.arena));
    WEFT_GO(weft_order_make(p, c.arena, true, &c.order));
    c.map            = WEFT_ARENA_ARRAY(c.arena, slab_map, p->n_slab);
    c.count          = weft_arena_alloc(c.arena, sizeof *c.count * (size_t)p->n_edge);
    c.written        = WEFT_ARENA_ARRAY(c.arena, bool, p->n_buffer);
    int64_t n_firing = 0;
    for (int s = 0; s < p->n_stream; s++) {
        int64_t n      = (int64_t)c.n_step * p->stream[s].n_firing;
        c.run.clock[s] = WEFT_ARENA_ARRAY(c.arena, vclock, n);
        n_firing += n;
    }
    c.run.fired = weft_arena_alloc(c.arena, sizeof *c.run.fired * (size_t)(n_firing + 1));
    WEFT_GO(weft_arena_status(c.arena));
    WEFT_GO(cut_slabs(&c));
    WEFT_GO(fill_outside(&c));
    for (int t = 0; t < c.n_step; t++) WEFT_GO(run_step(&c, t, next));
    WEFT_GO(check_outputs(&c));
    WEFT_GO(weft_program__verify_commit(p, &c.run, c.arena));
out:
    weft_arena_destroy(c.arena);
    return st;
}
