/* Lanes, slabs and plain instructions: what every program has. */
#include "base/lanes.h"
#include "partition/partition_priv.h"

static weft_lanes dealing(const weft_partition__lanes *o)
{
    return (weft_lanes){o->n_lane, o->world > 1 ? o->world : 1,
                        o->world > 1 ? o->share : NULL};
}

weft_partition__lanes weft_partition__lanes_of(const weft_partition_options *o,
                                               const weft_partition__ranks  *r)
{
    return (weft_partition__lanes){.n_micro = o->n_micro,
                                   .n_lane  = o->n_lane,
                                   .world   = r->n_part,
                                   .rank    = r->part,
                                   .share   = o->share};
}

void weft_partition_lane(int n_micro, int n_lane, int lane, int *first, int *end)
{
    int small = n_micro / n_lane, larger = n_micro % n_lane;
    *first = lane * small + (lane < larger ? lane : larger);
    *end   = *first + small + (lane < larger ? 1 : 0);
}

int weft_partition__lane_of(int n_micro, int n_lane, int micro)
{
    int small = n_micro / n_lane, larger = n_micro % n_lane, end = larger * (small + 1);
    return micro < end ? micro / (small + 1) : larger + (micro - end) / small;
}

/* A finished lane waits in the next free slot; siblings of the tree over all lanes are merged at
 * once. */
weft_partition__turn weft_partition__lane_turn(const weft_partition__lanes *o, int lane)
{
    int                  first, end;
    weft_partition__turn t = {0};
    weft_partition__own_lanes(o, &first, &end);
    t.slot  = weft_lanes_terms(first, lane, NULL);
    t.merge = t.slot + 1 - weft_lanes_terms(first, lane + 1, NULL);
    return t;
}

int weft_partition__lane_slots(const weft_partition__lanes *o)
{
    int first, end, n = 1;
    weft_partition__own_lanes(o, &first, &end);
    for (int lane = first; lane < end; lane++) {
        int slot = weft_partition__lane_turn(o, lane).slot;
        if (slot >= n) n = slot + 1;
    }
    return n;
}

int weft_partition__n_own(const weft_partition__lanes *o, int rank)
{
    int        lane, last, first, end, none;
    weft_lanes d = dealing(o);
    weft_lanes_of(&d, rank, &lane, &last);
    weft_partition_lane(o->n_micro, o->n_lane, lane, &first, &none);
    weft_partition_lane(o->n_micro, o->n_lane, last - 1, &none, &end);
    return end - first;
}

int weft_partition__most_own(const weft_partition__lanes *o)
{
    int most = 0;
    for (int r = 0; r < (o->world > 1 ? o->world : 1); r++) {
        int n = weft_partition__n_own(o, r);
        if (n > most) most = n;
    }
    return most;
}

static bool is_along_lanes(const weft_partition__ranks *r, const weft_instr *i)
{
    return r->local && i->kind == WEFT_INSTR_COLLECTIVE && i->group < r->local->n_group &&
           r->local->group_axes[i->group] & r->lanes;
}

weft_status weft_partition__join(weft_program *p, int of, const weft_partition__ranks *r,
                                 int actor)
{
    const weft_actor *from = &p->actor[of];
    weft_actor       *c    = &p->actor[actor];
    for (int i = 0; i < from->n_instr; i++) {
        const weft_instr *x = &from->instr[i];
        if (!is_along_lanes(r, x)) continue;
        for (int t = 0; t < x->n_in; t++)
            if (p->slab[p->buffer[x->in[t].buffer].slab].kind != WEFT_SLAB_STATE)
                return WEFT_FAIL(
                    WEFT_ERR_ARG,
                    "%s: ranks with different numbers of micro-batches cannot "
                    "exchange it: choose batch / micro_batch that they divide",
                    x->name);
        c->instr[c->n_instr++] = *x;
    }
    return WEFT_OK;
}

int weft_partition__sum_lanes(const weft_partition__lanes *o)
{
    weft_lanes d = dealing(o);
    return weft_lanes_plain(&d) ? 0 : o->n_lane;
}

weft_status weft_partition__deal(const weft_partition__lanes *o, weft_program *p,
                                 weft_group *g)
{
    if (!weft_partition__sum_lanes(o) || !o->share) return WEFT_OK;
    g->share = weft_arena_memdup(p->arena, o->share, sizeof *o->share * (size_t)o->world);
    return weft_arena_status(p->arena);
}

weft_status weft_partition__check(const weft_partition__lanes *o)
{
    if (o->n_micro < 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d micro-batches: at least 1", o->n_micro);
    if (o->n_lane < 1 || o->n_lane > o->n_micro || (o->n_lane & (o->n_lane - 1)))
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "lanes: %d must be a power of two and at most the %d micro-batches of a step",
            o->n_lane, o->n_micro);
    int need = 1;
    while (need < o->world) need *= 2;
    if (o->world > o->n_lane)
        return WEFT_FAIL(
            WEFT_ERR_ARG,
            "%d data-parallel ranks share %d lanes: set lanes to at least %d "
            "(micro_batch small enough for as many micro-batches)",
            o->world, o->n_lane, need);
    weft_lanes d = dealing(o);
    if (!weft_lanes_right(&d))
        return WEFT_FAIL(WEFT_ERR_ARG, "shares of %d ranks are not the %d lanes",
                         o->world, o->n_lane);
    if (o->world > 1 && (o->rank < 0 || o->rank >= o->world))
        return WEFT_FAIL(WEFT_ERR_ARG, "rank %d of %d", o->rank, o->world);
    return WEFT_OK;
}

void weft_partition__own_lanes(const weft_partition__lanes *o, int *first, int *end)
{
    weft_lanes d = dealing(o);
    weft_lanes_of(&d, o->world > 1 ? o->rank : 0, first, end);
}

void weft_partition__slabs(weft_program *p, const int64_t bytes[WEFT_PARTITION__N_SLAB])
{
    static const weft_slab kinds[] = {{"state", WEFT_SLAB_STATE, 0},
                                      {"work", WEFT_SLAB_WORK, 0},
                                      {"staging", WEFT_SLAB_STAGING, 0}};
    p->slab = WEFT_ARENA_ARRAY(p->arena, weft_slab, WEFT_PARTITION__N_SLAB);
    if (!p->slab) return; /* the arena says so */
    p->n_slab = WEFT_PARTITION__N_SLAB;
    for (int i = 0; i < p->n_slab; i++) {
        p->slab[i]       = kinds[i];
        p->slab[i].bytes = bytes[i];
    }
}

weft_status weft_partition__need_stream(weft_program *p, weft_stream_kind k)
{
    int32_t at;
    if (weft_program_stream(p, k)) return WEFT_OK;
    weft_stream_spec s = {
        .name = weft_stream_kind_name(k), .kind = k, .threads = k != WEFT_STREAM_COMPUTE};
    return weft_program_add_stream(p, s, &at);
}

weft_status weft_partition__all_streams(weft_program *p)
{
    for (int k = 0; k < WEFT_N_STREAM_KIND; k++)
        WEFT_TRY(weft_partition__need_stream(p, (weft_stream_kind)k));
    return WEFT_OK;
}

int32_t weft_partition__stream(const weft_program *p, weft_stream_kind k)
{
    return (int32_t)(weft_program_stream(p, k) - p->stream);
}

weft_instr weft_partition__bare(weft_instr_kind kind, const char *name)
{
    return (weft_instr){
        .kind = kind, .name = name, .group = -1, .peer = -1, .seconds = -1};
}

weft_status weft_partition__move(weft_program *p, weft_instr_kind kind, const char *name,
                                 const weft_operand *in, const weft_operand *out,
                                 weft_instr *i)
{
    *i = weft_partition__bare(kind, weft_arena_strdup(p->arena, name));
    if (in) {
        i->in   = weft_arena_memdup(p->arena, in, sizeof *in);
        i->n_in = i->n_own_in = 1;
    }
    if (out) {
        i->out   = weft_arena_memdup(p->arena, out, sizeof *out);
        i->n_out = i->n_own_out = 1;
    }
    return weft_arena_status(p->arena);
}

weft_status weft_partition__commit(weft_program *p, int n, const weft_operand *outcome,
                                   weft_instr *i)
{
    *i      = weft_partition__bare(WEFT_INSTR_COMMIT, "step");
    i->in   = weft_arena_memdup(p->arena, outcome, sizeof *outcome * (size_t)n);
    i->n_in = i->n_own_in = n;
    return weft_arena_status(p->arena);
}

static int64_t written(const weft_segment *s, int storage)
{
    int64_t end  = 0;
    int     from = s->storage[storage].first, to = s->storage[storage].last;
    for (int i = from < 0 ? 0 : from; i < s->n_instr && i <= to; i++)
        for (int k = 0; k < s->instr[i].n_out; k++) {
            const weft_operand *o = &s->instr[i].out[k];
            int64_t             n = o->offset + weft_shape_count(&o->type.shape);
            if (o->buffer == storage && n > end) end = n;
        }
    return end;
}

weft_operand weft_partition__whole(const weft_segment *s, int storage)
{
    weft_operand o    = {.buffer       = storage,
                         .type.dtype   = WEFT_DTYPE_F32,
                         .type.shape.n = 1,
                         .stride       = {1}};
    o.type.shape.d[0] = written(s, storage);
    return o;
}
