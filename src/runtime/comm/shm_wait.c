/* Waiting in shared memory, and noticing that somebody will not come.
 *
 * Waiting: spin, yield, sleep.  Where ranks are no more than processors a spin of 1,000 pauses
 * covers the usual wait.  Where they are more, a spin that keeps the awaited rank from running is
 * lost time, so at a barrier a rank gives way as long as somebody who is missing was last seen on
 * its own processor, and spins if not.  To switch costs 1.5 us, to sleep and be woken 5 to 50
 * (measured: 4 KB all-reduce of 4 ranks on 2 cores, two on each: 5.7 us; all
 * four on one: 7.5, of which four switches are 6.2).  A yield of a millisecond or more ends the
 * yields: other work has the processor, and each further one would give it another slice (two
 * ranks beside six processes that do not end: 0.4 to 1.2 s a step of ZeRO 3, with 20 yields 6).
 *
 * Death: each rank's watcher holds its robust mutex and sleeps on the mutexes of its peers.  The
 * kernel marks the mutex of a dying thread and wakes one sleeper, which passes the verdict and
 *     wakes the rest: verdict   who is to blame, up to which epoch          looked at when an
 *     operation starts and in long loops alarm     moves with it
 *     every sleeper sleeps on it too
 * The watcher of each rank looks at the verdict as well, and tells those who compute
 * (weft_comm_watch). */
#include "comm/shm_priv.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/progress.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

enum {
    MAX_WATCHED = 100, /* the kernel takes 128 words */
    TICK_MS     = 50,
};

typedef struct wait_word { /* the kernel's struct futex_waitv */
    uint64_t val, uaddr;
    uint32_t flags, reserved;
} wait_word;

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("" ::: "memory");
#endif
}

static struct timespec moment(double s)
{
    struct timespec t = {.tv_sec = (time_t)s};
    t.tv_nsec         = (long)((s - (double)t.tv_sec) * 1e9);
    return t;
}

/* Sleeps while all words hold their values, at most until a moment.  Old kernels sleep on the
 * first word only and look at the rest every 2 ms. */
static void sleep_on(wait_word *w, int n, double until_s)
{
    static _Atomic int old_kernel;
    if (!atomic_load_explicit(&old_kernel, memory_order_relaxed)) {
        struct timespec t = moment(until_s);
        if (syscall(SYS_futex_waitv, w, (unsigned)n, 0, &t, CLOCK_MONOTONIC) >= 0) return;
        if (errno != ENOSYS && errno != EPERM) return;
        atomic_store_explicit(&old_kernel, 1, memory_order_relaxed);
    }
    struct timespec brief = {.tv_nsec = 2000000};
    syscall(SYS_futex, (uintptr_t)w[0].uaddr, FUTEX_WAIT, (uint32_t)w[0].val, &brief,
            NULL, 0);
}

static wait_word word_of(const void *p, uint32_t v)
{
    return (wait_word){.val = v, .uaddr = (uintptr_t)p, .flags = 2 /* 32 bits, shared */};
}

void weft_comm__shm_wake(shm_word *w)
{
    if (atomic_load(&w->n_asleep))
        syscall(SYS_futex, &w->v, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

bool weft_comm__shm_spin(const shm_word *w, uint32_t seen, uint32_t mask, int pauses)
{
    for (int i = 0; i <= pauses; i++) {
        if (shm_moved(w, seen, mask)) return true;
        pause_cpu();
    }
    return false;
}

bool weft_comm__shm_give_way(shm_yields *y)
{
    double before_s = y->n ? y->now_s : weft_clock_s();
    if (!y->n) y->enough_s = before_s + SHM_YIELD_S;
    sched_yield();
    y->now_s = weft_clock_s();
    y->n++;
    return y->now_s - before_s < SHM_LONG_S &&
           (y->n < SHM_YIELDS || y->now_s < y->enough_s);
}

bool weft_comm__shm_yield(const shm_word *w, uint32_t seen, uint32_t mask)
{
    shm_yields y = {0};
    do {
        if (shm_moved(w, seen, mask)) return true;
    } while (weft_comm__shm_give_way(&y));
    return shm_moved(w, seen, mask);
}

/* Who was not run for a while (stopped with all others, no core) has not waited for that long; and
 * the launcher may hold all deadlines while a rank is stopped on purpose. */
static double find_stall(const shm_end *e, double until_s)
{
    double late = weft_clock_s() - until_s;
    if (atomic_load_explicit(&e->head->held, memory_order_relaxed))
        return late + TICK_MS * 1e-3;
    return late > TICK_MS * 1e-3 ? late : 0;
}

shm_waited weft_comm__shm_sleep(shm_end *e, shm_word *w, uint32_t seen, uint32_t mask,
                                uint32_t alarm, double *deadline_s)
{
    shm_word *bell = &e->head->alarm;
    double    now  = weft_clock_s();
    if (*deadline_s <= 0) *deadline_s = now + e->c.timeout_s;
    double until = now + TICK_MS * 1e-3;
    if (until > *deadline_s) until = *deadline_s;
    atomic_fetch_add(&w->n_asleep, 1);
    atomic_fetch_add(&bell->n_asleep, 1);
    uint32_t  v       = atomic_load(&w->v);
    wait_word word[2] = {word_of(&w->v, v), word_of(&bell->v, alarm)};
    if (!((v ^ seen) & mask)) sleep_on(word, 2, until);
    atomic_fetch_sub(&bell->n_asleep, 1);
    atomic_fetch_sub(&w->n_asleep, 1);
    weft_progress_beat();
    if (shm_moved(w, seen, mask)) return SHM_MOVED;
    if (atomic_load(&bell->v) != alarm) return SHM_ALARM;
    *deadline_s += find_stall(e, until);
    return weft_clock_s() >= *deadline_s ? SHM_LATE : SHM_ALARM;
}

/* Ranks may be pinned each to its own processors: what counts is the union. */
void weft_comm__shm_choose_waiting(shm_end *e)
{
    int n_cpu = 0;
    for (int k = 0; k < SHM_CPU_WORD; k++) {
        uint64_t all = 0;
        for (int r = 0; r < e->c.world; r++) all |= e->rank[r].cpu[k];
        n_cpu += __builtin_popcountll(all);
    }
    e->crowded = e->c.world > n_cpu;
    e->spin    = e->crowded ? 0 : SHM_SPIN;
}

/* ---- verdicts ---- */

weft_status weft_comm__shm_check(const shm_end *e)
{
    uint64_t v = atomic_load_explicit(&e->head->verdict, memory_order_acquire);
    if (atomic_load_explicit(&e->stopped, memory_order_relaxed))
        return WEFT_FAIL(WEFT_ERR_PEER, "rank %d dropped its end",
                         weft_comm_name(&e->c, e->c.rank));
    if (v >> 32 <= e->c.epoch) return WEFT_OK;
    uint32_t about = (uint32_t)(v >> 16 & 0xffff), by = (uint32_t)(v & 0xffff);
    if ((about >= e->head->world && about != SHM_TOLD) || by > e->head->world)
        return WEFT_FAIL(WEFT_ERR_PEER, "the shared memory of the job is damaged");
    char why[sizeof e->rank[by].why];
    memcpy(why, e->rank[by].why, sizeof why);
    why[sizeof why - 1] = 0;
    if (about == SHM_TOLD) return WEFT_FAIL(WEFT_ERR_PEER, "%s", why);
    int name = weft_comm_name(&e->c, (int)about);
    if (about == by) return WEFT_FAIL(WEFT_ERR_PEER, "rank %d gave up: %s", name, why);
    return WEFT_FAIL(WEFT_ERR_PEER, "rank %d died: %s", name, why);
}

bool weft_comm__shm_gone(const shm_end *e, int rank)
{
    return atomic_load(&e->rank[rank].state.v) >= SHM_LEFT &&
           atomic_load(&e->rank[rank].epoch) >= e->c.epoch;
}

static void ring_alarm(shm_head *h)
{
    atomic_fetch_add(&h->alarm.v, 1);
    weft_comm__shm_wake(&h->alarm);
}

/* The first verdict over an epoch stands.  Threads of a rank, which share the place for its words,
 * come here one after another. */
void weft_comm__shm_condemn(shm_head *head, shm_rank *rank, uint32_t epoch, int about,
                            int by, const char *why)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    uint64_t v  = atomic_load(&head->verdict);
    uint64_t is = ((uint64_t)epoch + 1) << 32 | (uint64_t)about << 16 | (uint64_t)by;
    if (v >> 32 <= epoch) snprintf(rank[by].why, sizeof rank[by].why, "%s", why);
    while (v >> 32 <= epoch)
        if (atomic_compare_exchange_weak(&head->verdict, &v, is)) break;
    pthread_mutex_unlock(&lock);
    ring_alarm(head);
}

/* ---- the watcher ---- */

/* The first word of glibc's mutex is the kernel's: owner's thread | waiters | owner died. */
static _Atomic uint32_t *mutex_word(shm_rank *r)
{
    return (_Atomic uint32_t *)(void *)&r->alive;
}

/* Holds the own mutex, so that the kernel marks it when this thread ends.  The waiters bit makes
 * it wake. */
static weft_status hold(shm_end *e)
{
    shm_rank *me = &e->rank[e->c.rank];
    int       rc = pthread_mutex_trylock(&me->alive);
    if (rc == EOWNERDEAD) rc = pthread_mutex_consistent(&me->alive); /* of a forebear */
    if (rc)
        return WEFT_FAIL(WEFT_ERR_ARG, "rank %d is taken by another process: %s",
                         e->c.rank, strerror(rc));
    atomic_fetch_or(mutex_word(me), FUTEX_WAITERS);
    return WEFT_OK;
}

/* The verdict first: who sees that a rank is dead finds out why. */
static void bury(shm_end *e, int r)
{
    uint32_t here = SHM_HERE;
    weft_comm__shm_condemn(e->head, e->rank, atomic_load(&e->rank[r].epoch), r, e->c.rank,
                           "its process ended");
    atomic_compare_exchange_strong(&e->rank[r].state.v, &here, SHM_DEAD);
}

/* Collects the words to sleep on; buries on the way. */
static int look_around(shm_end *e, wait_word *word)
{
    int n = 0, world = (int)e->head->world;
    word[n++] = word_of(&e->stop.v, 0);
    word[n++] = word_of(&e->head->alarm.v, atomic_load(&e->head->alarm.v)); /* joiners */
    for (int i = 1; i < world && i <= MAX_WATCHED; i++) {
        int       r = (e->c.rank + i) % world;
        shm_rank *p = &e->rank[r];
        if (atomic_load(&p->state.v) != SHM_HERE) continue;
        uint32_t v = atomic_load(mutex_word(p));
        if (v & FUTEX_OWNER_DIED)
            bury(e, r);
        else if (v)
            word[n++] = word_of(mutex_word(p), v);
    }
    return n;
}

typedef struct start {
    shm_end    *e;
    shm_word    ready;
    weft_status st;
    char        text[200];
} start;

static void *watch(void *arg)
{
    start    *s = arg;
    shm_end  *e = s->e;
    wait_word word[MAX_WATCHED + 2];
    s->st = hold(e);
    snprintf(s->text, sizeof s->text, "%s", weft_error_text());
    bool held = s->st == WEFT_OK, reported = false;
    atomic_store(&s->ready.v, 1); /* s is gone from here on */
    while (held && !atomic_load(&e->stop.v)) {
        int n = look_around(e, word);
        if (!reported && weft_comm__shm_check(e) != WEFT_OK) {
            reported = true;
            weft_comm_report_lost(&e->c, weft_error_text());
        }
        atomic_fetch_add(&e->head->alarm.n_asleep, 1);
        sleep_on(word, n, weft_clock_s() + TICK_MS * 1e-3);
        atomic_fetch_sub(&e->head->alarm.n_asleep, 1);
    }
    if (held) pthread_mutex_unlock(&e->rank[e->c.rank].alive);
    return NULL;
}

weft_status weft_comm__shm_watch(shm_end *e)
{
    start s = {.e = e};
    if (pthread_create(&e->watcher, NULL, watch, &s))
        return WEFT_FAIL(WEFT_ERR_MEM, "no thread to watch the peers with");
    while (!atomic_load(&s.ready.v)) sched_yield();
    if (s.st != WEFT_OK) {
        pthread_join(e->watcher, NULL);
        return WEFT_FAIL(s.st, "%s", s.text);
    }
    e->watching  = true;
    shm_rank *me = &e->rank[e->c.rank];
    atomic_store(&me->state.v, SHM_HERE);
    syscall(SYS_futex, &me->state.v, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
    ring_alarm(e->head);
    return WEFT_OK;
}

void weft_comm__shm_unwatch(shm_end *e)
{
    if (!e->watching) return;
    atomic_store(&e->rank[e->c.rank].state.v, SHM_LEFT);
    ring_alarm(e->head);
    atomic_store(&e->stop.v, 1);
    syscall(SYS_futex, &e->stop.v, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
    pthread_join(e->watcher, NULL);
    e->watching = false;
}
