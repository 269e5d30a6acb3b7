/* The agent: another number of ranks, as `weft scale` or a cordoned slot asks for it.
 * New ranks and those that stay prepare while all train; then the view is decided, and all ranks
 * stop after the step under way. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "launch/agent_priv.h"

#define GROWTH_FAILED "a new rank failed, so it is as before"

enum {
    PREPARE_S = 60, /* for new ranks to be prepared, without --timeout */
    MAX_VIEW  = 3   /* of several hosts, on the way to another number of ranks */
};

int weft_launch__agent_count_for(const weft_launch__run *l, int r)
{
    int n = weft_launch__agent_count(l), position = weft_launch__position(l, r);
    if (position < n || !l->agent) return n;
    if (l->hosts) return weft_launch__hosts_local_for(l);
    return l->agent->scale_to > position ? l->agent->scale_to : n;
}

/* Ranks of the newest view, on all hosts. */
static int count_world(const weft_launch__run *l)
{
    return l->hosts ? weft_launch__hosts_world(l) : weft_launch__agent_count(l);
}

static weft_incident make_scale(const weft_launch__run *l)
{
    const weft_launch__agent *a = l->agent;
    char                      what[80];
    int                       n =
        snprintf(what, sizeof what, "from %d to %d ranks", a->scale_from, a->scale_to);
    if (a->cordon)
        snprintf(what + n, sizeof what - (size_t)n, ", without %s %d",
                 l->hosts ? "rank" : "slot", a->cordoned);
    weft_incident i =
        weft_launch__make_incident(a, -1, a->cordon ? "cordon" : "scale", what,
                                   a->cordon ? a->cordon : "weft scale");
    i.step = weft_launch__find_step(l);
    return i;
}

static void note_scale(weft_launch__run *l)
{
    weft_incident i = make_scale(l);
    weft_launch__add_incident(l->agent, &i);
    weft_launch__say(l, -1, "info", "%s", i.what);
}

void weft_launch__note_stop(weft_launch__run *l)
{
    weft_launch__agent *a = l->agent;
    if (!a->scale_from || a->scale_noted) return;
    a->scale_noted = true;
    note_scale(l);
}

/* Why a view may have another number of ranks than was asked for: hosts; or nothing at all. */
static void note_reason(weft_launch__run *l)
{
    weft_launch__agent *a   = l->agent;
    const char         *why = l->hosts ? weft_launch__hosts_view(l)->reason : "";
    if (strncmp(why, "host ", 5) != 0) return;
    if (!*a->scale_why || weft_launch__reason_is_loss(why))
        snprintf(a->scale_why, sizeof a->scale_why, "%.150s meanwhile", why);
}

void weft_launch__note_enter(weft_launch__run *l)
{
    note_reason(l);
    if (count_world(l) == l->agent->scale_to) weft_launch__note_stop(l);
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
    else if (!l->hosts && (n < l->o->min_rank || n > weft_member_usable(a->member)))
        snprintf(why, size, "%d rank%s: the job may have %d to %d%s", n,
                 n == 1 ? "" : "s", l->o->min_rank, weft_member_usable(a->member),
                 n <= l->n && n >= l->o->min_rank ? ", as others are cordoned" : "");
    else if (a->scale_to)
        snprintf(why, size, "the job is on its way to %d ranks", a->scale_to);
    else if (l->stopped_by || a->over || a->done)
        snprintf(why, size, "the job is about to end");
    else if (n == was)
        snprintf(why, size, "the job has %d rank%s", n, n == 1 ? "" : "s");
    if (*why) return false;
    a->scale_to      = n;
    a->scale_from    = l->hosts ? was : 0;
    a->scale_epoch   = weft_member_epoch(a->member);
    a->scale_noted   = false;
    a->scale_why[0]  = 0;
    a->leaves_itself = false;
    a->asked_s       = weft_clock_s();
    if (l->hosts) weft_launch__hosts_scale(l, n, why, size);
    if (*why) a->scale_to = a->scale_from = 0;
    return !*why;
}

/* ---- new ranks prepare ---- */

double weft_launch__prepare_limit_s(const weft_launch__run *l)
{
    return l->o->timeout_s > 0 ? l->o->timeout_s : PREPARE_S;
}

void weft_launch__agent_grow(weft_launch__run *l, int n)
{
    weft_failpoint("agent.prepare");
    weft_member_prepare(l->agent->member, n);
}

/* A rank that stays, in the newest view, is to make the memory that it will need. */
static void ask_to_prepare(weft_launch__run *l, int slot, int position)
{
    weft_launch__agent *a = l->agent;
    weft_line_message   m = {.kind  = WEFT_LINE_PREPARE,
                             .world = a->scale_to,
                             .local = a->scale_to,
                             .mine  = position};
    if (l->hosts) weft_launch__hosts_fill_prepare(l, &m);
    a->asked[slot] = (weft_launch__asked){.epoch = weft_member_epoch(a->member)};
    if (l->c[slot].line < 0 || weft_line_put(l->c[slot].line, &m, a->brief) != WEFT_OK)
        a->asked[slot].ready = true; /* not waited for */
}

bool weft_launch__have_prepared(weft_launch__run *l, int n)
{
    weft_launch__agent *a   = l->agent;
    int                 was = weft_launch__agent_count(l);
    bool                all = weft_member_is_prepared(a->member, n);
    for (int k = 0; k < was && k < n; k++) {
        int slot = weft_launch__slot_at(l, k);
        if (a->asked[slot].epoch != weft_member_epoch(a->member))
            ask_to_prepare(l, slot, k);
        all = all && a->asked[slot].ready;
    }
    return all;
}

void weft_launch__note_prepared(weft_launch__run *l, int r)
{
    const weft_launch__agent *a = l->agent;
    if (a->asked[r].epoch == weft_member_epoch(a->member)) a->asked[r].ready = true;
}

void weft_launch__note_learned(weft_launch__run *l, int r, int64_t percent)
{
    weft_launch__asked *a = &l->agent->asked[r];
    if (percent > a->learned && percent <= 100) a->learned = (int)percent;
}

int weft_launch__agent_learned(const weft_launch__run *l, int n)
{
    int least = -1;
    for (int k = 0; k < n; k++) {
        int learned = l->agent->asked[weft_launch__slot_at(l, k)].learned;
        if (least < 0 || learned < least) least = learned;
    }
    return least > 0 ? least : -1;
}

/* No process is asked any more, but for new ranks that are preparing already. */
void weft_launch__forget_asked(weft_launch__run *l)
{
    weft_launch__agent *a = l->agent;
    for (int r = 0; r < l->n; r++)
        if (!weft_member_is_preparing(a->member, r))
            a->asked[r] = (weft_launch__asked){0};
}

/* A process of a growth before has been killed and is not gone: its slot cannot prepare yet. */
static bool is_one_ending(const weft_launch__run *l)
{
    for (int r = 0; r < l->n; r++)
        if (l->c[r].pid && l->c[r].killed_s > 0 &&
            weft_member_is_preparing(l->agent->member, r))
            return true;
    return false;
}

/* While all train, for as long as a start may take.  Without a slot that is cordoned nothing is
 * waited for. */
static bool is_preparing(weft_launch__run *l)
{
    weft_launch__agent *a   = l->agent;
    double              now = weft_clock_s();
    if (l->hosts || a->leaves_itself || a->cordon) return false;
    if (a->prepare_s <= 0) {
        if (is_one_ending(l)) return true;
        weft_launch__forget_asked(l);
        a->prepare_s = now + weft_launch__prepare_limit_s(l);
        if (a->scale_to > weft_launch__agent_count(l))
            weft_launch__agent_grow(l, a->scale_to);
    }
    return now < a->prepare_s && !weft_launch__have_prepared(l, a->scale_to);
}

void weft_launch__send_prepare(weft_launch__run *l, int r)
{
    weft_line_message m = {.kind  = WEFT_LINE_PREPARE,
                           .world = l->agent->scale_to,
                           .local = l->agent->scale_to,
                           .mine  = weft_launch__position(l, r)};
    if (l->hosts) weft_launch__hosts_fill_prepare(l, &m);
    l->agent->asked[r] =
        (weft_launch__asked){.epoch = weft_member_epoch(l->agent->member)};
    weft_comm_shm_distrust(weft_comm_shm_slot_of(l->shm, r)); /* nothing is in its slab */
    weft_comm_shm_clear_slab(l->shm, r);
    (void)weft_line_put(l->c[r].line, &m, l->agent->brief);
}

void weft_launch__drop_preparing(weft_launch__run *l)
{
    weft_launch__agent *a = l->agent;
    a->prepare_s          = 0;
    for (int r = 0; r < l->n; r++)
        if (weft_member_is_preparing(a->member, r)) weft_launch__kill_slot(l, r);
}

/* It prepared in a view that is no longer the newest, and ended as it is not in the new one. */
static bool is_overtaken(const weft_launch__run *l, int r, int how)
{
    const weft_launch__agent *a = l->agent;
    return WIFEXITED(how) && WEXITSTATUS(how) == 0 && a->asked[r].epoch &&
           a->asked[r].epoch != weft_member_epoch(a->member);
}

static void answer_failed_growth(weft_launch__run *l, int n)
{
    char text[200];
    snprintf(text, sizeof text, "%d rank%s: %s", n, n == 1 ? "" : "s", GROWTH_FAILED);
    weft_launch__control_answer(l, WEFT_LAUNCH__MISSED, text);
}

void weft_launch__end_growth(weft_launch__run *l, int r, int pid, int how,
                             const char *what)
{
    weft_launch__agent   *a = l->agent;
    weft_incident_outcome o = {.decided = "continue", .why = "it has not started"};
    if (l->c[r].killed_s > 0 && !l->c[r].noticed)
        return; /* our own doing, of a growth before */
    if (l->hosts) {
        weft_launch__hosts_end_prepare(l, r, a->failed[r], what);
        return;
    }
    if (a->prepare_s <= 0 || a->scale_from || weft_launch__position(l, r) >= a->scale_to)
        return;
    if (is_overtaken(l, r, how)) {
        a->prepare_s = 0; /* it begins anew */
        return;
    }
    weft_incident i = weft_launch__make_incident(
        a, r, weft_launch__find_exit_cause(a, &l->c[r], how), what, "waitpid");
    i.pid  = pid;
    i.step = weft_launch__find_step(l);
    weft_launch__publish(l, &i, &o);
    weft_launch__drop_preparing(l);
    weft_launch__say(l, -1, "warn", "rank %d: %s before it has started; %d ranks go on",
                     weft_launch__rank(l, r), what, weft_launch__agent_count(l));
    answer_failed_growth(l, weft_launch__agent_count(l));
    a->scale_to = 0;
}

/* ---- those of several hosts ---- */

void weft_launch__agent_prepare(weft_launch__run *l, int n, const weft_text *brief)
{
    weft_launch__agent *a = l->agent;
    if (a->brief >= 0) close(a->brief);
    a->brief = memfd_create("weft-brief", MFD_CLOEXEC);
    if (a->brief >= 0 && write(a->brief, brief->s, brief->n) != (ssize_t)brief->n) {
        close(a->brief);
        a->brief = -1;
    }
    weft_member_prepare(a->member, n);
}

bool weft_launch__agent_is_prepared(const weft_launch__run *l, int n)
{
    return weft_member_is_prepared(l->agent->member, n);
}

bool weft_launch__agent_may_grow(const weft_launch__run *l)
{
    for (int r = 0; r < l->n; r++)
        if (l->c[r].pid && !weft_member_is_in_view(l->agent->member, r)) return false;
    return weft_member_may_resize(l->agent->member);
}

void weft_launch__agent_stay(weft_launch__run *l, int n)
{
    weft_launch__agent   *a = l->agent;
    weft_incident_outcome o = {.decided = "continue", .why = "a new rank failed"};
    if (!a->scale_from) return;
    weft_incident i = make_scale(l);
    weft_launch__publish(l, &i, &o);
    answer_failed_growth(l, n);
    a->scale_to = a->scale_from = 0;
}

bool weft_launch__agent_has_processes(const weft_launch__run *l)
{
    for (int r = 0; r < l->n; r++)
        if (l->c[r].pid) return true;
    return false;
}

void weft_launch__agent_read_brief(const weft_launch__run *l, size_t most, weft_text *out)
{
    char    part[4096];
    ssize_t n     = 1;
    size_t  begin = out->n;
    int     fd    = l->agent ? l->agent->brief : -1;
    while (fd >= 0 && out->n - begin <= most &&
           (n = pread(fd, part, sizeof part, (off_t)(out->n - begin))) > 0)
        weft_text_put(out, part, (size_t)n);
    if (n || out->n - begin > most) out->n = begin; /* not all of it */
}

/* ---- the view ---- */

void weft_launch__begin_scale(weft_launch__run *l)
{
    weft_launch__agent *a = l->agent;
    if (!a->scale_to || a->scale_from || !weft_member_may_resize(a->member)) return;
    if (l->hosts) {
        weft_launch__leave_slot_out(l);
        return;
    }
    if (is_preparing(l)) return;
    a->prepare_s   = 0;
    a->scale_from  = weft_launch__agent_count(l);
    a->scale_noted = true;
    note_scale(l);
    if (a->cordon) weft_member_cordon(a->member, a->cordoned);
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

void weft_launch__leave_out(weft_launch__run *l, int r, const char *why)
{
    weft_launch__agent *a = l->agent;
    a->scale_to           = count_world(l) - 1;
    a->scale_from         = 0;
    a->asked_s            = weft_clock_s();
    a->cordon             = why;
    a->cordoned           = r;
    if (!l->hosts)
        (void)weft_launch_leave_cores(weft_launch__position(l, r),
                                      weft_launch__agent_count(l));
}

void weft_launch__forget_scale(weft_launch__run *l)
{
    weft_launch__agent *a = l->agent;
    a->scale_to = a->scale_from = 0;
    a->cordon                   = NULL;
}

void weft_launch__drop_slot(weft_launch__run *l)
{
    weft_launch__agent *a = l->agent;
    a->scale_from         = weft_launch__agent_count(l);
    a->scale_to           = a->scale_from - 1;
    a->scale_noted        = false;
    weft_member_leave_out(a->member, a->cordoned);
}

void weft_launch__leave_rank_out(weft_launch__run *l, int rank, const char *why,
                                 bool lost)
{
    weft_launch__agent *a = l->agent;
    a->scale_from         = count_world(l);
    a->scale_to           = a->scale_from - 1;
    a->scale_epoch        = weft_member_epoch(a->member);
    a->scale_noted        = false;
    a->asked_s            = weft_clock_s();
    a->cordon             = why;
    a->cordoned           = rank;
    weft_launch__hosts_leave_out(l, rank, lost);
}

void weft_launch__agent_leave_out(weft_launch__run *l, int position)
{
    weft_member_leave_out(l->agent->member, weft_launch__slot_at(l, position));
}

/* n_host: ranks of its host, where there are several. */
static weft_incident make_slow(weft_launch__run *l, int rank, const char *what,
                               int *n_host)
{
    weft_launch__agent *a = l->agent;
    int                 r = l->hosts ? -1 : weft_launch__slot_at(l, rank);
    weft_incident       i = weft_launch__make_incident(a, r, "slow", what, "busy time");
    i.rank                = rank;
    *n_host               = 0;
    if (l->hosts)
        snprintf(i.host, sizeof i.host, "%s",
                 weft_launch__hosts_name_of(l, rank, n_host));
    else
        i.pid = (int)l->c[r].pid;
    return i;
}

/* Without a slow rank of several hosts: alone, or with its host. */
static void leave_host_out(weft_launch__run *l, const weft_incident *i, bool alone)
{
    if (alone) {
        weft_launch__say(l, -1, "warn", "%s; it is left out", i->what);
        weft_launch__leave_rank_out(l, i->rank, "slow", false);
        return;
    }
    weft_launch__say(l, -1, "warn", "%s; host %s, which has it, leaves", i->what,
                     i->host);
    weft_launch__hosts_release(l, i->rank);
}

void weft_launch__drop_slow(weft_launch__run *l, const weft_line_message *m)
{
    weft_launch__agent   *a    = l->agent;
    weft_launch_loss      loss = {.n_rank      = count_world(l),
                                  .of_host     = l->hosts != NULL,
                                  .is_stopping = *a->stop_why || a->scale_to ||
                                                 weft_launch__agent_is_over(l),
                                  .now_s = weft_clock_s()};
    weft_incident_outcome o    = {.why = ""};
    weft_launch_slow      slow;
    const char           *what;
    int                   n_host;
    if (!weft_launch_slow_parse(m->text, &slow, &what)) return;
    if (slow.rank >= loss.n_rank || loss.n_rank < 2) return;
    weft_incident i     = make_slow(l, slow.rank, what, &n_host);
    bool          alone = slow.n_rank < n_host;
    i.step              = m->step;
    loss.min_rank       = weft_launch__min_rank(l, alone);
    weft_launch_levels_choose_slow(&a->levels, &slow, &loss, &i.choice);
    bool drops = i.choice.level == WEFT_LEVEL_SHRINK;
    o.decided  = drops ? weft_level_name(WEFT_LEVEL_SHRINK) : "continue";
    weft_launch__publish(l, &i, &o);
    if (!drops) return;
    if (l->hosts) {
        leave_host_out(l, &i, alone);
        return;
    }
    weft_launch__say(l, slow.rank, "warn", "%s; its slot is left out", what);
    weft_launch__leave_out(l, weft_launch__slot_at(l, slow.rank), "slow");
}

/* Hosts may come and go before there is the number of ranks that was asked for. */
static bool may_come(const weft_launch__run *l)
{
    const weft_launch__agent *a = l->agent;
    return weft_member_epoch(a->member) < a->scale_epoch + MAX_VIEW &&
           a->scale_to <= weft_launch__hosts_view(l)->n_host * l->n;
}

/* Why the job has n ranks and not those that were asked for. */
static const char *find_missed(const weft_launch__run *l, int n)
{
    const weft_launch__agent *a     = l->agent;
    bool                      grows = a->scale_to > a->scale_from;
    if (*a->scale_why) return a->scale_why;
    return !l->hosts && grows && n <= a->scale_from ? GROWTH_FAILED
                                                    : "more are of no use";
}

static void answer_scale(weft_launch__run *l, int n, const char *since)
{
    const weft_launch__agent *a = l->agent;
    char                      text[400];
    if (n == a->scale_to)
        snprintf(text, sizeof text, "%d rank%s%s", n, n == 1 ? "" : "s", since);
    else
        snprintf(text, sizeof text, "%d rank%s, not %d,%s: %s", n, n == 1 ? "" : "s",
                 a->scale_to, since, find_missed(l, n));
    weft_launch__control_answer(
        l, n == a->scale_to ? WEFT_LAUNCH__DONE : WEFT_LAUNCH__MISSED, text);
}

void weft_launch__end_scale(weft_launch__run *l)
{
    weft_launch__agent *a = l->agent;
    char                since[100];
    int                 n = count_world(l);
    if (!a->scale_from) return;
    /* a rank that is left out is so in the next view, or stays */
    if (l->hosts && !a->cordon && n != a->scale_to && may_come(l)) return;
    snprintf(since, sizeof since, " from step %lld on, after %.3g s",
             (long long)a->outcome.step, a->outcome.committed_s - a->asked_s);
    answer_scale(l, n, since);
    weft_launch__forget_scale(l);
}

/* This host is not in the newest view. */
void weft_launch__leave_scale(weft_launch__run *l)
{
    if (!l->agent || !l->agent->scale_from) return;
    note_reason(l);
    answer_scale(l, count_world(l), " without this host");
    weft_launch__forget_scale(l);
}

void weft_launch__kill_slot(weft_launch__run *l, int r)
{
    if (!l->c[r].pid || l->c[r].killed_s > 0) return;
    l->c[r].killed_s = weft_clock_s();
    kill(l->c[r].pid, SIGKILL);
}

void weft_launch__release_slots(weft_launch__run *l)
{
    const weft_member *m = l->agent->member;
    for (int r = 0; r < l->n; r++) {
        if (weft_member_is_in_view(m, r) || !l->agent->begun[r] ||
            weft_member_is_preparing(m, r))
            continue;
        weft_failpoint("agent.release");
        weft_launch__kill_slot(l, r); /* it has nothing left to do */
        weft_comm_shm_distrust(weft_comm_shm_slot_of(l->shm, r));
        weft_comm_shm_clear_slab(l->shm, r);
    }
}
