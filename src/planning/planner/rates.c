/* Throughput and MFU of a plan: the same numbers in text, JSON and page. */
#include <string.h>

#include "planner/planner.h"

static const char *dtype_of(const char *precision)
{
    return !strcmp(precision, "fp16")   ? "f16"
           : !strcmp(precision, "fp32") ? "f32"
           : !strcmp(precision, "fp8")  ? "f8_e4m3"
                                        : precision;
}

void weft_planner_rates_of(const weft_planner_step *s, const weft_cluster *c,
                           const weft_planner_placement *at, weft_planner_rates *out)
{
    double peak = 0, n = at->p.n_rank;
    *out       = (weft_planner_rates){.unit = s->seq > 0 ? "tokens" : s->unit};
    out->per_s = s->batch * (s->seq > 0 ? (double)s->seq : 1) / s->step_s;
    if (!(n > 0)) return;
    out->per_device_s   = out->per_s / n;
    out->flops_device_s = s->flops / s->step_s / n;
    for (int i = 0; i < at->p.n_rank; i++)
        peak += weft_cluster_flops(weft_cluster_device(c, at->p.device[i]),
                                   dtype_of(s->precision));
    if (peak > 0) out->mfu = s->flops / s->step_s / peak;
}
