/* What is heard of other hosts, and which of them are lost. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "member/hosts_priv.h"
#include "register/majority.h"

/* ---- silence ---- */

static double silence_of(const weft_hosts *h, int k)
{
    return h->now_s - h->peer[k].heard_s;
}

/* Another agent that is heard, to ask about host k; -1: there is none. */
static int find_witness(const weft_hosts *h, int k)
{
    double limit_s = HOSTS_SUSPECT / 2 * h->o.failure_timeout_s;
    for (int i = 0; i < h->view->n_host; i++)
        if (i != k && i != h->self && !h->peer[i].lost && !h->peer[i].done &&
            silence_of(h, i) < limit_s)
            return i;
    return -1;
}

void weft_member__watch_peers(weft_hosts *h)
{
    for (int k = 0; k < h->view->n_host; k++) {
        hosts_peer *p = &h->peer[k];
        if (k == h->self || p->lost || p->done) continue;
        double silent_s = silence_of(h, k);
        if (silent_s >= h->o.failure_timeout_s) p->lost = true;
        if (p->lost || silent_s < HOSTS_SUSPECT * h->o.failure_timeout_s ||
            h->now_s - p->probed_s < HOSTS_ALIVE_S)
            continue;
        p->probed_s = h->now_s;
        int witness = find_witness(h, k);
        if (witness >= 0)
            weft_member__send_host(
                h, h->view->host[witness].id,
                &(hosts_message){.kind = HOSTS_PROBE, .id = h->view->host[k].id});
    }
    weft_member__drop_silent(h);
}

/* ---- messages of this view ---- */

static void hear_alive(weft_hosts *h, hosts_peer *p, const hosts_message *m)
{
    if (m->flags & HOSTS_READY) p->ready = true;
    if (m->flags & HOSTS_DONE) p->done = true;
    if (m->flags & HOSTS_SAVING) h->few = h->few || m->flags & HOSTS_FEW;
    if (m->flags & HOSTS_SAVING) weft_member__save_all(h, m->text, m->flags & HOSTS_INT);
}

/* Two hosts do not hear each other: the later one is left out. */
static void hear_want(weft_hosts *h, int from, const hosts_message *m)
{
    int silent = m->id ? weft_member_view_find(h->view, m->id) : -1;
    weft_member__want_change(h, m->text);
    if (silent < 0 || silent == h->self || h->peer[silent].lost) return;
    int later          = silent > from ? silent : from;
    h->peer[later].cut = h->peer[later].lost = true;
}

static void hear_report(hosts_peer *p, const hosts_message *m, double now_s)
{
    p->reported = true;
    p->arrived  = m->arrived;
    p->passed   = m->passed;
    p->n_rank   = m->n_rank;
    if ((m->flags & HOSTS_LEAVING) && !p->leaving) {
        p->leaving = true;
        p->by_term = m->flags & HOSTS_TERM;
        p->term_s  = now_s;
    }
}

static void hear_probe(weft_hosts *h, uint64_t from, const hosts_message *m)
{
    int k = weft_member_view_find(h->view, m->id);
    if (k < 0) return;
    double age_s = k == h->self ? 0 : h->peer[k].gone ? 1e6 : silence_of(h, k);
    weft_member__send_host(
        h, from,
        &(hosts_message){.kind   = HOSTS_HEARD,
                         .id     = m->id,
                         .age_ms = (uint32_t)(1000 * fmin(age_s, 1e6))});
}

/* A second agent has not heard of it either. */
static void hear_witness(weft_hosts *h, const hosts_message *m)
{
    int    k       = weft_member_view_find(h->view, m->id);
    double limit_s = HOSTS_SUSPECT * h->o.failure_timeout_s;
    if (k < 0 || k == h->self || silence_of(h, k) < limit_s) return;
    if (m->age_ms >= 1000 * (limit_s - 2 * HOSTS_ALIVE_S)) h->peer[k].lost = true;
}

static void hear_leave(weft_hosts *h, const hosts_message *m)
{
    int k = weft_member_view_find(h->view, m->id);
    if (k < 0 || h->peer[k].leaving) return;
    h->peer[k].leaving = true;
    h->peer[k].by_term = m->flags & HOSTS_TERM;
    h->peer[k].at_once = m->flags & HOSTS_AT_ONCE;
    h->peer[k].idle    = m->flags & HOSTS_IDLE;
    h->peer[k].term_s  = h->now_s;
}

/* Who sees a majority itself goes on with that. */
static void hear_together(weft_hosts *h, uint64_t from, const hosts_message *m)
{
    char              why[200];
    weft_member_view *v = h->scratch;
    if (!h->is_majority || !h->change.stopped || weft_member__sees_majority(h)) return;
    if (m->n > WEFT_MEMBER_VIEW_MOST ||
        weft_member_view_decode(m->bytes, m->n, v) != WEFT_OK ||
        v->epoch != h->view->epoch + 1 || v->n_host < 2 || v->host[0].id != from ||
        weft_member_view_find(v, h->o.self.id) < 0)
        return;
    for (int i = 0; i < v->n_host; i++)
        if (weft_member_view_find(h->view, v->host[i].id) < 0) return;
    weft_member__describe_few(h, v->n_host, why, sizeof why);
    weft_member__end_together(h, why);
}

static void hear_member(weft_hosts *h, int k, const hosts_message *m)
{
    uint64_t from = h->view->host[k].id;
    switch (m->kind) {
    case HOSTS_ALIVE: hear_alive(h, &h->peer[k], m); break;
    case HOSTS_WANT: hear_want(h, k, m); break;
    case HOSTS_COLLECT:
        weft_member__want_change(h, WEFT_HOSTS_ASKED);
        if (m->flags & HOSTS_LEAVING) h->peer[h->self].leaving = true;
        weft_member__stop_ranks(h);
        weft_member__send_report(h, from);
        break;
    case HOSTS_REPORT: hear_report(&h->peer[k], m, h->now_s); break;
    case HOSTS_PROBE: hear_probe(h, from, m); break;
    case HOSTS_HEARD: hear_witness(h, m); break;
    case HOSTS_LEAVE: hear_leave(h, m); break;
    case HOSTS_TOGETHER: hear_together(h, from, m); break;
    default: break;
    }
}

static void note_heard(weft_hosts *h, int k)
{
    hosts_peer *p = &h->peer[k];
    p->heard_s    = h->now_s;
    p->gone       = false; /* its connection ended, and it has another one */
    if (!p->cut) p->lost = false;
}

void weft_member__hear_message(weft_hosts *h, uint64_t from, const hosts_message *m)
{
    int k = weft_member_view_find(h->view, from);
    if (from == h->o.self.id) return;
    if (m->kind == HOSTS_ALIVE || m->kind == HOSTS_TAKE) h->member_s = h->now_s;
    if (k >= 0) note_heard(h, k);
    if (m->kind == HOSTS_VOTE) {
        if (h->is_majority) weft_majority_receive(h->store, from, m->bytes, m->n);
    } else if (m->kind == HOSTS_TAKE) {
        (void)weft_member__adopt_view(h, m->bytes, m->n, false);
        if (h->state == HOSTS_OUTSIDE && m->epoch >= h->view->epoch &&
            weft_member_view_find(h->view, from) >= 0)
            weft_member__end_hosts(h, WEFT_HOSTS_LEFT, "");
    } else if (m->kind == HOSTS_ASK) {
        weft_member__send_view(h, from);
    } else if (m->kind == HOSTS_JOIN) {
        weft_member__hear_join(h, from, m);
    } else if (m->epoch < h->view->epoch) {
        weft_member__send_view(h, from); /* it is behind, or not in the job any more */
    } else if (m->epoch > h->view->epoch) {
        weft_member__send_host(h, from, &(hosts_message){.kind = HOSTS_ASK});
    } else if (k >= 0 && h->state == HOSTS_MEMBER) {
        hear_member(h, k, m);
    } else if (k >= 0 && m->kind == HOSTS_PREPARE) {
        weft_member__hear_prepare(h, from, m);
    }
}
