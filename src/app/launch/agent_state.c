/* What an agent sees of its job, for weft status: with status.json alone, which rank 0 writes, a
 * job whose rank 0 is lost cannot be told from one that was killed.
 *
 *     starting                no view has run here yet
 *     running                 the ranks of this host run in the newest view
 *     recovering, changing    the next view is being decided, or its ranks are not ready: after a
 *                             loss, or as hosts or ranks come and go
 *     waiting                 it has fewer hosts than the job needs
 *     saving                  hosts that are no majority save, and end
 *     ending, left            the job is about to end; this host alone is */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "launch/agent_priv.h"
#include "launch/hosts_priv.h"

#define SILENT_S 1.0 /* agents are heard several times a second */

/* ---- a change of the view, while it lasts ---- */

void weft_launch__change_begin(weft_launch__hosts *h, const char *why)
{
    host_change *c = &h->change;
    if (c->since_s <= 0) c->since_s = weft_clock_wall_s();
    if (weft_launch__reason_is_loss(why) || !*c->why)
        snprintf(c->why, sizeof c->why, "%s", why);
}

/* Hosts that the new view lacks. */
void weft_launch__change_enter(weft_launch__hosts *h, const weft_member_view *v)
{
    host_change *c = &h->change;
    if (!h->was->epoch) return;
    if (*v->reason) weft_launch__change_begin(h, v->reason);
    for (int i = 0; i < h->was->n_host && weft_launch__reason_is_loss(v->reason); i++) {
        const weft_member_host *x    = &h->was->host[i];
        size_t                  used = strlen(c->lost);
        if (weft_member_view_find(v, x->id) < 0)
            snprintf(c->lost + used, sizeof c->lost - used, "%s%s (%s)", used ? ", " : "",
                     x->name, x->control);
    }
}

void weft_launch__describe_wait(int here, int least, char *why, size_t size)
{
    snprintf(why, size, "waiting for hosts: %d of at least %d %s there", here, least,
             here == 1 ? "is" : "are");
}

/* ---- several hosts ---- */

/* That decides, or has decided, on the newest view. */
static const weft_member_host *find_leader(weft_launch__hosts *h)
{
    const weft_member_view *v = weft_hosts_view(h->agreement);
    if (weft_hosts_is_leader(h->agreement)) return &h->self;
    for (int i = 0; i < v->n_host; i++)
        if (v->host[i].id == h->self.id || weft_launch__find_link(h, v->host[i].id, true))
            return &v->host[i];
    return &h->self;
}

/* Not heard of for a while, and not given up yet. */
static void print_silent(const weft_launch__hosts *h, weft_text *t)
{
    const weft_member_view *v = weft_hosts_view(h->agreement);
    char                    text[200];
    int                     n = 0;
    weft_text_add(t, ", \"silent\": [");
    for (int i = 0; i < v->n_host; i++) {
        double s = weft_hosts_silence(h->agreement, i);
        if (v->host[i].id == h->self.id || s < SILENT_S) continue;
        snprintf(text, sizeof text, "%s (%s) for %.1f s", v->host[i].name,
                 v->host[i].control, s);
        weft_text_add(t, n++ ? ", " : "");
        weft_text_put_quoted(t, text);
    }
    weft_text_add(t, "]");
}

/* Hosts that are to join, with what their ranks have of the state. */
static void print_joining(const weft_launch__hosts *h, weft_text *t)
{
    char text[400] = "";
    int  percent   = 0;
    for (int k = 0; k < WEFT_MEMBER_MAX_HOST; k++) {
        const weft_member_host *x    = weft_hosts_learner(h->agreement, k, &percent);
        size_t                  used = strlen(text);
        if (!x) break;
        snprintf(text + used, sizeof text - used, "%s%s (%s), learning %d %%",
                 used ? "; " : "", x->name, x->control, percent);
    }
    weft_text_put_string_member(t, "joining", text);
}

static const char *name_state(const weft_launch__run *l)
{
    weft_launch__hosts     *h = l->hosts;
    const weft_member_view *v = weft_hosts_view(h->agreement);
    if (h->over && h->saves) return "saving";
    if (h->over || (v->epoch && !weft_hosts_is_member(h->agreement))) return "left";
    if (weft_launch__agent_is_over(l)) return "ending";
    if (!h->was->epoch && h->change.since_s <= 0) return "starting";
    bool changes = h->stop.at_s > 0;
    if (!changes && !weft_hosts_is_enough(h->agreement)) return "waiting";
    if (!changes && weft_launch__agent_is_ready(l, v->epoch)) return "running";
    if (h->change.since_s <= 0) return "starting";
    return weft_launch__reason_is_loss(h->change.why) ? "recovering" : "changing";
}

static void print_hosts(const weft_launch__run *l, weft_text *t)
{
    weft_launch__hosts     *h      = l->hosts;
    const weft_member_view *v      = weft_hosts_view(h->agreement);
    const weft_member_host *leader = find_leader(h);
    const char             *state = name_state(l), *why = h->change.why;
    int                     least = v->least > l->o->min_node ? v->least : l->o->min_node;
    char                    waits[80];
    weft_launch__describe_wait(v->n_host, least, waits, sizeof waits);
    if (!strcmp(state, "waiting")) why = waits;
    if (!strcmp(state, "saving")) why = h->why;
    weft_text_add(t, "\"state\": \"%s\"", state);
    weft_text_put_string_member(t, "why", why);
    if (h->change.since_s > 0) weft_text_put_member(t, "since", h->change.since_s);
    weft_text_add(t, ", \"view\": %u, \"hosts\": %d, \"id\": \"%016" PRIx64 "\"",
                  v->epoch, v->n_host, h->self.id);
    if (h->step >= 0 && !l->restart) weft_text_add(t, ", \"step\": %" PRId64, h->step);
    weft_text_put_string_member(t, "lost", h->change.lost);
    weft_text_put_string_member(t, "leader", leader->name);
    weft_text_put_string_member(t, "leader_at", leader->control);
    print_joining(h, t);
    print_silent(h, t);
}

/* ---- one host ---- */

static void print_agent(const weft_launch__run *l, weft_text *t)
{
    const weft_launch__agent *a       = l->agent;
    const weft_incident      *i       = a->n_incident ? &a->incident[0] : NULL;
    bool                      trained = a->outcome.committed_s > 0;
    const char               *state   = weft_launch__agent_is_over(l) ? "ending"
                                        : trained && !i               ? "running"
                                        : i || a->trained.epoch       ? "recovering"
                                                                      : "starting";
    weft_text_add(t, "\"state\": \"%s\"", state);
    weft_text_put_string_member(t, "why", i ? i->what : "");
    if (i) weft_text_put_member(t, "since", i->wall_s);
    weft_text_add(t, ", \"view\": %u", weft_member_epoch(a->member));
}

void weft_launch__print_state(const weft_launch__run *l, weft_text *t)
{
    weft_text_add(t, "{");
    if (l->hosts)
        print_hosts(l, t);
    else
        print_agent(l, t);
    weft_text_put_string_member(t, "output", l->o->output ? l->o->output : "");
    weft_text_add(t, "}");
}
