#include "graph/fp8.h"

#include <string.h>

/* What hands its first operand on: a head or a router is found through it. */
static bool passes_on(weft_op op)
{
    return op == WEFT_OP_ADD || op == WEFT_OP_CAST || op == WEFT_OP_SCALE ||
           weft_op_get(op)->flags & WEFT_OP_VIEW;
}

/* Values that are logits: of the head, or of a router. */
static void find_logits(const weft_graph *g, weft_vid logits, bool *is_logits)
{
    if (logits >= 0) is_logits[logits] = true;
    for (int i = g->n_node - 1; i >= 0; i--) {
        const weft_graph_node *n = &g->node[i];
        bool takes = n->op == WEFT_OP_ROUTE || n->op == WEFT_OP_CROSS_ENTROPY;
        for (int j = 0; j < n->n_out && passes_on(n->op); j++)
            takes = takes || is_logits[n->out[j]];
        if (takes && n->n_in) is_logits[n->in[0]] = true;
    }
}

/* A parameter of two dimensions or more, or a view of it. */
static bool is_weight(const weft_graph *g, weft_vid v)
{
    while (g->value[v].kind == WEFT_VALUE_NODE) {
        const weft_graph_node *n = &g->node[g->value[v].node];
        if (!(weft_op_get(n->op)->flags & WEFT_OP_VIEW)) return false;
        v = n->in[0];
    }
    return g->value[v].kind == WEFT_VALUE_PARAM && g->value[v].type.shape.n >= 2;
}

static weft_status mark_node(weft_graph *g, weft_graph_node *n, const char *formats)
{
    weft_attr attr[WEFT_MAX_ATTR];
    memcpy(attr, n->attr, sizeof *attr * (size_t)weft_op_n_attr(n->op));
    attr[weft_op_attr_index(n->op, "fp8")].s = formats;
    return weft_op_copy_attr(n->op, attr, g->arena, &n->attr);
}

weft_status weft_graph_mark_fp8(weft_graph *g, const char *formats, weft_vid logits)
{
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    bool *is_logits = WEFT_ARENA_ARRAY(tmp, bool, g->n_value + 1);
    WEFT_GO(weft_arena_status(tmp));
    find_logits(g, logits, is_logits);
    for (int i = 0; i < g->n_node; i++) {
        weft_graph_node *n = &g->node[i];
        if (n->op == WEFT_OP_MATMUL && !is_logits[n->out[0]] && is_weight(g, n->in[1]))
            WEFT_GO(mark_node(g, n, formats));
    }
out:
    weft_arena_destroy(tmp);
    return st;
}
