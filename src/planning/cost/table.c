/* Measured tables where there are any.
 *
 * A work's time is read off what was measured of the same work at other sizes:
 *     one size       (of several, where the times have no more)
 *                    between its two neighbours, straight on a log-log scale; below all of them
 *                    the least one's time, above all of them in proportion
 *     two or three   the rate (size 0, or m n k, a second) off a plane through the measured ones
 *                    on a log scale, each weighted by how near it is; no faster than the fastest
 *                    of them, no less than half the slowest
 * A work that was not measured is looked for without its last fused step, and so on; a product
 * then goes by those that were, with other fused steps or operands turned otherwise: how a layer
 * is cut decides what is fused, and a cut must not look good because its products have no times;
 * one that only streams through memory takes what a stream of as many bytes does. */
#include <math.h>
#include <string.h>

#include "cost/cost.h"
#include "cost/cost_priv.h"
#include "program/work.h"

static bool is_product(const weft_workload *w)
{
    return !strncmp(w->kind, "matmul", 6);
}

/* Bytes and a width: what has times by bytes alone is looked up so. */
static bool row_kernel(const weft_workload *w)
{
    static const char *const begins[] = {"layer_norm", "rms_norm", "cross_entropy",
                                         "reduce"};
    for (size_t i = 0; w->n == 2 && i < WEFT_COUNT(begins); i++)
        if (!strncmp(w->kind, begins[i], strlen(begins[i]))) return true;
    return false;
}

/* Kernels are chosen by width: rows of the same one, even if far fewer, say more than wider ones.
 * On an H200 norms of 15 models came within 10 % so, and within 40 % with a factor of 1. */
#define WIDTH 4.0

/* Few points: a level rather than a slope.  Of an H200's calibration (bench/results,
 * 2026-11-19) each measured time was predicted from the others: with 0.03 products came within 11.1
 * % (mean square), attention within 7.3, with 0.01 within 10.9 and 6.4. */
#define RIDGE 0.01

static double amount(const weft_workload *w, const double *size)
{
    double x = is_product(w) ? size[0] * size[1] * size[2] : size[0];
    return x > 1 ? x : 1;
}

static double between(const weft_timing *t, int n, double size)
{
    int k = 0;
    while (k < n && t[k].size[0] < size) k++;
    if (k == 0) return t[0].s;
    if (k == n) return t[n - 1].s * size / fmax(t[n - 1].size[0], 1);
    double lo = log(fmax(t[k - 1].size[0], 1)), hi = log(fmax(t[k].size[0], 1));
    if (!(hi > lo)) return t[k].s;
    double x = (log(fmax(size, 1)) - lo) / (hi - lo);
    return exp((1 - x) * log(t[k - 1].s) + x * log(t[k].s));
}

typedef struct line {
    /* normal equations of a plane through the neighbours, the last column their right side */
    double a[4][5];
    double weight, lo, hi;
} line;

static void add_point(line *l, const weft_timing *t, const weft_workload *w)
{
    double x[5] = {1}, away = 0.05;
    for (int k = 0; k < w->n; k++) {
        x[k + 1]   = log(fmax(t->size[k], 1)) - log(fmax(w->size[k], 1));
        double far = k && row_kernel(w) ? WIDTH * x[k + 1] : x[k + 1];
        away += far * far;
    }
    double rate = log(amount(w, t->size)) - log(t->s), weight = 1 / (away * away * away);
    x[w->n + 1] = rate;
    l->lo       = l->weight > 0 ? fmin(l->lo, rate) : rate;
    l->hi       = l->weight > 0 ? fmax(l->hi, rate) : rate;
    l->weight += weight;
    for (int r = 0; r <= w->n; r++)
        for (int k = 0; k <= w->n + 1; k++) l->a[r][k] += weight * x[r] * x[k];
}

/* The plane's height at the work itself.  The matrix is positive definite: nothing to pivot for. */
static double height(line *l, int n)
{
    for (int r = 0; r < n; r++)
        for (int k = 0; k <= n; k++) l->a[r][k] /= l->weight;
    for (int r = 1; r < n; r++) l->a[r][r] += RIDGE;
    for (int r = n - 1; r > 0;
         r--) /* upwards, so that the first unknown comes out alone */
        for (int q = 0; q < r; q++) {
            double f = l->a[q][r] / l->a[r][r];
            for (int k = 0; k <= n; k++) l->a[q][k] -= f * l->a[r][k];
        }
    return l->a[0][n] / l->a[0][0];
}

static double near(const weft_timing *t, int n, const weft_workload *w)
{
    line l = {.weight = 0};
    for (int i = 0; i < n; i++) {
        if (!memcmp(t[i].size, w->size, sizeof(double) * (size_t)w->n)) return t[i].s;
        add_point(&l, &t[i], w);
    }
    double rate = height(&l, w->n + 1);
    return amount(w, w->size) / exp(fmin(l.hi, fmax(l.lo - log(2), rate)));
}

bool weft_cost_timed_work(const weft_cluster *c, int device, const weft_workload *work,
                          double *out)
{
    weft_workload      w = *work;
    int                n = 0;
    const weft_timing *t = NULL;
    if (!c->n_timing || !w.n) return false;
    for (char *last = w.kind; last && !t;) {
        t    = weft_cluster_timings(c, device, -1, w.kind, -1, &n);
        last = strrchr(w.kind, '+');
        if (last) *last = 0;
    }
    if (!t && is_product(&w)) t = weft_cluster_timings_like(c, device, w.kind, &n);
    if (!t && is_product(&w)) t = weft_cluster_timings_like(c, device, "matmul", &n);
    if (!t && w.n == 1) t = weft_cluster_timings(c, device, -1, "stream", -1, &n);
    if (!t && row_kernel(&w)) t = weft_cluster_timings(c, device, -1, "stream", -1, &n);
    if (t && t->n_size == 1 && row_kernel(&w)) w.n = 1;
    if (!t || t->n_size != w.n) return false;
    *out = w.n == 1 ? between(t, n, w.size[0]) : near(t, n, &w);
    return true;
}

bool weft_cost_timed_link(const weft_cluster *c, int link, const char *work, int ranks,
                          double bytes, double *out)
{
    int                n = 0;
    const weft_timing *t = weft_cluster_timings(c, -1, link, work, ranks, &n);
    if (t) *out = between(t, n, bytes);
    return t != NULL;
}

bool weft_cost__measured_work(const weft_cluster *c, int device, const weft_instr *i,
                              double *out)
{
    weft_workload w;
    if (!c->n_timing) return false;
    weft_instr_work(i, &w);
    return weft_cost_timed_work(c, device, &w, out);
}

void weft_cost__measured_link(const weft_cluster *c, const weft_path *w, const char *work,
                              int ranks, double bytes, double *out)
{
    if (!c->n_timing || !w->link) return;
    if (weft_cost_timed_link(c, (int)(w->link - c->link), work, ranks, bytes, out))
        *out *= w->link->Bps * w->link->share / w->Bps; /* health */
}
