/* How many collectives replicas call in the update.
 *
 * Collectives of the update are coalesced by the rules of program/coalesce.h, which are used here:
 * those of one kind that come to the same point, until a bucket of what they serve is complete.
 * Where a step has one micro-batch, sums stand in the backward pass and serve gradients;
 * else they stand behind the accumulators and serve what comes next, sums of squares for
 * instance, which are nothing: then all meet at once.  A layer's share of the meetings is counted
 * as if many like it came one behind the other. */
#include "planner/rows_priv.h"
#include "program/coalesce.h"

typedef weft_planner__pricer pricer;

enum {
    TIMES = 8 /* so many layers alike */
};

typedef struct call {
    int    layer, over;
    int    way; /* all-reduce, reduce-scatter, all-gather before all meet, and behind */
    int    dtype;
    bool   sum;          /* of micro-batches */
    double served, made; /* bytes, whole: of what it serves, and where that was made */
} call;

static int way_of(weft_collective k, bool late)
{
    return k == WEFT_REDUCE_SCATTER ? 1 : k == WEFT_ALL_GATHER ? 2 + late : 0;
}

static bool is_like(const call *a, const call *b)
{
    return a->way == b->way && a->over == b->over;
}

static double served_by(const pricer *z, int node, int n_dim)
{
    return (double)weft_spmd_served_bytes(z->s->t.graph, z->local->node[node], n_dim);
}

/* Of a sum over micro-batches: the node of the backward pass that makes its terms; else the node
 * itself. */
static int made_by(const pricer *z, int node)
{
    const weft_graph *g  = z->g;
    int               at = g->value[g->node[node].in[0]].node;
    if (at < 0 || g->node[at].op != WEFT_OP_ACCUMULATE) return node;
    at = g->value[g->node[at].in[0]].node;
    return at >= 0 ? at : node;
}

/* Meetings of calls like k, of its layer, each for itself by data type.  made: in the backward
 * pass, where sums of all kinds wait together. */
static double meetings(const call *list, int n, const call *k, bool made)
{
    double   bytes = 0, calls = 0, limit = (double)weft_coalesce_limit(0);
    unsigned types = 0;
    for (int t = 0; t < TIMES; t++)
        for (int i = 0; i < n; i++) {
            bool like = is_like(&list[i], k);
            if (list[i].layer != k->layer || !(made ? list[i].sum : like)) continue;
            bytes += made ? list[i].made : list[i].served;
            if (like) types |= 1u << list[i].dtype;
            if (bytes < limit) continue;
            for (; types; types &= types - 1) calls++;
            bytes = 0;
        }
    return (calls + bytes / limit) / TIMES;
}

static weft_cost_calls *calls_of(weft_cost_sharing *s, const call *k)
{
    weft_cost_calls *way[] = {s->sum, s->scatter, s->tell, s->gather};
    return &way[k->way][k->over];
}

static void count(const call *list, int n, weft_planner__facts *of)
{
    for (int i = 0; i < n; i++) {
        const call *k    = &list[i];
        bool        here = false;
        for (int j = 0; j < i && !here; j++)
            here = list[j].layer == k->layer && is_like(&list[j], k);
        if (here) continue; /* counted with the first of them */
        weft_cost_calls *to = calls_of(&of[k->layer].calls, k);
        to->n += meetings(list, n, k, false);
        to->once += meetings(list, n, k, k->sum);
    }
}

weft_status weft_planner__add_meetings(pricer *z, weft_planner__facts *of)
{
    const weft_segment *s    = z->seg;
    call               *list = WEFT_ARENA_ARRAY(z->a, call, s->n_instr + 1);
    int                 n    = 0;
    WEFT_TRY(weft_arena_status(z->a));
    for (int i = s->phase_end[1]; i < s->n_instr; i++) {
        const weft_instr *c    = &s->instr[i];
        weft_cost_over    over = weft_planner__over(z, c);
        if (over == WEFT_COST_N_OVER || s->node[i] < 0) continue;
        int n_dim = c->in[0].type.shape.n, made = made_by(z, s->node[i]);
        list[n++] = (call){.layer  = weft_planner__layer_of(z, i),
                           .way    = way_of(c->coll, z->late[s->node[i]]),
                           .over   = (int)over,
                           .dtype  = (int)c->in[0].type.dtype,
                           .sum    = made != s->node[i] && n_dim > 0,
                           .served = served_by(z, s->node[i], n_dim),
                           .made   = served_by(z, made, n_dim)};
    }
    count(list, n, of);
    return WEFT_OK;
}
