/* Liveness of storages over the instruction list, and sharing by element-wise operators. */
#include <string.h>

#include "lower/lower_priv.h"

static void touch(weft_segment *s, int storage, int instr)
{
    if (storage < 0) return;
    weft_storage *t = &s->storage[storage];
    if (t->first < 0) t->first = instr;
    t->last = instr;
}

int64_t weft_segment_round(const weft_segment *s, int64_t bytes)
{
    return (bytes + s->align - 1) & -s->align;
}

void weft_lower__live(weft_segment *s)
{
    for (int i = 0; i < s->n_storage; i++) s->storage[i].first = s->storage[i].last = -1;
    for (int i = 0; i < s->n_instr; i++) {
        for (int k = 0; k < s->instr[i].n_in; k++) touch(s, s->instr[i].in[k].buffer, i);
        for (int k = 0; k < s->instr[i].n_out; k++)
            touch(s, s->instr[i].out[k].buffer, i);
    }
    for (int b = 0; b < s->n_binding; b++)
        if (s->binding[b].kind == WEFT_BIND_OUTPUT)
            s->storage[s->binding[b].at.buffer].last = s->n_instr;
}

typedef enum cover_kind {
    COVERS_PART,
    COVERS_DENSE,
    COVERS_PADDED
} cover_kind;

/* Does operand o cover its storage exactly, densely or with padded rows? */
static cover_kind cover_of(const weft_segment *s, const weft_operand *o, int row_elements)
{
    const weft_shape *x     = &o->type.shape;
    cover_kind        kind  = COVERS_DENSE;
    int64_t           bytes = weft_shape_count(x), padded[WEFT_MAX_DIM];
    if (o->offset != 0) return COVERS_PART;
    if (!weft_lower__is_dense(x, o->stride)) {
        weft_lower__pad(x, row_elements, padded);
        if (memcmp(padded, o->stride, sizeof(int64_t) * (size_t)x->n)) return COVERS_PART;
        bytes = padded[0] * x->d[0];
        kind  = COVERS_PADDED;
    }
    bytes *= weft_dtype_bytes(o->type.dtype);
    return weft_segment_round(s, bytes) == s->storage[o->buffer].bytes ? kind
                                                                       : COVERS_PART;
}

/* Which result of i may lie over operand 0: that of an element-wise operator, or the gradient of
 * a loss over the logits; -1 none. */
static int result_over_operand(const weft_instr *i)
{
    if (i->kind == WEFT_INSTR_COLLECTIVE) return i->coll == WEFT_ALL_REDUCE ? 0 : -1;
    if (i->kind != WEFT_INSTR_COMPUTE || i->n_in < 1 || i->n_out < 1 || i->add || i->into)
        return -1;
    if (i->op == WEFT_OP_CROSS_ENTROPY && i->n_post) return i->post[0].out;
    return weft_op_get(i->op)->flags & WEFT_OP_ELEM && !i->n_post ? 0 : -1;
}

/* A sum over micro-batches has no reader once the update has read it: the next step begins anew. */
static bool may_overwrite(const weft_segment *s, const weft_storage *t, int at)
{
    return t->last == at &&
           (t->kind == WEFT_STORE_WORK ||
            (t->kind == WEFT_STORE_ACCUM && at >= s->phase_end[WEFT_PHASE_BACKWARD]));
}

static bool can_share(const weft_segment *s, int at, const weft_instr *i, int result,
                      int row_elements)
{
    const weft_operand *x = &i->in[0], *y = &i->out[result];
    if (x->buffer < 0 || y->buffer < 0 || x->buffer == y->buffer) return false;
    if (!weft_shape_equal(&x->type.shape, &y->type.shape) ||
        x->type.dtype != y->type.dtype)
        return false;
    const weft_storage *a = &s->storage[x->buffer], *b = &s->storage[y->buffer];
    if (!may_overwrite(s, a, at) || b->kind != WEFT_STORE_WORK || b->first != at)
        return false;
    cover_kind kind = cover_of(s, x, row_elements);
    if (kind == COVERS_PART || cover_of(s, y, row_elements) != kind) return false;
    for (int k = 1; k < i->n_in;
         k++) /* the same memory under another view would be overwritten */
        if (i->in[k].buffer == x->buffer) return false;
    return true;
}

void weft_lower__share(weft_segment *s, int row_elements)
{
    for (int i = 0; i < s->n_instr; i++) {
        int result = result_over_operand(&s->instr[i]);
        if (result < 0 || !can_share(s, i, &s->instr[i], result, row_elements)) continue;
        int a = s->instr[i].in[0].buffer, b = s->instr[i].out[result].buffer;
        s->storage[a].last  = s->storage[b].last;
        s->storage[b].first = s->storage[b].last = -1;
        for (int k = i; k < s->n_instr; k++) {
            weft_instr *q = &s->instr[k];
            for (int x = 0; x < q->n_in; x++)
                if (q->in[x].buffer == b) q->in[x].buffer = a;
            for (int x = 0; x < q->n_out; x++)
                if (q->out[x].buffer == b) q->out[x].buffer = a;
        }
    }
}
