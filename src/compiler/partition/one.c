/* One rank: the whole segment becomes actors gather, read, forward, backward, merge, reduce and
 * update on one stream.
 *
 * Gradients over lanes: within a lane micro-batches are added from left to right
 * into one accumulator; finished lanes are kept like the digits of a binary counter and merged
 * pairwise, so the sum is the binary tree over lanes and 1 + log2(lanes) accumulators are enough.
 */
#include "graph/commit.h"
#include "partition/partition_priv.h"

enum {
    ACTOR_READ,
    ACTOR_FORWARD,
    ACTOR_BACKWARD,
    ACTOR_JOIN,      /* forward, of a micro-batch that only others have */
    ACTOR_JOIN_BACK, /* backward */
    ACTOR_MERGE,
    ACTOR_REDUCE,
    ACTOR_UPDATE,
    ACTOR_GATHER, /* once a step, before the others */
    N_ACTOR
};

enum {
    LAG = 3 /* runs of collectives that the comm stream may be behind */
};

/* With collectives beside compute: up to where an operand of instruction i must stay as it is. */
static int stays_until(const weft_segment *s, int i)
{
    for (int n = 0; n < LAG; n++) {
        while (i < s->n_instr && s->instr[i].kind == WEFT_INSTR_COLLECTIVE) i++;
        while (i < s->n_instr && s->instr[i].kind != WEFT_INSTR_COLLECTIVE) i++;
    }
    return i < s->n_instr ? i : s->n_instr - 1;
}

static bool gives(const weft_instr *c, int storage)
{
    for (int t = 0; t < c->n_in; t++)
        if (c->in[t].buffer == storage) return true;
    return false;
}

static void stay(const weft_segment *s, const int *of, weft_partition__block *b, int n)
{
    for (int k = 0; k < n; k++)
        for (int i = b[k].last; i >= b[k].first && i >= 0; i--) {
            const weft_instr *c = &s->instr[i];
            if (c->kind != WEFT_INSTR_COLLECTIVE || !gives(c, of[k])) continue;
            int last = stays_until(s, i);
            if (last > b[k].last) b[k].last = last;
            break;
        }
}

/* Does instruction i gather what stays for the step? */
static bool is_once(const weft_segment *s, const weft_partition__ranks *r, int i)
{
    return r->local && s->node[i] >= 0 && s->node[i] < r->local->n_gather_once;
}

/* Of each storage: is it filled once a step? */
static weft_status find_once(const weft_segment *s, const weft_partition__ranks *r,
                             weft_arena *tmp, bool **out)
{
    *out = WEFT_ARENA_ARRAY(tmp, bool, s->n_storage + 1);
    WEFT_TRY(weft_arena_status(tmp));
    for (int i = 0; i < s->n_instr; i++)
        for (int t = 0; is_once(s, r, i) && t < s->instr[i].n_out; t++)
            (*out)[s->instr[i].out[t].buffer] = true;
    return WEFT_OK;
}

/* With several micro-batches: those of sums that go to their owners, which may begin while others
 * are still made. */
static weft_status find_shares(const weft_segment *s, const weft_partition__ranks *r,
                               weft_arena *tmp, bool **out)
{
    *out = WEFT_ARENA_ARRAY(tmp, bool, s->n_storage + 1);
    WEFT_TRY(weft_arena_status(tmp));
    for (int i = 0; r->local && r->local->n_gather_once && i < s->n_instr; i++) {
        const weft_instr *x = &s->instr[i];
        if (x->kind != WEFT_INSTR_COLLECTIVE || x->coll != WEFT_REDUCE_SCATTER) continue;
        for (int t = 0; t < x->n_in; t++)
            (*out)[x->out[t].buffer] =
                x->in[t].buffer >= 0 &&
                s->storage[x->in[t].buffer].kind == WEFT_STORE_ACCUM;
    }
    return WEFT_OK;
}

/* Buffers: one a storage, offsets by lifetime inside the work slab, one after the other
 * elsewhere. */
static weft_status plan_buffers(const weft_segment *s, const weft_partition__lanes *o,
                                const weft_partition__ranks *r, weft_program *p,
                                weft_arena *tmp)
{
    weft_partition__block *b =
        WEFT_ARENA_ARRAY(tmp, weft_partition__block, s->n_storage + 1);
    int    *of = WEFT_ARENA_ARRAY(tmp, int, s->n_storage + 1), n = 0;
    int64_t end[WEFT_PARTITION__N_SLAB] = {0};
    bool    several = o->n_micro > (o->world > 1 ? o->world : 1); /* of some rank */

    bool *once, *share;
    WEFT_TRY(find_once(s, r, tmp, &once));
    WEFT_TRY(find_shares(s, r, tmp, &share));
    p->buffer = WEFT_ARENA_ARRAY(p->arena, weft_buffer, s->n_storage + 1);
    WEFT_TRY(weft_arena_status(tmp));
    WEFT_TRY(weft_arena_status(p->arena));
    p->n_buffer = s->n_storage;
    for (int i = 0; i < s->n_storage; i++) {
        const weft_storage *t    = &s->storage[i];
        weft_buffer        *f    = &p->buffer[i];
        const char         *name = weft_arena_strdup(p->arena, t->name);

        *f = (weft_buffer){.name = name, .bytes = t->bytes, .n_slot = 1};
        int slab =
            t->kind == WEFT_STORE_STATE ? WEFT_PARTITION__STATE : WEFT_PARTITION__STAGING;
        if (t->kind == WEFT_STORE_WORK || t->kind == WEFT_STORE_ACCUM) {
            bool sum  = t->kind == WEFT_STORE_ACCUM;
            f->slab   = WEFT_PARTITION__WORK;
            f->n_slot = sum ? weft_partition__lane_slots(o) : 1;
            if (sum) f->slot_by = WEFT_SLOT_LANE;
            if (t->first < 0) {
                f->bytes = 0; /* shares another storage, or nobody uses it */
                continue;
            }
            b[n]    = (weft_partition__block){f->bytes * f->n_slot, 0, t->first, t->last};
            of[n++] = i;
            if ((sum && several) || once[i]) b[n - 1].first = 0;
            if (once[i] && several && b[n - 1].last < s->phase_end[1] - 1)
                b[n - 1].last = s->phase_end[1] - 1; /* from micro-batch to micro-batch */
            if (share[i] && several && o->overlap)
                b[n - 1].first = 0, b[n - 1].last = s->n_instr;
            continue;
        }
        f->slab   = slab;
        f->offset = end[slab];
        end[slab] += f->bytes;
    }
    if (o->overlap) stay(s, of, b, n);
    WEFT_TRY(weft_partition__pack(b, n, tmp, &end[WEFT_PARTITION__WORK]));
    for (int k = 0; k < n; k++) p->buffer[of[k]].offset = b[k].offset;

    weft_partition__slabs(p, end);
    return weft_arena_status(p->arena);
}

/* Instructions [first, end), of which those of once a step are apart. */
static weft_status copy_actor(weft_program *p, int actor, const char *name,
                              const weft_segment *s, const weft_partition__ranks *r,
                              int first, int end)
{
    weft_actor *c = &p->actor[actor];
    *c            = (weft_actor){.name = name, .stream = WEFT_STREAM_COMPUTE};
    c->instr      = WEFT_ARENA_ARRAY(p->arena, weft_instr, end - first + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = first; i < end; i++)
        if (is_once(s, r, i) == (actor == ACTOR_GATHER))
            WEFT_TRY(weft_instr_copy(&s->instr[i], p->arena, &c->instr[c->n_instr++]));
    return WEFT_OK;
}

/* The commit point before the first instruction of the update that comes after it.  Outputs that
 * are made before it are its operands. */
static weft_status add_commit(weft_program *p, const weft_graph *g, const weft_segment *s,
                              weft_arena *tmp)
{
    weft_actor   *c     = &p->actor[ACTOR_UPDATE];
    bool         *after = WEFT_ARENA_ARRAY(tmp, bool, g->n_node + 1);
    weft_operand *out   = WEFT_ARENA_ARRAY(tmp, weft_operand, s->n_binding + 1);
    int           n = 0, at = 0, first = s->phase_end[1];
    WEFT_TRY(weft_arena_status(tmp));
    if (!weft_graph_find_after_commit(g, after)) return WEFT_OK;
    for (int b = 0; b < s->n_binding; b++) {
        weft_vid v = weft_graph_find(g, s->binding[b].name);
        int      m = v < 0 ? -1 : g->value[v].node;
        if (s->binding[b].kind == WEFT_BIND_OUTPUT && !(m >= 0 && after[m]))
            out[n++] = s->binding[b].at;
    }
    while (at < c->n_instr && s->node[first + at] >= 0 && !after[s->node[first + at]])
        at++;
    for (int i = c->n_instr++; i > at; i--) c->instr[i] = c->instr[i - 1];
    return weft_partition__commit(p, n, out, &c->instr[at]);
}

static weft_status join_actor(weft_program *p, int actor, const char *name, int of,
                              const weft_partition__ranks *r)
{
    weft_actor *c = &p->actor[actor];
    *c            = (weft_actor){.name = name, .stream = WEFT_STREAM_COMPUTE};
    c->instr      = WEFT_ARENA_ARRAY(p->arena, weft_instr, p->actor[of].n_instr + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    return weft_partition__join(p, of, r, actor);
}

/* One instruction that fills all inputs of a micro-batch. */
static weft_status read_actor(weft_program *p, const weft_segment *s)
{
    weft_actor *c = &p->actor[ACTOR_READ];
    *c       = (weft_actor){.name = "read", .stream = WEFT_STREAM_COMPUTE, .n_instr = 1};
    c->instr = WEFT_ARENA_ARRAY(p->arena, weft_instr, 1);
    WEFT_TRY(weft_arena_status(p->arena));
    weft_instr *r = &c->instr[0];
    *r            = weft_partition__bare(WEFT_INSTR_READ, "read");
    r->out        = WEFT_ARENA_ARRAY(p->arena, weft_operand, s->n_binding + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int b = 0; b < s->n_binding; b++)
        if (s->binding[b].kind == WEFT_BIND_INPUT) r->out[r->n_out++] = s->binding[b].at;
    r->n_own_out = r->n_out;
    if (!r->n_out) c->n_instr = 0;
    return WEFT_OK;
}

/* One instruction for every accumulator: a level of the tree over this rank's lanes, or the tree
 * over ranks. */
static weft_status sum_actor(weft_program *p, const weft_segment *s, int actor,
                             const char *name, weft_instr_kind kind, int lanes)
{
    weft_actor *c = &p->actor[actor];
    *c            = (weft_actor){.name = name, .stream = WEFT_STREAM_COMPUTE};
    c->instr      = WEFT_ARENA_ARRAY(p->arena, weft_instr, s->n_storage + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < s->n_storage; i++) {
        if (s->storage[i].kind != WEFT_STORE_ACCUM || s->storage[i].first < 0) continue;
        weft_instr  *m = &c->instr[c->n_instr++];
        weft_operand o = weft_partition__whole(s, i);
        WEFT_TRY(weft_partition__move(p, kind, p->buffer[i].name, &o, &o, m));
        if (kind == WEFT_INSTR_COLLECTIVE)
            m->coll = WEFT_ALL_REDUCE, m->group = 0, m->lanes = lanes;
    }
    if (kind == WEFT_INSTR_COLLECTIVE)
        return weft_partition__meet(p, c->instr, &c->n_instr);
    return WEFT_OK;
}

/* All ranks, in order: positions in the tree. */
static weft_status all_ranks(weft_program *p, const weft_partition__lanes *o)
{
    p->group = WEFT_ARENA_NEW(p->arena, weft_group);
    WEFT_TRY(weft_arena_status(p->arena));
    p->n_group         = 1;
    p->group[0].n_rank = p->world;
    p->group[0].rank   = WEFT_ARENA_ARRAY(p->arena, int32_t, p->world);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int r = 0; r < p->world; r++) p->group[0].rank[r] = r;
    return weft_partition__deal(o, p, &p->group[0]);
}

static void fire(weft_program *p, int actor, int micro, int slot, bool first)
{
    if (p->actor[actor].n_instr == 0) return;
    int s = (int)p->actor[actor].stream;
    p->stream[s].firing[p->stream[s].n_firing++] =
        (weft_firing){.actor = actor, .micro = micro, .lane_slot = slot, .first = first};
}

/* The rank's lanes in order, merged like a binary counter: siblings of the tree over all lanes. */
static weft_status schedule(weft_program *p, const weft_partition__lanes *o)
{
    int lane, last, other = 0;
    weft_partition__own_lanes(o, &lane, &last);
    weft_program_stream(p, WEFT_STREAM_COMPUTE)->firing =
        WEFT_ARENA_ARRAY(p->arena, weft_firing, 3 * p->n_micro + (last - lane) + 4);
    weft_program_stream(p, WEFT_STREAM_COMM)->firing =
        WEFT_ARENA_ARRAY(p->arena, weft_firing, 1);
    int missing = weft_partition__most_own(o) -
                  weft_partition__n_own(o, o->world > 1 ? o->rank : 0);
    WEFT_TRY(weft_arena_status(p->arena));
    fire(p, ACTOR_GATHER, -1, 0, false);
    for (; lane < last; lane++) {
        weft_partition__turn t = weft_partition__lane_turn(o, lane);
        int                  first, end;
        weft_partition_lane(p->n_micro, p->n_lane, lane, &first, &end);
        for (int m = first; m < end; m++) {
            fire(p, ACTOR_READ, m, t.slot, m == first);
            fire(p, ACTOR_FORWARD, m, t.slot, m == first);
            fire(p, ACTOR_BACKWARD, m, t.slot, m == first);
        }
        other = end;
        for (int k = 0; k < t.merge; k++) fire(p, ACTOR_MERGE, -1, t.slot - k, false);
    }
    for (; missing; missing--, other++) { /* each by a number that is not the rank's */
        fire(p, ACTOR_JOIN, other % p->n_micro, 0, false);
        fire(p, ACTOR_JOIN_BACK, other % p->n_micro, 0, false);
    }
    fire(p, ACTOR_REDUCE, -1, 0, false);
    fire(p, ACTOR_UPDATE, -1, 0, false);
    return WEFT_OK;
}

static weft_status build(const weft_graph *g, const weft_segment *s,
                         const weft_partition__lanes *o, const weft_partition__ranks *r,
                         weft_program *p, weft_arena *tmp)
{
    p->world   = r->n_place;
    p->rank    = r->place;
    p->n_micro = o->n_micro;
    p->n_lane  = o->n_lane;
    WEFT_TRY(plan_buffers(s, o, r, p, tmp));
    p->n_actor = N_ACTOR;
    p->actor   = WEFT_ARENA_ARRAY(p->arena, weft_actor, N_ACTOR);
    WEFT_TRY(weft_arena_status(p->arena));
    WEFT_TRY(read_actor(p, s));
    WEFT_TRY(
        copy_actor(p, ACTOR_GATHER, WEFT_PARTITION__GATHER, s, r, 0, s->phase_end[0]));
    if (o->overlap) p->actor[ACTOR_GATHER].stream = WEFT_STREAM_COMM;
    WEFT_TRY(copy_actor(p, ACTOR_FORWARD, "forward", s, r, 0, s->phase_end[0]));
    WEFT_TRY(copy_actor(p, ACTOR_BACKWARD, "backward", s, r, s->phase_end[0],
                        s->phase_end[1]));
    p->actor[ACTOR_JOIN]      = (weft_actor){.name = "join"};
    p->actor[ACTOR_JOIN_BACK] = (weft_actor){.name = "join.backward"};
    if (weft_partition__n_own(o, r->part) < weft_partition__most_own(o)) {
        WEFT_TRY(join_actor(p, ACTOR_JOIN, "join", ACTOR_FORWARD, r));
        WEFT_TRY(join_actor(p, ACTOR_JOIN_BACK, "join.backward", ACTOR_BACKWARD, r));
    }
    WEFT_TRY(sum_actor(p, s, ACTOR_MERGE, "merge", WEFT_INSTR_MERGE, 0));
    p->actor[ACTOR_REDUCE] =
        (weft_actor){.name = "reduce", .stream = WEFT_STREAM_COMPUTE};
    if (r->local) {
        WEFT_TRY(weft_partition__groups(p, r, 0));
    } else if (p->world > 1) {
        WEFT_TRY(all_ranks(p, o));
        WEFT_TRY(sum_actor(p, s, ACTOR_REDUCE, "reduce", WEFT_INSTR_COLLECTIVE,
                           weft_partition__sum_lanes(o)));
    }
    WEFT_TRY(
        copy_actor(p, ACTOR_UPDATE, "update", s, r, s->phase_end[1], s->phase_end[2]));
    WEFT_TRY(add_commit(p, g, s, tmp));
    p->binding = WEFT_ARENA_ARRAY(p->arena, weft_binding, s->n_binding + 1);
    WEFT_TRY(weft_arena_status(p->arena));
    for (int i = 0; i < s->n_binding; i++) {
        p->binding[i]      = s->binding[i];
        p->binding[i].name = weft_arena_strdup(p->arena, s->binding[i].name);
    }
    p->n_binding = s->n_binding;
    WEFT_TRY(schedule(p, o));
    return weft_arena_status(p->arena);
}

static weft_status meet_at_once(weft_segment *s, const weft_local_graph *l,
                                weft_arena *tmp)
{
    int *meeting = WEFT_ARENA_ARRAY(tmp, int, s->n_instr + 1);
    WEFT_TRY(weft_arena_status(tmp));
    for (int i = 0; i < s->n_instr; i++)
        meeting[i] = s->node[i] < 0 ? -1 : l->bucket[s->node[i]];
    return weft_segment_meet(s, meeting);
}

weft_status weft_partition__one(const weft_graph *g, const weft_partition__lanes *o,
                                const weft_partition__ranks *r, weft_program **out)
{
    weft_segment *s   = NULL;
    weft_arena   *tmp = NULL;
    weft_program *p   = NULL;
    weft_status   st  = WEFT_OK;

    WEFT_TRY(weft_partition__check(o));
    /* each rank has one micro-batch; where an actor sums over ranks, uses of a tied table stay
     * apart */
    bool once = o->n_micro == 1 || (r->local && o->n_micro == r->n_part);
    WEFT_GO(weft_lower(g, &(weft_lower_options){.one_micro = once}, &s));
    WEFT_GO(weft_arena_create(&tmp));
    if (r->local) WEFT_GO(meet_at_once(s, r->local, tmp));
    WEFT_GO(weft_program_create(g->name, &p));
    WEFT_GO(weft_partition__all_streams(p));
    WEFT_GO(build(g, s, o, r, p, tmp));
    *out = p;
    p    = NULL;
out:
    weft_program_destroy(p);
    weft_arena_destroy(tmp);
    weft_segment_destroy(s);
    return st;
}
