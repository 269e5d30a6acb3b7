/* A strategy becomes marks on values that are found by what operators do with them, never by a
 * model's name:
 *
 *   dp    dimension 0 of the inputs                cp    dimension 1 of the token inputs
 *   tp    heads: traced back from the grouped factor of attention to the weights behind q, k and v;
 *         ffn: weights whose result's new factor a later product sums away;
 *         vocabulary: weights behind the logits, and tables of as many rows
 *   sp    what norms read, dimension 1, over tp    ep    the expert factor of grouped products,
 *                                                        and dimension 0 of the inputs where it
 *                                                        divides
 *   tp_exclude  of these layers tp shards nothing but the samples: dimension 0 of what comes in
 *         (exclude.c)
 *   zero  1: optimizer state, 2: sums of gradients too, 3: parameters at rest too; dimension 0
 *         over dp, 1-d tensors at multiples of 256
 *   overlap_param_gather  with zero 1 or 2: of so many percent of the parameters, spread evenly,
 *         states and they themselves are at rest as with 3; of the others nothing is */
#include <stdlib.h>
#include <string.h>

#include "shard/shard_priv.h"

#define ZERO_UNIT 256

/* ---- finding values ---- */

typedef struct finder {
    const weft_graph    *g;
    weft_arena          *a;
    weft_node_factors   *f; /* by node */
    weft_op_use         *u;
    int                  n_mark, cap_mark;
    weft_mark           *mark;
    bool                *summed; /* by value: a weight whose products sum what is cut */
    weft_shard__excluded excluded;
} finder;

static bool is_weight(const weft_graph_value *x)
{
    return x->kind == WEFT_VALUE_PARAM || (x->kind == WEFT_VALUE_STATE && x->node < 0);
}

static weft_status add_mark(finder *x, weft_vid v, int dim, int axis,
                            weft_split_order order, int64_t unit, int64_t period,
                            weft_mark **out)
{
    const weft_shape *s = &x->g->value[v].type.shape;
    for (int i = 0; i < x->n_mark; i++)
        if (x->mark[i].value == v && x->mark[i].layout.split[0].axis == axis &&
            !x->mark[i].rest)
            return WEFT_OK;
    WEFT_TRY(weft_arena_grow(x->a, (void **)&x->mark, &x->cap_mark, x->n_mark + 1,
                             sizeof *x->mark));
    weft_mark *k = &x->mark[x->n_mark++];
    memset(k, 0, sizeof *k);
    k->value  = v;
    k->layout = weft_layout_replicated(0, s->n);
    k->open   = ~0u;
    weft_layout_cut(&k->layout, dim, axis, order);
    k->layout.split[0].unit   = unit;
    k->layout.split[0].period = period;
    if (out) *out = k;
    return WEFT_OK;
}

static int factor_named(const weft_node_factors *f, char name)
{
    for (int k = 0; k < f->f.n; k++)
        if (f->f.factor[k].name == name) return k;
    return -1;
}
/* The dimension of operand or result i that has the factor, -1 none. */
static int dim_with(const finder *x, int node, int i, int factor)
{
    const weft_op_use *u = &x->u[node];
    const weft_shape  *s = i < u->n_in ? &u->in[i].shape : &u->out[i - u->n_in].shape;
    for (int d = 0; d < s->n; d++) {
        const weft_dim_factors *y = &x->f[node].dim[i * WEFT_MAX_DIM + d];
        for (int k = 0; k < y->n; k++)
            if (y->f[k] == factor) return d;
    }
    return -1;
}
static bool has_softmax(const weft_node_factors *f)
{
    for (int k = 0; k < f->f.n; k++)
        if (f->f.factor[k].flags & WEFT_FACTOR_SOFTMAX) return true;
    return false;
}

/* What is done with each weight that dimension d of v comes from. */
typedef weft_status (*found_fn)(finder *x, weft_vid weight, int dim, void *arg);

static weft_status trace(finder *x, weft_vid v, int d, int depth, found_fn fn, void *arg)
{
    int node = x->g->value[v].node;
    if (is_weight(&x->g->value[v])) return fn(x, v, d, arg);
    if (node < 0 || depth > 64 || has_softmax(&x->f[node])) return WEFT_OK;
    const weft_graph_node  *n = &x->g->node[node];
    const weft_dim_factors *y =
        &x->f[node].dim[(n->n_in + x->g->value[v].index) * WEFT_MAX_DIM + d];
    int64_t most = 1;
    int     f    = -1; /* of a composite dimension, the one that is more than 1 */
    for (int k = 0; k < y->n; k++)
        if (x->f[node].f.factor[y->f[k]].size > most || f < 0) {
            f    = y->f[k];
            most = x->f[node].f.factor[f].size;
        }
    if (f < 0 || !weft_shard_can_cut(&x->f[node], f)) return WEFT_OK;
    for (int i = 0; i < n->n_in; i++) {
        int e = dim_with(x, node, i, f);
        if (e >= 0) WEFT_TRY(trace(x, n->in[i], e, depth + 1, fn, arg));
    }
    return WEFT_OK;
}

/* ---- tp ---- */

typedef struct cutting {
    int     axis;
    int64_t unit, period;
    int     n; /* weights found */
} cutting;

static weft_status cut_weight(finder *x, weft_vid weight, int dim, void *arg)
{
    cutting          *c = arg;
    const weft_shape *s = &x->g->value[weight].type.shape;
    if (s->n < 2) return WEFT_OK; /* biases follow */
    if (x->excluded.weight[weight]) return WEFT_OK;
    c->n++;
    return add_mark(x, weight, dim, c->axis, WEFT_SPLIT_BLOCK, c->unit, c->period, NULL);
}

static bool is_split(const finder *x, int node)
{
    return x->g->node[node].phase == WEFT_PHASE_FORWARD && !x->excluded.node[node];
}

/* Attention: key heads g, r query heads to each.  Cut g with all three, or r with the queries
 * alone. */
static weft_status cut_heads(finder *x, int node, int axis, int64_t parts)
{
    int g = factor_named(&x->f[node], 'g'), r = factor_named(&x->f[node], 'r');
    if (g < 0 || r < 0 || !has_softmax(&x->f[node])) return WEFT_OK;
    int64_t n_g = x->f[node].f.factor[g].size, n_r = x->f[node].f.factor[r].size;
    bool    groups = n_g % parts == 0 || (n_r % parts && n_g >= parts);
    if (!groups && n_r < parts)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "tp=%lld: %s has %lld heads in %lld groups; take a smaller tp",
                         (long long)parts, x->g->value[x->g->node[node].out[0]].name,
                         (long long)(n_g * n_r), (long long)n_g);
    for (int i = 0; i < (groups ? 3 : 1); i++) {
        cutting c = {axis, i == 0 && groups ? n_r : 1, groups ? 0 : n_r, 0};
        if (!groups && n_g == 1) c.period = 0;
        WEFT_TRY(
            trace(x, x->g->node[node].in[i], dim_with(x, node, i, g), 0, cut_weight, &c));
    }
    return WEFT_OK;
}

static weft_status note_weight(finder *x, weft_vid weight, int dim, void *arg)
{
    cutting *c = arg;
    if (x->g->value[weight].type.shape.n < 2 || x->summed[weight]) return WEFT_OK;
    return cut_weight(x, weight, dim, c);
}

/* A product with a weight, of which a factor is summed that an earlier product made. */
static weft_status cut_ffn(finder *x, int node, int axis)
{
    const weft_graph_node *n = &x->g->node[node];
    for (int w = 0; w < n->n_in; w++) {
        if (!is_weight(&x->g->value[n->in[w]]) || x->g->value[n->in[w]].type.shape.n < 2)
            continue;
        for (int k = 0; k < x->f[node].f.n; k++)
            for (int i = 0; i < n->n_in; i++) {
                cutting c = {axis, 1, 0, 0};
                int     d = dim_with(x, node, i, k);
                if (i == w || d < 0 || dim_with(x, node, w, k) < 0 ||
                    dim_with(x, node, n->n_in, k) >= 0 ||
                    !weft_shard_can_cut(&x->f[node], k) ||
                    x->g->value[n->in[i]].kind != WEFT_VALUE_NODE)
                    continue;
                WEFT_TRY(trace(x, n->in[i], d, 0, note_weight, &c));
                if (c.n) x->summed[n->in[w]] = true;
            }
    }
    return WEFT_OK;
}

/* The logits' vocabulary, and tables with as many rows. */
static weft_status cut_vocabulary(finder *x, int axis)
{
    int64_t vocab = -1;
    for (int i = 0; i < x->g->n_node; i++) {
        cutting c = {axis, 1, 0, 0};
        int     v = factor_named(&x->f[i], 'v');
        if (x->g->node[i].phase != WEFT_PHASE_FORWARD || v < 0 || !has_softmax(&x->f[i]))
            continue;
        vocab = x->f[i].f.factor[v].size;
        if (!is_split(x, i)) continue;
        WEFT_TRY(trace(x, x->g->node[i].in[0], dim_with(x, i, 0, v), 0, cut_weight, &c));
    }
    for (int i = 0; i < x->g->n_node; i++) {
        int v, at = weft_shard_index_operand(&x->u[i], &x->f[i], &v);
        if (!is_split(x, i) || at < 0 || x->f[i].f.factor[v].size != vocab) continue;
        for (int k = 0; k < x->g->node[i].n_in; k++)
            if (dim_with(x, i, k, v) >= 0 &&
                is_weight(&x->g->value[x->g->node[i].in[k]]) &&
                !x->excluded.weight[x->g->node[i].in[k]])
                WEFT_TRY(add_mark(x, x->g->node[i].in[k], dim_with(x, i, k, v), axis,
                                  WEFT_SPLIT_BLOCK, 1, 0, NULL));
    }
    return WEFT_OK;
}

static weft_status mark_tp(finder *x, int axis, int64_t parts)
{
    for (int i = 0; i < x->g->n_node; i++)
        if (is_split(x, i)) WEFT_TRY(cut_heads(x, i, axis, parts));
    for (int i = 0; i < x->g->n_node; i++)
        if (is_split(x, i)) WEFT_TRY(cut_ffn(x, i, axis));
    WEFT_TRY(cut_vocabulary(x, axis));
    if (!x->n_mark && x->excluded.n_entry)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "tp_exclude: no other layer of %s has anything for tp to split; "
                         "take dp=%lld instead",
                         x->g->name, (long long)parts);
    for (int k = 0; k < x->excluded.n_entry; k++)
        WEFT_TRY(
            add_mark(x, x->excluded.entry[k], 0, axis, WEFT_SPLIT_BLOCK, 1, 0, NULL));
    if (!x->n_mark)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "tp: graph %s has neither heads, ffn nor vocabulary to split",
                         x->g->name);
    return WEFT_OK;
}

/* ---- the others ---- */

/* Norms: operators with weights whose last dimension must stay whole; what they read lies between
 * blocks. */
static weft_status mark_sp(finder *x, int axis)
{
    int n = 0;
    for (int i = 0; i < x->g->n_node; i++) {
        const weft_graph_node *o      = &x->g->node[i];
        bool                   weight = o->n_in > 1 && is_weight(&x->g->value[o->in[1]]);
        if (!is_split(x, i) || !weight || x->u[i].in[0].shape.n != 3) continue;
        const weft_dim_factors *last = &x->f[i].dim[2], *seq = &x->f[i].dim[1];
        if (last->n != 1 || weft_shard_can_cut(&x->f[i], last->f[0]) || seq->n != 1 ||
            !weft_shard_can_cut(&x->f[i], seq->f[0]) || x->g->value[o->in[0]].node < 0)
            continue;
        WEFT_TRY(add_mark(x, o->in[0], 1, axis, WEFT_SPLIT_BLOCK, 1, 0, NULL));
        n++;
    }
    if (!n)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "sp: graph %s has no norms over a sequence to split",
                         x->g->name);
    return WEFT_OK;
}

static bool is_causal(const weft_graph *g)
{
    for (int i = 0; i < g->n_node; i++) {
        int k = weft_op_attr_index(g->node[i].op, "causal");
        if (k >= 0 && g->node[i].attr[k].i) return true;
    }
    return false;
}

/* A sequence under a causal mask is cut zigzag, so that work is even, where no run is empty. */
static weft_status mark_inputs(finder *x, int axis, int parts, int dim, const char *what)
{
    int  n      = 0;
    bool zigzag = dim == 1 && is_causal(x->g);
    for (weft_vid v = 0; v < x->g->n_value; v++) {
        const weft_graph_value *y = &x->g->value[v];
        if (y->kind != WEFT_VALUE_INPUT || y->per_step || y->type.shape.n <= dim)
            continue;
        if (dim == 1 && y->type.dtype != WEFT_DTYPE_I32 &&
            y->type.dtype != WEFT_DTYPE_I64)
            continue;
        weft_split_order order = zigzag && y->type.shape.d[dim] >= 2 * parts
                                     ? WEFT_SPLIT_ZIGZAG
                                     : WEFT_SPLIT_BLOCK;
        WEFT_TRY(add_mark(x, v, dim, axis, order, 1, 0, NULL));
        n++;
    }
    if (!n)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: graph %s has no input with a %s dimension",
                         what, x->g->name, dim ? "sequence" : "batch");
    return WEFT_OK;
}

/* Ranks with different experts have different sequences of a micro-batch, too, where they divide.
 */
static weft_status mark_sequences(finder *x, int axis, int parts)
{
    for (weft_vid v = 0; v < x->g->n_value; v++) {
        const weft_graph_value *y = &x->g->value[v];
        if (y->kind != WEFT_VALUE_INPUT || y->per_step || y->type.shape.n < 1) continue;
        if (y->type.shape.d[0] % parts == 0)
            WEFT_TRY(add_mark(x, v, 0, axis, WEFT_SPLIT_BLOCK, 1, 0, NULL));
    }
    return WEFT_OK;
}

static weft_status mark_ep(finder *x, int axis, int parts)
{
    int n = 0;
    for (int i = 0; i < x->g->n_node; i++) {
        const weft_graph_node *o = &x->g->node[i];
        if (o->phase != WEFT_PHASE_FORWARD || x->f[i].expert < 0) continue;
        for (int k = 0; k < o->n_in; k++)
            if (is_weight(&x->g->value[o->in[k]]) &&
                dim_with(x, i, k, x->f[i].expert) >= 0) {
                WEFT_TRY(add_mark(x, o->in[k], dim_with(x, i, k, x->f[i].expert), axis,
                                  WEFT_SPLIT_BLOCK, 1, 0, NULL));
                n++;
            }
    }
    if (!n) return WEFT_FAIL(WEFT_ERR_ARG, "ep: graph %s has no experts", x->g->name);
    return mark_sequences(x, axis, parts);
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

/* What is dealt to owners at once: whole periods of weights that tp cuts within each (their
 * states, copies and biases have as many rows), so that the two cuts do not cross. */
static int64_t zero_unit(const finder *x, const weft_shape *s)
{
    int64_t unit = s->n == 1 ? ZERO_UNIT : 1;
    for (int i = 0; i < x->n_mark; i++) {
        const weft_split *k = &x->mark[i].layout.split[0];
        const weft_shape *t = &x->g->value[x->mark[i].value].type.shape;
        if (k->period && k->dim == 0 && t->d[0] == s->d[0])
            unit = unit / common_divisor(unit, k->period) * k->period;
    }
    return unit;
}

static weft_status mark_zero_one(finder *x, weft_vid v, int axis, bool rest)
{
    const weft_shape *s = &x->g->value[v].type.shape;
    weft_mark        *k = NULL;
    if (s->n == 0) return WEFT_OK;
    for (int i = 0; i < x->n_mark; i++)
        if (x->mark[i].value == v && x->mark[i].priority == 1) return WEFT_OK;
    WEFT_TRY(add_mark(x, v, 0, axis, WEFT_SPLIT_BLOCK, zero_unit(x, s), 0, &k));
    if (!k) return WEFT_OK;
    k->priority = 1;
    k->rest     = rest;
    return WEFT_OK;
}

/* The parameter that v is, or of which it is a copy in another type; -1: none. */
static weft_vid param_of(const weft_graph *g, weft_vid v)
{
    const weft_graph_value *x = &g->value[v];
    if (x->kind == WEFT_VALUE_PARAM) return v;
    if (x->kind != WEFT_VALUE_STATE || x->next < 0) return -1;
    const weft_graph_node *n = &g->node[g->value[x->next].node];
    for (weft_vid p = 0; p < g->n_value && n->n_in == 1; p++)
        if (g->value[p].kind == WEFT_VALUE_PARAM && g->value[p].next == n->in[0])
            return p;
    return -1;
}

/* Is it a node that updates a parameter with the help of states? */
static bool has_states(const weft_graph *g, int node)
{
    const weft_graph_node *n = &g->node[node];
    for (int k = 0; k < n->n_in; k++)
        if (g->value[n->in[k]].kind == WEFT_VALUE_STATE)
            return weft_op_get(n->op)->flags & WEFT_OP_UPDATE;
    return false;
}

/* Parameters that are dealt out with their states: so many percent of the bytes of those that
 * have any, evenly spread over the forward pass. */
static weft_status find_dealt(finder *x, int percent, bool *dealt)
{
    const weft_graph *g    = x->g;
    bool             *seen = WEFT_ARENA_ARRAY(x->a, bool, g->n_value + 1);
    double            all = 0, sum = 0;
    WEFT_TRY(weft_arena_status(x->a));
    for (weft_vid v = 0; v < g->n_value; v++)
        seen[v] = g->value[v].kind == WEFT_VALUE_PARAM;
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (has_states(g, i)) seen[g->node[i].in[k]] = false;
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            weft_vid p = param_of(g, g->node[i].in[k]);
            if (p < 0 || seen[p]) continue;
            double bytes = (double)weft_shape_count(&g->value[p].type.shape);
            seen[p]      = true;
            all += bytes;
            dealt[p] = sum + bytes / 2 <= all * percent / 100;
            if (dealt[p]) sum += bytes;
        }
    return WEFT_OK;
}

/* percent: of the parameters, gathered by the next step; 0: zero without it. */
static weft_status mark_zero(finder *x, int axis, int level, int percent)
{
    const weft_graph *g     = x->g;
    bool             *dealt = WEFT_ARENA_ARRAY(x->a, bool, g->n_value + 1);
    bool              rest  = level > 2 || percent; /* parameters too */
    WEFT_TRY(weft_arena_status(x->a));
    for (weft_vid v = 0; v < g->n_value && !percent; v++) dealt[v] = true;
    if (percent) WEFT_TRY(find_dealt(x, percent, dealt));
    for (int i = 0; i < g->n_node; i++) {
        const weft_graph_node *n      = &g->node[i];
        bool                   update = weft_op_get(n->op)->flags & WEFT_OP_UPDATE;
        weft_vid               param  = -1;
        for (int k = 0; k < n->n_in; k++)
            if (g->value[n->in[k]].kind == WEFT_VALUE_PARAM) param = n->in[k];
        for (int k = 0; k < n->n_in && update && param >= 0 && dealt[param]; k++) {
            const weft_graph_value *v = &g->value[n->in[k]];
            if (v->kind == WEFT_VALUE_STATE)
                WEFT_TRY(mark_zero_one(x, n->in[k], axis, false));
            if (v->kind == WEFT_VALUE_PARAM && rest)
                WEFT_TRY(mark_zero_one(x, n->in[k], axis, true));
        }
        if (level > 1 && !percent && weft_shard__is_boundary(g, i))
            WEFT_TRY(mark_zero_one(x, n->out[0], axis, false));
    }
    for (weft_vid v = 0; v < g->n_value && rest; v++) { /* copies in another type */
        weft_vid p = g->value[v].kind == WEFT_VALUE_STATE ? param_of(g, v) : -1;
        if (p >= 0 && dealt[p]) WEFT_TRY(mark_zero_one(x, v, axis, true));
    }
    return WEFT_OK;
}

/* ---- all of it ---- */

int weft_shard_axes(const weft_strategy *y, weft_mesh_axis out[WEFT_MAX_AXIS])
{
    int axis[WEFT_N_STRATEGY_AXIS];
    int n = weft_strategy_axes(y, axis);
    for (int i = 0; i < n; i++)
        out[i] = (weft_mesh_axis){.name = weft_strategy_axis_name(axis[i]),
                                  .size = weft_strategy_size(y, axis[i])};
    return n;
}

static weft_status init_finder(finder *x, const weft_strategy *y,
                               const weft_shard_layers *layers, const weft_graph *g,
                               weft_arena *a)
{
    *x        = (finder){.g = g, .a = a};
    x->f      = WEFT_ARENA_ARRAY(a, weft_node_factors, g->n_node + 1);
    x->u      = WEFT_ARENA_ARRAY(a, weft_op_use, g->n_node + 1);
    x->summed = WEFT_ARENA_ARRAY(a, bool, g->n_value + 1);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < g->n_node; i++) {
        weft_type *in  = WEFT_ARENA_ARRAY(a, weft_type, g->node[i].n_in + 1);
        weft_type *out = WEFT_ARENA_ARRAY(a, weft_type, g->node[i].n_out + 1);
        WEFT_TRY(weft_arena_status(a));
        x->u[i] = weft_graph_use(g, &g->node[i], in, out);
        WEFT_TRY(weft_shard_factors(&x->u[i], a, &x->f[i]));
    }
    return weft_shard__find_excluded(y, layers, g, x->f, a, &x->excluded);
}

static weft_status mark_all(finder *x, const weft_strategy *y)
{
    int dp = weft_strategy_axis_at(y, WEFT_AXIS_DP),
        tp = weft_strategy_axis_at(y, WEFT_AXIS_TP),
        cp = weft_strategy_axis_at(y, WEFT_AXIS_CP),
        ep = weft_strategy_axis_at(y, WEFT_AXIS_EP);
    if (tp >= 0) WEFT_TRY(mark_tp(x, tp, y->tp));
    if (y->sp) WEFT_TRY(mark_sp(x, tp));
    if (ep >= 0) WEFT_TRY(mark_ep(x, ep, y->ep));
    if (dp >= 0) WEFT_TRY(mark_inputs(x, dp, y->dp, 0, "dp"));
    if (cp >= 0) WEFT_TRY(mark_inputs(x, cp, y->cp, 1, "cp"));
    if (y->zero) WEFT_TRY(mark_zero(x, dp, y->zero, y->overlap_param_gather));
    return WEFT_OK;
}

weft_status weft_shard_expand(const weft_strategy *y, const weft_graph *g,
                              const weft_shard_layers *layers, int world, weft_arena *a,
                              weft_shard_options *out)
{
    finder         x;
    weft_mesh_axis axis[WEFT_MAX_AXIS];
    int            n = weft_strategy_world(y), each = n / y->pp;
    int            n_axis = weft_shard_axes(y, axis);
    weft_mesh     *mesh   = WEFT_ARENA_ARRAY(a, weft_mesh, y->pp);
    WEFT_TRY(weft_arena_status(a));
    if (n < 0 || (world && n != world)) {
        weft_text t = {0};
        weft_strategy_print(y, &t);
        weft_status st = WEFT_FAIL(WEFT_ERR_ARG, "%s makes %d ranks, but there are %d",
                                   t.s ? t.s : "", n, world);
        weft_text_fini(&t);
        return st;
    }
    for (int s = 0; s < y->pp; s++) {
        char *name = weft_arena_printf(a, "stage%d", s);
        WEFT_TRY(weft_arena_status(a));
        WEFT_TRY(weft_mesh_make(a, name, n_axis, axis, s * each, &mesh[s]));
    }
    WEFT_TRY(init_finder(&x, y, layers, g, a));
    WEFT_TRY(mark_all(&x, y));
    *out = (weft_shard_options){
        .n_mesh = y->pp, .mesh = mesh, .n_mark = x.n_mark, .mark = x.mark};
    return WEFT_OK;
}
