/* Propagation: marks spread over the graph until nothing changes.
 *
 * A value carries a wish: the cuts that its maker and its users like.  A node carries a cut of its
 * factors.  Visiting a node takes wishes of its operands and results in as cuts of factors, one
 * axis at a time, and gives the projections back as wishes.
 *
 * (1) Wishes and cuts only grow: a split is added behind those there are, never taken away.  A
 *     value has at most one split for each axis, so every sweep but the last decides at least one
 *     of values x axes; along one axis that is at most |V| forward and |V| backward sweeps.
 * (2) The forward pass is settled first, then backward and update follow it: a gradient is cut as
 *     what it is the gradient of.
 *     What is computed again is cut as it was the first time.
 * (3) Marks are kept: what a mark closed does not grow.
 * (4) What the forward pass uses takes no wishes from the update phase: optimizer state may be
 *     cut more finely than its parameter. */
#include <string.h>

#include "graph/recompute.h"
#include "shard/shard_priv.h"

static int find_node_mesh(const weft_shard__run *r, int node)
{
    return r->o->node_mesh ? r->o->node_mesh[node] : 0;
}

static int find_mesh(const weft_shard__run *r, weft_vid v)
{
    int node = r->g->value[v].node;
    if (node >= 0) return find_node_mesh(r, node);
    if (r->first_user[v] < r->first_user[v + 1])
        return find_node_mesh(r, r->user[r->first_user[v]]);
    return 0;
}

weft_vid weft_shard__value_at(const weft_graph_node *n, int i)
{
    return i < n->n_in ? n->in[i] : n->out[i - n->n_in];
}

bool weft_shard__is_boundary(const weft_graph *g, int node)
{
    const weft_graph_node *n = &g->node[node];
    if (n->phase != WEFT_PHASE_UPDATE) return false;
    for (int i = 0; i < n->n_in; i++) {
        int maker = g->value[n->in[i]].node;
        if (maker >= 0 && g->node[maker].phase != WEFT_PHASE_UPDATE) return true;
    }
    return false;
}

/* ---- setting up ---- */

static weft_status make_node(weft_shard__run *r, int i)
{
    const weft_graph_node *n   = &r->g->node[i];
    weft_type             *in  = WEFT_ARENA_ARRAY(r->tmp, weft_type, n->n_in + 1);
    weft_type             *out = WEFT_ARENA_ARRAY(r->tmp, weft_type, n->n_out + 1);
    WEFT_TRY(weft_arena_status(r->tmp));
    r->node[i].u   = weft_graph_use(r->g, n, in, out);
    r->node[i].cut = weft_layout_replicated(find_node_mesh(r, i), 0);
    if (r->node[i].cut.mesh < 0 || r->node[i].cut.mesh >= r->o->n_mesh)
        return WEFT_FAIL(WEFT_ERR_ARG, "sharding: node %d is on mesh %d of %d", i,
                         r->node[i].cut.mesh, r->o->n_mesh);
    return weft_shard_factors(&r->node[i].u, r->tmp, &r->node[i].f);
}

static weft_status set_up(weft_shard__run *r)
{
    int n      = r->g->n_value;
    r->node    = WEFT_ARENA_ARRAY(r->tmp, weft_shard__node, r->g->n_node + 1);
    r->wish    = WEFT_ARENA_ARRAY(r->tmp, weft_layout, n + 1);
    r->marked  = WEFT_ARENA_ARRAY(r->tmp, weft_layout, n + 1);
    r->rest    = WEFT_ARENA_ARRAY(r->tmp, weft_layout, n + 1);
    r->closed  = WEFT_ARENA_ARRAY(r->tmp, uint32_t, n + 1);
    r->never   = WEFT_ARENA_ARRAY(r->tmp, uint32_t, n + 1);
    r->maybe   = WEFT_ARENA_ARRAY(r->tmp, uint32_t, n + 1);
    r->repeats = WEFT_ARENA_ARRAY(r->tmp, weft_vid, n + 1);
    WEFT_TRY(weft_arena_status(r->tmp));
    WEFT_TRY(weft_graph_users(r->g, r->tmp, &r->first_user, &r->user));
    WEFT_TRY(weft_shard__find_summed(r));
    weft_graph_find_repeats(r->g, r->first_user, r->user, r->repeats);
    for (int i = 0; i < r->g->n_node; i++) WEFT_TRY(make_node(r, i));
    for (weft_vid v = 0; v < n; v++)
        r->wish[v] = r->marked[v] = r->rest[v] =
            weft_layout_replicated(find_mesh(r, v), r->g->value[v].type.shape.n);
    return WEFT_OK;
}

/* ---- marks ---- */

static weft_status put_mark(weft_shard__run *r, const weft_mark *k, weft_vid v)
{
    const weft_graph_value *x = &r->g->value[v];
    const weft_mesh        *m = &r->o->mesh[r->wish[v].mesh];
    weft_layout             l = k->layout;
    if (l.n_dim != x->type.shape.n)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "mark of %s: %d dimensions are given, the value has %d", x->name,
                         l.n_dim, x->type.shape.n);
    for (int i = 0; i < l.n; i++) {
        weft_split *s = &l.split[i];
        if (s->dim < 0 || s->dim >= l.n_dim || s->axis < 0 || s->axis >= m->n_axis)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "mark of %s: dimension %d by axis %d of mesh %s", x->name,
                             s->dim, s->axis, m->name);
        if (r->o->lanes >> s->axis & 1 &&
            (x->kind == WEFT_VALUE_INPUT ||
             (x->node >= 0 && weft_shard__is_boundary(r->g, x->node))))
            continue; /* each has its own; sums go where they are wanted */
        if (k->rest) {
            if (!weft_layout_find(&r->rest[v], s->axis)) weft_shard__add(&r->rest[v], s);
            r->never[v] |= 1u << s->axis;
            continue;
        }
        if (weft_layout_find(&r->wish[v], s->axis))
            continue; /* it came there by itself */
        if (!weft_shard__add(&r->wish[v], s))
            return WEFT_FAIL(WEFT_ERR_ARG, "mark of %s: more than %d cuts", x->name,
                             WEFT_MAX_AXIS);
        weft_shard__add(&r->marked[v], s);
        r->changed = true;
    }
    for (int a = 0; a < WEFT_MAX_AXIS; a++)
        if (l.unreduced[a])
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "mark of %s: what is unreduced follows from operators; leave it out",
                x->name);
    r->wish[v] = weft_shard__normal(&r->wish[v], m, &x->type.shape);
    for (int d = 0; d < l.n_dim && !k->rest; d++)
        if (!(k->open >> d & 1)) r->closed[v] |= 1u << d;
    r->never[v] |= k->never;
    weft_status st = weft_layout_verify(&r->wish[v], m, &x->type.shape);
    return st == WEFT_OK ? st : weft_fail_in(st, "mark of %s: ", x->name);
}

static weft_status put_marks(weft_shard__run *r, int priority)
{
    for (int i = 0; i < r->o->n_mark; i++) {
        const weft_mark *k   = &r->o->mark[i];
        bool             any = false;
        if (k->priority != priority) continue;
        if (!k->name) {
            if (k->value < 0 || k->value >= r->g->n_value)
                return WEFT_FAIL(WEFT_ERR_ARG, "mark of value %d: there are %d", k->value,
                                 r->g->n_value);
            WEFT_TRY(put_mark(r, k, k->value));
            continue;
        }
        for (weft_vid v = -1; (v = weft_mark_next(k, r->g, v + 1)) >= 0; any = true)
            WEFT_TRY(put_mark(r, k, v));
        if (!any)
            return WEFT_FAIL(WEFT_ERR_ARG, "mark of '%s': graph %s has no such value",
                             k->name, r->g->name);
    }
    return WEFT_OK;
}

/* ---- sweeps ---- */

/* A state and its next value lie alike, where nothing speaks against it. */
static void share_next(weft_shard__run *r)
{
    for (weft_vid v = 0; v < r->g->n_value; v++) {
        weft_vid w = r->g->value[v].next;
        if (w < 0) continue;
        for (int i = 0; i < r->wish[v].n; i++) {
            const weft_split *s = &r->wish[v].split[i];
            if (weft_layout_find(&r->wish[w], s->axis) || r->closed[w] >> s->dim & 1 ||
                r->never[w] >> s->axis & 1)
                continue;
            if (weft_shard__add(&r->wish[w], s)) r->changed = true;
        }
        weft_shard__sort(&r->wish[w]);
    }
}

static weft_status sweep(weft_shard__run *r, bool forward, weft_phase last)
{
    int n      = r->g->n_node;
    r->changed = false;
    for (int i = 0; i < n; i++) {
        int at = forward ? i : n - 1 - i;
        if (r->g->node[at].phase <= last) WEFT_TRY(weft_shard__visit(r, at));
    }
    share_next(r);
    if (r->changed) r->s->n_sweep++;
    return WEFT_OK;
}

/* Axes along which ranks have different samples or positions: gradients will be unreduced over
 * them. */
static void find_data_axes(weft_shard__run *r)
{
    for (weft_vid v = 0; v < r->g->n_value; v++)
        for (int i = 0; r->g->value[v].kind == WEFT_VALUE_INPUT && i < r->wish[v].n; i++)
            r->data |= 1u << r->wish[v].split[i].axis;
}

/* The forward pass from its inputs on; all of it from the updates back, so that parameters tell
 * their gradients how they lie. */
static weft_status settle(weft_shard__run *r, weft_phase last)
{
    int  most  = 2 * (r->g->n_value + 1) * (r->o->mesh[0].n_axis + 1);
    bool first = last == WEFT_PHASE_FORWARD;
    for (bool go_on = true; go_on;) {
        WEFT_TRY(sweep(r, first, last));
        go_on = r->changed;
        WEFT_TRY(sweep(r, !first, last));
        go_on = go_on || r->changed;
        if (r->s->n_sweep > most)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "sharding: graph %s does not settle",
                             r->g->name);
    }
    return WEFT_OK;
}

static weft_status run_once(weft_shard__run *r)
{
    int last = 0;
    WEFT_TRY(set_up(r));
    r->s->n_conflict = 0;
    r->data          = r->o->lanes;
    for (int i = 0; i < r->o->n_mark; i++)
        if (r->o->mark[i].priority > last) last = r->o->mark[i].priority;
    for (int p = 0; p <= last; p++) {
        WEFT_TRY(put_marks(r, p));
        WEFT_TRY(settle(r, WEFT_PHASE_FORWARD));
        find_data_axes(r);
        WEFT_TRY(settle(r, WEFT_PHASE_UPDATE));
    }
    return weft_shard__resolve(r);
}

/* Again only with one more axis that leaves rows whole. */
static weft_status run(weft_shard__run *r)
{
    weft_status st = WEFT_AGAIN;
    while (st == WEFT_AGAIN) st = run_once(r);
    return st;
}

static weft_status check_options(const weft_shard_options *o)
{
    if (o->n_mesh < 1) return WEFT_FAIL(WEFT_ERR_ARG, "sharding: there is no mesh");
    for (int i = 0; i < o->n_mesh; i++) WEFT_TRY(weft_mesh_verify(&o->mesh[i]));
    return WEFT_OK;
}

weft_status weft_shard_propagate(const weft_graph *g, const weft_shard_options *o,
                                 weft_sharding **out)
{
    weft_shard__run r  = {.g = g, .o = o};
    weft_arena     *a  = NULL;
    weft_status     st = WEFT_OK;

    WEFT_TRY(check_options(o));
    WEFT_TRY(weft_arena_create(&a));
    WEFT_GO(weft_arena_create(&r.tmp));
    r.s = WEFT_ARENA_NEW(a, weft_sharding);
    WEFT_GO(weft_arena_status(a));
    r.s->arena = a;
    WEFT_GO(run(&r));
    *out = r.s;
    a    = NULL;
out:
    weft_arena_destroy(r.tmp);
    weft_arena_destroy(a);
    return st;
}

void weft_sharding_destroy(weft_sharding *s)
{
    if (s) weft_arena_destroy(s->arena);
}
