#include "goodput/goodput.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A host of the trace as the job sees it. */
typedef enum place {
    AWAY,
    COMING, /* it prepares while the others train */
    MEMBER
} place;

typedef struct simulation {
    const weft_goodput_trace *trace;
    const weft_goodput_spec  *spec;
    weft_goodput_result       r;
    place                    *place;   /* of each host */
    double                   *ready_s; /* of one that is coming */
    int                      *ring;    /* members, in the order in which they came */
    int                       n_ring, n_there;
    bool                      begun;
    double                    now_s, start_s, busy_s; /* busy: until then it pauses */
    double                    under_way_s;            /* of the step that runs */
    /* steps since the checkpoint: how long they took, and take undisturbed */
    double  unsaved_s, unsaved_effective_s;
    int64_t unsaved_steps;
    double  saved_s; /* when that was */
} simulation;

/* A step of so many hosts: more of them than a plan is known for wait. */
static double step_of(const simulation *m, int n)
{
    int most = m->spec->n_step_s - 1;
    return n < 0 ? 0 : m->spec->step_s[n < most ? n : most];
}

/* ---- time that passes ---- */

static void take_checkpoint(simulation *m)
{
    if (m->now_s - m->saved_s < m->spec->checkpoint_s) return;
    m->saved_s   = m->now_s;
    m->unsaved_s = m->unsaved_effective_s = 0;
    m->unsaved_steps                      = 0;
}

static void run_steps(simulation *m, double to_s)
{
    double step_s = step_of(m, m->n_ring), all_s = step_of(m, m->n_there);
    double effective_s = all_s > 0 && all_s < step_s ? all_s : step_s;
    while (m->now_s + (step_s - m->under_way_s) <= to_s) {
        m->now_s += step_s - m->under_way_s;
        m->under_way_s = 0;
        m->r.n_committed++;
        m->r.effective_s += effective_s;
        m->r.idle_s += step_s - effective_s;
        m->unsaved_s += step_s;
        m->unsaved_effective_s += effective_s;
        m->unsaved_steps++;
        take_checkpoint(m);
    }
    if (m->now_s >= to_s) return;
    m->under_way_s += to_s - m->now_s;
    m->now_s = to_s;
}

static void advance(simulation *m, double to_s)
{
    if (!m->begun || to_s <= m->now_s) {
        m->now_s = fmax(m->now_s, to_s);
        return;
    }
    if (step_of(m, m->n_ring) <= 0) {
        m->r.waiting_s += to_s - m->now_s;
        m->now_s = to_s;
        return;
    }
    if (m->busy_s > m->now_s) {
        double until_s = fmin(m->busy_s, to_s);
        m->r.pause_s += until_s - m->now_s;
        m->now_s = until_s;
    }
    if (m->now_s < to_s) run_steps(m, to_s);
}

/* ---- views ---- */

/* The next view: those that are gone leave the ring, those that are ready enter it. */
static void change_view(simulation *m)
{
    int n = 0;
    for (int i = 0; i < m->n_ring; i++)
        if (m->place[m->ring[i]] == MEMBER) m->ring[n++] = m->ring[i];
    for (int h = 0; h < m->trace->n_host; h++)
        if (m->place[h] == COMING && m->ready_s[h] <= m->now_s) {
            m->place[h]  = MEMBER;
            m->ring[n++] = h;
        }
    m->n_ring = n;
    m->r.n_view++;
}

/* A planned change waits for the step under way. */
static void finish_step(simulation *m)
{
    double step_s = step_of(m, m->n_ring);
    if (step_s > 0 && m->under_way_s > 0)
        run_steps(m, m->now_s + (step_s - m->under_way_s));
}

static void pause_until(simulation *m, double seconds)
{
    m->busy_s = fmax(m->busy_s, m->now_s + seconds);
}

/* The first view; nothing is to be kept. */
static void begin(simulation *m)
{
    for (int h = 0; h < m->trace->n_host; h++)
        if (m->place[h] == COMING) m->ready_s[h] = m->now_s;
    change_view(m);
    m->r.n_view = 0;
    m->begun    = step_of(m, m->n_ring) > 0;
    m->start_s = m->saved_s = m->busy_s = m->now_s;
    if (m->begun) return;
    for (int i = 0; i < m->n_ring; i++) m->place[m->ring[i]] = COMING;
    m->n_ring = 0;
}

/* Are all copies of some region with hosts that are gone?  A region's are next to each other. */
static bool is_state_lost(const simulation *m)
{
    int run = 0, copies = m->spec->copies < m->n_ring ? m->spec->copies : m->n_ring;
    for (int i = 0; i < m->n_ring + copies - 1; i++) {
        run = m->place[m->ring[i % m->n_ring]] == MEMBER ? 0 : run + 1;
        if (run >= copies) return m->n_ring > 0;
    }
    return false;
}

static void go_back(simulation *m)
{
    m->r.n_restart++;
    m->r.n_committed -= m->unsaved_steps;
    m->r.effective_s -= m->unsaved_effective_s;
    m->r.idle_s -= m->unsaved_s - m->unsaved_effective_s;
    m->r.repeated_s += m->unsaved_s;
    m->unsaved_s = m->unsaved_effective_s = 0;
    m->unsaved_steps                      = 0;
}

/* Members that are gone, without notice; place[] says which. */
static void lose_hosts(simulation *m)
{
    const weft_goodput_spec *s    = m->spec;
    bool                     lost = is_state_lost(m);
    m->r.torn_s += m->under_way_s;
    m->under_way_s = 0;
    if (lost) go_back(m);
    change_view(m);
    pause_until(m, s->detect_s + (lost ? s->restart_s : s->pause_s));
}

/* A process of a member, whose memory outlives it. */
static void replace_process(simulation *m)
{
    m->r.torn_s += m->under_way_s;
    m->under_way_s = 0;
    m->r.n_view++;
    pause_until(m, m->spec->pause_s);
}

/* ---- events ---- */

/* An event as it takes effect.  With notice enough a host leaves as late as it can. */
typedef struct change {
    double at_s;
    bool   adds, replaces, announced;
    int    host;
} change;

/* n: hosts that are there before it. */
static change plan_change(const simulation *m, const weft_goodput_event *e, int n)
{
    double leave_s = step_of(m, n) + m->spec->pause_s;
    bool   announced =
        !e->adds && !e->replaces && m->spec->notice_s > 0 && m->spec->notice_s >= leave_s;
    return (change){.at_s      = e->at_s - (announced ? leave_s : 0),
                    .adds      = e->adds,
                    .replaces  = e->replaces,
                    .announced = announced,
                    .host      = e->host};
}

/* Joins that are due. */
static double next_join_s(const simulation *m)
{
    double at_s = INFINITY;
    for (int h = 0; m->begun && h < m->trace->n_host; h++)
        if (m->place[h] == COMING && m->ready_s[h] < at_s) at_s = m->ready_s[h];
    return at_s;
}

static void join_until(simulation *m, double to_s)
{
    for (double at_s; (at_s = next_join_s(m)) <= to_s;) {
        advance(m, at_s);
        finish_step(m);
        change_view(m);
        pause_until(m, m->spec->pause_s);
    }
    advance(m, to_s);
}

typedef struct moment {
    int lost, left, replaced;
} moment;

static void take_change(simulation *m, const change *e, moment *now)
{
    place *p = &m->place[e->host];
    if (e->replaces) {
        now->replaced += *p == MEMBER;
        return;
    }
    if (e->adds) {
        *p                  = COMING;
        m->ready_s[e->host] = m->now_s + m->spec->join_s;
        m->n_there++;
        return;
    }
    m->n_there--;
    if (*p == MEMBER) ++*(e->announced ? &now->left : &now->lost);
    *p = AWAY;
}

static int by_effect(const void *a, const void *b)
{
    const change *x = a, *y = b;
    if (x->at_s < y->at_s || x->at_s > y->at_s) return x->at_s < y->at_s ? -1 : 1;
    return x->adds - y->adds; /* who goes, goes first */
}

/* Events of one moment are one change. */
static void run_changes(simulation *m, const change *e, int n)
{
    for (int i = 0; i < n;) {
        moment now  = {0};
        double at_s = e[i].at_s;
        join_until(m, at_s);
        for (; i < n && e[i].at_s <= at_s; i++) take_change(m, &e[i], &now);
        m->r.n_lost += now.lost;
        m->r.n_replaced += now.replaced;
        if (!m->begun)
            begin(m);
        else if (now.lost)
            lose_hosts(m);
        else if (now.left) {
            finish_step(m);
            change_view(m);
            pause_until(m, m->spec->pause_s);
        } else if (now.replaced)
            replace_process(m);
    }
}

static weft_status check_spec(const weft_goodput_spec *s)
{
    const double part[] = {s->detect_s, s->pause_s, s->join_s, s->restart_s, s->notice_s};
    for (size_t k = 0; k < WEFT_COUNT(part); k++)
        if (!(part[k] >= 0 && part[k] < 1e9))
            return WEFT_FAIL(WEFT_ERR_ARG, "a time of %g seconds", part[k]);
    for (int k = 0; k < s->n_step_s; k++)
        if (!(s->step_s[k] >= 0 && s->step_s[k] < 1e9) ||
            (s->step_s[k] > 0 && s->step_s[k] < 1e-6))
            return WEFT_FAIL(WEFT_ERR_ARG, "a step of %g seconds", s->step_s[k]);
    if (s->n_step_s < 2 || !(s->checkpoint_s > 0) || s->copies < 1)
        return WEFT_FAIL(WEFT_ERR_ARG, "no step, no checkpoints, or no copy of state");
    return WEFT_OK;
}

static void plan_changes(const simulation *m, change *out)
{
    int n = 0;
    for (int i = 0; i < m->trace->n; i++) {
        out[i] = plan_change(m, &m->trace->event[i], n);
        if (!m->trace->event[i].replaces) n += m->trace->event[i].adds ? 1 : -1;
    }
    qsort(out, (size_t)m->trace->n, sizeof *out, by_effect);
}

weft_status weft_goodput_run(const weft_goodput_trace *t, const weft_goodput_spec *s,
                             weft_goodput_result *out)
{
    simulation  m    = {.trace = t, .spec = s};
    weft_status st   = WEFT_OK;
    size_t      n    = (size_t)t->n_host + 1;
    change     *list = calloc((size_t)t->n + 1, sizeof *list);
    m.place          = calloc(n, sizeof *m.place);
    m.ready_s        = calloc(n, sizeof *m.ready_s);
    m.ring           = calloc(n, sizeof *m.ring);
    if (!list || !m.place || !m.ready_s || !m.ring)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory for %d hosts", t->n_host));
    WEFT_GO(check_spec(s));
    plan_changes(&m, list);
    m.now_s = list[0].at_s;
    run_changes(&m, list, t->n);
    if (!m.begun)
        WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG,
                          "the job fits none of the trace's moments: at "
                          "most %d hosts are there",
                          t->most));
    join_until(&m, t->event[t->n - 1].at_s);
    m.r.wall_s = m.now_s - m.start_s;
    *out       = m.r;
out:
    free(list);
    free(m.place);
    free(m.ready_s);
    free(m.ring);
    return st;
}
