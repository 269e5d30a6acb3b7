/* Views: where the elements of a reshaped, sliced, transposed or spread value lie. */
#include <string.h>

#include "lower/lower_priv.h"

void weft_lower__dense(const weft_shape *s, int64_t stride[WEFT_MAX_DIM])
{
    int64_t n = 1;
    memset(stride, 0, sizeof(int64_t) * WEFT_MAX_DIM);
    for (int d = s->n - 1; d >= 0; d--) {
        stride[d] = n;
        n *= s->d[d];
    }
}

bool weft_lower__is_dense(const weft_shape *s, const int64_t *stride)
{
    int64_t n = 1;
    for (int d = s->n - 1; d >= 0; d--) {
        if (s->d[d] != 1 && stride[d] != n) return false;
        n *= s->d[d];
    }
    return true;
}

/* Walks both shapes from the left in groups of equal size; within a group the old dimensions must
 * lie behind each other as one. */
bool weft_lower__reshape(const weft_shape *from, const int64_t *stride,
                         const weft_shape *to, int64_t out[WEFT_MAX_DIM])
{
    int64_t d[WEFT_MAX_DIM], st[WEFT_MAX_DIM];
    int     n = 0, i = 0, k = 0;

    memset(out, 0, sizeof(int64_t) * WEFT_MAX_DIM);
    if (!weft_shape_count(to)) return true; /* nothing lies anywhere */
    for (int x = 0; x < from->n; x++)
        if (from->d[x] != 1) d[n] = from->d[x], st[n++] = stride[x];
    while (i < n || k < to->n) {
        if (k < to->n && to->d[k] == 1) {
            out[k++] = 0;
            continue;
        }
        if (i >= n || k >= to->n) return false;
        int     i1 = i + 1, k1 = k + 1;
        int64_t a = d[i], b = to->d[k];
        while (a != b) {
            if (a < b) {
                if (i1 >= n) return false;
                a *= d[i1++];
            } else {
                if (k1 >= to->n) return false;
                b *= to->d[k1++];
            }
        }
        for (int x = i; x + 1 < i1; x++)
            if (st[x] != st[x + 1] * d[x + 1]) return false;
        int64_t s = st[i1 - 1];
        for (int x = k1 - 1; x >= k; x--) {
            out[x] = s;
            s *= to->d[x];
        }
        i = i1;
        k = k1;
    }
    return true;
}

static int64_t axis_of(const weft_op_use *u, int n)
{
    int64_t a = weft_use_int(u, "axis");
    return a < 0 ? a + n : a;
}

bool weft_lower__view(const weft_graph *g, const weft_graph_node *n, int j,
                      const weft_lower__loc *in, weft_lower__loc *out)
{
    const weft_shape *from = &g->value[n->in[0]].type.shape,
                     *to   = &g->value[n->out[j]].type.shape;
    weft_op_use u          = {.op = n->op, .attr = n->attr};

    *out = *in;
    switch (n->op) {
    case WEFT_OP_RESHAPE: return weft_lower__reshape(from, in->stride, to, out->stride);
    case WEFT_OP_SLICE:
        out->offset += weft_use_int(&u, "start") * in->stride[axis_of(&u, from->n)];
        return true;
    case WEFT_OP_SPLIT: {
        const weft_attr *sizes = weft_use_attr(&u, "sizes");
        for (int k = 0; k < j; k++)
            out->offset += sizes->l[k] * in->stride[axis_of(&u, from->n)];
        return true;
    }
    case WEFT_OP_TRANSPOSE:
        for (int d = 0; d < to->n; d++)
            out->stride[d] = in->stride[weft_use_attr(&u, "perm")->l[d]];
        return true;
    case WEFT_OP_BROADCAST:
        memset(out->stride, 0, sizeof out->stride);
        for (int d = 1; d <= from->n; d++)
            if (from->d[from->n - d] != 1)
                out->stride[to->n - d] = in->stride[from->n - d];
        return true;
    default: return false;
    }
}

weft_vid weft_lower__base(const weft_graph *g, weft_vid v)
{
    for (;;) {
        int32_t n = g->value[v].node;
        if (n < 0 || !(weft_op_get(g->node[n].op)->flags & WEFT_OP_VIEW)) return v;
        v = g->node[n].in[0];
    }
}
