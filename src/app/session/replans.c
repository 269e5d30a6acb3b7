/* The plan of a generation that goes on: the one that ranks had, or where there are more or fewer
 * of them the next one (planner/replan.h), from a rank that knows to all.
 * It was made ahead (plans_ahead.c), or is searched quickly: a planner for each number of ranks of
 * hosts, as cores are shared by them, is kept with its answers.
 * The leader alone decides, and all ranks wait for it: what is not priced within LIMIT_S is not
 * waited for.  A better plan is looked for while they train (plans_ahead.c). */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "comm/membership.h"
#include "comm/shm.h"
#include "planner/replan.h"
#include "session/cut.h"
#include "session/plans_priv.h"

enum {
    MAX_PLAN = 64 << 20
};

/* Of the 100 ms that a decision may take: the plan that is priced then is still priced, and the
 * chosen one is made. */
static const double LIMIT_S = 0.07;

typedef struct weft_session__replan_of {
    int             n_host;
    int            *count;    /* ranks of each host */
    weft_cluster   *machines; /* NULL: nothing is priced */
    weft_replanner *planner;
} replan_of;

static void replan_of_fini(replan_of *x)
{
    weft_replanner_destroy(x->planner);
    weft_cluster_destroy(x->machines);
    free(x->count);
}

/* A job that names its plan keeps its shape, and nothing is priced for it. */
static weft_status open_planner(const weft_session *s, replan_of *x)
{
    bool            open = weft_job_is_open(&s->job);
    weft_replan_job job  = {.training = &s->training,
                            .on_cpus  = weft_job_is_on_cpus(&s->job)};
    if (!open && !s->job.plan_file) job.shape = &s->job.strategy;
    if (open && weft_session__machines_of(&s->job, x->n_host, x->count, s->now->n_core,
                                          &x->machines) == WEFT_OK) {
        job.cluster = x->machines;
        if (weft_replanner_create(&job, &x->planner) == WEFT_OK) return WEFT_OK;
        job.cluster = NULL; /* a model that cannot be priced */
    }
    return weft_replanner_create(&job, &x->planner);
}

static weft_status find_planner(weft_session *s, int n_host, const int *count,
                                weft_replanner **out)
{
    weft_session__replans *all   = &s->replans;
    size_t                 bytes = sizeof *count * (size_t)n_host;
    for (int k = 0; k < all->n; k++)
        if (all->of[k].n_host == n_host && !memcmp(all->of[k].count, count, bytes)) {
            *out = all->of[k].planner;
            return WEFT_OK;
        }
    replan_of *more = realloc(all->of, sizeof *more * (size_t)(all->n + 1));
    if (!more) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    all->of     = more;
    replan_of x = {.n_host = n_host, .count = malloc(bytes)};
    if (!x.count) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    memcpy(x.count, count, bytes);
    weft_status st = open_planner(s, &x);
    if (st != WEFT_OK) {
        replan_of_fini(&x);
        return st;
    }
    more[all->n++] = x;
    *out           = x.planner;
    return WEFT_OK;
}

static bool is_late(void *arg)
{
    const double *until_s = arg;
    return weft_clock_s() >= *until_s || weft_failpoint_flips("resize.late");
}

weft_status weft_session__replan(weft_session *s, const weft_plan *was, bool in_pause,
                                 weft_plan **out)
{
    weft_replanner     *planner = NULL;
    weft_replan_answer  a       = {0};
    int                 count[WEFT_SESSION__MAX_RANK];
    weft_replan_request q = {.was = was, .n_rank = s->now->n_rank, .host_ranks = count};
    WEFT_TRY(weft_session__make_training(s));
    double begun_s = weft_clock_s(), until_s = begun_s + LIMIT_S;
    q.n_host = weft_session__count_by_host(s, count);
    q.n_least =
        weft_session__least_ranks(s->o->min_host, s->o->min_rank, q.n_host, count);
    if (in_pause) q.is_late = is_late, q.late_arg = &until_s;
    WEFT_TRY(find_planner(s, q.n_host, count, &planner));
    WEFT_TRY(weft_replanner_decide(planner, &q, &a));
    if (a.cut_short)
        weft_say_info(&s->say,
                      "the plan for %d ranks: the best of those that were priced within "
                      "%.0f ms; a better one is looked for while ranks train",
                      s->now->n_rank, 1e3 * (weft_clock_s() - begun_s));
    s->now->predicted_s = a.step_s;
    *out                = a.plan;
    return WEFT_OK;
}

static bool is_stopped(void *arg)
{
    return atomic_load((const _Atomic bool *)arg);
}

weft_status weft_session__replan_for(const weft_session *s, const weft_plan *was,
                                     int n_host, const int *count, _Atomic bool *stop,
                                     weft_plan **out)
{
    weft_replan_answer  a  = {0};
    weft_replan_request q  = {.was        = was,
                              .n_host     = n_host,
                              .host_ranks = count,
                              .n_least    = weft_session__least_ranks(
                                     s->o->min_host, s->o->min_rank, n_host, count),
                              .is_late  = is_stopped,
                              .late_arg = stop};
    size_t              n  = (size_t)n_host;
    replan_of           x  = {.n_host = n_host, .count = malloc(sizeof *count * n)};
    weft_status         st = WEFT_OK;
    if (!x.count) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    memcpy(x.count, count, sizeof *count * n);
    for (int i = 0; i < n_host; i++) q.n_rank += count[i];
    WEFT_GO(open_planner(s, &x));
    WEFT_GO(weft_replanner_decide(x.planner, &q, &a));
    *out = a.plan;
out:
    replan_of_fini(&x);
    return st;
}

weft_status weft_session__check_least(weft_session *s)
{
    const weft_generation *g   = s->now;
    int                    min = s->o->min_host, local = g->max_local, n_rank;
    int                    count[WEFT_SESSION__MAX_RANK];
    _Atomic bool           stopped = false;
    weft_plan             *p       = NULL;
    if (weft_job_is_open(&s->job) || !g->plan || min < 2 || local < 1 ||
        min * local > g->max_rank)
        return WEFT_OK;
    WEFT_TRY(weft_session__make_training(s));
    for (int k = 0; k < min; k++) count[k] = local;
    WEFT_TRY(weft_session__replan_for(s, g->plan, min, count, &stopped, &p));
    n_rank = weft_plan_world(p);
    weft_plan_destroy(p);
    if (n_rank > (min - 1) * local) return WEFT_OK;
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "--nnodes %d:%d: with %d hosts the plan of this job has %d rank%s, "
                     "so a host would have none: take --nnodes %d:%d, or other sizes",
                     min, g->max_rank / local, min, n_rank, n_rank > 1 ? "s" : "",
                     (n_rank + local - 1) / local, g->max_rank / local);
}

void weft_session__forget_replans(weft_session *s)
{
    for (int k = 0; k < s->replans.n; k++) replan_of_fini(&s->replans.of[k]);
    free(s->replans.of);
    s->replans = (weft_session__replans){0};
}

/* ---- from the leader to all ---- */

/* All ranks, the leader first: it is the root of broadcasts. */
static weft_status open_leader_group(weft_session *s, weft_comm_group **out)
{
    int32_t rank[WEFT_SESSION__MAX_RANK];
    int     n = s->now->comm->world;
    for (int r = 0; r < n; r++) rank[r] = (s->now->leader + r) % n;
    return weft_comm_open_group(s->now->comm, n, rank, WEFT_SESSION__TAG_LEADER, out);
}

/* With the plan: its length as text, and its step. */
typedef struct plan_head {
    int64_t n;
    double  predicted_s;
} plan_head;

static weft_status broadcast_plan(weft_session *s, weft_comm_group *group, weft_text *t)
{
    weft_comm *comm = s->now->comm;
    plan_head  head = {(int64_t)t->n, s->now->predicted_s};
    WEFT_TRY(weft_comm_broadcast_bytes(comm, group, &head, sizeof head));
    int64_t n           = head.n;
    s->now->predicted_s = head.predicted_s > 0 ? head.predicted_s : 0;
    if (n < 1 || n > MAX_PLAN)
        return WEFT_FAIL(WEFT_ERR_PEER, "rank %d sends a plan of %lld bytes",
                         s->now->leader, (long long)n);
    char *text = malloc((size_t)n + 1);
    if (!text) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a plan");
    if (comm->rank == s->now->leader) memcpy(text, t->s, (size_t)n);
    weft_status st = weft_comm_broadcast_bytes(comm, group, text, n);
    t->n           = 0;
    if (st == WEFT_OK) weft_text_put(t, text, (size_t)n);
    free(text);
    return st == WEFT_OK ? weft_text_status(t) : st;
}

/* The leader's plan: as it has it, or as the process before it has left it, for the ranks that
 * there are now. */
static weft_status find_plan(weft_session *s, weft_plan **out)
{
    weft_generation *g    = s->now;
    const weft_kept *kept = weft_kept_find(g->comm);
    weft_plan       *left = NULL, *p = NULL;
    int64_t          n    = 0;
    const char      *text = kept ? weft_kept_plan(kept, &n) : NULL;
    weft_status      st   = WEFT_OK;
    if (!s->kept.plan && n)
        WEFT_TRY(weft_plan_parse("the plan of this job", text, (size_t)n, &left));
    const weft_plan *was  = left ? left : s->kept.plan;
    bool             fits = was && weft_plan_world(was) == g->comm->world;
    g->predicted_s = fits ? s->kept.predicted_s : 0; /* unless there is another plan */
    WEFT_GO(weft_session__find_replayed(s, &p));
    if (!p && (!fits || weft_session__is_better_wanted(s))) {
        weft_failpoint("resize.plan");
        p = weft_session__find_ahead(s, was);
    }
    if (!p) st = fits ? weft_plan_copy(was, &p) : weft_session__replan(s, was, true, &p);
    if (st == WEFT_OK) *out = p;
out:
    weft_plan_destroy(left);
    return st;
}

/* As the last process of this slot had it? */
static bool is_plan_left(const weft_session *s, const weft_text *t)
{
    const weft_kept *kept = weft_kept_find(s->now->comm);
    int64_t          n    = 0;
    const char      *text = kept ? weft_kept_plan(kept, &n) : NULL;
    return text && (size_t)n == t->n && !memcmp(text, t->s, t->n);
}

/* The leader's plan, *p where this is the leader and else t.  Takes *p.  Whose plan is still the
 * same keeps its program, too. */
static weft_status take_shared(weft_session *s, const weft_text *t, weft_plan **p)
{
    weft_generation *g = s->now;
    if (!*p) WEFT_TRY(weft_plan_parse("the plan of this job", t->s, t->n, p));
    bool same       = s->kept.plan && weft_plan_equal(s->kept.plan, *p);
    g->has_new_plan = !same && !is_plan_left(s, t);
    if (same) {
        g->plan      = s->kept.plan;
        s->kept.plan = NULL;
        if (s->kept.rank != g->comm->rank) weft_compiled_fini(&s->kept.made);
    } else {
        weft_session__forget_program(s);
        g->plan = *p;
        *p      = NULL;
    }
    return weft_session__follow_cut(s);
}

/* Why, and what helps. */
static void say_unused(weft_session *s, int n)
{
    const weft_plan *p     = s->now->plan;
    long long        lanes = (long long)s->job.lanes;
    if (weft_job_is_invariant(&s->job) && weft_plan_lane_ranks(p) == lanes)
        weft_say_warn(
            &s->say,
            "%d of %d ranks are of use: with reduction: invariant at most as many are "
            "data parallel as there are lanes, %lld; a resume with more lanes and "
            "--allow lanes, or reduction: fixed, uses more",
            n, s->now->comm->world, lanes);
    else
        weft_say_info(&s->say, "%d of %d ranks are of use for this plan", n,
                      s->now->comm->world);
}

/* Ranks that the plan has no use for: the agent decides another view, without them. */
static weft_status check_ranks(weft_session *s)
{
    weft_generation *g = s->now;
    int              n = weft_plan_world(g->plan);
    if (n == g->comm->world) return WEFT_OK;
    say_unused(s, n);
    if (g->comm->rank == g->leader && weft_session__has_agent(s))
        s->o->member->tell(s->o->member->arg, WEFT_MEMBERSHIP_WANTS, n, NULL);
    return WEFT_FAIL(WEFT_ERR_PEER, "%d of %d ranks are of use", n, g->comm->world);
}

static weft_status share_plan(weft_session *s)
{
    weft_generation *g     = s->now;
    weft_comm_group *group = NULL;
    weft_plan       *p     = NULL; /* of the leader */
    weft_text        t     = {0};
    weft_status      st    = WEFT_OK;
    if (g->comm->rank == g->leader) {
        WEFT_GO(find_plan(s, &p));
        WEFT_GO(weft_plan_print(p, &t));
    }
    WEFT_GO(open_leader_group(s, &group));
    WEFT_GO(broadcast_plan(s, group, &t));
    weft_failpoint("resize.planned");
    WEFT_GO(weft_session__outcome(s, take_shared(s, &t, &p)));
    WEFT_GO(check_ranks(s));
out:
    weft_plan_destroy(p);
    weft_text_fini(&t);
    return st;
}

weft_status weft_session__take_plan(weft_session *s)
{
    WEFT_TRY(weft_session__find_seq(&s->job));
    WEFT_TRY(weft_session__outcome(s, weft_session__read_model(s)));
    return share_plan(s);
}

weft_status weft_session__resize_plan(weft_session *s)
{
    weft_generation *g = s->now;
    weft_session__forget_program(s);
    s->kept.plan        = g->plan;
    s->kept.predicted_s = g->predicted_s;
    g->plan             = NULL;
    g->leader           = 0;
    return share_plan(s);
}
