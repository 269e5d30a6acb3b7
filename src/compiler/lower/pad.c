/* Odd widths: a vocabulary of 50,257 makes rows of logits that begin at any even address, which
 * costs the matmuls of a GPU a factor of 5.  Where the options ask for it, such rows are placed
 * at multiples of row_elements.  What is between them is never read and never written: a matmul
 * takes the width in two parts, a loss takes rows apart.  So only values that matmuls and losses
 * alone make and read can be padded. */
#include "lower/lower_priv.h"

enum {
    ALIGNED     = 8,  /* a width that is a multiple of it needs nothing */
    LEAST_WIDTH = 512 /* narrower ones are not worth it */
};

void weft_lower__pad(const weft_shape *s, int row_elements, int64_t stride[WEFT_MAX_DIM])
{
    int64_t n;
    weft_lower__dense(s, stride);
    if (row_elements < 1 || s->n < 2) return;
    n = s->d[s->n - 1];
    if (n < LEAST_WIDTH || n % ALIGNED == 0) return;
    n = (n + row_elements - 1) / row_elements * row_elements;
    for (int d = s->n - 2; d >= 0; d--) {
        stride[d] = n;
        n *= s->d[d];
    }
}

static bool is_loss(weft_op op)
{
    return op == WEFT_OP_CROSS_ENTROPY || op == WEFT_OP_CROSS_ENTROPY_GRAD;
}

/* Made where rows may be apart: by a matmul without steps, or by a loss's gradient. */
static bool is_made_apart(const weft_lower__pass *p, weft_vid v)
{
    int32_t n = p->g->value[v].node;
    if (n < 0 || !p->alive[n] || p->g->node[n].out[0] != v) return false;
    if (p->g->node[n].op == WEFT_OP_CROSS_ENTROPY_GRAD) return true;
    return p->g->node[n].op == WEFT_OP_MATMUL && !p->chain[n].n;
}

static bool is_read_apart(const weft_lower__pass *p, weft_vid v)
{
    int n = 0;
    for (int k = p->first_user[v]; k < p->first_user[v + 1]; k++) {
        const weft_graph_node *u = &p->g->node[p->user[k]];
        if (!p->alive[p->user[k]]) continue;
        if (u->op != WEFT_OP_MATMUL && !is_loss(u->op)) return false;
        for (int i = 1; is_loss(u->op) && i < u->n_in; i++)
            if (u->in[i] == v) return false;
        n++;
    }
    return n == p->n_use[v]; /* no output, no next state */
}

void weft_lower__choose_padded(weft_lower__pass *p)
{
    for (weft_vid v = 0; p->row_elements > 0 && v < p->g->n_value; v++) {
        const weft_type *t = &p->g->value[v].type;
        int64_t          stride[WEFT_MAX_DIM];
        if (t->dtype != WEFT_DTYPE_BF16 || p->placed[v] || p->accum[v] >= 0) continue;
        weft_lower__pad(&t->shape, p->row_elements, stride);
        p->padded[v] = !weft_lower__is_dense(&t->shape, stride) && is_made_apart(p, v) &&
                       is_read_apart(p, v);
    }
}
