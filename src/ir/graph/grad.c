/* Reverse differentiation: nodes are walked from the last to the first; each turns the gradients
 * of its results into gradients of its operands by ordinary nodes.
 * In: a graph, y, its seed, the values wrt.  Out: nodes in phase backward behind what was there.
 * (1) only what leads from y to some wrt is made
 * (2) the uses of a value are added in graph order, whatever order they were made in */
#include "graph/grad.h"

#include <string.h>

#include "graph/grad_priv.h"

static const weft_graph__grad_fn table[WEFT_N_OP] = {
    [WEFT_OP_MATMUL]         = weft_graph__grad_matmul,
    [WEFT_OP_GROUPED_MATMUL] = weft_graph__grad_grouped_matmul,
    [WEFT_OP_ADD]            = weft_graph__grad_add,
    [WEFT_OP_MUL]            = weft_graph__grad_mul,
    [WEFT_OP_SCALE]          = weft_graph__grad_scale,
    [WEFT_OP_CAST]           = weft_graph__grad_pass,
    [WEFT_OP_GELU]           = weft_graph__grad_from_x,
    [WEFT_OP_SILU]           = weft_graph__grad_from_x,
    [WEFT_OP_RELU]           = weft_graph__grad_from_x,
    [WEFT_OP_TANH]           = weft_graph__grad_from_y,
    [WEFT_OP_GATE]           = weft_graph__grad_gate,
    [WEFT_OP_DROPOUT]        = weft_graph__grad_dropout,
    [WEFT_OP_LAYER_NORM]     = weft_graph__grad_layer_norm,
    [WEFT_OP_RMS_NORM]       = weft_graph__grad_rms_norm,
    [WEFT_OP_SOFTMAX]        = weft_graph__grad_from_y,
    [WEFT_OP_ROTARY]         = weft_graph__grad_rotary,
    [WEFT_OP_ATTENTION]      = weft_graph__grad_attention,
    [WEFT_OP_EMBEDDING]      = weft_graph__grad_embedding,
    [WEFT_OP_CROSS_ENTROPY]  = weft_graph__grad_cross_entropy,
    [WEFT_OP_GATHER]         = weft_graph__grad_gather,
    [WEFT_OP_SCATTER_ADD]    = weft_graph__grad_scatter_add,
    [WEFT_OP_REDUCE]         = weft_graph__grad_reduce,
    [WEFT_OP_BROADCAST]      = weft_graph__grad_broadcast,
    [WEFT_OP_RESHAPE]        = weft_graph__grad_reshape,
    [WEFT_OP_TRANSPOSE]      = weft_graph__grad_transpose,
    [WEFT_OP_CONCAT]         = weft_graph__grad_concat,
    [WEFT_OP_SPLIT]          = weft_graph__grad_split,
    [WEFT_OP_SLICE]          = weft_graph__grad_slice,
    [WEFT_OP_SLICE_GRAD]     = weft_graph__grad_slice_grad,
    [WEFT_OP_ROUTE]          = weft_graph__grad_route,
    [WEFT_OP_DISPATCH]       = weft_graph__grad_dispatch,
    [WEFT_OP_COMBINE]        = weft_graph__grad_combine,
    [WEFT_OP_CONV2D]         = weft_graph__grad_conv2d,
    [WEFT_OP_MAX_POOL]       = weft_graph__grad_max_pool,
    [WEFT_OP_AVG_POOL]       = weft_graph__grad_avg_pool,
    [WEFT_OP_BATCH_NORM]     = weft_graph__grad_batch_norm,
};

struct weft_graph__part {
    int               node, k; /* the use */
    weft_vid          grad;
    weft_graph__part *next;
};

/* ---- what gradient functions call ---- */

bool weft_graph__wants(const weft_graph__diff *d, const weft_graph_node *n, int k)
{
    return k < n->n_in && d->depends[n->in[k]];
}

static bool is_half(weft_dtype t)
{
    return t == WEFT_DTYPE_BF16 || t == WEFT_DTYPE_F16;
}

weft_dtype weft_graph__grad_dtype(const weft_graph__diff *d, const weft_graph_node *n,
                                  int k)
{
    const weft_graph_value *v = &d->b.g->value[n->in[k]];
    bool leaf = v->kind == WEFT_VALUE_PARAM || v->kind == WEFT_VALUE_STATE;
    return leaf && is_half(v->type.dtype) ? WEFT_DTYPE_F32 : v->type.dtype;
}

void weft_graph__fail(weft_graph__diff *d, const weft_graph_node *n, const char *why)
{
    if (d->b.st != WEFT_OK) return;
    d->b.st = WEFT_FAIL(WEFT_ERR_ARG, "%s (%s): %s", d->b.g->value[n->out[0]].name,
                        weft_op_get(n->op)->name, why);
}

static const char *grad_name(weft_graph__diff *d, weft_vid v)
{
    return weft_arena_printf(d->tmp, "%s.d", d->b.g->value[v].name);
}

void weft_graph__emit_many(weft_graph__diff *d, const weft_graph_node *n, int k,
                           weft_op op, const weft_attr *attr, int n_in,
                           const weft_vid *in, int n_out, weft_vid *out)
{
    weft_attr def[WEFT_MAX_ATTR];
    for (int j = 0; j < n_out; j++) out[j] = -1;
    if (d->b.st != WEFT_OK) return;
    if (!attr) weft_op_attr_defaults(op, def);
    d->b.st = weft_graph_add_node(d->b.g, op, attr ? attr : def, n_in, in,
                                  grad_name(d, n->in[k]), n_out, out);
}

weft_vid weft_graph__emit(weft_graph__diff *d, const weft_graph_node *n, int k,
                          weft_op op, const weft_attr *attr, int n_in, const weft_vid *in)
{
    weft_vid out;
    weft_graph__emit_many(d, n, k, op, attr, n_in, in, 1, &out);
    return out;
}

weft_vid weft_graph__cast(weft_graph__diff *d, weft_vid x, weft_dtype t)
{
    if (d->b.st != WEFT_OK || WEFT_TYPE(d, x).dtype == t) return x;
    return weft_buildf(&d->b, WEFT_OP_CAST, d->b.g->value[x].name, 1, &x, "dtype=%s",
                       weft_dtype_name(t));
}

weft_vid weft_graph__unbroadcast(weft_graph__diff *d, const weft_graph_node *n, int k,
                                 weft_vid x, const weft_shape *to, weft_dtype t)
{
    weft_attr attr[WEFT_MAX_ATTR];
    if (d->b.st != WEFT_OK) return -1;
    weft_shape from = WEFT_TYPE(d, x).shape;
    int        lead = from.n - to->n;
    weft_op_attr_defaults(WEFT_OP_REDUCE, attr);
    weft_attr *axes = weft_graph__attr(WEFT_OP_REDUCE, attr, "axes");
    for (int i = 0; i < from.n; i++)
        if (i < lead || (to->d[i - lead] == 1 && from.d[i] != 1)) axes->l[axes->n++] = i;
    if (axes->n) {
        weft_graph__attr(WEFT_OP_REDUCE, attr, "dtype")->s = weft_dtype_name(t);
        x = weft_graph__emit(d, n, k, WEFT_OP_REDUCE, attr, 1, &x);
    }
    return weft_build_reshape(&d->b, x, to);
}

void weft_graph__copy_attr(weft_op dst, weft_attr *to, const weft_graph_node *src)
{
    char name[32];
    weft_op_attr_defaults(dst, to);
    for (int i = 0; i < weft_op_n_attr(dst); i++) {
        int from =
            weft_op_attr_index(src->op, weft_op_attr_name(dst, i, name, sizeof name));
        if (from >= 0) to[i] = src->attr[from];
    }
}

weft_attr *weft_graph__attr(weft_op op, weft_attr *attr, const char *name)
{
    return &attr[weft_op_attr_index(op, name)];
}

static bool before(const weft_graph__part *a, const weft_graph__part *b)
{
    return a->node != b->node ? a->node < b->node : a->k < b->k;
}

static void add_part(weft_graph__diff *d, weft_vid v, int node, int k, weft_vid grad)
{
    weft_graph__part *p = WEFT_ARENA_NEW(d->tmp, weft_graph__part), **at = &d->part[v];
    if (!p) {
        d->b.st = weft_arena_status(d->tmp);
        return;
    }
    *p = (weft_graph__part){node, k, grad, NULL};
    while (*at && before(*at, p)) at = &(*at)->next;
    p->next = *at;
    *at     = p;
}

void weft_graph__give(weft_graph__diff *d, const weft_graph_node *n, int k, weft_vid grad)
{
    grad = weft_graph__cast(d, grad, weft_graph__grad_dtype(d, n, k));
    if (d->b.st == WEFT_OK) add_part(d, n->in[k], d->node, k, grad);
}

/* ---- the walk ---- */

/* The sum of all uses; -1 when there is none. */
static weft_vid sum_parts(weft_graph__diff *d, weft_vid v)
{
    weft_graph__part *p = d->part[v];
    if (!p) return -1;
    weft_vid sum = p->grad;
    for (p = p->next; p; p = p->next)
        sum = weft_build(&d->b, WEFT_OP_ADD, grad_name(d, v), NULL, 2, sum, p->grad);
    return sum;
}

static void walk_node(weft_graph__diff *d, int i)
{
    weft_graph_node n = d->b.g->node[i]; /* a copy: the table grows */
    weft_vid        dy[WEFT_MAX_OUT];
    bool            any = false, leads = false;
    for (int j = 0; j < n.n_out; j++) any = any || d->part[n.out[j]];
    for (int k = 0; k < n.n_in; k++) leads = leads || d->depends[n.in[k]];
    if (!any || !leads || (weft_op_get(n.op)->flags & WEFT_OP_NODIFF)) return;
    for (int j = 0; j < n.n_out; j++) dy[j] = sum_parts(d, n.out[j]);
    d->node = i;
    if (d->b.st != WEFT_OK) return;
    if (table[n.op])
        table[n.op](d, &n, dy);
    else
        weft_graph__fail(d, &n, "this operator has no gradient");
}

static void mark_dependent(weft_graph__diff *d, int n_wrt, const weft_vid *wrt)
{
    const weft_graph *g = d->b.g;
    for (int i = 0; i < n_wrt; i++) d->depends[wrt[i]] = true;
    for (int i = 0; i < g->n_node; i++) {
        const weft_graph_node *n   = &g->node[i];
        bool                   any = false;
        if (weft_op_get(n->op)->flags & WEFT_OP_NODIFF) continue;
        for (int k = 0; k < n->n_in; k++) any = any || d->depends[n->in[k]];
        for (int j = 0; j < n->n_out && any; j++) d->depends[n->out[j]] = true;
    }
}

/* Ones, or the seed spread over y. */
static weft_vid make_seed(weft_graph__diff *d, weft_vid y, weft_vid seed)
{
    weft_type t = WEFT_TYPE(d, y);
    if (seed < 0) {
        seed = weft_buildf(&d->b, WEFT_OP_FILL, grad_name(d, y), 0, NULL,
                           "value=1 dtype=%s", weft_dtype_name(t.dtype));
    }
    return weft_build_broadcast(&d->b, weft_graph__cast(d, seed, t.dtype), &t.shape);
}

static weft_status take_uses(weft_graph__diff *d, weft_vid v, weft_grad_uses *out)
{
    int n = 0;
    for (weft_graph__part *p = d->part[v]; p; p = p->next) n++;
    out->n    = n;
    out->grad = WEFT_ARENA_ARRAY(d->b.g->arena, weft_vid, n ? n : 1);
    if (!out->grad) return weft_arena_status(d->b.g->arena);
    n = 0;
    for (weft_graph__part *p = d->part[v]; p; p = p->next) out->grad[n++] = p->grad;
    return WEFT_OK;
}

static weft_status check_values(const weft_graph *g, weft_vid y, weft_vid seed, int n_wrt,
                                const weft_vid *wrt)
{
    if (y < 0 || y >= g->n_value || seed >= g->n_value)
        return WEFT_FAIL(WEFT_ERR_ARG, "differentiate: %d is no value of graph %s",
                         (int)y, g->name);
    for (int i = 0; i < n_wrt; i++)
        if (wrt[i] < 0 || wrt[i] >= g->n_value)
            return WEFT_FAIL(WEFT_ERR_ARG, "differentiate: %d is no value of graph %s",
                             (int)wrt[i], g->name);
    if (g->phase == WEFT_PHASE_UPDATE)
        return WEFT_FAIL(WEFT_ERR_ARG, "differentiate: graph %s has its update already",
                         g->name);
    return WEFT_OK;
}

weft_status weft_graph_differentiate_uses(weft_graph *g, weft_vid y, weft_vid seed,
                                          int n_wrt, const weft_vid *wrt,
                                          weft_grad_uses *uses)
{
    weft_graph__diff d  = {.b = weft_build_start(g), .n_value = g->n_value};
    weft_status      st = WEFT_OK;
    int              n  = g->n_node;

    WEFT_TRY(check_values(g, y, seed, n_wrt, wrt));
    WEFT_TRY(weft_arena_create(&d.tmp));
    d.depends = WEFT_ARENA_ARRAY(d.tmp, bool, g->n_value + 1);
    d.part    = WEFT_ARENA_ARRAY(d.tmp, weft_graph__part *, g->n_value + 1);
    WEFT_GO(weft_arena_status(d.tmp));
    g->phase = WEFT_PHASE_BACKWARD;
    mark_dependent(&d, n_wrt, wrt);
    if (d.depends[y]) {
        weft_vid ones = make_seed(&d, y, seed);
        if (d.b.st == WEFT_OK) add_part(&d, y, n, 0, ones);
    }
    for (int i = n - 1; i >= 0 && d.b.st == WEFT_OK; i--) walk_node(&d, i);
    WEFT_GO(d.b.st);
    for (int i = 0; i < n_wrt; i++) WEFT_GO(take_uses(&d, wrt[i], &uses[i]));
out:
    weft_arena_destroy(d.tmp);
    return st;
}

weft_status weft_graph_differentiate(weft_graph *g, weft_vid y, weft_vid seed, int n_wrt,
                                     const weft_vid *wrt, weft_vid *grad)
{
    weft_builder    b    = weft_build_start(g);
    weft_grad_uses *uses = WEFT_ARENA_ARRAY(g->arena, weft_grad_uses, n_wrt ? n_wrt : 1);
    if (!uses) return weft_arena_status(g->arena);
    WEFT_TRY(weft_graph_differentiate_uses(g, y, seed, n_wrt, wrt, uses));
    for (int i = 0; i < n_wrt; i++) {
        grad[i] = uses[i].n ? uses[i].grad[0] : -1;
        for (int k = 1; k < uses[i].n; k++)
            grad[i] = weft_build(&b, WEFT_OP_ADD, g->value[grad[i]].name, NULL, 2,
                                 grad[i], uses[i].grad[k]);
    }
    return b.st;
}
