/* The program of one rank: its part of the graph lowered, its memory planned, its actors made and
 * listed as its schedule says.  One stage is a pipeline of length 1: nothing crosses, the rank's
 * part is the graph, and its schedule runs every micro-batch to its end before the next begins.
 * See assemble_priv.h. */
#include <string.h>

#include "partition/assemble_priv.h"

typedef weft_partition__assembly assembly;

weft_status weft_partition__where(const assembly *build, weft_vid v, weft_operand *out)
{
    const char *name = build->graph->value[v].name;
    for (int i = 0; i < build->segment->n_binding; i++)
        if (!strcmp(build->segment->binding[i].name, name)) {
            *out = build->segment->binding[i].at;
            return WEFT_OK;
        }
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "stage rank %d: %s is not here", build->me, name);
}

/* ---- lists ---- */

typedef struct turn {
    int  slot;
    bool first;
    int  n_merge; /* merges after it: its lane ends here */
} turn;

static turn find_turn(const assembly *build, int micro)
{
    int first, end;
    int lane =
        weft_partition__lane_of(build->options->n_micro, build->options->n_lane, micro);
    weft_partition_lane(build->options->n_micro, build->options->n_lane, lane, &first,
                        &end);
    weft_partition__turn t = weft_partition__lane_turn(&build->batch.lanes, lane);
    return (turn){t.slot, micro == first, micro == end - 1 ? t.merge : 0};
}

static void add_firing(assembly *build, int actor, int micro, int slot, bool first)
{
    weft_program *p = build->program;
    if (actor < 0) return;
    int s = (int)p->actor[actor].stream;
    p->stream[s].firing[p->stream[s].n_firing++] =
        (weft_firing){.actor = actor, .micro = micro, .lane_slot = slot, .first = first};
}

/* A piece of a micro-batch, with what comes before and after it. */
static void list_work(assembly *build, const weft_work *w)
{
    const weft_partition__actors *a     = &build->actor;
    int                           piece = weft_partition__piece_of(build, w);
    int                           micro = build->batch.first_micro + w->micro;
    if (w->micro >=
        build->batch.n_own) { /* only others have it: a number not the rank's */
        add_firing(build, a->join[piece], micro % build->options->n_micro, 0, false);
        return;
    }
    turn t = find_turn(build, micro);
    if (w->kind == WEFT_WORK_FORWARD)
        add_firing(build, a->read[w->chunk], micro, t.slot, t.first);
    add_firing(build, a->recv[piece], micro, t.slot, t.first);
    add_firing(build, a->compute[piece], micro, t.slot, t.first);
    add_firing(build, a->send[piece], micro, t.slot, t.first);
    for (int i = 0; i < t.n_merge; i++)
        add_firing(build, a->merge[piece], -1, t.slot - i, false);
}

static weft_status make_lists(assembly *build)
{
    const weft_partition__actors *a       = &build->actor;
    const weft_schedule          *s       = build->batch.schedule;
    weft_program                 *p       = build->program;
    int                           n_piece = weft_partition__n_piece(build);
    /* on a stream: three a piece of work; once a step an actor or two of each piece, and at most a
     * merge a lane */
    int room = 3 * s->n_work[build->me] + (3 + build->batch.n_own_lane) * n_piece;
    for (int i = 0; i < p->n_stream; i++)
        p->stream[i].firing = WEFT_ARENA_ARRAY(p->arena, weft_firing, room);
    WEFT_TRY(weft_arena_status(p->arena));
    add_firing(build, a->gather, -1, 0, false);
    for (int i = 0; i < s->n_work[build->me]; i++)
        list_work(build, &s->work[build->me][i]);
    add_firing(build, a->reduce, -1, 0, false);
    for (int i = 3 * build->n_chunk; i < n_piece; i++) {
        int level = i - 3 * build->n_chunk;
        add_firing(build, a->compute[i], -1, 0, false);
        if (level < build->stages.n_level)
            add_firing(build, a->exchange[level], -1, 0, false);
    }
    return WEFT_OK;
}

/* What the outside sees: not what crosses between ranks. */
static weft_status make_bindings(assembly *build)
{
    weft_program *p = build->program;
    p->binding = WEFT_ARENA_ARRAY(p->arena, weft_binding, build->segment->n_binding + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < build->segment->n_binding; i++) {
        const weft_binding *b    = &build->segment->binding[i];
        weft_vid            v    = weft_graph_find(build->graph, b->name);
        bool                mine = build->graph->value[v].kind != WEFT_VALUE_NODE;
        for (int o = 0; o < build->graph->n_output && b->kind == WEFT_BIND_OUTPUT; o++)
            mine = mine || build->graph->output[o] == v;
        if (!mine) continue;
        p->binding[p->n_binding]        = *b;
        p->binding[p->n_binding++].name = weft_arena_strdup(p->arena, b->name);
    }
    return weft_arena_status(p->arena);
}

/* ---- all together ---- */

/* Is something gathered over the lanes in every micro-batch? */
static bool gathers_per_micro(const assembly *build)
{
    int i = build->ranks->local ? build->ranks->local->n_gather_once : 0;
    for (; i < build->graph->n_node && build->ranks->local; i++) {
        const weft_graph_node *n = &build->graph->node[i];
        if (!(weft_op_get(n->op)->flags & WEFT_OP_COMM) || n->phase == WEFT_PHASE_UPDATE)
            continue;
        weft_op_use u = {.op = n->op, .attr = n->attr};
        if (build->ranks->local->group_axes[weft_use_int(&u, "group")] &
            build->ranks->lanes)
            return true;
    }
    return false;
}

/* One stage has one order: all schedules of a rank alone do as 1F1B. */
static weft_status make_schedule(assembly *build)
{
    weft_partition__batch *b     = &build->batch;
    weft_schedule_shape    shape = {build->pp, build->n_chunk, b->n_listed};
    const char            *name  = build->n_stage > 1 ? build->options->schedule : NULL;
    WEFT_TRY(weft_schedule_make(name ? name : "1f1b", &shape, &b->schedule));
    WEFT_TRY(weft_schedule_verify(b->schedule));
    b->split         = weft_schedule_splits(b->schedule);
    weft_work first  = weft_partition__work(build, 0);
    weft_work last   = weft_partition__work(build, b->split ? 2 : 1);
    b->one_at_a_time = build->n_chunk == 1 &&
                       weft_schedule_slots(b->schedule, build->me, first, last) == 1;
    return WEFT_OK;
}

static void set_ranks(assembly *build)
{
    const weft_partition_options *o = build->options;
    build->dp                       = build->ranks->n_part;
    build->pp                       = o->pp > 1 ? o->pp : 1;
    build->n_chunk                  = o->n_chunk > 1 ? o->n_chunk : 1;
    build->n_stage                  = build->pp * build->n_chunk;
    build->me                       = o->rank / build->ranks->n_place;
}

static weft_status set_batch(assembly *build)
{
    const weft_partition_options *o = build->options;
    weft_partition__batch        *b = &build->batch;
    int                           first, last, most, end;
    b->lanes = weft_partition__lanes_of(o, build->ranks);
    WEFT_TRY(weft_partition__check(&b->lanes));
    weft_partition__own_lanes(&b->lanes, &first, &last);
    weft_partition_lane(o->n_micro, o->n_lane, first, &b->first_micro, &end);
    most          = weft_partition__most_own(&b->lanes);
    b->n_own_lane = last - first;
    b->n_own      = weft_partition__n_own(&b->lanes, build->ranks->part);
    b->n_listed   = gathers_per_micro(build) ? most : b->n_own;
    b->several    = most > 1;
    /* not where an actor sums over ranks: uses of a tied table stay apart */
    b->one_term =
        build->n_stage == 1 && !b->several && (build->ranks->local || build->dp == 1);
    return make_schedule(build);
}

/* The stage assignment of a cached local graph is the same for all ranks of its mesh rank. */
typedef struct weft_partition__stages {
    int            n_stage, pp, *cut;
    weft_stage_map map;
} stages;

static weft_status take_cached_stages(assembly *build, const int *cut,
                                      weft_partition_cache *c)
{
    size_t  n = sizeof *cut * (size_t)(build->n_stage - 1);
    stages *x = c->stages;
    if (!x || x->n_stage != build->n_stage || x->pp != build->pp ||
        memcmp(x->cut, cut, n) != 0) {
        x = WEFT_ARENA_NEW(c->arena, stages);
        WEFT_TRY(weft_arena_status(c->arena));
        *x =
            (stages){build->n_stage, build->pp, weft_arena_memdup(c->arena, cut, n), {0}};
        WEFT_TRY(weft_arena_status(c->arena));
        WEFT_TRY(weft_stage_map_make(build->graph, build->n_stage, build->pp, cut,
                                     c->local->n_gather_once, c->arena, &x->map));
        c->stages = x;
    }
    build->stages = x->map;
    return WEFT_OK;
}

static weft_status assign_stages(assembly *build)
{
    int *cut = WEFT_ARENA_ARRAY(build->tmp, int, build->n_stage + 1);
    WEFT_TRY(weft_arena_status(build->tmp));
    if (build->n_stage > 1 && build->options->cut)
        for (int i = 0; i < build->n_stage - 1; i++) cut[i] = build->options->cut[i];
    else if (build->n_stage > 1)
        WEFT_TRY(weft_partition_cuts(build->graph, build->n_stage, cut));
    if (build->n_stage > 1)
        WEFT_TRY(weft_partition_check_cuts(build->graph, build->n_stage, cut));
    if (build->ranks->cache) return take_cached_stages(build, cut, build->ranks->cache);
    return weft_stage_map_make(build->graph, build->n_stage, build->pp, cut,
                               build->ranks->local ? build->ranks->local->n_gather_once
                                                   : 0,
                               build->tmp, &build->stages);
}

/* Collectives of one meeting and one piece are one. */
static weft_status coalesce_collectives(assembly *build)
{
    const weft_local_graph *l = build->ranks->local;
    int *meeting = WEFT_ARENA_ARRAY(build->tmp, int, build->segment->n_instr + 1);
    WEFT_TRY(weft_arena_status(build->tmp));
    for (int i = 0; i < build->segment->n_instr; i++) {
        int m      = build->segment->node[i] < 0
                         ? -1
                         : l->bucket[build->part.node[build->segment->node[i]]];
        meeting[i] = m < 0 ? -1
                           : m * weft_partition__n_piece(build) +
                                 weft_partition__instr_piece(build, i);
    }
    return weft_segment_meet(build->segment, meeting);
}

/* A chunk's product does not wait for what a later chunk adds to it. */
static weft_status lower_graph(assembly *build)
{
    int *piece = WEFT_ARENA_ARRAY(build->tmp, int, build->part.n_node + 1);
    WEFT_TRY(weft_arena_status(build->tmp));
    for (int i = 0; i < build->part.n_node; i++)
        piece[i] = build->part.piece[build->part.node[i]];
    weft_lower_options o = {.one_micro    = build->batch.one_term,
                            .piece        = piece,
                            .row_elements = build->options->row_elements,
                            .head_rows    = build->options->head_rows,
                            .join_width   = build->options->join_width,
                            .align_bytes  = build->options->align_bytes,
                            .fusions      = build->options->fusions};
    return weft_lower(build->part.graph, &o, &build->segment);
}

static weft_status assemble_program(assembly *build)
{
    WEFT_TRY(weft_arena_create(&build->tmp));
    set_ranks(build);
    WEFT_TRY(set_batch(build));
    WEFT_TRY(assign_stages(build));
    WEFT_TRY(weft_partition__plan_exchanges(build));
    WEFT_TRY(weft_partition__rank_graph(build));
    WEFT_TRY(lower_graph(build));
    if (build->ranks->local) WEFT_TRY(coalesce_collectives(build));
    WEFT_TRY(weft_program_create(build->graph->name, &build->program));
    WEFT_TRY(weft_partition__all_streams(build->program));
    build->program->world   = build->ranks->n_place * build->pp;
    build->program->rank    = build->options->rank;
    build->program->n_micro = build->options->n_micro;
    build->program->n_lane  = build->options->n_lane;
    WEFT_TRY(weft_partition__plan_memory(build));
    WEFT_TRY(weft_partition__make_actors(build));
    WEFT_TRY(make_lists(build));
    return make_bindings(build);
}

weft_status weft_partition__assemble(const weft_graph *g, const weft_partition_options *o,
                                     const weft_partition__ranks *r, weft_program **out)
{
    assembly    build = {.graph = g, .options = o, .ranks = r};
    weft_status st    = WEFT_OK;
    WEFT_GO(assemble_program(&build));
    *out          = build.program;
    build.program = NULL;
out:
    weft_program_destroy(build.program);
    weft_segment_destroy(build.segment);
    weft_graph_destroy(build.part.extracted);
    weft_schedule_destroy(build.batch.schedule);
    weft_arena_destroy(build.tmp);
    return st;
}
