/* The planner proper: the best candidates of a search become plans, are partitioned class by
 * class, checked for the exact memory of their programs and simulated; the fastest that fits is
 * the answer.
 *
 *     weft_planner_ask     ask = {.spec = weft_compile_spec_default("gpt2", 64, 1024), .cluster =
 *     c};
 *     weft_planner_answer *a;
 *     ask.spec.micro_batch = ask.spec.lanes = 0;         to be chosen
 *     weft_search_open(&ask.constraints);
 *     WEFT_TRY(weft_planner_decide(&ask, &a));
 *     weft_plan_print(a->plan, &text);                   what `weft run plan=FILE` takes
 *     weft_planner_destroy(a);
 *
 * (1) A plan that was checked fits: on every rank the slabs of its program and what the engine
 *     needs beside them are at most the memory of its device.
 * (2) The same question gives the same answer. */
#ifndef WEFT_PLANNER_PLANNER_H
#define WEFT_PLANNER_PLANNER_H

#include "compile/compile.h"
#include "estimate/row.h"
#include "planner/placement.h"
#include "program/timeline.h"
#include "search/search.h"

typedef struct weft_planner_ask {
    /* reduction auto: invariant, and fixed where nothing fits otherwise.  micro_batch, lanes 0: to
     * be chosen.  recompute is the constraints' */
    weft_compile_spec   spec;
    const weft_cluster *cluster;
    /* where sums are invariant, tp, cp and ep, which change rounding as well, are left out */
    bool        keep_bits;
    const char *engine; /* whose overheads and abilities count; NULL: "weft" */
    /* of products: "fp16"; NULL: spec.dtype; that NULL, too: what the devices do best of 16 bits */
    const char             *precision;
    weft_search_constraints constraints;
    int                     world;  /* devices, all of them used; 0: as many as help */
    int                     n_best; /* candidates that are checked at once; 0: 5 */
    /* of a device that the program does not get; 0: what is usual for its kind */
    int64_t engine_bytes;
    bool    fast;      /* nothing is partitioned and simulated: the search's word alone */
    bool    with_plan; /* fast, other engines: a plan of ours of it as well */
    const weft_plan *was; /* ranks stay where it has them, as far as it goes; NULL */
} weft_planner_ask;

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
    double             without_s,
        buckets_s; /* with later: steps without it, and with buckets alone; 0: not simulated */
    int         fullest;   /* the rank that lacks most, or has least to spare */
    int64_t     mem_bytes; /* its program's and the engine's; 0: not known */
    int64_t     mem_limit; /* what plans may fill of its device */
    const char *device;    /* that one's kind */
    const char *largest;   /* what takes most of it, and how much */
    int64_t     largest_bytes;
    int         n_class; /* ranks that differ */
    int n_made; /* programs that were made for them: of many ranks, of ends of axes */
    int number; /* in the order tried */
    const char *why; /* it lost; of the winner "" */
} weft_planner_tried;

typedef struct weft_planner_answer {
    weft_arena *arena;
    weft_plan  *plan;    /* with what is predicted; NULL: for another engine */
    bool        checked; /* partitioned, measured, simulated */
    /* of sums; fixed_to_fit: nothing fits with invariant ones, and auto leaves it to us */
    weft_reduction reduction;
    bool           fixed_to_fit;
    double         step_s, lo, hi; /* simulated where checked */
    /* no plan that the search knows is below; 0: the answer is shorter than all that fast
     * estimates can count, so none is known */
    double               bound_s;
    int                  n_tried, cap_tried;
    weft_planner_tried **tried;   /* the winner, then by simulated time, then the rest */
    int                  n_round; /* searches that it took */
    const char *not_all; /* why no plan of all devices was simulated; NULL: one was,
                                   * or nobody asked */
    /* what was searched, and how */
    double               flops; /* of one unit of the batch */
    weft_config          config;
    weft_search_machines machines;
    weft_search_problem  problem;
    bool                 is_rows; /* its model's are of programs (rows.h) */
    weft_search_result  *search;
    weft_cost_constants *constants;
    weft_hardware       *hardware;
    weft_cluster        *own_cluster; /* with rates for what is asked for, or NULL */
    /* of the best candidate and of another: the next one often has the same micro-batch, lanes */
    weft_training training[2];
    int best_slot, last_slot; /* of the best candidate so far, of the last one */
} weft_planner_answer;

/* WEFT_ERR_ARG: a constraint that cannot be, a model that cannot be planned for, and why.
 * WEFT_ERR_NOFIT: nothing fits; the tightest tensor and device are named, with what would help. */
weft_status weft_planner_decide(const weft_planner_ask *q, weft_planner_answer **out);
void        weft_planner_destroy(weft_planner_answer *a); /* accepts NULL */

/* The training that the plan was made for becomes the caller's; zeroed: there is none. */
void weft_planner_take_training(weft_planner_answer *a, weft_training *out);

/* Micro-batches that each pipeline of the winner has too few in a step to keep all its stages
 * busy once; 0: enough, or no pipeline.  With pp - 1 of them missing a step has one micro-batch,
 * and the stages compute sequentially. */
int weft_planner_missing_micro(const weft_planner_answer *a);

/* For people (explain: more of it), for programs, and in a line: "2 ranks, dp=2 ..., 0.12 s a
 * step". */
weft_status weft_planner_print(const weft_planner_ask *q, const weft_planner_answer *a,
                               bool explain, weft_text *t);
weft_status weft_planner_print_json(const weft_planner_ask    *q,
                                    const weft_planner_answer *a, weft_text *t);
void        weft_planner_print_line(const weft_planner_answer *a, weft_text *t);

/* Has our own engine run on all kinds of devices here?  Where it has not: that, which they are and
 * what it means for simulated steps, without an end of line; else nothing. */
bool weft_planner_has_run_on(const weft_cluster *c);
void weft_planner_print_never_ran(const weft_cluster *c, weft_text *t);

/* That the engine never ran on devices that are planned for (another engine: that none of its steps
 * was measured there), which, and what that means for the interval, without an end of line;
 * nothing where it did. */
void weft_planner_print_untimed(const weft_planner_ask *q, const weft_planner_answer *a,
                                weft_text *t);

/* What the answer gives up to fit, in a line; nothing where it gives up nothing. */
void weft_planner_print_reduction(const weft_planner_answer *a, weft_text *t);
/* Why parameters are gathered by the next step, in a line; nothing where they are not. */
void weft_planner_print_later(const weft_planner_tried *x, weft_text *t);

/* Where the winner's ranks lie; arrays in arena, the caller's to free with
 * weft_planner_placement_fini. */
weft_status weft_planner_place_winner(const weft_planner_ask    *q,
                                      const weft_planner_answer *a, weft_arena *arena,
                                      weft_planner_placement *out);

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

/* The winner's step once more, in virtual time: programs of unlike ranks with their real ranks.
 * WEFT_ERR_ARG: nothing was simulated. */
typedef struct weft_planner_replay weft_planner_replay;
weft_status weft_planner_replay_create(const weft_planner_ask *q, weft_planner_answer *a,
                                       weft_planner_replay **out);
const weft_timeline *weft_planner_replay_timeline(const weft_planner_replay *r);
void                 weft_planner_replay_destroy(weft_planner_replay *r);

/* The cluster in the words of a plan; name goes to a. */
weft_status weft_planner_name_machines(const weft_cluster *c, weft_arena *a,
                                       weft_plan_machines *out);

#endif
