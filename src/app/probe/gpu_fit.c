/* Measured times of a GPU as constants of its kind: those of cost's own form of an operator
 * (cost/op.h).
 *
 * Peaks and memory bandwidth stay the data sheet's, which are physical limits; what was reached
 * is a share of them.  Where no data sheet is known, the best that was seen is the peak. */
#include <math.h>
#include <string.h>

#include "cost/op.h"
#include "probe/gpu.h"

enum {
    MOST_RATE = 8
};
#define LEAST_HALF 10.0
#define MOST_HALF  1000.0

/* ---- peaks ---- */

static double best_of(const weft_probe_gpu *g, const char *dtype)
{
    double best = 0;
    for (int i = 0; i < g->n_product; i++) {
        const weft_probe_gpu_product *p = &g->product[i];
        if (!strcmp(p->dtype, dtype)) best = fmax(best, 2 * p->m * p->n * p->k / p->s);
    }
    return best;
}

static weft_flop_rate *rate_of(weft_device_kind *d, const char *dtype)
{
    for (int i = 0; i < d->n_rate; i++)
        if (!strcmp(d->rate[i].dtype, dtype)) return &d->rate[i];
    return NULL;
}

/* A type that was measured and has no peak yet.  tf32 runs at half of the 16-bit rate on every
 * kind that has it. */
static void add_rate(weft_device_kind *d, const char *dtype, double best)
{
    const weft_flop_rate *half = rate_of(d, "bf16");
    if (!(best > 0) || rate_of(d, dtype) || d->n_rate == MOST_RATE) return;
    double flops = !strcmp(dtype, "tf32") && half ? fmax(best, half->flops / 2) : best;
    d->rate[d->n_rate++] = (weft_flop_rate){.dtype = dtype, .flops = flops};
}

static weft_status set_peaks(const weft_probe_gpu *g, const weft_device_kind *sheet,
                             weft_arena *a, weft_device_kind *d)
{
    static const char *const all[] = {"f16", "bf16", "f8_e4m3", "f8_e5m2", "f32", "tf32"};
    if (sheet) *d = *sheet;
    d->rate = WEFT_ARENA_ARRAY(a, weft_flop_rate, MOST_RATE);
    WEFT_TRY(weft_arena_status(a));
    d->n_rate = 0;
    for (int i = 0; sheet && i < sheet->n_rate && i < MOST_RATE; i++)
        d->rate[d->n_rate++] = (weft_flop_rate){.dtype = sheet->rate[i].dtype,
                                                .flops = sheet->rate[i].flops};
    for (size_t i = 0; i < WEFT_COUNT(all); i++) add_rate(d, all[i], best_of(g, all[i]));
    if (d->n_rate) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_NOFIT, "%s: neither a data sheet nor products are known",
                     g->name);
}

/* ---- products ---- */

static double seconds(const weft_probe_gpu_product *p, const weft_device_kind *d)
{
    weft_cost_op o = weft_cost_product(p->dtype, p->bytes, p->m, p->n, p->k, 1);
    return weft_cost_op_seconds(&o, d);
}

/* Of the logarithms of times of one type: the mean square, or the mean.  For squares a product
 * counts by the root of its
 * time: a step is mostly long ones, but how a rate falls is seen in short ones. */
static double error_of(const weft_probe_gpu *g, const char *dtype,
                       const weft_device_kind *d, bool square)
{
    double sum = 0, n = 0;
    for (int i = 0; i < g->n_product; i++) {
        const weft_probe_gpu_product *p = &g->product[i];
        if (strcmp(p->dtype, dtype)) continue;
        double x = log(seconds(p, d) / p->s), weight = square ? sqrt(p->s) : 1;
        sum += weight * (square ? x * x : fabs(x));
        n += weight;
    }
    return n > 0 ? sum / n : 0;
}

/* The efficiency of a rate that comes nearest, the rest standing: the error has one least. */
static double fit_rate(const weft_probe_gpu *g, weft_device_kind *d, weft_flop_rate *r)
{
    double lo = 0.01, hi = 1;
    for (int i = 0; i < 40; i++) {
        double a = lo + (hi - lo) * 0.382, b = lo + (hi - lo) * 0.618, at_a, at_b;
        r->efficiency = a;
        at_a          = error_of(g, r->dtype, d, true);
        r->efficiency = b;
        at_b          = error_of(g, r->dtype, d, true);
        if (at_a < at_b)
            hi = b;
        else
            lo = a;
    }
    r->efficiency = (lo + hi) / 2;
    return error_of(g, r->dtype, d, true);
}

/* half_size by the type with most shapes, then each type's efficiency. */
static void fit_products(const weft_probe_gpu *g, weft_device_kind *d, weft_flop_rate *r)
{
    double least = INFINITY, half = d->half_size;
    for (double x = LEAST_HALF; x <= MOST_HALF; x *= 1.05) {
        d->half_size = x;
        double e     = fit_rate(g, d, r);
        if (e < least) least = e, half = x;
    }
    d->half_size = half;
    for (int i = 0; i < d->n_rate; i++)
        if (best_of(g, d->rate[i].dtype) > 0) fit_rate(g, d, &d->rate[i]);
    d->efficiency = r->efficiency;
}

/* Shares of the peak that squares reached, by rising size. */
static weft_status put_curve(const weft_probe_gpu *g, const weft_flop_rate *r,
                             weft_arena *a, weft_device_kind *d)
{
    d->n_point = 0;
    d->point   = WEFT_ARENA_ARRAY(a, weft_share_point, g->n_product + 1);
    WEFT_TRY(weft_arena_status(a));
    for (int i = 0; i < g->n_product; i++) {
        const weft_probe_gpu_product *p     = &g->product[i];
        double                        flops = 2 * p->m * p->n * p->k;
        if (strcmp(p->dtype, r->dtype) || p->m != p->n || p->n != p->k) continue;
        if (d->n_point && flops <= d->point[d->n_point - 1].flops) continue;
        d->point[d->n_point++] =
            (weft_share_point){flops, fmin(1, flops / p->s / r->flops)};
    }
    return WEFT_OK;
}

/* ---- memory ---- */

static void set_memory(const weft_probe_gpu *g, const weft_device_kind *sheet,
                       weft_device_kind *d)
{
    double x[3] = {g->scale_Bps, g->add_Bps, g->update_Bps};
    double most = fmax(fmax(x[0], x[1]), fmax(x[2], fmax(g->copy_Bps, g->read_Bps)));
    double mid =
        x[0] + x[1] + x[2] - fmax(x[0], fmax(x[1], x[2])) - fmin(x[0], fmin(x[1], x[2]));
    if (!sheet) d->mem_Bps = g->peak_Bps > 0 ? fmax(g->peak_Bps, most) : most;
    if (mid > 0) d->stream = fmin(1, mid / d->mem_Bps);
    if (g->launch_s > 0) d->launch_s = g->launch_s;
    d->mem_bytes = g->free_bytes > 0 ? g->free_bytes : g->mem_bytes;
}

weft_status weft_probe_gpu_fit(const weft_probe_gpu *g, const weft_device_kind *sheet,
                               weft_arena *a, weft_device_kind *out, double *error)
{
    static const char *const order[] = {"bf16", "f16", "f32"};
    weft_flop_rate          *r       = NULL;
    *out   = (weft_device_kind){.efficiency = 1, .vendor = "nvidia", .source = ""};
    *error = 0;
    WEFT_TRY(set_peaks(g, sheet, a, out));
    set_memory(g, sheet, out);
    if (!(out->mem_Bps > 0))
        return WEFT_FAIL(WEFT_ERR_NOFIT, "%s: nothing is known of its memory", g->name);
    for (size_t i = 0; !r && i < WEFT_COUNT(order); i++)
        if (best_of(g, order[i]) > 0) r = rate_of(out, order[i]);
    if (!r) return WEFT_OK;
    fit_products(g, out, r);
    *error = error_of(g, r->dtype, out, false);
    return put_curve(g, r, a, out);
}
