/* The agent: `weft run` where ranks are replaced.  Decisions are member's; here they are carried
 * out: processes, the memory of each epoch, control connections, incidents. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "launch/agent_priv.h"
#include "launch/environment.h"
#include "launch/oom.h"
#include "member/hosts.h"

/* For ranks that are slow and not lost, to come to a view: other hosts wait for those of this one
 * (HOSTS_COLLECT_S), or none does. */
static const double HOSTS_MOST_S = 45;
static const double ALONE_MOST_S = 600;

/* ---- views and reports ---- */

/* Of the newest view, on all hosts. */
static int count_ranks(const weft_launch__run *l)
{
    return l->hosts ? weft_launch__hosts_world(l) : weft_member_count(l->agent->member);
}

/* Of ranks that have other slots than those of their numbers, as one was left out. */
static void print_slots(const weft_member *m, weft_text *t)
{
    const int *slot = weft_member_order(m);
    int        n = weft_member_count(m), k = 0;
    while (k < n && slot[k] == k) k++;
    if (k == n) return;
    weft_text_add(t, ", \"slots\": [");
    for (k = 0; k < n; k++) weft_text_add(t, "%s%d", k ? ", " : "", slot[k]);
    weft_text_add(t, "]");
}

/* A view whose ranks have begun to train. */
static void write_view(const weft_launch__run *l, int64_t first_step)
{
    const weft_launch__agent *a = l->agent;
    weft_text                 t = {0};
    if (l->first) return; /* the first host's to write */
    weft_text_add(&t,
                  "{\"time\": %.3f, \"epoch\": %u, \"ranks\": %d, \"first_step\": %lld",
                  weft_clock_wall_s(), weft_member_epoch(a->member), count_ranks(l),
                  (long long)first_step);
    weft_launch__hosts_print(l, &t);
    if (*a->outcome.plan) {
        weft_text_put_string_member(&t, "plan", a->outcome.plan);
    }
    print_slots(a->member, &t);
    weft_text_add(&t, "}\n");
    if (*a->folder) weft_incident_append(a->folder, "views.jsonl", &t);
    weft_text_fini(&t);
}

/* What a rank reports.  All ranks end with the same error: one line for them. */
static void take_report(weft_launch__run *l, int r, const weft_line_message *m)
{
    weft_launch__agent   *a    = l->agent;
    bool                  ends = !strcmp(m->decided, "end");
    weft_incident_outcome o    = {.decided = m->decided, .why = ""};
    if (ends && (a->reported_end || l->stopped_by)) return;
    a->reported_end = a->reported_end || ends;
    weft_incident i = weft_launch__make_incident(a, r, m->cause, m->text, "report");
    i.pid           = (int)l->c[r].pid;
    i.step          = m->step;
    weft_launch__publish(l, &i, &o);
}

int weft_launch__agent_count(const weft_launch__run *l)
{
    if (l->restart) return weft_launch__restart_count(l);
    return l->agent && l->agent->member ? weft_member_count(l->agent->member) : l->n;
}

int weft_launch__position(const weft_launch__run *l, int r)
{
    return l->agent && l->agent->member && r >= 0
               ? weft_member_position(l->agent->member, r)
               : r;
}

int weft_launch__rank(const weft_launch__run *l, int r)
{
    return l->first + weft_launch__position(l, r);
}

int weft_launch__slot_at(const weft_launch__run *l, int position)
{
    return l->agent && l->agent->member ? weft_member_order(l->agent->member)[position]
                                        : position;
}

int64_t weft_launch__find_step(const weft_launch__run *l)
{
    return atomic_load(&weft_comm_shm_slot_of(l->shm, weft_launch__slot_at(l, 0))->step);
}

/* ---- what ranks ask for ---- */

/* All ranks stop after the step under way, and take another plan. */
static void renew_view(weft_launch__run *l, const char *what)
{
    weft_launch__agent *a = l->agent;
    if (weft_launch__agent_is_over(l) || *a->stop_why || a->scale_to) return;
    if (!l->hosts && !weft_member_may_resize(a->member)) return;
    weft_incident i =
        weft_launch__make_incident(a, -1, "replan", what, "plans made ahead");
    i.step = weft_launch__find_step(l);
    weft_launch__add_incident(a, &i);
    weft_launch__say(l, -1, "info", "%s", what);
    if (l->hosts)
        weft_launch__hosts_want(l, WEFT_HOSTS_ASKED);
    else
        weft_member_renew(a->member);
}

/* ---- what ranks say ---- */

static void note_phases(weft_launch__agent *a, const weft_line_message *m)
{
    for (int k = 0; k < WEFT_N_LINE_PHASE; k++)
        if (m->at_s[k] > a->outcome.at_s[k]) a->outcome.at_s[k] = m->at_s[k];
}

/* The first step of the newest view is done. */
static void note_committed(weft_launch__run *l, const weft_line_message *m, double now_s)
{
    weft_launch__agent *a  = l->agent;
    a->outcome.committed_s = now_s;
    a->outcome.step        = m->step;
    a->outcome.n_rank      = count_ranks(l);
    snprintf(a->outcome.plan, sizeof a->outcome.plan, "%.63s", m->text);
    weft_failpoint("agent.committed");
    weft_launch__note_pauses(a);
    weft_launch__write_incidents(l, NULL, "");
    write_view(l, m->step);
    weft_launch__end_scale(l);
    a->trained = (weft_incident_view){
        .epoch = m->epoch, .step = m->step, .n_rank = a->outcome.n_rank};
    snprintf(a->trained.plan, sizeof a->trained.plan, "%s", a->outcome.plan);
}

static void note_move(weft_launch__agent *a, const weft_membership_move *move)
{
    bool    back = a->outcome.move.back || move->back;
    int64_t made = a->outcome.move.made_bytes + move->made_bytes;
    if (move->bytes > 0 || move->learned > 0) a->outcome.move = *move;
    a->outcome.move.back       = back;
    a->outcome.move.made_bytes = made;
}

static void hear_message(weft_launch__run *l, int r, const weft_line_message *m)
{
    weft_launch__agent *a = l->agent;
    weft_member_event   e = {
          .slot = r, .epoch = m->epoch, .step = m->step, .now_s = weft_clock_s()};
    bool current = m->epoch == weft_member_epoch(a->member);
    switch ((weft_line_kind)m->kind) {
    case WEFT_LINE_LEFT:
        if (weft_launch__position(l, r)) /* what rank 0 said before ranks left */
            weft_launch__agent_hear(l, weft_launch__slot_at(l, 0));
        e.kind = WEFT_MEMBER_LEFT;
        weft_incident_note_left(&a->left, m->epoch, m->text);
        if (l->hosts && *m->text && current) /* its peers are on other hosts, too */
            weft_launch__recorder_dump(l, a->folder, m->epoch, -1);
        weft_member_tell(a->member, &e);
        break;
    case WEFT_LINE_READY:
        e.kind = WEFT_MEMBER_READY;
        weft_member_tell(a->member, &e);
        if (current) note_phases(a, m);
        if (current) note_move(a, &m->move);
        if (weft_launch__position(l, r) == 0)
            memcpy(a->folder, m->text, sizeof a->folder);
        if (current && weft_member_is_ready(a->member)) {
            a->all_ready = true;
            weft_launch__release_slots(l);
            weft_launch__spare_start(l);
        }
        if (*a->stop_why && weft_member_is_ready(a->member)) weft_launch__request_stop(l);
        break;
    case WEFT_LINE_WANTS:
        if (l->hosts && weft_member_is_preparing(a->member, r))
            weft_launch__prepare_unused(l, m->world);
        else if (l->hosts)
            weft_launch__hosts_use(l, m->epoch, m->world);
        else
            weft_member_recount(a->member, m->epoch, m->world);
        if (!*m->text && !l->hosts && a->scale_from && !*a->scale_why)
            snprintf(a->scale_why, sizeof a->scale_why, "more are of no use");
        if (*m->text && !*a->scale_why)
            snprintf(a->scale_why, sizeof a->scale_why, "rank %d: %.150s",
                     weft_launch__rank(l, r), m->text);
        break;
    case WEFT_LINE_LEARNS: weft_launch__note_learned(l, r, m->step); break;
    case WEFT_LINE_PREPARED:
        e.kind = WEFT_MEMBER_IS_PREPARED;
        weft_member_tell(a->member, &e);
        weft_launch__note_prepared(l, r);
        break;
    case WEFT_LINE_SCALE:
        if (current) weft_launch__scale_for_ranks(l, m->world);
        break;
    case WEFT_LINE_COMMITTED:
        if (current && a->outcome.committed_s <= 0) note_committed(l, m, e.now_s);
        break;
    case WEFT_LINE_FAILED: a->failed[r] = true; break;
    case WEFT_LINE_FINISHED: a->finished = true; break;
    case WEFT_LINE_INCIDENT: take_report(l, r, m); break;
    case WEFT_LINE_REPLAN:
        if (current) renew_view(l, m->text);
        break;
    case WEFT_LINE_STEPS:
        if (current && !l->hosts)
            weft_launch_levels_note_predicted(&a->levels, weft_launch__agent_count(l),
                                              m->text);
        break;
    case WEFT_LINE_SLOW:
        if (current) weft_launch__drop_slow(l, m);
        break;
    case WEFT_LINE_CORDON:
        if (current) weft_launch__cordon_slot(l, r, m);
        break;
    default: break;
    }
}

/* A rank that sends what is no message is lost, and so is what it has written. */
static void drop_rank(weft_launch__run *l, int r)
{
    weft_launch__child *c = &l->c[r];
    if (!c->pid || c->noticed) return;
    c->noticed = "garbage";
    c->seen_s  = weft_clock_s();
    snprintf(c->what, sizeof c->what,
             "dropped: it sent what is no message on its control connection");
    weft_comm_shm_distrust(weft_comm_shm_slot_of(l->shm, r));
    weft_launch__kill_slot(l, r);
}

void weft_launch__agent_hear(weft_launch__run *l, int r)
{
    weft_line_message m;
    int               fd;
    weft_line_end     end = WEFT_LINE_OPEN;
    if (!l->agent || l->c[r].line < 0) return;
    while (weft_line_take(l->c[r].line, &m, &fd, &end)) {
        if (m.kind == WEFT_LINE_BRIEF && fd >= 0) {
            if (l->agent->brief >= 0) close(l->agent->brief);
            l->agent->brief = fd;
        } else if (fd >= 0) {
            close(fd);
        }
        hear_message(l, r, &m);
    }
    if (end == WEFT_LINE_OPEN) return;
    close(l->c[r].line);
    l->c[r].line = -1;
    if (end == WEFT_LINE_GARBAGE) drop_rank(l, r);
}

/* ---- how ranks end ---- */

static weft_member_cause find_cause(const weft_launch__run *l, int r, int how)
{
    if (l->stopped_by && weft_launch__is_ended_by_request(how)) return WEFT_MEMBER_DONE;
    if (l->agent->failed[r]) return WEFT_MEMBER_FAILED;
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return WEFT_MEMBER_DONE;
    if (l->agent->finished) return WEFT_MEMBER_DONE; /* it had nothing left to do */
    return weft_incident_is_crash(how) ? WEFT_MEMBER_CRASHED : WEFT_MEMBER_LOST;
}

/* The process of a slot that is not in the view: it is not missed. */
static bool end_released(weft_launch__run *l, int r, weft_member_cause cause,
                         int64_t step)
{
    bool saves       = weft_launch__hosts_saves(l) && cause != WEFT_MEMBER_DONE;
    l->c[r].killed_s = 0;
    weft_member_tell(l->agent->member, &(weft_member_event){.kind  = WEFT_MEMBER_ENDED,
                                                            .slot  = r,
                                                            .cause = cause,
                                                            .step  = step,
                                                            .now_s = weft_clock_s()});
    if (saves) weft_launch__agent_end(l); /* without it the others cannot */
    return true;
}

/* Steps of the view that ends now. */
static void note_steps(weft_launch__agent *a, int n_rank, int64_t step, double now_s)
{
    if (a->outcome.committed_s > 0)
        weft_launch_levels_note_steps(&a->levels, n_rank, step - a->outcome.step,
                                      now_s - a->outcome.committed_s);
}

/* What was seen of its end; returns how it was noticed. */
static const char *describe_loss(const weft_launch__run *l, int r, int how, char *what,
                                 size_t size)
{
    const weft_launch__child *c = &l->c[r];
    if (c->noticed) {
        snprintf(what, size, "%s", c->what);
        return c->noticed;
    }
    weft_launch__describe_exit(how, what, size);
    if (c->killed_s <= 0) return "waitpid";
    weft_incident_add_left(&l->agent->left, what, size);
    return "no answer";
}

/* Rank 0 has ended with all written. */
static void note_done(weft_launch__run *l, int64_t step)
{
    weft_launch__agent *a = l->agent;
    weft_launch__hosts_done(l);
    weft_launch__drop_preparing(l);
    if (!a->n_incident) return;
    a->outcome.step        = step + 1; /* none was left after the last one of them */
    a->outcome.n_rank      = count_ranks(l);
    a->outcome.committed_s = weft_clock_s();
    weft_launch__write_incidents(l, NULL, "");
}

bool weft_launch__agent_lost(weft_launch__run *l, int r, int pid, int how)
{
    weft_launch__agent       *a = l->agent;
    const weft_launch__child *c = &l->c[r];
    char                      what[400];
    const char               *noticed;
    if (!a) return false;
    weft_launch__agent_hear(l, r); /* its last words */
    weft_failpoint("agent.lost");
    weft_member_cause cause = find_cause(l, r, how);
    /* what ranks have after a signal is over: the job ends as it is */
    if (cause != WEFT_MEMBER_DONE && l->stopped_by && l->kill_at_s > 0) return false;
    int64_t step = atomic_load(&weft_comm_shm_slot_of(l->shm, r)->step);
    noticed      = describe_loss(l, r, how, what, sizeof what);
    int position = weft_launch__position(l, r);
    if (position >= weft_launch__agent_count(l) || weft_launch__hosts_is_out(l)) {
        if (weft_member_is_preparing(a->member, r)) /* it may have learned a state */
            weft_comm_shm_distrust(weft_comm_shm_slot_of(l->shm, r));
        weft_launch__end_growth(l, r, pid, how, what);
        return end_released(l, r, cause, step);
    }
    const char *exit_cause = weft_launch__find_exit_cause(a, c, how);
    if (cause == WEFT_MEMBER_LOST && !strcmp(exit_cause, "oom")) cause = WEFT_MEMBER_OOM;
    if (cause != WEFT_MEMBER_DONE && a->epoch)
        weft_comm_shm_report(a->epoch, position, what);
    if (cause == WEFT_MEMBER_CRASHED) /* what it has written is not trusted */
        weft_comm_shm_distrust(weft_comm_shm_slot_of(l->shm, r));
    if (position == 0) a->done = cause == WEFT_MEMBER_DONE;
    if (a->done) note_done(l, step);
    bool lost   = cause != WEFT_MEMBER_DONE && cause != WEFT_MEMBER_FAILED;
    bool kept   = lost && !a->over && !a->done && weft_member_replaces(a->member);
    bool spared = false;
    if (kept) {
        weft_incident i = weft_launch__make_incident(a, r, exit_cause, what, noticed);
        i.pid           = pid;
        i.step          = step;
        i.seen_s        = c->seen_s;
        note_steps(a, weft_launch__agent_count(l), step, i.noticed_s);
        spared = weft_launch__choose_level(l, r, step, &i.choice);
        weft_launch__add_incident(a, &i);
        if (!l->hosts) weft_launch__note_stop(l);
        if (weft_launch__hosts_is_cordoned(l)) /* it is in no view that is to come */
            weft_launch__write_incidents(l, "", "its host is cordoned");
        weft_launch__recorder_dump(l, a->folder, i.epoch, r);
    }
    weft_member_tell(a->member, &(weft_member_event){.kind   = WEFT_MEMBER_ENDED,
                                                     .slot   = r,
                                                     .cause  = cause,
                                                     .step   = step,
                                                     .spared = spared,
                                                     .now_s  = weft_clock_s()});
    if (cause == WEFT_MEMBER_CRASHED || cause == WEFT_MEMBER_OOM)
        weft_launch__hosts_crashed(l);
    if (!weft_member_is_in_view(a->member, r)) {
        weft_launch__say(l, -1, "warn",
                         "rank %d: %s before it has started; back to %d ranks", position,
                         what, weft_launch__agent_count(l));
        return true;
    }
    if (kept && !weft_member_is_over(a->member))
        weft_launch__say(l, -1, "warn", "rank %d: %s after step %lld; %s",
                         l->first + position, what, (long long)step,
                         weft_launch__name_answer(l, l->first + position));
    if (cause == WEFT_MEMBER_DONE && a->finished) {
        if (how)
            weft_launch__say(l, -1, "info", "rank %d: %s when all was written",
                             l->first + position, what);
        return how != 0;
    }
    /* what is left to account for: errors, a signal, the end */
    return lost && (a->done || (kept && !weft_member_is_over(a->member)));
}

/* ---- actions ---- */

static weft_status start_slot(weft_launch__run *l, int r)
{
    weft_launch__child *c = &l->c[r];
    if (l->agent->begun[r]) weft_launch__close_pipes(l, r);
    if (c->line >= 0) close(c->line);
    if (c->error.n)
        weft_launch__say_line(l, weft_launch__rank(l, r), c->error.s, c->error.n - 1);
    c->line    = -1;
    c->error.n = 0;
    c->code = c->order  = 0;
    c->reported         = false;
    c->killed_s         = 0;
    c->stopped          = false;
    c->noticed          = NULL;
    c->seen_s           = 0;
    l->agent->begun[r]  = true;
    l->agent->failed[r] = false;
    if (weft_launch__position(l, r) == 0) l->agent->done = false;
    WEFT_TRY(weft_launch__start(l, r));
    if (weft_member_is_preparing(l->agent->member, r)) weft_launch__send_prepare(l, r);
    return WEFT_OK;
}

/* A view that was overtaken before all were ready: who waits in it for a rank that is only in the
 * next one does not wait any longer. */
static void end_epoch(weft_launch__run *l)
{
    weft_launch__agent *a    = l->agent;
    int                 rank = a->n_incident ? a->incident[a->n_incident - 1].rank : -1;
    int                 slot = rank - a->first;
    if (a->epoch && !a->all_ready && !l->hosts)
        weft_comm_shm_report(a->epoch, slot < 0 || slot >= l->n ? 0 : slot,
                             "it is in the next view");
    weft_comm_shm_destroy(a->epoch);
    a->epoch     = NULL;
    a->all_ready = false;
}

/* New memory for the epoch; ranks let the old one go when they leave it. */
static weft_status send_view(weft_launch__run *l, uint32_t epoch)
{
    weft_launch__agent *a = l->agent;
    int                 n = weft_launch__agent_count(l);
    weft_line_message   m = {.kind       = WEFT_LINE_VIEW,
                             .epoch      = epoch,
                             .world      = n,
                             .local      = n,
                             .most       = l->n,
                             .most_local = l->n};
    if (l->hosts) weft_launch__hosts_fill_view(l, &m);
    end_epoch(l);
    a->first = l->first;
    WEFT_TRY(weft_comm_shm_create(l->n, &a->epoch));
    weft_comm_shm_set_epoch(a->epoch, epoch);
    weft_comm_shm_set_slots(a->epoch, n, weft_member_order(a->member));
    a->outcome = (weft_incident_outcome){
        .epoch = epoch, .decided_s = weft_clock_s(), .was = a->trained};
    weft_failpoint("agent.view");
    for (int r = 0; r < l->n; r++) {
        m.mine = weft_launch__position(l, r);
        /* a send that fails: the rank has ended, or is lost soon */
        if (l->c[r].line >= 0)
            (void)weft_line_put(l->c[r].line, &m, weft_comm_shm_fd(a->epoch));
    }
    return WEFT_OK;
}

static void end_job(weft_launch__run *l, const char *why)
{
    weft_launch__agent *a = l->agent;
    weft_line_message   m = {.kind = WEFT_LINE_END};
    a->over               = true;
    snprintf(a->why, sizeof a->why, "%s", why);
    snprintf(m.text, sizeof m.text, "%s", *why ? why : "all is done");
    weft_launch__write_incidents(l, "end", why);
    for (int r = 0; r < l->n; r++)
        if (l->c[r].line >= 0) (void)weft_line_put(l->c[r].line, &m, -1);
    weft_launch__end_all(l, l->o->grace_s);
}

weft_status weft_launch__agent_act(weft_launch__run *l)
{
    weft_member_action x;
    if (l->agent) weft_launch__begin_scale(l);
    while (l->agent && weft_member_next(l->agent->member, &x)) {
        weft_failpoint("agent.act");
        switch (x.kind) {
        case WEFT_MEMBER_START: WEFT_TRY(start_slot(l, x.slot)); break;
        case WEFT_MEMBER_VIEW: WEFT_TRY(send_view(l, x.epoch)); break;
        case WEFT_MEMBER_KILL: weft_launch__kill_slot(l, x.slot); break;
        case WEFT_MEMBER_WANT: weft_launch__hosts_want(l, x.why); break;
        case WEFT_MEMBER_END: end_job(l, x.why); break;
        }
    }
    return WEFT_OK;
}

/* ---- views of several hosts ---- */

void weft_launch__agent_enter(weft_launch__run *l, uint32_t epoch, int n)
{
    if (l->restart) {
        weft_launch__restart_enter(l, epoch, n);
        return;
    }
    weft_launch__note_enter(l);
    bool others = weft_launch__hosts_view(l)->n_host > 1;
    weft_member_wait_at_most(l->agent->member, others ? HOSTS_MOST_S : ALONE_MOST_S);
    weft_member_enter(l->agent->member, epoch, n);
}

void weft_launch__agent_leave(weft_launch__run *l, uint32_t epoch, bool at_once,
                              bool drains)
{
    if (l->restart) {
        weft_launch__restart_leave(l, epoch, at_once);
        return;
    }
    weft_line_message m = {.kind  = at_once ? WEFT_LINE_OVER : WEFT_LINE_LEAVE,
                           .epoch = epoch,
                           .local = drains,
                           .over  = at_once ? epoch : 0};
    for (int r = 0; r < l->n; r++)
        if (l->c[r].line >= 0) (void)weft_line_put(l->c[r].line, &m, -1);
    if (at_once)
        weft_member_leave(l->agent->member, weft_clock_s());
    else
        weft_launch__note_stop(l);
}

bool weft_launch__agent_is_stopped(const weft_launch__run *l)
{
    if (l->restart) return l->n_running == 0;
    return !l->agent || weft_member_is_stopped(l->agent->member);
}

bool weft_launch__agent_is_ready(const weft_launch__run *l, uint32_t epoch)
{
    if (l->restart) return weft_launch__restart_is_ready(l, epoch);
    return l->agent && weft_member_epoch(l->agent->member) == epoch &&
           weft_member_is_ready(l->agent->member);
}

bool weft_launch__agent_is_over(const weft_launch__run *l)
{
    if (l->restart) return l->stopped_by || weft_launch__restart_is_over(l);
    return l->stopped_by || !l->agent || l->agent->over || l->agent->done;
}

void weft_launch__agent_end(weft_launch__run *l)
{
    if (l->restart) weft_launch__restart_end(l);
    if (!l->agent) return;
    l->agent->over = true;
    for (int r = 0; r < l->n; r++) weft_launch__kill_slot(l, r);
}

/* ---- time ---- */

void weft_launch__agent_stop(weft_launch__run *l)
{
    if (l->agent) weft_launch__drop_preparing(l);
    if (l->agent)
        weft_member_tell(l->agent->member, &(weft_member_event){.kind  = WEFT_MEMBER_STOP,
                                                                .now_s = weft_clock_s()});
}

/* Who is waited for and works on files, has a core or waits for one is not late. */
static void look_for_progress(weft_launch__run *l, double now_s)
{
    weft_launch__agent *a = l->agent;
    for (int r = 0; r < l->n; r++) {
        weft_member_event e = {.kind = WEFT_MEMBER_ALIVE, .slot = r, .now_s = now_s};
        uint64_t word  = atomic_load(&weft_comm_shm_slot_of(l->shm, r)->progress.word);
        bool     moved = word != a->word[r];
        bool     works = weft_launch__watch_works(l, r, now_s, &e.used_s);
        a->word[r]     = word;
        if (!moved) e.kind = WEFT_MEMBER_WORKS;
        if (moved || works) weft_member_tell(a->member, &e);
    }
}

void weft_launch__agent_tick(weft_launch__run *l)
{
    double now_s = weft_clock_s();
    if (!l->agent || weft_member_deadline_s(l->agent->member) <= 0) return;
    look_for_progress(l, now_s);
    weft_member_tell(l->agent->member,
                     &(weft_member_event){.kind = WEFT_MEMBER_TICK, .now_s = now_s});
}

int weft_launch__agent_wait_ms(const weft_launch__run *l)
{
    double at = l->agent ? weft_member_deadline_s(l->agent->member) : 0;
    if (at <= 0) return -1;
    double left = at - weft_clock_s();
    return left <= 0 ? 0 : (int)(1e3 * (left < 1 ? left : 1)) + 1;
}

bool weft_launch__agent_is_running(const weft_launch__run *l, int r)
{
    return l->agent && weft_member_is_running(l->agent->member, r);
}

void weft_launch__agent_keep(weft_launch__run *l, int r, double now_s)
{
    weft_member_tell(
        l->agent->member,
        &(weft_member_event){.kind = WEFT_MEMBER_ALIVE, .slot = r, .now_s = now_s});
}

void weft_launch__agent_hold(weft_launch__run *l, bool on)
{
    if (l->agent->epoch) weft_comm_shm_hold(l->agent->epoch, on);
}

void weft_launch__agent_export(const weft_launch__run *l, weft_exporter_job *j)
{
    const weft_launch__agent *a = l->agent;
    if (!a) return;
    j->epoch   = weft_member_epoch(a->member);
    j->n_cause = a->counts.n;
    j->cause   = a->counts.of;
    j->n_phase = a->n_phase;
    j->phase   = a->phase;
    if (*a->folder) j->job = j->folder = a->folder;
}

/* ---- the whole ---- */

bool weft_launch__agent_is_done(const weft_launch__run *l)
{
    if (l->restart) return weft_launch__restart_is_done(l) && !l->stopped_by;
    return l->agent && l->agent->done && !l->stopped_by;
}

const char *weft_launch__agent_reason(const weft_launch__run *l)
{
    if (l->agent && *l->agent->stop_why) return l->agent->stop_why;
    if (!l->agent || !l->agent->over) return NULL;
    for (int r = 0; r < l->n; r++)
        if (l->agent->failed[r]) return NULL; /* its error says it */
    return l->agent->why;
}

weft_status weft_launch__agent_open(weft_launch__run *l)
{
    weft_member_limits  limits = weft_member_default_limits();
    weft_launch__agent *a      = calloc(1, sizeof *a);
    if (!a) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    l->agent  = a;
    a->brief  = -1;
    a->n_oom  = weft_oom_count("");
    a->failed = calloc((size_t)l->n, sizeof *a->failed);
    a->begun  = calloc((size_t)l->n, sizeof *a->begun);
    a->word   = calloc((size_t)l->n, sizeof *a->word);
    a->asked  = calloc((size_t)l->n, sizeof *a->asked);
    if (!a->failed || !a->begun || !a->word || !a->asked)
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    WEFT_TRY(weft_launch_levels_init(&a->levels, l->o->levels, l->n, weft_clock_s()));
    limits.outside = l->hosts != NULL;
    limits.most_s  = ALONE_MOST_S;
    if (l->o->timeout_s > 0) limits.work_s = l->o->timeout_s;
    WEFT_TRY(weft_member_create(l->n, &limits, &a->member));
    return weft_launch__agent_act(l);
}

void weft_launch__agent_close(weft_launch__run *l)
{
    weft_launch__agent *a = l->agent;
    if (!a) return;
    if (a->n_incident) weft_launch__write_incidents(l, "end", "the job has ended");
    weft_member_destroy(a->member);
    weft_launch_levels_fini(&a->levels);
    weft_comm_shm_destroy(a->epoch);
    if (a->brief >= 0) close(a->brief);
    free(a->failed);
    free(a->begun);
    free(a->word);
    free(a->asked);
    free(a);
    l->agent = NULL;
}
