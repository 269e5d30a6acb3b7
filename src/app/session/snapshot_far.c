/* A second copy of each snapshot, in the agent's memory of one other host: what a lost host held is
 * there.
 *
 *     guard     the rank of another host that keeps the copy; ward: the rank whose it keeps
 *     sender    a thread of the ward: when its snapshot is whole, by messages to the guard
 *     receiver  a thread of the guard: into one of two buffers of its slot, next to its own
 *
 * (1) Both begin with the snapshot, whose step all ranks know, and it is whole when both have ended
 *     (snapshots.c waits for that before a later vote): so at any moment one whole snapshot of all
 *     ranks is there in two places.
 * (2) While the ward still copies it says so, so that no receive times out.
 * (3) Who has a replica on another host needs none: that one holds the same after every step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failpoint.h"
#include "comm/hosts.h"
#include "session/session_priv.h"
#include "session/snapshots_priv.h"
#include "state/table.h"

enum {
    CHUNK   = 1 << 20,
    CREDITS = 2
};
static const double TICK_S = 0.25;

/* What the sender says; DATA: the table and the state follow, by chunks. */
typedef enum far_kind {
    FAR_COPIES = 1, /* it is not whole yet */
    FAR_DATA,
    FAR_NONE, /* there will be none from now on */
} far_kind;

typedef struct far_head {
    int64_t kind, step;
} far_head;

/* What a rank tells all others before guards are chosen. */
typedef struct far_offer {
    int64_t bytes, table_bytes; /* of its snapshots; 0: it makes none, or needs no copy */
    uint64_t layout;
    int64_t  takes; /* the second time: there is memory for its ward's */
} far_offer;

/* ---- who keeps whose ---- */

void weft_session__find_guards(const int32_t *host, const bool *needs, int n, int *guard)
{
    for (int r = 0; r < n; r++) guard[r] = -1;
    for (int r = 0; r < n; r++) {
        bool taken = false;
        if (!needs[r]) continue;
        /* the first rank of the hosts after its own that is no guard yet */
        for (int k = 1; k < n && guard[r] < 0; k++) {
            int q = (r + k) % n;
            taken = host[q] == host[r];
            for (int other = 0; other < n && !taken; other++) taken = guard[other] == q;
            if (!taken) guard[r] = q;
        }
    }
}

/* Does a rank of another host hold all that rank r holds? */
static bool has_far_replica(const weft_session *s, int r)
{
    const weft_holders *h    = s->now->holders;
    const int32_t      *host = weft_comm_hosts_of(s->now->comm);
    for (int q = 0; h && q < s->now->comm->world; q++) {
        bool same = host[q] != host[r];
        for (int t = 0; t < h->n_tensor && same; t++) {
            const weft_part *a = weft_holders_part(h, t, q),
                            *b = weft_holders_part(h, t, r);
            same               = !b || (a && weft_part_equal(a, b));
        }
        if (same) return true;
    }
    return false;
}

/* ---- memory of the ward's ---- */

static weft_comm_shm_held *kept_of(const weft_session *s, int k)
{
    return &weft_program_state_slot(s->now->comm)->snapshot[WEFT_COMM_SHM_OWN + k];
}

static bool is_alike(const weft_comm_shm_held *h, const far_offer *of)
{
    return atomic_load(&h->bytes) == of->bytes &&
           atomic_load(&h->table_bytes) == of->table_bytes &&
           atomic_load(&h->layout) == of->layout;
}

/* Pages are made as it is written. */
static weft_status make_kept(weft_session *s, weft_comm_shm_held *h, const far_offer *of)
{
    weft_comm *end = weft_comm_shared_end(s->now->comm);
    int64_t    at = 0, table_at = 0;
    void      *p, *table;
    weft_session__forget_held(end, h);
    WEFT_TRY(weft_comm_shm_reserve(end, of->bytes, &p));
    weft_status st = weft_comm_shm_reserve(end, of->table_bytes, &table);
    if (st != WEFT_OK) {
        weft_comm_shm_free(end, p);
        return st;
    }
    (void)weft_comm_shm_find(end, p, &at);
    (void)weft_comm_shm_find(end, table, &table_at);
    atomic_store(&h->at, at);
    atomic_store(&h->table_at, table_at);
    atomic_store(&h->layout, of->layout);
    atomic_store(&h->table_bytes, of->table_bytes);
    atomic_store(&h->bytes, of->bytes);
    return WEFT_OK;
}

static int64_t count_missing(const weft_session *s, const far_offer *of)
{
    int64_t bytes = 0;
    for (int k = 0; k < WEFT_COMM_SHM_OWN; k++)
        if (!is_alike(kept_of(s, k), of)) bytes += of->bytes;
    return bytes;
}

static bool has_memory(const weft_session *s, const far_offer *of)
{
    int64_t left = weft_session__free_bytes();
    int64_t more = count_missing(s, of) + (s->now->snapshots.on ? of->bytes : 0);
    return weft_session__has_room(more, s->now->local > 0 ? s->now->local : 1, left,
                                  left);
}

/* Both buffers; those of an earlier view of the same layout stay, with what is in them. */
static bool make_buffers(weft_session *s, const far_offer *of)
{
    bool good = has_memory(s, of);
    for (int k = 0; k < WEFT_COMM_SHM_OWN && good; k++)
        if (!is_alike(kept_of(s, k), of))
            good = make_kept(s, kept_of(s, k), of) == WEFT_OK;
    return good;
}

/* ---- opening ---- */

static weft_status open_channels(weft_session *s)
{
    weft_session__far *f = &s->now->snapshots.far;
    weft_comm         *c = s->now->comm;
    if (f->guard >= 0)
        WEFT_TRY(weft_comm_open_channel(c, f->guard, WEFT_COMM_SEND,
                                        WEFT_SESSION__TAG_SNAPSHOT, CHUNK, CREDITS,
                                        &f->out));
    if (f->ward >= 0)
        WEFT_TRY(weft_comm_open_channel(c, f->ward, WEFT_COMM_RECV,
                                        WEFT_SESSION__TAG_SNAPSHOT, CHUNK, CREDITS,
                                        &f->in));
    return WEFT_OK;
}

static void say_guards(weft_session *s, const bool *needs, const int *guard)
{
    int n = 0, without = 0, first = -1;
    for (int r = 0; r < s->now->comm->world; r++) {
        n += guard[r] >= 0;
        if (!needs[r] || guard[r] >= 0) continue;
        if (!without++) first = r;
    }
    if (n)
        weft_say_info(&s->say, "snapshots of %d rank%s are kept on a second host", n,
                      n > 1 ? "s" : "");
    if (without)
        weft_say_warn(
            &s->say,
            "snapshots of %d rank%s (the first is rank %d) are on one host alone: "
            "no other host has a rank or memory for them",
            without, without > 1 ? "s" : "", first);
}

/* By all ranks. */
weft_status weft_session__open_far(weft_session *s)
{
    weft_generation   *g    = s->now;
    weft_session__far *f    = &g->snapshots.far;
    const int32_t     *host = weft_comm_hosts_of(g->comm);
    int                n = g->comm->world, me = g->comm->rank;
    *f = (weft_session__far){.guard = -1, .ward = -1};
    if (!host) return WEFT_OK;
    far_offer  mine  = {0};
    far_offer *of    = WEFT_ARENA_ARRAY(g->arena, far_offer, n);
    bool      *needs = WEFT_ARENA_ARRAY(g->arena, bool, n);
    int       *guard = WEFT_ARENA_ARRAY(g->arena, int, n);
    WEFT_TRY(weft_arena_status(g->arena));
    if (g->snapshots.on && !has_far_replica(s, me))
        mine = (far_offer){.bytes       = weft_state_memory(s->state)->bytes,
                           .table_bytes = weft_state_table_bytes(s->state),
                           .layout      = weft_program_state_layout(s->state)};
    WEFT_TRY(weft_session__gather(s, &mine, sizeof mine, of));
    for (int r = 0; r < n; r++) needs[r] = of[r].bytes > 0;
    weft_session__find_guards(host, needs, n, guard);
    for (int r = 0; r < n; r++)
        if (guard[r] == me) f->ward = r;
    mine.takes = f->ward >= 0 && make_buffers(s, &of[f->ward]);
    WEFT_TRY(weft_session__gather(s, &mine, sizeof mine, of));
    if (!mine.takes) f->ward = -1;
    for (int r = 0; r < n; r++)
        if (guard[r] >= 0 && !of[guard[r]].takes) guard[r] = -1;
    f->guard = guard[me];
    weft_failpoint("far.guards");
    if (!me) say_guards(s, needs, guard);
    return open_channels(s);
}

/* ---- sending ---- */

static void end_thread(weft_session__far_thread *t, weft_status st)
{
    t->st = st;
    if (st != WEFT_OK) snprintf(t->text, sizeof t->text, "%s", weft_error_text());
    atomic_store(&t->over, true);
}

static weft_status send_head(weft_session *s, far_kind kind)
{
    weft_session__snapshots *x = &s->now->snapshots;
    far_head                 h = {(int64_t)kind, x->step};
    return weft_comm_send(s->now->comm, x->far.out, &h, sizeof h);
}

static weft_status send_range(weft_session *s, const char *p, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += CHUNK) {
        WEFT_TRY(weft_comm_send(s->now->comm, s->now->snapshots.far.out, p + at,
                                bytes - at < CHUNK ? bytes - at : CHUNK));
        weft_failpoint("far.chunk_sent");
    }
    return WEFT_OK;
}

static weft_status send_snapshot(weft_session *s)
{
    weft_session__snapshots  *x   = &s->now->snapshots;
    weft_comm                *end = weft_comm_shared_end(s->now->comm);
    const weft_comm_shm_held *h =
        &weft_program_state_slot(s->now->comm)->snapshot[x->into];
    int slot = weft_comm_shm_own_slot(end);
    while (!weft_snapshot_wait(x->running, WEFT_SNAPSHOT_WRITTEN, TICK_S))
        WEFT_TRY(send_head(s, FAR_COPIES));
    if (weft_snapshot_status(x->running) != WEFT_OK) return send_head(s, FAR_NONE);
    weft_failpoint("far.send");
    WEFT_TRY(send_head(s, FAR_DATA));
    WEFT_TRY(send_range(s,
                        weft_comm_shm_reach(end, slot, atomic_load(&h->table_at),
                                            atomic_load(&h->table_bytes)),
                        atomic_load(&h->table_bytes)));
    return send_range(
        s, weft_comm_shm_reach(end, slot, atomic_load(&h->at), atomic_load(&h->bytes)),
        atomic_load(&h->bytes));
}

static void *run_sender(void *session)
{
    weft_session *s  = session;
    weft_status   st = send_snapshot(s);
    weft_failpoint("far.sent");
    end_thread(&s->now->snapshots.far.sender, st);
    return NULL;
}

/* ---- receiving ---- */

static weft_status receive_range(weft_session *s, char *p, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += CHUNK) {
        WEFT_TRY(weft_comm_recv(s->now->comm, s->now->snapshots.far.in, p + at,
                                bytes - at < CHUNK ? bytes - at : CHUNK));
        weft_failpoint("far.chunk_received");
    }
    return WEFT_OK;
}

static weft_status receive_snapshot(weft_session *s)
{
    weft_session__far  *f    = &s->now->snapshots.far;
    weft_comm          *end  = weft_comm_shared_end(s->now->comm);
    weft_comm_shm_held *h    = kept_of(s, f->into);
    int                 slot = weft_comm_shm_own_slot(end);
    far_head            head = {FAR_COPIES, 0};
    weft_failpoint("far.receive");
    while (head.kind == FAR_COPIES)
        WEFT_TRY(weft_comm_recv(s->now->comm, f->in, &head, sizeof head));
    if (head.kind == FAR_NONE) {
        f->ended = true;
        return WEFT_OK;
    }
    if (head.kind != FAR_DATA || head.step != f->step)
        return WEFT_FAIL(WEFT_ERR_PEER,
                         "rank %d sends a snapshot of step %lld, not of %lld",
                         weft_comm_name(s->now->comm, f->ward), (long long)head.step,
                         (long long)f->step);
    WEFT_TRY(receive_range(s,
                           weft_comm_shm_reach(end, slot, atomic_load(&h->table_at),
                                               atomic_load(&h->table_bytes)),
                           atomic_load(&h->table_bytes)));
    WEFT_TRY(receive_range(
        s, weft_comm_shm_reach(end, slot, atomic_load(&h->at), atomic_load(&h->bytes)),
        atomic_load(&h->bytes)));
    weft_failpoint("far.received");
    atomic_store(&h->step, head.step);
    weft_failpoint("far.kept");
    return WEFT_OK;
}

static void *run_receiver(void *session)
{
    weft_session *s = session;
    end_thread(&s->now->snapshots.far.receiver, receive_snapshot(s));
    return NULL;
}

/* ---- beside steps ---- */

static weft_status start_thread(weft_session *s, weft_session__far_thread *t,
                                void *(*run)(void *))
{
    *t = (weft_session__far_thread){.running = true};
    if (!pthread_create(&t->thread, NULL, run, s)) return WEFT_OK;
    t->running = false;
    return WEFT_FAIL(WEFT_ERR_MEM, "no thread for a snapshot's second copy");
}

weft_status weft_session__start_far(weft_session *s, int64_t step)
{
    weft_session__far *f = &s->now->snapshots.far;
    if (f->guard >= 0 && s->now->snapshots.running)
        WEFT_TRY(start_thread(s, &f->sender, run_sender));
    if (f->ward < 0) return WEFT_OK;
    f->into =
        atomic_load(&kept_of(s, 0)->step) <= atomic_load(&kept_of(s, 1)->step) ? 0 : 1;
    f->step = step;
    atomic_store(&kept_of(s, f->into)->step, -1);
    return start_thread(s, &f->receiver, run_receiver);
}

static bool is_over(const weft_session__far_thread *t)
{
    return !t->running || atomic_load(&t->over);
}

bool weft_session__is_far_over(const weft_session *s)
{
    const weft_session__far *f = &s->now->snapshots.far;
    return is_over(&f->sender) && is_over(&f->receiver);
}

static weft_status end_far_thread(weft_session__far_thread *t)
{
    if (!t->running) return WEFT_OK;
    pthread_join(t->thread, NULL);
    t->running = false;
    return t->st == WEFT_OK ? WEFT_OK : WEFT_FAIL(t->st, "%s", t->text);
}

/* Waits for both. */
weft_status weft_session__end_far(weft_session *s)
{
    weft_session__far *f  = &s->now->snapshots.far;
    weft_status        st = end_far_thread(&f->sender);
    weft_status        in = end_far_thread(&f->receiver);
    if (f->ended) f->ward = -1;
    return st != WEFT_OK ? st : in;
}
