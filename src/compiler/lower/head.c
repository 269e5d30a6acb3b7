/* The head in parts: logits of all rows of a micro-batch are the largest value of a step (3.3 GB
 * for GPT-2 with 32 sequences of 1,024 tokens), and each row of them is used by its own loss and
 * gradient alone.  Where the options ask for it, the matmul that makes them, the loss with its
 * gradient and the two matmuls that take the gradient run part by part over the rows, one part of
 * logits in memory at a time:
 *
 *     for each part:  z = x[part] w';  loss[part], z = cross_entropy(z, labels[part]) and gradient
 *                     dw += z' x[part];  dx[part] = z w
 *
 * Nobody else reads x[part] then, so that dx lies over x.
 *
 * All of it is written where the loss is, in the forward pass; dw is summed in the order of parts,
 * whose number depends on shapes alone. */
#include <string.h>

#include "lower/lower_priv.h"

/* Rows of the matmul's first operand that are rows of its result: dimension by dimension. */
static bool has_row_dim(const weft_graph_node *n, int dim)
{
    weft_op_use u    = {.op = n->op, .attr = n->attr};
    const char *spec = weft_use_string(&u, "spec"), *y = strstr(spec, "->");
    for (int d = 0; d <= dim; d++)
        if (!y || spec[d] != y[2 + d]) return false;
    return true;
}

/* The gather that v is the result of, perhaps under another shape; NULL: it is of none. */
static const weft_graph_node *find_gather(const weft_graph *g, weft_vid v)
{
    int32_t n = g->value[v].node;
    while (n >= 0 && g->node[n].op == WEFT_OP_RESHAPE)
        n = g->value[g->node[n].in[0]].node;
    return n >= 0 && g->node[n].op == WEFT_OP_ALL_GATHER ? &g->node[n] : NULL;
}

/* The same value, or both times gathered from the same shard. */
static bool is_same_weight(const weft_graph *g, weft_vid a, weft_vid b)
{
    const weft_graph_node *x = find_gather(g, a), *y = find_gather(g, b);
    if (a == b) return true;
    return x && y && x->in[0] == y->in[0] &&
           weft_shape_equal(&g->value[a].type.shape, &g->value[b].type.shape);
}

static bool is_plain_matmul(const weft_lower__pass *p, int i)
{
    return i >= 0 && p->alive[i] && p->g->node[i].op == WEFT_OP_MATMUL &&
           p->fused_into[i] < 0 && !p->chain[i].n;
}

/* The matmuls that take the gradient of the logits: by the weight, and by x. */
static bool find_gradients(const weft_lower__pass *p, weft_vid dlogits,
                           weft_lower__head *h)
{
    const weft_graph_node *logits = &p->g->node[h->logits];
    h->dx = h->dw = -1;
    if (p->n_use[dlogits] != 2) return false;
    for (int k = p->first_user[dlogits]; k < p->first_user[dlogits + 1]; k++) {
        int                    i = p->user[k];
        const weft_graph_node *n = &p->g->node[i];
        if (!p->alive[i]) continue;
        if (!is_plain_matmul(p, i)) return false;
        if (n->in[0] == dlogits && is_same_weight(p->g, n->in[1], logits->in[1]))
            h->dx = i;
        else if (n->in[1] == dlogits && n->in[0] == logits->in[0])
            h->dw = i;
    }
    return h->dx >= 0 && h->dw >= 0;
}

/* The first dimension that has more than one index is cut; parts have at least head_rows rows. */
static bool choose_parts(const weft_lower__pass *p, weft_lower__head *h)
{
    const weft_shape *s    = &p->g->value[p->g->node[h->logits].out[0]].type.shape;
    int64_t           rows = weft_shape_count(s) / s->d[s->n - 1];
    h->dim                 = 0;
    while (h->dim < s->n - 2 && s->d[h->dim] == 1) h->dim++;
    for (h->n_part = s->d[h->dim]; h->n_part > 1; h->n_part--)
        if (s->d[h->dim] % h->n_part == 0 && rows / h->n_part >= p->head_rows) break;
    return h->n_part > 1;
}

static bool find_head(const weft_lower__pass *p, int loss, weft_lower__head *h)
{
    const weft_graph      *g = p->g;
    const weft_graph_node *n = &g->node[loss];
    if (n->op != WEFT_OP_CROSS_ENTROPY || p->chain[loss].n != 1) return false;
    *h = (weft_lower__head){.logits = g->value[n->in[0]].node};
    if (!is_plain_matmul(p, h->logits) || p->placed[n->in[0]] || p->placed[n->out[0]])
        return false;
    if (p->piece && p->piece[h->logits] != p->piece[loss]) return false;
    return find_gradients(p, g->node[p->chain[loss].node[0]].out[0], h) &&
           choose_parts(p, h) && has_row_dim(&g->node[h->logits], h->dim) &&
           has_row_dim(&g->node[h->dx], h->dim);
}

/* What is gathered for dx alone is not needed: the weight is there. */
static void drop_gather(weft_lower__pass *p, const weft_lower__head *h)
{
    weft_vid v = p->g->node[h->dx].in[1], base = weft_lower__base(p->g, v);
    int32_t  n = p->g->value[base].node;
    if (v == p->g->node[h->logits].in[1] || n < 0) return;
    if (p->n_use[v] == 1 && p->n_use[base] == 1) p->alive[n] = false;
}

weft_status weft_lower__find_heads(weft_lower__pass *p)
{
    p->head    = WEFT_ARENA_ARRAY(p->tmp, weft_lower__head *, p->g->n_node + 1);
    p->in_head = WEFT_ARENA_ARRAY(p->tmp, bool, p->g->n_node + 1);
    WEFT_TRY(weft_arena_status(p->tmp));
    for (int i = 0; p->head_rows > 0 && i < p->g->n_node; i++) {
        weft_lower__head h;
        if (!p->alive[i] || !find_head(p, i, &h)) continue;
        p->head[i] = WEFT_ARENA_NEW(p->tmp, weft_lower__head);
        if (!p->head[i]) return weft_arena_status(p->tmp);
        *p->head[i]          = h;
        p->in_head[h.logits] = p->in_head[h.dx] = p->in_head[h.dw] = true;
        drop_gather(p, &h);
    }
    return WEFT_OK;
}

bool weft_lower__head_over(const weft_lower__pass *p, int loss)
{
    const weft_lower__head *h  = p->head[loss];
    const weft_graph       *g  = p->g;
    weft_vid                x  = g->node[h->logits].in[0];
    weft_vid                dx = g->node[h->dx].out[0];
    const weft_type        *a = &g->value[x].type, *b = &g->value[dx].type;
    if (g->value[x].kind != WEFT_VALUE_NODE || p->loc[x].root != x || p->padded[x])
        return false;
    if (p->loc[dx].root >= 0 || p->padded[dx] || p->accum[dx] >= 0) return false;
    if (p->piece && p->piece[g->value[x].node] != p->piece[loss]) return false;
    return p->n_use[x] == 2 && a->dtype == b->dtype &&
           weft_shape_equal(&a->shape, &b->shape);
}

weft_operand weft_lower__part(const weft_operand *o, int dim, int64_t n_part, int64_t k)
{
    weft_operand part      = *o;
    int64_t      size      = o->type.shape.d[dim] / n_part;
    part.type.shape.d[dim] = size;
    part.offset += k * size * o->stride[dim];
    return part;
}
