/* Which backward nodes make a forward node's results again: same operator and attributes,
 * operands that are the forward node's or make those again.  Recomputation's clones are, and what
 * a rank gathers a second time. */
#include <string.h>

#include "graph/recompute.h"

bool weft_graph_same_attr(const weft_graph_node *a, const weft_graph_node *b)
{
    for (int i = 0; i < weft_op_n_attr(a->op); i++) {
        const weft_attr *x = &a->attr[i], *y = &b->attr[i];
        switch (weft_op_attr_type(a->op, i)) {
        case WEFT_ATTR_INT:
        case WEFT_ATTR_BOOL:
            if (x->i != y->i) return false;
            break;
        case WEFT_ATTR_FLOAT:
            if (memcmp(&x->f, &y->f, sizeof x->f) != 0) return false;
            break;
        case WEFT_ATTR_STRING:
            if (strcmp(x->s, y->s) != 0) return false;
            break;
        case WEFT_ATTR_LIST:
            if (x->n != y->n || memcmp(x->l, y->l, sizeof *x->l * (size_t)x->n) != 0)
                return false;
            break;
        }
    }
    return true;
}

/* The same part of the same value, perhaps looked at twice. */
static bool alike(const weft_graph *g, weft_vid a, weft_vid b)
{
    int i = g->value[a].node, k = g->value[b].node;
    if (a == b) return true;
    if (i < 0 || k < 0 || g->value[a].index != g->value[b].index) return false;
    const weft_graph_node *x = &g->node[i], *y = &g->node[k];
    return x->op == y->op && x->phase == y->phase && x->n_in == 1 && y->n_in == 1 &&
           weft_op_get(x->op)->flags & WEFT_OP_VIEW && weft_graph_same_attr(x, y) &&
           alike(g, x->in[0], y->in[0]);
}

static bool repeats(const weft_graph *g, const weft_vid *of, const weft_graph_node *n,
                    const weft_graph_node *f)
{
    if (f->phase != WEFT_PHASE_FORWARD || f->op != n->op || f->n_in != n->n_in ||
        f->n_out != n->n_out)
        return false;
    for (int k = 0; k < n->n_in; k++)
        if (of[n->in[k]] < 0 || !alike(g, of[n->in[k]], f->in[k])) return false;
    return weft_graph_same_attr(n, f);
}

/* The forward node among v's users that n makes again; NULL: none. */
static const weft_graph_node *find(const weft_graph *g, const int *first_user,
                                   const int *user, const weft_vid *of,
                                   const weft_graph_node *n, weft_vid v)
{
    for (int k = first_user[v]; k < first_user[v + 1]; k++)
        if (repeats(g, of, n, &g->node[user[k]])) return &g->node[user[k]];
    return NULL;
}

/* The same, also among the users of other views of the same part. */
static const weft_graph_node *find_any(const weft_graph *g, const int *first_user,
                                       const int *user, const weft_vid *of,
                                       const weft_graph_node *n, weft_vid v)
{
    const weft_graph_node *f = find(g, first_user, user, of, n, v);
    int                    m = g->value[v].node;
    if (f || m < 0 || !(weft_op_get(g->node[m].op)->flags & WEFT_OP_VIEW)) return f;
    weft_vid whole = g->node[m].in[0];
    for (int k = first_user[whole]; !f && k < first_user[whole + 1]; k++) {
        const weft_graph_node *x = &g->node[user[k]];
        weft_vid               w = x->out[0] + g->value[v].index;
        if (x->op == g->node[m].op && w != v && alike(g, v, w))
            f = find(g, first_user, user, of, n, w);
    }
    return f;
}

void weft_graph_find_repeats(const weft_graph *g, const int *first_user, const int *user,
                             weft_vid *of)
{
    for (weft_vid v = 0; v < g->n_value; v++) {
        int n = g->value[v].node;
        of[v] = n < 0 || g->node[n].phase == WEFT_PHASE_FORWARD ? v : -1;
    }
    for (int i = 0; i < g->n_node; i++) {
        const weft_graph_node *n = &g->node[i];
        if (n->phase != WEFT_PHASE_BACKWARD || !n->n_in || of[n->in[0]] < 0) continue;
        const weft_graph_node *f = find_any(g, first_user, user, of, n, of[n->in[0]]);
        for (int j = 0; f && j < n->n_out; j++) of[n->out[j]] = f->out[j];
    }
}
