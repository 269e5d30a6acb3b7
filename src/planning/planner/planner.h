/* The planner: the best candidates of a search become plans, are partitioned class by class,
 * checked for the exact memory of their programs and simulated; the fastest that fits is the
 * answer.
 *
 *     weft_planner_request    q = {.cluster = c};
 *     weft_planner_workspace *w = NULL;
 *     weft_planner_answer    *a = NULL;
 *     q.spec             = weft_compile_spec_default("gpt2", 64, 1024);
 *     q.spec.micro_batch = q.spec.lanes = 0;             to be chosen
 *     weft_search_open(&q.constraints);
 *     WEFT_GO(weft_planner_workspace_create(&q, &w));
 *     WEFT_GO(weft_planner_decide(w, &a));
 *     WEFT_GO(weft_plan_print(a->plan, &text));          what `weft run plan=FILE` takes
 *     weft_planner_destroy(a);
 *     weft_planner_workspace_destroy(w);
 *
 * Three types: a request, which nothing changes; a workspace, which holds what planning makes on
 * its way (the model, layer costs, cost constants) and is used by one thread at a time; an answer,
 * which holds the result alone and outlives its workspace.  Any number of workspaces may be used
 * at once, also for one request.
 *
 * (1) A plan that was checked fits: on every rank the slabs of its program and what the engine
 *     needs beside them are at most the memory of its device.
 * (2) The same request gives the same answer, on any number of threads. */
#ifndef WEFT_PLANNER_PLANNER_H
#define WEFT_PLANNER_PLANNER_H

#include "compile/compile.h"
#include "estimate/row.h"
#include "planner/placement.h"
#include "program/timeline.h"
#include "search/search.h"

/* What is asked.  What it points to outlives the workspace. */
typedef struct weft_planner_request {
    /* reduction auto: as weft_reduction_on() has it for the cluster's devices, and fixed where
     * nothing fits otherwise.  micro_batch, lanes 0: to be chosen.  recompute is the
     * constraints' */
    weft_compile_spec   spec;
    const weft_cluster *cluster;
    bool                on_cpus; /* the job runs on CPUs, whatever the cluster has */
    /* where sums are invariant, tp, cp and ep, which change rounding as well, are left out */
    bool        keep_bits;
    const char *engine; /* whose overheads and abilities count; NULL: "weft" */
    /* of products: "fp16"; NULL: spec.dtype; that NULL, too: what the devices do best of 16 bits */
    const char             *precision;
    weft_search_constraints constraints;
    int64_t                 bucket_bytes; /* of the plan (our own engine); 0: not given */
    int                     world;  /* devices, all of them used; 0: as many as help */
    int                     n_best; /* candidates that are checked at once; 0: 5 */
    /* of a device that the program does not get; 0: what is usual for its kind */
    int64_t engine_bytes;
    bool    fast;      /* nothing is partitioned and simulated: the search's word alone */
    bool    with_plan; /* fast, other engines: a plan of ours of it as well */
    const weft_plan *was; /* ranks stay where it has them, as far as it goes; NULL */
    /* candidates that are checked at the same time; 0: 1.  Each takes memory of its own. */
    int  n_thread;
    bool with_timeline; /* the answer keeps the winner's simulated step */
} weft_planner_request;

typedef struct weft_planner_workspace weft_planner_workspace;

/* WEFT_ERR_ARG: a constraint that cannot be, a model that cannot be planned for, and why. */
weft_status weft_planner_workspace_create(const weft_planner_request *q,
                                          weft_planner_workspace    **out);
void        weft_planner_workspace_destroy(weft_planner_workspace *w); /* accepts NULL */

/* What it is about; borrowed.  A search of the problem fills the workspace's layer costs, so it is
 * run where the workspace may be changed. */
const weft_search_problem *weft_planner_problem(const weft_planner_workspace *w);
const weft_config         *weft_planner_config(const weft_planner_workspace *w);
const weft_cost_constants *weft_planner_constants(const weft_planner_workspace *w);
double weft_planner_flops(const weft_planner_workspace *w); /* of one unit of the batch */
/* Layer costs are of programs (rows.h), not of a transformer's sizes. */
bool weft_planner_is_rows(const weft_planner_workspace *w);

typedef enum weft_planner_end {
    WEFT_PLANNER_FITS,     /* simulated */
    WEFT_PLANNER_TOO_FULL, /* its programs take more memory than there is */
    WEFT_PLANNER_NO_PLAN,  /* no program can be made of it, and why */
    WEFT_PLANNER_UNTRIED,  /* the search's word alone */
} weft_planner_end;

/* A candidate, and what became of it. */
typedef struct weft_planner_tried {
    weft_search_choice choice;
    weft_planner_end   end;
    double             step_s; /* simulated; 0: it was not */
    weft_plan_time     time;
    bool               plain;  /* ranks lie as the search counts devices out */
    bool               quick;  /* of few ranks, too, only ends of axes are made */
    int64_t            bucket; /* bytes of sums beside the backward pass; 0: behind it */
    /* with later: steps without it, and with buckets alone; 0: not simulated */
    double      without_s, buckets_s;
    int         fullest;   /* the rank that lacks most, or has least to spare */
    int64_t     mem_bytes; /* its program's and the engine's; 0: not known */
    int64_t     mem_limit; /* what plans may fill of its device */
    const char *device;    /* that one's kind */
    const char *largest;   /* what takes most of it, and how much */
    int64_t     largest_bytes;
    /* with offload: of the rank that has most, bytes in host memory and seconds of updates there */
    int64_t host_bytes;
    double  host_s;
    int     n_class; /* ranks that differ */
    int     n_made; /* programs that were made for them: of many ranks, of ends of axes */
    int     number; /* in the order tried */
    const char *why; /* it lost; of the winner "" */
} weft_planner_tried;

/* The result alone: it needs neither request nor workspace. */
typedef struct weft_planner_answer {
    weft_arena *arena;
    weft_plan  *plan;    /* with what is predicted; NULL: for another engine */
    bool        checked; /* partitioned, measured, simulated */
    /* of sums; what auto became: fixed_to_fit: nothing fits with invariant ones; fixed_on_devices:
     * there are several GPUs, or a GPU and CPUs */
    weft_reduction reduction;
    bool           fixed_to_fit, fixed_on_devices;
    bool   offload_to_fit; /* states are in host memory, as nothing fits otherwise */
    double step_s, lo, hi; /* simulated where checked */
    /* no plan that the search knows is below; 0: the answer is shorter than all that fast
     * estimates can count, so none is known */
    double               bound_s;
    int                  n_tried, cap_tried;
    weft_planner_tried **tried;   /* the winner, then by simulated time, then the rest */
    int                  n_round; /* searches that it took */
    /* why no plan of all devices was simulated; NULL: one was, or it was not asked for */
    const char *not_all;
    /* what the search found, where checked those that hold, in the order of tried */
    weft_search_result *search;
    /* the winner's step as it was simulated, programs of unlike ranks with their real ranks; NULL
     * where nothing was, or it was not asked for */
    const weft_timeline *timeline;
    /* where the winner's ranks lie */
    weft_planner_placement placement;
    /* the winner's training graph, the timeline's programs */
    struct weft_planner__checked *winner;
} weft_planner_answer;

/* WEFT_ERR_ARG: as weft_planner_workspace_create().  WEFT_ERR_NOFIT: nothing fits; the tightest
 * tensor and device are named, with what would help. */
weft_status weft_planner_decide(weft_planner_workspace *w, weft_planner_answer **out);
void        weft_planner_destroy(weft_planner_answer *a); /* accepts NULL */

/* The training that the plan was made for becomes the caller's; zeroed: there is none, or the
 * answer's timeline is of its programs. */
void weft_planner_take_training(weft_planner_answer *a, weft_training *out);

/* The workspace that an answer's layer costs are of: w, or where only fixed sums or only states in
 * host memory fit (fixed_to_fit, offload_to_fit)
 * one for these, which w owns. */
weft_status weft_planner_workspace_for(weft_planner_workspace    *w,
                                       const weft_planner_answer *a,
                                       weft_planner_workspace   **out);

/* The same with a workspace of its own. */
weft_status weft_planner_plan(const weft_planner_request *q, weft_planner_answer **out);

/* Seconds of a step on the first n_device devices of the request's cluster that may be used: those
 * of the answer to the same request for these devices alone, of which some may stay idle where
 * that is faster.  Constraints hold; `world`, `was` and `with_plan` of the request do not count.
 * For curves of throughput over devices:
 *
 *     for (int n = 1; n <= 64; n *= 2) WEFT_TRY(weft_planner_step_time(w, n, &step_s[n]));
 *
 * Layer costs are filled once for all calls, and a number of devices that was asked for before is
 * answered from memory; with `fast` only the search runs, which takes milliseconds.
 * WEFT_ERR_ARG: fewer than 1 device, or more than there are; WEFT_ERR_NOFIT: nothing fits. */
weft_status weft_planner_step_time(weft_planner_workspace *w, int n_device,
                                   double *seconds);

/* Micro-batches that each pipeline of the winner has too few in a step to keep all its stages
 * busy once; 0: enough, or no pipeline.  With pp - 1 of them missing a step has one micro-batch,
 * and the stages compute sequentially. */
int weft_planner_missing_micro(const weft_planner_answer *a);

/* For people (explain: more of it), for programs, and in a line: "2 ranks, dp=2 ..., 0.12 s a
 * step".  w: of weft_planner_workspace_for(), or another of the same request. */
weft_status weft_planner_print(weft_planner_workspace *w, const weft_planner_answer *a,
                               bool explain, weft_text *t);
weft_status weft_planner_print_json(weft_planner_workspace    *w,
                                    const weft_planner_answer *a, weft_text *t);
void        weft_planner_print_line(const weft_planner_answer *a, weft_text *t);

/* Has our own engine run on all kinds of devices here?  Where it has not: that, which they are and
 * what it means for simulated steps, without an end of line; else nothing. */
bool weft_planner_has_run_on(const weft_cluster *c);
void weft_planner_print_never_ran(const weft_cluster *c, weft_text *t);

/* That the engine never ran on devices that are planned for (another engine: that none of its steps
 * was measured there), which, and what that means for the interval, without an end of line;
 * nothing where it did. */
void weft_planner_print_untimed(const weft_planner_workspace *w, weft_text *t);

/* Why auto became fixed, and what that gives up, in a line; nothing where it did not. */
void weft_planner_print_reduction(const weft_planner_answer *a, weft_text *t);
/* A line where optimizer states are in the host's memory, what that takes there; else nothing. */
void weft_planner_print_offload(const weft_planner_answer *a, weft_text *t);
/* Why parameters are gathered by the next step, in a line; nothing where they are not. */
void weft_planner_print_later(const weft_planner_tried *x, weft_text *t);

/* A step, and what it amounts to a second. */
typedef struct weft_planner_step {
    double      step_s, batch, flops; /* flops: the model's own, of the whole batch */
    int64_t     seq;                  /* 0: the batch is not of tokens */
    const char *unit, *precision;
} weft_planner_step;

typedef struct weft_planner_rates {
    const char *unit; /* "tokens", or what the batch counts */
    double      per_s, per_device_s;
    double      flops_device_s;
    double      mfu; /* over the devices' peaks in that precision; 0: not known */
} weft_planner_rates;

void weft_planner_rates_of(const weft_planner_step *s, const weft_cluster *c,
                           const weft_planner_placement *at, weft_planner_rates *out);

/* The cluster in the words of a plan; name goes to a. */
weft_status weft_planner_name_machines(const weft_cluster *c, weft_arena *a,
                                       weft_plan_machines *out);

#endif
