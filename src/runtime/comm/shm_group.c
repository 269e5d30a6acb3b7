/* Groups in shared memory: where their members meet.
 *
 * A barrier is one word, poisoned : 1 | turn : 15 | arrived : 16.
 *
 *     arrive    add 1; the last one swaps in the next turn with nobody arrived
 *     wait      until the turn is another
 *     give up   (deadline, death, abort) set the poison bit; if the turn was another by then, the
 *     barrier is passed
 *
 * Where ranks share processors each further barrier costs every rank two switches, so small work
 * is done at the
 * barrier itself: between the last arrival and the swap.
 *
 *     claim     the turn whose work is under way : 16 | pieces taken : 16; the last to arrive
 *     sets it work      the last to arrive, and whoever is awake to see that all are there, take
 *               pieces; who finishes the last one swaps in the next turn.  Who sleeps or is not
 *               running finds it done.
 *
 * (1) Poison and turn change in one word, so a barrier is passed by all its members or by none:
 *     whoever finds the bit set in his turn fails, and so does the last to arrive.
 *     tests/model/barrier.pml checks it. A worker that dies leaves its piece unfinished: the
 *     barrier is not passed, and the verdict ends the waiting.
 * (2) An epoch has a word of its own.  Opening a newer one poisons the older, so those who wait
 *     there leave. */
#include "comm/shm_priv.h"

#include <sched.h>
#include <string.h>

#include "base/clock.h"

enum {
    POISON = 1u << 31,
    TURNS  = 1 << 15,
    HELP   = 200, /* looks for work that is about to be there */
};

static const uint32_t SHUT    = 0xffff0000u; /* of the door: all but who arrived */
static const uint32_t NO_WORK = (uint32_t)TURNS << 16;

static uint32_t turn_of(uint32_t door)
{
    return door >> 16 & (TURNS - 1);
}

static uint64_t round_bytes(const weft_comm_group *g)
{
    return sizeof(shm_round) + (uint64_t)g->n * sizeof(shm_seat);
}

static shm_round *newest_of(const weft_comm_group *g)
{
    return weft_comm__shm_heap_at(g->e, atomic_load(&g->meeting->newest), round_bytes(g));
}

static weft_status damaged(const weft_comm_group *g)
{
    return WEFT_FAIL(WEFT_ERR_PEER, "a group of rank %d (tag %d) is damaged",
                     g->e->c.rank, g->tag);
}

static int64_t stages_bytes(int n)
{
    return (int64_t)n * 2 * SHM_STAGE + SHM_PAGE;
}

weft_status weft_comm__shm_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                      uint32_t instance, weft_comm_group **out)
{
    shm_end         *e = shm_of(c);
    size_t           m = (size_t)n;
    weft_comm_group *g = weft_comm__shm_keep(
        e, sizeof *g + m * (4 * sizeof(void *) + 2 * sizeof(int32_t)) + 32);
    bool        fresh;
    void       *body;
    weft_status st  = WEFT_OK;
    char       *one = weft_comm__shm_keep(e, (m + 1) * sizeof *g->one);
    if (!g || !one) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    g->one_kept = one;
    one += (SHM_LINE - (uintptr_t)one % SHM_LINE) % SHM_LINE;
    g->one   = (shm_call *)(void *)one;
    g->e     = e;
    g->n     = n;
    g->tag   = tag;
    g->stage = (char **)(g + 1);
    g->in    = (const void **)(g->stage + m);
    g->out   = (void **)(g->in + m);
    g->call  = (const shm_call **)(void *)(g->out + m);
    g->rank  = (int32_t *)(void *)(g->call + m);
    memcpy(g->rank, rank, m * sizeof *rank);
    int32_t *key = g->rank + m;
    key[0]       = 'g';
    key[1]       = tag;
    key[2]       = (int32_t)instance;
    memcpy(key + 3, rank, m * sizeof *rank);
    g->key = key;
    for (int i = 0; i < n; i++)
        if (rank[i] == c->rank) g->me = i;

    WEFT_TRY(weft_comm__shm_lock(e));
    WEFT_GO(weft_comm__shm_find_entry(e, key, n + 3, sizeof(shm_meeting), &body, &fresh));
    g->meeting = body;
    if (fresh) {
        uint64_t at;
        WEFT_GO(weft_comm__shm_heap_alloc(e, stages_bytes(n), &at));
        g->meeting->stage_at = at;
        g->meeting->stage    = (at + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
    }
    char *stage = weft_comm__shm_heap_at(e, g->meeting->stage, m * 2 * SHM_STAGE);
    if (!stage) WEFT_GO(damaged(g));
    for (int i = 0; i < n; i++) g->stage[i] = stage + (int64_t)i * 2 * SHM_STAGE;
    *out = g;
out:
    weft_comm__shm_unlock(e);
    return st;
}

/* The last member to close frees it: others may still read its stages. */
weft_status weft_comm__shm_close_group(weft_comm *c, weft_comm_group *g)
{
    shm_end *e = g->e;
    c->bytes -= 2 * (int64_t)g->staged;
    WEFT_TRY(weft_comm__shm_lock(e));
    if (++g->meeting->n_closed == g->n) {
        uint64_t round = atomic_load(&g->meeting->newest);
        if (round) weft_comm__shm_heap_free(e, round, (int64_t)round_bytes(g));
        weft_comm__shm_heap_free(e, g->meeting->stage_at, stages_bytes(g->n));
        weft_comm__shm_remove_entry(e, g->key, g->n + 3, sizeof(shm_meeting));
    }
    weft_comm__shm_unlock(e);
    weft_comm__shm_discard(e, g->one_kept);
    weft_comm__shm_discard(e, g);
    return WEFT_OK;
}

/* ---- rounds ---- */

static void poison(shm_round *r)
{
    atomic_fetch_or(&r->door.v, POISON);
    weft_comm__shm_wake(&r->door);
}

static weft_status stale(const weft_comm_group *g, uint32_t newest)
{
    return WEFT_FAIL(WEFT_ERR_PEER, "rank %d is of epoch %u, the group is of epoch %u",
                     weft_comm_name(&g->e->c, g->e->c.rank), g->e->c.epoch, newest);
}

/* With the directory locked. */
static weft_status find_round(weft_comm_group *g)
{
    shm_end   *e    = g->e;
    uint64_t   at   = atomic_load(&g->meeting->newest);
    shm_round *last = newest_of(g);
    if (at && !last) return damaged(g);
    if (last && last->epoch > e->c.epoch) return stale(g, last->epoch);
    if (!last || last->epoch < e->c.epoch) {
        WEFT_TRY(weft_comm__shm_heap_alloc(e, (int64_t)round_bytes(g), &at));
        shm_round *r = weft_comm__shm_heap_at(e, at, round_bytes(g));
        WEFT_TRY(weft_comm__shm_populate(r, (int64_t)round_bytes(g)));
        r->epoch = e->c.epoch;
        for (int i = 0; i < g->n; i++) /* turn 0 must not look arrived at */
            r->seat[i].arrived[0] = r->seat[i].arrived[1] = TURNS;
        atomic_store(&r->claim, NO_WORK);
        atomic_store(&g->meeting->newest, at);
        if (last) poison(last);
        last = r;
    }
    __atomic_store_n(&g->round, last, __ATOMIC_RELEASE); /* others of this process ask */
    return WEFT_OK;
}

weft_status weft_comm__shm_enter(weft_comm_group *g)
{
    shm_end *e = g->e;
    WEFT_TRY(weft_comm__shm_check(e));
    if (g->round && g->round->epoch == e->c.epoch) return WEFT_OK;
    shm_tell_epoch(e);
    WEFT_TRY(weft_comm__shm_lock(e));
    weft_status st = find_round(g);
    weft_comm__shm_unlock(e);
    return st;
}

/* ---- the barrier ---- */

uint32_t weft_comm__shm_turn(const weft_comm_group *g)
{
    return g->round->seat[g->me].turn;
}

/* It has arrived, and nobody waits for its work. */
static bool arrived(const weft_comm_group *g, int i, uint32_t turn)
{
    const shm_seat *s = &g->round->seat[i];
    return __atomic_load_n(&s->arrived[turn & 1], __ATOMIC_ACQUIRE) == turn &&
           !__atomic_load_n(&s->busy, __ATOMIC_ACQUIRE);
}

/* Why a barrier was not passed; waited: this rank itself came to the deadline. */
static weft_status blame(weft_comm_group *g, uint32_t turn, weft_collective what,
                         bool waited)
{
    shm_end    *e      = g->e;
    shm_round  *newest = newest_of(g);
    const char *name   = weft_collective_name(what);
    WEFT_TRY(weft_comm__shm_check(e));
    if (!newest) return damaged(g);
    if (newest != g->round) return stale(g, newest->epoch);
    for (int i = 0; i < g->n; i++) {
        if (i == g->me || arrived(g, i, turn)) continue;
        if (waited)
            return WEFT_FAIL(
                WEFT_ERR_PEER, "rank %d is silent: rank %d waited %g s in %s (tag %d)",
                weft_comm_name(&e->c, g->rank[i]), weft_comm_name(&e->c, e->c.rank),
                e->c.timeout_s, name, g->tag);
        return WEFT_FAIL(WEFT_ERR_PEER, "rank %d is silent: %s in %s (tag %d)",
                         weft_comm_name(&e->c, g->rank[i]),
                         weft_comm__shm_gone(e, g->rank[i])
                             ? "it is gone while others wait"
                             : "others have given up waiting",
                         name, g->tag);
    }
    return WEFT_FAIL(WEFT_ERR_PEER,
                     "rank %d came too late to %s (tag %d): the others gave up",
                     weft_comm_name(&e->c, e->c.rank), name, g->tag);
}

/* A member that has not arrived at this turn and never will. */
static bool somebody_gone(const weft_comm_group *g, uint32_t turn)
{
    for (int i = 0; i < g->n; i++)
        if (!arrived(g, i, turn) && weft_comm__shm_gone(g->e, g->rank[i])) return true;
    return false;
}

/* ---- waiting ---- */

/* One that is missing was last seen on this processor. */
static bool missing_here(const weft_comm_group *g, uint32_t turn)
{
    int cpu = g->round->seat[g->me].cpu;
    for (int i = 0; i < g->n; i++)
        if (__atomic_load_n(&g->round->seat[i].cpu, __ATOMIC_RELAXED) == cpu &&
            !arrived(g, i, turn))
            return true;
    return false;
}

/* Awake, for a while; true when the door has moved.  Where ranks share processors, to give way
 * helps only those of this one. */
static bool linger(const weft_comm_group *g, uint32_t v, uint32_t mask)
{
    const shm_word *door = &g->round->door;
    if (weft_comm__shm_spin(door, v, mask, g->e->spin)) return true;
    if (!g->e->crowded) return weft_comm__shm_yield(door, v, mask);
    shm_yields y = {0};
    bool       more;
    do {
        if (!missing_here(g, turn_of(v)) && weft_comm__shm_spin(door, v, mask, SHM_SPIN))
            return true;
        more = weft_comm__shm_give_way(&y);
        if (shm_moved(door, v, mask)) return true;
    } while (more);
    return false;
}

/* ---- work ---- */

/* The compare: only poison can have come between. */
static weft_status open_door(weft_comm_group *g, uint32_t turn, weft_collective what)
{
    shm_word *door = &g->round->door;
    uint32_t  all = turn << 16 | (uint32_t)g->n, next = (turn + 1) % TURNS << 16;
    if (!atomic_compare_exchange_strong(&door->v, &all, next))
        return blame(g, turn, what, false);
    weft_comm__shm_wake(door);
    return WEFT_OK;
}

static bool take_piece(const weft_comm_group *g, uint32_t turn, int *k)
{
    _Atomic uint32_t *claim = &g->round->claim;
    uint32_t          c     = atomic_load(claim);
    if (c >> 16 != turn || (c & 0xffff) >= (uint32_t)g->n) return false;
    *k = (int)(atomic_fetch_add(claim, 1) & 0xffff);
    return *k < g->n;
}

/* Pieces as long as there are any; who finishes the last one opens the door. */
static weft_status take_pieces(weft_comm_group *g, uint32_t turn, weft_collective what,
                               const shm_work *w)
{
    int k;
    while (take_piece(g, turn, &k)) {
        WEFT_TRY(w->piece(w->job, k, k + 1));
        if (atomic_fetch_add(&g->round->done, 1) + 1 == (uint32_t)g->n)
            return open_door(g, turn, what);
    }
    return WEFT_OK;
}

static weft_status be_busy(weft_comm_group *g, uint32_t turn, weft_collective what,
                           const shm_work *w, bool last)
{
    shm_round  *r    = g->round;
    uint32_t   *busy = &r->seat[g->me].busy;
    weft_status st   = WEFT_OK;
    __atomic_store_n(busy, 1, __ATOMIC_RELEASE);
    if (last && w->alone) {
        st = w->piece(w->job, 0, g->n);
        atomic_store(&r->claim, turn << 16 | (uint32_t)g->n);
        if (st == WEFT_OK) st = open_door(g, turn, what);
    } else {
        if (last) {
            atomic_store(&r->done, 0);
            atomic_store(&r->claim, turn << 16);
        }
        st = take_pieces(g, turn, what, w);
    }
    __atomic_store_n(busy, 0, __ATOMIC_RELEASE);
    if (st != WEFT_OK) poison(r);
    return st;
}

/* All have arrived; the last to do so is about to say whether there is work. */
static weft_status help(weft_comm_group *g, uint32_t turn, weft_collective what,
                        const shm_work *w)
{
    const shm_round *r = g->round;
    for (int i = 0; i < HELP && atomic_load(&r->claim) >> 16 != turn; i++)
        if (weft_comm__shm_spin(&r->door, turn << 16, SHUT, 1)) return WEFT_OK;
    if ((atomic_load(&r->claim) & 0xffff) >= (uint32_t)g->n) return WEFT_OK;
    return be_busy(g, turn, what, w, false);
}

/* ---- the barrier ---- */

static weft_status wait_turn(weft_comm_group *g, uint32_t turn, weft_collective what,
                             const shm_work *w)
{
    shm_end  *e        = g->e;
    shm_word *door     = &g->round->door;
    double    deadline = 0;
    bool      late = false, helps = w && !w->alone;
    for (;;) {
        uint32_t alarm = atomic_load(&e->head->alarm.v);
        uint32_t v     = atomic_load(&door->v);
        if (turn_of(v) != turn) return WEFT_OK;
        if (v & POISON) return blame(g, turn, what, late);
        if (helps && (v & 0xffff) == (uint32_t)g->n) {
            WEFT_TRY(help(g, turn, what, w));
            helps = false;
            continue;
        }
        if (deadline <= 0 && linger(g, v, helps ? SHM_ALL : SHUT)) continue;
        bool hopeless = weft_comm__shm_check(e) != WEFT_OK || somebody_gone(g, turn);
        if (!hopeless)
            late = weft_comm__shm_sleep(e, door, v, SHUT, alarm, &deadline) == SHM_LATE;
        if (!hopeless && !late) continue;
        atomic_fetch_or(&door->v, POISON); /* unless they came at the last moment */
        weft_comm__shm_wake(door);
    }
}

/* The turn is known, for nobody passes without us; so the door's line moves once, by the
 * addition. */
static weft_status arrive(weft_comm_group *g, shm_seat *seat, weft_collective what,
                          const shm_work *w)
{
    shm_round *r    = g->round;
    uint32_t   turn = seat->turn;
    if (seat->over) return blame(g, turn, what, false);
    if (g->e->crowded) __atomic_store_n(&seat->cpu, sched_getcpu(), __ATOMIC_RELAXED);
    __atomic_store_n(&seat->arrived[turn & 1], turn, __ATOMIC_RELEASE);
    uint32_t v = atomic_fetch_add(&r->door.v, 1);
    if (v & POISON) return blame(g, turn, what, false);
    if ((v & 0xffff) + 1 != (uint32_t)g->n) return wait_turn(g, turn, what, w);
    if (!w) return open_door(g, turn, what);
    if (w->ready(w->job)) {
        WEFT_TRY(be_busy(g, turn, what, w, true));
        return w->alone ? WEFT_OK : wait_turn(g, turn, what, NULL);
    }
    atomic_store(&r->claim, NO_WORK);
    return open_door(g, turn, what);
}

weft_status weft_comm__shm_barrier_work(weft_comm_group *g, weft_collective what,
                                        const shm_work *w, bool *worked)
{
    shm_seat   *seat = &g->round->seat[g->me];
    weft_status st   = arrive(g, seat, what, w);
    if (st != WEFT_OK) {
        seat->over = 1;
        return st;
    }
    *worked = w && atomic_load(&g->round->claim) >> 16 == seat->turn;
    __atomic_store_n(&seat->turn, (seat->turn + 1) % TURNS, __ATOMIC_RELAXED);
    return WEFT_OK;
}

weft_status weft_comm__shm_barrier(weft_comm_group *g, weft_collective what)
{
    bool worked;
    return weft_comm__shm_barrier_work(g, what, NULL, &worked);
}

int weft_comm__shm_missing(weft_comm *c, weft_comm_group *g)
{
    const shm_round *r = __atomic_load_n(&g->round, __ATOMIC_ACQUIRE);
    (void)c;
    if (!r) return -1;
    uint32_t turn = __atomic_load_n(&r->seat[g->me].turn, __ATOMIC_RELAXED);
    for (int i = 0; arrived(g, g->me, turn) && i < g->n; i++)
        if (!arrived(g, i, turn)) return g->rank[i];
    return -1;
}
