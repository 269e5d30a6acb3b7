/* The graph of an evaluation.  In: a forward graph.  Out: a new graph.
 * (1) Values are copied in their order, so that what is made from the graph does not depend on
 *     whether the model was built with dropout.
 * (2) A dropout's result is its operand. */
#include "graph/eval.h"

#include "graph/build.h"
#include "graph/copy_priv.h"

static weft_status copy_forward_node(weft_graph__copy *c, int i)
{
    const weft_graph_node *n  = &c->from->node[i];
    weft_vid              *in = WEFT_ARENA_ARRAY(c->tmp, weft_vid, n->n_in + 1);
    if (!in) return weft_arena_status(c->tmp);
    for (int k = 0; k < n->n_in; k++) in[k] = c->map[n->in[k]];
    if (n->op == WEFT_OP_DROPOUT) {
        c->map[n->out[0]] = in[0];
        return WEFT_OK;
    }
    return weft_graph__copy_node(c, i, n->phase, in, NULL, NULL);
}

static weft_status copy_without_dropout(weft_graph__copy *c)
{
    const weft_graph *g = c->from;
    for (weft_vid v = 0; v < g->n_value; v++) {
        const weft_graph_value *x = &g->value[v];
        if (x->kind != WEFT_VALUE_NODE)
            WEFT_TRY(weft_graph__copy_leaf(c, v));
        else if (x->index == 0)
            WEFT_TRY(copy_forward_node(c, x->node));
    }
    return WEFT_OK;
}

static weft_status sum_loss(weft_graph *g, weft_vid loss)
{
    weft_builder b = weft_build_start(g);
    g->phase       = WEFT_PHASE_UPDATE;
    weft_vid sum   = weft_build(&b, WEFT_OP_ACCUMULATE, "eval.loss", NULL, 1, loss);
    WEFT_TRY(b.st);
    return weft_graph_set_output(g, sum);
}

weft_status weft_graph_make_eval(const weft_graph *model, weft_vid loss, weft_graph **out)
{
    weft_graph__copy c   = {0};
    weft_arena      *tmp = NULL;
    weft_status      st  = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    WEFT_GO(weft_graph__copy_start(&c, model, tmp));
    WEFT_GO(copy_without_dropout(&c));
    WEFT_GO(sum_loss(c.to, c.map[loss]));
    *out = c.to;
    c.to = NULL;
out:
    weft_graph_destroy(c.to);
    weft_arena_destroy(tmp);
    return st;
}
