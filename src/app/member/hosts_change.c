/* The way to the next view: stop all ranks, collect how far they came, propose. */
#include <stdio.h>
#include <string.h>

#include "member/hosts_priv.h"
#include "register/majority.h"

/* The first host that is there.  This one always is, so there is one. */
int weft_member__acting_leader(const weft_hosts *h)
{
    for (int k = 0; k < h->view->n_host; k++)
        if (k == h->self || (!h->peer[k].lost && !h->peer[k].done)) return k;
    return h->self;
}

void weft_member__want_change(weft_hosts *h, const char *reason)
{
    if (h->change.wanted) return;
    h->change.wanted = true;
    snprintf(h->change.reason, sizeof h->change.reason, "%s", reason);
}

void weft_member__stop_ranks(weft_hosts *h)
{
    if (h->change.stopping) return;
    h->change.stopping = true;
    weft_member__add_action(h, WEFT_HOSTS_STOP_RANKS, h->change.reason);
}

void weft_member__send_report(weft_hosts *h, uint64_t to)
{
    const hosts_peer *self = &h->peer[h->self];
    if (!h->change.stopped) return;
    weft_member__send_host(
        h, to,
        &(hosts_message){.kind    = HOSTS_REPORT,
                         .arrived = h->change.arrived,
                         .passed  = h->change.passed,
                         .n_rank  = self->n_rank,
                         .flags   = (unsigned)((self->leaving ? HOSTS_LEAVING : 0) |
                                             (self->by_term ? HOSTS_TERM : 0))});
}

/* ---- reasons for another view ---- */

/* Signals to several hosts mean the job; one means its host, after a while. */
static void judge_leaving(weft_hosts *h)
{
    int         n_term = 0, n_stay = h->n_candidate;
    bool        leaves = false, at_once = false;
    const char *name = NULL, *why = "";
    char        text[200];
    for (int k = 0; k < h->view->n_host; k++) {
        const hosts_peer *p = &h->peer[k];
        n_stay += !p->lost && !p->done && !p->leaving;
        if (!p->leaving || p->done) continue;
        n_term += p->by_term;
        leaves  = true;
        at_once = at_once || p->at_once;
        if (p->by_term && h->now_s - p->term_s < HOSTS_TERM_S) continue;
        name = h->view->host[k].name;
        why  = p->idle ? " that is of no use" : "";
    }
    if (n_term < 2 && !n_stay && h->peer[h->self].idle) { /* the others are lost */
        h->peer[h->self].leaving = h->peer[h->self].idle = false;
        return;
    }
    if (n_term > 1 || (!n_stay && (n_term || name))) {
        snprintf(text, sizeof text, "%d of %d hosts got a signal to end", n_term,
                 h->view->n_host);
        weft_member__save_all(h, n_term ? text : "all hosts leave", false);
    } else if (
        leaves) { /* the others prepare, also before it is known whom a signal meant */
        bool ready = at_once || weft_member__prepare_members(h, h->o.leave_s);
        snprintf(text, sizeof text, "host %s%s leaves", name ? name : "", why);
        if (name && ready) weft_member__want_change(h, text);
    }
}

static void judge_losses(weft_hosts *h)
{
    char text[200];
    for (int k = 0; k < h->view->n_host; k++) {
        if (!h->peer[k].lost || h->peer[k].done) continue;
        snprintf(text, sizeof text, "host %s was lost", h->view->host[k].name);
        weft_member__want_change(h, text);
    }
}

/* ---- the leader ---- */

/* Are all hosts that are there stopped?  Asks those that are not. */
static bool collect_reports(weft_hosts *h)
{
    bool all = h->change.stopped, repeat = h->now_s >= h->change.collect_s;
    bool late = h->now_s - h->change.led_s > HOSTS_COLLECT_S;
    for (int k = 0; k < h->view->n_host; k++) {
        hosts_peer *p = &h->peer[k];
        if (k == h->self || p->lost || p->done || p->reported) continue;
        if (late) {
            p->cut = p->lost = true;
            continue;
        }
        all = false;
        if (repeat)
            weft_member__send_host(
                h, h->view->host[k].id,
                &(hosts_message){.kind  = HOSTS_COLLECT,
                                 .flags = p->leaving ? HOSTS_LEAVING : 0});
    }
    if (repeat) h->change.collect_s = h->now_s + HOSTS_REPEAT_S;
    return all;
}

static bool is_here(const weft_hosts *h, int k)
{
    return k == h->self || !h->peer[k].lost;
}

/* With a shared register: of the hosts that may be alive, is the larger side here?  Those whose end
 * was announced are on no side. */
static bool is_larger_side(const weft_hosts *h)
{
    int n_here = 0, n_alive = 0, first = -1;
    for (int k = 0; k < h->view->n_host; k++) {
        if (!is_here(h, k) && h->peer[k].gone) continue;
        if (first < 0) first = k;
        n_alive++;
        n_here += is_here(h, k);
    }
    return 2 * n_here > n_alive || (2 * n_here == n_alive && is_here(h, first));
}

bool weft_member__sees_majority(const weft_hosts *h)
{
    bool has[WEFT_MEMBER_MAX_HOST];
    for (int k = 0; k < h->view->n_host; k++) has[k] = is_here(h, k);
    return weft_majority_is_quorum(h->view->n_host, has);
}

/* The rule of tests/model/vote.pml. */
static int64_t find_first_step(const weft_hosts *h)
{
    int64_t committed = h->view->first_step - 1;
    bool    any = false, all_at = true;
    for (int k = 0; k < h->view->n_host; k++)
        if (h->peer[k].reported && h->peer[k].passed > committed)
            committed = h->peer[k].passed;
    for (int k = 0; k < h->view->n_host; k++) { /* one that left nothing may be further */
        const hosts_peer *p = &h->peer[k];
        if (!p->reported || p->arrived < 0) continue;
        any    = true;
        all_at = all_at && p->arrived > committed;
    }
    return committed + (any && all_at) + 1;
}

/* Hosts that the next view needs: where losses are not taken, as many as ran or were needed, less
 * those that leave. */
static int find_least(const weft_hosts *h)
{
    int n = weft_hosts_is_enough(h) ? h->view->n_host : h->view->least;
    if (!h->o.keeps_count) return 0;
    for (int k = 0; k < h->view->n_host; k++)
        n -= n > 0 && h->peer[k].leaving && !h->peer[k].lost;
    return n;
}

static void build_view(weft_hosts *h, weft_member_view *v)
{
    v->epoch      = h->view->epoch + 1;
    v->proposer   = h->o.self.id;
    v->first_step = find_first_step(h);
    v->restarts   = false;
    v->least      = find_least(h);
    v->n_host     = 0;
    int n_lost    = 0;
    memcpy(v->reason, h->change.reason, sizeof v->reason);
    for (int k = 0; k < h->view->n_host; k++) {
        const hosts_peer *p = &h->peer[k];
        n_lost += p->lost && !p->done;
        if (!p->reported || p->lost || p->done || !p->n_rank) continue;
        if (p->leaving && !h->saving) continue; /* the job ends: all have to save */
        v->host[v->n_host]          = h->view->host[k];
        v->host[v->n_host++].n_rank = p->n_rank;
    }
    if (!h->saving) weft_member__add_candidates(h, v, n_lost);
}

void weft_member__describe_few(const weft_hosts *h, int n_here, char *why, size_t size)
{
    snprintf(why, size,
             "%d of %d hosts can be reached, which is no majority: file: or etcd:// lets "
             "them go on",
             n_here, h->view->n_host);
}

/* All hosts that are there have stopped, and are too few: they save together, or this one alone. */
static void end_few(weft_hosts *h)
{
    weft_member_view *v = h->scratch;
    uint8_t           bytes[WEFT_MEMBER_VIEW_MOST];
    char              why[200];
    bool              saving = h->saving;
    h->saving                = true; /* no host joins or leaves */
    build_view(h, v);
    h->saving = saving;
    weft_member__describe_few(h, v->n_host > 1 ? v->n_host : 1, why, sizeof why);
    size_t n = v->n_host > 1 ? weft_member_view_encode(v, bytes, sizeof bytes) : 0;
    if (!n || v->host[0].id != h->o.self.id) {
        weft_member__end_alone(h, why);
        return;
    }
    for (int k = 1; k < v->n_host; k++)
        weft_member__send_host(
            h, v->host[k].id,
            &(hosts_message){.kind = HOSTS_TOGETHER, .bytes = bytes, .n = n});
    weft_member__end_together(h, why);
}

/* Hosts that this agent does not see may decide without it. */
static bool may_propose(weft_hosts *h)
{
    bool late = h->now_s - h->change.led_s >= HOSTS_SMALL_S;
    if (!h->is_majority) return is_larger_side(h) || late;
    if (weft_member__sees_majority(h)) return true;
    if (late) end_few(h);
    return false;
}

static void propose_view(weft_hosts *h)
{
    char none[200];
    build_view(h, h->scratch);
    if (!h->scratch->n_host) {
        snprintf(none, sizeof none, "no host has a rank left (%.100s)", h->change.reason);
        weft_member__end_hosts(h, WEFT_HOSTS_ALONE, none);
        return;
    }
    uint8_t bytes[WEFT_MEMBER_VIEW_MOST];
    size_t  n = weft_member_view_encode(h->scratch, bytes, sizeof bytes);
    if (n && weft_register_propose(h->store, h->scratch->epoch, bytes, n) == WEFT_OK)
        h->n_asked++;
    else
        h->change.retry_s = h->now_s + 1;
}

static void lead_change(weft_hosts *h)
{
    if (!h->change.leads) {
        h->change.leads = true;
        h->change.led_s = h->now_s;
    }
    weft_member__stop_ranks(h);
    if (h->change.stopped) {
        h->peer[h->self].arrived = h->change.arrived;
        h->peer[h->self].passed  = h->change.passed;
    }
    if (!collect_reports(h) || h->n_asked || h->now_s < h->change.retry_s) return;
    if (may_propose(h)) propose_view(h);
}

/* To the leader: the next view is needed. */
static void ask_leader(weft_hosts *h, int leader)
{
    hosts_message m = {.kind = HOSTS_WANT};
    if (h->now_s < h->change.want_s) return;
    h->change.want_s = h->now_s + HOSTS_REPEAT_S;
    memcpy(m.text, h->change.reason, sizeof m.text);
    for (int k = 0; k < h->view->n_host; k++)
        if (h->peer[k].leaving)
            weft_member__send_host(
                h, h->view->host[leader].id,
                &(hosts_message){
                    .kind  = HOSTS_LEAVE,
                    .id    = h->view->host[k].id,
                    .flags = (unsigned)((h->peer[k].by_term ? HOSTS_TERM : 0) |
                                        (h->peer[k].idle ? HOSTS_IDLE : 0) |
                                        (h->peer[k].at_once ? HOSTS_AT_ONCE : 0))});
    for (int k = 0; k < h->view->n_host; k++)
        if (h->peer[k].lost && !h->peer[k].gone) m.id = h->view->host[k].id;
    if (h->change.wanted) weft_member__send_host(h, h->view->host[leader].id, &m);
    weft_member__send_report(h, h->view->host[leader].id);
}

/* Rank 0 has done a job's work: no host is replaced.  A program's ranks end one by one, and those
 * that are left may start again. */
static bool is_work_done(const weft_hosts *h)
{
    int  n_left = 0;
    bool any    = false;
    for (int k = 0; k < h->view->n_host; k++) {
        const hosts_peer *p = &h->peer[k];
        any                 = any || p->done;
        n_left += !p->lost && !p->done && !p->leaving;
    }
    return h->o.restarts ? any && n_left < h->o.min_host : h->peer[0].done;
}

void weft_member__move_change(weft_hosts *h)
{
    int leader = weft_member__acting_leader(h);
    judge_losses(h);
    if (is_work_done(h)) {
        if (h->change.wanted)
            weft_member__end_hosts(h, WEFT_HOSTS_LEFT, "the job's work is done");
        return;
    }
    if (leader != h->self) {
        h->change.leads = false;
        ask_leader(h, leader);
        return;
    }
    if (!h->saving) judge_leaving(h);
    if (!h->saving) weft_member__judge_candidates(h);
    if (h->change.wanted && h->state == HOSTS_MEMBER) lead_change(h);
}

/* ---- the register ---- */

static bool ask_newest(weft_hosts *h, hosts_read why, uint64_t beat)
{
    if (h->n_asked || h->now_s < h->change.retry_s ||
        weft_register_look(h->store, beat) != WEFT_OK)
        return false;
    h->watch.asked = why;
    h->n_asked++;
    return true;
}

/* The first two write keep-alive numbers: one that lives is enough. */
void weft_member__watch_register(weft_hosts *h)
{
    if (h->is_majority || h->now_s < h->watch.next_s) return;
    uint64_t beat = h->self < 2 ? ++h->watch.beat << 16 | (h->o.self.id & 0xffff) : 0;
    if (ask_newest(h, HOSTS_READ_WATCH, beat))
        h->watch.next_s = h->now_s + HOSTS_WATCH * h->o.failure_timeout_s;
}

uint32_t weft_member__next_run(const weft_hosts *h, uint32_t epoch)
{
    return epoch + 1 > h->o.first_epoch ? epoch + 1 : h->o.first_epoch;
}

/* The first view of a run; before it, where the register shall say so, what stands there. */
void weft_member__propose_found(weft_hosts *h)
{
    uint8_t bytes[1024];
    if (h->finds) {
        (void)ask_newest(h, HOSTS_READ_FIND, 0);
        return;
    }
    if (h->n_asked || h->now_s < h->change.retry_s) return;
    weft_member_view *v = h->scratch;
    v->epoch            = h->found_epoch;
    v->proposer         = h->o.self.id;
    v->first_step       = 1;
    v->restarts         = h->follows;
    v->least            = 0;
    v->n_host           = 1;
    v->host[0]          = h->o.self;
    snprintf(v->reason, sizeof v->reason, "host %.64s %s", h->o.self.name,
             h->watch.takes ? "takes the job over" : "begins");
    if (h->is_majority && weft_majority_advance(h->store, h->found_epoch - 1, NULL, 0, 1,
                                                &h->o.self.id) != WEFT_OK)
        return;
    size_t n = weft_member_view_encode(v, bytes, sizeof bytes);
    if (weft_register_propose(h->store, v->epoch, bytes, n) == WEFT_OK) h->n_asked++;
}

/* A candidate knows the newest view, whose hosts do not answer: two reads that far apart show
 * whether they are alive. */
static void judge_run(weft_hosts *h, uint64_t beat)
{
    char why[200];
    bool dead       = h->watch.takes && beat == h->watch.beat;
    h->watch.takes  = true;
    h->watch.beat   = beat;
    h->watch.next_s = h->now_s;
    if (!dead) return;
    h->found_epoch = weft_member__next_run(h, h->view->epoch);
    h->follows     = true;
    snprintf(why, sizeof why,
             "no host of view %u (%.40s%s) has answered for %.3g s, nor left a "
             "keep-alive in the "
             "register: this host takes the job over",
             h->view->epoch, h->view->host[0].name, h->view->n_host > 1 ? ", .." : "",
             h->now_s - h->member_s);
    weft_member__add_action(h, WEFT_HOSTS_WARN, why);
}

/* What a candidate has found; false: it is to be taken as a view. */
static bool take_found(weft_hosts *h, const weft_register_outcome *o)
{
    h->finds = false;
    if (o->result == WEFT_REGISTER_EMPTY) {
        /* where keys of a dead run have vanished */
        h->follows     = h->view->epoch > 0;
        h->found_epoch = weft_member__next_run(h, h->view->epoch);
        return true;
    }
    if (h->view->epoch && o->epoch == h->view->epoch) {
        judge_run(h, o->beat);
        return true;
    }
    h->watch = (hosts_watch){.takes = true, .beat = o->beat, .next_s = h->now_s};
    return false;
}

/* Nothing is decided by a member's read that has no answer: the job goes on. */
static void miss_read(weft_hosts *h, const weft_register_outcome *o)
{
    if (!h->watch.fails) weft_member__add_action(h, WEFT_HOSTS_WARN, o->why);
    h->watch.fails = true;
}

static void miss_register(weft_hosts *h, const weft_register_outcome *o)
{
    h->change.retry_s = h->now_s + 1;
    if (h->unknown_s <= 0) {
        h->unknown_s = h->now_s;
        weft_member__add_action(h, WEFT_HOSTS_WARN, o->why);
    } else if (h->now_s - h->unknown_s >= HOSTS_REGISTER_S) {
        weft_member__end_alone(h, o->why);
    }
}

static void take_outcome(weft_hosts *h, const weft_register_outcome *o)
{
    char       why[200];
    hosts_read asked = h->watch.asked;
    h->watch.asked   = HOSTS_READ_NONE;
    if (h->n_asked) h->n_asked--;
    if (o->result == WEFT_REGISTER_UNKNOWN) {
        asked == HOSTS_READ_WATCH ? miss_read(h, o) : miss_register(h, o);
        return;
    }
    h->watch.fails = false;
    h->unknown_s   = 0;
    if (asked == HOSTS_READ_FIND && take_found(h, o)) return;
    if (o->result != WEFT_REGISTER_STANDS) return;
    if (h->state == HOSTS_CANDIDATE) {
        h->found_epoch = 0;
        h->member_s    = h->now_s; /* hosts that are new to it may answer */
    }
    if (weft_member__adopt_view(h, o->bytes, o->n, asked == HOSTS_READ_NONE)) return;
    snprintf(why, sizeof why,
             "the register holds something else than views for epoch %u: give another "
             "--rdzv",
             o->epoch);
    weft_member__end_hosts(h, WEFT_HOSTS_ALONE, why);
}

void weft_member__poll_register(weft_hosts *h)
{
    weft_register_outcome o;
    weft_majority_message m;
    if (h->is_majority) weft_majority_tick(h->store, h->now_s);
    while (h->state != HOSTS_OVER && weft_register_next(h->store, &o))
        take_outcome(h, &o);
    while (h->is_majority && weft_majority_send(h->store, &m))
        weft_member__send_host(
            h, m.to, &(hosts_message){.kind = HOSTS_VOTE, .bytes = m.bytes, .n = m.n});
}
