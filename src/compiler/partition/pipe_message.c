/* What ranks of a pipeline say to each other.
 *
 * In a micro-batch: activations and gradients that cross a cut, one message each, tagged by the
 * value's number.  Sends run on the comm stream in the order things are made, receives on streams
 * of their own
 * (activations: host, gradients: io) in the order things are wanted, so that neither waits behind
 * compute.
 * In the update: behind each level an exchange on the compute stream.  Small values of all ranks
 * are gathered at once; large ones go one by one, in the same order on all ranks, each ending
 * with its receive. */
#include <stdio.h>
#include <string.h>

#include "partition/pipe_priv.h"

typedef weft_partition__pipe pipe;

enum {
    CREDITS = 2,   /* of a channel: one message is written while one is read */
    FAR     = 64,  /* credits of a channel past other stages, at most */
    SMALL   = 4096 /* bytes: gathered, not sent */
};

static weft_status add_edge(pipe *k, int from, int to, int credits)
{
    weft_program *p = k->p;
    void         *v = p->edge;
    WEFT_TRY(weft_arena_grow(p->arena, &v, &k->cap_edge, p->n_edge + 1, sizeof *p->edge));
    p->edge              = v;
    p->edge[p->n_edge++] = (weft_edge){.from = from, .to = to, .credits = credits};
    return WEFT_OK;
}

static const char *named(pipe *k, const char *what, int piece)
{
    weft_work w = weft_partition__work(k, piece);
    return weft_arena_printf(k->p->arena, "%s.%s.%d", what, weft_work_kind_name(w.kind),
                             w.chunk);
}

/* ---- messages of a micro-batch ---- */

/* To whom the piece of this rank that makes v sends it: the next from r on; pp: to nobody more. */
static int next_to(const pipe *k, weft_vid v, int r, int piece)
{
    int node = k->g->value[v].node;
    if (node < 0 || !weft_stage_map_runs_on(&k->stages, node, k->me) ||
        weft_partition__piece(k, node) != piece)
        return k->pp;
    while (r < k->pp && !weft_partition__sends(k, v, r)) r++;
    return r;
}

/* How many stages on from where v is made the farthest node of the rank is that takes it. */
static int stages_on(const pipe *k, weft_vid v, int rank)
{
    const weft_stage_map *p    = &k->stages;
    int                   from = p->stage[k->g->value[v].node], far = 0;
    for (int i = 0; i < k->g->n_node; i++) {
        if (p->copied[i] || p->stage[i] < 0 || p->stage[i] % k->pp != rank) continue;
        int on = p->stage[i] > from ? p->stage[i] - from : from - p->stage[i];
        for (int n = 0; n < k->g->node[i].n_in && on > far; n++)
            if (weft_stage_map_base(p, weft_stage_map_operand(p, i, n)) == v) far = on;
    }
    return far;
}

/* What goes past other stages (an encoder's result to all stages of the decoder) waits until its
 * micro-batch has gone
 * through these: as many as are under way between, or who sends would wait for what waits for its
 * next messages.  Of chunks, groups of micro-batches are (program/schedule_interleaved.c), the
 * last with some left over. */
static int credits_to(const pipe *k, weft_vid v, int rank)
{
    int past = stages_on(k, v, rank);
    if (past < 2) return CREDITS;
    if (k->n_chunk > 1) past += k->pp + k->n_own % k->pp;
    return past < FAR ? CREDITS + past : FAR;
}

static weft_status put_message(pipe *k, int actor, weft_vid v, int rank, bool send)
{
    weft_actor  *a = &k->p->actor[actor];
    weft_operand at;
    weft_instr  *i = &a->instr[a->n_instr++];
    WEFT_TRY(weft_partition__where(k, v, &at));
    WEFT_TRY(weft_partition__move(k->p, send ? WEFT_INSTR_SEND : WEFT_INSTR_RECV,
                                  k->g->value[v].name, send ? &at : NULL,
                                  send ? NULL : &at, i));
    i->peer    = weft_partition__peer(k, rank);
    i->tag     = v;
    i->credits = credits_to(k, v, send ? rank : k->me);
    return WEFT_OK;
}

/* Does the actor touch the buffer? */
static bool touches(const weft_actor *a, int32_t buffer)
{
    for (int n = 0; n < a->n_instr; n++) {
        for (int x = 0; x < a->instr[n].n_in; x++)
            if (a->instr[n].in[x].buffer == buffer) return true;
        for (int x = 0; x < a->instr[n].n_out; x++)
            if (a->instr[n].out[x].buffer == buffer) return true;
    }
    return false;
}

/* As many messages as the buffers that a piece and the messages share have room for; 0: they
 * share none. */
static int shared_credits(const pipe *k, const weft_actor *piece,
                          const weft_actor *messages)
{
    int credits = 0;
    for (int i = 0; i < messages->n_instr; i++) {
        const weft_instr *q = &messages->instr[i];
        int32_t           b = q->n_in ? q->in[0].buffer : q->out[0].buffer;
        int               c = weft_partition__credits(k, k->p->buffer[b].n_slot);
        if (touches(piece, b) && (!credits || c < credits)) credits = c;
    }
    return credits;
}

/* Edges between an actor of messages and every piece that uses its buffers. */
static weft_status add_edges(pipe *k, int messages, int sent_by)
{
    for (int q = 0; q < 3 * k->n_chunk; q++) {
        int actor = k->actor.compute[q];
        if (actor < 0) continue;
        int c = shared_credits(k, &k->p->actor[actor], &k->p->actor[messages]);
        if (!c && q == sent_by)
            c = 1; /* made with an earlier piece, but sent in its turn */
        if (c && sent_by >= 0 && q <= sent_by) WEFT_TRY(add_edge(k, actor, messages, c));
        if (c && sent_by < 0) WEFT_TRY(add_edge(k, messages, actor, c));
    }
    return WEFT_OK;
}

static weft_status add_sends(pipe *k, int piece)
{
    int n = 0, *actor = &k->actor.send[piece];
    for (weft_vid v = 0; v < k->g->n_value; v++)
        for (int r = next_to(k, v, 0, piece); r < k->pp; r = next_to(k, v, r + 1, piece))
            n++;
    if (!n) return WEFT_OK;
    WEFT_TRY(weft_partition__add_actor(k, named(k, "send", piece), WEFT_STREAM_COMM, n,
                                       actor));
    for (weft_vid v = 0; v < k->g->n_value; v++)
        for (int r = next_to(k, v, 0, piece); r < k->pp; r = next_to(k, v, r + 1, piece))
            WEFT_TRY(put_message(k, *actor, v, r, true));
    return add_edges(k, *actor, piece);
}

static weft_status add_receives(pipe *k, int piece)
{
    const weft_graph *g = k->g;
    int               n = 0, *actor = &k->actor.recv[piece];
    for (weft_vid v = 0; v < g->n_value; v++)
        n += weft_partition__receives(k, v) && weft_partition__wanted_by(k, v) == piece;
    if (!n) return WEFT_OK;
    WEFT_TRY(weft_partition__add_actor(
        k, named(k, "recv", piece),
        piece < k->n_chunk ? WEFT_STREAM_HOST : WEFT_STREAM_IO, n, actor));
    for (weft_vid v = 0; v < g->n_value; v++)
        if (weft_partition__receives(k, v) && weft_partition__wanted_by(k, v) == piece)
            WEFT_TRY(put_message(k, *actor, v, k->stages.stage[g->value[v].node] % k->pp,
                                 false));
    return add_edges(k, *actor, -1);
}

weft_status weft_partition__messages(pipe *k)
{
    for (int piece = 0; piece < 3 * k->n_chunk; piece++) {
        if (k->actor.compute[piece] < 0) continue;
        WEFT_TRY(add_receives(k, piece));
        WEFT_TRY(add_sends(k, piece));
    }
    return WEFT_OK;
}

/* ---- exchanges of the update ---- */

static bool crosses(const pipe *k, weft_vid v, int r)
{
    return k->stages.crosses[(size_t)v * (size_t)k->pp + (size_t)r];
}

static bool is_exchanged(const pipe *k, weft_vid v, int level)
{
    return k->from[v] >= 0 && k->stages.level[k->g->value[v].node] == level;
}

static int64_t bytes_of(const pipe *k, weft_vid v)
{
    const weft_type *t = &k->g->value[v].type;
    return weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
}

/* A value goes from the lowest rank that has it.  Small ones lie one behind the other in their
 * rank's share, at multiples of 8. */
weft_status weft_partition__plan_exchanges(pipe *k)
{
    const weft_graph *g = k->g;
    int64_t          *end;
    k->from     = WEFT_ARENA_ARRAY(k->tmp, int, g->n_value + 1);
    k->in_share = WEFT_ARENA_ARRAY(k->tmp, int64_t, g->n_value + 1);
    k->share    = WEFT_ARENA_ARRAY(k->tmp, int64_t, k->stages.n_level + 1);
    end         = WEFT_ARENA_ARRAY(k->tmp, int64_t, k->stages.n_level * k->pp + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    for (weft_vid v = 0; v < g->n_value; v++) {
        int  m     = g->value[v].node;
        bool any   = false;
        k->from[v] = -1;
        if (m < 0 || g->node[m].phase != WEFT_PHASE_UPDATE) continue;
        for (int r = 0; r < k->pp; r++) any = any || crosses(k, v, r);
        if (!any) continue;
        for (k->from[v] = 0; !weft_stage_map_runs_on(&k->stages, m, k->from[v]);)
            k->from[v]++;
        if (bytes_of(k, v) > SMALL) continue;
        int      level = k->stages.level[m];
        int64_t *at    = &end[level * k->pp + k->from[v]];
        k->in_share[v] = *at;
        *at += (bytes_of(k, v) + 7) & ~(int64_t)7;
        if (*at > k->share[level]) k->share[level] = *at;
    }
    return WEFT_OK;
}

static int find_buffer(const weft_program *p, const char *name)
{
    for (int i = 0; i < p->n_buffer; i++)
        if (!strcmp(p->buffer[i].name, name)) return i;
    return -1;
}

static weft_operand floats(int buffer, int64_t bytes)
{
    weft_shape s = {.n = 1, .d = {bytes / 4}};
    return weft_operand_make(buffer, WEFT_DTYPE_F32, &s);
}

/* Nobody writes what lies between and behind the values. */
static weft_status put_zeros(pipe *k, const weft_operand *at, weft_instr *i)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_op_attr_defaults(WEFT_OP_FILL, attr);
    weft_attr *shape = &attr[weft_op_attr_index(WEFT_OP_FILL, "shape")];
    shape->n         = 1;
    shape->l[0]      = at->type.shape.d[0];
    WEFT_TRY(weft_partition__move(k->p, WEFT_INSTR_COMPUTE, "zeros", NULL, at, i));
    i->op = WEFT_OP_FILL;
    return weft_op_copy_attr(WEFT_OP_FILL, attr, k->p->arena, &i->attr);
}

static weft_status put_gather(pipe *k, int level, weft_actor *a)
{
    int64_t bytes = k->share[level];
    char    name[64];
    if (!bytes) return WEFT_OK;
    snprintf(name, sizeof name, "exchange.%d.own", level);
    weft_operand own = floats(find_buffer(k->p, name), bytes);
    snprintf(name, sizeof name, "exchange.%d.all", level);
    weft_operand all = floats(find_buffer(k->p, name), bytes * k->pp), at;
    WEFT_TRY(put_zeros(k, &own, &a->instr[a->n_instr++]));
    for (int after = 0; after < 2; after++) {
        for (weft_vid v = 0; v < k->g->n_value; v++) {
            int from = k->from[v];
            if (!is_exchanged(k, v, level) || bytes_of(k, v) > SMALL) continue;
            if (after ? !crosses(k, v, k->me) : from != k->me) continue;
            WEFT_TRY(weft_partition__where(k, v, &at));
            weft_operand x = at; /* the same type in the share */
            x.buffer       = after ? all.buffer : own.buffer;
            x.offset       = (k->in_share[v] + (after ? from * bytes : 0)) /
                       weft_dtype_bytes(at.type.dtype);
            WEFT_TRY(weft_partition__move(k->p, WEFT_INSTR_COPY, k->g->value[v].name,
                                          after ? &x : &at, after ? &at : &x,
                                          &a->instr[a->n_instr++]));
        }
        if (after) break;
        weft_instr *i = &a->instr[a->n_instr++];
        WEFT_TRY(
            weft_partition__move(k->p, WEFT_INSTR_COLLECTIVE, "exchange", &own, &all, i));
        i->coll  = WEFT_ALL_GATHER;
        i->group = k->p->n_group - 1;
        i->tag   = 1;
    }
    return WEFT_OK;
}

static weft_status put_large(pipe *k, int level, weft_actor *a)
{
    weft_operand at;
    for (weft_vid v = 0; v < k->g->n_value; v++) {
        int from = k->from[v];
        if (!is_exchanged(k, v, level) || bytes_of(k, v) <= SMALL) continue;
        for (int r = 0; r < k->pp; r++) {
            bool send = from == k->me;
            if (!crosses(k, v, r) || (!send && r != k->me)) continue;
            weft_instr *i = &a->instr[a->n_instr++];
            WEFT_TRY(weft_partition__where(k, v, &at));
            WEFT_TRY(weft_partition__move(k->p, send ? WEFT_INSTR_SEND : WEFT_INSTR_RECV,
                                          k->g->value[v].name, send ? &at : NULL,
                                          send ? NULL : &at, i));
            i->peer = weft_partition__peer(k, send ? r : from);
            i->tag  = v;
        }
    }
    return WEFT_OK;
}

weft_status weft_partition__exchanges(pipe *k)
{
    for (int l = 0; l < k->stages.n_level; l++) {
        int n = 3;
        for (weft_vid v = 0; v < k->g->n_value; v++)
            if (is_exchanged(k, v, l)) n += k->pp + 2;
        if (n == 3) continue;
        WEFT_TRY(
            weft_partition__add_actor(k, weft_arena_printf(k->p->arena, "exchange.%d", l),
                                      WEFT_STREAM_COMPUTE, n, &k->actor.exchange[l]));
        weft_actor *a = &k->p->actor[k->actor.exchange[l]];
        WEFT_TRY(put_large(k, l, a));
        WEFT_TRY(put_gather(k, l, a));
    }
    return WEFT_OK;
}
