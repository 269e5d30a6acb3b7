/* `weft scale` and `weft drain` over several hosts: ranks are assigned to hosts in the order of the
 * view, and a host that is left without one is drained.
 *
 *     the agent that is asked    FRAME_SCALE to all: the job is to have so many ranks
 *     one with fewer ranks       asks for the view at once
 *     one whose rank stays slow  FRAME_LEAVE_OUT: the same, without that rank (agent_scale.c)
 *     one with more ranks        its new ranks prepare while the others train (session/prepare.c),
 *                                then it asks for the view
 *
 * (1) A view that is decided meanwhile for another reason has the ranks of before; new ones begin
 *     to prepare again in it, as their numbers may be others.
 * (2) New ranks that are not prepared in time are in the view as they are; one that fails or is
 *     lost while it prepares means that all stays as it is (FRAME_STAYS), and the job does not
 *     notice. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "launch/hosts_priv.h"

/* ---- new ranks of this host ---- */

/* The view as it will be: this host has more ranks, the others those that they have. */
static void fill_expected(weft_launch__run *l)
{
    weft_launch__hosts     *h  = l->hosts;
    host_prepare           *p  = &h->prepare;
    const weft_member_view *v  = weft_hosts_view(h->agreement);
    int                     me = weft_member_view_find(v, h->self.id), n = 0;
    p->hosts[0] = 0;
    for (int i = 0; i < v->n_host && n < (int)sizeof p->hosts - 16; i++)
        n += snprintf(p->hosts + n, sizeof p->hosts - (size_t)n, "%d ",
                      i == me ? h->grow.n_rank : v->host[i].n_rank);
    p->world = weft_member_view_ranks(v) - v->host[me].n_rank + h->grow.n_rank;
    p->first = l->first;
    p->local = h->grow.n_rank;
}

static void end_grow(weft_launch__run *l)
{
    l->hosts->grow = (host_grow){0};
    weft_launch__drop_preparing(l);
}

static void ask_for_more(weft_launch__run *l)
{
    weft_launch__hosts *h = l->hosts;
    weft_failpoint("hosts.grown");
    h->n_scaled = h->grow.n_rank;
    h->grow     = (host_grow){0};
    weft_launch__hosts_want(l, "a rank joins");
}

static void begin_grow(weft_launch__run *l, int n)
{
    weft_launch__hosts *h = l->hosts;
    if (!l->agent) { /* ranks of a program: there is nothing to prepare */
        h->grow.n_rank = n;
        ask_for_more(l);
        return;
    }
    h->grow = (host_grow){.n_rank  = n,
                          .limit_s = weft_clock_s() + weft_launch__prepare_limit_s(l)};
}

void weft_launch__grow_tick(weft_launch__run *l, double now_s)
{
    weft_launch__hosts     *h = l->hosts;
    host_grow              *g = &h->grow;
    const weft_member_view *v = weft_hosts_view(h->agreement);
    if (!g->n_rank) return;
    if (h->over || h->drain_s > 0 || weft_launch__agent_is_over(l)) {
        end_grow(l);
        return;
    }
    if (g->epoch != v->epoch) g->begun = false; /* it has ended them */
    bool prepared = g->begun && weft_launch__agent_is_prepared(l, g->n_rank);
    if (prepared || now_s >= g->limit_s) {
        ask_for_more(l);
        return;
    }
    if (g->begun || !weft_launch__agent_may_grow(l)) return;
    g->begun = true;
    g->epoch = v->epoch;
    fill_expected(l);
    weft_launch__say(l, -1, "info", "ranks up to %d of this host: new ones prepare",
                     l->first + g->n_rank - 1);
    weft_launch__agent_grow(l, g->n_rank);
}

bool weft_launch__hosts_end_grow(weft_launch__run *l, int r, const char *what)
{
    weft_launch__hosts *h    = l->hosts;
    host_use            stay = {.n_rank = weft_launch__hosts_world(l)};
    if (!h->grow.begun) return false;
    weft_launch__say(l, -1, "warn", "rank %d: %s before it has started; %d ranks go on",
                     weft_launch__rank(l, r), what, stay.n_rank);
    end_grow(l);
    weft_launch__send_all(h, FRAME_STAYS, &stay, sizeof stay);
    weft_launch__agent_stay(l, stay.n_rank);
    return true;
}

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

/* ---- requests ---- */

void weft_launch__take_scale(weft_launch__run *l, const host_use *want)
{
    weft_launch__hosts     *h  = l->hosts;
    const weft_member_view *v  = weft_hosts_view(h->agreement);
    int                     me = weft_member_view_find(v, h->self.id);
    if (want->epoch != v->epoch || me < 0 || want->n_rank <= me * l->n) return;
    int n = want->n_rank - me * l->n, was = weft_launch__agent_count(l);
    if (n > l->n) n = l->n;
    if (n > was) {
        begin_grow(l, n);
        return;
    }
    h->n_scaled = n;
    if (n == was) return;
    weft_failpoint("hosts.shrink");
    weft_launch__hosts_want(l, "a rank leaves");
}

void weft_launch__hosts_scale(weft_launch__run *l, int n, char *why, size_t size)
{
    weft_launch__hosts     *h    = l->hosts;
    const weft_member_view *v    = weft_hosts_view(h->agreement);
    int                     keep = (n + l->n - 1) / l->n; /* hosts */
    host_use                want = {v->epoch, n};
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
    weft_failpoint("hosts.scale");
    /* before the messages that stop ranks */
    weft_launch__send_all(h, FRAME_SCALE, &want, sizeof want);
    for (int k = v->n_host - 1; k >= keep; k--)
        weft_launch__tell_hosts(
            h, (weft_hosts_event){.kind = WEFT_HOSTS_DRAIN, .id = v->host[k].id});
    weft_launch__take_scale(l, &want);
    weft_launch__hosts_act(l);
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
