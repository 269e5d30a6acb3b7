/* Agents of several hosts: what views mean to who reads the log, incidents and views.jsonl. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "launch/hosts_priv.h"
#include "launch/level.h"

enum {
    MAX_NAMED = 8 /* hosts of a view, in its log line */
};

/* ---- reasons of views ---- */

bool weft_launch__reason_leaves(const char *why)
{
    size_t n = strlen(why);
    return n > 7 && !strcmp(why + n - 7, " leaves");
}

/* Of a host. */
static const char *find_cause(const char *why)
{
    return strstr(why, "that is of no use") ? "idle" : "drain";
}

const char *weft_launch__name_leaving(const weft_launch__hosts *h)
{
    if (h->idles && h->n_scaled) return "this host leaves: the plan has no rank for it";
    if (h->idles)
        return "this host leaves: the plan has no rank for it; it waits for another view";
    if (h->drain_s > 0) return "this host leaves: it received a signal";
    if (h->scaled_out) return "this host leaves: weft scale has left it no rank";
    return h->entered ? "this host leaves: weft drain" : "";
}

bool weft_launch__reason_is_loss(const char *why)
{
    size_t n     = strlen(why);
    bool   joins = n > 6 && !strcmp(why + n - 6, " joins");
    return n && !joins && !weft_launch__reason_leaves(why) &&
           strcmp(why, WEFT_HOSTS_ASKED) != 0;
}

/* ---- views ---- */

void weft_launch__hosts_print(const weft_launch__run *l, weft_text *t)
{
    if (!l->hosts) return;
    const weft_member_view *v = weft_launch__hosts_view(l);
    weft_text_add(t, ", \"min_hosts\": %d, \"max_hosts\": %d, \"agents\": [",
                  l->o->min_node, l->o->n_node);
    for (int i = 0; i < v->n_host; i++) {
        weft_text_add(t, "%s{\"host\": ", i ? ", " : "");
        weft_text_put_quoted(t, v->host[i].name);
        weft_text_put_string_member(t, "address", v->host[i].control);
        weft_text_add(t, ", \"ranks\": %d, \"id\": \"%016" PRIx64 "\"}",
                      v->host[i].n_rank, v->host[i].id);
    }
    weft_text_add(t, "]");
}

void weft_launch__log_view(const weft_launch__run *l, const weft_member_view *v)
{
    weft_text t = {0};
    for (int i = 0; i < v->n_host && i < MAX_NAMED; i++)
        weft_text_add(&t, "%s%s %s", i ? ", " : "", v->host[i].name, v->host[i].control);
    weft_launch__say(l, -1, "info", "view %u: %d host%s (%s%s), %d rank%s%s%s", v->epoch,
                     v->n_host, v->n_host == 1 ? "" : "s", t.s ? t.s : "",
                     v->n_host > MAX_NAMED ? ", .." : "", weft_member_view_ranks(v),
                     weft_member_view_ranks(v) == 1 ? "" : "s", *v->reason ? ": " : "",
                     v->reason);
    weft_text_fini(&t);
}

void weft_launch__note_stopping(weft_launch__hosts *h)
{
    h->stop.wall_s = weft_clock_wall_s();
    h->stop.at_s   = weft_clock_s();
    for (int i = 0; i < weft_hosts_view(h->agreement)->n_host; i++)
        h->stop.seen_s[i] = h->stop.at_s - weft_hosts_silence(h->agreement, i);
}

/* Hosts of a that are not in b. */
static int count_missing(const weft_member_view *a, const weft_member_view *b)
{
    int n = 0;
    for (int i = 0; i < a->n_host; i++) n += weft_member_view_find(b, a->host[i].id) < 0;
    return n;
}

void weft_launch__note_hosts(weft_launch__run *l, const weft_member_view *was,
                             const weft_member_view *v)
{
    weft_launch_host_loss loss = {.n_host   = was->n_host,
                                  .n_lost   = count_missing(was, v),
                                  .n_joined = count_missing(v, was),
                                  .min_host = l->o->min_node,
                                  .least    = v->least};
    const host_stop      *stop = &l->hosts->stop;
    char                  what[160];
    for (int i = 0; i < was->n_host; i++) {
        const weft_member_host *x      = &was->host[i];
        weft_launch__noticed    when   = {stop->wall_s, stop->at_s, stop->seen_s[i]};
        bool                    leaves = !weft_launch__reason_is_loss(v->reason);
        if (weft_member_view_find(v, x->id) >= 0) continue;
        snprintf(what, sizeof what, "host %s (%s) %s", x->name, x->control,
                 leaves ? "left" : "was lost");
        weft_launch__agent_note(l, x->name, leaves ? find_cause(v->reason) : "host", what,
                                leaves ? NULL : &loss,
                                leaves || when.at_s <= 0 ? NULL : &when);
    }
    for (int i = 0; was->epoch && i < v->n_host; i++) {
        const weft_member_host *x = &v->host[i];
        if (weft_member_view_find(was, x->id) >= 0) continue;
        snprintf(what, sizeof what, "host %s (%s) joined", x->name, x->control);
        weft_launch__agent_note(l, x->name, "join", what, NULL, NULL);
    }
}
