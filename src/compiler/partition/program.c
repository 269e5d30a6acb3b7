/* The one entry: a graph, a sharding or none, and a rank -> its program.
 *
 * With a sharding the local graph comes first (spmd).  Then the program is assembled
 * (assemble.c), and passes over it overlap communication with compute. */
#include <string.h>

#include "base/status.h"
#include "partition/partition_priv.h"

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
            memcpy(p->binding[b].origin, l->region[v].offset,
                   sizeof p->binding[b].origin);
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
                              const weft_partition__lanes *o, weft_program *p,
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

static int n_stage_of(const weft_partition_options *o)
{
    return (o->pp > 1 ? o->pp : 1) * (o->n_chunk > 1 ? o->n_chunk : 1);
}

/* *p becomes what a pass makes of it. */
static weft_status apply(weft_status (*pass)(const weft_program *, weft_program **),
                         weft_program **p)
{
    weft_program *out;
    WEFT_TRY(pass(*p, &out));
    weft_program_destroy(*p);
    *p = out;
    return WEFT_OK;
}

static weft_status overlap_reductions(const weft_graph *g, const weft_sharding *s,
                                      int64_t bucket_bytes, bool to_owners,
                                      weft_program **p)
{
    weft_overlap_options o = {
        .bucket_bytes = bucket_bytes, .to_owners = to_owners, .graph = g, .sharding = s};
    weft_program *out;
    WEFT_TRY(weft_pass_overlap_reductions(*p, &o, &out));
    weft_program_destroy(*p);
    *p = out;
    return WEFT_OK;
}

static weft_status offload_updates(const weft_partition_options *o, weft_program **p)
{
    weft_offload_options how = {.chunk_bytes    = o->offload_bytes,
                                .gradient_bytes = o->offload_gradient_bytes};
    weft_program        *out;
    WEFT_TRY(weft_pass_offload_optimizer(*p, &how, &out));
    weft_program_destroy(*p);
    *p = out;
    return WEFT_OK;
}

/* Collectives of sharded tensors overlap with compute.  Of one stage: where ranks sum several
 * micro-batches first, reductions are of the update; with gather_once they overlap with the last
 * backward pass. */
static weft_status overlap_shards(const weft_graph *g, const weft_sharding *s,
                                  const weft_partition_options *o, bool in_update,
                                  weft_program **p)
{
    if (n_stage_of(o) == 1 && o->gather_once && in_update)
        WEFT_TRY(overlap_reductions(g, s, o->shard_bucket_bytes, true, p));
    else if (n_stage_of(o) == 1)
        WEFT_TRY(apply(weft_pass_overlap_collectives, p));
    return apply(weft_pass_overlap_step_gathers, p);
}

/* The program of a local graph: cuts are between its nodes. */
static weft_status assemble_local(const weft_graph *g, const weft_partition_options *o,
                                  const weft_partition__ranks *r, weft_program **out)
{
    int                    n_stage = n_stage_of(o);
    weft_partition_options own     = *o;
    weft_arena            *tmp     = NULL;
    weft_status            st      = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    int *cut = WEFT_ARENA_ARRAY(tmp, int, n_stage);
    WEFT_GO(weft_arena_status(tmp));
    if (n_stage > 1) WEFT_GO(move_cuts(g, r->local, n_stage, o->cut, cut));
    own.cut = cut;
    WEFT_GO(weft_partition__assemble(r->local->graph, &own, r, out));
out:
    weft_arena_destroy(tmp);
    return st;
}

/* The local graph of a mesh rank, its collectives in the order of the options. */
static weft_status make_local(const weft_graph *g, const weft_sharding *s,
                              const weft_partition_options *o,
                              const weft_spmd_options *so, weft_local_graph **out)
{
    weft_local_graph     *l  = NULL;
    weft_status           st = WEFT_OK;
    weft_coalesce_options co = {.bucket_bytes   = o->shard_bucket_bytes,
                                .several_stages = n_stage_of(o) > 1,
                                .several_terms  = so->several_terms ? s->lanes : 0,
                                .lanes          = s->lanes};
    WEFT_GO(weft_spmd_rewrite(g, s, so, &l));
    WEFT_GO(weft_spmd_coalesce_collectives(g, l, &co));
    WEFT_GO(weft_spmd_gather_before_matmuls(g, l));
    if (o->gather_once)
        WEFT_GO(weft_spmd_gather_once_per_step(g, l, s->lanes, o->shard_bucket_bytes));
    else if (o->shard_bucket_bytes > 0 && n_stage_of(o) == 1)
        WEFT_GO(weft_spmd_prefetch_gathers(g, l, o->shard_bucket_bytes));
    *out = l;
    l    = NULL;
out:
    weft_local_graph_destroy(l);
    return st;
}

/* The rank's local graph: the cache's, or its own. */
static weft_status find_local(const weft_graph *g, const weft_sharding *s,
                              const weft_partition_options *o,
                              const weft_spmd_options *so, weft_partition__ranks *r)
{
    if (!o->cache || o->pp <= 1) return make_local(g, s, o, so, &r->local);
    WEFT_TRY(weft_partition__open_cache(o->cache));
    r->cache = *o->cache;
    if (!r->cache->local) WEFT_TRY(make_local(g, s, o, so, &r->cache->local));
    r->local = r->cache->local;
    return WEFT_OK;
}

static weft_status check_rank(const weft_partition_options *o, int n_place)
{
    int world = n_place * (o->pp > 1 ? o->pp : 1);
    if (o->rank >= 0 && o->rank < world) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "rank %d of %d", o->rank, world);
}

/* Reduce-scatters of a micro-batch take all ranks along the lanes. */
static bool shards_gradients(const weft_partition_options *o,
                             const weft_partition__lanes  *own)
{
    return o->shard_gradients && !weft_partition__sum_lanes(own) &&
           weft_partition__most_own(own) * own->world == o->n_micro;
}

/* Values sharded over the ranks of a mesh. */
static weft_status make_sharded(const weft_graph *g, const weft_sharding *s,
                                const weft_partition_options *o, weft_program **out)
{
    weft_partition__ranks r = {
        .n_place = s->mesh[0].n_rank, .mesh = &s->mesh[0], .lanes = s->lanes};
    weft_program *p   = NULL;
    weft_arena   *tmp = NULL;
    weft_status   st  = WEFT_OK;
    WEFT_TRY(check_rank(o, r.n_place));
    r.place = o->rank % r.n_place;
    find_part(s, r.place, &r.n_part, &r.part);
    weft_partition__lanes own = weft_partition__lanes_of(o, &r);
    WEFT_TRY(weft_partition__check(&own));
    weft_spmd_options so = {.mesh_rank   = r.place,
                            .ring_axes   = o->ring_axes,
                            .gather_once = o->gather_once,
                            .one_micro_batch =
                                o->n_micro == o->n_lane && o->n_lane == r.n_part,
                            .several_terms   = weft_partition__sum_lanes(&own) > 0,
                            .shard_gradients = shards_gradients(o, &own)};
    WEFT_GO(find_local(g, s, o, &so, &r));
    WEFT_GO(assemble_local(g, o, &r, &p));
    bool in_update = o->n_micro > r.n_part && !so.shard_gradients;
    if (o->shard_bucket_bytes > 0) WEFT_GO(overlap_shards(g, s, o, in_update, &p));
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

/* Replicated values: data-parallel ranks, each with the stages of a pipeline. */
static weft_status make_replicated(const weft_graph *g, const weft_partition_options *o,
                                   weft_program **out)
{
    int dp = o->dp > 1 ? o->dp : 1;
    WEFT_TRY(check_rank(o, dp));
    weft_partition__ranks r = {
        .n_part = dp, .part = o->rank % dp, .n_place = dp, .place = o->rank % dp};
    return weft_partition__assemble(g, o, &r, out);
}

/* Without replicas and offloading. */
static weft_status make_plain(const weft_graph *g, const weft_sharding *s,
                              const weft_partition_options *o, weft_program **out)
{
    weft_program *p  = NULL;
    weft_status   st = WEFT_OK;
    WEFT_TRY(s ? make_sharded(g, s, o, &p) : make_replicated(g, o, &p));
    if (o->reduce_bucket_bytes > 0)
        WEFT_GO(overlap_reductions(g, s, o->reduce_bucket_bytes,
                                   s && o->shard_bucket_bytes > 0, &p));
    *out = p;
    p    = NULL;
out:
    weft_program_destroy(p);
    return st;
}

/* The program of another rank, to learn what it holds and sends. */
static weft_status make_other(const weft_graph *g, const weft_sharding *s,
                              const weft_partition_options *o, int rank,
                              weft_program **out)
{
    weft_partition_options other  = *o;
    int                    places = s ? s->mesh[0].n_rank : 1;
    other.rank                    = rank;
    if (rank % places != o->rank % places) other.cache = NULL; /* of another mesh rank */
    return make_plain(g, s, &other, out);
}

static weft_standby_share find_share(const weft_partition_options *o, int rank, int world)
{
    if (!o->sharer) return (weft_standby_share){0, 1};
    return (weft_standby_share){o->sharer[rank % (world / (o->pp > 1 ? o->pp : 1))],
                                o->n_sharer};
}

/* Guards and wards of a rank: one may be both, and is made once. */
typedef struct standby_ranks {
    int           n, rank[2 * WEFT_MAX_STANDBY];
    weft_program *program[2 * WEFT_MAX_STANDBY];
} standby_ranks;

static weft_status find_other(const weft_graph *g, const weft_sharding *s,
                              const weft_partition_options *o, int rank,
                              standby_ranks *all, const weft_program **out)
{
    int k = 0;
    while (k < all->n && all->rank[k] != rank) k++;
    if (k == all->n) {
        WEFT_TRY(make_other(g, s, o, rank, &all->program[k]));
        all->rank[all->n++] = rank;
    }
    *out = all->program[k];
    return WEFT_OK;
}

static weft_status add_standby(const weft_graph *g, const weft_sharding *s,
                               const weft_partition_options *o, weft_program **p)
{
    weft_program        *own   = *p, *out;
    int                  world = own->world, n = o->n_standby;
    standby_ranks        all = {0};
    weft_status          st  = WEFT_OK;
    weft_standby_options how = {.n            = n < world ? n : world - 1,
                                .share        = find_share(o, own->rank, world),
                                .bucket_bytes = o->standby_bytes,
                                .credits      = o->standby_credits};
    if (how.n > WEFT_MAX_STANDBY)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d standby replicas, at most %d", how.n,
                         WEFT_MAX_STANDBY);
    if (how.n < 1) return WEFT_OK;
    for (int k = 0; k < how.n; k++) {
        int ward  = weft_standby_ward(own->rank, world, how.n, k);
        int guard = weft_standby_guard(own->rank, world, how.n, k);
        WEFT_GO(find_other(g, s, o, ward, &all, &how.ward[k]));
        WEFT_GO(find_other(g, s, o, guard, &all, &how.guard[k]));
        how.ward_share[k] = find_share(o, ward, world);
    }
    WEFT_GO(weft_pass_add_standby(own, &how, &out));
    weft_program_destroy(own);
    *p = out;
out:
    for (int k = 0; k < all.n; k++) weft_program_destroy(all.program[k]);
    return st;
}

weft_status weft_partition_program(const weft_graph *g, const weft_sharding *s,
                                   const weft_partition_options *o, weft_program **out)
{
    weft_program *p  = NULL;
    weft_status   st = WEFT_OK;
    WEFT_TRY(make_plain(g, s, o, &p));
    if (o->n_standby > 0) WEFT_GO(add_standby(g, s, o, &p));
    if (o->offload_bytes > 0) WEFT_GO(offload_updates(o, &p));
    *out = p;
    p    = NULL;
out:
    weft_program_destroy(p);
    return st;
}
