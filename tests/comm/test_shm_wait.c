/* Waiting on a processor that others use: the yields end. */
#include "comm/shm_priv.h"

#include <pthread.h>
#include <sched.h>

#include "base/clock.h"
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

/* None follows one that was long; returns whether one was. */
static bool wait_once(void)
{
    shm_yields y    = {0};
    double     last = weft_clock_s(), took;
    bool       more;
    do {
        more = weft_comm__shm_give_way(&y);
        took = weft_clock_s() - last;
        last += took;
        if (more && took > 2 * SHM_LONG_S)
            fail_msg("a yield after one of %.1f ms", 1e3 * took);
    } while (more);
    return took > SHM_LONG_S;
}

/* A yield gives a slice to a thread that does not end (how long, the kernel decides). */
static void yields_end_where_others_run(void **state)
{
    (void)state;
    pthread_t    thread;
    _Atomic bool stop   = false;
    int          n_long = 0;
    pin_here();
    assert_int_equal(pthread_create(&thread, NULL, burn, &stop), 0);
    for (int k = 0; k < ROUNDS; k++) n_long += wait_once();
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    print_message("%d of %d waits had a long yield\n", n_long, ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(yields_end_where_others_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
