/* Operators for which local shapes and positions are not enough: softmaxes in parts, norms.
 * A new one is a function called from one of the two doors. */
#include <string.h>

#include "base/status.h"
#include "partition/local_priv.h"

typedef weft_partition__local local;

/* ---- sums of squares of a tensor that the lanes cut ---- */

/* The cut by a lane axis, behind all others of dimension 0; NULL: none. */
static const weft_split *lane_cut(const local *k, const weft_layout *l)
{
    for (int i = l->n - 1; i >= 0; i--)
        if (l->split[i].dim == 0 && k->s->lanes >> l->split[i].axis & 1)
            return &l->split[i];
    return NULL;
}

/* Elements of a vector that make a partial; of other tensors it is a row. */
enum {
    RUN = 256
};

/* Positions of dimension 0 that the lanes' ranks share. */
static int64_t shared_size(const local *k, int node, int axis)
{
    const weft_layout *l     = &k->s->use[k->s->first[node]];
    weft_layout        whole = *l;
    whole.n                  = 0;
    for (int i = 0; i < l->n; i++)
        if (l->split[i].axis != axis) whole.split[whole.n++] = l->split[i];
    return weft_partition__local_shape(k, &whole,
                                       &k->g->value[k->g->node[node].in[0]].type.shape)
        .d[0];
}

/* Has each rank whole partials?  A unit that divides equally is not kept: equal parts of 2^k
 * ranks are a tree by themselves, of others they must be as many runs each. */
static bool has_partials(const local *k, int node, const weft_split *s)
{
    int parts = k->m->axis[s->axis].size;
    if (k->g->value[k->g->node[node].in[0]].type.shape.n > 1 || s->unit % RUN == 0)
        return true;
    return parts & (parts - 1) && shared_size(k, node, s->axis) % (RUN * parts) == 0;
}

/* Partials of all lanes' ranks, then their tree: the bits of the whole tensor. */
static weft_status sum_squares(local *k, int node, weft_vid x, const weft_split *s)
{
    const weft_graph_node *n = &k->g->node[node];
    weft_layout            y = k->s->value[n->out[0]];
    int                    group, axis = s->axis;
    int64_t                run  = k->g->value[n->in[0]].type.shape.n > 1 ? 1 : RUN;
    int64_t                size = shared_size(k, node, axis);
    int64_t unit = weft_partition__unit(k, &k->s->use[k->s->first[node]], s) / run;
    if (unit < 1) unit = 1;
    WEFT_TRY(weft_partition__group(k, 1u << axis, &group));
    k->b.prefix = k->g->value[n->out[0]].name;
    x           = weft_build(&k->b, WEFT_OP_SUMSQ_PARTS, "parts", NULL, 1, x);
    x           = weft_buildf(&k->b, WEFT_OP_ALL_GATHER, "all", 1, &x,
                              "group=%d parts=%d part=%d size=%lld unit=%lld", group,
                              k->m->axis[axis].size, k->coord[axis],
                              (long long)((size + run - 1) / run), (long long)unit);
    k->b.prefix = NULL;
    x = weft_build(&k->b, WEFT_OP_SUMSQ_TREE, k->g->value[n->out[0]].name, NULL, 1, x);
    y.unreduced[axis] = WEFT_REDUCED;
    WEFT_TRY(k->b.st);
    return weft_partition__add_form(k, n->out[0], &y, x, true);
}

weft_status weft_partition__special(local *k, int node, const weft_vid *in, bool *done)
{
    const weft_graph_node *n = &k->g->node[node];
    *done                    = false;
    if (n->op == WEFT_OP_SUMSQ) {
        const weft_split *s = lane_cut(k, &k->s->use[k->s->first[node]]);
        if (!s || !has_partials(k, node, s)) return WEFT_OK;
        *done = true;
        return sum_squares(k, node, in[0], s);
    }
    return WEFT_OK;
}

/* ---- softmaxes in parts ---- */

/* The places that have parts of one softmax. */
typedef struct meeting {
    uint32_t axes;
    int      group, parts, part;
} meeting;

static weft_status meet(local *k, uint32_t axes, meeting *out)
{
    int32_t *rank = WEFT_ARENA_ARRAY(k->tmp, int32_t, k->m->n_rank);
    WEFT_TRY(weft_arena_status(k->tmp));
    *out       = (meeting){.axes = axes};
    out->parts = weft_mesh_group(k->m, axes, k->o->place, rank);
    while (rank[out->part] != k->m->rank[k->o->place]) out->part++;
    return weft_partition__group(k, axes, &out->group);
}

/* All parts of x under a new first dimension. */
static weft_vid stack(local *k, weft_vid x, const meeting *m)
{
    weft_shape s = k->b.g->value[x].type.shape;
    memmove(s.d + 1, s.d, sizeof *s.d * (size_t)s.n);
    s.d[0] = 1;
    s.n++;
    x = weft_build_reshape(&k->b, x, &s);
    return weft_buildf(&k->b, WEFT_OP_ALL_GATHER, NULL, 1, &x,
                       "group=%d parts=%d part=%d size=%d", m->group, m->parts, m->part,
                       m->parts);
}

static weft_status merge_loss(local *k, int node, const meeting *m, const weft_vid *in,
                              weft_vid *out)
{
    const weft_graph_node *n = &k->g->node[node];
    weft_op_use            u = {.op = n->op, .attr = n->attr};
    weft_vid               part[3];
    if (weft_use_int(&u, "first") >= 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: a part of a vocabulary is not cut again",
                         k->g->value[n->out[0]].name);
    for (int j = 0; j < 2; j++) part[j] = stack(k, out[j], m);
    part[2] = in[1];
    const char *attr =
        weft_arena_printf(k->tmp, "ignore=%lld", (long long)weft_use_int(&u, "ignore"));
    WEFT_TRY(weft_arena_status(k->tmp));
    weft_build_many(&k->b, WEFT_OP_CROSS_ENTROPY_MERGE, NULL, attr, 3, part, 2, out);
    return k->b.st;
}

/* Parts in the order of places, each merged with what there is. */
static weft_status merge_attention(local *k, const meeting *m, weft_vid *out)
{
    weft_vid   all[2], pair[4];
    weft_shape s[2] = {k->b.g->value[out[0]].type.shape,
                       k->b.g->value[out[1]].type.shape};
    for (int j = 0; j < 2; j++) all[j] = stack(k, out[j], m);
    for (int p = 0; p < m->parts; p++) {
        for (int j = 0; j < 2; j++) {
            weft_vid x        = weft_buildf(&k->b, WEFT_OP_SLICE, NULL, 1, &all[j],
                                            "axis=0 start=%d stop=%d", p, p + 1);
            pair[2 * !!p + j] = weft_build_reshape(&k->b, x, &s[j]);
        }
        if (!p) continue;
        weft_build_many(&k->b, WEFT_OP_ATTENTION_MERGE, NULL, NULL, 4, pair, 2, out);
        memcpy(pair, out, 2 * sizeof *pair);
    }
    return k->b.st;
}

weft_status weft_partition__combine(local *k, int node, const weft_vid *in, weft_vid *out,
                                    weft_layout *l)
{
    const weft_graph_node *n    = &k->g->node[node];
    uint32_t               axes = 0;
    meeting                m;
    for (int a = 0; a < k->m->n_axis; a++) {
        if (l[0].unreduced[a] != WEFT_UNREDUCED_PAIR) continue;
        if (k->m->axis[a].size > 1) axes |= 1u << a;
        for (int j = 0; j < n->n_out; j++) l[j].unreduced[a] = WEFT_REDUCED;
    }
    if (!axes) return WEFT_OK;
    WEFT_TRY(meet(k, axes, &m));
    k->b.prefix    = k->g->value[n->out[0]].name;
    weft_status st = n->op == WEFT_OP_ATTENTION ? merge_attention(k, &m, out)
                                                : merge_loss(k, node, &m, in, out);
    k->b.prefix    = NULL;
    return st;
}
