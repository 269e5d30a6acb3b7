/* The rows of a short model under one variant: its step is made as for a run, and every instruction's price goes to
 * the layer whose node it was written for. */
#include <math.h>
#include <string.h>

#include "cost/cost.h"
#include "lower/lower.h"
#include "partition/partition.h"
#include "planner/rows_priv.h"

static const char *const again[] = {"none", "selective", "full"};

/* ---- graphs ---- */

weft_status weft_planner__short_of(weft_planner__rows *x, int layers, int micro_batch,
                                   weft_cost_recompute r, weft_planner__short **out)
{
    for (*out = x->shorts; *out; *out = (*out)->next)
        if ((*out)->layers == layers && (*out)->micro_batch == micro_batch &&
            (*out)->recompute == r)
            return WEFT_OK;
    weft_planner__short *s = WEFT_ARENA_NEW(x->a, weft_planner__short);
    weft_compile_spec    o = x->s;
    if (!s) return weft_arena_status(x->a);
    o.micro_batch = o.batch = micro_batch;
    o.recompute             = again[r];
    o.layers = s->layers = layers;
    o.lanes              = 1;
    o.plan               = NULL;
    s->micro_batch       = micro_batch;
    s->recompute         = r;
    WEFT_TRY(weft_arena_create(&s->a));
    weft_status st = weft_compile_graph(&o, &s->c);
    if (st == WEFT_OK) st = weft_compile_layers(&s->c, s->a, &s->n_layer, &s->node);
    if (st != WEFT_OK) {
        weft_compiled_fini(&s->c);
        weft_arena_destroy(s->a);
        return st;
    }
    s->next   = x->shorts;
    x->shorts = s;
    *out      = s;
    return WEFT_OK;
}

weft_status weft_planner__expand(const weft_cost_variant *v, int dp, int zero,
                                 const weft_graph *g, weft_arena *a,
                                 weft_shard_options *out)
{
    weft_shorthand h = {.pp = 1, .sp = v->sp && v->tp > 1, .zero = zero};
    if (dp > 1) h.axis[h.n_axis++] = (weft_mesh_axis){.name = "dp", .size = dp};
    if (v->ep > 1) h.axis[h.n_axis++] = (weft_mesh_axis){.name = "ep", .size = v->ep};
    if (v->cp > 1) h.axis[h.n_axis++] = (weft_mesh_axis){.name = "cp", .size = v->cp};
    if (v->tp > 1) h.axis[h.n_axis++] = (weft_mesh_axis){.name = "tp", .size = v->tp};
    WEFT_TRY(weft_shorthand_expand(&h, g, 0, a, out));
    if (dp > 1) out->lanes = 1u; /* the first axis */
    return WEFT_OK;
}

/* ---- one variant ---- */

typedef struct pricer {
    weft_planner__rows      *x;
    const weft_cost_variant *v;
    int                      dp, zero;
    weft_arena              *a;
    weft_planner__short     *s;
    weft_sharding           *sharding;
    weft_local              *local;
    const weft_graph        *g; /* what is lowered: the place's, or the whole */
    weft_segment            *seg;
    int                     *stage; /* [node of g]: 0 the input side, 1.. layers; -1 */
    bool                    *weight;
    weft_program             p; /* of ranks and groups alone */
    int                      n_stage;
    weft_cost_row           *row;
} pricer;

static weft_status cut_values(pricer *z)
{
    weft_shard_options o;
    weft_local_options place = {0};
    if (z->v->tp * z->v->cp * z->v->ep * z->dp == 1) {
        z->g = z->s->c.graph;
        return WEFT_OK;
    }
    WEFT_TRY(weft_planner__expand(z->v, z->dp, z->zero, z->s->c.graph, z->a, &o));
    WEFT_TRY(weft_shard_propagate(z->s->c.graph, &o, &z->sharding));
    WEFT_TRY(weft_partition_local(z->s->c.graph, z->sharding, &place, &z->local));
    z->g = z->local->graph;
    return WEFT_OK;
}

/* What products read instead of a parameter; -1 none. */
static weft_vid twin_of(pricer *z, weft_vid v)
{
    const char *name = weft_arena_printf(z->a, "%s.bf16", z->g->value[v].name);
    return name ? weft_graph_find(z->g, name) : -1;
}

/* A view is made where it is used first; what is made once a step, where its operands are. */
static weft_status place_rest(pricer *z)
{
    const weft_graph *g = z->g;
    int              *first_user, *user;
    int              *leaf = WEFT_ARENA_ARRAY(z->a, int, g->n_value + 1);
    int              *home = WEFT_ARENA_ARRAY(
                     z->a, int, g->n_node + 1); /* of the parameter or state that a node is about */
    WEFT_TRY(weft_graph_users(g, z->a, &first_user, &user));
    WEFT_TRY(weft_arena_status(z->a));
    for (int i = g->n_node - 1; i >= 0; i--)
        for (int j = 0; j < g->node[i].n_out && g->node[i].phase != WEFT_PHASE_UPDATE;
             j++)
            for (int k = first_user[g->node[i].out[j]];
                 k < first_user[g->node[i].out[j] + 1] && z->stage[i] < 0; k++)
                z->stage[i] = z->stage[user[k]];
    for (weft_vid v = 0; v < g->n_value; v++) leaf[v] = -1;
    for (int i = 0; i < g->n_node; i++) home[i] = -1;
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            weft_vid v = g->node[i].in[k];
            if (g->value[v].node < 0 && leaf[v] < 0 && !g->value[v].per_step)
                leaf[v] = z->stage[i];
        }
    for (weft_vid v = 0; v < g->n_value; v++) {
        weft_vid twin = g->value[v].kind == WEFT_VALUE_PARAM ? twin_of(z, v) : -1;
        if (twin >= 0) leaf[v] = leaf[twin];
    }
    for (int i = 0; i < g->n_node; i++) {
        const weft_graph_node *n = &g->node[i];
        if (n->phase != WEFT_PHASE_UPDATE) continue;
        for (int k = 0; k < n->n_in; k++) {
            weft_vid v    = n->in[k];
            int      made = g->value[v].node, is = made < 0 ? leaf[v] : home[made];
            if (is > home[i]) home[i] = is;
            if (made >= 0 && z->stage[made] > z->stage[i]) z->stage[i] = z->stage[made];
        }
        if (home[i] >= 0) z->stage[i] = home[i];
        for (int k = 0; k < n->n_in; k++) /* states that only the update uses */
            if (g->value[n->in[k]].node < 0 && leaf[n->in[k]] < 0 &&
                !g->value[n->in[k]].per_step)
                leaf[n->in[k]] = z->stage[i];
    }
    return WEFT_OK;
}

static weft_status place_nodes(pricer *z)
{
    int n = z->s->n_layer, *cut = WEFT_ARENA_ARRAY(z->a, int, n + 2);
    z->n_stage = n + 2;
    z->stage   = WEFT_ARENA_ARRAY(z->a, int, z->g->n_node + 1);
    z->weight  = WEFT_ARENA_ARRAY(z->a, bool, z->g->n_node + 1);
    WEFT_TRY(weft_arena_status(z->a));
    memcpy(cut, z->s->node, sizeof *cut * (size_t)(n + 1));
    if (z->local) weft_partition_move_cuts(z->local, n + 1, cut);
    WEFT_TRY(weft_partition_stages(z->g, z->n_stage, cut, z->stage, z->weight));
    return place_rest(z);
}

/* The job's ranks as far as prices ask for them. */
static weft_status make_groups(pricer *z, int rank)
{
    const weft_local *l = z->local;
    z->p                = (weft_program){.rank = rank, .world = z->x->world};
    if (!l) return WEFT_OK;
    const weft_mesh *m = &z->sharding->mesh[0];
    z->p.n_group       = l->n_group;
    z->p.group         = WEFT_ARENA_ARRAY(z->a, weft_group, l->n_group + 1);
    WEFT_TRY(weft_arena_status(z->a));
    for (int i = 0; i < l->n_group; i++) {
        weft_group *g = &z->p.group[i];
        g->rank       = WEFT_ARENA_ARRAY(z->a, int32_t, m->n_rank);
        WEFT_TRY(weft_arena_status(z->a));
        g->n_rank = weft_mesh_group(m, l->axes[i], 0, g->rank);
        for (int k = 0; k < g->n_rank; k++) g->rank[k] += rank;
    }
    return WEFT_OK;
}

/* ---- sums ---- */

static weft_cost_row *row_of(const pricer *z, int instr)
{
    int node = z->seg->node[instr];
    int at   = node < 0 ? -1 : z->stage[node];
    return &z->row[at < 0 ? z->n_stage - 1 : at];
}

/* Whom a collective is for: the innermost of the axes that its group spans. */
static weft_cost_axis axis_of(const pricer *z, int group)
{
    const weft_mesh *m  = &z->sharding->mesh[0];
    int              tp = weft_mesh_find(m, "tp"), cp = weft_mesh_find(m, "cp");
    if (tp >= 0 && z->local->axes[group] >> tp & 1) return WEFT_COST_TP;
    return cp >= 0 && z->local->axes[group] >> cp & 1 ? WEFT_COST_CP : WEFT_COST_EP;
}

static void add_wire(const pricer *z, const weft_instr *i, weft_cost_row *r)
{
    if (i->kind != WEFT_INSTR_COLLECTIVE || !z->local || !i->n_in) return;
    const weft_type *t = &i->in[0].type;
    double           n = (double)weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
    r->wire_bytes[axis_of(z, i->group)] +=
        weft_cost_group_sent(z->p.group[i->group].n_rank, i->coll, n);
}

/* A gradient's sum over ranks that differ along an axis. */
static bool is_sum_over(const pricer *z, const weft_instr *i, const char *axis)
{
    if (i->kind != WEFT_INSTR_COLLECTIVE || !(weft_instr_bytes(i) > 64)) return false;
    int a = weft_mesh_find(&z->sharding->mesh[0], axis);
    return a >= 0 && z->local->axes[i->group] >> a & 1;
}

static weft_status add_seconds(pricer *z)
{
    const weft_segment     *s = z->seg;
    const weft_device_kind *d = weft_cluster_device(z->x->c, z->p.rank);
    for (int i = 0; i < s->n_instr; i++) {
        weft_cost_row *r = row_of(z, i);
        double         t;
        WEFT_TRY(weft_cost_instr(&z->p, &s->instr[i], z->x->c, &t));
        if (i < s->phase_end[0]) {
            r->fwd_s += t;
        } else if (i < s->phase_end[1]) {
            r->bwd_s += t;
            if (s->node[i] >= 0 && z->weight[s->node[i]]) r->of.weight_s += t;
        } else if (!is_sum_over(z, &s->instr[i], "cp")) { /* those are counted by n_sum */
            r->of.update_s += t;
            r->of.launch_s += s->instr[i].kind == WEFT_INSTR_COLLECTIVE ? t : d->launch_s;
        }
        if (i < s->phase_end[1] && s->instr[i].kind == WEFT_INSTR_COLLECTIVE)
            r->comm_s += t;
        if (i < s->phase_end[1]) add_wire(z, &s->instr[i], r);
    }
    return WEFT_OK;
}

static bool is_kept(const weft_segment *s, const weft_storage *t)
{
    return t->kind == WEFT_STORE_WORK && t->first >= 0 && t->first < s->phase_end[0] &&
           t->last >= s->phase_end[0];
}

/* Activations by whoever makes them; what lives for a while only, by the fullest moment of a layer. */
static weft_status add_memory(pricer *z)
{
    const weft_segment *s    = z->seg;
    double             *live = WEFT_ARENA_ARRAY(z->a, double, s->n_instr + 2);
    WEFT_TRY(weft_arena_status(z->a));
    for (int i = 0; i < s->n_storage; i++) {
        const weft_storage *t = &s->storage[i];
        if (t->kind == WEFT_STORE_ACCUM && t->first >= 0) {
            row_of(z, t->first)->of.n_sum++;
            row_of(z, t->first)->of.sum_bytes += (double)t->bytes;
        }
        if (t->kind != WEFT_STORE_WORK || t->first < 0) continue;
        if (is_kept(s, t)) {
            row_of(z, t->first)->keep_bytes += (double)t->bytes;
            continue;
        }
        live[t->first] += (double)t->bytes;
        live[t->last + 1] -= (double)t->bytes;
    }
    double now = 0;
    for (int i = 0; i < s->phase_end[1]; i++) {
        weft_cost_row *r = row_of(z, i);
        now += live[i];
        r->work_bytes = fmax(r->work_bytes, now);
    }
    return WEFT_OK;
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
    const weft_graph *g   = z->s->c.graph;
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
        weft_vid twin  = twin_of(z, local);
        span     u     = use[local];
        if (twin >= 0) widen(&u, &use[twin]);
        if (u.last < 0) continue;
        weft_cost_row *r = &z->row[u.first];
        *(is_cut_by(z, v, "ep") ? &r->n_expert_param : &r->n_param) += n;
        if (u.first > 0 || u.last < z->n_stage - 1) continue;
        z->x->tied = true;
        z->row[u.last].n_param += n;
        z->row[u.last].of.tied_bytes += 4 * n; /* sums are f32 */
    }
    return WEFT_OK;
}

/* Bytes that pass from one layer to later ones. */
static weft_status add_crossing(pricer *z)
{
    const weft_graph *g    = z->g;
    int              *last = WEFT_ARENA_ARRAY(z->a, int, g->n_value + 1);
    WEFT_TRY(weft_arena_status(z->a));
    for (int i = weft_graph_n_forward(g) - 1; i >= 0; i--) {
        const weft_graph_node *n    = &g->node[i];
        bool                   view = weft_op_get(n->op)->flags & WEFT_OP_VIEW;
        for (int j = 0; j < n->n_out && !view; j++) {
            const weft_type *t = &g->value[n->out[j]].type;
            double b = (double)weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
            for (int k = z->stage[i]; k >= 0 && k < last[n->out[j]]; k++)
                z->row[k].out_bytes += b;
        }
        int at = view ? last[n->out[0]] : z->stage[i];
        for (int k = 0; k < n->n_in; k++)
            if (at > last[n->in[k]]) last[n->in[k]] = at;
    }
    return WEFT_OK;
}

static weft_status price(pricer *z, int rank)
{
    WEFT_TRY(cut_values(z));
    WEFT_TRY(place_nodes(z));
    WEFT_TRY(make_groups(z, rank));
    WEFT_TRY(weft_lower(z->g, NULL, &z->seg));
    WEFT_TRY(add_seconds(z));
    WEFT_TRY(add_memory(z));
    WEFT_TRY(add_params(z));
    return add_crossing(z);
}

/* ---- ranks that share states ---- */

enum {
    REPLICAS = 2 /* how many are compiled to see what they say to each other */
};

static void add_call(const weft_segment *s, int i, weft_cost_sharing *to)
{
    const weft_instr *c     = &s->instr[i];
    bool              fetch = i < s->phase_end[1];
    double            bytes = weft_instr_bytes(c);
    int               back  = i >= s->phase_end[0];
    if (c->coll == WEFT_ALL_GATHER && fetch) {
        to->n_fetch[back]++;
        to->fetch_bytes[back] += bytes * REPLICAS;
    } else if (c->coll == WEFT_ALL_GATHER) {
        to->n_gather++;
        to->gather_bytes += bytes * REPLICAS;
    } else if (c->coll == WEFT_REDUCE_SCATTER || bytes > 64) {
        to->n_sum++;
        to->sum_bytes += bytes;
    } else {
        to->n_scalar++;
    }
}

/* of[k][which]: what layer k says to others that share its states. */
static weft_status count_calls(pricer *z, int which, weft_cost_sharing *of)
{
    WEFT_TRY(cut_values(z));
    WEFT_TRY(place_nodes(z));
    WEFT_TRY(weft_lower(z->g, NULL, &z->seg));
    for (int i = 0; i < z->seg->n_instr; i++) {
        const weft_instr *c    = &z->seg->instr[i];
        int               node = z->seg->node[i], at = node < 0 ? -1 : z->stage[node];
        if (c->kind != WEFT_INSTR_COLLECTIVE || !(z->local->axes[c->group] & 1u))
            continue;
        if (at < 0) at = z->n_stage - 1;
        add_call(z->seg, i, &of[2 * at + which]);
    }
    return WEFT_OK;
}

static void clear(pricer *z)
{
    weft_segment_destroy(z->seg);
    weft_local_destroy(z->local);
    weft_sharding_destroy(z->sharding);
    weft_arena_destroy(z->a);
}

/* Of a single run three layers tell all, even where more are priced. */
static int shared_layers(const weft_planner__rows *x)
{
    return x->n_run == 1 ? WEFT_PLANNER__KEEP : x->s.layers;
}

/* Which of those rows i is like. */
static int shared_row(const weft_planner__rows *x, int i)
{
    if (shared_layers(x) >= x->n_short) return i;
    int behind = x->n_short + 1 - i;
    return i < 2 ? i : behind < 2 ? WEFT_PLANNER__KEEP + 1 - behind : 2;
}

static weft_status share(weft_planner__rows *x, const weft_cost_variant *v,
                         const weft_planner__shared **out)
{
    weft_planner__shared *k = x->shared;
    for (; k; k = k->next)
        if (k->v.tp == v->tp && k->v.cp == v->cp && k->v.ep == v->ep &&
            k->v.sp == v->sp && k->v.recompute == v->recompute)
            break;
    *out = k;
    if (k) return WEFT_OK;
    k = WEFT_ARENA_NEW(x->a, weft_planner__shared);
    if (!k) return weft_arena_status(x->a);
    k->v  = *v;
    k->of = WEFT_ARENA_ARRAY(x->a, weft_cost_sharing,
                             2 * (WEFT_PLANNER__KEEP + x->n_short + 2));
    if (!k->of) return weft_arena_status(x->a);
    for (int which = 0; which < 2; which++) {
        pricer      z  = {.x = x, .v = v, .dp = REPLICAS, .zero = which ? 3 : 1};
        weft_status st = weft_arena_create(&z.a);
        if (st == WEFT_OK)
            st = weft_planner__short_of(x, x->s.layers, v->micro_batch, v->recompute,
                                        &z.s);
        if (st == WEFT_OK) st = count_calls(&z, which, k->of);
        clear(&z);
        WEFT_TRY(st);
    }
    k->next   = x->shared;
    x->shared = k;
    *out      = k;
    return WEFT_OK;
}

weft_status weft_planner__price(weft_planner__rows *x, const weft_cost_variant *v, int k,
                                weft_cost_row *row)
{
    pricer                      z  = {.x = x, .v = v, .dp = 1, .row = row};
    weft_status                 st = WEFT_OK;
    const weft_planner__shared *s;
    memset(row, 0, sizeof *row * (size_t)(x->n_short + 2));
    WEFT_GO(weft_arena_create(&z.a));
    WEFT_GO(weft_planner__short_of(x, x->s.layers, v->micro_batch, v->recompute, &z.s));
    WEFT_GO(price(&z, x->kind[k].rank));
    WEFT_GO(share(x, v, &s));
    for (int i = 0; i < 2 * (x->n_short + 2); i++)
        row[i / 2].of.zero[i % 2] = s->of[2 * shared_row(x, i / 2) + i % 2];
out:
    clear(&z);
    return st;
}
