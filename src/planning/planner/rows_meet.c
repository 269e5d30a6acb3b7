/* How many collectives replicas call in the update, and where they are put in buckets, for what is
 * gathered in each micro-batch.
 *
 * Collectives of the update are coalesced by the rules of program/coalesce.h, which are used here:
 * those of one kind that come to the same point, until a bucket of what they serve is complete.
 * Where a step has one micro-batch, sums stand in the backward pass and serve gradients;
 * else they stand behind the accumulators and serve what comes next, sums of squares for
 * instance, which are nothing: then all meet at once.  Sums that are not of ZeRO fill buckets of
 * bucket_bytes with their own bytes, where that is given (weft_pass_overlap_reductions).  A layer's
 * share of the meetings is counted as if many like it came one behind the other. */
#include "planner/rows_priv.h"
#include "program/coalesce.h"

typedef weft_planner__pricer pricer;

enum {
    TIMES = 8 /* so many layers alike */
};

typedef struct call {
    int     layer, over;
    int     way; /* all-reduce, reduce-scatter, all-gather before all meet, and behind */
    int     dtype;
    bool    sum;          /* of micro-batches */
    int64_t served, made; /* bytes, whole: of what it serves, and where that was made */
} call;

static int way_of(weft_collective k, bool late)
{
    return k == WEFT_REDUCE_SCATTER ? 1 : k == WEFT_ALL_GATHER ? 2 + late : 0;
}

static bool is_like(const call *a, const call *b)
{
    return a->way == b->way && a->over == b->over;
}

static int64_t served_by(const pricer *z, int node, int n_dim)
{
    return weft_spmd_served_bytes(z->s->t.graph, z->local->node[node], n_dim);
}

/* Do sums go to buckets by their own bytes? */
static bool has_own_buckets(const pricer *z)
{
    return !z->zero && z->x->bucket_bytes > 0;
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

/* Calls of the last bucket, which is not complete. */
static double part_of(const weft_coalesce_bucket *b)
{
    return (double)b->bytes / (double)b->limit;
}

/* Meetings of calls like k, of its layer, each for itself by data type.  made: in the backward
 * pass, where sums of all kinds wait together. */
static double meetings(const call *list, int n, const call *k, bool made, int64_t limit)
{
    weft_coalesce_bucket bucket = {.limit = limit};
    double               calls  = 0;
    unsigned             types  = 0;
    for (int t = 0; t < TIMES; t++)
        for (int i = 0; i < n; i++) {
            bool like = is_like(&list[i], k);
            if (list[i].layer != k->layer || !(made ? list[i].sum : like)) continue;
            weft_coalesce_add(&bucket, made ? list[i].made : list[i].served);
            if (like) types |= 1u << list[i].dtype;
            if (!weft_coalesce_is_complete(&bucket)) continue;
            for (; types; types &= types - 1) calls++;
            bucket.bytes = 0;
        }
    return (calls + part_of(&bucket)) / TIMES;
}

double weft_planner__whole_calls(const pricer *z, int layer)
{
    const weft_segment  *s      = z->seg;
    weft_coalesce_bucket bucket = {.limit = z->x->bucket_bytes};
    double               calls  = 0;
    for (int t = 0; t < TIMES && bucket.limit > 0; t++)
        for (int i = 0; i < s->n_storage; i++) {
            const weft_storage *x = &s->storage[i];
            if (x->kind != WEFT_STORE_ACCUM || x->first < 0 ||
                weft_planner__layer_of(z, x->first) != layer)
                continue;
            weft_coalesce_add(&bucket, x->bytes);
            if (!weft_coalesce_is_complete(&bucket)) continue;
            calls++;
            bucket.bytes = 0;
        }
    return bucket.limit > 0 ? (calls + part_of(&bucket)) / TIMES : 0;
}

static weft_cost_calls *calls_of(weft_cost_sharing *s, const call *k)
{
    weft_cost_calls *way[] = {s->sum, s->scatter, s->tell, s->gather};
    return &way[k->way][k->over];
}

static void count(const pricer *z, const call *list, int n, weft_planner__facts *of)
{
    int64_t given = z->x->bucket_bytes;
    int64_t limit = has_own_buckets(z) ? given : weft_coalesce_limit(given);
    for (int i = 0; i < n; i++) {
        const call *k    = &list[i];
        bool        here = false;
        for (int j = 0; j < i && !here; j++)
            here = list[j].layer == k->layer && is_like(&list[j], k);
        if (here) continue; /* counted with the first of them */
        weft_cost_calls *to = calls_of(&of[k->layer].calls, k);
        to->n += meetings(list, n, k, false, limit);
        to->once += meetings(list, n, k, k->sum, limit);
    }
}

/* Parameters that a stage gathers ahead, in buckets of each of the two passes
 * (weft_spmd_prefetch_gathers). */
static void count_fetches(const pricer *z, int back, call *list, weft_planner__facts *of)
{
    const weft_segment *s = z->seg;
    int                 n = 0;
    for (int i = back ? s->phase_end[0] : 0; i < s->phase_end[back]; i++) {
        const weft_instr *c = &s->instr[i];
        if (weft_planner__over(z, c) == WEFT_COST_N_OVER || c->coll != WEFT_ALL_GATHER)
            continue;
        list[n++] = (call){.layer  = weft_planner__layer_of(z, i),
                           .dtype  = (int)c->in[0].type.dtype,
                           .served = (int64_t)weft_planner__call_bytes(z, c)};
    }
    for (int i = 0; i < n; i++) {
        bool here = false;
        for (int j = 0; j < i && !here; j++) here = list[j].layer == list[i].layer;
        if (here) continue;
        of[list[i].layer].calls.fetch[back].once +=
            meetings(list, n, &list[i], false, z->x->bucket_bytes);
    }
}

weft_status weft_planner__add_meetings(pricer *z, weft_planner__facts *of)
{
    const weft_segment *s    = z->seg;
    call               *list = WEFT_ARENA_ARRAY(z->a, call, s->n_instr + 1);
    int                 n    = 0;
    WEFT_TRY(weft_arena_status(z->a));
    for (int back = 0; back < 2 && z->x->bucket_bytes > 0; back++)
        count_fetches(z, back, list, of);
    for (int i = s->phase_end[1]; i < s->n_instr; i++) {
        const weft_instr *c    = &s->instr[i];
        weft_cost_over    over = weft_planner__over(z, c);
        if (over == WEFT_COST_N_OVER || s->node[i] < 0) continue;
        int n_dim = c->in[0].type.shape.n, made = made_by(z, s->node[i]);
        list[n++] =
            (call){.layer  = weft_planner__layer_of(z, i),
                   .way    = way_of(c->coll, z->late[s->node[i]]),
                   .over   = (int)over,
                   .dtype  = (int)c->in[0].type.dtype,
                   .sum    = made != s->node[i] && n_dim > 0,
                   .served = has_own_buckets(z) ? (int64_t)weft_planner__call_bytes(z, c)
                                                : served_by(z, s->node[i], n_dim),
                   .made   = served_by(z, made, n_dim)};
    }
    count(z, list, n, of);
    return WEFT_OK;
}
