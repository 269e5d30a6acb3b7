/* An agent of several hosts that gets a signal: its host leaves, or all save and end. */
#include <signal.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "launch/hosts_priv.h"

#define ONE_SIGNAL_S 2 /* SIGTERMs within it are one */

static bool may_change(const weft_launch__run *l)
{
    const weft_launch__hosts *h = l->hosts;
    return h && !h->over && h->entered && !weft_launch__agent_is_over(l);
}

static void save_hosts(weft_launch__run *l, bool interrupts, const char *why)
{
    l->hosts->drain_s = weft_clock_s();
    weft_launch__tell_hosts(l->hosts, (weft_hosts_event){.kind = WEFT_HOSTS_SAVE_ALL,
                                                         .interrupts = interrupts,
                                                         .text       = why});
    weft_launch__hosts_act(l);
}

bool weft_launch__hosts_save(weft_launch__run *l, const char *why)
{
    if (!may_change(l)) return false;
    save_hosts(l, false, why);
    return true;
}

/* SIGTERM and SIGUSR1: this host leaves.  SIGINT and SIGHUP, and a signal to a host that is to
 * leave and does not: the job ends. */
bool weft_launch__hosts_take_signal(weft_launch__run *l, int sig)
{
    weft_launch__hosts *h      = l->hosts;
    bool                leaves = sig == SIGTERM || sig == SIGUSR1;
    double              now_s  = weft_clock_s();
    if (!may_change(l)) return false;
    if (leaves && h->drain_s > 0 && now_s - h->drain_s < ONE_SIGNAL_S) return true;
    weft_failpoint("hosts.drain");
    if (!leaves || h->drain_s > 0) {
        save_hosts(l, sig == SIGINT, "a host received a signal to stop the job");
        return true;
    }
    h->drain_s = now_s;
    weft_launch__tell_hosts(h, (weft_hosts_event){.kind = WEFT_HOSTS_TERM});
    weft_launch__hosts_act(l);
    return true;
}

void weft_launch__check_grace(weft_launch__run *l, double now_s)
{
    const weft_launch__hosts *h = l->hosts;
    if (h->over || h->drain_s <= 0 || l->stopped_by || l->o->stop_s <= 0) return;
    if (now_s - h->drain_s > l->o->stop_s)
        weft_launch__end_here(l, false, "this host did not leave within --grace");
}
