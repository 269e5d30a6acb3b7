/* The agent: another number of ranks, as `weft scale` or a cordoned slot asks for it.
 * New ranks prepare while the others train; then the view is decided, and all ranks stop after the
 * step under way. */
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "launch/agent_priv.h"

enum {
    PREPARE_S = 60, /* for new ranks to be prepared, without --timeout */
    MAX_VIEW  = 3   /* of several hosts, on the way to another number of ranks */
};

int weft_launch__agent_count_for(const weft_launch__run *l, int r)
{
    int n = weft_launch__agent_count(l);
    return r >= n && l->agent && !l->hosts && l->agent->scale_to > r ? l->agent->scale_to
                                                                     : n;
}

/* Ranks of the newest view, on all hosts. */
static int count_world(const weft_launch__run *l)
{
    return l->hosts ? weft_launch__hosts_world(l) : weft_launch__agent_count(l);
}

static void note_scale(weft_launch__run *l)
{
    weft_launch__agent *a = l->agent;
    char                what[64];
    snprintf(what, sizeof what, "from %d to %d ranks", a->scale_from, a->scale_to);
    weft_incident i =
        weft_launch__make_incident(a, -1, a->cordon ? "cordon" : "scale", what,
                                   a->cordon ? a->cordon : "weft scale");
    i.step = atomic_load(&weft_comm_shm_slot_of(l->shm, 0)->step);
    weft_launch__add_incident(a, &i);
    weft_launch__say(l, -1, "info", "%s", what);
}

bool weft_launch__agent_scale(weft_launch__run *l, int n, char *why, size_t size)
{
    weft_launch__agent *a = l->agent;
    *why                  = 0;
    if (!a) {
        snprintf(why, size, "ranks of a program: start or drain hosts instead");
        return false;
    }
    int was = count_world(l);
    if (!l->hosts && !l->o->min_rank)
        snprintf(why, size,
                 "the job has a fixed number of ranks; start it with --nproc-per-node "
                 "MIN:MAX");
    else if (!l->hosts && (n < l->o->min_rank || n > l->n))
        snprintf(why, size, "%d rank%s: the job may have %d to %d", n, n == 1 ? "" : "s",
                 l->o->min_rank, l->n);
    else if (a->scale_to)
        snprintf(why, size, "the job is on its way to %d ranks", a->scale_to);
    else if (l->stopped_by || a->over || a->done)
        snprintf(why, size, "the job is about to end");
    else if (n == was)
        snprintf(why, size, "the job has %d ranks", n);
    else if (l->hosts)
        weft_launch__hosts_scale(l, n, why, size);
    if (*why) return false;
    a->scale_to      = n;
    a->scale_from    = l->hosts ? was : 0;
    a->scale_epoch   = weft_member_epoch(a->member);
    a->leaves_itself = false;
    a->asked_s       = weft_clock_s();
    if (l->hosts) note_scale(l);
    return true;
}

/* ---- new ranks prepare ---- */

/* While the others train, for as long as a start may take. */
static bool is_preparing(weft_launch__run *l)
{
    weft_launch__agent *a   = l->agent;
    double              now = weft_clock_s();
    if (l->hosts || a->leaves_itself || a->scale_to <= weft_launch__agent_count(l))
        return false;
    if (a->prepare_s <= 0) {
        a->prepare_s = now + (l->o->timeout_s > 0 ? l->o->timeout_s : PREPARE_S);
        weft_failpoint("agent.prepare");
        weft_member_prepare(a->member, a->scale_to);
        return true;
    }
    return now < a->prepare_s && !weft_member_is_prepared(a->member, a->scale_to);
}

void weft_launch__send_prepare(weft_launch__run *l, int r)
{
    weft_line_message m = {.kind  = WEFT_LINE_PREPARE,
                           .world = l->agent->scale_to,
                           .local = l->agent->scale_to};
    weft_comm_shm_distrust(weft_comm_shm_slot_of(l->shm, r)); /* nothing is in its slab */
    weft_comm_shm_clear_slab(l->shm, r);
    (void)weft_line_put(l->c[r].line, &m, -1);
}

void weft_launch__drop_preparing(weft_launch__run *l)
{
    weft_launch__agent *a = l->agent;
    a->prepare_s          = 0;
    for (int r = weft_launch__agent_count(l); r < l->n; r++)
        if (weft_member_is_preparing(a->member, r)) weft_launch__kill_slot(l, r);
}

void weft_launch__end_growth(weft_launch__run *l, int r, int pid, int how,
                             const char *what)
{
    weft_launch__agent   *a = l->agent;
    weft_incident_outcome o = {.decided = "continue", .why = "it has not started"};
    char                  text[200];
    if (a->prepare_s <= 0 || a->scale_from || r >= a->scale_to)
        return; /* our own doing */
    weft_incident i = weft_launch__make_incident(
        a, r, weft_launch__find_exit_cause(a, &l->c[r], how), what, "waitpid");
    i.pid  = pid;
    i.step = atomic_load(&weft_comm_shm_slot_of(l->shm, 0)->step);
    weft_launch__publish(l, &i, &o);
    weft_launch__drop_preparing(l);
    weft_launch__say(l, -1, "warn", "rank %d: %s before it has started; %d ranks go on",
                     r, what, weft_launch__agent_count(l));
    snprintf(text, sizeof text, "%d ranks: a new rank failed, so it is as before",
             weft_launch__agent_count(l));
    weft_launch__control_answer(l, false, text);
    a->scale_to = 0;
}

/* ---- the view ---- */

void weft_launch__begin_scale(weft_launch__run *l)
{
    weft_launch__agent *a = l->agent;
    if (!a->scale_to || a->scale_from || !weft_member_may_resize(a->member)) return;
    if (l->hosts || is_preparing(l)) return;
    a->prepare_s  = 0;
    a->scale_from = weft_launch__agent_count(l);
    note_scale(l);
    weft_failpoint("agent.resize");
    weft_member_resize(a->member, a->scale_to);
}

void weft_launch__scale_for_ranks(weft_launch__run *l, int n)
{
    char why[160] = "the number of ranks of several hosts is that of their agents";
    if (l->hosts || !weft_launch__agent_scale(l, n, why, sizeof why)) {
        weft_launch__say(l, -1, "warn", "--replay: %s", why);
        return;
    }
    l->agent->leaves_itself = true;
    weft_launch__begin_scale(l);
}

void weft_launch__put_off_scale(weft_launch__run *l)
{
    weft_launch__agent *a = l->agent;
    int                 n = 0;
    if (!a->scale_from || l->hosts) return;
    a->scale_from = 0;
    for (int k = 0; k < a->n_incident; k++)
        if (a->incident[k].rank >= 0) a->incident[n++] = a->incident[k];
    a->n_incident = n;
}

void weft_launch__end_scale(weft_launch__run *l)
{
    weft_launch__agent *a = l->agent;
    char                text[200];
    int                 n     = count_world(l);
    uint32_t            epoch = weft_member_epoch(a->member);
    if (!a->scale_from) return;
    /* hosts may come and go meanwhile */
    if (l->hosts && n != a->scale_to && epoch < a->scale_epoch + MAX_VIEW) return;
    snprintf(text, sizeof text, "%d rank%s from step %lld on, after %.3g s%s", n,
             n == 1 ? "" : "s", (long long)a->outcome.step,
             a->outcome.committed_s - a->asked_s,
             n == a->scale_to ? ""
             : l->hosts       ? "; hosts came or went meanwhile"
             : a->scale_to < a->scale_from || n > a->scale_from
                 ? "; more are of no use"
                 : "; a new rank failed, so it is as before");
    weft_launch__control_answer(l, n == a->scale_to || n != a->scale_from, text);
    a->scale_to = a->scale_from = 0;
    a->cordon                   = NULL;
}

void weft_launch__kill_slot(weft_launch__run *l, int r)
{
    if (!l->c[r].pid || l->c[r].killed_s > 0) return;
    l->c[r].killed_s = weft_clock_s();
    kill(l->c[r].pid, SIGKILL);
}

void weft_launch__release_slots(weft_launch__run *l)
{
    for (int r = weft_launch__agent_count(l); r < l->n; r++) {
        if (!l->agent->begun[r] || weft_member_is_preparing(l->agent->member, r))
            continue;
        weft_failpoint("agent.release");
        weft_launch__kill_slot(l, r); /* it has nothing left to do */
        weft_comm_shm_distrust(weft_comm_shm_slot_of(l->shm, r));
        weft_comm_shm_clear_slab(l->shm, r);
    }
}
