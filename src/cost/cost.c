/* Roofline for compute, alpha-beta for communication. */
#include "cost/cost.h"

#include <math.h>

#include "base/lanes.h"
#include "cost/cost_priv.h"
#include "cost/op.h"

/* The type that sets the rate: the first floating operand's. */
static const char *rate_type(const weft_instr *i)
{
    for (int k = 0; k < i->n_in + i->n_out; k++) {
        const weft_operand *o = k < i->n_in ? &i->in[k] : &i->out[k - i->n_in];
        switch (o->type.dtype) {
        case WEFT_DTYPE_F32:
        case WEFT_DTYPE_BF16:
        case WEFT_DTYPE_F16:
        case WEFT_DTYPE_F64:
        case WEFT_DTYPE_F8_E4M3:
        case WEFT_DTYPE_F8_E5M2:
            if (o->buffer >= 0) return weft_dtype_name(o->type.dtype);
            break;
        default: break;
        }
    }
    return "f32";
}

double weft_cost_roofline(const weft_device_kind *d, const char *dtype, double flops,
                          double bytes)
{
    weft_cost_op o = {
        .work = WEFT_COST_PRODUCT, .dtype = dtype, .flops = flops, .bytes = bytes};
    return weft_cost_op_seconds(&o, d);
}

static weft_status compute_seconds(const weft_instr *i, const weft_device_kind *d,
                                   double *out)
{
    *out = weft_cost_roofline(d, rate_type(i), weft_instr_flops(i), weft_instr_bytes(i));
    if (isfinite(*out)) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "device %s has no flops for %s", d->name,
                     rate_type(i));
}

static weft_status no_rank(const weft_cluster *c, int rank)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s has %d devices, there is none for rank %d",
                     c->name, weft_cluster_count(c), rank);
}

/* The slowest link among neighbours of the group's order. */
static weft_status collective_seconds(const weft_program *p, const weft_instr *i,
                                      const weft_cluster *c, double *out)
{
    const weft_group *g     = &p->group[i->group];
    double            alpha = 0, beta = 0;
    for (int k = 0; k + 1 < g->n_rank; k++) {
        const weft_link_kind *l = weft_cluster_link(c, g->rank[k], g->rank[k + 1]);
        if (!l)
            return no_rank(c, g->rank[k] > g->rank[k + 1] ? g->rank[k] : g->rank[k + 1]);
        alpha = fmax(alpha, l->alpha_s);
        beta  = fmax(beta, 1 / l->Bps);
    }
    double bytes = weft_instr_bytes(i);
    if (i->lanes) { /* each term travels to its owner, the sum once on the way back */
        int most = weft_lanes_most_terms(i->lanes, g->n_rank);
        bytes *= i->coll == WEFT_ALL_REDUCE ? (most + 1) / 2.0 : most;
    }
    *out = weft_cost__collective(i->coll, g->n_rank, bytes, alpha, beta);
    return WEFT_OK;
}

weft_status weft_cost_instr(const weft_program *p, const weft_instr *i,
                            const weft_cluster *c, double *seconds)
{
    if (i->seconds >= 0) {
        *seconds = i->seconds;
        return WEFT_OK;
    }
    const weft_device_kind *d = weft_cluster_device(c, p->rank);
    if (!d) return no_rank(c, p->rank);
    switch (i->kind) {
    case WEFT_INSTR_COLLECTIVE: return collective_seconds(p, i, c, seconds);
    case WEFT_INSTR_PUSH:
    case WEFT_INSTR_SEND: {
        const weft_link_kind *l = weft_cluster_link(c, p->rank, i->peer);
        if (!l) return no_rank(c, i->peer);
        *seconds = l->alpha_s + weft_instr_bytes(i) / l->Bps;
        return WEFT_OK;
    }
    case WEFT_INSTR_RECV:
    case WEFT_INSTR_PULL:
    case WEFT_INSTR_MARK: *seconds = 0; return WEFT_OK;
    case WEFT_INSTR_COMPUTE:
    case WEFT_INSTR_COPY:
    case WEFT_INSTR_READ:
    case WEFT_INSTR_MERGE: break;
    }
    return compute_seconds(i, d, seconds);
}

weft_status weft_cost_program(const weft_program *p, const weft_cluster *c, weft_arena *a,
                              double **seconds)
{
    int     n    = 0;
    double *list = WEFT_ARENA_ARRAY(a, double, weft_program_n_instr(p));
    if (!list) return weft_arena_status(a);
    for (int k = 0; k < p->n_actor; k++)
        for (int m = 0; m < p->actor[k].n_instr; m++)
            WEFT_TRY(weft_cost_instr(p, &p->actor[k].instr[m], c, &list[n++]));
    *seconds = list;
    return WEFT_OK;
}
