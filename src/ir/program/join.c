/* Collectives of several tensors: ranks meet once for all of them. */
#include "program/program.h"

/* Results of one that the other one's operands or results are, whole buffers counted. */
static bool touches(const weft_instr *a, const weft_instr *b)
{
    for (int i = 0; i < a->n_out; i++) {
        for (int k = 0; k < b->n_in; k++)
            if (a->out[i].buffer == b->in[k].buffer) return true;
        for (int k = 0; k < b->n_out; k++)
            if (a->out[i].buffer == b->out[k].buffer) return true;
    }
    return false;
}

static bool can_be_several(const weft_instr *i)
{
    return i->kind == WEFT_INSTR_COLLECTIVE && i->n_in > 0 && i->n_in == i->n_out &&
           i->seconds < 0 &&
           (i->coll == WEFT_ALL_REDUCE || i->coll == WEFT_REDUCE_SCATTER ||
            i->coll == WEFT_ALL_GATHER);
}

bool weft_instr_can_join(const weft_instr *a, const weft_instr *b)
{
    return can_be_several(a) && can_be_several(b) && a->coll == b->coll &&
           a->group == b->group && a->tag == b->tag && a->lanes == b->lanes &&
           a->in[0].type.dtype == b->in[0].type.dtype && !touches(a, b) && !touches(b, a);
}

weft_status weft_instr_join(const weft_instr *const *of, int n, weft_arena *a,
                            weft_instr *out)
{
    int n_tensor = 0, at = 0;
    for (int i = 0; i < n; i++) n_tensor += of[i]->n_in;
    *out = *of[0];
    if (n == 1) return WEFT_OK;
    out->n_in = out->n_own_in = out->n_out = out->n_own_out = n_tensor;
    out->in    = WEFT_ARENA_ARRAY(a, weft_operand, n_tensor + 1);
    out->out   = WEFT_ARENA_ARRAY(a, weft_operand, n_tensor + 1);
    out->units = WEFT_ARENA_ARRAY(a, int64_t, n_tensor);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < of[i]->n_in; k++, at++) {
            out->in[at]    = of[i]->in[k];
            out->out[at]   = of[i]->out[k];
            out->units[at] = weft_instr_unit(of[i], k);
        }
    out->unit = 0;
    return WEFT_OK;
}

weft_status weft_instr_split(const weft_instr *i, int t, weft_arena *a, weft_instr *out)
{
    *out       = *i;
    out->in    = weft_arena_memdup(a, &i->in[t], sizeof *i->in);
    out->out   = weft_arena_memdup(a, &i->out[t], sizeof *i->out);
    out->unit  = weft_instr_unit(i, t);
    out->units = NULL;
    out->n_in = out->n_own_in = out->n_out = out->n_own_out = 1;
    return weft_arena_status(a);
}
