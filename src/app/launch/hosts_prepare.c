/* A host that joins prepares before it is in a view, while the others train: its agent starts the
 * ranks beyond the view, with the numbers that they are to have in it (agent_scale.c, as new ranks
 * of one host), and reports when they are done.
 *
 *     this agent    asks the one that sent it the view to come
 *     that agent    sends what its first rank has left for new ranks: their brief
 *     ranks here    prepare with it (session/prepare.c)
 *
 * (1) The view that is decided may be another one, and the brief out of date: what was prepared is
 *     checked again in the view.
 * (2) A rank that is lost while it prepares means that this host joins unprepared; one that reports
 *     an error of its own, that this host does not join, and the job does not notice. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "launch/hosts_priv.h"

enum {
    /* a larger one is not sent */
    MAX_BRIEF = WEFT_CONTROL_FRAME_MOST - 64 - (int)sizeof(host_lesson)
};

#define MORE_S 1 /* for the job to say first that this host is not waited for */

int weft_launch__hosts_local_for(const weft_launch__run *l)
{
    return l->hosts->prepare.local;
}

int weft_launch__hosts_world_for(const weft_launch__run *l, int r)
{
    bool prepares = l->agent && !l->hosts->saves &&
                    weft_launch__position(l, r) >= weft_launch__agent_count(l);
    return prepares ? l->hosts->prepare.world : weft_launch__hosts_world(l);
}

void weft_launch__hosts_fill_prepare(const weft_launch__run *l, weft_line_message *m)
{
    const host_prepare *p = &l->hosts->prepare;
    m->world              = p->world;
    m->first              = p->first;
    m->local              = p->local;
    memcpy(m->text, p->hosts, sizeof p->hosts);
    m->lesson =
        (weft_membership_lesson){.epoch = weft_hosts_view(l->hosts->agreement)->epoch + 1,
                                 .first = p->lesson.first,
                                 .key   = p->lesson.key};
    if (!weft_hosts_is_member(l->hosts->agreement)) m->lesson.epoch = p->epoch;
    snprintf(m->lesson.at, sizeof m->lesson.at, "%s", p->lesson_at);
}

/* ---- briefs ---- */

static void ask_for_brief(weft_launch__hosts *h, double now_s)
{
    host_prepare    *p    = &h->prepare;
    const host_link *link = weft_launch__find_link(h, p->from, true);
    if (now_s < p->ask_s) return;
    p->ask_s = now_s + ASK_S;
    if (link)
        weft_launch__send_frame(h, link->peer, FRAME_ASK_BRIEF, &p->epoch,
                                sizeof p->epoch);
    else
        weft_launch__connect_host(h, p->from);
}

/* To a host that this one may have asked to join. */
static void give_brief(weft_launch__run *l, uint64_t to, uint32_t epoch)
{
    weft_launch__hosts *h    = l->hosts;
    const host_asking  *x    = &h->asking;
    const host_link    *link = weft_launch__find_link(h, to, true);
    weft_text           t    = {0};
    host_lesson         none = {0};
    bool                learns =
        x->view && x->view->epoch == epoch && weft_member_view_find(x->view, to) >= 0;
    if (!link || !weft_hosts_is_member(h->agreement)) return;
    weft_text_put(&t, (const char *)&h->self.id, sizeof h->self.id);
    weft_text_put(&t, (const char *)&epoch, sizeof epoch);
    weft_text_put(&t, (const char *)(learns ? &x->lesson : &none), sizeof none);
    weft_launch__agent_read_brief(l, MAX_BRIEF, &t);
    weft_failpoint("hosts.give_brief");
    if (weft_text_status(&t) == WEFT_OK)
        (void)weft_control_send(h->control, link->peer, FRAME_BRIEF, t.s, t.n);
    weft_text_fini(&t);
}

/* Ranks that prepare already, for the same, go on. */
static void take_brief(weft_launch__run *l, const host_frame *f)
{
    host_prepare *p = &l->hosts->prepare;
    size_t        n = f->n;
    if (p->from != f->from || f->epoch != p->epoch || p->briefed) return;
    bool same = p->started && p->brief.n == n && (!n || !memcmp(p->brief.s, f->bytes, n));
    same = weft_launch__expect_lesson(l->hosts, weft_hosts_expected(l->hosts->agreement),
                                      &f->lesson) &&
           same;
    weft_failpoint("hosts.take_brief");
    p->briefed = true;
    if (same) return;
    p->started = false;
    p->brief.n = 0;
    weft_text_put(&p->brief, (const char *)f->bytes, n);
    if (weft_text_status(&p->brief) != WEFT_OK) p->brief.n = 0;
    weft_launch__drop_preparing(l);
}

void weft_launch__prepare_hear(weft_launch__run *l, const host_frame *f)
{
    if (!l->agent) return;
    if (f->kind == FRAME_ASK_BRIEF) give_brief(l, f->from, f->epoch);
    if (f->kind == FRAME_BRIEF) take_brief(l, f);
}

/* ---- ranks ---- */

void weft_launch__prepare_begin(weft_launch__run *l, uint64_t from)
{
    weft_launch__hosts     *h = l->hosts;
    host_prepare           *p = &h->prepare;
    const weft_member_view *v = weft_hosts_expected(h->agreement);
    if (!l->agent || h->entered || weft_member_view_find(v, h->self.id) < 0) return;
    weft_failpoint("hosts.prepare");
    if (!weft_launch__expect_view(h, v)) { /* other ranks than before */
        p->started = false;
        weft_launch__drop_preparing(l);
    }
    p->from    = from;
    p->epoch   = v->epoch;
    p->briefed = p->reported = false;
    p->ask_s                 = 0;
    p->limit_s               = weft_clock_s() + weft_launch__prepare_limit_s(l) + MORE_S;
    weft_launch__say(l, -1, "info",
                     "view %u will have this host, with ranks %d to %d: they prepare",
                     v->epoch, p->first, p->first + p->local - 1);
}

/* What is learned is a sign of life: as long as it becomes more, nothing is late. */
static void report_learned(weft_launch__run *l, double now_s)
{
    weft_launch__hosts *h       = l->hosts;
    host_prepare       *p       = &h->prepare;
    int                 learned = weft_launch__agent_learned(l, p->local);
    if (!p->started || learned <= p->learned) return;
    p->learned = learned;
    p->limit_s = now_s + weft_launch__prepare_limit_s(l) + MORE_S;
    weft_launch__tell_hosts(h, (weft_hosts_event){.kind    = WEFT_HOSTS_LEARNS,
                                                  .epoch   = p->epoch,
                                                  .percent = learned});
}

static void report_prepared(weft_launch__hosts *h)
{
    weft_failpoint("hosts.prepared");
    h->prepare.reported = true;
    weft_launch__tell_hosts(
        h, (weft_hosts_event){.kind = WEFT_HOSTS_PREPARED, .epoch = h->prepare.epoch});
}

void weft_launch__prepare_unused(weft_launch__run *l, int n_rank)
{
    weft_launch__hosts *h = l->hosts;
    host_prepare       *p = &h->prepare;
    if (!p->from || h->entered || h->over || p->reported || n_rank > p->first) return;
    weft_launch__say(
        l, -1, "info",
        "a step is no shorter with this host: %d of %d ranks are of use; it waits",
        n_rank, p->world);
    weft_launch__drop_preparing(l);
    p->started  = false;
    p->reported = true;
    weft_launch__tell_hosts(
        h, (weft_hosts_event){.kind = WEFT_HOSTS_UNUSED, .epoch = p->epoch});
}

void weft_launch__prepare_tick(weft_launch__run *l, double now_s)
{
    weft_launch__hosts *h = l->hosts;
    host_prepare       *p = &h->prepare;
    char                why[160];
    if (!p->from || h->entered || h->over || l->stopped_by) return;
    h->search.begun_s = now_s; /* a host of the job has answered */
    if (p->reported) return;
    report_learned(l, now_s);
    if (!p->briefed) ask_for_brief(h, now_s);
    if (p->briefed && !p->brief.n) {
        if (!weft_launch__agent_has_processes(l)) report_prepared(h);
    } else if (p->briefed && p->started) {
        if (weft_launch__agent_is_prepared(l, p->local)) report_prepared(h);
    } else if (p->briefed && !weft_launch__agent_has_processes(l)) {
        p->started = true;
        l->first   = p->first;
        weft_launch__agent_prepare(l, p->local, &p->brief);
    }
    if (p->reported || now_s < p->limit_s) return;
    snprintf(why, sizeof why,
             "the ranks of this host have not prepared within %.3g s: it does not join; "
             "--timeout gives them longer",
             weft_launch__prepare_limit_s(l));
    weft_launch__end_here(l, false, why);
}

/* The first line of what it said, without who it is. */
static void find_error(weft_launch__run *l, int r, const char *what, char *out, size_t n)
{
    weft_launch__close_pipes(l, r);
    const char *s  = l->c[r].error.n ? l->c[r].error.s : "";
    const char *at = strstr(s, ": error: ");
    if (at)
        snprintf(out, n, "%.*s", (int)strcspn(at + 9, "\n"), at + 9);
    else
        snprintf(out, n, "a rank: %s", what);
}

void weft_launch__hosts_end_prepare(weft_launch__run *l, int r, bool failed,
                                    const char *what)
{
    weft_launch__hosts *h = l->hosts;
    host_prepare       *p = &h->prepare;
    char                why[200], text[260];
    if (weft_launch__hosts_end_grow(l, r, what)) return;
    if (!p->from || h->entered || h->over || l->stopped_by) return;
    if (failed) {
        find_error(l, r, what, why, sizeof why);
        snprintf(text, sizeof text, "this host does not join: %s", why);
        weft_launch__end_here(l, false, text);
        return;
    }
    weft_launch__say(l, -1, "warn",
                     "rank %d: %s while it prepared; this host joins as it is",
                     weft_launch__rank(l, r), what);
    weft_launch__drop_preparing(l);
    p->brief.n = 0; /* nothing is prepared */
    p->briefed = true;
}

void weft_launch__prepare_close(weft_launch__hosts *h)
{
    weft_text_fini(&h->prepare.brief);
}
