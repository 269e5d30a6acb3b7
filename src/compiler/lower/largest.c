/* Largest magnitudes that one matmul in fp8 finds for another.
 *
 *     y  = x w       rows of x are tokens      reads x row by row: finds those of its columns, too
 *     dx = dy w'     rows of dy are tokens     likewise
 *     dw = x' dy     rows of both are features: columns above, whose largest numbers are known
 *
 * A scale is made of its row's largest number.  Where rows are contiguous it costs no reading of
 * its own; where they are side by side it costs one, unless a matmul before has read the same
 * numbers.  What is kept for that is 4 bytes a row, from the forward pass to the backward pass.
 * The function does not change, and neither do bits. */
#include <string.h>

#include "lower/lower_priv.h"
#include "op/workspace.h"
#include "program/work.h"

/* How an operand's memory is read: rows one after the other, or side by side. */
typedef struct reading {
    bool    contiguous;
    int     n_lead;  /* letters before the other group */
    int64_t size[2]; /* of the first group, and of the second */
} reading;

/* False: rows and columns are not one group of letters each. */
static bool find_reading(const weft_instr *i, int k, reading *r)
{
    const char *spec = i->attr[weft_op_attr_index(i->op, "spec")].s;
    const char *part = k ? strchr(spec, ',') + 1 : spec, *y = strstr(spec, "->") + 2;
    const weft_shape *s     = &i->in[k].type.shape;
    int               group = 0;
    *r = (reading){.contiguous = s->n && strchr(y, part[0]), .size = {1, 1}};
    for (int d = 0; d < s->n; d++) {
        bool row = strchr(y, part[d]) != NULL;
        if (!group && row != r->contiguous) group = 1, r->n_lead = d;
        if (group && row == r->contiguous) return false;
        r->size[group] *= s->d[d];
    }
    return group == 1;
}

/* As the kernels of a GPU take them in vectors. */
static bool is_aligned(const weft_operand *o, const reading *r)
{
    return o->type.dtype == WEFT_DTYPE_BF16 &&
           weft_lower__is_dense(&o->type.shape, o->stride) && o->offset % 8 == 0 &&
           r->size[0] % WEFT_WORKSPACE_FP8_UNIT == 0 &&
           r->size[1] % WEFT_WORKSPACE_FP8_UNIT == 0 &&
           r->size[1] <= WEFT_WORKSPACE_FP8_MOST;
}

static bool is_same(const weft_operand *a, const weft_operand *b)
{
    return a->buffer == b->buffer && a->offset == b->offset &&
           a->type.dtype == b->type.dtype &&
           weft_shape_equal(&a->type.shape, &b->type.shape) &&
           !memcmp(a->stride, b->stride, sizeof *a->stride * (size_t)a->type.shape.n);
}

static bool writes(const weft_instr *i, int32_t buffer)
{
    for (int k = 0; k < i->n_out; k++)
        if (i->out[k].buffer == buffer) return true;
    return false;
}

/* The last matmul before instruction `at` that reads its operand k row by row where this one has
 * rows side by side; -1: none, or somebody writes there meanwhile.  *which: its operand. */
static int find_reader(const weft_segment *s, int at, int k, int *which)
{
    const weft_operand *x = &s->instr[at].in[k];
    reading             r, before;
    if (x->buffer < 0 || !find_reading(&s->instr[at], k, &r) || r.contiguous ||
        !is_aligned(x, &r))
        return -1;
    for (int i = at - 1; i >= 0; i--) {
        const weft_instr *m = &s->instr[i];
        if (writes(m, x->buffer)) return -1;
        if (!weft_instr_is_fp8(m)) continue;
        for (*which = 0; *which < 2; ++*which)
            if (is_same(&m->in[*which], x) && find_reading(m, *which, &before) &&
                before.contiguous && before.n_lead == r.n_lead)
                return i;
    }
    return -1;
}

/* Room for n more operands or results of the operator's own, which are left out. */
static weft_status widen(weft_arena *a, int *n_all, int *n_own, int n, weft_operand **o)
{
    int           more = n - *n_own;
    weft_operand *wide = WEFT_ARENA_ARRAY(a, weft_operand, *n_all + more);
    WEFT_TRY(weft_arena_status(a));
    memcpy(wide, *o, sizeof *wide * (size_t)*n_own);
    memcpy(wide + n, *o + *n_own, sizeof *wide * (size_t)(*n_all - *n_own));
    for (int k = *n_own; k < n; k++) wide[k] = (weft_operand){.buffer = -1};
    *o = wide;
    *n_all += more;
    *n_own = n;
    return WEFT_OK;
}

static weft_status widen_operands(weft_segment *s, weft_instr *i)
{
    int before = i->n_own_in;
    if (before == 4) return WEFT_OK;
    WEFT_TRY(widen(s->arena, &i->n_in, &i->n_own_in, 4, &i->in));
    for (int k = 0; k < i->n_post; k++)
        if (i->post[k].in >= before) i->post[k].in += 4 - before;
    return WEFT_OK;
}

static unsigned shift_bits(unsigned bits, int before, int n)
{
    unsigned own = (1u << before) - 1;
    return (bits & own) | (bits & ~own) << n;
}

static weft_status widen_results(weft_segment *s, weft_instr *i)
{
    int before = i->n_own_out;
    if (before == 3) return WEFT_OK;
    WEFT_TRY(widen(s->arena, &i->n_out, &i->n_own_out, 3, &i->out));
    for (int k = 0; k < i->n_post; k++)
        if (i->post[k].out >= before) i->post[k].out += 3 - before;
    i->add  = shift_bits(i->add, before, 3 - before);
    i->into = shift_bits(i->into, before, 3 - before);
    return WEFT_OK;
}

static weft_status share_largest(weft_segment *s, weft_lower__add_fn add, void *arg,
                                 int from, int which, int to, int k)
{
    weft_instr   *giver = &s->instr[from];
    weft_operand *given;
    WEFT_TRY(widen_results(s, giver));
    given = &giver->out[1 + which];
    if (given->buffer < 0) {
        reading r;
        (void)find_reading(giver, which, &r);
        *given = (weft_operand){.type = {WEFT_DTYPE_F32, weft_shape_make(1, &r.size[1])},
                                .stride = {1}};
        WEFT_TRY(
            add(arg, &given->type,
                weft_arena_printf(s->arena, "%s.largest_%c", giver->name, "ab"[which]),
                &given->buffer));
    }
    WEFT_TRY(widen_operands(s, &s->instr[to]));
    s->instr[to].in[2 + k] = *given;
    return WEFT_OK;
}

weft_status weft_lower__share_largest(weft_segment *s, weft_lower__add_fn add, void *arg)
{
    for (int i = 0; i < s->n_instr; i++)
        for (int k = 0, which; k < 2 && weft_instr_is_fp8(&s->instr[i]); k++) {
            int from = find_reader(s, i, k, &which);
            if (from >= 0) WEFT_TRY(share_largest(s, add, arg, from, which, i, k));
        }
    return WEFT_OK;
}
