/* In: a verified program.  Out: its tail.
 *
 *     list       the instructions after the commit point, in the order of its stream
 *     resolve    of each operand: state, made by an earlier one of them, or an input
 *     join       what is computed together
 *     sort       by names: programs of other numbers of ranks have other orders of updates
 *     hash       each instruction with what its operands are, by names, never by places */
#include "program/tail.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "program/own.h"

typedef enum source_kind {
    FROM_NOWHERE, /* an operand that is left out */
    FROM_STATE,   /* the value before the tail */
    FROM_TAIL,    /* what `writer` made, also of state */
    FROM_INPUT
} source_kind;

/* What an operand reads. */
typedef struct source {
    source_kind kind;
    int         slot;   /* number of (buffer, slot) */
    int         writer; /* instruction of the tail */
    int         result; /* of the writer */
    int64_t     lo;     /* the operand's first byte in the slot */
} source;

typedef struct tail_instr {
    const weft_instr  *i;
    const weft_firing *f;
    int                number; /* in the order of the stream */
    source            *in;     /* of each operand, then of results that are added to */
} tail_instr;

enum {
    NO_INPUT = -1,
    FOUND    = -2
};

/* A buffer's slot, as far as the tail has come. */
typedef struct slot_use {
    int32_t buffer;
    int     writer, result; /* the last one; -1: none */
    int64_t made_lo, made_hi;
    int     input;  /* its number; NO_INPUT, or FOUND before it has one */
    int64_t lo, hi; /* of the input: what is read of it */
} slot_use;

typedef struct tail_pass {
    const weft_program  *p;
    weft_arena          *arena;
    weft_commit_place    commit;
    int                  n;
    tail_instr          *instr;
    int                  n_slot;
    int                 *first; /* of each buffer: number of its first slot */
    slot_use            *use;   /* of each slot */
    const weft_binding **state; /* of each buffer; NULL: it is no bound state */
    weft_tail           *out;
} tail_pass;

/* ---- list ---- */

static weft_status check_instr(const tail_pass *x, const weft_instr *i)
{
    if (weft_instr_is_comm(i))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s is communicated after the commit point",
                         i->name);
    if (i->kind == WEFT_INSTR_COMPUTE || i->kind == WEFT_INSTR_COPY) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "program %s: a %s after the commit point", x->p->name,
                     weft_instr_kind_name(i->kind));
}

/* What other streams do after the commit point must not be part of the update. */
static weft_status check_streams(const tail_pass *x)
{
    const weft_program *p = x->p;
    for (int s = 0; s < p->n_stream; s++)
        for (int f = x->commit.before[s];
             s != x->commit.stream && f < p->stream[s].n_firing; f++) {
            const weft_actor *a = &p->actor[p->stream[s].firing[f].actor];
            for (int n = 0; n < a->n_instr; n++)
                if (weft_instr_writes_state(p, &a->instr[n]))
                    return WEFT_FAIL(WEFT_ERR_ARG,
                                     "%s is written after the commit point by another "
                                     "stream (%s)",
                                     a->instr[n].name, p->stream[s].name);
        }
    return WEFT_OK;
}

static int count_rest(const tail_pass *x)
{
    const weft_stream_spec *s = &x->p->stream[x->commit.stream];
    int                     n = 0;
    for (int f = x->commit.before[x->commit.stream]; f < s->n_firing; f++)
        n += x->p->actor[s->firing[f].actor].n_instr;
    return n;
}

static weft_status list_instrs(tail_pass *x)
{
    const weft_stream_spec *s    = &x->p->stream[x->commit.stream];
    int                     from = x->commit.before[x->commit.stream];
    x->instr = WEFT_ARENA_ARRAY(x->arena, tail_instr, count_rest(x) + 1);
    WEFT_TRY(weft_arena_status(x->arena));
    for (int f = from; f < s->n_firing; f++) {
        const weft_actor *a = &x->p->actor[s->firing[f].actor];
        for (int n = f == from ? x->commit.instr + 1 : 0; n < a->n_instr; n++) {
            const weft_instr *i = &a->instr[n];
            if (i->kind == WEFT_INSTR_MARK) continue;
            WEFT_TRY(check_instr(x, i));
            x->instr[x->n] = (tail_instr){.i = i, .f = &s->firing[f], .number = x->n};
            x->n++;
        }
    }
    x->out->stream = x->commit.stream;
    x->out->at     = from;
    x->out->instr  = x->commit.instr + 1;
    return WEFT_OK;
}

/* ---- resolve ---- */

static weft_status number_slots(tail_pass *x)
{
    const weft_program *p = x->p;
    int                 n = 0;
    x->first              = WEFT_ARENA_ARRAY(x->arena, int, p->n_buffer + 1);
    x->state = WEFT_ARENA_ARRAY(x->arena, const weft_binding *, p->n_buffer + 1);
    WEFT_TRY(weft_arena_status(x->arena));
    for (int b = 0; b < p->n_buffer; b++) {
        x->first[b] = n;
        n += p->buffer[b].n_slot;
    }
    x->n_slot = n;
    x->use    = WEFT_ARENA_ARRAY(x->arena, slot_use, n + 1);
    WEFT_TRY(weft_arena_status(x->arena));
    for (int b = 0; b < p->n_buffer; b++)
        for (int k = 0; k < p->buffer[b].n_slot; k++)
            x->use[x->first[b] + k] =
                (slot_use){.buffer = b, .writer = -1, .input = NO_INPUT};
    for (int k = 0; k < p->n_binding; k++) {
        const weft_binding *b = &p->binding[k];
        if (b->kind != WEFT_BIND_PARAM && b->kind != WEFT_BIND_STATE) continue;
        if (x->state[b->at.buffer])
            return WEFT_FAIL(WEFT_ERR_ARG, "%s and %s are in one buffer", b->name,
                             x->state[b->at.buffer]->name);
        x->state[b->at.buffer] = b;
    }
    return WEFT_OK;
}

static bool is_added_to(const weft_instr *i, int result)
{
    return result < 32 && ((i->add | i->into) >> result & 1);
}

static weft_status find_slot(const tail_pass *x, const tail_instr *t, bool is_out,
                             const weft_operand *o, int *slot, int64_t *lo, int64_t *hi)
{
    int k = weft_program_slot(x->p, t->i, is_out, o->buffer, t->f);
    if (k < 0 || k >= x->p->buffer[o->buffer].n_slot || !weft_operand_span(o, lo, hi))
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s: %s is outside of its buffer",
                         x->p->name, t->i->name);
    *slot = x->first[o->buffer] + k;
    return WEFT_OK;
}

static weft_status resolve_read(tail_pass *x, const tail_instr *t, bool is_out,
                                const weft_operand *o, source *out)
{
    int64_t lo, hi;
    *out = (source){.kind = FROM_NOWHERE};
    if (o->buffer < 0) return WEFT_OK;
    WEFT_TRY(find_slot(x, t, is_out, o, &out->slot, &lo, &hi));
    slot_use *u    = &x->use[out->slot];
    int       slab = x->p->buffer[o->buffer].slab;
    out->lo        = lo;
    if (weft_slab_kind_is_host(x->p->slab[slab].kind))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s is updated on the host", t->i->name);
    if (u->writer >= 0) {
        out->kind   = FROM_TAIL;
        out->writer = u->writer;
        out->result = u->result;
        if (lo >= u->made_lo && hi <= u->made_hi) return WEFT_OK;
        return WEFT_FAIL(WEFT_ERR_ARG, "%s reads what is written in parts", t->i->name);
    }
    out->kind = weft_slab_kind_is_state(x->p->slab[slab].kind) ? FROM_STATE : FROM_INPUT;
    if (out->kind == FROM_STATE && !x->state[o->buffer])
        return WEFT_FAIL(WEFT_ERR_ARG, "%s reads state without a name", t->i->name);
    if (out->kind == FROM_STATE) return WEFT_OK;
    if (u->input == NO_INPUT || lo < u->lo) u->lo = lo;
    if (u->input == NO_INPUT || hi > u->hi) u->hi = hi;
    u->input = FOUND;
    return WEFT_OK;
}

static weft_status resolve_write(tail_pass *x, const tail_instr *t, int result)
{
    const weft_operand *o = &t->i->out[result];
    int                 slot;
    int64_t             lo, hi;
    if (o->buffer < 0) return WEFT_OK;
    WEFT_TRY(find_slot(x, t, true, o, &slot, &lo, &hi));
    slot_use *u  = &x->use[slot];
    int       to = x->p->buffer[o->buffer].slab;
    if (weft_slab_kind_is_state(x->p->slab[to].kind) && !x->state[o->buffer])
        return WEFT_FAIL(WEFT_ERR_ARG, "%s writes state without a name", t->i->name);
    if (u->writer < 0 || lo < u->made_lo) u->made_lo = lo;
    if (u->writer < 0 || hi > u->made_hi) u->made_hi = hi;
    u->writer = t->number;
    u->result = result;
    return WEFT_OK;
}

static weft_status resolve_instr(tail_pass *x, tail_instr *t)
{
    const weft_instr *i = t->i;
    t->in               = WEFT_ARENA_ARRAY(x->arena, source, i->n_in + i->n_out + 1);
    WEFT_TRY(weft_arena_status(x->arena));
    for (int k = 0; k < i->n_in; k++)
        WEFT_TRY(resolve_read(x, t, false, &i->in[k], &t->in[k]));
    for (int k = 0; k < i->n_out; k++)
        if (is_added_to(i, k))
            WEFT_TRY(resolve_read(x, t, true, &i->out[k], &t->in[i->n_in + k]));
    for (int k = 0; k < i->n_out; k++) WEFT_TRY(resolve_write(x, t, k));
    return WEFT_OK;
}

/* ---- join ---- */

/* The lowest binding stands for all. */
static int find_root(weft_tail_unit *unit, int b)
{
    while (unit[b].first != b) b = unit[b].first = unit[unit[b].first].first;
    return b;
}

static void join_units(weft_tail_unit *unit, int a, int b)
{
    a = find_root(unit, a);
    b = find_root(unit, b);
    if (a == b) return;
    int low = a < b ? a : b, high = a < b ? b : a;
    unit[high].first     = low;
    unit[low].by_element = unit[low].by_element && unit[high].by_element;
}

static bool is_by_element(const weft_instr *i)
{
    if (i->kind != WEFT_INSTR_COMPUTE) return i->kind == WEFT_INSTR_COPY;
    for (int k = 0; k < i->n_post; k++)
        if (i->post[k].op != WEFT_OP_CAST && i->post[k].op != WEFT_OP_ADD) return false;
    return i->op == WEFT_OP_CAST || weft_op_get(i->op)->flags & WEFT_OP_UPDATE;
}

/* Is the operand all of the binding, in its order? */
static bool is_whole(const weft_operand *o, const weft_binding *b)
{
    return weft_operand_contiguous(o) && o->offset == b->at.offset &&
           weft_shape_count(&o->type.shape) == weft_shape_count(&b->at.type.shape);
}

/* unit_of: of each slot, a binding whose unit has made it; -1: none yet. */
static void join_operand(tail_pass *x, const tail_instr *t, int *unit_of, bool is_out,
                         const weft_operand *o, int *unit)
{
    int     slot;
    int64_t lo, hi;
    if (o->buffer < 0 || find_slot(x, t, is_out, o, &slot, &lo, &hi) != WEFT_OK) return;
    const weft_binding *b = x->state[o->buffer];
    if (b && unit_of[slot] < 0) unit_of[slot] = (int)(b - x->p->binding);
    if (is_out && unit_of[slot] < 0) unit_of[slot] = *unit;
    if (unit_of[slot] < 0) return; /* an input */
    if (*unit < 0) *unit = unit_of[slot];
    join_units(x->out->unit, *unit, unit_of[slot]);
    /* what is made on the way has the shape of a state, or some other one */
    const weft_binding *of = &x->p->binding[unit_of[slot]];
    if (b ? !is_whole(o, b)
          : !weft_operand_contiguous(o) ||
                weft_shape_count(&o->type.shape) != weft_shape_count(&of->at.type.shape))
        x->out->unit[find_root(x->out->unit, *unit)].by_element = false;
}

static weft_status join_all(tail_pass *x, int n_slot, weft_arena *keep)
{
    const weft_program *p       = x->p;
    int                *unit_of = WEFT_ARENA_ARRAY(x->arena, int, n_slot + 1);
    weft_tail_unit     *unit = WEFT_ARENA_ARRAY(keep, weft_tail_unit, p->n_binding + 1);
    WEFT_TRY(weft_arena_status(x->arena));
    WEFT_TRY(weft_arena_status(keep));
    x->out->unit = unit;
    for (int k = 0; k < n_slot; k++) unit_of[k] = -1;
    for (int b = 0; b < p->n_binding; b++) unit[b] = (weft_tail_unit){b, true};
    for (int n = 0; n < x->n; n++) {
        const tail_instr *t    = &x->instr[n];
        int               with = -1;
        for (int k = 0; k < t->i->n_in; k++)
            join_operand(x, t, unit_of, false, &t->i->in[k], &with);
        for (int k = 0; k < t->i->n_out; k++)
            join_operand(x, t, unit_of, true, &t->i->out[k], &with);
        if (with >= 0 && !is_by_element(t->i))
            unit[find_root(unit, with)].by_element = false;
    }
    for (int b = 0; b < p->n_binding; b++) {
        bool state = p->binding[b].kind == WEFT_BIND_PARAM ||
                     p->binding[b].kind == WEFT_BIND_STATE;
        int root           = find_root(unit, b);
        unit[b].first      = root;
        unit[b].by_element = unit[root].by_element;
        if (!state) unit[b].first = -1;
    }
    return WEFT_OK;
}

/* ---- sort ---- */

static int compare_instrs(const void *a, const void *b)
{
    const tail_instr *x = a, *y = b;
    int               c = strcmp(x->i->name, y->i->name);
    return c ? c : x->number < y->number ? -1 : x->number > y->number;
}

/* By their first use in that order. */
static void number_inputs(tail_pass *x)
{
    weft_tail *out = x->out;
    for (int n = 0; n < x->n; n++) {
        const weft_instr *i = x->instr[n].i;
        for (int k = 0; k < i->n_in + i->n_out; k++) {
            const source *from = &x->instr[n].in[k];
            slot_use     *u    = &x->use[from->slot];
            if (from->kind != FROM_INPUT || u->input != FOUND) continue;
            const weft_buffer *b       = &x->p->buffer[u->buffer];
            int                place   = from->slot - x->first[u->buffer];
            u->input                   = out->n_input;
            out->input[out->n_input++] = (weft_tail_input){
                b->slab, b->offset + place * b->bytes + u->lo, u->hi - u->lo};
            out->bytes += u->hi - u->lo;
        }
    }
}

/* ---- hash ---- */

static void hash_number(weft_hash_state *h, int64_t x)
{
    weft_hash_add(h, &x, sizeof x);
}

static void hash_name(weft_hash_state *h, const char *s)
{
    weft_hash_add(h, s ? s : "", s ? strlen(s) + 1 : 1);
}

static void hash_type(weft_hash_state *h, const weft_operand *o)
{
    hash_number(h, o->buffer >= 0);
    hash_number(h, o->type.dtype);
    hash_number(h, o->type.shape.n);
    for (int d = 0; d < o->type.shape.n; d++) {
        hash_number(h, o->type.shape.d[d]);
        hash_number(h, o->stride[d]);
    }
}

static void hash_op(weft_hash_state *h, weft_op op, const weft_attr *attr)
{
    weft_text t = {0};
    if (attr) weft_op_print_attr(op, attr, &t);
    hash_number(h, op);
    hash_number(h, weft_text_status(&t) == WEFT_OK);
    hash_name(h, t.s);
    weft_text_fini(&t);
}

/* Which part of which tensor. */
static void hash_binding(weft_hash_state *h, const weft_binding *b)
{
    hash_name(h, b ? b->name : NULL);
    if (!b) return;
    hash_type(h, &b->at);
    weft_hash_add(h, b->origin, sizeof b->origin);
}

/* by_number: instructions in the order of the stream. */
static void hash_source(const tail_pass *x, const tail_instr *const *by_number,
                        const source *from, weft_hash_state *h)
{
    const slot_use *u = &x->use[from->slot];
    hash_number(h, from->kind);
    if (from->kind == FROM_NOWHERE) return;
    hash_number(h, from->lo - (from->kind == FROM_INPUT ? u->lo : 0));
    if (from->kind == FROM_INPUT) hash_number(h, u->input);
    if (from->kind == FROM_STATE) hash_binding(h, x->state[u->buffer]);
    if (from->kind != FROM_TAIL) return;
    hash_name(h, by_number[from->writer]->i->name);
    hash_number(h, from->result);
}

static void hash_instr(const tail_pass *x, const tail_instr *const *by_number,
                       const tail_instr *t, weft_hash_state *h)
{
    const weft_instr *i = t->i;
    const int part[7]   = {(int)i->kind, i->n_in, i->n_own_in, i->n_out, i->n_own_out,
                           i->n_post,    0};
    hash_name(h, i->name);
    weft_hash_add(h, part, sizeof part);
    hash_number(h, i->add);
    hash_number(h, i->into);
    if (i->kind == WEFT_INSTR_COMPUTE) hash_op(h, i->op, i->attr);
    for (int k = 0; k < i->n_post; k++) {
        hash_op(h, i->post[k].op, i->post[k].attr);
        hash_number(h, i->post[k].in);
        hash_number(h, i->post[k].out);
    }
    for (int k = 0; k < i->n_in; k++) hash_type(h, &i->in[k]);
    for (int k = 0; k < i->n_out; k++) {
        int32_t b = i->out[k].buffer;
        hash_type(h, &i->out[k]);
        hash_binding(h, b < 0 ? NULL : x->state[b]);
        if (b >= 0 && x->state[b]) hash_number(h, i->out[k].offset);
    }
    for (int k = 0; k < i->n_in + i->n_out; k++) hash_source(x, by_number, &t->in[k], h);
}

static weft_status hash_all(tail_pass *x)
{
    const tail_instr **by_number =
        WEFT_ARENA_ARRAY(x->arena, const tail_instr *, x->n + 1);
    weft_hash_state h;
    WEFT_TRY(weft_arena_status(x->arena));
    for (int n = 0; n < x->n; n++) by_number[x->instr[n].number] = &x->instr[n];
    weft_hash_init(&h, 1);
    hash_number(&h, x->n);
    for (int n = 0; n < x->n; n++) hash_instr(x, by_number, &x->instr[n], &h);
    hash_number(&h, x->out->n_input);
    for (int k = 0; k < x->out->n_input; k++) hash_number(&h, x->out->input[k].bytes);
    x->out->hash = weft_hash_value(&h);
    return WEFT_OK;
}

/* ---- */

static weft_status find_tail(tail_pass *x, weft_arena *keep)
{
    WEFT_TRY(weft_program_find_before(x->p, x->arena, &x->commit));
    if (x->commit.stream < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s has no commit point", x->p->name);
    WEFT_TRY(list_instrs(x));
    WEFT_TRY(check_streams(x));
    WEFT_TRY(number_slots(x));
    for (int n = 0; n < x->n; n++) WEFT_TRY(resolve_instr(x, &x->instr[n]));
    WEFT_TRY(join_all(x, x->n_slot, keep));
    int most = 1;
    for (int n = 0; n < x->n; n++) most += x->instr[n].i->n_in + x->instr[n].i->n_out;
    x->out->input = WEFT_ARENA_ARRAY(keep, weft_tail_input, most);
    WEFT_TRY(weft_arena_status(keep));
    qsort(x->instr, (size_t)x->n, sizeof *x->instr, compare_instrs);
    number_inputs(x);
    return hash_all(x);
}

weft_status weft_program_find_tail(const weft_program *p, weft_arena *a, weft_tail *out)
{
    weft_tail t = {0};
    tail_pass x = {.p = p, .out = &t};
    WEFT_TRY(weft_arena_create(&x.arena));
    weft_status st = find_tail(&x, a);
    weft_arena_destroy(x.arena);
    if (st == WEFT_OK) *out = t;
    return st;
}
