/* The planner: of all ways to lay a model out over machines, the fastest that fits.
 *
 *     weft_search_machines m;
 *     WEFT_TRY(weft_search_machines_of(cluster, constants, arena, &m));
 *     weft_search_problem p = {.machines = &m, .batch = 512, .n_best = 5};
 *     weft_search_open(&p.constraints);
 *     WEFT_TRY(weft_search_transformer(&config, constants, &limits, arena, &p.model));
 *     weft_search_result *r;
 *     WEFT_TRY(weft_search_run(&p, &r));
 *     r->choice[0].score.step_s ...
 *
 * A model is layers whose rows of cost (cost/score.h) can be asked for under any variant; nothing
 * here knows what
 * is in a layer.  The space: every tp, cp, ep that the model allows, every dp that divides the
 * batch, pp up to the number of layers, micro-batches that divide a replica's share, chunks,
 * schedules, recomputation, zero 0 to 3, sp, layers that tp leaves whole, the order of device
 * kinds along the pipeline, stages cut evenly or by time.  A part of it is left out only when a
 * lower bound says that nothing in it can be among the best (search.c); the same input gives the
 * same answer.
 *
 * (1) Everything in choice[] fits.
 * (2) choice[] differ in (tp, cp, ep, pp); each is the best of its kind; fastest first. */
#ifndef WEFT_SEARCH_SEARCH_H
#define WEFT_SEARCH_SEARCH_H

#include "base/arena.h"
#include "base/text.h"
#include "cluster/cluster.h"
#include "cost/score.h"
#include "engine/engine.h"
#include "estimate/estimate.h"
#include "strategy/strategy.h"

/* ---- machines ---- */

typedef struct weft_search_machine {
    weft_device_kind device; /* constants filled in, slowed by its health */
    weft_flop_rate   rate[8];
    weft_cost_fabric fabric;
    int              n_node, per_node; /* whole nodes */
    int              n_part, *part; /* nodes with fewer usable devices: how many each */
    int              node;          /* its kind of node in the cluster */
    double           speed, link;   /* its health */
} weft_search_machine;

typedef struct weft_search_machines {
    int                 n;
    weft_search_machine kind[WEFT_COST_MAX_DEVICE];
    bool                known; /* measured steps moved the constants of all of them */
} weft_search_machines;

/* Cordoned devices are left out, degraded ones are kinds of their own.  Arrays go to a. */
weft_status weft_search_machines_of(const weft_cluster *c, const weft_cost_constants *k,
                                    weft_arena *a, weft_search_machines *out);
/* Devices of a kind that groups of tp can use: a group does not leave its fast domain where it
 * fits in one. */
int weft_search_usable(const weft_search_machine *m, int tp);

/* ---- model ---- */

typedef enum weft_search_cuts {
    WEFT_CUT_ANY,
    WEFT_CUT_ENDS, /* the first and last stage may differ, the rest are equal */
    WEFT_CUT_EQUAL,
} weft_search_cuts;

/* What an engine can do. */
typedef struct weft_search_limits {
    unsigned         zero, zero_pp; /* stages of zero as bits, without and with pp > 1 */
    unsigned         schedules;     /* of weft_cost_schedule, as bits */
    unsigned         recompute;     /* of weft_cost_recompute, as bits */
    weft_search_cuts cuts;
    bool             cp, ep, sp, pp, chunks;
    bool             whole;   /* tp may leave some layers whole */
    bool             partial; /* of a stage some layers may run again, others not */
    bool             layout;  /* chunks may hold unequal numbers of layers */
    bool             shares;  /* replicas may have unequal shares of the batch */
    bool cp_shards; /* ranks along cp always shard states: zero is not 0 where cp > 1 */
    bool ep_of_dp;  /* experts are spread over replicas alone, not over tp or cp */
    /* parameters may be gathered in the next step: no part of the search space, see
     * weft_search_bound_of */
    bool overlap_param_gather;
} weft_search_limits;

/* An engine by name ("megatron", "deepspeed", ...); anything else: all that there is. */
weft_search_limits weft_search_limits_of(const char *engine);

enum {
    WEFT_SEARCH_MAX_WHOLE = 32
};

/* Layers that tp may leave whole, cutting their samples instead (variant.whole is its number). */
typedef struct weft_search_whole {
    int             n_span; /* as tp_exclude of a strategy */
    weft_layer_span span[WEFT_MAX_SPAN];
    uint64_t        classes; /* whose layers, as bits */
    uint32_t        kinds;   /* the model's own */
} weft_search_whole;

typedef struct weft_search_model {
    const char *name;
    const char *unit; /* what a batch counts: "sequences" */
    /* its own: filling rows and asking what it allows may change it (a cache), so that a model is
     * searched by one thread at a time */
    void              *arg;
    weft_cost_table    shape; /* classes, segments, engine, bytes, tied */
    weft_search_limits limits;
    int                max_tp, max_cp, max_ep, max_micro;
    /* some prices are measured times: a piece of work may take less than its share of the whole,
     * so that only rows themselves say what cannot be beaten */
    bool              measured;
    int               n_whole; /* sets of layers; the first is none of them */
    weft_search_whole whole[WEFT_SEARCH_MAX_WHOLE];
    /* The rows of all classes under v on d. */
    void (*fill)(void *arg, const weft_cost_engine *e, const weft_cost_variant *v,
                 const weft_device_kind *d, const weft_cost_fabric *f,
                 weft_cost_row *row);
    /* The same without what replicas say to each other, much sooner; NULL: there is nothing to
     * save. */
    void (*glance)(void *arg, const weft_cost_engine *e, const weft_cost_variant *v,
                   const weft_device_kind *d, const weft_cost_fabric *f,
                   weft_cost_row *row);
    /* May layers be cut so?  why: a line when not; it may be NULL. */
    bool (*allows)(void *arg, const weft_cost_variant *v, char *why, size_t n);
} weft_search_model;

/* c: sizes, sequence, precision, framework; copied, its texts are borrowed as long as *out is
 * used. */
weft_status weft_search_transformer(const weft_config *c, const weft_cost_constants *k,
                                    const weft_search_limits *l, weft_arena *a,
                                    weft_search_model *out);

/* ---- what is asked ---- */

enum {
    WEFT_SEARCH_MAX_ON = 8
};

/* Layers first..last lie on one stage, or on one node. */
typedef struct weft_search_on {
    int first, last, stage, node; /* stage or node: -1 */
    int host; /* the node's kind in the cluster; -1: any, nodes are alike */
} weft_search_on;

/* What is decided already.  A plain value. */
typedef struct weft_search_constraints {
    /* Values of the keys in `given`; the others are open.  dp counts ranks along ep too; recompute
     * may be WEFT_RECOMPUTE_LIGHT, which only other engines have. */
    weft_strategy strategy;
    uint32_t      given; /* of weft_strategy_key, as bits */
    /* What a strategy has no key for; -1: open. */
    int micro_batch;
    int recompute_layers; /* of a stage */
    int world;            /* devices in all */
    /* copies: of so many hosts, with host_ranks[k] ranks each in their order, as many as copies are
     * asked for hold each part of the state.  0: hosts make no difference. */
    int             n_host;
    const int      *host_ranks;
    const uint16_t *cut; /* pp numbers; NULL: open */
    int             n_on;
    weft_search_on  on[WEFT_SEARCH_MAX_ON];
} weft_search_constraints;

void weft_search_open(weft_search_constraints *p);
/* The number that a key is constrained to; -1: it is open. */
int weft_search_given(const weft_search_constraints *p, weft_strategy_key key);
/* Has each part of the state of so many replicas the copies that are asked for?  With ZeRO shards
 * are over replicas / copies.  shards: ranks that share one replica's state (tp, ep, pp; 1 with cp,
 * which replicates it): of one replica these hold standby replicas for each other. */
bool weft_search_has_copies(const weft_search_constraints *p, int replicas, int zero,
                            int shards);
/* x below 0: open. */
void weft_search_fix(weft_search_constraints *p, weft_strategy_key key, int x);
/* Opens what one constraint ("tp", "micro_batch") decides; false: it was open. */
bool weft_search_release(weft_search_constraints *p, const char *name);
/* "tp=8", "recompute=full", "stages=7-7-6", "batch_split=3x4,1x4", "layers 0..3 on node 2": one
 * constraint; lists go to a. */
weft_status weft_search_constrain(weft_search_constraints *p, const char *word,
                                  weft_arena *a);

typedef struct weft_search_problem {
    const weft_search_machines *machines;
    weft_search_model           model;
    int                         batch;
    int                         lanes; /* of unequal shares; 0: open */
    weft_search_constraints     constraints;
    int                         n_best; /* 0: 5 */
    bool exhaustive; /* nothing is left out for its time, to test with */
    bool best_case;  /* the engine was never timed on the devices: "at best" is printed */
} weft_search_problem;

/* ---- the answer ---- */

typedef struct weft_search_choice {
    /* as a plan of ours has it: dp without the ranks along ep, where these divide it */
    weft_strategy     strategy;
    weft_cost_variant variant; /* as cost scores it; they agree with the strategy */
    weft_cost_point   point;   /* cut and kinds are always there */
    weft_cost_score   score;
    double            lo, hi; /* 90 % */
    const char       *why;    /* it lost; of the first: "" */
} weft_search_choice;

/* Axes of a variant for dp ranks without those along ep, which are next to dp; 0: no axis dp. */
weft_strategy weft_search_sizes(int dp, const weft_cost_variant *v);
/* What our programs recompute: light is selective. */
weft_strategy_recompute weft_search_recompute(weft_cost_recompute r);
/* Devices that it uses, one a rank. */
int64_t weft_search_ranks(const weft_search_choice *c);

typedef struct weft_search_result {
    weft_arena         *arena;
    int                 n;
    weft_search_choice *choice;
    double              bound_s;  /* of weft_search_bound_of none is faster */
    double              gap;      /* choice[0] over it, less 1 */
    int64_t             n_scored; /* points whose step and memory were worked out */
    int                 n_device; /* devices that there are */
} weft_search_result;

/* What bound_s is a bound of: "plans without overlap_param_gather".  By fast estimates: a simulated
 * step of such a plan may be a little shorter, too. */
const char *weft_search_bound_of(const weft_search_problem *p);

/* WEFT_ERR_ARG: a constraint that cannot be, and why.  WEFT_ERR_NOFIT: the text names the tightest
 * stage, the largest term and what would help. */
weft_status weft_search_run(const weft_search_problem *p, weft_search_result **out);
void        weft_search_destroy(weft_search_result *r);

/* Do both split work alike?  What is predicted of them is not compared. */
bool weft_search_same_choice(const weft_search_choice *a, const weft_search_choice *b);
/* "tp=8 pp=4 dp=2 ...": what a choice is, as constraints. */
void weft_search_print_choice(const weft_search_choice *c, weft_text *t);
/* For people, for programs. */
weft_status weft_search_print(const weft_search_problem *p, const weft_search_result *r,
                              bool explain, weft_text *t);
weft_status weft_search_print_json(const weft_search_problem *p,
                                   const weft_search_result *r, weft_text *t);

/* Layers of chunk i of pp * chunks in the order of the model: where stages are unequal, the first
 * and the last chunk hold fewer. */
int weft_search_chunk_layers(const weft_search_choice *c, int i);

/* What another engine is told of the choice, whose cut it borrows. */
weft_engine_plan weft_search_engine_plan(const weft_search_choice *x);

#endif
