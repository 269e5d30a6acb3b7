/* Work in proportion to speed, in whole units. */
#include <math.h>
#include <stdlib.h>

#include "place/place.h"

static weft_status check_speeds(const double *speed, int n)
{
    for (int i = 0; i < n; i++)
        if (!isfinite(speed[i]) || speed[i] <= 0)
            return WEFT_FAIL(WEFT_ERR_ARG, "speed %d is %g, expected one above 0", i,
                             speed[i]);
    return WEFT_OK;
}

/* What a device does within the time; one unit's rounding is forgiven. */
static int64_t units_in(double time, double speed)
{
    return (int64_t)floor(time * speed * (1 + 1e-12));
}

/* Start from what all do within the ideal time, then one unit at a time to whoever ends first with it: each
 * step keeps the largest end the least there can be. */
weft_status weft_place_units(const double *speed, int n, int64_t total, int64_t least,
                             int64_t *unit)
{
    double sum = 0;
    if (n < 1 || least < 0 || total < 0 || least > total / n)
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%lld units are too few for %d devices of %lld each",
                         (long long)total, n, (long long)least);
    WEFT_TRY(check_speeds(speed, n));
    for (int i = 0; i < n; i++) sum += speed[i];
    int64_t left = total;
    for (int i = 0; i < n; i++) {
        unit[i] = units_in((double)total / sum, speed[i]);
        if (unit[i] < least) unit[i] = least;
        left -= unit[i];
    }
    for (; left > 0; left--) {
        int best = 0;
        for (int i = 1; i < n; i++)
            if ((double)(unit[i] + 1) / speed[i] < (double)(unit[best] + 1) / speed[best])
                best = i;
        unit[best]++;
    }
    for (; left < 0;
         left++) { /* the least for all was more than there is: from whoever ends last */
        int last = -1;
        for (int i = 0; i < n; i++)
            if (unit[i] > least && (last < 0 || (double)unit[i] / speed[i] >
                                                    (double)unit[last] / speed[last]))
                last = i;
        unit[last]--;
    }
    return WEFT_OK;
}

/* best[s][i]: the slowest of the first s stages when they hold the first i layers. */
weft_status weft_place_layers(const double *layer_s, const double *layer_bytes,
                              int n_layer, const double *speed, const double *most_bytes,
                              int n_stage, int *cut)
{
    if (n_stage < 1 || n_layer < n_stage)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d layers are too few for %d stages", n_layer,
                         n_stage);
    WEFT_TRY(check_speeds(speed, n_stage));
    size_t      wide = (size_t)n_layer + 1;
    double     *best = malloc(wide * (size_t)(n_stage + 1) * sizeof *best);
    int        *from = malloc(wide * (size_t)(n_stage + 1) * sizeof *from);
    weft_status st   = WEFT_OK;
    if (!best || !from)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory for %d stages", n_stage));
    for (size_t i = 0; i < wide; i++) best[i] = i ? INFINITY : 0;
    for (int s = 1; s <= n_stage; s++)
        for (int end = 0; end <= n_layer; end++) {
            double sum = 0, bytes = 0, low = INFINITY;
            int    arg = -1;
            for (int i = end - 1; i >= s - 1; i--) {
                sum += layer_s[i];
                if (layer_bytes) bytes += layer_bytes[i];
                if (most_bytes && bytes > most_bytes[s - 1]) break;
                double t =
                    fmax(best[(size_t)(s - 1) * wide + (size_t)i], sum / speed[s - 1]);
                if (t < low) low = t, arg = i;
            }
            best[(size_t)s * wide + (size_t)end] = low;
            from[(size_t)s * wide + (size_t)end] = arg;
        }
    cut[n_stage] = n_layer;
    for (int s = n_stage; s > 0; s--) {
        cut[s - 1] = from[(size_t)s * wide + (size_t)cut[s]];
        if (cut[s - 1] < 0)
            WEFT_GO(WEFT_FAIL(WEFT_ERR_NOFIT,
                              "%d layers do not fit the memory of %d stages", n_layer,
                              n_stage));
    }
out:
    free(best);
    free(from);
    return st;
}
