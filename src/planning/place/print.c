/* A placement in words: a line a node, ranks as mesh coordinates; where there are many, a line a
 * run of nodes. */
#include <string.h>

#include "place/place.h"

enum {
    FEW_NODES = 8 /* whose ranks are told one by one */
};

/* ---- runs ---- */

static void coordinates(const weft_place_job *j, int rank, int *at)
{
    for (int a = j->n_axis - 1; a >= 0; a--) {
        at[a] = rank % j->axis[a].size;
        rank /= j->axis[a].size;
    }
}

/* Devices d .. d+per-1 as a run of one node; on: rank + 1 of a device. */
static weft_place_run one_node(const weft_place_job *j, const int *on, int node, int d,
                               int per)
{
    weft_place_run r = {.node = node, .n_node = 1, .first = d, .per = per};
    int            n = 1;
    for (int i = d; i < d + per; i++) {
        int at[WEFT_PLACE_MAX_AXIS];
        if (!on[i]) continue;
        coordinates(j, on[i] - 1, at);
        for (int a = 0; a < j->n_axis; a++) {
            if (!r.n_rank || at[a] < r.lo[a]) r.lo[a] = at[a];
            if (!r.n_rank || at[a] > r.hi[a]) r.hi[a] = at[a];
        }
        r.n_rank++;
    }
    for (int a = 0; a < j->n_axis; a++) n *= r.wide[a] = r.hi[a] - r.lo[a] + 1;
    r.box = !r.n_rank || n == r.n_rank;
    return r;
}

static bool alike(const weft_place_job *j, const weft_place_run *a,
                  const weft_place_run *b, const int *health)
{
    if (!a->box || !b->box || a->per != b->per || a->n_rank != b->n_rank) return false;
    if (memcmp(health + a->first, health + b->first, sizeof(int) * (size_t)a->per))
        return false;
    if (!a->n_rank) return true;
    if (j->n_axis && (a->lo[0] != b->lo[0] || a->hi[0] != b->hi[0])) return false;
    return !memcmp(a->wide, b->wide, sizeof a->wide);
}

weft_status weft_place_runs(const weft_place_job *j, const weft_cluster *c,
                            const weft_placement *p, weft_arena *a, weft_place_run **run,
                            int *n)
{
    weft_device_run r;
    int  all = weft_cluster_count(c), n_node = weft_cluster_n_node(c), class = 0;
    int *on             = WEFT_ARENA_ARRAY(a, int, all + 1);
    int *health         = WEFT_ARENA_ARRAY(a, int, all + 1);
    weft_place_run *out = WEFT_ARENA_ARRAY(a, weft_place_run, n_node + 1);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < p->n_rank; i++) on[p->device[i]] = i + 1;
    for (int at = 0; weft_cluster_next_run(c, &at, &r);) { /* alike: the same number */
        class ++;
        int mine = class * 2 + r.cordoned;
        if (!r.cordoned && r.speed >= 1 && r.link >= 1)
            mine = -2 - (int)(r.node - c->node);
        for (int d = r.first; d < r.first + r.n; d++) health[d] = mine;
    }
    *n = 0;
    for (int d = 0, e; d < all; d = e) {
        int node = weft_cluster_node(c, d, NULL);
        for (e = d; e < all && weft_cluster_node(c, e, NULL) == node;) e++;
        weft_place_run x = one_node(j, on, node, d, e - d), *last = &out[*n - 1];
        if (!*n || !alike(j, last, &x, health)) {
            out[(*n)++] = x;
            continue;
        }
        last->n_node++;
        for (int k = 0; k < j->n_axis; k++) {
            if (x.lo[k] < last->lo[k]) last->lo[k] = x.lo[k];
            if (x.hi[k] > last->hi[k]) last->hi[k] = x.hi[k];
        }
    }
    *run = out;
    return WEFT_OK;
}

/* ---- text ---- */

static void put_rank(const weft_place_job *j, int rank, weft_text *t)
{
    int  n     = weft_place_n_rank(j);
    bool first = true;
    for (int a = 0; a < j->n_axis; a++) {
        n /= j->axis[a].size;
        if (j->axis[a].size == 1) continue;
        weft_text_add(t, "%s%s%d", first ? " " : ".", j->axis[a].name,
                      rank / n % j->axis[a].size);
        first = false;
    }
    if (first) weft_text_add(t, " rank 0");
}

static void put_nodes(const weft_place_job *j, const weft_cluster *c, const int *on,
                      int n, weft_text *t)
{
    for (int d = 0; d < n; d++) {
        int place, node = weft_cluster_node(c, d, &place);
        if (!place)
            weft_text_add(t, "%snode %d, %s:", d ? "\n" : "", node,
                          weft_cluster_device(c, d)->name);
        if (on[d])
            put_rank(j, on[d] - 1, t);
        else
            weft_text_add(t, " -");
    }
    weft_text_add(t, "\n");
}

static void put_run(const weft_place_job *j, const weft_cluster *c,
                    const weft_place_run *r, weft_text *t)
{
    weft_text_add(t, r->n_node > 1 ? "nodes %d to %d" : "node %d", r->node,
                  r->node + r->n_node - 1);
    weft_text_add(t, ", %d x (%d x %s):", r->n_node, r->per,
                  weft_cluster_device(c, r->first)->name);
    if (!r->n_rank) weft_text_add(t, " -");
    for (int a = 0; a < j->n_axis && r->n_rank; a++) {
        if (j->axis[a].size == 1) continue;
        weft_text_add(t, " %s %d", j->axis[a].name, r->lo[a]);
        if (r->hi[a] > r->lo[a]) weft_text_add(t, " to %d", r->hi[a]);
        if (r->hi[a] - r->lo[a] + 1 > r->wide[a])
            weft_text_add(t, " (%d a node)", r->wide[a]);
    }
    weft_text_add(t, r->box ? "\n" : " (not all of these)\n");
}

static void put_price(const weft_place_job *j, const weft_placement *p, weft_text *t)
{
    const char *glue = "";
    if (j->flops > 0) {
        weft_text_add(t, "compute %.4g s", p->price.compute_s);
        glue = ", ";
    }
    for (int i = 0; i < j->n_axis; i++)
        if (j->axis[i].size > 1) {
            weft_text_add(t, "%s%s %.4g s", glue, j->axis[i].name, p->price.axis_s[i]);
            glue = ", ";
        }
    if (p->n_tried > 1)
        weft_text_add(t, "%s%s of %lld placements", *glue ? "; " : "",
                      p->exact ? "the best" : "the best found", (long long)p->n_tried);
    weft_text_add(t, "\n");
}

weft_status weft_place_print(const weft_place_job *j, const weft_cluster *c,
                             const weft_placement *p, weft_text *t)
{
    weft_arena     *a;
    weft_place_run *run;
    int             n  = weft_cluster_count(c), n_run;
    weft_status     st = WEFT_OK;
    WEFT_TRY(weft_arena_create(&a));
    int *on = WEFT_ARENA_ARRAY(a, int, n + 1); /* rank + 1 of a device */
    WEFT_GO(weft_arena_status(a));
    WEFT_GO(weft_place_runs(j, c, p, a, &run, &n_run));
    for (int i = 0; i < p->n_rank; i++) on[p->device[i]] = i + 1;
    if (weft_cluster_n_node(c) <= FEW_NODES)
        put_nodes(j, c, on, n, t);
    else
        for (int i = 0; i < n_run; i++) put_run(j, c, &run[i], t);
    put_price(j, p, t);
    st = weft_text_status(t);
out:
    weft_arena_destroy(a);
    return st;
}
