/* Checks what graph.h promises.  A graph made through the functions of graph.c keeps (1) and (2)
 * by itself; phases and the text of attributes are the maker's affair, so all of it is checked. */
#include <stdlib.h>
#include <string.h>

#include "graph/graph_priv.h"

static weft_status bad(const weft_graph *g, const char *name, const char *what)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "graph %s: %s: %s", g->name, name, what);
}

static bool same_type(const weft_type *a, const weft_type *b)
{
    return a->dtype == b->dtype && weft_shape_equal(&a->shape, &b->shape);
}

/* Happens once a step: parameters, state, per-step inputs and what the update phase makes. */
static bool once_a_step(const weft_graph *g, weft_vid v)
{
    const weft_graph_value *x = &g->value[v];
    switch (x->kind) {
    case WEFT_VALUE_INPUT: return x->per_step;
    case WEFT_VALUE_PARAM:
    case WEFT_VALUE_STATE: return true;
    case WEFT_VALUE_NODE: return g->node[x->node].phase == WEFT_PHASE_UPDATE;
    }
    return false;
}

static weft_status check_value(const weft_graph *g, weft_vid v)
{
    const weft_graph_value *x = &g->value[v];
    if (!x->name || !*x->name) return bad(g, "(a value)", "has no name");
    if (weft_graph_find(g, x->name) != v)
        return bad(g, x->name, "two values have this name");
    WEFT_TRY(weft_shape_verify(&x->type.shape));
    if (x->per_step && x->kind != WEFT_VALUE_INPUT)
        return bad(g, x->name, "only an input can be per_step");
    if (x->kind == WEFT_VALUE_NODE) {
        if (x->node < 0 || x->node >= g->n_node || x->index < 0 ||
            x->index >= g->node[x->node].n_out || g->node[x->node].out[x->index] != v)
            return bad(g, x->name, "is not the result its node says it makes");
    } else if (x->node >= 0) {
        return bad(g, x->name, "is no result, yet a node claims it");
    }
    if (x->copy_of >= 0 && (x->kind != WEFT_VALUE_STATE || x->copy_of >= g->n_value ||
                            g->value[x->copy_of].kind != WEFT_VALUE_PARAM))
        return bad(g, x->name, "only a state is a copy, and of a parameter");
    if (x->next < 0) return WEFT_OK;
    if (x->kind != WEFT_VALUE_STATE && x->kind != WEFT_VALUE_PARAM)
        return bad(g, x->name, "only a state or parameter has a next value");
    if (x->next >= g->n_value || !same_type(&x->type, &g->value[x->next].type))
        return bad(g, x->name, "its next value has another type");
    if (!once_a_step(g, x->next))
        return bad(g, x->name,
                   "its next value is made once a micro-batch: accumulate it first");
    return WEFT_OK;
}

/* What is printed must read back: no blanks, braces or control characters inside a word. */
static weft_status check_attr(const weft_graph *g, const weft_graph_node *n,
                              const char *name)
{
    for (int i = 0; i < weft_op_n_attr(n->op); i++) {
        if (weft_op_attr_type(n->op, i) == WEFT_ATTR_FLOAT &&
            n->attr[i].f != n->attr[i].f)
            return bad(g, name, "an attribute is not a number");
        if (weft_op_attr_type(n->op, i) != WEFT_ATTR_STRING || !n->attr[i].s) continue;
        for (const char *p = n->attr[i].s; *p; p++)
            if ((unsigned char)*p <= ' ' || *p == '}' || *p == 0x7f)
                return bad(g, name, "an attribute's word holds a blank or a brace");
    }
    return WEFT_OK;
}

static weft_status check_phase(const weft_graph *g, int i, const char *name)
{
    const weft_graph_node *n = &g->node[i];
    if (n->phase > WEFT_PHASE_UPDATE)
        return bad(g, name, "its phase is none of the three");
    if (i && n->phase < g->node[i - 1].phase)
        return bad(g, name, "phases go back: forward, backward, update is the order");
    if (n->op == WEFT_OP_ACCUMULATE && n->phase != WEFT_PHASE_UPDATE)
        return bad(g, name, "accumulate belongs to the update phase");
    if (n->phase != WEFT_PHASE_UPDATE || n->op == WEFT_OP_ACCUMULATE) return WEFT_OK;
    for (int k = 0; k < n->n_in; k++)
        if (!once_a_step(g, n->in[k]))
            return WEFT_FAIL(
                WEFT_ERR_ARG,
                "graph %s: %s: its operand %s is made once a micro-batch and reaches "
                "the update phase without accumulate",
                g->name, name, g->value[n->in[k]].name);
    return WEFT_OK;
}

static weft_status check_node(const weft_graph *g, int i, weft_arena *tmp)
{
    const weft_graph_node *n = &g->node[i];
    if ((unsigned)n->op >= WEFT_N_OP || n->n_out < 1 || n->n_out > WEFT_MAX_OUT ||
        n->n_in < 0 || n->n_in > WEFT_MAX_IN)
        return bad(g, "(a node)", "is no operator with results");
    for (int j = 0; j < n->n_out; j++)
        if (n->out[j] < 0 || n->out[j] >= g->n_value || n->out[j] != n->out[0] + j ||
            g->value[n->out[j]].node != i || g->value[n->out[j]].index != j)
            return bad(g, weft_op_get(n->op)->name, "its results are not its own");
    const char *name = g->value[n->out[0]].name;
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] < 0 || n->in[k] >= n->out[0])
            return bad(g, name, "an operand does not come before it");
    WEFT_TRY(check_phase(g, i, name));
    WEFT_TRY(check_attr(g, n, name));

    weft_type *in  = WEFT_ARENA_ARRAY(tmp, weft_type, n->n_in + 2 * n->n_out);
    weft_type *out = in + n->n_in;
    if (!in) return weft_arena_status(tmp);
    weft_op_use u  = weft_graph_use(g, n, in, out);
    weft_status st = weft_op_infer(&u, out + n->n_out);
    if (st != WEFT_OK) return weft_fail_in(st, "graph %s: %s: ", g->name, name);
    for (int j = 0; j < n->n_out; j++)
        if (!same_type(&out[j], &out[n->n_out + j]))
            return bad(g, g->value[n->out[j]].name,
                       "its type is not what the shape rule gives");
    return WEFT_OK;
}

weft_status weft_graph_verify(const weft_graph *g)
{
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    for (weft_vid v = 0; v < g->n_value; v++) WEFT_GO(check_value(g, v));
    for (int i = 0; i < g->n_node; i++) WEFT_GO(check_node(g, i, tmp));
    for (int i = 1; i < g->n_node; i++)
        if (g->node[i].out[0] < g->node[i - 1].out[0])
            WEFT_GO(
                bad(g, g->value[g->node[i].out[0]].name, "values are not in node order"));
    for (int i = 0; i < g->n_output; i++)
        if (g->output[i] < 0 || g->output[i] >= g->n_value)
            WEFT_GO(bad(g, "output", "is no value"));
out:
    weft_arena_destroy(tmp);
    return st;
}
