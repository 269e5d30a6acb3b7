/* The order of all-gathers of sharded parameters (ZeRO 3).
 *
 * weft_spmd_prefetch_gathers      the gathers of a phase in buckets, each started where the bucket
 *                                 before it is first used, so that it overlaps that one's compute
 * weft_spmd_gather_once_per_step  what is gathered once a step, before everything, in buckets */
#include "program/coalesce.h"
#include "spmd/spmd_priv.h"

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
    int64_t bytes = 0;
    int     phase = -1;
    for (int i = 0; i < pass->g->n_node; i++) {
        pass->bucket[i] = -1;
        if (!is_gather(pass, i)) continue;
        const weft_type *t = &pass->g->value[pass->g->node[i].out[0]].type;
        if ((int)pass->g->node[i].phase != phase || bytes >= pass->limit) {
            pass->n_bucket++;
            bytes = 0;
        }
        phase           = (int)pass->g->node[i].phase;
        pass->bucket[i] = pass->n_bucket - 1;
        bytes += weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
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
    int started = -1,
        next    = -1; /* buckets up to started are in the list; next: to start */
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
