/* Inside the room. */
#ifndef WEFT_PLANNER_PRIV_H
#define WEFT_PLANNER_PRIV_H

#include "planner/planner.h"

/* A step that is later's is so much of the others', or it is not worth its memory. */
#define WEFT_PLANNER__SHORTER 0.99

/* open.c: machines, configuration and rows into the answer. */
weft_status weft_planner__open(const weft_planner_ask *q, weft_planner_answer *a);
bool        weft_planner__is_ours(const weft_planner_ask *q);
/* Ours, planned for devices that it never ran on: all but CPUs. */
bool weft_planner__is_untimed(const weft_planner_ask *q);
/* Steps of the engine were measured on all kinds of devices. */
bool weft_planner__ran_there(const weft_planner_ask *q, const weft_planner_answer *a);
/* Of a device's memory, what is not the program's. */
int64_t weft_planner__engine_bytes(const weft_planner_ask    *q,
                                   const weft_planner_answer *a,
                                   const weft_device_kind    *d);

/* make.c: a choice as a plan of ours, and the training that it is for: the answer's, where that
 * will do, else a new one; both the caller's. */
weft_status weft_planner__make(const weft_planner_ask *q, weft_planner_answer *a,
                               const weft_search_choice *x, weft_training *t,
                               weft_plan **out);
/* Gives t, which may be zeroed, to the answer. */
void weft_planner__keep_training(weft_planner_answer *a, weft_training *t);

/* view.c: the devices of a choice's ranks, in a; NULL: rank r has device r. */
weft_status weft_planner__devices(const weft_planner_ask *q, const weft_planner_answer *a,
                                  const weft_search_choice *x, bool plain,
                                  weft_arena *arena, int **device, int *n);
/* pinned.c: the same where layers are constrained to nodes. */
weft_status weft_planner__pinned_devices(const weft_planner_ask    *q,
                                         const weft_planner_answer *a,
                                         const weft_search_choice *x, weft_arena *arena,
                                         int **device, int *n);
/* The cluster with these devices as 0, 1, ..., and with a rate for 16 bits of any kind where it
 * has one for another. */
weft_status weft_planner__view(const weft_cluster *c, const char *precision,
                               const int *device, int n, weft_cluster **out);

/* The whole cluster so, where that makes a difference; else NULL. */
weft_status weft_planner__priced(const weft_planner_ask *q, const char *precision,
                                 weft_cluster **out);

/* check.c: partition, exact memory, simulation.  What it came to stands in x; *plan: the caller's
 * where it fits. */
weft_status weft_planner__check(const weft_planner_ask *q, weft_planner_answer *a,
                                weft_planner_tried *x, weft_plan **plan);

/* later.c: with another stage of ZeRO. */
void weft_planner__set_zero(weft_search_choice *x, int zero);
/* With the next step gathering `percent` of the parameters. */
void    weft_planner__set_later(weft_search_choice *x, int percent);
int64_t weft_planner__bucket(const weft_search_choice *x); /* bytes of sums at once */
/* Seconds that this could hide of x, at most; 0: it is none of those. */
double weft_planner__may_hide(const weft_planner_answer *a, const weft_planner_tried *x);
/* x so, checked, into y; *plan: the caller's where its step is shorter than than_s, else NULL. */
weft_status weft_planner__check_later(const weft_planner_ask *q, weft_planner_answer *a,
                                      const weft_planner_tried *x, double than_s,
                                      weft_planner_tried *y, weft_plan **plan);

/* Why x lost against the winner, into the answer's arena. */
weft_status weft_planner__why(weft_planner_answer *a, const weft_planner_tried *winner,
                              weft_planner_tried *x);
/* idle.c: does the best leave devices idle, and was no plan of all of them simulated? */
bool weft_planner__wants_all(const weft_planner_ask *q, const weft_planner_answer *a,
                             const weft_search_choice *best);
/* The search's best of all devices, or in words why there is none; *out is the caller's, or NULL.
 */
weft_status weft_planner__search_all(const weft_planner_answer *a, weft_arena *arena,
                                     weft_search_result **out, const char **why);
/* "4 x t4: with all 8 devices ..."; nothing where all are used. */
weft_status weft_planner__put_idle(const weft_planner_ask    *q,
                                   const weft_planner_answer *a, weft_text *t);
/* Nothing fits: the closest, its largest buffer, what would help. */
weft_status weft_planner__nofit(const weft_planner_answer *a);

#endif
