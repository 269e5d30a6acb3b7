/* What a stage does once a step: gradients summed, weights handed round, the optimizer. */
#include <math.h>

#include "cost/score_priv.h"

typedef weft_cost__stage stage;

/* Waiting for t_s when of it only so much can hide behind cover_s. */
static double wait_for(double t_s, double share, double cover_s)
{
    return share * t_s + (1 - share) * fmax(0, t_s - cover_s);
}

/* Passes that gradient sums can hide behind.  Where the plan overlaps them, weights come in
 * during the first pass; of interleaved stages all chunks but one are done while pp micro-batches
 * still go through the others. */
static double hiding(const weft_cost_engine *e, const weft_cost_point *p, const stage *x)
{
    if (!p->dp_overlap) return e->dp_cover * x->bwd_s;
    double passes = p->pp * (1 - 1.0 / p->chunks);
    return 0.9 * (x->fwd_s + x->bwd_s) * fmax(1, fmin(passes, p->n_micro));
}

/* Of n_param parameters on a device that the ranks of g share. */
static double sum_seconds(const weft_cost_table *t, const weft_cost_point *p,
                          const weft_cost_fabric *f, weft_cost_group g, double n_param,
                          const stage *x)
{
    const weft_cost_engine *e = &t->engine;
    double          sum = n_param * t->grad_bytes, part = n_param * t->param_bytes;
    double          hide  = p->dp_overlap ? e->dp_overlap : 1;
    double          cover = hiding(e, p, x);
    weft_cost_group in = g, over = {1, 1};
    if (p->zero > 0 && p->zero_group > 1 && p->zero_group < g.n) {
        in.n = p->zero_group;
        over = (weft_cost_group){g.n / in.n, g.stride * in.n};
    }
    double rounds = e->dp_calls * (x->n_layer + 1) * (g.n - 1) * f->in.alpha_s;
    if (p->zero == 0 && p->pp > 1) rounds *= e->dp_calls_pp;
    if (p->zero == 0) {
        double s = weft_cost_group_seconds(f, g, WEFT_ALL_REDUCE, sum) + rounds;
        return wait_for(s, hide * (p->pp > 1 ? e->dp_exposed_pp : e->dp_exposed), cover);
    }
    double calls  = p->zero < 3 ? 1 : x->n_layer + 1; /* zero 3: layer by layer */
    double reduce = weft_cost_group_seconds(f, in, WEFT_REDUCE_SCATTER, sum / calls) +
                    weft_cost_group_seconds(f, over, WEFT_ALL_REDUCE, sum / in.n / calls);
    double gather = weft_cost_group_seconds(f, in, WEFT_ALL_GATHER, part / in.n / calls);
    if (p->zero < 3)
        return wait_for(reduce + gather + 2 * rounds, hide * e->zero_exposed, cover);
    double s     = calls * (2 * gather + reduce) / e->gather_share;
    double under = e->dp_cover * (x->fwd_s + x->bwd_s);
    return p->n_micro * wait_for(s, e->gather_exposed, under);
}

double weft_cost__replica_seconds(const weft_cost_table *t, const weft_cost_point *p,
                                  int device, const stage *x)
{
    if (t->programs) return weft_cost__own_before(t, p, device, &x->own);
    const weft_cost_variant *v = &t->variant[p->variant];
    weft_cost_fabric         tmp;
    const weft_cost_fabric  *f   = weft_cost__fabric_of(t, p, device, x->own.kinds, &tmp);
    weft_cost_group          all = {p->dp * v->cp, v->tp};
    weft_cost_group          of_expert = {p->dp * v->cp * v->tp / v->ep, v->ep};
    double                   s         = 0;
    if (all.n > 1 && x->n_param > 0) s += sum_seconds(t, p, f, all, x->n_param, x);
    if (of_expert.n > 1 && x->n_expert > 0)
        s += sum_seconds(t, p, f, of_expert, x->n_expert, x);
    return s;
}

double weft_cost__optimizer_seconds(const weft_cost_table *t, const weft_cost_point *p,
                                    int device, const stage *x)
{
    const weft_cost_variant *v = &t->variant[p->variant];
    const weft_device_kind  *d = &t->device[device];
    if (t->programs) return weft_cost__own_after(t, p, device, &x->own);
    /* read gradient, weight, both moments; write weight (32 and 16 bits) and moments; gradients are
     * cleared and their norm is taken */
    double per = 16 + 14, every = 2 * t->grad_bytes;
    double bytes = per * (x->n_param / weft_cost__shards(p, v) +
                          x->n_expert / weft_cost__expert_shards(p, v)) +
                   every * (x->n_param + x->n_expert);
    return t->engine.optimizer * bytes / (d->mem_Bps * (d->stream > 0 ? d->stream : 1));
}

/* Of all stages the one with most parameters has at least the average, and what it waits for is
 * not less. */
double weft_cost_floor_param(const weft_cost_table *t, const weft_cost_point *p)
{
    const weft_cost_row *r   = weft_cost__rows(t, 0, p->variant);
    stage                x   = {.fwd_s = 1e30, .bwd_s = 1e30};
    double               out = INFINITY;
    for (int i = 0; i < t->n_segment; i++) {
        const weft_cost_row *k = &r[t->segment[i].layer_class];
        x.n_param += t->segment[i].count * k->n_param;
        x.n_expert += t->segment[i].count * k->n_expert_param;
        x.n_layer += t->segment[i].count;
    }
    if (t->first >= 0) x.n_param += r[t->first].n_param;
    if (t->last >= 0 && !(t->tied && p->pp == 1)) x.n_param += r[t->last].n_param;
    x.n_param /= p->pp;
    x.n_expert /= p->pp;
    x.n_layer = p->zero < 3 ? 0 : x.n_layer / p->pp;
    for (int d = 0; d < t->n_device; d++)
        out = fmin(out, weft_cost__replica_seconds(t, p, d, &x) +
                            weft_cost__optimizer_seconds(t, p, d, &x));
    return out;
}
