/* Buffers of a rank.
 *
 *   within one piece         by lifetime: one stream runs the pieces one after the other, they
 *                            share memory
 *   from piece to piece      a slot for each micro-batch between; by lifetime where each
 *                            micro-batch is over before the next begins: on one stage, and on the
 *                            last one of 1F1B
 *   sent, received           slots of their own for the whole step: other streams use them
 *   gathered once a step     one slot, for all micro-batches
 *   accumulators             a slot for each open lane, for all micro-batches and up to their last
 *                            use; in a pipeline to the end, as exchanges use them
 * Where no rank has more than one micro-batch, what one stage sums or gathers lives no longer than
 * it is used. */
#include "partition/assemble_priv.h"

typedef weft_partition__assembly assembly;
typedef weft_partition__store    store;

enum {
    LAG = 3 /* runs of collectives that the comm stream may be behind */
};

static void mark_use(store *t, int piece)
{
    if (t->first < 0 || piece < t->first) t->first = piece;
    if (piece > t->last) t->last = piece;
}

/* Do reduce-scatters of accumulators overlap with the backward pass (weft_pass_overlap_reductions)?
 * Of one stage those that come after several micro-batches, with gathers of once a step. */
static bool overlaps_shares(const assembly *build)
{
    const weft_local_graph *l = build->ranks->local;
    if (!l || build->options->shard_bucket_bytes <= 0) return false;
    return build->n_stage > 1 || (build->batch.several && l->n_gather_once > 0);
}

/* Shares of sums that may begin while others are still made. */
static void find_early_shares(assembly *build)
{
    const weft_segment *s = build->segment;
    for (int i = 0; overlaps_shares(build) && i < s->n_instr; i++) {
        const weft_instr *x = &s->instr[i];
        if (x->kind != WEFT_INSTR_COLLECTIVE || x->coll != WEFT_REDUCE_SCATTER) continue;
        for (int n = 0; n < x->n_in; n++)
            if (x->in[n].buffer >= 0 &&
                s->storage[x->in[n].buffer].kind == WEFT_STORE_ACCUM)
                build->store[x->out[n].buffer].early = true;
    }
}

static weft_status find_uses(assembly *build)
{
    const weft_segment *s = build->segment;
    build->store          = WEFT_ARENA_ARRAY(build->tmp, store, s->n_storage + 1);
    WEFT_TRY(weft_arena_status(build->tmp));
    for (int i = 0; i < s->n_storage; i++)
        build->store[i].first = build->store[i].last = -1;
    for (int i = 0; i < s->n_instr; i++) {
        const weft_instr *q     = &s->instr[i];
        int               piece = weft_partition__instr_piece(build, i);
        for (int x = 0; x < q->n_in; x++)
            if (q->in[x].buffer >= 0) mark_use(&build->store[q->in[x].buffer], piece);
        for (int x = 0; x < q->n_out; x++)
            if (q->out[x].buffer >= 0) mark_use(&build->store[q->out[x].buffer], piece);
        for (int x = 0; weft_partition__is_once(build, i) && x < q->n_out; x++)
            build->store[q->out[x].buffer].once = true;
    }
    find_early_shares(build);
    return WEFT_OK;
}

/* What is sent, received or exchanged. */
static weft_status find_messages(assembly *build)
{
    const weft_graph *g = build->graph;
    for (weft_vid v = 0; v < g->n_value; v++) {
        int          m = g->value[v].node;
        weft_operand at;
        bool         sent = false, received = weft_partition__receives(build, v);
        if (m < 0) continue;
        for (int r = 0; r < build->pp; r++)
            sent = sent || weft_partition__sends(build, v, r);
        bool given = g->node[m].phase == WEFT_PHASE_UPDATE &&
                     weft_stage_map_crosses(&build->stages, v, build->me);
        if (!sent && !received && !given) continue;
        WEFT_TRY(weft_partition__where(build, v, &at));
        store *t = &build->store[at.buffer];
        t->sent  = t->sent || sent;
        t->given = given;
        if (sent) mark_use(t, weft_partition__piece(build, m));
        if (received) {
            t->received = true;
            mark_use(t, weft_partition__wanted_by(build, v));
        }
    }
    return WEFT_OK;
}

/* Slots from piece to piece. */
static int count_slots(const assembly *build, int first, int last)
{
    if (build->batch.one_at_a_time) return 1;
    return weft_schedule_slots(build->batch.schedule, build->me,
                               weft_partition__work(build, first),
                               weft_partition__work(build, last));
}

static bool in_update(const assembly *build, int piece)
{
    return piece >= 3 * build->n_chunk;
}

/* Messages count on from step to step, slots begin anew: where they do not divide a step's
 * micro-batches, fewer messages may be under way, or the next step would meet slots in use. */
int weft_partition__credits(const assembly *build, int n_slot)
{
    return build->batch.n_own % n_slot ? build->batch.n_own % n_slot : n_slot;
}

static int find_slots(const assembly *build, const store *t)
{
    int want = count_slots(build, t->first, t->last), n;
    if (t->received) want++; /* one comes in while the others are in use */
    if (t->sent && want < 2) want = 2;
    if (want > build->batch.n_own) want = build->batch.n_own;
    for (n = want; (t->received || t->sent) && weft_partition__credits(build, n) < want;)
        n++;
    return n;
}

/* Instructions between which the memory is wanted. */
static weft_status plan_work(const assembly *build, int i, weft_buffer *f,
                             weft_partition__block *b)
{
    const weft_storage *t = &build->segment->storage[i];
    const store        *u = &build->store[i];
    int end = build->segment->n_instr, micro_end = build->segment->phase_end[1];
    /* sums and what is gathered once a step last from micro-batch to micro-batch */
    bool longer = build->batch.several || build->n_stage > 1;
    f->slab     = WEFT_PARTITION__WORK;
    *b          = (weft_partition__block){.first = t->first, .last = t->last};
    if (t->kind == WEFT_STORE_ACCUM) {
        f->n_slot  = weft_partition__lane_slots(&build->batch.lanes);
        f->slot_by = WEFT_SLOT_LANE;
        if (longer) b->first = 0;
        if (build->n_stage > 1) b->last = end; /* exchanges come between two levels */
    } else if (u->once) {
        b->first = 0;
        if (longer && b->last < micro_end - 1) b->last = micro_end - 1;
    } else if (u->early) {
        b->first = 0, b->last = end;
    } else if (in_update(build, u->first)) {
        if (u->given) b->first = micro_end; /* it comes between two levels */
    } else if (in_update(build, u->last) && build->n_stage > 1) {
        return WEFT_FAIL(WEFT_ERR_INTERNAL,
                         "%s reaches from a micro-batch into the update", t->name);
    } else if (u->received || u->sent ||
               (u->first != u->last && !build->batch.one_at_a_time)) {
        f->n_slot  = find_slots(build, u);
        f->slot_by = f->n_slot > 1 ? WEFT_SLOT_MICRO : WEFT_SLOT_ONE;
        bool other = u->received || u->sent;
        b->first   = 0;
        b->last    = other ? end : micro_end - 1;
    }
    b->bytes = f->bytes * f->n_slot;
    return WEFT_OK;
}

/* ---- collectives of one stage that overlap with compute (weft_pass_overlap_collectives) ---- */

/* Up to where an operand of instruction i must stay as it is: LAG runs of collectives on. */
static int stays_until(const weft_segment *s, int i)
{
    for (int n = 0; n < LAG; n++) {
        while (i < s->n_instr && s->instr[i].kind == WEFT_INSTR_COLLECTIVE) i++;
        while (i < s->n_instr && s->instr[i].kind != WEFT_INSTR_COLLECTIVE) i++;
    }
    return i < s->n_instr ? i : s->n_instr - 1;
}

static bool is_operand(const weft_instr *x, int storage)
{
    for (int t = 0; t < x->n_in; t++)
        if (x->in[t].buffer == storage) return true;
    return false;
}

/* What a collective takes lives on until the comm stream has surely run it. */
static void extend_operands(const weft_segment *s, const int *of,
                            weft_partition__block *b, int n)
{
    for (int k = 0; k < n; k++)
        for (int i = b[k].last < s->n_instr ? b[k].last : s->n_instr - 1;
             i >= b[k].first && i >= 0; i--) {
            const weft_instr *x = &s->instr[i];
            if (x->kind != WEFT_INSTR_COLLECTIVE || !is_operand(x, of[k])) continue;
            int last = stays_until(s, i);
            if (last > b[k].last) b[k].last = last;
            break;
        }
}

/* State and staging: one after the other. */
static void plan_apart(const assembly *build, int i, weft_buffer *f, int64_t *end)
{
    const weft_storage *t = &build->segment->storage[i];
    const store        *u = &build->store[i];
    f->slab =
        t->kind == WEFT_STORE_STATE ? WEFT_PARTITION__STATE : WEFT_PARTITION__STAGING;
    if (t->kind == WEFT_STORE_INPUT && u->first >= 0) {
        store read = *u; /* filled before the forward of the first chunk that uses it */
        read.first = weft_partition__work(build, u->first).chunk;
        f->n_slot  = find_slots(build, &read);
        f->slot_by = f->n_slot > 1 ? WEFT_SLOT_MICRO : WEFT_SLOT_ONE;
    }
    f->offset = end[f->slab];
    end[f->slab] += f->bytes * f->n_slot;
}

/* Is the storage planned by lifetime? */
static bool is_work(const assembly *build, int i)
{
    const store *u = &build->store[i];
    switch (build->segment->storage[i].kind) {
    case WEFT_STORE_WORK:
    case WEFT_STORE_ACCUM: return true;
    case WEFT_STORE_INPUT: return u->received;
    case WEFT_STORE_OUTPUT: return u->sent;
    case WEFT_STORE_STEP_INPUT:
        return u->given && build->segment->storage[i].first >= 0 &&
               build->segment->storage[i].last < build->segment->n_instr;
    case WEFT_STORE_STATE: break;
    }
    return false;
}

/* Memory for the exchanges of small values: this rank's share, and all. */
static void plan_shares(assembly *build, int64_t *end)
{
    weft_program *p = build->program;
    for (int l = 0; l < build->stages.n_level; l++) {
        int64_t bytes = build->exchange.share[l];
        for (int all = 0; all < 2 && bytes; all++) {
            weft_buffer *f = &p->buffer[p->n_buffer++];
            int64_t      n = all ? bytes * build->pp : bytes;
            *f = (weft_buffer){.name   = weft_arena_printf(p->arena, "exchange.%d.%s", l,
                                                         all ? "all" : "own"),
                               .slab   = WEFT_PARTITION__STAGING,
                               .offset = end[WEFT_PARTITION__STAGING],
                               .bytes  = weft_segment_round(build->segment, n),
                               .n_slot = 1};
            end[f->slab] += f->bytes;
        }
    }
}

weft_status weft_partition__plan_memory(assembly *build)
{
    const weft_segment    *s = build->segment;
    weft_program          *p = build->program;
    int                    n = s->n_storage, n_block = 0;
    int64_t                end[WEFT_PARTITION__N_SLAB] = {0};
    weft_partition__block *b = WEFT_ARENA_ARRAY(build->tmp, weft_partition__block, n + 1);
    int                   *of = WEFT_ARENA_ARRAY(build->tmp, int, n + 1);
    p->buffer =
        WEFT_ARENA_ARRAY(p->arena, weft_buffer, n + 2 * build->stages.n_level + 1);
    WEFT_TRY(weft_arena_status(build->tmp));
    WEFT_TRY(weft_arena_status(p->arena));
    WEFT_TRY(find_uses(build));
    WEFT_TRY(find_messages(build));
    p->n_buffer = n;
    for (int i = 0; i < n; i++) {
        weft_buffer *f = &p->buffer[i];
        *f = (weft_buffer){.name   = weft_arena_strdup(p->arena, s->storage[i].name),
                           .bytes  = s->storage[i].bytes,
                           .n_slot = 1};
        if (!is_work(build, i)) {
            plan_apart(build, i, f, end);
        } else if (build->store[i].first < 0) {
            f->slab  = WEFT_PARTITION__WORK;
            f->bytes = 0; /* shares another storage, or nobody uses it */
        } else {
            WEFT_TRY(plan_work(build, i, f, &b[n_block]));
            of[n_block++] = i;
        }
    }
    if (build->n_stage == 1 && build->options->shard_bucket_bytes > 0)
        extend_operands(s, of, b, n_block);
    WEFT_TRY(weft_partition__pack(b, n_block, build->tmp, &end[WEFT_PARTITION__WORK]));
    for (int x = 0; x < n_block; x++) p->buffer[of[x]].offset = b[x].offset;
    plan_shares(build, end);
    weft_partition__slabs(p, end);
    return weft_arena_status(p->arena);
}
