/* The roofline of one operator instance. */
#include "cost/op.h"

#include <math.h>
#include <string.h>

weft_cost_op weft_cost_product(const char *dtype, double operand_bytes, double m,
                               double n, double k, double count)
{
    return (weft_cost_op){
        .work  = WEFT_COST_PRODUCT,
        .dtype = dtype,
        .m     = m,
        .n     = n,
        .k     = k,
        .flops = 2 * m * n * k * count,
        .bytes = operand_bytes * (m * k + k * n + m * n) * count,
    };
}

weft_cost_op weft_cost_stream(double bytes)
{
    return (weft_cost_op){.work = WEFT_COST_STREAM, .bytes = bytes};
}

weft_cost_op weft_cost_attention(const char *dtype, double flops, double bytes)
{
    return (weft_cost_op){
        .work = WEFT_COST_ATTENTION, .dtype = dtype, .flops = flops, .bytes = bytes};
}

/* Results that keep all units of a device half busy, in squares of half_size: h200-curves in
 * bench/results. */
#define WAVE 6.0

static double saturate(double x, double half)
{
    return x > 0 && half > 0 ? x / (x + half) : 1;
}

/* Of 16-bit products whose rows do not begin at 16 bytes.  Their kernels load in pieces and leave
 * the newest units
 * unused: on an H200 odd rows reach 0.16 of the others, even ones 0.33 (h200-rows in
 * bench/results).  Devices before
 * 8-bit products: those rates by multiprocessors and clock, which is twice the share; steps on
 * A100 show the same. */
static double narrow(const weft_cost_op *o, const weft_device_kind *d)
{
    if (o->unit < 1 || o->unit >= 8) return 1;
    double share = o->unit == 1 ? 0.33 : 0.66;
    for (int i = 0; i < d->n_rate; i++)
        if (!strncmp(d->rate[i].dtype, "f8", 2)) return share / 2;
    return share;
}

/* The share of the peak that o reaches, in *peak the peak itself. */
static double reached(const weft_cost_op *o, const weft_device_kind *d, double *peak)
{
    double share = d->efficiency;
    *peak        = weft_cluster_flops(d, o->dtype);
    for (int i = 0; i < d->n_rate; i++)
        if (!strcmp(d->rate[i].dtype, o->dtype) && d->rate[i].efficiency > 0)
            share = d->rate[i].efficiency;
    if (o->work == WEFT_COST_ATTENTION) return d->attention > 0 ? d->attention : share;
    if (!(o->k > 0) || !(o->flops > 0)) return share;
    double area = o->flops / (2 * o->k), half = d->half_size;
    double longer = half; /* 8 and 4 bits: the faster, the longer */
    if (!strncmp(o->dtype, "f8", 2) || !strncmp(o->dtype, "f4", 2))
        longer *= fmax(1, *peak / weft_cluster_flops(d, "bf16"));
    return share * narrow(o, d) * saturate(o->k, longer) *
           saturate(area, WAVE * half * half);
}

double weft_cost_op_seconds(const weft_cost_op *o, const weft_device_kind *d)
{
    double stream = d->stream > 0 ? d->stream : 1;
    double s      = o->bytes > 0 ? o->bytes / (d->mem_Bps * stream) : 0;
    if (o->flops > 0) {
        double peak, share = reached(o, d, &peak);
        if (!(peak * share > 0)) return INFINITY;
        s = fmax(s, o->flops / (peak * share));
    }
    return s + d->launch_s;
}
