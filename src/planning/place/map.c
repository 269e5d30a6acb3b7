/* Mapping a mesh: every placement where there are few; else every order of the axes over several
 * orders of the devices, the best of them, and swaps from there.  The simple ways are among the
 * candidates, so the result is never worse than theirs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "place/place_priv.h"

enum {
    MOST_EXACT  = 100000,  /* placements priced one by one */
    SWAP_WORK   = 1000000, /* swaps times ranks */
    REPAIR_WORK = 4000000  /* devices looked at for lost ranks, times ranks */
};

static weft_status begin(const weft_place_job *j, weft_placement *p)
{
    memset(p, 0, sizeof *p);
    p->n_rank = weft_place_n_rank(j);
    p->device = calloc((size_t)p->n_rank + 1, sizeof(int));
    return p->device ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "no memory for a placement");
}

void weft_placement_fini(weft_placement *p)
{
    free(p->device);
    p->device = NULL;
}

/* Prices next and keeps it in p where it is better. */
static void offer(const weft_place_job *j, weft_place_table *t, const int *next,
                  weft_placement *p)
{
    weft_place_seconds s;
    for (int r = 0; j->may && r < p->n_rank; r++)
        if (!weft_place__may(j, r, next[r])) return;
    weft_place__price(j, t, next, &s);
    if (p->n_tried++ && !weft_place__better(&s, &p->price)) return;
    p->price = s;
    memmove(p->device, next, sizeof(int) * (size_t)p->n_rank);
}

/* ---- orders of devices ---- */

/* One device of each node in turn. */
static void deal(const weft_place_table *t, int *list)
{
    for (int round = 0, n = 0; n < t->n_usable; round++)
        for (int i = 0, k = 0; i < t->n_usable; i++) {
            bool same = i && t->node[t->usable[i]] == t->node[t->usable[i - 1]];
            k         = same ? k + 1 : 0;
            if (k == round) list[n++] = t->usable[i];
        }
}

/* The fastest first; equal ones as they stand. */
static void by_speed(const weft_place_table *t, int *list)
{
    double below = INFINITY;
    for (int n = 0; n < t->n_usable;) {
        double best = -1;
        for (int i = 0; i < t->n_usable; i++)
            if (t->speed[t->usable[i]] < below) best = fmax(best, t->speed[t->usable[i]]);
        for (int i = 0; i < t->n_usable; i++)
            if (!(t->speed[t->usable[i]] < best) && !(t->speed[t->usable[i]] > best))
                list[n++] = t->usable[i];
        below = best;
    }
}

/* Of each node the largest multiple of unit; the rest at the end. */
static void whole(const weft_place_table *t, const int *from, int unit, int *list)
{
    int n = 0, tail = t->n_usable;
    for (int i = 0; i < t->n_usable;) {
        int end = i, node = t->node[from[i]];
        while (end < t->n_usable && t->node[from[end]] == node) end++;
        int keep = (end - i) / unit * unit;
        for (int k = i; k < end; k++) list[k - i < keep ? n++ : --tail] = from[k];
        i = end;
    }
    for (int a = tail, b = t->n_usable - 1; a < b; a++, b--) { /* as they stood */
        int v   = list[a];
        list[a] = list[b], list[b] = v;
    }
}

/* ---- orders of axes ---- */

/* Ranks counted with the axes in another order (order[n-1] fastest), onto list. */
static void lay(const weft_place_job *j, const int *order, const int *list, int n_rank,
                int *device)
{
    int stride[WEFT_PLACE_MAX_AXIS], s = 1;
    for (int a = j->n_axis - 1; a >= 0; a--) stride[a] = s, s *= j->axis[a].size;
    for (int i = 0; i < n_rank; i++) {
        int left = i, rank = 0;
        for (int k = j->n_axis - 1; k >= 0; k--) {
            int a = order[k];
            rank += left % j->axis[a].size * stride[a];
            left /= j->axis[a].size;
        }
        device[rank] = list[i];
    }
}

static bool next_order(int *x, int n)
{
    int i = n - 2, k = n - 1;
    while (i >= 0 && x[i] >= x[i + 1]) i--;
    if (i < 0) return false;
    while (x[k] <= x[i]) k--;
    int v = x[i];
    x[i] = x[k], x[k] = v;
    for (int a = i + 1, b = n - 1; a < b; a++, b--) v = x[a], x[a] = x[b], x[b] = v;
    return true;
}

static void try_orders(const weft_place_job *j, weft_place_table *t, const int *list,
                       int *next, weft_placement *p)
{
    int order[WEFT_PLACE_MAX_AXIS], n = 0, ones = 0;
    for (int a = 0; a < j->n_axis; a++) /* axes of one rank stand where they like */
        if (j->axis[a].size > 1) n++;
    for (int a = 0, k = 0; a < j->n_axis; a++)
        if (j->axis[a].size > 1)
            order[k++] = a;
        else
            order[n + ones++] = a;
    do {
        lay(j, order, list, p->n_rank, next);
        offer(j, t, next, p);
    } while (n <= 6 && next_order(order, n));
}

enum {
    MAX_LIST = 4 + 2 * WEFT_PLACE_MAX_AXIS
};

/* Orders of devices that were tried: of equal nodes most are one. */
typedef struct tried {
    int  n;
    int *list[MAX_LIST];
    int *next; /* room for a placement */
} tried;

/* list becomes ours unless it was tried already. */
static weft_status try_list(const weft_place_job *j, weft_place_table *t, const int *list,
                            tried *z, weft_placement *p)
{
    size_t bytes = sizeof(int) * (size_t)p->n_rank;
    for (int i = 0; i < z->n; i++)
        if (!memcmp(z->list[i], list, bytes)) return WEFT_OK;
    int *mine = weft_arena_alloc(t->arena, bytes);
    WEFT_TRY(weft_arena_status(t->arena));
    memcpy(mine, list, bytes);
    z->list[z->n++] = mine;
    try_orders(j, t, mine, z->next, p);
    return WEFT_OK;
}

static weft_status try_all_orders(const weft_place_job *j, weft_place_table *t,
                                  weft_placement *p)
{
    size_t bytes  = sizeof(int) * ((size_t)t->n_usable + 1);
    int   *sorted = weft_arena_alloc(t->arena, bytes);
    int   *list   = weft_arena_alloc(t->arena, bytes);
    tried  z      = {.next = weft_arena_alloc(t->arena, bytes)};
    WEFT_TRY(weft_arena_status(t->arena));
    if (j->guess) WEFT_TRY(try_list(j, t, j->guess, &z, p));
    WEFT_TRY(try_list(j, t, t->usable, &z, p)); /* first fit is its first order */
    deal(t, list);
    WEFT_TRY(try_list(j, t, list, &z, p)); /* round robin is the first */
    by_speed(t, sorted);
    WEFT_TRY(try_list(j, t, sorted, &z, p));
    for (int a = j->n_axis - 1; a >= 0; a--) {
        if (j->axis[a].size == 1) continue;
        whole(t, t->usable, j->axis[a].size, list);
        WEFT_TRY(try_list(j, t, list, &z, p));
        whole(t, sorted, j->axis[a].size, list);
        WEFT_TRY(try_list(j, t, list, &z, p));
    }
    if (!p->n_tried)
        return WEFT_FAIL(WEFT_ERR_NOFIT,
                         "cluster %s: no placement of %d ranks has each on a device "
                         "that it may lie on",
                         t->c->name, p->n_rank);
    return WEFT_OK;
}

static weft_status map(const weft_place_job *j, weft_place_table *t, weft_placement *p)
{
    WEFT_TRY(weft_place__all(j, t, MOST_EXACT, p, &p->exact));
    if (p->exact) return WEFT_OK;
    WEFT_TRY(try_all_orders(j, t, p));
    return weft_place__swap(j, t, NULL, SWAP_WORK / p->n_rank, p);
}

weft_status weft_place_map(const weft_place_job *j, const weft_cluster *c,
                           weft_placement *out)
{
    weft_place_table t;
    weft_placement   p = {0};
    WEFT_TRY(weft_place__open(j, c, &t));
    weft_status st = begin(j, &p);
    if (st == WEFT_OK) st = map(j, &t, &p);
    weft_place__close(&t);
    if (st == WEFT_OK)
        *out = p;
    else
        weft_placement_fini(&p);
    return st;
}

/* ---- repair ---- */

/* Each lost rank in turn takes the idle device that costs least with the others where they are. */
static weft_status fill_lost(const weft_place_job *j, weft_place_table *t, bool *taken,
                             const bool *fixed, weft_placement *p)
{
    for (int i = 0; i < p->n_rank; i++) { /* somewhere first, so that all can be priced */
        if (fixed[i]) continue;
        int k = 0;
        while (k < t->n_usable &&
               (taken[t->usable[k]] || !weft_place__may(j, i, t->usable[k])))
            k++;
        if (k == t->n_usable)
            return WEFT_FAIL(WEFT_ERR_NOFIT,
                             "cluster %s: no device is left that rank %d may lie on",
                             t->c->name, i);
        p->device[i]        = t->usable[k];
        taken[t->usable[k]] = true;
    }
    weft_place__price(j, t, p->device, &p->price);
    p->n_tried++;
    int64_t left = REPAIR_WORK / p->n_rank + 1;
    for (int i = 0; i < p->n_rank; i++) {
        if (fixed[i]) continue;
        int last = -1;
        for (int k = 0; k < t->n_usable && left > 0; k++) {
            int                d = t->usable[k], was = p->device[i];
            weft_place_seconds s;
            if (taken[d] || t->alike[d] == last) continue; /* one of a class is enough */
            if (!weft_place__may(j, i, d)) continue;
            last         = t->alike[d];
            p->device[i] = d;
            weft_place__price(j, t, p->device, &s);
            p->n_tried++, left--;
            if (weft_place__better(&s, &p->price)) {
                p->price   = s;
                taken[was] = false;
                taken[d]   = true;
            } else {
                p->device[i] = was;
            }
        }
    }
    return WEFT_OK;
}

static weft_status repair(const weft_place_job *j, weft_place_table *t, const int *old,
                          weft_placement *p, int *n_moved)
{
    bool *usable = WEFT_ARENA_ARRAY(t->arena, bool, t->n_device);
    bool *taken  = WEFT_ARENA_ARRAY(t->arena, bool, t->n_device);
    bool *fixed  = WEFT_ARENA_ARRAY(t->arena, bool, p->n_rank + 1);
    WEFT_TRY(weft_arena_status(t->arena));
    for (int i = 0; i < t->n_usable; i++) usable[t->usable[i]] = true;
    *n_moved = 0;
    for (int i = 0; i < p->n_rank; i++) {
        int d    = old[i];
        fixed[i] = d >= 0 && d < t->n_device && usable[d] && !taken[d] &&
                   weft_place__may(j, i, d);
        if (fixed[i]) taken[d] = true;
        p->device[i] = d;
        *n_moved += !fixed[i];
    }
    WEFT_TRY(fill_lost(j, t, taken, fixed, p));
    return *n_moved > 1 ? weft_place__swap(j, t, fixed, 20000 / p->n_rank + 200, p)
                        : WEFT_OK;
}

weft_status weft_place_repair(const weft_place_job *j, const weft_cluster *c,
                              const int *old, weft_placement *out, int *n_moved)
{
    weft_place_table t;
    weft_placement   p = {0};
    WEFT_TRY(weft_place__open(j, c, &t));
    weft_status st = begin(j, &p);
    if (st == WEFT_OK) st = repair(j, &t, old, &p, n_moved);
    weft_place__close(&t);
    if (st == WEFT_OK)
        *out = p;
    else
        weft_placement_fini(&p);
    return st;
}
