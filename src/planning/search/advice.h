/* What would help a configuration of another engine: changes of one option that make its step
 * shorter, or that make it fit; where no single change does, a plan of the search that fits.
 *
 *     weft_search_advice_request q = {.config = &config, .hardware = hardware, ...};
 *     weft_search_advice         advice;
 *     WEFT_TRY(weft_search_advise(&q, arena, &advice));
 *     advice.change[0].text ...              "tp 8 -> 4 (dp 8 -> 16)", the fastest first */
#ifndef WEFT_SEARCH_ADVICE_H
#define WEFT_SEARCH_ADVICE_H

#include "search/search.h"

typedef struct weft_search_advice_request {
    const weft_config         *config; /* complete (weft_config_complete) */
    const weft_prediction     *now;    /* of weft_estimate_row() for config */
    const weft_hardware       *hardware;
    const weft_cost_constants *constants;
    const weft_cluster        *cluster;
    const weft_search_limits  *limits; /* what the engine can be configured to do */
    int                        n_most; /* changes to return */
} weft_search_advice_request;

/* One option changed; data-parallel replicas take the devices that other degrees leave. */
typedef struct weft_search_change {
    const char     *text;
    weft_config     config;
    weft_prediction predicted; /* fits */
} weft_search_change;

typedef struct weft_search_advice {
    int                 n_change;
    weft_search_change *change; /* the shortest step first */
    /* config does not fit, nor does any change of it: the plan that does, with its step and
     * memory, or why none does (any_fits is false); NULL elsewhere */
    const char *plan;
    bool        any_fits;
} weft_search_advice;

/* The request is read only; everything in *out is in a.  A change is given where its step is
 * shorter by 0.5 % or more, or where config does not fit and the change does. */
weft_status weft_search_advise(const weft_search_advice_request *q, weft_arena *a,
                               weft_search_advice *out);

#endif
