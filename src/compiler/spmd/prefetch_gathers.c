/* The order of all-gathers of sharded parameters (ZeRO 3).
 *
 * weft_spmd_gather_before_matmuls what the steps after a matmul take is gathered before it, so
 *                                 that they are fused with it as on one rank
 * weft_spmd_prefetch_gathers      the gathers of a phase in buckets, each started where the bucket
 *                                 before it is first used, so that it overlaps that one's compute
 * weft_spmd_gather_once_per_step  what is gathered once a step, before everything, in buckets */
#include "program/coalesce.h"
#include "spmd/spmd_priv.h"

enum {
    NEAR_STEPS = 16 /* nodes between a matmul and its steps, at most */
};

typedef struct gather_pass {
    const weft_graph *g;
    int64_t           limit;  /* bytes of a bucket */
    int              *bucket; /* of each node that is a gather: its bucket, else -1 */
    int               n_bucket;
    int              *order, n;
    const weft_local_graph *once;  /* NULL: gathers of each micro-batch */
    uint32_t                lanes; /* with it: along these axes */
} gather_pass;

/* Does node i gather a leaf: a value that is there before the step? */
static bool is_gather(const gather_pass *pass, int i)
{
    const weft_graph_node *n = &pass->g->node[i];
    weft_op_use            u = {.op = n->op, .attr = n->attr};
    if (n->op != WEFT_OP_ALL_GATHER || pass->g->value[n->in[0]].node >= 0) return false;
    if (!pass->once) return n->phase != WEFT_PHASE_UPDATE;
    return n->phase == WEFT_PHASE_FORWARD &&
           pass->once->group_axes[weft_use_int(&u, "group")] & pass->lanes;
}

static void make_buckets(gather_pass *pass)
{
    weft_coalesce_bucket bucket = {.limit = pass->limit};
    int                  phase  = -1;
    for (int i = 0; i < pass->g->n_node; i++) {
        pass->bucket[i] = -1;
        if (!is_gather(pass, i)) continue;
        const weft_type *t = &pass->g->value[pass->g->node[i].out[0]].type;
        if ((int)pass->g->node[i].phase != phase || weft_coalesce_is_complete(&bucket)) {
            pass->n_bucket++;
            bucket.bytes = 0;
        }
        phase           = (int)pass->g->node[i].phase;
        pass->bucket[i] = pass->n_bucket - 1;
        weft_coalesce_add(&bucket,
                          weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype));
    }
}

static void put_bucket(gather_pass *pass, int b, weft_phase phase)
{
    for (int i = 0; i < pass->g->n_node; i++)
        if (pass->bucket[i] == b && pass->g->node[i].phase == phase)
            pass->order[pass->n++] = i;
}

/* At a bucket's first gather: the whole bucket, unless it was started already; after the next
 * node that computes: the bucket after it. */
static void make_order(gather_pass *pass)
{
    /* buckets up to started are in the list; next: to start */
    int started = -1, next = -1;
    for (int i = 0; i < pass->g->n_node; i++) {
        const weft_graph_node *n = &pass->g->node[i];
        if (pass->bucket[i] >= 0) {
            if (pass->bucket[i] > started) {
                put_bucket(pass, pass->bucket[i], n->phase);
                started = pass->bucket[i];
            }
            next = pass->bucket[i] + 1;
            continue;
        }
        pass->order[pass->n++] = i;
        if (next < 0 || (weft_op_get(n->op)->flags & WEFT_OP_VIEW)) continue;
        if (next > started && next < pass->n_bucket) {
            int before = pass->n;
            put_bucket(pass, next,
                       n->phase); /* none where the next one is of another phase */
            if (pass->n > before) started = next;
        }
        next = -1;
    }
}

static int put_gathers_first(gather_pass *pass)
{
    for (int i = 0; i < pass->g->n_node; i++)
        if (pass->bucket[i] >= 0) pass->order[pass->n++] = i;
    int n = pass->n;
    for (int i = 0; i < pass->g->n_node; i++)
        if (pass->bucket[i] < 0) pass->order[pass->n++] = i;
    return n;
}

static weft_status order_gathers(const weft_graph *of, weft_local_graph *l,
                                 gather_pass pass)
{
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    pass.bucket = WEFT_ARENA_ARRAY(tmp, int, pass.g->n_node + 1);
    pass.order  = WEFT_ARENA_ARRAY(tmp, int, pass.g->n_node + 1);
    WEFT_GO(weft_arena_status(tmp));
    make_buckets(&pass);
    if (pass.n_bucket < (pass.once ? 1 : 2)) goto out;
    int n_once = 0;
    if (pass.once)
        n_once = put_gathers_first(&pass);
    else
        make_order(&pass);
    for (int i = 0; i < pass.g->n_node; i++)
        if (pass.bucket[i] >= 0) l->bucket[i] = l->n_bucket + pass.bucket[i];
    l->n_bucket += pass.n_bucket;
    WEFT_GO(weft_spmd__reorder(of, l, pass.order, pass.n));
    for (int i = 0; i < n_once; i++) l->node[i] = 0; /* before all stages */
    l->n_gather_once = n_once;
out:
    weft_arena_destroy(tmp);
    return st;
}

weft_status weft_spmd_prefetch_gathers(const weft_graph *of, weft_local_graph *l,
                                       int64_t bucket_bytes)
{
    return order_gathers(of, l, (gather_pass){.g = l->graph, .limit = bucket_bytes});
}

weft_status weft_spmd_gather_once_per_step(const weft_graph *of, weft_local_graph *l,
                                           uint32_t lanes, int64_t bucket_bytes)
{
    return order_gathers(
        of, l,
        (gather_pass){.g     = l->graph,
                      .limit = bucket_bytes > 0 ? bucket_bytes : WEFT_COALESCE_BYTES,
                      .once  = l,
                      .lanes = lanes});
}

/* ---- before the matmul ---- */

static bool is_view_node(const weft_graph_node *n)
{
    return weft_op_get(n->op)->flags & WEFT_OP_VIEW;
}

/* The matmul before the element-wise chain that value v is the result of; -1 none. */
static int find_matmul(const weft_graph *g, weft_vid v)
{
    for (;;) {
        int n = g->value[v].node;
        if (n < 0) return -1;
        if (weft_op_get(g->node[n].op)->flags & WEFT_OP_POSTS) return n;
        if (!(weft_op_get(g->node[n].op)->flags & WEFT_OP_ELEM)) return -1;
        v = g->node[n].in[0];
    }
}

/* The matmul that the first user of gathered value v is a step of; -1: of none. */
static int find_ridden(const weft_graph *g, const int *first, const int *user, weft_vid v)
{
    for (;;) {
        if (first[v] == first[v + 1]) return -1;
        const weft_graph_node *n = &g->node[user[first[v]]];
        if (is_view_node(n)) {
            v = n->out[0];
            continue;
        }
        if (!(weft_op_get(n->op)->flags & WEFT_OP_ELEM) || n->n_in != 2) return -1;
        return find_matmul(g, n->in[n->in[0] == v]);
    }
}

weft_status weft_spmd_gather_before_matmuls(const weft_graph *of, weft_local_graph *l)
{
    gather_pass pass = {.g = l->graph};
    weft_arena *tmp  = NULL;
    int        *first, *user, n_moved = 0;
    weft_status st = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    int *before = WEFT_ARENA_ARRAY(tmp, int, pass.g->n_node + 1); /* gather: node, -1 */
    pass.order  = WEFT_ARENA_ARRAY(tmp, int, pass.g->n_node + 1);
    WEFT_GO(weft_arena_status(tmp));
    WEFT_GO(weft_graph_users(pass.g, tmp, &first, &user));
    for (int i = 0; i < pass.g->n_node; i++) {
        int at    = is_gather(&pass, i)
                        ? find_ridden(pass.g, first, user, pass.g->node[i].out[0])
                        : -1;
        before[i] = at >= 0 && at < i && i - at <= NEAR_STEPS &&
                            pass.g->node[at].phase == pass.g->node[i].phase
                        ? at
                        : -1;
        n_moved += before[i] >= 0;
    }
    if (!n_moved) goto out;
    for (int i = 0; i < pass.g->n_node; i++) {
        /* a matmul and the few nodes after it */
        for (int k = i + 1; k < pass.g->n_node && k <= i + NEAR_STEPS; k++)
            if (before[k] == i) {
                l->node[k]           = l->node[i];
                pass.order[pass.n++] = k;
            }
        if (before[i] < 0) pass.order[pass.n++] = i;
    }
    WEFT_GO(weft_spmd__reorder(of, l, pass.order, pass.n));
out:
    weft_arena_destroy(tmp);
    return st;
}
