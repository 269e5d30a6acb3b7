/* The last walk: what is unreduced where, and the tables of the result.
 *
 * A result is unreduced over the axes of its summed factors.  A linear operator passes an
 * unreduced sum on where that saves a reduction: nobody else needs the operand reduced, the
 * result is not larger, and an addition has all its operands unreduced alike.  Everybody else
 * gets the operand reduced; where the operand is cut by the same axis there, that is a
 * reduce-scatter. */
#include <string.h>

#include "shard/shard_priv.h"

/* Linear in its operands' values: a maximum is not, whatever its row says of sums and means. */
static bool is_linear(const weft_graph_node *n)
{
    int kind = weft_op_attr_index(n->op, "kind");
    if (!(weft_op_get(n->op)->flags & WEFT_OP_LINEAR)) return false;
    return kind < 0 || weft_op_attr_type(n->op, kind) != WEFT_ATTR_STRING ||
           strcmp(n->attr[kind].s, "max") != 0;
}

/* Adds (or lines up) operands instead of multiplying them. */
static bool is_additive(const weft_graph_node *n)
{
    const char *rule = weft_op_get(n->op)->rule;
    return n->n_in > 1 && (!strcmp(rule, "=broadcast") || !strcmp(rule, "=concat"));
}

static bool cuts_with(const weft_layout *cut, int axis)
{
    return weft_layout_find(cut, axis) != NULL;
}

/* All that becomes of v is a sum over micro-batches: then it is reduced behind that, once a step.
 * Users come behind makers, so going backwards sees them first. */
weft_status weft_shard__find_summed(weft_shard__run *r)
{
    r->summed = WEFT_ARENA_ARRAY(r->tmp, bool, r->g->n_value + 1);
    WEFT_TRY(weft_arena_status(r->tmp));
    for (weft_vid v = r->g->n_value - 1; v >= 0; v--) {
        r->summed[v] = r->first_user[v] < r->first_user[v + 1];
        for (int i = r->first_user[v]; i < r->first_user[v + 1] && r->summed[v]; i++) {
            const weft_graph_node *n = &r->g->node[r->user[i]];
            if (weft_shard__is_boundary(r->g, r->user[i])) continue;
            r->summed[v] = n->phase != WEFT_PHASE_UPDATE && is_linear(n);
            for (int j = 0; j < n->n_out; j++)
                r->summed[v] = r->summed[v] && r->summed[n->out[j]];
        }
    }
    return WEFT_OK;
}

/* Would this node take v unreduced over the axis? */
static bool would_pass(const weft_shard__run *r, int node, weft_vid v, int axis)
{
    const weft_graph_node *n     = &r->g->node[node];
    const weft_layout     *value = r->s->value;
    int64_t                in = 0, out = 0;
    if (!is_linear(n) || cuts_with(&r->node[node].cut, axis)) return false;
    if (n->phase == WEFT_PHASE_UPDATE && !weft_shard__is_boundary(r->g, node))
        return false; /* uses of a parameter are summed first, then added */
    if (value[v].mesh != r->node[node].cut.mesh) return false;
    for (int i = 0; i < n->n_in; i++) {
        bool open = value[n->in[i]].unreduced[axis] == WEFT_UNREDUCED_SUM;
        if (is_additive(n) ? !open : open && n->in[i] != v) return false;
        if (!is_additive(n) && n->in[i] == v && i > 0 && n->in[0] == v)
            return false; /* v v */
        in += weft_shard__bytes(&r->g->value[n->in[i]].type);
    }
    for (int j = 0; j < n->n_out; j++)
        out += weft_shard__bytes(&r->g->value[n->out[j]].type);
    if (weft_shard__is_boundary(r->g, node) || r->summed[n->out[0]]) return true;
    return out <= (is_additive(n) ? in : weft_shard__bytes(&r->g->value[v].type));
}

/* May node take v unreduced: nobody needs it reduced anyway. */
static bool passes(const weft_shard__run *r, int node, weft_vid v, int axis)
{
    if (!would_pass(r, node, v, axis)) return false;
    if (weft_shard__is_boundary(r->g, node)) return true;
    for (int i = r->first_user[v]; i < r->first_user[v + 1]; i++) {
        const weft_graph_node *n = &r->g->node[r->user[i]];
        if (!is_linear(n) || cuts_with(&r->node[r->user[i]].cut, axis)) return false;
    }
    for (int i = 0; i < r->g->n_output; i++)
        if (r->g->output[i] == v) return false;
    return true;
}

/* Positions of dimension d that a place and its neighbours along the axis have together. */
static int64_t rows_along(const weft_mesh *m, const weft_layout *l, const weft_shape *s,
                          int place, int axis, int d)
{
    int     coord[WEFT_MAX_AXIS];
    int64_t n = 0;
    weft_mesh_coords(m, place, coord);
    for (coord[axis] = 0; coord[axis] < m->axis[axis].size; coord[axis]++)
        n += weft_layout_local(l, m, s, weft_mesh_place_of(m, coord)).d[d];
    return n;
}

/* Rows that each rank sorted go to the owners of their experts, or come back: whole rows, beside
 * their offsets or sources, where owners have room for all that can come. */
static bool may_travel(const weft_shard__run *r, int node, int k, const weft_split *a,
                       const weft_split *b)
{
    weft_vid           v = r->g->node[node].in[k];
    const weft_layout *x = &r->s->value[v], *y = &r->s->use[r->s->first[node] + k];
    const weft_mesh   *m    = &r->o->mesh[x->mesh];
    const weft_shape  *s    = &r->g->value[v].type.shape;
    bool               out  = b->order == WEFT_SPLIT_OWN;
    const weft_layout *home = out ? x : y, *own = out ? y : x;
    int                n_own = 0;
    if (x->mesh != y->mesh || a->dim != b->dim || s->n != 2) return false;
    if (out == (a->order == WEFT_SPLIT_OWN) || !(out ? a : b)->ragged) return false;
    if (weft_shard_sorter(r->g, node) < 0) return false;
    for (int i = 0; i < own->n; i++) n_own += own->split[i].order == WEFT_SPLIT_OWN;
    for (int p = 0; p<m->n_rank; p += m->n_rank> 1 ? m->n_rank - 1 : 1)
        if (rows_along(m, home, s, p, a->axis, a->dim) >
            weft_layout_local(own, m, s, p).d[a->dim])
            return false;
    return n_own == 1;
}

/* Ragged rows cannot be recut: they are used as they were made, or sent as a whole.  Where
 * tokens' cuts do not fit all that is done with their rows, all begins again without such cuts by
 * that axis: WEFT_AGAIN. */
static weft_status check_ragged(weft_shard__run *r, int node, int k)
{
    weft_vid           v = r->g->node[node].in[k];
    const weft_layout *a = &r->s->value[v], *b = &r->s->use[r->s->first[node] + k];
    for (int i = 0; i < a->n + b->n; i++) {
        const weft_split *s = i < a->n ? &a->split[i] : &b->split[i - a->n];
        const weft_split *t = weft_layout_find(i < a->n ? b : a, s->axis);
        if (!s->ragged && s->order != WEFT_SPLIT_OWN) continue;
        if (a->mesh == b->mesh && t && weft_shard__split_equal(s, t)) continue;
        if (t && may_travel(r, node, k, i < a->n ? s : t, i < a->n ? t : s)) continue;
        if (!(r->whole_rows >> s->axis & 1)) {
            r->whole_rows |= 1u << s->axis;
            return WEFT_AGAIN;
        }
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: rows of %s, sorted by expert on each rank, would have to "
                         "be recut over axis %s; "
                         "mark the expert weights or the tokens with never(%s)",
                         r->g->value[r->g->node[node].out[0]].name, r->g->value[v].name,
                         r->o->mesh[a->mesh].axis[s->axis].name,
                         r->o->mesh[a->mesh].axis[s->axis].name);
    }
    return WEFT_OK;
}

static weft_status resolve_node(weft_shard__run *r, int i)
{
    weft_shard__node      *n      = &r->node[i];
    const weft_graph_node *g      = &r->g->node[i];
    const weft_mesh       *m      = &r->o->mesh[n->cut.mesh];
    weft_sharding         *s      = r->s;
    uint32_t               passed = 0;
    for (int k = 0; k < g->n_in; k++) {
        weft_layout *use = &s->use[s->first[i] + k];
        *use             = weft_shard_project(&n->u, &n->f, m, &n->cut, k);
        for (int a = 0; a < m->n_axis; a++)
            if (s->value[g->in[k]].unreduced[a] == WEFT_UNREDUCED_SUM &&
                passes(r, i, g->in[k], a)) {
                use->unreduced[a] = WEFT_UNREDUCED_SUM;
                passed |= 1u << a;
            }
    }
    /* an addition passes on only what all of its operands do */
    for (int k = 0; k < g->n_in && is_additive(g); k++)
        for (int a = 0; a < m->n_axis; a++)
            if (!s->use[s->first[i] + k].unreduced[a]) passed &= ~(1u << a);
    for (int k = 0; k < g->n_in; k++) {
        for (int a = 0; a < m->n_axis; a++)
            if (!(passed >> a & 1)) s->use[s->first[i] + k].unreduced[a] = 0;
        WEFT_TRY(check_ragged(r, i, k));
    }
    for (int j = 0; j < g->n_out; j++) {
        weft_layout l = weft_shard_project(&n->u, &n->f, m, &n->cut, g->n_in + j);
        for (int a = 0; a < m->n_axis; a++)
            if (passed >> a & 1 ||
                (r->o->lanes >> a & 1 && weft_shard__is_boundary(r->g, i)))
                l.unreduced[a] = WEFT_UNREDUCED_SUM;
        s->value[g->out[j]] = l;
    }
    s->node[i] = n->cut;
    return WEFT_OK;
}

/* At rest: what its uses like, and behind that what only keeping it asks for. */
static void put_leaf(weft_shard__run *r, weft_vid v)
{
    weft_layout l = r->wish[v];
    for (int i = 0; i < r->rest[v].n; i++)
        if (!weft_layout_find(&l, r->rest[v].split[i].axis))
            weft_shard__add(&l, &r->rest[v].split[i]);
    r->s->value[v] =
        weft_shard__normal(&l, &r->o->mesh[l.mesh], &r->g->value[v].type.shape);
}

static weft_status copy_meshes(weft_shard__run *r)
{
    weft_sharding *s = r->s;
    s->mesh          = WEFT_ARENA_ARRAY(s->arena, weft_mesh, r->o->n_mesh);
    WEFT_TRY(weft_arena_status(s->arena));
    for (int i = 0; i < r->o->n_mesh; i++) {
        const weft_mesh *m = &r->o->mesh[i];
        s->mesh[i]         = *m;
        s->mesh[i].name    = weft_arena_strdup(s->arena, m->name);
        s->mesh[i].rank =
            weft_arena_memdup(s->arena, m->rank, sizeof *m->rank * (size_t)m->n_rank);
        for (int a = 0; a < m->n_axis; a++)
            s->mesh[i].axis[a].name = weft_arena_strdup(s->arena, m->axis[a].name);
    }
    s->n_mesh = r->o->n_mesh;
    s->lanes  = r->o->lanes;
    return weft_arena_status(s->arena);
}

weft_status weft_shard__resolve(weft_shard__run *r)
{
    WEFT_TRY(copy_meshes(r));
    WEFT_TRY(weft_shard__make_tables(r->s, r->g));
    for (weft_vid v = 0; v < r->g->n_value; v++)
        if (r->g->value[v].kind != WEFT_VALUE_NODE) put_leaf(r, v);
    for (int i = 0; i < r->g->n_node; i++) WEFT_TRY(resolve_node(r, i));
    for (int i = 0; i < r->g->n_output; i++) {
        r->s->output[i] = r->s->value[r->g->output[i]];
        memset(r->s->output[i].unreduced, 0, sizeof r->s->output[i].unreduced);
    }
    return weft_sharding_verify(r->s, r->g);
}
