/* What the files of the re-planner share. */
#ifndef WEFT_PLANNER_REPLAN_PRIV_H
#define WEFT_PLANNER_REPLAN_PRIV_H

#include "planner/planner_priv.h"
#include "planner/replan.h"

enum {
    WEFT_REPLAN__MAX_KEPT  = 64,  /* answers */
    WEFT_REPLAN__HORIZON_S = 3600 /* where it is not given */
};

/* An answer, by what was asked. */
typedef struct weft_replan__kept {
    uint64_t           key; /* 0: none */
    uint64_t           used;
    weft_replan_answer answer;
} weft_replan__kept;

struct weft_replanner {
    weft_replan_job         job;
    int64_t                 micro_batch; /* of the workspace */
    weft_planner_workspace *workspace;   /* layer costs; NULL: nothing is priced */
    weft_planner_workspace *other;       /* of a smaller micro-batch; NULL: not there */
    int64_t                 other_micro;
    double                  param_bytes;     /* of the whole model */
    double                  optimizer_bytes; /* and of all that is updated with it */
    uint64_t                n_asked;
    weft_replan__kept       kept[WEFT_REPLAN__MAX_KEPT];
};

/* What moving the state costs. */
typedef struct weft_replan__move {
    double  seconds;
    int64_t bytes; /* that ranks lack, at most */
} weft_replan__move;

/* What ranks lack of their state: nothing where they have that stage's already, and states are
 * sharded over as many. */
void weft_replan__weigh_move(const weft_replanner *r, const weft_replan_request *q,
                             const weft_strategy *a, const weft_strategy *b,
                             weft_replan__move *out);
/* Do as many hosts as copies are asked for, or all, hold each part of the state?  Always on one
 * host, and where no copies are asked for. */
bool weft_replan__spreads(const weft_replan_request *q, const weft_strategy *y,
                          int copies);
/* Ranks that the plan is to have: those that the job needs, and those of a running plan that hold
 * what no other does. */
int weft_replan__find_least(const weft_replan_request *q);
/* Has the plan as many? */
bool weft_replan__is_enough(const weft_replan_request *q, const weft_strategy *y);
/* The step of what weft_replanner_decide() would answer if the job's micro_batch and lanes were
 * these, which is not made; INFINITY: nothing fits. */
weft_status      weft_replan__predict(weft_replanner *r, const weft_replan_request *q,
                                      int64_t micro_batch, int64_t lanes, double *step_s);
weft_replan_kind weft_replan__find_kind(const weft_strategy *a, const weft_strategy *b);

#endif
