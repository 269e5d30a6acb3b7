#include "member/member.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "register/register.h"

enum {
    MAX_SLOT   = 1024,
    MAX_LOSS   = 8,           /* that are remembered of a slot */
    MAX_ACTION = MAX_SLOT + 4 /* of one event */
};

typedef enum slot_state {
    ABSENT,  /* no process */
    INVITED, /* the newest view was sent, and it has not said that it runs */
    RUNNING,
    WAITING,   /* it has left the newest epoch */
    PREPARING, /* beyond the view, to be in a later one */
    PREPARED,
} slot_state;

/* What the register holds: of each rank its slot, and which process has that, the how-many-th of
 * the slot, from 1. */
typedef struct member_view {
    int      n_slot;
    int      slot[MAX_SLOT];
    uint32_t process[MAX_SLOT];
} member_view;

typedef struct member_slot {
    slot_state state;
    uint32_t   process;        /* the how-many-th */
    bool       done;           /* its process has done its work */
    bool       cordoned;       /* in no view once it is left out */
    int        n_loss;         /* so far */
    int64_t    lost[MAX_LOSS]; /* steps of the last losses, a ring */
    double     used_s;         /* of a core, since it is waited for */
} member_slot;

struct weft_member {
    int n_slot; /* of the newest view */
    int n_room; /* that there may be */
    int n_next; /* of the next view, once processes beyond this one are gone; 0: as now */
    int n_settled; /* of the last view in which all were ready; 0: none yet */
    int leaves; /* outside: the slot that is not in the next view with fewer; -1: none */
    int *order; /* of all slots: those of the newest view by rank, then the others */
    int *settled; /* the order of the last view in which all were ready */
    weft_member_limits limits;
    weft_register     *views;
    uint32_t           epoch; /* of the newest view */
    member_slot       *slot;
    bool               stopping, over;
    bool               wanted;    /* outside: the next view was asked for */
    int64_t            step;      /* the last that is known to be committed */
    int                n_view;    /* since a step was committed */
    weft_member_crash  crash;     /* the last one; slot -1: none */
    weft_member_crash  own_crash; /* of this host */
    double late_s;  /* who has not left by then is killed; 0: no rank is waited for */
    double waits_s; /* since when they are, */
    double tick_s;  /* and the last look at the time */
    int    n_action, first; /* in the queue */
    weft_member_action *action;
};

weft_member_limits weft_member_default_limits(void)
{
    return (weft_member_limits){
        .max_loss = 3, .within_step = 10, .max_view = 16, .late_s = 5, .work_s = 60};
}

uint32_t weft_member_epoch(const weft_member *m)
{
    return m->epoch;
}

bool weft_member_is_over(const weft_member *m)
{
    return m->over;
}

/* The slot of a rank of the newest view, or beyond them. */
static member_slot *slot_at(const weft_member *m, int position)
{
    return &m->slot[m->order[position]];
}

bool weft_member_is_running(const weft_member *m, int slot)
{
    return m->slot[slot].state == RUNNING;
}

bool weft_member_is_ready(const weft_member *m)
{
    for (int k = 0; k < m->n_slot; k++)
        if (slot_at(m, k)->state != RUNNING) return false;
    return true;
}

int weft_member_count(const weft_member *m)
{
    return m->n_slot;
}

const int *weft_member_order(const weft_member *m)
{
    return m->order;
}

int weft_member_position(const weft_member *m, int slot)
{
    int k = 0;
    while (m->order[k] != slot) k++;
    return k;
}

bool weft_member_is_in_view(const weft_member *m, int slot)
{
    return weft_member_position(m, slot) < m->n_slot;
}

int weft_member_usable(const weft_member *m)
{
    int n = 0;
    for (int k = 0; k < m->n_room; k++) n += !m->slot[k].cordoned;
    return n;
}

void weft_member_cordon(weft_member *m, int slot)
{
    if (slot >= 0 && slot < m->n_room) m->slot[slot].cordoned = true;
}

double weft_member_deadline_s(const weft_member *m)
{
    return m->over ? 0 : m->late_s;
}

/* ---- actions ---- */

/* The agent empties the queue after each event, which adds one action a slot and two at most. */
static weft_member_action *add_action(weft_member *m, weft_member_action_kind kind)
{
    if (m->first == m->n_action) m->first = m->n_action = 0;
    if (m->n_action == MAX_ACTION) m->n_action--;
    weft_member_action *a = &m->action[m->n_action++];
    *a = (weft_member_action){.kind = kind, .epoch = weft_member_epoch(m)};
    return a;
}

bool weft_member_next(weft_member *m, weft_member_action *out)
{
    if (m->first == m->n_action) return false;
    *out = m->action[m->first++];
    return true;
}

static void end_job(weft_member *m, const char *why)
{
    if (m->over) return;
    m->over = true;
    snprintf(add_action(m, WEFT_MEMBER_END)->why, sizeof m->action->why, "%s", why);
}

/* false: there were too many. */
static bool count_view(weft_member *m)
{
    char why[200];
    if (++m->n_view <= m->limits.max_view) return true;
    snprintf(why, sizeof why,
             "%d views one after another have committed no step after step %lld",
             m->limits.max_view, (long long)m->step);
    end_job(m, why);
    return false;
}

/* A process for every slot without one. */
static void fill_slots(weft_member *m, member_view *v)
{
    for (int k = 0; k < m->n_slot; k++) {
        member_slot *s = slot_at(m, k);
        if (s->state == ABSENT) {
            s->process++;
            s->done                                = false;
            add_action(m, WEFT_MEMBER_START)->slot = m->order[k];
        }
        s->state      = INVITED;
        v->slot[k]    = m->order[k];
        v->process[k] = s->process;
    }
    m->late_s = 0;
}

static void want_view(weft_member *m, const char *why)
{
    if (m->wanted) return;
    m->wanted = true;
    snprintf(add_action(m, WEFT_MEMBER_WANT)->why, sizeof m->action->why, "%s", why);
}

void weft_member_leave_out(weft_member *m, int slot)
{
    if (slot >= 0 && slot < m->n_room) m->leaves = slot;
}

/* The slot that is to go is the last one of the view. */
static void swap_leaving(weft_member *m)
{
    int last = m->n_slot - 1, k = 0;
    while (k < last && m->order[k] != m->leaves) k++;
    if (m->leaves >= 0 && k < last) {
        m->order[k]    = m->order[last];
        m->order[last] = m->leaves;
    }
    m->leaves = -1;
}

void weft_member_wait_at_most(weft_member *m, double most_s)
{
    m->limits.most_s = most_s;
}

void weft_member_enter(weft_member *m, uint32_t epoch, int n)
{
    member_view v = {.n_slot = n};
    if (m->over || !m->limits.outside || epoch <= m->epoch || n < 1 || n > m->n_room)
        return;
    m->wanted = false;
    if (n < m->n_slot) swap_leaving(m);
    m->n_slot = n;
    m->epoch  = epoch;
    if (!count_view(m)) return;
    for (int k = n; k < m->n_room; k++)
        if (weft_member_is_preparing(m, m->order[k]))
            add_action(m, WEFT_MEMBER_KILL)->slot = m->order[k];
    fill_slots(m, &v);
    add_action(m, WEFT_MEMBER_VIEW);
}

static bool is_busy(const member_slot *s)
{
    return s->state == INVITED || s->state == RUNNING;
}

bool weft_member_is_stopped(const weft_member *m)
{
    for (int k = 0; k < m->n_slot; k++)
        if (is_busy(slot_at(m, k))) return false;
    return true;
}

/* Those that are in the view have to leave it from now on. */
static void begin_waiting(weft_member *m, double now_s)
{
    if (m->late_s > 0) return;
    m->late_s  = now_s + m->limits.late_s;
    m->waits_s = now_s;
    m->tick_s  = now_s;
    for (int k = 0; k < m->n_room; k++) m->slot[k].used_s = 0;
}

void weft_member_leave(weft_member *m, double now_s)
{
    if (!weft_member_is_stopped(m)) begin_waiting(m, now_s);
}

/* The next view, why: where that is decided elsewhere. */
static void decide_view(weft_member *m, const char *why)
{
    member_view v = {.n_slot = m->n_slot};
    if (m->limits.outside) {
        want_view(m, why);
        return;
    }
    if (!count_view(m)) return;
    fill_slots(m, &v);
    weft_register_outcome o;
    if (weft_register_propose(m->views, m->epoch + 1, &v, sizeof v) != WEFT_OK ||
        !weft_register_next(m->views, &o)) {
        end_job(m, weft_error_text());
        return;
    }
    m->epoch = o.epoch;
    add_action(m, WEFT_MEMBER_VIEW);
}

weft_status weft_member_create(int n_slot, const weft_member_limits *limits,
                               weft_member **out)
{
    int n_room = limits->max_slot > n_slot ? limits->max_slot : n_slot;
    if (n_slot < 1 || n_room > MAX_SLOT)
        return WEFT_FAIL(WEFT_ERR_ARG, "%d slots: 1 to %d are possible", n_room,
                         MAX_SLOT);
    weft_member *m = calloc(1, sizeof *m);
    if (m) m->slot = calloc((size_t)n_room, sizeof *m->slot);
    if (m) m->action = calloc(MAX_ACTION, sizeof *m->action);
    if (m) m->order = calloc((size_t)n_room, sizeof *m->order);
    if (m) m->settled = calloc((size_t)n_room, sizeof *m->settled);
    if (!m || !m->slot || !m->action || !m->order || !m->settled ||
        weft_register_open_memory(&m->views) != WEFT_OK) {
        weft_member_destroy(m);
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    for (int k = 0; k < n_room; k++) m->order[k] = k;
    m->n_slot     = limits->outside ? 0 : n_slot; /* none is in a view yet */
    m->n_room     = n_room;
    m->limits     = *limits;
    m->crash.slot = m->own_crash.slot = m->leaves = -1;
    if (!limits->outside) decide_view(m, "");
    *out = m;
    return WEFT_OK;
}

void weft_member_destroy(weft_member *m)
{
    if (!m) return;
    weft_register_close(m->views);
    free(m->slot);
    free(m->action);
    free(m->order);
    free(m->settled);
    free(m);
}

/* ---- losses ---- */

/* Cordoned slots go to the end, and the last ones of the view take their ranks: all others keep
 * theirs. */
static void move_cordoned(weft_member *m)
{
    int n = m->n_slot, last = m->n_room;
    for (int k = n - 1; k >= 0; k--) {
        if (!slot_at(m, k)->cordoned) continue;
        int bad     = m->order[k];
        m->order[k] = m->order[--n];
        m->order[n] = bad;
    }
    for (int k = last - 1; k >= 0; k--) {
        if (!slot_at(m, k)->cordoned) continue;
        int bad = m->order[k];
        memmove(m->order + k, m->order + k + 1,
                sizeof *m->order * (size_t)(last - k - 1));
        m->order[--last] = bad;
    }
}

/* n_loss losses, of which the last one is after that step. */
static bool is_lost_too_often(const weft_member *m, const member_slot *s, int n_loss,
                              int64_t step)
{
    if (n_loss < m->limits.max_loss) return false;
    int64_t since = s->lost[(n_loss - m->limits.max_loss) % MAX_LOSS];
    return step - since < m->limits.within_step;
}

bool weft_member_is_too_often(const weft_member *m, int slot, int64_t step)
{
    const member_slot *s = &m->slot[slot];
    if (m->limits.max_loss < 2) return true;
    return is_lost_too_often(m, s, s->n_loss + 1, step > m->step ? step : m->step);
}

/* The same step as before, on another slot: it is the step's fault. */
static void note_crash(weft_member *m, const weft_member_crash *crash)
{
    char              why[200];
    weft_member_crash was = m->crash;
    if (!crash->host) m->own_crash = *crash;
    if (was.slot >= 0 && crash->step < was.step) return; /* heard of late */
    m->crash = *crash;
    if (was.slot < 0 || crash->step > was.step) return;
    if (was.host == crash->host && was.slot == crash->slot) return;
    snprintf(
        why, sizeof why,
        "step %lld ends each rank that runs it: two were lost in it, the last one by %s",
        (long long)crash->step + 1,
        crash->cause == WEFT_MEMBER_OOM ? "want of memory" : "a crash");
    end_job(m, why);
}

bool weft_member_last_crash(const weft_member *m, weft_member_crash *out)
{
    *out = m->own_crash;
    return out->slot >= 0;
}

void weft_member_crash_elsewhere(weft_member *m, const weft_member_crash *crash)
{
    if (!m->limits.outside || !crash->host || crash->slot < 0) return;
    if (weft_member_replaces(m)) note_crash(m, crash);
}

static void note_step(weft_member *m, int64_t step)
{
    if (step <= m->step) return;
    m->step   = step;
    m->n_view = 0;
}

bool weft_member_replaces(const weft_member *m)
{
    bool left = false;
    for (int k = 0; k < m->n_slot; k++) left = left || slot_at(m, k)->done;
    return !m->over && !slot_at(m, 0)->done &&
           !((m->stopping || m->limits.outside) && left);
}

/* No other process will be of use there. */
static void drop_slot(weft_member *m, int k)
{
    m->leaves = -1;
    if (m->n_slot < 2) return;
    weft_member_cordon(m, k);
    move_cordoned(m);
    m->n_slot--;
}

static void lose_slot(weft_member *m, int k, weft_member_cause cause, bool spared)
{
    member_slot *s = &m->slot[k];
    char         why[200];
    s->lost[s->n_loss++ % MAX_LOSS] = m->step;
    if (!weft_member_replaces(m)) return;
    if (cause == WEFT_MEMBER_CRASHED || cause == WEFT_MEMBER_OOM)
        note_crash(m, &(weft_member_crash){.slot = k, .cause = cause, .step = m->step});
    if (m->over) return;
    if (!spared && is_lost_too_often(m, s, s->n_loss, m->step)) {
        snprintf(why, sizeof why, "rank %d was lost %d times within %lld steps",
                 weft_member_position(m, k), m->limits.max_loss,
                 (long long)m->limits.within_step);
        end_job(m, why);
    } else {
        if (spared) s->n_loss = 0; /* what follows is another's */
        if (m->leaves == k && !m->limits.outside) drop_slot(m, k);
        decide_view(m, "a rank was lost");
    }
}

/* It was to join those of the last view in which all were ready. */
static bool is_newcomer(const weft_member *m, int position)
{
    return m->n_settled > 0 && m->n_slot > m->n_settled && position >= m->n_settled;
}

/* Rank 0 has ended while others wait for it in a later view: for them nothing is left to do. */
static void check_done(weft_member *m)
{
    for (int k = 1; slot_at(m, 0)->done && !m->over && k < m->n_slot; k++)
        if (slot_at(m, k)->state == INVITED && !weft_member_is_ready(m)) end_job(m, "");
}

/* As many as in the last view in which all were ready are those: where they are to end updates each
 * slot has the rank that it had. */
static const int *find_order(const weft_member *m, int n)
{
    return n == m->n_settled ? m->settled : m->order;
}

/* The view of as many as its ranks have asked for, once slots that are to be in it again have lost
 * the processes that were beyond it. */
static void try_recount(weft_member *m)
{
    if (!m->n_next || m->over) return;
    const int *order = find_order(m, m->n_next);
    for (int k = 0; k < m->n_next; k++)
        if (!weft_member_is_in_view(m, order[k]) && m->slot[order[k]].state != ABSENT)
            return;
    if (order != m->order) memcpy(m->order, order, sizeof *order * (size_t)m->n_room);
    m->n_slot = m->n_next;
    m->n_next = 0;
    decide_view(m, "ranks lost a peer");
}

/* On several hosts no rank is replaced once one has done its work, as others may be gone: all is
 * written then.  Where the first one here is lost after that, and none is left, it is the end. */
static void check_left(weft_member *m)
{
    bool left = false;
    if (!m->limits.outside || m->over || m->stopping || m->wanted) return;
    if (!m->n_slot || slot_at(m, 0)->done) return;
    for (int k = 0; k < m->n_slot; k++) {
        if (slot_at(m, k)->state != ABSENT) return;
        left = left || slot_at(m, k)->done;
    }
    if (left) end_job(m, "a rank was lost when all was written");
}

static void end_slot(weft_member *m, const weft_member_event *e)
{
    member_slot *s = &m->slot[e->slot];
    if (s->state == ABSENT) return;
    s->state = ABSENT;
    note_step(m, e->step);
    int  position = weft_member_position(m, e->slot);
    bool beyond   = position >= m->n_slot;
    if (beyond) try_recount(m);
    if (m->over || beyond) return;
    s->done = e->cause == WEFT_MEMBER_DONE;
    if (is_newcomer(m, position) && !s->done && !m->stopping && !slot_at(m, 0)->done) {
        m->n_slot = m->n_settled;
        decide_view(m, "ranks lost a peer");
    } else if (e->cause == WEFT_MEMBER_FAILED)
        end_job(m, "a rank failed");
    else if (!s->done)
        lose_slot(m, e->slot, e->cause, e->spared);
    else if (position == 0)
        check_done(m);
    check_left(m);
}

/* ---- leaving ---- */

/* Rank 0 ends when everything is written: who is left has nothing to wait for. */
static void check_waiting(weft_member *m, double now_s)
{
    int waiting = 0, busy = 0;
    for (int k = 0; k < m->n_slot; k++) {
        waiting += slot_at(m, k)->state == WAITING;
        busy += is_busy(slot_at(m, k));
    }
    if (!waiting || m->over || m->n_next) return;
    if (slot_at(m, 0)->done)
        end_job(m, "");
    else if (!weft_member_replaces(m))
        end_job(m, "a rank was lost while the job was to end");
    else if (!busy)
        decide_view(m, "ranks lost a peer");
    else
        begin_waiting(m, now_s);
}

static void leave_epoch(weft_member *m, const weft_member_event *e)
{
    member_slot *s = &m->slot[e->slot];
    note_step(m, e->step);
    if (e->epoch != weft_member_epoch(m) || s->state == ABSENT) return; /* overtaken */
    s->state = WAITING;
}

static void note_alive(weft_member *m, const member_slot *s, double now_s)
{
    if (m->late_s > 0 && is_busy(s)) m->late_s = now_s + m->limits.late_s;
}

/* A new process of a machine with many others is slow to come, and not lost; one that computes and
 * never comes uses more of a core than a start takes. */
static void note_work(weft_member *m, member_slot *s, const weft_member_event *e)
{
    double waited_s = e->now_s - m->waits_s;
    s->used_s += e->used_s;
    if (s->used_s > m->limits.work_s) return;
    if (m->limits.most_s > 0 && waited_s > m->limits.most_s) return;
    note_alive(m, s, e->now_s);
}

/* Time in which the agent did not run does not count. */
static void note_tick(weft_member *m, double now_s)
{
    double stall_s = now_s - m->tick_s - m->limits.late_s / 2;
    m->tick_s      = now_s;
    if (m->late_s > 0 && stall_s > 0) m->late_s += stall_s;
}

static void kill_late(weft_member *m, double now_s)
{
    note_tick(m, now_s);
    if (m->over || m->late_s <= 0 || now_s < m->late_s) return;
    m->late_s = now_s + m->limits.late_s;
    for (int k = 0; k < m->n_slot; k++)
        if (is_busy(slot_at(m, k))) add_action(m, WEFT_MEMBER_KILL)->slot = m->order[k];
}

/* ---- more or fewer ---- */

bool weft_member_is_preparing(const weft_member *m, int slot)
{
    return m->slot[slot].state == PREPARING || m->slot[slot].state == PREPARED;
}

bool weft_member_is_prepared(const weft_member *m, int n)
{
    for (int k = m->n_slot; k < n; k++)
        if (slot_at(m, k)->state != PREPARED) return false;
    return true;
}

void weft_member_prepare(weft_member *m, int n)
{
    if (n > weft_member_usable(m) || !weft_member_may_resize(m)) return;
    for (int k = m->n_slot; k < n; k++) {
        member_slot *s = slot_at(m, k);
        if (s->state != ABSENT) continue;
        s->process++;
        s->done                                = false;
        s->state                               = PREPARING;
        add_action(m, WEFT_MEMBER_START)->slot = m->order[k];
    }
}

bool weft_member_may_resize(const weft_member *m)
{
    for (int k = m->n_slot; k < m->n_room; k++)
        if (slot_at(m, k)->state != ABSENT && !weft_member_is_preparing(m, m->order[k]))
            return false;
    return !m->over && !m->stopping && !slot_at(m, 0)->done && weft_member_is_ready(m);
}

void weft_member_resize(weft_member *m, int n)
{
    if (n < 1 || n > weft_member_usable(m) || n == m->n_slot ||
        !weft_member_may_resize(m))
        return;
    move_cordoned(m);
    m->n_slot = n;
    m->n_view = 0; /* nothing was lost */
    decide_view(m, "ranks lost a peer");
}

void weft_member_renew(weft_member *m)
{
    if (!weft_member_may_resize(m)) return;
    m->n_view = 0; /* nothing was lost */
    decide_view(m, "ranks lost a peer");
}

void weft_member_recount(weft_member *m, uint32_t epoch, int n)
{
    if (m->over || epoch != weft_member_epoch(m) || n < 1 || n == m->n_slot ||
        n > m->n_room || (m->stopping && n < m->n_slot))
        return;
    m->n_next        = n;
    const int *order = find_order(m, n);
    for (int k = 0; k < n; k++)
        if (!weft_member_is_in_view(m, order[k]) && m->slot[order[k]].state != ABSENT)
            add_action(m, WEFT_MEMBER_KILL)->slot = order[k];
    try_recount(m);
}

static void settle_view(weft_member *m)
{
    m->n_settled = m->n_slot;
    memcpy(m->settled, m->order, sizeof *m->order * (size_t)m->n_room);
}

void weft_member_tell(weft_member *m, const weft_member_event *e)
{
    if (e->slot < 0 || e->slot >= m->n_room) return;
    member_slot *s = &m->slot[e->slot];
    switch (e->kind) {
    case WEFT_MEMBER_ENDED: end_slot(m, e); break;
    case WEFT_MEMBER_LEFT: leave_epoch(m, e); break;
    case WEFT_MEMBER_IS_PREPARED:
        if (s->state == PREPARING) s->state = PREPARED;
        break;
    case WEFT_MEMBER_READY:
        if (e->epoch == weft_member_epoch(m) && s->state == INVITED) s->state = RUNNING;
        if (weft_member_is_ready(m)) settle_view(m);
        break;
    case WEFT_MEMBER_ALIVE: note_alive(m, s, e->now_s); break;
    case WEFT_MEMBER_WORKS: note_work(m, s, e); break;
    case WEFT_MEMBER_STOP: m->stopping = true; break;
    case WEFT_MEMBER_TICK: kill_late(m, e->now_s); break;
    }
    check_waiting(m, e->now_s);
}
