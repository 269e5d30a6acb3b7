/* What must be known before the first instruction is written: who is alive, who uses what, and
 * which results are written straight to where they are needed: parts of a concat, accumulators,
 * next states. */
#include <string.h>

#include "lower/lower_priv.h"

static weft_status allocate(weft_lower__pass *p)
{
    const weft_graph *g = p->g;
    p->alive            = WEFT_ARENA_ARRAY(p->tmp, bool, g->n_node + 1);
    p->n_use            = WEFT_ARENA_ARRAY(p->tmp, int, g->n_value + 1);
    p->loc              = WEFT_ARENA_ARRAY(p->tmp, weft_lower__loc, g->n_value + 1);
    p->fused_into       = WEFT_ARENA_ARRAY(p->tmp, int, g->n_node + 1);
    p->chain            = WEFT_ARENA_ARRAY(p->tmp, weft_lower__chain, g->n_node + 1);
    p->accum            = WEFT_ARENA_ARRAY(p->tmp, weft_vid, g->n_value + 1);
    p->base             = WEFT_ARENA_ARRAY(p->tmp, weft_vid, g->n_node + 1);
    p->placed           = WEFT_ARENA_ARRAY(p->tmp, bool, g->n_value + 1);
    p->last_use         = WEFT_ARENA_ARRAY(p->tmp, int, g->n_value + 1);
    p->padded           = WEFT_ARENA_ARRAY(p->tmp, bool, g->n_value + 1);
    WEFT_TRY(weft_arena_status(p->tmp));
    for (int i = 0; i < g->n_node; i++) p->fused_into[i] = p->base[i] = -1;
    for (weft_vid v = 0; v < g->n_value; v++)
        p->accum[v] = p->loc[v].root = p->last_use[v] = -1;
    return weft_graph_users(g, p->tmp, &p->first_user, &p->user);
}

/* What a rank passes on is the next one's, whatever it needs itself. */
static bool is_for_others(const weft_graph_node *n)
{
    return n->op == WEFT_OP_SHIFT;
}

/* From outputs and next states back to what they need. */
static void mark_alive(weft_lower__pass *p)
{
    const weft_graph *g = p->g;
    for (int i = 0; i < g->n_output; i++) p->n_use[g->output[i]]++;
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].next >= 0) p->n_use[g->value[v].next]++;
    for (int i = g->n_node - 1; i >= 0; i--) {
        const weft_graph_node *n = &g->node[i];
        p->alive[i]              = is_for_others(n);
        for (int j = 0; j < n->n_out; j++)
            p->alive[i] = p->alive[i] || p->n_use[n->out[j]] > 0;
        if (p->alive[i])
            for (int k = 0; k < n->n_in; k++) p->n_use[n->in[k]]++;
    }
    for (int i = 0; i < g->n_node; i++) {
        const weft_graph_node *n = &g->node[i];
        if (!p->alive[i] || weft_op_get(n->op)->flags & WEFT_OP_VIEW) continue;
        for (int k = 0; k < n->n_in; k++) p->last_use[weft_lower__base(g, n->in[k])] = i;
    }
}

/* The value that a chain of reshapes, each used once, is made from; -1 when it is not a fresh
 * result of an operator with all these flags. */
static weft_vid fresh_result(const weft_lower__pass *p, weft_vid v, unsigned flags)
{
    const weft_graph *g = p->g;
    for (;;) {
        int32_t n = g->value[v].node;
        if (n < 0 || p->n_use[v] != 1 || p->placed[v]) return -1;
        unsigned f = weft_op_get(g->node[n].op)->flags;
        if (g->node[n].op == WEFT_OP_RESHAPE) {
            v = g->node[n].in[0];
            continue;
        }
        if (f & WEFT_OP_VIEW || (f & flags) != flags ||
            g->node[n].op == WEFT_OP_ACCUMULATE)
            return -1;
        return v;
    }
}

/* A concat whose parts can all be written in place needs no instruction. */
static void place_concat(weft_lower__pass *p, const weft_graph_node *n)
{
    const weft_graph *g   = p->g;
    weft_vid          out = n->out[0];
    const weft_shape *to  = &g->value[out].type.shape;
    weft_op_use       u   = {.op = n->op, .attr = n->attr};
    int64_t           ax = weft_use_int(&u, "axis"), dense[WEFT_MAX_DIM], at = 0;
    weft_vid          part[16];
    weft_lower__loc   loc[16];

    if (n->n_in > 16) return;
    if (ax < 0) ax += to->n;
    weft_lower__dense(to, dense);
    for (int i = 0; i < n->n_in; i++) {
        const weft_shape *piece = &g->value[n->in[i]].type.shape;
        part[i]                 = fresh_result(p, n->in[i], WEFT_OP_STRIDED);
        if (part[i] < 0) return;
        for (int k = 0; k < i; k++)
            if (part[k] == part[i]) return;
        loc[i] = (weft_lower__loc){.root = out, .offset = at * dense[ax]};
        if (!weft_lower__reshape(piece, dense, &g->value[part[i]].type.shape,
                                 loc[i].stride))
            return;
        at += piece->d[ax];
    }
    for (int i = 0; i < n->n_in; i++) {
        p->loc[part[i]]    = loc[i];
        p->placed[part[i]] = true;
    }
    p->loc[out] = (weft_lower__loc){.root = out};
    memcpy(p->loc[out].stride, dense, sizeof dense);
}

/* accumulate(g): g's maker writes, or adds, straight into the accumulator when it can. */
static void place_accumulate(weft_lower__pass *p, const weft_graph_node *n)
{
    const weft_graph *g   = p->g;
    weft_vid          out = n->out[0];
    /* the one term of the step is the sum: whoever makes it writes it there */
    weft_vid v       = fresh_result(p, n->in[0], p->one_micro ? 0 : WEFT_OP_ADDS);
    p->loc[out].root = out;
    weft_lower__dense(&g->value[out].type.shape, p->loc[out].stride);
    if (v < 0 || g->node[g->value[v].node].op == WEFT_OP_CONCAT)
        return; /* its parts say where it lies */
    p->accum[v]    = out;
    p->placed[v]   = true;
    p->loc[v].root = out;
    weft_lower__dense(&g->value[v].type.shape, p->loc[v].stride);
}

/* all_reduce(accumulate(g)): nobody else takes the rank's own sum, so it is reduced where it
 * lies. */
static void place_reduced(weft_lower__pass *p, const weft_graph_node *n)
{
    const weft_graph *g = p->g;
    weft_vid          v = n->in[0], out = n->out[0];
    int32_t           m = g->value[v].node;
    if (m < 0 || g->node[m].op != WEFT_OP_ACCUMULATE || p->n_use[v] != 1) return;
    if (p->placed[out]) return;
    p->placed[out] = true;
    p->loc[out]    = p->loc[v];
}

/* A state that all_gather makes anew: its maker writes this rank's share where it belongs, if
 * nobody reads the state after that; an update may read that very share. */
static void place_share(weft_lower__pass *p, const weft_graph_node *n)
{
    const weft_graph *g = p->g;
    weft_vid          x = n->in[0], out = n->out[0], state = p->loc[out].root;
    int32_t           m = g->value[x].node;
    weft_op_use       u = {.op = n->op, .attr = n->attr};
    if (!p->placed[out] || state < 0 || g->value[state].kind == WEFT_VALUE_NODE) return;
    if (m < 0 || p->n_use[x] != 1 || p->placed[x] || p->accum[x] >= 0) return;
    if (weft_op_get(g->node[m].op)->flags & (WEFT_OP_VIEW | WEFT_OP_COMM)) return;
    if (g->node[m].op == WEFT_OP_CONCAT) return; /* its parts say where it lies */
    int64_t at = weft_part_start(weft_use_int(&u, "size"), weft_use_int(&u, "unit"),
                                 weft_use_int(&u, "parts"), weft_use_int(&u, "part"));
    if (p->last_use[state] > m) return;
    if (p->last_use[state] == m) {
        const weft_graph_value *own   = &g->value[g->node[m].in[0]];
        const weft_graph_node  *slice = own->node >= 0 ? &g->node[own->node] : NULL;
        if (!(weft_op_get(g->node[m].op)->flags & WEFT_OP_UPDATE) || g->value[x].index)
            return;
        if (!slice || slice->op != WEFT_OP_SLICE || slice->in[0] != state) return;
        weft_op_use s = {.op = slice->op, .attr = slice->attr};
        if (weft_use_int(&s, "axis") != 0 || weft_use_int(&s, "start") != at) return;
    }
    p->placed[x] = true;
    p->loc[x]    = (weft_lower__loc){.root = state, .offset = at * p->loc[out].stride[0]};
    weft_lower__dense(&g->value[x].type.shape, p->loc[x].stride);
}

/* What the accumulate node of value v sums, when a maker that can add writes it afresh; else -1. */
static weft_vid summed(const weft_lower__pass *p, weft_vid v, int *accumulate)
{
    const weft_graph *g = p->g;
    *accumulate         = g->value[v].node;
    if (*accumulate < 0 || g->node[*accumulate].op != WEFT_OP_ACCUMULATE) return -1;
    return p->n_use[v] == 1 ? fresh_result(p, g->node[*accumulate].in[0], WEFT_OP_ADDS)
                            : -1;
}

/* A tied table: add(accumulate(embedding_grad), accumulate(product)) with one micro-batch.  The
 * product is written where the sum belongs and the few rows of the embedding are added to it in
 * place. */
static void place_tied(weft_lower__pass *p, int add)
{
    const weft_graph      *g = p->g;
    const weft_graph_node *n = &g->node[add];
    int                    sum[2];
    weft_vid               term[2], out = n->out[0];
    for (int k = 0; k < 2; k++) {
        if ((term[k] = summed(p, n->in[k], &sum[k])) < 0) return;
        if (g->value[term[k]].type.dtype != WEFT_DTYPE_F32) return;
        if (!weft_shape_equal(&g->value[term[k]].type.shape, &g->value[out].type.shape))
            return;
    }
    int e    = g->node[g->value[term[0]].node].op == WEFT_OP_EMBEDDING_GRAD ? 0 : 1;
    int rows = g->value[term[e]].node, table = g->value[term[1 - e]].node;
    if (g->node[rows].op != WEFT_OP_EMBEDDING_GRAD || g->node[rows].n_in != 2) return;
    if (g->node[table].op == WEFT_OP_EMBEDDING_GRAD || rows < table) return;
    for (int k = 0; k < 2; k++) {
        p->alive[sum[k]]     = false;
        p->placed[term[k]]   = true;
        p->loc[term[k]].root = out;
        weft_lower__dense(&g->value[out].type.shape, p->loc[term[k]].stride);
    }
    p->loc[out]   = p->loc[term[0]];
    p->base[rows] = term[1 - e];
    p->alive[add] = false;
}

/* A next state overwrites its state when nobody reads the old one after it is made. */
static void place_next(weft_lower__pass *p, weft_vid state)
{
    const weft_graph *g    = p->g;
    weft_vid          next = g->value[state].next;
    if (next < 0 || g->value[next].kind != WEFT_VALUE_NODE || p->placed[next]) return;
    int      maker = g->value[next].node;
    unsigned flags = weft_op_get(g->node[maker].op)->flags;
    if (flags & WEFT_OP_VIEW) return;
    if (p->last_use[state] > maker ||
        (p->last_use[state] == maker && !(flags & WEFT_OP_UPDATE)))
        return;
    p->placed[next]   = true;
    p->loc[next].root = state;
    weft_lower__dense(&g->value[next].type.shape, p->loc[next].stride);
}

weft_status weft_lower__prepare(weft_lower__pass *p)
{
    const weft_graph *g = p->g;
    WEFT_TRY(allocate(p));
    mark_alive(p);
    for (weft_vid v = 0; v < g->n_value; v++) {
        if (g->value[v].kind == WEFT_VALUE_NODE) continue;
        p->loc[v].root = v;
        weft_lower__dense(&g->value[v].type.shape, p->loc[v].stride);
        place_next(p, v);
    }
    for (int i = 0; p->one_micro && i < g->n_node; i++)
        if (p->alive[i] && g->node[i].op == WEFT_OP_ADD) place_tied(p, i);
    for (int i = 0; i < g->n_node; i++) {
        if (!p->alive[i]) continue;
        if (g->node[i].op == WEFT_OP_CONCAT) place_concat(p, &g->node[i]);
        if (g->node[i].op == WEFT_OP_ACCUMULATE) place_accumulate(p, &g->node[i]);
        if (g->node[i].op == WEFT_OP_ALL_REDUCE) place_reduced(p, &g->node[i]);
        if (g->node[i].op == WEFT_OP_ALL_GATHER) place_share(p, &g->node[i]);
    }
    return WEFT_OK;
}
