/* Collectives whose results can wait are coalesced, so that ranks synchronize once for several.
 *
 * In: a local graph.  Held back are all collectives of the update and, of one stage, reductions of
 * gradients in the backward pass that only the update takes; the users of their results wait with
 * them.  Once they are enough bytes, or nothing else is left to do, they are put one after the
 * other:
 *     square a, gather a, norm a, square b, gather b, norm b   ->
 *     square a, square b, gather a, gather b, norm a, norm b
 * Of lanes along two axes (copies) the sums over the second follow those of their bucket at once.
 * What writes state comes after all other nodes of the update (graph/commit.h).
 * Sizes are those of the unsharded graph (weft_spmd_served_bytes), the same on all ranks. */
#include <string.h>

#include "graph/commit.h"
#include "program/coalesce.h"
#include "spmd/spmd_priv.h"

typedef struct coalesce_pass {
    const weft_graph            *of, *g;
    const weft_local_graph      *l;
    const weft_coalesce_options *o;
    bool                        *seen;     /* value */
    int64_t                      limit[2]; /* bytes of a bucket: backward pass, update */
    bool                        *update_only; /* value: taken by the update alone */
    bool                        *held;        /* value: depends on what is held back */
    bool                        *after;       /* node: after the commit point */
    int *list, *rest, *call;                  /* nodes: to do, waiting, held back */
    int *order, n;
    int *bucket, n_bucket; /* of each node */
} coalesce_pass;

/* ---- what may wait ---- */

static bool is_view(const weft_graph_node *n)
{
    return weft_op_get(n->op)->flags & WEFT_OP_VIEW;
}

static bool is_sum(const weft_graph_node *n)
{
    return n->op == WEFT_OP_ALL_REDUCE || n->op == WEFT_OP_REDUCE_SCATTER;
}

/* Is it a sum over one of the two lanes' axes? */
static bool is_half_sum(const coalesce_pass *pass, const weft_graph_node *n)
{
    weft_op_use u     = {.op = n->op, .attr = n->attr};
    uint32_t    lanes = pass->o->lanes;
    if (!(lanes & (lanes - 1)) || !is_sum(n)) return false;
    uint32_t axes = pass->l->group_axes[weft_use_int(&u, "group")];
    return !(axes & (axes - 1)) && axes & lanes;
}

/* Is it the sum over the second axis of what was summed over the first? */
static bool follows_sum(const coalesce_pass *pass, const weft_graph_node *n)
{
    if (!is_half_sum(pass, n)) return false;
    int from = pass->g->value[n->in[0]].node;
    while (from >= 0 && is_view(&pass->g->node[from]))
        from = pass->g->value[pass->g->node[from].in[0]].node;
    return from >= 0 && is_half_sum(pass, &pass->g->node[from]);
}

/* From the last node to the first: is a value taken by nodes other than the update's? */
static void find_update_only(coalesce_pass *pass)
{
    const weft_graph *g = pass->g;
    for (weft_vid v = 0; v < g->n_value; v++) pass->update_only[v] = true;
    for (int i = g->n_node - 1; i >= 0; i--) {
        const weft_graph_node *n     = &g->node[i];
        bool                   waits = n->phase == WEFT_PHASE_UPDATE;
        if (is_view(n) || (n->phase == WEFT_PHASE_BACKWARD && is_half_sum(pass, n))) {
            waits = true;
            for (int j = 0; j < n->n_out; j++)
                waits = waits && pass->update_only[n->out[j]];
        }
        for (int j = 0; j < n->n_in && !waits; j++) pass->update_only[n->in[j]] = false;
    }
    for (int i = 0; i < g->n_output; i++) pass->update_only[g->output[i]] = false;
}

/* Sums of several terms per rank are those of accumulators; others are not coalesced: partition
 * checks each of them. */
static bool has_clear_terms(const coalesce_pass *pass, const weft_graph_node *n)
{
    weft_op_use u    = {.op = n->op, .attr = n->attr};
    int         from = pass->g->value[n->in[0]].node;
    if (!(pass->l->group_axes[weft_use_int(&u, "group")] & pass->o->several_terms))
        return true;
    if (from >= 0 && pass->g->node[from].op == WEFT_OP_ACCUMULATE) return true;
    memset(pass->seen, 0, sizeof *pass->seen * (size_t)pass->g->n_value);
    return !weft_spmd_is_lane_partial(pass->l, pass->o->several_terms, n->in[0],
                                      pass->seen);
}

static bool may_wait(const coalesce_pass *pass, const weft_graph_node *n)
{
    bool sum = is_sum(n);
    if (sum && pass->o->several_terms && !has_clear_terms(pass, n)) return false;
    if (n->phase == WEFT_PHASE_UPDATE) return sum || n->op == WEFT_OP_ALL_GATHER;
    return sum && !pass->o->several_stages && n->phase == WEFT_PHASE_BACKWARD &&
           pass->update_only[n->out[0]];
}

static bool depends_on_held(const coalesce_pass *pass, const weft_graph_node *n)
{
    for (int j = 0; j < n->n_in; j++)
        if (pass->held[n->in[j]]) return true;
    return false;
}

static int64_t bytes_of(const coalesce_pass *pass, int node)
{
    int n_dim = pass->g->value[pass->g->node[node].in[0]].type.shape.n;
    return weft_spmd_served_bytes(pass->of, pass->l->node[node], n_dim);
}

/* ---- the order ---- */

static void mark_held(coalesce_pass *pass, const weft_graph_node *n, bool on)
{
    for (int j = 0; j < n->n_out; j++) pass->held[n->out[j]] = on;
}

static void put_calls(coalesce_pass *pass, int n_call)
{
    for (int c = 0; c < n_call; c++) {
        pass->order[pass->n++]      = pass->call[c];
        pass->bucket[pass->call[c]] = pass->n_bucket;
        mark_held(pass, &pass->g->node[pass->call[c]], false);
    }
    if (n_call) pass->n_bucket++;
}

/* Does a sum over the second axis depend on node n through views alone? */
static bool leads_to_sum(const coalesce_pass *pass, int i, int n_rest)
{
    const weft_graph_node *n = &pass->g->node[pass->rest[i]];
    if (follows_sum(pass, n)) return true;
    for (int r = i + 1; is_view(n) && r < n_rest; r++) {
        const weft_graph_node *user = &pass->g->node[pass->rest[r]];
        for (int k = 0; k < user->n_in; k++)
            if (user->in[k] == n->out[0] && leads_to_sum(pass, r, n_rest)) return true;
    }
    return false;
}

/* Sums over the second axis of what a bucket has summed over the first: the next bucket.  How many
 * nodes still wait. */
static int put_second_sums(coalesce_pass *pass, int n_rest)
{
    int  kept = 0, n_call = 0;
    bool any = false;
    for (int r = 0; r < n_rest && !any; r++)
        any = follows_sum(pass, &pass->g->node[pass->rest[r]]);
    if (!any) return n_rest;
    for (int r = 0; r < n_rest; r++) {
        int                    at = pass->rest[r];
        const weft_graph_node *n  = &pass->g->node[at];
        if (depends_on_held(pass, n) || !leads_to_sum(pass, r, n_rest)) {
            pass->rest[kept++] = at;
        } else if (is_view(n)) {
            pass->order[pass->n++] = at;
            mark_held(pass, n, false);
        } else {
            pass->call[n_call++] = at;
        }
    }
    put_calls(pass, n_call);
    return kept;
}

/* Is it a step on the way to such a sum, of what is held back? */
static bool continues(const coalesce_pass *pass, const weft_graph_node *n)
{
    uint32_t lanes = pass->o->lanes;
    return lanes & (lanes - 1) && depends_on_held(pass, n) &&
           (is_view(n) || follows_sum(pass, n));
}

/* One bucket, and what can be done before it; how many nodes are left to do. */
static int fill_bucket(coalesce_pass *pass, int n_list, int64_t limit)
{
    weft_coalesce_bucket bucket = {.limit = limit};
    int                  n_rest = 0, n_call = 0, i = 0;
    for (; i < n_list && !weft_coalesce_is_complete(&bucket); i++) {
        const weft_graph_node *n = &pass->g->node[pass->list[i]];
        bool                   w = depends_on_held(pass, n);
        if (w) pass->rest[n_rest++] = pass->list[i];
        if (!w && may_wait(pass, n)) {
            pass->call[n_call++] = pass->list[i];
            weft_coalesce_add(&bucket, bytes_of(pass, pass->list[i]));
            w = true;
        } else if (!w) {
            pass->order[pass->n++] = pass->list[i];
        }
        if (w) mark_held(pass, n, true);
    }
    for (; i < n_list && continues(pass, &pass->g->node[pass->list[i]]); i++) {
        pass->rest[n_rest++] = pass->list[i];
        mark_held(pass, &pass->g->node[pass->list[i]], true);
    }
    put_calls(pass, n_call);
    n_rest = put_second_sums(pass, n_rest);
    for (int r = 0; r < n_rest; r++)
        mark_held(pass, &pass->g->node[pass->rest[r]], false);
    for (; i < n_list; i++) pass->rest[n_rest++] = pass->list[i];
    int *list  = pass->list;
    pass->list = pass->rest;
    pass->rest = list;
    return n_rest;
}

static void set_limits(coalesce_pass *pass)
{
    int64_t all = 0;
    for (int i = 0; i < pass->g->n_node; i++)
        if (pass->g->node[i].phase == WEFT_PHASE_BACKWARD &&
            may_wait(pass, &pass->g->node[i]) && !follows_sum(pass, &pass->g->node[i]))
            all += bytes_of(pass, i);
    pass->limit[0] = weft_coalesce_backward_limit(pass->o->bucket_bytes, all);
    pass->limit[1] = weft_coalesce_limit(pass->o->bucket_bytes);
}

/* Phase by phase, and the update in two halves: what runs before the commit point of a step, then
 * what writes state. */
static void make_order(coalesce_pass *pass)
{
    const weft_graph *g = pass->g;
    for (int i = 0, end; i < g->n_node; i = end) {
        weft_phase phase = g->node[i].phase;
        for (end = i; end < g->n_node && g->node[end].phase == phase; end++) continue;
        for (int half = 0; half < 2; half++) {
            int n = 0;
            for (int k = i; k < end; k++)
                if (pass->after[k] == half) pass->list[n++] = k;
            while (n) n = fill_bucket(pass, n, pass->limit[phase == WEFT_PHASE_UPDATE]);
        }
    }
}

weft_status weft_spmd_coalesce_collectives(const weft_graph *of, weft_local_graph *l,
                                           const weft_coalesce_options *o)
{
    coalesce_pass pass   = {.of = of, .g = l->graph, .l = l, .o = o};
    weft_arena   *tmp    = NULL;
    weft_status   st     = WEFT_OK;
    int           n_node = l->graph->n_node, n_value = l->graph->n_value;
    WEFT_TRY(weft_arena_create(&tmp));
    pass.seen        = WEFT_ARENA_ARRAY(tmp, bool, n_value + 1);
    pass.update_only = WEFT_ARENA_ARRAY(tmp, bool, n_value + 1);
    pass.held        = WEFT_ARENA_ARRAY(tmp, bool, n_value + 1);
    pass.after       = WEFT_ARENA_ARRAY(tmp, bool, n_node + 1);
    pass.list        = WEFT_ARENA_ARRAY(tmp, int, n_node + 1);
    pass.rest        = WEFT_ARENA_ARRAY(tmp, int, n_node + 1);
    pass.call        = WEFT_ARENA_ARRAY(tmp, int, n_node + 1);
    pass.order       = WEFT_ARENA_ARRAY(tmp, int, n_node + 1);
    pass.bucket      = WEFT_ARENA_ARRAY(l->arena, int, n_node + 1);
    WEFT_GO(weft_arena_status(tmp));
    WEFT_GO(weft_arena_status(l->arena));
    for (int i = 0; i < n_node; i++) pass.bucket[i] = -1;
    (void)weft_graph_find_after_commit(l->graph, pass.after);
    find_update_only(&pass);
    set_limits(&pass);
    make_order(&pass);
    l->bucket   = pass.bucket;
    l->n_bucket = pass.n_bucket;
    WEFT_GO(weft_spmd__reorder(of, l, pass.order, pass.n));
out:
    weft_arena_destroy(tmp);
    return st;
}
