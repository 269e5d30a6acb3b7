/* An agent that begins or joins a job: whom it asks, and when it begins itself.
 *
 *     addresses   those of --rdzv but its own, and agents of the run that has last written the
 *                 output
 *     joins       it asks all of them for a place, until one that is in the job answers
 *     begins      where it listens at the first address of --rdzv, and no agent of a run answers
 *
 * (1) A run that lives is joined also by its own first host, started again: the others have gone
 *     on.  One that ends meanwhile (its hosts were too few) is waited for, then this host begins.
 * (2) The first epoch is above that of all runs that have written the output (session/fence.c). */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "launch/hosts_priv.h"

#define RETRY_S 0.3 /* before a host that could not be reached is tried again */
#define AGAIN_S 1.0 /* after the last one of a run has gone: are there others of it? */

int weft_launch_split_rdzv(const char *rdzv, char at[WEFT_LAUNCH_MAX_RDZV][64])
{
    int n = 0;
    for (const char *from = rdzv; from; n++) {
        size_t length = strcspn(from, ",");
        if (!length || length >= sizeof at[0] || n == WEFT_LAUNCH_MAX_RDZV) return 0;
        memcpy(at[n], from, length);
        at[n][length] = 0;
        from          = from[length] ? from + length + 1 : NULL;
    }
    return n;
}

/* ---- whom to ask ---- */

static host_contact *find_contact(weft_launch__hosts *h, int64_t peer)
{
    for (int k = 0; peer && k < h->search.n; k++)
        if (h->search.contact[k].peer == peer) return &h->search.contact[k];
    return NULL;
}

bool weft_launch__is_contact(weft_launch__hosts *h, int64_t peer)
{
    return find_contact(h, peer) != NULL;
}

static bool is_open(weft_launch__hosts *h, const host_contact *c)
{
    for (int k = 0; c->peer && k < h->n_link; k++)
        if (h->link[k].peer == c->peer) return h->link[k].open;
    return false;
}

static void add_contact(weft_launch__hosts *h, const char *at, bool of_run)
{
    host_search *s = &h->search;
    if (!strcmp(at, h->self.control)) return;
    for (int k = 0; k < s->n; k++)
        if (!strcmp(s->contact[k].at, at)) {
            s->contact[k].of_run = s->contact[k].of_run || of_run;
            return;
        }
    if (s->n == MAX_CONTACT) return;
    host_contact *c = &s->contact[s->n++];
    *c              = (host_contact){.of_run = of_run};
    snprintf(c->at, sizeof c->at, "%s", at);
}

/* Does a run live, by those that can be asked?  Its agents are contacts then. */
static bool find_run(weft_launch__run *l)
{
    host_search       *s = &l->hosts->search;
    weft_launch_living x;
    if (l->o->request && l->o->request->fresh) return false;
    weft_launch_find_living(l->o, s->n_listed > 1 ? s->n_listed : 0, s->listed, &x);
    for (int k = 0; k < s->n; k++) s->contact[k].of_run = false;
    for (int k = 0; k < x.n; k++) add_contact(l->hosts, x.at[k], true);
    if (x.n)
        weft_launch__describe_living(&x, l->o->output ? l->o->output : "", s->run,
                                     sizeof s->run);
    return x.n > 0;
}

static uint32_t first_epoch(const weft_launch__run *l)
{
    bool    none  = !l->o->output || (l->o->request && l->o->request->fresh);
    int64_t epoch = none ? 0 : weft_launch_newest_epoch(l->o->output);
    return epoch < UINT32_MAX / 2 ? (uint32_t)epoch + 1 : 1;
}

static void begin_job(weft_launch__run *l, uint32_t epoch)
{
    l->hosts->found = true;
    weft_launch__tell_hosts(l->hosts,
                            (weft_hosts_event){.kind = WEFT_HOSTS_FOUND, .epoch = epoch});
}

/* ---- before the listener is open ---- */

void weft_launch__search_open(weft_launch__run *l)
{
    host_search *s = &l->hosts->search;
    s->begun_s     = weft_clock_s();
    if (weft_launch_is_register(l->o->rdzv)) return;
    s->n_listed = weft_launch_split_rdzv(l->o->rdzv, s->listed);
    s->lives    = find_run(l);
}

uint32_t weft_launch__search_epoch(const weft_launch__run *l)
{
    return first_epoch(l);
}

/* ... and the agreement is there. */
void weft_launch__search_begin(weft_launch__run *l)
{
    weft_launch__hosts *h = l->hosts;
    host_search        *s = &h->search;
    if (h->store) {
        weft_launch__tell_hosts(h, (weft_hosts_event){.kind = WEFT_HOSTS_FOUND});
        return;
    }
    if (s->begins && !s->lives) {
        begin_job(l, 1);
        return;
    }
    if (s->begins)
        weft_launch__say(l, -1, "info", "%s: this host asks to join it", s->run);
    for (int k = 0; k < s->n_listed; k++) add_contact(h, s->listed[k], false);
}

/* ---- the search ---- */

/* Has the newest view that this host knows of, without being in it, all hosts that there may be? */
static bool is_job_full(const weft_launch__run *l)
{
    const weft_member_view *v    = weft_hosts_view(l->hosts->agreement);
    bool                    open = false;
    for (int k = 0; k < l->hosts->search.n; k++)
        open = open || is_open(l->hosts, &l->hosts->search.contact[k]);
    return v->epoch && v->n_host >= l->o->n_node && open;
}

static void end_search(weft_launch__run *l, double limit_s)
{
    weft_launch__hosts *h = l->hosts;
    size_t              n = (size_t)snprintf(h->why, sizeof h->why,
                                             "no host of the job let this one in within %g s%s",
                                             limit_s, h->search.n ? ": tried " : "");
    for (int k = 0; k < h->search.n && n < sizeof h->why; k++) {
        const host_contact *c = &h->search.contact[k];
        n += (size_t)snprintf(h->why + n, sizeof h->why - n, "%s%s%s%.80s%s",
                              k ? ", " : "", c->at, *c->why ? " (" : "", c->why,
                              *c->why ? ")" : "");
    }
    h->over = true;
}

static void try_contacts(weft_launch__hosts *h, double now_s)
{
    for (int k = 0; k < h->search.n; k++) {
        host_contact *c = &h->search.contact[k];
        if (c->peer || now_s < c->next_s || h->n_link == MAX_LINK) continue;
        c->next_s = now_s + RETRY_S;
        if (weft_control_connect(h->control, c->at, now_s, &c->peer) != WEFT_OK) {
            snprintf(c->why, sizeof c->why, "%s", weft_error_text());
            c->peer = 0;
        } else {
            h->link[h->n_link++] = (host_link){c->peer, 0, false};
        }
    }
}

/* No agent of the run that was to be joined is there any more: it has ended, or others go on. */
static void look_again(weft_launch__run *l, double now_s)
{
    weft_launch__hosts *h = l->hosts;
    host_search        *s = &h->search;
    for (int k = 0; k < s->n; k++)
        if (s->contact[k].of_run &&
            (is_open(h, &s->contact[k]) || now_s - s->begun_s < AGAIN_S))
            s->gone_s = now_s;
    if (!s->begins || now_s - s->gone_s < AGAIN_S) return;
    bool lives = find_run(l); /* no rank runs here, so this may take a while */
    s->gone_s  = weft_clock_s();
    if (lives) return;
    weft_launch__say(l, -1, "info",
                     "the run there has ended: this host begins the next one");
    begin_job(l, first_epoch(l));
}

void weft_launch__search_tick(weft_launch__run *l, double now_s)
{
    weft_launch__hosts *h       = l->hosts;
    host_search        *s       = &h->search;
    double              limit_s = l->o->timeout_s > 0 ? l->o->timeout_s : 60;
    if (h->found || h->store || h->entered || h->over) return;
    if (is_job_full(l)) { /* it is in the place of a host that is lost, later */
        if (!s->waits)
            weft_launch__say(l, -1, "info",
                             "the job has %d hosts, as many as it may: this one waits",
                             l->o->n_node);
        s->waits   = true;
        s->begun_s = now_s;
    }
    if (now_s - s->begun_s > limit_s) {
        end_search(l, limit_s);
        return;
    }
    try_contacts(h, now_s);
    look_again(l, now_s);
}

void weft_launch__search_lost(weft_launch__run *l, const weft_control_event *e,
                              bool refused)
{
    weft_launch__hosts *h = l->hosts;
    host_contact       *c = find_contact(h, e->peer);
    if (c) {
        snprintf(c->why, sizeof c->why, "%s", e->text);
        c->peer = 0;
    }
    if (!refused) return;
    if (c && c->of_run && *h->search.run)
        snprintf(h->why, sizeof h->why, "%s, and %s does not let this host in: %s",
                 h->search.run, c->at, e->text);
    else
        snprintf(h->why, sizeof h->why, "%s: %.200s", c ? c->at : e->address, e->text);
    h->over = true;
}
