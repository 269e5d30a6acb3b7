/* Inside the session module: which plan ranks run, at the start and when their number changes. */
#ifndef WEFT_SESSION_PLANS_PRIV_H
#define WEFT_SESSION_PLANS_PRIV_H

#include "session/session_priv.h"

/* plan.c: what the job says about ranks (world 0: as many as it takes), before and after its
 * training graph is built.  *p: of the job's file, or NULL until make. */
weft_status weft_session__plan_open(weft_job *j, int world, weft_strategy *y,
                                    weft_plan **p);
weft_status weft_session__plan_make(const weft_training *t, const weft_job *j, int world,
                                    const weft_strategy *y, weft_plan **p);
/* How the plan cuts the batch, where the job does not say; and what it computes again. */
weft_status weft_session__take_cut(weft_job *j, const weft_plan *p);

/* decide.c: micro_batch, lanes and the plan, at all ranks.  WEFT_ERR_ARG: not with these ranks or
 * this checkpoint, and what works instead. */
weft_status weft_session__decide(weft_session *s);
weft_status weft_session__read_model(weft_session *s); /* once per job */
/* j with the micro_batch and lanes of the checkpoint that a run would resume from. */
weft_status weft_session__kept_job(const weft_job *j, const weft_session_options *o,
                                   weft_job *out);

/* choose.c: the planner's plan for an open job. */
typedef struct weft_session__choice {
    weft_plan    *plan;
    weft_training training;  /* that the plan was made for */
    char          line[600]; /* what was chosen, for the log */
    double        step_s;    /* predicted */
    /* A pipeline with fewer micro-batches than stages, and one rank takes alone_s, which is less.
     */
    bool idle;
    /* A pipeline with one micro-batch, so that its ranks compute one after another, and one rank
     * is about as fast. */
    bool   sequential;
    double alone_s;
    /* a job on GPUs was planned for this host's CPUs: why; "" elsewhere */
    char for_cpus[200];
} weft_session__choice;

/* For world ranks, `local` of them on each host, which have n_core cores together (0: those of
 * this process).  WEFT_ERR_NOFIT, WEFT_ERR_ARG as weft_planner_decide(). */
weft_status weft_session__plan_choose(const weft_job *j, int world, int local, int n_core,
                                      weft_session__choice *out);
void        weft_session__choice_fini(weft_session__choice *x); /* a zeroed one is fine */
/* For one rank with the job's micro_batch, lanes and recompute: what is predicted of it. */
weft_status weft_session__plan_alone(const weft_job *j, weft_session__choice *out);
/* What is predicted for `world` ranks, `local` of them on each host; keeps: with the job's
 * micro_batch and lanes, else with those that such a job would choose.  WEFT_ERR_ARG: nothing
 * is. */
typedef struct weft_session__predicted {
    double  step_s;
    int64_t mem_bytes; /* of the rank that has most */
    int64_t micro_batch, lanes;
} weft_session__predicted;
weft_status weft_session__predict(const weft_job *j, int world, int local, int n_core,
                                  bool keeps, weft_session__predicted *out);
/* elastic.c: ranks may become more or fewer.  least: ranks that a plan for these hosts is to have
 * at least, those of the fewest that the job may have; 0: it does not matter. */
bool weft_session__is_elastic(const weft_session *s);
int  weft_session__least_ranks(int min_host, int min_rank, int n_host, const int *count);
/* micro_batch, lanes and recompute, as far as j leaves them open, for all the numbers of ranks that
 * the job may have; *line: what is predicted of them, or "". */
weft_status weft_session__choose_cut(const weft_session *s, weft_job *j, char *line,
                                     size_t size);

/* Ranks of each host, hosts in the order of their ranks; returns how many hosts. */
int weft_session__count_by_host(const weft_session *s, int *count);
/* The machines that so many ranks of each host run on. */
weft_status weft_session__machines_of(const weft_job *j, int n_host, const int *count,
                                      int n_core, weft_cluster **out);

/* replans.c: the plan that follows `was` (NULL: one rank without a plan) for the ranks that there
 * are now, of which it may use fewer.  in_pause: others wait for it, so it takes 100 ms at most. */
weft_status weft_session__replan(weft_session *s, const weft_plan *was, bool in_pause,
                                 weft_plan **out);
/* The same for other ranks of each host, in any thread that the session outlives.  Soon after *stop
 * is set some plan is the answer. */
weft_status weft_session__replan_for(const weft_session *s, const weft_plan *was,
                                     int n_host, const int *count, _Atomic bool *stop,
                                     weft_plan **out);
void        weft_session__forget_replans(weft_session *s);
/* A job that names its sizes: do the fewest hosts that it may have all get a rank? */
weft_status weft_session__check_least(weft_session *s);

/* plans_ahead.c: after each step: plans for the next views are asked for, answers are looked at;
 * nothing happens where nothing is to be planned. */
void weft_session__step_ahead(weft_session *s);
void weft_session__stop_ahead(weft_session *s);
/* The plan after `was` for the ranks that there are now, the caller's; NULL: none was made. */
weft_plan *weft_session__find_ahead(weft_session *s, const weft_plan *was);
/* Answers for more or fewer ranks than there are, as they are (ahead.h); *out has at most so many
 * bytes. */
void weft_session__add_answers(const weft_session *s, size_t most, weft_text *out);
/* A predicted step with so many ranks of each host, as a part of one now; 0: none was made. */
double weft_session__predict_ratio(const weft_session *s, int n_host, const int *count);
/* The next view of the same ranks has it.  Takes p. */
void weft_session__keep_better(weft_session *s, weft_plan *p);

/* rebalance.c: a rank was named as slow; after each step: one that stays so gets less work. */
void weft_session__note_slow(weft_session *s);
/* By how much longer CPU time takes, as others want the cores, too: at least 1. */
double weft_session__find_crowding(void);
void   weft_session__rebalance(weft_session *s);
/* Was this view asked for because of a better plan? */
bool weft_session__is_better_wanted(const weft_session *s);

/* A plan file against the job's cluster, where it names one. */
weft_status weft_session__check_machines(weft_session *s);
/* A program of one rank that is too large for this host: *again, the job now cuts its batch so
 * that it fits. */
weft_status weft_session__fit(weft_session *s, bool *again);

#endif
