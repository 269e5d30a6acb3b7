/* Plans that are made ahead: which views are likely, requests and answers as text, what is cut off
 * or altered. */
#include "session/ahead.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "support/test.h"

static bool has_view(const weft_ahead_request *q, int n, const int *count)
{
    for (int k = 0; k < q->n_view; k++)
        if (q->view[k].n_host == n &&
            !memcmp(q->view[k].count, count, sizeof(int) * (size_t)n))
            return true;
    return false;
}

static void likely_views(void **state)
{
    weft_ahead_request q = {0};
    (void)state;
    assert_true(weft_ahead_add_view(&q, 3, (int[]){2, 2, 1}));
    assert_false(weft_ahead_add_view(&q, 3, (int[]){2, 2, 1}));
    weft_ahead_add_likely(&q, 3, (int[]){2, 2, 1}, 8, 2, false);
    assert_true(has_view(&q, 2, (int[]){2, 2}));       /* the last host is lost */
    assert_true(has_view(&q, 2, (int[]){2, 1}));       /* one of the others */
    assert_true(has_view(&q, 4, (int[]){2, 2, 1, 2})); /* one joins */
    assert_true(has_view(&q, 3, (int[]){2, 1, 1}));    /* a rank less */
    assert_true(has_view(&q, 3, (int[]){1, 2, 1}));
    assert_int_equal(q.n_view, 6);
    weft_ahead_request_fini(&q);
    weft_ahead_add_likely(&q, 1, (int[]){3}, 4, 4, true);
    assert_int_equal(q.n_view, 2);
    assert_true(has_view(&q, 1, (int[]){2}) && has_view(&q, 1, (int[]){4}));
    weft_ahead_request_fini(&q);
    weft_ahead_add_likely(&q, 1, (int[]){4}, 4, 4, true); /* there may be no more */
    assert_int_equal(q.n_view, 1);
    weft_ahead_request_fini(&q);
}

static void requests_are_read_back(void **state)
{
    weft_ahead_request q = {.job        = "{\"a\": 1}",
                            .job_bytes  = 8,
                            .plan       = "plan\nof lines\n",
                            .plan_bytes = 14,
                            .n_core     = 12,
                            .horizon_s  = 3600,
                            .pause_s    = 0.25},
                       x;
    weft_text t = {0};
    (void)state;
    assert_true(weft_ahead_add_view(&q, 2, (int[]){4, 3}));
    assert_true(weft_ahead_add_view(&q, 1, (int[]){4}));
    weft_ahead_print_request(&q, &t);
    assert_ok(weft_ahead_parse_request(t.s, t.n, &x));
    assert_int_equal(x.n_view, 2);
    assert_true(has_view(&x, 2, (int[]){4, 3}) && has_view(&x, 1, (int[]){4}));
    assert_int_equal(x.n_core, 12);
    assert_true(x.horizon_s == 3600 && x.pause_s == 0.25);
    assert_string_equal(x.job, q.job);
    assert_string_equal(x.plan, q.plan);
    weft_ahead_request_fini(&x);
    for (size_t n = 0; n + 1 < t.n; n++)
        assert_int_equal(weft_ahead_parse_request(t.s, n, &x), WEFT_ERR_ARG);
    q.job = q.plan = NULL;
    weft_ahead_request_fini(&q);
    weft_text_fini(&t);
}

static void put_answer(weft_text *t, int n_host, const int *count, const char *plan)
{
    weft_ahead_print_answer(&(weft_ahead_answer){.n_host     = n_host,
                                                 .count      = count,
                                                 .changes    = true,
                                                 .step_s     = 0.5,
                                                 .was_step_s = 0.75,
                                                 .move_s     = 0.125,
                                                 .pages      = 4096,
                                                 .plan       = plan,
                                                 .plan_bytes = strlen(plan)},
                            t);
}

static void only_whole_answers_count(void **state)
{
    weft_text         t = {0};
    weft_ahead_answer a;
    size_t            first, at = 0;
    int               n_rank;
    (void)state;
    put_answer(&t, 2, (int[]){2, 2}, "one\nplan");
    first = t.n;
    put_answer(&t, 1, (int[]){2}, "another");
    assert_true(weft_ahead_find(t.s, t.n, 1, (int[]){2}, &a));
    assert_int_equal(a.plan_bytes, 7);
    assert_memory_equal(a.plan, "another", 7);
    assert_true(a.changes && a.step_s == 0.5 && a.was_step_s == 0.75);
    assert_true(a.move_s == 0.125 && a.pages == 4096);
    assert_false(weft_ahead_find(t.s, t.n, 1, (int[]){3}, &a));
    assert_true(weft_ahead_next(t.s, t.n, &at, &n_rank, &a));
    assert_int_equal(n_rank, 4);
    for (size_t n = first; n + 1 < t.n; n++) { /* the second is being written */
        assert_true(weft_ahead_find(t.s, n, 2, (int[]){2, 2}, &a));
        assert_false(weft_ahead_find(t.s, n, 1, (int[]){2}, &a));
    }
    for (size_t k = 0; k + 1 < first; k++) {
        t.s[k] ^= 4;
        if (weft_ahead_find(t.s, t.n, 2, (int[]){2, 2}, &a))
            fail_msg("byte %zu was altered", k);
        t.s[k] ^= 4;
    }
    weft_text_fini(&t);
}

/* Sixty-four hosts, a plan of 256 kB for each view: found in less than 10 ms. */
static void answers_are_found_quickly(void **state)
{
    weft_text         t = {0};
    weft_ahead_answer a;
    int               count[64];
    size_t            n    = 256 << 10;
    char             *plan = malloc(n + 1);
    double            best = 1;
    (void)state;
    assert_non_null(plan);
    memset(plan, 'x', n);
    plan[n] = 0;
    for (int k = 0; k < 64; k++) count[k] = 8;
    for (int k = 0; k < WEFT_AHEAD_MAX_VIEW; k++) {
        count[k] = 7;
        put_answer(&t, 64, count, plan);
        count[k] = 8;
    }
    count[WEFT_AHEAD_MAX_VIEW - 1] = 7;
    for (int k = 0; k < 5; k++) {
        double t0 = weft_clock_s();
        assert_true(weft_ahead_find(t.s, t.n, 64, count, &a));
        double s = weft_clock_s() - t0;
        if (s < best) best = s;
    }
    if (getenv("WEFT_TEST_TIMES")) printf("found in %.2f ms\n", 1e3 * best);
    assert_true(best < 0.01);
    free(plan);
    weft_text_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(likely_views),
        cmocka_unit_test(requests_are_read_back),
        cmocka_unit_test(only_whole_answers_count),
        cmocka_unit_test(answers_are_found_quickly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
