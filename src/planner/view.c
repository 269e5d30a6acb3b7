/* Which device each rank of a choice has, and the cluster in their order.
 *
 * A search says of each stage which kinds of devices it lies on; kinds are used up in the order in which they come along
 * the pipeline, whole nodes first.  Of a stage on two kinds the first has the rest of one and the beginning of the
 * next. */
#include <string.h>

#include "planner/planner_priv.h"

typedef struct pool {
    int n, next, *device; /* of one kind, in the order they are dealt */
} pool;

/* Devices of kind k that groups of tp can use (weft_search_usable). */
static weft_status fill_pool(const weft_cluster *c, const weft_search_machine *k, int tp,
                             weft_arena *arena, pool *out)
{
    weft_device_run r;
    int             at = 0, most = weft_search_usable(k, tp);
    bool            wide = tp > k->per_node || k->per_node % tp; /* over nodes */
    out->device          = WEFT_ARENA_ARRAY(arena, int, most + 1);
    WEFT_TRY(weft_arena_status(arena));
    for (int part = 0; part < (wide ? 1 : 2); part++)
        for (at = 0; weft_cluster_next_run(c, &at, &r);) {
            if (r.cordoned || r.node - c->node != k->node || r.speed != k->speed ||
                r.link != k->link)
                continue;
            for (int d = r.first, each; d < r.first + r.n; d += each) {
                int in = (d - r.node->first_rank) % r.node->n_device;
                each   = r.node->n_device - in;
                if (each > r.first + r.n - d) each = r.first + r.n - d;
                bool whole = each == r.node->n_device;
                int  take  = whole == !part ? (whole ? each : each / tp * tp) : 0;
                for (int i = 0; i < take && out->n < most; i++)
                    out->device[out->n++] = d + i;
            }
        }
    return WEFT_OK;
}

static int take(pool *p, int want, int *device)
{
    int n = p->n - p->next < want ? p->n - p->next : want;
    memcpy(device, p->device + p->next, sizeof *device * (size_t)n);
    p->next += n;
    return n;
}

/* The kinds of a stage in the order they are dealt: the one that the next stage goes on with comes last. */
static int order_of(const weft_search_choice *x, int stage, int n_kind, int *order)
{
    unsigned now  = x->point.kinds[stage];
    unsigned next = stage + 1 < x->point.pp ? x->point.kinds[stage + 1] : 0;
    int      n    = 0;
    for (int late = 0; late < 2; late++)
        for (int k = 0; k < n_kind; k++)
            if (now >> k & 1 && (int)(next >> k & 1) == late) order[n++] = k;
    return n;
}

weft_status weft_planner__devices(const weft_planner_ask *q, const weft_planner_answer *a,
                                  const weft_search_choice *x, weft_arena *arena,
                                  int **device, int *n)
{
    pool p[WEFT_COST_MAX_DEVICE] = {0};
    int  S  = x->variant.tp * x->variant.cp * x->point.dp, order[WEFT_COST_MAX_DEVICE];
    *n      = S * x->point.pp;
    *device = WEFT_ARENA_ARRAY(arena, int, *n);
    WEFT_TRY(weft_arena_status(arena));
    for (int k = 0; k < a->machines.n; k++)
        WEFT_TRY(
            fill_pool(q->cluster, &a->machines.kind[k], x->variant.tp, arena, &p[k]));
    for (int s = 0; s < x->point.pp; s++) {
        int have = 0, n_kind = order_of(x, s, a->machines.n, order);
        for (int i = 0; i < n_kind; i++)
            have += take(&p[order[i]], S - have, *device + s * S + have);
        if (have < S)
            return WEFT_FAIL(WEFT_ERR_INTERNAL, "stage %d has %d of %d devices", s, have,
                             S);
    }
    return WEFT_OK;
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

weft_status weft_planner__priced(const weft_planner_ask *q, const char *precision,
                                 weft_cluster **out)
{
    weft_arena *tmp = NULL;
    weft_status st  = WEFT_OK;
    int         n   = weft_cluster_count(q->cluster);
    *out            = NULL;
    if (!strcmp(precision, "bf16") || !strcmp(precision, "fp32")) return WEFT_OK;
    WEFT_TRY(weft_arena_create(&tmp));
    int *all = WEFT_ARENA_ARRAY(tmp, int, n);
    WEFT_GO(weft_arena_status(tmp));
    for (int i = 0; i < n; i++) all[i] = i;
    WEFT_GO(weft_planner__view(q->cluster, precision, all, n, out));
out:
    weft_arena_destroy(tmp);
    return st;
}
