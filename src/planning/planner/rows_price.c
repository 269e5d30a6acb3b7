/* The rows of a short model under one variant: its step is made as for a run, and every
 * instruction's price goes to the layer whose node it was written for. */
#include <math.h>
#include <string.h>

#include "cost/cost.h"
#include "partition/stages.h"
#include "planner/rows_priv.h"
#include "program/work.h"

/* ---- graphs ---- */

weft_status weft_planner__short_of(weft_planner__rows *x, int longer, int more,
                                   int micro_batch, weft_cost_recompute r,
                                   weft_planner__short **out)
{
    for (*out = x->shorts; *out; *out = (*out)->next)
        if ((*out)->layers == x->s.layers && (*out)->longer == longer &&
            (*out)->more == more && (*out)->micro_batch == micro_batch &&
            (*out)->recompute == r)
            return WEFT_OK;
    weft_planner__short *s = WEFT_ARENA_NEW(x->a, weft_planner__short);
    weft_compile_spec    o = x->s;
    if (!s) return weft_arena_status(x->a);
    o.micro_batch = o.batch = micro_batch;
    o.recompute             = weft_search_recompute(r);
    o.layers = s->layers = x->s.layers;
    o.longer = s->longer = longer;
    o.more = s->more = more;
    o.lanes          = 1;
    s->micro_batch   = micro_batch;
    s->recompute     = r;
    WEFT_TRY(weft_arena_create(&s->a));
    weft_status st = weft_compile_training(&o, &s->t);
    if (st == WEFT_OK) st = weft_compile_layers(&s->t, s->a, &s->n_layer, &s->node);
    if (st != WEFT_OK) {
        weft_training_fini(&s->t);
        weft_arena_destroy(s->a);
        return st;
    }
    s->next   = x->shorts;
    x->shorts = s;
    *out      = s;
    return WEFT_OK;
}

/* Sequences of a micro-batch, all ranks along ep together. */
static int count_sequences(const weft_planner__rows *x, const weft_cost_variant *v)
{
    return x->s.micro_batch > 0 ? v->micro_batch : v->micro_batch * v->ep;
}

weft_status weft_planner__expand(const weft_planner__rows *x, const weft_cost_variant *v,
                                 int dp, int zero, const weft_planner__short *s,
                                 weft_arena *a, weft_shard_options *out)
{
    weft_strategy     y      = weft_search_sizes(dp > 1 ? dp : 0, v);
    weft_shard_layers layers = {s->n_layer, s->node};
    y.sp                     = v->sp && v->tp > 1;
    y.zero                   = zero;
    if (v->whole) weft_planner__whole_spans(x, x->whole[v->whole], s->t.model->run, &y);
    WEFT_TRY(weft_shard_expand(&y, s->t.graph, &layers, 0, a, out));
    if (dp > 1) out->lanes = 1u; /* the first axis */
    return WEFT_OK;
}

/* ---- one variant ---- */

typedef weft_planner__pricer pricer;

static weft_status cut_values(pricer *z)
{
    weft_shard_options o;
    weft_spmd_options  o_spmd = {0};
    if (z->v->tp * z->v->cp * z->v->ep * z->dp == 1) {
        z->g = z->s->t.graph;
        return WEFT_OK;
    }
    WEFT_TRY(weft_planner__expand(z->x, z->v, z->dp, z->zero, z->s, z->a, &o));
    WEFT_TRY(weft_shard_propagate(z->s->t.graph, &o, &z->sharding));
    WEFT_TRY(weft_spmd_rewrite(z->s->t.graph, z->sharding, &o_spmd, &z->local));
    z->g = z->local->graph;
    return WEFT_OK;
}

/* As pipelines assign nodes, a stage for each layer (partition/stages.h).  late: what comes after
 * an exchange between the ranks of a pipeline. */
static weft_status assign_layers(pricer *z)
{
    int            n = z->s->n_layer, *cut = WEFT_ARENA_ARRAY(z->a, int, n + 2);
    weft_stage_map map;
    z->n_stage = n + 2;
    z->stage   = WEFT_ARENA_ARRAY(z->a, int, z->g->n_node + 1);
    z->late    = WEFT_ARENA_ARRAY(z->a, bool, z->g->n_node + 1);
    z->own     = WEFT_ARENA_ARRAY(z->a, bool, z->g->n_node + 1);
    WEFT_TRY(weft_arena_status(z->a));
    memcpy(cut, z->s->node, sizeof *cut * (size_t)(n + 1));
    if (z->local) weft_spmd_map_cuts(z->local, n + 1, cut);
    WEFT_TRY(weft_stage_map_make(z->g, z->n_stage, z->n_stage, cut, 0, z->a, &map));
    WEFT_TRY(weft_stage_map_homes(&map, z->stage, z->own));
    z->weight = map.weight;
    for (int i = 0; i < z->g->n_node; i++) z->late[i] = map.level[i] > 0;
    return WEFT_OK;
}

/* The job's ranks as far as prices ask for them. */
static weft_status make_groups(pricer *z)
{
    const weft_local_graph *l    = z->local;
    int                     rank = z->x->kind[z->kind].rank;
    z->p                         = (weft_program){.rank = rank, .world = z->x->world};
    if (!l) return WEFT_OK;
    const weft_mesh *m = &z->sharding->mesh[0];
    z->p.n_group       = l->n_group;
    z->p.group         = WEFT_ARENA_ARRAY(z->a, weft_group, l->n_group + 1);
    WEFT_TRY(weft_arena_status(z->a));
    for (int i = 0; i < l->n_group; i++) {
        weft_group *g = &z->p.group[i];
        g->rank       = WEFT_ARENA_ARRAY(z->a, int32_t, m->n_rank);
        WEFT_TRY(weft_arena_status(z->a));
        g->n_rank = weft_mesh_group(m, l->group_axes[i], 0, g->rank);
        for (int k = 0; k < g->n_rank; k++) g->rank[k] += rank;
    }
    return WEFT_OK;
}

weft_status weft_planner__pricer_open(pricer *z)
{
    WEFT_TRY(weft_arena_create(&z->a));
    WEFT_TRY(weft_planner__short_of(z->x, z->longer, z->more, count_sequences(z->x, z->v),
                                    z->v->recompute, &z->s));
    WEFT_TRY(cut_values(z));
    WEFT_TRY(assign_layers(z));
    WEFT_TRY(make_groups(z));
    return weft_lower(z->g, NULL, &z->seg);
}

void weft_planner__pricer_close(pricer *z)
{
    weft_segment_destroy(z->seg);
    weft_local_graph_destroy(z->local);
    weft_sharding_destroy(z->sharding);
    weft_arena_destroy(z->a);
}

/* ---- sums ---- */

int weft_planner__layer_of(const pricer *z, int instr)
{
    int node = z->seg->node[instr];
    int at   = node < 0 ? -1 : z->stage[node];
    return at < 0 ? z->n_stage - 1 : at;
}

static weft_cost_row *row_of(const pricer *z, int instr)
{
    return &z->row[weft_planner__layer_of(z, instr)];
}

/* Whom a collective is for: the innermost of the axes that its group spans. */
static weft_cost_axis axis_of(const pricer *z, int group)
{
    const weft_mesh *m  = &z->sharding->mesh[0];
    int              tp = weft_mesh_find(m, "tp"), cp = weft_mesh_find(m, "cp");
    if (tp >= 0 && z->local->group_axes[group] >> tp & 1) return WEFT_COST_TP;
    return cp >= 0 && z->local->group_axes[group] >> cp & 1 ? WEFT_COST_CP : WEFT_COST_EP;
}

static void add_wire(const pricer *z, const weft_instr *i, weft_cost_row *r)
{
    if (i->kind != WEFT_INSTR_COLLECTIVE || !z->local || !i->n_in) return;
    double n = weft_instr_bytes(i);
    r->wire_bytes[axis_of(z, i->group)] +=
        weft_cost_group_sent(z->p.group[i->group].n_rank, i->coll, n);
}

/* Seconds of an instruction; of an update where it will run. */
static weft_status price_instr(const pricer *z, int i, double *t)
{
    const weft_segment *s = z->seg;
    if (z->x->s.offload && weft_offload_is_update(&s->instr[i]))
        return weft_cost_update_on_host(&z->p, &s->instr[i], z->x->c, t);
    return weft_cost_instr(&z->p, &s->instr[i], z->x->c, t);
}

weft_status weft_planner__add_seconds(pricer *z)
{
    const weft_segment *s = z->seg;
    for (int i = 0; i < s->n_instr; i++) {
        weft_cost_row *r = row_of(z, i);
        int            n = s->node[i];
        double         t;
        WEFT_TRY(price_instr(z, i, &t));
        if (i >= s->phase_end[1]) {
            if (n >= 0 && z->late[n] && !z->own[n]) r->of->meet_s += t;
            continue;
        }
        if (i < s->phase_end[0])
            r->fwd_s += t;
        else
            r->bwd_s += t;
        if (i >= s->phase_end[0] && s->node[i] >= 0 && z->weight[s->node[i]])
            r->of->weight_s += t;
        if (s->instr[i].kind == WEFT_INSTR_COLLECTIVE) r->comm_s += t;
        add_wire(z, &s->instr[i], r);
    }
    return WEFT_OK;
}

/* Whom besides replicas a collective takes; N_OVER: it is none over replicas. */
weft_cost_over weft_planner__over(const pricer *z, const weft_instr *i)
{
    if (i->kind != WEFT_INSTR_COLLECTIVE || !z->local || z->dp < 2)
        return WEFT_COST_N_OVER;
    const weft_mesh *m    = &z->sharding->mesh[0];
    uint32_t         axes = z->local->group_axes[i->group];
    int              tp   = weft_mesh_find(m, "tp");
    if (!(axes & 1u)) return WEFT_COST_N_OVER; /* replicas are the first axis */
    if (axes == 1u) return WEFT_COST_OVER_DP;
    return tp >= 0 && axes >> tp & 1 ? WEFT_COST_OVER_ALL : WEFT_COST_OVER_CP;
}

double weft_planner__call_bytes(const pricer *z, const weft_instr *c)
{
    const weft_group *g = &z->p.group[c->group];
    return c->coll == WEFT_ALL_GATHER ? weft_instr_given(c, g) * g->n_rank
                                      : weft_instr_bytes(c);
}

/* How many there are is counted in rows_meet.c, but for those of every micro-batch that are not
 * put in buckets. */
static void add_call(const pricer *z, int i, weft_cost_over over, weft_cost_sharing *to)
{
    const weft_segment *s = z->seg;
    const weft_instr   *c = &s->instr[i];
    weft_cost_calls    *k = &to->sum[over];
    if (c->coll == WEFT_REDUCE_SCATTER) k = &to->scatter[over];
    bool late = s->node[i] >= 0 && z->late[s->node[i]];
    if (c->coll == WEFT_ALL_GATHER) k = late ? &to->gather[over] : &to->tell[over];
    if (i < s->phase_end[1]) k = &to->fetch[i >= s->phase_end[0]];
    if (i < s->phase_end[1]) k->n++;
    if (i < s->phase_end[1] && z->x->bucket_bytes <= 0) k->once++;
    k->bytes += weft_planner__call_bytes(z, c);
}

/* What is fetched in every micro-batch, by the times of its links; more replicas may be looked at
 * than there are devices. */
static weft_status add_timed(const pricer *z, int i, weft_cost_sharing *to)
{
    const weft_segment *s = z->seg;
    const weft_group   *g = &z->p.group[s->instr[i].group];
    double              t;
    if (!z->x->c->n_timing || i >= s->phase_end[1] ||
        g->rank[g->n_rank - 1] >= z->x->world)
        return WEFT_OK;
    WEFT_TRY(weft_cost_instr(&z->p, &s->instr[i], z->x->c, &t));
    to->fetch_s[i >= s->phase_end[0]] += t;
    return WEFT_OK;
}

/* Collectives of the update meet with earlier ones of their kind: *t is then what their bytes
 * alone take. */
static weft_status meets_earlier(const pricer *z, int i, double *t)
{
    const weft_segment *s    = z->seg;
    weft_instr          none = s->instr[i];
    weft_operand        in = none.in[0], out = none.out[0];
    double              wait;
    for (int k = s->phase_end[1]; k < i; k++) {
        if (!weft_instr_can_join(&s->instr[k], &s->instr[i])) continue;
        in.type.shape = out.type.shape = (weft_shape){.n = 1};
        none.in = &in, none.out = &out;
        WEFT_TRY(weft_cost_instr(&z->p, &none, z->x->c, &wait));
        *t = fmax(*t - wait, 0);
        return WEFT_OK;
    }
    return WEFT_OK;
}

weft_status weft_planner__find_facts(pricer *z, weft_planner__facts *of)
{
    const weft_segment *s = z->seg;
    for (int i = 0; i < s->n_instr; i++) {
        weft_planner__facts *f    = &of[weft_planner__layer_of(z, i)];
        weft_cost_over       over = weft_planner__over(z, &s->instr[i]);
        bool                 late = s->node[i] < 0 || z->late[s->node[i]];
        double               t;
        if (over != WEFT_COST_N_OVER) {
            add_call(z, i, over, &f->calls);
            WEFT_TRY(add_timed(z, i, &f->calls));
            continue;
        }
        WEFT_TRY(price_instr(z, i, &t));
        if (i >= s->phase_end[1] && s->instr[i].kind == WEFT_INSTR_COLLECTIVE)
            WEFT_TRY(meets_earlier(z, i, &t));
        if (i < s->phase_end[1])
            *(i < s->phase_end[0] ? &f->fwd_s : &f->bwd_s) += t;
        else
            *(late ? &f->after_s : &f->before_s) += t;
    }
    WEFT_TRY(weft_planner__add_meetings(z, of));
    return weft_planner__find_states(z, of);
}

static bool is_cut_by(const pricer *z, weft_vid v, const char *axis)
{
    if (!z->sharding) return false;
    int a = weft_mesh_find(&z->sharding->mesh[0], axis);
    return a >= 0 && weft_layout_find(&z->sharding->value[v], a) != NULL;
}

/* Which stages use a leaf in a micro-batch: [*first, *last]. */
typedef struct span {
    int first, last;
} span;

static void widen(span *x, const span *y)
{
    if (y->first < x->first) x->first = y->first;
    if (y->last > x->last) x->last = y->last;
}

/* Parameters count where they are used first, tied ones in the head too. */
static weft_status add_params(pricer *z)
{
    const weft_graph *g   = z->s->t.graph;
    span             *use = WEFT_ARENA_ARRAY(z->a, span, z->g->n_value + 1);
    WEFT_TRY(weft_arena_status(z->a));
    for (weft_vid v = 0; v < z->g->n_value; v++) use[v] = (span){z->n_stage, -1};
    for (int i = 0; i < z->g->n_node; i++)
        for (int k = 0; k < z->g->node[i].n_in && z->stage[i] >= 0; k++)
            if (z->g->node[i].phase != WEFT_PHASE_UPDATE)
                widen(&use[z->g->node[i].in[k]], &(span){z->stage[i], z->stage[i]});
    for (weft_vid v = 0; v < g->n_value; v++) {
        if (g->value[v].kind != WEFT_VALUE_PARAM) continue;
        weft_vid local = z->local ? z->local->value[v] : v;
        double   n     = (double)weft_shape_count(&z->g->value[local].type.shape);
        weft_vid copy  = weft_graph_find_copy(z->g, local);
        span     u     = use[local];
        if (copy >= 0) widen(&u, &use[copy]);
        if (u.last < 0) continue;
        weft_cost_row *r = &z->row[u.first];
        *(is_cut_by(z, v, "ep") ? &r->n_expert_param : &r->n_param) += n;
        if (u.first > 0 || u.last < z->n_stage - 1) continue;
        z->x->tied = true;
        z->row[u.last].n_param += n;
        z->row[u.last].of->tied_bytes += 4 * n; /* sums are f32 */
    }
    return WEFT_OK;
}

static double value_bytes(const weft_graph *g, weft_vid v)
{
    const weft_type *t = &g->value[v].type;
    return (double)weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
}

/* Bytes that pass from one layer to later ones, and back.  far[v]: the furthest layer that uses
 * v, through views too. */
static weft_status add_crossing(pricer *z)
{
    const weft_graph *g = z->g;
    int n = weft_graph_n_forward(g), *far = WEFT_ARENA_ARRAY(z->a, int, g->n_value + 1);
    WEFT_TRY(weft_arena_status(z->a));
    for (weft_vid v = 0; v < g->n_value; v++)
        far[v] = g->value[v].node < n ? -1 : z->n_stage;
    for (int i = g->n_node - 1; i >= 0; i--) {
        const weft_graph_node *q       = &g->node[i];
        bool                   view    = weft_op_get(q->op)->flags & WEFT_OP_VIEW;
        bool                   forward = q->phase == WEFT_PHASE_FORWARD;
        if (q->phase == WEFT_PHASE_UPDATE) continue;
        for (int j = 0; j < q->n_out && !view && z->stage[i] >= 0; j++) {
            weft_vid v = q->out[j];
            for (int k = z->stage[i]; forward && k < far[v]; k++)
                z->row[k].out_bytes += value_bytes(g, v);
            for (int k = far[v]; !forward && k < z->stage[i]; k++)
                z->row[k].of->back_out_bytes += value_bytes(g, v);
        }
        int at = view ? far[q->out[0]] : z->stage[i];
        for (int k = 0; k < q->n_in && at >= 0; k++) {
            int *x = &far[q->in[k]], made = g->value[q->in[k]].node;
            bool back = made >= n;
            if (made >= 0 && back != !forward) continue; /* kept where it is wanted */
            if (back ? at < *x : at > *x) *x = at;
        }
    }
    return WEFT_OK;
}

/* Sums that go to all ranks of a pipeline. */
static void add_meeting(pricer *z)
{
    const weft_graph *g = z->g;
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in && z->late[i]; k++) {
            int m = g->value[g->node[i].in[k]].node;
            if (m < 0 || g->node[m].phase != WEFT_PHASE_UPDATE || z->late[m]) continue;
            if (z->stage[m] >= 0 && !z->own[i]) z->row[z->stage[m]].of->n_met++;
        }
}

static weft_status price(pricer *z)
{
    weft_planner__facts *f = WEFT_ARENA_ARRAY(z->a, weft_planner__facts, z->n_stage);
    WEFT_TRY(weft_arena_status(z->a));
    WEFT_TRY(weft_planner__add_seconds(z));
    WEFT_TRY(weft_planner__add_memory(z));
    WEFT_TRY(weft_planner__add_merges(z));
    WEFT_TRY(weft_planner__find_facts(z, f));
    for (int k = 0; k < z->n_stage; k++) {
        weft_cost_sharing *to = &z->row[k].of->share[WEFT_COST_ALONE];
        to->before_s.once     = f[k].before_s;
        to->after_s.once      = f[k].after_s;
        to->state.once        = f[k].state;
        to->tied.once         = f[k].tied;
        to->update.once       = f[k].update;
    }
    add_meeting(z);
    WEFT_TRY(add_params(z));
    return add_crossing(z);
}

weft_status weft_planner__price(weft_planner__rows *x, const weft_cost_variant *v, int k,
                                weft_cost_row *row)
{
    pricer      z  = {.x = x, .v = v, .kind = k, .dp = 1, .row = row};
    weft_status st = WEFT_OK;
    WEFT_GO(weft_planner__pricer_open(&z));
    WEFT_GO(price(&z));
    WEFT_GO(weft_planner__add_seams(&z));
    WEFT_GO(weft_planner__add_growth(&z));
    for (int i = 0; i < x->n_short + 2; i++)
        row[i].of->share[WEFT_COST_WHOLE].sum[WEFT_COST_OVER_DP].n =
            weft_planner__whole_calls(&z, i);
out:
    weft_planner__pricer_close(&z);
    return st;
}

/* Whole values on every rank: an actor of its own sums each accumulator. */
static void sum_whole(const weft_cost_program_row *alone, double calls,
                      weft_cost_sharing *out)
{
    *out                              = alone->share[WEFT_COST_ALONE];
    out->sum[WEFT_COST_OVER_DP].n     = calls;
    out->sum[WEFT_COST_OVER_DP].bytes = alone->sum_bytes;
}

weft_status weft_planner__price_shares(weft_planner__rows *x, const weft_cost_variant *v,
                                       int k, weft_cost_row *row)
{
    const weft_planner__shared *s;
    WEFT_TRY(weft_planner__share(x, v, k, &s));
    for (int i = 0; i < x->n_short + 2; i++) {
        const weft_cost_program_row *from = &s->of[i];
        int                          more = v->micro_batch - s->v.micro_batch;
        double calls = row[i].of->share[WEFT_COST_WHOLE].sum[WEFT_COST_OVER_DP].n;
        row[i].of->fetched_bytes = from->fetched_bytes;
        for (int c = WEFT_COST_WHOLE; c < WEFT_COST_N_SHARES; c++) {
            row[i].of->share[c] = from->share[c];
            for (int back = 0; back < 2 && c >= WEFT_COST_PARAMS; back++)
                row[i].of->share[c].more_s[back] += more * s->more_s[i][back];
        }
        if (v->tp * v->cp * v->ep == 1)
            sum_whole(row[i].of, calls, &row[i].of->share[WEFT_COST_WHOLE]);
    }
    return WEFT_OK;
}
