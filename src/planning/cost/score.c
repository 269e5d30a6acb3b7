/* Points composed from rows; see score.h. */
#include "cost/score.h"

#include <math.h>

#include "cost/score_priv.h"

typedef weft_cost__stage  stage;
typedef weft_cost__stalls stalls;

typedef struct sums {
    double slow_s, sum_s, dp_s, optimizer_s, most_param;
    stage  slow;
    int    slow_device;
} sums;

/* Stages s .. s+run-1, which are alike: of those the first holds the most activations. */
static void add_stages(const weft_cost_table *t, const weft_cost_point *p, int s, int run,
                       int from, int n, const stalls *w, sums *z, weft_cost_score *out)
{
    int    kinds = weft_cost__kinds(p, s);
    double worst = -1;
    for (int d = 0; d < t->n_device; d++) {
        if (!(kinds >> d & 1)) continue;
        stage x = weft_cost__sum_stage(t, p, d, kinds, from, n, s);
        weft_cost__apply_stalls(&x, w);
        weft_cost__add_memory(t, p, d, s, &x, out);
        worst = fmax(worst, x.fwd_s + x.bwd_s);
        if (x.fwd_s + x.bwd_s > z->slow_s) {
            z->slow_s      = x.fwd_s + x.bwd_s;
            z->slow        = x;
            z->slow_device = d;
        }
        /* of devices alike those with more parameters wait longer */
        if (p->kinds || x.n_param + x.n_expert > z->most_param) {
            z->most_param = x.n_param + x.n_expert;
            z->dp_s       = fmax(z->dp_s, weft_cost__replica_seconds(t, p, d, &x));
            z->optimizer_s =
                fmax(z->optimizer_s, weft_cost__optimizer_seconds(t, p, d, &x));
        }
    }
    if (worst > 0) z->sum_s += run * worst;
}

static void add_wires(const weft_cost_table *t, const weft_cost_point *p, int device,
                      int from, int n, int s, weft_cost_stage *out)
{
    const weft_cost_row *r  = weft_cost__rows(t, device, p->variant);
    int                  at = 0;
    for (int i = 0; i < t->n_segment; i++) {
        int end = at + t->segment[i].count;
        int lo = from > at ? from : at, hi = from + n < end ? from + n : end;
        const weft_cost_row *x = &r[t->segment[i].layer_class];
        for (int k = 0; k < WEFT_COST_N_TRAFFIC && hi > lo; k++)
            out->wire_bytes[k] += (hi - lo) * x->wire_bytes[k];
        if (hi > lo) out->out_bytes = x->out_bytes;
        at = end;
    }
    for (int k = 0; k < WEFT_COST_N_TRAFFIC; k++) {
        if (s == 0 && t->first >= 0) out->wire_bytes[k] += r[t->first].wire_bytes[k];
        if (s == p->pp - 1 && t->last >= 0)
            out->wire_bytes[k] += r[t->last].wire_bytes[k];
    }
}

/* Stage s on device kind d, where it is slower, or fuller, than what out has. */
static void add_kind(const weft_cost_table *t, const weft_cost_point *p, int d, int s,
                     int from, int n, weft_cost_stage *out)
{
    int             kinds = weft_cost__kinds(p, s);
    stage           x     = weft_cost__sum_stage(t, p, d, kinds, from, n, s);
    weft_cost_score full  = {.tightest = -1};
    stalls          w     = weft_cost__stalls_of(t, p);
    weft_cost__apply_stalls(&x, &w);
    weft_cost__add_memory(t, p, d, s, &x, &full);
    out->dp_s        = fmax(out->dp_s, weft_cost__replica_seconds(t, p, d, &x));
    out->optimizer_s = fmax(out->optimizer_s, weft_cost__optimizer_seconds(t, p, d, &x));
    if (x.fwd_s + x.bwd_s > out->fwd_s + out->bwd_s) {
        out->device  = d;
        out->fwd_s   = x.fwd_s;
        out->bwd_s   = x.bwd_s;
        out->again_s = x.again_s;
        out->comm_s  = x.comm_s;
        out->host_s  = x.host_s;
    }
    if (out->mem_limit > 0 &&
        full.mem_bytes - full.mem_limit <= out->mem_bytes - out->mem_limit)
        return;
    out->mem_device   = d;
    out->mem_bytes    = full.mem_bytes;
    out->mem_limit    = full.mem_limit;
    out->grad_bytes   = weft_cost__held_by(t, p, s, &x).grad;
    out->weight_bytes = full.weight_bytes - out->grad_bytes;
    out->state_bytes  = full.state_bytes;
    out->keep_bytes   = full.keep_bytes;
    out->work_bytes   = full.work_bytes;
    out->engine_bytes = full.engine_bytes;
    out->n_param      = x.n_param + x.n_expert;
}

void weft_cost_score_stages(const weft_cost_table *t, const weft_cost_point *of,
                            weft_cost_stage *out)
{
    weft_cost_point        all = *of;
    const weft_cost_point *p   = &all;
    int                    n = 0, from = 0;
    if (t->programs) weft_cost__own_deal(t, &all);
    for (int i = 0; i < t->n_segment; i++) n += t->segment[i].count;
    for (int s = 0; s < p->pp; s++) {
        int mine  = p->cut ? p->cut[s] : weft_cost_even_cut(n, p->pp, s);
        int kinds = weft_cost__kinds(p, s);
        out[s]    = (weft_cost_stage){.n_layer = mine};
        for (int d = 0; d < t->n_device; d++)
            if (kinds >> d & 1) add_kind(t, p, d, s, from, mine, &out[s]);
        add_wires(t, p, out[s].device, from, mine, s, &out[s]);
        from += mine;
    }
}

/* Messages of a micro-batch to the next stage and back, as far as they are waited for. */
static double between(const weft_cost_table *t, const weft_cost_point *p)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    if (p->pp < 2) return 0;
    double bytes = weft_cost__rows(t, 0, p->variant)[t->segment[0].layer_class].out_bytes;
    if (t->engine.pp_whole > 0.5) bytes *= v->tp;
    if (!(t->engine.pp_exposed > 0)) return 0;
    return weft_cost__slowest_hop(t, p, bytes) * 2 * t->engine.pp_exposed * p->chunks;
}

static double idle_seconds(const weft_cost_table *t, const weft_cost_point *p,
                           double slow_s, double sum_s, double p2p_s)
{
    const weft_cost_engine *e = &t->engine;
    double pass_s = p->chunks * e->micro_s, ends = (p->pp - 1) * (p2p_s + pass_s);
    double idle = e->bubble * (sum_s - slow_s + ends) / p->chunks;
    return p->schedule == WEFT_COST_ZERO_BUBBLE ? idle / 3 : idle;
}

double weft_cost_floor(const weft_cost_table *t, const weft_cost_point *p, double slow_s,
                       double sum_s)
{
    weft_cost_point q   = *p;
    double          p2p = between(t, p);
    if (t->programs && !t->rounds) weft_cost__own_deal(t, &q);
    return q.n_micro * (slow_s + p2p + p->chunks * t->engine.micro_s) + t->engine.step_s +
           idle_seconds(t, p, slow_s, fmax(slow_s, sum_s), p2p);
}

/* An engine that is too full: of a single stage the host cannot run ahead, and stalls as in
 * stages, at least stall_s. */
static void add_thrash(const weft_cost_table *t, const weft_cost_point *p, double stall_s,
                       weft_cost_score *out)
{
    double full = out->mem_bytes / out->mem_limit;
    if (!(t->engine.thrash > 0) || !(out->mem_bytes > out->mem_limit)) return;
    double more = out->step_s * expm1(t->engine.thrash * fmin(full - 1, 0.1));
    if (p->pp == 1) more = fmax(more, stall_s);
    out->step_s += more;
    out->host_s += more;
}

void weft_cost_score_point(const weft_cost_table *t, const weft_cost_point *p,
                           weft_cost_score *out)
{
    if (p->deal.n) {
        weft_cost__score_deal(t, p, out);
        return;
    }
    const weft_cost_engine *e = &t->engine;
    sums                    z = {.slow_s = -1};
    int                     n = 0, from = 0;
    *out = (weft_cost_score){.tightest = -1};
    for (int i = 0; i < t->n_segment; i++) n += t->segment[i].count;
    if (t->programs) {
        weft_cost__score_program(t, p, n, out);
        return;
    }
    stalls w = weft_cost__stalls_of(t, p);
    for (int s = 0, run; s < p->pp; s += run) {
        int mine = p->cut ? p->cut[s] : weft_cost_even_cut(n, p->pp, s);
        run      = weft_cost__alike(t, p, n, s, from, mine);
        add_stages(t, p, s, run, from, mine, &w, &z, out);
        from += run * mine;
    }
    double m = p->n_micro, p2p = between(t, p), pass_s = p->chunks * e->micro_s;
    double idle      = idle_seconds(t, p, z.slow_s, z.sum_s, p2p);
    out->compute_s   = m * (z.slow_s - z.slow.comm_s - z.slow.host_s - z.slow.again_s);
    out->comm_s      = m * z.slow.comm_s;
    out->host_s      = m * z.slow.host_s;
    out->again_s     = m * z.slow.again_s;
    out->p2p_s       = m * p2p;
    out->bubble_s    = idle;
    out->dp_s        = z.dp_s;
    out->optimizer_s = z.optimizer_s;
    out->fixed_s     = e->step_s + m * pass_s;
    out->step_s = m * (z.slow_s + p2p) + idle + z.dp_s + z.optimizer_s + out->fixed_s;
    add_thrash(t, p, m * (n * weft_cost__stall(t, p) - z.slow_s), out);
}
