/* A placement in words: a line a node, ranks as mesh coordinates. */
#include "place/place.h"

static void put_rank(const weft_place_job *j, int rank, weft_text *t)
{
    int n = weft_place_n_rank(j);
    for (int a = 0, first = 1; a < j->n_axis; a++) {
        n /= j->axis[a].size;
        if (j->axis[a].size == 1) continue;
        weft_text_add(t, "%s%s%d", first ? " " : ".", j->axis[a].name,
                      rank / n % j->axis[a].size);
        first = 0;
    }
}

weft_status weft_place_print(const weft_place_job *j, const weft_cluster *c,
                             const weft_placement *p, weft_text *t)
{
    weft_arena *a;
    int         n = weft_cluster_count(c);
    WEFT_TRY(weft_arena_create(&a));
    int *on = WEFT_ARENA_ARRAY(a, int, n + 1); /* rank + 1 of a device */
    for (int i = 0; on && i < p->n_rank; i++) on[p->device[i]] = i + 1;
    for (int d = 0; on && d < n; d++) {
        int place, node = weft_cluster_node(c, d, &place);
        if (!place)
            weft_text_add(t, "%snode %d, %s:", d ? "\n" : "", node,
                          weft_cluster_device(c, d)->name);
        if (on[d])
            put_rank(j, on[d] - 1, t);
        else
            weft_text_add(t, " -");
    }
    weft_text_add(t, "\ncompute %.4g s", p->price.compute_s);
    for (int i = 0; i < j->n_axis; i++)
        if (j->axis[i].size > 1)
            weft_text_add(t, ", %s %.4g s", j->axis[i].name, p->price.axis_s[i]);
    weft_text_add(t, "; %s of %lld placements\n",
                  p->exact ? "the best" : "the best found", (long long)p->n_tried);
    weft_status st = weft_arena_status(a);
    weft_arena_destroy(a);
    return st == WEFT_OK ? weft_text_status(t) : st;
}
