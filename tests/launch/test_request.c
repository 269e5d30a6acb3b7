/* What ranks are asked to do survives the way to them, whatever bytes it has; what was altered on
 * the way is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/request.h"

static const char *const assign[] = {"steps=3", "data=a b\n\"c\".bin", "model=\xff\xfe/x",
                                     "x="};

static weft_launch_request full_request(void)
{
    return (weft_launch_request){.file         = "a folder/job 1.yaml",
                                 .n_assign     = 4,
                                 .assign       = assign,
                                 .allow        = "lanes",
                                 .trace        = "end 00000000\n",
                                 .command      = "weft run 'a b'",
                                 .fresh        = true,
                                 .json         = true,
                                 .check_s      = 0.1,
                                 .timeout_s    = 1e6,
                                 .io_timeout_s = 600,
                                 .min_rank     = 2};
}

static void assert_text(const char *a, const char *b)
{
    if (!a || !b)
        assert_ptr_equal(a, b);
    else
        assert_string_equal(a, b);
}

static void assert_same(const weft_launch_request *a, const weft_launch_request *b)
{
    assert_text(a->file, b->file);
    assert_text(a->allow, b->allow);
    assert_text(a->trace, b->trace);
    assert_text(a->command, b->command);
    assert_int_equal(a->n_assign, b->n_assign);
    for (int i = 0; i < a->n_assign; i++) assert_text(a->assign[i], b->assign[i]);
    assert_true(a->fresh == b->fresh && a->quiet == b->quiet && a->json == b->json &&
                a->check == b->check);
    assert_true(a->check_s == b->check_s && a->timeout_s == b->timeout_s &&
                a->io_timeout_s == b->io_timeout_s && a->min_rank == b->min_rank);
}

static weft_arena *arena;

static int set_up(void **state)
{
    (void)state;
    return weft_arena_create(&arena) != WEFT_OK;
}

static int tear_down(void **state)
{
    (void)state;
    weft_arena_destroy(arena);
    return 0;
}

static void test_text_reads_back(void **state)
{
    (void)state;
    const weft_launch_request of[] = {
        full_request(), {0}, {.check = true, .quiet = true}};
    for (size_t i = 0; i < WEFT_COUNT(of); i++) {
        weft_text           t = {0};
        weft_launch_request q;
        weft_launch_request_print(&of[i], &t);
        if (weft_launch_request_parse(t.s, t.n, arena, &q) != WEFT_OK)
            fail_msg("%s", weft_error_text());
        assert_same(&of[i], &q);
        weft_text_fini(&t);
    }
}

/* Every byte altered, and every length cut off or gone beyond. */
static void test_damage_is_refused(void **state)
{
    (void)state;
    const weft_launch_request of = full_request();
    weft_launch_request       q;
    weft_text                 t = {0};
    weft_launch_request_print(&of, &t);
    for (size_t i = 0; i < t.n; i++) {
        t.s[i] ^= 4;
        assert_int_equal(weft_launch_request_parse(t.s, t.n, arena, &q), WEFT_ERR_ARG);
        t.s[i] ^= 4;
        assert_int_equal(weft_launch_request_parse(t.s, i, arena, &q), WEFT_ERR_ARG);
    }
    weft_text_add(&t, "\n");
    assert_int_equal(weft_launch_request_parse(t.s, t.n, arena, &q), WEFT_ERR_ARG);
    weft_text_fini(&t);
}

static void test_another_version_is_named(void **state)
{
    (void)state;
    weft_launch_request q;
    const char         *text = "weft-request 99.1\nend 00000000\n";
    assert_int_equal(weft_launch_request_parse(text, strlen(text), arena, &q),
                     WEFT_ERR_ARG);
    assert_non_null(strstr(weft_error_text(), "weft-request 99.1"));
}

static void set_descriptor(int fd)
{
    char s[16];
    snprintf(s, sizeof s, "%d", fd);
    setenv("WEFT_REQUEST_FD", s, 1);
}

static void test_descriptor_carries_it(void **state)
{
    (void)state;
    const weft_launch_request of = full_request();
    weft_launch_request       q;
    bool                      found = true;
    int                       fd;
    unsetenv("WEFT_REQUEST_FD");
    assert_int_equal(weft_launch_request_find(arena, &q, &found), WEFT_OK);
    assert_false(found);
    assert_int_equal(weft_launch_request_seal(&of, &fd), WEFT_OK);
    assert_int_equal(write(fd, "x", 1), -1); /* nobody changes it any more */
    set_descriptor(fd);
    assert_int_equal(weft_launch_request_find(arena, &q, &found), WEFT_OK);
    assert_true(found);
    assert_same(&of, &q);
    assert_int_equal(fcntl(fd, F_GETFD), -1); /* closed */
    assert_null(getenv("WEFT_REQUEST_FD"));
}

static void test_other_descriptors_are_refused(void **state)
{
    (void)state;
    weft_launch_request q;
    bool                found;
    int                 fd = open("/proc/self/exe", O_RDONLY);
    set_descriptor(fd);
    assert_int_equal(weft_launch_request_find(arena, &q, &found), WEFT_ERR_ARG);
    close(fd);
    set_descriptor(fd); /* closed */
    assert_int_equal(weft_launch_request_find(arena, &q, &found), WEFT_ERR_ARG);
    setenv("WEFT_REQUEST_FD", "7x", 1);
    assert_int_equal(weft_launch_request_find(arena, &q, &found), WEFT_ERR_ARG);
    unsetenv("WEFT_REQUEST_FD");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_text_reads_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_damage_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_version_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_descriptor_carries_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_descriptors_are_refused, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
