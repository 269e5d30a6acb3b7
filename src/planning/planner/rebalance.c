/* Replicas that are not equally fast: lanes are shared out so that the last one to end ends as soon
 * as can be. */
#include <stdlib.h>

#include "planner/replan.h"

static int size_of(int axis)
{
    return axis > 1 ? axis : 1;
}

/* One after another to the replica that would end first with it; each has one. */
static void share_lanes(int n_lane, int n, const double *slow, int *lanes)
{
    for (int r = 0; r < n; r++) lanes[r] = 1;
    for (int k = n; k < n_lane; k++) {
        int best = 0;
        for (int r = 1; r < n; r++)
            if ((lanes[r] + 1) * slow[r] < (lanes[best] + 1) * slow[best]) best = r;
        lanes[best]++;
    }
}

static double find_pace(int n, const double *slow, const int *lanes)
{
    double most = 0;
    for (int r = 0; r < n; r++)
        if (lanes[r] * slow[r] > most) most = lanes[r] * slow[r];
    return most;
}

static void take_running(const weft_plan *p, int n_lane, int n, int *lanes)
{
    for (int r = 0; r < n; r++)
        lanes[r] = p->share ? p->share[r] : (n_lane + n - 1 - r) / n;
}

weft_status weft_replanner_rebalance(const weft_training *t, const weft_plan *was,
                                     const double *slow, weft_plan **out, double *ratio)
{
    weft_strategy y      = was->strategy;
    int           n_lane = (int)t->spec.lanes, n = size_of(y.dp);
    int          *lanes = malloc(2 * sizeof *lanes * (size_t)n);
    *out                = NULL;
    *ratio              = 1;
    if (!lanes) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    if (n < 2 || n_lane <= n ||
        weft_plan_world(was) != n) { /* stages, or nothing to move */
        free(lanes);
        return WEFT_OK;
    }
    take_running(was, n_lane, n, lanes);
    share_lanes(n_lane, n, slow, lanes + n);
    double now = find_pace(n, slow, lanes), next = find_pace(n, slow, lanes + n);
    bool   fits     = next < now;
    y.n_batch_split = 0;
    for (int r = 0; r < n && fits; r++)
        fits = weft_strategy_add_split(&y, 1, lanes[n + r]);
    free(lanes);
    if (!fits) return WEFT_OK;
    *ratio = next / now;
    return weft_compile_plan(t, &y, 0, out);
}
