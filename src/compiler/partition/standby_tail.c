/* The tail of a program: what computes its state after the commit point, looked at from its end. */
#include <stdlib.h>
#include <string.h>

#include "partition/standby_priv.h"

typedef weft_partition__tail       tail;
typedef weft_partition__tail_input tail_input;

typedef struct tail_search {
    const weft_program *p;
    weft_arena         *arena;
    int                 actor, instr; /* the commit point */
    int                 at;           /* its firing in the compute stream's list */
    int                 n_after;      /* instructions after it */
    const weft_instr  **after;
    bool               *needed; /* instruction of these */
    bool               *wanted; /* buffer: made for one of these */
    tail               *t;
} tail_search;

static bool is_state(const weft_program *p, int32_t buffer)
{
    return buffer >= 0 && weft_slab_kind_is_state(p->slab[p->buffer[buffer].slab].kind);
}

/* Does the other program hold the same part of the same tensor? */
static bool is_held(const weft_binding *x, const weft_program *other)
{
    const weft_binding *y = weft_program_find(other, x->name);
    return y && y->kind == x->kind && y->at.type.dtype == x->at.type.dtype &&
           weft_shape_equal(&y->at.type.shape, &x->at.type.shape) &&
           !memcmp(y->origin, x->origin, sizeof x->origin);
}

bool weft_partition__fills_gradients(const weft_program *p, const weft_firing *f)
{
    const weft_actor *a     = &p->actor[f->actor];
    bool              merge = a->n_instr > 0;
    for (int i = 0; i < a->n_instr; i++)
        merge = merge && a->instr[i].kind == WEFT_INSTR_MERGE;
    return f->micro >= 0 || merge;
}

/* ---- shares ---- */

/* State that is computed together: a parameter, its moments, its copies. */
typedef struct tail_unit {
    int32_t first; /* buffer that stands for it */
    int64_t bytes; /* of state */
} tail_unit;

static int32_t find_root(int32_t *root, int32_t b)
{
    while (root[b] != b) b = root[b] = root[root[b]];
    return b;
}

/* The lowest buffer stands for all. */
static void join_buffers(int32_t *root, int32_t a, int32_t b)
{
    a = find_root(root, a);
    b = find_root(root, b);
    if (a < b) root[b] = a;
    if (b < a) root[a] = b;
}

/* State that an instruction after the commit point uses or makes belongs together, also by what is
 * made for it there. */
static void join_units(const tail_search *s, bool *made, int32_t *root)
{
    for (int n = 0; n < s->n_after; n++) {
        const weft_instr *i    = s->after[n];
        int32_t           unit = -1;
        for (int k = 0; k < i->n_out + i->n_in; k++) {
            bool    out = k < i->n_out;
            int32_t b   = out ? i->out[k].buffer : i->in[k - i->n_out].buffer;
            if (b < 0 || !(out || made[b] || is_state(s->p, b))) continue;
            made[b] = made[b] || out;
            if (unit >= 0) join_buffers(root, unit, b);
            unit = b;
        }
    }
}

static int compare_units(const void *a, const void *b)
{
    const tail_unit *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* The largest units first, each to the share that has least so far.  in[b]: is state of buffer b
 * in the share?  The same for all ranks that hold the same state, with or without replicas. */
static weft_status share_units(tail_search *s, weft_standby_share share, bool *in)
{
    const weft_program *p     = s->p;
    int32_t            *root  = WEFT_ARENA_ARRAY(s->arena, int32_t, p->n_buffer + 1);
    bool               *made  = WEFT_ARENA_ARRAY(s->arena, bool, p->n_buffer + 1);
    tail_unit          *unit  = WEFT_ARENA_ARRAY(s->arena, tail_unit, p->n_buffer + 1);
    int                *of    = WEFT_ARENA_ARRAY(s->arena, int, p->n_buffer + 1);
    int64_t            *bytes = WEFT_ARENA_ARRAY(s->arena, int64_t, share.of + 1);
    WEFT_TRY(weft_arena_status(s->arena));
    for (int32_t b = 0; b < p->n_buffer; b++) root[b] = b;
    join_units(s, made, root);
    for (int32_t b = 0; b < p->n_buffer; b++) {
        int32_t first     = find_root(root, b);
        unit[first].first = first;
        unit[b].first     = first;
        if (is_state(p, b)) unit[first].bytes += p->buffer[b].bytes;
    }
    qsort(unit, (size_t)p->n_buffer, sizeof *unit, compare_units);
    for (int n = 0; n < p->n_buffer && unit[n].bytes > 0; n++) {
        int least = 0;
        for (int k = 1; k < share.of; k++)
            if (bytes[k] < bytes[least]) least = k;
        of[unit[n].first] = least;
        bytes[least] += unit[n].bytes;
    }
    for (int32_t b = 0; b < p->n_buffer; b++) in[b] = of[find_root(root, b)] == share.at;
    return WEFT_OK;
}

/* ---- which instructions ---- */

/* Those after the commit point, in the order of the compute stream. */
static weft_status list_after(tail_search *s)
{
    const weft_program     *p = s->p;
    const weft_stream_spec *x = weft_program_stream(p, WEFT_STREAM_COMPUTE);
    if (!weft_program_find_commit(p, &s->actor, &s->instr) || !x ||
        p->actor[s->actor].stream != x - p->stream)
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s has no commit point for replicas",
                         p->name);
    for (s->at = 0; x->firing[s->at].actor != s->actor;) s->at++;
    for (int f = s->at; f < x->n_firing; f++)
        s->n_after += p->actor[x->firing[f].actor].n_instr;
    s->after  = WEFT_ARENA_ARRAY(s->arena, const weft_instr *, s->n_after + 1);
    s->needed = WEFT_ARENA_ARRAY(s->arena, bool, s->n_after + 1);
    WEFT_TRY(weft_arena_status(s->arena));
    s->n_after = 0;
    for (int f = s->at; f < x->n_firing; f++) {
        const weft_actor *a = &p->actor[x->firing[f].actor];
        for (int i = f == s->at ? s->instr + 1 : 0; i < a->n_instr; i++)
            s->after[s->n_after++] = &a->instr[i];
    }
    return WEFT_OK;
}

/* Marks what makes wanted buffers, from the end on; *more: a state that was not wanted is used. */
static weft_status mark_needed(tail_search *s, bool *more)
{
    const weft_program *p = s->p;
    *more                 = false;
    for (int n = s->n_after - 1; n >= 0; n--) {
        const weft_instr *i = s->after[n];
        for (int k = 0; k < i->n_out; k++)
            if (i->out[k].buffer >= 0 && s->wanted[i->out[k].buffer]) s->needed[n] = true;
        if (!s->needed[n]) continue;
        if (weft_instr_is_comm(i))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s is gathered after the commit point: it has no standby "
                             "replica",
                             i->name);
        for (int k = 0; k < i->n_in + i->n_out; k++) {
            int32_t b = k < i->n_in ? i->in[k].buffer : i->out[k - i->n_in].buffer;
            if (b < 0 || s->wanted[b]) continue;
            s->wanted[b] = true;
            *more        = *more || is_state(p, b);
        }
    }
    return WEFT_OK;
}

static weft_status find_instrs(tail_search *s, const weft_program *other,
                               weft_standby_share share)
{
    const weft_program *p  = s->p;
    bool               *in = WEFT_ARENA_ARRAY(s->arena, bool, p->n_buffer + 1);
    WEFT_TRY(weft_arena_status(s->arena));
    if (share.of < 1) share = (weft_standby_share){.of = 1};
    WEFT_TRY(share_units(s, share, in));
    for (int b = 0; b < p->n_binding; b++) {
        const weft_binding *x = &p->binding[b];
        if ((x->kind == WEFT_BIND_PARAM || x->kind == WEFT_BIND_STATE) &&
            in[x->at.buffer] && !is_held(x, other))
            s->wanted[x->at.buffer] = true;
    }
    for (bool more = true; more;) WEFT_TRY(mark_needed(s, &more));
    for (int b = 0; b < p->n_buffer; b++) s->t->state[b] = s->wanted[b] && is_state(p, b);
    for (int n = 0; n < s->n_after; n++)
        if (s->needed[n]) s->t->instr[s->t->n_instr++] = s->after[n];
    return WEFT_OK;
}

/* ---- what they take ---- */

static bool writes(const weft_instr *i, int32_t buffer, int *result)
{
    for (int k = 0; k < i->n_out; k++)
        if (i->out[k].buffer == buffer) {
            *result = k;
            return true;
        }
    return false;
}

/* The kind of an input, by who writes it. */
static weft_status classify(const tail_search *s, tail_input *x)
{
    const weft_program *p     = s->p;
    bool                found = false;
    x->from                   = WEFT_TAIL_GRADIENT;
    for (int b = 0; b < p->n_binding; b++)
        if (p->binding[b].kind == WEFT_BIND_STEP_INPUT &&
            p->binding[b].at.buffer == x->buffer) {
            x->from = WEFT_TAIL_STEP;
            x->name = p->binding[b].name;
            return WEFT_OK;
        }
    for (int q = 0; q < p->n_stream; q++)
        for (int f = 0; f < p->stream[q].n_firing; f++) {
            const weft_firing *g        = &p->stream[q].firing[f];
            const weft_actor  *a        = &p->actor[g->actor];
            bool               gradient = p->stream[q].kind == WEFT_STREAM_COMPUTE &&
                            weft_partition__fills_gradients(p, g);
            for (int i = 0; i < a->n_instr; i++) {
                if (!writes(&a->instr[i], x->buffer, &x->result)) continue;
                found = true;
                if (gradient) continue;
                x->from = a->instr[i].kind == WEFT_INSTR_COMPUTE &&
                                  a->instr[i].op == WEFT_OP_CLIP
                              ? WEFT_TAIL_CLIP
                              : WEFT_TAIL_LATE;
            }
        }
    return found ? WEFT_OK
                 : WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s: no actor makes %s", p->name,
                             p->buffer[x->buffer].name);
}

static weft_status take_operand(tail_search *s, const weft_operand *o, const bool *made,
                                int *number)
{
    int64_t lo, hi;
    if (o->buffer < 0 || made[o->buffer] || is_state(s->p, o->buffer)) return WEFT_OK;
    if (!weft_operand_span(o, &lo, &hi)) return WEFT_OK; /* verify says so */
    if (number[o->buffer] < 0) {
        number[o->buffer] = s->t->n_input++;
        s->t->input[number[o->buffer]] =
            (tail_input){.buffer = o->buffer, .lo = lo, .hi = hi, .dtype = o->type.dtype};
        return classify(s, &s->t->input[number[o->buffer]]);
    }
    tail_input *x = &s->t->input[number[o->buffer]];
    if (lo < x->lo) x->lo = lo;
    if (hi > x->hi) x->hi = hi;
    return WEFT_OK;
}

static weft_status find_inputs(tail_search *s)
{
    const weft_program *p      = s->p;
    bool               *made   = WEFT_ARENA_ARRAY(s->arena, bool, p->n_buffer + 1);
    int                *number = WEFT_ARENA_ARRAY(s->arena, int, p->n_buffer + 1);
    WEFT_TRY(weft_arena_status(s->arena));
    for (int b = 0; b < p->n_buffer; b++) number[b] = -1;
    for (int n = 0; n < s->t->n_instr; n++) {
        const weft_instr *i = s->t->instr[n];
        for (int k = 0; k < i->n_in; k++)
            WEFT_TRY(take_operand(s, &i->in[k], made, number));
        for (int k = 0; k < i->n_out; k++) {
            if (k < 32 && (i->add | i->into) >> k & 1)
                WEFT_TRY(take_operand(s, &i->out[k], made, number));
            if (i->out[k].buffer >= 0) made[i->out[k].buffer] = true;
        }
    }
    return WEFT_OK;
}

weft_status weft_partition__find_tail(const weft_program *p, const weft_program *other,
                                      weft_standby_share share, weft_arena *a, tail *out)
{
    tail_search s = {.p = p, .arena = a, .t = out};
    *out          = (tail){0};
    WEFT_TRY(list_after(&s));
    s.wanted   = WEFT_ARENA_ARRAY(a, bool, p->n_buffer + 1);
    out->state = WEFT_ARENA_ARRAY(a, bool, p->n_buffer + 1);
    out->instr = WEFT_ARENA_ARRAY(a, const weft_instr *, s.n_after + 1);
    out->input = WEFT_ARENA_ARRAY(a, tail_input, p->n_buffer + 1);
    WEFT_TRY(weft_arena_status(a));
    WEFT_TRY(find_instrs(&s, other, share));
    return find_inputs(&s);
}
