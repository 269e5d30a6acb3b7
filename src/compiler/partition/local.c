/* From a graph and a sharding to the graph of one place: the same nodes on local shapes, and
 * nodes that communicate wherever a value is consumed otherwise than it is produced.
 *
 *   inputs     are bound whole; slices behind them cut what a place works on
 *   leaves     parameters and states are as the sharding keeps them; region says which part
 *   forms      a value in another layout is made once a phase, right before its first use; what
 *              was reduced is kept.  What is gathered over the lanes (parameters that are kept in
 *              parts) lives for a few nodes only or, by the option `once`, from its first use on.
 *   sums       over micro-batches are unreduced over the lanes; where each rank has one
 *              micro-batch a step and all want a part, they are reduced as soon as the backward
 *              pass has made them
 *
 * All places make the same nodes in the same order, so collectives meet. */
#include <string.h>

#include "base/status.h"
#include "partition/local_priv.h"

typedef weft_partition__local local;
typedef weft_partition__form  form;

enum {
    NEAR = 8 /* nodes: a gathered parameter is used again within */
};

int weft_partition__neighbour(const local *k, int axis, int at)
{
    int c[WEFT_MAX_AXIS];
    memcpy(c, k->coord, sizeof c);
    c[axis] = at;
    return weft_mesh_place_of(k->m, c);
}

weft_shape weft_partition__local_shape(const local *k, const weft_layout *l,
                                       const weft_shape *s)
{
    return weft_layout_local(l, k->m, s, k->o->place);
}

weft_status weft_partition__group(local *k, uint32_t axes, int *out)
{
    weft_local *l = k->out;
    for (*out = 0; *out < l->n_group; ++*out)
        if (l->axes[*out] == axes) return WEFT_OK;
    WEFT_TRY(weft_arena_grow(l->arena, (void **)&l->axes, &k->cap_group, l->n_group + 1,
                             sizeof *l->axes));
    l->axes[l->n_group++] = axes;
    return WEFT_OK;
}

/* ---- forms ---- */

weft_status weft_partition__add_form(local *k, weft_vid v, const weft_layout *l,
                                     weft_vid x, bool made)
{
    form *f = WEFT_ARENA_NEW(k->tmp, form);
    if (!f) return weft_arena_status(k->tmp);
    *f         = (form){.l     = *l,
                        .v     = x,
                        .phase = k->b.g->phase,
                        .node  = k->node,
                        .made  = made,
                        .next  = k->form[v]};
    k->form[v] = f;
    return WEFT_OK;
}

static bool is_reduced(const weft_layout *l)
{
    for (int a = 0; a < WEFT_MAX_AXIS; a++)
        if (l->unreduced[a]) return false;
    return true;
}

static bool is_usable(const local *k, const form *f)
{
    if (f->made) return true;
    if (f->lanes && k->o->once && k->b.g->phase != WEFT_PHASE_UPDATE) return true;
    return f->phase == k->b.g->phase && (!f->lanes || k->node - f->node <= NEAR);
}

/* As weft_reshard_collectives; each way is looked for once. */
static weft_status find_way(local *k, const weft_layout *from, const weft_layout *to,
                            const weft_type *t, weft_reshard *out)
{
    weft_partition__way *w = k->way;
    while (w &&
           !(w->type.dtype == t->dtype && weft_shape_equal(&w->type.shape, &t->shape) &&
             weft_layout_equal(&w->from, from) && weft_layout_equal(&w->to, to)))
        w = w->next;
    if (!w) {
        w = WEFT_ARENA_NEW(k->tmp, weft_partition__way);
        if (!w) return weft_arena_status(k->tmp);
        *w = (weft_partition__way){.from = *from, .to = *to, .type = *t, .next = k->way};
        WEFT_TRY(
            weft_reshard_collectives(k->m, k->s->lanes, from, to, t, k->tmp, &w->plan));
        k->way = w;
    }
    *out = w->plan;
    return WEFT_OK;
}

/* The sum over the lanes alone, cut by them as it will be; axes 0: it is none. */
static weft_reshard_step sum_lanes(const local *k, const weft_layout *from,
                                   const weft_layout *to, const weft_type *t)
{
    weft_reshard_step s = {.kind   = WEFT_STEP_ALL_REDUCE,
                           .reduce = WEFT_UNREDUCED_SUM,
                           .before = *from,
                           .after  = *from};
    for (int a = 0; a < k->m->n_axis; a++)
        if (k->s->lanes >> a & 1 && from->unreduced[a] == WEFT_UNREDUCED_SUM) {
            s.axes |= 1u << a;
            s.after.unreduced[a] = WEFT_REDUCED;
        }
    weft_layout cut = s.after;
    for (int i = 0; i < to->n && cut.n < WEFT_MAX_AXIS; i++)
        if (s.axes == 1u << to->split[i].axis) cut.split[cut.n++] = to->split[i];
    if (cut.n == s.after.n || weft_layout_verify(&cut, k->m, &t->shape) != WEFT_OK)
        return s;
    s.kind  = WEFT_STEP_REDUCE_SCATTER;
    s.after = cut;
    return s;
}

/* As find_way.  Where ranks along the lanes have several terms each, these are summed first,
 * straight from where they are. */
static weft_status find_way_of_terms(local *k, const weft_layout *from,
                                     const weft_layout *to, const weft_type *t,
                                     weft_reshard *out)
{
    weft_reshard_step first = sum_lanes(k, from, to, t);
    if (!k->o->terms || !first.axes) return find_way(k, from, to, t, out);
    WEFT_TRY(find_way(k, &first.after, to, t, out));
    weft_reshard_step *all = WEFT_ARENA_ARRAY(k->tmp, weft_reshard_step, out->n_step + 1);
    WEFT_TRY(weft_arena_status(k->tmp));
    all[0] = first;
    memcpy(all + 1, out->step, sizeof *all * (size_t)out->n_step);
    out->step = all;
    out->n_step++;
    return WEFT_OK;
}

/* A sum that was reduced is not taken apart again: the form before is there. */
static bool spreads(const weft_reshard *p)
{
    for (int i = 0; i < p->n_step; i++)
        if (p->step[i].kind == WEFT_STEP_SPREAD) return true;
    return false;
}

/* The cheapest way from a form that is there. */
static weft_status choose(local *k, weft_vid v, const weft_layout *to, const form **from,
                          weft_reshard *plan)
{
    const weft_type *t = &k->g->value[v].type;
    *from              = NULL;
    for (const form *f = k->form[v]; f; f = f->next) {
        weft_reshard p;
        if (!is_usable(k, f)) continue;
        if (weft_layout_same(&f->l, to, k->m, &t->shape)) {
            *from        = f;
            plan->n_step = 0;
            return WEFT_OK;
        }
        WEFT_TRY(find_way_of_terms(k, &f->l, to, t, &p));
        if (*from && spreads(&p) >= spreads(plan) &&
            (spreads(&p) || weft_measure_compare(&p.measure, &plan->measure) >= 0))
            continue;
        *from = f;
        *plan = p;
    }
    if (!*from)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "local graph: %s is used before it is made",
                         k->g->value[v].name);
    return WEFT_OK;
}

weft_status weft_partition__take(local *k, weft_vid v, const weft_layout *to,
                                 weft_vid *out)
{
    const form  *from;
    weft_reshard plan = {0};
    WEFT_TRY(choose(k, v, to, &from, &plan));
    weft_vid x     = from->v;
    k->b.prefix    = k->g->value[v].name;
    weft_status st = WEFT_OK;
    for (int i = 0; i < plan.n_step && st == WEFT_OK; i++) {
        const weft_reshard_step *s    = &plan.step[i];
        bool                     made = s->kind == WEFT_STEP_ALL_REDUCE ||
                    s->kind == WEFT_STEP_REDUCE_SCATTER ||
                    s->kind == WEFT_STEP_SEND_ROWS || s->kind == WEFT_STEP_RETURN_ROWS;
        st = weft_partition__step(k, s, &k->g->value[v].type, x, &x);
        if (st == WEFT_OK) st = weft_partition__add_form(k, v, &s->after, x, made);
        if (st == WEFT_OK && s->kind == WEFT_STEP_ALL_GATHER)
            k->form[v]->lanes = (s->axes & k->s->lanes) != 0;
    }
    k->b.prefix = NULL;
    *out        = x;
    return st == WEFT_OK ? st : weft_fail_in(st, "%s: ", k->g->value[v].name);
}

/* ---- leaves ---- */

static weft_status add_leaf(local *k, weft_vid v)
{
    const weft_graph_value *x = &k->g->value[v];
    weft_layout             l = k->s->value[v];
    weft_graph             *g = k->b.g;
    weft_vid                y = -1;
    if (x->kind == WEFT_VALUE_INPUT) {
        l = weft_layout_replicated(l.mesh, l.n_dim);
        y = weft_build_input(&k->b, x->name, x->type.dtype, x->type.shape.n,
                             x->type.shape.d);
        if (y >= 0) g->value[y].per_step = x->per_step;
    } else {
        weft_shape s = weft_partition__local_shape(k, &l, &x->type.shape);
        y = (x->kind == WEFT_VALUE_PARAM ? weft_build_param : weft_build_state)(
            &k->b, x->name, x->type.dtype, s.n, s.d);
    }
    WEFT_TRY(k->b.st);
    k->out->value[v] = y;
    return weft_partition__add_form(k, v, &l, y, true);
}

/* Which part of the whole a parameter or state is. */
static weft_status find_region(local *k, weft_vid v)
{
    const weft_graph_value *x = &k->g->value[v];
    weft_region            *r, *out = &k->out->region[v];
    int                     n;
    WEFT_TRY(weft_layout_regions(&k->s->value[v], k->m, &x->type.shape, k->o->place,
                                 k->tmp, &r, &n));
    *out = n ? r[0] : (weft_region){.global = x->type.shape};
    if (n > 1) /* runs side by side: the sharding says which */
        for (int d = 0; d < x->type.shape.n; d++) out->extent[d] = -1;
    return WEFT_OK;
}

/* ---- nodes ---- */

/* Values and states that hang on v, now that it is there. */
static weft_status finish(local *k, weft_vid v)
{
    const weft_graph *g = k->g;
    weft_vid          x;
    for (int i = 0; i < g->n_output; i++) {
        weft_layout whole = weft_layout_replicated(0, g->value[v].type.shape.n);
        if (g->output[i] != v) continue;
        WEFT_TRY(weft_partition__take(k, v, &whole, &x));
        k->out->output[i] = x;
    }
    for (weft_vid s = 0; s < g->n_value && k->is_next[v]; s++) {
        if (g->value[s].next != v) continue;
        WEFT_TRY(weft_partition__take(k, v, &k->s->value[s], &x));
        WEFT_TRY(weft_graph_set_next(k->b.g, k->out->value[s], x));
    }
    return WEFT_OK;
}

/* All of a sum's users want it reduced, in one layout that the lanes cut (with `once`: or not):
 * *to. */
static bool wants_part(const local *k, weft_vid sum, weft_layout *to)
{
    const weft_graph *g   = k->g;
    bool              any = false, cut = k->o->once;
    for (int i = k->first_user[sum]; i < k->first_user[sum + 1]; i++) {
        int n = k->user[i];
        for (int x = 0; x < g->node[n].n_in; x++) {
            const weft_layout *l = &k->s->use[k->s->first[n] + x];
            if (g->node[n].in[x] != sum) continue;
            if (!is_reduced(l) || (any && !weft_layout_equal(l, to))) return false;
            *to = *l;
            any = true;
        }
    }
    for (int i = 0; any && i < to->n; i++)
        cut = cut || k->s->lanes >> to->split[i].axis & 1;
    for (int i = 0; i < g->n_output; i++) any = any && g->output[i] != sum;
    return any && cut;
}

/* A term of the backward pass that is the whole sum of this rank: reduced at once, its memory
 * free. */
static weft_status reduce_early(local *k, weft_vid v)
{
    const weft_graph *g = k->g;
    for (int i = k->first_user[v]; i < k->first_user[v + 1]; i++) {
        int          n = k->user[i];
        weft_layout  to, from;
        weft_reshard plan;
        weft_vid     x;
        if (g->node[n].op != WEFT_OP_ACCUMULATE || k->early[n] >= 0) continue;
        if (!wants_part(k, g->node[n].out[0], &to)) continue;
        from = k->s->use[k->s->first[n]];
        WEFT_TRY(weft_partition__take(k, v, &from, &x));
        for (int a = 0; a < k->m->n_axis; a++)
            if (k->s->lanes >> a & 1) from.unreduced[a] = WEFT_UNREDUCED_SUM;
        WEFT_TRY(find_way(k, &from, &to, &g->value[v].type, &plan));
        k->b.prefix = g->value[v].name;
        for (int s = 0; s < plan.n_step; s++)
            WEFT_TRY(weft_partition__step(k, &plan.step[s], &g->value[v].type, x, &x));
        k->b.prefix = NULL;
        k->early[n] = x;
    }
    return WEFT_OK;
}

static weft_status add_sum(local *k, int i)
{
    const weft_graph_node *n = &k->g->node[i];
    weft_layout            to;
    weft_vid               x;
    (void)wants_part(k, n->out[0], &to);
    WEFT_TRY(weft_graph_add_node(k->b.g, n->op, n->attr, 1, &k->early[i],
                                 k->g->value[n->out[0]].name, 1, &x));
    WEFT_TRY(weft_partition__add_form(k, n->out[0], &to, x, true));
    return finish(k, n->out[0]);
}

/* What a sum over micro-batches takes in another layout than it is made in: brought there while
 * the micro-batch is. */
static weft_status meet_sums(local *k, weft_vid v)
{
    for (int i = k->first_user[v]; i < k->first_user[v + 1]; i++) {
        int      n = k->user[i];
        weft_vid x;
        if (k->g->node[n].op != WEFT_OP_ACCUMULATE || k->early[n] >= 0) continue;
        WEFT_TRY(weft_partition__take(k, v, &k->s->use[k->s->first[n]], &x));
        for (form *f = k->form[v]; f; f = f->next) f->made = f->made || f->v == x;
    }
    return WEFT_OK;
}

/* The operator on local shapes. */
static weft_status add_node(local *k, int i, const weft_vid *in)
{
    const weft_graph      *g   = k->g;
    const weft_graph_node *n   = &g->node[i];
    weft_arena            *tmp = k->tmp;
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
        l[j]        = k->s->value[n->out[j]];
        lo[j]       = to[j];
        lo[j].shape = weft_partition__local_shape(k, &l[j], &to[j].shape);
    }
    memcpy(attr, n->attr, sizeof *attr * (size_t)weft_op_n_attr(n->op));
    weft_shard_local_attr(&u, lo, attr);
    WEFT_TRY(weft_shard_factors(&u, tmp, &f));
    WEFT_TRY(weft_partition__place(k, i, &u, &f, attr, in, out));
    for (int j = 0; j < n->n_out; j++) {
        const weft_shape *got = &k->b.g->value[out[j]].type.shape;
        char              a[96], b[96];
        if (weft_shape_equal(got, &lo[j].shape)) continue;
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "local graph: %s is [%s], should be [%s]",
                         g->value[n->out[j]].name, weft_shape_text(got, a, sizeof a),
                         weft_shape_text(&lo[j].shape, b, sizeof b));
    }
    WEFT_TRY(weft_partition__combine(k, i, in, out, l));
    for (int j = 0; j < n->n_out; j++)
        WEFT_TRY(weft_partition__add_form(k, n->out[j], &l[j], out[j], true));
    return WEFT_OK;
}

static weft_status write_node(local *k, int i)
{
    const weft_graph_node *n  = &k->g->node[i];
    weft_vid              *in = WEFT_ARENA_ARRAY(k->tmp, weft_vid, n->n_in + 1);
    bool                   done;
    WEFT_TRY(weft_arena_status(k->tmp));
    k->node       = i;
    k->b.g->phase = n->phase;
    if (k->early[i] >= 0) return add_sum(k, i);
    WEFT_TRY(weft_partition__ring(k, i, &done));
    for (int x = 0; x < n->n_in && !done; x++)
        WEFT_TRY(
            weft_partition__take(k, n->in[x], &k->s->use[k->s->first[i] + x], &in[x]));
    if (!done) WEFT_TRY(weft_partition__special(k, i, in, &done));
    if (!done) WEFT_TRY(add_node(k, i, in));
    for (int j = 0; j < n->n_out; j++) {
        WEFT_TRY(finish(k, n->out[j]));
        if (k->o->one_term && n->phase == WEFT_PHASE_BACKWARD)
            WEFT_TRY(reduce_early(k, n->out[j]));
        WEFT_TRY(meet_sums(k, n->out[j]));
    }
    return WEFT_OK;
}

/* Nodes written since stand for the given graph's node. */
static weft_status note_nodes(local *k)
{
    weft_local *l = k->out;
    WEFT_TRY(weft_arena_grow(l->arena, (void **)&l->node, &k->cap_node,
                             k->b.g->n_node + 1, sizeof *l->node));
    for (; l->n_node < k->b.g->n_node; l->n_node++) l->node[l->n_node] = k->node;
    return WEFT_OK;
}

static weft_status build(local *k)
{
    const weft_graph *g = k->g;
    weft_local       *l = k->out;
    l->value            = WEFT_ARENA_ARRAY(l->arena, weft_vid, g->n_value + 1);
    l->region           = WEFT_ARENA_ARRAY(l->arena, weft_region, g->n_value + 1);
    l->output           = WEFT_ARENA_ARRAY(l->arena, weft_vid, g->n_output + 1);
    k->form             = WEFT_ARENA_ARRAY(k->tmp, form *, g->n_value + 1);
    k->is_next          = WEFT_ARENA_ARRAY(k->tmp, bool, g->n_value + 1);
    k->early            = WEFT_ARENA_ARRAY(k->tmp, weft_vid, g->n_node + 1);
    WEFT_TRY(weft_arena_status(l->arena));
    WEFT_TRY(weft_arena_status(k->tmp));
    WEFT_TRY(weft_graph_users(g, k->tmp, &k->first_user, &k->user));
    for (int i = 0; i < g->n_node; i++) k->early[i] = -1;
    for (weft_vid v = 0; v < g->n_value; v++) {
        l->value[v] = -1;
        if (g->value[v].next >= 0) k->is_next[g->value[v].next] = true;
        if (g->value[v].kind == WEFT_VALUE_NODE) continue;
        WEFT_TRY(add_leaf(k, v));
        if (g->value[v].kind != WEFT_VALUE_INPUT) WEFT_TRY(find_region(k, v));
    }
    for (int i = 0; i < g->n_node; i++) {
        WEFT_TRY(write_node(k, i));
        WEFT_TRY(note_nodes(k));
    }
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].copy_of >= 0)
            WEFT_TRY(
                weft_graph_set_copy(k->b.g, l->value[v], l->value[g->value[v].copy_of]));
    for (int i = 0; i < g->n_output; i++)
        WEFT_TRY(weft_graph_set_output(k->b.g, l->output[i]));
    return weft_graph_verify(k->b.g);
}

weft_status weft_partition_local(const weft_graph *g, const weft_sharding *s,
                                 const weft_local_options *o, weft_local **out)
{
    local       k  = {.g = g, .s = s, .o = o};
    weft_arena *a  = NULL;
    weft_status st = WEFT_OK;
    if (s->n_mesh != 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "local graph: of one mesh, not of %d", s->n_mesh);
    k.m = &s->mesh[0];
    if (o->place < 0 || o->place >= k.m->n_rank)
        return WEFT_FAIL(WEFT_ERR_ARG, "local graph: place %d of %d", o->place,
                         k.m->n_rank);
    weft_mesh_coords(k.m, o->place, k.coord);
    WEFT_TRY(weft_arena_create(&a));
    WEFT_GO(weft_arena_create(&k.tmp));
    k.out = WEFT_ARENA_NEW(a, weft_local);
    WEFT_GO(weft_arena_status(a));
    k.out->arena = a;
    WEFT_GO(weft_graph_create(g->name, &k.out->graph));
    k.b = weft_build_start(k.out->graph);
    WEFT_GO(build(&k));
    *out = k.out;
    a    = NULL;
out:
    if (a && k.out) weft_graph_destroy(k.out->graph);
    weft_arena_destroy(a);
    weft_arena_destroy(k.tmp);
    return st;
}

void weft_local_destroy(weft_local *l)
{
    if (!l) return;
    weft_graph_destroy(l->graph);
    weft_arena_destroy(l->arena);
}
