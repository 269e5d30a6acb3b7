/* Measured tables where there are any.
 *
 * A work's time is read off what was measured of the same work at other sizes:
 *     one size       between its two neighbours, straight on a log-log scale; below all of them the least one's time,
 *                    above all of them in proportion
 *     two or three   the rate (size 0, or m n k, a second) as the mean of the measured ones, each weighted by how near
 *                    it is on a log scale
 * A work that was not measured is looked for without its last fused step, and so on; one that only streams through
 * memory takes what a stream of as many bytes does. */
#include <math.h>
#include <string.h>

#include "cost/cost.h"
#include "cost/cost_priv.h"
#include "program/work.h"

static double amount(const weft_work *w, const double *size)
{
    bool   product = !strncmp(w->kind, "matmul", 6);
    double x       = product ? size[0] * size[1] * size[2] : size[0];
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

static double near(const weft_timing *t, int n, const weft_work *w)
{
    double sum = 0, weight = 0;
    for (int i = 0; i < n; i++) {
        double away = 1e-3;
        for (int k = 0; k < w->n; k++) {
            double d = log(fmax(w->size[k], 1)) - log(fmax(t[i].size[k], 1));
            away += d * d;
        }
        double x = 1 / (away * away * away);
        sum += x * (log(amount(w, t[i].size)) - log(t[i].s));
        weight += x;
    }
    return amount(w, w->size) / exp(sum / weight);
}

bool weft_cost_timed_work(const weft_cluster *c, int device, const weft_work *work,
                          double *out)
{
    weft_work          w = *work;
    int                n = 0;
    const weft_timing *t = NULL;
    if (!c->n_timing || !w.n) return false;
    for (char *last = w.kind; last && !t;) {
        t    = weft_cluster_timings(c, device, -1, w.kind, -1, &n);
        last = strrchr(w.kind, '+');
        if (last) *last = 0;
    }
    if (!t && w.n == 1) t = weft_cluster_timings(c, device, -1, "stream", -1, &n);
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
    weft_work w;
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
