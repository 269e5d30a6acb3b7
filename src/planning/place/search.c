/* Two ways to a better placement: all there are, and swaps. */
#include <stdlib.h>
#include <string.h>

#include "place/place_priv.h"

/* ---- all ---- */

typedef struct every {
    const weft_place_job *j;
    weft_place_table     *t;
    int                   n_rank, n_class;
    int                  *left;   /* devices of a class that are not taken */
    int                 **of;     /* the devices of a class */
    int                  *device; /* being built */
    int64_t               n_leaf, most;
    weft_placement       *best;
    bool                  have;
} every;

static void walk(every *e, int rank)
{
    if (e->n_leaf > e->most) return;
    if (rank == e->n_rank) {
        weft_place_seconds p;
        e->n_leaf++;
        weft_place__price(e->j, e->t, e->device, &p);
        if (e->have && !weft_place__better(&p, &e->best->price)) return;
        e->have        = true;
        e->best->price = p;
        memcpy(e->best->device, e->device, sizeof(int) * (size_t)e->n_rank);
        return;
    }
    for (int k = 0; k < e->n_class; k++) {
        if (!e->left[k] || !weft_place__may(e->j, rank, e->of[k][e->left[k] - 1]))
            continue;
        e->device[rank] = e->of[k][--e->left[k]];
        walk(e, rank + 1);
        e->left[k]++;
    }
}

/* Leaves of the walk: arrangements of n_rank out of classes, at most `most` + 1. */
static int64_t count_leaves(const int *left, int n_class, int n_rank, int64_t most)
{
    /* ways[r]: arrangements of r ranks out of the classes so far */
    double ways[16] = {1};
    if (n_rank > 15) return most + 1;
    for (int k = 0; k < n_class; k++)
        for (int r = n_rank; r > 0; r--) {
            double choose = 1; /* C(r, m): which of the r ranks are of class k */
            for (int m = 1; m <= left[k] && m <= r; m++) {
                choose = choose * (r - m + 1) / m;
                ways[r] += ways[r - m] * choose;
            }
        }
    return ways[n_rank] > (double)most ? most + 1 : (int64_t)ways[n_rank];
}

weft_status weft_place__all(const weft_place_job *j, weft_place_table *t, int64_t most,
                            weft_placement *p, bool *done)
{
    weft_arena *a = t->arena;
    int *class    = WEFT_ARENA_ARRAY(a, int, t->n_usable + 1);
    every e       = {.j = j, .t = t, .n_rank = p->n_rank, .most = most, .best = p};
    *done         = false;
    if (p->n_rank > 15 || t->n_usable > 4096) return WEFT_OK;
    e.left   = WEFT_ARENA_ARRAY(a, int, t->n_usable + 1);
    e.of     = WEFT_ARENA_ARRAY(a, int *, t->n_usable + 1);
    e.device = WEFT_ARENA_ARRAY(a, int, p->n_rank);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < t->n_usable; i++) {
        int d = t->usable[i], k = e.n_class - 1;
        if (k < 0 || class[k] != t->alike[d]) {
            k        = e.n_class++;
            class[k] = t->alike[d];
            e.of[k]  = WEFT_ARENA_ARRAY(a, int, t->n_usable);
            WEFT_TRY(weft_arena_status(a));
        }
        e.of[k][e.left[k]++] = d;
    }
    for (int k = 0; k < e.n_class; k++) /* so that --left takes the first first */
        for (int i = 0, n = e.left[k]; i < n / 2; i++) {
            int v              = e.of[k][i];
            e.of[k][i]         = e.of[k][n - 1 - i];
            e.of[k][n - 1 - i] = v;
        }
    if (count_leaves(e.left, e.n_class, p->n_rank, most) > most) return WEFT_OK;
    walk(&e, 0);
    p->n_tried += e.n_leaf;
    *done = e.have;
    return WEFT_OK;
}

/* ---- swaps ---- */

static uint64_t next_random(uint64_t *s)
{
    *s += 0x9e3779b97f4a7c15u; /* splitmix64, its published constants */
    uint64_t z = *s;
    z          = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z          = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

weft_status weft_place__swap(const weft_place_job *j, weft_place_table *t,
                             const bool *fixed, int n_try, weft_placement *p)
{
    int     *idle = WEFT_ARENA_ARRAY(t->arena, int, t->n_usable + 1), n_idle = 0;
    bool    *taken = WEFT_ARENA_ARRAY(t->arena, bool, t->n_device);
    uint64_t seed  = 1;
    WEFT_TRY(weft_arena_status(t->arena));
    for (int i = 0; i < p->n_rank; i++) taken[p->device[i]] = true;
    for (int i = 0; i < t->n_usable; i++)
        if (!taken[t->usable[i]]) idle[n_idle++] = t->usable[i];
    for (int i = 0; i < n_try; i++) {
        uint64_t x       = next_random(&seed);
        int      a       = (int)((x >> 32) % (uint64_t)p->n_rank);
        uint64_t m       = (x & 0xffffffffu) % (uint64_t)(p->n_rank + n_idle);
        bool     to_idle = m >= (uint64_t)p->n_rank;
        int     *other   = to_idle ? &idle[m - (uint64_t)p->n_rank] : &p->device[m];
        weft_place_seconds s;
        if (t->alike[*other] == t->alike[p->device[a]]) continue;
        if (!weft_place__may(j, a, *other)) continue;
        if (!to_idle && !weft_place__may(j, (int)m, p->device[a])) continue;
        if (fixed && (fixed[a] || (!to_idle && fixed[m]))) continue;
        int was      = p->device[a];
        p->device[a] = *other;
        *other       = was;
        weft_place__price(j, t, p->device, &s);
        p->n_tried++;
        if (weft_place__better(&s, &p->price)) {
            p->price = s;
        } else {
            *other       = p->device[a];
            p->device[a] = was;
        }
    }
    return WEFT_OK;
}
