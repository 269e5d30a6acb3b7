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
 * (3) A worker adds to `done` only for tasks it claimed in that epoch, so no late add exists. */
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

typedef struct worker {
    weft_pool *pool;
    pthread_t  thread;
    int        index;
} worker;

typedef struct ticket {
    _Alignas(64) _Atomic uint64_t word;
} ticket;

struct weft_pool {
    ticket ticket[MAX_TICKET];
    _Alignas(64)
        atomic_uint done; /* tasks of this epoch that are done; the caller sleeps on it */
    _Alignas(64) atomic_uint wake; /* counts epochs; workers sleep on it */
    atomic_int sleepers, caller_sleeps, stop;

    /* the job of the epoch */
    _Alignas(64) _Atomic(weft_pool_fn) fn;
    _Atomic(void *) arg;
    _Atomic int64_t base; /* first task of the chunk */
    atomic_uint     n_task;

    /* callers of several streams run their jobs one after the other */
    pthread_mutex_t turn;

    int       n_thread, n_ticket, n_worker, spin, pinned;
    cpu_set_t before; /* where the caller could run before it was pinned */
    worker   *worker;
};

static void futex_wait(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, int n)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* The first of n tasks that belongs to ticket t. */
static uint32_t first_of(const weft_pool *p, int t, unsigned n)
{
    return (uint32_t)((uint64_t)n * (uint64_t)t / (uint64_t)p->n_ticket);
}

/* Claims and runs tasks of one ticket until there are none; gives how many it ran. */
static unsigned work_ticket(weft_pool *p, int t, int thread)
{
    unsigned ran = 0;
    for (;;) {
        uint64_t     word = atomic_load(&p->ticket[t].word);
        uint32_t     next = (uint32_t)word;
        weft_pool_fn fn   = atomic_load(&p->fn);
        void        *arg  = atomic_load(&p->arg);
        int64_t      base = atomic_load(&p->base);
        unsigned     n    = atomic_load(&p->n_task);
        if (next == CLOSED || next >= first_of(p, t + 1, n)) return ran;
        if (!atomic_compare_exchange_weak(&p->ticket[t].word, &word, word + 1)) continue;
        fn(arg, base + next, thread);
        ran++;
    }
}

/* Its own ticket first, then the ones after it. */
static unsigned work(weft_pool *p, int thread)
{
    unsigned ran = 0;
    int      own = (int)((int64_t)thread * p->n_ticket / p->n_thread);
    for (int i = 0; i < p->n_ticket; i++)
        ran += work_ticket(p, (own + i) % p->n_ticket, thread);
    return ran;
}

/* Waits for an epoch after `seen`. */
static unsigned wait_epoch(weft_pool *p, unsigned seen)
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
    worker    *w    = arg;
    weft_pool *p    = w->pool;
    unsigned   seen = 0;
    for (;;) {
        seen = wait_epoch(p, seen);
        if (atomic_load(&p->stop)) return NULL;
        unsigned ran = work(p, w->index);
        if (ran == 0) continue;
        atomic_fetch_add(&p->done, ran);
        if (atomic_load(&p->caller_sleeps)) futex_wake(&p->done, 1);
    }
}

static void wait_done(weft_pool *p, unsigned n)
{
    for (int i = 0; i < p->spin; i++) {
        if (atomic_load(&p->done) == n) return;
        RELAX();
    }
    atomic_store(&p->caller_sleeps, 1);
    for (unsigned d; (d = atomic_load(&p->done)) != n;) futex_wait(&p->done, d);
    atomic_store(&p->caller_sleeps, 0);
}

static void run_chunk(weft_pool *p, int64_t base, unsigned n, weft_pool_fn fn, void *arg)
{
    uint64_t epoch = (atomic_load(&p->ticket[0].word) >> 32) + 1;
    for (int t = 0; t < p->n_ticket; t++)
        atomic_store(&p->ticket[t].word, epoch << 32 | CLOSED);
    atomic_store(&p->fn, fn);
    atomic_store(&p->arg, arg);
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
    if (!p || p->n_thread == 1 || n_task == 1) {
        for (int64_t i = 0; i < n_task; i++) fn(arg, i, 0);
        return;
    }
    pthread_mutex_lock(&p->turn);
    for (int64_t base = 0; base < n_task; base += MAX_CHUNK) {
        int64_t left = n_task - base;
        run_chunk(p, base, (unsigned)(left < MAX_CHUNK ? left : MAX_CHUNK), fn, arg);
    }
    pthread_mutex_unlock(&p->turn);
}

int weft_pool_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

int weft_pool_threads(const weft_pool *p)
{
    return p ? p->n_thread : 1;
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
static void pin_all(weft_pool *p)
{
    cpu_set_t own = nth_core(&p->before, 0);
    p->pinned     = pthread_setaffinity_np(pthread_self(), sizeof own, &own) == 0;
    for (int i = 0; i < p->n_worker; i++) {
        cpu_set_t one = nth_core(&p->before, i + 1);
        pthread_setaffinity_np(p->worker[i].thread, sizeof one, &one);
    }
}

weft_status weft_pool_create(int n_thread, int pin, weft_pool **out)
{
    if (n_thread < 1 || n_thread > 4096)
        return WEFT_FAIL(WEFT_ERR_ARG, "threads: %d is not between 1 and 4096", n_thread);
    weft_pool *p = aligned_alloc(64, (sizeof *p + 63) / 64 * 64);
    if (!p) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    *p = (weft_pool){.n_thread = n_thread};
    pthread_mutex_init(&p->turn, NULL);
    p->worker = calloc((size_t)n_thread, sizeof *p->worker);
    if (!p->worker) {
        weft_pool_destroy(p);
        return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    }
    if (sched_getaffinity(0, sizeof p->before, &p->before) != 0) {
        CPU_ZERO(&p->before);
        CPU_SET(0, &p->before);
    }
    /* a spinning thread is only polite while every other thread has a core of its own */
    p->spin     = n_thread <= CPU_COUNT(&p->before) ? SPIN : 0;
    p->n_ticket = n_thread < MAX_TICKET ? n_thread : MAX_TICKET;
    for (int t = 0; t < p->n_ticket; t++) atomic_store(&p->ticket[t].word, CLOSED);
    for (int i = 0; i < n_thread - 1; i++) {
        worker *w = &p->worker[i];
        *w        = (worker){.pool = p, .index = i + 1};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            weft_pool_destroy(p);
            return WEFT_FAIL(WEFT_ERR_MEM, "cannot start thread %d of %d", i + 1,
                             n_thread);
        }
        p->n_worker++;
    }
    if (pin) pin_all(p);
    *out = p;
    return WEFT_OK;
}

/* The caller goes back to the cores it came from. */
void weft_pool_destroy(weft_pool *p)
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
