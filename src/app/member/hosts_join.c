/* Hosts that join: candidates, and what they prepare before they are in a view.
 *
 *     candidate  --JOIN-->            every member, again and again
 *     leader     --PREPARE, a view--> candidates that come together, when a step was committed
 *     candidate  --JOIN, prepared-->  then the leader asks for the next view
 *     members    --TAKE, no hosts-->  candidates, when all have done their work
 *
 *     candidate  --JOIN, unused-->    it would have no rank: it waits
 *
 * The leader's agent has hosts that stay prepare meanwhile, and before one leaves.
 *
 * (1) A candidate that is lost, or silent, while it prepares changes nothing for the job.
 * (2) What was prepared need not be right: the view that is decided may be another one.  Those that
 *     prepare are asked again after a view without them.
 * (3) Hosts join between steps, those that come together at once: a join that follows a join has
 *     steps before it, so growth comes to an end. */
#include <stdio.h>
#include <string.h>

#include "member/hosts_priv.h"

/* ---- candidates, as a member knows them ---- */

/* Was it asked to prepare for the next view, and is it waited for? */
static bool is_waited_for(const weft_hosts *h, const hosts_candidate *c)
{
    return c->asked == h->view->epoch && c->late != h->view->epoch;
}

static bool is_prepared(const weft_hosts *h, const hosts_candidate *c)
{
    return c->prepared == h->view->epoch;
}

/* All hosts have done their work: no view follows. */
static bool is_at_end(const weft_hosts *h)
{
    return h->state == HOSTS_MEMBER && weft_hosts_have_done(h, h->view->n_host);
}

static void warn_of(weft_hosts *h, const weft_member_host *host, const char *what)
{
    char why[250];
    snprintf(why, sizeof why, "host %s (%s) %s: the job goes on without it", host->name,
             host->control, what);
    weft_member__add_action(h, WEFT_HOSTS_WARN, why);
}

/* Those from k on have other ranks now. */
static void forget_asked(weft_hosts *h, int k)
{
    for (; k < h->n_candidate; k++)
        if (is_waited_for(h, &h->candidate[k]))
            h->candidate[k].asked = h->candidate[k].prepared = 0;
}

void weft_member__drop_candidate(weft_hosts *h, uint64_t id)
{
    int k = 0;
    while (k < h->n_candidate && h->candidate[k].host.id != id) k++;
    if (k == h->n_candidate) return;
    bool waited = is_waited_for(h, &h->candidate[k]) && !is_at_end(h);
    if (waited) warn_of(h, &h->candidate[k].host, "has gone while it prepared to join");
    h->n_candidate--;
    memmove(&h->candidate[k], &h->candidate[k + 1],
            sizeof *h->candidate * (size_t)(h->n_candidate - k));
    if (waited) forget_asked(h, k);
}

void weft_member__drop_silent(weft_hosts *h)
{
    for (int k = h->n_candidate - 1; k >= 0; k--)
        if (h->now_s - h->candidate[k].heard_s >= h->o.failure_timeout_s)
            weft_member__drop_candidate(h, h->candidate[k].host.id);
}

void weft_member__hear_join(weft_hosts *h, uint64_t from, const hosts_message *m)
{
    int k = 0;
    if (m->epoch < h->view->epoch)
        weft_member__send_view(h, from);
    else if (h->state == HOSTS_MEMBER) /* it need not search for another job */
        weft_member__send_host(h, from, &(hosts_message){.kind = HOSTS_ALIVE});
    if (h->state != HOSTS_MEMBER || m->host.id != from || h->saving || !m->host.n_rank ||
        weft_member_view_find(h->view, from) >= 0)
        return;
    while (k < h->n_candidate && h->candidate[k].host.id != from) k++;
    if (k == HOSTS_MAX_CANDIDATE) return;
    hosts_candidate *c = &h->candidate[k];
    if (k == h->n_candidate) {
        *c = (hosts_candidate){0};
        h->n_candidate++;
        h->candidate_s = h->now_s;
        for (int i = 0; i < k; i++)
            h->candidate[i].unused = 0; /* with it they may be of use */
    }
    c->host    = m->host;
    c->heard_s = h->now_s;
    /* as long as it learns more it is not late */
    if (m->epoch == h->view->epoch && m->percent > c->learned && is_waited_for(h, c))
        h->prepare_s = h->now_s;
    c->learned = m->epoch == h->view->epoch ? m->percent : 0;
    if (m->epoch != h->view->epoch) return;
    if ((m->flags & HOSTS_UNUSED) && is_waited_for(h, c)) {
        c->unused = m->epoch;
        forget_asked(h, k);
    }
    if (!(m->flags & HOSTS_PREPARED)) return;
    c->prepared = m->epoch;
    c->late     = 0;
}

/* ---- the leader ---- */

/* The view as it will be when all join that are waited for, and all leave that are to. */
static void build_expected(const weft_hosts *h, weft_member_view *v)
{
    weft_member_view_copy(v, h->view);
    v->epoch++;
    v->proposer = h->o.self.id;
    v->restarts = false;
    *v->reason  = 0;
    v->n_host   = 0;
    for (int k = 0; k < h->view->n_host; k++)
        if (!h->peer[k].leaving) v->host[v->n_host++] = h->view->host[k];
    for (int k = 0; k < h->n_candidate && v->n_host < h->o.max_host; k++)
        if (is_waited_for(h, &h->candidate[k]))
            v->host[v->n_host++] = h->candidate[k].host;
}

static void send_expected(weft_hosts *h)
{
    uint8_t bytes[WEFT_MEMBER_VIEW_MOST];
    if (h->now_s < h->repeat_s) return;
    h->repeat_s = h->now_s + 2 * HOSTS_REPEAT_S;
    build_expected(h, h->scratch);
    size_t n = weft_member_view_encode(h->scratch, bytes, sizeof bytes);
    for (int k = 0; k < h->n_candidate; k++)
        if (is_waited_for(h, &h->candidate[k]) && !is_prepared(h, &h->candidate[k]))
            weft_member__send_host(
                h, h->candidate[k].host.id,
                &(hosts_message){.kind = HOSTS_PREPARE, .bytes = bytes, .n = n});
}

/* One that has heard that it is to prepare, and cannot, ends; one that is still there later has not
 * heard it. */
static bool is_late(const weft_hosts *h, const hosts_candidate *c)
{
    return c->late == h->view->epoch && h->now_s - c->late_s < 2 * h->o.prepare_s;
}

/* Those that are there and not late begin together. */
static bool begin_preparing(weft_hosts *h)
{
    int n = h->view->n_host;
    if (n + h->n_candidate < h->o.max_host && h->now_s - h->candidate_s < HOSTS_JOIN_S)
        return false;
    for (int k = 0; k < h->n_candidate && n < h->o.max_host; k++) {
        if (is_late(h, &h->candidate[k]) || h->candidate[k].unused == h->view->epoch)
            continue;
        h->candidate[k].asked = h->view->epoch;
        h->candidate[k].late  = 0;
        n++;
    }
    h->prepare_s = h->now_s;
    h->repeat_s  = 0;
    return n > h->view->n_host;
}

static void end_waiting(weft_hosts *h)
{
    char what[64];
    for (int k = 0; k < h->n_candidate; k++) {
        hosts_candidate *c = &h->candidate[k];
        if (!is_waited_for(h, c) || is_prepared(h, c)) continue;
        c->late   = h->view->epoch;
        c->late_s = h->now_s;
        snprintf(what, sizeof what, "is not prepared to join after %.3g s",
                 h->o.prepare_s);
        warn_of(h, &c->host, what);
    }
}

/* Do ranks have the same numbers in both? */
static bool has_same_ranks(const weft_member_view *a, const weft_member_view *b)
{
    if (a->epoch != b->epoch || a->n_host != b->n_host) return false;
    for (int k = 0; k < a->n_host; k++)
        if (a->host[k].id != b->host[k].id || a->host[k].n_rank != b->host[k].n_rank)
            return false;
    return true;
}

bool weft_member__prepare_members(weft_hosts *h, double limit_s)
{
    bool trains = weft_hosts_is_ready(h) && h->has_step;
    if (limit_s <= 0 || !trains || h->change.wanted) return true;
    build_expected(h, h->scratch);
    if (!has_same_ranks(h->scratch, h->expected)) {
        weft_member_view_copy(h->expected, h->scratch);
        h->prepared                                            = false;
        h->ahead_s                                             = h->now_s;
        weft_member__add_action(h, WEFT_HOSTS_PREPARE, "")->id = h->o.self.id;
    }
    return h->prepared || h->now_s - h->ahead_s >= limit_s;
}

/* Are all prepared that are waited for, and those that stay?  No other host waits meanwhile. */
static bool prepare_candidates(weft_hosts *h)
{
    int n_waited = 0, n_open = 0;
    for (int k = 0; k < h->n_candidate; k++) {
        bool waited = is_waited_for(h, &h->candidate[k]);
        n_waited += waited;
        n_open += waited && !is_prepared(h, &h->candidate[k]);
    }
    if (!n_waited) n_open = n_waited = begin_preparing(h);
    if (n_open && h->now_s - h->prepare_s >= h->o.prepare_s) {
        end_waiting(h);
        n_waited -= n_open;
        n_open = 0;
    }
    if (n_open) send_expected(h);
    bool stay = n_waited && weft_member__prepare_members(h, h->o.prepare_s);
    return n_waited && !n_open && stay;
}

static const char *name_joiner(const weft_hosts *h)
{
    for (int k = 0; k < h->n_candidate; k++)
        if (is_prepared(h, &h->candidate[k])) return h->candidate[k].host.name;
    return h->candidate[0].host.name;
}

/* Hosts without which no rank runs. */
static int find_least(const weft_hosts *h)
{
    return h->view->least > h->o.min_host ? h->view->least : h->o.min_host;
}

void weft_member__judge_candidates(weft_hosts *h)
{
    char text[200];
    int  n = h->view->n_host, next = n + h->n_candidate;
    bool enough = weft_hosts_is_enough(h), prepares = enough && h->o.prepare_s > 0;
    if (!h->n_candidate || n >= h->o.max_host || h->change.wanted) return;
    if (is_at_end(h)) return;
    if (enough ? !weft_hosts_is_ready(h) || !h->has_step : next < find_least(h)) return;
    if (prepares && !prepare_candidates(h)) return;
    if (!prepares && next < h->o.max_host && h->now_s - h->candidate_s < HOSTS_JOIN_S)
        return;
    snprintf(text, sizeof text, "host %s joins", name_joiner(h));
    weft_member__want_change(h, text);
}

void weft_member__add_candidates(weft_hosts *h, weft_member_view *next, int n_lost)
{
    /* no rank runs without them, or nothing is prepared */
    bool all = h->o.prepare_s <= 0 || !weft_hosts_is_enough(h) ||
               next->n_host < h->o.min_host || next->n_host < next->least;
    for (int k = 0; k < h->n_candidate && next->n_host < h->o.max_host; k++) {
        const hosts_candidate *c = &h->candidate[k];
        bool replaces = c->asked != h->view->epoch && n_lost > 0; /* it has waited */
        if (!all && !replaces && !is_prepared(h, c)) continue;
        if (replaces) n_lost--;
        next->host[next->n_host++] = c->host;
    }
}

void weft_member__end_candidates(weft_hosts *h)
{
    uint8_t bytes[512];
    if (!h->n_candidate || !is_at_end(h) || h->now_s < h->end_s) return;
    h->end_s = h->now_s + HOSTS_REPEAT_S;
    size_t n = weft_member_view_encode_end(h->view, h->o.self.id, bytes, sizeof bytes);
    for (int k = 0; k < h->n_candidate; k++)
        weft_member__send_host(
            h, h->candidate[k].host.id,
            &(hosts_message){.kind = HOSTS_TAKE, .bytes = bytes, .n = n});
}

/* ---- a candidate ---- */

void weft_member__ask_to_join(weft_hosts *h)
{
    bool          prepared = h->prepared && h->expected->epoch == h->view->epoch + 1;
    unsigned      flags = h->says_unused ? HOSTS_UNUSED : prepared ? HOSTS_PREPARED : 0;
    hosts_message m     = {.kind = HOSTS_JOIN, .host = h->o.self, .flags = flags};
    if (h->expected->epoch == h->view->epoch + 1) m.percent = h->learned;
    h->join_s      = h->now_s + 2 * HOSTS_REPEAT_S;
    h->says_unused = false;
    for (int k = 0; k < h->n_contact; k++) weft_member__send_host(h, h->contact[k], &m);
    for (int k = 0; k < h->view->n_host; k++)
        weft_member__send_host(h, h->view->host[k].id, &m);
}

void weft_member__hear_prepare(weft_hosts *h, uint64_t from, const hosts_message *m)
{
    if (h->state != HOSTS_CANDIDATE || m->n > WEFT_MEMBER_VIEW_MOST ||
        weft_member_view_decode(m->bytes, m->n, h->scratch) != WEFT_OK ||
        h->scratch->epoch != h->view->epoch + 1 ||
        weft_member_view_find(h->scratch, h->o.self.id) < 0)
        return;
    if (has_same_ranks(h->scratch, h->expected)) {
        h->says_unused = h->unused;
        if (h->prepared || h->unused) h->join_s = 0; /* it was not heard */
        return;
    }
    weft_member_view_copy(h->expected, h->scratch);
    h->prepared = h->unused = false;
    h->learned              = 0;
    if (h->expected->n_host == h->o.unused_of)
        weft_member__note_unused(h, h->expected->epoch);
    else
        weft_member__add_action(h, WEFT_HOSTS_PREPARE, "")->id = from;
}

void weft_member__note_unused(weft_hosts *h, uint32_t epoch)
{
    if (h->state != HOSTS_CANDIDATE || !epoch || h->expected->epoch != epoch) return;
    h->unused = h->says_unused = true;
    h->prepared                = false;
    h->join_s                  = 0;
}

void weft_member__note_learned(weft_hosts *h, uint32_t epoch, int percent)
{
    if (h->state != HOSTS_CANDIDATE || !epoch || h->expected->epoch != epoch) return;
    h->learned = percent < 0 ? 0 : percent > 100 ? 100 : percent;
    h->join_s  = 0;
}

const weft_member_host *weft_hosts_learner(const weft_hosts *h, int k, int *percent)
{
    for (int n = 0; h->state == HOSTS_MEMBER && n < h->n_candidate; n++) {
        const hosts_candidate *c = &h->candidate[n];
        if (!c->learned || k-- > 0) continue;
        *percent = c->learned;
        return &c->host;
    }
    return NULL;
}

void weft_member__note_prepared(weft_hosts *h, uint32_t epoch)
{
    if (!epoch || h->expected->epoch != epoch) return;
    h->prepared = true;
    h->join_s   = 0;
}
