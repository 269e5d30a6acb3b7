/* Writing the instructions: one walk over the graph's nodes in order.
 *
 * While this pass runs, an operand's buffer is the graph value whose storage it lies in;
 * number_storages() turns those into storage numbers at the end. */
#include "lower/lower.h"

#include <string.h>

#include "lower/lower_priv.h"

/* A copy, or a part: no value of the graph. */
typedef struct extra_storage {
    weft_type   type;
    const char *name; /* NULL: a copy */
} extra_storage;

typedef struct writer {
    weft_lower__pass *p;
    weft_segment     *s;
    int               cap_instr, cap_node;
    int               node; /* being written; -1 none */
    weft_vid *dense_copy;   /* value -> value standing for its dense copy + 1; 0 none */
    int       n_extra, cap_extra;
    extra_storage *extra; /* its number is n_value + i */
} writer;

static weft_operand operand_at(const weft_lower__loc *l, const weft_type *t)
{
    weft_operand o = {.buffer = l->root, .offset = l->offset, .type = *t};
    memcpy(o.stride, l->stride, sizeof o.stride);
    return o;
}

static weft_status push(writer *w, const weft_instr *i)
{
    WEFT_TRY(weft_arena_grow(w->s->arena, (void **)&w->s->instr, &w->cap_instr,
                             w->s->n_instr + 1, sizeof *w->s->instr));
    WEFT_TRY(weft_arena_grow(w->s->arena, (void **)&w->s->node, &w->cap_node,
                             w->s->n_instr + 1, sizeof *w->s->node));
    w->s->node[w->s->n_instr]    = w->node;
    w->s->instr[w->s->n_instr++] = *i;
    return WEFT_OK;
}

/* An instruction with room for its operands. */
static weft_status start(writer *w, weft_op op, const weft_attr *attr, const char *name,
                         int n_in, int n_out, weft_instr *i)
{
    weft_arena *a = w->s->arena;
    memset(i, 0, sizeof *i);
    i->kind  = WEFT_INSTR_COMPUTE;
    i->op    = op;
    i->group = i->peer = -1;
    i->seconds         = -1;
    i->name            = weft_arena_strdup(a, name);
    i->post            = WEFT_ARENA_ARRAY(a, weft_post, WEFT_LOWER__MAX_POST);
    i->in   = WEFT_ARENA_ARRAY(a, weft_operand, n_in + WEFT_LOWER__MAX_POST + 1);
    i->out  = WEFT_ARENA_ARRAY(a, weft_operand, n_out + WEFT_LOWER__MAX_POST + 1);
    i->n_in = i->n_own_in = n_in;
    i->n_out = i->n_own_out = n_out;
    WEFT_TRY(weft_op_copy_attr(op, attr, a, &i->attr));
    return weft_arena_status(a);
}

/* out = in, strides as they are: a cast to the same type. */
static weft_status write_copy(writer *w, const char *name, const weft_operand *in,
                              const weft_operand *out)
{
    weft_instr i;
    weft_attr  a[WEFT_MAX_ATTR];
    weft_op_attr_defaults(WEFT_OP_CAST, a);
    a[0].s = weft_dtype_name(in->type.dtype);
    WEFT_TRY(start(w, WEFT_OP_CAST, a, name, 1, 1, &i));
    i.in[0]  = *in;
    i.out[0] = *out;
    return push(w, &i);
}

static weft_status add_extra(writer *w, const weft_type *t, const char *name,
                             weft_vid *out)
{
    WEFT_TRY(weft_arena_grow(w->p->tmp, (void **)&w->extra, &w->cap_extra, w->n_extra + 1,
                             sizeof *w->extra));
    w->extra[w->n_extra] = (extra_storage){*t, name};
    *out                 = w->p->g->n_value + w->n_extra++;
    return WEFT_OK;
}

/* A new storage for a dense copy of v. */
static weft_status copy_dense(writer *w, weft_vid v, weft_operand *o)
{
    const weft_graph *g = w->p->g;
    weft_operand      from, to;
    if (!w->dense_copy[v]) {
        WEFT_TRY(add_extra(w, &g->value[v].type, NULL, &w->dense_copy[v]));
        w->dense_copy[v]++;
        to = (weft_operand){.buffer = w->dense_copy[v] - 1, .type = g->value[v].type};
        weft_lower__dense(&to.type.shape, to.stride);
        from = operand_at(&w->p->loc[v], &g->value[v].type);
        WEFT_TRY(write_copy(w, g->value[v].name, &from, &to));
    }
    *o = (weft_operand){.buffer = w->dense_copy[v] - 1, .type = g->value[v].type};
    weft_lower__dense(&o->type.shape, o->stride);
    return WEFT_OK;
}

/* Operand v as an operator can take it: as it lies, or a dense copy. */
static weft_status read_operand(writer *w, weft_vid v, bool strided, weft_operand *o)
{
    const weft_type *t = &w->p->g->value[v].type;
    if (w->p->loc[v].root < 0)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "lower: %s is read before it is made",
                         w->p->g->value[v].name);
    if (!strided && !w->p->padded[v] &&
        !weft_lower__is_dense(&t->shape, w->p->loc[v].stride))
        return copy_dense(w, v, o);
    *o = operand_at(&w->p->loc[v], t);
    return WEFT_OK;
}

static void write_result(writer *w, weft_vid v, weft_operand *o)
{
    weft_lower__loc *l = &w->p->loc[v];
    if (l->root < 0) {
        l->root   = v;
        l->offset = 0;
        weft_lower__pad(&w->p->g->value[v].type.shape,
                        w->p->padded[v] ? w->p->row_elements : 0, l->stride);
    }
    *o = operand_at(l, &w->p->g->value[v].type);
}

/* A sum or a copy of the value so far, which goes on unchanged. */
static bool is_further_result(weft_op op)
{
    return op == WEFT_OP_REDUCE || op == WEFT_OP_CAST;
}

/* Is value v of the chain read by others than its steps? */
static bool is_kept(const writer *w, const weft_lower__chain *c, weft_vid v)
{
    int n = 0;
    for (int k = 0; k < c->n; k++)
        for (int x = 0; x < w->p->g->node[c->node[k]].n_in; x++)
            n += w->p->g->node[c->node[k]].in[x] == v;
    return w->p->n_use[v] > n;
}

/* Steps behind a product, or another operator: each works on the value so far. */
static weft_status write_posts(writer *w, int node, weft_instr *i)
{
    const weft_graph        *g = w->p->g;
    const weft_lower__chain *c = &w->p->chain[node];
    weft_vid                 v = g->node[node].out[0];

    if (!is_kept(w, c, v)) i->out[0].buffer = -1;
    for (int k = 0; k < c->n; k++) {
        const weft_graph_node *s = &g->node[c->node[k]];
        weft_post             *q = &i->post[i->n_post++];
        int                    j = weft_post_result(i, k);
        if (j) { /* a result of its own */
            v = g->node[node].out[j];
            if (!is_kept(w, c, v)) i->out[j].buffer = -1;
        }
        *q = (weft_post){.op = s->op, .in = -1, .out = -1};
        WEFT_TRY(weft_op_copy_attr(s->op, s->attr, w->s->arena, &q->attr));
        for (int x = 0; x < s->n_in; x++)
            if (s->in[x] != v) {
                q->in = i->n_in;
                WEFT_TRY(read_operand(w, s->in[x], false, &i->in[i->n_in++]));
            }
        bool further = is_further_result(s->op);
        if (further || is_kept(w, c, s->out[0])) {
            q->out = i->n_out;
            if (w->p->accum[s->out[0]] >= 0 && weft_op_get(s->op)->flags & WEFT_OP_ADDS)
                i->add |= 1u << q->out;
            write_result(w, s->out[0], &i->out[i->n_out++]);
        }
        if (!further) v = s->out[0];
    }
    return WEFT_OK;
}

/* The place of a view of a leaf, whose node may come later. */
static bool place_leaf_view(writer *w, weft_vid v)
{
    const weft_graph_value *x = &w->p->g->value[v];
    if (w->p->loc[v].root >= 0) return true;
    const weft_graph_node *n = &w->p->g->node[x->node];
    return place_leaf_view(w, n->in[0]) &&
           weft_lower__view(w->p->g, n, x->index, &w->p->loc[n->in[0]], &w->p->loc[v]);
}

/* The gradient of a loss over the same logits: its weight is the one operand more. */
static weft_status write_loss_grad(writer *w, int node, weft_instr *i)
{
    const weft_graph_node *d = &w->p->g->node[w->p->chain[node].node[0]];
    i->out[1].buffer         = -1; /* the statistics are used up on the spot */
    i->n_post                = 1;
    i->post[0]               = (weft_post){.op = d->op, .in = i->n_in, .out = i->n_out};
    WEFT_TRY(weft_op_copy_attr(d->op, d->attr, w->s->arena, &i->post[0].attr));
    if (!place_leaf_view(w, d->in[3]))
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "lower: the loss's weight needs a copy");
    WEFT_TRY(read_operand(w, d->in[3], true, &i->in[i->n_in++]));
    write_result(w, d->out[0], &i->out[i->n_out++]);
    return WEFT_OK;
}

/* Sums that their makers could not write in place: one instruction right behind the maker. */
static weft_status write_accumulates(writer *w, weft_vid v)
{
    const weft_lower__pass *p = w->p;
    for (int k = p->first_user[v]; k < p->first_user[v + 1]; k++) {
        const weft_graph_node *n = &p->g->node[p->user[k]];
        weft_instr             i;
        if (n->op != WEFT_OP_ACCUMULATE || !p->alive[p->user[k]]) continue;
        if (p->accum[weft_lower__base(p->g, v)] == n->out[0]) continue;
        WEFT_TRY(start(w, n->op, n->attr, p->g->value[n->out[0]].name, 1, 1, &i));
        WEFT_TRY(read_operand(w, v, false, &i.in[0]));
        write_result(w, n->out[0], &i.out[0]);
        i.add = 1;
        WEFT_TRY(push(w, &i));
    }
    return WEFT_OK;
}

static weft_status write_view(writer *w, const weft_graph_node *n)
{
    weft_lower__pass *p = w->p;
    for (int j = 0; j < n->n_out; j++) {
        weft_lower__loc in = p->loc[n->in[0]], out;
        if (p->placed[n->out[j]]) continue;
        if (in.root < 0) {
            /* the operand is written straight into an accumulator or concat: nobody reads this
             * view */
            continue;
        }
        if (!weft_lower__view(p->g, n, j, &in, &out)) {
            weft_operand o;
            WEFT_TRY(copy_dense(w, n->in[0], &o));
            in = (weft_lower__loc){.root = o.buffer};
            memcpy(in.stride, o.stride, sizeof in.stride);
            if (!weft_lower__view(p->g, n, j, &in, &out))
                return WEFT_FAIL(WEFT_ERR_INTERNAL, "lower: no view for %s",
                                 p->g->value[n->out[j]].name);
        }
        p->loc[n->out[j]] = out;
    }
    return WEFT_OK;
}

/* The same operands, but between ranks. */
static void make_collective(const weft_graph_node *n, weft_instr *i)
{
    static const struct {
        weft_op         op;
        weft_collective coll;
    } kind[]            = {{WEFT_OP_ALL_REDUCE, WEFT_ALL_REDUCE},
                           {WEFT_OP_REDUCE_SCATTER, WEFT_REDUCE_SCATTER},
                           {WEFT_OP_ALL_GATHER, WEFT_ALL_GATHER},
                           {WEFT_OP_ALL_TO_ALL, WEFT_ALL_TO_ALL},
                           {WEFT_OP_SHIFT, WEFT_SHIFT},
                           {WEFT_OP_SEND_ROWS, WEFT_SEND_ROWS},
                           {WEFT_OP_RETURN_ROWS, WEFT_RETURN_ROWS}};
    weft_op_use       u = {.op = n->op, .attr = n->attr};
    const weft_shape *s = &i->in[0].type.shape;
    i->kind             = WEFT_INSTR_COLLECTIVE;
    i->group            = (int32_t)weft_use_int(&u, "group");
    for (size_t k = 0; k < WEFT_COUNT(kind); k++)
        if (kind[k].op == n->op) i->coll = kind[k].coll;
    if (i->coll != WEFT_REDUCE_SCATTER && i->coll != WEFT_ALL_GATHER) return;
    i->unit = weft_use_int(&u, "unit");
    for (int d = 1; d < s->n; d++) i->unit *= s->d[d];
    if (i->unit < 1) i->unit = 1;
}

static weft_status write_node(writer *w, int node)
{
    weft_lower__pass      *p       = w->p;
    const weft_graph_node *n       = &p->g->node[node];
    bool                   strided = (weft_op_get(n->op)->flags & WEFT_OP_STRIDED) != 0;
    weft_instr             i;

    WEFT_TRY(
        start(w, n->op, n->attr, p->g->value[n->out[0]].name, n->n_in, n->n_out, &i));
    for (int k = 0; k < n->n_in; k++)
        WEFT_TRY(read_operand(w, n->in[k], strided, &i.in[k]));
    if (p->base[node] >= 0) {
        WEFT_TRY(read_operand(w, p->base[node], false, &i.in[i.n_in]));
        i.n_own_in = ++i.n_in;
    }
    for (int j = 0; j < n->n_out; j++) {
        if (p->accum[n->out[j]] >= 0 && weft_op_get(n->op)->flags & WEFT_OP_ADDS)
            i.add |= 1u << j;
        write_result(w, n->out[j], &i.out[j]);
    }
    if (weft_op_get(n->op)->flags & WEFT_OP_COMM) make_collective(n, &i);
    if (p->chain[node].n && n->op == WEFT_OP_CROSS_ENTROPY)
        WEFT_TRY(write_loss_grad(w, node, &i));
    else if (p->chain[node].n)
        WEFT_TRY(write_posts(w, node, &i));
    return push(w, &i);
}

/* ---- the head in parts (head.c) ---- */

/* What the parts of a head are cut out of, and the logits of one part. */
typedef struct head_operands {
    weft_operand x, w, labels, loss, weight, dx, dw, z;
} head_operands;

/* One part of the logits, then of their gradient. */
static weft_status place_logits(writer *w, const weft_lower__head *h, weft_vid logits,
                                weft_vid dlogits, weft_operand *z)
{
    const weft_lower__pass *p    = w->p;
    bool                    pads = p->padded[logits] && p->padded[dlogits];
    weft_type               t    = p->g->value[logits].type, room;
    t.shape.d[h->dim] /= h->n_part;
    *z = (weft_operand){.type = t};
    weft_lower__pad(&t.shape, pads ? p->row_elements : 0, z->stride);
    room                        = t;
    room.shape.d[t.shape.n - 1] = z->stride[t.shape.n - 2];
    return add_extra(w, &room, p->g->value[logits].name, &z->buffer);
}

static weft_status find_head_operands(writer *w, int loss, head_operands *o)
{
    const weft_lower__head *h = w->p->head[loss];
    const weft_graph_node  *n = w->p->g->node, *made = &n[h->logits];
    const weft_graph_node  *grad = &n[w->p->chain[loss].node[0]];
    WEFT_TRY(read_operand(w, made->in[0], true, &o->x));
    WEFT_TRY(read_operand(w, made->in[1], true, &o->w));
    WEFT_TRY(read_operand(w, n[loss].in[1], false, &o->labels));
    if (!place_leaf_view(w, grad->in[3]))
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "lower: the loss's weight needs a copy");
    WEFT_TRY(read_operand(w, grad->in[3], true, &o->weight));
    write_result(w, n[loss].out[0], &o->loss);
    write_result(w, n[h->dx].out[0], &o->dx);
    write_result(w, n[h->dw].out[0], &o->dw);
    return place_logits(w, h, made->out[0], grad->out[0], &o->z);
}

static weft_status write_part_matmul(writer *w, int node, const weft_operand *a,
                                     const weft_operand *b, const weft_operand *y,
                                     unsigned add, unsigned into)
{
    const weft_graph_node *n = &w->p->g->node[node];
    weft_instr             i;
    WEFT_TRY(start(w, n->op, n->attr, w->p->g->value[n->out[0]].name, 2, 1, &i));
    i.in[0]  = *a;
    i.in[1]  = *b;
    i.out[0] = *y;
    i.add    = add;
    i.into   = into;
    return push(w, &i);
}

static weft_status write_part_loss(writer *w, int node, const head_operands *o,
                                   int64_t part)
{
    const weft_lower__head *h = w->p->head[node];
    const weft_graph_node  *n = &w->p->g->node[node];
    const weft_graph_node  *d = &w->p->g->node[w->p->chain[node].node[0]];
    weft_instr              i;
    WEFT_TRY(start(w, n->op, n->attr, w->p->g->value[n->out[0]].name, 2, 2, &i));
    i.in[0]         = o->z;
    i.in[1]         = weft_lower__part(&o->labels, h->dim, h->n_part, part);
    i.in[i.n_in++]  = o->weight;
    i.out[0]        = weft_lower__part(&o->loss, h->dim, h->n_part, part);
    i.out[1]        = i.out[0];
    i.out[1].type   = w->p->g->value[n->out[1]].type;
    i.out[1].buffer = -1;
    i.out[1].type.shape.d[h->dim] /= h->n_part;
    i.out[i.n_out++] = o->z;
    i.n_post         = 1;
    i.post[0]        = (weft_post){.op = d->op, .in = 2, .out = 2};
    WEFT_TRY(weft_op_copy_attr(d->op, d->attr, w->s->arena, &i.post[0].attr));
    return push(w, &i);
}

static weft_status write_head(writer *w, int loss)
{
    weft_lower__pass       *p  = w->p;
    const weft_lower__head *h  = p->head[loss];
    weft_vid                dw = p->g->node[h->dw].out[0];
    head_operands           o;
    if (weft_lower__head_over(p, loss))
        p->loc[p->g->node[h->dx].out[0]] = p->loc[p->g->node[h->logits].in[0]];
    WEFT_TRY(find_head_operands(w, loss, &o));
    for (int64_t k = 0; k < h->n_part; k++) {
        weft_operand x  = weft_lower__part(&o.x, h->dim, h->n_part, k);
        weft_operand dx = weft_lower__part(&o.dx, h->dim, h->n_part, k);
        WEFT_TRY(write_part_matmul(w, h->logits, &x, &o.w, &o.z, 0, 0));
        WEFT_TRY(write_part_loss(w, loss, &o, k));
        WEFT_TRY(
            write_part_matmul(w, h->dw, &x, &o.z, &o.dw, !k && p->accum[dw] >= 0, k > 0));
        WEFT_TRY(write_part_matmul(w, h->dx, &o.z, &o.w, &dx, 0, 0));
    }
    WEFT_TRY(write_accumulates(w, p->g->node[h->dx].out[0]));
    return write_accumulates(w, dw);
}

/* ---- matmuls as one (join.c) ---- */

/* Copies side by side. */
static weft_status copy_weights(writer *w, const weft_lower__join *j, weft_operand *to)
{
    const char *name = w->p->g->value[j->b].name;
    weft_attr   attr[WEFT_MAX_ATTR];
    weft_instr  i;
    weft_op_attr_defaults(WEFT_OP_CONCAT, attr);
    WEFT_TRY(start(w, WEFT_OP_CONCAT, attr, name, j->n_copy, 1, &i));
    for (int k = 0; k < j->n_copy; k++)
        WEFT_TRY(read_operand(w, j->copy[k], true, &i.in[k]));
    *to = (weft_operand){.type = j->b_type};
    weft_lower__dense(&to->type.shape, to->stride);
    WEFT_TRY(add_extra(w, &j->b_type, NULL, &to->buffer));
    i.out[0] = *to;
    return push(w, &i);
}

static weft_status write_join(writer *w, int node)
{
    const weft_lower__join *j = w->p->join[node];
    const weft_graph_node  *n = &w->p->g->node[node];
    weft_operand            b = {0};
    weft_instr              i;
    if (j->n_copy)
        WEFT_TRY(copy_weights(w, j, &b));
    else if (j->b >= 0)
        WEFT_TRY(read_operand(w, j->b, true, &b));
    WEFT_TRY(start(w, n->op, n->attr, w->p->g->value[j->y].name, n->n_in, 1, &i));
    WEFT_TRY(read_operand(w, j->a, true, &i.in[0]));
    write_result(w, j->y, &i.out[0]);
    i.in[0].type  = j->a_type;
    i.out[0].type = j->y_type;
    if (j->b >= 0) {
        i.in[1]      = b;
        i.in[1].type = j->b_type;
    }
    i.add = w->p->accum[j->y] >= 0;
    return push(w, &i);
}

static weft_status write_phase(writer *w, weft_phase phase)
{
    weft_lower__pass *p = w->p;
    for (int i = 0; i < p->g->n_node; i++) {
        const weft_graph_node *n    = &p->g->node[i];
        bool                   view = (weft_op_get(n->op)->flags & WEFT_OP_VIEW) != 0;
        if (n->phase != phase || !p->alive[i] || p->fused_into[i] >= 0) continue;
        if (n->op == WEFT_OP_ACCUMULATE || p->in_head[i] || p->in_join[i]) continue;
        w->node = i;
        if (view)
            WEFT_TRY(write_view(w, n));
        else if (p->head[i])
            WEFT_TRY(write_head(w, i));
        else if (p->join[i])
            WEFT_TRY(write_join(w, i));
        else if (n->op != WEFT_OP_CONCAT || p->loc[n->out[0]].root < 0)
            WEFT_TRY(write_node(w, i));
        for (int j = 0; j < n->n_out; j++) WEFT_TRY(write_accumulates(w, n->out[j]));
        for (int k = 0; k < p->chain[i].n; k++)
            WEFT_TRY(write_accumulates(w, p->g->node[p->chain[i].node[k]].out[0]));
    }
    w->s->phase_end[phase] = w->s->n_instr;
    return WEFT_OK;
}

static bool is_at(const weft_lower__loc *a, const weft_lower__loc *b)
{
    return a->root == b->root && a->offset == b->offset;
}

/* Next states that could not overwrite their state: copied at the very end. */
static weft_status write_next(writer *w)
{
    weft_lower__pass *p = w->p;
    w->node             = -1;
    for (weft_vid v = 0; v < p->g->n_value; v++) {
        weft_vid next = p->g->value[v].next;
        if (next < 0 || is_at(&p->loc[next], &p->loc[v])) continue;
        weft_operand in, out = operand_at(&p->loc[v], &p->g->value[v].type);
        WEFT_TRY(read_operand(w, next, true, &in));
        WEFT_TRY(write_copy(w, p->g->value[v].name, &in, &out));
    }
    w->s->phase_end[WEFT_PHASE_UPDATE] = w->s->n_instr;
    return WEFT_OK;
}

static weft_storage_kind kind_of(const writer *w, weft_vid v)
{
    const weft_graph *g = w->p->g;
    if (v >= g->n_value) return WEFT_STORE_WORK;
    switch (g->value[v].kind) {
    case WEFT_VALUE_PARAM:
    case WEFT_VALUE_STATE: return WEFT_STORE_STATE;
    case WEFT_VALUE_INPUT:
        return g->value[v].per_step ? WEFT_STORE_STEP_INPUT : WEFT_STORE_INPUT;
    case WEFT_VALUE_NODE: break;
    }
    if (g->node[g->value[v].node].op == WEFT_OP_ACCUMULATE) return WEFT_STORE_ACCUM;
    for (int i = 0; i < g->n_output; i++)
        if (w->p->loc[g->output[i]].root == v) return WEFT_STORE_OUTPUT;
    return WEFT_STORE_WORK;
}

/* Values that hold memory get storage numbers; operands are rewritten to them. */
static weft_status number_storages(writer *w)
{
    const weft_graph *g  = w->p->g;
    weft_segment     *s  = w->s;
    int               n  = g->n_value + w->n_extra;
    int              *id = WEFT_ARENA_ARRAY(w->p->tmp, int, n + 1);
    s->storage           = WEFT_ARENA_ARRAY(s->arena, weft_storage, n + 1);
    WEFT_TRY(weft_arena_status(s->arena));
    WEFT_TRY(weft_arena_status(w->p->tmp));

#define TOUCH(v)                                                                         \
    do {                                                                                 \
        if ((v) >= 0) id[v] = 1;                                                         \
    } while (0)
    for (weft_vid v = 0; v < g->n_value; v++)
        if (g->value[v].kind != WEFT_VALUE_NODE) TOUCH(w->p->loc[v].root);
    for (int i = 0; i < s->n_instr; i++) {
        for (int k = 0; k < s->instr[i].n_in; k++) TOUCH(s->instr[i].in[k].buffer);
        for (int k = 0; k < s->instr[i].n_out; k++) TOUCH(s->instr[i].out[k].buffer);
    }
#undef TOUCH
    for (weft_vid v = 0; v < n; v++) {
        if (!id[v]) continue;
        const weft_type *t =
            v < g->n_value ? &g->value[v].type : &w->extra[v - g->n_value].type;
        if (v < g->n_value && w->p->room[v]) t = w->p->room[v];
        const char *own =
            v < g->n_value ? g->value[v].name : w->extra[v - g->n_value].name;
        const char *nm    = own ? weft_arena_strdup(s->arena, own)
                                : weft_arena_printf(s->arena, "copy.%d", v - g->n_value);
        int64_t     bytes = weft_shape_count(&t->shape) * weft_dtype_bytes(t->dtype);
        if (v < g->n_value && w->p->padded[v])
            bytes = w->p->loc[v].stride[0] * t->shape.d[0] * weft_dtype_bytes(t->dtype);
        s->storage[s->n_storage] = (weft_storage){.name  = nm,
                                                  .kind  = kind_of(w, v),
                                                  .bytes = weft_segment_round(s, bytes),
                                                  .first = -1,
                                                  .last  = -1};
        id[v]                    = s->n_storage++;
    }
    for (int i = 0; i < s->n_instr; i++) {
        weft_instr *q = &s->instr[i];
        for (int k = 0; k < q->n_in; k++)
            if (q->in[k].buffer >= 0) q->in[k].buffer = id[q->in[k].buffer];
        for (int k = 0; k < q->n_out; k++)
            if (q->out[k].buffer >= 0) q->out[k].buffer = id[q->out[k].buffer];
    }

    s->binding = WEFT_ARENA_ARRAY(s->arena, weft_binding, g->n_value + g->n_output + 1);
    WEFT_TRY(weft_arena_status(s->arena));
    for (weft_vid v = 0; v < g->n_value; v++) {
        static const weft_binding_kind kinds[] = {[WEFT_VALUE_INPUT] = WEFT_BIND_INPUT,
                                                  [WEFT_VALUE_PARAM] = WEFT_BIND_PARAM,
                                                  [WEFT_VALUE_STATE] = WEFT_BIND_STATE};
        if (g->value[v].kind == WEFT_VALUE_NODE) continue;
        weft_binding *b = &s->binding[s->n_binding++];
        b->name         = weft_arena_strdup(s->arena, g->value[v].name);
        b->kind = g->value[v].per_step ? WEFT_BIND_STEP_INPUT : kinds[g->value[v].kind];
        b->at   = operand_at(&w->p->loc[v], &g->value[v].type);
        b->at.buffer = id[b->at.buffer];
    }
    for (int i = 0; i < g->n_output; i++) {
        weft_vid         v = g->output[i];
        weft_lower__loc *l = &w->p->loc[v];
        if (l->root < 0)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "lower: output %s is never made",
                             g->value[v].name);
        weft_binding *b = &s->binding[s->n_binding++];
        b->name         = weft_arena_strdup(s->arena, g->value[v].name);
        b->kind         = WEFT_BIND_OUTPUT;
        b->at           = operand_at(l, &g->value[v].type);
        b->at.buffer    = id[b->at.buffer];
    }
    return weft_arena_status(s->arena);
}

static weft_status add_storage(void *arg, const weft_type *t, const char *name,
                               weft_vid *out)
{
    return add_extra(arg, t, name, out);
}

static weft_status write_segment(writer *w)
{
    WEFT_TRY(weft_lower__prepare(w->p));
    weft_lower__fuse(w->p);
    weft_lower__choose_padded(w->p);
    WEFT_TRY(weft_lower__find_heads(w->p));
    WEFT_TRY(weft_lower__find_joins(w->p));
    w->dense_copy = WEFT_ARENA_ARRAY(w->p->tmp, weft_vid, w->p->g->n_value + 1);
    WEFT_TRY(weft_arena_status(w->p->tmp));
    WEFT_TRY(write_phase(w, WEFT_PHASE_FORWARD));
    WEFT_TRY(write_phase(w, WEFT_PHASE_BACKWARD));
    WEFT_TRY(write_phase(w, WEFT_PHASE_UPDATE));
    WEFT_TRY(write_next(w));
    if (w->p->fusions & WEFT_FUSION_LARGEST)
        WEFT_TRY(weft_lower__share_largest(w->s, add_storage, w));
    WEFT_TRY(number_storages(w));
    weft_lower__live(w->s);
    weft_lower__share(w->s, w->p->row_elements);
    return WEFT_OK;
}

weft_status weft_lower(const weft_graph *g, const weft_lower_options *o,
                       weft_segment **out)
{
    weft_lower__pass p = {
        .g            = g,
        .one_micro    = o && o->one_micro,
        .piece        = o ? o->piece : NULL,
        .row_elements = o ? o->row_elements : 0,
        .head_rows    = o ? o->head_rows : 0,
        .join_width   = o ? o->join_width : 0,
        .align_bytes  = o && o->align_bytes ? o->align_bytes : 64,
        .fusions      = o ? o->fusions : 0,
    };
    writer      w  = {.p = &p};
    weft_arena *a  = NULL;
    weft_status st = WEFT_OK;

    WEFT_GO(weft_arena_create(&a));
    WEFT_GO(weft_arena_create(&p.tmp));
    w.s = WEFT_ARENA_NEW(a, weft_segment);
    WEFT_GO(weft_arena_status(a));
    w.s->arena = a;
    w.s->align = p.align_bytes;
    w.s->name  = weft_arena_strdup(a, g->name);
    WEFT_GO(write_segment(&w));
    *out = w.s;
    a    = NULL;
out:
    weft_arena_destroy(p.tmp);
    weft_arena_destroy(a);
    return st;
}

void weft_segment_destroy(weft_segment *s)
{
    if (s) weft_arena_destroy(s->arena);
}
