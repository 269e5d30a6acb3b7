/* Invariant (5): the commit point.
 *
 * (a) a program that writes state has one, which fires once a step
 * (b) every write of state is ordered after it, by lists and edges
 * (c) what is computed into state after it takes nothing from a message that is not ordered before
 *     it, directly or through other instructions.  Putting gathered values in place is no update:
 *     copies, casts and concats may
 * (d) after it a message itself writes state only where it gathers what ranks have written
 *
 * Each step has its own commit point; delays of edges differ in the first ones. */
#include "program/verify_priv.h"

/* An instruction of a firing. */
typedef struct point {
    int     stream;
    int64_t at; /* firing, counted over steps */
    int     instr;
} point;

typedef struct source {
    bool              any;
    point             at; /* a message, and what it is */
    const weft_actor *a;
    const weft_instr *i;
} source;

typedef struct commit_check {
    const weft_program      *p;
    const weft_program__run *run;
    int                      actor, instr, stream, firing; /* the commit point */
    source *from; /* buffer: the newest message that its content comes from */
    /* now running */
    point             now;
    const weft_actor *a;
    const weft_instr *i;
} commit_check;

#define BAD(c, ...) WEFT_PROGRAM__BAD((c)->p, (c)->a, (c)->i, __VA_ARGS__)

/* ---- there is one ---- */

static const char *state_of(const weft_program *p, const weft_instr *i)
{
    for (int k = 0; k < i->n_out; k++) {
        int32_t b = i->out[k].buffer;
        if (b >= 0 && weft_slab_kind_is_state(p->slab[p->buffer[b].slab].kind))
            return p->buffer[b].name;
    }
    return "";
}

/* Without a commit point nothing that fires may write state. */
static weft_status check_none(commit_check *c)
{
    const weft_program *p = c->p;
    for (int s = 0; s < p->n_stream; s++)
        for (int f = 0; f < p->stream[s].n_firing; f++) {
            c->a = &p->actor[p->stream[s].firing[f].actor];
            for (int n = 0; n < c->a->n_instr; n++) {
                c->i = &c->a->instr[n];
                if (weft_instr_writes_state(p, c->i))
                    return BAD(c,
                               "it writes state %s, and the program has no commit point",
                               state_of(p, c->i));
            }
        }
    return WEFT_OK;
}

static weft_status check_single(commit_check *c)
{
    const weft_program *p     = c->p;
    int                 fires = 0;
    for (int a = 0; a < p->n_actor; a++)
        for (int n = 0; n < p->actor[a].n_instr; n++) {
            c->a = &p->actor[a];
            c->i = &c->a->instr[n];
            if (c->i->kind == WEFT_INSTR_COMMIT && (a != c->actor || n != c->instr))
                return BAD(c, "a second commit point; the first is '%s' of actor %s",
                           p->actor[c->actor].instr[c->instr].name,
                           p->actor[c->actor].name);
        }
    c->a      = &p->actor[c->actor];
    c->i      = &c->a->instr[c->instr];
    c->stream = c->a->stream;
    for (int f = 0; f < p->stream[c->stream].n_firing; f++) {
        if (p->stream[c->stream].firing[f].actor != c->actor) continue;
        if (p->stream[c->stream].firing[f].micro >= 0)
            return BAD(c, "it fires for micro-batch %d, not once a step",
                       p->stream[c->stream].firing[f].micro);
        c->firing = f;
        fires++;
    }
    return fires == 1 ? WEFT_OK : BAD(c, "it fires %d times a step, not once", fires);
}

/* ---- order ---- */

static int64_t step_of(const commit_check *c, const point *x)
{
    return x->at / c->p->stream[x->stream].n_firing;
}

/* The commit point of a step. */
static point commit_of(const commit_check *c, int64_t step)
{
    return (point){c->stream, step * c->p->stream[c->stream].n_firing + c->firing,
                   c->instr};
}

static bool is_before(const commit_check *c, const point *x, const point *y)
{
    if (x->stream == y->stream && x->at == y->at) return x->instr < y->instr;
    if (x->stream == y->stream) return x->at < y->at;
    return c->run->clock[y->stream][y->at].at[x->stream] >= x->at;
}

/* ---- what comes from where ---- */

/* A message that operand o comes from and that is not before the commit point; NULL: none. */
static const source *find_late(const commit_check *c, const weft_operand *o,
                               const point *commit)
{
    const source *s = o->buffer < 0 ? NULL : &c->from[o->buffer];
    return s && s->any && !is_before(c, &s->at, commit) ? s : NULL;
}

static const source *find_late_operand(const commit_check *c, const point *commit)
{
    const source *s = NULL;
    for (int k = 0; k < c->i->n_in && !s; k++) s = find_late(c, &c->i->in[k], commit);
    for (int k = 0; k < c->i->n_out && !s; k++)
        if (c->i->kind == WEFT_INSTR_MERGE ||
            (k < 32 && (c->i->add | c->i->into) >> k & 1))
            s = find_late(c, &c->i->out[k], commit);
    return s;
}

/* Does it only put values where they belong? */
static bool is_mover(const weft_instr *i)
{
    return i->kind == WEFT_INSTR_COPY ||
           (i->kind == WEFT_INSTR_COMPUTE && !i->n_post && !i->add && !i->into &&
            (i->op == WEFT_OP_CAST || i->op == WEFT_OP_CONCAT));
}

static bool is_gather(const weft_instr *i)
{
    return i->kind == WEFT_INSTR_COLLECTIVE &&
           (i->coll == WEFT_ALL_GATHER || i->coll == WEFT_BROADCAST);
}

static weft_status check_instr(commit_check *c)
{
    const weft_instr *i      = c->i;
    point             commit = commit_of(c, step_of(c, &c->now));
    bool              writes = weft_instr_writes_state(c->p, i);
    if (writes && is_before(c, &c->now, &commit))
        return BAD(c, "it writes state %s before the commit point", state_of(c->p, i));
    if (writes && !is_before(c, &commit, &c->now))
        return BAD(c,
                   "nothing orders its write of state %s after the commit point; an edge "
                   "is missing",
                   state_of(c->p, i));
    const source *late = find_late_operand(c, &commit);
    if (weft_instr_is_comm(i) && !is_before(c, &c->now, &commit)) {
        if (writes && !is_gather(i))
            return BAD(c, "it writes state %s from a message after the commit point",
                       state_of(c->p, i));
        for (int k = 0; k < i->n_out; k++)
            if (i->out[k].buffer >= 0)
                c->from[i->out[k].buffer] = (source){true, c->now, c->a, i};
        return WEFT_OK;
    }
    if (!late) return WEFT_OK;
    if (writes && !is_mover(i))
        return BAD(c,
                   "it updates state %s from %s '%s' of actor %s, a message after the "
                   "commit point",
                   state_of(c->p, i), weft_instr_kind_name(late->i->kind), late->i->name,
                   late->a->name);
    source from = *late;
    for (int k = 0; k < i->n_out; k++)
        if (i->out[k].buffer >= 0) c->from[i->out[k].buffer] = from;
    return WEFT_OK;
}

weft_status weft_program__verify_commit(const weft_program      *p,
                                        const weft_program__run *run, weft_arena *tmp)
{
    commit_check c = {.p = p, .run = run};
    if (!weft_program_find_commit(p, &c.actor, &c.instr)) return check_none(&c);
    WEFT_TRY(check_single(&c));
    c.from = WEFT_ARENA_ARRAY(tmp, source, p->n_buffer + 1);
    WEFT_TRY(weft_arena_status(tmp));
    for (int64_t k = 0; k < run->n; k++) {
        int                     s = run->fired[k].stream;
        const weft_stream_spec *x = &p->stream[s];
        c.now                     = (point){s, run->fired[k].at, 0};
        c.a = &p->actor[x->firing[run->fired[k].at % x->n_firing].actor];
        for (; c.now.instr < c.a->n_instr; c.now.instr++) {
            c.i = &c.a->instr[c.now.instr];
            WEFT_TRY(check_instr(&c));
        }
    }
    return WEFT_OK;
}
