/* Offsets for blocks with lifetimes: largest first, each into the lowest gap that holds it among
 * the blocks that live at the same time.  Exact minimum is NP-hard; this is within a few percent
 * of the largest set alive at once on training graphs. */
#include <stdlib.h>

#include "partition/partition_priv.h"

typedef struct ranked {
    const weft_partition__block *b;
    int                          i;
} ranked;

static int by_size(const void *x, const void *y)
{
    const ranked *a = x, *b = y;
    if (a->b->bytes != b->b->bytes) return a->b->bytes > b->b->bytes ? -1 : 1;
    if (a->b->first != b->b->first) return a->b->first < b->b->first ? -1 : 1;
    return a->i - b->i;
}

static bool meet(const weft_partition__block *a, const weft_partition__block *b)
{
    return a->first <= b->last && b->first <= a->last;
}

weft_status weft_partition__pack(weft_partition__block *b, int n, weft_arena *tmp,
                                 int64_t *total)
{
    ranked *r      = WEFT_ARENA_ARRAY(tmp, ranked, n + 1);
    int    *placed = WEFT_ARENA_ARRAY(tmp, int, n + 1), n_placed = 0; /* by offset */
    WEFT_TRY(weft_arena_status(tmp));
    for (int i = 0; i < n; i++) r[i] = (ranked){&b[i], i};
    qsort(r, (size_t)n, sizeof *r, by_size);

    *total = 0;
    for (int k = 0; k < n; k++) {
        weft_partition__block *x  = &b[r[k].i];
        int64_t                at = 0;
        for (int j = 0; j < n_placed; j++) {
            const weft_partition__block *y = &b[placed[j]];
            if (!meet(x, y)) continue;
            if (y->offset >= at + x->bytes) break;
            if (y->offset + y->bytes > at) at = y->offset + y->bytes;
        }
        x->offset = at;
        int j     = n_placed++;
        for (; j > 0 && b[placed[j - 1]].offset > at; j--) placed[j] = placed[j - 1];
        placed[j] = r[k].i;
        if (at + x->bytes > *total) *total = at + x->bytes;
    }
    return WEFT_OK;
}
