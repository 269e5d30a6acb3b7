/* The run that has last written a folder: what its files say of it; lists of addresses. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "launch/living.h"
#include "support/files.h"

static void write_text(const char *name, const char *text)
{
    test_files_write(test_files_path("%s", name), text, strlen(text));
}

static int64_t find_view(const char *text)
{
    weft_doc *d     = NULL;
    int64_t   epoch = -1;
    write_text("views.jsonl", text);
    if (!weft_launch_find_last_view(test_files_path("."), &d)) return -1;
    assert_int_equal(weft_doc_get_int(d, weft_doc_root(d), "epoch", &epoch), WEFT_OK);
    weft_doc_destroy(d);
    return epoch;
}

static void the_last_whole_line(void **state)
{
    weft_doc *d = NULL;
    (void)state;
    assert_false(weft_launch_find_last_view(test_files_path("none"), &d));
    assert_int_equal(find_view(""), -1);
    assert_int_equal(find_view("\n\n"), -1);
    assert_int_equal(find_view("{\"epoch\": 1}\n"), 1);
    assert_int_equal(find_view("{\"epoch\": 1}\n{\"epoch\": 2}\n"), 2);
    assert_int_equal(find_view("{\"epoch\": 1}\n{\"epoch\": 2}"), 1); /* being written */
    assert_int_equal(find_view("{\"epoch\": 1}\n{\"epo\n"), 1);
    assert_int_equal(find_view("\n{\"epoch\": 1}\n\n"), 1);
}

static void the_newest_number(void **state)
{
    const char *dir = test_files_path(".");
    (void)state;
    assert_int_equal(weft_launch_newest_epoch(test_files_path("none")), 0);
    write_text("views.jsonl", "{\"epoch\": 4}\n");
    assert_int_equal(weft_launch_newest_epoch(dir), 4);
    write_text("epoch", "3 00000000000000ab\n");
    assert_int_equal(weft_launch_newest_epoch(dir), 4);
    write_text("epoch", "7\n");
    assert_int_equal(weft_launch_newest_epoch(dir), 7);
    write_text("epoch", "-7\n");
    assert_int_equal(weft_launch_newest_epoch(dir), 4);
    write_text("epoch", "seven\n");
    write_text("views.jsonl", "[]\n");
    assert_int_equal(weft_launch_newest_epoch(dir), 0);
}

/* No agent listens at addresses of any kind: there is no run, and nothing is refused. */
static void a_run_that_is_gone(void **state)
{
    static const char *const agents[] = {
        "[]",
        "{}",
        "[1, {}, {\"host\": \"a\"}, {\"address\": 5}]",
        "[{\"host\": \"a\", \"address\": \"127.0.0.1:1\", \"ranks\": 1, \"id\": \"05\"}]",
        "[{\"host\": \"a\", \"address\": \"no address\"}]",
    };
    weft_launch_options o = {.output = test_files_path("."), .token = {.insecure = true}};
    weft_launch_living  x;
    char                text[400];
    (void)state;
    for (size_t k = 0; k < WEFT_COUNT(agents); k++) {
        snprintf(text, sizeof text, "{\"epoch\": 3, \"agents\": %s}\n", agents[k]);
        write_text("views.jsonl", text);
        weft_launch_find_living(&o, 0, NULL, &x);
        assert_int_equal(x.n, 0);
        assert_int_equal(weft_launch_refuse_living(&o), WEFT_OK);
    }
}

static void lists_of_addresses(void **state)
{
    char at[WEFT_LAUNCH_MAX_RDZV][64], text[64 * 20] = "a:1";
    (void)state;
    assert_int_equal(weft_launch_split_rdzv("a:1", at), 1);
    assert_int_equal(weft_launch_split_rdzv("a:1,[::1]:2,c:3", at), 3);
    assert_string_equal(at[1], "[::1]:2");
    assert_string_equal(at[2], "c:3");
    static const char *const bad[] = {"", ",", "a:1,", ",a:1", "a:1,,b:1"};
    for (size_t k = 0; k < WEFT_COUNT(bad); k++)
        assert_int_equal(weft_launch_split_rdzv(bad[k], at), 0);
    for (int k = 1; k < WEFT_LAUNCH_MAX_RDZV; k++) strcat(text, ",b:1");
    assert_int_equal(weft_launch_split_rdzv(text, at), WEFT_LAUNCH_MAX_RDZV);
    strcat(text, ",b:1");
    assert_int_equal(weft_launch_split_rdzv(text, at), 0);
    memset(text, 'x', 64);
    text[64] = 0;
    assert_int_equal(weft_launch_split_rdzv(text, at), 0);
    text[63] = 0;
    assert_int_equal(weft_launch_split_rdzv(text, at), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_files(the_last_whole_line),
        with_files(the_newest_number),
        with_files(a_run_that_is_gone),
        cmocka_unit_test(lists_of_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
