#include "base/lanes.h"

int64_t weft_lanes_default(int64_t n, int64_t n_micro)
{
    int64_t lanes = 1;
    while (lanes < n && 2 * lanes <= n_micro) lanes *= 2;
    return lanes;
}

int64_t weft_lanes_fit_micro(int64_t batch, int64_t micro_batch, int64_t lanes)
{
    while (micro_batch > 1 && (batch % micro_batch || batch / micro_batch < lanes))
        micro_batch--;
    return micro_batch;
}

bool weft_lanes_right(const weft_lanes *d)
{
    int64_t sum = 0;
    if (d->n < 1 || d->n_lane < d->n || d->n_lane & (d->n_lane - 1)) return false;
    for (int k = 0; k < d->n && d->share; k++) {
        if (d->share[k] < 1) return false;
        sum += d->share[k];
    }
    return !d->share || sum == d->n_lane;
}

void weft_lanes_of(const weft_lanes *d, int k, int *first, int *end)
{
    if (d->share) {
        *first = 0;
        for (int i = 0; i < k; i++) *first += d->share[i];
        *end = *first + d->share[k];
        return;
    }
    int small = d->n_lane / d->n, larger = d->n_lane % d->n;
    *first = k * small + (k < larger ? k : larger);
    *end   = *first + small + (k < larger ? 1 : 0);
}

int weft_lanes_terms(int first, int end, int *level)
{
    int n = 0;
    while (first < end) {
        int l = 0;
        while (l < 30 && !(first >> l & 1) && end - first >= 2 << l) l++;
        if (level) level[n] = l;
        first += 1 << l;
        n++;
    }
    return n;
}

int weft_lanes_most_terms(const weft_lanes *d)
{
    int most = 0;
    for (int k = 0; k < d->n; k++) {
        int first, end;
        weft_lanes_of(d, k, &first, &end);
        int terms = weft_lanes_terms(first, end, 0);
        if (terms > most) most = terms;
    }
    return most;
}

bool weft_lanes_plain(const weft_lanes *d)
{
    for (int k = 1; k < d->n && d->share; k++)
        if (d->share[k] != d->share[0]) return false;
    return !(d->n & (d->n - 1));
}
