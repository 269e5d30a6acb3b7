/* A graph for another batch: dimension 0 of its inputs is resized, everything else follows by the
 * operators' shape rules.  Sizes that attributes repeat (of reshape, broadcast, fill) follow
 * where the first one is a multiple of the batch. */
#include <string.h>

#include "graph/copy_priv.h"
#include "graph/graph_priv.h"

int64_t weft_graph_batch(const weft_graph *g)
{
    for (weft_vid v = 0; v < g->n_value; v++) {
        const weft_graph_value *x = &g->value[v];
        if (x->kind == WEFT_VALUE_INPUT && !x->per_step && x->type.shape.n > 0)
            return x->type.shape.d[0];
    }
    return 0;
}

static weft_status add_leaf(weft_graph__copy *c, weft_vid v, int64_t old, int64_t batch)
{
    const weft_graph_value *x = &c->from->value[v];
    weft_shape              s = x->type.shape;
    if (x->kind != WEFT_VALUE_INPUT || x->per_step || !s.n || s.d[0] != old)
        return weft_graph__copy_leaf(c, v);
    s.d[0] = batch;
    return weft_graph_add_input(c->to, x->name, x->type.dtype, s.n, s.d, &c->map[v]);
}

static weft_status add_node(weft_graph__copy *c, int i, int64_t old, int64_t batch)
{
    const weft_graph_node *n  = &c->from->node[i];
    weft_vid              *in = WEFT_ARENA_ARRAY(c->tmp, weft_vid, n->n_in + 1);
    weft_attr              attr[WEFT_MAX_ATTR];
    const char            *name[WEFT_MAX_OUT];
    weft_vid               made[WEFT_MAX_OUT];
    int                    at = weft_op_attr_index(n->op, "shape");
    WEFT_TRY(weft_arena_status(c->tmp));
    for (int k = 0; k < n->n_in; k++) in[k] = c->map[n->in[k]];
    for (int j = 0; j < n->n_out; j++) name[j] = c->from->value[n->out[j]].name;
    memcpy(attr, n->attr, sizeof *attr * (size_t)weft_op_n_attr(n->op));
    if (at >= 0 && attr[at].n > 0 && attr[at].l[0] % old == 0)
        attr[at].l[0] = attr[at].l[0] / old * batch;
    c->to->phase = n->phase;
    weft_status st =
        weft_graph__add_named(c->to, n->op, attr, n->n_in, in, name, n->n_out, made);
    if (st != WEFT_OK)
        return weft_fail_in(st, "a batch of %lld instead of %lld: ", (long long)batch,
                            (long long)old);
    for (int j = 0; j < n->n_out; j++) c->map[n->out[j]] = made[j];
    return WEFT_OK;
}

static weft_status rebatch(weft_graph__copy *c, int64_t old, int64_t batch)
{
    const weft_graph *g = c->from;
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].kind != WEFT_VALUE_NODE) WEFT_TRY(add_leaf(c, v, old, batch));
    for (int i = 0; i < g->n_node; i++) WEFT_TRY(add_node(c, i, old, batch));
    WEFT_TRY(weft_graph__copy_ends(c));
    for (int i = 0; i < g->n_output; i++)
        if (!weft_shape_equal(&g->value[g->output[i]].type.shape,
                              &c->to->value[c->map[g->output[i]]].type.shape) &&
            g->value[g->output[i]].type.shape.d[0] != old)
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "graph %s: output %s does not follow a batch of %lld",
                             g->name, g->value[g->output[i]].name, (long long)batch);
    return WEFT_OK;
}

weft_status weft_graph_rebatch(const weft_graph *g, int64_t batch, weft_graph **out)
{
    weft_graph__copy c   = {0};
    weft_arena      *tmp = NULL;
    weft_status      st  = WEFT_OK;
    int64_t          old = weft_graph_batch(g);
    if (old < 1 || batch < 1)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "graph %s: no input whose dimension 0 could be a batch of %lld",
                         g->name, (long long)batch);
    WEFT_TRY(weft_arena_create(&tmp));
    WEFT_GO(weft_graph__copy_start(&c, g, tmp));
    WEFT_GO(rebatch(&c, old, batch));
    *out = c.to;
    c.to = NULL;
out:
    weft_graph_destroy(c.to);
    weft_arena_destroy(tmp);
    return st;
}
