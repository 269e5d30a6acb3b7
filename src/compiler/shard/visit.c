/* One visit of one node: wishes become cuts of factors, cuts become wishes.  Where two wishes
 * cannot both be had, the cheaper one is taken: first what a mark says, then bytes, then steps,
 * then order. */
#include <string.h>

#include "shard/shard_priv.h"

/* Why a wish is not to be weighed by bytes. */
typedef enum strength {
    BY_BYTES,
    BY_PARAM,  /* in the backward pass: as the parameter lies */
    BY_MARK,   /* a mark on this very value */
    BY_WEIGHT, /* and that is a weight: what it meets comes to it */
    BY_ROWS,   /* as its rows were sorted: which row is whose is known nowhere else */
} strength;

/* A wish for one more cut of one factor. */
typedef struct candidate {
    weft_split s;  /* dim is the factor */
    int        at; /* operand or result */
    weft_vid   value;
    int        dim; /* of the value, for messages */
    strength   by;
} candidate;

#define MAX_CANDIDATE 64

static bool cut_equal(const weft_split *a, const weft_split *b)
{
    return weft_shard__split_equal(a, b);
}

/* ---- what it would cost ---- */

/* Some node before this one has operand `to` of v already: then it is there. */
static bool is_there(const weft_shard__run *r, int node, weft_vid v,
                     const weft_layout *to)
{
    for (int i = r->first_user[v]; i < r->first_user[v + 1]; i++) {
        const weft_shard__node *n = &r->node[r->user[i]];
        if (r->user[i] >= node || n->cut.mesh != to->mesh) continue;
        for (int k = 0; k < n->u.n_in; k++)
            if (r->g->node[r->user[i]].in[k] == v) {
                weft_layout l = weft_shard_project(&n->u, &n->f, &r->o->mesh[n->cut.mesh],
                                                   &n->cut, k);
                if (weft_layout_equal(&l, to)) return true;
            }
    }
    return false;
}

static void add_measure(weft_measure *sum, weft_measure x)
{
    for (int i = 0; i < WEFT_MAX_LINK; i++) sum->bytes[i] += x.bytes[i];
    sum->steps += x.steps;
}

static void add_twin(const weft_node_factors *f, weft_layout *cut, const weft_split *s)
{
    weft_split t = {.axis = s->axis, .unit = 1};
    if (f->expert < 0) return;
    if (s->dim == f->expert)
        t.dim = (int8_t)f->own, t.order = WEFT_SPLIT_OWN;
    else if (s->dim == f->own)
        t.dim = (int8_t)f->expert;
    else
        return;
    weft_shard__add(cut, &t);
}

/* What operands and results have to move when the candidate is taken. */
static weft_measure price(const weft_shard__run *r, int node, const candidate *c)
{
    const weft_shard__node *n   = &r->node[node];
    const weft_mesh        *m   = &r->o->mesh[n->cut.mesh];
    weft_layout             cut = n->cut;
    weft_measure            sum = {0};
    weft_shard__add(&cut, &c->s);
    add_twin(&n->f, &cut, &c->s);
    for (int i = 0; i < n->u.n_in + n->u.n_out; i++) {
        weft_vid         v    = weft_shard__value_at(&r->g->node[node], i);
        const weft_type *t    = &r->g->value[v].type;
        weft_layout      here = weft_shard_project(&n->u, &n->f, m, &cut, i);
        weft_layout      wish = r->wish[v];
        wish.mesh             = here.mesh;
        if (i < n->u.n_in) {
            if (!is_there(r, node, v, &here))
                add_measure(&sum, weft_reshard_estimate(m, &wish, &here, t));
            continue;
        }
        for (int k = 0; k < here.n; k++) /* what nobody minds stays as it is made */
            if (!weft_layout_find(&wish, here.split[k].axis))
                weft_shard__add(&wish, &here.split[k]);
        add_measure(&sum, weft_reshard_estimate(m, &here, &wish, t));
    }
    return sum;
}

static int64_t total_bytes(const weft_measure *m)
{
    int64_t n = 0;
    for (int i = 0; i < WEFT_MAX_LINK; i++) n += m->bytes[i];
    return n;
}

/* ---- conflicts, in words ---- */

/* Of experts, not of tokens or columns. */
static bool is_own(const weft_shard__run *r, int node, const candidate *c)
{
    const weft_node_factors *f = &r->node[node].f;
    return f->own >= 0 && (c->s.dim == f->own || c->s.dim == f->expert);
}

static weft_status report(weft_shard__run *r, int node, const candidate *kept,
                          const candidate *lost, int64_t kept_bytes, int64_t lost_bytes)
{
    weft_sharding           *s        = r->s;
    const weft_mesh         *m        = &r->o->mesh[r->node[node].cut.mesh];
    const char              *axis     = m->axis[lost->s.axis].name;
    static const char *const reason[] = {"which came first", "as the parameter lies",
                                         "as marked", "as marked",
                                         "as its rows were sorted"};
    if (is_own(r, node, kept) != is_own(r, node, lost))
        return WEFT_OK; /* rows are sent */
    for (int i = 0; i < s->n_conflict; i++)
        if (s->conflict[i].node == node && s->conflict[i].axis == lost->s.axis &&
            s->conflict[i].lost == lost->value)
            return WEFT_OK;
    WEFT_TRY(weft_arena_grow(s->arena, (void **)&s->conflict, &s->cap_conflict,
                             s->n_conflict + 1, sizeof *s->conflict));
    weft_conflict *c = &s->conflict[s->n_conflict];
    *c = (weft_conflict){node,      lost->s.axis, kept->value, lost->value, kept->dim,
                         lost->dim, kept_bytes,   lost_bytes,  NULL};
    const char *why =
        kept_bytes < 0 ? weft_arena_strdup(s->arena, reason[kept->by])
                       : weft_arena_printf(s->arena, "%lld bytes a rank against %lld",
                                           (long long)kept_bytes, (long long)lost_bytes);
    c->text = weft_arena_printf(
        s->arena,
        "%s: %s wants its dimension %d cut by %s and %s its dimension %d; the first is "
        "kept (%s) "
        "and %s is resharded here; to choose otherwise mark dimension %d of %s, or %s "
        "with never(%s)",
        r->g->value[r->g->node[node].out[0]].name, r->g->value[kept->value].name,
        kept->dim, m->axis[kept->s.axis].name, r->g->value[lost->value].name, lost->dim,
        why ? why : "", r->g->value[lost->value].name, lost->dim,
        r->g->value[lost->value].name, r->g->value[kept->value].name, axis);
    if (!c->text) return weft_arena_status(s->arena);
    s->n_conflict++;
    return WEFT_OK;
}

/* ---- gathering candidates ---- */

static strength strength_of(const weft_shard__run *r, int node, int i, int axis)
{
    const weft_graph_node *n = &r->g->node[node];
    weft_vid               v = weft_shard__value_at(n, i);
    if (i < n->n_in && weft_shard_sorter(r->g, node) >= 0 &&
        r->g->value[v].type.dtype == WEFT_DTYPE_I32)
        return BY_ROWS;
    if (weft_layout_find(&r->marked[v], axis))
        return r->g->value[v].kind == WEFT_VALUE_PARAM ||
                       r->g->value[v].kind == WEFT_VALUE_STATE
                   ? BY_WEIGHT
                   : BY_MARK;
    if (n->phase != WEFT_PHASE_BACKWARD) return BY_BYTES;
    bool param = i < n->n_in ? r->g->value[v].kind == WEFT_VALUE_PARAM ||
                                   r->g->value[v].kind == WEFT_VALUE_STATE
                             : r->summed[v];
    return param ? BY_PARAM : BY_BYTES;
}

/* Who cuts with this axis here already, for a message. */
static candidate holder_of(const weft_shard__run *r, int node, int axis)
{
    const weft_shard__node *n = &r->node[node];
    candidate               c = {.value = r->g->node[node].out[0]};
    c.s                       = *weft_layout_find(&n->cut, axis);
    for (int i = 0; i < n->u.n_in + n->u.n_out; i++)
        for (int d = 0; d < WEFT_MAX_DIM; d++)
            for (int k = 0; k < n->f.dim[i * WEFT_MAX_DIM + d].n; k++)
                if (n->f.dim[i * WEFT_MAX_DIM + d].f[k] == c.s.dim) {
                    c.value = weft_shard__value_at(&r->g->node[node], i);
                    c.dim   = d;
                    c.by    = strength_of(r, node, i, axis);
                    return c;
                }
    return c;
}

/* Wishes behind the boundary to the update phase are for the sum over micro-batches: where the
 * summands are unreduced anyway, they are reduced once a step, unless a mark says otherwise. */
static bool is_for_later(const weft_shard__run *r, int node, int i, int axis)
{
    const weft_graph_node *n = &r->g->node[node];
    weft_vid               v = weft_shard__value_at(n, i);
    if (i < n->n_in || !weft_shard__is_boundary(r->g, node)) return false;
    return (r->maybe[n->in[0]] | r->data) >> axis & 1 &&
           !weft_layout_find(&r->marked[v], axis);
}

/* Wishes for the same cut are one, as strong as the strongest. */
static void add_candidate(candidate *c, int *n_c, const candidate *x)
{
    for (int i = 0; i < *n_c; i++)
        if (cut_equal(&c[i].s, &x->s)) {
            if (x->by > c[i].by) c[i] = *x;
            return;
        }
    if (*n_c < MAX_CANDIDATE) c[(*n_c)++] = *x;
}

/* Experts are cut by the axis in some product of the rows that this one's are of. */
static bool are_sent(const weft_shard__run *r, int node, int axis)
{
    int sorter = r->node[node].f.expert < 0 ? -1 : weft_shard_sorter(r->g, node);
    if (sorter < 0) return false;
    weft_vid offsets = r->g->node[sorter].out[1];
    for (int i = r->first_user[offsets]; i < r->first_user[offsets + 1]; i++) {
        const weft_shard__node *n = &r->node[r->user[i]];
        const weft_split       *s = weft_layout_find(&n->cut, axis);
        if (s && (s->dim == n->f.own || s->dim == n->f.expert)) return true;
    }
    return false;
}

/* Wishes that are not for this node: rows of experts that are cut are sent to them, and an
 * operator that cannot send rows has them as its operands come, whatever its users like. */
static int leave_rows(const weft_shard__run *r, int node, int i, weft_split *s, int n_s)
{
    const weft_shard__node *n    = &r->node[node];
    int                     kept = 0;
    for (int k = 0; k < n_s; k++) {
        bool rows = s[k].ragged || s[k].order == WEFT_SPLIT_OWN;
        bool sent = n->f.f.factor[s[k].dim].flags & WEFT_FACTOR_RAGGED &&
                    are_sent(r, node, s[k].axis);
        if (!sent && !(rows && n->f.own < 0 && i >= n->u.n_in)) s[kept++] = s[k];
    }
    return kept;
}

/* The next cut of each factor that operand or result i would like. */
static weft_status gather(weft_shard__run *r, int node, int i, candidate *c, int *n_c)
{
    weft_shard__node *n = &r->node[node];
    weft_vid          v = weft_shard__value_at(&r->g->node[node], i);
    const weft_mesh  *m = &r->o->mesh[n->cut.mesh];
    weft_split        s[WEFT_MAX_AXIS];
    if (!r->wish[v].n || (r->wish[v].mesh != n->cut.mesh &&
                          !weft_mesh_alike(m, &r->o->mesh[r->wish[v].mesh])))
        return WEFT_OK;
    int n_s = weft_shard__to_factors(n, i, &r->wish[v], m, s);
    n_s     = leave_rows(r, node, i, s, n_s);
    for (int k = 0; k < n_s; k++) {
        int before = 0; /* wishes for this factor ahead of this one */
        for (int j = 0; j < k; j++) before += s[j].dim == s[k].dim;
        const weft_split *there = weft_shard__nth(&n->cut, s[k].dim, before);
        const weft_split *used  = weft_layout_find(&n->cut, s[k].axis);
        candidate         x = {s[k], i, v, weft_layout_find(&r->wish[v], s[k].axis)->dim,
                               strength_of(r, node, i, s[k].axis)};
        bool              ahead = true; /* all wishes ahead of it are fulfilled */
        for (int j = 0, b = 0; j < k; j++)
            if (s[j].dim == s[k].dim) {
                const weft_split *y = weft_shard__nth(&n->cut, s[k].dim, b++);
                ahead               = ahead && y && cut_equal(y, &s[j]);
            }
        if (there && cut_equal(there, &s[k])) continue;
        if (!weft_shard_can_cut(&n->f, s[k].dim)) continue;
        if (n->f.f.factor[s[k].dim].flags & WEFT_FACTOR_SOFTMAX &&
            s[k].order == WEFT_SPLIT_ZIGZAG)
            continue; /* its parts are merged as single runs */
        if (is_for_later(r, node, i, s[k].axis)) continue;
        if (n->f.f.factor[s[k].dim].flags & WEFT_FACTOR_RAGGED &&
            r->whole_rows >> s[k].axis & 1)
            continue;
        if (used) {
            candidate h = holder_of(r, node, s[k].axis);
            if (h.value != v) WEFT_TRY(report(r, node, &h, &x, -1, -1));
            continue;
        }
        if (!there && ahead) add_candidate(c, n_c, &x);
    }
    return WEFT_OK;
}

static bool are_rivals(const candidate *a, const candidate *b)
{
    if (a->s.axis == b->s.axis) return !cut_equal(&a->s, &b->s);
    return a->s.dim == b->s.dim;
}

/* The best of candidate 0 and its rivals. */
static weft_status choose(weft_shard__run *r, int node, const candidate *c, int n_c,
                          int *out)
{
    weft_measure best = {0}, x;
    bool         any  = false;
    *out              = 0;
    for (int i = 1; i < n_c; i++) any = any || are_rivals(&c[0], &c[i]);
    if (!any) return WEFT_OK;
    best = price(r, node, &c[0]);
    for (int i = 1; i < n_c; i++) {
        if (!are_rivals(&c[0], &c[i])) continue;
        x          = price(r, node, &c[i]);
        bool words = c[i].by != c[*out].by;
        bool wins  = words ? c[i].by > c[*out].by : weft_measure_compare(&x, &best) < 0;
        int  w = wins ? i : *out, l = wins ? *out : i;
        if (c[w].value != c[l].value && are_rivals(&c[w], &c[l]))
            WEFT_TRY(report(r, node, &c[w], &c[l],
                            words ? -1 : total_bytes(wins ? &x : &best),
                            words ? -1 : total_bytes(wins ? &best : &x)));
        if (wins) best = x;
        *out = w;
    }
    return WEFT_OK;
}

/* ---- giving back ---- */

static bool used_forward(const weft_shard__run *r, weft_vid v)
{
    for (int i = r->first_user[v]; i < r->first_user[v + 1]; i++)
        if (r->g->node[r->user[i]].phase != WEFT_PHASE_UPDATE) return true;
    return false;
}

/* v would like what the node makes of it, behind what it likes already. */
static void extend(weft_shard__run *r, weft_vid v, const weft_layout *l,
                   const weft_mesh *m)
{
    weft_layout *w    = &r->wish[v];
    bool         more = false;
    for (int d = 0; d < l->n_dim; d++) {
        int               k = 0;
        const weft_split *s, *t;
        for (; (s = weft_shard__nth(w, d, k)) != NULL; k++)
            if (!(t = weft_shard__nth(l, d, k)) || !cut_equal(s, t)) break;
        if (s || r->closed[v] >> d & 1) continue;
        for (; (t = weft_shard__nth(l, d, k)) != NULL; k++) {
            if (r->never[v] >> t->axis & 1 || weft_layout_find(w, t->axis)) break;
            if (!weft_shard__add(w, t)) break;
            more = true;
        }
    }
    if (!more) return;
    *w         = weft_shard__normal(w, m, &r->g->value[v].type.shape);
    r->changed = true;
}

static void give_back(weft_shard__run *r, int node)
{
    weft_shard__node      *n      = &r->node[node];
    const weft_graph_node *g      = &r->g->node[node];
    const weft_mesh       *m      = &r->o->mesh[n->cut.mesh];
    bool                   linear = weft_op_get(g->op)->flags & WEFT_OP_LINEAR;
    uint32_t               cut = 0, operands = 0;
    for (int i = 0; i < n->cut.n; i++) cut |= 1u << n->cut.split[i].axis;
    for (int i = 0; i < g->n_in; i++) operands |= linear ? r->maybe[g->in[i]] : 0;
    if (!cut && !operands) return;
    for (int i = 0; i < g->n_in + g->n_out; i++) {
        weft_vid    v     = weft_shard__value_at(g, i);
        weft_layout l     = weft_shard_project(&n->u, &n->f, m, &n->cut, i);
        bool        other = r->wish[v].mesh != n->cut.mesh &&
                     !weft_mesh_alike(m, &r->o->mesh[r->wish[v].mesh]);
        if (i >= g->n_in) {
            uint32_t maybe = operands & ~cut;
            for (int a = 0; a < m->n_axis; a++) maybe |= (l.unreduced[a] ? 1u : 0u) << a;
            r->maybe[v] |= maybe;
        }
        if (other || !l.n) continue;
        if (g->phase == WEFT_PHASE_UPDATE && r->g->value[v].kind != WEFT_VALUE_NODE &&
            used_forward(r, v))
            continue;
        extend(r, v, &l, m);
    }
}

/* What makes a forward node's results again is cut as that one is; false: it is no such. */
static bool follow(weft_shard__run *r, int node)
{
    weft_shard__node      *n = &r->node[node];
    const weft_graph_node *g = &r->g->node[node];
    if (g->phase != WEFT_PHASE_BACKWARD || r->repeats[g->out[0]] < 0) return false;
    const weft_layout *first = &r->node[r->g->value[r->repeats[g->out[0]]].node].cut;
    if (first->mesh != n->cut.mesh) return false;
    if (!weft_layout_equal(first, &n->cut)) r->changed = true;
    n->cut = *first;
    return true;
}

weft_status weft_shard__visit(weft_shard__run *r, int node)
{
    weft_shard__node      *n     = &r->node[node];
    const weft_graph_node *g     = &r->g->node[node];
    bool                   again = follow(r, node);
    while (!again) {
        candidate c[MAX_CANDIDATE];
        int       n_c = 0, best;
        for (int i = 0; i < g->n_in + g->n_out; i++)
            WEFT_TRY(gather(r, node, i, c, &n_c));
        if (!n_c) break;
        WEFT_TRY(choose(r, node, c, n_c, &best));
        weft_split s = c[best].s;
        if (!weft_shard__add(&n->cut, &s)) break;
        add_twin(&n->f, &n->cut, &s);
        r->changed = true;
    }
    give_back(r, node);
    return WEFT_OK;
}
