/* `weft scale` and `weft drain` over several hosts: ranks are assigned to hosts in the order of the
 * view, and a host that is left without one is drained.
 *
 *     the agent that is asked    has all hosts that stay prepare (hosts_ahead.c), also their new
 *                                ranks; then FRAME_SCALE to all: the job is to have so many ranks
 *     one with other ranks       asks for the view
 *     one whose rank stays slow  FRAME_LEAVE_OUT: the same, without that rank (agent_scale.c)
 *
 * (1) In a view that is decided meanwhile for another reason hosts begin to prepare again, as the
 *     numbers of their ranks may be others.
 * (2) Ranks that are not prepared in time are in the view as they are; a new one that fails or is
 *     lost while it prepares means that all stays as it is (FRAME_STAYS), and the job does not
 *     notice. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "launch/hosts_priv.h"

/* ---- one rank less ---- */

/* The next view of this host; false: it has no such rank, or no other. */
static bool leave_out(weft_launch__run *l, const host_use *use)
{
    weft_launch__hosts *h = l->hosts;
    int n = weft_launch__agent_count(l), position = use->n_rank - l->first;
    if (use->epoch != weft_hosts_view(h->agreement)->epoch || !l->agent || n < 2 ||
        position < 0 || position >= n || weft_failpoint_flips("hosts.leave_out"))
        return false;
    weft_launch__agent_leave_out(l, position);
    h->n_scaled = n - 1;
    return true;
}

void weft_launch__take_leave_out(weft_launch__run *l, const host_use *use)
{
    if (leave_out(l, use)) weft_launch__hosts_want(l, "a rank leaves");
}

void weft_launch__hosts_leave_out(weft_launch__run *l, int rank, bool lost)
{
    weft_launch__hosts *h   = l->hosts;
    host_use            use = {weft_hosts_view(h->agreement)->epoch, rank};
    if (lost) { /* its end asks for the view */
        (void)leave_out(l, &use);
        return;
    }
    weft_launch__send_all(h, FRAME_LEAVE_OUT, &use, sizeof use);
    weft_launch__take_leave_out(l, &use);
    weft_launch__hosts_act(l);
}

/* ---- ranks that a plan has no use for ---- */

/* Ranks beyond those of use are left out; a host that has no other leaves, and waits. */
void weft_launch__take_use(weft_launch__run *l, const host_use *use)
{
    weft_launch__hosts *h     = l->hosts;
    int                 n_own = weft_launch__agent_count(l), n = use->n_rank - l->first;
    if (use->epoch != weft_hosts_view(h->agreement)->epoch || h->use_epoch == use->epoch)
        return;
    if (use->n_rank < 1 || use->n_rank > weft_launch__hosts_world(l)) return;
    weft_failpoint("hosts.take_use");
    h->use_epoch = use->epoch;
    h->n_use     = n > 0 && n < n_own ? n : n_own;
    h->idles     = n <= 0;
    if (h->idles)
        weft_launch__tell_hosts(h, (weft_hosts_event){.kind = WEFT_HOSTS_IDLE});
    else
        weft_launch__hosts_want(l, n < n_own ? "a rank that is of no use leaves"
                                             : "a host that is of no use leaves");
}

/* ---- requests ---- */

void weft_launch__take_scale(weft_launch__run *l, const host_use *want)
{
    weft_launch__hosts     *h  = l->hosts;
    const weft_member_view *v  = weft_hosts_view(h->agreement);
    int                     me = weft_member_view_find(v, h->self.id);
    if (want->epoch != v->epoch || me < 0) return;
    h->scaled_out = want->n_rank <= me * l->n;
    if (h->scaled_out) return;
    int n = want->n_rank - me * l->n, was = weft_launch__agent_count(l);
    if (n > l->n) n = l->n;
    h->n_scaled = n;
    h->ahead = (host_ahead){0}; /* its ranks are in the view, whatever becomes of them */
    if (n == was) return;
    if (n > was)
        weft_failpoint("hosts.grown");
    else
        weft_failpoint("hosts.shrink");
    weft_launch__hosts_want(l, n > was ? "a rank joins" : "a rank leaves");
}

static int count_hosts(const weft_launch__run *l, int n)
{
    return (n + l->n - 1) / l->n;
}

void weft_launch__scale_ahead(weft_launch__run *l, int n)
{
    int               keep = count_hosts(l, n);
    weft_member_view *v    = weft_launch__ahead_ask(l, n);
    if (!v || keep > v->n_host) { /* hosts have left meanwhile */
        l->hosts->asking.on = false;
        return;
    }
    v->n_host = keep;
    for (int k = 0; k < keep; k++)
        v->host[k].n_rank = n - k * l->n < l->n ? n - k * l->n : l->n;
}

void weft_launch__scale_now(weft_launch__run *l, int n)
{
    weft_launch__hosts     *h    = l->hosts;
    const weft_member_view *v    = weft_hosts_view(h->agreement);
    host_use                want = {v->epoch, n};
    weft_failpoint("hosts.scale");
    /* before the messages that stop ranks */
    weft_launch__send_all(h, FRAME_SCALE, &want, sizeof want);
    for (int k = v->n_host - 1; k >= count_hosts(l, n); k--)
        weft_launch__tell_hosts(h, (weft_hosts_event){.kind    = WEFT_HOSTS_DRAIN,
                                                      .id      = v->host[k].id,
                                                      .at_once = true});
    weft_launch__take_scale(l, &want);
    weft_launch__hosts_act(l);
}

void weft_launch__hosts_scale(weft_launch__run *l, int n, char *why, size_t size)
{
    weft_launch__hosts     *h    = l->hosts;
    const weft_member_view *v    = weft_hosts_view(h->agreement);
    int                     keep = count_hosts(l, n);
    if (n > l->n * l->o->n_node)
        snprintf(why, size, "%d ranks: the job may have up to %d on %d hosts", n,
                 l->n * l->o->n_node, l->o->n_node);
    else if (n < 1 || keep < l->o->min_node)
        snprintf(why, size, "%d rank%s would be on %d host%s: the job needs at least %d",
                 n, n == 1 ? "" : "s", keep, keep == 1 ? "" : "s", l->o->min_node);
    else if (keep > v->n_host)
        snprintf(
            why, size,
            "%d ranks: the job has %d host%s with up to %d; start weft run on another "
            "one, which joins",
            n, v->n_host, v->n_host == 1 ? "" : "s", l->n * v->n_host);
    else if (h->drained)
        snprintf(why, size, "a host is about to leave");
    if (*why) return;
    weft_launch__scale_ahead(l, n);
}

/* ---- weft drain ---- */

static uint64_t find_host(const weft_member_view *v, const char *name, int *n_found)
{
    uint64_t id = 0;
    *n_found    = 0;
    for (int i = 0; i < v->n_host; i++) {
        const weft_member_host *h = &v->host[i];
        if (strcmp(h->name, name) != 0 && strcmp(h->control, name) != 0) continue;
        id = h->id;
        ++*n_found;
    }
    return id;
}

bool weft_launch__hosts_drain(weft_launch__run *l, const char *host, char *why,
                              size_t size)
{
    weft_launch__hosts *h = l->hosts;
    int                 n = 0;
    *why                  = 0;
    if (!h) {
        snprintf(why, size, "the job has one host: there is nothing to drain");
        return false;
    }
    const weft_member_view *v  = weft_hosts_view(h->agreement);
    uint64_t                id = find_host(v, host, &n);
    if (!n)
        snprintf(why, size, "the job has no host %s; weft status names its hosts", host);
    else if (n > 1)
        snprintf(why, size, "%d hosts are called %s: give the address of one", n, host);
    else if (v->n_host <= 1 || v->n_host - 1 < l->o->min_node)
        snprintf(why, size, "the job has %d host%s and needs at least %d", v->n_host,
                 v->n_host == 1 ? "" : "s", l->o->min_node);
    else if (weft_launch__agent_is_over(l) || h->over || h->drained)
        snprintf(why, size, "the job is about to end, or another host leaves");
    if (*why) return false;
    h->drained = id;
    weft_launch__tell_hosts(h, (weft_hosts_event){.kind = WEFT_HOSTS_DRAIN, .id = id});
    weft_launch__hosts_act(l);
    return true;
}

void weft_launch__answer_drain(weft_launch__run *l)
{
    weft_launch__hosts     *h = l->hosts;
    const weft_member_view *v = weft_hosts_view(h->agreement);
    char                    text[160];
    if (!h->drained || weft_member_view_find(v, h->drained) >= 0) return;
    h->drained = 0;
    snprintf(text, sizeof text, "it has left: %d host%s in view %u", v->n_host,
             v->n_host == 1 ? "" : "s", v->epoch);
    weft_launch__control_answer(l, WEFT_LAUNCH__DONE, text);
}
