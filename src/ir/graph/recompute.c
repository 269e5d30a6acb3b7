/* Recomputation.  In: a graph with forward and backward.  Out: a new one, in which a backward
 * node's operand is kept, or a clone that lies in the backward phase.
 * (1) a forward node is cloned at most once, right before the first backward node that needs it
 * (2) the update phase sees the first ones: losses and statistics are not made again */
#include "graph/recompute.h"

#include <string.h>

#include "graph/copy_priv.h"

/* ---- what is kept ---- */

/* Cheap, and made of operands that their own gradients need in any case. */
static bool is_cheap(weft_op op)
{
    switch (op) {
    case WEFT_OP_LAYER_NORM:
    case WEFT_OP_RMS_NORM:
    case WEFT_OP_BATCH_NORM:
    case WEFT_OP_GELU:
    case WEFT_OP_SILU:
    case WEFT_OP_RELU:
    case WEFT_OP_MUL:
    case WEFT_OP_GATE:
    case WEFT_OP_DISPATCH: return true;
    default: return false;
    }
}

static bool is_norm(weft_op op)
{
    return op == WEFT_OP_LAYER_NORM || op == WEFT_OP_RMS_NORM;
}

/* Rows of a table, or their sum with what is there in any case (positions). */
static bool is_lookup(const weft_graph *g, const bool *keep, const weft_graph_node *n)
{
    if (n->op == WEFT_OP_EMBEDDING) return true;
    if (n->op != WEFT_OP_ADD) return false;
    for (int k = 0; k < n->n_in; k++)
        if (g->value[n->in[k]].kind == WEFT_VALUE_NODE && keep[n->in[k]]) return false;
    return true;
}

/* Values that backward nodes use. */
static void find_used(const weft_graph *g, bool *used)
{
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; g->node[i].phase == WEFT_PHASE_BACKWARD && k < g->node[i].n_in;
             k++)
            used[g->node[i].in[k]] = true;
}

/* Results after the first (offsets) are small: they stay, but statistics of a norm that is made
 * again come with it.  A view is what it looks at. */
static weft_status keep_selective(const weft_graph *g, bool *keep, weft_arena *a)
{
    bool *used = WEFT_ARENA_ARRAY(a, bool, g->n_value + 1);
    WEFT_TRY(weft_arena_status(a));
    find_used(g, used);
    for (weft_vid v = 0; v < g->n_value; v++) {
        const weft_graph_value *x = &g->value[v];
        keep[v]                   = true;
        if (x->kind != WEFT_VALUE_NODE) continue;
        const weft_graph_node *n = &g->node[x->node];
        if (weft_op_get(n->op)->flags & WEFT_OP_VIEW)
            keep[v] = keep[n->in[0]];
        else if (x->index > 0)
            keep[v] = !is_norm(n->op) || !used[n->out[0]];
        else
            keep[v] = !is_cheap(n->op) && !is_lookup(g, keep, n);
    }
    return WEFT_OK;
}

/* The gradient of a loss follows at once, and what its matmul reads is there: a clone would be made
 * beside it, and the head could not run in parts (lower/head.c). */
static void keep_heads(const weft_graph *g, bool *keep)
{
    for (int i = 0; i < g->n_node; i++) {
        const weft_graph_node *n = &g->node[i];
        if (n->op != WEFT_OP_CROSS_ENTROPY || n->phase != WEFT_PHASE_FORWARD) continue;
        weft_vid v = n->in[0];
        while (g->value[v].kind == WEFT_VALUE_NODE &&
               (weft_op_get(g->node[g->value[v].node].op)->flags & WEFT_OP_VIEW))
            v = g->node[g->value[v].node].in[0];
        if (g->value[v].kind != WEFT_VALUE_NODE) continue;
        const weft_graph_node *logits = &g->node[g->value[v].node];
        if (logits->op != WEFT_OP_MATMUL) continue;
        keep[logits->in[0]] = true;
        if (g->value[logits->in[0]].kind != WEFT_VALUE_NODE) continue;
        const weft_graph_node *norm = &g->node[g->value[logits->in[0]].node];
        for (int j = 0; j < norm->n_out; j++) keep[norm->out[j]] = true;
    }
}

/* Within layers that repeat: only what is used in another layer than it is made in. */
static void keep_seams(const weft_graph *g, const weft_graph_layers *l, bool *keep)
{
    int end = l->start + l->length * l->count;
    for (int i = l->start; i < end; i++)
        for (int j = 0; j < g->node[i].n_out; j++) keep[g->node[i].out[j]] = false;
    for (int i = l->start; i < g->n_node && g->node[i].phase == WEFT_PHASE_FORWARD; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            weft_vid v = g->node[i].in[k];
            int      n = g->value[v].node;
            if (n >= l->start && n < end &&
                (i >= end || (n - l->start) / l->length != (i - l->start) / l->length))
                keep[v] = true;
        }
}

/* Values outside the layers, and those that pass between them; every run of layers counts. */
static weft_status keep_full(const weft_graph *g, bool *keep, weft_arena *a)
{
    weft_graph_layers *run;
    int                n;
    bool               any = false;
    WEFT_TRY(weft_graph_find_runs(g, a, &n, &run));
    for (weft_vid v = 0; v < g->n_value; v++) keep[v] = true;
    for (int r = 0; r < n; r++) {
        if (run[r].count < 2) continue;
        any = true;
        keep_seams(g, &run[r], keep);
    }
    return any ? WEFT_OK : keep_selective(g, keep, a);
}

/* ---- clones ---- */

typedef struct rewrite {
    weft_graph__copy c;
    const bool      *keep;
    weft_vid        *again; /* forward value -> its clone in the new graph, -1 none yet */
} rewrite;

static weft_status clone(rewrite *r, int i);

/* What a backward node uses for v. */
static weft_status operand(rewrite *r, weft_vid v, weft_vid *out)
{
    const weft_graph       *g = r->c.from;
    const weft_graph_value *x = &g->value[v];
    *out                      = r->c.map[v];
    if (x->kind != WEFT_VALUE_NODE || r->keep[v] ||
        g->node[x->node].phase != WEFT_PHASE_FORWARD)
        return WEFT_OK;
    if (r->again[v] < 0) WEFT_TRY(clone(r, x->node));
    *out = r->again[v];
    return WEFT_OK;
}

static weft_status operands(rewrite *r, const weft_graph_node *n, weft_vid **out)
{
    weft_vid *in = WEFT_ARENA_ARRAY(r->c.tmp, weft_vid, n->n_in + 1);
    if (!in) return weft_arena_status(r->c.tmp);
    for (int k = 0; k < n->n_in; k++) WEFT_TRY(operand(r, n->in[k], &in[k]));
    *out = in;
    return WEFT_OK;
}

static weft_status clone(rewrite *r, int i)
{
    const weft_graph_node *n = &r->c.from->node[i];
    weft_vid              *in, out[WEFT_MAX_OUT];
    WEFT_TRY(operands(r, n, &in));
    WEFT_TRY(weft_graph__copy_node(&r->c, i, WEFT_PHASE_BACKWARD, in, ".again", out));
    for (int j = 0; j < n->n_out; j++) r->again[n->out[j]] = out[j];
    return WEFT_OK;
}

static weft_status copy_node(rewrite *r, int i)
{
    const weft_graph_node *n = &r->c.from->node[i];
    weft_vid              *in;
    if (n->phase == WEFT_PHASE_BACKWARD) {
        WEFT_TRY(operands(r, n, &in));
    } else {
        in = WEFT_ARENA_ARRAY(r->c.tmp, weft_vid, n->n_in + 1);
        if (!in) return weft_arena_status(r->c.tmp);
        for (int k = 0; k < n->n_in; k++) in[k] = r->c.map[n->in[k]];
    }
    return weft_graph__copy_node(&r->c, i, n->phase, in, NULL, NULL);
}

/* Leaves and nodes in the order of values, which is the order they were made in. */
static weft_status copy_all(rewrite *r)
{
    const weft_graph *g = r->c.from;
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].kind != WEFT_VALUE_NODE)
            WEFT_TRY(weft_graph__copy_leaf(&r->c, v));
        else if (g->value[v].index == 0)
            WEFT_TRY(copy_node(r, g->value[v].node));
    return weft_graph__copy_ends(&r->c);
}

weft_status weft_graph_recompute_but(const weft_graph *g, const bool *keep,
                                     weft_graph **out)
{
    rewrite     r   = {.keep = keep};
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    r.again = WEFT_ARENA_ARRAY(tmp, weft_vid, g->n_value + 1);
    WEFT_GO(weft_arena_status(tmp));
    for (weft_vid v = 0; v < g->n_value; v++) r.again[v] = -1;
    WEFT_GO(weft_graph__copy_start(&r.c, g, tmp));
    WEFT_GO(copy_all(&r));
    *out   = r.c.to;
    r.c.to = NULL;
out:
    weft_graph_destroy(r.c.to);
    weft_arena_destroy(tmp);
    return st;
}

weft_status weft_graph_recompute(const weft_graph *g, weft_strategy_recompute policy,
                                 weft_graph **out)
{
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    bool *keep = WEFT_ARENA_ARRAY(tmp, bool, g->n_value + 1);
    WEFT_GO(weft_arena_status(tmp));
    memset(keep, 1, (size_t)g->n_value);
    if (policy == WEFT_STRATEGY_SELECTIVE) WEFT_GO(keep_selective(g, keep, tmp));
    if (policy == WEFT_STRATEGY_SELECTIVE) keep_heads(g, keep);
    if (policy == WEFT_STRATEGY_FULL) WEFT_GO(keep_full(g, keep, tmp));
    WEFT_GO(weft_graph_recompute_but(g, keep, out));
out:
    weft_arena_destroy(tmp);
    return st;
}
