/* Fusion: steps that follow an operator with WEFT_OP_POSTS ride on it.
 *
 *     u = matmul(x, w); v = add(u, bias); y = gelu(v)      one instruction that stores y (and v, if
 *                                                          the backward pass reads it)
 * A step is taken when the value so far is its first operand (either one of add and mul), its other
 * operand is there before the product runs, and it is as large as the result or a row of it.
 *
 * Where the options name them (weft_fusion), other operators have steps too:
 *
 *     dx, dw, db = layer_norm_grad(..); y = add(dx, residual); b = reduce(y)   stores y, dw, db, b
 *     p, m, v = adamw(..); twin = cast(p)                                        stores all four
 *     dq, dk, dv = attention_grad(..); p = rotary(dq); q = rotary(dk)            stores p, q, dv */
#include <string.h>

#include "lower/lower_priv.h"

static bool is_step(weft_op op)
{
    switch (op) {
    case WEFT_OP_ADD:
    case WEFT_OP_MUL:
    case WEFT_OP_SCALE:
    case WEFT_OP_GELU:
    case WEFT_OP_SILU:
    case WEFT_OP_RELU:
    case WEFT_OP_TANH:
    case WEFT_OP_GELU_GRAD:
    case WEFT_OP_SILU_GRAD:
    case WEFT_OP_RELU_GRAD:
    case WEFT_OP_TANH_GRAD: return true;
    default: return false;
    }
}

/* How many trailing dimensions of the result belong to operand b alone: a row of the product. */
static int row_dims(const weft_graph *g, const weft_graph_node *n)
{
    weft_op_use u    = {.op = n->op, .attr = n->attr};
    const char *spec = weft_use_string(&u, "spec"), *comma = strchr(spec, ','),
               *y = strstr(spec, "->");
    int k = 0, nd = g->value[n->out[0]].type.shape.n;
    if (!comma || !y) return 0;
    y += 2;
    while (k < nd && !memchr(spec, y[nd - 1 - k], (size_t)(comma - spec))) k++;
    return k;
}

/* Is v whole in memory, dense, before node at runs? */
static bool ready_before(const weft_lower__pass *p, weft_vid v, int at)
{
    const weft_graph *g    = p->g;
    weft_vid          base = v;
    while (g->value[base].node >= 0 && g->node[g->value[base].node].op == WEFT_OP_RESHAPE)
        base = g->node[g->value[base].node].in[0];
    int32_t n = g->value[base].node;
    if (n >= 0 && weft_op_get(g->node[n].op)->flags & WEFT_OP_VIEW) return false;
    if (n >= 0 && p->placed[base]) return false;
    if (n >= 0 && p->fused_into[n] >= 0) n = p->fused_into[n];
    return n < at;
}

/* The other operand of step s when v is the value so far; -2: s cannot take v. */
static weft_vid other_operand(const weft_graph_node *s, weft_vid v)
{
    if (s->n_in == 1) return -1;
    if (s->n_in != 2 || s->in[0] == s->in[1]) return -2;
    if (s->in[0] == v) return s->in[1];
    if ((s->op == WEFT_OP_ADD || s->op == WEFT_OP_MUL) && s->in[1] == v) return s->in[0];
    return -2;
}

static bool fits(const weft_graph *g, const weft_shape *y, weft_vid w, int row)
{
    const weft_shape *s = &g->value[w].type.shape;
    if (weft_shape_equal(s, y)) return true;
    if (s->n != row || row == 0) return false;
    return !memcmp(s->d, y->d + y->n - row, sizeof(int64_t) * (size_t)row);
}

/* Node i runs in one go with node at. */
static bool runs_with(const weft_lower__pass *p, int i, int at)
{
    return p->g->node[i].phase == p->g->node[at].phase &&
           (!p->piece || p->piece[i] == p->piece[at]);
}

static bool has_fusion(const weft_lower__pass *p, weft_op op, weft_op step)
{
    return (p->fusions & weft_op_fusion(op, step)) != 0;
}

/* Is reduce s the sum over all dimensions of its operand but the last one? */
static bool is_column_sum(const weft_graph *g, const weft_graph_node *s)
{
    weft_op_use      u    = {.op = s->op, .attr = s->attr};
    const weft_attr *axes = weft_use_attr(&u, "axes");
    int              n    = g->value[s->in[0]].type.shape.n;
    if (axes->n != n - 1 || n < 2 || strcmp(weft_use_string(&u, "kind"), "sum") != 0)
        return false;
    for (int k = 0; k < axes->n; k++)
        if (axes->l[k] == n - 1 || axes->l[k] == -1) return false;
    return g->value[s->out[0]].type.dtype == WEFT_DTYPE_F32 && !weft_use_int(&u, "keep");
}

/* Does the result of s, written when node at runs, replace nothing that is still read? */
static bool may_be_early(const weft_lower__pass *p, const weft_graph_node *s, int at)
{
    weft_vid root = p->loc[s->out[0]].root;
    if (root < 0 || p->g->value[root].kind == WEFT_VALUE_NODE) return true;
    return p->last_use[root] < at;
}

/* A further result that node at can make of its value v, which somebody else takes too; -1 none. */
static int find_side(const weft_lower__pass *p, weft_vid v, int at)
{
    const weft_graph *g = p->g;
    if (p->n_use[v] < 2) return -1;
    for (int k = p->first_user[v]; k < p->first_user[v + 1]; k++) {
        int                    i = p->user[k];
        const weft_graph_node *s = &g->node[i];
        if (!p->alive[i] || p->fused_into[i] >= 0 || !runs_with(p, i, at)) continue;
        if (s->op != WEFT_OP_REDUCE && s->op != WEFT_OP_CAST) continue;
        if (!has_fusion(p, g->node[at].op, s->op) || !may_be_early(p, s, at)) continue;
        if (s->op == WEFT_OP_REDUCE && !is_column_sum(g, s)) continue;
        return i;
    }
    return -1;
}

/* The next step behind value v, a node of the same phase and piece; -1 none. */
static int next_step(const weft_lower__pass *p, weft_vid v, int at, int row)
{
    const weft_graph *g = p->g;
    if (p->placed[v]) return -1;
    for (int k = p->first_user[v]; k < p->first_user[v + 1]; k++) {
        int                    i = p->user[k];
        const weft_graph_node *s = &g->node[i];
        if (!p->alive[i] || p->fused_into[i] >= 0) continue;
        if (!is_step(s->op) || !runs_with(p, i, at) || p->placed[s->out[0]]) return -1;
        weft_vid w = other_operand(s, v);
        if (w == -2 ||
            !weft_shape_equal(&g->value[s->out[0]].type.shape, &g->value[v].type.shape))
            return -1;
        if (g->value[s->out[0]].type.dtype != g->value[v].type.dtype) return -1;
        if (w >= 0 &&
            (!ready_before(p, w, at) || !fits(g, &g->value[v].type.shape, w, row)))
            return -1;
        return i;
    }
    return -1;
}

static void take_step(weft_lower__pass *p, int at, int step)
{
    p->chain[at].node[p->chain[at].n++] = step;
    p->fused_into[step]                 = at;
}

/* Norms' gradients and updates: at most one add, at most one further result. */
static void fuse_others(weft_lower__pass *p, int at)
{
    const weft_graph_node *n = &p->g->node[at];
    weft_vid               v = n->out[0];
    int s = has_fusion(p, n->op, WEFT_OP_ADD) ? next_step(p, v, at, 0) : -1;
    if (s >= 0 && p->g->node[s].op == WEFT_OP_ADD && p->n_use[v] == 1) {
        take_step(p, at, s);
        v = p->g->node[s].out[0];
    }
    s = find_side(p, v, at);
    if (s >= 0) take_step(p, at, s);
}

/* The rotary embedding that alone takes result k of node at; -1: none. */
static int find_turn(const weft_lower__pass *p, int at, int k)
{
    const weft_graph *g = p->g;
    weft_vid          v = g->node[at].out[k];
    if (p->n_use[v] != 1 || p->placed[v]) return -1;
    for (int u = p->first_user[v]; u < p->first_user[v + 1]; u++) {
        int i = p->user[u];
        if (!p->alive[i]) continue;
        return g->node[i].op == WEFT_OP_ROTARY && runs_with(p, i, at) &&
                       !p->placed[g->node[i].out[0]]
                   ? i
                   : -1;
    }
    return -1;
}

/* Attention's gradient: dq and dk are turned back, both of them. */
static void fuse_turns(weft_lower__pass *p, int at)
{
    if (!has_fusion(p, p->g->node[at].op, WEFT_OP_ROTARY)) return;
    int q = find_turn(p, at, 0), k = find_turn(p, at, 1);
    if (q < 0 || k < 0) return;
    take_step(p, at, q);
    take_step(p, at, k);
}

/* The loss and its gradient over the same logits: one pass over them instead of two.  Possible
 * when the backward pass needs the loss's statistics for nothing else and its weight is known
 * beforehand; never of a part of the vocabulary, whose log-sum-exp is not the one the gradient
 * takes. */
static void fuse_loss(weft_lower__pass *p, int at)
{
    const weft_graph *g   = p->g;
    const weft_vid   *out = g->node[at].out, *in = g->node[at].in;
    weft_op_use       use = {.op = g->node[at].op, .attr = g->node[at].attr};
    if (weft_use_int(&use, "first") >= 0) return;
    if (p->n_use[out[1]] != 1 || p->n_use[in[0]] != 2) return;
    for (int k = p->first_user[out[1]]; k < p->first_user[out[1] + 1]; k++) {
        int                    i = p->user[k];
        const weft_graph_node *d = &g->node[i];
        if (!p->alive[i] || d->op != WEFT_OP_CROSS_ENTROPY_GRAD) continue;
        if (d->in[0] != in[0] || d->in[1] != in[1] || d->in[2] != out[1] ||
            p->placed[d->out[0]])
            return;
        if (g->value[weft_lower__base(g, d->in[3])].node >= 0) return;
        take_step(p, at, i);
        return;
    }
}

void weft_lower__fuse(weft_lower__pass *p)
{
    const weft_graph *g = p->g;
    for (int i = 0; i < g->n_node; i++) {
        const weft_graph_node *n = &g->node[i];
        if (!p->alive[i]) continue;
        if (n->op == WEFT_OP_CROSS_ENTROPY) fuse_loss(p, i);
        if (n->op == WEFT_OP_ATTENTION_GRAD)
            fuse_turns(p, i);
        else if (p->fused_into[i] < 0)
            fuse_others(p, i);
        if (n->op != WEFT_OP_MATMUL && n->op != WEFT_OP_GROUPED_MATMUL) continue;
        int      row = n->op == WEFT_OP_MATMUL ? row_dims(g, n) : 0;
        weft_vid v   = n->out[0];
        while (p->chain[i].n < WEFT_LOWER__MAX_POST) {
            int s = next_step(p, v, i, row);
            if (s < 0) break;
            take_step(p, i, s);
            v = g->node[s].out[0];
        }
    }
}
