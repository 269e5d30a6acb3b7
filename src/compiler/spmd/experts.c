/* Rows that go to the owners of their experts, and come back.
 *
 *     tokens here -> dispatch -> rows by expert -> send_rows -> own experts' rows of all ranks ->
 *     products tokens here <- combine  <- the same rows  <- return_rows
 *     <-----------------------------------'
 *
 * How many rows everybody has of each expert is gathered once for each dispatch (a table of parts
 * by experts) and serves all that is sent after it, the gradients too.  Rows have room for the
 * worst case, all of them to one owner: none is dropped, whatever the router says. */
#include "base/status.h"
#include "spmd/spmd_priv.h"

typedef weft_spmd__rewriter      rewriter;
typedef weft_spmd__expert_counts counts;

/* The offsets of a node as it made them. */
static weft_status made_offsets(const rewriter *rw, int sorter, weft_vid *out)
{
    weft_vid          v = rw->g->node[sorter].out[1];
    const weft_shape *s = &rw->g->value[v].type.shape;
    *out                = -1;
    for (const weft_spmd__materialized *f = rw->materialized[v]; f; f = f->next)
        if (weft_layout_same(&f->l, &rw->s->value[v], rw->m, s)) *out = f->v;
    if (*out < 0)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "local graph: %s is used before it is made",
                         rw->g->value[v].name);
    return WEFT_OK;
}

static weft_status find_counts(rewriter *rw, int sorter, int axis, const counts **out)
{
    const weft_graph_node *n      = &rw->g->node[sorter];
    const char            *prefix = rw->b.prefix;
    int                    parts = rw->m->axis[axis].size, part = rw->coord[axis], group;
    weft_vid               x;
    for (*out = rw->counts; *out; *out = (*out)->next)
        if ((*out)->sorter == sorter && (*out)->axis == axis) return WEFT_OK;
    counts *c = WEFT_ARENA_NEW(rw->tmp, counts);
    if (!c) return weft_arena_status(rw->tmp);
    WEFT_TRY(made_offsets(rw, sorter, &x));
    WEFT_TRY(weft_spmd__group_of_axes(rw, 1u << axis, &group));
    int64_t experts = rw->g->value[n->out[1]].type.shape.d[0] - 1;
    int64_t lo      = weft_part_start(experts, 1, parts, part),
            hi      = weft_part_start(experts, 1, parts, part + 1);
    weft_shape row  = {.n = 2, .d = {1, experts + 1}};
    rw->b.prefix    = rw->g->value[n->out[1]].name;
    x               = weft_build_reshape(&rw->b, x, &row);
    x               = weft_buildf(&rw->b, WEFT_OP_ALL_GATHER, "all", 1, &x,
                                  "group=%d parts=%d part=%d size=%d", group, parts, part, parts);
    weft_vid own =
        weft_buildf(&rw->b, WEFT_OP_OWN_OFFSETS, "own", 1, &x,
                    "first_expert=%lld own=%lld", (long long)lo, (long long)(hi - lo));
    rw->b.prefix = prefix;
    WEFT_TRY(rw->b.st);
    *c         = (counts){sorter, axis, x, own, rw->counts};
    rw->counts = c;
    *out       = c;
    return WEFT_OK;
}

weft_status weft_spmd__move_expert_rows(rewriter *rw, const weft_reshard_step *s,
                                        const weft_type *t, weft_vid x, weft_vid *out)
{
    int           sorter = weft_shard_sorter(rw->g, rw->node), axis = 0, group;
    const counts *c;
    if (sorter < 0)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "rows without their offsets are sent");
    while (!(s->axes >> axis & 1)) axis++;
    WEFT_TRY(find_counts(rw, sorter, axis, &c));
    WEFT_TRY(weft_spmd__group_of_axes(rw, s->axes, &group));
    weft_vid   in[2] = {x, c->table};
    weft_shape to    = weft_spmd__local_shape(rw, &s->after, &t->shape);
    weft_op    op = s->coll == WEFT_SEND_ROWS ? WEFT_OP_SEND_ROWS : WEFT_OP_RETURN_ROWS;
    *out = weft_buildf(&rw->b, op, NULL, 2, in, "group=%d parts=%d size=%lld", group,
                       rw->m->axis[axis].size, (long long)to.d[0]);
    return rw->b.st;
}

/* The sorter's rows were cut by tokens along an axis by which this node's experts are. */
weft_status weft_spmd__received_offsets(rewriter *rw, int node, weft_vid *out)
{
    int                sorter = weft_shard_sorter(rw->g, node);
    const weft_layout *use    = &rw->s->use[rw->s->first[node]], *made;
    const counts      *c;
    *out = -1;
    if (sorter < 0) return WEFT_OK;
    made = &rw->s->value[rw->g->node[sorter].out[0]];
    for (int i = 0; i < use->n; i++) {
        const weft_split *s = weft_layout_find(made, use->split[i].axis);
        if (use->split[i].order != WEFT_SPLIT_OWN || !s || s->order == WEFT_SPLIT_OWN)
            continue;
        WEFT_TRY(find_counts(rw, sorter, use->split[i].axis, &c));
        *out = c->offsets;
    }
    return WEFT_OK;
}
