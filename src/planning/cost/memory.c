/* The memory of a stage: what a device holds of weights, gradients, states and activations, and
 * the fullest of a point. */
#include <math.h>

#include "cost/score_priv.h"

typedef weft_cost__stage stage;
typedef weft_cost__held  held;

/* Micro-batches whose activations stage s holds. */
static double in_flight(const weft_cost_point *p, int s)
{
    double m = p->n_micro, pp = p->pp, v = p->chunks;
    if (p->schedule == WEFT_COST_GPIPE) return m;
    if (p->chunks > 1) return fmin(m, ((pp - s - 1) * 2 + (v - 1) * pp + 1) / v);
    return fmin(m, pp - s);
}

int weft_cost__shards(const weft_cost_point *p, const weft_cost_variant *v)
{
    return p->zero < 1 ? 1 : p->zero_group > 0 ? p->zero_group : p->dp * v->cp;
}

double weft_cost__expert_shards(const weft_cost_point *p, const weft_cost_variant *v)
{
    double n = (double)p->dp * v->cp * v->tp / v->ep;
    return p->zero < 1 || n < 1 ? 1 : n;
}

/* Of gradients between steps and beside the weights. */
static double grad_bytes(const weft_cost_table *t, const weft_cost_point *p,
                         const stage *x)
{
    const weft_cost_variant *v    = &t->variant[p->variant];
    double                   grad = t->engine.mem_weight - t->param_bytes;
    if (p->zero < 2) return grad * (x->n_param + x->n_expert);
    return grad * (x->n_param / weft_cost__shards(p, v) +
                   x->n_expert / weft_cost__expert_shards(p, v));
}

held weft_cost__held_by(const weft_cost_table *t, const weft_cost_point *p, int s,
                        const stage *x)
{
    if (t->programs) {
        weft_cost__room r = weft_cost__own_room(t, p, s, &x->own);
        double          w = fmin(r.state, t->param_bytes * (x->n_param + x->n_expert));
        return (held){.weight = w,
                      .grad   = r.sums,
                      .state  = r.state - w,
                      .keep   = r.keep + r.read,
                      .work   = r.work};
    }
    const weft_cost_variant *v = &t->variant[p->variant];
    double n = weft_cost__shards(p, v), ne = weft_cost__expert_shards(p, v),
           w = t->param_bytes;
    held h   = {.weight = x->n_param * (p->zero > 2 ? w / n : w) +
                          x->n_expert * (p->zero > 2 ? w / ne : w),
                .grad  = grad_bytes(t, p, x),
                .state = t->engine.mem_state * (x->n_param / n + x->n_expert / ne),
                .work  = x->work};
    if (p->zero > 2) h.weight += 2 * w * x->max_param;
    double flying = in_flight(p, s);
    double whole  = x->gathered * (p->pp == 1 ? 1 : fmax(0, flying - 2));
    h.keep        = x->keep * flying + x->ahead * whole;
    h.late        = x->ahead * (x->gathered * flying - whole);
    return h;
}

void weft_cost__add_memory(const weft_cost_table *t, const weft_cost_point *p, int device,
                           int s, const stage *x, weft_cost_score *out)
{
    const weft_cost_engine *e     = &t->engine;
    held                    h     = weft_cost__held_by(t, p, s, x);
    double                  live  = h.weight + h.grad + h.state + h.keep + h.work;
    double                  total = live * e->mem_spare + e->mem_fixed;
    double                  limit = e->mem_limit * (double)t->device[device].mem_bytes;
    out->late_bytes               = fmax(out->late_bytes, total + h.late * e->mem_spare);
    if (out->tightest >= 0 && total - limit <= out->mem_bytes - out->mem_limit) return;
    out->tightest     = s;
    out->mem_bytes    = total;
    out->mem_limit    = limit;
    out->weight_bytes = h.weight + h.grad;
    out->state_bytes  = h.state;
    out->keep_bytes   = h.keep;
    out->work_bytes   = h.work;
    out->engine_bytes = total - live;
}

double weft_cost_stage_over(const weft_cost_table *t, const weft_cost_point *of, int s,
                            int from, int n)
{
    weft_cost_point        all = *of;
    const weft_cost_point *p   = &all;
    if (t->programs) weft_cost__own_deal(t, &all);
    int             kinds = weft_cost__kinds(p, s);
    weft_cost_score out   = {.tightest = -1};
    for (int d = 0; d < t->n_device; d++) {
        if (!(kinds >> d & 1)) continue;
        stage x = weft_cost__sum_stage(t, p, d, kinds, from, n, s);
        weft_cost__add_memory(t, p, d, s, &x, &out);
    }
    return out.mem_bytes - out.mem_limit;
}
