/* A local graph after it is made: nodes in another order, what its values are, its end. */
#include <string.h>

#include "graph/extract.h"
#include "spmd/spmd_priv.h"

void weft_local_graph_destroy(weft_local_graph *l)
{
    if (!l) return;
    weft_graph_destroy(l->graph);
    weft_arena_destroy(l->arena);
}

void weft_spmd_map_cuts(const weft_local_graph *l, int n, int *cut)
{
    for (int i = 0, k = 0; i < n; i++) {
        while (k < l->n_node && l->node[k] < cut[i]) k++;
        cut[i] = k;
    }
}

bool weft_spmd_is_lane_partial(const weft_local_graph *l, uint32_t lanes, weft_vid v,
                               bool *seen)
{
    int node = l->graph->value[v].node;
    if (node < 0 || seen[v]) return false;
    const weft_graph_node *n = &l->graph->node[node];
    weft_op_use            u = {.op = n->op, .attr = n->attr};
    seen[v]                  = true;
    if (n->phase != WEFT_PHASE_UPDATE || n->op == WEFT_OP_ACCUMULATE) return true;
    if (weft_op_get(n->op)->flags & WEFT_OP_COMM &&
        l->group_axes[weft_use_int(&u, "group")] & lanes)
        return false;
    for (int i = 0; i < n->n_in; i++)
        if (weft_spmd_is_lane_partial(l, lanes, n->in[i], seen)) return true;
    return false;
}

weft_status weft_spmd__reorder(const weft_graph *of, weft_local_graph *l,
                               const int *order, int n)
{
    const weft_graph *g   = l->graph;
    weft_arena       *tmp = NULL;
    weft_graph       *out;
    weft_status       st = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    weft_vid *map  = WEFT_ARENA_ARRAY(tmp, weft_vid, g->n_value + 1);
    bool     *leaf = WEFT_ARENA_ARRAY(tmp, bool, g->n_value + 1);
    int      *node = WEFT_ARENA_ARRAY(tmp, int, g->n_node + 1);
    WEFT_GO(weft_arena_status(tmp));
    for (weft_vid v = 0; v < g->n_value; v++) leaf[v] = g->value[v].node < 0;
    weft_graph_part part = {.n_node   = n,
                            .node     = order,
                            .n_output = g->n_output,
                            .output   = g->output,
                            .leaf     = leaf};
    WEFT_GO(weft_graph_extract(g, &part, map, &out));
    for (int i = 0; i < n; i++) node[i] = l->node[order[i]];
    memcpy(l->node, node, sizeof *node * (size_t)n);
    for (int i = 0; i < n; i++) node[i] = l->bucket[order[i]];
    memcpy(l->bucket, node, sizeof *node * (size_t)n);
    for (weft_vid i = 0; i < of->n_value; i++)
        if (l->value[i] >= 0) l->value[i] = map[l->value[i]];
    for (int i = 0; i < of->n_output; i++) l->output[i] = map[l->output[i]];
    weft_graph_destroy(l->graph);
    l->graph = out;
out:
    weft_arena_destroy(tmp);
    return st;
}

int64_t weft_spmd_served_bytes(const weft_graph *g, int node, int n_dim)
{
    const weft_graph_node *n       = &g->node[node];
    int64_t                most[2] = {0}; /* of other numbers of dimensions, of n_dim */
    for (int j = 0; j < n->n_out; j++) {
        const weft_type *t     = &g->value[n->out[j]].type;
        int64_t          bytes = weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
        int64_t         *x     = &most[t->shape.n == n_dim];
        if (bytes > *x) *x = bytes;
    }
    return most[most[1] > 0];
}
