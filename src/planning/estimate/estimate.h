/* Predictions for a table of configurations (`weft estimate`): each row becomes a transformer
 * described as operator instances, priced by cost, composed into a step by weft_cost_score_point:
 * the functions that the planner uses.
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
    /* as the row says, or the best where it says nothing */
    int             micro_batch, chunks, recompute;
    weft_cost_score score;
} weft_prediction;

/* h and k are borrowed.  WEFT_ERR_ARG where a device or a split is not known: the text names it. */
weft_status weft_estimate_row(const weft_hardware *h, const weft_cost_constants *k,
                              const weft_config *c, weft_prediction *out);

/* What a table of rows is made of, for those who search over many variants of one configuration:
 * classes, segments (two of the caller's), bytes of a parameter; t->engine is set.  Then the rows
 * of all classes (WEFT_LAYER_N of describe.h) under one variant on one device kind. */
void weft_estimate_table(const weft_config *c, weft_cost_segment *segment,
                         weft_cost_table *t);
void weft_estimate_fill(const weft_config *c, const weft_cost_engine *e,
                        const weft_cost_variant *v, const weft_device_kind *d,
                        const weft_cost_fabric *f, weft_cost_row *row);

/* The wires that a node type's devices see, of which per_node are used in each node; n NULL: PCIe
 * and Ethernet. */
void weft_estimate_fabric(const weft_cost_constants *k, const weft_hw_net *n,
                          int per_node, weft_cost_fabric *out);
/* The interval of a step, by the engine's spread, and up to its `longest` where it was never timed
 * on the devices. known: constants are there for all devices; n_open: knobs that were not said. */
void weft_estimate_interval(const weft_cost_engine *e, double step_s, bool known,
                            int n_open, double *lo, double *hi);

#endif
