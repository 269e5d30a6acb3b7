/* Collectives of one meeting become one of several tensors, where the last of them stood.  Their
 * operands live until it, their results from it on, so that whoever plans memory keeps them
 * apart. */
#include "lower/lower.h"

#include "lower/lower_priv.h"

/* Accumulators have terms: they are not summed with what has none. */
static bool of_one_kind(const weft_segment *s, const weft_instr *a, const weft_instr *b)
{
    return (s->storage[a->in[0].buffer].kind == WEFT_STORE_ACCUM) ==
           (s->storage[b->in[0].buffer].kind == WEFT_STORE_ACCUM);
}

/* Instructions of i's meeting that can be one with it, i the first of them; how many. */
static int find_members(const weft_segment *s, const int *meeting, int i,
                        const weft_instr **of, int *at)
{
    int n = 0;
    for (int k = i; k < s->n_instr && meeting[i] >= 0; k++) {
        const weft_instr *x = &s->instr[k];
        if (meeting[k] != meeting[i]) continue;
        if (n && (!weft_instr_can_join(of[0], x) || !of_one_kind(s, of[0], x))) continue;
        at[n]   = k;
        of[n++] = &s->instr[k];
    }
    return n;
}

weft_status weft_segment_meet(weft_segment *s, int *meeting)
{
    const weft_instr **of =
        WEFT_ARENA_ARRAY(s->arena, const weft_instr *, s->n_instr + 1);
    int        *at = WEFT_ARENA_ARRAY(s->arena, int, s->n_instr + 1), n = 0;
    weft_instr *list = WEFT_ARENA_ARRAY(s->arena, weft_instr, s->n_instr + 1);
    bool       *gone = WEFT_ARENA_ARRAY(s->arena, bool, s->n_instr + 1);
    WEFT_TRY(weft_arena_status(s->arena));
    for (int i = 0; i < s->n_instr; i++) list[i] = s->instr[i];
    for (int i = 0; i < s->n_instr; i++) {
        int m = find_members(s, meeting, i, of, at);
        if (m < 2) continue;
        WEFT_TRY(weft_instr_join(of, m, s->arena, &list[at[m - 1]]));
        for (int k = 0; k < m; k++) {
            meeting[at[k]] = -1;
            gone[at[k]]    = k < m - 1;
        }
    }
    for (int i = 0, phase = 0; i <= s->n_instr; i++) {
        for (; phase < 3 && i == s->phase_end[phase]; phase++) s->phase_end[phase] = n;
        if (i == s->n_instr || gone[i]) continue;
        s->node[n] = s->node[i];
        list[n++]  = list[i];
    }
    s->instr   = list;
    s->n_instr = n;
    weft_lower__live(s);
    return WEFT_OK;
}
