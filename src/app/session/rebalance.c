/* A rank that stays slow gets less work, where the job leaves it to us how ranks share it: rank 0
 * asks its agent for a view, and all ranks take the plan after a step (plans_ahead.c).  Where that
 * cannot be, or does not pay, the agent may leave it out; or its host, where that is all slow. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/hosts.h"
#include "planner/replan.h"
#include "session/plans_priv.h"

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
    return weft_job_is_open(&s->job) && s->now->plan &&
           weft_plan_world(s->now->plan) == s->times.slow.n;
}

/* NULL: it cannot be, or does not pay. */
static weft_plan *find_shares(weft_session *s, const double *slow, double *ratio)
{
    weft_plan *p = NULL;
    if (!may_share(s) ||
        weft_replanner_rebalance(&s->training, s->now->plan, slow, &p, ratio) != WEFT_OK)
        return NULL;
    if (p && *ratio * WORTH < 1 && (1 - *ratio) * find_left(s) > PAUSE_S) return p;
    weft_plan_destroy(p);
    return NULL;
}

static bool give_less(weft_session *s, int rank, const double *slow)
{
    const weft_membership_source *m = s->o->member;
    char                          what[160];
    double                        ratio;
    weft_plan                    *p = find_shares(s, slow, &ratio);
    if (!p) return false;
    weft_session__keep_better(s, p);
    snprintf(what, sizeof what,
             "rank %d is slow (%.2f times as long): less work for it, a step takes %.2f "
             "of the time predicted",
             rank, slow[rank], ratio);
    m->tell(m->arg, WEFT_MEMBERSHIP_REPLAN, s->r.steps, what);
    return true;
}

/* ---- without it ---- */

/* The fastest of the last steps. */
static double find_step(const weft_session *s)
{
    int64_t n    = s->times.n_step;
    double  best = 0;
    for (int64_t k = n > WEFT_SLOW_STEPS ? n - WEFT_SLOW_STEPS : 0; k < n; k++) {
        double step_s = s->times.step_s[k % WEFT_SESSION__MAX_TIMED];
        if (best <= 0 || step_s < best) best = step_s;
    }
    return best;
}

double weft_session__find_crowding(void)
{
    double load = 0, n_core = (double)sysconf(_SC_NPROCESSORS_ONLN);
    if (getloadavg(&load, 1) != 1 || !(n_core >= 1)) return 1;
    return load > n_core ? load / n_core : 1;
}

/* What would be left out: a rank alone, or its host, all ranks of which are slow. */
typedef struct slow_part {
    int            rank;
    const int32_t *host;  /* of each rank the first one of its host; NULL: there is one */
    bool           whole; /* its host */
    int            n_rank;
} slow_part;

static bool is_in_part(const slow_part *p, int r)
{
    return r == p->rank || (p->whole && p->host[r] == p->host[p->rank]);
}

/* slow: of each rank how much longer it takes, as fill_slow says. */
static slow_part find_part(const weft_session *s, int rank, const double *slow)
{
    slow_part p = {.rank = rank, .host = weft_comm_hosts_of(s->now->comm)};
    p.whole     = p.host != NULL;
    /* on GPUs slots keep their devices, so that none is left out alone */
    for (int r = 0; p.whole && weft_generation_is_state_shared(s) && r < s->times.slow.n;
         r++)
        if (p.host[r] == p.host[rank] && !(slow[r] > 1)) p.whole = false;
    for (int r = 0; r < s->times.slow.n; r++) p.n_rank += is_in_part(&p, r);
    return p;
}

/* A step without that part, as one of a job with all of it that is not slow: by the lanes of the
 * busiest replica. */
static double estimate_fewer(const weft_session *s, const slow_part *p)
{
    int64_t n = s->times.slow.n, left = n - p->n_rank, lanes = s->job.lanes;
    int64_t dp = s->now->plan ? s->now->plan->strategy.dp : 0, fewer = dp * left / n;
    if (fewer < 1 || lanes < 1) return (double)n / (double)left;
    int64_t now = (lanes + dp - 1) / dp, then = (lanes + fewer - 1) / fewer;
    return (double)then / (double)now;
}

/* The same where a plan was made ahead for the hosts that are left; 0: none was. */
static double predict_fewer(const weft_session *s, const slow_part *p)
{
    int count[WEFT_SESSION__MAX_RANK], n_host = 0, last = -1;
    if (!p->host) return 0; /* the agent knows */
    for (int r = 0; r < s->times.slow.n; r++) {
        if (is_in_part(p, r)) continue;
        if (p->host[r] != last) count[n_host++] = 0;
        last = p->host[r];
        count[n_host - 1]++;
    }
    return weft_session__predict_ratio(s, n_host, count);
}

/* Of the other ranks the busiest: a step waits for the last. */
static double find_busiest(const weft_slow *x, const slow_part *p)
{
    double most = 0;
    for (int r = 0; r < x->n; r++)
        if (!is_in_part(p, r) && x->rank[r].low_s > most) most = x->rank[r].low_s;
    return most;
}

/* The agent compares a job with it and without. */
static void tell_slow(weft_session *s, int rank, const double *slow)
{
    const weft_membership_source *m      = s->o->member;
    const weft_slow              *x      = &s->times.slow;
    double                        step_s = find_step(s);
    slow_part                     p      = find_part(s, rank, slow);
    char                          text[240];
    if (p.n_rank == x->n) return; /* nothing would be left */
    double extra_s = (double)x->rank[rank].low_s - find_busiest(x, &p);
    double part    = step_s > 0 ? weft_session__find_crowding() * extra_s / step_s : 0;
    /* not more than where a step is nothing but its work */
    double most = extra_s / (double)x->rank[rank].low_s;
    if (part > most) part = most;
    double fewer = predict_fewer(s, &p);
    if (!(part > 0)) return;
    if (!(fewer > 0)) fewer = estimate_fewer(s, &p);
    snprintf(text, sizeof text,
             "%d %d %.4g %.4g %.4g rank %d is slow (%.2f times as long)", rank, p.n_rank,
             part < 0.95 ? 1 - part : 0.05, fewer, find_left(s), rank, slow[rank]);
    m->tell(m->arg, WEFT_MEMBERSHIP_SLOW, s->r.steps, text);
}

void weft_session__rebalance(weft_session *s)
{
    if (!s->slow_due || s->row.step < s->slow_due || !weft_session__writes(s) ||
        !weft_session__has_agent(s))
        return;
    s->slow_due  = 0;
    double *slow = malloc(sizeof *slow * (size_t)s->times.slow.n);
    int     rank = slow ? fill_slow(&s->times.slow, slow) : -1;
    if (rank >= 0 && !give_less(s, rank, slow)) tell_slow(s, rank, slow);
    free(slow);
}
