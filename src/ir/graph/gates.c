#include "graph/gates.h"

#include <string.h>

/* The word of gate's attribute for an activation; NULL: it is none. */
static const char *gate_word(const weft_graph_node *n)
{
    weft_op_use u = {.op = n->op, .attr = n->attr};
    switch ((int)n->op) {
    case WEFT_OP_SILU: return "silu";
    case WEFT_OP_RELU: return "relu";
    case WEFT_OP_GELU:
        return strcmp(weft_use_string(&u, "approx"), "erf") ? "gelu" : "gelu_erf";
    default: return NULL;
    }
}

/* Which operand of mul i is an activation that only it takes, as large as the other; -1 none. */
static int find_activation(const weft_graph *g, const int *n_use, int i)
{
    const weft_graph_node  *n = &g->node[i];
    const weft_graph_value *a, *b;
    if (n->op != WEFT_OP_MUL || n->in[0] == n->in[1]) return -1;
    a = &g->value[n->in[0]];
    b = &g->value[n->in[1]];
    if (!weft_shape_equal(&a->type.shape, &b->type.shape) ||
        a->type.dtype != b->type.dtype)
        return -1;
    for (int k = 0; k < 2; k++) {
        int maker = g->value[n->in[k]].node;
        if (maker >= 0 && n_use[n->in[k]] == 1 && gate_word(&g->node[maker])) return k;
    }
    return -1;
}

static weft_status make_gate(weft_graph *g, weft_graph_node *n, int k)
{
    const weft_graph_node *act = &g->node[g->value[n->in[k]].node];
    weft_vid               up  = n->in[1 - k];
    weft_attr              attr[WEFT_MAX_ATTR];
    weft_op_attr_defaults(WEFT_OP_GATE, attr);
    attr[weft_op_attr_index(WEFT_OP_GATE, "act")].s = gate_word(act);
    WEFT_TRY(weft_op_copy_attr(WEFT_OP_GATE, attr, g->arena, &n->attr));
    n->op    = WEFT_OP_GATE;
    n->in[0] = act->in[0];
    n->in[1] = up;
    return WEFT_OK;
}

weft_status weft_graph_fuse_gates(weft_graph *g)
{
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    int *n_use = WEFT_ARENA_ARRAY(tmp, int, g->n_value + 1);
    WEFT_GO(weft_arena_status(tmp));
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++) n_use[g->node[i].in[k]]++;
    for (int i = 0; i < g->n_output; i++) n_use[g->output[i]]++;
    for (int i = 0; i < g->n_node; i++) {
        int k = find_activation(g, n_use, i);
        if (k >= 0) WEFT_GO(make_gate(g, &g->node[i], k));
    }
out:
    weft_arena_destroy(tmp);
    return st;
}
