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

#include "partition/assemble_priv.h"

typedef weft_partition__assembly assembly;

enum {
    CREDITS = 2,   /* of a channel: one message is written while one is read */
    FAR     = 64,  /* credits of a channel past other stages, at most */
    SMALL   = 4096 /* bytes: gathered, not sent */
};

static weft_status add_edge(assembly *build, int from, int to, int credits)
{
    weft_program *p = build->program;
    void         *v = p->edge;
    WEFT_TRY(
        weft_arena_grow(p->arena, &v, &build->cap_edge, p->n_edge + 1, sizeof *p->edge));
    p->edge              = v;
    p->edge[p->n_edge++] = (weft_edge){.from = from, .to = to, .credits = credits};
    return WEFT_OK;
}

static const char *name_messages(assembly *build, const char *what, int piece)
{
    weft_work w = weft_partition__work(build, piece);
    return weft_arena_printf(build->program->arena, "%s.%s.%d", what,
                             weft_work_kind_name(w.kind), w.chunk);
}

/* ---- messages of a micro-batch ---- */

/* To whom the piece of this rank that makes v sends it: the next from r on; pp: to nobody more. */
static int find_receiver(const assembly *build, weft_vid v, int r, int piece)
{
    int node = build->graph->value[v].node;
    if (node < 0 || !weft_stage_map_runs_on(&build->stages, node, build->me) ||
        weft_partition__piece(build, node) != piece)
        return build->pp;
    while (r < build->pp && !weft_partition__sends(build, v, r)) r++;
    return r;
}

/* How many stages on from where v is made the farthest node of the rank is that takes it. */
static int count_stages_past(const assembly *build, weft_vid v, int rank)
{
    const weft_stage_map *p    = &build->stages;
    int                   from = p->stage[build->graph->value[v].node], far = 0;
    for (int i = 0; i < build->graph->n_node; i++) {
        if (p->copied[i] || p->stage[i] < 0 || p->stage[i] % build->pp != rank) continue;
        int on = p->stage[i] > from ? p->stage[i] - from : from - p->stage[i];
        for (int n = 0; n < build->graph->node[i].n_in && on > far; n++)
            if (weft_stage_map_base(p, weft_stage_map_operand(p, i, n)) == v) far = on;
    }
    return far;
}

/* What goes past other stages (an encoder's result to all stages of the decoder) waits until its
 * micro-batch has gone
 * through these: as many as are under way between, or who sends would wait for what waits for its
 * next messages.  Of chunks, groups of micro-batches are (program/schedule_interleaved.c), the
 * last with some left over. */
static int find_credits(const assembly *build, weft_vid v, int rank)
{
    int past = count_stages_past(build, v, rank);
    if (past < 2) return CREDITS;
    if (build->n_chunk > 1) past += build->pp + build->batch.n_own % build->pp;
    return past < FAR ? CREDITS + past : FAR;
}

static weft_status put_message(assembly *build, int actor, weft_vid v, int rank,
                               bool send)
{
    weft_actor  *a = &build->program->actor[actor];
    weft_operand at;
    weft_instr  *i = &a->instr[a->n_instr++];
    WEFT_TRY(weft_partition__where(build, v, &at));
    WEFT_TRY(weft_partition__move(
        build->program, send ? WEFT_INSTR_SEND : WEFT_INSTR_RECV,
        build->graph->value[v].name, send ? &at : NULL, send ? NULL : &at, i));
    i->peer    = weft_partition__peer(build, rank);
    i->tag     = v;
    i->credits = find_credits(build, v, send ? rank : build->me);
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
static int shared_credits(const assembly *build, const weft_actor *piece,
                          const weft_actor *messages)
{
    int credits = 0;
    for (int i = 0; i < messages->n_instr; i++) {
        const weft_instr *q = &messages->instr[i];
        int32_t           b = q->n_in ? q->in[0].buffer : q->out[0].buffer;
        int c = weft_partition__credits(build, build->program->buffer[b].n_slot);
        if (touches(piece, b) && (!credits || c < credits)) credits = c;
    }
    return credits;
}

/* Edges between an actor of messages and every piece that uses its buffers. */
static weft_status add_edges(assembly *build, int messages, int sent_by)
{
    for (int q = 0; q < 3 * build->n_chunk; q++) {
        int actor = build->actor.compute[q];
        if (actor < 0) continue;
        int c = shared_credits(build, &build->program->actor[actor],
                               &build->program->actor[messages]);
        if (!c && q == sent_by)
            c = 1; /* made with an earlier piece, but sent in its turn */
        if (c && sent_by >= 0 && q <= sent_by)
            WEFT_TRY(add_edge(build, actor, messages, c));
        if (c && sent_by < 0) WEFT_TRY(add_edge(build, messages, actor, c));
    }
    return WEFT_OK;
}

static weft_status add_sends(assembly *build, int piece)
{
    int n = 0, *actor = &build->actor.send[piece];
    for (weft_vid v = 0; v < build->graph->n_value; v++)
        for (int r = find_receiver(build, v, 0, piece); r < build->pp;
             r     = find_receiver(build, v, r + 1, piece))
            n++;
    if (!n) return WEFT_OK;
    WEFT_TRY(weft_partition__add_actor(build, name_messages(build, "send", piece),
                                       WEFT_STREAM_COMM, n, actor));
    for (weft_vid v = 0; v < build->graph->n_value; v++)
        for (int r = find_receiver(build, v, 0, piece); r < build->pp;
             r     = find_receiver(build, v, r + 1, piece))
            WEFT_TRY(put_message(build, *actor, v, r, true));
    return add_edges(build, *actor, piece);
}

static weft_status add_receives(assembly *build, int piece)
{
    const weft_graph *g = build->graph;
    int               n = 0, *actor = &build->actor.recv[piece];
    for (weft_vid v = 0; v < g->n_value; v++)
        n += weft_partition__receives(build, v) &&
             weft_partition__wanted_by(build, v) == piece;
    if (!n) return WEFT_OK;
    WEFT_TRY(weft_partition__add_actor(
        build, name_messages(build, "recv", piece),
        piece < build->n_chunk ? WEFT_STREAM_HOST : WEFT_STREAM_IO, n, actor));
    for (weft_vid v = 0; v < g->n_value; v++)
        if (weft_partition__receives(build, v) &&
            weft_partition__wanted_by(build, v) == piece)
            WEFT_TRY(put_message(build, *actor, v,
                                 build->stages.stage[g->value[v].node] % build->pp,
                                 false));
    return add_edges(build, *actor, -1);
}

weft_status weft_partition__messages(assembly *build)
{
    for (int piece = 0; piece < 3 * build->n_chunk; piece++) {
        if (build->actor.compute[piece] < 0) continue;
        WEFT_TRY(add_receives(build, piece));
        WEFT_TRY(add_sends(build, piece));
    }
    return WEFT_OK;
}

/* ---- exchanges of the update ---- */

static bool is_exchanged(const assembly *build, weft_vid v, int level)
{
    return build->exchange.from[v] >= 0 &&
           build->stages.level[build->graph->value[v].node] == level;
}

static int64_t count_bytes(const assembly *build, weft_vid v)
{
    const weft_type *t = &build->graph->value[v].type;
    return weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
}

/* A value goes from the lowest rank that has it.  Small ones lie one behind the other in their
 * rank's share, at multiples of 8. */
weft_status weft_partition__plan_exchanges(assembly *build)
{
    const weft_graph *g = build->graph;
    int64_t          *end;
    build->exchange.from     = WEFT_ARENA_ARRAY(build->tmp, int, g->n_value + 1);
    build->exchange.in_share = WEFT_ARENA_ARRAY(build->tmp, int64_t, g->n_value + 1);
    build->exchange.share =
        WEFT_ARENA_ARRAY(build->tmp, int64_t, build->stages.n_level + 1);
    end = WEFT_ARENA_ARRAY(build->tmp, int64_t, build->stages.n_level * build->pp + 1);
    WEFT_TRY(weft_arena_status(build->tmp));
    for (weft_vid v = 0; v < g->n_value; v++) {
        int  m                  = g->value[v].node;
        bool any                = false;
        build->exchange.from[v] = -1;
        if (m < 0 || g->node[m].phase != WEFT_PHASE_UPDATE) continue;
        for (int r = 0; r < build->pp; r++)
            any = any || weft_stage_map_crosses(&build->stages, v, r);
        if (!any) continue;
        for (build->exchange.from[v] = 0;
             !weft_stage_map_runs_on(&build->stages, m, build->exchange.from[v]);)
            build->exchange.from[v]++;
        if (count_bytes(build, v) > SMALL) continue;
        int      level              = build->stages.level[m];
        int64_t *at                 = &end[level * build->pp + build->exchange.from[v]];
        build->exchange.in_share[v] = *at;
        *at += (count_bytes(build, v) + 7) & ~(int64_t)7;
        if (*at > build->exchange.share[level]) build->exchange.share[level] = *at;
    }
    return WEFT_OK;
}

static int find_buffer(const weft_program *p, const char *name)
{
    for (int i = 0; i < p->n_buffer; i++)
        if (!strcmp(p->buffer[i].name, name)) return i;
    return -1;
}

static weft_operand make_floats(int buffer, int64_t bytes)
{
    weft_shape s = {.n = 1, .d = {bytes / 4}};
    return weft_operand_make(buffer, WEFT_DTYPE_F32, &s);
}

/* Nobody writes what lies between and behind the values. */
static weft_status put_zeros(assembly *build, const weft_operand *at, weft_instr *i)
{
    weft_attr attr[WEFT_MAX_ATTR];
    weft_op_attr_defaults(WEFT_OP_FILL, attr);
    weft_attr *shape = &attr[weft_op_attr_index(WEFT_OP_FILL, "shape")];
    shape->n         = 1;
    shape->l[0]      = at->type.shape.d[0];
    WEFT_TRY(
        weft_partition__move(build->program, WEFT_INSTR_COMPUTE, "zeros", NULL, at, i));
    i->op = WEFT_OP_FILL;
    return weft_op_copy_attr(WEFT_OP_FILL, attr, build->program->arena, &i->attr);
}

static weft_status put_gather(assembly *build, int level, weft_actor *a)
{
    int64_t bytes = build->exchange.share[level];
    char    name[64];
    if (!bytes) return WEFT_OK;
    snprintf(name, sizeof name, "exchange.%d.own", level);
    weft_operand own = make_floats(find_buffer(build->program, name), bytes);
    snprintf(name, sizeof name, "exchange.%d.all", level);
    weft_operand all = make_floats(find_buffer(build->program, name), bytes * build->pp),
                 at;
    WEFT_TRY(put_zeros(build, &own, &a->instr[a->n_instr++]));
    for (int after = 0; after < 2; after++) {
        for (weft_vid v = 0; v < build->graph->n_value; v++) {
            int from = build->exchange.from[v];
            if (!is_exchanged(build, v, level) || count_bytes(build, v) > SMALL) continue;
            if (after ? !weft_stage_map_crosses(&build->stages, v, build->me)
                      : from != build->me)
                continue;
            WEFT_TRY(weft_partition__where(build, v, &at));
            weft_operand x = at; /* the same type in the share */
            x.buffer       = after ? all.buffer : own.buffer;
            x.offset       = (build->exchange.in_share[v] + (after ? from * bytes : 0)) /
                       weft_dtype_bytes(at.type.dtype);
            WEFT_TRY(weft_partition__move(build->program, WEFT_INSTR_COPY,
                                          build->graph->value[v].name, after ? &x : &at,
                                          after ? &at : &x, &a->instr[a->n_instr++]));
        }
        if (after) break;
        weft_instr *i = &a->instr[a->n_instr++];
        WEFT_TRY(weft_partition__move(build->program, WEFT_INSTR_COLLECTIVE, "exchange",
                                      &own, &all, i));
        i->coll  = WEFT_ALL_GATHER;
        i->group = build->program->n_group - 1;
        i->tag   = 1;
    }
    return WEFT_OK;
}

static weft_status put_large(assembly *build, int level, weft_actor *a)
{
    weft_operand at;
    for (weft_vid v = 0; v < build->graph->n_value; v++) {
        int from = build->exchange.from[v];
        if (!is_exchanged(build, v, level) || count_bytes(build, v) <= SMALL) continue;
        for (int r = 0; r < build->pp; r++) {
            bool send = from == build->me;
            if (!weft_stage_map_crosses(&build->stages, v, r) ||
                (!send && r != build->me))
                continue;
            weft_instr *i = &a->instr[a->n_instr++];
            WEFT_TRY(weft_partition__where(build, v, &at));
            WEFT_TRY(weft_partition__move(
                build->program, send ? WEFT_INSTR_SEND : WEFT_INSTR_RECV,
                build->graph->value[v].name, send ? &at : NULL, send ? NULL : &at, i));
            i->peer = weft_partition__peer(build, send ? r : from);
            i->tag  = v;
        }
    }
    return WEFT_OK;
}

weft_status weft_partition__exchanges(assembly *build)
{
    for (int l = 0; l < build->stages.n_level; l++) {
        int n = 3;
        for (weft_vid v = 0; v < build->graph->n_value; v++)
            if (is_exchanged(build, v, l)) n += build->pp + 2;
        if (n == 3) continue;
        WEFT_TRY(weft_partition__add_actor(
            build, weft_arena_printf(build->program->arena, "exchange.%d", l),
            WEFT_STREAM_COMPUTE, n, &build->actor.exchange[l]));
        weft_actor *a = &build->program->actor[build->actor.exchange[l]];
        WEFT_TRY(put_large(build, l, a));
        WEFT_TRY(put_gather(build, l, a));
    }
    return WEFT_OK;
}
