/* Waiting on a processor that others use: the yields end. */
#include "comm/shm_priv.h"

#include <pthread.h>
#include <sched.h>

#include "support/test.h"

enum {
    ROUNDS = 10
};

static void *burn(void *stop)
{
    const _Atomic bool *over = stop;
    while (!atomic_load_explicit(over, memory_order_relaxed)) continue;
    return NULL;
}

static void pin_here(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)sched_getcpu(), &set);
    assert_int_equal(sched_setaffinity(0, sizeof set, &set), 0); /* threads inherit it */
}

static int count_yields(void)
{
    shm_yields y = {0};
    while (weft_comm__shm_give_way(&y)) continue;
    return y.n;
}

/* One yield gives a slice to a thread that does not end: there are not 20 of them. */
static void yields_end_where_others_run(void **state)
{
    (void)state;
    pthread_t    thread;
    _Atomic bool stop = false;
    int          n    = 0;
    pin_here();
    assert_int_equal(pthread_create(&thread, NULL, burn, &stop), 0);
    for (int k = 0; k < ROUNDS; k++) n += count_yields();
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    assert_true(n >= ROUNDS);
    if (n >= ROUNDS * SHM_YIELDS / 2) fail_msg("%d yields in %d waits", n, ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(yields_end_where_others_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
