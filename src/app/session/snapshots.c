/* Snapshots in the agent's memory, of a state whose own memory goes with its process (jobs with
 * GPUs).
 *
 *     start     after a step that is due: a thread copies all of the state, first on the device
 *               where so much is free (state/snapshot.h), then into one of two buffers of the slot,
 *               through pinned memory: pinning all of the buffers would take seconds in each view
 *     commit    the state changes when it is copied; the next snapshot is due only after the last
 *               one is in the agent's memory
 *     recovery  the newest step of which slots together have all of the state
 *
 * (1) A rank brings a step that is due to its vote only when its last snapshot is whole.  So after
 *     the vote those of all ranks are, and the older buffer may be overwritten: at any moment one
 *     whole snapshot of all ranks is there, and nothing is exchanged for it.
 * (2) One is whole when the next is due, at the latest: of committed steps at most those of two
 *     intervals less one are run again.  So the interval is half of what the job says.
 * (3) Ranks that hold the same as a lower rank make none. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/progress.h"
#include "comm/hosts.h"
#include "comm/shm.h"
#include "session/session_priv.h"
#include "session/snapshots_priv.h"
#include "state/staged_copy.h"
#include "state/table.h"

enum {
    FIRST_AFTER = 3, /* steps of a generation: graphs are captured by then */
    MOST_EVERY  = 1000,
    FAR_TICK_US = 2000
};
static const double MOST_WAIT = 0.02; /* of a step's time: waiting for snapshots */
static const double MOST_LINK = 0.25; /* of all time: snapshots under way */
static const double TICK_S    = 0.25;

bool weft_session__has_snapshots(const weft_session *s)
{
    return weft_session__has_agent(s) && weft_session__slot(s) &&
           !weft_session__state_stays(s);
}

static weft_comm_shm_held *held_of(const weft_session *s, int k)
{
    return &weft_program_state_slot(s->now->comm)->snapshot[k];
}

/* ---- memory ---- */

static void release_range(weft_comm *end, _Atomic int64_t *at, _Atomic int64_t *bytes)
{
    void *p = weft_comm_shm_reach(end, weft_comm_shm_own_slot(end), atomic_load(at),
                                  atomic_load(bytes));
    if (p) weft_comm_shm_free(end, p);
    atomic_store(bytes, 0);
}

void weft_session__forget_held(weft_comm *end, weft_comm_shm_held *h)
{
    atomic_store(&h->step, -1);
    release_range(end, &h->at, &h->bytes);
    release_range(end, &h->table_at, &h->table_bytes);
}

void weft_session__adopt_snapshots(weft_session *s)
{
    if (!weft_session__has_snapshots(s)) return;
    weft_comm *end = weft_comm_shared_end(s->now->comm);
    for (int k = 0; k < WEFT_COMM_SHM_SNAPSHOT; k++) {
        weft_comm_shm_held *h = held_of(s, k);
        void               *p;
        bool                state = atomic_load(&h->bytes) > 0 &&
                     weft_comm_shm_adopt(end, atomic_load(&h->at), atomic_load(&h->bytes),
                                         &p) == WEFT_OK;
        bool table =
            state && weft_comm_shm_adopt(end, atomic_load(&h->table_at),
                                         atomic_load(&h->table_bytes), &p) == WEFT_OK;
        if (table) continue;
        atomic_store(&h->step, -1);
        if (state) release_range(end, &h->at, &h->bytes);
        atomic_store(&h->bytes, 0);
        atomic_store(&h->table_bytes, 0);
    }
}

/* New memory of the slot, and what says what is in it. */
static weft_status make_held(weft_session *s, weft_comm_shm_held *h)
{
    weft_comm *end   = weft_comm_shared_end(s->now->comm);
    int64_t    bytes = weft_state_memory(s->state)->bytes, at = 0;
    int64_t    table_bytes = weft_state_table_bytes(s->state), table_at = 0;
    void      *p, *table;
    weft_session__forget_held(end, h);
    WEFT_TRY(weft_comm_shm_alloc(end, bytes, &p));
    weft_status st = weft_comm_shm_alloc(end, table_bytes, &table);
    if (st != WEFT_OK) {
        weft_comm_shm_free(end, p);
        return st;
    }
    weft_state_table_write(s->state, table_bytes, table);
    (void)weft_comm_shm_find(end, p, &at);
    (void)weft_comm_shm_find(end, table, &table_at);
    atomic_store(&h->at, at);
    atomic_store(&h->table_at, table_at);
    atomic_store(&h->layout, weft_program_state_layout(s->state));
    atomic_store(&h->table_bytes, table_bytes);
    atomic_store(&h->bytes, bytes);
    return WEFT_OK;
}

static void keep_memory(void *arg, weft_memory *m)
{
    (void)arg, (void)m;
}

/* A state over the buffer.  The first time the pages are made, on the snapshot's thread. */
static weft_status open_buffer(weft_session *s, int k)
{
    weft_comm          *end = weft_comm_shared_end(s->now->comm);
    weft_comm_shm_held *h   = held_of(s, k);
    if (atomic_load(&h->bytes) != weft_state_memory(s->state)->bytes ||
        atomic_load(&h->layout) != weft_program_state_layout(s->state))
        WEFT_TRY(make_held(s, h));
    weft_memory m = {s->device, WEFT_SPACE_SHARED,
                     weft_comm_shm_reach(end, weft_comm_shm_own_slot(end),
                                         atomic_load(&h->at), atomic_load(&h->bytes)),
                     atomic_load(&h->bytes)};
    return weft_state_create_like_over(s->state, &m, keep_memory, NULL,
                                       &s->now->snapshots.buffer[k]);
}

static weft_status find_buffer(void *session, weft_state **keep)
{
    weft_session            *s     = session;
    weft_session__snapshots *x     = &s->now->snapshots;
    double                   begin = weft_clock_s();
    if (!x->buffer[x->into]) WEFT_TRY(open_buffer(s, x->into));
    weft_failpoint("snapshot.buffer");
    *keep        = x->buffer[x->into];
    x->prepare_s = weft_clock_s() - begin;
    return WEFT_OK;
}

/* Does a lower rank hold all that this one holds? */
static bool is_replica(const weft_session *s)
{
    const weft_holders *h = s->now->holders;
    int                 r = s->now->comm->rank;
    for (int q = 0; h && q < r; q++) {
        bool same = true;
        for (int t = 0; t < h->n_tensor && same; t++) {
            const weft_part *a = weft_holders_part(h, t, q),
                            *b = weft_holders_part(h, t, r);
            same               = !b || (a && weft_part_equal(a, b));
        }
        if (same) return true;
    }
    return false;
}

static bool has_room(const weft_session *s)
{
    int64_t bytes = 0, left = weft_session__free_bytes();
    for (int k = 0; k < WEFT_COMM_SHM_OWN; k++)
        if (!atomic_load(&held_of(s, k)->bytes))
            bytes += weft_state_memory(s->state)->bytes;
    return !bytes || weft_session__has_room(bytes, s->now->local > 0 ? s->now->local : 1,
                                            left, left);
}

static void open_own(weft_session *s)
{
    weft_session__snapshots *x = &s->now->snapshots;
    x->first                   = s->r.steps + FIRST_AFTER;
    x->fastest_s               = INFINITY;
    if (!s->snapshot_every) s->snapshot_every = (s->job.snapshot_every + 1) / 2;
    if (!weft_state_memory(s->state)->bytes || is_replica(s)) return;
    if (weft_state_host_memory(s->state)->bytes || !has_room(s)) {
        weft_say_warn(&s->say,
                      "no snapshots: %s; a lost rank without a replica means the newest "
                      "checkpoint",
                      weft_state_host_memory(s->state)->bytes
                          ? "offload keeps the optimizer's state in host memory"
                          : "the host has no memory free for two copies of the state");
        return;
    }
    /* what is in host memory goes into the buffer as fast */
    if (!s->device->host_access) weft_session__make_device_copy(s, &x->copy);
    x->on = true;
}

/* ---- making ---- */

/* Of a rank that makes none: the others' choice is taken, too. */
static bool is_due(const weft_session *s, int64_t step)
{
    const weft_session__snapshots *x = &s->now->snapshots;
    if (step >= s->job.steps) return false;
    if (!s->snapshot_every) return step == x->first;
    return step % s->snapshot_every == 0;
}

bool weft_session__is_snapshot_due(const weft_session *s)
{
    return s->now->snapshots.on && is_due(s, s->row.step);
}

/* The one under way is whole, or has failed: for want of memory there are none from now on. */
static weft_status end_running(weft_session *s)
{
    weft_session__snapshots *x  = &s->now->snapshots;
    weft_status              st = weft_snapshot_status(x->running);
    weft_failpoint("snapshot.whole");
    if (st == WEFT_OK) {
        x->total_s = weft_snapshot_seconds(x->running) - x->prepare_s;
        atomic_store(&held_of(s, x->into)->step, x->step);
    }
    weft_failpoint("snapshot.marked");
    weft_snapshot_close(x->running);
    x->running = NULL;
    if (st == WEFT_OK) return WEFT_OK;
    if (st != WEFT_ERR_MEM)
        return weft_fail_in(st, "snapshot of step %lld: ", (long long)x->step);
    weft_say_warn(&s->say, "no snapshots: %s", weft_error_text());
    x->on = false;
    return WEFT_OK;
}

/* This rank's, and those that it has to do with on other hosts. */
static bool is_whole(const weft_session *s, double wait_s)
{
    const weft_session__snapshots *x = &s->now->snapshots;
    return (!x->running ||
            weft_snapshot_wait(x->running, WEFT_SNAPSHOT_WRITTEN, wait_s)) &&
           weft_session__is_far_over(s);
}

static weft_status end_all(weft_session *s)
{
    weft_session__snapshots *x   = &s->now->snapshots;
    double                   far = weft_clock_s() - x->begin_s;
    bool                     two = x->far.sender.running;
    WEFT_TRY(weft_session__end_far(s));
    if (!x->running) return WEFT_OK;
    WEFT_TRY(end_running(s));
    if (two && far > x->total_s) x->total_s = far;
    return WEFT_OK;
}

static weft_status poll(weft_session *s)
{
    return is_whole(s, 0) ? end_all(s) : WEFT_OK;
}

static weft_status wait_running(weft_session *s)
{
    weft_session__snapshots *x     = &s->now->snapshots;
    double                   begin = weft_clock_s();
    while (!is_whole(s, TICK_S)) {
        weft_progress_alive();
        WEFT_TRY(weft_comm_check(s->now->comm));
        if (!weft_session__is_far_over(s)) usleep(FAR_TICK_US);
    }
    x->waited_s += weft_clock_s() - begin;
    return end_all(s);
}

static weft_status start(weft_session *s, int64_t step)
{
    weft_session__snapshots *x      = &s->now->snapshots;
    weft_snapshot_source     source = {.state = s->state};
    weft_failpoint("snapshot.begin");
    x->into =
        atomic_load(&held_of(s, 0)->step) <= atomic_load(&held_of(s, 1)->step) ? 0 : 1;
    x->step     = step;
    x->waited_s = 0;
    x->begin_s  = weft_clock_s();
    atomic_store(&held_of(s, x->into)->step, -1);
    WEFT_TRY(weft_snapshot_start(
        &source, NULL, 0,
        &(weft_snapshot_options){
            .copy = x->copy, .find_keep = find_buffer, .arg = s, .n_writer = 1},
        &x->running));
    weft_failpoint("snapshot.started");
    return WEFT_OK;
}

/* So that steps wait for snapshots at most MOST_WAIT of their time, and that the link is busy with
 * them at most MOST_LINK of it: on the slowest rank. */
int64_t weft_session__choose_every(const weft_session__snapshot_times *of, int n)
{
    double every = 1;
    for (int r = 0; r < n; r++) {
        if (!(of[r].total_s > 0) || !(of[r].step_s > 0)) continue;
        every = fmax(every, of[r].waited_s / (MOST_WAIT * of[r].step_s));
        every = fmax(every, of[r].total_s / (MOST_LINK * of[r].step_s));
    }
    return every < MOST_EVERY ? (int64_t)ceil(every) : MOST_EVERY;
}

/* When the first one is whole on all ranks. */
static weft_status choose(weft_session *s)
{
    weft_session__snapshots      *x   = &s->now->snapshots;
    int                           n   = s->now->comm->world;
    weft_session__snapshot_times  own = {x->total_s, x->waited_s, x->fastest_s,
                                         x->running != NULL || x->far.receiver.running};
    weft_session__snapshot_times *of =
        WEFT_ARENA_ARRAY(s->now->arena, weft_session__snapshot_times, n);
    WEFT_TRY(weft_arena_status(s->now->arena));
    WEFT_TRY(weft_session__gather(s, &own, sizeof own, of));
    for (int r = 0; r < n; r++)
        if (of[r].under_way) return WEFT_OK;
    s->snapshot_every = weft_session__choose_every(of, n);
    weft_say_info(
        &s->say,
        "a snapshot of the state every %lld steps: it takes %.3g s, a step %.3g "
        "s; at most %lld steps are run again",
        (long long)s->snapshot_every, own.total_s, own.step_s,
        2 * (long long)s->snapshot_every - 1);
    return WEFT_OK;
}

/* On all ranks; the last one is whole. */
static weft_status start_all(weft_session *s, int64_t step)
{
    weft_session__snapshots *x = &s->now->snapshots;
    x->begun                   = step;
    if (x->on) WEFT_TRY(start(s, step));
    return weft_session__start_far(s, step);
}

static bool has_step(const weft_session *s, int64_t step)
{
    for (int k = 0; k < WEFT_COMM_SHM_OWN; k++)
        if (atomic_load(&held_of(s, k)->step) == step) return true;
    return is_replica(s) || !weft_state_memory(s->state)->bytes;
}

weft_status weft_session__make_snapshot(weft_session *s, bool *whole)
{
    weft_generation *g    = s->now;
    int64_t          step = s->r.steps;
    int32_t         *of   = WEFT_ARENA_ARRAY(g->arena, int32_t, g->comm->world);
    WEFT_TRY(weft_arena_status(g->arena));
    WEFT_TRY(wait_running(s));
    if (g->snapshots.begun != step) {
        WEFT_TRY(weft_runner_settle(g->runner));
        WEFT_TRY(start_all(s, step));
        WEFT_TRY(wait_running(s));
    }
    int32_t has = has_step(s, step);
    WEFT_TRY(weft_session__gather(s, &has, sizeof has, of));
    *whole = true;
    for (int r = 0; r < g->comm->world; r++) *whole = *whole && of[r];
    return WEFT_OK;
}

weft_status weft_session__step_snapshots(weft_session *s)
{
    weft_session__snapshots *x = &s->now->snapshots;
    if (!weft_session__has_snapshots(s)) return WEFT_OK;
    x->fastest_s = fmin(x->fastest_s, s->row.step_ms / 1e3);
    WEFT_TRY(poll(s));
    if (!s->snapshot_every && s->row.step > x->first) WEFT_TRY(choose(s));
    if (!is_due(s, s->row.step)) return WEFT_OK;
    WEFT_TRY(wait_running(s)); /* it is whole already */
    return start_all(s, s->row.step);
}

/* Has a slot of this host that is in no view any more left something? */
static bool has_left(const weft_session *s)
{
    weft_comm *end = weft_comm_shared_end(s->now->comm);
    for (int at = end->world, slot; (slot = weft_comm_shm_slot_at(end, at)) >= 0; at++)
        if (weft_kept_find_of(s->now->comm, slot)) return true;
    return false;
}

/* Where the state came from a snapshot of which slots have a part that are given back when all are
 * ready, there is another one before that. */
static weft_status renew(weft_session *s)
{
    weft_generation *g    = s->now;
    int32_t          left = has_left(s), *of;
    bool             any  = false;
    if (!g->was_snapshot) return WEFT_OK;
    of = WEFT_ARENA_ARRAY(g->arena, int32_t, g->comm->world);
    WEFT_TRY(weft_arena_status(g->arena));
    WEFT_TRY(weft_session__gather(s, &left, sizeof left, of));
    for (int r = 0; r < g->comm->world; r++) any = any || of[r];
    return any ? weft_session__make_snapshot(s, &any) : WEFT_OK;
}

weft_status weft_session__open_snapshots(weft_session *s)
{
    if (!weft_session__has_snapshots(s)) return WEFT_OK;
    open_own(s);
    WEFT_TRY(weft_session__open_far(s));
    return renew(s);
}

weft_status weft_session__await_snapshot(weft_session *s, int64_t step)
{
    if (!is_due(s, step)) return poll(s);
    weft_failpoint("snapshot.await");
    WEFT_TRY(wait_running(s));
    weft_failpoint("snapshot.awaited");
    return WEFT_OK;
}

void weft_session__wait_snapshot_copied(weft_session *s)
{
    weft_session__snapshots *x     = &s->now->snapshots;
    double                   begin = weft_clock_s();
    while (x->running && !weft_snapshot_wait(x->running, WEFT_SNAPSHOT_COPIED, TICK_S))
        weft_progress_alive();
    weft_failpoint("snapshot.copied");
    if (x->running) x->waited_s += weft_clock_s() - begin;
}

/* Second copies under way end by themselves: where all ranks leave in order, as both ends are
 * there, elsewhere as no rank can send. */
static void end_or_cancel(weft_session *s)
{
    weft_session__snapshots *x = &s->now->snapshots;
    if (!weft_session__is_far_over(s) && weft_comm_check(s->now->comm) == WEFT_OK)
        (void)wait_running(s);
    else
        (void)poll(s);
    if (x->running) weft_snapshot_cancel(x->running, "the view has ended");
    (void)weft_session__end_far(s);
    weft_snapshot_close(x->running);
    x->running = NULL;
}

void weft_session__close_snapshots(weft_session *s)
{
    weft_session__snapshots *x = &s->now->snapshots;
    char                     text[1024];
    snprintf(text, sizeof text, "%s", weft_error_text());
    end_or_cancel(s);
    weft_state_destroy(x->copy);
    for (int k = 0; k < WEFT_COMM_SHM_OWN; k++) weft_state_destroy(x->buffer[k]);
    *x = (weft_session__snapshots){0};
    (void)WEFT_FAIL(WEFT_ERR_PEER, "%s", text);
}

/* ---- recovery ---- */

/* The newest step below `below` that a slot has a snapshot of; -1: none. */
static int64_t find_newest(weft_comm *end, int64_t below)
{
    int64_t newest = -1;
    for (int r = 0; weft_comm_shm_kept_slot_of(end, r); r++)
        for (int k = 0; k < WEFT_COMM_SHM_SNAPSHOT; k++) {
            const weft_comm_shm_slot *slot = weft_comm_shm_kept_slot_of(end, r);
            int64_t                   step = atomic_load(&slot->snapshot[k].step);
            if (step < below && step > newest) newest = step;
        }
    return newest;
}

/* The same of all hosts. */
static weft_status agree_on_newest(weft_session *s, int64_t below, int64_t *out)
{
    weft_generation *g    = s->now;
    int64_t          mine = find_newest(weft_comm_shared_end(g->comm), below);
    int64_t         *of   = WEFT_ARENA_ARRAY(g->arena, int64_t, g->comm->world);
    WEFT_TRY(weft_arena_status(g->arena));
    WEFT_TRY(weft_session__gather(s, &mine, sizeof mine, of));
    *out = -1;
    for (int r = 0; r < g->comm->world; r++)
        if (of[r] < below && of[r] > *out) *out = of[r];
    return WEFT_OK;
}

/* What slots of all hosts have of the step. */
static weft_status open_snapshot(weft_session *s, const weft_state *to, int64_t step)
{
    weft_generation *g = s->now;
    weft_kept_states_close(&g->from);
    WEFT_TRY(weft_kept_states_open(g->comm, s->device, step, &g->from));
    if (!weft_comm_hosts_of(g->comm)) return WEFT_OK;
    return weft_kept_states_exchange(&g->from, to, g->comm, g->group);
}

weft_status weft_session__find_snapshot(weft_session *s, const weft_state *to,
                                        int64_t *step)
{
    weft_generation *g        = s->now;
    bool             complete = false;
    weft_failpoint("snapshot.look");
    for (int64_t below = INT64_MAX; !complete; below = *step) {
        WEFT_TRY(agree_on_newest(s, below, step));
        if (*step < 0) break;
        WEFT_TRY(open_snapshot(s, to, *step));
        WEFT_TRY(weft_session__find_complete(g->from.holders, g->holders, &complete));
    }
    weft_failpoint("snapshot.found");
    if (!complete) weft_kept_states_close(&g->from);
    return WEFT_OK;
}

/* Of a slot whose layout is this rank's; NULL: there is none. */
static const weft_state *find_alike(const weft_session *s, const weft_state *to,
                                    uint64_t layout)
{
    const weft_kept_states *from = &s->now->from;
    for (int h = 0; h < from->n; h++)
        if (from->state[h] && weft_program_state_layout(from->state[h]) == layout &&
            weft_state_memory(from->state[h])->bytes == weft_state_memory(to)->bytes)
            return from->state[h];
    return NULL;
}

/* Do all ranks have theirs on their own host, laid out alike?  Else some have to send, and what
 * ranks have for others is filled from those. */
static weft_status check_alike(weft_session *s, bool mine, bool *all)
{
    weft_generation *g = s->now;
    int32_t alike = mine, *of = WEFT_ARENA_ARRAY(g->arena, int32_t, g->comm->world);
    WEFT_TRY(weft_arena_status(g->arena));
    WEFT_TRY(weft_session__gather(s, &alike, sizeof alike, of));
    *all = true;
    for (int r = 0; r < g->comm->world; r++) *all = *all && of[r];
    return WEFT_OK;
}

weft_status weft_session__read_snapshot(weft_session *s, weft_state *to)
{
    weft_generation        *g    = s->now;
    const weft_kept_states *from = &g->from;
    const weft_state       *like = find_alike(s, to, weft_program_state_layout(to));
    weft_mover_side         side = {to, g->holders};
    weft_mover             *m;
    bool                    all;
    WEFT_TRY(check_alike(s, like != NULL, &all));
    if (all || (like && !from->source))
        WEFT_TRY(weft_state_copy_staged(like, to, NULL, NULL));
    if (all) return WEFT_OK;
    if (from->source) {
        WEFT_TRY(weft_mover_open_hosts(from->source, from->holders, &side, from->host,
                                       g->comm, WEFT_SESSION__TAG_STATE, &m));
        WEFT_TRY(weft_session__run_move(s, m));
    } else if (!like) {
        WEFT_TRY(
            weft_mover_open_near(from->state, from->holders, &side, g->comm->rank, &m));
        WEFT_TRY(weft_session__run_move(s, m));
    }
    return weft_session__fill_standby(s, to);
}

void weft_session__forget_snapshots(weft_session *s, int64_t after)
{
    for (int k = 0; k < WEFT_COMM_SHM_SNAPSHOT; k++)
        if (atomic_load(&held_of(s, k)->step) > after)
            atomic_store(&held_of(s, k)->step, -1);
}
