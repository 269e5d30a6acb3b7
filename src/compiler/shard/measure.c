/* The integer measure that conflicts and reshards are compared by: bytes over the slowest class of
 * links first, then steps. */
#include "shard/shard_priv.h"

int weft_measure_compare(const weft_measure *a, const weft_measure *b)
{
    for (int i = WEFT_MAX_LINK - 1; i >= 0; i--)
        if (a->bytes[i] != b->bytes[i]) return a->bytes[i] < b->bytes[i] ? -1 : 1;
    return a->steps < b->steps ? -1 : a->steps > b->steps ? 1 : 0;
}

static void pay(weft_measure *sum, const weft_mesh *m, int axis, int64_t bytes)
{
    sum->bytes[m->axis[axis].link] += bytes;
    sum->steps++;
}

/* As if every cut came out even: slices first, then what shrinks, what moves, what grows. */
weft_measure weft_reshard_estimate(const weft_mesh *m, const weft_layout *from,
                                   const weft_layout *to, const weft_type *t)
{
    weft_measure sum   = {0};
    int64_t      local = weft_shard__bytes(t);
    for (int a = 0; a < m->n_axis; a++) { /* what a rank has, less what it may drop */
        const weft_split *x = weft_layout_find(from, a), *y = weft_layout_find(to, a);
        bool              slice = y && !x && !from->unreduced[a];
        if (x || slice) local = (local + m->axis[a].size - 1) / m->axis[a].size;
    }
    for (int a = 0; a < m->n_axis; a++) { /* reduce-scatter */
        int64_t n = m->axis[a].size;
        if (!from->unreduced[a] || to->unreduced[a] || !weft_layout_find(to, a)) continue;
        pay(&sum, m, a, local / n * (n - 1));
        local = (local + n - 1) / n;
    }
    for (int a = 0; a < m->n_axis; a++) { /* all-to-all */
        const weft_split *x = weft_layout_find(from, a), *y = weft_layout_find(to, a);
        int64_t           n = m->axis[a].size;
        if (x && y && !weft_shard__split_equal(x, y))
            pay(&sum, m, a, local / n * (n - 1));
    }
    for (int a = 0; a < m->n_axis; a++) { /* all-reduce */
        int64_t n = m->axis[a].size;
        if (from->unreduced[a] && !to->unreduced[a] && !weft_layout_find(to, a))
            pay(&sum, m, a, 2 * (local / n * (n - 1)));
    }
    for (int a = 0; a < m->n_axis; a++) { /* all-gather */
        int64_t n = m->axis[a].size;
        if (!weft_layout_find(from, a) || weft_layout_find(to, a)) continue;
        pay(&sum, m, a, local * (n - 1));
        local *= n;
    }
    return sum;
}
