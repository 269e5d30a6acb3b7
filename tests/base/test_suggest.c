#include "support/test.h"
#include "base/clock.h"
#include "base/suggest.h"

static const char *const keys[] = {"steps",     "batch", "micro_batch",
                                   "optimizer", "lr",    "seq"};

static const char *nearest(const char *word)
{
    return weft_suggest(word, keys, 6);
}

static void near_words(void **state)
{
    (void)state;
    assert_string_equal(nearest("stesp"), "steps");
    assert_string_equal(nearest("step"), "steps");
    assert_string_equal(nearest("Batch"), "batch");
    assert_string_equal(nearest("micro-batch"), "micro_batch");
    assert_string_equal(nearest("microbatch"), "micro_batch");
    assert_string_equal(nearest("optimiser"), "optimizer");
    assert_string_equal(nearest("LR"), "lr");
    assert_string_equal(nearest("micro"), "micro_batch");
    assert_null(nearest("opt"));
}

static void far_words(void **state)
{
    (void)state;
    assert_null(nearest("zebra"));
    assert_null(nearest("x"));
    assert_null(nearest(""));
    assert_null(weft_suggest("steps", keys, 0));
    char big[300];
    memset(big, 's', sizeof big);
    big[sizeof big - 1] = 0;
    assert_null(nearest(big));
}

static void clocks_advance(void **state)
{
    (void)state;
    double a = weft_clock_s(), b = weft_clock_s();
    assert_true(b >= a);
    assert_true(weft_clock_wall_s() > 1.7e9); /* later than 2023 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_words),
        cmocka_unit_test(far_words),
        cmocka_unit_test(clocks_advance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
