#include "base/lanes.h"

#include "support/test.h"

/* Runs cover all leaves in order, larger ones first; terms cover a run, aligned, and no two of
 * them are siblings. */
static void runs_and_terms(void **state)
{
    (void)state;
    for (int lanes = 1; lanes <= 64; lanes *= 2)
        for (int n = 1; n <= lanes; n++) {
            int        at = 0, most = 0, last = lanes;
            weft_lanes d = {lanes, n, NULL};
            assert_true(weft_lanes_right(&d));
            assert_int_equal(weft_lanes_plain(&d), !(n & (n - 1)));
            for (int k = 0; k < n; k++) {
                int first, end, level[WEFT_LANES_MAX_TERM], before = -1;
                weft_lanes_of(&d, k, &first, &end);
                assert_int_equal(first, at);
                assert_true(end - first <= last && end - first >= lanes / n);
                last  = end - first;
                int m = weft_lanes_terms(first, end, level);
                if (m > most) most = m;
                for (int i = 0; i < m; i++) {
                    assert_int_equal(at % (1 << level[i]), 0);
                    if (level[i] == before) /* side by side, but not under one parent */
                        assert_int_equal((at - (1 << before)) % (2 << before),
                                         1 << before);
                    before = level[i];
                    at += 1 << level[i];
                }
                assert_int_equal(at, end);
            }
            assert_int_equal(at, lanes);
            assert_int_equal(weft_lanes_most_terms(&d), most);
        }
}

static void default_is_the_next_power_of_two(void **state)
{
    static const int want[] = {1, 1, 2, 4, 4, 8, 8, 8, 8, 16};
    (void)state;
    for (int n = 0; n < 10; n++) assert_int_equal(weft_lanes_default(n, 100), want[n]);
    assert_int_equal(weft_lanes_default(8, 3), 2); /* too few micro-batches */
}

static void every_lane_gets_a_micro_batch(void **state)
{
    (void)state;
    assert_int_equal(weft_lanes_fit_micro(8, 2, 4), 2);
    assert_int_equal(weft_lanes_fit_micro(8, 4, 4), 2);
    assert_int_equal(weft_lanes_fit_micro(8, 8, 8), 1);
    assert_int_equal(weft_lanes_fit_micro(12, 6, 4), 3);
    assert_int_equal(weft_lanes_fit_micro(10, 5, 4), 2); /* 4 and 3 do not divide it */
}

/* Added where two of one level meet, the terms of all positions leave one sum. */
static void terms_make_the_tree(void **state)
{
    (void)state;
    for (int n = 1; n <= 32; n++) {
        int        stack[64], top = 0;
        weft_lanes d = {32, n, NULL};
        for (int k = 0; k < n; k++) {
            int first, end, level[WEFT_LANES_MAX_TERM];
            weft_lanes_of(&d, k, &first, &end);
            int m = weft_lanes_terms(first, end, level);
            for (int i = 0; i < m; i++)
                for (stack[top++] = level[i]; top > 1 && stack[top - 1] == stack[top - 2];
                     top--)
                    stack[top - 2]++;
        }
        assert_int_equal(top, 1);
        assert_int_equal(stack[0], 5);
    }
}

/* Every way to share 16 lanes among three: runs in order, and terms that leave one sum. */
static void shares_make_the_tree(void **state)
{
    (void)state;
    for (int32_t a = 1; a < 15; a++)
        for (int32_t b = 1; a + b < 16; b++) {
            int32_t    share[] = {a, b, 16 - a - b};
            weft_lanes d       = {16, 3, share};
            int        stack[64], top = 0, at = 0;
            assert_true(weft_lanes_right(&d));
            for (int k = 0; k < 3; k++) {
                int first, end, level[WEFT_LANES_MAX_TERM];
                weft_lanes_of(&d, k, &first, &end);
                assert_int_equal(first, at);
                assert_int_equal(at = end, first + share[k]);
                int m = weft_lanes_terms(first, end, level);
                for (int i = 0; i < m; i++)
                    for (stack[top++] = level[i];
                         top > 1 && stack[top - 1] == stack[top - 2]; top--)
                        stack[top - 2]++;
            }
            assert_int_equal(top, 1);
            assert_int_equal(stack[0], 4);
        }
}

static void wrong_dealings(void **state)
{
    (void)state;
    int32_t few[] = {2, 1}, none[] = {4, 0}, equal[] = {2, 2}, right[] = {3, 1};
    assert_false(weft_lanes_right(&(weft_lanes){4, 2, few}));
    assert_false(weft_lanes_right(&(weft_lanes){4, 2, none}));
    assert_false(weft_lanes_right(&(weft_lanes){3, 2, NULL}));
    assert_false(weft_lanes_right(&(weft_lanes){2, 3, NULL}));
    assert_true(weft_lanes_right(&(weft_lanes){4, 2, right}));
    assert_false(weft_lanes_plain(&(weft_lanes){4, 2, right}));
    assert_true(weft_lanes_plain(&(weft_lanes){4, 2, equal}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_and_terms),
        cmocka_unit_test(default_is_the_next_power_of_two),
        cmocka_unit_test(every_lane_gets_a_micro_batch),
        cmocka_unit_test(terms_make_the_tree),
        cmocka_unit_test(shares_make_the_tree),
        cmocka_unit_test(wrong_dealings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
