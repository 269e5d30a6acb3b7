/* An operator instance: what a device is asked to do, by shape, without a word about what model
 * asks. Programs are priced through it instruction by instruction, composed rows (score.h) list
 * by list.
 *
 *     weft_cost_op q = weft_cost_product("bf16", 4096, 12288, 4096, 1);
 *     double s = weft_cost_op_seconds(&q, device);
 *
 *   product    2 m n k count / (peak * reached), reached = efficiency * k/(k+a) * r/(r + 6 a^2),
 *              r = m n count, with a = the kind's half_size (no shape given: efficiency alone):
 *              what a unit sums must be
 *              long, what the device makes must fill its units, whatever the sides;
 *              not below bytes / (mem_Bps * stream); less where rows begin anywhere (unit)
 *   attention  flops / (peak * attention), likewise
 *   stream     bytes / (mem_Bps * stream)
 * each plus launch_s. */
#ifndef WEFT_COST_OP_H
#define WEFT_COST_OP_H

#include "cluster/cluster.h"

typedef enum weft_cost_work {
    WEFT_COST_PRODUCT,
    WEFT_COST_ATTENTION, /* fused: no score reaches memory */
    WEFT_COST_STREAM,    /* element-wise, norms, copies: bound by memory */
} weft_cost_work;

typedef struct weft_cost_op {
    weft_cost_work work;
    const char    *dtype;   /* whose peak applies */
    double         m, n, k; /* of a product; 0: not known */
    int    unit; /* its rows begin at multiples of so many elements; 0: of 16 bytes */
    double flops, bytes;
} weft_cost_op;

/* count products of (m,k) and (k,n) in dtype, operands of operand_bytes an element. */
weft_cost_op weft_cost_product(const char *dtype, double operand_bytes, double m,
                               double n, double k, double count);
weft_cost_op weft_cost_stream(double bytes);
weft_cost_op weft_cost_attention(const char *dtype, double flops, double bytes);

/* Seconds on d, its launch included; infinity where d has no such peak. */
double weft_cost_op_seconds(const weft_cost_op *o, const weft_device_kind *d);

#endif
