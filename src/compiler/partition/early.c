/* Parameters that are kept in parts (ZeRO 3) are gathered before they are wanted: the gathers of
 * a phase in buckets, each started where the bucket before it is first used, so that it can run
 * beside that one's compute.  What is gathered once a step stands in front of everything, in
 * buckets too. */
#include "partition/partition_priv.h"

enum {
    LOAD = 8 << 20 /* bytes of a bucket where nobody says more */
};

typedef struct early {
    const weft_graph *g;
    int64_t           room;   /* bytes a bucket should have */
    int              *bucket; /* of each node that is a gather: its bucket, else -1 */
    int               n_bucket;
    int              *order, n;
    const weft_local *once;  /* NULL: gathers of each micro-batch */
    uint32_t          lanes; /* with it: along these axes */
} early;

/* Of a value that is there before the step. */
static bool is_gather(const early *k, int i)
{
    const weft_graph_node *n = &k->g->node[i];
    weft_op_use            u = {.op = n->op, .attr = n->attr};
    if (n->op != WEFT_OP_ALL_GATHER || k->g->value[n->in[0]].node >= 0) return false;
    if (!k->once) return n->phase != WEFT_PHASE_UPDATE;
    return n->phase == WEFT_PHASE_FORWARD &&
           k->once->axes[weft_use_int(&u, "group")] & k->lanes;
}

static void make_buckets(early *k)
{
    int64_t bytes = 0;
    int     phase = -1;
    for (int i = 0; i < k->g->n_node; i++) {
        k->bucket[i] = -1;
        if (!is_gather(k, i)) continue;
        const weft_type *t = &k->g->value[k->g->node[i].out[0]].type;
        if ((int)k->g->node[i].phase != phase || bytes >= k->room) {
            k->n_bucket++;
            bytes = 0;
        }
        phase        = (int)k->g->node[i].phase;
        k->bucket[i] = k->n_bucket - 1;
        bytes += weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
    }
}

static void put_bucket(early *k, int b, weft_phase phase)
{
    for (int i = 0; i < k->g->n_node; i++)
        if (k->bucket[i] == b && k->g->node[i].phase == phase) k->order[k->n++] = i;
}

/* At a bucket's first gather: the whole bucket, unless it was started already; behind the next
 * node that computes: the one after it. */
static void make_order(early *k)
{
    int started = -1,
        next    = -1; /* buckets up to started are in the list; next: to start */
    for (int i = 0; i < k->g->n_node; i++) {
        const weft_graph_node *n = &k->g->node[i];
        if (k->bucket[i] >= 0) {
            if (k->bucket[i] > started) {
                put_bucket(k, k->bucket[i], n->phase);
                started = k->bucket[i];
            }
            next = k->bucket[i] + 1;
            continue;
        }
        k->order[k->n++] = i;
        if (next < 0 || (weft_op_get(n->op)->flags & WEFT_OP_VIEW)) continue;
        if (next > started && next < k->n_bucket) {
            int before = k->n;
            put_bucket(k, next,
                       n->phase); /* none where the next one is of another phase */
            if (k->n > before) started = next;
        }
        next = -1;
    }
}

static int put_first(early *k)
{
    for (int i = 0; i < k->g->n_node; i++)
        if (k->bucket[i] >= 0) k->order[k->n++] = i;
    int n = k->n;
    for (int i = 0; i < k->g->n_node; i++)
        if (k->bucket[i] < 0) k->order[k->n++] = i;
    return n;
}

static weft_status gather(const weft_graph *of, weft_local *l, early k)
{
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    k.bucket = WEFT_ARENA_ARRAY(tmp, int, k.g->n_node + 1);
    k.order  = WEFT_ARENA_ARRAY(tmp, int, k.g->n_node + 1);
    WEFT_GO(weft_arena_status(tmp));
    make_buckets(&k);
    if (k.n_bucket < (k.once ? 1 : 2)) goto out;
    int n_once = 0;
    if (k.once)
        n_once = put_first(&k);
    else
        make_order(&k);
    for (int i = 0; i < k.g->n_node; i++)
        if (k.bucket[i] >= 0) l->meeting[i] = l->n_meeting + k.bucket[i];
    l->n_meeting += k.n_bucket;
    WEFT_GO(weft_partition__reorder(of, l, k.order, k.n));
    for (int i = 0; i < n_once; i++) l->node[i] = 0; /* before all stages */
    l->n_once = n_once;
out:
    weft_arena_destroy(tmp);
    return st;
}

weft_status weft_partition__gather_early(const weft_graph *of, weft_local *l,
                                         int64_t bucket_bytes)
{
    return gather(of, l, (early){.g = l->graph, .room = bucket_bytes});
}

weft_status weft_partition__gather_first(const weft_graph *of, weft_local *l,
                                         uint32_t lanes, int64_t bucket_bytes)
{
    return gather(of, l,
                  (early){.g     = l->graph,
                          .room  = bucket_bytes > 0 ? bucket_bytes : LOAD,
                          .once  = l,
                          .lanes = lanes});
}
