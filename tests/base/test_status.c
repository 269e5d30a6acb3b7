#include <pthread.h>

#include "support/test.h"
#include "base/status.h"

static void one_line(void **state)
{
    (void)state;
    assert_int_equal(WEFT_FAIL(WEFT_ERR_ARG, "a\nb\t%s", "c"), WEFT_ERR_ARG);
    assert_string_equal(weft_error_text(), "a b c");
}

static void words_in_front(void **state)
{
    (void)state;
    weft_fail(WEFT_ERR_IO, "no disk");
    assert_int_equal(weft_fail_in(WEFT_ERR_IO, "job %d: ", 7), WEFT_ERR_IO);
    assert_string_equal(weft_error_text(), "job 7: no disk");
    weft_fail(WEFT_ERR_IO, "again: %s", weft_error_text());
    assert_string_equal(weft_error_text(), "again: job 7: no disk");
}

static void long_text_is_cut(void **state)
{
    (void)state;
    char big[5000];
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = 0;
    weft_fail(WEFT_ERR_ARG, "%s", big);
    assert_int_equal(strlen(weft_error_text()), 1023);
    weft_fail_in(WEFT_ERR_ARG, "%s", big);
    assert_int_equal(strlen(weft_error_text()), 1023);
}

static void *other_thread(void *arg)
{
    (void)arg;
    const char *own = weft_error_text();
    return (void *)(uintptr_t)(*own == 0 && weft_fail(WEFT_ERR_MEM, "theirs"));
}

static void each_thread_has_its_own(void **state)
{
    (void)state;
    pthread_t t;
    void     *was_empty;
    weft_fail(WEFT_ERR_ARG, "mine");
    assert_int_equal(pthread_create(&t, NULL, other_thread, NULL), 0);
    pthread_join(t, &was_empty);
    assert_non_null(was_empty);
    assert_string_equal(weft_error_text(), "mine");
}

static weft_status tries(int n, int *reached)
{
    *reached = 0;
    WEFT_TRY(n == 1 ? WEFT_ERR_PEER : WEFT_OK);
    *reached       = 1;
    weft_status st = WEFT_OK;
    WEFT_GO(n == 2 ? WEFT_ERR_FULL : WEFT_OK);
    *reached = 2;
out:
    return st;
}

static void macros_pass_on(void **state)
{
    (void)state;
    int reached;
    assert_int_equal(tries(0, &reached), WEFT_OK);
    assert_int_equal(reached, 2);
    assert_int_equal(tries(1, &reached), WEFT_ERR_PEER);
    assert_int_equal(reached, 0);
    assert_int_equal(tries(2, &reached), WEFT_ERR_FULL);
    assert_int_equal(reached, 1);
}

static void names(void **state)
{
    (void)state;
    for (int i = 0; i <= WEFT_ERR_INTERNAL; i++)
        assert_string_not_equal(weft_status_name((weft_status)i), "unknown status");
    assert_string_equal(weft_status_name((weft_status)99), "unknown status");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_line),         cmocka_unit_test(words_in_front),
        cmocka_unit_test(long_text_is_cut), cmocka_unit_test(each_thread_has_its_own),
        cmocka_unit_test(macros_pass_on),   cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
