#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/test.h"
#include "support/count_alloc.h"
#include "base/pool.h"

enum {
    MAX_TASK   = 1000,
    MAX_THREAD = 16
};

typedef struct job {
    atomic_int   seen[MAX_TASK];
    atomic_int   busy[MAX_THREAD];
    int          n_thread, slow;
    _Atomic long wrong;
} job;

/* Each task is run once, and no two tasks are in one thread's scratch at a time. */
static void count(void *arg, int64_t task, int thread)
{
    job *j = arg;
    if (thread < 0 || thread >= j->n_thread || task < 0 || task >= MAX_TASK) {
        atomic_fetch_add(&j->wrong, 1);
        return;
    }
    if (atomic_fetch_add(&j->busy[thread], 1) != 0) atomic_fetch_add(&j->wrong, 1);
    atomic_fetch_add(&j->seen[task], 1);
    if (j->slow && task % 7 == 0) usleep(100);
    atomic_fetch_sub(&j->busy[thread], 1);
}

static void check_run(weft_pool *p, job *j, int n_task)
{
    memset((void *)j->seen, 0, sizeof j->seen);
    weft_pool_run(p, n_task, count, j);
    for (int i = 0; i < MAX_TASK; i++)
        assert_int_equal(atomic_load(&j->seen[i]), i < n_task ? 1 : 0);
    assert_int_equal(atomic_load(&j->wrong), 0);
}

/* From one thread to many more than there are cores. */
static void every_task_once(void **state)
{
    (void)state;
    static const int n_task[]   = {0, 1, 2, 3, 7, 64, MAX_TASK};
    static const int n_thread[] = {1, 2, 3, 8, MAX_THREAD};
    job             *j          = calloc(1, sizeof *j);
    for (size_t t = 0; t < 5; t++)
        for (int pin = 0; pin < 2; pin++) {
            weft_pool *p;
            j->n_thread = n_thread[t];
            assert_ok(weft_pool_create(n_thread[t], pin, &p));
            assert_int_equal(weft_pool_threads(p), n_thread[t]);
            for (j->slow = 0; j->slow < 2; j->slow++)
                for (int round = 0; round < 20; round++)
                    for (size_t k = 0; k < 7; k++)
                        if (!j->slow || n_task[k] < 100) check_run(p, j, n_task[k]);
            weft_pool_destroy(p);
        }
    free(j);
}

static void add_one(void *arg, int64_t task, int thread)
{
    (void)thread;
    ((int64_t *)arg)[task]++; /* plain memory: the pool must order it between runs */
}

/* Short runs one after the other: the race between a late worker and the next job. */
static void many_short_runs(void **state)
{
    (void)state;
    enum {
        RUNS = 20000,
        N    = 5
    };
    int64_t    sum[N] = {0};
    weft_pool *p;
    assert_ok(weft_pool_create(4, 0, &p));
    for (int i = 0; i < RUNS; i++) {
        weft_pool_run(p, 1 + i % N, add_one, sum);
        if (i % 1000 == 0) usleep(1000); /* let the workers fall asleep */
    }
    int64_t all = 0;
    for (int i = 0; i < N; i++) all += sum[i];
    assert_int_equal(all, (int64_t)RUNS / N * (1 + 2 + 3 + 4 + 5));
    weft_pool_destroy(p);
}

static void show_up(void *arg, int64_t task, int thread)
{
    (void)task;
    atomic_store((atomic_int *)arg + thread, 1);
    usleep(100);
}

static void allocates_nothing(void **state)
{
    (void)state;
    int64_t    sum[100] = {0};
    atomic_int here[3]  = {0};
    weft_pool *p;
    assert_ok(weft_pool_create(3, 0, &p));
    for (int i = 0; i < 10000 && !(here[0] && here[1] && here[2]); i++)
        weft_pool_run(p, 3, show_up, here); /* a thread's start allocates */
    int64_t before = weft_test_allocs();
    for (int i = 0; i < 100; i++) weft_pool_run(p, 100, add_one, sum);
    assert_int_equal(weft_test_allocs() - before, 0);
    weft_pool_destroy(p);
}

/* The task that stops the work is the last one that a thread begins. */
typedef struct stopping {
    _Atomic bool stop;
    atomic_int   n;
} stopping;

static void stop_at_once(void *arg, int64_t task, int thread)
{
    stopping *s = arg;
    (void)task, (void)thread;
    atomic_fetch_add(&s->n, 1);
    atomic_store(&s->stop, true);
}

static void work_is_dropped(void **state)
{
    (void)state;
    for (int n_thread = 1; n_thread < 5; n_thread++) {
        weft_pool *p, *shared;
        stopping   s      = {0};
        int64_t    sum[3] = {0};
        assert_ok(weft_pool_create(n_thread, 0, &p));
        assert_ok(weft_pool_share(p, &s.stop, &shared));
        assert_int_equal(weft_pool_threads(shared), n_thread);
        for (int round = 0; round < 50; round++) {
            atomic_store(&s.stop, false);
            atomic_store(&s.n, 0);
            assert_false(weft_pool_is_stopped(shared));
            weft_pool_run(shared, 1000, stop_at_once, &s);
            assert_in_range(atomic_load(&s.n), 1, n_thread);
            assert_true(weft_pool_is_stopped(shared));
            weft_pool_run(shared, 3, add_one, sum); /* none of it is done */
            assert_int_equal(sum[0] + sum[1] + sum[2], 0);
        }
        weft_pool_run(p, 3, add_one, sum); /* the threads' own pool goes on */
        assert_int_equal(sum[0] + sum[1] + sum[2], 3);
        assert_false(weft_pool_is_stopped(p));
        weft_pool_destroy(shared);
        weft_pool_destroy(p);
    }
    assert_false(weft_pool_is_stopped(NULL));
}

static void without_a_pool(void **state)
{
    (void)state;
    int64_t sum[3] = {0};
    weft_pool_run(NULL, 3, add_one, sum);
    assert_int_equal(sum[0] + sum[1] + sum[2], 3);
    assert_int_equal(weft_pool_threads(NULL), 1);
    weft_pool_destroy(NULL);
}

static void pinning_is_undone(void **state)
{
    (void)state;
    cpu_set_t  before, during, after;
    weft_pool *p;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_ok(weft_pool_create(2, 1, &p));
    assert_int_equal(sched_getaffinity(0, sizeof during, &during), 0);
    assert_int_equal(CPU_COUNT(&during), 1);
    weft_pool_destroy(p);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

static void bad_counts(void **state)
{
    (void)state;
    weft_pool *p;
    assert_fails(weft_pool_create(0, 0, &p), WEFT_ERR_ARG, "threads: 0");
    assert_fails(weft_pool_create(-3, 0, &p), WEFT_ERR_ARG, "threads: -3");
    assert_fails(weft_pool_create(1 << 20, 0, &p), WEFT_ERR_ARG, "4096");
}

static void no_memory(void **state)
{
    (void)state;
    weft_pool *p;
    for (int n = 1; n <= 2; n++) {
        if (!weft_test_alloc_fail_at(n)) skip();
        assert_int_equal(weft_pool_create(2, 0, &p), WEFT_ERR_MEM);
    }
    weft_test_alloc_fail_at(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_once),   cmocka_unit_test(many_short_runs),
        cmocka_unit_test(allocates_nothing), cmocka_unit_test(work_is_dropped),
        cmocka_unit_test(without_a_pool),    cmocka_unit_test(pinning_is_undone),
        cmocka_unit_test(bad_counts),        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
