/* The update phase over ranks, and what crosses between them.
 *
 * A sum over micro-batches is where its terms are.  Another update node runs on all ranks that have
 * everything it takes; where there are none, on all that have some of it, and the rest is sent to
 * them: the uses of a parameter on two stages are added, in graph order, on both, and the
 * clipping scale is made on every rank out of all ranks' sums of squares. */
#include "graph/commit.h"
#include "partition/partition_priv.h"

typedef weft_stage_map map;

static bool *cell(bool *table, const map *p, int i, int rank)
{
    return &table[(size_t)i * (size_t)p->n_rank + (size_t)rank];
}

/* Does the rank have the value without being sent it?  A leaf that nobody has yet can be
 * anywhere. */
static bool has_value(const map *p, weft_vid v, int rank, bool *anywhere)
{
    const weft_graph_value *x = &p->g->value[v];
    *anywhere                 = false;
    if (x->node >= 0) {
        *anywhere =
            p->copied[x->node]; /* of per-step inputs: views were looked through */
        return *anywhere || weft_stage_map_runs_on(p, x->node, rank);
    }
    *anywhere = true;
    if (x->kind == WEFT_VALUE_INPUT && x->per_step) return true;
    for (int r = 0; r < p->n_rank; r++)
        if (*cell(p->at, p, v, r)) *anywhere = false;
    return *anywhere || *cell(p->at, p, v, rank);
}

static weft_vid base_operand(const map *p, int node, int k)
{
    return weft_stage_map_base(p, weft_stage_map_operand(p, node, k));
}

/* Leaves that a rank's nodes use, directly or through copied ones. */
static void use_leaves(map *p, weft_vid v, int rank)
{
    const weft_graph *g = p->g;
    v                   = weft_stage_map_base(p, v);
    int m               = g->value[v].node;
    if (m < 0)
        *cell(p->at, p, v, rank) = true;
    else if (p->copied[m])
        for (int k = 0; k < g->node[m].n_in; k++) use_leaves(p, g->node[m].in[k], rank);
}

static void use_leaves_of(map *p, int node)
{
    for (int r = 0; r < p->n_rank; r++)
        for (int k = 0; k < p->g->node[node].n_in && weft_stage_map_runs_on(p, node, r);
             k++)
            use_leaves(p, weft_stage_map_operand(p, node, k), r);
}

static void assign_node(map *p, int i)
{
    const weft_graph_node *n   = &p->g->node[i];
    bool                   any = false, free_one;
    for (int r = 0; r < p->n_rank; r++) {
        bool all = true;
        for (int k = 0; k < n->n_in; k++)
            all = all && has_value(p, base_operand(p, i, k), r, &free_one);
        *cell(p->runs, p, i, r) = all;
        any                     = any || all;
    }
    for (int r = 0; r < p->n_rank && !any; r++)
        for (int k = 0; k < n->n_in; k++)
            if (has_value(p, base_operand(p, i, k), r, &free_one) && !free_one)
                *cell(p->runs, p, i, r) = true;
}

/* One more exchange than the latest operand that must be sent. */
static void set_level(map *p, int i)
{
    const weft_graph_node *n = &p->g->node[i];
    bool                   free_one;
    for (int k = 0; k < n->n_in; k++) {
        weft_vid v = base_operand(p, i, k);
        int      m = p->g->value[v].node;
        if (m < 0 || p->g->node[m].phase != WEFT_PHASE_UPDATE) continue;
        int level = p->level[m];
        for (int r = 0; r < p->n_rank; r++)
            if (weft_stage_map_runs_on(p, i, r) && !has_value(p, v, r, &free_one))
                level = p->level[m] + 1;
        if (level > p->level[i]) p->level[i] = level;
    }
    if (p->level[i] >= p->n_level) p->n_level = p->level[i] + 1;
}

/* The value is needed on the rank. */
static void mark_crossing(map *p, weft_vid v, int rank)
{
    bool free_one;
    v = weft_stage_map_base(p, v);
    if (p->g->value[v].node >= 0 && !has_value(p, v, rank, &free_one))
        *cell(p->crosses, p, v, rank) = true;
}

static void find_crossings(map *p)
{
    const weft_graph *g = p->g;
    for (int r = 0; r < p->n_rank; r++) {
        for (int i = 0; i < g->n_node; i++)
            for (int k = 0; k < g->node[i].n_in && weft_stage_map_runs_on(p, i, r); k++)
                if (g->node[i].op != WEFT_OP_ACCUMULATE)
                    mark_crossing(p, weft_stage_map_operand(p, i, k), r);
        for (int o = 0; o < g->n_output; o++) mark_crossing(p, g->output[o], r);
        for (weft_vid v = 0; v < g->n_value; v++)
            if (g->value[v].node < 0 && g->value[v].next >= 0 && *cell(p->at, p, v, r))
                mark_crossing(p, g->value[v].next, r);
    }
}

/* Is the value of the update sent to some rank? */
static bool is_sent(const map *p, weft_vid v)
{
    for (int r = 0; r < p->n_rank; r++)
        if (*cell(p->crosses, p, v, r)) return true;
    return false;
}

/* The commit point comes when all that nodes before it make is where it is needed; what writes
 * state does not run in an earlier level. */
static void place_commit(map *p)
{
    const weft_graph *g = p->g;
    p->commit_level     = -1;
    if (!weft_graph_find_after_commit(g, p->after)) return;
    for (int i = 0; i < g->n_node; i++) {
        if (g->node[i].phase != WEFT_PHASE_UPDATE || p->after[i]) continue;
        int level = p->level[i];
        for (int j = 0; j < g->node[i].n_out; j++)
            if (is_sent(p, g->node[i].out[j])) level = p->level[i] + 1;
        if (level > p->commit_level) p->commit_level = level;
    }
    if (p->commit_level < 0) p->commit_level = 0;
    for (int i = 0; i < g->n_node; i++) {
        if (!p->after[i]) continue;
        if (p->level[i] < p->commit_level) p->level[i] = p->commit_level;
        set_level(p, i);
    }
    if (p->commit_level >= p->n_level) p->n_level = p->commit_level + 1;
}

/* A sum over micro-batches is on the rank of its terms. */
static void assign_sum(map *p, int i)
{
    int m    = p->g->value[base_operand(p, i, 0)].node;
    int rank = m >= 0 && p->stage[m] >= 0 ? p->stage[m] % p->n_rank : p->n_rank - 1;
    *cell(p->runs, p, i, rank) = true;
}

weft_status weft_partition__assign_update(map *p)
{
    const weft_graph *g = p->g;
    p->n_level          = 1;
    for (int i = 0; i < g->n_node; i++) {
        if (g->node[i].phase == WEFT_PHASE_UPDATE) {
            if (g->node[i].op == WEFT_OP_ACCUMULATE)
                assign_sum(p, i);
            else if (!p->copied[i])
                assign_node(p, i);
            set_level(p, i);
        }
        use_leaves_of(p, i);
    }
    /* what nobody uses stays with the first */
    for (weft_vid v = 0; v < g->n_value; v++) {
        bool any = false;
        for (int r = 0; r < p->n_rank; r++) any = any || *cell(p->at, p, v, r);
        if (!any && g->value[v].kind != WEFT_VALUE_NODE &&
            g->value[v].kind != WEFT_VALUE_INPUT)
            *cell(p->at, p, v, 0) = true;
    }
    find_crossings(p);
    place_commit(p);
    return WEFT_OK;
}
