/* From a layer's operator instances to its row. */
#include <math.h>
#include <string.h>

#include "cost/score.h"

/* Host and device hide each other but for a corner: (a^4 + b^4)^(1/4). */
static double either(double a, double b)
{
    double x = fmax(a, b), y = fmin(a, b);
    if (!(x > 0)) return 0;
    y = y / x * (y / x);
    return x * sqrt(sqrt(1 + y * y));
}

/* Sums of one pass. */
typedef struct pass {
    double device_s, comm_s, host_s;
    double product_s;
} pass;

static double exposed(const weft_cost_engine *e, weft_cost_axis t, bool tp_overlap)
{
    switch (t) {
    case WEFT_COST_CP: return e->cp_exposed;
    case WEFT_COST_EP: return e->ep_exposed;
    case WEFT_COST_TP:
    case WEFT_COST_N_TRAFFIC: break;
    }
    return e->tp_exposed * (tp_overlap ? e->tp_overlap : 1);
}

static double op_seconds(const weft_cost_op *o, const weft_device_kind *d,
                         const weft_cost_engine *e)
{
    weft_cost_op x = *o;
    if (x.work == WEFT_COST_STREAM) x.bytes *= e->stream;
    double s = weft_cost_op_seconds(&x, d);
    return x.work == WEFT_COST_PRODUCT ? s / e->product : s;
}

/* Of a value with several destinations one copy goes to each domain that holds any, and is dealt
 * out inside. */
static double far_share(const weft_cost_item *i, const weft_cost_fabric *f)
{
    double n = weft_cost_group_domains(f, i->group), k = i->copies;
    if (!(k > 1) || n < 2) return 1;
    return n * (1 - pow(1 - 1 / n, k)) / k;
}

static void add(pass *p, double share, const weft_cost_item *i, const weft_device_kind *d,
                const weft_cost_fabric *f, const weft_cost_engine *e, bool tp_overlap)
{
    if (i->is_collective) {
        if (i->group.n < 2) return;
        p->comm_s +=
            share * exposed(e, i->traffic, tp_overlap) *
            weft_cost_group_seconds(f, i->group, i->coll, i->bytes * far_share(i, f));
        p->host_s += share * e->host_coll_s;
        return;
    }
    double s = op_seconds(&i->op, d, e);
    p->device_s += share * s;
    if (i->op.work == WEFT_COST_PRODUCT) p->product_s += share * s;
    p->host_s += share * i->n_launch * (i->routing ? e->host_moe_s : e->host_op_s);
}

/* What runs again in the backward pass: how much of a forward item. */
static double again_share(const weft_cost_item *i, weft_cost_recompute r,
                          const weft_cost_engine *e)
{
    if (i->phase != WEFT_COST_FORWARD || r == WEFT_RECOMPUTE_NONE) return 0;
    if (r == WEFT_RECOMPUTE_FULL) return 1;
    if (r == WEFT_RECOMPUTE_LIGHT) return i->core || i->light ? 1 : 0;
    if (e->selective > 0)
        return !i->is_collective && i->op.work == WEFT_COST_ATTENTION ? 0 : e->selective;
    return i->core ? 1 : 0;
}

void weft_cost_fill(const weft_cost_layer *l, weft_cost_recompute r, bool tp_overlap,
                    const weft_device_kind *d, const weft_cost_fabric *f,
                    const weft_cost_engine *e, weft_cost_row *out)
{
    pass   fwd = {0}, bwd = {0}, again = {0};
    double keep = 0, all = 0, wire[WEFT_COST_N_TRAFFIC] = {0};
    for (int i = 0; i < l->n_item; i++) {
        const weft_cost_item *x     = &l->item[i];
        double                share = again_share(x, r, e);
        add(x->phase == WEFT_COST_FORWARD ? &fwd : &bwd, 1, x, d, f, e, tp_overlap);
        if (share > 0) add(&again, share, x, d, f, e, tp_overlap);
        if (x->is_collective)
            wire[x->traffic] +=
                (1 + share) * weft_cost_group_sent(x->group.n, x->coll, x->bytes);
        all += x->keep_bytes;
        keep += x->keep_bytes * (1 - share);
    }
    if (r == WEFT_RECOMPUTE_FULL) keep = 0;
    /* what is light is made of what is kept in any case */
    bool   input = keep < all && r != WEFT_RECOMPUTE_LIGHT;
    double one   = either(fwd.device_s + fwd.comm_s, fwd.host_s);
    double two   = either(bwd.device_s + bwd.comm_s, bwd.host_s);
    double three = either(again.device_s + again.comm_s, again.host_s);
    *out         = (weft_cost_row){
                .fwd_s   = one,
                .bwd_s   = two + three,
                .again_s = three,
                .comm_s  = fwd.comm_s + bwd.comm_s + again.comm_s,
                .host_s  = one + two + three - fwd.device_s - bwd.device_s - again.device_s -
                          fwd.comm_s - bwd.comm_s - again.comm_s,
                .keep_bytes     = (keep + (input ? l->in_bytes : 0)) * e->mem_keep,
                .work_bytes     = (all - keep) * e->mem_keep,
                .n_param        = l->n_param,
                .gathered_bytes = r == WEFT_RECOMPUTE_FULL ? 0 : l->gathered * e->mem_whole,
                .n_expert_param = l->n_expert_param,
                .out_bytes      = l->out_bytes,
    };
    memcpy(out->wire_bytes, wire, sizeof wire);
}
