/* Roofline for compute, alpha-beta for communication. */
#include "cost/cost.h"

#include <math.h>
#include <string.h>

#include "cost/cost_priv.h"
#include "cost/op.h"
#include "program/work.h"

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

/* What was measured of a GPU in bf16 says nothing of its other units. */
static bool is_measured_type(const weft_instr *i, const weft_device_kind *d)
{
    if (i->kind != WEFT_INSTR_COMPUTE || weft_cluster_is_cpu(d)) return true;
    switch (i->op) {
    case WEFT_OP_MATMUL:
    case WEFT_OP_GROUPED_MATMUL:
    case WEFT_OP_GROUPED_MATMUL_WGRAD:
    case WEFT_OP_ATTENTION:
    case WEFT_OP_ATTENTION_GRAD: return !strcmp(rate_type(i), "bf16");
    default: return true;
    }
}

static double node_seconds(const weft_instr *i, const weft_cluster *c, int device)
{
    int                n = 0;
    const weft_timing *t =
        weft_instr_launches(i)
            ? weft_cluster_timings(c, device, -1, WEFT_WORK_NODE, -1, &n)
            : NULL;
    return t ? t->s : 0;
}

/* The commit point is the sum over all ranks, and stands for what a step takes besides its
 * instructions. */
static double step_seconds(const weft_cluster *c, int device)
{
    int                n = 0;
    const weft_timing *t = weft_cluster_timings(c, device, -1, WEFT_WORK_STEP, -1, &n);
    return t ? t->s : 0;
}

/* The matmul as it would be in the type of its operands. */
static weft_instr without_fp8(const weft_instr *i, weft_attr attr[WEFT_MAX_ATTR])
{
    weft_instr plain = *i;
    memcpy(attr, i->attr, sizeof *attr * (size_t)weft_op_n_attr(i->op));
    attr[weft_op_attr_index(i->op, "fp8")].s = "";
    plain.attr                               = attr;
    return plain;
}

static double rate_of(const weft_device_kind *d, const char *dtype)
{
    for (int k = 0; k < d->n_rate; k++)
        if (!strcmp(d->rate[k].dtype, dtype)) return weft_cluster_flops(d, dtype);
    return 0;
}

/* A matmul in fp8 that was not measured itself: that in its operands' type, as much faster as the
 * device's 8-bit units are (where it has none, operands are rounded and the matmul is that), and
 * the passes that make codes and scales. */
static bool fp8_seconds(const weft_instr *i, const weft_cluster *c,
                        const weft_device_kind *d, double *out)
{
    enum {
        LAUNCHES = 3 /* for both operands */
    };
    weft_attr   attr[WEFT_MAX_ATTR];
    weft_instr  plain  = without_fp8(i, attr);
    double      wide   = rate_of(d, rate_type(i));
    double      narrow = weft_cluster_is_cpu(d) ? 0 : rate_of(d, "f8_e4m3");
    double      stream = d->mem_Bps * (d->stream > 0 ? d->stream : 1);
    double      passes = weft_instr_fp8_bytes(i);
    const char *type   = narrow > 0 ? "f8_e4m3" : rate_type(i);
    if (!(passes > 0) || !(stream > 0)) return false;
    if (is_measured_type(&plain, d) &&
        weft_cost__measured_work(c, (int)(d - c->device), &plain, out))
        *out *= narrow > 0 && wide > 0 ? wide / narrow : 1;
    else
        *out = weft_cost_roofline(d, type, weft_instr_flops(i), weft_instr_bytes(i));
    *out += passes / stream + LAUNCHES * d->launch_s;
    return true;
}

static weft_status compute_seconds(const weft_instr *i, const weft_cluster *c,
                                   const weft_device_kind *d, double speed, double *out)
{
    int device = (int)(d - c->device);
    if (is_measured_type(i, d) && weft_cost__measured_work(c, device, i, out))
        *out += node_seconds(i, c, device);
    else if (weft_instr_is_fp8(i) && fp8_seconds(i, c, d, out))
        *out += node_seconds(i, c, device);
    else
        *out =
            weft_cost_roofline(d, rate_type(i), weft_instr_flops(i), weft_instr_bytes(i));
    *out /= speed;
    if (isfinite(*out)) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG, "device %s has no flops for %s", d->name,
                     rate_type(i));
}

static weft_status no_rank(const weft_cluster *c, int rank)
{
    return WEFT_FAIL(WEFT_ERR_ARG, "cluster %s has %d devices, there is none for rank %d",
                     c->name, weft_cluster_count(c), rank);
}

/* shape: of each of p's groups, as far as it is known; NULL: nothing is kept. */
static weft_status price_instr(const weft_program *p, const weft_instr *i,
                               const weft_cluster *c, weft_group_shape *shape,
                               double *seconds)
{
    if (i->seconds >= 0) {
        *seconds = i->seconds;
        return WEFT_OK;
    }
    if (weft_cost__is_on_host(p, i)) return weft_cost__host_seconds(p, i, c, seconds);
    const weft_device_kind *d = weft_cluster_device(c, p->rank);
    weft_group_shape        me;
    if (!d) return no_rank(c, p->rank);
    switch (i->kind) {
    case WEFT_INSTR_COLLECTIVE:
        return weft_cost__collective_seconds(p, i, c, shape ? &shape[i->group] : NULL,
                                             seconds);
    case WEFT_INSTR_SEND: return weft_cost__send_seconds(p, i, c, seconds);
    case WEFT_INSTR_COMMIT:
        WEFT_TRY(weft_cost__vote_seconds(p, c, seconds));
        *seconds += step_seconds(c, (int)(d - c->device));
        return WEFT_OK;
    case WEFT_INSTR_RECV:
    case WEFT_INSTR_MARK: *seconds = 0; return WEFT_OK;
    case WEFT_INSTR_COMPUTE:
    case WEFT_INSTR_COPY:
    case WEFT_INSTR_READ:
    case WEFT_INSTR_MERGE:
    case WEFT_N_INSTR_KIND: break;
    }
    WEFT_TRY(weft_cluster_group_stride(c, p->rank, 1, 1, &me));
    return compute_seconds(i, c, d, me.speed, seconds);
}

weft_status weft_cost_instr(const weft_program *p, const weft_instr *i,
                            const weft_cluster *c, double *seconds)
{
    return price_instr(p, i, c, NULL, seconds);
}

weft_status weft_cost_program(const weft_program *p, const weft_cluster *c, weft_arena *a,
                              double **seconds)
{
    int               n     = 0;
    double           *list  = WEFT_ARENA_ARRAY(a, double, weft_program_n_instr(p));
    weft_group_shape *shape = WEFT_ARENA_ARRAY(a, weft_group_shape, p->n_group + 1);
    if (!list || !shape) return weft_arena_status(a);
    for (int k = 0; k < p->n_actor; k++)
        for (int m = 0; m < p->actor[k].n_instr; m++)
            WEFT_TRY(price_instr(p, &p->actor[k].instr[m], c, shape, &list[n++]));
    *seconds = list;
    return WEFT_OK;
}
