/* Which level is taken for a fault, and what is said of the others. */
#include <math.h>

#include "member/levels.h"
#include "support/test.h"

static weft_level_case make_case(void)
{
    weft_level_case c = {.best_step_s = 1, .horizon_s = 100, .allowed = WEFT_LEVEL_ALL};
    c.option[WEFT_LEVEL_RETRY].why_not   = "its process is gone";
    c.option[WEFT_LEVEL_REPLACE].pause_s = 0.5;
    c.option[WEFT_LEVEL_HOST].why_not    = "its host is there";
    c.option[WEFT_LEVEL_SHRINK] = (weft_level_option){.pause_s = 0.2, .step_s = 1.25};
    c.option[WEFT_LEVEL_WAIT].pause_s = 40;
    c.option[WEFT_LEVEL_CHECKPOINT]   = (weft_level_option){.pause_s = 1, .repeat_s = 30};
    c.option[WEFT_LEVEL_STOP].pause_s = 1;
    return c;
}

static const weft_level_rejected *find_rejected(const weft_level_choice *x, weft_level l)
{
    for (int k = 0; k < x->n_rejected; k++)
        if (x->rejected[k].level == l) return &x->rejected[k];
    fail_msg("%s was not rejected", weft_level_name(l));
    return NULL;
}

static void the_cheapest_is_taken(void **state)
{
    (void)state;
    weft_level_case   c = make_case();
    weft_level_choice x;
    weft_level_choose(&c, &x);
    assert_int_equal(x.level, WEFT_LEVEL_REPLACE);
    assert_true(x.cost_s == 0.5);
    assert_int_equal(x.n_rejected, WEFT_N_LEVEL - 1);
    assert_true(find_rejected(&x, WEFT_LEVEL_SHRINK)->cost_s == 0.2 + 25);
    assert_true(find_rejected(&x, WEFT_LEVEL_STOP)->cost_s < 0);
    assert_true(find_rejected(&x, WEFT_LEVEL_RETRY)->cost_s < 0);
    c.option[WEFT_LEVEL_REPLACE].why_not = "lost too often";
    weft_level_choose(&c, &x);
    assert_int_equal(x.level, WEFT_LEVEL_SHRINK);
    c.option[WEFT_LEVEL_CHECKPOINT].repeat_s = 3; /* 4 s against 25.2 */
    weft_level_choose(&c, &x);
    assert_int_equal(x.level, WEFT_LEVEL_CHECKPOINT);
    c.horizon_s = 0.01; /* failures come one after another: no reason to give up */
    c.option[WEFT_LEVEL_SHRINK].why_not = "no";
    weft_level_choose(&c, &x);
    assert_int_equal(x.level, WEFT_LEVEL_CHECKPOINT);
    c.option[WEFT_LEVEL_SHRINK].why_not = NULL;
    c.horizon_s                         = 8; /* soon over: being slower costs little */
    weft_level_choose(&c, &x);
    assert_int_equal(x.level, WEFT_LEVEL_SHRINK);
}

static void what_is_not_allowed_is_not_taken(void **state)
{
    (void)state;
    weft_level_case   c = make_case();
    weft_level_choice x;
    assert_ok(weft_levels_parse("shrink,checkpoint", &c.allowed));
    weft_level_choose(&c, &x);
    assert_int_equal(x.level, WEFT_LEVEL_SHRINK);
    assert_non_null(find_rejected(&x, WEFT_LEVEL_REPLACE)->why_not);
    assert_true(find_rejected(&x, WEFT_LEVEL_REPLACE)->cost_s == 0.5);
    c.option[WEFT_LEVEL_SHRINK].why_not = c.option[WEFT_LEVEL_CHECKPOINT].why_not = "no";
    weft_level_choose(&c, &x);
    assert_int_equal(x.level, WEFT_LEVEL_STOP);
    c.option[WEFT_LEVEL_STOP].why_not = "no"; /* the job ends whatever is said */
    weft_level_choose(&c, &x);
    assert_int_equal(x.level, WEFT_LEVEL_STOP);
}

static void lists_are_read(void **state)
{
    (void)state;
    unsigned allowed;
    assert_ok(weft_levels_parse("on", &allowed));
    assert_int_equal(allowed, WEFT_LEVEL_ALL);
    assert_ok(weft_levels_parse("replace", &allowed));
    assert_int_equal(allowed, 1 << WEFT_LEVEL_REPLACE | 1 << WEFT_LEVEL_STOP);
    static const char *const bad[] = {"", "replace,", ",stop", "of", "replace, shrink"};
    for (size_t k = 0; k < WEFT_COUNT(bad); k++)
        assert_fails(weft_levels_parse(bad[k], &allowed), WEFT_ERR_ARG, "is none of");
}

static void pauses_are_those_of_the_job(void **state)
{
    (void)state;
    weft_level_history h     = {0};
    double             prior = weft_level_pause(&h, WEFT_LEVEL_REPLACE);
    assert_true(prior > 0);
    weft_level_note_pause(&h, WEFT_LEVEL_REPLACE, 3);
    weft_level_note_pause(&h, WEFT_LEVEL_REPLACE, (double)NAN);
    assert_true(weft_level_pause(&h, WEFT_LEVEL_REPLACE) == 3);
    weft_level_note_pause(&h, WEFT_LEVEL_REPLACE, 100); /* one that took long */
    weft_level_note_pause(&h, WEFT_LEVEL_REPLACE, 2);
    assert_true(weft_level_pause(&h, WEFT_LEVEL_REPLACE) == 3);
    for (int k = 0; k < WEFT_LEVEL_HISTORY; k++)
        weft_level_note_pause(&h, WEFT_LEVEL_REPLACE, 1); /* older ones are forgotten */
    assert_true(weft_level_pause(&h, WEFT_LEVEL_REPLACE) == 1);
    assert_true(weft_level_pause(&h, WEFT_LEVEL_SHRINK) < 3);
}

static void the_horizon_is_the_next_failure(void **state)
{
    (void)state;
    weft_level_history h    = {0};
    double             none = weft_level_horizon(&h, 100, 8, 0);
    assert_true(none > 3600e3 && none < 3700e3); /* 8,000 hours of 8 devices */
    assert_true(weft_level_horizon(&h, 100, 8, 50) == 50);
    h.n_failure = 10;
    assert_true(weft_level_horizon(&h, 600, 8, 0) == 60);
    assert_true(weft_level_horizon(&h, 600, 8, 20) == 20);
    h.n_failure = 1; /* one alone is no rate */
    assert_true(weft_level_horizon(&h, 5, 8, 0) > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cheapest_is_taken),
        cmocka_unit_test(what_is_not_allowed_is_not_taken),
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(pauses_are_those_of_the_job),
        cmocka_unit_test(the_horizon_is_the_next_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
