#include "base/lanes.h"

void weft_lanes_of(int n_lane, int n, int k, int *first, int *end)
{
    int small = n_lane / n, larger = n_lane % n;
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

int weft_lanes_most_terms(int n_lane, int n)
{
    int most = 0;
    for (int k = 0; k < n; k++) {
        int first, end;
        weft_lanes_of(n_lane, n, k, &first, &end);
        int terms = weft_lanes_terms(first, end, 0);
        if (terms > most) most = terms;
    }
    return most;
}
