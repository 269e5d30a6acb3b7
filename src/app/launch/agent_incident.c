/* Incidents of the agent: when each is published, and what was done about it. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/failpoint.h"
#include "launch/agent_priv.h"
#include "launch/oom.h"

/* One incident for files, commands and metrics. */
void weft_launch__publish(weft_launch__run *l, const weft_incident *i,
                          const weft_incident_outcome *o)
{
    weft_launch__agent *a = l->agent;
    weft_text           t = {0};
    weft_incident_print(i, o, &t);
    bool out = weft_launch__hosts_is_out(l); /* others write */
    if (*a->folder && !out) weft_incident_append(a->folder, "incidents.jsonl", &t);
    if (l->o->on_incident) weft_incident_notify(l->o->on_incident, &t);
    weft_text_fini(&t);
    if (!i->counted) weft_exporter_count(&a->counts, i->cause, o->decided);
    if (o->committed_s > 0) a->n_phase = weft_incident_find_phases(i, o, a->phase);
}

/* As ranks found out. */
static bool went_back(const weft_launch__agent *a, const weft_incident *i)
{
    bool again = !a->done && a->outcome.step <= i->step; /* a step is run again */
    return i->rank >= 0 && i->choice.level == WEFT_LEVEL_REPLACE &&
           (a->outcome.move.back || again);
}

/* What was done about it, once a step was committed or all is done. */
static const char *name_decision(const weft_incident *i)
{
    if (!strcmp(i->cause, "replan")) return "replan";
    if (i->rank < 0 && i->choice.n_rejected) return weft_level_name(i->choice.level);
    if (i->rank < 0) return "resize";
    return weft_level_name(i->choice.level);
}

/* A new process was to take the rank's place, and ranks found that none holds the state. */
static void reject_replace(weft_incident *i)
{
    weft_level_choice *c = &i->choice;
    for (int k = 0; k < c->n_rejected; k++)
        if (c->rejected[k].level == WEFT_LEVEL_CHECKPOINT)
            c->rejected[k] =
                (weft_level_rejected){WEFT_LEVEL_REPLACE, c->cost_s,
                                      "no rank that is left holds all of the state"};
    c->level = WEFT_LEVEL_CHECKPOINT;
}

void weft_launch__write_incidents(weft_launch__run *l, const char *decided,
                                  const char *why)
{
    weft_launch__agent *a = l->agent;
    for (int k = 0; k < a->n_incident; k++) {
        weft_incident *i = &a->incident[k];
        if (!decided && went_back(a, i)) reject_replace(i);
        bool stops         = i->rank >= 0 && i->choice.level == WEFT_LEVEL_STOP;
        bool all           = decided && *decided && !stops; /* the same for all */
        a->outcome.decided = all ? decided : name_decision(i);
        a->outcome.why     = stops ? a->stop_why : why;
        weft_launch__publish(l, i, &a->outcome);
    }
    a->n_incident = 0;
}

void weft_launch__note_pauses(weft_launch__agent *a)
{
    for (int k = 0; k < a->n_incident; k++) {
        const weft_incident *i = &a->incident[k];
        bool back = i->rank >= 0 && (a->outcome.move.back || a->outcome.step <= i->step);
        weft_level level = i->rank < 0 && i->choice.n_rejected ? i->choice.level
                           : i->rank < 0                       ? WEFT_LEVEL_SHRINK
                           : back                              ? WEFT_LEVEL_CHECKPOINT
                                                               : WEFT_LEVEL_REPLACE;
        weft_level_note_pause(&a->levels.history, level,
                              a->outcome.committed_s - i->noticed_s);
    }
}

/* ---- what is known of one ---- */

weft_incident weft_launch__make_incident(const weft_launch__agent *a, int r,
                                         const char *cause, const char *what,
                                         const char *noticed)
{
    weft_incident i = {.rank  = r < 0 ? r : a->first + weft_member_position(a->member, r),
                       .epoch = weft_member_epoch(a->member)};
    weft_incident_begin(&i, cause, what, noticed);
    return i;
}

void weft_launch__add_incident(weft_launch__agent *a, const weft_incident *i)
{
    if (a->n_incident < WEFT_AGENT_MAX_INCIDENT) a->incident[a->n_incident++] = *i;
}

const char *weft_launch__find_exit_cause(weft_launch__agent       *a,
                                         const weft_launch__child *c, int how)
{
    int64_t n_oom = weft_oom_count("");
    bool    oom   = n_oom > a->n_oom || weft_failpoint_flips("agent.oom");
    a->n_oom      = n_oom;
    if (c->noticed) return c->noticed;
    if (c->killed_s > 0) return "late";
    return weft_incident_find_cause(WIFSIGNALED(how) ? WTERMSIG(how) : 0, oom);
}

/* ---- hosts ---- */

/* What is waited for is seen while it lasts: a line now, and the incident's own once it is over. */
static void publish_wait(weft_launch__run *l, weft_incident *i,
                         const weft_launch_host_loss *loss)
{
    char why[80];
    int  here  = loss->n_host - loss->n_lost + loss->n_joined;
    int  least = loss->least > loss->min_host ? loss->least : loss->min_host;
    weft_launch__describe_wait(here, least, why, sizeof why);
    weft_launch__say(l, -1, "warn", "%s: %s", i->what, why);
    weft_launch__publish(l, i,
                         &(weft_incident_outcome){
                             .decided = weft_level_name(WEFT_LEVEL_WAIT), .why = why});
    i->counted = true;
}

void weft_launch__agent_note(weft_launch__run *l, const char *host, const char *cause,
                             const char *what, const weft_launch_host_loss *loss,
                             const weft_launch__noticed *when)
{
    if (l->restart) {
        weft_launch__restart_note(l, host, cause, what, when);
        return;
    }
    weft_launch__agent *a = l->agent;
    weft_incident       i = weft_launch__make_incident(a, -1, cause, what, "agents");
    i.step                = weft_launch__find_step(l);
    if (when) {
        i.wall_s    = when->wall_s;
        i.noticed_s = when->at_s;
        i.seen_s    = when->seen_s;
    }
    snprintf(i.host, sizeof i.host, "%s", host);
    if (loss) weft_launch_levels_choose_host(&a->levels, loss, i.noticed_s, &i.choice);
    if (loss && i.choice.level == WEFT_LEVEL_WAIT) publish_wait(l, &i, loss);
    if (loss && i.choice.level == WEFT_LEVEL_STOP) /* no view follows */
        weft_launch__publish(
            l, &i,
            &(weft_incident_outcome){.decided = weft_level_name(WEFT_LEVEL_STOP),
                                     .why     = "recover allows nothing else"});
    else
        weft_launch__add_incident(a, &i);
}
