/* Which device each rank of a choice has, and the cluster in their order. */
#include <string.h>

#include "planner/planner_priv.h"

static bool has_node(const weft_search_constraints *p)
{
    for (int i = 0; i < p->n_on; i++)
        if (p->on[i].node >= 0) return true;
    return false;
}

static const weft_cluster *cluster_of(const weft_planner_workspace *w)
{
    return w->priced ? w->priced : w->request.cluster;
}

weft_status weft_planner__plain_devices(const weft_planner_workspace *w,
                                        const weft_search_choice *x, weft_arena *arena,
                                        int **device)
{
    *device = NULL;
    if (w->request.was || has_node(&w->problem.constraints)) return WEFT_OK;
    *device = WEFT_ARENA_ARRAY(arena, int, weft_search_ranks(x));
    WEFT_TRY(weft_arena_status(arena));
    return weft_planner_deal(&w->problem, x, cluster_of(w), arena, *device);
}

weft_status weft_planner__place(weft_planner_workspace *w, const weft_search_choice *x,
                                bool plain, weft_arena *arena,
                                weft_planner_placement *out)
{
    weft_planner_was    was;
    const weft_cluster *c      = cluster_of(w);
    int                *device = NULL, n;
    if (has_node(&w->problem.constraints))
        WEFT_TRY(weft_planner__pinned_devices(w, x, arena, &device, &n));
    else if (plain)
        WEFT_TRY(weft_planner__plain_devices(w, x, arena, &device));
    if (device) return weft_planner_place_on(&w->problem, x, c, device, arena, out);
    if (w->request.was) WEFT_TRY(weft_planner_was_of(w->request.was, arena, &was));
    return weft_planner_place(&w->problem, x, c, w->request.was ? &was : NULL, arena,
                              out);
}

/* A program in bf16 stands for one in any 16 or 8 bits: it is priced as that. */
static weft_status know_rate(weft_cluster *c, const char *precision)
{
    const char *name = !strcmp(precision, "fp16")  ? "f16"
                       : !strcmp(precision, "fp8") ? "f8_e4m3"
                                                   : NULL;
    for (int i = 0; name && i < c->n_device; i++) {
        weft_device_kind *d  = &c->device[i];
        weft_flop_rate *rate = WEFT_ARENA_ARRAY(c->arena, weft_flop_rate, d->n_rate + 1);
        int             n = 0, from = -1;
        WEFT_TRY(weft_arena_status(c->arena));
        for (int k = 0; k < d->n_rate; k++)
            if (!strcmp(d->rate[k].dtype, name)) from = k;
        if (from < 0) continue;
        for (int k = 0; k < d->n_rate; k++)
            if (strcmp(d->rate[k].dtype, "bf16")) rate[n++] = d->rate[k];
        rate[n]         = d->rate[from];
        rate[n++].dtype = "bf16";
        d->rate         = rate;
        d->n_rate       = n;
    }
    return WEFT_OK;
}

weft_status weft_planner__view(const weft_cluster *c, const char *precision,
                               const int *device, int n, weft_cluster **out)
{
    weft_cluster *v = NULL;
    WEFT_TRY(weft_cluster_pick(c, device, n, &v));
    weft_status st = know_rate(v, precision);
    if (st == WEFT_OK)
        *out = v;
    else
        weft_cluster_destroy(v);
    return st;
}

const char *weft_planner__priced_as(const weft_planner_workspace *w)
{
    const char *p = w->config.precision;
    return w->is_rows && !strcmp(p, "fp8") ? "bf16" : p;
}

weft_status weft_planner__priced(const weft_cluster *c, const char *precision,
                                 weft_cluster **out)
{
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    int         n   = weft_cluster_count(c);
    *out            = NULL;
    if (!strcmp(precision, "bf16") || !strcmp(precision, "fp32")) return WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    int *all = WEFT_ARENA_ARRAY(tmp, int, n);
    WEFT_GO(weft_arena_status(tmp));
    for (int i = 0; i < n; i++) all[i] = i;
    WEFT_GO(weft_planner__view(c, precision, all, n, out));
out:
    weft_arena_destroy(tmp);
    return st;
}
