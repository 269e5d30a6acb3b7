/* How often snapshots are due: they cost at most so much of the slowest rank's steps. */
#include "session/session_priv.h"
#include "session/snapshots_priv.h"
#include "support/test.h"

static int64_t choose(double total_s, double waited_s, double step_s)
{
    const weft_session__snapshot_times of[2] = {{0}, {total_s, waited_s, step_s, 0}};
    return weft_session__choose_every(of, 2);
}

static void as_often_as_is_cheap(void **state)
{
    (void)state;
    assert_int_equal(choose(0, 0, 1), 1); /* no rank makes any */
    assert_int_equal(choose(0.02, 0, 0.1), 1);
    assert_int_equal(choose(0.1, 0, 0.1), 4);    /* under way a quarter of the time */
    assert_int_equal(choose(0.1, 0.1, 0.1), 50); /* a step waits for all of it: 2 % */
    assert_int_equal(choose(100, 100, 1e-3), 1000);
    assert_int_equal(choose(1, 0.5, 0), 1); /* no step was measured */
}

/* Each that needs one has a rank of another host, and no rank keeps those of two. */
static void guards_are_on_other_hosts(void **state)
{
    static const struct {
        int     n;
        int32_t host[6];
        bool    needs[6];
        int     guard[6];
    } of[] = {
        {2, {0, 1}, {true, true}, {1, 0}},
        {4, {0, 0, 2, 2}, {true, true, true, true}, {2, 3, 0, 1}},
        {6, {0, 0, 2, 2, 4, 4}, {true, true, true, true, true, true}, {2, 3, 4, 5, 0, 1}},
        {4, {0, 0, 2, 2}, {false, true, false, false}, {-1, 2, -1, -1}},
        {3, {0, 0, 2}, {true, true, true}, {2, -1, 0}}, /* one is left */
        {2, {0, 0}, {true, true}, {-1, -1}},            /* one host */
    };
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT(of); k++) {
        int guard[6];
        weft_session__find_guards(of[k].host, of[k].needs, of[k].n, guard);
        for (int r = 0; r < of[k].n; r++)
            if (guard[r] != of[k].guard[r])
                fail_msg("case %d: rank %d has guard %d", (int)k, r, guard[r]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_often_as_is_cheap),
                                       cmocka_unit_test(guards_are_on_other_hosts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
