/* Standby replicas: a rank holds the state of another one too, and updates it by itself.
 *
 * In: the program of a rank, that of the rank which holds its replica (guard) and that of the rank
 * whose replica it holds (ward), none of them with replicas.
 * Out: the rank's program with
 *
 *     comm       standby.0 standby.1 ... standby.late |        its gradients, to the guard
 *     standby    standby.in |                                  the ward's, as it sends them
 *     compute    ... commit, updates, standby.update           the ward's updates, on its state
 *
 * (1) The ward's tail is what computes its state after its commit point.  What it takes from before
 *     that is sent (gradients as soon as they are complete, the rest late), but for what the rank
 *     has itself: inputs of the step, and the clipping scale, which every rank computes alike.
 * (2) All of it is received before the commit point, so that the tail waits for no message.
 * (3) The same instructions on the same bits: the replica is the ward's state, always of the same
 *     step.
 * (4) What the rank holds itself (tied or replicated parameters) has no replica here. */
#include <string.h>

#include "partition/standby_priv.h"

typedef weft_partition__tail       tail;
typedef weft_partition__tail_input tail_input;

int weft_partition_guard(int rank, int world)
{
    return (rank + world / 2) % world;
}

int weft_partition_ward(int rank, int world)
{
    return (rank + world - world / 2) % world;
}

/* ---- sending ---- */

static weft_operand operand_of(const tail_input *x, int32_t buffer, int64_t offset)
{
    int64_t      size = weft_dtype_bytes(x->dtype);
    weft_shape   s    = {.n = 1, .d = {(x->hi - x->lo) / size}};
    weft_operand o    = weft_operand_make(buffer, x->dtype, &s);
    o.offset          = offset / size;
    return o;
}

static weft_status put_send(weft_program *p, const tail_input *x, int peer, weft_instr *i)
{
    weft_operand o = operand_of(x, x->buffer, x->lo);
    WEFT_TRY(
        weft_partition__move(p, WEFT_INSTR_SEND, p->buffer[x->buffer].name, &o, NULL, i));
    i->peer = peer;
    i->tag  = WEFT_STANDBY_TAG + (x->from == WEFT_TAIL_LATE);
    return WEFT_OK;
}

/* Puts a firing of once a step at a place of a stream's list. */
static weft_status insert_firing(weft_program *p, int32_t stream, int at, int actor)
{
    weft_stream_spec *s    = &p->stream[stream];
    weft_firing      *list = WEFT_ARENA_ARRAY(p->arena, weft_firing, s->n_firing + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int k = 0; k < s->n_firing; k++) list[k + (k >= at)] = s->firing[k];
    list[at]  = (weft_firing){.actor = actor, .micro = -1};
    s->firing = list;
    s->n_firing++;
    return WEFT_OK;
}

/* An actor with the inputs of one kind, or none. */
static weft_status add_send_actor(weft_partition__more *m, const tail *t, int peer,
                                  weft_tail_from from, const char *name, int32_t stream,
                                  int *out)
{
    int n = 0;
    *out  = -1;
    for (int k = 0; k < t->n_input; k++) n += t->input[k].from == from;
    if (!n) return WEFT_OK;
    WEFT_TRY(weft_partition__more_actor(m, name, stream, NULL, n, out));
    weft_actor *a = &m->p->actor[*out];
    for (int k = 0; k < t->n_input; k++)
        if (t->input[k].from == from)
            WEFT_TRY(put_send(m->p, &t->input[k], peer, &a->instr[a->n_instr++]));
    return WEFT_OK;
}

/* Behind the last firing that makes a gradient. */
static int find_end_of_batch(const weft_program *p, int32_t compute)
{
    const weft_stream_spec *s   = &p->stream[compute];
    int                     end = 0;
    for (int k = 0; k < s->n_firing; k++)
        if (weft_partition__fills_gradients(p, &s->firing[k])) end = k + 1;
    return end;
}

/* The commit point's actor begins with it; what it did before is an actor right before it. */
static weft_status split_at_commit(weft_partition__more *m)
{
    weft_program *p = m->p;
    int           actor, instr, before;
    weft_program_find_commit(p, &actor, &instr);
    if (!instr) return WEFT_OK;
    WEFT_TRY(weft_partition__more_actor(
        m, weft_arena_printf(p->arena, "%s.before", p->actor[actor].name),
        p->actor[actor].stream, p->actor[actor].instr, instr, &before));
    weft_actor *a = &p->actor[actor];
    a->instr += instr;
    a->n_instr -= instr;
    for (int e = p->n_edge - 1; e >= 0; e--) { /* it takes what came for the whole */
        weft_edge x = p->edge[e];
        if (x.to == actor) x.to = before;
        if (x.from == actor) x.from = before;
        if (x.to == before || x.from == before) WEFT_TRY(weft_partition__more_edge(m, x));
    }
    weft_stream_spec *s = &p->stream[a->stream];
    for (int k = 0; k < s->n_firing; k++)
        if (s->firing[k].actor == actor) return insert_firing(p, a->stream, k, before);
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s: its commit point does not fire",
                     p->name);
}

/* Late ones wait for all of the update that comes before the commit point, which waits for them. */
static weft_status send_late(weft_partition__more *m, const tail *t, int peer)
{
    weft_program *p = m->p;
    int           actor, commit, instr;
    int32_t       comm = weft_partition__stream(p, WEFT_STREAM_COMM);
    WEFT_TRY(add_send_actor(m, t, peer, WEFT_TAIL_LATE, WEFT_PARTITION__STANDBY ".late",
                            comm, &actor));
    if (actor < 0) return WEFT_OK;
    WEFT_TRY(split_at_commit(m));
    WEFT_TRY(insert_firing(p, comm, p->stream[comm].n_firing, actor));
    weft_program_find_commit(p, &commit, &instr);
    const weft_stream_spec *s = &p->stream[p->actor[commit].stream];
    for (int k = 0; k < s->n_firing && s->firing[k].actor != commit; k++) {
        weft_edge e = {s->firing[k].actor, actor, 1, .per_step = true};
        if (s->firing[k].micro < 0 &&
            weft_partition__writes_input(p, s->firing[k].actor, t, WEFT_TAIL_LATE))
            WEFT_TRY(weft_partition__more_edge(m, e));
    }
    return weft_partition__more_edge(m, (weft_edge){actor, commit, 1, .per_step = true});
}

/* p sends what its guard needs. */
static weft_status add_sends(weft_program *p, const weft_program *guard, int64_t bucket)
{
    weft_partition__more m;
    tail                 t;
    int                  actor;
    weft_arena          *tmp = NULL;
    weft_status          st  = WEFT_OK;
    int32_t              compute;
    WEFT_TRY(weft_arena_create(&tmp));
    WEFT_GO(weft_partition__need_stream(p, WEFT_STREAM_COMM));
    WEFT_GO(weft_partition__find_tail(p, guard, tmp, &t));
    WEFT_GO(weft_partition__more_start(p, &m));
    compute = weft_partition__stream(p, WEFT_STREAM_COMPUTE);
    WEFT_GO(add_send_actor(&m, &t, guard->rank, WEFT_TAIL_GRADIENT,
                           WEFT_PARTITION__STANDBY, compute, &actor));
    if (actor >= 0) {
        WEFT_GO(insert_firing(p, compute, find_end_of_batch(p, compute), actor));
        WEFT_GO(weft_partition__overlap_sends(p, bucket));
        WEFT_GO(weft_partition__more_start(p, &m));
    }
    WEFT_GO(send_late(&m, &t, guard->rank));
out:
    weft_arena_destroy(tmp);
    return st;
}

/* ---- receiving ---- */

typedef struct standby_pass {
    weft_program        *p;
    const weft_program  *ward;
    tail                 t;
    weft_arena          *tmp;
    weft_partition__more more;
    int32_t             *buffer; /* of each of the ward's buffers: where it is here; -1 */
    int                  cap_buffer;
} standby_pass;

static int find_slab(const weft_program *p, weft_slab_kind k)
{
    for (int s = 0; s < p->n_slab; s++)
        if (p->slab[s].kind == k) return s;
    return -1;
}

/* Memory for one slot of the ward's buffer, at the end of a slab. */
static weft_status add_buffer(standby_pass *k, int32_t of, weft_slab_kind kind)
{
    weft_program      *p    = k->p;
    const weft_buffer *was  = &k->ward->buffer[of];
    int                slab = find_slab(p, kind);
    if (k->buffer[of] >= 0) return WEFT_OK;
    if (slab < 0)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s has no slab for a replica",
                         p->name);
    WEFT_TRY(weft_arena_grow(p->arena, (void **)&p->buffer, &k->cap_buffer,
                             p->n_buffer + 1, sizeof *p->buffer));
    int64_t at               = (p->slab[slab].bytes + 63) / 64 * 64;
    k->buffer[of]            = p->n_buffer;
    p->buffer[p->n_buffer++] = (weft_buffer){
        .name   = weft_arena_printf(p->arena, WEFT_STANDBY_PREFIX "%s", was->name),
        .slab   = slab,
        .offset = at,
        .bytes  = was->bytes,
        .n_slot = 1};
    p->slab[slab].bytes = at + was->bytes;
    return weft_arena_status(p->arena);
}

/* The ward's state, bound as a replica. */
static weft_status add_states(standby_pass *k)
{
    weft_program *p = k->p;
    weft_binding *all =
        WEFT_ARENA_ARRAY(p->arena, weft_binding, p->n_binding + k->ward->n_binding + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int b = 0; b < p->n_binding; b++) all[b] = p->binding[b];
    p->binding = all;
    for (int b = 0; b < k->ward->n_binding; b++) {
        const weft_binding *x = &k->ward->binding[b];
        if (x->kind != WEFT_BIND_PARAM && x->kind != WEFT_BIND_STATE) continue;
        if (!k->t.state[x->at.buffer]) continue;
        WEFT_TRY(add_buffer(k, x->at.buffer, WEFT_SLAB_STATE));
        weft_binding *y = &p->binding[p->n_binding++];
        *y              = *x;
        y->kind         = WEFT_BIND_STANDBY;
        y->name         = weft_arena_printf(p->arena, WEFT_STANDBY_PREFIX "%s", x->name);
        y->at.buffer    = k->buffer[x->at.buffer];
    }
    return weft_arena_status(p->arena);
}

/* The clipping scale of the rank itself, result `result` of its clip. */
static weft_status find_clip(const weft_program *p, int result, weft_operand *out)
{
    for (int a = 0; a < p->n_actor; a++)
        for (int n = 0; n < p->actor[a].n_instr; n++) {
            const weft_instr *i = &p->actor[a].instr[n];
            if (i->kind != WEFT_INSTR_COMPUTE || i->op != WEFT_OP_CLIP ||
                i->n_out <= result || i->out[result].buffer < 0)
                continue;
            *out = i->out[result];
            return WEFT_OK;
        }
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s clips nothing, and its ward does",
                     p->name);
}

/* Inputs that the rank has itself: of the step where they are, the clipping scale as a copy that
 * is there until the end of the step. */
static weft_status take_own_inputs(standby_pass *k, weft_instr *copy, int *n_copy)
{
    weft_program *p = k->p;
    for (int x = 0; x < k->t.n_input; x++) {
        const tail_input *in = &k->t.input[x];
        if (in->from == WEFT_TAIL_STEP) {
            const weft_binding *b = weft_program_find(p, in->name);
            if (!b)
                return WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s has no input %s", p->name,
                                 in->name);
            k->buffer[in->buffer] = b->at.buffer;
        } else if (in->from == WEFT_TAIL_CLIP) {
            weft_operand from, to;
            WEFT_TRY(find_clip(p, in->result, &from));
            WEFT_TRY(add_buffer(k, in->buffer, WEFT_SLAB_WORK));
            to        = from;
            to.buffer = k->buffer[in->buffer];
            to.offset = in->lo / weft_dtype_bytes(in->dtype);
            WEFT_TRY(weft_partition__move(p, WEFT_INSTR_COPY, p->buffer[to.buffer].name,
                                          &from, &to, &copy[(*n_copy)++]));
        }
    }
    return WEFT_OK;
}

/* Right before the commit point. */
static weft_status put_before_commit(weft_program *p, const weft_instr *list, int n)
{
    int actor, at;
    weft_program_find_commit(p, &actor, &at);
    weft_actor *a   = &p->actor[actor];
    weft_instr *all = WEFT_ARENA_ARRAY(p->arena, weft_instr, a->n_instr + n + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < a->n_instr; i++) all[i < at ? i : i + n] = a->instr[i];
    for (int i = 0; i < n; i++) all[at + i] = list[i];
    a->instr = all;
    a->n_instr += n;
    return WEFT_OK;
}

/* Receives what the ward sends, in its order. */
static weft_status add_receives(standby_pass *k, const weft_program *sender, int *actor)
{
    weft_program *p = k->p;
    int32_t       stream;
    int           n = 0;
    for (int x = 0; x < k->t.n_input; x++)
        n += k->t.input[x].from == WEFT_TAIL_GRADIENT ||
             k->t.input[x].from == WEFT_TAIL_LATE;
    *actor = -1;
    if (!n) return WEFT_OK;
    weft_stream_spec spec = {
        .name = WEFT_PARTITION__STANDBY, .kind = WEFT_STREAM_IO, .threads = 1};
    WEFT_TRY(weft_program_add_stream(p, spec, &stream));
    WEFT_TRY(weft_partition__more_actor(&k->more, WEFT_PARTITION__STANDBY ".in", stream,
                                        NULL, n, actor));
    weft_actor *a = &p->actor[*actor];
    for (int s = 0; s < sender->n_stream; s++)
        for (int f = 0; f < sender->stream[s].n_firing; f++) {
            const weft_actor *from = &sender->actor[sender->stream[s].firing[f].actor];
            for (int i = 0; i < from->n_instr && a->n_instr < n; i++) {
                const weft_instr *x = &from->instr[i];
                if (x->kind != WEFT_INSTR_SEND || !weft_instr_is_standby(x)) continue;
                WEFT_TRY(add_buffer(k, x->in[0].buffer, WEFT_SLAB_WORK));
                weft_operand to = x->in[0];
                to.buffer       = k->buffer[to.buffer];
                weft_instr *r   = &a->instr[a->n_instr++];
                WEFT_TRY(weft_partition__move(p, WEFT_INSTR_RECV,
                                              p->buffer[to.buffer].name, NULL, &to, r));
                r->peer = sender->rank;
                r->tag  = x->tag;
            }
        }
    return insert_firing(p, stream, 0, *actor);
}

static weft_status move_operands(standby_pass *k, weft_operand *o, int n)
{
    for (int i = 0; i < n; i++) {
        if (o[i].buffer < 0) continue;
        WEFT_TRY(add_buffer(k, o[i].buffer, WEFT_SLAB_WORK)); /* made in the tail */
        o[i].buffer = k->buffer[o[i].buffer];
    }
    return WEFT_OK;
}

/* The ward's tail, last of the step. */
static weft_status add_update(standby_pass *k, int in)
{
    weft_program *p = k->p;
    int           actor, commit, instr;
    int32_t       compute = weft_partition__stream(p, WEFT_STREAM_COMPUTE);
    weft_program_find_commit(p, &commit, &instr);
    if (in >= 0)
        WEFT_TRY(weft_partition__more_edge(&k->more,
                                           (weft_edge){in, commit, 1, .per_step = true}));
    if (!k->t.n_instr) return WEFT_OK;
    WEFT_TRY(weft_partition__more_actor(&k->more, WEFT_PARTITION__STANDBY ".update",
                                        compute, NULL, k->t.n_instr, &actor));
    for (int n = 0; n < k->t.n_instr; n++) {
        weft_instr *i = &p->actor[actor].instr[n];
        WEFT_TRY(weft_instr_copy(k->t.instr[n], p->arena, i));
        i->name = weft_arena_printf(p->arena, WEFT_STANDBY_PREFIX "%s", i->name);
        WEFT_TRY(move_operands(k, i->in, i->n_in));
        WEFT_TRY(move_operands(k, i->out, i->n_out));
    }
    p->actor[actor].n_instr = k->t.n_instr;
    WEFT_TRY(insert_firing(p, compute, p->stream[compute].n_firing, actor));
    if (in < 0) return weft_arena_status(p->arena);
    return weft_partition__more_edge(&k->more,
                                     (weft_edge){in, actor, 1, .per_step = true});
}

/* p holds the replica of the ward; sender: the ward's program with its sends. */
static weft_status add_replica(weft_program *p, const weft_program *ward,
                               const weft_program *self, const weft_program *sender)
{
    standby_pass k  = {.p = p, .ward = ward, .cap_buffer = p->n_buffer};
    weft_status  st = WEFT_OK;
    int          in, n_copy = 0;
    WEFT_TRY(weft_arena_create(&k.tmp));
    WEFT_GO(weft_partition__find_tail(ward, self, k.tmp, &k.t));
    weft_buffer *buffer =
        weft_arena_memdup(p->arena, p->buffer, sizeof *p->buffer * (size_t)p->n_buffer);
    k.buffer         = WEFT_ARENA_ARRAY(k.tmp, int32_t, ward->n_buffer + 1);
    weft_instr *copy = WEFT_ARENA_ARRAY(k.tmp, weft_instr, k.t.n_input + 1);
    WEFT_GO(weft_arena_status(p->arena));
    WEFT_GO(weft_arena_status(k.tmp));
    p->buffer = buffer;
    for (int b = 0; b < ward->n_buffer; b++) k.buffer[b] = -1;
    WEFT_GO(weft_partition__more_start(p, &k.more));
    WEFT_GO(add_states(&k));
    WEFT_GO(take_own_inputs(&k, copy, &n_copy));
    WEFT_GO(add_receives(&k, sender, &in));
    WEFT_GO(add_update(&k, in));
    WEFT_GO(put_before_commit(p, copy, n_copy));
out:
    weft_arena_destroy(k.tmp);
    return st;
}

/* ---- the pass ---- */

typedef struct sends_options {
    const weft_program *guard;
    int64_t             bucket_bytes;
} sends_options;

static weft_status edit_sends(weft_program *p, const void *options)
{
    const sends_options *o = options;
    return add_sends(p, o->guard, o->bucket_bytes);
}

weft_status weft_pass_add_standby(const weft_program *in, const weft_standby_options *o,
                                  weft_program **out)
{
    weft_program *p = NULL, *sender = NULL;
    weft_status   st = WEFT_OK;
    WEFT_GO(weft_partition__edit_copy(in, edit_sends,
                                      &(sends_options){o->guard, o->bucket_bytes}, &p));
    WEFT_GO(weft_partition__edit_copy(o->ward, edit_sends,
                                      &(sends_options){in, o->bucket_bytes}, &sender));
    WEFT_GO(add_replica(p, o->ward, in, sender));
    *out = p;
    p    = NULL;
out:
    weft_program_destroy(p);
    weft_program_destroy(sender);
    return st;
}
