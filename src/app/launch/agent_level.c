/* The agent: what is done about a rank that was lost, or that computes other bits than before.
 *
 * A slot that was lost too often is left out where the job may have fewer ranks.  Its rank is
 * replaced once more first, so that its state is whole and there to be moved.  Of several hosts
 * the rank leaves alone where its host has others (hosts_scale.c), else its host leaves.  Where the
 * new process is lost as well before that, the view that follows is without it. */
#include <stdio.h>

#include "base/clock.h"
#include "launch/agent_priv.h"
#include "launch/hosts_priv.h"

int weft_launch__min_rank(const weft_launch__run *l, bool alone)
{
    if (!l->hosts) return l->o->min_rank;
    if (alone) return l->o->min_node < l->o->n_node ? 1 : 0; /* no host less */
    return weft_launch__hosts_may_leave(l) ? 1 : weft_launch__hosts_world(l);
}

/* ---- a slot that is left out ---- */

/* It is to be, and no view was asked for. */
static bool is_leaving(const weft_launch__agent *a, int slot)
{
    return a->cordon && a->scale_to && !a->scale_from && a->cordoned == slot;
}

/* Of several hosts.  lost: it has no process now. */
static void leave_slot_of_hosts(weft_launch__run *l, bool lost)
{
    weft_launch__agent *a    = l->agent;
    int                 slot = a->cordoned, rank = weft_launch__rank(l, slot);
    bool                alone = weft_launch__agent_count(l) > 1;
    int                 least = weft_launch__min_rank(l, alone);
    char                why[160];
    if (!weft_member_is_in_view(a->member, slot) || !least ||
        weft_launch__hosts_world(l) <= least) {
        weft_launch__forget_scale(
            l); /* it is out already, or hosts were lost meanwhile */
    } else if (alone) {
        weft_launch__say(l, rank, "warn", "it was %s; it is left out", a->cordon);
        weft_launch__leave_rank_out(l, rank, a->cordon, lost);
    } else {
        snprintf(why, sizeof why, "rank %d was %s within few steps", rank, a->cordon);
        weft_launch__say(l, rank, "warn", "it was %s; its host is cordoned", a->cordon);
        weft_launch__forget_scale(l);
        weft_launch__hosts_cordon(l, why);
    }
}

void weft_launch__leave_slot_out(weft_launch__run *l)
{
    if (l->agent->outcome.committed_s > 0) leave_slot_of_hosts(l, false);
}

/* ---- a rank that was lost ---- */

bool weft_launch__choose_level(weft_launch__run *l, int r, int64_t step,
                               weft_level_choice *out)
{
    weft_launch__agent *a       = l->agent;
    bool                leaving = is_leaving(a, r), again = *a->stop_why;
    weft_launch_loss    loss = {.n_rank      = weft_launch__agent_count(l),
                                .min_rank    = l->o->min_rank,
                                .is_stopping = *a->stop_why,
                                .is_resizing = a->scale_to,
                                .now_s       = weft_clock_s()};
    loss.too_often           = leaving || weft_member_is_too_often(a->member, r, step);
    if (l->hosts && loss.too_often) {
        loss.of_host  = true;
        loss.min_rank = weft_launch__min_rank(l, loss.n_rank > 1);
        loss.n_rank   = weft_launch__hosts_world(l);
    }
    weft_launch_levels_choose(&a->levels, &loss, out);
    if (out->level == WEFT_LEVEL_SHRINK && !a->scale_to)
        weft_launch__leave_out(l, r, loss.too_often ? "lost too often" : "lost");
    else if (out->level == WEFT_LEVEL_SHRINK && leaving)
        l->hosts ? leave_slot_of_hosts(l, true) : weft_launch__drop_slot(l);
    if (out->level == WEFT_LEVEL_STOP && !again)
        snprintf(a->stop_why, sizeof a->stop_why,
                 loss.too_often
                     ? "rank %d was lost too often within few steps: the state "
                       "after step %lld is saved"
                     : "rank %d was lost, and recover allows no more than to "
                       "stop: the state after step %lld is saved",
                 weft_launch__rank(l, r), (long long)step);
    return out->level == WEFT_LEVEL_SHRINK || (out->level == WEFT_LEVEL_STOP && !again);
}

const char *weft_launch__name_answer(const weft_launch__run *l, int rank)
{
    const weft_launch__agent *a = l->agent;
    if (weft_launch__hosts_is_cordoned(l)) return "its host leaves";
    return l->hosts && a->cordon && a->scale_from && a->cordoned == rank
               ? "it is left out"
               : "it is replaced";
}

/* ---- a rank with other bits ---- */

void weft_launch__cordon_slot(weft_launch__run *l, int r, const weft_line_message *m)
{
    weft_launch__agent   *a    = l->agent;
    weft_launch_loss      loss = {.n_rank      = weft_launch__agent_count(l),
                                  .min_rank    = weft_launch__min_rank(l, false),
                                  .other_bits  = true,
                                  .is_stopping = *a->stop_why || a->scale_to,
                                  .now_s       = weft_clock_s()};
    weft_incident_outcome o    = {.why = ""};
    weft_incident i = weft_launch__make_incident(a, r, "cordon", m->text, "other bits");
    i.pid           = (int)l->c[r].pid;
    i.step          = m->step;
    if (l->hosts) loss.n_rank = weft_launch__hosts_world(l);
    weft_launch_levels_choose(&a->levels, &loss, &i.choice);
    bool shrinks = i.choice.level == WEFT_LEVEL_SHRINK && !weft_launch__agent_is_over(l);
    o.decided    = shrinks ? "cordon" : weft_level_name(WEFT_LEVEL_RETRY);
    weft_launch__publish(l, &i, &o);
    weft_launch__say(l, weft_launch__rank(l, r), "warn", "%s; %s", m->text,
                     !shrinks   ? "the job cannot go on without it and keeps it"
                     : l->hosts ? "its host is cordoned"
                                : "its slot is cordoned");
    if (!shrinks) return;
    if (l->hosts) {
        weft_launch__hosts_cordon(l, m->text);
        return;
    }
    weft_launch__leave_out(l, r, "other bits");
}
