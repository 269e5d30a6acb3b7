/* A transformer layer as operator instances of one device: the one place that knows heads and
 * hidden sizes.  What comes out is priced by cost, which does not. */
#ifndef WEFT_ESTIMATE_DESCRIBE_H
#define WEFT_ESTIMATE_DESCRIBE_H

#include "cost/score.h"
#include "estimate/row.h"

enum {
    WEFT_DESCRIBE_MAX = 128
};

/* Parts of a layer that light recomputation may run again, as bits (weft_config's
 * recompute_modules). */
typedef enum weft_again {
    WEFT_AGAIN_CORE   = 1,  /* scores of attention, where they reach memory */
    WEFT_AGAIN_NORM   = 2,  /* norms before products */
    WEFT_AGAIN_ACT    = 4,  /* activation functions of experts */
    WEFT_AGAIN_UP     = 8,  /* keys, values and queries from their latent ones */
    WEFT_AGAIN_MLP    = 16, /* whole feed-forwards, products too */
    WEFT_AGAIN_MOE    = 32, /* all of the experts, messages too */
    WEFT_AGAIN_SHARED = 64, /* shared experts */
    WEFT_AGAIN_CHEAP  = WEFT_AGAIN_CORE | WEFT_AGAIN_NORM | WEFT_AGAIN_ACT | WEFT_AGAIN_UP
} weft_again;

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
