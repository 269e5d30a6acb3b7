/* Groups in shared memory: where their members meet.
 *
 * A barrier is one word, poisoned : 1 | turn : 15 | arrived : 16.
 *
 *     arrive    add 1; the last one swaps in the next turn with nobody arrived
 *     wait      until the turn is another
 *     give up   (deadline, death, abort) set the poison bit; if the turn was another by then, the barrier is passed
 *
 * (1) Poison and turn change in one word, so a barrier is passed by all its members or by none: whoever finds
 *     the bit set in his turn fails, and so does the last to arrive.  tests/model/barrier.pml checks it.
 * (2) An epoch has a word of its own.  Opening a newer one poisons the older, so those who wait there leave. */
#include "comm/shm_priv.h"

#include <sched.h>
#include <string.h>

enum {
    POISON = 1u << 31,
    TURNS  = 1 << 15,
};

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

weft_status weft_comm__shm_open_group(weft_comm *c, int n, const int32_t *rank, int tag,
                                      weft_comm_group **out)
{
    shm_end         *e = shm_of(c);
    size_t           m = (size_t)n;
    weft_comm_group *g = weft_comm__shm_keep(
        e, sizeof *g + m * (4 * sizeof(void *) + 2 * sizeof(int32_t)) + 16);
    bool        fresh;
    void       *body;
    weft_status st = WEFT_OK;
    if (!g) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
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
    memcpy(key + 2, rank, m * sizeof *rank);
    for (int i = 0; i < n; i++)
        if (rank[i] == c->rank) g->me = i;

    WEFT_TRY(weft_comm__shm_lock(e));
    WEFT_GO(weft_comm__shm_find_entry(e, key, n + 2, sizeof(shm_meeting), &body, &fresh));
    g->meeting = body;
    if (fresh) {
        uint64_t at;
        WEFT_GO(weft_comm__shm_heap_alloc(e, (int64_t)n * 2 * SHM_STAGE + SHM_PAGE, &at));
        g->meeting->stage = (at + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
    }
    char *stage = weft_comm__shm_heap_at(e, g->meeting->stage, m * 2 * SHM_STAGE);
    if (!stage) WEFT_GO(damaged(g));
    for (int i = 0; i < n; i++) g->stage[i] = stage + (int64_t)i * 2 * SHM_STAGE;
    *out = g;
out:
    weft_comm__shm_unlock(e);
    return st;
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
        atomic_store(&g->meeting->newest, at);
        if (last) poison(last);
        last = r;
    }
    g->round = last;
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

static bool arrived(const weft_comm_group *g, int i, uint32_t turn)
{
    return __atomic_load_n(&g->round->seat[i].arrived[turn & 1], __ATOMIC_ACQUIRE) ==
           turn;
}

/* Why a barrier was not passed; waited: this rank itself came to the deadline. */
static weft_status blame(weft_comm_group *g, uint32_t turn, weft_comm_kind what,
                         bool waited)
{
    shm_end    *e      = g->e;
    shm_round  *newest = newest_of(g);
    const char *name   = weft_comm_kind_name(what);
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

/* Where ranks share processors: to give way helps only if one that is missing was last seen on this one. */
static int pauses(const weft_comm_group *g, uint32_t turn)
{
    int cpu = g->round->seat[g->me].cpu;
    if (!g->e->crowded) return g->e->spin;
    for (int i = 0; i < g->n; i++)
        if (__atomic_load_n(&g->round->seat[i].cpu, __ATOMIC_RELAXED) == cpu &&
            !arrived(g, i, turn))
            return 0;
    return SHM_SPIN;
}

static weft_status wait_turn(weft_comm_group *g, uint32_t turn, weft_comm_kind what)
{
    shm_end  *e        = g->e;
    shm_word *door     = &g->round->door;
    double    deadline = 0;
    bool      late     = false;
    for (;;) {
        uint32_t alarm = atomic_load(&e->head->alarm.v);
        uint32_t v     = atomic_load(&door->v);
        if (turn_of(v) != turn) return WEFT_OK;
        if (v & POISON) return blame(g, turn, what, late);
        if (weft_comm__shm_spin(door, v, pauses(g, turn))) continue;
        bool hopeless = weft_comm__shm_check(e) != WEFT_OK || somebody_gone(g, turn);
        if (!hopeless)
            late = weft_comm__shm_sleep(e, door, v, alarm, &deadline) == SHM_LATE;
        if (!hopeless && !late) continue;
        atomic_fetch_or(&door->v, POISON); /* unless they came at the last moment */
        weft_comm__shm_wake(door);
    }
}

/* The turn is known, for nobody passes without us; so the door's line moves once, by the addition. */
static weft_status arrive(weft_comm_group *g, shm_seat *seat, weft_comm_kind what)
{
    shm_word *door = &g->round->door;
    uint32_t  turn = seat->turn, next = (turn + 1) % TURNS;
    if (seat->over) return blame(g, turn, what, false);
    if (g->e->crowded) __atomic_store_n(&seat->cpu, sched_getcpu(), __ATOMIC_RELAXED);
    __atomic_store_n(&seat->arrived[turn & 1], turn, __ATOMIC_RELEASE);
    uint32_t v = atomic_fetch_add(&door->v, 1), all = v + 1;
    if (v & POISON) return blame(g, turn, what, false);
    if ((all & 0xffff) != (uint32_t)g->n) {
        WEFT_TRY(wait_turn(g, turn, what));
    } else {
        if (!atomic_compare_exchange_strong(&door->v, &all, next << 16))
            return blame(g, turn, what, false);
        weft_comm__shm_wake(door);
    }
    seat->turn = next;
    return WEFT_OK;
}

weft_status weft_comm__shm_barrier(weft_comm_group *g, weft_comm_kind what)
{
    shm_seat   *seat = &g->round->seat[g->me];
    weft_status st   = arrive(g, seat, what);
    if (st != WEFT_OK) seat->over = 1;
    return st;
}
