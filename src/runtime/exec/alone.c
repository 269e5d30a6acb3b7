/* The end of a step without peers.
 *
 * A rank that has passed the commit point of a step makes its updates whoever is lost: all that
 * they read is in its memory, and none of them waits for a message (program/verify_commit.c).  All
 * threads have stopped; one of them goes on with what each stream has left of the step, in the
 * order of edges, and leaves communication out.
 *
 * A gather that is left out still puts this rank's own share in its place, where the update wrote
 * it elsewhere.  What a device has begun to gather cannot be taken back: there shares are in their
 * places before (places_shares), or those of some tensors may be lost, and the state is torn. */
#include <string.h>

#include "exec/exec_priv.h"

/* ---- gathers ---- */

/* A gathered tensor's share of this rank, from its operand to its place in the result. */
typedef struct own_share {
    const char *from;
    char       *to;
    int64_t     bytes; /* 0: nothing has to be moved */
} own_share;

static int find_position(const weft_program *p, const weft_group *g)
{
    int me = 0;
    while (me < g->n_rank && g->rank[me] != p->rank) me++;
    return me;
}

static own_share find_share(const weft_exec__instr *x, int t)
{
    const weft_instr *i     = x->i;
    const weft_group *g     = &x->s->e->p->group[i->group];
    int               me    = find_position(x->s->e->p, g);
    int64_t           size  = weft_dtype_bytes(i->in[t].type.dtype), lo, hi;
    own_share         share = {.from = x->call.in[t].p, .to = x->call.out[t].p};
    if (i->coll == WEFT_BROADCAST) {
        lo = 0;
        hi = me ? 0 : weft_shape_count(&i->in[t].type.shape);
    } else {
        weft_instr_share(i, t, g->n_rank, me, &lo, &hi);
    }
    share.to += lo * size;
    share.bytes = share.to == share.from ? 0 : (hi - lo) * size;
    return share;
}

bool weft_exec__gathers_state(const weft_exec__instr *x)
{
    return weft_exec__is_gather(x->i) && weft_instr_writes_state(x->s->e->p, x->i);
}

bool weft_exec__is_gather(const weft_instr *i)
{
    return i->kind == WEFT_INSTR_COLLECTIVE &&
           (i->coll == WEFT_ALL_GATHER || i->coll == WEFT_BROADCAST);
}

static weft_status copy_share(const weft_exec__instr *x, const own_share *share)
{
    weft_device *d    = x->s->device;
    weft_memory  from = {.device  = d,
                         .space   = WEFT_SPACE_DEVICE,
                         .address = (char *)(uintptr_t)share->from,
                         .bytes   = share->bytes};
    weft_memory  to   = from;
    to.address        = share->to;
    return d->copy(d, &x->s->dev, &to, &from);
}

weft_status weft_exec__keep_own_share(const weft_exec__instr *x)
{
    bool on_device = x->host->device_call != NULL;
    if (!weft_exec__is_gather(x->i)) return WEFT_OK;
    if (!on_device) WEFT_TRY(weft_exec__stage_in(x->s->e, x));
    for (int t = 0; t < x->i->n_out; t++) {
        own_share share = find_share(x, t);
        if (!share.bytes) continue;
        if (on_device)
            WEFT_TRY(copy_share(x, &share));
        else
            memmove(share.to, share.from, (size_t)share.bytes);
    }
    return on_device ? WEFT_OK : weft_exec__stage_out(x->s->e, x);
}

void weft_exec__take_own_share(const weft_exec__instr *x)
{
    for (int t = 0; t < x->i->n_out; t++) {
        own_share share = find_share(x, t);
        if (share.bytes)
            memmove((char *)(uintptr_t)share.from, share.to, (size_t)share.bytes);
    }
}

/* Does the device gather state whose shares are not in their places before? */
static bool has_shares_on_device(const weft_exec *e)
{
    if (e->o.places_shares) return false;
    for (int a = 0; a < e->p->n_actor; a++)
        for (weft_exec__variant *v = e->actor[a].variant; v; v = v->next)
            for (int n = 0; n < e->p->actor[a].n_instr; n++) {
                const weft_exec__instr *x = &v->instr[n];
                if (!weft_exec__gathers_state(x) || !x->host->device_call) continue;
                for (int t = 0; t < x->i->n_out; t++)
                    if (find_share(x, t).bytes) return true;
            }
    return false;
}

/* ---- the rest of a step ---- */

static bool is_unfinished(const weft_exec *e, int64_t step)
{
    for (int k = 0; k < e->n_stream; k++)
        if (e->first_step + e->stream[k].step <= step) return true;
    return false;
}

/* What firings have given so far, of each edge: messages, credits. */
static void count_given(const weft_exec *e, int64_t *given)
{
    for (int k = 0; k < e->n_stream; k++) {
        const weft_exec__stream *s = &e->stream[k];
        int                      n = e->p->stream[s->number].n_firing;
        for (int f = 0; f < n; f++) {
            const weft_firing_order *o = &e->order.firing[s->number][f];
            for (int i = 0; i < o->n_give; i++)
                given[2 * o->give[i].edge + o->give[i].credit] += s->step + (f < s->at);
        }
    }
}

static bool may_fire(const weft_exec *e, const weft_exec__stream *s, const int64_t *given)
{
    const weft_firing_order *f = &e->order.firing[s->number][s->at];
    for (int i = 0; i < f->n_wait; i++) {
        const weft_wait *w = &f->wait[i];
        if (given[2 * w->edge + w->credit] < s->step * w->per_step + w->at) return false;
    }
    return true;
}

static weft_status fire_alone(weft_exec *e, weft_exec__stream *s, int64_t *given)
{
    const weft_firing_order *f = &e->order.firing[s->number][s->at];
    WEFT_TRY(weft_exec__fire(s));
    WEFT_TRY(s->device->finish(&s->dev));
    for (int i = 0; i < f->n_give; i++) given[2 * f->give[i].edge + f->give[i].credit]++;
    if (++s->at == e->p->stream[s->number].n_firing) {
        s->at = 0;
        s->step++;
    }
    return WEFT_OK;
}

/* One firing of any stream that may; *fired: there was one. */
static weft_status fire_any(weft_exec *e, int64_t step, int64_t *given, bool *fired)
{
    *fired = false;
    for (int k = 0; k < e->n_stream; k++) {
        weft_exec__stream *s = &e->stream[k];
        if (e->first_step + s->step > step || !may_fire(e, s, given)) continue;
        *fired = true;
        WEFT_TRY(fire_alone(e, s, given));
    }
    return WEFT_OK;
}

weft_status weft_exec__fire_rest(weft_exec *e, int64_t step)
{
    int64_t *given = WEFT_ARENA_ARRAY(e->arena, int64_t, 2 * e->p->n_edge + 1);
    bool     fired = true;
    WEFT_TRY(weft_arena_status(e->arena));
    count_given(e, given);
    while (fired && is_unfinished(e, step)) WEFT_TRY(fire_any(e, step, given, &fired));
    return fired ? WEFT_OK
                 : WEFT_FAIL(WEFT_ERR_INTERNAL,
                             "program %s: streams wait for each other after the commit "
                             "point",
                             e->p->name);
}

/* The step `passed`, to its end. */
static void finish_step(weft_exec *e)
{
    weft_status st = WEFT_OK;
    e->alone       = true;
    e->held_step   = -1;
    for (int k = 0; k < e->n_stream; k++)
        if (st == WEFT_OK) st = e->stream[k].device->finish(&e->stream[k].dev);
    if (st == WEFT_OK)
        st = e->graph ? weft_exec__replay_alone(e) : weft_exec__fire_rest(e, e->passed);
    e->outcome = st == WEFT_OK ? WEFT_EXEC_ALONE : WEFT_EXEC_TORN;
}

/* Streams that were left open when the run before ended make its updates, none of which takes
 * anything from peers: then the step that failed has written nothing. */
static void finish_open(weft_exec *e)
{
    finish_step(e);
    if (e->outcome == WEFT_EXEC_ALONE) e->outcome = WEFT_EXEC_HELD;
    if (e->failed_open) e->outcome = WEFT_EXEC_TORN;
}

/* Devices that work by themselves tell of a lost peer when all was given to them. */
void weft_exec__end_failed(weft_exec *e)
{
    bool is_last = e->passed == e->first_step + e->until - 1;
    if (!is_last && !is_unfinished(e, e->passed))
        e->outcome = WEFT_EXEC_HELD;
    else if (e->passed < e->run_step)
        finish_open(e);
    else if (e->st != WEFT_ERR_PEER || has_shares_on_device(e))
        e->outcome = WEFT_EXEC_TORN;
    else
        finish_step(e);
}

weft_status weft_exec_finish_alone(weft_exec *e)
{
    if (!e->stop || e->st != WEFT_ERR_PEER || e->outcome != WEFT_EXEC_HELD ||
        e->arrived != e->passed + 1)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "program %s: no step lost a peer at its commit point",
                         e->p->name);
    e->passed = e->arrived;
    finish_step(e);
    return e->outcome == WEFT_EXEC_ALONE
               ? WEFT_OK
               : WEFT_FAIL(WEFT_ERR_INTERNAL, "step %lld: an update failed: %s",
                           (long long)e->passed, weft_error_text());
}

/* ---- a tail alone ---- */

void *weft_exec_tail_input(const weft_exec *e, const weft_tail_input *x)
{
    return (char *)e->slab[x->slab].address + x->at;
}

weft_status weft_exec_run_tail(weft_exec *e, const weft_tail *t, int64_t step)
{
    weft_exec__stream *s  = NULL;
    weft_status        st = WEFT_OK;
    for (int k = 0; k < e->n_stream; k++)
        if (e->stream[k].number == t->stream) s = &e->stream[k];
    if (!s || !e->o.alone || e->journal || !s->device->host_access)
        return WEFT_FAIL(WEFT_ERR_ARG, "program %s: its tail cannot be run by itself",
                         e->p->name);
    e->first_step = step;
    e->held_step  = -1;
    e->alone      = true;
    s->step       = 0;
    s->instr      = t->instr;
    for (s->at = t->at; s->at < e->p->stream[t->stream].n_firing && st == WEFT_OK;
         s->at++)
        st = weft_exec__fire(s);
    if (st == WEFT_OK) st = s->device->finish(&s->dev);
    s->at = s->instr = 0;
    return st;
}
