/* The views of a recorded run, read from its incidents and views. */
#include "session/replay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static weft_status parse_text(weft_arena *a, const char *text, weft_replay *r)
{
    *r = (weft_replay){0};
    return weft_replay_parse("incidents.jsonl", text, strlen(text), a, r);
}

static void assert_views(const weft_replay *r, int n, const int *epoch, const int *step)
{
    assert_int_equal(r->n, n);
    for (int k = 0; k < n; k++) {
        assert_int_equal(r->view[k].epoch, epoch[k]);
        assert_int_equal(r->view[k].first_step, step[k]);
    }
}

static void views_by_their_first_step(void **state)
{
    weft_arena *a = *state;
    weft_replay r;
    assert_int_equal(
        parse_text(a,
                   "{\"epoch\": 1, \"next_epoch\": 2, \"next_step\": 7, \"ranks\": 2}\n"
                   "{\"cause\": \"disk\", \"decided\": \"continue\"}\n"
                   "{\"epoch\": 2, \"next_epoch\": 4, \"next_step\": 18, \"ranks\": 3}",
                   &r),
        WEFT_OK);
    assert_int_equal(r.n, 2);
    assert_null(weft_replay_find(&r, 6));
    assert_int_equal(weft_replay_find(&r, 7)->n_rank, 2);
    assert_int_equal(weft_replay_find(&r, 17)->n_rank, 2);
    assert_int_equal(weft_replay_find(&r, 18)->epoch, 4);
}

/* Back to a checkpoint: steps count as they were run last. */
static void steps_that_were_run_again(void **state)
{
    weft_arena *a = *state;
    weft_replay r;
    assert_int_equal(parse_text(a,
                                "{\"next_epoch\": 2, \"next_step\": 7, \"ranks\": 2}\n"
                                "{\"next_epoch\": 3, \"next_step\": 12, \"ranks\": 3}\n"
                                "{\"next_epoch\": 4, \"next_step\": 9, \"ranks\": 4}\n",
                                &r),
                     WEFT_OK);
    assert_int_equal(r.n, 2);
    assert_int_equal(weft_replay_find(&r, 7)->epoch, 2);
    assert_int_equal(weft_replay_find(&r, 9)->n_rank, 4);
    assert_int_equal(weft_replay_find(&r, 12)->epoch, 4);
}

/* The first view is known from the line of its end; lines of one change name the same two. */
static void view_before(void **state)
{
    static const char line[] =
        "{\"next_epoch\": 3, \"next_step\": 9, \"ranks\": 4, \"plan\": \"plans/b.json\", "
        "\"view\": {\"epoch\": 2, \"first_step\": 1, \"ranks\": 2, \"plan\": "
        "\"plans/a.json\"}}\n";
    weft_arena *a = *state;
    weft_replay r;
    char        text[2 * sizeof line];
    int         least, most;
    strcpy(text, line);
    strcat(text, line);
    assert_int_equal(parse_text(a, text, &r), WEFT_OK);
    assert_int_equal(r.n, 2);
    assert_string_equal(weft_replay_find(&r, 8)->plan, "plans/a.json");
    assert_string_equal(weft_replay_find(&r, 9)->plan, "plans/b.json");
    assert_null(weft_replay_find(&r, 0));
    weft_replay_count(&r, &least, &most);
    assert_int_equal(least, 2);
    assert_int_equal(most, 4);
}

/* views.jsonl of a run that was resumed: epochs begin anew, also where they are as many as before;
 * steps after the checkpoint count as the later run ran them. */
static void runs_that_were_resumed(void **state)
{
    weft_arena *a = *state;
    weft_replay r;
    assert_int_equal(parse_text(a,
                                "{\"epoch\": 1, \"ranks\": 4, \"first_step\": 1}\n"
                                "{\"epoch\": 2, \"ranks\": 3, \"first_step\": 9}\n"
                                "{\"epoch\": 3, \"ranks\": 2, \"first_step\": 24}\n"
                                "{\"epoch\": 1, \"ranks\": 1, \"first_step\": 21}\n"
                                "{\"epoch\": 1, \"ranks\": 2, \"first_step\": 31}\n"
                                "{\"epoch\": 2, \"ranks\": 4, \"first_step\": 40}\n",
                                &r),
                     WEFT_OK);
    assert_views(&r, 5, (int[]){1, 2, 1, 1, 2}, (int[]){1, 9, 21, 31, 40});
    assert_int_equal(weft_replay_find(&r, 24)->n_rank, 1);
    /* incidents of both runs, whose views are all there */
    static const char both[] =
        "{\"next_epoch\": 3, \"next_step\": 24, \"ranks\": 2, \"view\": "
        "{\"epoch\": 2, \"first_step\": 9, \"ranks\": 3}}\n"
        "{\"next_epoch\": 2, \"next_step\": 40, \"ranks\": 4, \"view\": "
        "{\"epoch\": 1, \"first_step\": 31, \"ranks\": 2}}\n";
    assert_int_equal(weft_replay_parse("incidents.jsonl", both, strlen(both), a, &r),
                     WEFT_OK);
    assert_views(&r, 5, (int[]){1, 2, 1, 1, 2}, (int[]){1, 9, 21, 31, 40});
}

/* A host that was lost with the view it has not written: others tell of it in the line of its
 * end. */
static void view_that_was_not_written(void **state)
{
    static const char told[] =
        "{\"next_epoch\": 3, \"next_step\": 12, \"ranks\": 2, \"view\": "
        "{\"epoch\": 2, \"first_step\": 9, \"ranks\": 4}}\n"
        "{\"next_epoch\": 3, \"next_step\": 12, \"ranks\": 2, \"view\": "
        "{\"epoch\": 2, \"first_step\": 9, \"ranks\": 4}}\n";
    weft_arena *a = *state;
    weft_replay r;
    assert_int_equal(parse_text(a,
                                "{\"epoch\": 1, \"ranks\": 3, \"first_step\": 1}\n"
                                "{\"epoch\": 3, \"ranks\": 2, \"first_step\": 12}\n"
                                "{\"epoch\": 4, \"ranks\": 3, \"first_step\": 20}\n",
                                &r),
                     WEFT_OK);
    assert_int_equal(weft_replay_parse("incidents.jsonl", told, strlen(told), a, &r),
                     WEFT_OK);
    assert_views(&r, 4, (int[]){1, 2, 3, 4}, (int[]){1, 9, 12, 20});
    assert_int_equal(weft_replay_find(&r, 10)->n_rank, 4);
}

static void bad_lines(void **state)
{
    weft_arena *a = *state;
    weft_replay r;
    assert_int_equal(parse_text(a, "{}\n{\"next_epoch\": 2, \"next_step\": 7}\n", &r),
                     WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "incidents.jsonl:2: the view of epoch 2"));
    assert_int_equal(parse_text(a, "[1]", &r), WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "incidents.jsonl:1: not a line"));
    assert_int_not_equal(parse_text(a, "{\"next_epoch\": ", &r), WEFT_OK);
    assert_int_equal(parse_text(a,
                                "{\"next_epoch\": 2, \"next_step\": 7, \"ranks\": 2, "
                                "\"plan\": \"plans/../../x\"}",
                                &r),
                     WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "is not a file in plans/"));
    assert_int_equal(parse_text(a, "", &r), WEFT_OK);
    assert_int_equal(r.n, 0);
}

static int open_arena(void **state)
{
    weft_arena *a = NULL;
    if (weft_arena_create(&a) != WEFT_OK) return -1;
    *state = a;
    return 0;
}

static int close_arena(void **state)
{
    weft_arena_destroy(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(views_by_their_first_step, open_arena,
                                        close_arena),
        cmocka_unit_test_setup_teardown(steps_that_were_run_again, open_arena,
                                        close_arena),
        cmocka_unit_test_setup_teardown(view_before, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(runs_that_were_resumed, open_arena, close_arena),
        cmocka_unit_test_setup_teardown(view_that_was_not_written, open_arena,
                                        close_arena),
        cmocka_unit_test_setup_teardown(bad_lines, open_arena, close_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
