/* Buffers of a pipeline rank.
 *
 *   within one piece           by lifetime, all pieces over each other: one stream runs them in
 *   turn from piece to piece        a slot for each micro-batch between; where each micro-batch
 *                              is over before the next begins, by lifetime as well
 *   sent, received             slots of their own for the whole step: other streams use them
 *   gathered once a step       one slot, for all micro-batches
 *   accumulators               a slot for each open lane, for the whole step */
#include "partition/pipe_priv.h"

typedef weft_partition__pipe  pipe;
typedef weft_partition__store store;

static void touch(store *t, int piece)
{
    if (t->first < 0 || piece < t->first) t->first = piece;
    if (piece > t->last) t->last = piece;
}

static weft_status find_uses(pipe *k)
{
    const weft_segment *s = k->s;
    k->store              = WEFT_ARENA_ARRAY(k->tmp, store, s->n_storage + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    for (int i = 0; i < s->n_storage; i++) k->store[i].first = k->store[i].last = -1;
    for (int i = 0; i < s->n_instr; i++) {
        const weft_instr *q     = &s->instr[i];
        int               piece = weft_partition__instr_piece(k, i);
        for (int x = 0; x < q->n_in; x++)
            if (q->in[x].buffer >= 0) touch(&k->store[q->in[x].buffer], piece);
        for (int x = 0; x < q->n_out; x++)
            if (q->out[x].buffer >= 0) touch(&k->store[q->out[x].buffer], piece);
        for (int x = 0; weft_partition__is_once(k, i) && x < q->n_out; x++)
            k->store[q->out[x].buffer].once = true;
    }
    return WEFT_OK;
}

/* What is sent, received or exchanged. */
static weft_status find_messages(pipe *k)
{
    const weft_graph *g = k->g;
    for (weft_vid v = 0; v < g->n_value; v++) {
        int          m = g->value[v].node;
        weft_operand at;
        bool         sent = false, received = weft_partition__receives(k, v);
        if (m < 0) continue;
        for (int r = 0; r < k->pp; r++) sent = sent || weft_partition__sends(k, v, r);
        bool given = g->node[m].phase == WEFT_PHASE_UPDATE &&
                     k->stages.crosses[(size_t)v * (size_t)k->pp + (size_t)k->me];
        if (!sent && !received && !given) continue;
        WEFT_TRY(weft_partition__where(k, v, &at));
        store *t = &k->store[at.buffer];
        t->sent  = t->sent || sent;
        t->given = given;
        if (sent) touch(t, weft_partition__piece(k, m));
        if (received) {
            t->received = true;
            touch(t, weft_partition__wanted_by(k, v));
        }
    }
    return WEFT_OK;
}

/* Slots from piece to piece. */
static int slots(const pipe *k, int first, int last)
{
    return weft_schedule_slots(k->schedule, k->me, weft_partition__work(k, first),
                               weft_partition__work(k, last));
}

/* Is every micro-batch over before the next begins? */
static bool one_at_a_time(const pipe *k)
{
    return k->n_chunk == 1 && slots(k, 0, k->split ? 2 : 1) == 1;
}

static bool in_update(const pipe *k, int piece)
{
    return piece >= 3 * k->n_chunk;
}

/* Messages count on from step to step, slots begin anew: where they do not divide a step's
 * micro-batches, fewer messages may be under way, or the next step would meet slots in use. */
int weft_partition__credits(const pipe *k, int n_slot)
{
    return k->n_own % n_slot ? k->n_own % n_slot : n_slot;
}

static int slots_of(const pipe *k, const store *t)
{
    int want = slots(k, t->first, t->last), n;
    if (t->received) want++; /* one comes in while the others are in use */
    if (t->sent && want < 2) want = 2;
    if (want > k->n_own) want = k->n_own;
    for (n = want; (t->received || t->sent) && weft_partition__credits(k, n) < want;) n++;
    return n;
}

/* A sum that goes to its owners: it may begin while others are still made
 * (weft_pass_overlap_reductions). */
static bool is_early_share(const pipe *k, int storage)
{
    const weft_segment *s = k->s;
    for (int i = 0; k->o->shard_bucket_bytes > 0 && i < s->n_instr; i++) {
        const weft_instr *x = &s->instr[i];
        if (x->kind != WEFT_INSTR_COLLECTIVE || x->coll != WEFT_REDUCE_SCATTER) continue;
        for (int n = 0; n < x->n_in; n++)
            if (x->out[n].buffer == storage && x->in[n].buffer >= 0 &&
                s->storage[x->in[n].buffer].kind == WEFT_STORE_ACCUM)
                return true;
    }
    return false;
}

/* Instructions between which the memory is wanted. */
static weft_status plan_work(const pipe *k, int i, weft_buffer *f,
                             weft_partition__block *b)
{
    const weft_storage *t   = &k->s->storage[i];
    const store        *u   = &k->store[i];
    int                 end = k->s->n_instr, micro_end = k->s->phase_end[1];
    f->slab = WEFT_PARTITION__WORK;
    if (t->kind == WEFT_STORE_ACCUM) {
        f->n_slot  = weft_partition__lane_slots(&k->lanes);
        f->slot_by = WEFT_SLOT_LANE;
        *b         = (weft_partition__block){.first = 0, .last = end};
    } else if (u->once) {
        *b = (weft_partition__block){.first = 0, .last = micro_end - 1};
    } else if (in_update(k, u->first)) {
        *b = (weft_partition__block){.first = t->first, .last = t->last};
        if (u->given) b->first = micro_end; /* it comes between two levels */
        if (is_early_share(k, i)) *b = (weft_partition__block){.first = 0, .last = end};
    } else if (in_update(k, u->last)) {
        return WEFT_FAIL(WEFT_ERR_INTERNAL,
                         "%s reaches from a micro-batch into the update", t->name);
    } else if (u->received || u->sent || (u->first != u->last && !one_at_a_time(k))) {
        f->n_slot  = slots_of(k, u);
        f->slot_by = f->n_slot > 1 ? WEFT_SLOT_MICRO : WEFT_SLOT_ONE;
        bool other = u->received || u->sent;
        *b = (weft_partition__block){.first = 0, .last = other ? end : micro_end - 1};
    } else {
        *b = (weft_partition__block){.first = t->first, .last = t->last};
    }
    b->bytes = f->bytes * f->n_slot;
    return WEFT_OK;
}

/* State and staging: one behind the other. */
static void plan_apart(const pipe *k, int i, weft_buffer *f, int64_t *end)
{
    const weft_storage *t = &k->s->storage[i];
    const store        *u = &k->store[i];
    f->slab =
        t->kind == WEFT_STORE_STATE ? WEFT_PARTITION__STATE : WEFT_PARTITION__STAGING;
    if (t->kind == WEFT_STORE_INPUT && u->first >= 0) {
        store read = *u; /* filled before the forward of the first chunk that uses it */
        read.first = weft_partition__work(k, u->first).chunk;
        f->n_slot  = slots_of(k, &read);
        f->slot_by = f->n_slot > 1 ? WEFT_SLOT_MICRO : WEFT_SLOT_ONE;
    }
    f->offset = end[f->slab];
    end[f->slab] += f->bytes * f->n_slot;
}

/* Is the storage planned by lifetime? */
static bool is_work(const pipe *k, int i)
{
    const store *u = &k->store[i];
    switch (k->s->storage[i].kind) {
    case WEFT_STORE_WORK:
    case WEFT_STORE_ACCUM: return true;
    case WEFT_STORE_INPUT: return u->received;
    case WEFT_STORE_OUTPUT: return u->sent;
    case WEFT_STORE_STEP_INPUT:
        return u->given && k->s->storage[i].first >= 0 &&
               k->s->storage[i].last < k->s->n_instr;
    case WEFT_STORE_STATE: break;
    }
    return false;
}

/* Room for the exchanges of small values: this rank's share, and all. */
static void plan_shares(pipe *k, int64_t *end)
{
    weft_program *p = k->p;
    for (int l = 0; l < k->stages.n_level; l++) {
        int64_t bytes = k->share[l];
        for (int all = 0; all < 2 && bytes; all++) {
            weft_buffer *f = &p->buffer[p->n_buffer++];
            int64_t      n = all ? bytes * k->pp : bytes;
            *f = (weft_buffer){.name   = weft_arena_printf(p->arena, "exchange.%d.%s", l,
                                                         all ? "all" : "own"),
                               .slab   = WEFT_PARTITION__STAGING,
                               .offset = end[WEFT_PARTITION__STAGING],
                               .bytes  = (n + 63) & ~(int64_t)63,
                               .n_slot = 1};
            end[f->slab] += f->bytes;
        }
    }
}

weft_status weft_partition__plan_memory(pipe *k)
{
    const weft_segment    *s = k->s;
    weft_program          *p = k->p;
    int                    n = s->n_storage, n_block = 0;
    int64_t                end[WEFT_PARTITION__N_SLAB] = {0};
    weft_partition__block *b  = WEFT_ARENA_ARRAY(k->tmp, weft_partition__block, n + 1);
    int                   *of = WEFT_ARENA_ARRAY(k->tmp, int, n + 1);
    p->buffer = WEFT_ARENA_ARRAY(p->arena, weft_buffer, n + 2 * k->stages.n_level + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    WEFT_TRY(weft_arena_status(p->arena));
    WEFT_TRY(find_uses(k));
    WEFT_TRY(find_messages(k));
    p->n_buffer = n;
    for (int i = 0; i < n; i++) {
        weft_buffer *f = &p->buffer[i];
        *f = (weft_buffer){.name   = weft_arena_strdup(p->arena, s->storage[i].name),
                           .bytes  = s->storage[i].bytes,
                           .n_slot = 1};
        if (!is_work(k, i)) {
            plan_apart(k, i, f, end);
        } else if (k->store[i].first < 0) {
            f->slab  = WEFT_PARTITION__WORK;
            f->bytes = 0; /* shares another storage, or nobody uses it */
        } else {
            WEFT_TRY(plan_work(k, i, f, &b[n_block]));
            of[n_block++] = i;
        }
    }
    WEFT_TRY(weft_partition__pack(b, n_block, k->tmp, &end[WEFT_PARTITION__WORK]));
    for (int x = 0; x < n_block; x++) p->buffer[of[x]].offset = b[x].offset;
    plan_shares(k, end);
    weft_partition__slabs(p, end);
    return weft_arena_status(p->arena);
}
