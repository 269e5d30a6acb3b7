/* Which nodes stand after the commit point of a step. */
#include "graph/commit.h"

bool weft_graph_find_after_commit(const weft_graph *g, bool *after)
{
    bool any = false;
    for (int i = 0; i < g->n_node; i++) after[i] = false;
    for (weft_vid v = 0; v < g->n_value; v++) {
        weft_vid next = g->value[v].next;
        int      made = next < 0 ? -1 : g->value[next].node;
        if (made >= 0) after[made] = any = true;
    }
    for (int i = 0; i < g->n_node; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            int made = g->value[g->node[i].in[k]].node;
            if (made >= 0 && after[made]) after[i] = true;
        }
    return any;
}
