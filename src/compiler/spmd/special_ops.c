/* Operators for which local shapes and positions are not enough: softmaxes in parts, norms.
 * A new one is a function called from one of the two functions. */
#include <string.h>

#include "base/status.h"
#include "spmd/spmd_priv.h"

typedef weft_spmd__rewriter rewriter;

/* ---- sums of squares of a tensor that the lanes cut ---- */

/* The cut by a lane axis, behind all others of dimension 0; NULL: none. */
static const weft_split *lane_cut(const rewriter *rw, const weft_layout *l)
{
    for (int i = l->n - 1; i >= 0; i--)
        if (l->split[i].dim == 0 && rw->s->lanes >> l->split[i].axis & 1)
            return &l->split[i];
    return NULL;
}

/* Elements of a vector that make a partial; of other tensors it is a row. */
enum {
    RUN = 256
};

/* Positions of dimension 0 that the lanes' ranks share. */
static int64_t shared_size(const rewriter *rw, int node, int axis)
{
    const weft_layout *l     = &rw->s->use[rw->s->first[node]];
    weft_layout        whole = *l;
    whole.n                  = 0;
    for (int i = 0; i < l->n; i++)
        if (l->split[i].axis != axis) whole.split[whole.n++] = l->split[i];
    return weft_spmd__local_shape(rw, &whole,
                                  &rw->g->value[rw->g->node[node].in[0]].type.shape)
        .d[0];
}

/* Has each rank whole partials?  A unit that divides equally is not kept: equal parts of 2^k
 * ranks are a tree by themselves, of others they must be as many runs each. */
static bool has_partials(const rewriter *rw, int node, const weft_split *s)
{
    int parts = rw->m->axis[s->axis].size;
    if (rw->g->value[rw->g->node[node].in[0]].type.shape.n > 1 || s->unit % RUN == 0)
        return true;
    return parts & (parts - 1) && shared_size(rw, node, s->axis) % (RUN * parts) == 0;
}

/* Partials of all lanes' ranks, then their tree: the bits of the whole tensor. */
static weft_status sum_squares(rewriter *rw, int node, weft_vid x, const weft_split *s)
{
    const weft_graph_node *n = &rw->g->node[node];
    weft_layout            y = rw->s->value[n->out[0]];
    int                    group, axis = s->axis;
    int64_t                run  = rw->g->value[n->in[0]].type.shape.n > 1 ? 1 : RUN;
    int64_t                size = shared_size(rw, node, axis);
    int64_t unit = weft_spmd__split_unit(rw, &rw->s->use[rw->s->first[node]], s) / run;
    if (unit < 1) unit = 1;
    WEFT_TRY(weft_spmd__group_of_axes(rw, 1u << axis, &group));
    rw->b.prefix = rw->g->value[n->out[0]].name;
    x            = weft_build(&rw->b, WEFT_OP_SUMSQ_PARTS, "parts", NULL, 1, x);
    x            = weft_buildf(&rw->b, WEFT_OP_ALL_GATHER, "all", 1, &x,
                               "group=%d parts=%d part=%d size=%lld unit=%lld", group,
                               rw->m->axis[axis].size, rw->coord[axis],
                               (long long)((size + run - 1) / run), (long long)unit);
    rw->b.prefix = NULL;
    x = weft_build(&rw->b, WEFT_OP_SUMSQ_TREE, rw->g->value[n->out[0]].name, NULL, 1, x);
    y.unreduced[axis] = WEFT_REDUCED;
    WEFT_TRY(rw->b.st);
    return weft_spmd__add_materialized(rw, n->out[0], &y, x, true);
}

weft_status weft_spmd__add_special_node(rewriter *rw, int node, const weft_vid *in,
                                        bool *done)
{
    const weft_graph_node *n = &rw->g->node[node];
    *done                    = false;
    if (n->op == WEFT_OP_SUMSQ) {
        const weft_split *s = lane_cut(rw, &rw->s->use[rw->s->first[node]]);
        if (!s || !has_partials(rw, node, s)) return WEFT_OK;
        *done = true;
        return sum_squares(rw, node, in[0], s);
    }
    return WEFT_OK;
}

/* ---- softmaxes in parts ---- */

/* The ranks that have shards of one softmax. */
typedef struct softmax_group {
    uint32_t axes;
    int      group, parts, part;
} softmax_group;

static weft_status find_softmax_group(rewriter *rw, uint32_t axes, softmax_group *out)
{
    int32_t *rank = WEFT_ARENA_ARRAY(rw->tmp, int32_t, rw->m->n_rank);
    WEFT_TRY(weft_arena_status(rw->tmp));
    *out       = (softmax_group){.axes = axes};
    out->parts = weft_mesh_group(rw->m, axes, rw->o->mesh_rank, rank);
    while (rank[out->part] != rw->m->rank[rw->o->mesh_rank]) out->part++;
    return weft_spmd__group_of_axes(rw, axes, &out->group);
}

/* All parts of x under a new first dimension. */
static weft_vid stack(rewriter *rw, weft_vid x, const softmax_group *m)
{
    weft_shape s = rw->b.g->value[x].type.shape;
    memmove(s.d + 1, s.d, sizeof *s.d * (size_t)s.n);
    s.d[0] = 1;
    s.n++;
    x = weft_build_reshape(&rw->b, x, &s);
    return weft_buildf(&rw->b, WEFT_OP_ALL_GATHER, NULL, 1, &x,
                       "group=%d parts=%d part=%d size=%d", m->group, m->parts, m->part,
                       m->parts);
}

static weft_status merge_loss(rewriter *rw, int node, const softmax_group *m,
                              const weft_vid *in, weft_vid *out)
{
    const weft_graph_node *n = &rw->g->node[node];
    weft_op_use            u = {.op = n->op, .attr = n->attr};
    weft_vid               part[3];
    if (weft_use_int(&u, "first") >= 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: a part of a vocabulary is not cut again",
                         rw->g->value[n->out[0]].name);
    for (int j = 0; j < 2; j++) part[j] = stack(rw, out[j], m);
    part[2] = in[1];
    const char *attr =
        weft_arena_printf(rw->tmp, "ignore=%lld", (long long)weft_use_int(&u, "ignore"));
    WEFT_TRY(weft_arena_status(rw->tmp));
    weft_build_many(&rw->b, WEFT_OP_CROSS_ENTROPY_MERGE, NULL, attr, 3, part, 2, out);
    return rw->b.st;
}

/* Shards in the order of mesh ranks, each merged with what there is. */
static weft_status merge_attention(rewriter *rw, const softmax_group *m, weft_vid *out)
{
    weft_vid   all[2], pair[4];
    weft_shape s[2] = {rw->b.g->value[out[0]].type.shape,
                       rw->b.g->value[out[1]].type.shape};
    for (int j = 0; j < 2; j++) all[j] = stack(rw, out[j], m);
    for (int p = 0; p < m->parts; p++) {
        for (int j = 0; j < 2; j++) {
            weft_vid x        = weft_buildf(&rw->b, WEFT_OP_SLICE, NULL, 1, &all[j],
                                            "axis=0 start=%d stop=%d", p, p + 1);
            pair[2 * !!p + j] = weft_build_reshape(&rw->b, x, &s[j]);
        }
        if (!p) continue;
        weft_build_many(&rw->b, WEFT_OP_ATTENTION_MERGE, NULL, NULL, 4, pair, 2, out);
        memcpy(pair, out, 2 * sizeof *pair);
    }
    return rw->b.st;
}

weft_status weft_spmd__combine_softmax(rewriter *rw, int node, const weft_vid *in,
                                       weft_vid *out, weft_layout *l)
{
    const weft_graph_node *n    = &rw->g->node[node];
    uint32_t               axes = 0;
    softmax_group          m;
    for (int a = 0; a < rw->m->n_axis; a++) {
        if (l[0].unreduced[a] != WEFT_UNREDUCED_PAIR) continue;
        if (rw->m->axis[a].size > 1) axes |= 1u << a;
        for (int j = 0; j < n->n_out; j++) l[j].unreduced[a] = WEFT_REDUCED;
    }
    if (!axes) return WEFT_OK;
    WEFT_TRY(find_softmax_group(rw, axes, &m));
    rw->b.prefix   = rw->g->value[n->out[0]].name;
    weft_status st = n->op == WEFT_OP_ATTENTION ? merge_attention(rw, &m, out)
                                                : merge_loss(rw, node, &m, in, out);
    rw->b.prefix   = NULL;
    return st;
}
