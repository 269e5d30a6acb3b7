/* Collectives that need not be at once wait for each other, so that ranks meet once for several.
 *
 * In: the graph of a place.  Held back are all collectives of the update and, of one stage,
 * gradients' sums of the backward pass that only the update wants; with them waits who needs
 * their results.  Once they are enough bytes, or nothing else is left to do, they are put one
 *     behind the other: square a, gather a, norm a, square b, gather b, norm b   ->   square a,
 *     square b, gather a, gather b, norm a, norm b
 * Sizes are those of the whole graph's values: every place decides alike. */
#include <string.h>

#include "graph/extract.h"
#include "partition/partition_priv.h"

enum {
    LOAD = 8 << 20 /* bytes that are enough for a meeting: more only takes memory */
};

typedef struct late {
    const weft_graph *of, *g;
    const weft_local *l;
    uint32_t          terms;  /* along these axes ranks bring several to a sum */
    bool             *seen;   /* value */
    bool              stages; /* several: accumulators are added to in between */
    int64_t room[2]; /* bytes that meet at once in the backward pass, in the update */
    bool   *late;    /* value: wanted by the update alone */
    bool   *held;    /* value: comes of what is held back */
    int    *list, *rest, *call; /* nodes: to do, waiting, held back */
    int    *order, n;
    int    *meeting, n_meeting; /* of each node */
} late;

/* ---- what may wait ---- */

static bool is_view(const weft_graph_node *n)
{
    return weft_op_get(n->op)->flags & WEFT_OP_VIEW;
}

/* From the last node to the first: whom else than the update is a value for? */
static void find_late(late *k)
{
    const weft_graph *g = k->g;
    for (weft_vid v = 0; v < g->n_value; v++) k->late[v] = true;
    for (int i = g->n_node - 1; i >= 0; i--) {
        const weft_graph_node *n     = &g->node[i];
        bool                   waits = n->phase == WEFT_PHASE_UPDATE;
        if (is_view(n)) {
            waits = true;
            for (int j = 0; j < n->n_out; j++) waits = waits && k->late[n->out[j]];
        }
        for (int j = 0; j < n->n_in && !waits; j++) k->late[n->in[j]] = false;
    }
    for (int i = 0; i < g->n_output; i++) k->late[g->output[i]] = false;
}

/* Sums of several terms are those of accumulators; others stay by themselves, to be looked at. */
static bool terms_are_clear(const late *k, const weft_graph_node *n)
{
    weft_op_use u    = {.op = n->op, .attr = n->attr};
    int         from = k->g->value[n->in[0]].node;
    if (!(k->l->axes[weft_use_int(&u, "group")] & k->terms)) return true;
    if (from >= 0 && k->g->node[from].op == WEFT_OP_ACCUMULATE) return true;
    memset(k->seen, 0, sizeof *k->seen * (size_t)k->g->n_value);
    return !weft_partition__is_own_sum(k->l, k->terms, n->in[0], k->seen);
}

static bool may_wait(const late *k, const weft_graph_node *n)
{
    bool sum = n->op == WEFT_OP_ALL_REDUCE || n->op == WEFT_OP_REDUCE_SCATTER;
    if (sum && k->terms && !terms_are_clear(k, n)) return false;
    if (n->phase == WEFT_PHASE_UPDATE) return sum || n->op == WEFT_OP_ALL_GATHER;
    return sum && !k->stages && n->phase == WEFT_PHASE_BACKWARD && k->late[n->out[0]];
}

static bool waits(const late *k, const weft_graph_node *n)
{
    for (int j = 0; j < n->n_in; j++)
        if (k->held[n->in[j]]) return true;
    return false;
}

/* Of the largest result of the whole graph's node that it serves, of those with as many
 * dimensions if there are any. */
static int64_t bytes_of(const late *k, int node)
{
    const weft_graph_node *n       = &k->of->node[k->l->node[node]];
    int                    n_dim   = k->g->value[k->g->node[node].in[0]].type.shape.n;
    int64_t                most[2] = {0};
    for (int j = 0; j < n->n_out; j++) {
        const weft_type *t = &k->of->value[n->out[j]].type;
        int64_t          b = weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
        int64_t         *x = &most[t->shape.n == n_dim];
        if (b > *x) *x = b;
    }
    return most[most[1] > 0];
}

/* ---- the order ---- */

static void hold(late *k, const weft_graph_node *n, bool on)
{
    for (int j = 0; j < n->n_out; j++) k->held[n->out[j]] = on;
}

/* One meeting, and what can be done before it; how many nodes are left to do. */
static int next_meeting(late *k, int n_list, int64_t room)
{
    int     n_rest = 0, n_call = 0, i = 0;
    int64_t bytes = 0;
    for (; i < n_list && bytes < room; i++) {
        const weft_graph_node *n = &k->g->node[k->list[i]];
        bool                   w = waits(k, n);
        if (w) k->rest[n_rest++] = k->list[i];
        if (!w && may_wait(k, n)) {
            k->call[n_call++] = k->list[i];
            bytes += bytes_of(k, k->list[i]);
            w = true;
        } else if (!w) {
            k->order[k->n++] = k->list[i];
        }
        if (w) hold(k, n, true);
    }
    for (int c = 0; c < n_call; c++) {
        k->order[k->n++]       = k->call[c];
        k->meeting[k->call[c]] = k->n_meeting;
        hold(k, &k->g->node[k->call[c]], false);
    }
    k->n_meeting++;
    for (int r = 0; r < n_rest; r++) hold(k, &k->g->node[k->rest[r]], false);
    for (; i < n_list; i++) k->rest[n_rest++] = k->list[i];
    int *list = k->list;
    k->list   = k->rest;
    k->rest   = list;
    return n_rest;
}

/* What is held back takes memory: of all gradients that are summed in the backward pass an eighth
 * at most. */
static void find_room(late *k, int64_t bucket)
{
    int64_t all = 0;
    for (int i = 0; i < k->g->n_node; i++)
        if (k->g->node[i].phase == WEFT_PHASE_BACKWARD && may_wait(k, &k->g->node[i]))
            all += bytes_of(k, i);
    k->room[0] = k->room[1] = bucket > 0 && bucket < LOAD ? bucket : LOAD;
    if (all / 8 < k->room[0]) k->room[0] = all / 8;
    if (k->room[0] < 1) k->room[0] = 1;
}

static void make_order(late *k)
{
    const weft_graph *g = k->g;
    for (int i = 0; i < g->n_node;) {
        weft_phase phase = g->node[i].phase;
        int        n     = 0;
        for (; i < g->n_node && g->node[i].phase == phase; i++) k->list[n++] = i;
        while (n) n = next_meeting(k, n, k->room[phase == WEFT_PHASE_UPDATE]);
    }
}

weft_status weft_partition__reorder(const weft_graph *of, weft_local *l, const int *order,
                                    int n)
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
    for (int i = 0; i < n; i++) node[i] = l->meeting[order[i]];
    memcpy(l->meeting, node, sizeof *node * (size_t)n);
    for (weft_vid i = 0; i < of->n_value; i++)
        if (l->value[i] >= 0) l->value[i] = map[l->value[i]];
    for (int i = 0; i < of->n_output; i++) l->output[i] = map[l->output[i]];
    weft_graph_destroy(l->graph);
    l->graph = out;
out:
    weft_arena_destroy(tmp);
    return st;
}

weft_status weft_partition__meet_late(const weft_graph *of, weft_local *l,
                                      int64_t bucket_bytes, bool stages, uint32_t terms)
{
    late        k   = {.of = of, .g = l->graph, .l = l, .stages = stages, .terms = terms};
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    k.seen     = WEFT_ARENA_ARRAY(tmp, bool, k.g->n_value + 1);
    k.late     = WEFT_ARENA_ARRAY(tmp, bool, k.g->n_value + 1);
    k.held     = WEFT_ARENA_ARRAY(tmp, bool, k.g->n_value + 1);
    k.list     = WEFT_ARENA_ARRAY(tmp, int, k.g->n_node + 1);
    k.rest     = WEFT_ARENA_ARRAY(tmp, int, k.g->n_node + 1);
    k.call     = WEFT_ARENA_ARRAY(tmp, int, k.g->n_node + 1);
    k.order    = WEFT_ARENA_ARRAY(tmp, int, k.g->n_node + 1);
    l->meeting = k.meeting = WEFT_ARENA_ARRAY(l->arena, int, k.g->n_node + 1);
    WEFT_GO(weft_arena_status(tmp));
    WEFT_GO(weft_arena_status(l->arena));
    for (int i = 0; i < k.g->n_node; i++) k.meeting[i] = -1;
    find_late(&k);
    find_room(&k, bucket_bytes);
    make_order(&k);
    l->n_meeting = k.n_meeting;
    WEFT_GO(weft_partition__reorder(of, l, k.order, k.n));
out:
    weft_arena_destroy(tmp);
    return st;
}
