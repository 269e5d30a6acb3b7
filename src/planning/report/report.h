/* A plan as one page to look at: HTML that needs nothing but itself.
 *
 *     weft_report r = {.model = "gpt2", .cluster = c, .problem = &p, .result = result, ...};
 *     WEFT_TRY(weft_report_html(&r, &text));
 *
 * Topology with placement, a step in time, memory, what else was tried and why it lost, what
 * would help, and how sure the numbers are.  The same input gives the same bytes; whatever text
 * comes from users is escaped. */
#ifndef WEFT_REPORT_REPORT_H
#define WEFT_REPORT_REPORT_H

#include "planner/planner.h"
#include "program/timeline.h"

typedef struct weft_report {
    const char         *model;   /* as the user named it */
    const char         *where;   /* the cluster, likewise */
    const char         *command; /* that makes this page again; NULL: not said */
    const char         *precision, *engine;
    const char         *untimed; /* the engine never ran on such devices; or NULL */
    int64_t             seq;     /* tokens of a sequence; 0: the unit is none */
    double              flops;   /* of a step's model; 0: not known */
    const weft_cluster *cluster;
    const weft_cost_constants    *constants;
    const weft_search_problem    *problem;
    const weft_search_result     *result;
    const weft_planner_placement *place;
    const weft_planner_answer    *answer; /* what was checked; NULL: nothing */
    bool is_rows; /* layer costs are of programs on this cluster's links */
    const weft_timeline *timeline; /* simulated, programs with their ranks; NULL */
} weft_report;

weft_status weft_report_html(const weft_report *r, weft_text *out);

#endif
