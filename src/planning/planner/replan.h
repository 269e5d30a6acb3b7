/* The next plan of a running job, whose ranks have become fewer or more.
 *
 *     weft_replanner     *r = NULL;
 *     weft_replan_answer  a = {0};
 *     WEFT_TRY(weft_replanner_create(&(weft_replan_job){.training = &t, .cluster = c}, &r));
 *     WEFT_GO(weft_replanner_decide(r, &(weft_replan_request){.was = plan, .n_rank = 3}, &a));
 *     ..a.plan                                    the caller's: weft_replan_answer_fini
 *     weft_replanner_destroy(r);
 *
 * (1) micro_batch, lanes, recompute and reduction are the training's, tp, cp and ep those of the
 *     running plan: they decide bits.  dp, pp and the stage of ZeRO may change; dp is at most the
 *     number of lanes and need not divide the batch (its lanes are then shared out as evenly as can
 *     be).  Under reduction: fixed, where sums follow the plan, tp, cp and ep are 1 where there are
 *     too few ranks for them, and what the job names where there are enough again; and dp may be
 *     more than the lanes: the plan then has the smallest power of two that is at least dp, and
 *     micro_batch is smaller where a step has too few micro-batches for them.
 * (2) Ranks that help nothing stay idle: answer.n_rank of the plan may be less than there are.
 *     Where ranks are no more than the running plan has, as many as can be stay: those that cost at
 *     most 5 % of a step, about what predictions are off by.  Never fewer than n_least where a plan
 *     has as many, nor, on several hosts, than the running plan has where that has no replicas: a
 *     host that leaves takes along what it alone holds.
 * (3) There is an answer wherever there are ranks for one replica of the running plan.
 * (4) What is least: the steps of the horizon and the time to move the state, by the cost model.
 * (5) What was decided is kept, and the same request is answered from memory.
 * (6) A request may have a limit of time: the running shape is priced first, and what was priced in
 *     time is what is chosen from.
 * A replanner is used by one thread at a time. */
#ifndef WEFT_PLANNER_REPLAN_H
#define WEFT_PLANNER_REPLAN_H

#include "compile/compile.h"
#include "cluster/cluster.h"

typedef struct weft_replanner weft_replanner;

/* What stays.  Borrowed. */
typedef struct weft_replan_job {
    const weft_training *training;
    /* What ranks run on; NULL: nothing is priced, and the number of replicas alone changes. */
    const weft_cluster *cluster;
    bool                on_cpus;
    /* What the job's keys say about how ranks share the work: only dp changes, and pp where ranks
     * are fewer than stages.  NULL: they say nothing. */
    const weft_strategy *shape;
} weft_replan_job;

typedef struct weft_replan_request {
    const weft_plan *was; /* NULL: one rank without a plan */
    int              n_rank;
    /* Where they are on several hosts: ranks of each, n_rank together; groups of tp and cp stay
     * inside a host where one has ranks enough.  n_host 0: one. */
    int        n_host;
    const int *host_ranks;
    int    n_least;   /* ranks that the plan is to have at least, where one can; 0: one */
    double horizon_s; /* for how long the plan is expected to run; 0: an hour */
    /* weft_replanner_search: what another plan costs beside the move of the state, where the ranks
     * could go on with the running one. */
    double pause_s;
    /* weft_replanner_decide: asked before each plan is priced.  true: no further one is, and where
     * none was yet the running plan with another number of replicas is the answer.  NULL: never. */
    bool (*is_late)(void *arg);
    void *late_arg;
} weft_replan_request;

typedef enum weft_replan_kind {
    WEFT_REPLAN_SAME,     /* the running plan */
    WEFT_REPLAN_REPLICAS, /* another number of replicas of it */
    WEFT_REPLAN_SHAPE,    /* other stages, or states sharded in another way */
} weft_replan_kind;

typedef struct weft_replan_answer {
    weft_plan       *plan;
    weft_replan_kind kind;
    int              n_rank, n_idle;
    int              most_lanes; /* of the replica that has most of them */
    double           step_s;     /* predicted; 0: nothing was priced */
    double  was_step_s; /* search: of the running plan; 0: it is for more ranks */
    double  move_s;     /* of the state, predicted; 0: as above */
    int64_t move_bytes; /* that ranks lack, at most */
    bool    from_cache;
    bool    cut_short; /* is_late() ended it: it is not kept */
} weft_replan_answer;

weft_status weft_replanner_create(const weft_replan_job *job, weft_replanner **out);
void        weft_replanner_destroy(weft_replanner *r); /* accepts NULL */

/* WEFT_ERR_ARG: under reduction: invariant, fewer ranks than a replica of the running plan has with
 * pp=1.  Whatever was priced
 * fits; where nothing is, or nothing fits by the estimate, the number of replicas alone changes,
 * and whether that fits is not known here. */
weft_status weft_replanner_decide(weft_replanner *r, const weft_replan_request *q,
                                  weft_replan_answer *out);
/* The same with time: beside the quick answer the planner searches under the same constraints, and
 * what is predicted to cost least of both and the running plan is the answer, all three simulated.
 * Seconds of CPU time, for plans that are made ahead; nothing is kept. */
weft_status weft_replanner_search(weft_replanner *r, const weft_replan_request *q,
                                  weft_replan_answer *out);
/* Data-parallel ranks that take slow[r] times as long as others for the same work: their lanes
 * shared out so that the last one ends as soon as can be.  *out NULL: as they are, or the plan has
 * more than replicas; *ratio: of a step to one now, as far as it is computing. */
weft_status weft_replanner_rebalance(const weft_training *t, const weft_plan *was,
                                     const double *slow, weft_plan **out, double *ratio);
void        weft_replan_answer_fini(weft_replan_answer *a); /* a zeroed one is fine */

#endif
