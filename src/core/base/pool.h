/* A pool of threads that share out tasks 0..n-1.  The caller works too.
 * Which thread runs which task is left to chance, so a task's result must not depend on it:
 * results depend on the task grid alone. */
#ifndef WEFT_BASE_POOL_H
#define WEFT_BASE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/status.h"

typedef struct weft_pool weft_pool;

/* task: 0..n_task-1; thread: 0..n_thread-1, for per-thread scratch. */
typedef void (*weft_pool_fn)(void *arg, int64_t task, int thread);

/* n_thread >= 1; 1 starts no thread at all.  pin: pin thread i to the i-th core this process may
 * use. */
weft_status weft_pool_create(int n_thread, int pin, weft_pool **out);
void        weft_pool_destroy(weft_pool *p);
/* A pool of the same threads for work that may be dropped: from when *stop is true on, tasks that
 * have not begun are left out, and what a run was to make is of no use.  Borrows both. */
weft_status weft_pool_share(weft_pool *threads, const _Atomic bool *stop,
                            weft_pool **out);
/* Has the work of this pool been dropped?  For tasks that last longer than some 100 us: one load.
 * NULL: it has not. */
bool weft_pool_is_stopped(const weft_pool *p);
int  weft_pool_threads(const weft_pool *p);
/* Cores that this process may use, at least 1. */
int weft_pool_cores(void);

/* Runs fn(arg, 0..n_task-1, thread) and returns when all are done.  Allocates nothing.  A thread
 * begins with its share of neighbouring tasks, the same share of every grid, and then helps with
 * others', so give neighbours in one grid what neighbours in the last one wrote.  Idle workers
 * spin for a short while, then sleep on a futex.  Several callers take turns.  p == NULL runs them
 * here. */
void weft_pool_run(weft_pool *p, int64_t n_task, weft_pool_fn fn, void *arg);

#endif
