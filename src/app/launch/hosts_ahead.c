/* Before a view that is planned (weft scale, a host that joins or leaves): the ranks that stay make
 * the memory that they will need in it (session/memory_ahead.c), and new ones of the same hosts
 * prepare, while all train.
 *
 *     the agent that asks    AHEAD, the view to come, to each host that is in both views
 *     each of those          its ranks prepare; AHEAD_DONE when they have, or are late
 *     the agent that asks    the view, by the agreement or by weft scale
 *
 * (1) What is prepared need not be right: the view that is decided may be another one.
 * (2) A frame that is lost is sent once more.  Who does not answer in time is not waited for.
 * (3) A host prepares for one agent at a time.  Who asks and is lost has changed nothing: new ranks
 *     that are not taken end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "launch/hosts_priv.h"

/* ---- ranks of this host ---- */

static bool is_next(const weft_launch__run *l, uint32_t epoch)
{
    return epoch == weft_hosts_view(l->hosts->agreement)->epoch + 1;
}

static bool has_more(const weft_launch__run *l)
{
    return l->hosts->prepare.local > weft_launch__agent_count(l);
}

bool weft_launch__expect_view(weft_launch__hosts *h, const weft_member_view *v)
{
    host_prepare *p  = &h->prepare;
    int           me = weft_member_view_find(v, h->self.id), first = 0;
    char          hosts[sizeof p->hosts] = "";
    for (int i = 0, n = 0; i < v->n_host && n < (int)sizeof hosts - 16; i++)
        n += snprintf(hosts + n, sizeof hosts - (size_t)n, "%d ", v->host[i].n_rank);
    for (int i = 0; i < me; i++) first += v->host[i].n_rank;
    bool same = !strcmp(hosts, p->hosts) && first == p->first;
    memcpy(p->hosts, hosts, sizeof hosts);
    p->world = weft_member_view_ranks(v);
    p->first = first;
    p->local = v->host[me].n_rank;
    return same;
}

bool weft_launch__expect_lesson(weft_launch__hosts *h, const weft_member_view *v,
                                const host_lesson *lesson)
{
    host_prepare *p = &h->prepare;
    int           i = 0, first = 0;
    while (i < v->n_host && first < lesson->first) first += v->host[i++].n_rank;
    bool fits = i > 0 && i < v->n_host && first == lesson->first;
    bool same = lesson->first == p->lesson.first &&
                !memcmp(&lesson->key, &p->lesson.key, sizeof lesson->key);
    p->lesson = fits ? *lesson : (host_lesson){0};
    snprintf(p->lesson_at, sizeof p->lesson_at, "%s", fits ? v->host[i].data : "");
    if (!same) p->learned = -1;
    return same;
}

static void report_done(weft_launch__run *l)
{
    weft_launch__hosts *h    = l->hosts;
    host_use            done = {h->ahead.epoch, h->prepare.world};
    const host_link    *link = weft_launch__find_link(h, h->ahead.from, true);
    weft_failpoint("hosts.ahead_done");
    if (h->ahead.from == h->self.id)
        weft_launch__ahead_done(l, h->self.id, &done);
    else if (link)
        weft_launch__send_frame(h, link->peer, FRAME_VIEW_PREPARED, &done, sizeof done);
}

/* v has this host. */
static void take_ahead(weft_launch__run *l, uint64_t from, const weft_member_view *v,
                       const host_lesson *lesson)
{
    weft_launch__hosts *h    = l->hosts;
    host_ahead         *a    = &h->ahead;
    double              now  = weft_clock_s();
    bool                busy = a->from && is_next(l, a->epoch) && !a->reported;
    if (!l->agent || h->over || h->drain_s > 0) return;
    if (busy && a->from != from && now < a->limit_s) return;
    bool same = weft_launch__expect_view(h, v) && a->from && a->epoch == v->epoch;
    same      = weft_launch__expect_lesson(h, v, lesson) && same;
    if (same) {
        a->from = from;
        if (a->reported) report_done(l); /* that was not heard */
        return;
    }
    weft_failpoint("hosts.ahead");
    weft_launch__drop_preparing(l);
    *a = (host_ahead){.from    = from,
                      .epoch   = v->epoch,
                      .limit_s = now + weft_launch__prepare_limit_s(l)};
}

void weft_launch__ahead_end(weft_launch__run *l)
{
    bool more       = l->hosts->ahead.from && has_more(l);
    l->hosts->ahead = (host_ahead){0};
    if (more) weft_launch__drop_preparing(l);
}

/* false: it is to be asked again. */
static bool begin_ranks(weft_launch__run *l)
{
    const host_prepare *p = &l->hosts->prepare;
    if (has_more(l) && !weft_launch__agent_may_grow(l)) return false;
    weft_launch__forget_asked(l);
    if (!has_more(l)) return true;
    weft_launch__say(l, -1, "info", "ranks up to %d of this host: new ones prepare",
                     p->first + p->local - 1);
    weft_launch__agent_grow(l, p->local);
    return true;
}

static void tick_ranks(weft_launch__run *l, double now_s)
{
    weft_launch__hosts *h    = l->hosts;
    host_ahead         *a    = &h->ahead;
    bool                late = now_s >= a->limit_s;
    if (!a->from) return;
    if (!is_next(l, a->epoch)) { /* its view, or another one, has ended what was begun */
        *a = (host_ahead){0};
        return;
    }
    bool unused = a->reported && now_s >= a->limit_s + weft_launch__prepare_limit_s(l);
    if (h->over || h->drain_s > 0 || unused || weft_launch__agent_is_over(l)) {
        weft_launch__ahead_end(l);
        return;
    }
    if (a->reported) return;
    if (!a->begun) a->begun = begin_ranks(l);
    if (!late && (!a->begun || !weft_launch__have_prepared(l, h->prepare.local))) return;
    a->reported = true;
    report_done(l);
}

bool weft_launch__hosts_end_grow(weft_launch__run *l, int r, const char *what)
{
    weft_launch__hosts *h    = l->hosts;
    host_use            stay = {.n_rank = weft_launch__hosts_world(l)};
    if (!h->ahead.from || !h->ahead.begun || !is_next(l, h->ahead.epoch) || !has_more(l))
        return false;
    weft_launch__say(l, -1, "warn", "rank %d: %s before it has started; %d ranks go on",
                     weft_launch__rank(l, r), what, stay.n_rank);
    weft_launch__send_all(h, FRAME_STAYS, &stay, sizeof stay);
    weft_launch__take_stays(l, &stay);
    return true;
}

void weft_launch__take_stays(weft_launch__run *l, const host_use *stay)
{
    if (!l->agent) return;
    if (l->hosts->asking.n_scale) l->hosts->asking.on = false;
    weft_launch__ahead_end(l);
    weft_launch__agent_stay(l, stay->n_rank);
}

/* ---- the agent that asks ---- */

weft_member_view *weft_launch__ahead_ask(weft_launch__run *l, int n_scale)
{
    weft_launch__hosts *h = l->hosts;
    host_asking        *x = &h->asking;
    if (!x->view) x->view = calloc(1, sizeof *x->view);
    if (!x->view) return NULL;
    if (x->on && !x->n_scale) /* what the agreement asks for does not wait for this */
        weft_launch__tell_hosts(
            h, (weft_hosts_event){.kind = WEFT_HOSTS_PREPARED, .epoch = x->view->epoch});
    weft_member_view_copy(x->view, weft_hosts_view(h->agreement));
    x->view->epoch++;
    x->on       = true;
    x->lesson   = (host_lesson){0};
    x->n_scale  = n_scale;
    x->repeat_s = 0;
    x->limit_s  = weft_clock_s() + weft_launch__prepare_limit_s(l);
    memset(x->has, 0, sizeof x->has);
    return x->view;
}

/* The hosts that are new in the view learn from the others, where they are its last ones. */
static void draw_lesson(weft_launch__hosts *h)
{
    host_asking            *x    = &h->asking;
    const weft_member_view *now  = weft_hosts_view(h->agreement);
    int                     stay = 0, first = 0;
    bool                    order = true;
    x->lesson                     = (host_lesson){0};
    for (int i = 0; i < x->view->n_host; i++) {
        bool was = weft_member_view_find(now, x->view->host[i].id) >= 0;
        order    = order && (!was || stay == i);
        if (was) first += x->view->host[i].n_rank;
        stay += was;
    }
    if (!order || !stay || stay == x->view->n_host) return;
    if (weft_comm_random(&x->lesson.key, sizeof x->lesson.key) == WEFT_OK)
        x->lesson.first = first;
}

void weft_launch__ahead_expected(weft_launch__run *l)
{
    weft_launch__hosts     *h        = l->hosts;
    const weft_member_view *expected = weft_hosts_expected(h->agreement);
    bool                    scales   = h->asking.on && h->asking.n_scale;
    weft_member_view       *v        = scales ? NULL : weft_launch__ahead_ask(l, 0);
    if (v) {
        weft_member_view_copy(v, expected);
        draw_lesson(h);
    } else { /* the request is taken up again in the view that follows */
        weft_launch__tell_hosts(
            h, (weft_hosts_event){.kind = WEFT_HOSTS_PREPARED, .epoch = expected->epoch});
    }
}

static void send_ahead(weft_launch__run *l, uint64_t to, const uint8_t *bytes, size_t n)
{
    weft_launch__hosts *h    = l->hosts;
    const host_link    *link = weft_launch__find_link(h, to, true);
    if (to == h->self.id)
        take_ahead(l, to, h->asking.view, &h->asking.lesson);
    else if (link)
        weft_launch__send_frame(h, link->peer, FRAME_PREPARE_VIEW, bytes, n);
    else
        weft_launch__connect_host(h, to);
}

/* Have all done so?  Those that have not are asked. */
static bool ask_hosts(weft_launch__run *l, double now_s)
{
    weft_launch__hosts     *h = l->hosts;
    host_asking            *x = &h->asking;
    const weft_member_view *v = weft_hosts_view(h->agreement);
    uint8_t                 bytes[sizeof x->lesson + WEFT_MEMBER_VIEW_MOST];
    size_t                  n =
        weft_member_view_encode(x->view, bytes + sizeof x->lesson, WEFT_MEMBER_VIEW_MOST);
    memcpy(bytes, &x->lesson, sizeof x->lesson);
    if (n) n += sizeof x->lesson;
    bool repeat = now_s >= x->repeat_s, all = true;
    if (repeat) x->repeat_s = now_s + ASK_S;
    for (int i = 0; i < v->n_host && n; i++) {
        if (x->has[i] || weft_member_view_find(x->view, v->host[i].id) < 0) continue;
        if (repeat) send_ahead(l, v->host[i].id, bytes, n);
        all = all && x->has[i];
    }
    return all;
}

static void tick_asking(weft_launch__run *l, double now_s)
{
    weft_launch__hosts *h = l->hosts;
    host_asking        *x = &h->asking;
    if (!x->on) return;
    if (h->over || weft_launch__agent_is_over(l)) {
        x->on = false;
        return;
    }
    if (!is_next(l, x->view->epoch)) {
        x->on = false;
        if (x->n_scale) weft_launch__scale_ahead(l, x->n_scale);
        return;
    }
    if (!ask_hosts(l, now_s) && now_s < x->limit_s) return;
    x->on = false;
    if (x->n_scale)
        weft_launch__scale_now(l, x->n_scale);
    else
        weft_launch__tell_hosts(
            h, (weft_hosts_event){.kind = WEFT_HOSTS_PREPARED, .epoch = x->view->epoch});
    weft_launch__hosts_act(l);
}

void weft_launch__ahead_done(weft_launch__run *l, uint64_t from, const host_use *done)
{
    weft_launch__hosts *h = l->hosts;
    host_asking        *x = &h->asking;
    int                 k = weft_member_view_find(weft_hosts_view(h->agreement), from);
    if (x->on && k >= 0 && done->epoch == x->view->epoch &&
        done->n_rank == weft_member_view_ranks(x->view))
        x->has[k] = true;
}

/* ---- both ---- */

void weft_launch__ahead_hear(weft_launch__run *l, const host_frame *f)
{
    weft_launch__hosts *h = l->hosts;
    if (f->kind == FRAME_VIEW_PREPARED) weft_launch__ahead_done(l, f->from, &f->use);
    if (f->kind != FRAME_PREPARE_VIEW || !weft_hosts_is_member(h->agreement)) return;
    weft_member_view *v = calloc(1, sizeof *v);
    if (v && weft_member_view_decode(f->bytes, f->n, v) == WEFT_OK &&
        is_next(l, v->epoch) && weft_member_view_find(v, h->self.id) >= 0)
        take_ahead(l, f->from, v, &f->lesson);
    free(v);
}

void weft_launch__ahead_tick(weft_launch__run *l, double now_s)
{
    if (!l->agent) return;
    tick_ranks(l, now_s);
    tick_asking(l, now_s);
}
