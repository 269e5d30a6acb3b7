/* Liveness of storages over the instruction list, and sharing by element-wise operators. */
#include "lower/lower_priv.h"

static void touch(weft_segment *s, int storage, int instr)
{
    if (storage < 0) return;
    weft_storage *t = &s->storage[storage];
    if (t->first < 0) t->first = instr;
    t->last = instr;
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

/* Does operand o cover its storage exactly, densely? */
static bool covers(const weft_segment *s, const weft_operand *o)
{
    int64_t bytes = weft_shape_count(&o->type.shape) * weft_dtype_bytes(o->type.dtype);
    return o->offset == 0 && weft_lower__is_dense(&o->type.shape, o->stride) &&
           ((bytes + 63) & ~(int64_t)63) == s->storage[o->buffer].bytes;
}

/* Which result of i may lie over operand 0: that of an element-wise operator, or the gradient of
 * a loss over the logits; -1 none. */
static int result_over_operand(const weft_instr *i)
{
    if (i->kind == WEFT_INSTR_COLLECTIVE) return i->coll == WEFT_ALL_REDUCE ? 0 : -1;
    if (i->kind != WEFT_INSTR_COMPUTE || i->n_in < 1 || i->n_out < 1 || i->add) return -1;
    if (i->op == WEFT_OP_CROSS_ENTROPY && i->n_post) return i->post[0].out;
    return weft_op_get(i->op)->flags & WEFT_OP_ELEM && !i->n_post ? 0 : -1;
}

static bool can_share(const weft_segment *s, int at, const weft_instr *i, int result)
{
    const weft_operand *x = &i->in[0], *y = &i->out[result];
    if (x->buffer < 0 || y->buffer < 0 || x->buffer == y->buffer) return false;
    if (!weft_shape_equal(&x->type.shape, &y->type.shape) ||
        x->type.dtype != y->type.dtype)
        return false;
    const weft_storage *a = &s->storage[x->buffer], *b = &s->storage[y->buffer];
    if (a->kind != WEFT_STORE_WORK || b->kind != WEFT_STORE_WORK) return false;
    if (a->last != at || b->first != at || !covers(s, x) || !covers(s, y)) return false;
    for (int k = 1; k < i->n_in;
         k++) /* the same memory under another view would be overwritten */
        if (i->in[k].buffer == x->buffer) return false;
    return true;
}

void weft_lower__share(weft_segment *s)
{
    for (int i = 0; i < s->n_instr; i++) {
        int result = result_over_operand(&s->instr[i]);
        if (result < 0 || !can_share(s, i, &s->instr[i], result)) continue;
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
