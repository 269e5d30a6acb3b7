/* Private to the room: the machines of a row. */
#ifndef WEFT_ESTIMATE_PRIV_H
#define WEFT_ESTIMATE_PRIV_H

#include "cost/score.h"
#include "estimate/hardware.h"
#include "estimate/row.h"

typedef struct weft_estimate__machines {
    int              n; /* device kinds */
    weft_device_kind device[WEFT_COST_MAX_DEVICE];
    weft_flop_rate   rate[WEFT_COST_MAX_DEVICE][8];
    weft_cost_fabric fabric[WEFT_COST_MAX_DEVICE];
    uint8_t          stage[4096 + 4]; /* kinds of each stage, as bits */
    bool             known; /* measured steps moved the constants of all of them */
} weft_estimate__machines;

weft_status weft_estimate__machines_of(const weft_hardware       *h,
                                       const weft_cost_constants *k, const weft_config *c,
                                       weft_estimate__machines *out);

/* The peak that products in a precision run at, and that of its 16-bit parts. */
const char *weft_estimate__dtype_of(const weft_device_kind *d, const char *precision);
const char *weft_estimate__half_of(const weft_device_kind *d, const char *precision);

#endif
