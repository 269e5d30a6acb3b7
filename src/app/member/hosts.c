#include "member/hosts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "member/hosts_priv.h"
#include "register/majority.h"

/* ---- actions ---- */

static bool grow_queue(hosts_queue *q, size_t n_byte)
{
    if (q->first == q->n) q->first = q->n = 0, q->n_byte = 0;
    if (q->n == q->cap) {
        int                cap = q->cap ? 2 * q->cap : 16;
        weft_hosts_action *a   = realloc(q->action, sizeof *a * (size_t)cap);
        if (!a) return false;
        q->action = a;
        q->cap    = cap;
    }
    if (n_byte > q->byte_cap - q->n_byte) {
        size_t   cap = 2 * (q->byte_cap + n_byte);
        uint8_t *p   = realloc(q->byte, cap);
        if (!p) return false;
        q->byte     = p;
        q->byte_cap = cap;
    }
    return true;
}

weft_hosts_action *weft_member__add_action(weft_hosts *h, weft_hosts_action_kind kind,
                                           const char *why)
{
    static weft_hosts_action none; /* out of memory: a message that is lost */
    if (!grow_queue(&h->queue, 0)) return &none;
    weft_hosts_action *a = &h->queue.action[h->queue.n++];
    *a                   = (weft_hosts_action){.kind = kind, .epoch = h->view->epoch};
    snprintf(a->why, sizeof a->why, "%s", why);
    return a;
}

/* A later view was taken before this action was carried out. */
static bool is_overtaken(const weft_hosts *h, const weft_hosts_action *a)
{
    bool of_view = a->kind == WEFT_HOSTS_VIEW || a->kind == WEFT_HOSTS_STOP_RANKS;
    return of_view && (a->epoch != h->view->epoch || h->self < 0);
}

bool weft_hosts_next(weft_hosts *h, weft_hosts_action *out)
{
    hosts_queue *q = &h->queue;
    while (q->first < q->n && is_overtaken(h, &q->action[q->first])) q->first++;
    if (q->first == q->n) return false;
    *out = q->action[q->first++];
    if (out->kind == WEFT_HOSTS_SEND) out->bytes = q->byte + (uintptr_t)out->bytes;
    return true;
}

void weft_member__send_host(weft_hosts *h, uint64_t to, hosts_message *m)
{
    hosts_queue *q   = &h->queue;
    size_t       cap = 512 + m->n;
    if (to == h->o.self.id || !grow_queue(q, cap)) return;
    m->epoch = h->view->epoch;
    size_t n = weft_member__encode_message(m, q->byte + q->n_byte, cap);
    if (!n) return;
    weft_hosts_action *a = weft_member__add_action(h, WEFT_HOSTS_SEND, "");
    a->id                = to;
    a->bytes             = (const uint8_t *)(uintptr_t)q->n_byte;
    a->n                 = n;
    q->n_byte += n;
}

void weft_member__send_view(weft_hosts *h, uint64_t to)
{
    if (!h->view->epoch) return;
    weft_member__send_host(h, to,
                           &(hosts_message){.kind  = HOSTS_TAKE,
                                            .bytes = h->view_bytes,
                                            .n     = h->n_view_bytes});
}

void weft_member__end_hosts(weft_hosts *h, weft_hosts_action_kind kind, const char *why)
{
    if (h->state == HOSTS_OVER) return;
    h->state = HOSTS_OVER;
    weft_member__add_action(h, kind, why);
}

void weft_member__end_alone(weft_hosts *h, const char *why)
{
    bool stopped = h->state == HOSTS_MEMBER && h->change.stopped;
    if (h->state == HOSTS_OVER) return;
    h->state                                                 = HOSTS_OVER;
    weft_member__add_action(h, WEFT_HOSTS_ALONE, why)->saves = stopped;
}

void weft_member__end_together(weft_hosts *h, const char *why)
{
    weft_member_view *old = h->view;
    h->view               = h->scratch;
    h->scratch            = old;
    h->self               = weft_member_view_find(h->view, h->o.self.id);
    h->state              = HOSTS_OVER;
    weft_hosts_action *a  = weft_member__add_action(h, WEFT_HOSTS_ALONE, why);
    a->saves = a->together = true;
}

static void send_alive(weft_hosts *h)
{
    hosts_message m = {.kind = HOSTS_ALIVE};
    if (h->state != HOSTS_MEMBER) return;
    const hosts_peer *self = &h->peer[h->self];
    m.flags                = (unsigned)((h->saving ? HOSTS_SAVING : 0) |
                         (h->interrupts ? HOSTS_INT : 0) | (h->few ? HOSTS_FEW : 0) |
                         (self->ready ? HOSTS_READY : 0) | (self->done ? HOSTS_DONE : 0));
    memcpy(m.text, h->save_why, sizeof m.text);
    for (int k = 0; k < h->view->n_host; k++)
        weft_member__send_host(h, h->view->host[k].id, &m);
    h->alive_s = h->now_s + HOSTS_ALIVE_S;
}

void weft_member__save_all(weft_hosts *h, const char *why, bool interrupts)
{
    if (h->saving || h->state != HOSTS_MEMBER) return;
    h->saving     = true;
    h->interrupts = interrupts;
    snprintf(h->save_why, sizeof h->save_why, "%s", why);
    weft_hosts_action *a = weft_member__add_action(h, WEFT_HOSTS_SAVE, why);
    a->interrupts        = interrupts;
    a->few               = h->few;
    send_alive(h);
}

/* ---- views ---- */

static bool silent_too_long(const weft_hosts *h, const hosts_peer *p)
{
    return h->now_s - p->heard_s >= h->o.failure_timeout_s;
}

/* What is known of a host of the old view holds in the new one. */
static void carry_peers(weft_hosts *h, const weft_member_view *next)
{
    hosts_peer carried[WEFT_MEMBER_MAX_HOST];
    for (int k = 0; k < next->n_host; k++) {
        int         old = weft_member_view_find(h->view, next->host[k].id);
        hosts_peer *p   = &carried[k];
        *p              = (hosts_peer){.heard_s = h->now_s};
        if (old < 0) continue;
        if (h->self < 0) { /* members send a candidate no keep-alive messages */
            p->gone = p->lost = h->peer[old].gone;
            continue;
        }
        *p          = h->peer[old];
        p->cut      = false;
        p->lost     = old != h->self && (p->gone || silent_too_long(h, p));
        p->probed_s = 0;
        p->ready    = false;
        p->reported = false;
    }
    memcpy(h->peer, carried, sizeof *h->peer * (size_t)next->n_host);
}

static void spread_view(weft_hosts *h, const weft_member_view *old)
{
    for (int k = 0; k < h->view->n_host; k++)
        weft_member__send_view(h, h->view->host[k].id);
    for (int k = 0; k < old->n_host; k++)
        if (weft_member_view_find(h->view, old->host[k].id) < 0)
            weft_member__send_view(h, old->host[k].id);
    for (int k = 0; k < h->n_candidate; k++)
        weft_member__send_view(h, h->candidate[k].host.id);
}

static void advance_majority(weft_hosts *h)
{
    uint64_t id[WEFT_MEMBER_MAX_HOST];
    for (int k = 0; k < h->view->n_host; k++) id[k] = h->view->host[k].id;
    if (weft_majority_advance(h->store, h->view->epoch, h->view_bytes, h->n_view_bytes,
                              h->view->n_host, id) != WEFT_OK)
        weft_member__end_hosts(h, WEFT_HOSTS_ALONE, weft_error_text());
}

static void enter_view(weft_hosts *h)
{
    char why[200];
    h->state   = HOSTS_MEMBER;
    h->below_s = h->now_s;
    weft_member__add_action(h, WEFT_HOSTS_VIEW, h->view->reason);
    send_alive(h);
    for (int k = 0; k < h->view->n_host; k++)
        weft_member__drop_candidate(h, h->view->host[k].id);
    if (++h->n_idle_view <= h->o.max_view) return;
    snprintf(why, sizeof why, "%d views one after another have committed no step",
             h->o.max_view);
    weft_member__end_hosts(h, WEFT_HOSTS_ALONE, why);
}

/* This host is not in the newest view. */
static void leave_view(weft_hosts *h, bool asked)
{
    char why[200];
    if (h->state == HOSTS_CANDIDATE) return; /* it knows now where to ask */
    if (asked) {
        h->state = HOSTS_OUTSIDE;
        h->out_s = h->now_s;
        return;
    }
    snprintf(why, sizeof why, "view %u has been decided without this host (%.100s)",
             h->view->epoch, h->view->reason);
    weft_member__end_hosts(h, WEFT_HOSTS_FENCED, why);
}

/* A run has ended in order.  Who has known none before begins the next one, where a register says
 * which that is. */
static void take_end(weft_hosts *h, const weft_member_view *end)
{
    if (h->state == HOSTS_MEMBER)
        h->peer[0].done = true;
    else if (h->state == HOSTS_CANDIDATE && !h->view->epoch && !h->is_majority) {
        h->found_epoch = weft_member__next_run(h, end->epoch);
        h->follows     = true;
        h->watch.takes = false;
    } else
        weft_member__end_hosts(h, WEFT_HOSTS_LEFT, "the job has ended");
}

bool weft_member__adopt_view(weft_hosts *h, const void *bytes, size_t n, bool spread)
{
    if (n > WEFT_MEMBER_VIEW_MOST ||
        weft_member_view_decode(bytes, n, h->scratch) != WEFT_OK)
        return false;
    if (h->scratch->epoch <= h->view->epoch || h->state == HOSTS_OVER) return true;
    if (!h->scratch->n_host) {
        take_end(h, h->scratch);
        return true;
    }
    weft_member_view *old   = h->view;
    bool              asked = h->self >= 0 && h->peer[h->self].leaving;
    carry_peers(h, h->scratch);
    h->view    = h->scratch;
    h->scratch = old;
    memmove(h->view_bytes, bytes, n);
    h->n_view_bytes = n;
    h->self         = weft_member_view_find(h->view, h->o.self.id);
    h->change       = (hosts_change){0};
    h->has_step     = false;
    h->has_run      = h->has_run || weft_hosts_is_enough(h);
    h->prepared = h->unused = h->says_unused = false;
    h->expected->epoch                       = 0;
    if (spread) spread_view(h, old);
    if (h->is_majority && h->self >= 0) advance_majority(h);
    if (h->self >= 0)
        enter_view(h);
    else
        leave_view(h, asked);
    return true;
}

/* ---- events ---- */

/* Time in which this agent did not run does not count, so no host is lost by it. */
static void pass_time(weft_hosts *h, double clock_s)
{
    double past_s = h->has_clock ? clock_s - h->clock_s : 0;
    h->clock_s    = clock_s;
    h->has_clock  = true;
    if (past_s > 2 * HOSTS_ALIVE_S) past_s = 2 * HOSTS_ALIVE_S;
    if (past_s > 0) h->now_s += past_s;
}

/* No host of the view that the register has answers, for long enough: reading it says whether their
 * run is alive all the same. */
static bool suspects_run(const weft_hosts *h)
{
    double silent_s = h->now_s - fmax(h->member_s, h->watch.next_s);
    return !h->is_majority && h->view->epoch && silent_s >= h->o.failure_timeout_s;
}

static void tick_candidate(weft_hosts *h)
{
    char   why[200];
    bool   alive   = !h->is_majority && h->view->epoch; /* or it was taken over */
    double limit_s = alive ? fmax(h->o.wait_s, 3 * h->o.failure_timeout_s) : h->o.wait_s;
    if (suspects_run(h)) h->finds = true;
    if (h->found_epoch || h->finds) weft_member__propose_found(h);
    if (h->found_epoch || (h->finds && !h->view->epoch)) return;
    if (h->now_s >= h->join_s && (h->n_contact || h->view->epoch))
        weft_member__ask_to_join(h);
    if (h->now_s - h->member_s < limit_s) return;
    if (alive)
        snprintf(why, sizeof why,
                 "the hosts of view %u run, by the register, but none has answered this "
                 "host for %.3g s: does a firewall stand between them?",
                 h->view->epoch, limit_s);
    else
        snprintf(why, sizeof why,
                 "no host of the job has answered for %.3g s: is it running?", limit_s);
    weft_member__end_hosts(h, WEFT_HOSTS_ALONE, why);
}

static void tick_member(weft_hosts *h)
{
    char why[200];
    if (h->now_s >= h->alive_s) send_alive(h);
    weft_member__watch_peers(h);
    weft_member__watch_register(h);
    if (h->state != HOSTS_MEMBER) return;
    weft_member__end_candidates(h);
    weft_member__move_change(h);
    if (weft_hosts_is_enough(h)) return;
    int least = h->view->least > h->o.min_host ? h->view->least : h->o.min_host;
    if (h->has_run && h->o.never_waits)
        snprintf(why, sizeof why,
                 "%d of at least %d hosts are there, and recover allows no waiting: a "
                 "smaller MIN (--nnodes), or recover=on",
                 h->view->n_host, least);
    else if (h->now_s - h->below_s >= h->o.wait_s)
        snprintf(why, sizeof why,
                 "%d of at least %d hosts are there after %.3g s: start weft run on "
                 "another host, or give a larger --timeout or a smaller MIN (--nnodes)",
                 h->view->n_host, least, h->o.wait_s);
    else
        return;
    h->few = true;
    weft_member__save_all(h, why, false);
}

/* Until a host of the view that it is not in knows that view. */
static void tick_out(weft_hosts *h)
{
    if (h->now_s - h->out_s >= HOSTS_CONFIRM_S)
        weft_member__end_hosts(h, WEFT_HOSTS_LEFT, "");
    else if (h->now_s >= h->alive_s) {
        h->alive_s = h->now_s + HOSTS_ALIVE_S;
        for (int k = 0; k < h->view->n_host; k++) {
            weft_member__send_view(h, h->view->host[k].id);
            weft_member__send_host(h, h->view->host[k].id,
                                   &(hosts_message){.kind = HOSTS_ASK});
        }
    }
}

static void add_contact(weft_hosts *h, uint64_t id)
{
    for (int k = 0; k < h->n_contact; k++)
        if (h->contact[k] == id) return;
    if (h->n_contact == HOSTS_MAX_CONTACT) {
        memmove(h->contact, h->contact + 1, sizeof *h->contact * (HOSTS_MAX_CONTACT - 1));
        h->n_contact--;
    }
    h->contact[h->n_contact++] = id;
    h->join_s                  = 0;
}

static void lose_connection(weft_hosts *h, uint64_t id)
{
    int k = weft_member_view_find(h->view, id);
    weft_member__drop_candidate(h, id);
    for (int i = 0; i < h->n_contact; i++)
        if (h->contact[i] == id) h->contact[i] = h->contact[--h->n_contact];
    if (k >= 0 && k != h->self) h->peer[k].gone = h->peer[k].lost = true;
}

static void note_stopped(weft_hosts *h, const weft_hosts_event *e)
{
    if (h->state != HOSTS_MEMBER || e->epoch != h->view->epoch || !h->change.stopping)
        return;
    h->change.stopped         = true;
    h->change.arrived         = e->arrived;
    h->change.passed          = e->passed;
    h->peer[h->self].n_rank   = e->n_rank;
    h->peer[h->self].reported = true;
    int leader                = weft_member__acting_leader(h);
    if (leader != h->self) weft_member__send_report(h, h->view->host[leader].id);
}

static void note_leaving(weft_hosts *h, uint64_t id, bool by_term, bool at_once)
{
    int k = weft_member_view_find(h->view, id);
    if (h->state == HOSTS_CANDIDATE && id == h->o.self.id)
        weft_member__end_hosts(h, WEFT_HOSTS_LEFT, "");
    if (h->state != HOSTS_MEMBER || k < 0 || h->peer[k].leaving) return;
    h->peer[k].leaving = true;
    h->peer[k].by_term = by_term;
    h->peer[k].at_once = at_once;
    h->peer[k].term_s  = h->now_s;
}

static void note_idle(weft_hosts *h)
{
    hosts_peer *self = h->self >= 0 ? &h->peer[h->self] : NULL;
    if (!self || self->leaving) return;
    note_leaving(h, h->o.self.id, false, true);
    self->idle = self->leaving;
}

static void take_local(weft_hosts *h, const weft_hosts_event *e)
{
    bool now = h->state == HOSTS_MEMBER && e->epoch == h->view->epoch;
    switch (e->kind) {
    case WEFT_HOSTS_CHANGE:
        h->o.self.n_rank = e->n_rank;
        if (h->state == HOSTS_MEMBER) weft_member__want_change(h, e->text ? e->text : "");
        break;
    case WEFT_HOSTS_STOPPED: note_stopped(h, e); break;
    case WEFT_HOSTS_READY:
        if (now) h->peer[h->self].ready = true, send_alive(h);
        break;
    case WEFT_HOSTS_STEP:
        h->n_idle_view = 0;
        h->has_step    = true;
        break;
    case WEFT_HOSTS_DRAIN: note_leaving(h, e->id, false, e->at_once); break;
    case WEFT_HOSTS_IDLE: note_idle(h); break;
    case WEFT_HOSTS_TERM: note_leaving(h, h->o.self.id, true, false); break;
    case WEFT_HOSTS_SAVE_ALL:
        weft_member__save_all(h, e->text ? e->text : "", e->interrupts);
        break;
    case WEFT_HOSTS_DONE:
        if (h->state == HOSTS_MEMBER) h->peer[h->self].done = true, send_alive(h);
        break;
    case WEFT_HOSTS_LEARNS: weft_member__note_learned(h, e->epoch, e->percent); break;
    case WEFT_HOSTS_PREPARED: weft_member__note_prepared(h, e->epoch); break;
    case WEFT_HOSTS_UNUSED: weft_member__note_unused(h, e->epoch); break;
    default: break;
    }
}

void weft_hosts_tell(weft_hosts *h, const weft_hosts_event *e)
{
    hosts_message m;
    if (h->state == HOSTS_OVER) return;
    switch (e->kind) {
    case WEFT_HOSTS_TICK: pass_time(h, e->now_s); break;
    case WEFT_HOSTS_MESSAGE:
        if (weft_member__decode_message(e->bytes, e->n, &m))
            weft_member__hear_message(h, e->id, &m);
        break;
    case WEFT_HOSTS_GONE: lose_connection(h, e->id); break;
    case WEFT_HOSTS_FOUND:
        h->finds       = !e->epoch && !h->is_majority;
        h->found_epoch = h->finds ? 0 : weft_member__next_run(h, h->view->epoch);
        if (e->epoch > h->found_epoch && !h->finds) h->found_epoch = e->epoch;
        break;
    case WEFT_HOSTS_CONTACT: add_contact(h, e->id); break;
    default: take_local(h, e); break;
    }
    weft_member__poll_register(h);
    if (h->state == HOSTS_CANDIDATE)
        tick_candidate(h);
    else if (h->state == HOSTS_MEMBER)
        tick_member(h);
    else if (h->state == HOSTS_OUTSIDE)
        tick_out(h);
    weft_member__poll_register(h);
}

/* ---- what is known ---- */

const weft_member_view *weft_hosts_view(const weft_hosts *h)
{
    return h->view;
}

const weft_member_view *weft_hosts_expected(const weft_hosts *h)
{
    return h->expected;
}

bool weft_hosts_is_member(const weft_hosts *h)
{
    return h->state == HOSTS_MEMBER;
}

bool weft_hosts_is_leader(const weft_hosts *h)
{
    return h->state == HOSTS_MEMBER && weft_member__acting_leader(h) == h->self;
}

bool weft_hosts_is_enough(const weft_hosts *h)
{
    return h->view->n_host >= h->o.min_host && h->view->n_host >= h->view->least;
}

bool weft_hosts_is_ready(const weft_hosts *h)
{
    if (h->state != HOSTS_MEMBER) return false;
    for (int k = 0; k < h->view->n_host; k++)
        if (!h->peer[k].ready) return false;
    return true;
}

bool weft_hosts_are_done(const weft_hosts *h)
{
    for (int k = 0; h->state == HOSTS_MEMBER && k < h->view->n_host; k++)
        if (k != h->self && !h->peer[k].done && !h->peer[k].gone) return false;
    return h->state != HOSTS_MEMBER || !h->n_candidate;
}

bool weft_hosts_have_done(const weft_hosts *h, int n)
{
    for (int k = 0; k < n; k++)
        if (k >= h->view->n_host || !h->peer[k].done) return false;
    return true;
}

double weft_hosts_silence(const weft_hosts *h, int position)
{
    bool other = position >= 0 && position < h->view->n_host && position != h->self;
    return other ? h->now_s - h->peer[position].heard_s : 0;
}

const weft_member_host *weft_hosts_find(const weft_hosts *h, uint64_t id)
{
    int k = weft_member_view_find(h->view, id);
    if (k >= 0) return &h->view->host[k];
    for (k = 0; k < h->n_candidate; k++)
        if (h->candidate[k].host.id == id) return &h->candidate[k].host;
    return NULL;
}

weft_status weft_hosts_create(const weft_hosts_options *o, weft_hosts **out)
{
    if (!o->self.id || o->min_host < 1 || o->max_host < o->min_host ||
        o->max_host > WEFT_MEMBER_MAX_HOST || o->failure_timeout_s <= 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d to %d hosts: 1 to %d are possible",
                         o->min_host, o->max_host, WEFT_MEMBER_MAX_HOST);
    weft_hosts *h = calloc(1, sizeof *h);
    if (!h) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    h->o = *o;
    if (h->o.wait_s <= 0) h->o.wait_s = 60;
    if (h->o.max_view <= 0) h->o.max_view = 16;
    if (h->o.first_epoch < 1) h->o.first_epoch = 1;
    h->self        = -1;
    h->now_s       = 1;
    h->member_s    = 1;
    h->view        = malloc(sizeof *h->view);
    h->scratch     = malloc(sizeof *h->scratch);
    h->expected    = malloc(sizeof *h->expected);
    h->view_bytes  = malloc(WEFT_MEMBER_VIEW_MOST);
    h->store       = o->shared;
    h->is_majority = !o->shared;
    if (!h->view || !h->scratch || !h->expected || !h->view_bytes ||
        (h->is_majority &&
         weft_register_open_majority(o->self.id, &h->store) != WEFT_OK)) {
        weft_hosts_destroy(h);
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    memset(h->view, 0, offsetof(weft_member_view, host)); /* no view */
    memset(h->expected, 0, offsetof(weft_member_view, host));
    *out = h;
    return WEFT_OK;
}

void weft_hosts_destroy(weft_hosts *h)
{
    if (!h) return;
    if (h->is_majority) weft_register_close(h->store);
    free(h->queue.action);
    free(h->queue.byte);
    free(h->view);
    free(h->scratch);
    free(h->expected);
    free(h->view_bytes);
    free(h);
}
