/* A choice stage by stage, and where its ranks lie.
 *
 *     weft_planner_placement at;
 *     WEFT_TRY(weft_planner_place(&problem, &result->choice[0], cluster, NULL, arena, &at));
 *     at.p.device[rank] ...        ranks as in a plan file
 *     weft_planner_placement_fini(&at);
 */
#ifndef WEFT_PLANNER_PLACEMENT_H
#define WEFT_PLANNER_PLACEMENT_H

#include "place/place.h"
#include "plan/plan.h"
#include "search/search.h"

/* The stages of a choice as they were scored; x->point.pp of them, in a. */
weft_status weft_planner_stages(const weft_search_problem *p, const weft_search_choice *x,
                                weft_arena *a, weft_cost_stage **out);

/* A device for each rank as the search counted them out, kind by kind along the pipeline: before
 * anybody looks at traffic. */
weft_status weft_planner_deal(const weft_search_problem *p, const weft_search_choice *x,
                              const weft_cluster *c, weft_arena *a, int *device);

/* A placement that there was, of the same cluster before something happened to it. */
typedef struct weft_planner_was {
    weft_place_mesh mesh; /* sizes are enough */
    const int      *device;
} weft_planner_was;

/* Where the ranks of a plan lay.  Arrays in a.  WEFT_ERR_ARG: its mesh has other axes than dp,
 * ep, cp, tp. */
weft_status weft_planner_was_of(const weft_plan *p, weft_arena *a, weft_planner_was *out);

typedef struct weft_planner_placement {
    weft_place_mesh    mesh;
    weft_place_job     job; /* arrays in the arena */
    weft_placement     p;
    weft_place_seconds plain;   /* rank by rank onto the next device that will do */
    bool               kept;    /* there was a placement of the same cut */
    int                n_moved; /* ranks on another device than before, where kept */
} weft_planner_placement;

/* Stages lie on the kinds of devices that they were chosen for; a tensor group does not leave its
 * node where it fits in one.  was may be NULL; else ranks stay where they were if their device
 * may still be used.  A cluster of 10^4 devices takes less than a second. */
weft_status weft_planner_place(const weft_search_problem *p, const weft_search_choice *x,
                               const weft_cluster *c, const weft_planner_was *was,
                               weft_arena *a, weft_planner_placement *out);
/* The same with devices that somebody has chosen: device[rank]. */
weft_status weft_planner_place_on(const weft_search_problem *p,
                                  const weft_search_choice *x, const weft_cluster *c,
                                  const int *device, weft_arena *a,
                                  weft_planner_placement *out);
void        weft_planner_placement_fini(weft_planner_placement *p);

/* Node by node which ranks it has, runs of alike nodes once; what is moved. */
weft_status weft_planner_placement_print(const weft_planner_placement *p,
                                         const weft_cluster *c, weft_text *t);

#endif
