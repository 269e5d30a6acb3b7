/* Plans for the likely next views, by a helper process (ahead_serve.c) that the first rank of each
 * host starts after the first step of a view, where ranks may become more or fewer and the job
 * leaves it to us how they share the work.  Its answers are in a memory file: at a fault the plan
 * is there, and nothing is searched.
 *
 * (1) The helper runs when cores are idle (SCHED_IDLE: a rank that wakes up runs at
 *     once, and of a core that is always busy the helper gets 0.3 %), on any core of its agent, and
 *     shares nothing with this process: what it does can neither stop a step nor end a rank.  It
 *     ends with its rank.
 * (2) Answers are used for the plan that they follow alone.
 * (3) Those for more ranks go to the agent as well, for ranks that prepare (prepare.c).
 * (4) Where it finds a better plan for the ranks that there are, rank 0 asks its agent for a view;
 *     the ranks leave after a step, and the leader takes that plan. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/hash.h"
#include "comm/hosts.h"
#include "session/ahead.h"
#include "session/plans_priv.h"

static const double LEAST_LEFT_S = 2;    /* of a job: below, nothing is made ahead */
static const double WORTH        = 1.05; /* predictions are not better than that */
static const double HORIZON_S = 3600, PAUSE_S = 0.5; /* where nothing is known */

extern char **environ;

static int own_rank(const weft_session *s)
{
    return s->now->comm ? s->now->comm->rank : 0;
}

static const int32_t *hosts_of(const weft_session *s)
{
    return s->now->comm ? weft_comm_hosts_of(s->now->comm) : NULL;
}

/* ---- the helper ---- */

static int write_memory(const weft_text *t)
{
    int fd = memfd_create("weft-plans", MFD_CLOEXEC);
    for (size_t at = 0; fd >= 0 && at < t->n;) {
        ssize_t n = pwrite(fd, t->s + at, t->n - at, (off_t)at);
        if (n <= 0) {
            close(fd);
            return -1;
        }
        at += (size_t)n;
    }
    return fd;
}

/* The variables of this process and one more; the caller's, as is what it points to last. */
static char **make_environment(char *more)
{
    size_t n = 0;
    while (environ[n]) n++;
    char **e = calloc(n + 2, sizeof *e);
    if (!e) return NULL;
    memcpy(e, environ, n * sizeof *e);
    e[n] = more;
    return e;
}

static int spawn_planner(const weft_session *s, int in, int out, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t          how;
    sigset_t                   none;
    char                       more[64];
    snprintf(more, sizeof more, WEFT_SESSION__PLANNER "=%d %d", (int)getpid(),
             (int)getppid());
    char **e = make_environment(more);
    if (!e || posix_spawn_file_actions_init(&files)) {
        free(e);
        return 1;
    }
    int rc = posix_spawnattr_init(&how);
    sigemptyset(&none);
    if (!rc) rc = posix_spawn_file_actions_adddup2(&files, in, 0);
    if (!rc) rc = posix_spawn_file_actions_adddup2(&files, out, 1);
    if (!rc) rc = posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    if (!rc) rc = posix_spawnattr_setsigmask(&how, &none);
    if (!rc) rc = posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK);
    if (!rc)
        rc = posix_spawn(pid, "/proc/self/exe", &files, &how,
                         (char *const *)(uintptr_t)s->o->planner, e);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    free(e);
    return rc;
}

static void reap(weft_session__ahead *a)
{
    if (a->pid <= 0) return;
    kill(a->pid, SIGKILL);
    while (waitpid(a->pid, NULL, 0) < 0 && errno == EINTR) continue;
    a->pid = 0;
}

void weft_session__stop_ahead(weft_session *s)
{
    weft_session__ahead *a = &s->ahead;
    reap(a);
    if (a->has_answers) close(a->answers);
    weft_plan_destroy(a->better);
    *a = (weft_session__ahead){0};
}

/* ---- what is asked ---- */

/* Ranks may become more or fewer, and a planner may choose how they share the work: of one kind of
 * devices, whose numbers the helper looks for. */
static bool is_wanted(const weft_session *s)
{
    const weft_generation *g    = s->now;
    const int32_t         *host = hosts_of(s);
    bool first = host ? host[own_rank(s)] == own_rank(s) : own_rank(s) == 0;
    bool alike = weft_job_is_on_cpus(&s->job) || !g->devices.n_cpu;
    return s->o->planner && first && weft_session__has_agent(s) &&
           weft_job_is_open(&s->job) && alike &&
           (s->o->min_rank > 0 || g->max_rank > g->n_rank || host);
}

/* The last one. */
static double find_step(const weft_session *s)
{
    int64_t n = s->times.n_step;
    return n ? s->times.step_s[(n - 1) % WEFT_SESSION__MAX_TIMED] : 0;
}

/* Of the steps that are left, at the pace of the last one. */
static double find_left(const weft_session *s)
{
    return (double)(s->job.steps - s->r.steps) * find_step(s);
}

static weft_status print_plan(const weft_plan *p, weft_text *t)
{
    return p ? weft_plan_print(p, t) : WEFT_OK;
}

static uint64_t hash_text(const weft_text *t)
{
    return weft_hash_xxh64(t->s ? t->s : "", t->n, 1);
}

static weft_status make_request(weft_session *s, double left_s, weft_text *out)
{
    weft_generation   *g   = s->now;
    weft_ahead_request q   = {.n_core    = g->n_core,
                              .min_host  = s->o->min_host,
                              .min_rank  = s->o->min_rank,
                              .horizon_s = left_s < HORIZON_S ? left_s : HORIZON_S,
                              .pause_s =
                                g->continues ? g->opened_s + 2 * find_step(s) : PAUSE_S};
    weft_text          job = {0}, plan = {0};
    int                count[WEFT_SESSION__MAX_RANK];
    int                n_host = weft_session__count_by_host(s, count);
    weft_job_print(&s->job, &job);
    weft_status st = print_plan(g->plan, &plan);
    if (st == WEFT_OK) st = weft_text_status(&job);
    if (st == WEFT_OK) {
        s->ahead.was = hash_text(&plan);
        (void)weft_ahead_add_view(&q, n_host, count);
        weft_ahead_add_likely(&q, n_host, count, g->max_rank, g->max_local, !hosts_of(s));
        q.job        = job.s;
        q.job_bytes  = job.n;
        q.plan       = plan.s ? plan.s : "";
        q.plan_bytes = plan.n;
        weft_ahead_print_request(&q, out);
        st = weft_text_status(out);
    }
    q.job = q.plan = NULL; /* they are texts */
    weft_ahead_request_fini(&q);
    weft_text_fini(&job);
    weft_text_fini(&plan);
    return st;
}

static void start_ahead(weft_session *s, double left_s)
{
    weft_text none = {0}, t = {0};
    weft_session__stop_ahead(s);
    int in  = make_request(s, left_s, &t) == WEFT_OK ? write_memory(&t) : -1;
    int out = in >= 0 ? write_memory(&none) : -1;
    weft_text_fini(&t);
    if (out >= 0 && !spawn_planner(s, in, out, &s->ahead.pid)) {
        s->ahead.answers     = out;
        s->ahead.has_answers = true;
        out                  = -1;
    }
    if (in >= 0) close(in);
    if (out >= 0) close(out);
}

/* ---- what is answered ---- */

/* All that is there; the caller's. */
static char *read_answers(const weft_session *s, size_t *n)
{
    const weft_session__ahead *a    = &s->ahead;
    off_t                      end  = a->has_answers ? lseek(a->answers, 0, SEEK_END) : 0;
    char                      *text = end > 0 ? malloc((size_t)end) : NULL;
    *n                              = 0;
    while (text && *n < (size_t)end) {
        ssize_t got = pread(a->answers, text + *n, (size_t)end - *n, (off_t)*n);
        if (got <= 0) break;
        *n += (size_t)got;
    }
    return text;
}

/* For the ranks that there are now.  *text is the caller's, and a borrows from it. */
static bool find_answer(const weft_session *s, const weft_plan *was, char **text,
                        weft_ahead_answer *a)
{
    weft_text t = {0};
    int       count[WEFT_SESSION__MAX_RANK];
    size_t    n;
    *text = NULL;
    if (!s->ahead.has_answers || print_plan(was, &t) != WEFT_OK) {
        weft_text_fini(&t);
        return false;
    }
    bool same = hash_text(&t) == s->ahead.was;
    weft_text_fini(&t);
    if (same) *text = read_answers(s, &n);
    bool found = *text && weft_ahead_find(*text, n, weft_session__count_by_host(s, count),
                                          count, a);
    if (found) a->count = NULL;
    if (!found) free(*text);
    return found;
}

void weft_session__keep_better(weft_session *s, weft_plan *p)
{
    weft_plan_destroy(s->ahead.better);
    s->ahead.better = p;
    s->ahead.asked  = true;
}

/* NULL: there is none that can be read. */
static weft_plan *read_answer(weft_session *s, const weft_plan *was)
{
    weft_ahead_answer a;
    weft_plan        *p = NULL;
    char             *text;
    if (!find_answer(s, was, &text, &a)) return NULL;
    if (weft_plan_parse("a plan made ahead", a.plan, a.plan_bytes, &p) == WEFT_OK)
        s->now->predicted_s = a.step_s;
    free(text);
    return p;
}

weft_plan *weft_session__find_ahead(weft_session *s, const weft_plan *was)
{
    const weft_plan *better = s->ahead.better;
    weft_plan       *p      = NULL;
    double           t0     = weft_clock_s();
    s->now->predicted_s     = 0;
    if (better && was && weft_plan_world(was) == s->now->n_rank)
        return weft_plan_copy(better, &p) == WEFT_OK ? p : NULL;
    if (weft_failpoint_flips("ahead.find")) return NULL;
    p = read_answer(s, was);
    if (p)
        weft_say_info(&s->say, "the plan for %d ranks was made ahead (found in %.2g ms)",
                      s->now->n_rank, 1e3 * (weft_clock_s() - t0));
    return p;
}

bool weft_session__is_better_wanted(const weft_session *s)
{
    return s->ahead.asked;
}

void weft_session__add_answers(const weft_session *s, size_t most, weft_text *out)
{
    weft_ahead_answer a;
    size_t            n, at = 0, begin = 0;
    int               n_rank;
    if (!s->now->ahead) return; /* they follow the plan of the view before */
    char *text = read_answers(s, &n);
    while (text && weft_ahead_next(text, n, &at, &n_rank, &a)) {
        if (n_rank != s->now->n_rank && at - begin <= most - out->n)
            weft_text_put(out, text + begin, at - begin);
        begin = at;
    }
    free(text);
}

/* Predicted steps of other numbers of ranks, as parts of the one now, and seconds to get there, for
 * the agent's choice. */
static void tell_steps(const weft_session *s)
{
    const weft_membership_source *m = s->o->member;
    weft_ahead_answer             a;
    weft_text                     t = {0};
    size_t                        n, at = 0;
    int                           n_rank;
    double                        now_s = 0;
    char                         *text  = read_answers(s, &n);
    while (text && weft_ahead_next(text, n, &at, &n_rank, &a)) {
        if (n_rank == s->now->n_rank && a.was_step_s > 0) now_s = a.was_step_s;
        if (now_s > 0 && n_rank != s->now->n_rank && a.step_s > 0)
            weft_text_add(&t, "%s%d:%.4g:%.4g", t.n ? " " : "", n_rank, a.step_s / now_s,
                          a.move_s + a.pages / weft_session__page_Bps(s));
    }
    if (t.n && weft_text_status(&t) == WEFT_OK)
        m->tell(m->arg, WEFT_MEMBERSHIP_STEPS, s->r.steps, t.s);
    weft_text_fini(&t);
    free(text);
}

double weft_session__predict_ratio(const weft_session *s, int n_host, const int *count)
{
    weft_ahead_answer a;
    size_t            n, at = 0;
    int               n_rank;
    double            now_s = 0, then_s = 0;
    char             *text = s->now->ahead ? read_answers(s, &n) : NULL;
    while (text && now_s <= 0 && weft_ahead_next(text, n, &at, &n_rank, &a))
        if (n_rank == s->now->n_rank) now_s = a.was_step_s;
    if (now_s > 0 && weft_ahead_find(text, n, n_host, count, &a)) then_s = a.step_s;
    free(text);
    return now_s > 0 ? then_s / now_s : 0;
}

static void ask_for_better(weft_session *s)
{
    const weft_membership_source *m = s->o->member;
    weft_ahead_answer             a;
    char                         *text, what[160];
    if (s->now->plan && s->now->plan->share) return; /* it is made for a slow rank */
    if (!find_answer(s, s->now->plan, &text, &a)) return;
    bool worth = a.changes && a.was_step_s > WORTH * a.step_s;
    if (weft_failpoint_flips("ahead.worth") || worth) {
        snprintf(what, sizeof what,
                 "another plan for %d ranks: %.3g ms a step predicted, %.3g now",
                 s->now->n_rank, 1e3 * a.step_s, 1e3 * a.was_step_s);
        s->ahead.asked = true;
        m->tell(m->arg, WEFT_MEMBERSHIP_REPLAN, s->r.steps, what);
    }
    free(text);
}

void weft_session__step_ahead(weft_session *s)
{
    weft_session__ahead *a = &s->ahead;
    if (!s->now->ahead) {
        s->now->ahead = true;
        double left_s = is_wanted(s) ? find_left(s) : 0;
        if (left_s > LEAST_LEFT_S || (left_s > 0 && weft_failpoint_flips("ahead.start")))
            start_ahead(s, left_s);
        else
            weft_session__stop_ahead(s);
        return;
    }
    if (a->pid <= 0 || waitpid(a->pid, NULL, WNOHANG) == 0) return;
    a->pid = 0;
    weft_session__offer_brief(s);
    if (own_rank(s)) return;
    tell_steps(s);
    ask_for_better(s);
}
