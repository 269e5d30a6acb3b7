/* A part of a graph as a graph of its own. */
#include "graph/extract.h"

#include <string.h>

#include "graph/copy_priv.h"

typedef struct picker {
    weft_graph__copy       c;
    const weft_graph_part *p;
    bool                  *used, *made;
} picker;

static weft_vid *operands(const picker *k, int node)
{
    return k->p->in && k->p->in[node] ? k->p->in[node] : k->c.from->node[node].in;
}

static void mark(picker *k)
{
    const weft_graph *g = k->c.from;
    for (int i = 0; i < k->p->n_node; i++) {
        const weft_graph_node *n = &g->node[k->p->node[i]];
        for (int x = 0; x < n->n_in; x++) k->used[operands(k, k->p->node[i])[x]] = true;
        for (int j = 0; j < n->n_out; j++) k->made[n->out[j]] = true;
    }
    for (int i = 0; i < k->p->n_output; i++) k->used[k->p->output[i]] = true;
    for (weft_vid v = 0; v < g->n_value && k->p->leaf; v++)
        if (k->p->leaf[v] && g->value[v].kind != WEFT_VALUE_NODE) k->used[v] = true;
    for (weft_vid v = 0; v < g->n_value; v++)
        if (k->used[v] && g->value[v].kind != WEFT_VALUE_NODE && g->value[v].next >= 0)
            k->used[g->value[v].next] = true;
}

/* A value made elsewhere. */
static weft_status add_outside(picker *k, weft_vid v)
{
    const weft_graph_value *x = &k->c.from->value[v];
    const weft_shape       *s = &x->type.shape;
    weft_vid               *m = &k->c.map[v];
    WEFT_TRY(weft_graph_add_input(k->c.to, x->name, x->type.dtype, s->n, s->d, m));
    k->c.to->value[*m].per_step = k->c.from->node[x->node].phase == WEFT_PHASE_UPDATE;
    return WEFT_OK;
}

static weft_status add_node(picker *k, int node)
{
    const weft_graph_node *n  = &k->c.from->node[node];
    weft_vid              *in = WEFT_ARENA_ARRAY(k->c.tmp, weft_vid, n->n_in + 1);
    if (!in) return weft_arena_status(k->c.tmp);
    for (int x = 0; x < n->n_in; x++) {
        in[x] = k->c.map[operands(k, node)[x]];
        if (in[x] < 0)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "extract: %s comes before its operand %s",
                             k->c.from->value[n->out[0]].name,
                             k->c.from->value[operands(k, node)[x]].name);
    }
    return weft_graph__copy_node(&k->c, node, n->phase, in, NULL, NULL);
}

static weft_status pick(picker *k)
{
    const weft_graph *g = k->c.from;
    mark(k);
    for (weft_vid v = 0; v < g->n_value; v++)
        if (k->used[v] && !k->made[v])
            WEFT_TRY(g->value[v].kind == WEFT_VALUE_NODE
                         ? add_outside(k, v)
                         : weft_graph__copy_leaf(&k->c, v));
    for (int i = 0; i < k->p->n_node; i++) WEFT_TRY(add_node(k, k->p->node[i]));
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].kind != WEFT_VALUE_NODE && k->c.map[v] >= 0 &&
            g->value[v].next >= 0)
            WEFT_TRY(
                weft_graph_set_next(k->c.to, k->c.map[v], k->c.map[g->value[v].next]));
    WEFT_TRY(weft_graph__copy_relations(&k->c));
    for (int i = 0; i < k->p->n_output; i++)
        WEFT_TRY(weft_graph_set_output(k->c.to, k->c.map[k->p->output[i]]));
    return WEFT_OK;
}

weft_status weft_graph_extract(const weft_graph *g, const weft_graph_part *p,
                               weft_vid *map, weft_graph **out)
{
    picker      k   = {.p = p};
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    k.used = WEFT_ARENA_ARRAY(tmp, bool, g->n_value + 1);
    k.made = WEFT_ARENA_ARRAY(tmp, bool, g->n_value + 1);
    WEFT_GO(weft_arena_status(tmp));
    WEFT_GO(weft_graph__copy_start(&k.c, g, tmp));
    WEFT_GO(pick(&k));
    memcpy(map, k.c.map, sizeof *map * (size_t)g->n_value);
    *out   = k.c.to;
    k.c.to = NULL;
out:
    weft_graph_destroy(k.c.to);
    weft_arena_destroy(tmp);
    return st;
}
