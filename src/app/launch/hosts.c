/* Agents of several hosts: their connections (control/), their agreement on who is in the job
 * (member/hosts.h), and what this host does about it.
 *
 *     control events, ticks, signals, ranks that stopped   ->  weft_hosts_tell
 *     weft_hosts_next                                      ->  messages, the next view, the end
 *
 * Which ranks of this host run is agent.c's, as on one host; views come from here.
 *
 * (1) A frame begins with the number of the agent that sent it, which is that of its connection.
 * (2) What cannot be sent is lost; the agreement repeats what it needs.
 * (3) A connection that its other end has closed means that agent's end; one that timed out means
 *     nothing yet. */
#include "member/hosts.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "launch/hosts_priv.h"
#include "member/hosts_message.h"

#define TICK_S   0.1 /* of the agreement */
#define LINGER_S 2   /* for others to hear that the ranks here have done their work */
/* As torchrun's agents: those of other hosts may fail, and their next view may need this agent. */
#define PROGRAM_LINGER_S 300

/* ---- frames ---- */

host_link *weft_launch__find_link(weft_launch__hosts *h, uint64_t id, bool open)
{
    for (int k = 0; k < h->n_link; k++)
        if (h->link[k].id == id && (h->link[k].open || !open)) return &h->link[k];
    return NULL;
}

static host_link *find_peer(weft_launch__hosts *h, int64_t peer)
{
    for (int k = 0; k < h->n_link; k++)
        if (h->link[k].peer == peer) return &h->link[k];
    return NULL;
}

static bool add_link(weft_launch__hosts *h, int64_t peer, uint64_t id, bool open)
{
    if (h->n_link == MAX_LINK) return false;
    h->link[h->n_link++] = (host_link){peer, id, open};
    return true;
}

void weft_launch__connect_host(weft_launch__hosts *h, uint64_t id)
{
    const weft_member_host *host = weft_hosts_find(h->agreement, id);
    int64_t                 peer;
    if (!host || weft_launch__find_link(h, id, false) || h->n_link == MAX_LINK) return;
    if (weft_control_connect(h->control, host->control, weft_clock_s(), &peer) == WEFT_OK)
        (void)add_link(h, peer, id, false);
}

void weft_launch__send_frame(weft_launch__hosts *h, int64_t peer, uint32_t kind,
                             const void *bytes, size_t n)
{
    uint8_t frame[WEFT_HOSTS_MESSAGE_MOST + sizeof h->self.id];
    if (n > WEFT_HOSTS_MESSAGE_MOST) return;
    memcpy(frame, &h->self.id, sizeof h->self.id);
    if (n) memcpy(frame + sizeof h->self.id, bytes, n);
    (void)weft_control_send(h->control, peer, kind, frame, sizeof h->self.id + n);
}

static void send_message(weft_launch__hosts *h, const weft_hosts_action *x)
{
    const host_link *link = weft_launch__find_link(h, x->id, true);
    if (link && x->bytes[0] == HOSTS_TAKE) weft_failpoint("hosts.tell_view");
    if (link)
        weft_launch__send_frame(h, link->peer, FRAME_MESSAGE, x->bytes, x->n);
    else
        weft_launch__connect_host(h, x->id);
}

void weft_launch__tell_hosts(weft_launch__hosts *h, weft_hosts_event e)
{
    e.now_s = weft_clock_s();
    if (!h->over) weft_hosts_tell(h->agreement, &e);
}

/* ---- what comes over connections ---- */

/* The other side says who it is. */
static void hear_number(weft_launch__hosts *h, host_link *link, uint64_t id)
{
    if (link->id == id || !id) return;
    link->id = id;
    if (weft_launch__is_contact(h, link->peer))
        weft_launch__tell_hosts(h,
                                (weft_hosts_event){.kind = WEFT_HOSTS_CONTACT, .id = id});
}

int weft_launch__count_own(const weft_launch__run *l)
{
    const weft_launch__hosts *h = l->hosts;
    bool less = h->use_epoch && h->use_epoch == weft_hosts_view(h->agreement)->epoch;
    int  n    = h->n_scaled ? h->n_scaled : l->n;
    return less && h->n_use < n ? h->n_use : n;
}

static void start_view(weft_launch__run *l);

static void send_key(weft_launch__hosts *h, uint64_t to)
{
    const host_link *link = weft_launch__find_link(h, to, true);
    if (link)
        weft_launch__send_frame(h, link->peer, FRAME_KEY, &h->key, sizeof h->key);
    else
        weft_launch__connect_host(h, to); /* it asks once more */
}

/* Accepted only from the first host of the newest view. */
static void take_key(weft_launch__run *l, uint64_t from, const host_key *key)
{
    weft_launch__hosts     *h = l->hosts;
    const weft_member_view *v = weft_hosts_view(h->agreement);
    if (!v->n_host || v->host[0].id != from || key->epoch != v->epoch) return;
    weft_failpoint("hosts.take_key");
    h->key = *key;
    start_view(l);
}

/* To a host of the view that this one is the first of. */
static void give_key(weft_launch__hosts *h, uint64_t to, uint32_t epoch)
{
    const weft_member_view *v = weft_hosts_view(h->agreement);
    if (v->n_host && v->host[0].id == h->self.id && epoch == v->epoch &&
        h->key.epoch == epoch && weft_member_view_find(v, to) >= 0)
        send_key(h, to);
}

/* A connection is over.  gone: the agent at its other end is, too, where this was its only one. */
static void drop_link(weft_launch__hosts *h, host_link *link, bool gone)
{
    host_link was = *link;
    *link         = h->link[--h->n_link];
    if (was.open && was.id && gone && !weft_launch__find_link(h, was.id, true))
        weft_launch__tell_hosts(
            h, (weft_hosts_event){.kind = WEFT_HOSTS_GONE, .id = was.id});
}

/* Who has the token and sends what no agent sends is as one that has ended. */
static void drop_agent(weft_launch__run *l, const weft_control_event *e, host_link *link,
                       const char *why)
{
    weft_launch__hosts *h    = l->hosts;
    const char         *host = e->hello && *e->hello->host ? e->hello->host : "a host";
    weft_launch__say(l, -1, "warn", "agent of %s (%s) dropped: %s", host, e->address,
                     why);
    if (weft_launch__is_contact(h, e->peer)) weft_launch__search_lost(l, e, false);
    weft_control_end(h->control, e->peer);
    drop_link(h, link, true);
}

static void take_frame(weft_launch__run *l, const host_frame *f)
{
    weft_launch__hosts *h = l->hosts;
    switch (f->kind) {
    case FRAME_MESSAGE:
        weft_launch__tell_hosts(h, (weft_hosts_event){.kind  = WEFT_HOSTS_MESSAGE,
                                                      .id    = f->from,
                                                      .bytes = f->bytes,
                                                      .n     = f->n});
        break;
    case FRAME_KEY: take_key(l, f->from, &f->key); break;
    case FRAME_ASK: give_key(h, f->from, f->epoch); break;
    case FRAME_USE: weft_launch__take_use(l, &f->use); break;
    case FRAME_SCALE: weft_launch__take_scale(l, &f->use); break;
    case FRAME_LEAVE_OUT: weft_launch__take_leave_out(l, &f->use); break;
    case FRAME_STAYS: weft_launch__take_stays(l, &f->use); break;
    default: break;
    }
    weft_launch__prepare_hear(l, f);
    weft_launch__crash_hear(l, f);
    weft_launch__ahead_hear(l, f);
}

static void hear_frame(weft_launch__run *l, const weft_control_event *e)
{
    weft_launch__hosts *h    = l->hosts;
    host_link          *link = find_peer(h, e->peer);
    host_frame          f    = {0};
    char                why[80];
    if (!link) return;
    snprintf(why, sizeof why, "%zu bytes of kind %u that are no frame of an agent",
             e->bytes, e->frame);
    if (e->reads_only)
        drop_agent(l, e, link, "its token only reads");
    else if (!weft_launch__read_frame(e->frame, e->data, e->bytes, &f))
        drop_agent(l, e, link, why);
    else if (link->id && link->id != f.from)
        drop_agent(l, e, link, "a frame in the name of another agent");
    else {
        hear_number(h, link, f.from);
        take_frame(l, &f);
    }
    weft_comm_key_wipe(&f.key.key);
    weft_comm_key_wipe(&f.lesson.key);
}

static void hear_closed(weft_launch__run *l, const weft_control_event *e)
{
    weft_launch__hosts *h    = l->hosts;
    host_link          *link = find_peer(h, e->peer);
    bool joins   = weft_launch__is_contact(h, e->peer) || (h->store && link && link->id);
    bool refused = strstr(e->text, "it refused") || strstr(e->text, "token");
    if (joins && !h->entered && !h->over) weft_launch__search_lost(l, e, refused);
    if (link) drop_link(h, link, !strstr(e->text, "timed out"));
}

static void hear_event(weft_launch__run *l, const weft_control_event *e)
{
    weft_launch__hosts *h    = l->hosts;
    host_link          *link = find_peer(h, e->peer);
    if (e->hello && e->hello->role == WEFT_CONTROL_TOOL) {
        weft_launch__remote_hear(l, h->control, e);
        return;
    }
    switch (e->kind) {
    case WEFT_CONTROL_OPENED:
        if (*e->text) weft_launch__say(l, -1, "warn", "%s: %s", e->address, e->text);
        if (link) link->open = true;
        if (!link && !add_link(h, e->peer, 0, true)) return;
        weft_launch__send_frame(h, e->peer, FRAME_WHO, NULL, 0);
        break;
    case WEFT_CONTROL_FRAME: hear_frame(l, e); break;
    case WEFT_CONTROL_CLOSED: hear_closed(l, e); break;
    case WEFT_CONTROL_REFUSED:
        weft_launch__say(l, -1, "warn", "refused a connection from %s: %s", e->address,
                         e->text);
        break;
    }
}

/* ---- this host's ranks ---- */

/* How far they came: the step that all have brought to the vote, the last that one has passed. */
static void find_steps(const weft_launch__run *l, int64_t *arrived, int64_t *passed)
{
    *arrived = *passed = -1;
    if (l->restart) {
        *arrived = *passed = weft_launch__restart_steps(l);
        return;
    }
    for (int r = 0; r < weft_launch__agent_count(l); r++) {
        weft_comm_shm_slot *slot =
            weft_comm_shm_slot_of(l->shm, weft_launch__slot_at(l, r));
        int64_t a = atomic_load(&slot->arrived), p = atomic_load(&slot->passed);
        if (!r || a < *arrived) *arrived = a;
        if (p > *passed) *passed = p;
    }
    if (*arrived < *passed) *arrived = *passed;
}

static void tell_stopped(weft_launch__run *l)
{
    weft_launch__hosts *h = l->hosts;
    weft_hosts_event    e = {.kind   = WEFT_HOSTS_STOPPED,
                             .epoch  = h->stop_epoch,
                             .n_rank = weft_launch__count_own(l)};
    if (!h->stop_epoch || !weft_launch__agent_is_stopped(l)) return;
    find_steps(l, &e.arrived, &e.passed);
    weft_failpoint("hosts.stopped");
    h->stop_epoch = 0;
    weft_launch__tell_hosts(h, e);
}

static void tell_progress(weft_launch__run *l)
{
    weft_launch__hosts *h     = l->hosts;
    uint32_t            epoch = weft_hosts_view(h->agreement)->epoch;
    int64_t             arrived, passed;
    if (h->ready_epoch != epoch && weft_launch__agent_is_ready(l, epoch)) {
        weft_failpoint("hosts.ready");
        h->ready_epoch = epoch;
        h->change      = (host_change){0};
        weft_launch__tell_hosts(
            h, (weft_hosts_event){.kind = WEFT_HOSTS_READY, .epoch = epoch});
    }
    find_steps(l, &arrived, &passed);
    if (l->restart) { /* its steps are not seen: once in each view */
        passed = weft_launch__restart_has_run(l) ? epoch : 0;
        if (h->step < 0) h->step = 0;
    }
    if (passed <= h->step) return;
    h->step = passed;
    weft_launch__tell_hosts(
        h, (weft_hosts_event){.kind = WEFT_HOSTS_STEP, .passed = passed});
}

void weft_launch__hosts_want(weft_launch__run *l, const char *why)
{
    if (l->hosts->together) { /* no other view follows */
        weft_launch__say(l, -1, "warn", "%s: nothing is saved", why);
        weft_launch__agent_end(l);
        return;
    }
    weft_launch__tell_hosts(l->hosts,
                            (weft_hosts_event){.kind   = WEFT_HOSTS_CHANGE,
                                               .n_rank = weft_launch__count_own(l),
                                               .text   = why});
}

void weft_launch__send_all(weft_launch__hosts *h, uint32_t kind, const void *bytes,
                           size_t n)
{
    for (int k = 0; k < h->n_link; k++)
        if (h->link[k].open && h->link[k].id)
            weft_launch__send_frame(h, h->link[k].peer, kind, bytes, n);
}

void weft_launch__hosts_use(weft_launch__run *l, uint32_t epoch, int n)
{
    host_use use = {epoch, n};
    if (n < 1 || n > weft_launch__hosts_world(l)) return; /* no rank of ours says that */
    if (l->hosts->saves && !l->hosts->together) { /* it has no other host to ask */
        weft_launch__agent_enter(l, epoch + 1, n);
        return;
    }
    weft_failpoint("hosts.use");
    weft_launch__send_all(l->hosts, FRAME_USE, &use, sizeof use);
    weft_launch__take_use(l, &use);
}

bool weft_launch__hosts_may_leave(const weft_launch__run *l)
{
    const weft_member_view *v     = weft_hosts_view(l->hosts->agreement);
    int                     least = l->o->min_node > 1 ? l->o->min_node : 1;
    return v->n_host > least && !l->hosts->over && l->hosts->drain_s <= 0;
}

static const weft_member_host *find_rank(const weft_launch__run *l, int rank)
{
    const weft_member_view *v = weft_hosts_view(l->hosts->agreement);
    int                     i = 0;
    while (i < v->n_host && rank >= v->host[i].n_rank) rank -= v->host[i++].n_rank;
    return i < v->n_host && rank >= 0 ? &v->host[i] : NULL;
}

const char *weft_launch__hosts_name_of(const weft_launch__run *l, int rank, int *n_rank)
{
    const weft_member_host *x = find_rank(l, rank);
    *n_rank                   = x ? x->n_rank : 0;
    return x ? x->name : "";
}

void weft_launch__hosts_release(weft_launch__run *l, int rank)
{
    const weft_member_host *x = find_rank(l, rank);
    if (!x) return;
    weft_launch__tell_hosts(l->hosts,
                            (weft_hosts_event){.kind = WEFT_HOSTS_DRAIN, .id = x->id});
    weft_launch__hosts_act(l);
}

void weft_launch__hosts_cordon(weft_launch__run *l, const char *why)
{
    weft_launch__hosts *h = l->hosts;
    snprintf(h->cordon, sizeof h->cordon, "%s", why);
    weft_launch__tell_hosts(
        h,
        (weft_hosts_event){.kind = WEFT_HOSTS_DRAIN, .id = h->self.id, .at_once = true});
    weft_launch__hosts_act(l);
}

bool weft_launch__hosts_is_cordoned(const weft_launch__run *l)
{
    return l->hosts && *l->hosts->cordon;
}

void weft_launch__hosts_done(weft_launch__run *l)
{
    if (!l->hosts) return;
    weft_failpoint("hosts.done");
    l->hosts->done_s = weft_clock_s();
    weft_launch__tell_hosts(l->hosts, (weft_hosts_event){.kind = WEFT_HOSTS_DONE});
    weft_launch__hosts_act(l);
}

bool weft_launch__hosts_have_done(const weft_launch__run *l, int n)
{
    return weft_hosts_have_done(l->hosts->agreement, n);
}

/* ---- views ---- */

static int most_ranks(const weft_launch__run *l, const weft_member_view *v, int *local)
{
    int most = 0, host = 0, n_host = l->o->n_node;
    for (int i = 0; i < v->n_host; i++) {
        most += v->host[i].n_rank;
        if (v->host[i].n_rank > host) host = v->host[i].n_rank;
    }
    *local = host;
    return most + (n_host > v->n_host ? (n_host - v->n_host) * host : 0);
}

void weft_launch__hosts_fill_view(weft_launch__run *l, weft_line_message *m)
{
    const weft_member_view *v  = weft_hosts_view(l->hosts->agreement);
    int                     me = weft_member_view_find(v, l->hosts->self.id), local;
    m->saves    = l->hosts->saves ? (int32_t)(m->epoch - l->hosts->agreed) : 0;
    m->restarts = v->restarts;
    if (m->saves && !l->hosts->together) return; /* one host's */
    memcpy(m->key, l->hosts->key.key.byte, sizeof m->key);
    m->first      = l->first;
    m->world      = weft_member_view_ranks(v);
    m->local      = me < 0 ? 0 : v->host[me].n_rank;
    m->most       = most_ranks(l, v, &local);
    m->most_local = local;
    if (m->world > m->local) snprintf(m->text, sizeof m->text, "%s", v->host[0].data);
}

const weft_member_view *weft_launch__hosts_view(const weft_launch__run *l)
{
    return weft_hosts_view(l->hosts->agreement);
}

int weft_launch__hosts_position(const weft_launch__run *l)
{
    return weft_member_view_find(weft_launch__hosts_view(l), l->hosts->self.id);
}

int weft_launch__hosts_world(const weft_launch__run *l)
{
    if (l->hosts->saves && !l->hosts->together) return weft_launch__agent_count(l);
    return weft_member_view_ranks(weft_hosts_view(l->hosts->agreement));
}

bool weft_launch__hosts_saves(const weft_launch__run *l)
{
    return l->hosts && l->hosts->saves;
}

/* The first host draws the key of the view, the others ask it. */
static bool find_key(weft_launch__run *l, const weft_member_view *v)
{
    weft_launch__hosts *h     = l->hosts;
    double              now_s = weft_clock_s();
    if (v->n_host < 2 || h->key.epoch == v->epoch) return true;
    if (v->host[0].id == h->self.id &&
        weft_comm_random(h->key.key.byte, sizeof h->key.key.byte) == WEFT_OK) {
        h->key.epoch = v->epoch;
        weft_failpoint("hosts.key");
        for (int i = 1; i < v->n_host; i++) send_key(h, v->host[i].id);
        return true;
    }
    const host_link *link = weft_launch__find_link(h, v->host[0].id, true);
    if (now_s < h->key_s) return false;
    h->key_s = now_s + ASK_S;
    if (link)
        weft_launch__send_frame(h, link->peer, FRAME_ASK, &v->epoch, sizeof v->epoch);
    else
        weft_launch__connect_host(h, v->host[0].id);
    return false;
}

static void start_view(weft_launch__run *l)
{
    weft_launch__hosts     *h  = l->hosts;
    const weft_member_view *v  = weft_hosts_view(h->agreement);
    int                     me = weft_member_view_find(v, h->self.id);
    if (!h->enters || (h->over && !h->together) || me < 0 || !find_key(l, v)) return;
    h->enters  = false;
    h->started = true;
    weft_launch__agent_enter(l, v->epoch, v->host[me].n_rank);
}

static void enter_view(weft_launch__run *l)
{
    weft_launch__hosts     *h  = l->hosts;
    const weft_member_view *v  = weft_hosts_view(h->agreement);
    int                     me = weft_member_view_find(v, h->self.id);
    h->entered                 = true;
    h->stop_epoch              = 0;
    h->prepare.from            = 0; /* its ranks go on in this view */
    if (me < 0) return;
    l->first = 0;
    for (int i = 0; i < me; i++) l->first += v->host[i].n_rank;
    weft_launch__log_view(l, v);
    if (me == 0 && h->started) weft_launch__note_hosts(l, h->was, v);
    h->stop = (host_stop){0};
    weft_launch__change_enter(h, v);
    weft_member_view_copy(h->was, v);
    h->enters = weft_hosts_is_enough(h->agreement);
    h->key_s  = 0;
    start_view(l);
}

/* ---- actions ---- */

/* Ranks that save, and for which no further view comes, end, too. */
void weft_launch__end_here(weft_launch__run *l, bool left, const char *why)
{
    weft_launch__hosts *h = l->hosts;
    if (weft_launch__agent_is_done(l)) return;
    if (!l->stopped_by && weft_launch__agent_is_over(l)) return;
    bool done = h->done_s > 0; /* what is left has nothing to do */
    if (done) left = true, why = "";
    h->over = true;
    h->left = left;
    if (left && !done && !*why) why = weft_launch__name_leaving(h);
    if (left) weft_launch__answer_drain(l);
    if (left) weft_launch__leave_scale(l);
    snprintf(h->why, sizeof h->why, "%s", why);
    weft_launch__agent_end(l);
}

/* Others may go on without this host, or not: its ranks save what they hold of the newest step, in
 * a view of their own that writes nothing else, and end. */
static void save_alone(weft_launch__run *l, const char *why)
{
    weft_launch__hosts *h = l->hosts;
    if (!h->started || weft_launch__agent_is_over(l)) {
        weft_launch__end_here(l, false, why);
        return;
    }
    weft_launch__say(l, -1, "warn", "%s; this host saves what it holds", why);
    snprintf(h->why, sizeof h->why, "%s", why);
    h->over = h->saves = true;
    h->agreed          = weft_hosts_view(h->agreement)->epoch;
    l->first           = 0;
    weft_launch__agent_enter(l, weft_hosts_view(h->agreement)->epoch + 1,
                             weft_launch__count_own(l));
}

/* The same with the hosts of the view, which are no majority: what none of them holds alone is
 * saved, too. */
static void save_together(weft_launch__run *l, const char *why)
{
    weft_launch__hosts     *h  = l->hosts;
    const weft_member_view *v  = weft_hosts_view(h->agreement);
    int                     me = weft_member_view_find(v, h->self.id);
    if (!h->started || weft_launch__agent_is_over(l) || me < 0) {
        weft_launch__end_here(l, false, why);
        return;
    }
    weft_launch__say(l, -1, "warn", "%s; they save what they hold together", why);
    snprintf(h->why, sizeof h->why, "%s", why);
    h->over = h->saves = h->together = true;
    h->agreed                        = v->epoch - 1;
    h->stop_epoch                    = 0;
    h->enters                        = true;
    h->key_s                         = 0;
    l->first                         = 0;
    for (int i = 0; i < me; i++) l->first += v->host[i].n_rank;
    start_view(l);
}

static void act_once(weft_launch__run *l, const weft_hosts_action *x)
{
    weft_launch__hosts *h = l->hosts;
    switch (x->kind) {
    case WEFT_HOSTS_SEND: send_message(h, x); break;
    case WEFT_HOSTS_STOP_RANKS:
        weft_launch__note_stopping(h);
        weft_launch__change_begin(h, x->why);
        weft_failpoint("hosts.stop");
        h->enters     = false;
        h->stop_epoch = x->epoch;
        weft_launch__agent_leave(l, x->epoch, weft_launch__reason_is_loss(x->why),
                                 weft_launch__reason_leaves(x->why));
        weft_failpoint("hosts.stopping");
        break;
    case WEFT_HOSTS_VIEW:
        weft_failpoint("hosts.view");
        enter_view(l);
        weft_failpoint("hosts.entered");
        weft_launch__answer_drain(l);
        break;
    case WEFT_HOSTS_PREPARE:
        x->id == h->self.id ? weft_launch__ahead_expected(l)
                            : weft_launch__prepare_begin(l, x->id);
        break;
    case WEFT_HOSTS_WARN: weft_launch__say(l, -1, "warn", "%s", x->why); break;
    case WEFT_HOSTS_SAVE:
        if (x->few && !h->started) { /* there is nothing to save */
            weft_launch__end_here(l, false, x->why);
            break;
        }
        if (h->started && !weft_hosts_is_enough(h->agreement)) { /* ranks have no view */
            weft_hosts_is_leader(h->agreement) ? save_alone(l, x->why)
                                               : weft_launch__end_here(l, false, x->why);
            break;
        }
        weft_launch__say(l, -1, "info", "all ranks save and end: %s", x->why);
        weft_launch__save_all(l, x->interrupts ? SIGINT : SIGTERM);
        break;
    case WEFT_HOSTS_LEFT:
        weft_failpoint("hosts.leave");
        weft_launch__end_here(l, true, x->why);
        break;
    case WEFT_HOSTS_FENCED: weft_launch__end_here(l, false, x->why); break;
    case WEFT_HOSTS_ALONE:
        x->together ? save_together(l, x->why)
        : x->saves  ? save_alone(l, x->why)
                    : weft_launch__end_here(l, false, x->why);
        break;
    }
}

void weft_launch__hosts_act(weft_launch__run *l)
{
    weft_hosts_action x;
    while (l->hosts && !l->hosts->over && weft_hosts_next(l->hosts->agreement, &x))
        act_once(l, &x);
}

/* ---- the loop ---- */

/* Has the register one? */
static bool has_outcome(const weft_launch__hosts *h)
{
    struct pollfd p = {.fd     = h->store ? weft_register_fd(h->store) : -1,
                       .events = POLLIN};
    return h->store && poll(&p, 1, 0) > 0;
}

void weft_launch__hosts_serve(weft_launch__run *l)
{
    weft_launch__hosts *h = l->hosts;
    weft_control_event  e;
    if (!h) return;
    double now_s = weft_clock_s();
    weft_control_serve(h->control, now_s);
    while (weft_control_next(h->control, &e)) {
        hear_event(l, &e);
        weft_launch__hosts_act(l);
    }
    weft_launch__search_tick(l, now_s);
    weft_launch__prepare_tick(l, now_s);
    weft_launch__ahead_tick(l, now_s);
    start_view(l);
    tell_stopped(l);
    tell_progress(l);
    weft_launch__check_grace(l, now_s);
    if (now_s - h->tick_s >= TICK_S || has_outcome(h)) {
        h->tick_s = now_s;
        weft_launch__tell_hosts(h, (weft_hosts_event){.kind = WEFT_HOSTS_TICK});
    }
    weft_launch__hosts_act(l);
}

int weft_launch__hosts_fd(const weft_launch__run *l)
{
    if (!l->hosts) return -1;
    return l->hosts->store ? l->hosts->epoll : weft_control_fd(l->hosts->control);
}

int weft_launch__hosts_wait_ms(const weft_launch__run *l)
{
    if (!l->hosts) return -1;
    double left = l->hosts->tick_s + TICK_S - weft_clock_s();
    double wake = weft_control_wake_s(l->hosts->control) - weft_clock_s();
    if (wake < left) left = wake;
    return left <= 0 ? 0 : (int)(1e3 * left) + 1;
}

/* For a view; or, with its ranks at their end, that others hear of it: to them a host that goes
 * without a word is lost. */
bool weft_launch__hosts_is_waiting(const weft_launch__run *l)
{
    const weft_launch__hosts *h = l->hosts;
    if (!h || h->over) return false;
    if (!weft_launch__agent_is_over(l)) return true;
    double linger_s = l->restart ? PROGRAM_LINGER_S : LINGER_S;
    return h->done_s > 0 && weft_clock_s() - h->done_s < linger_s &&
           !weft_hosts_are_done(h->agreement);
}

/* ---- the whole ---- */

bool weft_launch__hosts_is_out(const weft_launch__run *l)
{
    return l->hosts && l->hosts->over;
}

int weft_launch__hosts_code(const weft_launch__run *l)
{
    const weft_launch__hosts *h = l->hosts;
    if (!h || !h->over) return -1;
    if (*h->cordon) {
        weft_launch__say(l, -1, "error", "this host is cordoned: %s; check its hardware",
                         h->cordon);
        return 1;
    }
    if (*h->why) weft_launch__say(l, -1, h->left ? "info" : "error", "%s", h->why);
    return !h->left ? 1 : l->stopped_by ? 128 + l->stopped_by : 0;
}

bool weft_launch__hosts_idles(const weft_launch__run *l, char *at, size_t size,
                              int *n_host)
{
    const weft_launch__hosts *h = l->hosts;
    if (!h || !h->over || !h->left || !h->idles || l->stopped_by || h->drain_s > 0 ||
        h->n_scaled) /* the number of ranks was asked for */
        return false;
    const weft_member_view *v = weft_hosts_view(h->agreement);
    if (!v->n_host || weft_member_view_find(v, h->self.id) >= 0) return false;
    snprintf(at, size, "%s", v->host[0].control);
    *n_host = h->was->n_host;
    return true;
}

void weft_launch__hosts_note_end(weft_launch__run *l, int code)
{
    if (l->hosts) l->hosts->ended = !l->hosts->over && (!code || l->stopped_by);
}

const char *weft_launch__hosts_address(const weft_launch__run *l)
{
    return l->hosts->self.control;
}

int weft_launch__hosts_rdzv_fd(const weft_launch__run *l)
{
    return l->hosts ? l->hosts->rdzv_fd : -1;
}
