/* weft check --weft: a configuration of our own engine, by programs that are partitioned and
 * simulated (planner/planner.h). */
#ifndef WEFT_CLI_CHECK_OWN_H
#define WEFT_CLI_CHECK_OWN_H

#include "planner/planner.h"

typedef struct weft_cli_own_check {
    const char *words; /* constraints, divided by spaces: "dp=2 micro_batch=8" */
    const char *model, *cluster;
    int64_t     batch, seq;
    double      measured_s; /* 0: not said */
    bool        json;
} weft_cli_own_check;

weft_status weft_cli_check_own(const weft_cli_own_check *o, bool *fits, weft_text *out);

/* A constraint of weft plan, or reduction=NAME, into q; texts go to a (plan.c). */
weft_status weft_cli_constrain(weft_planner_request *q, const char *word, weft_arena *a);

#endif
