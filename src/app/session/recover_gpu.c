/* A generation after a lost rank, where the state is in memory that goes with its process (jobs
 * with GPUs, on their CPUs too): survivors have it, or a snapshot does. */
#include <stdio.h>
#include <string.h>

#include "base/failpoint.h"
#include "comm/hosts.h"
#include "session/computed_state.h"
#include "session/session_priv.h"
#include "session/snapshots_priv.h"

/* ---- before the next view ---- */

/* Has a rank, perhaps one that is gone, passed the vote of that step? */
static bool is_passed(const weft_session *s, int64_t step)
{
    weft_comm          *end = weft_comm_shared_end(s->now->comm);
    weft_comm_shm_slot *slot;
    for (int r = 0; (slot = weft_comm_shm_kept_slot_of(end, r)); r++)
        if (atomic_load(&slot->passed) >= step) return true;
    return false;
}

/* All updates of the step are made without peers.  What it gathers from others after the commit
 * point is of no step, the rest is: with copies others have those parts, so all of it is there. */
static void keep_computed(weft_session *s, int64_t step)
{
    weft_session__mark_state(s, -1);
    if (weft_computed_state_make(&s->now->made, s->state, &s->computed) != WEFT_OK)
        return;
    if (s->computed)
        weft_state_set_step(s->computed, step);
    else
        weft_session__mark_state(s, step);
}

void weft_session__end_alone(weft_session *s)
{
    weft_exec *e = weft_runner_exec(s->now->runner);
    if (!weft_session__has_snapshots(s)) return;
    weft_exec_progress p = weft_exec_get_progress(e);
    if (p.outcome == WEFT_EXEC_HELD && p.arrived == p.passed + 1 &&
        is_passed(s, p.arrived + 1)) {
        weft_session__mark_state(s, -1);
        weft_session__wait_copied(s);
        weft_session__wait_snapshot_copied(s);
        (void)weft_exec_finish_alone(e);
        p = weft_exec_get_progress(e);
    }
    if (p.outcome == WEFT_EXEC_ALONE)
        keep_computed(s, p.passed + 1);
    else if (p.outcome == WEFT_EXEC_TORN)
        weft_session__mark_state(s, -1);
}

/* ---- the state ---- */

/* What a rank says of its state. */
typedef struct replica {
    weft_memory_handle handle;
    uint64_t           layout;
    int64_t            bytes;
    int32_t            has, wants; /* the state of the step that is continued */
} replica;

static weft_status copy_imported(weft_state *to, const replica *from)
{
    const weft_memory *m = weft_state_memory(to);
    weft_device       *d = m->device;
    weft_memory        there;
    WEFT_TRY(d->import_memory(d, &from->handle, &there));
    weft_status st = there.bytes == m->bytes
                         ? d->copy(d, NULL, m, &there)
                         : WEFT_FAIL(WEFT_ERR_PEER, "a replica's state has %lld bytes",
                                     (long long)there.bytes);
    d->import_close(d, &from->handle, &there);
    return st;
}

/* From the first replica whose memory this rank can open: a handle is of its host and its kind of
 * device alone. */
static bool copy_from_any(const weft_generation *g, weft_state *to, const replica *all)
{
    const weft_session__card *card = g->devices.card;
    const int32_t            *host = weft_comm_hosts_of(g->comm);
    int                       me   = g->comm->rank;
    for (int r = 0; r < g->comm->world; r++)
        if (all[r].has && all[r].layout == all[me].layout &&
            all[r].bytes == all[me].bytes && !strcmp(card[r].kind, card[me].kind) &&
            (!host || host[r] == host[me]) && copy_imported(to, &all[r]) == WEFT_OK)
            return true;
    return false;
}

/* Device to device, where a rank that is left has a state laid out like this one; from another kind
 * of device, and to a CPU, it is sent.  *all: every rank has its state now. */
static weft_status copy_replicas(weft_session *s, weft_state *to, bool *all)
{
    weft_generation   *g    = s->now;
    weft_device       *d    = s->device;
    const weft_memory *m    = weft_state_memory(to);
    int                n    = g->comm->world;
    int32_t            good = 1, *of = WEFT_ARENA_ARRAY(g->arena, int32_t, n);
    replica           *other = WEFT_ARENA_ARRAY(g->arena, replica, n);
    replica mine = {.layout = weft_program_state_layout(to), .bytes = m->bytes};
    WEFT_TRY(weft_arena_status(g->arena));
    bool plain = d->export_memory && m->bytes && !weft_state_host_memory(to)->bytes;
    mine.wants = g->step < 0 || weft_state_step(to) != g->step;
    mine.has   = !mine.wants && plain && d->export_memory(d, m, &mine.handle) == WEFT_OK;
    weft_failpoint("replica.offered");
    WEFT_TRY(weft_session__gather(s, &mine, sizeof mine, other));
    weft_failpoint("replica.copy");
    if (mine.wants) good = g->step >= 0 && plain && copy_from_any(g, to, other);
    weft_failpoint("replica.copied");
    WEFT_TRY(weft_session__gather(s, &good, sizeof good, of)); /* memory may be closed */
    *all = true;
    for (int r = 0; r < n; r++) *all = *all && of[r];
    return WEFT_OK;
}

/* What slots have of snapshots is looked at before any of them changes it. */
weft_status weft_session__find_lost(weft_session *s, weft_state *to)
{
    weft_generation *g = s->now;
    int64_t          snapshot;
    bool             all;
    WEFT_TRY(weft_session__find_snapshot(s, to, &snapshot));
    if (weft_state_step(to) != g->step) weft_state_set_step(to, -1);
    WEFT_TRY(copy_replicas(s, to, &all));
    if (!all) WEFT_TRY(weft_session__find_sent(s, to));
    if (g->restores && snapshot >= 0 && snapshot >= s->out.saved_step) {
        weft_session__mark_state(s, -1); /* what is left of the step is overwritten */
        weft_state_set_step(to, -1);     /* until all of it is there */
        weft_failpoint("snapshot.read");
        WEFT_TRY(weft_session__read_snapshot(s, to));
        weft_failpoint("snapshot.filled");
        g->restores     = false;
        g->was_snapshot = true;
        g->back         = snapshot != g->step;
        g->step         = snapshot;
    }
    weft_kept_states_close(&g->from);
    WEFT_TRY(weft_session__meet(s));
    weft_failpoint("snapshot.forget");
    weft_session__forget_snapshots(s, snapshot);
    return WEFT_OK;
}
