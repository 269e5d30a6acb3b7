/* Parallel sizes of another engine's program, as numbers of ranks change. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "launch/sizes.h"
#include "support/test.h"

/* Of words with spaces between them. */
static weft_status parse(const char *text, weft_launch_sizes *out)
{
    char copy[256], *word[16], *save;
    int  n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *at = strtok_r(copy, " ", &save); at; at = strtok_r(NULL, " ", &save))
        word[n++] = at;
    return weft_launch_sizes_parse(n, word, out);
}

/* dp for so many ranks. */
static int find_dp(const char *text, int n_rank)
{
    weft_launch_sizes s;
    assert_ok(parse(text, &s));
    return weft_launch_sizes_dp(&s, n_rank);
}

static void dp_follows_the_ranks_that_are_there(void **state)
{
    (void)state;
    assert_int_equal(find_dp("tp=2 pp=2", 16), 4);
    assert_int_equal(find_dp("tp=2 pp=2", 15), 3);
    assert_int_equal(find_dp("tp=2 pp=2", 3), 0);
    assert_int_equal(find_dp("dp=1:2 tp=2 cp=2", 64), 2);
    assert_int_equal(find_dp("dp=2:4 tp=4", 8), 2);
    assert_int_equal(find_dp("dp=2:4 tp=4", 7), 0);
    assert_int_equal(find_dp("dp=3 tp=2", 100), 3);
    assert_int_equal(find_dp("dp=3 tp=2", 5), 0);
}

static void a_batch_is_the_same_for_every_dp(void **state)
{
    weft_launch_sizes s;
    (void)state;
    assert_int_equal(find_dp("batch=64 micro_batch=4", 16), 16);
    assert_int_equal(find_dp("batch=64 micro_batch=4", 15), 8);
    assert_int_equal(find_dp("tp=2 batch=24", 14), 6);
    assert_int_equal(find_dp("dp=5:8 batch=64", 7), 0);
    assert_ok(parse("batch=64 micro_batch=4", &s));
    assert_int_equal(weft_launch_sizes_accumulation(&s, 8), 2);
    assert_ok(parse("tp=2", &s));
    assert_int_equal(weft_launch_sizes_accumulation(&s, 8), 0);
}

static void experts_are_among_data_parallel_ranks(void **state)
{
    (void)state;
    assert_int_equal(find_dp("ep=4 tp=2", 22), 8);
    assert_int_equal(find_dp("ep=4 cp=2", 14), 6);
    assert_int_equal(find_dp("ep=4", 3), 0);
}

static void the_fewest_ranks_are_known(void **state)
{
    weft_launch_sizes s;
    (void)state;
    assert_ok(parse("dp=3:8 tp=2 pp=2 batch=64", &s));
    assert_int_equal(weft_launch_sizes_least(&s), 16); /* dp=4 */
    assert_int_equal(weft_launch_sizes_world(&s, 8), 32);
    assert_ok(parse("ep=4 cp=2", &s));
    assert_int_equal(weft_launch_sizes_least(&s), 4);
}

static void sizes_are_printed_without_those_of_one(void **state)
{
    weft_launch_sizes s;
    weft_text         t = {0};
    (void)state;
    assert_ok(parse("pp=2 ep=2 dp=1:8 cp=3 tp=4", &s));
    weft_launch_sizes_print(&s, 6, &t);
    assert_string_equal(t.s, "dp=6 tp=4 cp=3 ep=2 pp=2");
    weft_text_fini(&t);
    assert_ok(parse("tp=1", &s));
    weft_launch_sizes_print(&s, 2, &t);
    assert_string_equal(t.s, "dp=2");
    weft_text_fini(&t);
}

static void what_is_no_size_is_refused(void **state)
{
    static const char *const bad[] = {"job.yaml",
                                      "tp",
                                      "=2",
                                      "tp=",
                                      "tp=0",
                                      "tp=-1",
                                      "tp=2x",
                                      "tp=2:3",
                                      "dp=2:",
                                      "dp=:2",
                                      "dp=3:2",
                                      "dp=2:3:4",
                                      "dp=1000000000",
                                      "zero=1",
                                      "batch=0",
                                      "batch=2:4",
                                      "micro_batch=2.5",
                                      "micro_batch_and_more=2"};
    weft_launch_sizes        s;
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT(bad); k++) {
        assert_int_equal(parse(bad[k], &s), WEFT_ERR_ARG);
        assert_non_null(strstr(weft_error_text(), bad[k]));
    }
    assert_int_equal(parse("micro_batch=2", &s), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "give batch"));
    assert_int_equal(parse("dp=5:7 batch=64", &s), WEFT_ERR_ARG);
    assert_int_equal(parse("tp=1048576 cp=1048576 pp=1048576", &s), WEFT_ERR_ARG);
    assert_int_equal(parse("dp=1048576 pp=2", &s), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "sizes: no dp from 1048576"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dp_follows_the_ranks_that_are_there),
        cmocka_unit_test(a_batch_is_the_same_for_every_dp),
        cmocka_unit_test(experts_are_among_data_parallel_ranks),
        cmocka_unit_test(the_fewest_ranks_are_known),
        cmocka_unit_test(sizes_are_printed_without_those_of_one),
        cmocka_unit_test(what_is_no_size_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
