/* What the backward pass computes again instead of keeping it: one enumeration for keys, graphs and
 * plans.  Words of the row recompute, in its order. */
#ifndef WEFT_STRATEGY_RECOMPUTE_H
#define WEFT_STRATEGY_RECOMPUTE_H

typedef enum weft_strategy_recompute {
    WEFT_STRATEGY_KEEP, /* "none" */
    /* what is cheap to make from what is kept anyway: norms, activations, products element by
     * element, dispatched rows */
    WEFT_STRATEGY_SELECTIVE,
    /* everything within the repeated layers but what passes from one to the next */
    WEFT_STRATEGY_FULL,
} weft_strategy_recompute;

#endif
