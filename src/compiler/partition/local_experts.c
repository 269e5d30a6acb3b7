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
#include "partition/local_priv.h"

typedef weft_partition__local  local;
typedef weft_partition__counts counts;

/* The form of a node's offsets as it made them. */
static weft_status made_offsets(const local *k, int sorter, weft_vid *out)
{
    weft_vid          v = k->g->node[sorter].out[1];
    const weft_shape *s = &k->g->value[v].type.shape;
    *out                = -1;
    for (const weft_partition__form *f = k->form[v]; f; f = f->next)
        if (weft_layout_same(&f->l, &k->s->value[v], k->m, s)) *out = f->v;
    if (*out < 0)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "local graph: %s is used before it is made",
                         k->g->value[v].name);
    return WEFT_OK;
}

static weft_status find_counts(local *k, int sorter, int axis, const counts **out)
{
    const weft_graph_node *n      = &k->g->node[sorter];
    const char            *prefix = k->b.prefix;
    int                    parts = k->m->axis[axis].size, part = k->coord[axis], group;
    weft_vid               x;
    for (*out = k->counts; *out; *out = (*out)->next)
        if ((*out)->sorter == sorter && (*out)->axis == axis) return WEFT_OK;
    counts *c = WEFT_ARENA_NEW(k->tmp, counts);
    if (!c) return weft_arena_status(k->tmp);
    WEFT_TRY(made_offsets(k, sorter, &x));
    WEFT_TRY(weft_partition__group(k, 1u << axis, &group));
    int64_t experts = k->g->value[n->out[1]].type.shape.d[0] - 1;
    int64_t lo      = weft_part_start(experts, 1, parts, part),
            hi      = weft_part_start(experts, 1, parts, part + 1);
    weft_shape row  = {.n = 2, .d = {1, experts + 1}};
    k->b.prefix     = k->g->value[n->out[1]].name;
    x               = weft_build_reshape(&k->b, x, &row);
    x               = weft_buildf(&k->b, WEFT_OP_ALL_GATHER, "all", 1, &x,
                                  "group=%d parts=%d part=%d size=%d", group, parts, part, parts);
    weft_vid own =
        weft_buildf(&k->b, WEFT_OP_OWN_OFFSETS, "own", 1, &x,
                    "first_expert=%lld own=%lld", (long long)lo, (long long)(hi - lo));
    k->b.prefix = prefix;
    WEFT_TRY(k->b.st);
    *c        = (counts){sorter, axis, x, own, k->counts};
    k->counts = c;
    *out      = c;
    return WEFT_OK;
}

weft_status weft_partition__move_rows(local *k, const weft_reshard_step *s,
                                      const weft_type *t, weft_vid x, weft_vid *out)
{
    int           sorter = weft_shard_sorter(k->g, k->node), axis = 0, group;
    const counts *c;
    if (sorter < 0)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "rows without their offsets are sent");
    while (!(s->axes >> axis & 1)) axis++;
    WEFT_TRY(find_counts(k, sorter, axis, &c));
    WEFT_TRY(weft_partition__group(k, s->axes, &group));
    weft_vid   in[2] = {x, c->table};
    weft_shape to    = weft_partition__local_shape(k, &s->after, &t->shape);
    *out             = weft_buildf(
                    &k->b, s->kind == WEFT_STEP_SEND_ROWS ? WEFT_OP_SEND_ROWS : WEFT_OP_RETURN_ROWS,
                    NULL, 2, in, "group=%d parts=%d size=%lld", group, k->m->axis[axis].size,
                    (long long)to.d[0]);
    return k->b.st;
}

/* The sorter's rows were cut by tokens along an axis by which this node's experts are. */
weft_status weft_partition__sent_offsets(local *k, int node, weft_vid *out)
{
    int                sorter = weft_shard_sorter(k->g, node);
    const weft_layout *use    = &k->s->use[k->s->first[node]], *made;
    const counts      *c;
    *out = -1;
    if (sorter < 0) return WEFT_OK;
    made = &k->s->value[k->g->node[sorter].out[0]];
    for (int i = 0; i < use->n; i++) {
        const weft_split *s = weft_layout_find(made, use->split[i].axis);
        if (use->split[i].order != WEFT_SPLIT_OWN || !s || s->order == WEFT_SPLIT_OWN)
            continue;
        WEFT_TRY(find_counts(k, sorter, use->split[i].axis, &c));
        *out = c->offsets;
    }
    return WEFT_OK;
}
