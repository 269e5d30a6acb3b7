/* Which backward nodes make a forward node's results again: same operator and attributes, operands that are the
 * forward node's or make those again.  Recomputation's clones are, and what a rank gathers a second time. */
#include <string.h>

#include "graph/recompute.h"

static bool same_attr(const weft_graph_node *a, const weft_graph_node *b)
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

static bool repeats(const weft_vid *of, const weft_graph_node *n,
                    const weft_graph_node *f)
{
    if (f->phase != WEFT_PHASE_FORWARD || f->op != n->op || f->n_in != n->n_in ||
        f->n_out != n->n_out)
        return false;
    for (int k = 0; k < n->n_in; k++)
        if (of[n->in[k]] != f->in[k]) return false;
    return same_attr(n, f);
}

void weft_graph_find_repeats(const weft_graph *g, const int *first_user, const int *user,
                             const bool *but, weft_vid *of)
{
    for (weft_vid v = 0; v < g->n_value; v++) {
        int n = g->value[v].node;
        of[v] = n < 0 || g->node[n].phase == WEFT_PHASE_FORWARD ? v : -1;
    }
    for (int i = 0; i < g->n_node; i++) {
        const weft_graph_node *n = &g->node[i];
        if (n->phase != WEFT_PHASE_BACKWARD || !n->n_in || of[n->in[0]] < 0 ||
            (but && but[i]))
            continue;
        weft_vid v = of[n->in[0]];
        for (int k = first_user[v]; k < first_user[v + 1]; k++)
            if (repeats(of, n, &g->node[user[k]])) {
                for (int j = 0; j < n->n_out; j++)
                    of[n->out[j]] = g->node[user[k]].out[j];
                break;
            }
    }
}
