/* Matmuls as one: the projections q, k and v of attention take the same x, and those of k and v are
 * too narrow to fill a GPU.  Where the options ask for it (join_width), their weights lie side by
 * side and
 *
 *     q, k, v = x wq', x wk', x wv'          one matmul; q, k, v are columns of its result
 *     dx      = dq wq + dk wk + dv wv        one matmul, whose sum goes over all three
 *     dwq, .. = dq' x, dk' x, dv' x          one matmul, straight to the accumulators
 *
 * Weights that follow each other in the state slab are made one storage, which moves nothing: names
 * and bindings stay.  Weights that are gathered (ZeRO 3) are copied side by side first, so that the
 * bits are those of one rank.  A rotary embedding of a column is computed where it lies. */
#include <string.h>

#include "graph/recompute.h"
#include "lower/lower_priv.h"

enum {
    MOST  = WEFT_LOWER__MOST_JOINED,
    WIDTH = 16, /* columns of each are a multiple of it: addresses stay aligned */
    HEADS = 2   /* axis of a rotary embedding's operand */
};

/* Letters of a matmul's spec, by operand. */
typedef struct spec_letters {
    const char *a, *b, *y;
    int         n_a, n_b, n_y;
} spec_letters;

/* Matmuls that become one: nodes in the order of their weights. */
typedef struct group {
    int n, node[MOST];
} group;

static const char *spec_of(const weft_graph_node *n)
{
    weft_op_use u = {.op = n->op, .attr = n->attr};
    return weft_use_string(&u, "spec");
}

static spec_letters letters_of(const weft_graph_node *n)
{
    const char *s = spec_of(n), *comma = strchr(s, ','), *y = strstr(s, "->");
    if (!comma || !y) return (spec_letters){.a = s, .b = s, .y = s};
    return (spec_letters){.a   = s,
                          .b   = comma + 1,
                          .y   = y + 2,
                          .n_a = (int)(comma - s),
                          .n_b = (int)(y - comma - 1),
                          .n_y = (int)strlen(y + 2)};
}

/* Where a letter is; -1: nowhere. */
static int place_of(const char *letters, int n, char c)
{
    const char *at = n > 0 ? memchr(letters, c, (size_t)n) : NULL;
    return at ? (int)(at - letters) : -1;
}

static const weft_type *type_of(const weft_lower__pass *p, weft_vid v)
{
    return &p->g->value[v].type;
}

/* The same type but for the size along an axis. */
static bool is_alike(const weft_lower__pass *p, weft_vid v, weft_vid w, int axis)
{
    weft_type x = *type_of(p, v), y = *type_of(p, w);
    if (x.dtype != y.dtype || x.shape.n != y.shape.n || axis >= x.shape.n) return false;
    x.shape.d[axis] = y.shape.d[axis];
    return weft_shape_equal(&x.shape, &y.shape);
}

/* Side by side along an axis. */
static weft_type join_types(const weft_lower__pass *p, const weft_vid *v, int n, int axis)
{
    weft_type t = *type_of(p, v[0]);
    for (int i = 1; i < n; i++) t.shape.d[axis] += type_of(p, v[i])->shape.d[axis];
    return t;
}

static bool is_matmul(const weft_lower__pass *p, int i)
{
    return p->alive[i] && p->g->node[i].op == WEFT_OP_MATMUL && p->fused_into[i] < 0 &&
           !p->in_head[i] && !p->in_join[i] && !p->join[i];
}

static const char *formats_of(const weft_graph_node *n)
{
    const char *s = n->attr[weft_op_attr_index(WEFT_OP_MATMUL, "fp8")].s;
    return s ? s : "";
}

/* Node j can be one with node i, which has the same spec. */
static bool runs_with(const weft_lower__pass *p, int i, int j)
{
    const weft_graph_node *x = &p->g->node[i], *y = &p->g->node[j];
    return x->phase == y->phase && (!p->piece || p->piece[i] == p->piece[j]) &&
           !strcmp(spec_of(x), spec_of(y)) && !strcmp(formats_of(x), formats_of(y));
}

/* Two nodes of one operator that run in one go, with the same attributes. */
static bool are_same(const weft_lower__pass *p, int i, int j)
{
    const weft_graph_node *x = &p->g->node[i], *y = &p->g->node[j];
    return x->phase == y->phase && (!p->piece || p->piece[i] == p->piece[j]) &&
           weft_graph_same_attr(x, y);
}

/* ---- weights ---- */

/* The parameter or state that a weight is, or is gathered from; -1: neither. */
static weft_vid find_leaf(const weft_graph *g, weft_vid v)
{
    for (;;) {
        v         = weft_lower__base(g, v);
        int32_t n = g->value[v].node;
        if (n >= 0 && g->node[n].op == WEFT_OP_ALL_GATHER)
            v = g->node[n].in[0];
        else
            return n < 0 && g->value[v].kind != WEFT_VALUE_INPUT ? v : -1;
    }
}

static weft_vid next_leaf(const weft_graph *g, weft_vid v)
{
    for (v++; v < g->n_value; v++)
        if (g->value[v].kind == WEFT_VALUE_PARAM || g->value[v].kind == WEFT_VALUE_STATE)
            return v;
    return -1;
}

/* Columns of the matmul that weight v alone has. */
static int64_t width_of(const weft_lower__pass *p, weft_vid v, const char *own, int n_own,
                        const spec_letters *s)
{
    int64_t width = 1;
    for (int k = 0; k < s->n_b; k++)
        if (place_of(own, n_own, s->b[k]) >= 0) width *= type_of(p, v)->shape.d[k];
    return width;
}

/* Weights of a group: one after the other among parameters and states, of sizes that keep
 * addresses aligned, one of them narrow.  own: the letters of what each has for itself. */
static bool are_joinable(const weft_lower__pass *p, const group *q, const char *own,
                         int n_own, const spec_letters *s)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < q->n; i++) {
        weft_vid         w     = p->g->node[q->node[i]].in[1];
        const weft_type *t     = type_of(p, w);
        int64_t          width = width_of(p, w, own, n_own, s);
        int64_t          bytes = weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
        weft_vid         leaf  = find_leaf(p->g, w);
        if (leaf < 0 || bytes % p->align_bytes || width % WIDTH) return false;
        if (i &&
            (!is_alike(p, p->g->node[q->node[0]].in[1], w, 0) ||
             next_leaf(p->g, find_leaf(p->g, p->g->node[q->node[i - 1]].in[1])) != leaf))
            return false;
        if (width < least) least = width;
    }
    return least <= p->join_width;
}

/* Storages become one, whose values keep their order; axis 0, dense. */
static weft_status join_storages(weft_lower__pass *p, const weft_vid *v, int n,
                                 const weft_type *whole)
{
    int64_t at = weft_shape_count(&type_of(p, v[0])->shape);
    if (p->room[v[0]]) return WEFT_OK; /* it is one already */
    p->room[v[0]] = WEFT_ARENA_NEW(p->tmp, weft_type);
    if (!p->room[v[0]]) return weft_arena_status(p->tmp);
    *p->room[v[0]] = *whole;
    for (int i = 1; i < n; i++) {
        for (weft_vid u = 0; u < p->g->n_value; u++)
            if (p->loc[u].root == v[i]) {
                p->loc[u].root = v[0];
                p->loc[u].offset += at;
            }
        at += weft_shape_count(&type_of(p, v[i])->shape);
    }
    return WEFT_OK;
}

/* Operand b of the one matmul: weights where they lie, or copies of them. */
static weft_status take_weights(weft_lower__pass *p, const group *q, weft_lower__join *j)
{
    weft_vid w[MOST] = {0};
    bool     leaves  = true;
    for (int i = 0; i < q->n; i++) {
        w[i]   = p->g->node[q->node[i]].in[1];
        leaves = leaves && p->g->value[w[i]].kind != WEFT_VALUE_NODE;
    }
    j->b      = w[0];
    j->b_type = join_types(p, w, q->n, 0);
    if (leaves) return join_storages(p, w, q->n, &j->b_type);
    j->n_copy = q->n;
    memcpy(j->copy, w, sizeof *w * (size_t)q->n);
    return WEFT_OK;
}

/* ---- columns: values that become parts of one ---- */

/* The first node that reads value v. */
static int first_reader(const weft_lower__pass *p, weft_vid v)
{
    for (int k = p->first_user[v]; k < p->first_user[v + 1]; k++)
        if (p->alive[p->user[k]]) return p->user[k];
    return p->g->n_node;
}

/* The node whose instruction writes value v, with steps that write anywhere; -1: none. */
static int find_maker(const weft_lower__pass *p, weft_vid v)
{
    int n = p->g->value[v].node;
    if (n < 0 || !p->alive[n]) return -1;
    if (p->fused_into[n] >= 0) n = p->fused_into[n];
    if (!p->chain[n].n) return n;
    return p->g->node[n].op == WEFT_OP_ATTENTION_GRAD ? n : -1;
}

/* Is value v made by an operator that writes it anywhere, and read by such that read it so? */
static bool is_column(const weft_lower__pass *p, weft_vid v)
{
    const weft_graph *g = p->g;
    int               n = find_maker(p, v);
    if (n < 0) return false;
    if (p->placed[v] || p->padded[v] || p->accum[v] >= 0 || p->loc[v].root >= 0)
        return false;
    unsigned made = weft_op_get(g->node[n].op)->flags;
    if (!(made & WEFT_OP_STRIDED) || made & (WEFT_OP_VIEW | WEFT_OP_COMM)) return false;
    int n_user = 0;
    for (int k = p->first_user[v]; k < p->first_user[v + 1]; k++) {
        if (!p->alive[p->user[k]]) continue;
        unsigned f = weft_op_get(g->node[p->user[k]].op)->flags;
        if (!(f & WEFT_OP_STRIDED) || f & WEFT_OP_VIEW) return false;
        if (p->fused_into[p->user[k]] >= 0) return false;
        n_user++;
    }
    return n_user == p->n_use[v]; /* nobody outside of the graph */
}

/* Is v summed over micro-batches by an instruction of its own? */
static bool is_accumulated(const weft_lower__pass *p, weft_vid v)
{
    for (int k = p->first_user[v]; k < p->first_user[v + 1]; k++)
        if (p->alive[p->user[k]] && p->g->node[p->user[k]].op == WEFT_OP_ACCUMULATE)
            return true;
    return false;
}

/* The rotary embedding that alone takes v; -1: none. */
static int find_rotary(const weft_lower__pass *p, weft_vid v)
{
    if (p->n_use[v] != 1) return -1;
    for (int k = p->first_user[v]; k < p->first_user[v + 1]; k++)
        if (p->alive[p->user[k]])
            return p->g->node[p->user[k]].op == WEFT_OP_ROTARY ? p->user[k] : -1;
    return -1;
}

static void place_at(weft_lower__pass *p, weft_vid v, const weft_lower__loc *at)
{
    p->loc[v]    = *at;
    p->placed[v] = true;
}

/* The one matmul stands where node `at` is, one of the group's. */
static weft_status add_join(weft_lower__pass *p, const group *q, int at,
                            const weft_lower__join *join)
{
    for (int i = 0; i < q->n; i++) p->in_join[q->node[i]] = q->node[i] != at;
    p->join[at] = WEFT_ARENA_NEW(p->tmp, weft_lower__join);
    if (!p->join[at]) return weft_arena_status(p->tmp);
    *p->join[at] = *join;
    return WEFT_OK;
}

/* Rotary embeddings of columns, in their order: those next to each other that are alike are one,
 * where the last of them is, if nobody reads a result before. */
static weft_status join_rotaries(weft_lower__pass *p, const int *rotary, int n)
{
    const weft_graph_node *node = p->g->node;
    for (int i = 0; i < n;) {
        group    q = {0};
        weft_vid x[MOST], y[MOST];
        int      last = -1, reader = p->g->n_node;
        for (; i < n && rotary[i] >= 0; i++) {
            if (q.n && !are_same(p, q.node[0], rotary[i])) break;
            x[q.n]        = node[rotary[i]].in[0];
            y[q.n]        = node[rotary[i]].out[0];
            q.node[q.n++] = rotary[i];
            if (rotary[i] > last) last = rotary[i];
            if (first_reader(p, y[q.n - 1]) < reader)
                reader = first_reader(p, y[q.n - 1]);
        }
        if (!q.n) i++;
        if (q.n < 2 || reader <= last) continue;
        weft_lower__join j = {.a = x[0], .b = -1, .y = y[0]};
        j.a_type           = join_types(p, x, q.n, HEADS);
        j.y_type           = j.a_type;
        WEFT_TRY(add_join(p, &q, last, &j));
    }
    return WEFT_OK;
}

/* Values side by side along an axis of one; what a rotary embedding makes of them, or made them of,
 * lies there too. */
static weft_status place_columns(weft_lower__pass *p, const weft_vid *v, int n, int axis,
                                 const weft_type *whole)
{
    weft_lower__loc at = {.root = v[0]};
    int             rotary[MOST];
    p->room[v[0]] = WEFT_ARENA_NEW(p->tmp, weft_type);
    if (!p->room[v[0]]) return weft_arena_status(p->tmp);
    *p->room[v[0]] = *whole;
    weft_lower__dense(&whole->shape, at.stride);
    for (int i = 0; i < n; i++) {
        int maker = p->g->value[v[i]].node, taker = find_rotary(p, v[i]);
        const weft_graph_node *m = &p->g->node[maker];
        rotary[i]                = -1;
        if (taker >= 0 && is_column(p, p->g->node[taker].out[0])) {
            place_at(p, p->g->node[taker].out[0], &at);
            rotary[i] = taker;
        } else if (m->op == WEFT_OP_ROTARY && p->n_use[m->in[0]] == 1 &&
                   is_column(p, m->in[0])) {
            place_at(p, m->in[0], &at);
            rotary[i] = maker;
        }
        place_at(p, v[i], &at);
        at.offset += type_of(p, v[i])->shape.d[axis] * at.stride[axis];
    }
    return axis == HEADS ? join_rotaries(p, rotary, n) : WEFT_OK;
}

/* ---- y = x w ---- */

/* Matmuls of the x of node i, up to the first node that reads one of their results. */
static group collect_projections(const weft_lower__pass *p, int i)
{
    const weft_graph *g   = p->g;
    weft_vid          x   = g->node[i].in[0];
    group             q   = {.n = 1, .node = {i}};
    int               end = first_reader(p, g->node[i].out[0]);
    for (int k = p->first_user[x]; k < p->first_user[x + 1] && q.n < MOST; k++) {
        int j = p->user[k];
        if (j <= i || j >= end || !is_matmul(p, j) || p->chain[j].n) continue;
        if (g->node[j].in[0] != x || g->node[j].in[1] == x || !runs_with(p, i, j))
            continue;
        q.node[q.n++] = j;
        int reader    = first_reader(p, g->node[j].out[0]);
        if (reader < end) end = reader;
    }
    return q;
}

static weft_status join_projections(weft_lower__pass *p, int i)
{
    const weft_graph *g = p->g;
    group             q = collect_projections(p, i);
    spec_letters      s = letters_of(&g->node[i]);
    weft_lower__join j = {.a = g->node[i].in[0], .a_type = *type_of(p, g->node[i].in[0])};
    weft_vid         y[MOST];
    if (q.n < 2 || s.n_b < 1 || place_of(s.a, s.n_a, s.b[0]) >= 0) return WEFT_OK;
    int axis = place_of(s.y, s.n_y, s.b[0]);
    if (axis < 0 || !are_joinable(p, &q, s.y, s.n_y, &s)) return WEFT_OK;
    for (int k = 0; k < q.n; k++) {
        y[k] = g->node[q.node[k]].out[0];
        if (!is_column(p, y[k]) || !is_alike(p, y[0], y[k], axis)) return WEFT_OK;
    }
    j.y      = y[0];
    j.y_type = join_types(p, y, q.n, axis);
    WEFT_TRY(take_weights(p, &q, &j));
    WEFT_TRY(place_columns(p, y, q.n, axis, &j.y_type));
    return add_join(p, &q, q.node[q.n - 1], &j);
}

/* ---- dx = sum of dy w, and dw = dy' x ---- */

/* The matmul whose result, or whose result with the sum so far, is v; -1: none. */
static int find_term(const weft_lower__pass *p, weft_vid v)
{
    int32_t n = p->g->value[v].node;
    if (n < 0 || !p->alive[n] || p->n_use[v] != 1) return -1;
    if (p->fused_into[n] >= 0) n = p->fused_into[n];
    return is_matmul(p, n) ? n : -1;
}

/* Node i adds the sum so far to its product: the sum; -1: it does not. */
static weft_vid sum_so_far(const weft_lower__pass *p, int i)
{
    const weft_lower__chain *c = &p->chain[i];
    const weft_graph_node   *s = c->n == 1 ? &p->g->node[c->node[0]] : NULL;
    weft_vid                 v = p->g->node[i].out[0];
    if (!s || s->op != WEFT_OP_ADD || p->n_use[v] != 1) return -1;
    return s->in[0] == v ? s->in[1] : s->in[0];
}

/* The matmuls of a sum that ends in node i, the last first: the order of the weights. */
static group collect_terms(const weft_lower__pass *p, int i)
{
    group q = {.n = 1, .node = {i}};
    for (int at = i;;) {
        weft_vid sum = sum_so_far(p, at);
        if (sum < 0) return p->chain[at].n ? (group){0} : q;
        at = find_term(p, sum);
        if (at < 0 || q.n == MOST || !runs_with(p, i, at)) return (group){0};
        q.node[q.n++] = at;
    }
}

/* The matmul that makes a weight's gradient of v; -1: none, or no other but it and `sum` read v. */
static int find_weight_gradient(const weft_lower__pass *p, weft_vid v, int sum)
{
    for (int k = p->first_user[v]; k < p->first_user[v + 1]; k++) {
        int i = p->user[k];
        if (i != sum && is_matmul(p, i) && !p->chain[i].n && p->g->node[i].in[1] == v &&
            p->g->node[i].in[0] != v)
            return i;
    }
    return -1;
}

/* Where the gradient of a weight goes: its accumulator, or itself. */
static weft_vid goal_of(const weft_lower__pass *p, weft_vid v)
{
    return p->accum[v] >= 0 ? p->accum[v] : v;
}

/* The first of the nodes, if all of v[] are made before it; -1: they are not. */
static int first_after(const weft_lower__pass *p, const group *q, const weft_vid *v)
{
    int first = q->node[0];
    for (int i = 1; i < q->n; i++)
        if (q->node[i] < first) first = q->node[i];
    for (int i = 0; i < q->n; i++)
        if (p->g->value[v[i]].node >= first) return -1;
    return first;
}

/* Gradients of weights of the columns v[] of dy, whose letter is c.  They are made where the first
 * of them was: each may be reduced over ranks right after it. */
static weft_status join_weight_gradients(weft_lower__pass *p, const group *sums,
                                         const weft_vid *v, const weft_type *dy, char c)
{
    const weft_graph *g       = p->g;
    group             q       = {.n = sums->n};
    weft_lower__join  j       = {.b = v[0], .b_type = *dy};
    weft_vid          y[MOST] = {0};
    for (int k = 0; k < q.n; k++) {
        int n = q.node[k] = find_weight_gradient(p, v[k], sums->node[k]);
        if (n < 0 || !runs_with(p, q.node[0], n)) return WEFT_OK;
        weft_vid dw = g->node[n].out[0];
        y[k]        = goal_of(p, dw);
        if (g->node[n].in[0] != g->node[q.node[0]].in[0]) return WEFT_OK;
        if (letters_of(&g->node[n]).y[0] != c || !is_alike(p, y[0], y[k], 0))
            return WEFT_OK;
        if (p->room[y[k]] || (p->accum[dw] >= 0) != (y[0] != g->node[q.node[0]].out[0]))
            return WEFT_OK;
        if (p->accum[dw] < 0 &&
            (p->placed[dw] || p->loc[dw].root >= 0 || is_accumulated(p, dw)))
            return WEFT_OK;
    }
    int first = first_after(p, &q, v);
    if (first < 0) return WEFT_OK;
    j.a      = g->node[q.node[0]].in[0];
    j.a_type = *type_of(p, j.a);
    j.y      = g->node[q.node[0]].out[0];
    j.y_type = join_types(p, y, q.n, 0);
    if (y[0] == j.y)
        WEFT_TRY(place_columns(p, y, q.n, 0, &j.y_type));
    else
        WEFT_TRY(join_storages(p, y, q.n, &j.y_type));
    return add_join(p, &q, first, &j);
}

static weft_status join_sum(weft_lower__pass *p, int i)
{
    const weft_graph *g        = p->g;
    group             q        = collect_terms(p, i);
    spec_letters      s        = letters_of(&g->node[i]);
    weft_lower__join  j        = {0};
    weft_vid          dy[MOST] = {0};
    if (q.n < 2 || s.n_b < 1 || place_of(s.y, s.n_y, s.b[0]) >= 0) return WEFT_OK;
    int axis = place_of(s.a, s.n_a, s.b[0]);
    if (axis < 0 || !are_joinable(p, &q, s.a, s.n_a, &s)) return WEFT_OK;
    for (int k = 0; k < q.n; k++) {
        dy[k] = g->node[q.node[k]].in[0];
        if (!is_column(p, dy[k]) || !is_alike(p, dy[0], dy[k], axis)) return WEFT_OK;
        for (int m = 0; m < k; m++)
            if (dy[m] == dy[k]) return WEFT_OK;
    }
    j.a      = dy[0];
    j.a_type = join_types(p, dy, q.n, axis);
    j.y      = g->node[p->chain[i].node[0]].out[0];
    j.y_type = *type_of(p, j.y);
    WEFT_TRY(take_weights(p, &q, &j));
    WEFT_TRY(place_columns(p, dy, q.n, axis, &j.a_type));
    WEFT_TRY(join_weight_gradients(p, &q, dy, &j.a_type, s.b[0]));
    return add_join(p, &q, i, &j);
}

weft_status weft_lower__find_joins(weft_lower__pass *p)
{
    const weft_graph *g = p->g;
    p->join             = WEFT_ARENA_ARRAY(p->tmp, weft_lower__join *, g->n_node + 1);
    p->in_join          = WEFT_ARENA_ARRAY(p->tmp, bool, g->n_node + 1);
    p->room             = WEFT_ARENA_ARRAY(p->tmp, weft_type *, g->n_value + 1);
    WEFT_TRY(weft_arena_status(p->tmp));
    for (int i = 0; p->join_width > 0 && i < g->n_node; i++)
        if (is_matmul(p, i) && !p->chain[i].n) WEFT_TRY(join_projections(p, i));
    for (int i = g->n_node - 1; p->join_width > 0 && i >= 0; i--)
        if (is_matmul(p, i) && p->chain[i].n) WEFT_TRY(join_sum(p, i));
    return WEFT_OK;
}
