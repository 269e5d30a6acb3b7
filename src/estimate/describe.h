/* A transformer layer as operator instances of one device: the one place that knows heads and hidden
 * sizes.  What comes out is priced by cost, which does not. */
#ifndef WEFT_ESTIMATE_DESCRIBE_H
#define WEFT_ESTIMATE_DESCRIBE_H

#include "cost/score.h"
#include "estimate/row.h"

enum {
    WEFT_DESCRIBE_MAX = 128
};

typedef enum weft_layer_class {
    WEFT_LAYER_INPUT, /* embedding */
    WEFT_LAYER_DENSE,
    WEFT_LAYER_EXPERTS,
    WEFT_LAYER_HEAD, /* last norm, logits, loss */
    WEFT_LAYER_N
} weft_layer_class;

typedef struct weft_description {
    weft_cost_layer layer;
    weft_cost_item  item[WEFT_DESCRIBE_MAX];
} weft_description;

/* dtype: of the products; half: of attention and head (names of peaks the device has). */
void weft_describe(const weft_config *c, const weft_cost_variant *v,
                   const weft_cost_engine *e, weft_layer_class k, const char *dtype,
                   const char *half, weft_description *out);

#endif
