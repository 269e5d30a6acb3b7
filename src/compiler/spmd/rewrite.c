/* From a graph and a sharding to the graph of one mesh rank: the same nodes on local shapes, and
 * collectives wherever a value is consumed in another layout than it is produced in.
 *
 *   inputs     are bound replicated; slices after them take what a rank works on
 *   leaves     parameters and states are sharded as the sharding says; region says which shard
 *   layouts    a value in another layout is made once a phase, right before its first use; what
 *              was reduced is kept.  What is gathered over the lanes (sharded parameters) lives
 *              for a few nodes only or, by the option gather_once, from its first use on
 *   sums       over micro-batches are unreduced over the lanes; where each rank has one
 *              micro-batch a step and all take a shard, they are reduced as soon as the backward
 *              pass has made them, with shard_gradients in every micro-batch
 *
 * All ranks make the same nodes in the same order, so collectives match. */
#include <string.h>

#include "base/status.h"
#include "spmd/spmd_priv.h"

typedef weft_spmd__rewriter     rewriter;
typedef weft_spmd__materialized materialized;

enum {
    NEAR = 8 /* nodes: a gathered parameter is used again within */
};

int weft_spmd__neighbour(const rewriter *rw, int axis, int at)
{
    int c[WEFT_MAX_AXIS];
    memcpy(c, rw->coord, sizeof c);
    c[axis] = at;
    return weft_mesh_place_of(rw->m, c);
}

weft_shape weft_spmd__local_shape(const rewriter *rw, const weft_layout *l,
                                  const weft_shape *s)
{
    return weft_layout_local(l, rw->m, s, rw->o->mesh_rank);
}

weft_status weft_spmd__group_of_axes(rewriter *rw, uint32_t axes, int *out)
{
    weft_local_graph *l = rw->out;
    for (*out = 0; *out < l->n_group; ++*out)
        if (l->group_axes[*out] == axes) return WEFT_OK;
    WEFT_TRY(weft_arena_grow(l->arena, (void **)&l->group_axes, &rw->cap_group,
                             l->n_group + 1, sizeof *l->group_axes));
    l->group_axes[l->n_group++] = axes;
    return WEFT_OK;
}

/* ---- materialized layouts ---- */

weft_status weft_spmd__add_materialized(rewriter *rw, weft_vid v, const weft_layout *l,
                                        weft_vid x, bool made)
{
    materialized *f = WEFT_ARENA_NEW(rw->tmp, materialized);
    if (!f) return weft_arena_status(rw->tmp);
    *f                  = (materialized){.l     = *l,
                                         .v     = x,
                                         .phase = rw->b.g->phase,
                                         .node  = rw->node,
                                         .made  = made,
                                         .next  = rw->materialized[v]};
    rw->materialized[v] = f;
    return WEFT_OK;
}

static bool is_reduced(const weft_layout *l)
{
    for (int a = 0; a < WEFT_MAX_AXIS; a++)
        if (l->unreduced[a]) return false;
    return true;
}

static bool is_usable(const rewriter *rw, const materialized *f)
{
    if (f->made) return true;
    if (f->lanes && rw->o->gather_once && rw->b.g->phase != WEFT_PHASE_UPDATE)
        return true;
    return f->phase == rw->b.g->phase && (!f->lanes || rw->node - f->node <= NEAR);
}

/* As weft_reshard_collectives; each way is looked for once. */
static weft_status find_path(rewriter *rw, const weft_layout *from, const weft_layout *to,
                             const weft_type *t, weft_reshard *out)
{
    weft_spmd__reshard_path *w = rw->path;
    while (w &&
           !(w->type.dtype == t->dtype && weft_shape_equal(&w->type.shape, &t->shape) &&
             weft_layout_equal(&w->from, from) && weft_layout_equal(&w->to, to)))
        w = w->next;
    if (!w) {
        w = WEFT_ARENA_NEW(rw->tmp, weft_spmd__reshard_path);
        if (!w) return weft_arena_status(rw->tmp);
        *w = (weft_spmd__reshard_path){
            .from = *from, .to = *to, .type = *t, .next = rw->path};
        WEFT_TRY(weft_reshard_collectives(rw->m, rw->s->lanes, from, to, t, rw->tmp,
                                          &w->plan));
        rw->path = w;
    }
    *out = w->plan;
    return WEFT_OK;
}

/* The sum over the lanes alone, cut by them as it will be; axes 0: it is none. */
static weft_reshard_step sum_lanes(const rewriter *rw, const weft_layout *from,
                                   const weft_layout *to, const weft_type *t)
{
    weft_reshard_step s = {.kind   = WEFT_STEP_COLLECTIVE,
                           .coll   = WEFT_ALL_REDUCE,
                           .reduce = WEFT_UNREDUCED_SUM,
                           .before = *from,
                           .after  = *from};
    for (int a = 0; a < rw->m->n_axis; a++)
        if (rw->s->lanes >> a & 1 && from->unreduced[a] == WEFT_UNREDUCED_SUM) {
            s.axes |= 1u << a;
            s.after.unreduced[a] = WEFT_REDUCED;
        }
    weft_layout cut = s.after;
    for (int i = 0; i < to->n && cut.n < WEFT_MAX_AXIS; i++)
        if (s.axes == 1u << to->split[i].axis) cut.split[cut.n++] = to->split[i];
    if (cut.n == s.after.n || weft_layout_verify(&cut, rw->m, &t->shape) != WEFT_OK)
        return s;
    s.coll  = WEFT_REDUCE_SCATTER;
    s.after = cut;
    return s;
}

/* As find_path.  Where ranks along the lanes have several terms each, these are summed first,
 * straight from where they are. */
static weft_status find_path_of_terms(rewriter *rw, const weft_layout *from,
                                      const weft_layout *to, const weft_type *t,
                                      weft_reshard *out)
{
    weft_reshard_step first = sum_lanes(rw, from, to, t);
    if (!rw->o->several_terms || !first.axes) return find_path(rw, from, to, t, out);
    WEFT_TRY(find_path(rw, &first.after, to, t, out));
    weft_reshard_step *all =
        WEFT_ARENA_ARRAY(rw->tmp, weft_reshard_step, out->n_step + 1);
    WEFT_TRY(weft_arena_status(rw->tmp));
    all[0] = first;
    memcpy(all + 1, out->step, sizeof *all * (size_t)out->n_step);
    out->step = all;
    out->n_step++;
    return WEFT_OK;
}

/* A sum that was reduced is not taken apart again: the layout before is there. */
static bool spreads(const weft_reshard *p)
{
    for (int i = 0; i < p->n_step; i++)
        if (p->step[i].kind == WEFT_STEP_SPREAD) return true;
    return false;
}

/* The cheapest reshard path from a layout that is there. */
static weft_status choose_source(rewriter *rw, weft_vid v, const weft_layout *to,
                                 const materialized **from, weft_reshard *plan)
{
    const weft_type *t = &rw->g->value[v].type;
    *from              = NULL;
    for (const materialized *f = rw->materialized[v]; f; f = f->next) {
        weft_reshard p;
        if (!is_usable(rw, f)) continue;
        if (weft_layout_same(&f->l, to, rw->m, &t->shape)) {
            *from        = f;
            plan->n_step = 0;
            return WEFT_OK;
        }
        WEFT_TRY(find_path_of_terms(rw, &f->l, to, t, &p));
        if (*from && spreads(&p) >= spreads(plan) &&
            (spreads(&p) || weft_measure_compare(&p.measure, &plan->measure) >= 0))
            continue;
        *from = f;
        *plan = p;
    }
    if (!*from)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "local graph: %s is used before it is made",
                         rw->g->value[v].name);
    return WEFT_OK;
}

weft_status weft_spmd__materialize(rewriter *rw, weft_vid v, const weft_layout *to,
                                   weft_vid *out)
{
    const materialized *from;
    weft_reshard        plan = {0};
    WEFT_TRY(choose_source(rw, v, to, &from, &plan));
    weft_vid x     = from->v;
    rw->b.prefix   = rw->g->value[v].name;
    weft_status st = WEFT_OK;
    for (int i = 0; i < plan.n_step && st == WEFT_OK; i++) {
        const weft_reshard_step *s = &plan.step[i];
        bool made = s->kind == WEFT_STEP_COLLECTIVE && s->coll != WEFT_ALL_GATHER &&
                    s->coll != WEFT_ALL_TO_ALL;
        st = weft_spmd__add_reshard_step(rw, s, &rw->g->value[v].type, x, &x);
        if (st == WEFT_OK) st = weft_spmd__add_materialized(rw, v, &s->after, x, made);
        if (st == WEFT_OK && weft_step_is(s, WEFT_ALL_GATHER))
            rw->materialized[v]->lanes = (s->axes & rw->s->lanes) != 0;
    }
    rw->b.prefix = NULL;
    *out         = x;
    return st == WEFT_OK ? st : weft_fail_in(st, "%s: ", rw->g->value[v].name);
}

/* ---- leaves ---- */

static weft_status add_leaf(rewriter *rw, weft_vid v)
{
    const weft_graph_value *x = &rw->g->value[v];
    weft_layout             l = rw->s->value[v];
    weft_graph             *g = rw->b.g;
    weft_vid                y = -1;
    if (x->kind == WEFT_VALUE_INPUT) {
        l = weft_layout_replicated(l.mesh, l.n_dim);
        y = weft_build_input(&rw->b, x->name, x->type.dtype, x->type.shape.n,
                             x->type.shape.d);
        if (y >= 0) g->value[y].per_step = x->per_step;
    } else {
        weft_shape s = weft_spmd__local_shape(rw, &l, &x->type.shape);
        y = (x->kind == WEFT_VALUE_PARAM ? weft_build_param : weft_build_state)(
            &rw->b, x->name, x->type.dtype, s.n, s.d);
    }
    WEFT_TRY(rw->b.st);
    rw->out->value[v] = y;
    return weft_spmd__add_materialized(rw, v, &l, y, true);
}

/* Which shard of the tensor a parameter or state is. */
static weft_status find_region(rewriter *rw, weft_vid v)
{
    const weft_graph_value *x = &rw->g->value[v];
    weft_region            *r, *out = &rw->out->region[v];
    int                     n;
    WEFT_TRY(weft_layout_regions(&rw->s->value[v], rw->m, &x->type.shape,
                                 rw->o->mesh_rank, rw->tmp, &r, &n));
    *out = n ? r[0] : (weft_region){.global = x->type.shape};
    if (n > 1) /* runs side by side: the sharding says which */
        for (int d = 0; d < x->type.shape.n; d++) out->extent[d] = -1;
    return WEFT_OK;
}

/* ---- nodes ---- */

/* Values and states that hang on v, now that it is there. */
static weft_status finish_value(rewriter *rw, weft_vid v)
{
    const weft_graph *g = rw->g;
    weft_vid          x;
    for (int i = 0; i < g->n_output; i++) {
        weft_layout whole = weft_layout_replicated(0, g->value[v].type.shape.n);
        if (g->output[i] != v) continue;
        WEFT_TRY(weft_spmd__materialize(rw, v, &whole, &x));
        rw->out->output[i] = x;
    }
    for (weft_vid s = 0; s < g->n_value && rw->is_next[v]; s++) {
        if (g->value[s].next != v) continue;
        WEFT_TRY(weft_spmd__materialize(rw, v, &rw->s->value[s], &x));
        WEFT_TRY(weft_graph_set_next(rw->b.g, rw->out->value[s], x));
    }
    return WEFT_OK;
}

/* All of a sum's users want it reduced, in one layout that the lanes cut (where parameters are
 * gathered once a step of one micro-batch: or not): *to. */
static bool wants_part(const rewriter *rw, weft_vid sum, weft_layout *to)
{
    const weft_graph *g   = rw->g;
    bool              any = false, cut = rw->o->gather_once && rw->o->one_micro_batch;
    for (int i = rw->first_user[sum]; i < rw->first_user[sum + 1]; i++) {
        int n = rw->user[i];
        for (int x = 0; x < g->node[n].n_in; x++) {
            const weft_layout *l = &rw->s->use[rw->s->first[n] + x];
            if (g->node[n].in[x] != sum) continue;
            if (!is_reduced(l) || (any && !weft_layout_equal(l, to))) return false;
            *to = *l;
            any = true;
        }
    }
    for (int i = 0; any && i < to->n; i++)
        cut = cut || rw->s->lanes >> to->split[i].axis & 1;
    for (int i = 0; i < g->n_output; i++) any = any && g->output[i] != sum;
    return any && cut;
}

/* A term of the backward pass that is the whole sum of this rank, or with shard_gradients one of
 * them: reduced at once, its memory free. */
static weft_status reduce_early(rewriter *rw, weft_vid v)
{
    const weft_graph *g = rw->g;
    for (int i = rw->first_user[v]; i < rw->first_user[v + 1]; i++) {
        int          n = rw->user[i];
        weft_layout  to, from;
        weft_reshard plan;
        weft_vid     x;
        if (g->node[n].op != WEFT_OP_ACCUMULATE || rw->early[n] >= 0) continue;
        if (!wants_part(rw, g->node[n].out[0], &to)) continue;
        from = rw->s->use[rw->s->first[n]];
        WEFT_TRY(weft_spmd__materialize(rw, v, &from, &x));
        for (int a = 0; a < rw->m->n_axis; a++)
            if (rw->s->lanes >> a & 1) from.unreduced[a] = WEFT_UNREDUCED_SUM;
        WEFT_TRY(find_path(rw, &from, &to, &g->value[v].type, &plan));
        rw->b.prefix = g->value[v].name;
        for (int s = 0; s < plan.n_step; s++)
            WEFT_TRY(
                weft_spmd__add_reshard_step(rw, &plan.step[s], &g->value[v].type, x, &x));
        rw->b.prefix = NULL;
        rw->early[n] = x;
    }
    return WEFT_OK;
}

static weft_status add_sum(rewriter *rw, int i)
{
    const weft_graph_node *n = &rw->g->node[i];
    weft_layout            to;
    weft_vid               x;
    (void)wants_part(rw, n->out[0], &to);
    WEFT_TRY(weft_graph_add_node(rw->b.g, n->op, n->attr, 1, &rw->early[i],
                                 rw->g->value[n->out[0]].name, 1, &x));
    WEFT_TRY(weft_spmd__add_materialized(rw, n->out[0], &to, x, true));
    return finish_value(rw, n->out[0]);
}

/* What a sum over micro-batches takes in another layout than it is made in: brought there while
 * the micro-batch is. */
static weft_status meet_sums(rewriter *rw, weft_vid v)
{
    for (int i = rw->first_user[v]; i < rw->first_user[v + 1]; i++) {
        int      n = rw->user[i];
        weft_vid x;
        if (rw->g->node[n].op != WEFT_OP_ACCUMULATE || rw->early[n] >= 0) continue;
        WEFT_TRY(weft_spmd__materialize(rw, v, &rw->s->use[rw->s->first[n]], &x));
        for (materialized *f = rw->materialized[v]; f; f = f->next)
            f->made = f->made || f->v == x;
    }
    return WEFT_OK;
}

/* The operator on local shapes. */
static weft_status add_node(rewriter *rw, int i, const weft_vid *in)
{
    const weft_graph      *g   = rw->g;
    const weft_graph_node *n   = &g->node[i];
    weft_arena            *tmp = rw->tmp;
    weft_type             *ti  = WEFT_ARENA_ARRAY(tmp, weft_type, n->n_in + 1);
    weft_type             *to  = WEFT_ARENA_ARRAY(tmp, weft_type, n->n_out + 1);
    weft_type             *lo  = WEFT_ARENA_ARRAY(tmp, weft_type, n->n_out + 1);
    weft_vid              *out = WEFT_ARENA_ARRAY(tmp, weft_vid, n->n_out + 1);
    weft_layout           *l   = WEFT_ARENA_ARRAY(tmp, weft_layout, n->n_out + 1);
    weft_attr              attr[WEFT_MAX_ATTR];
    weft_node_factors      f;
    WEFT_TRY(weft_arena_status(tmp));
    weft_op_use u = weft_graph_use(g, n, ti, to);
    for (int j = 0; j < n->n_out; j++) {
        l[j]        = rw->s->value[n->out[j]];
        lo[j]       = to[j];
        lo[j].shape = weft_spmd__local_shape(rw, &l[j], &to[j].shape);
    }
    memcpy(attr, n->attr, sizeof *attr * (size_t)weft_op_n_attr(n->op));
    weft_shard_local_attr(&u, lo, attr);
    WEFT_TRY(weft_shard_factors(&u, tmp, &f));
    WEFT_TRY(weft_spmd__add_positioned_node(rw, i, &u, &f, attr, in, out));
    for (int j = 0; j < n->n_out; j++) {
        const weft_shape *got = &rw->b.g->value[out[j]].type.shape;
        char              a[96], b[96];
        if (weft_shape_equal(got, &lo[j].shape)) continue;
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "local graph: %s is [%s], should be [%s]",
                         g->value[n->out[j]].name, weft_shape_text(got, a, sizeof a),
                         weft_shape_text(&lo[j].shape, b, sizeof b));
    }
    WEFT_TRY(weft_spmd__combine_softmax(rw, i, in, out, l));
    for (int j = 0; j < n->n_out; j++)
        WEFT_TRY(weft_spmd__add_materialized(rw, n->out[j], &l[j], out[j], true));
    return WEFT_OK;
}

static weft_status write_node(rewriter *rw, int i)
{
    const weft_graph_node *n  = &rw->g->node[i];
    weft_vid              *in = WEFT_ARENA_ARRAY(rw->tmp, weft_vid, n->n_in + 1);
    bool                   done;
    WEFT_TRY(weft_arena_status(rw->tmp));
    rw->node       = i;
    rw->b.g->phase = n->phase;
    if (rw->early[i] >= 0) return add_sum(rw, i);
    WEFT_TRY(weft_spmd__add_ring_attention(rw, i, &done));
    for (int x = 0; x < n->n_in && !done; x++)
        WEFT_TRY(weft_spmd__materialize(rw, n->in[x], &rw->s->use[rw->s->first[i] + x],
                                        &in[x]));
    if (!done) WEFT_TRY(weft_spmd__add_special_node(rw, i, in, &done));
    if (!done) WEFT_TRY(add_node(rw, i, in));
    for (int j = 0; j < n->n_out; j++) {
        WEFT_TRY(finish_value(rw, n->out[j]));
        if ((rw->o->one_micro_batch || rw->o->shard_gradients) &&
            n->phase == WEFT_PHASE_BACKWARD)
            WEFT_TRY(reduce_early(rw, n->out[j]));
        WEFT_TRY(meet_sums(rw, n->out[j]));
    }
    return WEFT_OK;
}

/* Nodes written since stand for the given graph's node. */
static weft_status note_nodes(rewriter *rw)
{
    weft_local_graph *l = rw->out;
    WEFT_TRY(weft_arena_grow(l->arena, (void **)&l->node, &rw->cap_node,
                             rw->b.g->n_node + 1, sizeof *l->node));
    for (; l->n_node < rw->b.g->n_node; l->n_node++) l->node[l->n_node] = rw->node;
    return WEFT_OK;
}

static weft_status build_graph(rewriter *rw)
{
    const weft_graph *g = rw->g;
    weft_local_graph *l = rw->out;
    l->value            = WEFT_ARENA_ARRAY(l->arena, weft_vid, g->n_value + 1);
    l->region           = WEFT_ARENA_ARRAY(l->arena, weft_region, g->n_value + 1);
    l->output           = WEFT_ARENA_ARRAY(l->arena, weft_vid, g->n_output + 1);
    rw->materialized    = WEFT_ARENA_ARRAY(rw->tmp, materialized *, g->n_value + 1);
    rw->is_next         = WEFT_ARENA_ARRAY(rw->tmp, bool, g->n_value + 1);
    rw->early           = WEFT_ARENA_ARRAY(rw->tmp, weft_vid, g->n_node + 1);
    WEFT_TRY(weft_arena_status(l->arena));
    WEFT_TRY(weft_arena_status(rw->tmp));
    WEFT_TRY(weft_graph_users(g, rw->tmp, &rw->first_user, &rw->user));
    for (int i = 0; i < g->n_node; i++) rw->early[i] = -1;
    for (weft_vid v = 0; v < g->n_value; v++) {
        l->value[v] = -1;
        if (g->value[v].next >= 0) rw->is_next[g->value[v].next] = true;
        if (g->value[v].kind == WEFT_VALUE_NODE) continue;
        WEFT_TRY(add_leaf(rw, v));
        if (g->value[v].kind != WEFT_VALUE_INPUT) WEFT_TRY(find_region(rw, v));
    }
    for (int i = 0; i < g->n_node; i++) {
        WEFT_TRY(write_node(rw, i));
        WEFT_TRY(note_nodes(rw));
    }
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].copy_of >= 0)
            WEFT_TRY(
                weft_graph_set_copy(rw->b.g, l->value[v], l->value[g->value[v].copy_of]));
    for (int i = 0; i < g->n_output; i++)
        WEFT_TRY(weft_graph_set_output(rw->b.g, l->output[i]));
    return weft_graph_verify(rw->b.g);
}

weft_status weft_spmd_rewrite(const weft_graph *g, const weft_sharding *s,
                              const weft_spmd_options *o, weft_local_graph **out)
{
    rewriter    rw = {.g = g, .s = s, .o = o};
    weft_arena *a  = NULL;
    weft_status st = WEFT_OK;
    if (s->n_mesh != 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "local graph: of one mesh, not of %d", s->n_mesh);
    rw.m = &s->mesh[0];
    if (o->mesh_rank < 0 || o->mesh_rank >= rw.m->n_rank)
        return WEFT_FAIL(WEFT_ERR_ARG, "local graph: mesh rank %d of %d", o->mesh_rank,
                         rw.m->n_rank);
    weft_mesh_coords(rw.m, o->mesh_rank, rw.coord);
    WEFT_TRY(weft_arena_create(&a));
    WEFT_GO(weft_arena_create(&rw.tmp));
    rw.out = WEFT_ARENA_NEW(a, weft_local_graph);
    WEFT_GO(weft_arena_status(a));
    rw.out->arena = a;
    WEFT_GO(weft_graph_create(g->name, &rw.out->graph));
    rw.b = weft_build_start(rw.out->graph);
    WEFT_GO(build_graph(&rw));
    *out = rw.out;
    a    = NULL;
out:
    if (a && rw.out) weft_graph_destroy(rw.out->graph);
    weft_arena_destroy(a);
    weft_arena_destroy(rw.tmp);
    return st;
}
