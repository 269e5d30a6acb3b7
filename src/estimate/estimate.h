/* Predictions for a table of configurations (`weft estimate`): each row becomes a transformer described as operator
 * instances, priced by cost, composed into a step by weft_cost_score_point: the functions that the planner
 * uses.
 *
 *     weft_estimate *e;
 *     WEFT_TRY(weft_estimate_create(hardware, constants, &e));
 *     weft_prediction p;
 *     weft_estimate_row(e, &config, &p);
 */
#ifndef WEFT_ESTIMATE_ESTIMATE_H
#define WEFT_ESTIMATE_ESTIMATE_H

#include "cost/score.h"
#include "estimate/hardware.h"
#include "estimate/row.h"

typedef struct weft_prediction {
    double step_s, step_lo, step_hi; /* the latter: an interval of 90 % */
    double mem_bytes;
    bool   fits;
    int    micro_batch, chunks,
        recompute; /* as the row says, or the best where it says nothing */
    weft_cost_score score;
} weft_prediction;

/* h and k are borrowed.  WEFT_ERR_ARG where a device or a split is not known: the text names it. */
weft_status weft_estimate_row(const weft_hardware *h, const weft_cost_constants *k,
                              const weft_config *c, weft_prediction *out);

#endif
