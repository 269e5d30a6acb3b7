/* Actors of a rank: gathers of once a step, reads, pieces, merges of lanes, the reduction over
 * ranks; those of messages are assemble_message.c's. */
#include "partition/assemble_priv.h"

typedef weft_partition__assembly assembly;

weft_status weft_partition__add_actor(assembly *build, const char *name,
                                      weft_stream_kind stream, int n, int *out)
{
    weft_program *p = build->program;
    weft_actor   *a = &p->actor[p->n_actor];
    *a              = (weft_actor){.name = name, .stream = (int32_t)stream};
    a->instr        = WEFT_ARENA_ARRAY(p->arena, weft_instr, n + 1);
    *out            = p->n_actor++;
    return weft_arena_status(p->arena);
}

static const char *piece_name(const assembly *build, int piece)
{
    weft_arena *a = build->program->arena;
    int         u = piece - 3 * build->n_chunk;
    if (u == build->stages.n_level) return "next";
    if (u >= 0)
        return build->stages.n_level > 1 ? weft_arena_printf(a, "update.%d", u)
                                         : "update";
    weft_work   w    = weft_partition__work(build, piece);
    const char *kind = weft_work_kind_name(w.kind);
    return build->n_chunk > 1 ? weft_arena_printf(a, "%s.%d", kind, w.chunk) : kind;
}

/* Is the instruction the piece's, and not of once a step? */
static bool is_of_piece(const assembly *build, int piece, int instr)
{
    return weft_partition__instr_piece(build, instr) == piece &&
           !weft_partition__is_once(build, instr);
}

static weft_status add_gather_actor(assembly *build)
{
    const weft_segment *s = build->segment;
    int                 n = 0;
    for (int i = 0; i < s->n_instr; i++) n += weft_partition__is_once(build, i);
    if (!n) return WEFT_OK;
    WEFT_TRY(weft_partition__add_actor(
        build, WEFT_PARTITION__GATHER,
        build->options->shard_bucket_bytes > 0 ? WEFT_STREAM_COMM : WEFT_STREAM_COMPUTE,
        n, &build->actor.gather));
    weft_actor *a = &build->program->actor[build->actor.gather];
    for (int i = 0; i < s->n_instr; i++)
        if (weft_partition__is_once(build, i))
            WEFT_TRY(weft_instr_copy(&s->instr[i], build->program->arena,
                                     &a->instr[a->n_instr++]));
    return WEFT_OK;
}

/* The commit point: its operands are the scalar outputs that are made before it. */
static weft_status put_commit(assembly *build, weft_actor *a)
{
    const weft_graph *g   = build->graph;
    weft_operand     *out = WEFT_ARENA_ARRAY(build->tmp, weft_operand, g->n_output + 1);
    int               n   = 0;
    WEFT_TRY(weft_arena_status(build->tmp));
    for (int o = 0; o < g->n_output; o++) {
        int m = g->value[g->output[o]].node;
        if (g->value[g->output[o]].type.shape.n) continue;
        if (m < 0 || !build->stages.after[m])
            WEFT_TRY(weft_partition__where(build, g->output[o], &out[n++]));
    }
    return weft_partition__commit(build->program, n, out, &a->instr[a->n_instr++]);
}

static weft_status add_compute_actor(assembly *build, int piece)
{
    const weft_segment *s      = build->segment;
    bool                commit = build->stages.commit_level >= 0 &&
                  piece == 3 * build->n_chunk + build->stages.commit_level;
    int n = commit;
    for (int i = 0; i < s->n_instr; i++) n += is_of_piece(build, piece, i);
    /* an empty piece of a micro-batch is there for the edges of its messages */
    if (!n && (build->pp == 1 || piece >= 3 * build->n_chunk)) return WEFT_OK;
    WEFT_TRY(weft_partition__add_actor(build, piece_name(build, piece),
                                       WEFT_STREAM_COMPUTE, n,
                                       &build->actor.compute[piece]));
    weft_actor *a = &build->program->actor[build->actor.compute[piece]];
    for (int i = 0; i < s->n_instr; i++) {
        if (!is_of_piece(build, piece, i)) continue;
        if (commit &&
            (s->node[i] < 0 || build->stages.after[build->part.node[s->node[i]]])) {
            WEFT_TRY(put_commit(build, a));
            commit = false;
        }
        WEFT_TRY(weft_instr_copy(&s->instr[i], build->program->arena,
                                 &a->instr[a->n_instr++]));
    }
    return commit ? put_commit(build, a) : WEFT_OK;
}

/* What the rank does in a micro-batch that only others have. */
static weft_status add_join_actor(assembly *build, int piece)
{
    const char *name =
        weft_arena_printf(build->program->arena, "join.%s", piece_name(build, piece));
    int of = build->actor.compute[piece], *out = &build->actor.join[piece];
    if (of < 0) return WEFT_OK;
    WEFT_TRY(weft_partition__add_actor(build, name, WEFT_STREAM_COMPUTE,
                                       build->program->actor[of].n_instr, out));
    WEFT_TRY(weft_partition__join(build->program, of, build->ranks, *out));
    if (!build->program->actor[*out].n_instr) *out = -1;
    return WEFT_OK;
}

/* Is the storage an accumulator that one of the pieces from .. to fills? */
static bool is_sum_of(const assembly *build, int storage, int from, int to)
{
    int first = build->store[storage].first;
    return build->segment->storage[storage].kind == WEFT_STORE_ACCUM && first >= 0 &&
           first >= from && first <= to;
}

/* One instruction for each accumulator of the pieces from .. to. */
static weft_status add_sum_actor(assembly *build, const char *name, int from, int to,
                                 weft_instr_kind kind, int *out)
{
    const weft_segment *s = build->segment;
    int                 n = 0;
    for (int i = 0; i < s->n_storage; i++) n += is_sum_of(build, i, from, to);
    if (!n) return WEFT_OK;
    WEFT_TRY(weft_partition__add_actor(build, name, WEFT_STREAM_COMPUTE, n, out));
    weft_actor *a = &build->program->actor[*out];
    for (int i = 0; i < s->n_storage; i++) {
        if (!is_sum_of(build, i, from, to)) continue;
        weft_operand o = weft_partition__whole(s, i);
        WEFT_TRY(weft_partition__move(build->program, kind,
                                      build->program->buffer[i].name, &o, &o,
                                      &a->instr[a->n_instr++]));
    }
    return WEFT_OK;
}

/* A level of the tree over this rank's lanes.  In a pipeline each piece's own sums come right after
 * it; one stage runs the pieces of a micro-batch one after the other, all sums come after the
 * last. */
static weft_status add_merge_actor(assembly *build, int piece)
{
    int        *out = &build->actor.merge[piece];
    const char *of  = piece_name(build, piece);
    if (build->n_stage > 1)
        return add_sum_actor(build,
                             weft_arena_printf(build->program->arena, "merge.%s", of),
                             piece, piece, WEFT_INSTR_MERGE, out);
    if (weft_partition__work(build, piece).kind == WEFT_WORK_FORWARD) return WEFT_OK;
    return add_sum_actor(build, "merge", 0, piece, WEFT_INSTR_MERGE, out);
}

/* A piece of a micro-batch, and its sums. */
static weft_status add_micro_actors(assembly *build, int piece)
{
    bool weight = piece >= build->n_chunk && (piece - build->n_chunk) % 2;
    if (weight && !build->batch.split) return WEFT_OK;
    WEFT_TRY(add_compute_actor(build, piece));
    return add_merge_actor(build, piece);
}

/* The tree over ranks that have values replicated. */
static weft_status add_reduce_actor(assembly *build)
{
    WEFT_TRY(add_sum_actor(build, "reduce", 0, weft_partition__n_piece(build),
                           WEFT_INSTR_COLLECTIVE, &build->actor.reduce));
    if (build->actor.reduce < 0) return WEFT_OK;
    weft_actor *a = &build->program->actor[build->actor.reduce];
    for (int i = 0; i < a->n_instr; i++) {
        a->instr[i].coll  = WEFT_ALL_REDUCE;
        a->instr[i].group = 0;
        a->instr[i].lanes = weft_partition__sum_lanes(&build->batch.lanes);
    }
    return weft_partition__meet(build->program, a->instr, &a->n_instr);
}

/* Is the binding an input of the model, first wanted by this chunk? */
static bool is_read(const assembly *build, const weft_binding *b, int chunk)
{
    weft_vid v = weft_graph_find(build->graph, b->name);
    return b->kind == WEFT_BIND_INPUT &&
           build->graph->value[v].kind == WEFT_VALUE_INPUT &&
           (build->part.low[v] < 0 ? 0 : build->part.low[v]) == chunk;
}

static weft_status add_read_actor(assembly *build, int chunk)
{
    int n = 0;
    for (int b = 0; b < build->segment->n_binding; b++)
        n += is_read(build, &build->segment->binding[b], chunk);
    if (!n) return WEFT_OK;
    const char *name = build->n_chunk > 1
                           ? weft_arena_printf(build->program->arena, "read.%d", chunk)
                           : "read";
    WEFT_TRY(weft_partition__add_actor(build, name, WEFT_STREAM_COMPUTE, 1,
                                       &build->actor.read[chunk]));
    weft_actor *a = &build->program->actor[build->actor.read[chunk]];
    weft_instr *r = &a->instr[a->n_instr++];
    *r            = weft_partition__bare(WEFT_INSTR_READ, "read");
    r->out        = WEFT_ARENA_ARRAY(build->program->arena, weft_operand, n);
    WEFT_TRY(weft_arena_status(build->program->arena));
    for (int b = 0; b < build->segment->n_binding; b++)
        if (is_read(build, &build->segment->binding[b], chunk))
            r->out[r->n_out++] = build->segment->binding[b].at;
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

static int *make_table(assembly *build, int n)
{
    int *x = WEFT_ARENA_ARRAY(build->tmp, int, n + 1);
    for (int i = 0; x && i <= n; i++) x[i] = -1;
    return x;
}

/* Groups of the graph's collectives: ranks of this stage along the mesh axes of each. */
static weft_status add_mesh_groups(assembly *build)
{
    const weft_partition__ranks *r = build->ranks;
    weft_program                *p = build->program;
    for (int i = 0; i < r->local->n_group; i++) {
        weft_group *g = &p->group[p->n_group++];
        g->rank       = WEFT_ARENA_ARRAY(p->arena, int32_t, r->n_place);
        WEFT_TRY(weft_arena_status(p->arena));
        g->n_rank = weft_mesh_group(r->mesh, r->local->group_axes[i], r->place, g->rank);
        for (int k = 0; k < g->n_rank; k++) g->rank[k] += build->me * r->n_place;
    }
    return WEFT_OK;
}

/* Of collectives of the graph, or of the reduction; then, of several, the ranks of the pipeline. */
static weft_status add_groups(assembly *build)
{
    const weft_partition__ranks *r = build->ranks;
    weft_program                *p = build->program;
    p->group =
        WEFT_ARENA_ARRAY(p->arena, weft_group, 2 + (r->local ? r->local->n_group : 0));
    WEFT_TRY(weft_arena_status(p->arena));
    if (r->local) {
        WEFT_TRY(add_mesh_groups(build));
    } else if (build->dp > 1) {
        WEFT_TRY(add_group(p, build->dp, build->me * build->dp, 1));
        WEFT_TRY(weft_partition__deal(&build->batch.lanes, p, &p->group[0]));
    }
    return build->pp > 1 ? add_group(p, build->pp, r->place, r->n_place) : WEFT_OK;
}

weft_status weft_partition__make_actors(assembly *build)
{
    weft_program           *p = build->program;
    weft_partition__actors *a = &build->actor;
    int n = weft_partition__n_piece(build), micro_end = 3 * build->n_chunk;
    p->actor = WEFT_ARENA_ARRAY(p->arena, weft_actor, 6 * n + build->n_chunk + 3);
    *a       = (weft_partition__actors){.compute  = make_table(build, n),
                                        .merge    = make_table(build, n),
                                        .recv     = make_table(build, n),
                                        .send     = make_table(build, n),
                                        .join     = make_table(build, n),
                                        .read     = make_table(build, build->n_chunk),
                                        .exchange = make_table(build, build->stages.n_level),
                                        .reduce   = -1,
                                        .gather   = -1};
    WEFT_TRY(weft_arena_status(p->arena));
    WEFT_TRY(weft_arena_status(build->tmp));
    WEFT_TRY(add_groups(build));
    WEFT_TRY(add_gather_actor(build));
    for (int c = 0; c < build->n_chunk; c++) WEFT_TRY(add_read_actor(build, c));
    for (int i = 0; i < micro_end; i++) WEFT_TRY(add_micro_actors(build, i));
    for (int i = 0; i < micro_end && build->batch.n_listed > build->batch.n_own; i++)
        WEFT_TRY(add_join_actor(build, i));
    for (int i = micro_end; i < n; i++) WEFT_TRY(add_compute_actor(build, i));
    if (build->dp > 1 && !build->ranks->local) WEFT_TRY(add_reduce_actor(build));
    WEFT_TRY(weft_partition__messages(build));
    return weft_partition__exchanges(build);
}
