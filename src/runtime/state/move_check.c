#include "state/move_check.h"

#include <stdlib.h>

/* ---- right? ---- */

static bool is_inside(const weft_region *r, const weft_part *p)
{
    weft_region common;
    int64_t     n = 0;
    for (int64_t k = 0; p && k < weft_part_boxes(p); k++) {
        weft_region box = weft_part_box(p, k);
        if (weft_region_intersect(r, &box, &common)) n += weft_region_count(&common);
    }
    return n == weft_region_count(r);
}

/* Moves of one tensor to one rank: at[0..n-1] of the list. */
static weft_status verify_part(const weft_move_list *l, const int *at, int n,
                               const weft_holders *old, const weft_part *part,
                               const weft_held_tensor *t, int to)
{
    weft_region common;
    int64_t     count = 0;
    for (int i = 0; i < n; i++) {
        const weft_move *m = &l->move[at[i]];
        count += weft_region_count(&m->region);
        if (!is_inside(&m->region, part))
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: rank %d gets what it does not need",
                             t->name, to);
        if (!is_inside(&m->region, weft_holders_part(old, m->tensor, m->from)))
            return WEFT_FAIL(WEFT_ERR_INTERNAL,
                             "%s: rank %d is to get what holder %d does not have",
                             t->name, to, m->from);
        for (int k = 0; k < i; k++)
            if (weft_region_intersect(&m->region, &l->move[at[k]].region, &common))
                return WEFT_FAIL(WEFT_ERR_INTERNAL,
                                 "%s: rank %d gets some elements twice", t->name, to);
    }
    if (count == weft_part_count(part)) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: rank %d lacks %lld elements", t->name, to,
                     (long long)(weft_part_count(part) - count));
}

/* The list by target and rank: first[target * n_rank + rank] .. the next in `at`. */
typedef struct move_index {
    int *first, *at;
    int  n_rank;
} move_index;

static weft_status index_moves(const weft_move_list *l, const weft_holders *new,
                               move_index           *x)
{
    int n     = new->n_tensor *new->n_rank;
    x->n_rank = new->n_rank;
    x->first  = calloc((size_t)n + 2, sizeof *x->first);
    x->at     = calloc((size_t)l->n + 1, sizeof *x->at);
    if (!x->first || !x->at) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    for (int i = 0; i < l->n; i++) {
        const weft_move *m = &l->move[i];
        if (m->target < 0 || m->target >= new->n_tensor || m->to < 0 ||
            m->to >= new->n_rank)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "a move to tensor %d of rank %d",
                             m->target, m->to);
        x->first[m->target * x->n_rank + m->to + 2]++;
    }
    for (int k = 0; k < n; k++) x->first[k + 1] += x->first[k];
    for (int i = 0; i < l->n; i++) {
        const weft_move *m                                   = &l->move[i];
        x->at[x->first[m->target * x->n_rank + m->to + 1]++] = i;
    }
    return WEFT_OK;
}

static weft_status verify_tensor(const weft_move_list *l, const move_index *x,
                                 const weft_holders *old, const weft_holders *new,
                                 int                 target)
{
    const weft_held_tensor *t = &new->tensor[target];
    for (int r = 0; r < new->n_rank; r++) {
        const weft_part *part = weft_holders_part(new, target, r);
        const int       *at   = x->at + x->first[target * x->n_rank + r];
        int n = x->first[target * x->n_rank + r + 1] - x->first[target * x->n_rank + r];
        if (!part && !n) continue;
        WEFT_TRY(verify_part(l, at, n, old, part, t, r));
    }
    return WEFT_OK;
}

weft_status weft_move_verify(const weft_move_list *l, const weft_holders *old,
                             const weft_holders *new)
{
    move_index  x  = {0};
    weft_status st = index_moves(l, new, &x);
    for (int t = 0; st == WEFT_OK && t < new->n_tensor; t++)
        if (weft_holders_find(old, new->tensor[t].name, t) >= 0)
            st = verify_tensor(l, &x, old, new, t);
    free(x.first);
    free(x.at);
    return st;
}

/* ---- what it takes ---- */

double weft_move_simulate(const weft_move_load *load, const weft_move_routes *routes,
                          const weft_move_speed *speed)
{
    double copy_s = 0, port_s = 0;
    for (int r = 0; r < routes->world; r++) {
        double x = load[r].make_s;
        if (speed->copy_Bps > 0) x += (double)load[r].copied / speed->copy_Bps;
        if (x > copy_s) copy_s = x;
    }
    for (int r = 0; r < routes->world && routes->host && speed->port_Bps > 0; r++) {
        double in = 0, out = 0; /* of the host of rank r */
        for (int k = 0; k < routes->world; k++) {
            if (routes->host[k] != routes->host[r]) continue;
            in += (double)load[k].received;
            out += (double)load[k].sent;
        }
        double bytes = in > out ? in : out;
        double x     = bytes > 0 ? speed->alpha_s + bytes / speed->port_Bps : 0;
        if (x > port_s) port_s = x;
    }
    return copy_s + port_s;
}
