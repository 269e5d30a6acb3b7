/* Between dimensions and factors: a layout of an operand is a cut of the operator's factors, and
 * the other way round.  No operator is known here by its name; what there is to know is in its
 * rule. */
#include <string.h>

#include "shard/shard_priv.h"

static const weft_type *type_at(const weft_op_use *u, int i)
{
    return i < u->n_in ? &u->in[i] : &u->out[i - u->n_in];
}
static weft_dim_factors *dim_of(const weft_node_factors *f, int i, int d)
{
    return &f->dim[i * WEFT_MAX_DIM + d];
}
static bool dim_has(const weft_dim_factors *x, int factor)
{
    for (int k = 0; k < x->n; k++)
        if (x->f[k] == factor) return true;
    return false;
}
static bool has(const weft_op_use *u, const weft_node_factors *f, int i, int factor)
{
    for (int d = 0; d < type_at(u, i)->shape.n && factor >= 0; d++)
        if (dim_has(dim_of(f, i, d), factor)) return true;
    return false;
}

/* ---- ragged rows ---- */

/* Rows stand in composite dimensions (tokens times choices) or, where there are none, by
 * themselves. */
static bool is_rows(const weft_op_use *u, const weft_node_factors *f, int i, int d,
                    int ragged)
{
    bool composite = false;
    if (!dim_has(dim_of(f, i, d), ragged)) return false;
    for (int k = 0; k < f->n_in + f->n_out; k++)
        for (int e = 0; e < type_at(u, k)->shape.n; e++)
            composite =
                composite || (dim_has(dim_of(f, k, e), ragged) && dim_of(f, k, e)->n > 1);
    return !composite || dim_of(f, i, d)->n > 1;
}

static weft_status add_own(const weft_op_use *u, weft_node_factors *f)
{
    int ragged = -1;
    f->own = f->expert = -1;
    for (int k = 0; k < f->f.n; k++)
        if (f->f.factor[k].flags & WEFT_FACTOR_RAGGED) ragged = k;
    if (ragged < 0) return WEFT_OK;
    if (f->f.n == WEFT_MAX_FACTOR)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: no room for a factor",
                         weft_op_get(u->op)->name);
    for (int i = 0; i < f->n_in + f->n_out; i++)
        for (int d = 0; d < type_at(u, i)->shape.n; d++) {
            weft_dim_factors *x = dim_of(f, i, d);
            if (is_rows(u, f, i, d, ragged) && x->n < WEFT_MAX_PART)
                x->f[WEFT_MAX_PART - 1] = 1; /* marks it while is_rows() still looks */
        }
    for (int k = 0; k < (f->n_in + f->n_out) * WEFT_MAX_DIM; k++) {
        weft_dim_factors *x     = &f->dim[k];
        bool              rows  = x->n && x->n < WEFT_MAX_PART && x->f[WEFT_MAX_PART - 1];
        x->f[WEFT_MAX_PART - 1] = 0;
        if (rows) x->f[x->n++] = f->f.n;
    }
    for (int k = 0; k < f->f.n; k++)
        if (f->f.factor[k].name == 'x' && !(f->f.factor[k].flags & WEFT_FACTOR_WHOLE))
            f->expert = k;
    f->own                = f->f.n;
    f->f.factor[f->f.n++] = (weft_factor){'@', 0, 1};
    return WEFT_OK;
}

weft_status weft_shard_factors(const weft_op_use *u, weft_arena *a,
                               weft_node_factors *out)
{
    memset(out, 0, sizeof *out);
    out->n_in  = u->n_in;
    out->n_out = u->n_out;
    out->dim = WEFT_ARENA_ARRAY(a, weft_dim_factors, (u->n_in + u->n_out) * WEFT_MAX_DIM);
    if (!out->dim) return weft_arena_status(a);
    WEFT_TRY(weft_op_factors(u, &out->f, out->dim));
    return add_own(u, out);
}

bool weft_shard_can_cut(const weft_node_factors *f, int factor)
{
    return !(f->f.factor[factor].flags & (WEFT_FACTOR_WHOLE | WEFT_FACTOR_HALO));
}

/* ---- from dimensions to factors ---- */

/* One dimension: the walk down its factors while cuts are taken in. */
typedef struct walk {
    const weft_node_factors *f;
    const weft_dim_factors  *x;
    const weft_mesh         *m;
    int64_t                  size;         /* of the dimension */
    int64_t                  period, left; /* of the cuts so far: what one part has */
    int                      at; /* the factor that cuts of this period are at */
} walk;

/* The size of what lies behind factor k of the dimension. */
static int64_t behind(const weft_node_factors *f, const weft_dim_factors *x, int k)
{
    int64_t n = 1;
    for (int i = k + 1; i < x->n; i++) n *= f->f.factor[x->f[i]].size;
    return n;
}

/* The factor a cut of this span starts at: the one it covers, or lies in. */
static int start_of(const walk *w, int64_t span)
{
    for (int k = w->x->n - 1; k >= 0; k--)
        if (behind(w->f, w->x, k) * w->f->f.factor[w->x->f[k]].size >= span) return k;
    return 0;
}

static bool take_split(walk *w, const weft_split *s, weft_split *out)
{
    int64_t span = s->period ? s->period : w->size, size = w->m->axis[s->axis].size;
    *out = *s;
    if (s->period != w->period) {
        w->period = s->period;
        w->left   = span;
        w->at     = start_of(w, span);
        if (!s->period) w->at = 0;
    }
    for (; w->at < w->x->n; w->at++) {
        int64_t in    = behind(w->f, w->x, w->at);
        int64_t whole = in * w->f->f.factor[w->x->f[w->at]].size;
        out->dim      = (int8_t)w->x->f[w->at];
        out->period   = span >= whole ? 0 : span % in == 0 ? span / in : -1;
        if (w->left <= in && w->at + 1 < w->x->n) continue; /* this one is used up */
        if (out->period < 0) return false;
        if (s->unit % in == 0) {
            out->unit = s->unit / in;
        } else if (s->order == WEFT_SPLIT_BLOCK && w->left % size == 0 &&
                   w->left / size % in == 0 && w->left / size % s->unit == 0) {
            out->unit = 1;
        } else {
            return false;
        }
        w->left = w->left % size ? 1 : w->left / size;
        return true;
    }
    return false;
}

int weft_shard__to_factors(const weft_shard__node *n, int i, const weft_layout *l,
                           const weft_mesh *m, weft_split *out)
{
    const weft_shape *shape = &type_at(&n->u, i)->shape;
    int               n_out = 0;
    for (int d = 0; d < shape->n; d++) {
        const weft_dim_factors *x    = dim_of(&n->f, i, d);
        bool                    rows = n->f.own >= 0 && dim_has(x, n->f.own);
        walk                    w    = {&n->f, x, m, shape->d[d], -1, 0, 0};
        const weft_split       *s;
        for (int k = 0; (s = weft_shard__nth(l, d, k)) != NULL; k++) {
            weft_split y = *s;
            if (!x->n) break; /* nobody's factor */
            if (s->order == WEFT_SPLIT_OWN) {
                if (n->f.own >= 0 && !rows) continue;
                y.dim = (int8_t)(rows ? n->f.own : x->f[0]);
            } else if (!take_split(&w, s, &y)) {
                break;
            }
            if (rows) y.ragged = false;
            out[n_out++] = y;
        }
    }
    return n_out;
}

/* ---- from factors to dimensions ---- */

static void put_dim(const weft_node_factors *f, const weft_layout *cut, int i, int d,
                    int64_t size, weft_layout *out)
{
    const weft_dim_factors *x    = dim_of(f, i, d);
    bool                    rows = f->own >= 0 && dim_has(x, f->own);
    for (int k = 0; k < x->n; k++) {
        int64_t           in = behind(f, x, k), whole = in * f->f.factor[x->f[k]].size;
        const weft_split *s;
        for (int j = 0; (s = weft_shard__nth(cut, x->f[k], j)) != NULL; j++) {
            weft_split y = *s;
            y.dim        = (int8_t)d;
            if (s->order != WEFT_SPLIT_OWN) {
                y.unit   = s->unit * in;
                y.period = s->period ? s->period * in : whole == size ? 0 : whole;
                y.ragged = s->ragged || rows;
            }
            weft_shard__add(out, &y);
        }
    }
}

/* Offsets beside ragged rows: each part has its own, whichever cut came first. */
static void put_own(const weft_node_factors *f, const weft_layout *cut, int d,
                    weft_layout *out)
{
    for (int axis = 0; axis < WEFT_MAX_AXIS; axis++)
        for (int i = 0; i < cut->n; i++) {
            const weft_split *s = &cut->split[i];
            if (s->axis != axis || weft_layout_find(out, axis) ||
                (s->dim != f->own && !(f->f.factor[s->dim].flags & WEFT_FACTOR_RAGGED)))
                continue;
            weft_layout_cut(out, d, axis, WEFT_SPLIT_OWN);
        }
}

static bool has_any(const weft_op_use *u, const weft_node_factors *f, int i, int factor)
{
    if (factor == f->own || factor == f->expert)
        return has(u, f, i, f->own) || has(u, f, i, f->expert);
    return has(u, f, i, factor);
}

/* A factor that operands have and a result has not is summed there. */
static void put_unreduced(const weft_op_use *u, const weft_node_factors *f,
                          const weft_layout *cut, int i, weft_layout *out)
{
    for (int k = 0; k < cut->n; k++) {
        int         factor = cut->split[k].dim, axis = cut->split[k].axis;
        bool        operand = false;
        weft_factor x       = f->f.factor[factor];
        if (has_any(u, f, i, factor) || x.flags & WEFT_FACTOR_FREE ||
            weft_layout_find(out, axis))
            continue;
        for (int j = 0; j < u->n_in; j++) operand = operand || has_any(u, f, j, factor);
        if (operand)
            out->unreduced[axis] =
                x.flags & WEFT_FACTOR_SOFTMAX ? WEFT_UNREDUCED_PAIR : WEFT_UNREDUCED_SUM;
    }
}

weft_layout weft_shard_project(const weft_op_use *u, const weft_node_factors *f,
                               const weft_mesh *m, const weft_layout *cut, int i)
{
    const weft_shape *s   = &type_at(u, i)->shape;
    weft_layout       out = weft_layout_replicated(cut->mesh, s->n);
    if (!cut->n) return out;
    for (int d = 0; d < s->n; d++)
        if (f->own >= 0 && !dim_of(f, i, d)->n)
            put_own(f, cut, d, &out);
        else
            put_dim(f, cut, i, d, s->d[d], &out);
    if (i >= u->n_in) put_unreduced(u, f, cut, i, &out);
    return weft_shard__normal(&out, m, s);
}

/* ---- local uses ---- */

/* Attributes say sizes by these names: shape the result's, rows dimension 0, size along axis, s
 * and t the first two. */
void weft_shard_local_attr(const weft_op_use *u, const weft_type *local_out,
                           weft_attr *attr)
{
    const weft_shape *y    = u->n_out ? &local_out[0].shape : NULL;
    int               at   = weft_op_attr_index(u->op, "shape");
    int               axis = weft_op_attr_index(u->op, "axis");
    if (!y) return;
    if (at >= 0 && weft_op_attr_type(u->op, at) == WEFT_ATTR_LIST && attr[at].n == y->n)
        memcpy(attr[at].l, y->d, sizeof y->d);
    if ((at = weft_op_attr_index(u->op, "rows")) >= 0) attr[at].i = y->d[0];
    at = weft_op_attr_index(u->op, "size");
    if (at >= 0 && axis >= 0)
        attr[at].i = y->d[attr[axis].i < 0 ? attr[axis].i + y->n : attr[axis].i];
    if ((at = weft_op_attr_index(u->op, "s")) >= 0) attr[at].i = y->d[0];
    if ((at = weft_op_attr_index(u->op, "t")) >= 0) attr[at].i = y->d[1];
}

static int64_t *int_attr(weft_op op, weft_attr *attr, const char *name)
{
    int i = weft_op_attr_index(op, name);
    return i >= 0 ? &attr[i].i : NULL;
}
static int named(const weft_node_factors *f, char name)
{
    for (int k = 0; k < f->f.n; k++)
        if (f->f.factor[k].name == name) return k;
    return -1;
}

bool weft_shard_is_positional(const weft_op_use *u, const weft_node_factors *f,
                              int factor)
{
    char name  = f->f.factor[factor].name;
    bool first = weft_op_attr_index(u->op, "first") >= 0;
    if (weft_op_get(u->op)->flags & WEFT_OP_RANDOM) return true;
    if (factor == f->own || factor == f->expert) return true;
    if (name == 'v') return first || weft_shard_index_operand(u, f, &factor) >= 0;
    if (name == 's' && first) return true;
    return (name == 's' || name == 't') && (weft_op_attr_index(u->op, "q_first") >= 0 ||
                                            weft_op_attr_index(u->op, "s_first") >= 0);
}

/* A piece's origin in the whole, dimension by dimension. */
static void set_at(const weft_op_use *u, const weft_node_factors *f,
                   const weft_interval *part, weft_attr *attr)
{
    int at = weft_op_attr_index(u->op, "at"), whole = weft_op_attr_index(u->op, "whole");
    const weft_shape *s = &u->in[0].shape;
    if (at < 0 || whole < 0) return;
    if (!attr[whole].n)
        for (int d = 0; d < s->n; d++) attr[whole].l[d] = s->d[d], attr[at].l[d] = 0;
    attr[whole].n = attr[at].n = s->n;
    for (int d = 0; d < s->n; d++)
        if (dim_of(f, 0, d)->n) attr[at].l[d] += part[dim_of(f, 0, d)->f[0]].lo;
}

/* Where queries and keys stand: said only when either is cut. */
static void set_positions(const weft_op_use *u, const weft_node_factors *f,
                          const weft_interval *part, int s, int t, weft_attr *attr)
{
    int64_t *q = int_attr(u->op, attr, "q_first"), *k = int_attr(u->op, attr, "k_first");
    int64_t  n_s = f->f.factor[s].size, n_t = f->f.factor[t].size;
    if (!q || !k) return;
    if (part[s].hi - part[s].lo == n_s && part[t].hi - part[t].lo == n_t) return;
    if (*q < 0) *q = n_t - n_s, *k = 0;
    *q += part[s].lo;
    *k += part[t].lo;
    if (*q < 0) *k -= *q, *q = 0; /* only their difference counts */
}

static bool is_cut(const weft_layout *cut, int factor)
{
    for (int i = 0; i < cut->n && factor >= 0; i++)
        if (cut->split[i].dim == factor) return true;
    return false;
}

weft_status weft_shard_own_experts(const weft_node_factors *f, const weft_mesh *m,
                                   const weft_layout *cut, int64_t n, int place,
                                   weft_arena *a, weft_interval *out)
{
    weft_layout    l = weft_layout_replicated(cut->mesh, 1);
    weft_interval *v;
    int            n_v;
    for (int i = 0; i < cut->n; i++)
        if (cut->split[i].dim == f->own || cut->split[i].dim == f->expert)
            if (!weft_layout_find(&l, cut->split[i].axis))
                weft_layout_cut(&l, 0, cut->split[i].axis, WEFT_SPLIT_BLOCK);
    WEFT_TRY(weft_layout_intervals(&l, m, 0, n, place, a, &v, &n_v));
    *out = n_v ? v[0] : (weft_interval){0, 0};
    return WEFT_OK;
}

void weft_shard_local_first(const weft_op_use *u, const weft_node_factors *f,
                            const weft_layout *cut, const weft_interval *part,
                            weft_attr *attr)
{
    int      s = named(f, 's'), t = named(f, 't'), v = named(f, 'v');
    int64_t *first = int_attr(u->op, attr, "first"), *x;
    set_at(u, f, part, attr);
    if (first && is_cut(cut, v))
        *first = (*first < 0 ? 0 : *first) + part[v].lo;
    else if (first && v < 0 && s >= 0)
        *first += part[s].lo;
    if (s >= 0 && (x = int_attr(u->op, attr, "s_first")) != NULL) *x += part[s].lo;
    if (t >= 0 && (x = int_attr(u->op, attr, "t_first")) != NULL) *x += part[t].lo;
    if (s >= 0 && t >= 0) set_positions(u, f, part, s, t, attr);
    if (is_cut(cut, f->own) && (x = int_attr(u->op, attr, "first_expert")) != NULL &&
        int_attr(u->op, attr, "own")) {
        *x                            = part[f->own].lo;
        *int_attr(u->op, attr, "own") = part[f->own].hi - part[f->own].lo;
    }
}

int weft_shard_sorter(const weft_graph *g, int node)
{
    const weft_graph_node *n = &g->node[node];
    for (int k = 0; k < n->n_in; k++) {
        const weft_graph_value *v = &g->value[n->in[k]];
        if (v->type.dtype == WEFT_DTYPE_I32 && v->kind == WEFT_VALUE_NODE &&
            weft_op_attr_index(g->node[v->node].op, "experts") >= 0)
            return v->node;
    }
    return -1;
}

int weft_shard_index_operand(const weft_op_use *u, const weft_node_factors *f,
                             int *factor)
{
    for (int k = 0; k < f->f.n; k++)
        for (int i = 0; i < u->n_in && f->f.factor[k].name == 'v'; i++)
            if ((u->in[i].dtype == WEFT_DTYPE_I32 || u->in[i].dtype == WEFT_DTYPE_I64) &&
                !has(u, f, i, k)) {
                *factor = k;
                return i;
            }
    return -1;
}
