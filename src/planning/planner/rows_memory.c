/* Bytes of the layers of a short model, by what each storage is for and how long it lives.
 *
 * What is kept for the backward pass counts with the layer that wants it there: where stages are
 * cut before that layer, the value comes as a message and is kept behind the cut. */
#include <math.h>

#include "cost/cost.h"
#include "planner/rows_priv.h"

typedef weft_planner__pricer pricer;

/* Who uses a storage, of instructions: first and last piece, the layer that keeps it. */
typedef struct use {
    int layer; /* the last of those that read it in the backward pass; else who makes it */
    int  maker;
    bool kept;        /* from forward to backward */
    bool weight;      /* wanted by what only gives sums */
    bool back;        /* made in the backward pass, wanted by what only gives sums */
    bool first, head; /* layers at both ends use it */
} use;

static bool is_weight(const pricer *z, int i)
{
    int n = z->seg->node[i];
    return n >= 0 && z->weight[n];
}

static void look_at(const pricer *z, int i, int buffer, use *u)
{
    const weft_segment *s = z->seg;
    int                 k = weft_planner__layer_of(z, i);
    if (buffer < 0) return;
    u = &u[buffer];
    if (u->maker < 0) u->maker = k;
    if (k == 0) u->first = true;
    if (k == z->n_stage - 1) u->head = true;
    if (i < s->phase_end[0]) {
        u->kept = true; /* if it is used later on */
    } else if (i < s->phase_end[1]) {
        if (k > u->layer) u->layer = k;
        if (is_weight(z, i)) {
            u->weight = u->kept;
            u->back   = !u->kept && u->back;
        } else if (!u->kept) {
            u->back = true;
        }
    }
}

static weft_status find_uses(const pricer *z, use **out)
{
    const weft_segment *s         = z->seg;
    use                *u         = WEFT_ARENA_ARRAY(z->a, use, s->n_storage + 1);
    bool               *made_back = WEFT_ARENA_ARRAY(z->a, bool, s->n_storage + 1);
    WEFT_TRY(weft_arena_status(z->a));
    for (int i = 0; i < s->n_storage; i++) u[i] = (use){.layer = -1, .maker = -1};
    for (int i = 0; i < s->n_instr; i++) {
        const weft_instr *q = &s->instr[i];
        for (int k = 0; k < q->n_in; k++) look_at(z, i, q->in[k].buffer, u);
        for (int k = 0; k < q->n_out; k++) look_at(z, i, q->out[k].buffer, u);
    }
    /* made by what the stage before waits for, read by the rest of the backward pass */
    for (int i = s->phase_end[0]; i < s->phase_end[1]; i++) {
        const weft_instr *q = &s->instr[i];
        for (int k = 0; k < q->n_out && !is_weight(z, i); k++)
            if (q->out[k].buffer >= 0) made_back[q->out[k].buffer] = true;
    }
    for (int i = 0; i < s->n_storage; i++) {
        u[i].kept = u[i].kept && u[i].layer >= 0;
        u[i].back = false;
        if (u[i].layer < 0) u[i].layer = u[i].maker;
    }
    for (int i = s->phase_end[0]; i < s->phase_end[1]; i++) {
        const weft_instr *q = &s->instr[i];
        for (int k = 0; k < q->n_in && is_weight(z, i); k++) {
            int b = q->in[k].buffer;
            if (b >= 0 && !u[b].kept && made_back[b]) u[b].back = true;
        }
    }
    *out = u;
    return WEFT_OK;
}

/* Bytes alive at each instruction; which: whose. */
typedef bool weft_planner__pick(const use *u);

static bool is_any(const use *u)
{
    return u->maker >= 0;
}

static bool is_passing(const use *u)
{
    return !u->kept;
}

static bool is_within(const use *u)
{
    return !u->kept && !u->back;
}

static weft_status find_live(const pricer *z, const use *u, weft_planner__pick *pick,
                             double **out)
{
    const weft_segment *s    = z->seg;
    double             *live = WEFT_ARENA_ARRAY(z->a, double, s->n_instr + 2);
    WEFT_TRY(weft_arena_status(z->a));
    for (int i = 0; i < s->n_storage; i++) {
        const weft_storage *t = &s->storage[i];
        if (t->kind != WEFT_STORE_WORK || t->first < 0 || !pick(&u[i])) continue;
        live[t->first] += (double)t->bytes;
        live[t->last + 1] -= (double)t->bytes;
    }
    for (int i = 1; i <= s->n_instr; i++) live[i] += live[i - 1];
    *out = live;
    return WEFT_OK;
}

static void add_kept(const pricer *z, const use *u)
{
    const weft_segment *s = z->seg;
    for (int i = 0; i < s->n_storage; i++) {
        const weft_storage *t = &s->storage[i];
        if (u[i].maker < 0) continue;
        weft_cost_row *r = &z->row[u[i].layer], *q = &z->row[u[i].maker];
        if (t->kind == WEFT_STORE_INPUT) {
            q->of->read_bytes += (double)t->bytes;
            if (u[i].kept) q->of->read_keep_bytes += (double)t->bytes;
        }
        if (t->first < 0) continue;
        if (t->kind == WEFT_STORE_ACCUM) {
            q->of->sum_bytes += (double)t->bytes;
            q->of->grad_bytes = fmax(q->of->grad_bytes, (double)t->bytes);
        }
        if (t->kind != WEFT_STORE_WORK || t->first >= s->phase_end[1]) continue;
        if (u[i].kept) r->keep_bytes += (double)t->bytes;
        if (u[i].kept && u[i].weight) r->of->weight_bytes += (double)t->bytes;
        if (u[i].back) r->of->back_bytes += (double)t->bytes;
    }
}

weft_status weft_planner__add_memory(pricer *z)
{
    const weft_segment *s = z->seg;
    use                *u;
    double             *all, *passing, *within;
    double             *before = WEFT_ARENA_ARRAY(z->a, double, z->n_stage + 1);
    WEFT_TRY(weft_arena_status(z->a));
    WEFT_TRY(find_uses(z, &u));
    WEFT_TRY(find_live(z, u, is_any, &all));
    WEFT_TRY(find_live(z, u, is_passing, &passing));
    WEFT_TRY(find_live(z, u, is_within, &within));
    add_kept(z, u);
    for (int k = 0; k < z->n_stage; k++) before[k + 1] = before[k] + z->row[k].keep_bytes;
    for (int i = 0; i < s->phase_end[1]; i++) {
        int                    k = weft_planner__layer_of(z, i);
        weft_cost_row         *r = &z->row[k];
        weft_cost_program_row *o = r->of;
        o->peak_bytes            = fmax(o->peak_bytes, all[i] - before[k]);
        r->work_bytes            = fmax(r->work_bytes, passing[i]);
        o->split_bytes           = fmax(o->split_bytes, within[i]);
    }
    return WEFT_OK;
}

/* The update's own at its fullest, by who makes it. */
static void add_update(const pricer *z, const use *u, const double *live,
                       weft_planner__facts *of)
{
    const weft_segment *s  = z->seg;
    int                 at = s->phase_end[1];
    for (int i = at; i < s->n_instr; i++)
        if (live[i] > live[at]) at = i;
    for (int i = 0; i < s->n_storage; i++) {
        const weft_storage *t = &s->storage[i];
        if (t->kind == WEFT_STORE_WORK && t->first >= s->phase_end[1] && t->first <= at &&
            t->last >= at)
            of[u[i].maker].update += (double)t->bytes;
    }
}

static int buffer_of(const weft_instr *q, int k)
{
    return k < q->n_in ? q->in[k].buffer : q->out[k - q->n_in].buffer;
}

/* What is updated with a parameter that both ends use is at both ends too; backwards, since its
 * half-precision copy, which is what they use, is made last. */
static void tie_states(const weft_segment *s, use *u)
{
    for (int i = s->n_instr - 1; i >= s->phase_end[1]; i--) {
        const weft_instr *q    = &s->instr[i];
        bool              tied = false;
        for (int k = 0; k < q->n_in + q->n_out; k++) {
            int b = buffer_of(q, k);
            if (b >= 0 && s->storage[b].kind == WEFT_STORE_STATE)
                tied = tied || (u[b].first && u[b].head);
        }
        for (int k = 0; k < q->n_in + q->n_out && tied; k++) {
            int b = buffer_of(q, k);
            if (b >= 0) u[b].first = u[b].head = true;
        }
    }
}

/* States that only updates use: with offload they are in the host's memory. */
static weft_status find_moved(const pricer *z, bool **out)
{
    const weft_segment *s     = z->seg;
    bool               *moved = WEFT_ARENA_ARRAY(z->a, bool, s->n_storage + 1);
    WEFT_TRY(weft_arena_status(z->a));
    for (int i = 0; z->x->s.offload && i < s->n_instr; i++)
        for (int k = 0; weft_offload_is_update(&s->instr[i]) && k < s->instr[i].n_own_out;
             k++)
            if (s->instr[i].out[k].buffer >= 0) moved[s->instr[i].out[k].buffer] = true;
    for (int i = 0; i < s->n_instr; i++) {
        const weft_instr *q    = &s->instr[i];
        bool              cast = q->kind == WEFT_INSTR_COMPUTE && q->op == WEFT_OP_CAST &&
                    i >= s->phase_end[1];
        for (int k = 0; k < q->n_in + q->n_out && !weft_offload_is_update(q) && !cast;
             k++)
            if (buffer_of(q, k) >= 0) moved[buffer_of(q, k)] = false;
    }
    *out = moved;
    return WEFT_OK;
}

weft_status weft_planner__find_states(pricer *z, weft_planner__facts *of)
{
    const weft_segment *s = z->seg;
    use                *u;
    bool               *moved;
    double             *all;
    double             *before = WEFT_ARENA_ARRAY(z->a, double, z->n_stage + 1);
    double             *keep   = WEFT_ARENA_ARRAY(z->a, double, z->n_stage + 1);
    WEFT_TRY(weft_arena_status(z->a));
    WEFT_TRY(find_uses(z, &u));
    WEFT_TRY(find_live(z, u, is_any, &all));
    tie_states(s, u);
    WEFT_TRY(find_moved(z, &moved));
    for (int i = 0; i < s->n_storage; i++) {
        const weft_storage *t = &s->storage[i];
        if (u[i].maker < 0) continue;
        if (t->kind == WEFT_STORE_STATE && !moved[i]) {
            of[u[i].maker].state += (double)t->bytes;
            if (u[i].first && u[i].head) of[z->n_stage - 1].tied += (double)t->bytes;
        }
        if (t->kind == WEFT_STORE_WORK && t->first >= 0 && u[i].kept)
            keep[u[i].layer] += (double)t->bytes;
    }
    for (int k = 0; k < z->n_stage; k++) before[k + 1] = before[k] + keep[k];
    for (int i = 0; i < s->phase_end[1]; i++) {
        int k      = weft_planner__layer_of(z, i);
        of[k].peak = fmax(of[k].peak, all[i] - before[k]);
    }
    add_update(z, u, all, of);
    return WEFT_OK;
}

weft_status weft_planner__add_merges(pricer *z)
{
    const weft_segment *s = z->seg;
    for (int i = 0; i < s->n_storage; i++) {
        const weft_storage *t = &s->storage[i];
        if (t->kind != WEFT_STORE_ACCUM || t->first < 0) continue;
        weft_operand o = weft_operand_make(0, WEFT_DTYPE_F32,
                                           &(weft_shape){.n = 1, .d = {t->bytes / 4}});
        weft_instr   m = {.kind    = WEFT_INSTR_MERGE,
                          .n_in    = 1,
                          .in      = &o,
                          .n_out   = 1,
                          .out     = &o,
                          .seconds = -1};
        double       x;
        WEFT_TRY(weft_cost_instr(&z->p, &m, z->x->c, &x));
        z->row[weft_planner__layer_of(z, t->first)].of->merge_s += x;
    }
    return WEFT_OK;
}
