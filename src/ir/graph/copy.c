/* Copying a graph piece by piece. */
#include "graph/copy_priv.h"

#include "graph/graph_priv.h"

weft_status weft_graph__copy_start(weft_graph__copy *c, const weft_graph *from,
                                   weft_arena *tmp)
{
    c->from = from;
    c->tmp  = tmp;
    c->map  = WEFT_ARENA_ARRAY(tmp, weft_vid, from->n_value + 1);
    if (!c->map) return weft_arena_status(tmp);
    for (weft_vid v = 0; v < from->n_value; v++) c->map[v] = -1;
    return weft_graph_create(from->name, &c->to);
}

weft_status weft_graph__copy_leaf(weft_graph__copy *c, weft_vid v)
{
    const weft_graph_value *x = &c->from->value[v];
    const weft_shape       *s = &x->type.shape;
    weft_dtype              t = x->type.dtype;
    switch (x->kind) {
    case WEFT_VALUE_INPUT:
        WEFT_TRY(weft_graph_add_input(c->to, x->name, t, s->n, s->d, &c->map[v]));
        c->to->value[c->map[v]].per_step = x->per_step;
        return WEFT_OK;
    case WEFT_VALUE_PARAM:
        return weft_graph_add_param(c->to, x->name, t, s->n, s->d, &c->map[v]);
    case WEFT_VALUE_STATE:
        return weft_graph_add_state(c->to, x->name, t, s->n, s->d, &c->map[v]);
    case WEFT_VALUE_NODE: break;
    }
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "copy: %s is no leaf", x->name);
}

weft_status weft_graph__copy_node(weft_graph__copy *c, int i, weft_phase p,
                                  const weft_vid *in, const char *suffix, weft_vid *out)
{
    const weft_graph_node *n = &c->from->node[i];
    const char            *name[WEFT_MAX_OUT];
    weft_vid               made[WEFT_MAX_OUT];
    for (int j = 0; j < n->n_out; j++) {
        name[j] = c->from->value[n->out[j]].name;
        if (suffix) name[j] = weft_arena_printf(c->tmp, "%s%s", name[j], suffix);
        if (!name[j]) return weft_arena_status(c->tmp);
    }
    c->to->phase = p;
    WEFT_TRY(
        weft_graph__add_named(c->to, n->op, n->attr, n->n_in, in, name, n->n_out, made));
    for (int j = 0; j < n->n_out; j++)
        if (out)
            out[j] = made[j];
        else
            c->map[n->out[j]] = made[j];
    return WEFT_OK;
}

weft_status weft_graph__copy_relations(weft_graph__copy *c)
{
    for (weft_vid v = 0; v < c->from->n_value; v++) {
        weft_vid of = c->from->value[v].copy_of;
        if (of >= 0 && c->map[v] >= 0 && c->map[of] >= 0)
            WEFT_TRY(weft_graph_set_copy(c->to, c->map[v], c->map[of]));
    }
    return WEFT_OK;
}

weft_status weft_graph__copy_ends(weft_graph__copy *c)
{
    WEFT_TRY(weft_graph__copy_relations(c));
    for (weft_vid v = 0; v < c->from->n_value; v++)
        if (c->from->value[v].next >= 0)
            WEFT_TRY(
                weft_graph_set_next(c->to, c->map[v], c->map[c->from->value[v].next]));
    for (int i = 0; i < c->from->n_output; i++)
        WEFT_TRY(weft_graph_set_output(c->to, c->map[c->from->output[i]]));
    return WEFT_OK;
}
