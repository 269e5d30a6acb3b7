/* How often snapshots are due: they cost at most so much of the slowest rank's steps. */
#include "session/session_priv.h"
#include "support/test.h"

static int64_t choose(double total_s, double waited_s, double step_s)
{
    const weft_session__snapshot_times of[2] = {{0}, {total_s, waited_s, step_s, 0}};
    return weft_session__choose_every(of, 2);
}

static void as_often_as_is_cheap(void **state)
{
    (void)state;
    assert_int_equal(choose(0, 0, 1), 1); /* nobody makes any */
    assert_int_equal(choose(0.02, 0, 0.1), 1);
    assert_int_equal(choose(0.1, 0, 0.1), 4);    /* under way a quarter of the time */
    assert_int_equal(choose(0.1, 0.1, 0.1), 50); /* a step waits for all of it: 2 % */
    assert_int_equal(choose(100, 100, 1e-3), 1000);
    assert_int_equal(choose(1, 0.5, 0), 1); /* no step was measured */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_often_as_is_cheap)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
