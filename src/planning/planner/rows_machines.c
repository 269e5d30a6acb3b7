/* Devices and wires with the numbers by which programs are priced: asked of the prices
 * themselves. */
#include <math.h>
#include <string.h>

#include "cost/cost.h"
#include "cost/ports.h"
#include "planner/rows_priv.h"

/* Seconds of an all-reduce of n ranks from `first` on, stride apart; or of a message to the next
 * of them. */
static weft_status price(const weft_cluster *c, int world, weft_instr_kind kind,
                         int first, int n, int stride, int64_t bytes, double *out)
{
    int32_t      rank[64];
    weft_group   g = {.n_rank = n, .rank = rank};
    weft_program p = {.rank = first, .world = world, .n_group = 1, .group = &g};
    weft_operand o =
        weft_operand_make(0, WEFT_DTYPE_F32, &(weft_shape){.n = 1, .d = {bytes / 4}});
    weft_instr i = {.kind    = kind,
                    .peer    = first + stride,
                    .coll    = WEFT_ALL_REDUCE,
                    .n_in    = 1,
                    .in      = &o,
                    .n_out   = 1,
                    .out     = &o,
                    .seconds = -1};
    for (int k = 0; k < n; k++) rank[k] = first + k * stride;
    return weft_cost_instr(&p, &i, c, out);
}

/* alpha and bandwidth that a group of n sees: 2 ceil(log2 n) alpha + 2 (n-1)/n bytes / Bps. */
static weft_status measure(const weft_cluster *c, int world, int first, int n, int stride,
                           double *alpha_s, double *Bps)
{
    const double          bytes = 1 << 30;
    const weft_instr_kind sum   = WEFT_INSTR_COLLECTIVE;
    double                none, all;
    WEFT_TRY(price(c, world, sum, first, n, stride, 0, &none));
    WEFT_TRY(price(c, world, sum, first, n, stride, (int64_t)bytes, &all));
    *alpha_s = none / (2 * ceil(log2(n)));
    *Bps     = 2 * (n - 1.0) / n * bytes / (all - none);
    return WEFT_OK;
}

static weft_status measure_send(const weft_cluster *c, int world, int first, int stride,
                                weft_cost_wire *w)
{
    const int64_t bytes = 1 << 30;
    double        all;
    WEFT_TRY(price(c, world, WEFT_INSTR_SEND, first, 2, stride, 0, &w->send_s));
    WEFT_TRY(price(c, world, WEFT_INSTR_SEND, first, 2, stride, bytes, &all));
    w->send_Bps = (double)bytes / (all - w->send_s);
    return WEFT_OK;
}

/* Devices from `first` on that are joined by links of their own. */
static weft_status find_domain(const weft_cluster *c, int first, int n_all, int *out)
{
    weft_group_shape s;
    *out = 1;
    for (int n = 2; n <= n_all && n <= 4096; n++) {
        WEFT_TRY(weft_cluster_group_stride(c, first, n, 1, &s));
        if (s.n_island > 1) break;
        *out = n;
    }
    return WEFT_OK;
}

/* What was timed on the links of a domain is looked up, not fitted. */
static weft_status find_timed(const weft_cluster *c, int first, weft_cost_fabric *f)
{
    weft_group_shape s;
    if (!c->n_timing || f->domain < 2) return WEFT_OK;
    WEFT_TRY(weft_cluster_group_stride(c, first, 2, 1, &s));
    const weft_link_kind *l = s.inner.link;
    if (!l) return WEFT_OK;
    f->timed = c;
    f->link  = (int)(l - c->link);
    f->slow  = l->Bps * l->share / s.inner.Bps;
    return WEFT_OK;
}

/* The network of the kind whose first device this is: towards the next island, or the one before
 * the last. */
static weft_status read_ports(const weft_cluster *c, int first, weft_cost_fabric *f)
{
    weft_rank_range island = weft_cluster_island_ranks(c, first);
    int             next = island.first + island.n, n_all = weft_cluster_count(c);
    weft_path       w;
    f->out = f->in;
    if (next >= n_all) next = island.first - 1;
    if (next < 0) return WEFT_OK; /* there is no other */
    WEFT_TRY(weft_cluster_path(c, first, next, &w));
    f->node = weft_cluster_node_ranks(c, first).n;
    if (!weft_cluster_ports(c, first, w.level, &f->port_Bps, &f->ports_Bps))
        return WEFT_OK;
    double Bps = weft_cost_port_share(f->port_Bps, f->ports_Bps, f->node);
    f->out     = (weft_cost_wire){.alpha_s = w.alpha_s, .Bps = Bps};
    return WEFT_OK;
}

weft_status weft_planner__read_links(const weft_cluster *of, int world, int first,
                                     weft_cost_fabric *f)
{
    weft_cluster plain = *of, *c = &plain;
    int          n_all = world - first;
    *f                 = (weft_cost_fabric){.levels = true, .domain = 1};
    WEFT_TRY(find_domain(of, first, n_all, &f->domain));
    WEFT_TRY(find_timed(of, first, f));
    plain.n_timing = 0; /* where nothing was timed, the links' numbers count */
    int n          = f->domain < 64 ? f->domain : 64;
    if (n > 1) {
        int few = n < 4 ? n : 4;
        WEFT_TRY(measure(c, world, first, 2, 1, &f->in.alpha_2_s, &f->in.Bps_2));
        WEFT_TRY(measure(c, world, first, few, 1, &f->in.alpha_4_s, &f->in.Bps_4));
        WEFT_TRY(measure(c, world, first, n, 1, &f->in.alpha_s, &f->in.Bps));
        WEFT_TRY(measure_send(c, world, first, 1, &f->in));
    }
    WEFT_TRY(read_ports(c, first, f));
    if (n < 2) f->in = f->out;
    return WEFT_OK;
}

/* The cluster's own numbers of a kind's device, slowed by its health. */
static void take_device(const weft_device_kind *d, weft_search_machine *m)
{
    const char *name = m->device.name;
    m->device        = *d;
    m->device.name   = name;
    m->device.rate   = m->rate;
    m->device.n_rate =
        d->n_rate < (int)WEFT_COUNT(m->rate) ? d->n_rate : (int)WEFT_COUNT(m->rate);
    memcpy(m->rate, d->rate, sizeof *m->rate * (size_t)m->device.n_rate);
    for (int i = 0; i < m->device.n_rate; i++) m->rate[i].flops *= m->speed;
    m->device.mem_Bps *= m->speed;
}

weft_status weft_planner_machines(const weft_cluster *c, weft_arena *a,
                                  weft_search_machines *out)
{
    weft_cost_constants *k  = NULL;
    weft_status          st = WEFT_OK;
    weft_device_run      r;
    int                  at = 0, world = 0;
    WEFT_TRY(weft_cost_constants_create(&k));
    WEFT_GO(weft_search_machines_of(c, k, a, out));
    while (weft_cluster_next_run(c, &at, &r))
        if (!r.cordoned) world = r.first + r.n;
    for (int i = 0; i < out->n; i++) {
        weft_search_machine *m    = &out->kind[i];
        bool                 done = false;
        for (at = 0; !done && weft_cluster_next_run(c, &at, &r);) {
            if (r.cordoned || r.node - c->node != m->node || r.speed != m->speed ||
                r.link != m->link)
                continue;
            take_device(r.device, m);
            WEFT_GO(weft_planner__read_links(c, world, r.first, &m->fabric));
            done = true;
        }
    }
out:
    weft_cost_constants_destroy(k);
    return st;
}
