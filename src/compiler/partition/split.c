/* A graph, a sharding and a rank -> its program.  The local graph first (spmd), then programs as
 * for any graph: one stage (one.c) or a pipeline's (pipe.c). */
#include <string.h>

#include "base/status.h"
#include "partition/partition_priv.h"

weft_status weft_partition__groups(weft_program *p, const weft_partition__ranks *r,
                                   int stage)
{
    int n = r->local->n_group;
    if (!p->group) p->group = WEFT_ARENA_ARRAY(p->arena, weft_group, n + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < n; i++) {
        weft_group *g = &p->group[p->n_group++];
        g->rank       = WEFT_ARENA_ARRAY(p->arena, int32_t, r->n_place);
        WEFT_TRY(weft_arena_status(p->arena));
        g->n_rank = weft_mesh_group(r->mesh, r->local->group_axes[i], r->place, g->rank);
        for (int k = 0; k < g->n_rank; k++) g->rank[k] += stage * r->n_place;
    }
    return WEFT_OK;
}

/* Coordinates along the lanes' axes, counted as places are. */
static void find_part(const weft_sharding *s, int place, int *n_part, int *part)
{
    const weft_mesh *m = &s->mesh[0];
    int              c[WEFT_MAX_AXIS];
    weft_mesh_coords(m, place, c);
    *n_part = 1;
    *part   = 0;
    for (int a = 0; a < m->n_axis; a++)
        if (s->lanes >> a & 1) {
            *part = *part * m->axis[a].size + c[a];
            *n_part *= m->axis[a].size;
        }
}

/* Cuts between the given graph's nodes, between the local ones. */
static weft_status move_cuts(const weft_graph *g, const weft_local_graph *l, int n_stage,
                             const int *cut, int *out)
{
    if (cut)
        memcpy(out, cut, sizeof *cut * (size_t)(n_stage - 1));
    else
        WEFT_TRY(weft_partition_cuts(g, n_stage, out));
    WEFT_TRY(weft_partition_check_cuts(g, n_stage, out));
    weft_spmd_map_cuts(l, n_stage - 1, out);
    return WEFT_OK;
}

/* Bindings have the given graph's names and say which part of the whole they are. */
static weft_status bind(const weft_graph *g, const weft_local_graph *l, weft_program *p)
{
    for (int i = 0; i < g->n_output; i++) {
        const char *is   = l->graph->value[l->output[i]].name;
        const char *name = g->value[g->output[i]].name;
        for (int b = 0; b < p->n_binding; b++)
            if (p->binding[b].kind == WEFT_BIND_OUTPUT && !strcmp(p->binding[b].name, is))
                p->binding[b].name = weft_arena_strdup(p->arena, name);
    }
    for (int b = 0; b < p->n_binding; b++) {
        weft_vid v = weft_graph_find(g, p->binding[b].name);
        if (v >= 0 && (g->value[v].kind == WEFT_VALUE_PARAM ||
                       g->value[v].kind == WEFT_VALUE_STATE))
            memcpy(p->binding[b].at.origin, l->region[v].offset,
                   sizeof p->binding[b].at.origin);
    }
    return weft_arena_status(p->arena);
}

/* Sums over parts that ranks along the lanes keep (squares of gradients) have one term each. */
static bool is_of_parts(const weft_local_graph *l, uint32_t lanes, const weft_instr *i,
                        weft_arena *tmp)
{
    weft_vid v    = weft_graph_find(l->graph, i->name);
    bool    *seen = WEFT_ARENA_ARRAY(tmp, bool, l->graph->n_value + 1);
    if (v < 0 || !seen || l->graph->value[v].node < 0) return false;
    return !weft_spmd_is_lane_partial(
        l, lanes, l->graph->node[l->graph->value[v].node].in[0], seen);
}

/* Sums of accumulators over the ranks along the lanes: each rank has several terms. */
static weft_status tell_lanes(const weft_local_graph *l, uint32_t lanes,
                              const weft_partition_options *o, weft_program *p,
                              weft_arena *tmp)
{
    bool even = !(o->world & (o->world - 1));
    for (int a = 0; a < p->n_actor; a++)
        for (int n = 0; n < p->actor[a].n_instr; n++) {
            weft_instr *i = &p->actor[a].instr[n];
            if (i->kind != WEFT_INSTR_COLLECTIVE || i->group >= l->n_group) continue;
            if (i->coll != WEFT_ALL_REDUCE && i->coll != WEFT_REDUCE_SCATTER) continue;
            if (!(l->group_axes[i->group] & lanes)) continue;
            bool terms = true;
            for (int t = 0; t < i->n_in; t++)
                terms = terms && p->buffer[i->in[t].buffer].slot_by == WEFT_SLOT_LANE;
            if (!terms && even && is_of_parts(l, lanes, i, tmp)) continue;
            if (!terms || l->group_axes[i->group] != lanes)
                return WEFT_FAIL(WEFT_ERR_ARG,
                                 "%s cannot be summed over ranks that have several terms "
                                 "each: choose another cut, or 2^k ranks of equal shares",
                                 i->name);
            i->lanes = p->n_lane;
            if (!p->group[i->group].share)
                WEFT_TRY(weft_partition__deal(o, p, &p->group[i->group]));
        }
    return WEFT_OK;
}

/* Which lanes a rank has. */
static weft_partition_options dealt(const weft_pipe_options     *o,
                                    const weft_partition__ranks *r)
{
    return (weft_partition_options){.n_micro = o->n_micro,
                                    .n_lane  = o->n_lane,
                                    .world   = r->n_part,
                                    .rank    = r->part,
                                    .share   = o->share,
                                    .ahead   = o->ahead > 0};
}

/* Of one stage: what communicates goes beside compute.  Where ranks have several micro-batches,
 * sums are of the update; with `once` the last of them hides those too. */
static weft_status run_beside(weft_program *p, const weft_graph *g,
                              const weft_sharding *s, const weft_pipe_options *o,
                              const weft_partition__ranks *r)
{
    if (o->once && o->n_micro > r->n_part)
        WEFT_TRY(weft_partition_overlap(p, g, s, o->ahead, true));
    else
        WEFT_TRY(weft_partition_ahead(p));
    return weft_partition__gather_beside(p);
}

static int n_stage_of(const weft_pipe_options *o)
{
    return (o->pp > 1 ? o->pp : 1) * (o->n_chunk > 1 ? o->n_chunk : 1);
}

static weft_status make(const weft_graph *g, const weft_sharding *s, weft_local_graph *l,
                        const weft_pipe_options *o, const weft_partition__ranks *r,
                        weft_program **out)
{
    int         n_stage = n_stage_of(o);
    weft_arena *tmp     = NULL;
    weft_status st      = WEFT_OK;
    if (n_stage == 1) {
        weft_partition_options one = dealt(o, r);
        WEFT_TRY(weft_partition__one(l->graph, &one, r, out));
        return o->ahead > 0 ? run_beside(*out, g, s, o, r) : WEFT_OK;
    }
    WEFT_TRY(weft_arena_create(&tmp));
    int              *cut  = WEFT_ARENA_ARRAY(tmp, int, n_stage);
    weft_pipe_options pipe = *o;
    WEFT_GO(weft_arena_status(tmp));
    WEFT_GO(move_cuts(g, l, n_stage, o->cut, cut));
    pipe.cut = cut;
    WEFT_GO(weft_partition__pipeline(l->graph, &pipe, r, out));
    if (o->ahead > 0) WEFT_GO(weft_partition__gather_beside(*out));
out:
    weft_arena_destroy(tmp);
    return st;
}

/* The local graph of a mesh rank, its collectives in the order of the options. */
static weft_status make_local(const weft_graph *g, const weft_sharding *s,
                              const weft_pipe_options *o, const weft_spmd_options *so,
                              weft_local_graph **out)
{
    weft_local_graph     *l  = NULL;
    weft_status           st = WEFT_OK;
    weft_coalesce_options co = {.bucket_bytes   = o->ahead,
                                .several_stages = n_stage_of(o) > 1,
                                .several_terms  = so->several_terms ? s->lanes : 0};
    WEFT_GO(weft_spmd_rewrite(g, s, so, &l));
    WEFT_GO(weft_spmd_coalesce_collectives(g, l, &co));
    if (o->once)
        WEFT_GO(weft_spmd_gather_once_per_step(g, l, s->lanes, o->ahead));
    else if (o->ahead > 0 && n_stage_of(o) == 1)
        WEFT_GO(weft_spmd_prefetch_gathers(g, l, o->ahead));
    *out = l;
    l    = NULL;
out:
    weft_local_graph_destroy(l);
    return st;
}

/* The rank's local graph: the cache's, or its own. */
static weft_status find_local(const weft_graph *g, const weft_sharding *s,
                              const weft_pipe_options *o, const weft_spmd_options *so,
                              weft_partition__ranks *r)
{
    if (!o->cache || o->pp <= 1) return make_local(g, s, o, so, &r->local);
    WEFT_TRY(weft_partition__open_cache(o->cache));
    r->cache = *o->cache;
    if (!r->cache->local) WEFT_TRY(make_local(g, s, o, so, &r->cache->local));
    r->local = r->cache->local;
    return WEFT_OK;
}

weft_status weft_partition(const weft_graph *g, const weft_sharding *s,
                           const weft_pipe_options *o, weft_program **out)
{
    weft_partition__ranks r = {
        .n_place = s->mesh[0].n_rank, .mesh = &s->mesh[0], .lanes = s->lanes};
    weft_program *p     = NULL;
    weft_arena   *tmp   = NULL;
    weft_status   st    = WEFT_OK;
    int           world = r.n_place * (o->pp > 1 ? o->pp : 1);
    if (o->rank < 0 || o->rank >= world)
        return WEFT_FAIL(WEFT_ERR_ARG, "rank %d of %d", o->rank, world);
    r.place = o->rank % r.n_place;
    find_part(s, r.place, &r.n_part, &r.part);
    weft_partition_options own = dealt(o, &r);
    WEFT_TRY(weft_partition__check(&own));
    weft_spmd_options so = {.mesh_rank   = r.place,
                            .ring_axes   = o->ring,
                            .gather_once = o->once,
                            .one_micro_batch =
                                o->n_micro == o->n_lane && o->n_lane == r.n_part,
                            .several_terms = weft_partition__sum_lanes(&own) > 0};
    WEFT_GO(find_local(g, s, o, &so, &r));
    WEFT_GO(make(g, s, r.local, o, &r, &p));
    if (so.several_terms) {
        WEFT_GO(weft_arena_create(&tmp));
        WEFT_GO(tell_lanes(r.local, s->lanes, &own, p, tmp));
    }
    WEFT_GO(bind(g, r.local, p));
    *out = p;
    p    = NULL;
out:
    weft_program_destroy(p);
    weft_arena_destroy(tmp);
    if (!r.cache) weft_local_graph_destroy(r.local);
    return st;
}
