/* Ranks that are busy for longer than others with the same work. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "session/slow.h"

enum {
    N = 4
};

static void add_steps(weft_slow *s, int n, const float *busy_s)
{
    for (int k = 0; k < n; k++) weft_slow_add(s, 0, N, busy_s);
}

static void a_slow_rank_is_named_once(void **state)
{
    const double work[N] = {100, 101, 100, 100};
    const float  slow[N] = {1, 1.1f, 1.4f, 0.9f}, fine[N] = {1, 1.1f, 1.0f, 0.9f};
    weft_slow    s = {0};
    int          rank;
    (void)state;
    assert_int_equal(weft_slow_begin(&s, N, work), WEFT_OK);
    add_steps(&s, WEFT_SLOW_STEPS - 1, slow);
    assert_false(weft_slow_next(&s, &rank)); /* not before 20 steps */
    add_steps(&s, 1, slow);
    assert_true(weft_slow_next(&s, &rank));
    assert_int_equal(rank, 2);
    assert_true(s.rank[2].slow && s.rank[2].low_s > 1.3f && s.rank[2].other_s == 1);
    assert_false(weft_slow_next(&s, &rank));
    add_steps(&s, 1, fine);
    assert_false(weft_slow_next(&s, &rank));
    assert_true(s.rank[2].slow); /* one step says nothing */
    add_steps(&s, 1, fine);
    assert_false(weft_slow_next(&s, &rank));
    assert_false(s.rank[2].slow);
    add_steps(&s, 20, slow); /* and named again */
    assert_true(weft_slow_next(&s, &rank));
    weft_slow_fini(&s);
}

static void chance_and_other_work_name_nobody(void **state)
{
    const double work[N] = {100, 100, 50, 200}, alone[N] = {1, 2, 3, 4};
    const float  even[N] = {1, 1, 0.5f, 2}, jump[N] = {1, 30, 0.5f, 2};
    weft_slow    s = {0};
    int          rank;
    (void)state;
    assert_int_equal(weft_slow_begin(&s, N, work), WEFT_OK);
    for (int k = 0; k < 100; k++) { /* a rank that takes long, but for some steps */
        weft_slow_add(&s, 0, N, k % 6 ? jump : even);
        assert_false(weft_slow_next(&s, &rank));
    }
    assert_int_equal(weft_slow_begin(&s, N, alone), WEFT_OK);
    add_steps(&s, 40, jump);
    assert_false(weft_slow_next(&s, &rank));
    const float tiny[N] = {1e-4f, 1e-4f, 0.5e-4f, 3e-4f}; /* steps too short to compare */
    assert_int_equal(weft_slow_begin(&s, N, (const double[N]){1, 1, 1, 1}), WEFT_OK);
    add_steps(&s, 40, tiny);
    assert_false(weft_slow_next(&s, &rank));
    weft_slow_fini(&s);
}

static void ranks_in_turn_and_unknown_times(void **state)
{
    const double work[N] = {1, 1, 1, 1};
    const float  some[2] = {1, 0}, more[2] = {3, 1};
    weft_slow    s = {0};
    int          rank;
    (void)state;
    assert_int_equal(weft_slow_begin(&s, N, work), WEFT_OK);
    for (int k = 0; k < 20; k++) {
        weft_slow_add(&s, 0, 2, some);
        weft_slow_add(&s, 2, 2, more);
        weft_slow_add(&s, 3, 5, (const float[]){1, 9, 9, 9, 9}); /* no such ranks */
    }
    assert_true(weft_slow_next(&s, &rank));
    assert_int_equal(rank, 2);
    assert_int_equal(s.rank[1].n, 0);
    weft_slow_fini(&s);
    weft_slow_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_rank_is_named_once),
        cmocka_unit_test(chance_and_other_work_name_nobody),
        cmocka_unit_test(ranks_in_turn_and_unknown_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
