/* Standby replicas: a rank holds the state of others too, and updates it by itself.
 *
 * In: the program of a rank, those of the ranks which hold its replicas (guards) and those of the
 * ranks whose replicas it holds (wards), none of them with replicas.
 * Out: the rank's program with
 *
 *     comm       standby.0 standby.1 ... standby.1.late |        its gradients, to the guards
 *     standby.1  standby.1.in |                                  the ward's, as it sends them
 *     compute    ... commit, updates, standby.1.update           the ward's updates, on its state
 *
 * and so on for each further ward.
 *
 * (1) The ward's tail is what computes its state after its commit point.  What it takes from before
 *     that is sent (gradients as soon as they are complete, the rest late), but for what the rank
 *     has itself: inputs of the step, and the clipping scale, which is the same on every rank.
 * (2) All of it is received before the commit point, so that the tail waits for no message.
 * (3) The same instructions on the same bits: the replica is the ward's state, always of the same
 *     step.
 * (4) Late inputs that are small (norms) go in one message: at the same places of a buffer on both
 *     sides, those of 8 bytes an element first, so that nothing is between them.
 * (5) What the rank holds itself (tied or replicated parameters) has no replica here.
 * (6) Ranks that hold the same state send a share of it each, to guards of their own.
 * (7) What goes to one guard is in the same order whatever the other guards are, and comes in on a
 *     stream of its own: no ward waits for another one. */
#include <string.h>

#include "partition/standby_priv.h"

typedef weft_partition__tail       tail;
typedef weft_partition__tail_input tail_input;

/* ---- late and small inputs ---- */

enum {
    SMALL = 4096,    /* bytes */
    LARGE = 4 << 20, /* of a message: between hosts a channel has a ring of them */
};

static bool is_packed(const tail_input *x)
{
    return x->from == WEFT_TAIL_LATE && x->hi - x->lo <= SMALL &&
           weft_dtype_bytes(x->dtype) >= 4;
}

/* Where each is in the buffer, -1: not there; the buffer's bytes. */
static int64_t pack_inputs(const tail *t, int64_t *at)
{
    int64_t end = 0;
    for (int k = 0; k < t->n_input; k++) at[k] = -1;
    for (int size = 8; size >= 4; size -= 4)
        for (int k = 0; k < t->n_input; k++) {
            const tail_input *x = &t->input[k];
            if (!is_packed(x) || weft_dtype_bytes(x->dtype) != size) continue;
            at[k] = end;
            end += x->hi - x->lo;
        }
    return end;
}

static int find_slab(const weft_program *p, weft_slab_kind k)
{
    for (int s = 0; s < p->n_slab; s++)
        if (p->slab[s].kind == k) return s;
    return -1;
}

/* A buffer of one slot at the end of a slab; *cap: how many the table has room for. */
static weft_status add_buffer(weft_program *p, int *cap, weft_buffer b,
                              weft_slab_kind kind, int32_t *out)
{
    int slab = find_slab(p, kind);
    if (slab < 0)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s has no slab for a replica",
                         p->name);
    WEFT_TRY(weft_arena_grow(p->arena, (void **)&p->buffer, cap, p->n_buffer + 1,
                             sizeof *p->buffer));
    b.slab                 = slab;
    b.offset               = (p->slab[slab].bytes + 63) / 64 * 64;
    b.bytes                = (b.bytes + 63) / 64 * 64;
    b.n_slot               = 1;
    p->slab[slab].bytes    = b.offset + b.bytes;
    p->buffer[p->n_buffer] = b;
    *out                   = p->n_buffer++;
    return WEFT_OK;
}

static weft_operand floats_of(int32_t buffer, int64_t bytes)
{
    weft_shape s = {.n = 1, .d = {bytes / 4}};
    return weft_operand_make(buffer, WEFT_DTYPE_F32, &s);
}

/* ---- sending ---- */

static weft_operand operand_of(const tail_input *x, int32_t buffer, int64_t offset,
                               int64_t bytes)
{
    int64_t      size = weft_dtype_bytes(x->dtype);
    weft_shape   s    = {.n = 1, .d = {bytes / size}};
    weft_operand o    = weft_operand_make(buffer, x->dtype, &s);
    o.offset          = offset / size;
    return o;
}

/* To a guard, of which rank and credits are known. */
typedef struct send_to {
    int     number; /* of n guards */
    int     peer, credits;
    int64_t most; /* bytes of a message */
    tail    t;    /* what it needs */
} send_to;

/* A bucket at most, and no more than LARGE. */
static int64_t find_most(const weft_standby_options *o)
{
    int64_t n = o->bucket_bytes / 64 * 64;
    return n < 64 ? 64 : n < LARGE ? n : LARGE;
}

static weft_status put_send(weft_program *p, const weft_operand *o, bool late,
                            const send_to *to, weft_instr *i)
{
    WEFT_TRY(
        weft_partition__move(p, WEFT_INSTR_SEND, p->buffer[o->buffer].name, o, NULL, i));
    i->peer    = to->peer;
    i->tag     = WEFT_STANDBY_TAG + late;
    i->credits = to->credits;
    return WEFT_OK;
}

/* Of an actor or buffer: "standby.1.late". */
static const char *name_part(weft_program *p, int number, const char *part)
{
    return weft_standby_name(p->arena, number, part);
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

static bool is_sent(const tail_input *x, weft_tail_from from)
{
    return x->from == from && !is_packed(x);
}

/* The inputs of one kind, but those that are packed. */
static weft_status put_sends(weft_program *p, const send_to *to, weft_tail_from from,
                             int32_t buffer, weft_actor *a)
{
    for (int k = 0; k < to->t.n_input; k++) {
        const tail_input *x = &to->t.input[k];
        if (!is_sent(x, from) || (buffer >= 0 && x->buffer != buffer)) continue;
        for (int64_t at = x->lo; at < x->hi; at += to->most) {
            int64_t      n = x->hi - at < to->most ? x->hi - at : to->most;
            weft_operand o = operand_of(x, x->buffer, at, n);
            WEFT_TRY(
                put_send(p, &o, from == WEFT_TAIL_LATE, to, &a->instr[a->n_instr++]));
        }
    }
    return WEFT_OK;
}

static int count_messages(const tail *t, int64_t most, weft_tail_from from)
{
    int n = 0;
    for (int k = 0; k < t->n_input; k++)
        if (is_sent(&t->input[k], from))
            n += (int)((t->input[k].hi - t->input[k].lo + most - 1) / most);
    return n;
}

/* Each gradient to all guards that need it, one after the other. */
static weft_status add_gradient_actor(weft_partition__more *m, const send_to *to,
                                      int n_to, int32_t stream, int *out)
{
    int n = 0;
    *out  = -1;
    for (int g = 0; g < n_to; g++)
        n += count_messages(&to[g].t, to[g].most, WEFT_TAIL_GRADIENT);
    if (!n) return WEFT_OK;
    WEFT_TRY(
        weft_partition__more_actor(m, WEFT_PARTITION__STANDBY, stream, NULL, n, out));
    weft_actor *a = &m->p->actor[*out];
    for (int32_t b = 0; b < m->p->n_buffer; b++)
        for (int g = 0; g < n_to; g++)
            WEFT_TRY(put_sends(m->p, &to[g], WEFT_TAIL_GRADIENT, b, a));
    return WEFT_OK;
}

/* With room for a message more. */
static weft_status add_late_actor(weft_partition__more *m, const send_to *to,
                                  int32_t stream, int *out)
{
    bool any = false;
    *out     = -1;
    for (int k = 0; k < to->t.n_input; k++)
        any = any || to->t.input[k].from == WEFT_TAIL_LATE;
    if (!any) return WEFT_OK;
    WEFT_TRY(weft_partition__more_actor(
        m, name_part(m->p, to->number, "late"), stream, NULL,
        count_messages(&to->t, to->most, WEFT_TAIL_LATE) + 1, out));
    return put_sends(m->p, to, WEFT_TAIL_LATE, -1, &m->p->actor[*out]);
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

/* The commit point's actor begins with it; what it did before is an actor right before it, with
 * room for so many instructions more. */
static weft_status split_at_commit(weft_partition__more *m, const char *name, int more,
                                   int *before)
{
    weft_program *p = m->p;
    int           actor, instr;
    WEFT_TRY(weft_arena_status(p->arena));
    weft_program_find_commit(p, &actor, &instr);
    WEFT_TRY(weft_partition__more_actor(m, name, p->actor[actor].stream, NULL,
                                        instr + more, before));
    weft_actor *a = &p->actor[actor], *b = &p->actor[*before];
    for (; b->n_instr < instr; b->n_instr++) b->instr[b->n_instr] = a->instr[b->n_instr];
    a->instr += instr;
    a->n_instr -= instr;
    for (int e = p->n_edge - 1; e >= 0; e--) { /* it takes what came for the whole */
        weft_edge x = p->edge[e];
        if (x.to == actor) x.to = *before;
        if (x.from == actor) x.from = *before;
        if (x.to == *before || x.from == *before)
            WEFT_TRY(weft_partition__more_edge(m, x));
    }
    weft_stream_spec *s = &p->stream[p->actor[actor].stream];
    for (int k = 0; k < s->n_firing; k++)
        if (s->firing[k].actor == actor)
            return insert_firing(p, p->actor[actor].stream, k, *before);
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "program %s: its commit point does not fire",
                     p->name);
}

/* Small inputs are copied one behind the other, and sent at once. */
static weft_status send_pack(weft_program *p, const send_to *to, weft_arena *tmp,
                             weft_actor *copies, weft_actor *sends)
{
    const tail *t   = &to->t;
    int64_t    *at  = WEFT_ARENA_ARRAY(tmp, int64_t, t->n_input + 1), bytes;
    int         cap = p->n_buffer;
    int32_t     buffer;
    WEFT_TRY(weft_arena_status(tmp));
    bytes = pack_inputs(t, at);
    if (!bytes) return WEFT_OK;
    weft_buffer b = {.name = name_part(p, to->number, "message.out"), .bytes = bytes};
    WEFT_TRY(weft_arena_status(p->arena));
    WEFT_TRY(add_buffer(p, &cap, b, WEFT_SLAB_WORK, &buffer));
    for (int k = 0; k < t->n_input; k++) {
        const tail_input *x = &t->input[k];
        if (at[k] < 0) continue;
        weft_operand from = operand_of(x, x->buffer, x->lo, x->hi - x->lo);
        weft_operand into = operand_of(x, buffer, at[k], x->hi - x->lo);
        WEFT_TRY(weft_partition__move(p, WEFT_INSTR_COPY, p->buffer[x->buffer].name,
                                      &from, &into, &copies->instr[copies->n_instr++]));
    }
    weft_operand all = floats_of(buffer, bytes);
    return put_send(p, &all, true, to, &sends->instr[sends->n_instr++]);
}

/* Late ones wait for all of the update that comes before the commit point, which waits for them. */
static weft_status send_late(weft_partition__more *m, const send_to *to, weft_arena *tmp)
{
    weft_program *p = m->p;
    int           actor, before, commit, instr;
    int32_t       comm = weft_partition__stream(p, WEFT_STREAM_COMM);
    WEFT_TRY(add_late_actor(m, to, comm, &actor));
    if (actor < 0) return WEFT_OK;
    WEFT_TRY(
        split_at_commit(m, name_part(p, to->number, "before"), to->t.n_input, &before));
    WEFT_TRY(send_pack(p, to, tmp, &p->actor[before], &p->actor[actor]));
    WEFT_TRY(insert_firing(p, comm, p->stream[comm].n_firing, actor));
    weft_program_find_commit(p, &commit, &instr);
    WEFT_TRY(
        weft_partition__more_edge(m, (weft_edge){before, actor, 1, .per_step = true}));
    return weft_partition__more_edge(m, (weft_edge){actor, commit, 1, .per_step = true});
}

/* Guards that p sends to, of which some may be known (to a ward's program: this one). */
typedef struct sends_options {
    int                         n, number[WEFT_MAX_STANDBY];
    const weft_program         *guard[WEFT_MAX_STANDBY];
    weft_standby_share          share;
    const weft_standby_options *how;
} sends_options;

static weft_status find_guards(weft_program *p, const sends_options *o, weft_arena *tmp,
                               send_to *to)
{
    for (int g = 0; g < o->n; g++) {
        to[g] = (send_to){
            o->number[g], o->guard[g]->rank, o->how->credits, find_most(o->how), {0}};
        WEFT_TRY(weft_partition__find_tail(p, o->guard[g], o->share, tmp, &to[g].t));
    }
    return WEFT_OK;
}

/* p sends what its guards need. */
static weft_status add_sends(weft_program *p, const void *options)
{
    const sends_options *o = options;
    send_to              to[WEFT_MAX_STANDBY];
    weft_partition__more m;
    int                  actor;
    weft_arena          *tmp = NULL;
    weft_status          st  = WEFT_OK;
    int32_t              compute;
    WEFT_TRY(weft_arena_create(&tmp));
    WEFT_GO(weft_partition__need_stream(p, WEFT_STREAM_COMM));
    WEFT_GO(find_guards(p, o, tmp, to));
    WEFT_GO(weft_partition__more_start(p, &m));
    compute = weft_partition__stream(p, WEFT_STREAM_COMPUTE);
    WEFT_GO(add_gradient_actor(&m, to, o->n, compute, &actor));
    if (actor >= 0) {
        WEFT_GO(insert_firing(p, compute, find_end_of_batch(p, compute), actor));
        WEFT_GO(weft_partition__overlap_sends(p, o->how->bucket_bytes));
        WEFT_GO(weft_partition__more_start(p, &m));
    }
    for (int g = 0; g < o->n; g++) WEFT_GO(send_late(&m, &to[g], tmp));
out:
    weft_arena_destroy(tmp);
    return st;
}

/* ---- receiving ---- */

typedef struct standby_pass {
    int                  number; /* of the wards */
    int64_t              most;   /* bytes of a message */
    weft_program        *p;
    const weft_program  *ward;
    tail                 t;
    weft_arena          *tmp;
    weft_partition__more more;
    int32_t             *buffer; /* of each of the ward's buffers: where it is here; -1 */
    int64_t             *shift;  /* and how many bytes further */
    int                  cap_buffer;
} standby_pass;

/* Memory for one slot of the ward's buffer. */
static weft_status take_buffer(standby_pass *k, int32_t of, weft_slab_kind kind)
{
    weft_arena *a = k->p->arena;
    weft_buffer b = {.bytes = k->ward->buffer[of].bytes};
    if (k->buffer[of] >= 0) return WEFT_OK;
    b.name = weft_standby_name(a, k->number, k->ward->buffer[of].name);
    WEFT_TRY(weft_arena_status(a));
    return add_buffer(k->p, &k->cap_buffer, b, kind, &k->buffer[of]);
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
        WEFT_TRY(take_buffer(k, x->at.buffer, WEFT_SLAB_STATE));
        weft_binding *y = &p->binding[p->n_binding++];
        *y              = *x;
        y->kind         = WEFT_BIND_STANDBY;
        y->name         = weft_standby_name(p->arena, k->number, x->name);
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
    return WEFT_FAIL(
        WEFT_ERR_ARG,
        "a stage without parameters of its own can hold no standby replica of "
        "another one: give it a layer that has some, or leave copies out");
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
            WEFT_TRY(take_buffer(k, in->buffer, WEFT_SLAB_WORK));
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

/* Small late inputs are where they were packed. */
static weft_status take_pack(standby_pass *k, int32_t *out)
{
    int64_t *at = WEFT_ARENA_ARRAY(k->tmp, int64_t, k->t.n_input + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    weft_buffer b = {.name  = name_part(k->p, k->number, "message.in"),
                     .bytes = pack_inputs(&k->t, at)};
    WEFT_TRY(weft_arena_status(k->p->arena));
    WEFT_TRY(add_buffer(k->p, &k->cap_buffer, b, WEFT_SLAB_WORK, out));
    for (int x = 0; x < k->t.n_input; x++) {
        if (at[x] < 0) continue;
        k->buffer[k->t.input[x].buffer] = *out;
        k->shift[k->t.input[x].buffer]  = at[x] - k->t.input[x].lo;
    }
    return WEFT_OK;
}

static weft_status put_receive(standby_pass *k, const weft_instr *send, int from,
                               weft_instr *i)
{
    weft_operand to = send->in[0];
    if (to.buffer >= k->ward->n_buffer) {
        WEFT_TRY(take_pack(k, &to.buffer));
    } else {
        WEFT_TRY(take_buffer(k, to.buffer, WEFT_SLAB_WORK));
        to.buffer = k->buffer[to.buffer];
    }
    WEFT_TRY(weft_partition__move(k->p, WEFT_INSTR_RECV, k->p->buffer[to.buffer].name,
                                  NULL, &to, i));
    i->peer    = from;
    i->tag     = send->tag;
    i->credits = send->credits;
    return WEFT_OK;
}

/* Receives what the ward sends, in its order; *actor -1: it sends nothing. */
static weft_status add_receives(standby_pass *k, const weft_program *sender, int *actor)
{
    weft_stream_spec spec   = {.kind = WEFT_STREAM_IO, .threads = 1};
    const char      *in     = name_part(k->p, k->number, "in");
    int32_t          stream = -1;
    *actor                  = -1;
    spec.name =
        weft_arena_printf(k->p->arena, WEFT_PARTITION__STANDBY ".%d", k->number + 1);
    WEFT_TRY(weft_arena_status(k->p->arena));
    for (int s = 0; s < sender->n_stream; s++)
        for (int f = 0; f < sender->stream[s].n_firing; f++) {
            const weft_actor *from = &sender->actor[sender->stream[s].firing[f].actor];
            for (int i = 0; i < from->n_instr; i++) {
                if (from->instr[i].kind != WEFT_INSTR_SEND ||
                    !weft_instr_is_standby(&from->instr[i]))
                    continue;
                if (*actor < 0) {
                    WEFT_TRY(weft_program_add_stream(k->p, spec, &stream));
                    int n = count_messages(&k->t, k->most, WEFT_TAIL_GRADIENT) +
                            count_messages(&k->t, k->most, WEFT_TAIL_LATE) + 1;
                    WEFT_TRY(
                        weft_partition__more_actor(&k->more, in, stream, NULL, n, actor));
                    WEFT_TRY(insert_firing(k->p, stream, 0, *actor));
                }
                weft_actor *a = &k->p->actor[*actor];
                WEFT_TRY(put_receive(k, &from->instr[i], sender->rank,
                                     &a->instr[a->n_instr++]));
            }
        }
    return WEFT_OK;
}

static weft_status move_operands(standby_pass *k, weft_operand *o, int n)
{
    for (int i = 0; i < n; i++) {
        if (o[i].buffer < 0) continue;
        WEFT_TRY(take_buffer(k, o[i].buffer, WEFT_SLAB_WORK)); /* made in the tail */
        o[i].offset += k->shift[o[i].buffer] / weft_dtype_bytes(o[i].type.dtype);
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
    WEFT_TRY(weft_partition__more_actor(&k->more, name_part(p, k->number, "update"),
                                        compute, NULL, k->t.n_instr, &actor));
    for (int n = 0; n < k->t.n_instr; n++) {
        weft_instr *i = &p->actor[actor].instr[n];
        WEFT_TRY(weft_instr_copy(k->t.instr[n], p->arena, i));
        i->name = weft_standby_name(p->arena, k->number, i->name);
        WEFT_TRY(move_operands(k, i->in, i->n_in));
        WEFT_TRY(move_operands(k, i->out, i->n_out));
    }
    p->actor[actor].n_instr = k->t.n_instr;
    WEFT_TRY(insert_firing(p, compute, p->stream[compute].n_firing, actor));
    if (in < 0) return weft_arena_status(p->arena);
    return weft_partition__more_edge(&k->more,
                                     (weft_edge){in, actor, 1, .per_step = true});
}

/* p holds the replica of a ward; sender: the ward's program with its sends. */
static weft_status add_replica(weft_program *p, const weft_standby_options *o, int number,
                               const weft_program *self, const weft_program *sender)
{
    const weft_program *ward = o->ward[number];
    standby_pass        k    = {.number     = number,
                                .most       = find_most(o),
                                .p          = p,
                                .ward       = ward,
                                .cap_buffer = p->n_buffer};
    weft_status         st   = WEFT_OK;
    int                 in, n_copy = 0;
    WEFT_TRY(weft_arena_create(&k.tmp));
    WEFT_GO(weft_partition__find_tail(ward, self, o->ward_share[number], k.tmp, &k.t));
    k.buffer         = WEFT_ARENA_ARRAY(k.tmp, int32_t, ward->n_buffer + 1);
    weft_instr *copy = WEFT_ARENA_ARRAY(k.tmp, weft_instr, k.t.n_input + 1);
    k.shift          = WEFT_ARENA_ARRAY(k.tmp, int64_t, ward->n_buffer + 1);
    WEFT_GO(weft_arena_status(k.tmp));
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

/* The ward's program sends to this one, and to others that do not matter here. */
static weft_status add_ward(weft_program *p, const weft_program *self,
                            const weft_standby_options *o, int number)
{
    weft_program *sender = NULL;
    weft_status   st     = WEFT_OK;
    sends_options to     = {.n      = 1,
                            .number = {number},
                            .guard  = {self},
                            .share  = o->ward_share[number],
                            .how    = o};
    WEFT_GO(weft_partition__edit_copy(o->ward[number], add_sends, &to, &sender));
    WEFT_GO(add_replica(p, o, number, self, sender));
out:
    weft_program_destroy(sender);
    return st;
}

weft_status weft_pass_add_standby(const weft_program *in, const weft_standby_options *o,
                                  weft_program **out)
{
    weft_program *p   = NULL;
    weft_status   st  = WEFT_OK;
    sends_options own = {.n = o->n, .share = o->share, .how = o};
    for (int k = 0; k < o->n; k++) own.number[k] = k, own.guard[k] = o->guard[k];
    WEFT_GO(weft_partition__edit_copy(in, add_sends, &own, &p));
    for (int k = 0; k < o->n; k++) WEFT_GO(add_ward(p, in, o, k));
    *out = p;
    p    = NULL;
out:
    weft_program_destroy(p);
    return st;
}
