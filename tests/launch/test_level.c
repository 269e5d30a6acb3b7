/* What the agent decides about a lost rank. */
#include "launch/level.h"
#include "support/test.h"

static weft_level choose(weft_launch_levels *v, const weft_launch_loss *loss)
{
    weft_level_choice c;
    weft_launch_levels_choose(v, loss, &c);
    return c.level;
}

static void a_rank_is_replaced_until_it_was_lost_too_often(void **state)
{
    (void)state;
    weft_launch_levels v    = {0};
    weft_launch_loss   loss = {.n_rank = 4, .min_rank = 3, .now_s = 1000};
    assert_ok(weft_launch_levels_init(&v, NULL, 4, 0));
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_REPLACE);
    loss.too_often = true;
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_SHRINK);
    loss.is_stopping = true;
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_STOP);
    loss =
        (weft_launch_loss){.n_rank = 3, .min_rank = 3, .too_often = true, .now_s = 1000};
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_STOP);
    loss.min_rank = 0;
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_STOP);
    weft_launch_levels_fini(&v);
}

static void fewer_ranks_are_taken_where_they_are_as_fast(void **state)
{
    (void)state;
    weft_launch_levels v    = {0};
    weft_launch_loss   loss = {.n_rank = 4, .min_rank = 1, .now_s = 1000};
    assert_ok(weft_launch_levels_init(&v, "on", 4, 0));
    weft_launch_levels_note_steps(&v, 4, 100, 10);
    weft_launch_levels_note_steps(&v, 4, 10, 50); /* with a fault that was noticed late */
    weft_launch_levels_note_steps(&v, 3, 1, 0.01);
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_REPLACE);
    weft_launch_levels_note_steps(&v, 3, 100, 10);
    for (int k = 0; k < WEFT_LEVEL_HISTORY; k++)
        weft_level_note_pause(&v.history, WEFT_LEVEL_REPLACE, 5);
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_SHRINK);
    loss.is_resizing = true; /* weft scale decides how many there are */
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_REPLACE);
    loss.too_often = true;
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_SHRINK);
    weft_launch_levels_fini(&v);
}

/* Of several hosts, where ranks are counted on all of them. */
static void a_slot_of_several_hosts_is_left_out_too(void **state)
{
    (void)state;
    weft_launch_levels v    = {0};
    weft_launch_loss   loss = {
          .n_rank = 64, .min_rank = 1, .too_often = true, .of_host = true, .now_s = 1000};
    weft_level_choice c;
    assert_ok(weft_launch_levels_init(&v, NULL, 1, 0));
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_SHRINK);
    loss.min_rank = 64; /* its host would leave, and MIN are left */
    weft_launch_levels_choose(&v, &loss, &c);
    assert_int_equal(c.level, WEFT_LEVEL_STOP);
    for (int k = 0; k < c.n_rejected; k++)
        if (c.rejected[k].level == WEFT_LEVEL_SHRINK)
            assert_string_equal(c.rejected[k].why_not,
                                "fewer hosts than MIN would be left");
    loss.min_rank = 0;
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_STOP);
    weft_launch_levels_fini(&v);
}

/* Four ranks, whose lost ones take long to replace. */
static void open_levels(weft_launch_levels *v)
{
    assert_ok(weft_launch_levels_init(v, "on", 4, 0));
    weft_launch_levels_note_steps(v, 4, 100, 10);
    for (int k = 0; k < WEFT_LEVEL_HISTORY; k++)
        weft_level_note_pause(&v->history, WEFT_LEVEL_REPLACE, 5);
}

/* Until fewer ranks were measured, what the planner predicts of them counts. */
static void predicted_steps_count_until_they_are_measured(void **state)
{
    (void)state;
    weft_launch_levels v    = {0};
    weft_launch_loss   loss = {.n_rank = 4, .min_rank = 1, .now_s = 1000};
    open_levels(&v);
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_REPLACE); /* 4 / 3 of the time */
    weft_launch_levels_note_predicted(&v, 4, "3:1.000001 9:2 x:1 2:1.5");
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_SHRINK);
    weft_launch_levels_note_predicted(&v, 4, "3:1.3");
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_REPLACE);
    weft_launch_levels_note_steps(&v, 3, 100, 10);
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_SHRINK);
    weft_launch_levels_fini(&v);
}

/* Until a shrink was measured, what is predicted of its move counts, pages included. */
static void a_predicted_move_counts_until_it_is_measured(void **state)
{
    (void)state;
    weft_launch_levels v    = {0};
    weft_launch_loss   loss = {.n_rank = 4, .min_rank = 1, .now_s = 1000};
    open_levels(&v);
    weft_launch_levels_note_predicted(&v, 4, "3:1.000001:1 2:1.5:x");
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_SHRINK);
    weft_launch_levels_note_predicted(&v, 4, "3:1.000001:20");
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_REPLACE);
    weft_level_note_pause(&v.history, WEFT_LEVEL_SHRINK, 0.5);
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_SHRINK);
    weft_launch_levels_fini(&v);
}

static void a_rank_with_other_bits_goes_where_it_may(void **state)
{
    (void)state;
    weft_launch_levels v    = {0};
    weft_launch_loss   loss = {
          .n_rank = 4, .min_rank = 3, .other_bits = true, .now_s = 1000};
    assert_ok(weft_launch_levels_init(&v, "on", 4, 0));
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_SHRINK);
    loss.n_rank = 64; /* of several hosts */
    assert_int_equal(choose(&v, &loss), WEFT_LEVEL_SHRINK);
    loss.n_rank = 3;
    assert_int_not_equal(choose(&v, &loss), WEFT_LEVEL_SHRINK);
    weft_launch_levels_fini(&v);
}

static weft_level choose_host_of(const char *recover, int n_host, int n_joined,
                                 int min_host, int least)
{
    weft_launch_levels    v = {0};
    weft_level_choice     c;
    weft_launch_host_loss loss = {.n_host   = n_host,
                                  .n_lost   = 1,
                                  .n_joined = n_joined,
                                  .min_host = min_host,
                                  .least    = least};
    assert_ok(weft_launch_levels_init(&v, recover, 1, 0));
    weft_launch_levels_choose_host(&v, &loss, 1000, &c);
    assert_int_equal(c.n_rejected, WEFT_N_LEVEL - 1);
    weft_launch_levels_fini(&v);
    return c.level;
}

static weft_level choose_host(int n_host, int n_joined, int min_host)
{
    return choose_host_of("on", n_host, n_joined, min_host, 0);
}

static weft_level choose_slow_of(const char *text, weft_launch_loss loss,
                                 const char *predicted, weft_level_choice *out)
{
    weft_launch_levels v      = {0};
    int                n_rank = loss.n_rank;
    weft_launch_slow   slow;
    const char        *what;
    loss.now_s = 1000;
    assert_true(weft_launch_slow_parse(text, &slow, &what));
    assert_string_equal(what, "rank 1");
    assert_ok(weft_launch_levels_init(&v, "on", 8, 0));
    if (predicted) weft_launch_levels_note_predicted(&v, n_rank, predicted);
    weft_launch_levels_choose_slow(&v, &slow, &loss, out);
    assert_int_equal(out->n_rejected, WEFT_N_LEVEL - 1);
    weft_launch_levels_fini(&v);
    return out->level;
}

static weft_level choose_slow(const char *text, int n_rank, int min_rank,
                              const char *predicted)
{
    weft_level_choice c;
    return choose_slow_of(
        text, (weft_launch_loss){.n_rank = n_rank, .min_rank = min_rank}, predicted, &c);
}

static const weft_level_rejected *find_rejected(const weft_level_choice *c,
                                                weft_level               level)
{
    for (int k = 0; k < c->n_rejected; k++)
        if (c->rejected[k].level == level) return &c->rejected[k];
    return NULL;
}

/* Its host leaves where that pays, whatever steps of this host's ranks took. */
static void a_slow_host_leaves_where_it_pays(void **state)
{
    weft_launch_loss may = {.n_rank = 4, .min_rank = 1, .of_host = true};
    weft_launch_loss not = {.n_rank = 4, .min_rank = 4, .of_host = true};
    weft_level_choice c;
    (void)state;
    assert_int_equal(choose_slow_of("1 2 0.3 2 600 rank 1", may, NULL, &c),
                     WEFT_LEVEL_SHRINK);
    const weft_level_rejected *stays = find_rejected(&c, WEFT_LEVEL_RETRY);
    assert_true(stays && stays->cost_s > c.cost_s && c.cost_s > 0);
    assert_int_equal(choose_slow_of("1 2 0.3 2 600 rank 1", may, "3:9", &c),
                     WEFT_LEVEL_SHRINK);
    assert_int_equal(choose_slow_of("1 2 0.6 2 600 rank 1", may, NULL, &c),
                     WEFT_LEVEL_RETRY);
    assert_int_equal(choose_slow_of("1 2 0.3 2 600 rank 1", not, NULL, &c),
                     WEFT_LEVEL_RETRY);
    stays = find_rejected(&c, WEFT_LEVEL_SHRINK);
    assert_true(stays && stays->why_not);
    assert_string_equal(stays->why_not, "fewer hosts than MIN would be left");
}

static void a_slow_rank_is_left_out_where_it_pays(void **state)
{
    weft_launch_slow slow;
    const char      *what;
    (void)state;
    /* without its slowness a step takes 0.3 of the time; two ranks of three 1.5 times that */
    assert_int_equal(choose_slow("1 1 0.3 1.5 600 rank 1", 3, 1, NULL),
                     WEFT_LEVEL_SHRINK);
    assert_int_equal(choose_slow("1 1 0.3 1.5 0.1 rank 1", 3, 1, NULL),
                     WEFT_LEVEL_RETRY); /* the job is as good as done */
    assert_int_equal(choose_slow("1 1 0.3 1.5 600 rank 1", 3, 3, NULL), WEFT_LEVEL_RETRY);
    assert_int_equal(choose_slow("1 1 0.3 1.5 600 rank 1", 3, 0, NULL), WEFT_LEVEL_RETRY);
    assert_int_equal(choose_slow("1 1 0.65 1.5 600 rank 1", 3, 1, NULL),
                     WEFT_LEVEL_RETRY);
    /* a plan that was made ahead for two knows better */
    assert_int_equal(choose_slow("1 1 0.65 1.5 600 rank 1", 3, 1, "2:1.1"),
                     WEFT_LEVEL_SHRINK);
    assert_int_equal(choose_slow("1 1 0.3 1.5 600 rank 1", 3, 1, "2:3.4"),
                     WEFT_LEVEL_RETRY);
    assert_false(weft_launch_slow_parse("1 1 0 1.5 600 rank 1", &slow, &what));
    assert_false(weft_launch_slow_parse("-1 1 0.5 1.5 600 rank 1", &slow, &what));
    assert_false(weft_launch_slow_parse("1 1 0.5 nan 600", &slow, &what));
    assert_false(weft_launch_slow_parse("1 0 0.5 1.5 600 rank 1", &slow, &what));
    assert_false(weft_launch_slow_parse("1 1 0.5", &slow, &what));
}

/* What agents do then is in tests/member/test_hosts_cases.c. */
static void recover_says_what_is_done_about_hosts(void **state)
{
    (void)state;
    assert_int_equal(choose_host_of("replace,wait", 4, 0, 2, 4), WEFT_LEVEL_WAIT);
    assert_int_equal(choose_host_of("replace,wait", 4, 1, 2, 4), WEFT_LEVEL_HOST);
    assert_int_equal(choose_host_of("replace", 4, 0, 2, 4), WEFT_LEVEL_STOP);
    assert_int_equal(choose_host_of("shrink", 4, 0, 2, 0), WEFT_LEVEL_SHRINK);
    assert_int_equal(choose_host_of("shrink", 4, 0, 4, 0), WEFT_LEVEL_STOP);
}

static void a_lost_host_is_replaced_or_missed(void **state)
{
    (void)state;
    assert_int_equal(choose_host(4, 1, 2), WEFT_LEVEL_HOST);
    assert_int_equal(choose_host(4, 0, 2), WEFT_LEVEL_SHRINK);
    assert_int_equal(choose_host(4, 0, 4), WEFT_LEVEL_WAIT); /* too few are left */
    assert_int_equal(choose_host(4, 1, 4), WEFT_LEVEL_HOST);
}

static void rejected_levels_are_printed(void **state)
{
    (void)state;
    weft_launch_levels v    = {0};
    weft_launch_loss   loss = {.n_rank = 2, .now_s = 10};
    weft_level_choice  c;
    weft_text          t = {0};
    assert_ok(weft_launch_levels_init(&v, "shrink", 2, 0));
    weft_launch_levels_choose(&v, &loss, &c);
    assert_int_equal(c.level, WEFT_LEVEL_STOP);
    weft_launch_levels_print(&c, &t);
    assert_non_null(strstr(t.s, "{\"level\": \"replace\", \"cost_s\": 0.2, \"why\": "
                                "\"recover does not allow it\"}"));
    assert_non_null(strstr(t.s, "{\"level\": \"shrink\", \"why\": \"the job has a fixed "
                                "number of ranks\"}"));
    weft_text_fini(&t);
    weft_launch_levels_fini(&v);
    assert_fails(weft_launch_levels_init(&v, "never", 2, 0), WEFT_ERR_ARG, "'never'");
    weft_launch_levels_fini(&v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_is_replaced_until_it_was_lost_too_often),
        cmocka_unit_test(a_slot_of_several_hosts_is_left_out_too),
        cmocka_unit_test(fewer_ranks_are_taken_where_they_are_as_fast),
        cmocka_unit_test(predicted_steps_count_until_they_are_measured),
        cmocka_unit_test(a_predicted_move_counts_until_it_is_measured),
        cmocka_unit_test(a_rank_with_other_bits_goes_where_it_may),
        cmocka_unit_test(a_lost_host_is_replaced_or_missed),
        cmocka_unit_test(recover_says_what_is_done_about_hosts),
        cmocka_unit_test(a_slow_rank_is_left_out_where_it_pays),
        cmocka_unit_test(a_slow_host_leaves_where_it_pays),
        cmocka_unit_test(rejected_levels_are_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
