/* Rows that depend on their neighbours.
 *
 * seams    What is fused, or made again, across the border of two layers comes out otherwise
 *          where a stage ends there.  The short model is cut into two stages at each border, and
 *          their programs' passes are compared with their rows.
 * growth   A sum over as many terms as a run has layers (gradients of a table that all of them
 *          use) takes longer in a deeper model. A model of a layer more tells by how much.
 *
 * Both are looked for once for each recomputation, on one device; where there is nothing, other
 * variants have nothing either. */
#include <math.h>
#include <string.h>

#include "cost/cost.h"
#include "planner/rows_priv.h"

typedef weft_planner__pricer pricer;

static double *seam_part(weft_cost_seam *s, int k)
{
    double *part[] = {&s->fwd_s, &s->bwd_s, &s->weight_s, &s->comm_s};
    return part[k];
}

/* ---- programs of two stages ---- */

static bool is_fired(const weft_program *p, int actor)
{
    int s = (int)p->actor[actor].stream;
    for (int i = 0; i < p->stream[s].n_firing; i++)
        if (p->stream[s].firing[i].actor == actor && p->stream[s].firing[i].micro >= 0)
            return true;
    return false;
}

/* A micro-batch, priced as rows are. */
static weft_status add_up(const pricer *z, const weft_program *p, weft_cost_seam *out)
{
    *out = (weft_cost_seam){0};
    for (int a = 0; a < p->n_actor; a++) {
        const weft_actor *x = &p->actor[a];
        if (p->stream[x->stream].kind != WEFT_STREAM_COMPUTE || !is_fired(p, a)) continue;
        bool back = strstr(x->name, "backward"), weight = strstr(x->name, "weight");
        for (int k = 0; k < x->n_instr; k++) {
            const weft_instr *i = &x->instr[k];
            double            t;
            if (i->kind == WEFT_INSTR_READ) continue; /* the host's */
            WEFT_TRY(weft_cost_instr(&z->p, i, z->x->c, &t));
            *(back ? &out->bwd_s : &out->fwd_s) += t;
            if (weight) out->weight_s += t;
            if (i->kind == WEFT_INSTR_COLLECTIVE) out->comm_s += t;
        }
    }
    return WEFT_OK;
}

/* What the first of two stages keeps, and its messages: all that has a slot for each of two
 * micro-batches. */
static double slot_bytes(const weft_program *p)
{
    double n = 0;
    for (int i = 0; i < p->n_buffer; i++)
        if (p->slab[p->buffer[i].slab].kind == WEFT_SLAB_WORK && p->buffer[i].n_slot > 1)
            n += (double)p->buffer[i].bytes;
    return n;
}

/* Stage 0 or 1 of the short model, cut before a layer. */
static weft_status stage_of(const pricer *z, int layer, int stage, weft_cost_seam *out)
{
    weft_program          *p   = NULL;
    int                    cut = z->s->node[layer];
    weft_partition_options o   = {
          .n_micro = 2, .n_lane = 1, .pp = 2, .schedule = "zb-h1", .cut = &cut};
    o.rank = stage * (z->sharding ? z->sharding->mesh[0].n_rank : 1);
    WEFT_TRY(weft_partition_program(z->s->t.graph, z->sharding, &o, &p));
    weft_status st  = add_up(z, p, out);
    out->keep_bytes = stage ? 0 : slot_bytes(p);
    weft_program_destroy(p);
    return st;
}

/* Less what the rows [from, end) say; what is but rounding is nothing. */
static void take_off(const pricer *z, int from, int end, weft_cost_seam *x)
{
    weft_cost_seam sum = {0};
    for (int k = from; k < end; k++) {
        sum.fwd_s += z->row[k].fwd_s;
        sum.bwd_s += z->row[k].bwd_s;
        sum.weight_s += z->row[k].of->weight_s;
        sum.comm_s += z->row[k].comm_s;
    }
    for (int k = 0; k < 4; k++) {
        double *a = seam_part(x, k), b = *seam_part(&sum, k);
        *a = fabs(*a - b) <= 1e-13 * fmax(fabs(*a), fabs(b)) ? 0 : *a - b;
    }
}

static bool is_nothing(weft_cost_seam *s)
{
    for (int k = 0; k < 4; k++)
        if (*seam_part(s, k) != 0) return false;
    return true;
}

static weft_status find_seams(pricer *z, bool *any)
{
    *any = false;
    for (int k = 1; k < z->s->n_layer; k++) { /* between rows k and k + 1 */
        weft_cost_program_row *r = z->row[k].of;
        WEFT_TRY(stage_of(z, k, 0, &r->end));
        WEFT_TRY(stage_of(z, k, 1, &r->begin));
        take_off(z, 0, k + 1, &r->end);
        r->end.keep_bytes -= z->row[k].out_bytes + r->back_out_bytes;
        for (int i = 0; i <= k; i++) r->end.keep_bytes -= z->row[i].keep_bytes;
        r->begin.keep_bytes = -r->end.keep_bytes; /* it counts with who wants it */
        take_off(z, k + 1, z->n_stage, &r->begin);
        *any = *any || !is_nothing(&r->end) || !is_nothing(&r->begin);
    }
    return WEFT_OK;
}

/* ---- a layer more ---- */

/* The row of the longer model that stands where row k does: layers of a run are counted from both
 * ends. */
static int longer_row(const weft_planner__rows *x, const weft_planner__short *few,
                      const weft_planner__short *more, int k)
{
    const weft_graph_layers *a = few->t.model->run, *b = more->t.model->run;
    int                      at = 1, there = 1;
    if (k == 0) return 0;
    for (int r = 0; r < x->n_run; at += a[r].count, there += b[r].count, r++)
        if (k < at + a[r].count)
            return k == at + a[r].count - 1 ? there + b[r].count - 1 : there + k - at;
    return more->n_layer + 1;
}

/* The seconds of a model with so many layers more of run r, row by row as those of z are; out:
 * n_stage long. */
static weft_status longer_rows(const pricer *z, int r, int more, weft_cost_row *out)
{
    pricer y = {
        .x = z->x, .v = z->v, .kind = z->kind, .dp = 1, .longer = r + 1, .more = more};
    weft_status st = WEFT_OK;
    WEFT_GO(weft_planner__pricer_open(&y));
    y.row = weft_planner__new_rows(y.a, y.n_stage);
    WEFT_GO(weft_arena_status(y.a));
    WEFT_GO(weft_planner__add_seconds(&y));
    for (int k = 0; k < z->n_stage; k++)
        weft_planner__copy_row(&out[k], &y.row[longer_row(z->x, z->s, y.s, k)]);
out:
    weft_planner__pricer_close(&y);
    return st;
}

static bool grows(const weft_cost_row *a, const weft_cost_row *b)
{
    double more = fabs(b->bwd_s - a->bwd_s) + fabs(b->fwd_s - a->fwd_s);
    return more > 1e-13 * (a->bwd_s + a->fwd_s);
}

static void add_growth(const weft_cost_row *a, const weft_cost_row *b, int n,
                       weft_cost_row *to)
{
    if (!grows(a, b)) return;
    to->fwd_s += n * (b->fwd_s - a->fwd_s);
    to->bwd_s += n * (b->bwd_s - a->bwd_s);
    to->comm_s += n * (b->comm_s - a->comm_s);
    to->of->weight_s += n * (b->of->weight_s - a->of->weight_s);
}

/* What a layer more of run r changes, and a second one: the first may still be fused with what is
 * there, all further ones are
 * like the second.  more: rows, n_stage long. */
static weft_status grow_by(pricer *z, int r, weft_cost_row *more)
{
    int n = z->n_stage, left = z->x->run[r].count - z->s->t.model->run[r].count;
    weft_cost_row *one = weft_planner__new_rows(z->a, n);
    weft_cost_row *two = weft_planner__new_rows(z->a, n);
    bool           any = false;
    WEFT_TRY(weft_arena_status(z->a));
    if (left < 1) return WEFT_OK;
    WEFT_TRY(longer_rows(z, r, 1, one));
    for (int k = 0; k < n; k++) {
        any = any || grows(&z->row[k], &one[k]);
        add_growth(&z->row[k], &one[k], 1, &more[k]);
    }
    if (!any || left < 2) return WEFT_OK;
    WEFT_TRY(longer_rows(z, r, 2, two));
    for (int k = 0; k < n; k++) add_growth(&one[k], &two[k], left - 1, &more[k]);
    return WEFT_OK;
}

static weft_status find_growth(pricer *z, bool *any)
{
    weft_cost_row *more = weft_planner__new_rows(z->a, z->n_stage);
    *any                = false;
    WEFT_TRY(weft_arena_status(z->a));
    for (int r = 0; r < z->x->n_run && !z->x->each; r++) WEFT_TRY(grow_by(z, r, more));
    for (int k = 0; k < z->n_stage; k++) {
        *any = *any || more[k].fwd_s != 0 || more[k].bwd_s != 0;
        z->row[k].fwd_s += more[k].fwd_s;
        z->row[k].bwd_s += more[k].bwd_s;
        z->row[k].comm_s += more[k].comm_s;
        z->row[k].of->weight_s += more[k].of->weight_s;
    }
    return WEFT_OK;
}

/* ---- the calls ---- */

static weft_status look(weft_planner__rows *x, weft_cost_recompute again)
{
    weft_cost_variant v = {
        .tp = 1, .cp = 1, .ep = 1, .micro_batch = 1, .recompute = again};
    pricer      z  = {.x = x, .v = &v, .dp = 1};
    weft_status st = WEFT_OK;
    if (x->looked[again]) return WEFT_OK;
    x->looked[again] = true;
    WEFT_GO(weft_planner__pricer_open(&z));
    z.row = weft_planner__new_rows(z.a, z.n_stage);
    WEFT_GO(weft_arena_status(z.a));
    WEFT_GO(weft_planner__add_seconds(&z));
    WEFT_GO(find_seams(&z, &x->seams[again]));
    WEFT_GO(find_growth(&z, &x->grows[again]));
out:
    weft_planner__pricer_close(&z);
    return st;
}

enum {
    /* of more, all unlike or none folded, stages of one each are not made to compare */
    LAYERS = 64
};

weft_status weft_planner__add_seams(pricer *z)
{
    bool any;
    if (z->x->n_short > LAYERS) return WEFT_OK;
    WEFT_TRY(look(z->x, z->v->recompute));
    if (!z->x->seams[z->v->recompute] || find_seams(z, &any) == WEFT_OK) return WEFT_OK;
    for (int k = 0; k < z->n_stage;
         k++) /* no stages under this cut: nothing to compare */
        z->row[k].of->begin = z->row[k].of->end = (weft_cost_seam){0};
    return WEFT_OK;
}

weft_status weft_planner__add_growth(pricer *z)
{
    bool any;
    return z->x->grows[z->v->recompute] ? find_growth(z, &any) : WEFT_OK;
}
