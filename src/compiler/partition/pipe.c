/* A rank of a pipeline: its part of the graph lowered, cut into actors, scheduled by the list of
 * its schedule.  See pipe_priv.h. */
#include <string.h>

#include "partition/pipe_priv.h"

typedef weft_partition__pipe pipe;

weft_status weft_partition__where(const pipe *k, weft_vid v, weft_operand *out)
{
    const char *name = k->g->value[v].name;
    for (int i = 0; i < k->s->n_binding; i++)
        if (!strcmp(k->s->binding[i].name, name)) {
            *out = k->s->binding[i].at;
            return WEFT_OK;
        }
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "pipeline rank %d: %s is not here", k->me, name);
}

weft_status weft_partition__add_actor(pipe *k, const char *name, weft_stream_kind stream,
                                      int n, int *out)
{
    weft_program *p = k->p;
    weft_actor   *a = &p->actor[p->n_actor];
    *a              = (weft_actor){.name = name, .stream = (int32_t)stream};
    a->instr        = WEFT_ARENA_ARRAY(p->arena, weft_instr, n + 1);
    *out            = p->n_actor++;
    return weft_arena_status(p->arena);
}

/* ---- actors ---- */

static const char *piece_name(const pipe *k, int piece)
{
    weft_arena *a = k->p->arena;
    int         u = piece - 3 * k->n_chunk;
    if (u == k->stages.n_level) return "next";
    if (u >= 0)
        return k->stages.n_level > 1 ? weft_arena_printf(a, "update.%d", u) : "update";
    weft_work   w    = weft_partition__work(k, piece);
    const char *kind = weft_work_kind_name(w.kind);
    return k->n_chunk > 1 ? weft_arena_printf(a, "%s.%d", kind, w.chunk) : kind;
}

/* Is the instruction the piece's, and not of once a step? */
static bool is_of(const pipe *k, int piece, int instr)
{
    return weft_partition__instr_piece(k, instr) == piece &&
           !weft_partition__is_once(k, instr);
}

static weft_status gather_actor(pipe *k)
{
    const weft_segment *s = k->s;
    int                 n = 0;
    for (int i = 0; i < s->n_instr; i++) n += weft_partition__is_once(k, i);
    if (!n) return WEFT_OK;
    WEFT_TRY(weft_partition__add_actor(k, WEFT_PARTITION__GATHER,
                                       k->o->shard_bucket_bytes > 0 ? WEFT_STREAM_COMM
                                                                    : WEFT_STREAM_COMPUTE,
                                       n, &k->actor.gather));
    weft_actor *a = &k->p->actor[k->actor.gather];
    for (int i = 0; i < s->n_instr; i++)
        if (weft_partition__is_once(k, i))
            WEFT_TRY(weft_instr_copy(&s->instr[i], k->p->arena, &a->instr[a->n_instr++]));
    return WEFT_OK;
}

/* The commit point: its operands are the outputs that are made before it. */
static weft_status put_commit(pipe *k, weft_actor *a)
{
    const weft_graph *g   = k->g;
    weft_operand     *out = WEFT_ARENA_ARRAY(k->tmp, weft_operand, g->n_output + 1);
    int               n   = 0;
    WEFT_TRY(weft_arena_status(k->tmp));
    for (int o = 0; o < g->n_output; o++) {
        int m = g->value[g->output[o]].node;
        if (m < 0 || !k->stages.after[m])
            WEFT_TRY(weft_partition__where(k, g->output[o], &out[n++]));
    }
    return weft_partition__commit(k->p, n, out, &a->instr[a->n_instr++]);
}

static weft_status compute_actor(pipe *k, int piece)
{
    const weft_segment *s = k->s;
    bool                commit =
        k->stages.commit_level >= 0 && piece == 3 * k->n_chunk + k->stages.commit_level;
    int n = commit;
    for (int i = 0; i < s->n_instr; i++) n += is_of(k, piece, i);
    if (!n && piece >= 3 * k->n_chunk) return WEFT_OK;
    WEFT_TRY(weft_partition__add_actor(k, piece_name(k, piece), WEFT_STREAM_COMPUTE, n,
                                       &k->actor.compute[piece]));
    weft_actor *a = &k->p->actor[k->actor.compute[piece]];
    for (int i = 0; i < s->n_instr; i++) {
        if (!is_of(k, piece, i)) continue;
        if (commit && k->stages.after[k->node[s->node[i]]]) {
            WEFT_TRY(put_commit(k, a));
            commit = false;
        }
        WEFT_TRY(weft_instr_copy(&s->instr[i], k->p->arena, &a->instr[a->n_instr++]));
    }
    return commit ? put_commit(k, a) : WEFT_OK;
}

static weft_status join_actor(pipe *k, int piece, int *out)
{
    const char *name = weft_arena_printf(k->p->arena, "join.%s", piece_name(k, piece));
    int         of   = k->actor.compute[piece];
    WEFT_TRY(weft_partition__add_actor(k, name, WEFT_STREAM_COMPUTE,
                                       k->p->actor[of].n_instr, out));
    WEFT_TRY(weft_partition__join(k->p, of, k->r, *out));
    if (!k->p->actor[*out].n_instr) *out = -1;
    return WEFT_OK;
}

/* One instruction for each accumulator: of one piece, or (piece -1) of all. */
static weft_status sum_actor(pipe *k, int piece, weft_instr_kind kind, int *out)
{
    const weft_segment *s = k->s;
    int                 n = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass && !n) return WEFT_OK;
        if (pass)
            WEFT_TRY(weft_partition__add_actor(
                k,
                piece < 0
                    ? "reduce"
                    : weft_arena_printf(k->p->arena, "merge.%s", piece_name(k, piece)),
                WEFT_STREAM_COMPUTE, n, out));
        for (int i = 0; i < s->n_storage; i++) {
            if (s->storage[i].kind != WEFT_STORE_ACCUM || k->store[i].first < 0) continue;
            if (piece >= 0 && k->store[i].first != piece) continue;
            n++;
            if (!pass) continue;
            weft_actor  *a = &k->p->actor[*out];
            weft_instr  *m = &a->instr[a->n_instr++];
            weft_operand o = weft_partition__whole(s, i);
            WEFT_TRY(weft_partition__move(k->p, kind, k->p->buffer[i].name, &o, &o, m));
            if (kind == WEFT_INSTR_COLLECTIVE)
                m->coll = WEFT_ALL_REDUCE, m->group = 0,
                m->lanes = weft_partition__sum_lanes(&k->lanes);
        }
    }
    weft_actor *a = &k->p->actor[*out];
    if (kind == WEFT_INSTR_COLLECTIVE)
        return weft_partition__meet(k->p, a->instr, &a->n_instr);
    return WEFT_OK;
}

/* Is the binding an input of the model, first wanted by this chunk? */
static bool is_read(const pipe *k, const weft_binding *b, int chunk)
{
    weft_vid v = weft_graph_find(k->g, b->name);
    return b->kind == WEFT_BIND_INPUT && k->g->value[v].kind == WEFT_VALUE_INPUT &&
           (k->low[v] < 0 ? 0 : k->low[v]) == chunk;
}

static weft_status read_actor(pipe *k, int chunk)
{
    int n = 0;
    for (int b = 0; b < k->s->n_binding; b++) n += is_read(k, &k->s->binding[b], chunk);
    if (!n) return WEFT_OK;
    const char *name =
        k->n_chunk > 1 ? weft_arena_printf(k->p->arena, "read.%d", chunk) : "read";
    WEFT_TRY(weft_partition__add_actor(k, name, WEFT_STREAM_COMPUTE, 1,
                                       &k->actor.read[chunk]));
    weft_actor *a = &k->p->actor[k->actor.read[chunk]];
    weft_instr *r = &a->instr[a->n_instr++];
    *r            = weft_partition__bare(WEFT_INSTR_READ, "read");
    r->out        = WEFT_ARENA_ARRAY(k->p->arena, weft_operand, n);
    WEFT_TRY(weft_arena_status(k->p->arena));
    for (int b = 0; b < k->s->n_binding; b++)
        if (is_read(k, &k->s->binding[b], chunk))
            r->out[r->n_out++] = k->s->binding[b].at;
    r->n_own_out = r->n_out;
    return WEFT_OK;
}

static weft_status add_group(weft_program *p, int n, int first, int stride)
{
    weft_group *g = &p->group[p->n_group++];
    g->n_rank     = n;
    g->rank       = WEFT_ARENA_ARRAY(p->arena, int32_t, n);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < n; i++) g->rank[i] = first + i * stride;
    return WEFT_OK;
}

static int *nothing(pipe *k, int n)
{
    int *x = WEFT_ARENA_ARRAY(k->tmp, int, n + 1);
    for (int i = 0; x && i <= n; i++) x[i] = -1;
    return x;
}

static weft_status make_actors(pipe *k)
{
    weft_program           *p = k->p;
    weft_partition__actors *a = &k->actor;
    int                     n = weft_partition__n_piece(k);
    p->actor = WEFT_ARENA_ARRAY(p->arena, weft_actor, 6 * n + k->n_chunk + 3);
    p->group = WEFT_ARENA_ARRAY(p->arena, weft_group,
                                2 + (k->r->local ? k->r->local->n_group : 0));
    *a       = (weft_partition__actors){.compute  = nothing(k, n),
                                        .merge    = nothing(k, n),
                                        .recv     = nothing(k, n),
                                        .send     = nothing(k, n),
                                        .join     = nothing(k, n),
                                        .read     = nothing(k, k->n_chunk),
                                        .exchange = nothing(k, k->stages.n_level),
                                        .reduce   = -1,
                                        .gather   = -1};
    WEFT_TRY(weft_arena_status(p->arena));
    WEFT_TRY(weft_arena_status(k->tmp));
    if (k->r->local)
        WEFT_TRY(weft_partition__groups(p, k->r, k->me));
    else if (k->dp > 1) {
        WEFT_TRY(add_group(p, k->dp, k->me * k->dp, 1));
        WEFT_TRY(weft_partition__deal(&k->lanes, p, &p->group[0]));
    }
    if (k->pp > 1) WEFT_TRY(add_group(p, k->pp, k->r->place, k->r->n_place));
    WEFT_TRY(gather_actor(k));
    for (int c = 0; c < k->n_chunk; c++) WEFT_TRY(read_actor(k, c));
    for (int i = 0; i < n; i++) {
        bool weight = i >= k->n_chunk && i < 3 * k->n_chunk && (i - k->n_chunk) % 2;
        if (weight && !k->split) continue;
        WEFT_TRY(compute_actor(k, i));
        if (i < 3 * k->n_chunk && k->n_listed > k->n_own)
            WEFT_TRY(join_actor(k, i, &a->join[i]));
        if (i < 3 * k->n_chunk) WEFT_TRY(sum_actor(k, i, WEFT_INSTR_MERGE, &a->merge[i]));
    }
    if (k->dp > 1 && !k->r->local)
        WEFT_TRY(sum_actor(k, -1, WEFT_INSTR_COLLECTIVE, &a->reduce));
    WEFT_TRY(weft_partition__messages(k));
    return weft_partition__exchanges(k);
}

/* ---- lists ---- */

typedef struct turn {
    int  slot;
    bool first;
    int  n_merge; /* merges behind it: its lane ends here */
} turn;

static turn turn_of(const pipe *k, int micro)
{
    int lane, last, first = 0, end = 0;
    weft_partition__own_lanes(&k->lanes, &lane, &last);
    for (; lane < last; lane++) {
        weft_partition_lane(k->o->n_micro, k->o->n_lane, lane, &first, &end);
        if (micro < end) break;
    }
    weft_partition__turn t = weft_partition__lane_turn(&k->lanes, lane);
    return (turn){t.slot, micro == first, micro == end - 1 ? t.merge : 0};
}

static void fire(pipe *k, int actor, int micro, int slot, bool first)
{
    weft_program *p = k->p;
    if (actor < 0) return;
    int s = (int)p->actor[actor].stream;
    p->stream[s].firing[p->stream[s].n_firing++] =
        (weft_firing){.actor = actor, .micro = micro, .lane_slot = slot, .first = first};
}

static weft_status make_lists(pipe *k)
{
    const weft_partition__actors *a = &k->actor;
    const weft_schedule          *s = k->schedule;
    int                           n = s->n_work[k->me],
        room = n * (3 + k->n_own_lane) + 3 * weft_partition__n_piece(k);
    for (int i = 0; i < k->p->n_stream; i++)
        k->p->stream[i].firing = WEFT_ARENA_ARRAY(k->p->arena, weft_firing, room);
    WEFT_TRY(weft_arena_status(k->p->arena));
    fire(k, a->gather, -1, 0, false);
    for (int i = 0; i < n; i++) {
        const weft_work *w = &s->work[k->me][i];
        int piece = weft_partition__piece_of(k, w), m = k->first_micro + w->micro;
        if (w->micro >= k->n_own) { /* only others have it */
            fire(k, a->join[piece], -1, 0, false);
            continue;
        }
        turn t = turn_of(k, m);
        if (w->kind == WEFT_WORK_FORWARD) fire(k, a->read[w->chunk], m, t.slot, t.first);
        fire(k, a->recv[piece], m, t.slot, t.first);
        fire(k, a->compute[piece], m, t.slot, t.first);
        fire(k, a->send[piece], m, t.slot, t.first);
        for (int x = 0; x < t.n_merge; x++)
            fire(k, a->merge[piece], -1, t.slot - x, false);
    }
    fire(k, a->reduce, -1, 0, false);
    for (int l = 0; l < k->stages.n_level; l++) {
        fire(k, a->compute[3 * k->n_chunk + l], -1, 0, false);
        fire(k, a->exchange[l], -1, 0, false);
    }
    fire(k, a->compute[weft_partition__n_piece(k) - 1], -1, 0, false);
    return WEFT_OK;
}

/* What the outside sees: not what crosses between ranks. */
static weft_status make_bindings(pipe *k)
{
    weft_program *p = k->p;
    p->binding      = WEFT_ARENA_ARRAY(p->arena, weft_binding, k->s->n_binding + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < k->s->n_binding; i++) {
        const weft_binding *b    = &k->s->binding[i];
        weft_vid            v    = weft_graph_find(k->g, b->name);
        bool                mine = k->g->value[v].kind != WEFT_VALUE_NODE;
        for (int o = 0; o < k->g->n_output && b->kind == WEFT_BIND_OUTPUT; o++)
            mine = mine || k->g->output[o] == v;
        if (!mine) continue;
        p->binding[p->n_binding]        = *b;
        p->binding[p->n_binding++].name = weft_arena_strdup(p->arena, b->name);
    }
    return weft_arena_status(p->arena);
}

/* ---- all together ---- */

/* Is something gathered over the lanes in every micro-batch? */
static bool gathers(const pipe *k)
{
    int i = k->r->local ? k->r->local->n_gather_once : 0;
    for (; i < k->g->n_node && k->r->local; i++) {
        const weft_graph_node *n = &k->g->node[i];
        if (!(weft_op_get(n->op)->flags & WEFT_OP_COMM) || n->phase == WEFT_PHASE_UPDATE)
            continue;
        weft_op_use u = {.op = n->op, .attr = n->attr};
        if (k->r->local->group_axes[weft_use_int(&u, "group")] & k->r->lanes) return true;
    }
    return false;
}

static weft_status set_out(pipe *k)
{
    const weft_partition_options *o       = k->o;
    int                           n_place = k->r->n_place;
    k->dp                                 = k->r->n_part;
    k->pp                                 = o->pp > 1 ? o->pp : 1;
    k->n_chunk                            = o->n_chunk > 1 ? o->n_chunk : 1;
    k->n_stage                            = k->pp * k->n_chunk;
    if (o->rank < 0 || o->rank >= n_place * k->pp)
        return WEFT_FAIL(WEFT_ERR_ARG, "rank %d of %d", o->rank, n_place * k->pp);
    k->group = k->r->part;
    k->me    = o->rank / n_place;
    k->lanes = (weft_partition__lanes){.n_micro = o->n_micro,
                                       .n_lane  = o->n_lane,
                                       .world   = k->dp,
                                       .rank    = k->group,
                                       .share   = o->share};
    WEFT_TRY(weft_partition__check(&k->lanes));
    int first, last, end;
    weft_partition__own_lanes(&k->lanes, &first, &last);
    k->n_own_lane = last - first;
    weft_partition_lane(o->n_micro, o->n_lane, first, &k->first_micro, &end);
    weft_partition_lane(o->n_micro, o->n_lane, last - 1, &end, &k->n_own);
    k->n_own -= k->first_micro;
    k->n_listed = gathers(k) ? weft_partition__most_own(&k->lanes) : k->n_own;
    weft_schedule_shape shape = {k->pp, k->n_chunk, k->n_listed};
    WEFT_TRY(
        weft_schedule_make(o->schedule ? o->schedule : "1f1b", &shape, &k->schedule));
    WEFT_TRY(weft_schedule_verify(k->schedule));
    k->split = weft_schedule_splits(k->schedule);
    return WEFT_OK;
}

/* The stage assignment of a cached local graph is the same for all ranks of its mesh rank. */
typedef struct weft_partition__stages {
    int            n_stage, pp, *cut;
    weft_stage_map map;
} stages;

static weft_status cached_stages(pipe *k, const int *cut, weft_partition_cache *c)
{
    size_t  n = sizeof *cut * (size_t)(k->n_stage - 1);
    stages *x = c->stages;
    if (!x || x->n_stage != k->n_stage || x->pp != k->pp || memcmp(x->cut, cut, n) != 0) {
        x = WEFT_ARENA_NEW(c->arena, stages);
        WEFT_TRY(weft_arena_status(c->arena));
        *x = (stages){k->n_stage, k->pp, weft_arena_memdup(c->arena, cut, n), {0}};
        WEFT_TRY(weft_arena_status(c->arena));
        WEFT_TRY(weft_stage_map_make(k->g, k->n_stage, k->pp, cut,
                                     c->local->n_gather_once, c->arena, &x->map));
        c->stages = x;
    }
    k->stages = x->map;
    return WEFT_OK;
}

static weft_status assign_stages(pipe *k)
{
    int *cut = WEFT_ARENA_ARRAY(k->tmp, int, k->n_stage + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    if (k->o->cut)
        for (int i = 0; i < k->n_stage - 1; i++) cut[i] = k->o->cut[i];
    else
        WEFT_TRY(weft_partition_cuts(k->g, k->n_stage, cut));
    WEFT_TRY(weft_partition_check_cuts(k->g, k->n_stage, cut));
    if (k->r->cache) return cached_stages(k, cut, k->r->cache);
    return weft_stage_map_make(k->g, k->n_stage, k->pp, cut,
                               k->r->local ? k->r->local->n_gather_once : 0, k->tmp,
                               &k->stages);
}

/* Collectives of one meeting and one piece are one. */
static weft_status meet_at_once(pipe *k)
{
    const weft_local_graph *l       = k->r->local;
    int                    *meeting = WEFT_ARENA_ARRAY(k->tmp, int, k->s->n_instr + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    for (int i = 0; i < k->s->n_instr; i++) {
        int m = k->s->node[i] < 0 ? -1 : l->bucket[k->node[k->s->node[i]]];
        meeting[i] =
            m < 0 ? -1
                  : m * weft_partition__n_piece(k) + weft_partition__instr_piece(k, i);
    }
    return weft_segment_meet(k->s, meeting);
}

/* A chunk's product does not wait for what a later chunk adds to it. */
static weft_status lower(pipe *k)
{
    int *piece = WEFT_ARENA_ARRAY(k->tmp, int, k->n_node + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    for (int i = 0; i < k->n_node; i++) piece[i] = k->piece[k->node[i]];
    return weft_lower(k->part, &(weft_lower_options){.piece = piece}, &k->s);
}

static weft_status build(pipe *k)
{
    WEFT_TRY(weft_arena_create(&k->tmp));
    WEFT_TRY(set_out(k));
    WEFT_TRY(assign_stages(k));
    WEFT_TRY(weft_partition__plan_exchanges(k));
    WEFT_TRY(weft_partition__rank_graph(k));
    WEFT_TRY(lower(k));
    if (k->r->local) WEFT_TRY(meet_at_once(k));
    WEFT_TRY(weft_program_create(k->g->name, &k->p));
    WEFT_TRY(weft_partition__all_streams(k->p));
    k->p->world   = k->r->n_place * k->pp;
    k->p->rank    = k->o->rank;
    k->p->n_micro = k->o->n_micro;
    k->p->n_lane  = k->o->n_lane;
    WEFT_TRY(weft_partition__plan_memory(k));
    WEFT_TRY(make_actors(k));
    WEFT_TRY(make_lists(k));
    return make_bindings(k);
}

weft_status weft_partition__pipeline(const weft_graph *g, const weft_partition_options *o,
                                     const weft_partition__ranks *r, weft_program **out)
{
    pipe        k  = {.g = g, .o = o, .r = r};
    weft_status st = WEFT_OK;
    WEFT_GO(build(&k));
    *out = k.p;
    k.p  = NULL;
out:
    weft_program_destroy(k.p);
    weft_segment_destroy(k.s);
    weft_graph_destroy(k.part);
    weft_schedule_destroy(k.schedule);
    weft_arena_destroy(k.tmp);
    return st;
}
