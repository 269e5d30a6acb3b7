/* Inside the module. */
#ifndef WEFT_PLANNER_PRIV_H
#define WEFT_PLANNER_PRIV_H

#include "compile/world.h"
#include "planner/planner.h"
#include "sim/fold.h"

/* A step that is later's is so much of the others', or it is not worth its memory. */
#define WEFT_PLANNER__SHORTER 0.99

/* A training graph that candidates of one micro-batch, lanes and recomputation share. */
typedef struct weft_planner__training {
    weft_training t; /* its spec is set from the beginning */
    bool          is_built;
    weft_status   status;
    char         *error;  /* why it could not be made; of malloc, or NULL */
    int           n_user; /* candidates that borrow it */
    struct weft_planner__training *next;
} weft_planner__training;

/* Seconds that weft_planner_step_time() found. */
typedef struct weft_planner__point {
    int                         n_device;
    double                      step_s;
    struct weft_planner__point *next;
} weft_planner__point;

struct weft_planner_workspace {
    weft_planner_request request;
    weft_arena          *arena;
    weft_cost_constants *constants;
    weft_hardware       *hardware;
    weft_config          config;
    weft_cluster *priced; /* the cluster with rates for what is asked for, or NULL */
    weft_search_machines machines;
    /* what is searched; model.arg: layer costs, which fill up */
    weft_search_problem problem;
    bool                is_rows;
    bool                borrows; /* constants, hardware and layer costs are another's */
    bool                fixed_on_devices; /* reduction was auto */
    bool                seconds_only; /* an answer that nobody looks at: no placement */
    double              flops;
    weft_planner__training *trainings; /* the one used last comes first */
    /* with reduction auto, where nothing fits with invariant sums: the same with fixed ones */
    weft_planner_workspace *fixed;
    weft_planner_workspace *offload; /* with states in host memory; NULL: not there */
    weft_planner__point    *points;
};

/* open.c: machines, configuration and layer costs. */
weft_status weft_planner__open(weft_planner_workspace *w);
/* workspace.c: makes w->fixed, where it is not there. */
weft_status weft_planner__open_fixed(weft_planner_workspace *w);
/* The same for other devices of the cluster, with the layer costs of w; sub is zeroed. */
weft_status weft_planner__open_part(weft_planner_workspace *w, const weft_cluster *c,
                                    weft_planner_workspace *sub);
bool        weft_planner__is_ours(const weft_planner_workspace *w);
/* Devices that a search may use. */
int weft_planner__n_device(const weft_planner_workspace *w);
/* Steps of the engine were measured on all kinds of devices. */
bool weft_planner__ran_there(const weft_planner_workspace *w);
/* Of a device's memory, what is not the program's. */
int64_t weft_planner__engine_bytes(const weft_planner_workspace *w,
                                   const weft_device_kind       *d);

/* workspace.c: may states go to host memory where nothing fits; and a workspace in which they
 * are, w->offload. */
bool        weft_planner__may_offload(const weft_planner_workspace *w);
weft_status weft_planner__open_offload(weft_planner_workspace *w);

/* make.c: what a choice is compiled from, and the choice as a plan of ours. */
void weft_planner__spec_of(const weft_planner_workspace *w, const weft_search_choice *x,
                           weft_compile_spec *out);
weft_status weft_planner__make(const weft_training *t, const weft_search_choice *x,
                               weft_plan **out);

/* view.c: where a choice's ranks lie; plain: as the search counts devices out.  Arrays in arena,
 * *out is the caller's (weft_planner_placement_fini). */
weft_status weft_planner__place(weft_planner_workspace *w, const weft_search_choice *x,
                                bool plain, weft_arena *arena,
                                weft_planner_placement *out);
/* The devices that the search counts out, where ranks may be placed so; else *device is NULL. */
weft_status weft_planner__plain_devices(const weft_planner_workspace *w,
                                        const weft_search_choice *x, weft_arena *arena,
                                        int **device);
/* pinned.c: the same where layers are constrained to nodes. */
weft_status weft_planner__pinned_devices(const weft_planner_workspace *w,
                                         const weft_search_choice *x, weft_arena *arena,
                                         int **device, int *n);
/* The cluster with these devices as 0, 1, ..., and with a rate for 16 bits of any kind where it
 * has one for another. */
weft_status weft_planner__view(const weft_cluster *c, const char *precision,
                               const int *device, int n, weft_cluster **out);

/* The precision to price all matmuls in.  Programs of ours say which of theirs are in fp8. */
const char *weft_planner__priced_as(const weft_planner_workspace *w);

/* The whole cluster so, where that makes a difference; else NULL. */
weft_status weft_planner__priced(const weft_cluster *c, const char *precision,
                                 weft_cluster **out);

/* check.c: a candidate under check: partition, exact memory, simulation. */
typedef struct weft_planner__checked {
    weft_arena        *arena; /* of texts and devices */
    weft_planner_tried tried; /* what it came to */
    /* of the workspace, unless it is owned */
    weft_planner__training *shared;
    bool                    owns;
    weft_status             status;    /* WEFT_ERR_MEM; anything else is in tried */
    weft_planner_placement  placement; /* by traffic, or as tried.plain said */
    int                 *device, *plain, n_rank; /* device: of the placement, or plain */
    weft_plan           *plan;
    weft_compiled_world *world;
    weft_cluster        *view;
    weft_sim_folded     *fold;
    int64_t             *mem_bytes; /* [rank], in the plan's arena */
} weft_planner__checked;

/* Checks n candidates at the same time on the request's threads: each is what `of` says of it, its
 * choice copied.  out[i] is the caller's (weft_planner__checked_destroy).  WEFT_ERR_MEM alone
 * fails: a candidate that cannot be compiled is one that came to nothing. */
weft_status weft_planner__check(weft_planner_workspace *w, const weft_planner_tried *of,
                                int n, weft_planner__checked **out);
bool        weft_planner__fits(const weft_planner__checked *c);
/* Frees programs and timeline; plan, training graph and result stay. */
void weft_planner__drop_programs(weft_planner__checked *c);
/* The training graph is no longer the workspace's. */
void weft_planner__own_training(weft_planner_workspace *w, weft_planner__checked *c);
void weft_planner__checked_destroy(weft_planner__checked *c); /* accepts NULL */

/* make.c: the entry for a spec, to be built by weft_planner__build_training(), which any thread
 * may do; it comes first in the workspace's list. */
weft_status weft_planner__find_training(weft_planner_workspace  *w,
                                        const weft_compile_spec *s,
                                        weft_planner__training **out);
void        weft_planner__build_training(weft_planner__training *t);
void        weft_planner__training_destroy(weft_planner__training *t); /* accepts NULL */
/* Out of the list; all that nobody uses but the first `keep`. */
void weft_planner__take_training(weft_planner_workspace *w, weft_planner__training *t);
void weft_planner__free_trainings(weft_planner_workspace *w, int keep);

/* later.c: with the next step gathering `percent` of the parameters. */
void weft_planner__set_later(weft_search_choice *x, int percent);
/* The copies that are asked for. */
void weft_planner__set_copies(const weft_planner_workspace *w, weft_search_choice *x);
/* Bytes of sums at once, where they overlap with the backward pass. */
int64_t weft_planner__bucket(const weft_planner_workspace *w,
                             const weft_search_choice     *x);
/* Seconds that this could hide of x, at most; 0: it is none of those. */
double weft_planner__may_hide(const weft_planner_workspace *w,
                              const weft_planner_tried     *x);
/* x so, checked; *out: the caller's where its step is shorter than than_s, else NULL. */
weft_status weft_planner__check_later(weft_planner_workspace   *w,
                                      const weft_planner_tried *x, double than_s,
                                      weft_planner__checked **out);

/* Why x lost against the winner, into the answer's arena. */
weft_status weft_planner__why(weft_planner_answer *a, const weft_planner_tried *winner,
                              weft_planner_tried *x);
/* idle.c: does the best leave devices idle, and was no plan of all of them simulated? */
bool weft_planner__wants_all(const weft_planner_workspace *w,
                             const weft_planner_answer    *a,
                             const weft_search_choice     *best);
/* The search's best of all devices, of these machines, or in words why there is none; *out is the
 * caller's, or NULL. */
weft_status weft_planner__search_all(weft_planner_workspace     *w,
                                     const weft_search_machines *m, weft_arena *arena,
                                     weft_search_result **out, const char **why);
/* "4 x t4: with all 8 devices ..."; nothing where all are used. */
weft_status weft_planner__put_idle(weft_planner_workspace    *w,
                                   const weft_planner_answer *a, weft_text *t);
/* Nothing fits: the closest, its largest buffer, what would help. */
weft_status weft_planner__nofit(const weft_planner_workspace *w,
                                const weft_planner_answer    *a);

#endif
