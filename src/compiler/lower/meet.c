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

static bool reads(const weft_instr *x, const weft_instr *maker)
{
    for (int i = 0; i < x->n_in; i++)
        for (int k = 0; k < maker->n_out; k++)
            if (x->in[i].buffer == maker->out[k].buffer) return true;
    return false;
}

/* Sums over micro-batches of what a meeting reduces, at[0 .. n-1]: they wait for the next
 * reduction of the phase, or for its end, so that one is under way while the next is made.
 * until[i]: the instruction that sum i comes after. */
static void postpone_sums(const weft_segment *s, const int *at, int n, int *until)
{
    int last = at[n - 1], phase = 0;
    while (last >= s->phase_end[phase]) phase++;
    int next = last + 1, end = s->phase_end[phase];
    while (next < end && !(s->instr[next].kind == WEFT_INSTR_COLLECTIVE &&
                           s->instr[next].coll == s->instr[last].coll))
        next++;
    for (int i = at[0] + 1; i < next; i++)
        for (int k = 0; k < n && s->instr[i].op == WEFT_OP_ACCUMULATE; k++)
            if (reads(&s->instr[i], &s->instr[at[k]])) until[i] = next - 1;
}

/* order[]: the instructions, each sum right after the one that it waits for; at: n + 1 long. */
static void find_order(int n, const int *until, int *at, int *order)
{
    for (int i = 0; i <= n; i++) at[i] = 0;
    for (int i = 0; i < n; i++) at[until[i] + 1]++;
    for (int i = 0; i < n; i++) at[i + 1] += at[i];
    for (int i = 0; i < n; i++)
        if (until[i] == i) order[at[i]++] = i;
    for (int i = 0; i < n; i++)
        if (until[i] != i) order[at[until[i]]++] = i;
}

/* s gets the instructions of list that are left, in this order. */
static weft_status reorder(weft_segment *s, const weft_instr *list, const bool *gone,
                           const int *until, int *at)
{
    int         n = 0, phase = 0, *order, *node;
    weft_instr *out;
    order = WEFT_ARENA_ARRAY(s->arena, int, s->n_instr + 1);
    node  = WEFT_ARENA_ARRAY(s->arena, int, s->n_instr + 1);
    out   = WEFT_ARENA_ARRAY(s->arena, weft_instr, s->n_instr + 1);
    WEFT_TRY(weft_arena_status(s->arena));
    find_order(s->n_instr, until, at, order);
    for (int i = 0; i <= s->n_instr; i++) {
        for (; phase < 3 && i == s->phase_end[phase]; phase++) s->phase_end[phase] = n;
        if (i == s->n_instr || gone[order[i]]) continue;
        node[n]  = s->node[order[i]];
        out[n++] = list[order[i]];
    }
    s->instr   = out;
    s->node    = node;
    s->n_instr = n;
    return WEFT_OK;
}

weft_status weft_segment_meet(weft_segment *s, int *meeting)
{
    int                n_instr = s->n_instr;
    const weft_instr **of = WEFT_ARENA_ARRAY(s->arena, const weft_instr *, n_instr + 1);
    int               *at = WEFT_ARENA_ARRAY(s->arena, int, n_instr + 1);
    int               *until = WEFT_ARENA_ARRAY(s->arena, int, n_instr + 1);
    weft_instr        *list  = WEFT_ARENA_ARRAY(s->arena, weft_instr, n_instr + 1);
    bool              *gone  = WEFT_ARENA_ARRAY(s->arena, bool, n_instr + 1);
    WEFT_TRY(weft_arena_status(s->arena));
    for (int i = 0; i < n_instr; i++) {
        list[i]  = s->instr[i];
        until[i] = i;
    }
    for (int i = 0; i < n_instr; i++) {
        int m = find_members(s, meeting, i, of, at);
        if (m) postpone_sums(s, at, m, until);
        if (m < 2) continue;
        WEFT_TRY(weft_instr_join(of, m, s->arena, &list[at[m - 1]]));
        for (int k = 0; k < m; k++) {
            meeting[at[k]] = -1;
            gone[at[k]]    = k < m - 1;
        }
    }
    WEFT_TRY(reorder(s, list, gone, until, at));
    weft_lower__live(s);
    return WEFT_OK;
}
