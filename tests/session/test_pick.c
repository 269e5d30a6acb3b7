/* Picking a token: greedy, by temperature, among the k best. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "session/pick.h"

static const float logit[6] = {0, 2, 1, 2, -1, 0.5f};

static void test_greedy(void **s)
{
    (void)s;
    int32_t order[6];
    assert_int_equal(weft_pick(logit, 6, 0, 0, 0.9, order), 1);
    assert_int_equal(weft_pick(logit, 6, 1, 1, 0.9, order), 1);
}

/* Shares of many draws are the softmax's. */
static void test_shares(void **s)
{
    (void)s;
    int32_t order[6];
    int     count[6] = {0}, n = 200000;
    double  sum = 0;
    for (int i = 0; i < n; i++)
        count[weft_pick(logit, 6, 0.5, 0, weft_pick_uniform(7, i), order)]++;
    for (int i = 0; i < 6; i++) sum += exp((double)logit[i] / 0.5);
    for (int i = 0; i < 6; i++)
        assert_true(fabs(count[i] / (double)n - exp((double)logit[i] / 0.5) / sum) <
                    0.005);
}

static void test_top_k(void **s)
{
    (void)s;
    int32_t order[6];
    int     count[6] = {0};
    for (int i = 0; i < 5000; i++)
        count[weft_pick(logit, 6, 5, 3, weft_pick_uniform(1, i), order)]++;
    assert_true(count[1] > 1000 && count[2] > 1000 && count[3] > 1000);
    assert_int_equal(count[0] + count[4] + count[5], 0);
}

int main(void)
{
    const struct CMUnitTest t[] = {
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_top_k),
    };
    return cmocka_run_group_tests(t, NULL, NULL);
}
