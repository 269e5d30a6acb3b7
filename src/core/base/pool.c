/* Threads that claim tasks from tickets.
 *
 * The tasks are cut into as many runs of neighbours as there are tickets.  A thread begins with its
 * own run, so that from job to job it meets the same rows, which lie in its cache; then it helps
 * with the others.  A ticket holds (epoch, next task) in one word.  A run of the pool closes all
 * tickets (next = CLOSED), writes the job, and opens them for a new epoch; a thread reads ticket
 * and job and claims by compare and swap.
 * (1) A claim succeeds only if the ticket did not change since it was read, so the job that was
 *     read with it is the job of that epoch.
 * (2) A run ends when `done` counts all its tasks; a worker that slept through it is not waited
 *     for, which is what keeps more threads than cores from hurting.
 * (3) A worker adds to `done` only for tasks it claimed in that epoch, so no late add exists.
 * (4) Tasks of a run that is stopped are claimed and counted like others, and not run. */
#include "base/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    MAX_TICKET = 8
};
enum {
    SPIN = 2000
}; /* times a pause: 20 to 100 us, longer than the gap between two kernels */

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() atomic_signal_fence(memory_order_seq_cst)
#endif

#define CLOSED    0xffffffffu
#define MAX_CHUNK ((int64_t)1 << 30) /* tasks of one epoch; larger runs are cut */

typedef struct team team;

typedef struct worker {
    team     *team;
    pthread_t thread;
    int       index;
} worker;

typedef struct ticket {
    _Alignas(64) _Atomic uint64_t word;
} ticket;

/* The threads; pools share them. */
struct team {
    ticket ticket[MAX_TICKET];
    _Alignas(64)
        atomic_uint done; /* tasks of this epoch that are done; the caller sleeps on it */
    _Alignas(64) atomic_uint wake; /* counts epochs; workers sleep on it */
    atomic_int sleepers, caller_sleeps, stop;

    /* the job of the epoch */
    _Alignas(64) _Atomic(weft_pool_fn) fn;
    _Atomic(void *)               arg;
    _Atomic(const _Atomic bool *) dropped; /* of the pool that runs it; NULL: never */
    _Atomic int64_t               base;    /* first task of the chunk */
    atomic_uint                   n_task;

    /* callers of several streams run their jobs one after the other */
    pthread_mutex_t turn;

    int       n_thread, n_ticket, n_worker, spin, pinned;
    cpu_set_t before; /* where the caller could run before it was pinned */
    worker   *worker;
};

struct weft_pool {
    team               *team;
    const _Atomic bool *stop; /* NULL: its work is not dropped */
    bool                owns; /* the team */
};

static bool is_set(const _Atomic bool *stop)
{
    return stop && atomic_load_explicit(stop, memory_order_relaxed);
}

static void futex_wait(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* The first of n tasks that belongs to ticket t. */
static uint32_t first_of(const team *p, int t, unsigned n)
{
    return (uint32_t)((uint64_t)n * (uint64_t)t / (uint64_t)p->n_ticket);
}

/* Claims and runs tasks of one ticket until there are none; gives how many it ran. */
static unsigned work_ticket(team *p, int t, int thread)
{
    unsigned ran = 0;
    for (;;) {
        uint64_t            word = atomic_load(&p->ticket[t].word);
        uint32_t            next = (uint32_t)word;
        weft_pool_fn        fn   = atomic_load(&p->fn);
        void               *arg  = atomic_load(&p->arg);
        const _Atomic bool *stop = atomic_load(&p->dropped);
        int64_t             base = atomic_load(&p->base);
        unsigned            n    = atomic_load(&p->n_task);
        if (next == CLOSED || next >= first_of(p, t + 1, n)) return ran;
        if (!atomic_compare_exchange_weak(&p->ticket[t].word, &word, word + 1)) continue;
        if (!is_set(stop)) fn(arg, base + next, thread);
        ran++;
    }
}

/* Its own ticket first, then the ones after it. */
static unsigned work(team *p, int thread)
{
    unsigned ran = 0;
    int      own = (int)((int64_t)thread * p->n_ticket / p->n_thread);
    for (int i = 0; i < p->n_ticket; i++)
        ran += work_ticket(p, (own + i) % p->n_ticket, thread);
    return ran;
}

/* Waits for an epoch after `seen`. */
static unsigned wait_epoch(team *p, unsigned seen)
{
    for (int i = 0; i < p->spin; i++) {
        if (atomic_load_explicit(&p->wake, memory_order_relaxed) != seen) break;
        RELAX();
    }
    unsigned now;
    while ((now = atomic_load(&p->wake)) == seen) {
        atomic_fetch_add(&p->sleepers, 1);
        futex_wait(&p->wake, seen);
        atomic_fetch_sub(&p->sleepers, 1);
    }
    return now;
}

static void *worker_main(void *arg)
{
    worker  *w    = arg;
    team    *p    = w->team;
    unsigned seen = 0;
    for (;;) {
        seen = wait_epoch(p, seen);
        if (atomic_load(&p->stop)) return NULL;
        unsigned ran = work(p, w->index);
        if (ran == 0) continue;
        atomic_fetch_add(&p->done, ran);
        if (atomic_load(&p->caller_sleeps)) futex_wake(&p->done, 1);
    }
}

static void wait_done(team *p, unsigned n)
{
    for (int i = 0; i < p->spin; i++) {
        if (atomic_load(&p->done) == n) return;
        RELAX();
    }
    atomic_store(&p->caller_sleeps, 1);
    for (unsigned d; (d = atomic_load(&p->done)) != n;) futex_wait(&p->done, d);
    atomic_store(&p->caller_sleeps, 0);
}

static void run_chunk(const weft_pool *of, int64_t base, unsigned n, weft_pool_fn fn,
                      void *arg)
{
    team    *p     = of->team;
    uint64_t epoch = (atomic_load(&p->ticket[0].word) >> 32) + 1;
    for (int t = 0; t < p->n_ticket; t++)
        atomic_store(&p->ticket[t].word, epoch << 32 | CLOSED);
    atomic_store(&p->fn, fn);
    atomic_store(&p->arg, arg);
    atomic_store(&p->dropped, of->stop);
    atomic_store(&p->base, base);
    atomic_store(&p->n_task, n);
    atomic_store(&p->done, 0);
    for (int t = 0; t < p->n_ticket; t++)
        atomic_store(&p->ticket[t].word, epoch << 32 | first_of(p, t, n));
    atomic_fetch_add(&p->wake, 1);
    if (atomic_load(&p->sleepers)) futex_wake(&p->wake, (int)n - 1);

    unsigned ran = work(p, 0);
    if (atomic_fetch_add(&p->done, ran) + ran != n) wait_done(p, n);
}

void weft_pool_run(weft_pool *p, int64_t n_task, weft_pool_fn fn, void *arg)
{
    if (!p || p->team->n_thread == 1 || n_task == 1) {
        for (int64_t i = 0; i < n_task && !weft_pool_is_stopped(p); i++) fn(arg, i, 0);
        return;
    }
    pthread_mutex_lock(&p->team->turn);
    for (int64_t base = 0; base < n_task; base += MAX_CHUNK) {
        int64_t left = n_task - base;
        run_chunk(p, base, (unsigned)(left < MAX_CHUNK ? left : MAX_CHUNK), fn, arg);
    }
    pthread_mutex_unlock(&p->team->turn);
}

bool weft_pool_is_stopped(const weft_pool *p)
{
    return p && is_set(p->stop);
}

int weft_pool_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

int weft_pool_threads(const weft_pool *p)
{
    return p ? p->team->n_thread : 1;
}

/* The k-th core of the set, round and round. */
static cpu_set_t nth_core(const cpu_set_t *all, int k)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    k %= CPU_COUNT(all);
    for (size_t c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, all) && k-- == 0) {
            CPU_SET(c, &one);
            break;
        }
    return one;
}

/* Pinning is a wish: where the system refuses it, threads run where they may. */
static void pin_all(team *p)
{
    cpu_set_t own = nth_core(&p->before, 0);
    p->pinned     = pthread_setaffinity_np(pthread_self(), sizeof own, &own) == 0;
    for (int i = 0; i < p->n_worker; i++) {
        cpu_set_t one = nth_core(&p->before, i + 1);
        pthread_setaffinity_np(p->worker[i].thread, sizeof one, &one);
    }
}

/* The caller goes back to the cores it came from. */
static void destroy_team(team *p)
{
    if (!p) return;
    atomic_store(&p->stop, 1);
    atomic_fetch_add(&p->wake, 1);
    futex_wake(&p->wake, p->n_thread);
    for (int i = 0; i < p->n_worker; i++) pthread_join(p->worker[i].thread, NULL);
    if (p->pinned) pthread_setaffinity_np(pthread_self(), sizeof p->before, &p->before);
    pthread_mutex_destroy(&p->turn);
    free(p->worker);
    free(p);
}

static weft_status start_workers(team *p)
{
    for (int i = 0; i < p->n_thread - 1; i++) {
        worker *w = &p->worker[i];
        *w        = (worker){.team = p, .index = i + 1};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0)
            return WEFT_FAIL(WEFT_ERR_MEM, "cannot start thread %d of %d", i + 1,
                             p->n_thread);
        p->n_worker++;
    }
    return WEFT_OK;
}

/* *out is the caller's also after an error. */
static weft_status create_team(int n_thread, int pin, team **out)
{
    team *p = *out = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    if (!p) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *p = (team){.n_thread = n_thread};
    pthread_mutex_init(&p->turn, NULL);
    p->worker = calloc((size_t)n_thread, sizeof *p->worker);
    if (!p->worker) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    if (sched_getaffinity(0, sizeof p->before, &p->before) != 0) {
        CPU_ZERO(&p->before);
        CPU_SET(0, &p->before);
    }
    /* a spinning thread is only polite while every other thread has a core of its own */
    p->spin     = n_thread <= CPU_COUNT(&p->before) ? SPIN : 0;
    p->n_ticket = n_thread < MAX_TICKET ? n_thread : MAX_TICKET;
    for (int t = 0; t < p->n_ticket; t++) atomic_store(&p->ticket[t].word, CLOSED);
    WEFT_TRY(start_workers(p));
    if (pin) pin_all(p);
    return WEFT_OK;
}

weft_status weft_pool_create(int n_thread, int pin, weft_pool **out)
{
    if (n_thread < 1 || n_thread > 4096)
        return WEFT_FAIL(WEFT_ERR_ARG, "threads: %d is not between 1 and 4096", n_thread);
    weft_pool *p = calloc(1, sizeof *p);
    if (!p) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    p->owns        = true;
    weft_status st = create_team(n_thread, pin, &p->team);
    if (st == WEFT_OK)
        *out = p;
    else
        weft_pool_destroy(p);
    return st;
}

weft_status weft_pool_share(weft_pool *threads, const _Atomic bool *stop, weft_pool **out)
{
    weft_pool *p = calloc(1, sizeof *p);
    if (!p) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *p   = (weft_pool){.team = threads->team, .stop = stop};
    *out = p;
    return WEFT_OK;
}

void weft_pool_destroy(weft_pool *p)
{
    if (!p) return;
    if (p->owns) destroy_team(p->team);
    free(p);
}
