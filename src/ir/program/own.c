/* In: a verified program.  Out: of each state what this rank computes of it.
 *
 * State is written after the commit point alone.  Of what writes it there, updates compute it;
 * gathers bring what other ranks have computed, and so do copies, casts and concats out of values
 * that came with a message after the commit point.  Which messages come before it follows from
 * lists
 * and edges: of each stream the last firing that the commit point waits for, directly or not. */
#include "program/own.h"

#include <string.h>

#include "program/order.h"

typedef struct own_pass {
    const weft_program *p;
    weft_order          order;
    int           before[WEFT_MAX_STREAM];     /* firings of a step that come before it */
    int           commit_stream, commit_instr; /* its firing is the one at `before` */
    weft_own_run *own;                         /* buffer: of a whole value in it */
    bool         *late; /* buffer: from a message after the commit point */
} own_pass;

/* ---- what comes before ---- */

static bool widen(own_pass *o, int stream, int n)
{
    if (n <= o->before[stream]) return false;
    o->before[stream] = n;
    return true;
}

/* The firings of this step that firing f waits for, and all before them in their lists. */
static bool add_waits(own_pass *o, const weft_firing_order *f)
{
    bool more = false;
    for (int i = 0; i < f->n_wait; i++) {
        const weft_wait *w = &f->wait[i];
        const weft_edge *e = &o->p->edge[w->edge];
        if (w->at < 1 || w->at > w->per_step) continue; /* of another step */
        int place = (w->credit ? o->order.taker : o->order.giver)[w->edge][w->at - 1];
        more |= widen(o, o->p->actor[w->credit ? e->to : e->from].stream, place + 1);
    }
    return more;
}

static void find_before(own_pass *o, int place)
{
    const weft_firing_order *commit = &o->order.firing[o->commit_stream][place];
    o->before[o->commit_stream]     = place;
    for (bool more = true; more;) {
        more = add_waits(o, commit);
        for (int s = 0; s < o->p->n_stream; s++)
            for (int f = 0; f < o->before[s]; f++)
                more |= add_waits(o, &o->order.firing[s][f]);
    }
}

/* ---- what writes state ---- */

static bool is_gather(const weft_instr *i)
{
    return i->kind == WEFT_INSTR_COLLECTIVE &&
           (i->coll == WEFT_ALL_GATHER || i->coll == WEFT_BROADCAST);
}

static bool is_copy(const weft_instr *i)
{
    return i->kind == WEFT_INSTR_COPY ||
           (i->kind == WEFT_INSTR_COMPUTE && i->op == WEFT_OP_CAST && !i->n_post);
}

static weft_own_run meet_runs(weft_own_run a, weft_own_run b)
{
    weft_own_run both = {a.lo > b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
    if (both.hi < both.lo) both.hi = both.lo;
    return both;
}

static void take_gather(own_pass *o, const weft_instr *i, int t)
{
    const weft_group *g    = &o->p->group[i->group];
    int32_t           b    = i->out[t].buffer;
    weft_own_run      mine = {0, 0};
    int               me   = 0;
    while (me < g->n_rank && g->rank[me] != o->p->rank) me++;
    if (i->coll == WEFT_ALL_GATHER)
        weft_instr_share(i, t, g->n_rank, me, &mine.lo, &mine.hi);
    else if (!me)
        mine.hi = weft_shape_count(&i->out[t].type.shape);
    o->own[b]  = meet_runs(o->own[b], mine);
    o->late[b] = true;
}

/* Element k of the result is element k of the operand, and the result is the buffer's value. */
static bool keeps_order(const weft_instr *i)
{
    return is_copy(i) && weft_operand_contiguous(&i->in[0]) &&
           weft_operand_contiguous(&i->out[0]) && !i->in[0].offset && !i->out[0].offset;
}

static void take_copy(own_pass *o, const weft_instr *i)
{
    bool late = false;
    for (int k = 0; k < i->n_in; k++)
        late = late || (i->in[k].buffer >= 0 && o->late[i->in[k].buffer]);
    for (int k = 0; late && k < i->n_out; k++) {
        int32_t b = i->out[k].buffer;
        if (b < 0) continue;
        weft_own_run none = {0, 0};
        o->own[b] = meet_runs(o->own[b], keeps_order(i) ? o->own[i->in[0].buffer] : none);
        o->late[b] = true;
    }
}

static void take_instr(own_pass *o, const weft_instr *i)
{
    if (!weft_instr_is_comm(i)) {
        if (is_copy(i) || (i->kind == WEFT_INSTR_COMPUTE && i->op == WEFT_OP_CONCAT))
            take_copy(o, i);
        return;
    }
    for (int t = 0; t < i->n_out; t++) {
        int32_t b = i->out[t].buffer;
        if (b < 0) continue;
        if (is_gather(i)) {
            take_gather(o, i, t);
        } else {
            o->own[b]  = (weft_own_run){0, 0};
            o->late[b] = true;
        }
    }
}

/* All that is not before the commit point. */
static void take_after(own_pass *o)
{
    for (int s = 0; s < o->p->n_stream; s++)
        for (int f = o->before[s]; f < o->p->stream[s].n_firing; f++) {
            const weft_actor *a  = &o->p->actor[o->p->stream[s].firing[f].actor];
            bool              in = s == o->commit_stream && f == o->before[s];
            for (int n = in ? o->commit_instr + 1 : 0; n < a->n_instr; n++)
                take_instr(o, &a->instr[n]);
        }
}

/* ---- */

static weft_status order_commit(own_pass *o, int actor, weft_arena *tmp)
{
    const weft_program *p = o->p;
    int                 place;
    WEFT_TRY(weft_order_make(p, tmp, false, &o->order));
    o->commit_stream = p->actor[actor].stream;
    for (place = 0; p->stream[o->commit_stream].firing[place].actor != actor;) place++;
    find_before(o, place);
    return WEFT_OK;
}

weft_status weft_program_find_before(const weft_program *p, weft_arena *tmp,
                                     weft_commit_place *out)
{
    own_pass o = {.p = p};
    int      actor;
    *out = (weft_commit_place){.stream = -1};
    if (!weft_program_find_commit(p, &actor, &out->instr)) return WEFT_OK;
    WEFT_TRY(order_commit(&o, actor, tmp));
    out->stream = o.commit_stream;
    memcpy(out->before, o.before, sizeof out->before);
    return WEFT_OK;
}

static weft_status find_runs(own_pass *o, int actor, weft_arena *tmp)
{
    const weft_program *p = o->p;
    int                 before;
    WEFT_TRY(order_commit(o, actor, tmp));
    /* copies may be listed before the gathers of another stream that they wait for */
    do {
        before = 0;
        for (int b = 0; b < p->n_buffer; b++) before += o->late[b];
        take_after(o);
        for (int b = 0; b < p->n_buffer; b++) before -= o->late[b];
    } while (before);
    return WEFT_OK;
}

weft_status weft_program_find_own(const weft_program *p, weft_arena *a,
                                  weft_own_run **out)
{
    own_pass      o    = {.p = p};
    weft_own_run *runs = WEFT_ARENA_ARRAY(a, weft_own_run, p->n_binding + 1);
    weft_status   st   = weft_arena_status(a);
    weft_arena   *tmp;
    int           actor;
    WEFT_TRY(st);
    WEFT_TRY(weft_arena_create(&tmp));
    o.own  = WEFT_ARENA_ARRAY(tmp, weft_own_run, p->n_buffer + 1);
    o.late = WEFT_ARENA_ARRAY(tmp, bool, p->n_buffer + 1);
    WEFT_GO(weft_arena_status(tmp));
    for (int b = 0; b < p->n_buffer; b++) o.own[b] = (weft_own_run){0, INT64_MAX};
    if (weft_program_find_commit(p, &actor, &o.commit_instr))
        WEFT_GO(find_runs(&o, actor, tmp));
    for (int i = 0; i < p->n_binding; i++) {
        const weft_binding *b = &p->binding[i];
        bool state            = b->kind == WEFT_BIND_PARAM || b->kind == WEFT_BIND_STATE;
        runs[i]               = (weft_own_run){0, weft_shape_count(&b->at.type.shape)};
        if (state) runs[i] = meet_runs(runs[i], o.own[b->at.buffer]);
    }
    *out = runs;
out:
    weft_arena_destroy(tmp);
    return st;
}
