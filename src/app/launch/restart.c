/* Ranks of another engine's program on several hosts: all of them are started anew in each view,
 * with the variables that torchrun would give them, and go on from the program's own checkpoint.
 * Where sizes are given (sizes.h), as many as these need.
 *
 *     a rank fails, a host is lost, joins or leaves -> all ranks end -> the next view: all start
 *
 * Views are hosts.c's, which asks here what it asks agent.c about ranks of ours.
 * (1) A view's first_step counts restarts: one more for each failure, none for hosts that join or
 *     leave.  So all hosts know the same number, and end together when it is above max_restarts.
 * (2) Ranks that are to end have STOP_S after SIGTERM, less than other hosts wait for this one.
 * (3) A host whose ranks have all ended with 0 is done; one without ranks when all others are. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "launch/environment.h"
#include "launch/incident.h"
#include "launch/launch_priv.h"
#include "launch/oom.h"
#include "member/view.h"

#define STOP_S    8 /* between SIGTERM and SIGKILL */
#define SETTLED_S 3 /* that ranks have to run before another host may join */

struct weft_launch__restart {
    uint32_t epoch;         /* whose ranks were started last; 0: none */
    int      n, n_done;     /* ranks here; those that have ended with 0 */
    int      world, n_host; /* of all hosts, and hosts that have some */
    int      count;         /* restarts before this view */
    bool     due;           /* ranks of the view are to be started */
    bool     stopping;      /* they are to end */
    bool     failed;        /* one failed by itself in this view, here or elsewhere */
    bool     done;          /* all ended with 0 */
    bool exhausted; /* more failures than max_restarts, or too few ranks for the sizes */
    bool over;      /* this host goes */
    double               started_s, kill_at_s;
    int64_t              n_oom;
    weft_exporter_counts counts; /* incidents that this host has reported, of all views */
};

/* ---- incidents ---- */

static void publish(const weft_launch__run *l, const weft_incident *i, bool counts)
{
    weft_launch__restart *p    = l->restart;
    bool                  ends = counts && p->count >= l->o->max_restarts;
    weft_text             t    = {0};
    weft_incident_outcome o    = {.decided   = ends ? "end" : "restart",
                                  .why       = ends ? "no restart is left" : "",
                                  .epoch     = p->epoch + 1,
                                  .step      = -1,
                                  .decided_s = weft_clock_s()};
    weft_incident_print(i, &o, &t);
    if (l->o->log_dir) weft_incident_append(l->o->log_dir, "incidents.jsonl", &t);
    if (l->o->on_incident) weft_incident_notify(l->o->on_incident, &t);
    weft_text_fini(&t);
    weft_exporter_count(&p->counts, i->cause, o.decided);
}

void weft_launch__restart_note(const weft_launch__run *l, const char *host,
                               const char *cause, const char *what,
                               const weft_launch__noticed *when)
{
    weft_incident i = {.rank      = -1,
                       .epoch     = l->restart->epoch,
                       .step      = -1,
                       .noticed   = "agents",
                       .wall_s    = when ? when->wall_s : weft_clock_wall_s(),
                       .noticed_s = when ? when->at_s : weft_clock_s(),
                       .seen_s    = when ? when->seen_s : 0};
    snprintf(i.cause, sizeof i.cause, "%s", cause);
    snprintf(i.what, sizeof i.what, "%s", what);
    snprintf(i.host, sizeof i.host, "%s", host);
    publish(l, &i, !strcmp(cause, "host"));
}

static void note_failure(weft_launch__run *l, int r, int pid, int how, const char *what)
{
    weft_launch__restart *p     = l->restart;
    int64_t               n_oom = weft_oom_count("");
    int                   sig   = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    const char           *seen  = l->c[r].noticed;
    weft_incident         i     = {.rank      = l->first + r,
                                   .pid       = pid,
                                   .epoch     = p->epoch,
                                   .step      = -1,
                                   .noticed   = seen ? seen : "waitpid",
                                   .wall_s    = weft_clock_wall_s(),
                                   .noticed_s = weft_clock_s()};
    snprintf(i.what, sizeof i.what, "%s", what);
    snprintf(i.cause, sizeof i.cause, "%s",
             seen ? seen : weft_incident_find_cause(sig, n_oom > p->n_oom));
    weft_launch_host_name(i.host, sizeof i.host);
    publish(l, &i, true);
}

/* ---- ranks ---- */

static void stop_ranks(weft_launch__run *l)
{
    weft_launch__restart *p = l->restart;
    if (p->stopping) return;
    p->stopping  = true;
    p->due       = false;
    p->kill_at_s = weft_clock_s() + STOP_S;
    for (int r = 0; r < l->n; r++)
        if (l->c[r].pid) kill(l->c[r].pid, SIGTERM);
}

static void kill_rank(weft_launch__child *c)
{
    if (!c->pid || c->killed_s > 0) return;
    c->killed_s = weft_clock_s();
    kill(-c->pid, SIGKILL);
    kill(c->pid, SIGKILL);
}

bool weft_launch__restart_lost(weft_launch__run *l, int r, int pid, int how)
{
    weft_launch__restart *p = l->restart;
    char                  what[160], why[200];
    if (!p) return false;
    p->n_done += l->c[r].code == 0;
    if (p->stopping || p->over || l->stopped_by) return true;
    if (!l->c[r].code) {
        p->done = p->n_done == p->n;
        if (p->done) weft_launch__hosts_done(l);
        return true;
    }
    p->failed = true;
    if (l->c[r].noticed)
        snprintf(what, sizeof what, "%s", l->c[r].what);
    else
        weft_launch__describe_exit(how, what, sizeof what);
    note_failure(l, r, pid, how, what);
    snprintf(why, sizeof why, "rank %d: %s", l->first + r, what);
    stop_ranks(l);
    weft_launch__hosts_want(l, why);
    weft_launch__hosts_act(l);
    return true;
}

static weft_status start_rank(weft_launch__run *l, int r)
{
    weft_launch__child *c = &l->c[r];
    weft_launch__close_pipes(l, r);
    c->code = c->order = 0;
    c->killed_s        = 0;
    c->stopped         = false;
    c->noticed         = NULL;
    return weft_launch__start(l, r);
}

/* ---- views ---- */

/* Which ranks of the view run: all, or those that the sizes need.  false: they are too few. */
static bool find_world(weft_launch__run *l, int n)
{
    weft_launch__restart    *p      = l->restart;
    const weft_member_view  *v      = weft_launch__hosts_view(l);
    const weft_launch_sizes *s      = l->o->sizes;
    int                      n_rank = weft_member_view_ranks(v);
    int                      dp     = s ? weft_launch_sizes_dp(s, n_rank) : 1;
    weft_text                t      = {0};
    p->world                        = s ? weft_launch_sizes_world(s, dp) : n_rank;
    p->n                            = p->world - l->first < n ? p->world - l->first : n;
    if (p->n < 0) p->n = 0;
    for (int rank = 0; rank < p->world; p->n_host++) rank += v->host[p->n_host].n_rank;
    if (s && !dp)
        weft_launch__say(l, -1, "error",
                         "%d ranks are there, and the sizes need at least %d", n_rank,
                         weft_launch_sizes_least(s));
    if (s) weft_launch_sizes_print(s, dp, &t);
    if (s && dp)
        weft_launch__say(l, -1, "info", "%s: %d of %d ranks run, %d of %d on this host",
                         t.s ? t.s : "", p->world, n_rank, p->n, n);
    weft_text_fini(&t);
    return dp > 0;
}

void weft_launch__restart_enter(weft_launch__run *l, uint32_t epoch, int n)
{
    weft_launch__restart *p     = l->restart;
    int64_t               count = weft_launch__hosts_view(l)->first_step - 1;
    weft_launch__restart  next  = {.epoch = epoch, .counts = p->counts};
    next.n_oom                  = weft_oom_count("");
    *p                          = next;
    p->count     = count > l->o->max_restarts ? l->o->max_restarts + 1 : (int)count;
    p->exhausted = p->count > l->o->max_restarts;
    if (!p->exhausted && !find_world(l, n)) {
        p->exhausted = true;
        return;
    }
    p->due = !p->exhausted;
    if (p->exhausted)
        weft_launch__say(l, -1, "error", "no restart is left: --max-restarts is %d",
                         l->o->max_restarts);
    else if (p->count)
        weft_launch__say(l, -1, "info", "all ranks start again: %d of %d restarts",
                         p->count, l->o->max_restarts);
}

void weft_launch__restart_leave(weft_launch__run *l, uint32_t epoch, bool is_loss)
{
    if (epoch != l->restart->epoch && l->restart->epoch) return;
    if (is_loss) l->restart->failed = true;
    stop_ranks(l);
}

/* In a view in which this host has no ranks. */
static bool is_idle(const weft_launch__restart *p)
{
    return p->started_s > 0 && !p->n && !p->stopping && !p->done && !p->over;
}

weft_status weft_launch__restart_act(weft_launch__run *l)
{
    weft_launch__restart *p = l->restart;
    if (!p) return WEFT_OK;
    for (int r = 0; p->stopping && r < l->n && weft_clock_s() > p->kill_at_s; r++)
        kill_rank(&l->c[r]);
    if (is_idle(p) && weft_launch__hosts_have_done(l, p->n_host)) {
        p->done = true;
        weft_launch__hosts_done(l);
    }
    if (!p->due || l->stopped_by) return WEFT_OK;
    p->due       = false;
    p->started_s = weft_clock_s();
    for (int r = 0; r < p->n; r++) WEFT_TRY(start_rank(l, r));
    return WEFT_OK;
}

/* ---- what hosts.c asks ---- */

int64_t weft_launch__restart_steps(const weft_launch__run *l)
{
    return l->restart->count + l->restart->failed;
}

bool weft_launch__restart_is_ready(const weft_launch__run *l, uint32_t epoch)
{
    const weft_launch__restart *p = l->restart;
    return p->epoch == epoch && p->started_s > 0 && !p->stopping;
}

bool weft_launch__restart_has_run(const weft_launch__run *l)
{
    const weft_launch__restart *p = l->restart;
    return p->started_s > 0 && !p->stopping && weft_clock_s() - p->started_s > SETTLED_S;
}

bool weft_launch__restart_is_over(const weft_launch__run *l)
{
    return l->restart->done || l->restart->exhausted || l->restart->over;
}

bool weft_launch__restart_is_done(const weft_launch__run *l)
{
    return l->restart->done;
}

void weft_launch__restart_end(weft_launch__run *l)
{
    l->restart->over = true;
    for (int r = 0; r < l->n; r++) kill_rank(&l->c[r]);
}

int weft_launch__restart_count(const weft_launch__run *l)
{
    return l->restart->n;
}

int weft_launch__restart_world(const weft_launch__run *l)
{
    return l->restart->world;
}

int weft_launch__restart_hosts(const weft_launch__run *l)
{
    return l->restart->n_host;
}

int weft_launch__restart_number(const weft_launch__run *l)
{
    return l->restart->count;
}

const weft_exporter_counts *weft_launch__restart_counts(const weft_launch__run *l)
{
    return &l->restart->counts;
}

int weft_launch__restart_code(const weft_launch__run *l, int code)
{
    const weft_launch__restart *p = l->restart;
    if (l->stopped_by) return 128 + l->stopped_by;
    if (p->exhausted) return 1;
    if (code == 0 && p->failed && !p->done) { /* others have done theirs */
        weft_launch__say(l, -1, "error",
                         "a rank failed when other hosts had done their work: it was not "
                         "started again");
        return 1;
    }
    return code >= 0 ? code : p->done ? 0 : 1;
}

weft_status weft_launch__restart_open(weft_launch__run *l)
{
    l->restart = calloc(1, sizeof *l->restart);
    return l->restart ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
}

void weft_launch__restart_close(weft_launch__run *l)
{
    free(l->restart);
    l->restart = NULL;
}
