/* A rank that stays slow gets less work, where the job leaves it to us how ranks share it: rank 0
 * asks its agent for a view, and all ranks take the plan after a step (plans_ahead.c). */
#include <stdio.h>
#include <stdlib.h>

#include "planner/replan.h"
#include "session/session_priv.h"

enum {
    STAYS = 20 /* steps after it was named */
};

static const double WORTH = 1.05, PAUSE_S = 0.5;

void weft_session__note_slow(weft_session *s)
{
    if (!s->slow_due) s->slow_due = s->row.step + STAYS;
}

static double find_left(const weft_session *s)
{
    int64_t n = s->times.n_step;
    return n ? (double)(s->job.steps - s->r.steps) *
                   s->times.step_s[(n - 1) % WEFT_SESSION__MAX_TIMED]
             : 0;
}

/* How much longer than others each rank takes for the same work; returns the slowest, -1: none. */
static int fill_slow(const weft_slow *x, double *slow)
{
    int most = -1;
    for (int r = 0; r < x->n; r++) {
        const weft_slow_rank *k     = &x->rank[r];
        bool                  known = k->slow && k->other_s > 0 && k->low_s > k->other_s;
        slow[r]                     = known ? (double)(k->low_s / k->other_s) : 1;
        if (known && (most < 0 || slow[r] > slow[most])) most = r;
    }
    return most;
}

static bool may_share(const weft_session *s)
{
    return weft_session__writes(s) && weft_session__has_agent(s) &&
           weft_job_is_open(&s->job) && s->now->plan &&
           weft_plan_world(s->now->plan) == s->times.slow.n;
}

void weft_session__rebalance(weft_session *s)
{
    const weft_membership_source *m = s->o->member;
    weft_plan                    *p = NULL;
    char                          what[160];
    double                        ratio;
    if (!s->slow_due || s->row.step < s->slow_due || !may_share(s)) return;
    s->slow_due  = 0;
    double *slow = malloc(sizeof *slow * (size_t)s->times.slow.n);
    int     rank = slow ? fill_slow(&s->times.slow, slow) : -1;
    if (rank >= 0 &&
        weft_replanner_rebalance(&s->training, s->now->plan, slow, &p, &ratio) ==
            WEFT_OK &&
        p && ratio * WORTH < 1 && (1 - ratio) * find_left(s) > PAUSE_S &&
        weft_session__keep_better(s, p)) {
        snprintf(
            what, sizeof what,
            "rank %d is slow (%.2f times as long): less work for it, a step takes %.2f "
            "of the time predicted",
            rank, slow[rank], ratio);
        m->tell(m->arg, WEFT_MEMBERSHIP_REPLAN, s->r.steps, what);
    }
    weft_plan_destroy(p);
    free(slow);
}
